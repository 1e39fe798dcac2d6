// One's own runs: a table is checked as soon as it is chosen, and fitted on demand.
import {planWith, point, send} from "./page.js";
import {save} from "./plot.js";

const $ = (id) => document.getElementById(id);
const form = $("runs"), table = $("upload-runs");
const binary = "application/octet-stream";
let checking = null, fitting = null, waiting = 0, usable = false, calibration = "", before = "";

function reading() {
  const given = new URLSearchParams(), columns = [];
  for (const [name, value] of new FormData(form)) {
    if (!value.trim()) continue;
    if (name.startsWith("column-")) columns.push(`${name.slice(7)}=${value.trim()}`);
    else given.set(name, value.trim());
  }
  if (columns.length) given.set("columns", columns.join(", "));
  given.set("drop_missing", true); // what crashed, which is said
  given.set("file", table.files[0].name.slice(-200));
  return given;
}
function say({html = "", problems = {}}) {
  $("runs-check").innerHTML = html;
  point(form, ...Object.entries(problems).map(([field, text]) => ({field, text})));
}
async function check() {
  checking?.abort();
  const [file] = table.files;
  usable = false;
  if (!file) return say({});
  checking = new AbortController();
  try {
    const how = {type: binary, signal: checking.signal};
    const reply = await (await send(`page/check?${reading()}`, file, how)).json();
    $("columns").replaceChildren(...(reply.names ?? []).map((name) => new Option(name)));
    usable = $("example").hidden = !Object.keys(reply.problems).length && !reply.html.includes('role="alert"');
    say(reply);
  } catch (error) {
    if (error.name !== "AbortError") say({problems: {table: error.message}});
  }
}
form.addEventListener("input", ({target}) => {
  if (target.name === "name" || target.name === "refits") return;
  const now = table.files[0]?.name;
  if (before && now !== before) for (const field of $("mapping").querySelectorAll("input")) field.value = ""; // of another file
  before = now;
  clearTimeout(waiting);
  waiting = setTimeout(check, target === table ? 0 : 300);
});

function busy(now) {
  $("fit").disabled = now;
  $("stop").disabled = !now;
}
function clear() {
  $("runs-result").replaceChildren();
  $("fitted").hidden = true;
}
form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const [file] = table.files;
  if (!file) return point(form, {field: "table", text: "Choose a table of runs first."});
  if (!usable && (await check(), !usable)) return $("runs-check").focus(); // what is wrong stands there already
  clear();
  busy(true);
  fitting = new AbortController();
  progress("starting", 0);
  try {
    const reply = await send(`page/fit?${reading()}`, file, {type: binary, signal: fitting.signal});
    let rest = "";
    for await (const part of parts(reply.body)) {
      const lines = (rest + part).split("\n");
      rest = lines.pop();
      for (const line of lines) told(JSON.parse(line));
    }
  } catch (error) {
    clear();
    if (error.name === "AbortError") $("runs-result").innerHTML = '<p class="note">Stopped.</p>';
    else say({problems: {"": error.message}});
  }
  busy(false);
});
async function* parts(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (let one = await reader.read(); !one.done; one = await reader.read()) yield one.value;
}
function told(message) {
  if (message.progress) return progress(...message.progress);
  clear();
  if (!message.calibration) return say(message);
  $("runs-result").innerHTML = message.html;
  $("fitted").hidden = false;
  ({calibration} = message);
  for (const [what, [name, content]] of Object.entries(message.files)) {
    $(`download-${what}`).onclick = () => save(new Blob([content]), name);
  }
}
function progress(what, share) {
  const label = Object.assign(document.createElement("label"), {className: "progress", textContent: what});
  label.append(Object.assign(document.createElement("progress"), {max: 1, value: share}));
  $("runs-result").replaceChildren(label);
}
$("stop").addEventListener("click", () => fitting.abort()); // a fit that nobody waits for ends
$("use").addEventListener("click", () => planWith(calibration));
