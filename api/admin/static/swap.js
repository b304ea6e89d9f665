// Parts of the page, by their ids, replaced by what the server renders for them now.

import { call, toLogin } from "./api.js";

const LONGEST_PRESS_MS = 1000;

/** What each part was last replaced with: scripts may have touched it since. */
const seen = new WeakMap();

/** Settled while no button is held down: one that is replaced before it is let go is never clicked. */
let released = Promise.resolve();
let letGo = () => {};

addEventListener(
  "pointerdown",
  () => {
    released = new Promise((resolve) => {
      letGo = resolve;
      setTimeout(resolve, LONGEST_PRESS_MS);
    });
  },
  true,
);
for (const type of ["pointerup", "pointercancel"]) {
  addEventListener(type, () => setTimeout(letGo), true); // after the click that follows
}

/** Load `url`, by default this page, and put its elements with these ids (between spaces) in the place of this page's. */
export async function refresh(ids, url = location.href) {
  const response = await call(url, { headers: { Accept: "text/html" } });
  if (new URL(response.url).pathname === "/admin/login") return toLogin();
  const loaded = new DOMParser().parseFromString(await response.text(), "text/html");
  await released;
  for (const id of ids.split(" ")) {
    const [old, fresh] = [document.getElementById(id), loaded.getElementById(id) ?? loaded.body];
    if (old) replace(old, fresh, fresh.innerHTML);
  }
}

/** Call `prepare` with the whole page now and with every part that is replaced later. */
export function onContent(prepare) {
  prepare(document);
  document.addEventListener("admin:swapped", (event) => prepare(event.detail));
}

/** The focus stays where it was, on the element with the same id, or else on the part itself. */
function replace(old, fresh, html) {
  if (seen.get(old) === html) return;
  seen.set(old, html);
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  old.replaceChildren(...fresh.childNodes);
  if (focused) keepFocus(old, focused.id);
  document.dispatchEvent(new CustomEvent("admin:swapped", { detail: old }));
}

function keepFocus(part, id) {
  const again = id && document.getElementById(id);
  if (!again) part.tabIndex = -1;
  (again || part).focus({ preventScroll: true });
}
