// The machines of a server that has several: what each does and has, and which are missing.
import { element, setText } from "../dom.js";
import { NONE, age, bytes, placeName, plural } from "../format.js";
import { keyedTable } from "../table.js";

// A node's state → what it is called, and what follows from it.
export const NODE_STATES = {
  ready: ["Ready", ""],
  draining: ["Draining", "it gets no new models, and those that it has are loaded elsewhere"],
  drained: ["Drained", "it gets no new models"],
  unreachable: ["Does not answer", "it may answer again in time"],
  lost: ["Lost", "it is not reachable; the others serve without it"],
};
const MISSING = new Set(["unreachable", "lost"]);

// What is said of a node's state: "Lost: it is not reachable; the others serve without it".
export function stateOf({ state, reason }) {
  const [label, known] = NODE_STATES[state] || [state, ""];
  const text = [known, reason].filter(Boolean).join(", because ");
  return text ? `${label}: ${text}` : label;
}

// The free memory of each place of a node: "host 8 GiB, Card 2 GiB".
export function freeMemory({ memory = {} }) {
  const places = Object.entries(memory).map(([place, { free }]) => `${placeName(place, memory)} ${bytes(free)}`);
  return places.join(", ") || NONE;
}

// The missing nodes: "2 of 5 are missing"; nothing if all are there.
export function missing(nodes) {
  const found = Object.values(nodes).filter(({ state }) => MISSING.has(state)).length;
  return found ? `${found} of ${plural(Object.keys(nodes).length, "machine")} ${found === 1 ? "is" : "are"} missing` : "";
}

// The name of a node, and below it what does not change.
function nameCell(name) {
  const facts = element("div", { class: "soft" });
  return {
    element: element("div", {}, element("div", {}, name), facts),
    update({ address, cpus }) {
      setText(facts, [address, cpus && plural(cpus, "processor")].filter(Boolean).join(", "));
    },
  };
}

export function nodes() {
  let now = 0;
  const table = keyedTable({
    caption: "Machines of the server",
    empty: "",
    rowClass: ({ state }) => (MISSING.has(state) ? "failed" : null),
    columns: [
      { title: "Node", make: nameCell },
      { title: "State", wrap: true, text: stateOf },
      { title: "For", number: true, text: ({ since }) => (since ? age(now - since) : NONE) },
      { title: "Models", wrap: true, text: ({ models = [] }) => models.join(", ") || NONE },
      { title: "Devices", wrap: true, text: ({ devices = [] }) => devices.join(", ") || NONE },
      { title: "Free memory", wrap: true, text: freeMemory },
    ],
  });
  const note = element("span", { class: "soft", role: "status" });
  const whole = element("section", { class: "panel", hidden: true, "aria-labelledby": "nodes-title" }, element("div", { class: "panel-head" }, element("h2", { id: "nodes-title" }, "Machines"), note), table.element);
  return {
    element: whole,
    update({ nodes: found }, time) {
      now = time;
      whole.hidden = !found;
      if (!found) return;
      table.sync(Object.entries(found));
      setText(note, missing(found));
    },
  };
}
