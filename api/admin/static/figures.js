// Charts and bars: what a mark says when somebody points at it, moments in the reader's own time, tables that stay open.
//
// data-tip="lines of text" on a mark shows them beside the pointer; with data-moment the time comes first. A chart's
// labels are <text data-moment>.

import { onContent } from "./swap.js";

const HOUR = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });
const MOMENT = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const AWAY = 14;

const tip = document.createElement("div");
tip.className = "tip";
tip.hidden = true;
tip.setAttribute("aria-hidden", "true"); // the same stands in the chart's table and in labels
document.body.append(tip);

document.addEventListener("pointermove", show);
document.addEventListener("pointerdown", show);
document.addEventListener("pointerleave", hide);
document.addEventListener("scroll", hide, { capture: true, passive: true });
document.addEventListener("admin:swapped", hide);

function show(event) {
  const mark = event.target.closest?.("[data-tip]");
  if (!mark) return hide();
  const { moment, tip: said } = mark.dataset;
  tip.textContent = (moment ? `${MOMENT.format(new Date(moment))}\n${said}` : said).trimEnd();
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = event.clientX + AWAY + width > innerWidth ? event.clientX - AWAY - width : event.clientX + AWAY;
  const top = event.clientY + AWAY + height > innerHeight ? event.clientY - AWAY - height : event.clientY + AWAY;
  tip.style.transform = `translate(${Math.max(left, 4)}px, ${Math.max(top, 4)}px)`;
}

function hide() {
  tip.hidden = true;
}

/** Ids of the tables that are open: a part that is replaced would close them. */
const open = new Set();

document.addEventListener("toggle", ({ target }) => {
  if (!target.matches?.("details[id]") || !target.isConnected) return;
  if (target.open) open.add(target.id);
  else open.delete(target.id);
}, { capture: true });

onContent((part) => {
  for (const details of part.querySelectorAll("details[id]")) if (open.has(details.id)) details.open = true;
  for (const chart of part.querySelectorAll(".chart")) labelTimes([...chart.querySelectorAll("text[data-moment]")]);
});

/** Days where the labels are a day or more apart, otherwise hours. */
function labelTimes(labels) {
  const moments = labels.map((label) => new Date(label.dataset.moment));
  const byDay = moments.length > 1 && moments[1] - moments[0] >= 24 * 3600 * 1000;
  labels.forEach((label, i) => { label.textContent = (byDay ? DAY : HOUR).format(moments[i]); });
}
