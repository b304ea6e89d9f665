// One answer on the page, from waiting for it to its sources.

import { legend, piecesOf, promptBar, promptLegend, timingBar } from "./bars.js";
import { element } from "./element.js";
import { feedbackPart } from "./feedback.js";
import { duration, number, plural } from "./numbers.js";

const TICK_MS = 100;
const KV = {
  device: ["of-cached", "in the engine's cache"],
  host: ["of-stitched", "stitched from memory"],
  disk: ["of-disk", "stitched from the disk"],
  remote: ["of-remote", "stitched from the object store"],
  recomputed: ["of-recomputed", "recomputed"],
};

/** An article that fills as the answer streams in. `mode` is stitched or full. */
export class Answer {
  constructor(mode) {
    this.mode = mode;
    this.done = null;
    this.settled = false;
    this.state = element("span", { class: "badge busy" }, "waiting");
    this.time = element("p", { class: "figure" }, "0 ms");
    this.under = element("p", { class: "label" }, "so far, to the first token");
    this.text = element("div", { class: "answer-text", "aria-live": "polite", "aria-busy": "true" });
    this.below = element("div", { class: "stack below" });
    const title = mode === "full" ? "In full" : "Stitched";
    const head = element("header", {}, element("h2", {}, title), this.state);
    this.article = element("article", { class: `card answer ${mode}`, "aria-label": title }, head, this.time, this.under, this.text, this.below);
    this.began = performance.now();
    this.clock = setInterval(() => this.tick(), TICK_MS);
  }

  tick() {
    this.time.textContent = duration(performance.now() - this.began);
  }

  delta(text) {
    if (this.clock) {
      this.tick();
      this.stopClock();
      this.state.textContent = "answering";
      this.under.textContent = "to the first token, measured here";
    }
    this.text.append(text);
  }

  /** Show the complete answer: its text with citations, then sources, prompt, times and passages. */
  finish(done) {
    this.done = done;
    this.settle("good", done.cached_answer ? "cached answer" : "done");
    this.time.textContent = duration(done.timings.ttft_ms);
    this.under.textContent = `to the first token, ${duration(done.timings.total_ms)} in all`;
    const { sources, numberOf } = sourcesOf(done.citations);
    this.text.replaceChildren(...withCitations(done, numberOf));
    this.below.replaceChildren(...[
      keptNote(done.cached_answer),
      ...done.warnings.map((warning) => element("p", { class: "hint" }, `Note: ${warning}.`)),
      done.finish_reason === "length" && element("p", { class: "hint" }, "The answer was cut off at its token limit."),
      feedbackPart(done.id),
      sourceList(sources),
      this.promptPart(done),
      this.timingPart(done.timings.ttft_ms),
      passageList(done, this.mode),
    ].filter(Boolean));
    this.pointOut();
  }

  /** Draw the times on a scale that another answer shares. */
  rescale(longest) {
    this.below.querySelector(".timing-bar")?.replaceWith(timingBar(piecesOf(this.done.timings, this.mode === "full"), longest));
  }

  fail(reason) {
    this.settle("bad", "failed");
    this.time.hidden = this.under.hidden = this.text.hidden = !this.text.textContent;
    this.below.replaceChildren(element("p", { class: "notice bad", role: "alert" }, reason));
  }

  stop() {
    this.settle("plain", "stopped");
    this.time.hidden = this.under.hidden = this.text.hidden = !this.text.textContent;
    this.below.replaceChildren(element("p", { class: "hint" }, "Stopped: the engine has aborted this answer."));
  }

  settle(kind, text) {
    this.settled = true;
    this.stopClock();
    this.state.className = `badge ${kind}`;
    this.state.textContent = text;
    this.text.setAttribute("aria-busy", "false");
  }

  stopClock() {
    clearInterval(this.clock);
    this.clock = null;
  }

  promptPart({ prompt_spans: spans, usage }) {
    if (!spans.length) return null;
    return element(
      "section", {},
      element("h3", {}, `Prompt: ${plural(usage.prompt, "token")}`),
      promptBar(spans),
      promptLegend(spans),
      usage.failed_chunks > 0 && element("p", { class: "hint" }, `${plural(usage.failed_chunks, "passage")} had no usable KV.`),
    );
  }

  timingPart(longest) {
    const pieces = piecesOf(this.done.timings, this.mode === "full");
    if (!pieces.length) return null;
    return element(
      "section", {},
      element("h3", {}, "Time to first token"),
      timingBar(pieces, longest),
      legend(pieces.map(([kind, name, ms]) => [kind, name, duration(ms)])),
    );
  }

  /** Highlight the passage under the pointer in both the bar and the list. */
  pointOut() {
    const mark = ({ target, type }) => {
      const passage = target.closest?.("[data-passage]")?.dataset.passage;
      for (const other of this.below.querySelectorAll("[data-passage]")) {
        other.classList.toggle("pointed", type === "pointerover" && passage !== undefined && other.dataset.passage === passage);
      }
    };
    this.below.addEventListener("pointerover", mark);
    this.below.addEventListener("pointerleave", mark);
  }
}

