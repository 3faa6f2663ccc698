// A place to try a model: its type decides which form is offered. What is tried stays in the memory of this tab.
import { element, setText } from "../dom.js";
import { Chat } from "./chat.js";
import { drawing } from "./drawing.js";
import { embedding } from "./embedding.js";
import { modelText } from "./progress.js";
import { reranking } from "./reranking.js";
import { formOf } from "./requests.js";
import { speech } from "./speech.js";
import { transcription } from "./transcription.js";

const FORMS = {
  chat: { group: "Chat", make: (context) => new Chat(context) },
  drawing: { group: "Pictures", make: drawing },
  transcription: { group: "Transcription", make: transcription },
  speech: { group: "Speech", make: speech },
  embedding: { group: "Embeddings", make: embedding },
  reranking: { group: "Reranking", make: reranking },
};

// Kept while other views are shown: a conversation, and the answers that are still being written.
const made = {};
let chosenBefore = "";

export function view(context) {
  const { api, store, params } = context;
  const models = new Map();
  const select = element("select", { id: "trial-model", onchange: () => choose(select.value) });
  const state = element("p", { class: "soft", id: "trial-model-state" });
  const problem = element("div", { hidden: true });
  const place = element("div");
  const chooser = element("div", { class: "form-field" }, element("label", { for: "trial-model" }, "Model"), select);
  const panel = element("div", { class: "panel trial-panel" }, element("h1", {}, "Try a model"), chooser, state, problem);
  let shown = null;
  let closed = false;

  function choose(name) {
    const model = models.get(name);
    if (!model) return;
    chosenBefore = name;
    select.value = name;
    history.replaceState(null, "", `#/try?model=${encodeURIComponent(name)}`);
    const form = formOf(model);
    if (shown !== made[form] || !shown) {
      shown?.close();
      shown = made[form] ??= FORMS[form].make(context);
      place.replaceChildren(shown.element);
    }
    shown.choose(model);
    update(store.overview);
  }

  function fail(text) {
    const again = element("button", { type: "button", onclick: load }, "Try again");
    problem.replaceChildren(element("p", { class: "problem", role: "alert" }, text), again);
    problem.hidden = false;
  }

  async function load() {
    problem.hidden = true;
    setText(state, "Asking for the models …");
    try {
      const { data } = await api.json("GET", "v1/models?show_all=true");
      if (closed) return;
      offer(data.filter((model) => model.downloaded && formOf(model)));
    } catch (refused) {
      if (closed) return;
      setText(state, "");
      fail(refused.message);
    }
  }

  function offer(found) {
    models.clear();
    for (const model of found) models.set(model.id, model);
    const groups = Object.entries(FORMS).map(([form, { group }]) => {
      const names = found.filter((model) => formOf(model) === form).map((model) => model.id);
      return names.length ? element("optgroup", { label: group }, names.sort().map((name) => element("option", { value: name }, name))) : null;
    });
    select.replaceChildren(...groups.filter(Boolean));
    select.disabled = !found.length;
    if (!found.length) {
      state.replaceChildren("No model is downloaded yet: ", element("a", { href: "#/models" }, "get one"), ".");
      return;
    }
    const wanted = params.get("model");
    if (wanted && !models.has(wanted)) fail(`${wanted} is not downloaded, or is of a type that cannot be tried here.`);
    const usual = [wanted, chosenBefore, store.overview?.server?.default_model, found.find((model) => model.loaded)?.id, select.value];
    choose(usual.find((name) => models.has(name)));
  }

  function update(overview) {
    const model = models.get(select.value);
    if (!model) return;
    setText(state, modelText(model, overview?.models?.[model.id]));
    shown?.update(overview);
  }

  load();
  return {
    element: element("div", { class: "trial" }, panel, place),
    update,
    close() {
      closed = true;
      shown?.close();
    },
  };
}
