// The card of one model.
import { element, keyedList, setAttribute, setText } from "../dom.js";
import { age, bytes, count, duration, moment, placeName, plural, rate } from "../format.js";
import { actionButtons, modelActions } from "../management/actions.js";
import { formOf } from "../trial/requests.js";
import { diagnose, unloading } from "./diagnosis.js";
import { readyReplicas } from "./replicas.js";

const MOST_SLOTS_DRAWN = 16;
const NOT_LOADED = new Set(["absent", "unloading", "backing_off", "downloading"]); // states of models that have no engine, or soon have none

export const cardId = (name) => `model-${name}`;

// A part of a keyed list: its item is [model, now, overview].
export function card(context, name) {
  const state = element("span", { class: "tag" });
  const pinned = element("span", { class: "tag", hidden: true }, "pinned");
  const causes = element("ul", { class: "plain causes" });
  const syncCauses = keyedList(causes, () => {
    const line = element("li");
    return {
      element: line,
      update({ tone, text }) {
        setAttribute(line, "class", tone);
        setText(line, text);
      },
    };
  });
  const slots = element("span", { class: "slots", "aria-hidden": "true" });
  const facts = factList(slots);
  const waiting = element("p", { class: "soft waiting" });
  const details = element("dl", { class: "details" });
  const more = element("details", {}, element("summary", {}, "Details", element("span", { class: "visually-hidden" }, ` of ${name}`)), details);
  const problem = element("p", { class: "problem", role: "alert" });
  const buttons = actionButtons(modelActions(context, { changed: () => {}, failed: (text) => setText(problem, text) }), name, usable);
  const trial = viewLink("Try", "try", name);
  const links = element("span", { class: "links" }, trial, viewLink("Log", "logs", name), viewLink("Files", "models", name));
  const title = element("h3", { id: cardId(name), tabindex: "-1" }, name);
  const whole = element("li", { class: "panel card" }, element("div", { class: "card-head" }, title, pinned, state), causes, facts.element, waiting, problem, element("div", { class: "card-end" }, buttons.element, links), more);
  let latest = null;
  let seen = true;
  const observer = new IntersectionObserver((entries) => {
    seen = entries.at(-1).isIntersecting;
    if (seen && latest) draw();
  });
  observer.observe(whole);
  more.addEventListener("toggle", () => more.open && showDetails(details, ...latest));

  function draw() {
    const [model, now, { access }] = latest;
    const { tone, label, causes: found } = diagnose(model, now);
    setText(state, label);
    setAttribute(state, "class", `tag ${tone}`);
    setAttribute(whole, "data-tone", found[0]?.tone || tone || null);
    pinned.hidden = !model.pinned;
    trial.hidden = !formOf({ model_type: model.type });
    syncCauses(found.map((cause) => [cause.kind, cause]));
    drawSlots(slots, model);
    facts.update(model, now);
    showQueue(waiting, model);
    buttons.update({ ...model, name, busy: (model.running || 0) + (model.waiting || 0) }, Boolean(access?.admin));
    if (more.open) showDetails(details, ...latest);
  }

  return {
    element: whole,
    // The ages on a card outside the window are not updated.
    update(item) {
      const changed = item[0] !== latest?.[0];
      latest = item;
      if (seen || changed) draw();
    },
    close: () => observer.disconnect(),
  };
}

// Another view of the same model.
function viewLink(title, view, name) {
  return element("a", { href: `#/${view}?model=${encodeURIComponent(name)}`, "aria-label": `${title} ${name}` }, title);
}

function usable({ state, pinned }) {
  if (NOT_LOADED.has(state)) return ["load", "options"];
  return ["unload", ...(state === "ready" ? [pinned ? "unpin" : "pin"] : []), "options"];
}

const FACTS = {
  slots: ["Slots", ({ slots, running = 0 }) => slots && `${count(running)} of ${count(slots)}`],
  waiting: ["Waiting", ({ waiting }) => waiting && count(waiting)],
  speed: ["Tokens/s", ({ tokens_per_second: speed }) => speed && rate(speed)],
  first: ["First token", ({ first_token_p50: first }) => first && duration(first)],
  wait: ["Queue wait", ({ queue_wait_p50: wait, first_token_p50: first }) => (wait || first) && duration(wait || 0)],
  memory: ["Memory", ({ memory }) => memory && bytes(memory)],
  context: ["Context", ({ context }) => context && count(context)],
  node: ["Node", ({ node, replicas = [] }) => !replicas.length && node],
  replicas: ["Replicas", readyReplicas],
  use: ["Use", (model, now) => unloading(model, now)],
};

function factList(slots) {
  const parts = Object.values(FACTS).map(([title, find]) => {
    const value = element("dd");
    const term = element("dt", {}, title);
    return { whole: element("div", {}, term, value), value, find };
  });
  parts[0].whole.append(slots);
  return {
    element: element("dl", { class: "card-facts" }, parts.map((part) => part.whole)),
    update(model, now) {
      for (const { whole, value, find } of parts) {
        const text = find(model, now);
        whole.hidden = !text;
        setText(value, text || "");
      }
    },
  };
}

function drawSlots(parent, { slots = 0, running = 0 }) {
  const wanted = slots <= MOST_SLOTS_DRAWN ? slots : 0;
  while (parent.childElementCount < wanted) parent.append(element("i"));
  while (parent.childElementCount > wanted) parent.lastChild.remove();
  [...parent.children].forEach((slot, index) => setAttribute(slot, "class", index < running && "taken"));
}

function showQueue(parent, { queue = [] }) {
  parent.hidden = queue.length === 0;
  const keys = queue.map(({ key, requests, wait_s: wait }) => `${key || "without a key"} ${count(requests)}${wait ? ` (next in ${duration(wait)})` : ""}`);
  setText(parent, `Waiting: ${keys.join(", ")}`);
}

function processes({ worker_pid: worker, engine_pid: engine, node }) {
  const found = [worker && `worker ${worker}`, engine && `engine ${engine}`].filter(Boolean).join(", ");
  return found && node ? `${found} on ${node}` : found;
}

function showDetails(parent, model, now, { memory }) {
  const places = Object.entries(model.memory_by_place || {}).map(([place, size]) => `${placeName(place, memory)} ${bytes(size)}`);
  const died = (model.deaths?.last || []).map((death) => `${moment(death.at, now)} ${death.code}: ${death.reason}`);
  const rows = [
    ["Type", [model.type, ...(model.labels || [])].filter(Boolean).join(", ")],
    ["Recipe", [model.recipe, model.device && `on ${model.device}`].filter(Boolean).join(" ")],
    ["Memory", places.join(", ")],
    ["Loaded", model.loaded_at && `${moment(model.loaded_at, now)}, ${age(now - model.loaded_at)} ago${model.load_seconds ? `; it took ${duration(model.load_seconds)}` : ""}`],
    ["Processes", processes(model)],
    ["Deaths", model.deaths && plural(model.deaths.count, "death")],
    ...died.map((text, index) => [index ? "" : "Last deaths", text]),
    ["Last output", model.failure?.detail],
    ["Command", model.command?.join(" ")],
  ].filter(([, text]) => text);
  const wanted = JSON.stringify(rows);
  if (parent.dataset.shown === wanted) return; // a selection in it stays
  parent.dataset.shown = wanted;
  parent.replaceChildren(...rows.flatMap(([title, text]) => [element("dt", {}, title), element("dd", { class: ["Command", "Last output"].includes(title) ? "mono" : null }, text)]));
}
