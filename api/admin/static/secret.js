// Display of a secret that the API returns once, with a button that copies it.
//
// <form data-url="..." data-secret="key" data-shows="ID">: the response's member `key` is shown in the `code` of the element,
// and what has data-until="ID" is hidden: it is no longer true.

import { announce } from "./announce.js";

const form = document.querySelector("form[data-secret]");
const shown = document.getElementById(form.dataset.shows);
const value = shown.querySelector(".secret code");

form.addEventListener("admin:done", (event) => {
  value.textContent = event.detail[form.dataset.secret];
  shown.hidden = false;
  for (const part of document.querySelectorAll(`[data-until="${shown.id}"]`)) part.hidden = true;
  shown.focus();
});

shown.querySelector(".secret button").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText(value.textContent);
    announce("Copied.");
  } catch {
    getSelection().selectAllChildren(value);
    announce("The browser does not allow copying: the text is selected, press Ctrl+C.", "bad");
  }
});
