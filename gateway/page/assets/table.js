// A table whose rows are kept by key. On narrow screens each row becomes a block whose cells have their titles.
import { element, keyedList, setAttribute, setText } from "./dom.js";
import { NONE } from "./format.js";

// columns: [{ title, number?, wrap?, text(item, key) }] or, for other elements than text, [{ title, make(key) → { element, update(item) } }].
// `rowClass(item)`: the class of a row. Returns { element, sync(entries) }, with entries [[key, item], …].
export function keyedTable({ caption, columns, empty, rowClass = () => null }) {
  const head = element("tr", {}, columns.map(({ title, number }) => element("th", { scope: "col", class: number && "number" }, title)));
  const body = element("tbody");
  const table = element("table", { class: "rows", hidden: true }, element("caption", { class: "visually-hidden" }, caption), element("thead", {}, head), body);
  const nothing = element("p", { class: "empty", hidden: true }, empty); // both are hidden until it is known which
  const syncRows = keyedList(body, (_item, key) => row(columns, key, rowClass));
  return {
    element: element("div", { class: "table-wrap" }, table, nothing),
    sync(entries) {
      syncRows(entries);
      table.hidden = entries.length === 0;
      nothing.hidden = entries.length > 0;
    },
  };
}

function row(columns, key, rowClass) {
  const whole = element("tr");
  const updates = columns.map(({ title, number, wrap, text, make }) => {
    const part = make?.(key);
    const cell = element("td", { class: number ? "number" : wrap && "wrap", "data-title": title }, part?.element);
    whole.append(cell);
    return part
      ? part.update
      : (item) => {
          const shown = text(item, key);
          setText(cell, shown);
          setAttribute(cell, "data-none", shown === NONE); // hidden on a narrow screen
        };
  });
  return {
    element: whole,
    update(item) {
      setAttribute(whole, "class", rowClass(item));
      for (const update of updates) update?.(item);
    },
  };
}