/** Cited places, each once, in the order of the answer. */
function sourcesOf(citations) {
  const numbers = new Map();
  const sources = [];
  const keyOf = ({ document_id, start, end }) => `${document_id} ${start} ${end}`;
  for (const citation of citations) {
    if (numbers.has(keyOf(citation))) continue;
    sources.push(citation);
    numbers.set(keyOf(citation), sources.length);
  }
  return { sources, numberOf: (citation) => numbers.get(keyOf(citation)) };
}

/** The answer's text with the numbers of its citations. Places count code points, JavaScript strings UTF-16 units. */
function withCitations({ answer, citations }, numberOf) {
  const characters = Array.from(answer);
  const ends = [...new Set(citations.map((citation) => citation.answer_end))].sort((a, b) => a - b);
  const pieces = [];
  let at = 0;
  for (const end of ends) {
    pieces.push(characters.slice(at, end).join(""));
    for (const citation of citations.filter((other) => other.answer_end === end)) pieces.push(numbered(citation, numberOf(citation)));
    at = end;
  }
  pieces.push(characters.slice(at).join(""));
  return answer ? pieces : [element("span", { class: "muted" }, "The model returned an empty answer.")];
}

function numbered(citation, number_) {
  const label = `Source ${number_}: ${citation.title}`;
  return element("a", { class: "cite", href: sourceUrl(citation), target: "_blank", rel: "noopener", "aria-label": label, title: citation.quote }, String(number_));
}

function sourceList(sources) {
  if (!sources.length) return element("p", { class: "hint" }, "No passage supports the answer: it has no sources.");
  const items = sources.map((source, i) => element(
    "li", {},
    element("span", { class: "cite", "aria-hidden": "true" }, String(i + 1)),
    element(
      "div", {},
      element("a", { href: sourceUrl(source), target: "_blank", rel: "noopener" }, placeOf(source)),
      outdated(source),
      element("blockquote", {}, source.quote),
    ),
  ));
  return element("section", {}, element("h3", {}, "Sources"), element("ol", { class: "sources" }, ...items));
}

/** All passages, best first, as they come. */
function passageList({ passages, omitted_passages: unread = [] }, mode) {
  if (!passages.length) return null;
  return element(
    "details", { class: "passages" },
    element("summary", {}, plural(passages.length, "passage"), element("span", { class: "muted" }, unread.length ? ` read, ${number(unread.length)} more found; best first` : " best first")),
    element("ol", {}, ...passages.map((passage, i) => passageItem(passage, i, mode))),
    unread.length > 0 && element("p", { class: "hint" }, "Found, not read: ", ...listed(unread)),
  );
}

/** Links to the sources of passages, with commas between them. */
function listed(passages) {
  return passages.flatMap((passage, i) => [
    i ? ", " : "", element("a", { href: sourceUrl(passage), target: "_blank", rel: "noopener" }, placeOf(passage)),
  ]);
}

function passageItem(passage, index, mode) {
  return element(
    "li", { "data-passage": index },
    element("span", { class: "rank" }, String(index + 1)),
    element(
      "div", {},
      element("p", { class: "passage-head" }, element("a", { href: sourceUrl(passage), target: "_blank", rel: "noopener" }, placeOf(passage)), kvBadge(passage.kv, mode), omitted(passage)),
      outdated(passage),
      element("p", { class: "label" }, `score ${passage.score.toFixed(3)}, hop ${passage.hop}`),
      element("p", { class: "excerpt" }, passage.text),
    ),
  );
}

function kvBadge(kv, mode) {
  if (!kv) return null;
  const [kind, name] = mode === "full" && kv.source === "recomputed" ? ["of-computed", "computed"] : KV[kv.source];
  const redone = kv.source === "device" || kv.source === "recomputed" ? ""
    : kv.recomputed_tokens === null ? `, recomputed in part (of ${number(kv.tokens)} tokens)`
    : kv.recomputed_tokens ? `, ${number(kv.recomputed_tokens)} of ${plural(kv.tokens, "token")} recomputed` : `, ${plural(kv.tokens, "token")}`;
  return element("span", { class: "kv" }, element("span", { class: `swatch ${kind}` }), name + redone);
}

function omitted({ omitted_tokens: tokens }) {
  return tokens ? element("span", { class: "kv" }, `${plural(tokens, "token")} omitted`) : null;
}

function outdated({ outdated: reason }) {
  return reason ? element("p", { class: "error" }, `Outdated: ${reason}`) : null;
}

function keptNote(kept) {
  if (!kept) return null;
  const near = `${(kept.similarity * 100).toFixed(1)}% similar`;
  return element("p", { class: "notice good" }, `Answered from the cache, from an earlier question that is ${near}: “${kept.question}” No token ran through the model.`);
}

/** The page of a document with the place of a passage or citation marked, as long as its words are there. */
function sourceUrl({ document_id: id, start, end, page_text: path, checksum }) {
  const place = [start, end, checksum ?? new URL(path, location.href).searchParams.get("checksum")];
  return `/admin/documents/${encodeURIComponent(id)}?at=${place.join("-")}`;
}

function placeOf({ title, page_label: page }) {
  return page ? `${title}, ${page}` : title || "untitled";
}
