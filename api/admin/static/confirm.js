// Confirmation of destructive actions, in the page's one dialog.

/** Ask, and resolve to whether the answer is yes. Escape and Cancel are no, and so is every question while another is asked. */
export async function confirmed(question, yes = "Yes") {
  const dialog = document.getElementById("confirm");
  if (dialog.open) return false;
  document.getElementById("confirm-text").textContent = question;
  document.getElementById("confirm-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
