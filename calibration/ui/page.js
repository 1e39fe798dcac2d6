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
