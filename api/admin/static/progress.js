// Progress of documents: the service's events, and their display.

import { element } from "./element.js";

const KINDS = { accepted: "", parsing: "busy", indexing: "busy", searchable: "busy", ready: "good", failed: "bad" };
const FINISHED = ["ready", "failed"];
const AGAIN_MS = 3000;

/**
 * Call `heard` with every change of a document's progress, `ended` when the service reports that it is final, `opened`
 * whenever the events begin, also again: what changed before is not among them. A hidden page has no events, since a
 * browser keeps few connections open to one service.
 */
export function watch(url, heard, { opened, ended = () => {} }) {
  let source = null;
  let again = null;

  function open() {
    source = new EventSource(url);
    source.addEventListener("open", opened);
    source.addEventListener("progress", (event) => heard(JSON.parse(event.data)));
    for (const name of ["done", "deleted"]) {
      source.addEventListener(name, (event) => {
        close();
        document.removeEventListener("visibilitychange", follow);
        ended(JSON.parse(event.data));
      });
    }
    source.addEventListener("error", () => {
      if (source?.readyState !== EventSource.CLOSED) return; // the browser connects again
      close();
      again = setTimeout(retry, AGAIN_MS);
    });
  }

  /** Open again, unless the session has ended: `opened` finds that out, and goes to the login. */
  async function retry() {
    await opened();
    if (again) follow();
  }

  function close() {
    source?.close();
    clearTimeout(again);
    source = again = null;
  }

  function follow() {
    close();
    if (!document.hidden) open();
  }

  document.addEventListener("visibilitychange", follow);
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => {
    if (event.persisted) follow();
  });
  follow();
}

/** Whether the progress is final. With `kv_evicted` there was no room for all of the KV, and none will be added. */
export function isFinished(progress) {
  return FINISHED.includes(progress.status) || progress.kv_evicted;
}

/** "prefill: 1,200 of 3,400 tokens" */
export function inWords({ stage, done, total, status }) {
  if (stage === "reread") return "waiting to be read again (models or settings changed)";
  if (!stage || !total) return status;
  return `${stage}: ${done.toLocaleString("en")} of ${total.toLocaleString("en")} ${stage === "ocr" ? "pages" : "tokens"}`;
}

/** Update the badge and the bar of a part that the server rendered. */
export function show(part, progress) {
  const badge = part.querySelector(".badge");
  badge.className = `badge ${KINDS[progress.status]}`;
  badge.dataset.status = badge.textContent = progress.status;
  part.querySelector("[data-progress]").replaceChildren(...bar(progress));
}

function bar(progress) {
  const { name, stage, done, total } = progress;
  const words = element("span", { class: "sub" }, inWords(progress));
  if (stage === "reread") return [words];
  if (!stage || !total) return [];
  return [element("progress", { max: total, value: done, "aria-label": `${name}: ${stage}` }), words];
}
