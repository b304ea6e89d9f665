// A document's page: shows its progress, and scrolls to the place a citation points to: on the picture of
// its page, if there is one, which stands beside the text or above it. The text of a slide or a sheet scrolls by itself.

import { show, watch } from "./progress.js";
import { renew } from "./swap.js";

const facts = document.getElementById("facts");
const source = document.getElementById("source");
const lit = document.getElementById("lit");
const litText = document.getElementById("lit-text");

if (!["ready", "failed"].includes(facts.dataset.status)) {
  const renewed = () => renew("head facts attachments chunks");
  watch(`/v1/documents/${facts.dataset.document}/events`, (progress) => show(facts, progress), { opened: renewed, ended: renewed });
}
if (litText) litText.parentElement.scrollTop = litText.offsetTop - litText.parentElement.clientHeight / 3;
if (source ?? lit) (lit ?? source).scrollIntoView({ block: "center" });
if (source) source.focus({ preventScroll: true });
