// data-poll="2s" on an element with an id: refresh it that often while the page is visible, until the server renders it
// without. A page that takes the server long is refreshed less often.

import { element } from "./element.js";
import { refresh } from "./swap.js";

const SLOWEST_MS = 60_000;
const BUSY_SHARE = 0.1; // of the time, at most
const CLOCK = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });

const polled = new Set();

export function startPolling() {
  start();
  document.addEventListener("admin:refreshed", start);
}

function start() {
  for (const part of document.querySelectorAll("[data-poll]")) if (!polled.has(part)) poll(part);
}

async function poll(part) {
  polled.add(part);
  const usual = parseFloat(part.dataset.poll) * 1000;
  let [pause, failures, seen, notice] = [usual, 0, new Date(), null];
  while (part.isConnected && part.dataset.poll) {
    await new Promise((resolve) => setTimeout(resolve, pause));
    if (document.hidden || document.querySelector("dialog[open]")) continue;
    const began = performance.now();
    try {
      await refresh(part.id);
      pause = Math.min(Math.max(usual, (performance.now() - began) / BUSY_SHARE), SLOWEST_MS);
      [failures, seen] = [0, new Date()];
      notice?.remove();
    } catch (error) {
      pause = Math.min(pause * 2, SLOWEST_MS);
      failures += 1;
      if (failures !== 2 || document.getElementById("stale")) continue;
      notice = element("p", { id: "stale", class: "notice bad", role: "status" }, `Not updated since ${CLOCK.format(seen)}: ${error.message}`);
      part.before(notice);
    }
  }
  polled.delete(part);
}
