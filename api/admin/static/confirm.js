// A question before something is lost, in the page's one dialog.

/** Whether the answer is yes. Escape, Cancel and a click outside are no. */
export function confirmed(question, yes = "Yes") {
  const dialog = document.getElementById("confirm");
  document.getElementById("confirm-text").textContent = question;
  document.getElementById("confirm-yes").textContent = yes;
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}
