// The engines of a model that may have several, in words. Pure.
import { count } from "../format.js";

const UNPLACED = "not placed yet";

// How many are ready, and on which machine: "2 of 3 ready: head 1 of 2, gpu2 1 of 1"; without machines if the server has one.
export function readyReplicas({ replicas = [] }) {
  if (replicas.length === 0) return "";
  const nodes = new Map();
  for (const { node = UNPLACED, state } of replicas) {
    const [ready, all] = nodes.get(node) || [0, 0];
    nodes.set(node, [ready + (state === "ready"), all + 1]);
  }
  const ready = replicas.filter(({ state }) => state === "ready").length;
  const whole = `${count(ready)} of ${count(replicas.length)} ready`;
  const places = [...nodes].map(([node, [some, all]]) => (node === UNPLACED ? `${count(all)} ${node}` : `${node} ${count(some)} of ${count(all)}`));
  return replicas.some(({ node }) => node) ? `${whole}: ${places.join(", ")}` : whole;
}
