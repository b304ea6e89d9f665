// One upload: its line in the list, from the first byte sent to the document being ready.

import { csrfToken, toLogin } from "./api.js";
import { element } from "./element.js";
import { inWords, isFinished } from "./progress.js";

const BUSY = [429, 503]; // statuses of a service that says when to try again
const TRIES = 5;

export class Upload {
  constructor(file, list) {
    this.file = file;
    this.documentId = null;
    this.name = element("span", { class: "upload-name" }, file.name);
    this.state = element("span", { class: "upload-state" }, "waiting");
    this.bar = element("progress", { value: 0, "aria-label": `Upload of ${file.name}` });
    this.line = element("li", { class: "upload" }, this.name, this.state, this.bar);
    list.prepend(this.line);
  }

  /** Send the file, again when a busy service says when. Resolves to whether it was accepted. */
  async send(collection) {
    for (let left = TRIES; ; left -= 1) {
      const request = await this.request(collection);
      const pause = Number(request.getResponseHeader("Retry-After"));
      if (left === 1 || !pause || !BUSY.includes(request.status)) return this.answered(request.status, request.responseText);
      this.moved("waiting", 0);
      await new Promise((resolve) => setTimeout(resolve, pause * 1000));
    }
  }

  /** Resolves to the request when it has ended: with status 0 where the connection broke. */
  request(collection) {
    return new Promise((resolve) => {
      const request = new XMLHttpRequest();
      request.open("POST", "/v1/documents");
      request.setRequestHeader("X-CSRF-Token", csrfToken());
      request.upload.onprogress = (event) => this.sent(event.loaded / event.total);
      request.onloadend = () => resolve(request);
      const form = new FormData();
      form.append("collection", collection);
      form.append("file", this.file);
      request.send(form);
    });
  }

  refuse(reason) {
    this.end("bad", reason);
  }

  /** Show an event of progress for the document made from the file. */
  heard(progress) {
    if (progress.status === "failed") this.end("bad", progress.error || "it failed");
    else if (isFinished(progress)) this.end("good", progress.status === "ready" ? "ready" : `${progress.status}, without room for all of its KV`);
    else this.moved(inWords(progress), progress.total ? progress.done / progress.total : undefined);
  }

  sent(share) {
    this.moved(`uploading, ${Math.floor(share * 100)}%`, share);
  }

  answered(status, text) {
    if (status === 401) toLogin();
    if (status === 0) return this.end("bad", "the connection broke: try again");
    const answer = parsed(text);
    if (status !== 202 && status !== 200) return this.end("bad", answer.detail || `error ${status}`);
    // No late event of an earlier upload takes the place of "already uploaded".
    this.documentId = isFinished(answer) ? null : answer.id;
    this.link(answer.id);
    if (status === 200) return this.end("good", `already uploaded, ${answer.status}`) || true;
    this.moved("queued", undefined);
    return true;
  }

  link(id) {
    this.name.replaceChildren(element("a", { href: `/admin/documents/${id}` }, this.file.name));
  }

  moved(words, share) {
    this.state.textContent = words;
    if (share === undefined) this.bar.removeAttribute("value");
    else this.bar.value = share;
  }

  end(kind, words) {
    this.line.classList.add(kind);
    this.state.textContent = words;
    this.bar.remove();
    return false;
  }
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return {};
  }
}
