// The form that starts an evaluation: its fields as JSON, the lines of a chosen file as its questions, and a period, which
// is the seconds before now.

import { send } from "./api.js";
import { isBusy, showBusy } from "./busy.js";
import { valuesOf } from "./actions.js";

const form = document.getElementById("start");
const file = document.getElementById("set-file");
const complaint = form.querySelector(".error");

form.addEventListener("change", showFile);
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector('[type="submit"]');
  if (isBusy(button)) return;
  showBusy(button, true);
  complaint.hidden = true;
  try {
    const wanted = valuesOf(form);
    if (wanted.source === "given") {
      wanted.questions = await questionsIn(file.files[0], wanted.limit);
      delete wanted.since;
    }
    if (wanted.since) wanted.since = new Date(Date.now() - wanted.since * 1000).toISOString();
    const run = await send("POST", "/v1/evaluations", wanted);
    location.assign(`/admin/evaluations/${run.id}`);
  } catch (error) {
    complaint.textContent = error.message;
    complaint.hidden = false;
    showBusy(button, false);
  }
});

function showFile() {
  const given = form.elements.source.value === "given";
  document.getElementById("set-field").hidden = !given;
  document.getElementById("since-field").hidden = given;
  file.required = given;
}

/** The first values of a file of JSON lines. Throws an error that names the line that is none. */
async function questionsIn(chosen, limit) {
  const lines = (await chosen.text()).split("\n").map((line, index) => [line.trim(), index + 1]);
  return lines.filter(([line]) => line).slice(0, limit).map(([line, number]) => {
    try {
      return JSON.parse(line);
    } catch {
      throw new Error(`${chosen.name}, line ${number}: not JSON`);
    }
  });
}

showFile();
