// The overview: what each model does.
import { element, keyedList, setText } from "../dom.js";
import { bytes, count } from "../format.js";

export function view() {
  const empty = element("p", { class: "empty", hidden: true }, "No model is loaded, and none has failed.");
  const list = element("ul", { class: "cards" });
  const sync = keyedList(list, card);
  return {
    element: element("div", {}, element("h1", {}, "Models"), empty, list),
    update(overview) {
      const models = Object.entries(overview?.models || {});
      empty.hidden = !overview || models.length > 0;
      sync(models);
    },
  };
}

function card(_model, name) {
  const state = element("span", { class: "tag" });
  const facts = element("p", { class: "soft" });
  return {
    element: element("li", { class: "panel" }, element("h2", {}, name), state, facts),
    update(model) {
      setText(state, model.state);
      setText(facts, `${count(model.running || 0)} running, ${count(model.waiting || 0)} waiting, ${bytes(model.memory)}`);
    },
  };
}
