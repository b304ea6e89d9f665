// Feedback on an answer: a thumb, and under it a corrected answer and a comment.

import { announce } from "./announce.js";
import { send } from "./api.js";
import { drawing, element } from "./element.js";

const LONGEST = 20_000;
const THUMB = "M3 9h3.2v7.5H3zM6.2 9l3.3-6c1.4 0 2 1 1.8 2.2L10.8 8h4.4c1 0 1.6.9 1.4 1.8l-1.2 5.3c-.2.8-.8 1.4-1.6 1.4H6.2";

/** A section for the feedback on the answer with this id. Every change is sent to the service. */
export function feedbackPart(answerId) {
  const url = `/v1/answers/${encodeURIComponent(answerId)}/feedback`;
  const [up, down] = [thumb("Good answer", "up"), thumb("Bad answer", "down")];
  const correction = element("textarea", { dir: "auto", id: `correction-${answerId}`, rows: 3, maxlength: LONGEST, placeholder: "What the answer should have been" });
  const comment = element("input", { id: `comment-${answerId}`, type: "text", maxlength: LONGEST });
  const complaint = element("p", { class: "error", role: "alert", hidden: true });
  const form = element(
    "form", { class: "stack", hidden: true },
    field("Corrected answer", correction),
    field("Comment", comment),
    element("div", { class: "actions" }, element("button", { type: "submit" }, "Save")),
  );
  let rating = null;
  let sending = false;

  async function change(wanted, said) {
    if (sending) return;
    sending = true;
    try {
      if (wanted === null) await send("DELETE", url);
      else await send("PUT", url, { rating: wanted, correction: correction.value || null, comment: comment.value || null });
      rating = wanted;
      complaint.hidden = true;
      announce(said);
    } catch (error) {
      complaint.hidden = false;
      complaint.textContent = error.message;
    }
    sending = false;
    up.setAttribute("aria-pressed", rating === "up");
    down.setAttribute("aria-pressed", rating === "down");
    form.hidden = rating === null;
  }

  for (const [button, wanted] of [[up, "up"], [down, "down"]]) {
    button.addEventListener("click", () => (rating === wanted ? change(null, "Feedback removed.") : change(wanted, "Thank you: rated.")));
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    change(rating, "Feedback saved.");
  });
  return element("section", { class: "stack feedback" }, element("div", { class: "actions" }, element("h3", {}, "Is this answer right?"), up, down), complaint, form);
}

function thumb(label, kind) {
  const picture = drawing(
    "svg", { class: `icon thumb-${kind}`, viewBox: "0 0 20 20", width: 20, height: 20, fill: "none", stroke: "currentColor", "stroke-width": 1.6, "stroke-linecap": "round", "stroke-linejoin": "round", "aria-hidden": "true" },
    drawing("path", { d: THUMB }),
  );
  return element("button", { class: `quiet thumb ${kind}`, type: "button", "aria-label": label, title: label, "aria-pressed": "false" }, picture);
}

function field(label, control) {
  return element("div", { class: "field" }, element("label", { for: control.id }, label), control);
}
