// One model: its names, files and options with the origin of each value, and everything that can be done with it.
import { curlBox } from "../curl_box.js";
import { element, setAttribute, setText } from "../dom.js";
import { bytes, count } from "../format.js";
import { actionButtons, requestOf, TITLES } from "./actions.js";
import { field, offer, select } from "../fields.js";
import { actionsOf, stateClass, stateText } from "./models.js";
import { configuration } from "./requests.js";

// Returns { element, update(row, admin) }. `row`: undefined if there is no such model.
export function modelDetails(context, name, actions) {
  const { api } = context;
  const tag = element("span", { class: "tag" });
  const pinned = element("span", { class: "tag", hidden: true }, "pinned");
  const reason = element("p", { class: "problem", hidden: true });
  const facts = element("dl", { class: "model-facts" });
  const buttons = actionButtons(actions, name, actionsOf);
  const more = element("div", { class: "model-tables" });
  const wanted = select([], { onchange: () => curl.update() });
  const curl = curlBox({ ...context, request: () => requestOf(wanted.value, name) });
  const sameWithCurl = element("div", { class: "curl-action" }, field("Action to show as curl", wanted), curl.element);
  const trial = element("a", { class: "button small", href: `#/try?model=${encodeURIComponent(name)}`, hidden: true }, "Try it");
  let asked = null; // the state for which the configuration was asked; "" if it may not be
  let latest = null;

  // The configuration is for administrators; it is asked for again when the model was loaded, unloaded or downloaded.
  async function refresh() {
    try {
      const { path } = configuration(name);
      more.replaceChildren(...tables(await api.json("GET", path)));
    } catch (problem) {
      more.replaceChildren(element("p", { class: "problem", role: "alert" }, problem.message));
    }
  }

  return {
    element: element("section", { class: "panel", "aria-label": name }, [
      element("p", {}, element("a", { href: "#/models" }, "All models")),
      element("div", { class: "panel-head" }, element("h1", {}, name), tag, pinned, trial, buttons.element),
      reason, facts, more, sameWithCurl,
    ]),
    update(row, admin) {
      if (!row) {
        setText(reason, `There is no model ${name}.`);
        reason.hidden = false;
        return;
      }
      setText(tag, stateText(row));
      setAttribute(tag, "class", `tag ${stateClass(row)}`);
      pinned.hidden = !row.pinned;
      setText(reason, row.failure || row.unsupported);
      reason.hidden = !reason.textContent;
      trial.hidden = !row.here;
      buttons.update(row, admin);
      const shown = JSON.stringify(row);
      if (shown !== latest) showFacts(row);
      latest = shown;
      sameWithCurl.hidden = !admin;
      const choices = actionsOf(row).filter((action) => action !== "options");
      if (choices.join() !== [...wanted.options].map((each) => each.value).join()) {
        offer(wanted, choices.map((action) => [action, TITLES[action].replace(" …", "")]));
        curl.update();
      }
      const state = admin ? `${row.state} ${row.here}` : "";
      if (state === asked) return;
      asked = state;
      if (state) refresh();
      else more.replaceChildren(element("p", { class: "soft" }, "Only administrators see its files and options."));
    },
  };

  function showFacts(row) {
    const shown = [
      ["Other names", row.aliases.join(", ")],
      ["Checkpoint", row.checkpoint],
      ["Recipe", row.recipe],
      ["Type", row.type],
      ["Labels", row.labels.join(", ")],
      ["Size", row.bytes ? bytes(row.bytes) : ""],
      ["Context", row.context ? `${count(row.context)} tokens${row.trained ? ` (trained for ${count(row.trained)})` : ""}` : row.trained ? `trained for ${count(row.trained)} tokens` : ""],
      ["Memory", row.memory ? bytes(row.memory) : ""],
      ["Runs", { program: "a program of the configuration", server: "on another server" }[row.origin] ?? ""],
    ];
    facts.replaceChildren(...shown.filter(([, value]) => value).map(([title, value]) => element("div", {}, element("dt", {}, title), element("dd", {}, value))));
  }
}

function tables(about) {
  const loaded = about.loaded_options;
  const values = [...about.options, ...about.settings].map(({ name, value, origin }) => {
    const now = name in loaded && JSON.stringify(loaded[name]) !== JSON.stringify(value) ? JSON.stringify(loaded[name]) : "";
    return [name, JSON.stringify(value), origin, now];
  });
  const differs = values.some(([, , , now]) => now);
  const titles = ["Name", "Value", "From", ...(differs ? ["Loaded with"] : [])];
  const options = table("Options and settings", titles, values.map((cells) => cells.slice(0, titles.length)), "No option or setting has a value of its own.");
  const files = table("Files", ["File", "Size"], about.files.map(({ path, size }) => [path, bytes(size)]), "It has no files on this machine.");
  return about.groups.length ? [element("p", {}, `Groups: ${about.groups.join(", ")}`), options, files] : [options, files];
}

function table(caption, titles, rows, empty) {
  const head = element("tr", {}, titles.map((title) => element("th", { scope: "col" }, title)));
  const body = rows.map((cells) => element("tr", {}, cells.map((text, index) => element("td", { class: "wrap mono", "data-title": titles[index], "data-none": text === "" }, text))));
  const hidden = element("caption", { class: "visually-hidden" }, caption);
  const content = rows.length ? element("table", { class: "rows" }, hidden, element("thead", {}, head), element("tbody", {}, body)) : element("p", { class: "empty" }, empty);
  return element("section", {}, element("h2", {}, caption), element("div", { class: "table-wrap" }, content));
}
