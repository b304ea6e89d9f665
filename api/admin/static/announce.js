// Short messages, shown in a corner and read out by screen readers.

const SHOWN_MS = 6000;

export function announce(text, kind = "good") {
  const toast = document.createElement("p");
  toast.className = `toast ${kind}`;
  toast.textContent = text;
  document.getElementById("toasts").append(toast);
  setTimeout(() => toast.remove(), SHOWN_MS);
}
