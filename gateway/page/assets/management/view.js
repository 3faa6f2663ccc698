// Model management: the list of models or the details of one, their downloads, and the programs that they run on.
import { readOnlyReason } from "../access.js";
import { element, setText } from "../dom.js";
import { modelActions } from "./actions.js";
import { openAddDialog } from "./add_model.js";
import { backendsPanel } from "./backends.js";
import { modelDetails } from "./details.js";
import { downloadsPanel } from "./downloads.js";
import { modelList } from "./model_list.js";
import { rowsOf } from "./models.js";

const LIST = "v1/models?show_all=true";

export function view(context) {
  const { api, store, params } = context;
  const name = params.get("model");
  const problem = element("p", { class: "problem", role: "alert", hidden: true });
  const actions = modelActions(context, { changed: load, failed });
  const downloads = downloadsPanel(context, load);
  const shown = name ? modelDetails(context, name, actions) : modelList(actions);
  const backends = name ? null : backendsPanel(context);
  const add = element("button", { type: "button", class: "primary", hidden: true, onclick: addModel }, "Add a model …");
  const readOnly = element("p", { class: "soft", hidden: true });
  let listed = null;
  let before = {};
  let closed = false;
  let unfinished = "";

  function failed(text) {
    problem.textContent = text;
    problem.hidden = !text;
  }

  async function load() {
    try {
      const { data } = await api.json("GET", LIST);
      if (closed) return;
      listed = data;
      update(store.overview);
    } catch (refused) {
      if (!closed) failed(refused.message);
    }
  }

  async function addModel() {
    failed("");
    try {
      const { recipes } = await api.json("GET", "v1/system-info");
      await openAddDialog(context, Object.keys(recipes));
    } catch (refused) {
      failed(refused.message);
    }
  }

  // The list of models is asked for again when a download has ended or begun, because that may register one.
  function downloadsChanged(overview) {
    const now = Object.entries(overview?.downloads ?? {}).map(([model, { state }]) => `${model} ${state}`).sort().join("\n");
    const changed = now !== unfinished;
    unfinished = now;
    return changed;
  }

  function update(overview) {
    const admin = Boolean(overview?.access?.admin);
    add.hidden = !admin || Boolean(name);
    readOnly.hidden = admin || !overview;
    setText(readOnly, readOnlyReason(overview?.access));
    downloads.update(overview);
    backends?.update(admin);
    const again = downloadsChanged(overview);
    if (again && listed) load();
    const now = { listed, models: overview?.models, downloads: overview?.downloads, admin };
    if (!listed || Object.keys(now).every((key) => now[key] === before[key])) return;
    before = now;
    const rows = rowsOf(listed, overview);
    if (name) shown.update(rows.find((row) => row.name === name || row.aliases.includes(name)), admin);
    else shown.update(rows, admin);
  }

  load();
  const head = name ? null : element("div", { class: "panel-head" }, element("h1", {}, "Models"), element("span", { class: "grow" }), add);
  return {
    element: element("div", { class: "management" }, head, readOnly, problem, downloads.element, shown.element, backends?.element),
    update,
    close() {
      closed = true;
    },
  };
}

