// What a load would do now, as its dry run says: whether memory suffices, with which context, and which models are unloaded for it.
import { element } from "../dom.js";
import { bytes, count, duration, plural, share } from "../format.js";

const DECISIONS = {
  load: ["good", "It fits: nothing is unloaded for it."],
  evict: ["warn", "It fits once these models have been unloaded:"],
  wait: ["info", "It fits once a load or unload that is under way has ended."],
  loaded: ["good", "It is already loaded with these options."],
};

// The elements that show the `plan` of a dry run.
export function planElements(plan) {
  const [kind, text] = plan.refusal ? ["bad", plan.refusal.message] : DECISIONS[plan.decision];
  return [
    element("p", {}, element("strong", { class: kind }, plan.refusal ? "It cannot be loaded. " : ""), text),
    plan.evictions.length > 0 && element("ul", {}, plan.evictions.map((each) => element("li", {}, evictionText(each)))),
    plan.node && element("p", {}, `Node: ${plan.node}.`),
    plan.context > 0 && element("p", {}, `Context: ${count(plan.context)} tokens in each of ${plural(plan.slots, "slot")}.`),
    ...plan.places.filter((place) => place.need > 0).map(placeElement),
    partsText(plan) && element("p", { class: "soft" }, partsText(plan)),
  ].filter(Boolean);
}

// One model that is unloaded for the load.
export function evictionText({ model, busy, idle_seconds: idle, frees }) {
  const use = busy ? "its running requests end first" : idle === null ? "never used" : `idle for ${duration(Math.floor(idle))}`;
  const freed = Object.values(frees).reduce((sum, each) => sum + each, 0);
  return `${model}: ${use}${freed ? `; frees ${bytes(freed)}` : ""}`;
}

// What the needed memory consists of.
export function partsText({ parts, measured }) {
  const named = Object.entries(parts).filter(([, size]) => size > 0).map(([name, size]) => `${name} ${bytes(size)}`);
  return named.length ? `The need consists of ${named.join(", ")}${measured ? "; corrected by a former load" : ""}.` : "";
}

function placeElement({ place, name, need, available, total }) {
  const enough = need <= available;
  const fill = element("span", { class: "fill", "data-full": !enough, style: { width: `${(100 * share(need, total)).toFixed(1)}%` } });
  return element(
    "div",
    { class: "plan-place" },
    element("span", {}, name || (place === "host" ? "Memory" : place)),
    element("span", { class: "meter", "aria-hidden": "true" }, fill),
    element("span", { class: enough ? "" : "bad" }, `needs ${bytes(need)}, ${bytes(available)} available of ${bytes(total)}`),
  );
}
