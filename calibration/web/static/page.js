// What the browser does by itself: it sends the inputs as an address, shows what comes back, and keeps history.
import {card, draw, grab} from "./plot.js";
import "./runs.js";

const $ = (id) => document.getElementById(id);
const plan = $("plan");
let numbers = {}, question = "";

const dark = matchMedia("(prefers-color-scheme: dark)");
function theme() {
  const asked = new URLSearchParams(location.search).get("__theme");
  document.documentElement.className = (asked ? asked === "dark" : dark.matches) ? "dark" : "light";
}
dark.addEventListener("change", theme);
theme();

// -- asking ---------------------------------------------------------------------------------------------------------

export async function send(path, body, {type = "application/json", signal} = {}) {
  if (body.size > 16 * 2 ** 20) throw new Error("Files of up to 16 MB can be read here; the command line reads larger ones.");
  try {
    const reply = await fetch(path, {method: "POST", body, signal, headers: {"content-type": type}});
    if (reply.ok) return reply;
    const {detail} = await reply.json().catch(() => ({}));
    throw new Error(typeof detail === "string" ? detail : `The server refused this (${reply.status}).`);
  } catch (error) {
    if (error.name === "TypeError") throw new Error("The server does not answer; is it still running?");
    throw error;
  }
}
async function answer(request, signal) {
  try {
    return await (await send("page/answer", JSON.stringify(request), {signal})).json();
  } catch (error) {
    return error.name === "AbortError" ? null : {problem: {field: "", text: error.message}};
  }
}

// One question is under way at a time, and the last that came up meanwhile follows: while something is slid or dragged
// the picture moves along. Intervals that take longer are fetched apart, and given up for whatever is asked next.
let wanted = null, busy = false, whole = null;
const touched = new Set(); // fields that were changed since the last question was sent
async function ask(request = {}) {
  wanted = request;
  whole?.abort();
  if (busy) return;
  busy = true;
  while (wanted) {
    const now = {...wanted, query: wanted.query ?? state()};
    wanted = null;
    touched.clear();
    const reply = await answer(now);
    if (!wanted?.arrive) show(reply, now);
  }
  busy = false;
  document.body.dataset.asked = Number(document.body.dataset.asked ?? 0) + 1; // for whoever waits for an answer
}
function state() {
  return new URLSearchParams([...new FormData(plan)].map(([name, value]) => [name, value.trim()])).toString();
}

// -- showing --------------------------------------------------------------------------------------------------------

const shown = {};
function put(id, html) {
  if (html === undefined || shown[id] === html) return;
  const open = [...$(id).querySelectorAll("details[open][id]")].map((one) => one.id);
  $(id).innerHTML = shown[id] = html;
  for (const one of open) $(one)?.setAttribute("open", "");
}
function show(reply, asked) {
  for (const [name, offered] of Object.entries(reply.lists ?? {})) {
    plan.elements[name].replaceChildren(...offered.map(([value, text, said], i) => {
      const option = new Option(text, value, i === 0);
      option.dataset.says = said;
      return option;
    }));
  }
  if (reply.fields) adopt(reply.fields);
  ({numbers = numbers, asked: question = question} = reply);
  if (reply.decays) scales.weight_decay = [...reply.decays, plain];
  for (const id of ["notes", "answer", "legend", "caption", "calls", "details", "headline"]) put(id, reply[id]);
  if (reply.figure) draw($("plot"), reply.figure);
  point(plan, reply.problem);
  for (const id of ["answer", "legend", "plot", "caption", "calls", "details"]) $(id).inert = !!reply.problem;
  plan.classList.toggle("stale", !!reply.problem);
  if (reply.query !== undefined) remember(reply.query);
  follow();
  if (reply.complete === false && !wanted) complete(asked);
}
async function complete(asked) {
  whole = new AbortController();
  const reply = await answer({...asked, arrive: false, query: state(), whole: true}, whole.signal);
  if (reply?.answer) for (const id of ["answer", "details"]) put(id, reply[id]);
}
function adopt(fields) {
  for (const [name, value] of Object.entries(fields)) {
    const field = plan.elements[name];
    if (name === "spend") field.checked = value === "all";
    else if (!touched.has(name)) field.value = value;
    if (!(field instanceof HTMLElement) || field.type === "checkbox") continue; // nor a row of radio buttons
    const usual = field.options ? [...field.options].find((one) => one.defaultSelected)?.value : field.defaultValue;
    if (value !== usual) unfold(field);
  }
}
const unfold = (field) => field.closest("details")?.setAttribute("open", "");

