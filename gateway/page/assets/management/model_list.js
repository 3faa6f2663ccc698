// The list of models with its filter: one row for each, also for hundreds.
import { debounced, element, setAttribute, setText } from "../dom.js";
import { NONE, bytes, count, plural } from "../format.js";
import { keyedTable } from "../table.js";
import { actionButtons } from "./actions.js";
import { field, offer, select } from "../fields.js";
import { actionsOf, filtered, SHOWN, stateClass, stateText, valuesOf } from "./models.js";

const FILTER_AFTER_MS = 120;
const chosen = { text: "", shown: "", type: "", recipe: "" }; // stays while other views are shown

export const address = (name) => `#/models?model=${encodeURIComponent(name)}`;

// Returns { element, update(rows, admin) }.
export function modelList(actions) {
  let rows = [];
  let admin = false;
  const search = element("input", { type: "search", value: chosen.text, placeholder: "name, checkpoint, label …", spellcheck: "false" });
  const shown = select(SHOWN);
  const type = select([["", "any type"]]);
  const recipe = select([["", "any recipe"]]);
  shown.value = chosen.shown;
  const summary = element("p", { class: "soft", role: "status" });
  const table = keyedTable({
    caption: "Models",
    empty: "No model matches.",
    columns: [
      { title: "Model", wrap: true, make: (name) => nameCell(name) },
      { title: "State", make: () => stateCell() },
      { title: "Type", text: (row) => row.type || NONE },
      { title: "Recipe", text: (row) => row.recipe || NONE },
      { title: "Labels", wrap: true, text: (row) => row.labels.join(", ") || NONE },
      { title: "Size", number: true, text: (row) => (row.bytes ? bytes(row.bytes) : NONE) },
      { title: "Actions", make: (name) => actionCell(actions, name, () => admin) },
    ],
  });

  function show() {
    Object.assign(chosen, { text: search.value, shown: shown.value, type: type.value, recipe: recipe.value });
    const found = filtered(rows, chosen);
    table.sync(found.map((row) => [row.name, row]));
    setText(summary, `${plural(found.length, "model")} of ${count(rows.length)}`);
  }

  search.addEventListener("input", debounced(show, FILTER_AFTER_MS));
  for (const each of [shown, type, recipe]) each.addEventListener("change", show);
  const filter = element("form", { class: "filter", role: "search", "aria-label": "Models", onsubmit: (event) => event.preventDefault() }, [
    field("Search", search), field("Show", shown), field("Type", type), field("Recipe", recipe),
  ]);
  return {
    element: element("section", { class: "panel", "aria-label": "All models" }, filter, summary, table.element),
    update(next, isAdmin) {
      [rows, admin] = [next, isAdmin];
      for (const [target, column, all] of [[type, "type", "any type"], [recipe, "recipe", "any recipe"]]) {
        const choices = [["", all], ...valuesOf(rows, column).map((value) => [value, value])];
        if (choices.length === target.options.length) continue;
        offer(target, choices);
        target.value = choices.some(([value]) => value === chosen[column]) ? chosen[column] : "";
      }
      show();
    },
  };
}

function nameCell(name) {
  const others = element("span", { class: "soft" });
  return {
    element: element("div", {}, element("a", { href: address(name) }, name), " ", others),
    update: (row) => setText(others, row.aliases.length ? `also ${row.aliases.join(", ")}` : ""),
  };
}

function stateCell() {
  const tag = element("span", { class: "tag" });
  const pinned = element("span", { class: "tag" }, "pinned");
  return {
    element: element("span", {}, tag, " ", pinned),
    update(row) {
      setText(tag, stateText(row));
      setAttribute(tag, "class", `tag ${stateClass(row)}`);
      setAttribute(tag, "title", row.failure || row.unsupported || null);
      pinned.hidden = !row.pinned;
    },
  };
}

function actionCell(actions, name, isAdmin) {
  const buttons = actionButtons(actions, name, (row) => actionsOf(row).filter((action) => action !== "delete" && action !== "pin" && action !== "unpin"));
  return { element: buttons.element, update: (row) => buttons.update(row, isAdmin()) };
}
