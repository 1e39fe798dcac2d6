// What the browser does by itself: tell the server what was typed, keep the address in step with the page, and copy.
window.databound = {
  // The address holds our choices; parts that are not ours, such as the theme, stay.
  remember(query) {
    const foreign = new URLSearchParams(location.search);
    const kept = [...foreign].filter(([name]) => name.startsWith("__"));
    const all = [query, new URLSearchParams(kept).toString()].filter(Boolean).join("&");
    history.replaceState(null, "", location.pathname + (all ? "?" + all : ""));
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

// Typing, deleting, pasting and undoing all count; Gradio has taken the text over by the time the button is pressed.
document.addEventListener("input", (event) => {
  if (event.target.closest("#db-inputs .db-text")) setTimeout(() => document.getElementById("typed").click());
});

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const source = button.dataset.copy;
  await window.databound.copy(source === "address" ? location.href : document.getElementById(source).textContent);
  const label = (button.dataset.label ??= button.textContent);
  button.textContent = "Copied ✓";
  setTimeout(() => (button.textContent = label), 1500);
});

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
}
function set(element, attributes) {
  for (const [name, value] of Object.entries(element ? attributes : {})) {
    if (element.getAttribute(name) === value) continue;
    if (value === null) element.removeAttribute(name);
    else element.setAttribute(name, value);
  }
}
let waiting = false;
new MutationObserver(() => {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    describe();
  });
}).observe(document.documentElement, {childList: true, subtree: true});
