// Server-sent events from a POST, which EventSource cannot send.

import { call } from "./api.js";

/** Send a value; yields { name, value } for each event with its JSON read. Throws Problem when the request is refused. */
export async function* streamed(url, value, signal) {
  const response = await call(url, {
    method: "POST",
    body: JSON.stringify(value),
    headers: { "Content-Type": "application/json", Accept: "text/event-stream" },
    signal,
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value: text } = await reader.read();
    if (done) return;
    const blocks = (rest + text).replaceAll("\r\n", "\n").split("\n\n");
    rest = blocks.pop();
    for (const block of blocks) {
      const event = read(block);
      if (event) yield event;
    }
  }
}

/** One block of lines as an event; null for a comment. */
function read(block) {
  let name = "message";
  const data = [];
  for (const line of block.split("\n")) {
    if (line.startsWith("event:")) name = line.slice(6).trim();
    else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
  }
  return data.length ? { name, value: JSON.parse(data.join("\n")) } : null;
}
