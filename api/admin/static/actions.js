// Buttons and forms that send requests to the API.
//
// <button data-method="DELETE" data-url="/v1/..."> and <form data-method="POST" data-url="/v1/..."> send a request, a form
// its fields as JSON. Further attributes:
//   data-confirm="Delete it?"  asks first; data-yes="Delete" labels the confirming button
//   data-then="/admin/..."     the page to go to afterwards, unless the response has another in `then`
//   data-refresh="ID ID"       or the parts of this page to refresh
//   data-done="Deleted."       the message shown
// A form's field is a number for type=number, true or false for a checkbox, a list for a name that ends in [], a member of
// an object for a name with a dot, and left out while it is empty. With enctype="multipart/form-data" they are sent as they are.
// A dialog around a form is closed. An error is shown in the form's .error, or in a corner.

import { announce } from "./announce.js";
import { send } from "./api.js";
import { isBusy, showBusy } from "./busy.js";
import { confirmed } from "./confirm.js";
import { leave, refresh, renew } from "./swap.js";

export function startActions() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-url]");
    if (button) run(button);
    const opener = event.target.closest("button[data-opens]");
    if (opener) document.getElementById(opener.dataset.opens).showModal();
    const closer = event.target.closest("button[data-closes]");
    if (closer) closer.closest("dialog").close();
  });
  document.addEventListener("submit", (event) => {
    const form = event.target.closest("form[data-url]");
    if (!form) return;
    event.preventDefault();
    run(form, form.enctype === "multipart/form-data" ? new FormData(form) : valuesOf(form));
  });
}

/** The values of a form's fields. */
export function valuesOf(form) {
  const values = {};
  for (const field of form.elements) {
    const value = valueOf(field);
    if (!field.name || value === undefined) continue;
    const [name, member] = field.name.split(".");
    if (name.endsWith("[]")) (values[name.slice(0, -2)] ??= []).push(value);
    else if (member) (values[name] ??= {})[member] = value;
    else values[name] = value;
  }
  return values;
}

function valueOf(field) {
  if (field.type === "checkbox" && !field.name.endsWith("[]")) return field.checked;
  if (["checkbox", "radio"].includes(field.type) && !field.checked) return undefined;
  const value = field.value || field.dataset.empty || "";
  if (value === "") return undefined;
  return field.type === "number" ? Number(value) : value;
}

async function run(element, value) {
  const { method, url, confirm, yes, then } = element.dataset;
  if (confirm && !(await confirmed(confirm, yes))) return;
  const button = element.matches("button") ? element : element.querySelector('[type="submit"]');
  if (isBusy(button)) return;
  complain(element, "");
  showBusy(button, true);
  leave(Boolean(then));
  try {
    const answer = await send(method, url, value);
    element.dispatchEvent(new CustomEvent("admin:done", { bubbles: true, detail: answer }));
    await goOn(element, answer);
  } catch (error) {
    leave(false);
    complain(element, error.message);
    if (error.status === 404 && element.dataset.refresh) await renew(element.dataset.refresh); // gone, but shown here
  } finally {
    showBusy(button, false);
  }
}

async function goOn(element, answer) {
  const { then, refresh: parts, done } = element.dataset;
  if (done) announce(done);
  element.closest("dialog")?.close();
  if (element.matches("form")) element.reset();
  if (then) location.assign(answer?.then ?? then);
  else if (parts) await refresh(parts);
}

function complain(element, reason) {
  const place = element.closest("dialog:not([open])") ? null : element.querySelector(".error");
  if (place) {
    place.textContent = reason;
    place.hidden = !reason;
  } else if (reason) announce(reason, "bad");
}
