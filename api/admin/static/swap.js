// A part of the page, by its id, replaced by what the server renders for it now.

import { call, toLogin } from "./api.js";

/** What each part was last replaced with: scripts may have touched it since. */
const seen = new WeakMap();

/** Load `url`, by default this page, and put its element with the same id in the place of this one. */
export async function refresh(id, url = location.href) {
  const response = await call(url, { headers: { Accept: "text/html" } });
  if (new URL(response.url).pathname === "/admin/login") return toLogin();
  const loaded = new DOMParser().parseFromString(await response.text(), "text/html");
  const fresh = loaded.getElementById(id) ?? loaded.body;
  const old = document.getElementById(id);
  const html = fresh.innerHTML;
  if (old && seen.get(old) !== html) put(old, fresh);
  if (old) seen.set(old, html);
}

/** The focus stays where it was, on the element with the same id, or else on the part itself. */
function put(old, fresh) {
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  old.replaceChildren(...fresh.childNodes);
  if (focused) (focused.id && document.getElementById(focused.id) || old).focus({ preventScroll: true });
  document.dispatchEvent(new CustomEvent("admin:swapped", { detail: old }));
}

/** Call `prepare` with the whole page now and with every part that is replaced later. */
export function onContent(prepare) {
  prepare(document);
  document.addEventListener("admin:swapped", (event) => prepare(event.detail));
}
