// What the browser does by itself: tell the server what was typed, slid or dragged, keep the address and the history
// in step with the page, and copy.
const field = (name) => document.querySelector(`#in-${name} :is(input, textarea)`);
const press = (id) => document.getElementById(id)?.click();

window.databound = {
  dragged: "", // the compute that the budget was dragged to
  // The address holds our choices; parts that are not ours, such as the theme, stay. The back button goes back to what
  // was looked at before the last gesture, not through every keystroke.
  remember(query) {
    const kept = [...new URLSearchParams(location.search)].filter(([name]) => name.startsWith("__"));
    const all = [query, new URLSearchParams(kept).toString()].filter(Boolean).join("&");
    const address = location.pathname + (all ? "?" + all : "");
    if (address === location.pathname + location.search) return;
    // An answer to what was typed before the page was led elsewhere may come last: ask again, once.
    if (gesture.led) {
      gesture.led = false;
      press("visited");
      return;
    }
    history[gesture.fresh ? "pushState" : "replaceState"](null, "", address);
    gesture.fresh = false;
  },
  // Go where an address of ours points, without loading the page again.
  visit(address) {
    history.pushState(null, "", address);
    lead();
  },
  async copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Browsers give the clipboard only to pages from this machine or over https; the old way works elsewhere.
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  },
};
addEventListener("popstate", lead);
// One gesture: what happens to one thing without a pause. Only what a person does counts. `led`: none since an address
// was gone to.
const gesture = {fresh: false, led: false, at: -1e9, on: null};
function lead() {
  Object.assign(gesture, {fresh: false, led: true});
  press("visited");
}
for (const kind of ["input", "click", "pointerdown", "keydown"]) {
  document.addEventListener(kind, ({isTrusted, target, timeStamp}) => {
    if (!isTrusted) return;
    gesture.led = false;
    if (target !== gesture.on || timeStamp - gesture.at > 1000) gesture.fresh = true;
    Object.assign(gesture, {on: target, at: timeStamp});
  }, true);
}

// -- typing and sliding ---------------------------------------------------------------------------------------------

// Typing, deleting, pasting and undoing all count; Gradio has taken the text over by the time the button is pressed.
document.addEventListener("input", (event) => {
  if (event.target.closest("#db-inputs .db-text")) setTimeout(() => press("typed"));
  if (event.target.matches(".db-slider")) slide(event.target);
});

