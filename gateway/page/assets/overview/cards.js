// The cards of all models, those in trouble first.
import { element, keyedList, setText } from "../dom.js";
import { plural } from "../format.js";
import { card, cardId } from "./card.js";
import { diagnose } from "./diagnosis.js";

const AT_FIRST = 24; // cards that are made before all are asked for

// The names in the order to show. While the pointer or the focus is in the list, those that were shown stay where they are.
export function ordered(models, now, before, held) {
  const names = Object.keys(models);
  if (held) {
    const kept = before.filter((name) => name in models);
    return [...kept, ...names.filter((name) => !before.includes(name)).sort()];
  }
  const ranks = new Map(names.map((name) => [name, diagnose(models[name], now).rank]));
  return names.sort((one, other) => ranks.get(one) - ranks.get(other) || (one < other ? -1 : 1));
}

export function cards(context) {
  const filter = element("input", { type: "search", id: "model-filter", placeholder: "Name, state …", autocomplete: "off", oninput: () => latest && update(...latest) });
  const number = element("span", { class: "soft" });
  const list = element("ul", { class: "cards" });
  const empty = element("p", { class: "empty" });
  const all = element("button", { type: "button", hidden: true, onclick: showAll });
  const sync = keyedList(list, (_item, name) => card(context, name));
  let latest = null;
  let order = [];
  let most = AT_FIRST;

  function showAll() {
    most = Infinity;
    update(...latest);
  }

  function update(overview, now) {
    latest = [overview, now];
    const models = overview.models || {};
    order = ordered(models, now, order, list.matches(":hover, :focus-within"));
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = words.length ? order.filter((name) => matches(words, name, models[name], now)) : order;
    sync(found.slice(0, most).map((name) => [name, [models[name], now, overview]]));
    setText(number, found.length === order.length ? plural(order.length, "model") : `${found.length} of ${plural(order.length, "model")}`);
    empty.hidden = found.length > 0;
    setText(empty, order.length ? "No model has this name or state." : "No model is loaded, and none has failed.");
    all.hidden = found.length <= most;
    setText(all, `Show all ${plural(found.length, "model")}`);
  }

  return {
    element: element(
      "section",
      { "aria-labelledby": "models-title" },
      element("div", { class: "panel-head" }, element("h2", { id: "models-title" }, "Models"), number, element("span", { class: "grow" }), element("label", { class: "field" }, "Filter ", filter)),
      empty,
      list,
      all,
    ),
    update,
    // Goes to the card of a model.
    show(name) {
      if (!document.getElementById(cardId(name))) {
        filter.value = "";
        showAll();
      }
      const title = document.getElementById(cardId(name));
      title?.scrollIntoView({ block: "center" });
      title?.focus({ preventScroll: true });
    },
  };
}

function matches(words, name, model, now) {
  const text = [name, diagnose(model, now).label, model.type, model.recipe, model.device, model.node, ...(model.labels || [])].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}
