// Parts of the page, by their ids, brought up to date with what the server renders for them now.

import { announce } from "./announce.js";
import { call, csrfToken } from "./api.js";
import { Idiomorph } from "./idiomorph-0.8.0.js";

const LONGEST_PRESS_MS = 1000;
const CHOSEN = ["open", "selected"]; // open or closed, and an option, are the reader's choice

const preparers = [];

let loads = 0;
const shown = new Map(); // of each part's id, which load it shows
let leaving = false;

/** Settled while no button is held down: one that moves away under the pointer before it is let go is never clicked. */
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

/** Whether the page is about to be left. Nothing of it is loaded then: what it shows may be gone. */
export function leave(is) {
  leaving = is;
}

addEventListener("pageshow", () => leave(false)); // the reader came back to it

/** Call `prepare` with the whole page now, and with every page that is loaded later before parts of it are shown. */
export function onContent(prepare) {
  prepare(document);
  preparers.push(prepare);
}

/**
 * Load this page again and update its elements with these ids (between spaces). Nodes are changed, not replaced: the
 * focus, a selection, an open table and a scrolled one stay. Rows of a list need ids, or one becomes another. What a
 * load brings after a later one is not shown.
 */
export async function refresh(ids) {
  if (leaving) return;
  const load = ++loads;
  const response = await call(location.href);
  const loaded = new DOMParser().parseFromString(await response.text(), "text/html");
  if (csrfToken(loaded) !== csrfToken()) return location.reload(); // another session, or another tenant
  for (const prepare of preparers) prepare(loaded);
  await released;
  for (const id of ids.split(" ")) {
    const [part, fresh] = [document.getElementById(id), loaded.getElementById(id)];
    if (!part || !fresh || load < (shown.get(id) ?? 0)) continue;
    shown.set(id, load);
    update(part, fresh);
  }
  document.dispatchEvent(new CustomEvent("admin:refreshed"));
}

/** `refresh`, announcing why it failed. */
export async function renew(ids) {
  try {
    await refresh(ids);
  } catch (error) {
    announce(error.message, "bad");
  }
}

/** The focus goes to the part itself where the element that had it is gone. */
function update(part, fresh) {
  const hadFocus = part.contains(document.activeElement);
  Idiomorph.morph(part, [...fresh.childNodes], {
    morphStyle: "innerHTML",
    callbacks: { beforeAttributeUpdated: (name) => !CHOSEN.includes(name) },
  });
  if (fresh.dataset.poll) part.dataset.poll = fresh.dataset.poll;
  else delete part.dataset.poll;
  if (!hadFocus || part.contains(document.activeElement)) return;
  part.tabIndex = -1;
  part.focus({ preventScroll: true });
}
