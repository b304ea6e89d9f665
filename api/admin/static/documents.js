// A collection's page: uploads of dropped files, and the progress of every document.

import { send as request } from "./api.js";
import { isFinished, show, watch } from "./progress.js";
import { renew } from "./swap.js";
import { Upload } from "./upload.js";

const AT_ONCE = 3;
const SETTLE_MS = 400;

const zone = document.getElementById("drop");
const list = document.getElementById("uploads");
const news = document.getElementById("upload-news");
const waiting = [];
const uploads = new Map();
let running = 0;
let settling = null;

function take(files) {
  const most = Number(zone.dataset.maxBytes);
  for (const file of files) {
    const upload = new Upload(file, list);
    if (file.size > most) upload.refuse("too large");
    else if (!file.size) upload.refuse("the file is empty, or a folder");
    else waiting.push(upload);
  }
  sendNext();
}

async function sendNext() {
  while (running < AT_ONCE && waiting.length) send(waiting.shift());
}

async function send(upload) {
  running += 1;
  const taken = await upload.send(zone.dataset.collection);
  running -= 1;
  if (taken) {
    if (upload.documentId) uploads.set(upload.documentId, upload);
    settle();
  }
  news.textContent = `${upload.file.name}: ${upload.state.textContent}`;
  sendNext();
}

function heard(progress) {
  const upload = uploads.get(progress.id);
  upload?.heard(progress);
  const row = document.querySelector(`[data-document="${CSS.escape(progress.id)}"]`);
  if (row) show(row, progress);
  if (upload && isFinished(progress)) {
    uploads.delete(progress.id);
    news.textContent = `${progress.name}: ${progress.status}`;
  }
  if (!row || isFinished(progress)) settle();
}

/** What changed while no events came: the list, and the documents of uploads. */
async function catchUp() {
  settle();
  for (const [id, upload] of [...uploads]) {
    try {
      heard(await request("GET", `/v1/documents/${id}`));
    } catch (error) {
      if (error.status !== 404) return;
      uploads.delete(id);
      upload.refuse("deleted in the meantime");
    }
  }
}

/** Refresh the list, once for all events within SETTLE_MS. */
function settle() {
  settling ??= setTimeout(() => {
    settling = null;
    renew("documents head");
  }, SETTLE_MS);
}

zone.addEventListener("dragover", (event) => {
  event.preventDefault();
  zone.classList.add("over");
});
zone.addEventListener("dragleave", (event) => {
  if (!zone.contains(event.relatedTarget)) zone.classList.remove("over");
});
zone.addEventListener("drop", (event) => {
  event.preventDefault();
  zone.classList.remove("over");
  take(event.dataTransfer.files);
});
document.getElementById("files").addEventListener("change", (event) => {
  take(event.target.files);
  event.target.value = "";
});
// A file that misses the zone is not opened in place of the page.
for (const type of ["dragover", "drop"]) document.addEventListener(type, (event) => event.preventDefault());
addEventListener("beforeunload", (event) => {
  if (running || waiting.length) event.preventDefault();
});
watch(`/v1/collections/${zone.dataset.collection}/events`, heard, { opened: catchUp });
