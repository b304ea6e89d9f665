// Clicks and submits before the page's modules have run wait for them. A click would be lost otherwise, and a form would be
// sent by the browser itself. Not a module: modules run when the page has been read, this at once.

(() => {
  const waiting = new Set();

  function hold(event) {
    const pressed = event.target.closest(event.type === "submit" ? "form" : "button");
    if (!pressed) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    waiting.add(pressed);
  }

  function release() {
    for (const type of ["click", "submit"]) removeEventListener(type, hold, true);
    for (const pressed of waiting) {
      if (pressed.matches("form")) pressed.requestSubmit();
      else pressed.click();
    }
  }

  for (const type of ["click", "submit"]) addEventListener(type, hold, true);
  document.addEventListener("DOMContentLoaded", release, { once: true }); // the modules have run by then
})();
