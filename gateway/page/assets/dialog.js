// Dialogs over the browser's own <dialog>: it keeps the focus inside, and Escape closes it.
import { element } from "./dom.js";

let numbers = 0;

// Shows a dialog with a form; resolves to what `result()` returns when it is submitted, and to null when it is cancelled.
// `body`: its elements. `check()`: returns a text that says why it cannot be submitted yet, or "" (may be async).
export function openDialog({ title, body, submit = "OK", cancel = "Cancel", danger = false, focus = null, result = () => true, check = () => "", wide = false }) {
  return new Promise((resolve) => {
    const id = `dialog-${++numbers}`;
    const problem = element("p", { class: "problem", role: "alert", hidden: true });
    const confirm = submit && element("button", { type: "submit", class: danger ? "danger" : "primary" }, submit);
    const form = element(
      "form",
      { method: "dialog" },
      element("h2", { id }, title),
      element("div", { class: "dialog-body" }, body),
      problem,
      element("div", { class: "dialog-actions" }, element("button", { type: "button", onclick: () => dialog.close() }, cancel), confirm),
    );
    const dialog = element("dialog", { "aria-labelledby": id, class: wide ? "wide" : "" }, form);
    let given = null;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (confirm) confirm.disabled = true;
      const wrong = await check();
      if (confirm) confirm.disabled = false;
      problem.textContent = wrong;
      problem.hidden = !wrong;
      if (wrong || !dialog.open) return;
      given = result();
      dialog.close();
    });
    const leave = () => dialog.close(); // another view is shown
    window.addEventListener("hashchange", leave);
    dialog.addEventListener("close", () => {
      window.removeEventListener("hashchange", leave);
      dialog.remove();
      resolve(given);
    });
    document.body.append(dialog);
    dialog.showModal();
    (focus || confirm || form.querySelector("button"))?.focus();
  });
}

// Asks before something that cannot be undone; resolves to whether to do it.
export async function confirmDialog({ title, text, action, cancel = "Cancel" }) {
  return (await openDialog({ title, body: [element("p", {}, text)], submit: action, cancel, danger: true })) === true;
}
