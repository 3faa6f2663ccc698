// Three answers at a glance: what is slow or not loaded and why, who waits, and what died in the last day.
import { element, keyedList, setText } from "../dom.js";
import { moment, plural } from "../format.js";
import { recentDeaths, troubles, waitingKeys } from "./diagnosis.js";

const SHOWN = 6;

// `show(name)`: goes to the card of a model.
export function summary({ show }) {
  const parts = [
    part("Slow or not loaded", "No model is slow, and none has failed.", (overview, now) => troubles(overview.models || {}, now).map(({ name, text }) => [name, { name, text }]), show),
    part("Who waits", "No request waits.", whoWaits, null),
    part("Died in the last 24 hours", "No engine has died.", died, show),
  ];
  return {
    element: element("section", { class: "summary", "aria-label": "What needs attention" }, parts.map((each) => each.element)),
    update: (overview, now) => parts.forEach((each) => each.update(overview, now)),
  };
}

function part(title, nothing, find, show) {
  const list = element("ul", { class: "plain" });
  const sync = keyedList(list, (_item, key) => line(key, show));
  const empty = element("p", { class: "empty" }, nothing);
  const more = element("p", { class: "soft" });
  const whole = element("section", { class: "panel" }, element("h2", {}, title), list, more, empty);
  return {
    element: whole,
    update(overview, now) {
      const found = find(overview, now);
      sync(found.slice(0, SHOWN));
      empty.hidden = found.length > 0;
      more.hidden = found.length <= SHOWN;
      setText(more, `and ${found.length - SHOWN} more`);
      whole.classList.toggle("attention", found.length > 0);
    },
  };
}

function line(name, show) {
  const title = show ? element("button", { type: "button", class: "plain", onclick: () => show(name) }, name) : element("strong");
  const text = element("span");
  return {
    element: element("li", {}, title, " ", text),
    update(item) {
      if (!show) setText(title, item.name);
      setText(text, item.text);
    },
  };
}

function whoWaits(overview) {
  const keys = waitingKeys(overview.models || {});
  const named = keys.reduce((sum, each) => sum + each.requests, 0);
  const found = keys.map(({ key, requests, models }) => [`key ${key}`, { name: key || "Without a key", text: `${plural(requests, "request")} for ${models.join(", ")}` }]);
  const others = (overview.waiting || 0) - named;
  if (others > 0) found.push(["others", { name: plural(others, "request"), text: named ? "of other keys" : others === 1 ? "waits" : "wait" }]);
  return found;
}

function died(overview, now) {
  return recentDeaths(overview.models || {}, now).map(({ name, times, at, reason }) => [name, { name, text: `${moment(at, now)}${times > 1 ? ` (${times} times)` : ""}: ${reason}` }]);
}
