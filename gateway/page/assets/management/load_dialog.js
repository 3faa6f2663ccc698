// The dialog that loads a model with options of its recipe: each shows what it would be without a choice, and a dry run shows the outcome.
import { curlBox } from "../curl_box.js";
import { openDialog } from "../dialog.js";
import { debounced, element, setText } from "../dom.js";
import { age } from "../format.js";
import { stageInWords } from "../overview/diagnosis.js";
import { checkbox, field, select } from "../fields.js";
import { planElements } from "./plan.js";
import { configuration, load, optionValue } from "./requests.js";

const CONTEXT = "ctx_size";
const SAVED = "recipe_options.json"; // the origin of saved options
const AS_CONFIGURED = "as configured";
const DRY_RUN_AFTER_MS = 400;

// Opens the dialog; resolves to whether the model was loaded. Rejects if its configuration cannot be read.
export async function openLoadDialog(context, name) {
  const { api, store, announce } = context;
  const { path } = configuration(name);
  return new LoadForm(context, name, await api.json("GET", path)).open({ api, store, announce });
}

class LoadForm {
  #context;
  #name;
  #about;
  #controls = new Map(); // option → { option, control }

  constructor(context, name, about) {
    this.#context = context;
    this.#name = name;
    this.#about = about;
    this.plan = element("div", { class: "plan", role: "status", "aria-label": "What this load would do" });
    this.progress = element("p", { class: "info", role: "status" });
    const unchanged = Object.keys(about.loaded_options).length ? "as it is now" : AS_CONFIGURED;
    this.pinned = select([["", unchanged], ["true", "yes: not unloaded for another model"], ["false", "no"]]);
    this.ttl = element("input", { type: "number", min: 0, step: "any", placeholder: unchanged });
    const replaced = about.options.some(({ origin }) => origin === SAVED);
    this.save = checkbox(`Save these options for later loads${replaced ? ", in place of those that are saved now" : ""}`);
    this.curl = curlBox({ ...context, request: () => this.#request() });
  }

  // Shows the dialog until the model is loaded or the person leaves it; a load that has begun goes on then.
  async open({ api, store, announce }) {
    const [first, more] = this.#optionFields();
    const body = [
      this.#now(),
      element("div", { class: "form-fields" }, first, field("Pinned", this.pinned, `Until it is unloaded. As configured: ${this.#usual("pinned", "no")}.`), field("Unload after being idle for (seconds)", this.ttl, `0: never. As configured: ${this.#usual("ttl", "never")}.`)),
      more.length > 0 && element("details", {}, element("summary", {}, `More options (${more.length})`), element("div", { class: "form-fields" }, more)),
      this.save.element,
      this.plan,
      this.progress,
      this.curl.element,
    ].filter(Boolean);
    const changed = debounced(() => this.#preview(api), DRY_RUN_AFTER_MS);
    const form = element("div", { class: "load-form", oninput: () => {
      this.curl.update();
      changed();
    } }, body);
    const unsubscribe = store.subscribe(() => this.#showProgress(store));
    this.#preview(api);
    try {
      const loaded = await openDialog({
        title: `Load ${this.#name}`,
        body: form,
        submit: "Load",
        wide: true,
        focus: this.#controls.get(CONTEXT)?.control,
        check: () => this.#load(api, store, announce),
      });
      return loaded === true;
    } finally {
      unsubscribe();
      this.closed = true;
    }
  }

  // The fields of the options: the usual ones, and the others.
  #optionFields() {
    const first = [];
    const more = [];
    for (const option of this.#about.known_options) {
      const usual = option.name === CONTEXT || option.name.endsWith("_backend") || option.kind === "args";
      (usual ? first : more).push(this.#optionField(option));
    }
    return [first, more];
  }

  #optionField(option) {
    const usual = this.#usual(option.name, valueText(option.default ?? ""));
    const control = controlOf(option);
    this.#controls.set(option.name, { option, control });
    const automatic = option.automatic && element("button", { type: "button", class: "small", onclick: () => fill(control, "auto") }, "As much as fits");
    return field(titleOf(option), control, `${sentence(option.help)}${boundsOf(option)} As configured: ${usual}.`, automatic);
  }

  // What an option or a setting is without a choice, and where that comes from.
  #usual(name, otherwise) {
    const found = [...this.#about.options, ...this.#about.settings].find((each) => each.name === name);
    return found ? `${valueText(found.value)} (${found.origin})` : otherwise;
  }

  #now() {
    const loaded = Object.entries(this.#about.loaded_options);
    if (!loaded.length) return this.#about.downloaded ? null : element("p", { class: "info" }, "It is not on this machine: it is downloaded first.");
    const shown = loaded.map(([name, value]) => `${name} ${valueText(value)}`).join(", ");
    return element("p", {}, "It is loaded with ", element("span", { class: "mono" }, shown), ". With other options it is loaded again, after its running requests.");
  }

  // The chosen values; throws an error in words if one is wrong.
  #choices() {
    const options = {};
    for (const { option, control } of this.#controls.values()) {
      const { value, problem } = optionValue(option, control.value);
      if (problem) throw new Error(problem);
      if (value !== undefined) options[option.name] = value;
    }
    if (!this.ttl.validity.valid) throw new Error(`Unload after being idle for: ${this.ttl.validationMessage}`);
    return {
      options,
      pinned: this.pinned.value ? this.pinned.value === "true" : undefined,
      ttl: this.ttl.value === "" ? undefined : Number(this.ttl.value),
      save: this.save.box.checked,
    };
  }

  #request(dryRun = false) {
    try {
      return load(this.#name, { ...this.#choices(), dryRun });
    } catch {
      return null; // the plan says what is wrong
    }
  }

  // Asks what the load would do, and shows it, unless something else was chosen meanwhile.
  async #preview(api) {
    this.asking?.abort();
    const { signal } = (this.asking = new AbortController());
    if (this.closed || this.loading) return;
    try {
      this.#choices();
      const { method, path, body } = this.#request(true);
      const answer = await api.json(method, path, body, { signal });
      this.plan.replaceChildren(...planElements(answer.plan));
    } catch (problem) {
      if (problem.name !== "AbortError") this.plan.replaceChildren(element("p", { class: "problem" }, problem.message));
    }
  }

  // Loads the model; returns why that did not succeed, or "".
  async #load(api, store, announce) {
    try {
      this.#choices();
      const { method, path, body } = this.#request();
      this.loading = Date.now();
      this.#showProgress(store);
      const { context } = await api.json(method, path, body);
      announce(`${this.#name} is loaded${context ? ` with a context of ${context} tokens` : ""}.`);
      return "";
    } catch (problem) {
      return problem.message;
    } finally {
      this.loading = 0;
      setText(this.progress, "");
    }
  }

