// Charts and bars: the tip of the mark under the pointer, and times in the reader's time zone.
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
document.addEventListener("admin:refreshed", () => {
  if (!mark?.isConnected) hide();
});

let mark = null;

function show(event) {
  mark = event.target.closest?.("[data-tip]");
  if (!mark) return hide();
  const { moment, tip: text } = mark.dataset;
  tip.textContent = (moment ? `${MOMENT.format(new Date(moment))}\n${text}` : text).trimEnd();
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = event.clientX + AWAY + width > innerWidth ? event.clientX - AWAY - width : event.clientX + AWAY;
  const top = event.clientY + AWAY + height > innerHeight ? event.clientY - AWAY - height : event.clientY + AWAY;
  tip.style.transform = `translate(${Math.max(left, 4)}px, ${Math.max(top, 4)}px)`;
}

function hide() {
  tip.hidden = true;
}

onContent((part) => {
  for (const chart of part.querySelectorAll(".chart")) labelTimes([...chart.querySelectorAll("text[data-moment]")]);
});

/** Days where the labels span a day or more, otherwise hours. */
function labelTimes(labels) {
  const moments = labels.map((label) => new Date(label.dataset.moment));
  const byDay = moments.length > 1 && moments.at(-1) - moments[0] >= 24 * 3600 * 1000;
  labels.forEach((label, i) => { label.textContent = (byDay ? DAY : HOUR).format(moments[i]); });
}
