// A document's page: shows its progress, and scrolls to the place a citation points to.

import { show, watch } from "./progress.js";
import { refresh } from "./swap.js";

const facts = document.getElementById("facts");
const source = document.getElementById("source");

if (!["ready", "failed"].includes(facts.dataset.status)) {
  watch(`/v1/documents/${facts.dataset.document}/events`, (progress) => show(facts, progress), () => refresh("facts chunks"));
}
if (source) {
  source.scrollIntoView({ block: "center" });
  source.focus({ preventScroll: true });
}
