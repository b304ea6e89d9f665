// The KV store's page: verifications with their progress, and the result of an eviction.

import { announce } from "./announce.js";
import { Problem } from "./api.js";
import { number, plural, size } from "./numbers.js";
import { streamed } from "./stream.js";
import { renew } from "./swap.js";

const BROKEN = "The connection broke before all files were read: try again.";

const card = document.getElementById("verification");
const title = document.getElementById("verification-title");
const text = document.getElementById("verification-text");
const bar = document.getElementById("verification-bar");
let running = null;

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-verify]");
  if (button) verify(button);
});
document.addEventListener("admin:done", (event) => {
  if (!event.target.matches("[data-evicts]")) return;
  const { files, bytes } = event.detail;
  announce(files ? `${plural(files, "file")} removed, ${size(bytes)}.` : "Nothing was removed: other documents share all of it.");
});

/** Verify; only one verification runs at a time, a new one replaces it. */
async function verify(button) {
  running?.abort();
  running = new AbortController();
  const { signal } = running;
  begin(button.dataset.name);
  try {
    for await (const { name, value } of streamed(button.dataset.verify, {}, signal)) {
      if (name === "error") return fail(value.detail || value.title);
      if (name === "done") return await end(value);
      count(value);
    }
    fail(BROKEN);
  } catch (error) {
    if (error.name !== "AbortError") fail(error instanceof Problem ? error.message : BROKEN);
  }
}

function begin(name) {
  card.hidden = false;
  card.setAttribute("aria-busy", "true"); // its progress is not read aloud, its result is
  title.textContent = `Verifying ${name}`;
  text.textContent = "";
  bar.hidden = false;
  bar.removeAttribute("value");
}

function count({ checked, total, bytes }) {
  bar.max = total || 1;
  bar.value = total ? checked : 1;
  text.textContent = `${number(checked)} of ${plural(total, "file")}, ${size(bytes)}`;
}

async function end(found) {
  title.textContent = title.textContent.replace("Verifying", "Verified");
  show(inWords(found));
  await renew("kv");
}

function fail(reason) {
  title.textContent = title.textContent.replace("Verifying", "Not verified:");
  show(reason);
}

function show(result) {
  card.setAttribute("aria-busy", "false");
  text.textContent = result;
  bar.hidden = true;
}

function inWords({ checked, bytes, damaged, missing, unusable, documents }) {
  const wrong = [
    damaged && `${plural(damaged, "damaged file")} removed`,
    missing && `${plural(missing, "file")} missing`,
    unusable && `${plural(unusable, "file")} that cannot be used now`,
  ].filter(Boolean);
  const all = `${plural(checked, "file")}, ${size(bytes)}`;
  if (!wrong.length) return `${all}: all intact.`;
  const cure = documents.length ? ` Rebuild ${plural(documents.length, "document")} to compute them again.` : "";
  return `${all}: ${wrong.join(", ")}.${cure}`;
}
