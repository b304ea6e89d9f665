// On a narrow page the navigation is a row that scrolls: the entry of this page is brought into sight.

export function showEntry() {
  const row = document.querySelector(".nav");
  const entry = row.querySelector("[aria-current]");
  if (entry) row.scrollLeft = entry.offsetLeft - (row.clientWidth - entry.offsetWidth) / 2;
}