  #showProgress(store) {
    if (!this.loading) return;
    const live = store.overview?.models?.[this.#name];
    const load = live?.load;
    const begun = load ? stageInWords(load, `, ${load.done} of ${load.total} ${load.unit}`) : "the load begins";
    const doing = live?.state === "downloading" ? "its files are downloaded first" : begun;
    setText(this.progress, `Loading for ${age((Date.now() - this.loading) / 1000)}: ${doing}. You may close this dialog: the load goes on.`);
  }
}

function controlOf(option) {
  if (option.choices?.length) return select([["", AS_CONFIGURED], ...option.choices.map((each) => [each, each])]);
  if (option.kind === "bool") return select([["", AS_CONFIGURED], ["true", "yes"], ["false", "no"]]);
  return element("input", { type: "text", placeholder: AS_CONFIGURED, spellcheck: "false", autocomplete: "off" });
}

// Fills in a control as a person would.
function fill(control, value) {
  control.value = value;
  control.dispatchEvent(new Event("input", { bubbles: true }));
}

// The title of an option: "Context size (tokens)", or its own name.
function titleOf(option) {
  if (option.name === CONTEXT) return "Context size (tokens)";
  if (option.kind === "args") return `Engine arguments (${option.name})`;
  return option.name.endsWith("_backend") ? `Backend (${option.name})` : option.name;
}

function sentence(text) {
  return text && `${text[0].toUpperCase()}${text.slice(1)}.`;
}

function boundsOf({ least, most, automatic }) {
  if (automatic || (least === undefined && most === undefined)) return "";
  return most === undefined ? ` At least ${least}.` : least === undefined ? ` At most ${most}.` : ` ${least} to ${most}.`;
}

function valueText(value) {
  if (value === null || value === undefined || value === "") return "none";
  return typeof value === "string" ? value : JSON.stringify(value);
}
