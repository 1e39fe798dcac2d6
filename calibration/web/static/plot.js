// Pictures: drawing them, taking hold of a line in them, and a card to pass on.
const coarse = matchMedia("(pointer: coarse)").matches; // fingers scroll; only a mouse zooms

export function draw(element, {data, layout}) {
  const own = {...layout, autosize: true, ...(coarse ? {dragmode: false} : {})};
  return window.Plotly.react(element, data, own, {displaylogo: false, responsive: true});
}

// Whoever presses near the line that `meta` of a picture tells of drags it: `moved(field, value, holder)`. Meanwhile the
// mouse is measured by the axis as it was when the line was taken.
export function grab(plot, moved) {
  let held = null;
  const grip = (event) => {
    const {field, at} = plot.layout?.meta ?? {}, axis = plot._fullLayout?.xaxis;
    if (!field || !axis?.d2p || !plot.contains(event.target)) return null;
    const start = plot.getBoundingClientRect().left + axis._offset;
    const near = Math.abs(event.clientX - start - axis.d2p(at)) < (coarse ? 22 : 14);
    plot.classList.toggle("near", near);
    return near ? {field, start, length: axis._length, range: [...axis.range]} : null;
  };
  const drag = (event) => {
    const share = Math.min(1, Math.max(0, (event.clientX - held.start) / held.length));
    const now = 10 ** (held.range[0] + share * (held.range[1] - held.range[0]));
    moved(held.field, now, held);
    if (!held.mark.isConnected) plot.append(held.mark);
    held.mark.style.left = `${held.start - plot.getBoundingClientRect().left + share * held.length}px`;
    held.mark.textContent = now.toPrecision(2).replace("+", "");
  };
  const stop = (event) => {
    event.preventDefault();
    event.stopPropagation();
  };
  document.addEventListener("pointerdown", (event) => {
    held = event.button === 0 ? grip(event) : null;
    if (!held) return;
    held.mark = Object.assign(document.createElement("output"), {className: "mark"});
    stop(event);
  }, true);
  for (const kind of ["mousedown", "touchstart"]) { // what plotly listens for follows the pointer
    document.addEventListener(kind, (event) => held && stop(event), {capture: true, passive: false});
  }
  document.addEventListener("pointermove", (event) => (held ? drag(event) : grip(event)), true);
  for (const kind of ["pointerup", "pointercancel"]) {
    document.addEventListener(kind, () => {
      held?.mark.remove();
      held = null;
    }, true);
  }
}

// The answer as a picture: question, verdict, figures with their intervals, the curve with its legend, what to be
// careful about, and what leads back: the link, or the command where the link would lead to this machine only.
export async function card(plot, question) {
  const width = 1200, height = 720, edge = 48, room = width - 2 * edge;
  const canvas = Object.assign(document.createElement("canvas"), {width, height}), pen = canvas.getContext("2d");
  const write = (text, x, y, font, colour = "#111418") => {
    Object.assign(pen, {font: `${font} system-ui, sans-serif`, fillStyle: colour});
    pen.fillText(text, x, y);
  };
  const paint = (colour, ...where) => {
    pen.fillStyle = colour;
    pen.fillRect(...where);
  };
  const text = (root, selector) => root.querySelector(selector)?.textContent ?? "";
  paint("#ffffff", 0, 0, width, height);
  paint("#0072B2", 0, 0, width, 10);
  write("databound", edge, 50, "700 24px", "#0072B2");
  write(question, edge + 172, 50, "22px", "#55606f");
  let y = 94;
  for (const line of wrapped(pen, document.querySelector(".verdict").firstChild.textContent, room, "700 32px")) {
    write(line, edge, y, "700 32px");
    y += 40;
  }
  const tiles = document.querySelectorAll(".tile");
  tiles.forEach((tile, i) => {
    const x = edge + (i * room) / tiles.length;
    write(text(tile, ".label"), x, y + 4, "17px", "#55606f");
    write(text(tile, ".figure"), x, y + 42, "700 36px");
    write(text(tile, ".interval") || text(tile, ".below"), x, y + 68, "16px", "#55606f");
  });
  y += 84;
  const careful = text(document, "#careful li");
  const size = {width: room, height: height - y - (careful ? 74 : 46)};
  const legend = {orientation: "h", x: 0, y: -0.24, yanchor: "top", font: {size: 14}};
  const layout = {...plot.layout, ...size, autosize: false, paper_bgcolor: "#ffffff", showlegend: true, legend};
  const image = new Image();
  image.src = await window.Plotly.toImage({data: plot.data, layout}, {format: "png", scale: 1, ...size});
  await image.decode();
  pen.drawImage(image, edge, y, size.width, size.height);
  if (careful) write(fitted(pen, `▲ ${careful}`, room, "17px"), edge, height - 46, "17px", "#9a3412");
  const local = /^(localhost|127\.|\[|10\.|192\.168\.|0\.0\.0\.0)/.test(location.hostname);
  const back = local ? document.getElementById("copy-command").textContent : location.href;
  write(fitted(pen, back, room, "17px"), edge, height - 18, "17px", "#0b6bcb");
  const file = await new Promise((done) => canvas.toBlob(done, "image/png"));
  save(file, "databound-plan.png");
}
export function save(file, name) {
  const address = URL.createObjectURL(file);
  Object.assign(document.createElement("a"), {href: address, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}
function wrapped(pen, text, width, font) {
  pen.font = `${font} system-ui, sans-serif`;
  const lines = [""];
  for (const word of text.split(/(?<=[ &?])/)) {
    if (pen.measureText(lines.at(-1) + word).width > width && lines.at(-1)) lines.push("");
    lines[lines.length - 1] += word;
  }
  return lines;
}
function fitted(pen, text, width, font) {
  const [line] = wrapped(pen, text, width - 20, font);
  return line.length < text.length ? `${line.trimEnd()} …` : line;
}
