// What an administrator can do with a model from its card.
import { confirmDialog } from "../dialog.js";
import { element } from "../dom.js";
import { plural } from "../format.js";

const LOADED = new Set(["ready", "draining", "restarting", "reloading", "loading", "checking", "checked", "queued"]);

// Returns { element, update(model) }: the buttons of one model. `context`: of the view.
export function modelActions(context, name) {
  const problem = element("p", { class: "problem", role: "alert", hidden: true });
  let model = {};
  const buttons = {
    load: button("Load", `Load ${name}`, () => change("POST", "v1/load", { model_name: name }, `${name} is loaded.`)),
    unload: button("Unload", `Unload ${name}`, unload),
    pin: button("Pin", `Pin ${name}: it is not unloaded for another model`, () => pin(true)),
    unpin: button("Unpin", `Unpin ${name}`, () => pin(false)),
  };
  const pin = (pinned) => change("POST", "v1/pin", { model_name: name, pinned }, `${name} is ${pinned ? "pinned" : "no longer pinned"}.`);
  let busy = false;

  async function unload() {
    const running = (model.running || 0) + (model.waiting || 0);
    const text = `${plural(running, "request")} of ${name} run or wait. Those that run may finish, those that wait are refused.`;
    if (running && !(await confirmDialog({ title: `Unload ${name}?`, text, action: "Unload" }))) return;
    await change("POST", "v1/unload", { model_name: name }, `${name} is unloaded.`);
  }

  function change(method, path, body, done) {
    return attempt(async () => {
      await context.api.json(method, path, body);
      context.announce(done);
    });
  }

  async function attempt(action) {
    if (busy) return;
    busy = true;
    show();
    problem.hidden = true;
    try {
      await action();
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    } finally {
      busy = false;
      show();
    }
  }

  function show() {
    const loaded = LOADED.has(model.state);
    buttons.load.hidden = loaded;
    buttons.unload.hidden = !loaded;
    buttons.pin.hidden = model.state !== "ready" || Boolean(model.pinned);
    buttons.unpin.hidden = !model.pinned;
    const all = Object.values(buttons);
    for (const each of all) each.setAttribute("aria-disabled", String(busy));
    // The button that was used may be gone now: the keyboard goes on from the next one.
    if (all.some((each) => each.hidden && each === document.activeElement)) all.find((each) => !each.hidden)?.focus({ preventScroll: true });
  }

  return {
    element: element("div", { class: "actions" }, Object.values(buttons), problem),
    update(next) {
      model = next;
      show();
    },
  };
}

function button(text, label, onclick) {
  return element("button", { type: "button", class: "small", "aria-label": label, onclick }, text);
}
