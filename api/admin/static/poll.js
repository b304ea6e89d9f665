// data-poll="2s" or data-poll="/admin/other 2s" on an element with an id: it is refreshed that often while it is seen.

import { refresh } from "./swap.js";

const SLOWEST_MS = 60_000;

export function startPolling() {
  for (const element of document.querySelectorAll("[data-poll]")) poll(element);
}

async function poll(element) {
  const [every, url] = element.dataset.poll.trim().split(/\s+/).reverse();
  const usual = parseFloat(every) * 1000;
  let pause = usual;
  while (element.isConnected) {
    await new Promise((resolve) => setTimeout(resolve, pause));
    if (document.hidden || document.querySelector("dialog[open]")) continue;
    try {
      await refresh(element.id, url);
      pause = usual;
    } catch {
      pause = Math.min(pause * 2, SLOWEST_MS);
    }
  }
}
