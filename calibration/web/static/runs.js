// One's own runs: a table is checked as soon as it is chosen, and fitted on demand.
import {planWith, point, send} from "./page.js";
import {draw, save} from "./plot.js";

const $ = (id) => document.getElementById(id);
const form = $("runs"), table = $("upload-runs");
const binary = "application/octet-stream";
let checking = null, called = "", stopping = false, waiting = 0, usable = false, calibration = "";

function reading() {
  const given = new URLSearchParams(), columns = [];
  for (const [name, value] of new FormData(form)) {
    if (!value.trim()) continue;
    if (name.startsWith("column-")) columns.push(`${name.slice(7)}=${value.trim()}`);
    else given.set(name, value.trim());
  }
  if (columns.length) given.set("columns", columns.join(", "));
  given.set("file", table.files[0].name.slice(-200));
  return given;
}
function say({html = "", problems = {}}) {
  $("runs-check").innerHTML = html;
  form.querySelectorAll(".problem.extra").forEach((one) => one.remove());
  const [first, ...others] = Object.entries(problems);
  point(form, first && {field: first[0], text: first[1]});
  for (const [field, text] of others) { // each at its own field
    const label = form.querySelector(`[data-field="${CSS.escape(field)}"]`);
    const said = Object.assign(document.createElement("p"), {className: "problem extra", textContent: text});
    (label ?? form.querySelector(".output > *")).after(said);
    const fold = label?.closest("details");
    if (fold) fold.open = true;
  }
}
async function check() {
  checking?.abort();
  const [file] = table.files;
  $("example").hidden = !!file;
  usable = false;
  if (!file) return say({});
  checking = new AbortController();
  try {
    const how = {type: binary, signal: checking.signal};
    const reply = await (await send(`page/check?${reading()}`, file, how)).json();
    $("columns").replaceChildren(...(reply.names ?? []).map((name) => new Option(name)));
    usable = !Object.keys(reply.problems).length && !reply.html.includes('role="alert"');
    say(reply);
  } catch (error) {
    if (error.name !== "AbortError") say({problems: {table: error.message}});
  }
}
form.addEventListener("input", ({target}) => {
  if (target.name === "name" || target.name === "refits") return;
  clearTimeout(waiting);
  waiting = setTimeout(check, target === table ? 0 : 300);
});

function busy(now) {
  $("fit").disabled = now;
  $("stop").disabled = !now;
}
function clear() {
  $("runs-result").replaceChildren();
  $("fitted").hidden = $("runs-plot").hidden = true;
  $("fitted").querySelectorAll(".file").forEach((one) => one.remove());
}
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const [file] = table.files;
  if (!file) return point(form, {field: "table", text: "Choose a table of runs first."});
  if (!usable && (await check(), !usable)) return $("runs-check").focus(); // what is wrong stands there already
  clear();
  busy(true);
  stopping = false;
  called = Array.from(crypto.getRandomValues(new Uint32Array(4)), String).join("-");
  const given = reading();
  given.set("called", called);
  progress("starting", 0);
  try {
    const reply = await send(`page/fit?${given}`, file, {type: binary});
    let rest = "";
    for await (const part of parts(reply.body)) {
      const lines = (rest + part).split("\n");
      rest = lines.pop();
      for (const line of lines) told(JSON.parse(line));
    }
  } catch (error) {
    $("runs-result").replaceChildren();
    say({problems: {"": error.message}});
  }
  busy(false);
});
async function* parts(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let one = await reader.read(); !one.done; one = await reader.read()) yield one.value;
}
// The server has a place for the next fit once it has said how this one ended.
function stop() {
  stopping = true;
  send(`page/stop?called=${called}`, "");
}
function told(message) {
  if (message.progress) return stopping ? stop() : progress(...message.progress);
  clear();
  if (stopping) return note("Stopped.");
  if (!message.calibration) return say(message);
  $("runs-result").innerHTML = message.html;
  $("fitted").hidden = $("runs-plot").hidden = false;
  draw($("runs-plot"), message.figure);
  ({calibration} = message);
  for (const [name, content] of Object.entries(message.files)) {
    const report = name.endsWith(".html");
    const button = Object.assign(document.createElement("button"), {type: "button", className: "file"});
    button.id = report ? "download-report" : "download-calibration";
    button.textContent = report ? "HTML report" : "Calibration file";
    button.addEventListener("click", () => save(new Blob([content]), name));
    $("fitted").append(button);
  }
}
function progress(what, share) {
  const label = Object.assign(document.createElement("label"), {className: "progress", textContent: what});
  label.append(Object.assign(document.createElement("progress"), {max: 1, value: share}));
  $("runs-result").replaceChildren(label);
}
function note(text) {
  $("runs-result").replaceChildren(Object.assign(document.createElement("p"), {className: "note", textContent: text}));
}
$("stop").addEventListener("click", stop);
$("use").addEventListener("click", () => planWith(calibration));