// The ends of each slider, and how a value is written into its field.
const scientific = (value) => value.toPrecision(2).replace("+", "").replace(/\.0e/, "e");
const short = (value) => {
  const [size, letter] = [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"], [1, ""]].find(([size]) => value >= 0.9995 * size);
  return Number((value / size).toPrecision(2)) + letter;
};
const plain = (value) => String(Number(value.toPrecision(2)));
const scales = {
  ud: [1e5, 1e12, short],
  flops: [1e13, 1e25, (value) => scientific(value)],
  hours: [0.1, 1e4, plain],
  budget_usd: [1, 1e6, plain],
  weight_decay: [0, 0, plain], // its ends come with the answer; at the left the best one is chosen
};
function ends(name) {
  if (name !== "weight_decay") return scales[name];
  const [low, high] = (document.querySelector("[data-decays]")?.dataset.decays ?? "0 0").split(" ").map(Number);
  return [low, high, plain];
}
const suffixes = {k: 1e3, m: 1e6, b: 1e9, g: 1e9, t: 1e12, e: 1e18, z: 1e21, p: 1e15};
function value(text) {
  const parts = /^\s*\$?([\d.,_]+(?:e[+-]?\d+)?)\s*([a-z]?)/i.exec(text ?? "");
  return parts ? Number(parts[1].replace(/[,_]/g, "")) * (suffixes[parts[2].toLowerCase()] ?? 1) : NaN;
}
function slid(slider) {
  const asked = document.querySelector("#in-compute input:checked")?.value;
  const name = slider.dataset.for === "compute" ? asked : slider.dataset.for;
  return scales[name] && field(name) && ends(name)[1] > ends(name)[0] ? name : null;
}
function slide(slider) {
  const name = slid(slider);
  if (!name) return;
  const [low, high, written] = ends(name);
  const chosen = name === "weight_decay" && Number(slider.value) === 0;
  const text = chosen ? "" : written(low * (high / low) ** (slider.value / slider.max));
  slider.setAttribute("aria-valuetext", text || "choose for me");
  write(name, text);
}
function write(name, text) {
  const box = field(name);
  Object.getOwnPropertyDescriptor(Object.getPrototypeOf(box), "value").set.call(box, text);
  box.dispatchEvent(new Event("input", {bubbles: true}));
}
function follow() {
  for (const slider of document.querySelectorAll(".db-slider")) {
    const name = slid(slider), now = name ? value(field(name).value) : NaN;
    slider.style.visibility = name ? "" : "hidden";
    if (slider === document.activeElement || !name) continue;
    if (name === "weight_decay" && !(now > 0)) slider.value = 0;
    if (now > 0) {
      const [low, high] = ends(name);
      slider.value = slider.max * Math.log(now / low) / Math.log(high / low);
    }
    set(slider, {"aria-valuetext": field(name).value || "choose for me"});
  }
}

// -- dragging the budget --------------------------------------------------------------------------------------------

// In two pictures a line can be taken hold of: "you are here" and the plan's weight decay. The axes stay as they were
// when it was.
let held = null;
function grip(event) {
  const plot = event.target.closest?.("#plot .js-plotly-plot"), axis = plot?._fullLayout?.xaxis;
  const {field, at} = plot?.layout?.meta ?? {};
  if (!field || !axis?.d2p) return null;
  const {left} = plot.getBoundingClientRect();
  const start = left + axis._offset, near = Math.abs(event.clientX - start - axis.d2p(at)) < 14;
  plot.classList.toggle("db-near", near);
  return near ? {plot, field, start, length: axis._length, range: [...axis.range]} : null;
}
function drag(event) {
  const share = Math.min(1, Math.max(0, (event.clientX - held.start) / held.length));
  let now = 10 ** (held.range[0] + share * (held.range[1] - held.range[0]));
  if (held.field === "weight_decay") {
    const [low, high, written] = ends(held.field);
    now = Math.min(high, Math.max(low, now));
    write(held.field, written(now));
  } else {
    window.databound.dragged = now.toPrecision(3);
    press("dragged");
  }
  if (!held.mark.isConnected) held.plot.parentElement.append(held.mark);
  held.mark.style.left = `${held.start - held.plot.getBoundingClientRect().left + share * held.length}px`;
  held.mark.textContent = held.field === "weight_decay" ? plain(now) : scientific(now);
}
document.addEventListener("pointerdown", (event) => {
  held = event.button === 0 ? grip(event) : null;
  if (!held) return;
  held.mark = Object.assign(document.createElement("output"), {className: "db-mark"});
  event.preventDefault();
  event.stopPropagation();
}, true);
// Plotly listens for the mouse, which follows the pointer.
document.addEventListener("mousedown", (event) => {
  if (held) {
    event.preventDefault();
    event.stopPropagation();
  }
}, true);
document.addEventListener("pointermove", (event) => {
  if (held) drag(event);
  else grip(event);
}, true);
for (const kind of ["pointerup", "pointercancel"]) {
  document.addEventListener(kind, () => {
    held?.mark.remove();
    held = null;
  }, true);
}

// -- buttons --------------------------------------------------------------------------------------------------------

document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-visit]");
  if (link && !(event.ctrlKey || event.metaKey || event.shiftKey)) {
    event.preventDefault();
    window.databound.visit(link.getAttribute("href"));
  }
  const pin = event.target.closest("[data-pin]")?.dataset.pin;
  if (pin !== undefined) {
    const query = new URLSearchParams(location.search);
    query.delete("pin");
    const ours = new URLSearchParams([...query].filter(([name]) => !name.startsWith("__")));
    if (pin) query.set("pin", ours.toString() || "ud=250M");
    window.databound.visit(`${location.pathname}?${query}`);
  }
  if (event.target.closest("[data-card]")) saveCard();
  const goal = document.getElementById(event.target.closest("[data-goto]")?.dataset.goto);
  goal?.scrollIntoView({block: "center"});
  goal?.focus();
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = button.dataset.copy;
  await window.databound.copy(source === "address" ? location.href : document.getElementById(source).textContent);
  const label = (button.dataset.label ??= button.textContent);
  button.textContent = "Copied ✓";
  setTimeout(() => (button.textContent = label), 1500);
});

// -- the card -------------------------------------------------------------------------------------------------------

