// On a narrow page the navigation is a scrolling row: scroll this page's entry into view.

export function showEntry() {
  const row = document.querySelector(".nav");
  const entry = row.querySelector("[aria-current]");
  if (entry) row.scrollLeft = entry.offsetLeft - (row.clientWidth - entry.offsetWidth) / 2;
}
