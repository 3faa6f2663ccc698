// The form that registers a model of a Hugging Face hub, and begins its download.
import { curlBox } from "../curl_box.js";
import { openDialog } from "../dialog.js";
import { element, setText } from "../dom.js";
import { bytes } from "../format.js";
import { checkbox, field, offer, select } from "../fields.js";
import { checkpointOf, register, registeredName, variants } from "./requests.js";

const OTHER = ["", "another one"];
const USUAL_RECIPE = "llamacpp";
const SWITCHES = { vision: "It understands pictures", embedding: "It makes embeddings", reranking: "It ranks documents", reasoning: "It reasons before it answers" };
const SWITCH_OF_LABEL = { embeddings: "embedding" };

// Opens the form; resolves to the name of the model whose download has begun, or null. `recipes`: their names.
export function openAddDialog(context, recipes) {
  return new AddForm(context, recipes).open();
}

class AddForm {
  #context;
  #asked = "";

  constructor(context, recipes) {
    this.#context = context;
    this.checkpoint = element("input", { type: "text", required: true, spellcheck: "false", autocomplete: "off", placeholder: "OWNER/REPO" });
    this.look = element("button", { type: "button", onclick: () => this.#list() }, "List variants");
    this.found = element("p", { class: "soft", role: "status" });
    this.variant = element("input", { type: "text", spellcheck: "false", autocomplete: "off" });
    this.variants = select([OTHER], { onchange: () => this.#choose() });
    this.recipe = select(recipes.map((name) => [name, name]));
    if (recipes.includes(USUAL_RECIPE)) this.recipe.value = USUAL_RECIPE;
    this.projector = select([["", "none"]]);
    this.name = element("input", { type: "text", required: true, spellcheck: "false", autocomplete: "off" });
    this.switches = Object.entries(SWITCHES).map(([label, text]) => ({ label, ...checkbox(text) }));
    this.curl = curlBox({ ...context, request: () => (this.#complete() ? register(this.#values()) : null) });
  }

  async open() {
    this.variantsField = field("Variant", this.variants);
    this.variantsField.hidden = true;
    this.variantField = field("Quantization or file", this.variant, "Such as Q4_K_M. Empty: the whole repository, for recipes that load folders.");
    this.checkpoint.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || this.#repository() === this.#asked) return;
      event.preventDefault(); // the form is not complete yet
      this.#list();
    });
    const body = element("div", { class: "add-form", oninput: () => this.curl.update(), onchange: () => this.curl.update() }, [
      field("Repository", this.checkpoint, "On huggingface.co or your HF_ENDPOINT: OWNER/REPO, or the address of its page.", this.look),
      this.found,
      element("div", { class: "form-fields" }, [
        this.variantsField,
        this.variantField,
        field("Name", this.name, "The model is called user.NAME."),
        field("Recipe", this.recipe, "The engine that runs it."),
        field("Projector (mmproj)", this.projector, "For models that understand pictures."),
      ]),
      element("fieldset", {}, element("legend", {}, "Labels"), this.switches.map((each) => each.element)),
      this.curl.element,
    ]);
    const done = await openDialog({ title: "Add a model", body, submit: "Download", wide: true, focus: this.checkpoint, check: () => this.#begin(), result: () => registeredName(this.name.value.trim()) });
    return done;
  }

  #repository() {
    return checkpointOf(this.checkpoint.value)?.repository ?? "";
  }

  // Asks the hub what the repository offers, and fills in what it suggests.
  async #list() {
    const repository = this.#repository();
    if (!repository) {
      setText(this.found, "This is not OWNER/REPO.");
      this.checkpoint.focus();
      return;
    }
    setText(this.found, `Asking the hub about ${repository} …`);
    this.look.disabled = true;
    try {
      const { method, path } = variants(repository);
      const about = await this.#context.api.json(method, path);
      this.#asked = repository;
      this.#fill(repository, about);
    } catch (problem) {
      setText(this.found, problem.message);
    } finally {
      this.look.disabled = false;
      this.curl.update();
    }
  }

  #fill(repository, about) {
    const wanted = checkpointOf(this.checkpoint.value)?.variant;
    this.checkpoint.value = repository;
    offer(this.variants, [...about.variants.map((each) => [each.name, `${each.name}, ${bytes(each.size_bytes)}${each.sharded ? `, ${each.files.length} files` : ""}`]), OTHER]);
    const listed = about.variants.map((each) => each.name);
    this.variants.value = !wanted ? (listed[0] ?? "") : listed.includes(wanted) ? wanted : "";
    this.variantsField.hidden = listed.length === 0;
    this.variant.value = wanted || this.variants.value;
    this.variantField.hidden = Boolean(this.variants.value);
    offer(this.projector, [["", "none"], ...about.mmproj_files.map((file) => [file, file])]);
    this.projector.value = about.mmproj_files[0] ?? "";
    if ([...this.recipe.options].some((each) => each.value === about.recipe)) this.recipe.value = about.recipe;
    this.name.value = about.suggested_name;
    const suggested = new Set(about.suggested_labels.map((label) => SWITCH_OF_LABEL[label] ?? label));
    for (const { label, box } of this.switches) box.checked = suggested.has(label);
    setText(this.found, about.variants.length ? `${repository}: choose a variant.` : `${repository} has no GGUF model: choose a recipe that runs its files.`);
    (about.variants.length ? this.variants : this.variant).focus();
  }

  #choose() {
    this.variant.value = this.variants.value;
    this.variantField.hidden = Boolean(this.variants.value);
    if (!this.variants.value) this.variant.focus();
  }

  #values() {
    return {
      checkpoint: this.checkpoint.value.trim(),
      variant: this.variant.value.trim(),
      name: this.name.value.trim(),
      recipe: this.recipe.value,
      mmproj: this.projector.value,
      labels: new Set(this.switches.filter(({ box }) => box.checked).map(({ label }) => label)),
    };
  }

  #complete() {
    return Boolean(this.checkpoint.value.trim() && this.name.value.trim());
  }

  // Begins the download; returns why that did not succeed, or "".
  async #begin() {
    try {
      const { method, path, body } = register(this.#values());
      await this.#context.api.json(method, path, body);
      this.#context.announce(`${body.model_name} is being downloaded.`);
      return "";
    } catch (problem) {
      return problem.message;
    }
  }
}
