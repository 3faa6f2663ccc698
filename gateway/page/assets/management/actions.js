// What an administrator can do with a model: the requests, and what is asked before.
import { confirmDialog, openDialog } from "../dialog.js";
import { curlBox } from "../curl_box.js";
import { element } from "../dom.js";
import { bytes, plural } from "../format.js";
import { openLoadDialog } from "./load_dialog.js";
import * as requests from "./requests.js";

export const TITLES = {
  load: "Load", options: "Options …", unload: "Unload", pin: "Pin", unpin: "Unpin", download: "Download", pause: "Pause", resume: "Resume", delete: "Delete …",
};
const REQUESTS = {
  load: requests.load, unload: requests.unload, pin: (name) => requests.pin(name, true), unpin: (name) => requests.pin(name, false),
  download: requests.pull, pause: requests.pause, resume: requests.pull, delete: requests.remove,
};
const DONE = {
  load: "is loaded", unload: "is unloaded", pin: "is pinned", unpin: "is no longer pinned", download: "is being downloaded",
  pause: "is paused", resume: "is being downloaded", delete: "is deleted",
};

// The request of an action that needs no choice, as curlLine() takes it.
export const requestOf = (action, name) => REQUESTS[action]?.(name) ?? null;

// Returns { button(action, name, row) → element }; `row()` returns the latest row of the model. `changed()` is called after each action,
// `failed(text)` when one fails, and with "" before each.
export function modelActions(context, { changed, failed }) {
  const busy = new Set();

  async function perform(action, row) {
    if (busy.has(row.name)) return;
    busy.add(row.name);
    failed("");
    try {
      if (action === "options") await openLoadDialog(context, row.name);
      else if (await allowed(action, row)) await send(action, row.name);
    } catch (problem) {
      failed(`${row.name}: ${problem.message}`);
    } finally {
      busy.delete(row.name);
      changed();
    }
  }

  async function send(action, name) {
    const { method, path, body } = requestOf(action, name);
    if (action === "load") context.announce(`${name} is being loaded.`);
    await context.api.json(method, path, body);
    context.announce(`${name} ${DONE[action]}.`);
  }

  async function allowed(action, row) {
    if (action === "delete") return confirmDeletion(context, row);
    if (action !== "unload" || !row.busy) return true;
    const text = `${busyText(row)}. Those that run may finish, those that wait are refused.`;
    return confirmDialog({ title: `Unload ${row.name}?`, text, action: "Unload" });
  }

  return {
    button: (action, name, row) =>
      element("button", { type: "button", class: action === "delete" ? "small danger" : "small", "aria-label": `${TITLES[action]} ${name}`, onclick: () => perform(action, row()) }, TITLES[action]),
  };
}

function busyText({ name, busy }) {
  return `${plural(busy, "request")} of ${name} ${busy === 1 ? "runs or waits" : "run or wait"}`;
}

// Asks before a deletion, with the files that it removes; resolves to whether to do it.
async function confirmDeletion(context, { name, busy }) {
  const { method, path, body } = requests.remove(name, true);
  const { removed, kept_for: kept } = await context.api.json(method, path, body);
  const total = removed.reduce((sum, file) => sum + file.size, 0);
  const curl = curlBox({ ...context, request: () => requests.remove(name) });
  const list = removed.length === 1 ? `This file of ${bytes(total)} is removed:` : `These ${removed.length} files are removed, ${bytes(total)} in all:`;
  const done = await openDialog({
    title: `Delete ${name}?`,
    body: [
      busy > 0 && element("p", { class: "warn" }, `${busyText({ name, busy })}: it is unloaded first.`),
      element("p", {}, removed.length ? list : "It has no files of its own on this machine: only its name is removed."),
      removed.length > 0 && element("ul", { class: "plain files" }, removed.map((file) => element("li", {}, element("span", { class: "mono" }, file.path), " ", element("span", { class: "soft" }, bytes(file.size))))),
      kept.length > 0 && element("p", {}, `Files that are also used by ${kept.join(" and ")} stay.`),
      curl.element,
    ].filter(Boolean),
    submit: "Delete",
    danger: true,
    wide: true,
  });
  return done === true;
}

// The buttons of a model, in step with what can be done with it: { element, update(row, admin) }. `usable`: returns the actions of a row.
export function actionButtons(actions, name, usable) {
  const place = element("span", { class: "actions" });
  const made = new Map();
  let latest = null;
  const button = (action) => {
    if (!made.has(action)) made.set(action, actions.button(action, name, () => latest));
    return made.get(action);
  };
  return {
    element: place,
    update(row, admin) {
      latest = row;
      const wanted = admin ? usable(row).map(button) : [];
      if (wanted.length === place.children.length && wanted.every((each, index) => each === place.children[index])) return;
      const focused = place.contains(document.activeElement);
      place.replaceChildren(...wanted);
      if (focused) (wanted.includes(document.activeElement) ? null : wanted[0])?.focus({ preventScroll: true });
    },
  };
}
