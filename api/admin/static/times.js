// <time> elements in the reader's own time, with the whole moment in their title.

import { onContent } from "./swap.js";

const SHOWN = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const WHOLE = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

export function localTimes() {
  onContent((part) => {
    for (const time of part.querySelectorAll("time[datetime]")) {
      const moment = new Date(time.dateTime);
      time.textContent = SHOWN.format(moment);
      time.title = WHOLE.format(moment);
    }
  });
}