// What is wrong stands at the field that mends it.
export function point(form, ...problems) {
  problems = problems.filter(Boolean);
  const all = JSON.stringify(problems);
  if (form.dataset.told === all && form.querySelector("[data-problem]")) return; // who listens has heard it
  form.dataset.told = all;
  form.querySelectorAll("[data-problem]").forEach((one) => one.remove());
  for (const field of form.querySelectorAll("[aria-describedby]")) {
    for (const name of ["aria-invalid", "aria-describedby"]) field.removeAttribute(name);
  }
  problems.forEach(({field, text}, i) => {
    const id = `${form.id}-problem${i || ""}`;
    const said = Object.assign(document.createElement("p"), {id, className: "problem", role: "alert", textContent: text});
    said.dataset.problem = "";
    const label = field && form.querySelector(`[data-field="${CSS.escape(field)}"]`);
    if (!label) return form.querySelector(".output").prepend(said);
    unfold(label);
    label.after(said);
    const input = label.querySelector("input, select");
    input?.setAttribute("aria-invalid", "true");
    input?.setAttribute("aria-describedby", id);
  });
}

// -- the address and its history ------------------------------------------------------------------------------------

// The back button goes back to what was looked at before the last gesture, not through every keystroke. Parts of the
// address that are not ours, such as the theme, stay.
let fresh = false, gesture = {on: null, at: 0};
function changed(on) {
  const at = performance.now();
  if (on !== gesture.on || at - gesture.at > 1000) fresh = true;
  gesture = {on, at};
  if (on?.name) touched.add(on.name);
}
const parts = (ours) => [...new URLSearchParams(location.search)].filter(([name]) => name.startsWith("__") !== ours);
function address(query) {
  const all = new URLSearchParams([...new URLSearchParams(query), ...parts(false)]).toString();
  return location.pathname + (all && `?${all}`);
}
function remember(query) {
  if (address(query) !== location.pathname + location.search) {
    history[fresh ? "pushState" : "replaceState"](null, "", address(query));
  }
  fresh = false;
}
const arrive = () => {
  fresh = false;
  gesture.on = null;
  ask({arrive: true, query: location.search});
};
addEventListener("popstate", arrive);
export function visit(query) {
  history.pushState(null, "", address(query));
  arrive();
}
export function planWith(calibration) {
  tab("plan");
  const now = new URLSearchParams(state());
  now.set("calibration", calibration);
  visit(now);
}

// -- inputs ---------------------------------------------------------------------------------------------------------

const plain = (value, digits = 2) => String(Number(value.toPrecision(digits)));
const scientific = (value, digits = 2) => value.toExponential(digits - 1).replace(/\.?0*e\+?/, "e");
const short = (value, maximumSignificantDigits = 2) =>
  new Intl.NumberFormat("en", {notation: "compact", maximumSignificantDigits}).format(value).replace("K", "k");
