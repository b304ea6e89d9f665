// Display of a new key, once, with a button that copies it.

import { announce } from "./announce.js";

const shown = document.getElementById("new-key");
const value = document.getElementById("new-key-value");

document.getElementById("make-key").addEventListener("admin:done", (event) => {
  value.textContent = event.detail.key;
  shown.hidden = false;
  shown.focus();
});

document.getElementById("copy-key").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(value.textContent);
    announce("Copied.");
  } catch {
    getSelection().selectAllChildren(value);
    announce("The browser does not allow copying: the key is selected, press Ctrl+C.", "bad");
  }
});