// The answer as a picture to pass on: verdict, figures, curve, what was asked, and the link that leads back.
async function saveCard() {
  const plot = document.querySelector("#plot .js-plotly-plot"), width = 1200, height = 675, edge = 48;
  const canvas = Object.assign(document.createElement("canvas"), {width, height}), draw = canvas.getContext("2d");
  const write = (text, x, y, font, colour = "#111418") => {
    Object.assign(draw, {font: `${font} system-ui, sans-serif`, fillStyle: colour});
    draw.fillText(text, x, y);
  };
  draw.fillStyle = "#ffffff";
  draw.fillRect(0, 0, width, height);
  draw.fillStyle = "#0072B2";
  draw.fillRect(0, 0, width, 10);
  write("databound", edge, 52, "700 24px", "#0072B2");
  write(document.querySelector("[data-inputs]").dataset.inputs, edge + 172, 52, "22px", "#55606f");
  const verdict = document.querySelector(".db-verdict").firstChild.textContent;
  let y = 100;
  for (const line of wrapped(draw, verdict, width - 2 * edge, "700 34px system-ui, sans-serif")) {
    write(line, edge, y, "700 34px");
    y += 43;
  }
  document.querySelectorAll(".db-tile").forEach((tile, i) => {
    const x = edge + (i * (width - 2 * edge)) / 4;
    write(tile.querySelector(".db-label").textContent, x, y + 6, "18px", "#55606f");
    write(tile.querySelector(".db-figure").textContent, x, y + 48, "700 40px");
  });
  y += 66;
  const room = {width: width - 2 * edge, height: height - y - 44};
  const figure = {data: plot.data, layout: {...plot.layout, ...room, autosize: false, paper_bgcolor: "#ffffff"}};
  const image = new Image();
  image.src = await window.Plotly.toImage(figure, {format: "png", ...room});
  await image.decode();
  draw.drawImage(image, edge, y, room.width, room.height);
  const [link] = wrapped(draw, location.href, width - 2 * edge, "18px system-ui, sans-serif");
  write(link.length < location.href.length ? `${link.slice(0, -2)}…` : link, edge, height - 18, "18px", "#0b6bcb");
  const file = await new Promise((done) => canvas.toBlob(done, "image/png"));
  const address = URL.createObjectURL(file);
  Object.assign(document.createElement("a"), {href: address, download: "databound-plan.png"}).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
function wrapped(draw, text, width, font) {
  draw.font = font;
  const lines = [""];
  for (const word of text.split(/(?<=[ &?])/)) {
    if (draw.measureText(lines.at(-1) + word).width > width && lines.at(-1)) lines.push("");
    lines[lines.length - 1] += word;
  }
  return lines;
}

// What was unfolded stays so when the answer is written anew.
const unfolded = new Set();
document.addEventListener("toggle", (event) => {
  if (event.target.id) unfolded[event.target.open ? "add" : "delete"](event.target.id);
}, true);

// What Gradio cannot be told: names of buttons, which field is wrong, and that the picture is one.
const names = {
  "halve-ud": "÷2, half the unique tokens",
  "double-ud": "×2, twice the unique tokens",
  "halve-compute": "÷2, half the compute",
  "double-compute": "×2, twice the compute",
};
function describe() {
  for (const [id, name] of Object.entries(names)) set(document.getElementById(id), {"aria-label": name});
  set(document.getElementById("plot"), {role: "figure", "aria-labelledby": "db-picture"});
  for (const button of document.querySelectorAll("button.upload-container[aria-label]")) {
    button.removeAttribute("aria-label"); // its own words say it
  }
  const wrong = document.getElementById("db-problem")?.dataset.field;
  for (const field of document.querySelectorAll("#db-inputs .db-text :is(input, textarea)")) {
    const its = wrong && field.closest(".db-text").id === `in-${wrong}`;
    set(field, {"aria-invalid": its ? "true" : null, "aria-describedby": its ? "db-problem" : null});
  }
  // The last answer stays in sight while something is wrong, but is not one to hear, copy or press.
  for (const id of ["answer", "legend", "plot", "calls", "details"]) {
    set(document.getElementById(id), {inert: document.getElementById("db-problem") ? "" : null});
  }
  for (const id of unfolded) set(document.getElementById(id), {open: ""});
  follow();
  const answer = document.getElementById("answer");
  if (answer === watched) return;
  away.disconnect();
  watched = answer;
  if (answer) away.observe(answer);
}
function set(element, attributes) {
  for (const [name, value] of Object.entries(element ? attributes : {})) {
    if (element.getAttribute(name) === value) continue;
    if (value === null) element.removeAttribute(name);
    else element.setAttribute(name, value);
  }
}
// On a phone a line at the bottom says the answer where the answer itself is out of sight.
const away = new IntersectionObserver(([entry]) => {
  set(document.getElementById("calls"), {"data-away": entry.isIntersecting ? null : ""});
});
let waiting = false, watched = null;
new MutationObserver(() => {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    describe();
  });
}).observe(document.documentElement, {childList: true, subtree: true});
