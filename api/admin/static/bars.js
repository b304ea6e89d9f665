// Bars: a prompt's tokens by origin, and the stages of the time to first token.

import { drawing, element } from "./element.js";
import { duration, number, percent } from "./numbers.js";

const ORIGINS = {
  cached: "in the engine's cache",
  stitched: "stitched from stored KV",
  recomputed: "recomputed in place",
  computed: "computed",
  unknown: "stitched or recomputed: not reported by the engine",
};
const HEIGHT = 30;
const LABELS = 18;
const ROOM = 3.5; // percent of the width that a number needs

/** The spans of a prompt in order. Marks of passages have data-passage, the passage's index, and its rank, from 1. */
export function promptBar(spans) {
  const total = spans.at(-1).end;
  const at = (token) => `${(token / total) * 100}%`;
  const bar = drawing("svg", {
    class: "prompt-bar", width: "100%", height: HEIGHT + LABELS, role: "img", "aria-label": inWords(spans, total),
  });
  for (const span of spans) {
    const origin = span.origin ?? "unknown";
    bar.append(drawing("rect", {
      class: `of-${origin}`, x: at(span.start), width: at(span.end - span.start), y: 0, height: HEIGHT,
      "data-tip": `${nameOf(span)}\n${ORIGINS[origin]}: tokens ${number(span.start)} to ${number(span.end)}`,
      "data-passage": span.passage,
    }));
  }
  for (const part of parts(spans)) {
    if (part.start) bar.append(drawing("line", { class: "cut", x1: at(part.start), x2: at(part.start), y1: 0, y2: HEIGHT + 4 }));
    if (part.passage !== null && ((part.end - part.start) / total) * 100 > ROOM) {
      const middle = at((part.start + part.end) / 2);
      bar.append(drawing("text", { x: middle, y: HEIGHT + 14, "data-passage": part.passage }, String(part.passage + 1)));
    }
  }
  return bar;
}

export function promptLegend(spans) {
  const sums = new Map();
  for (const span of spans) {
    const origin = span.origin ?? "unknown";
    sums.set(origin, (sums.get(origin) ?? 0) + span.end - span.start);
  }
  const total = spans.at(-1).end;
  return legend(Object.keys(ORIGINS).filter((origin) => sums.has(origin)).map((origin) => (
    [origin, ORIGINS[origin], `${number(sums.get(origin))} (${percent(sums.get(origin) / total)})`]
  )));
}

/** The stages of the time to first token, on a scale that ends at `longest` milliseconds. */
export function timingBar(pieces, longest) {
  const bar = drawing("svg", {
    class: "timing-bar", width: "100%", height: 16, role: "img",
    "aria-label": pieces.map(([, name, ms]) => `${name} ${duration(ms)}`).join(", "),
  });
  bar.append(drawing("rect", { class: "track", width: "100%", height: 16, rx: 4 }));
  let x = 0;
  for (const [kind, name, ms] of pieces) {
    const width = (ms / longest) * 100;
    bar.append(drawing("rect", { class: `of-${kind}`, x: `${x}%`, width: `${width}%`, height: 16, "data-tip": `${name}: ${duration(ms)}` }));
    x += width;
  }
  return bar;
}

/** The stages of the time to first token: [kind, name, milliseconds]. */
export function piecesOf(timings, isFull) {
  const engine = timings.engine_ttft_ms;
  const load = Math.min(timings.kv_load_ms, engine);
  const redo = Math.min(timings.recompute_ms, engine - load);
  const before = Math.max(timings.ttft_ms - engine - timings.retrieve_ms, 0);
  const pieces = [
    ["retrieve", "retrieval", timings.retrieve_ms],
    ["plan", "plan", before],
    ["load", "KV load", load],
    ["redo", "recompute", redo],
    ["rest", isFull ? "prefill and first token" : "question and first token", engine - load - redo],
  ];
  return pieces.filter(([, , ms]) => ms > 0);
}

export function legend(entries) {
  return element("ul", { class: "legend" }, ...entries.map(([kind, name, value]) => element(
    "li", {},
    element("span", { class: `swatch of-${kind}` }),
    element("span", {}, name),
    element("strong", {}, value),
  )));
}

/** Join neighbouring spans of one part. */
function parts(spans) {
  const joined = [];
  for (const span of spans) {
    const last = joined.at(-1);
    if (last && last.kind === span.kind && last.passage === span.passage) last.end = span.end;
    else joined.push({ ...span });
  }
  return joined;
}

function nameOf(span) {
  if (span.kind === "prefix") return "Instructions";
  return span.kind === "question" ? "Question" : `Passage ${span.passage + 1}`;
}

function inWords(spans, total) {
  const words = parts(spans).length;
  return `The prompt's ${number(total)} tokens in ${words} parts, by origin; the legend has the sums`;
}
