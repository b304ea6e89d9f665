// The playground: one question, asked once or twice.

import { Answer } from "./answer.js";
import { Problem } from "./api.js";
import { showBusy } from "./busy.js";
import { drawing, element } from "./element.js";
import { duration, percent } from "./numbers.js";
import { streamed } from "./stream.js";

const WARM = 0.5; // beyond this share of a prompt in the engine's own cache, a comparison says little
const LONGEST_ADDRESS = 8000; // characters; servers and proxies refuse longer ones
const BROKEN = "The connection broke before the answer was complete: try again.";

const form = document.getElementById("ask");
const [askOnce, compare, stop] = ["ask-once", "compare", "stop"].map((id) => document.getElementById(id));
const complaint = document.getElementById("ask-error");
const verdict = document.getElementById("verdict");
const answers = document.getElementById("answers");

let running = null;

form.addEventListener("submit", (event) => {
  event.preventDefault();
  begin([form.elements.mode.value], {});
});
form.addEventListener("invalid", () => (document.getElementById("more").open = true), true); // the browser shows no complaint of a hidden field
form.elements.policy.addEventListener("change", showShare);
compare.addEventListener("click", () => {
  if (!running && form.reportValidity()) begin(["stitched", "full"], { answer_cache: false });
});
stop.addEventListener("click", () => running?.abort());
document.addEventListener("keydown", (event) => {
  if (event.isComposing) return;
  if (event.key === "Escape") running?.abort();
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  event.preventDefault();
  const feedback = event.target.closest(".feedback form");
  if (feedback) return feedback.requestSubmit();
  (event.shiftKey ? compare : askOnce).click();
});

/** Ask in each mode, one after the other so that none slows the other down. */
async function begin(modes, more) {
  if (running || !hasQuestion()) return;
  running = new AbortController();
  showRunning(true);
  rememberQuestion();
  verdict.hidden = true;
  answers.replaceChildren();
  answers.className = modes.length > 1 ? "answers two" : "answers";
  const done = [];
  const body = asked();
  for (const mode of modes) {
    const answer = new Answer(mode);
    answers.append(answer.article);
    await run(answer, { ...body, mode, ...more }, running.signal);
    if (!answer.done) break;
    done.push(answer);
  }
  if (done.length === 2) judge(...done);
  running = null;
  showRunning(false);
}

async function run(answer, body, signal) {
  try {
    for await (const { name, value } of streamed("/v1/ask", body, signal)) {
      if (name === "delta") answer.delta(value.text);
      else if (name === "done") answer.finish(value);
      else if (name === "error") answer.fail(value.detail || value.title);
    }
    if (!answer.settled) answer.fail(BROKEN);
  } catch (error) {
    if (error.name === "AbortError") answer.stop();
    else answer.fail(error instanceof Problem ? error.message : BROKEN);
  }
}

/** The share that applies when none is given: a policy that is named recomputes, also where the default does not. */
function showShare() {
  const { policy, ratio } = form.elements;
  ratio.placeholder = policy.selectedOptions[0].dataset.share;
}

/** The request body but for the mode: the form's values, without fields left to the settings. */
function asked() {
  const { question, collection, policy, ratio, sparse, top_k: passages, hops, max_tokens: tokens } = form.elements;
  const body = { question: question.value, collection: collection.value, stream: true };
  if (policy.value) body.policy = policy.value;
  if (ratio.value) body.recompute_ratio = Number(ratio.value) / 100;
  if (sparse.value) body.sparse_ratio = Number(sparse.value) / 100;
  for (const field of [passages, hops, tokens]) if (field.value) body[field.name] = Number(field.value);
  return body;
}

function hasQuestion() {
  const empty = !form.elements.question.value.trim();
  complaint.hidden = !empty;
  complaint.textContent = empty ? "The question is empty: ask something." : "";
  if (empty) form.elements.question.focus();
  return !empty;
}

/** Keep the question in the address, if it fits, so that it is still there when the reader returns from a source. */
function rememberQuestion() {
  const { question, collection } = form.elements;
  const query = new URLSearchParams({ collection: collection.value, question: question.value });
  if (`${query}`.length > LONGEST_ADDRESS) query.delete("question");
  history.replaceState(null, "", `?${query}`);
}

function showRunning(is) {
  const stopped = document.activeElement === stop;
  for (const button of [askOnce, compare]) showBusy(button, is);
  stop.hidden = !is;
  if (!is && stopped) form.elements.question.focus();
}

/** Show both times side by side, and notes on the comparison. */
function judge(stitched, full) {
  const [fast, slow] = [stitched, full].map((answer) => answer.done.timings.ttft_ms);
  const longest = Math.max(fast, slow);
  for (const answer of [stitched, full]) answer.rescale(longest);
  const sooner = fast <= slow;
  const times = (sooner ? slow / fast : fast / slow).toFixed(1);
  verdict.replaceChildren(
    element("div", { class: "race-figure" },
      element("h2", {}, "Time to first token"),
      element("p", { class: "figure big" }, `${times}×`),
      element("p", { class: "muted" }, sooner ? "faster than full prefill" : "slower than full prefill")),
    element("div", { class: "race-bars" },
      raceRow("Stitched", "stitched", fast, longest),
      raceRow("In full", "full", slow, longest),
      ...notes(stitched.done, full.done)),
  );
  verdict.hidden = false;
  verdict.scrollIntoView({ block: "nearest" });
}

function raceRow(name, kind, ms, longest) {
  return element("div", { class: "race-row" },
    element("span", { class: "race-name" }, name),
    drawing("svg", { class: "race-bar", width: "100%", height: 26, "aria-hidden": "true" },
      drawing("rect", { class: "track", width: "100%", height: 26, rx: 5 }),
      drawing("rect", { class: `of-${kind}`, width: `${(ms / longest) * 100}%`, height: 26, rx: 5 })),
    element("span", { class: "race-value" }, element("strong", {}, duration(ms))));
}

/** Notes: the engine's time alone, whether the answers agree, whether the comparison is fair. */
function notes(stitched, full) {
  const engine = full.timings.engine_ttft_ms / stitched.timings.engine_ttft_ms;
  const lines = [
    `The engine alone, without retrieval: ${duration(stitched.timings.engine_ttft_ms)} against ${duration(full.timings.engine_ttft_ms)}, ${engine.toFixed(1)}×.`,
    stitched.answer === full.answer ? "Both answers are the same, word for word." : "The answers differ: read both.",
  ];
  for (const [mode, { usage }] of [["stitched", stitched], ["full", full]]) {
    if (usage.cached > WARM * usage.prompt) {
      lines.push(`The engine still held ${percent(usage.cached / usage.prompt)} of the ${mode} prompt from an earlier question: for a fair comparison ask something new.`);
    }
  }
  return lines.map((text) => element("p", { class: "hint" }, text));
}
