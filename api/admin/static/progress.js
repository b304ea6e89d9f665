// How far documents have come: the service's events of progress, and how they are shown.

const KINDS = { accepted: "", parsing: "busy", indexing: "busy", searchable: "busy", ready: "good", failed: "bad" };
const FINISHED = ["ready", "failed"];

/** Call `heard` with every change of a document's progress, `ended` when the service says that there is nothing more. */
export function watch(url, heard, ended = () => {}) {
  const source = new EventSource(url);
  source.addEventListener("progress", (event) => heard(JSON.parse(event.data)));
  for (const name of ["done", "deleted"]) {
    source.addEventListener(name, (event) => {
      source.close();
      ended(JSON.parse(event.data));
    });
  }
  addEventListener("pagehide", () => source.close());
}

/** Whether nothing more happens to a document unasked: with `kv_evicted` some of its KV found no room, and stays away. */
export function isFinished(progress) {
  return FINISHED.includes(progress.status) || progress.kv_evicted;
}

/** "prefill: 1,200 of 3,400 tokens" */
export function inWords({ stage, done, total, status }) {
  if (!stage || !total) return status;
  return `${stage}: ${done.toLocaleString("en")} of ${total.toLocaleString("en")} tokens`;
}

/** Show a document's state in an element that the server rendered: its badge and its bar. */
export function show(element, progress) {
  const badge = element.querySelector(".badge");
  badge.className = `badge ${KINDS[progress.status]}`;
  badge.dataset.status = badge.textContent = progress.status;
  element.querySelector("[data-progress]").replaceChildren(...bar(progress));
}

function bar(progress) {
  if (!progress.stage || !progress.total) return [];
  const line = document.createElement("progress");
  line.max = progress.total;
  line.value = progress.done;
  line.setAttribute("aria-label", `${progress.name}: ${progress.stage}`);
  const words = document.createElement("span");
  words.className = "sub";
  words.textContent = inWords(progress);
  return [line, words];
}
