// Buttons that are busy: a press of one does nothing, and it keeps the keyboard's focus, which `disabled` would take away.

/** Whether a button is busy. Its handler has to ask. */
export function isBusy(button) {
  return button.ariaDisabled === "true";
}

/** Mark a button as busy, or no longer. */
export function showBusy(button, is) {
  button.ariaDisabled = is ? "true" : null;
}
