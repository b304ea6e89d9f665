// data-poll="2s" on an element with an id: refresh it that often while the page is visible.

import { refresh } from "./swap.js";

const SLOWEST_MS = 60_000;

export function startPolling() {
  for (const element of document.querySelectorAll("[data-poll]")) poll(element);
}

async function poll(element) {
  const usual = parseFloat(element.dataset.poll) * 1000;
  let pause = usual;
  while (element.isConnected) {
    await new Promise((resolve) => setTimeout(resolve, pause));
    if (document.hidden || document.querySelector("dialog[open]")) continue;
    try {
      await refresh(element.id);
      pause = usual;
    } catch {
      pause = Math.min(pause * 2, SLOWEST_MS);
    }
  }
}