// The ends of each slider, and how a value is written into its field.
const scales = {
  ud: [1e5, 1e12, short],
  flops: [1e13, 1e25, scientific],
  hours: [0.1, 1e4, plain],
  budget_usd: [1, 1e6, plain],
  weight_decay: [0, 0, plain], // its ends come with the answer; at the left the best one is chosen
};
const named = (name) => (name === "compute" ? plan.elements.compute.value : name);
function write(name, text, on) {
  plan.elements[name].value = text;
  changed(on);
  touched.add(name);
  ask();
}
function scale(name, factor, digits, on) {
  if (numbers[name] > 0) write(name, scales[name][2](numbers[name] * factor, digits), on);
}
function slide(slider) {
  const name = named(slider.dataset.for), [low, high, written] = scales[name], at = Number(slider.value);
  const none = name === "weight_decay" && at === 0;
  write(name, none ? "" : written(low * (high / low) ** (at / slider.max)), slider);
}
function follow() {
  const compute = plan.elements.compute.value, paid = ["hours", "budget_usd"].includes(compute);
  for (const name of ["flops", "hours", "budget_usd", "target_loss"]) {
    plan.querySelector(`[data-field="${name}"]`).hidden = name !== compute;
  }
  const place = $(paid ? "hardware-here" : "hardware-there");
  if ($("hardware").parentElement !== place) place.append($("hardware"));
  for (const button of plan.querySelectorAll("[data-step=compute]")) button.hidden = compute === "target_loss";
  for (const hint of plan.querySelectorAll(".hint[data-says]")) {
    hint.textContent = plan.elements[hint.dataset.says].selectedOptions[0]?.dataset.says ?? "";
  }
  for (const slider of plan.querySelectorAll(".slider")) {
    const name = named(slider.dataset.for), [low, high] = scales[name] ?? [0, 0];
    slider.hidden = !(high > low);
    slider.setAttribute("aria-valuetext", plan.elements[name].value || "choose for me");
    if (slider === document.activeElement || !(high > low)) continue;
    const now = numbers[name];
    if (now > 0) slider.value = (slider.max * Math.log(now / low)) / Math.log(high / low);
    else if (name === "weight_decay") slider.value = 0;
  }
}
function edited({target, type}) {
  if (target.matches(".slider")) return type === "input" && slide(target);
  if (!target.name || target.matches("select") !== (type === "change")) return; // not every browser says both of a list
  changed(target);
  if (target.name === "calibration") ask({arrive: true, query: state()});
  else ask();
  follow();
}
for (const type of ["input", "change"]) plan.addEventListener(type, edited);
plan.addEventListener("submit", (event) => event.preventDefault());
$("upload-calibration").addEventListener("change", async ({target}) => {
  const [file] = target.files;
  if (!file) return;
  try {
    const path = `v1/calibrations?${new URLSearchParams({file: file.name})}`;
    const reply = await (await send(path, file, {type: "application/octet-stream"})).json();
    planWith(reply.id);
  } catch (error) {
    point(plan, {field: "upload", text: error.message});
  }
  target.value = "";
});

// In two pictures a line can be taken hold of: "you are here" and the plan's weight decay.
grab($("plot"), (field, value, on) => {
  if (field === "weight_decay") {
    const [low, high, written] = scales[field];
    write(field, written(Math.min(high, Math.max(low, value))), on);
  } else scale(plan.elements.compute.value, value / numbers.flops, 3, on);
});

// -- buttons --------------------------------------------------------------------------------------------------------

export function tab(id) {
  for (const name of ["plan", "runs"]) {
    $(`panel-${name}`).hidden = name !== id;
    $(`tab-${name}`).setAttribute("aria-selected", name === id);
  }
  dispatchEvent(new Event("resize")); // a picture is measured when it is seen
}
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // browsers give the clipboard only to pages from this machine or over https; the old way works elsewhere
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
document.addEventListener("click", async (event) => {
  const {target} = event, on = (what) => target.closest(`[data-${what}]`);
  if (on("step")) scale(named(on("step").dataset.step), Number(on("step").dataset.factor), 4, on("step"));
  if (target.matches("[role=tab]")) tab(target.id.slice(4));
  if (on("visit") && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    tab("plan");
    visit(on("visit").search);
  }
  if (target.matches(".cautions")) {
    event.preventDefault();
    $("careful").scrollIntoView({block: "center"});
    $("careful").focus();
  }
  if (on("pin")) {
    const now = new URLSearchParams(parts(true));
    now.delete("pin");
    if (on("pin").dataset.pin) now.set("pin", now.toString() || "ud=250M");
    visit(now);
  }
  if (on("card")) card($("plot"), question);
  if (!on("copy")) return;
  const button = on("copy"), source = button.dataset.copy;
  await copy(source === "address" ? location.href : $(source).textContent);
  const label = (button.dataset.label ??= button.textContent);
  button.textContent = "Copied ✓";
  setTimeout(() => (button.textContent = label), 1500);
});
document.querySelector("[role=tablist]").addEventListener("keydown", ({key, target}) => {
  if (!["ArrowLeft", "ArrowRight"].includes(key)) return;
  const other = target.nextElementSibling ?? target.previousElementSibling;
  other.focus();
  other.click();
});
// On a phone a line at the bottom says the answer where the answer itself is out of sight.
new IntersectionObserver(([entry]) => $("headline").classList.toggle("away", !entry.isIntersecting)).observe($("answer"));

follow();
arrive();
