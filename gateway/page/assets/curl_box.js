// A folded box with the curl line of what a form would send, and a button that copies it.
import { curlLine } from "./curl.js";
import { element } from "./dom.js";

// `request()` returns { method, path, body?, form?, … } as curlLine() takes them, or null while there is nothing to send.
// Call `update()` whenever that changes: the line is only written while the box is open.
export function curlBox({ request, access, announce }) {
  const line = element("pre", { class: "curl", tabindex: 0, "aria-label": "curl line", hidden: true });
  const empty = element("p", { class: "empty" }, "Fill in the form first.");
  const copy = element("button", { type: "button", class: "small", onclick: () => copyText(line.textContent, line).then(announce) }, "Copy");
  const key = element("p", { class: "soft", hidden: true }, "Set LEMONBUS_API_KEY to your key first.");
  const folder = element("p", { class: "soft", hidden: true }, "Files are read from the current directory.");
  const box = element("details", { class: "curl-box", ontoggle: () => update() }, element("summary", {}, "The same with curl"), empty, line, key, folder, copy);
  function update() {
    if (!box.open) return;
    const wanted = request();
    empty.hidden = Boolean(wanted);
    line.hidden = copy.hidden = !wanted;
    key.hidden = !wanted || !access.key;
    folder.hidden = !wanted || !(wanted.files?.length || wanted.form?.some(([, value]) => value.file));
    line.textContent = wanted ? curlLine(wanted.method, wanted.path, wanted.body, { ...wanted, key: Boolean(access.key) }) : "";
  }
  return { element: box, update };
}

// Copies a text, and returns what to say about it. Without a secure connection, browsers give no clipboard to pages, but many
// still copy what is selected: `shown` is the element that shows the text.
export async function copyText(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    return "Copied.";
  } catch {
    getSelection().selectAllChildren(shown);
    return document.execCommand("copy") ? "Copied." : "Selected: press Ctrl+C to copy it.";
  }
}
