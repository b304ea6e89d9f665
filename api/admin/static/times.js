// <time> elements in the reader's time zone, with date and time in full as their title.

import { onContent } from "./swap.js";

const DAY = { month: "short", day: "numeric", hour: "numeric", minute: "2-digit" };
const THIS_YEAR = new Intl.DateTimeFormat(undefined, DAY);
const ANY_YEAR = new Intl.DateTimeFormat(undefined, { ...DAY, year: "numeric" });
const WHOLE = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

export function localTimes() {
  onContent((part) => {
    for (const time of part.querySelectorAll("time[datetime]")) {
      const moment = new Date(time.dateTime);
      time.textContent = (isThisYear(moment) ? THIS_YEAR : ANY_YEAR).format(moment);
      time.title = WHOLE.format(moment);
    }
  });
}

function isThisYear(moment) {
  return moment.getFullYear() === new Date().getFullYear();
}
