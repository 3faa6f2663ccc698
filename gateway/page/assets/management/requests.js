// The requests that manage models: what each sends, as the page and its curl line both have it. Pure.

const LABELS = ["vision", "embedding", "reranking", "reasoning"];

export const pull = (name) => post("/v1/pull", { model_name: name, stream: true, subscribe: false });
export const pause = (name) => post("/v1/downloads/pause", { model_name: name });
export const unload = (name) => post("/v1/unload", { model_name: name });
export const pin = (name, pinned) => post("/v1/pin", { model_name: name, pinned });
export const remove = (name, dryRun) => post("/v1/delete", { model_name: name, dry_run: dryRun || undefined });
export const install = (recipe, backend) => post("/v1/install", { recipe, backend });
export const uninstall = (recipe, backend) => post("/v1/uninstall", { recipe, backend });
export const configuration = (name) => ({ method: "GET", path: `/internal/configuration?model=${encodeURIComponent(name)}` });
export const variants = (repository) => ({ method: "GET", path: `/v1/pull/variants?checkpoint=${encodeURIComponent(repository)}` });

function post(path, body) {
  return { method: "POST", path, body };
}

// A load: `options` of the recipe by name (those left out stay as configured), and how the server treats the model.
export function load(name, { options = {}, pinned, ttl, save, dryRun } = {}) {
  return post("/v1/load", { model_name: name, ...options, pinned, ttl, save_options: save || undefined, dry_run: dryRun || undefined });
}

// The registration and download of a new model, from the fields of the form.
export function register({ name, checkpoint, variant, recipe, mmproj, labels }) {
  const flags = Object.fromEntries(LABELS.filter((label) => labels.has(label)).map((label) => [label, true]));
  const named = checkpointOf(checkpoint);
  const chosen = variant || named?.variant;
  const whole = named ? `${named.repository}${chosen ? `:${chosen}` : ""}` : checkpoint; // else it is a tag of flm's
  return post("/v1/pull", { model_name: registeredName(name), checkpoint: whole, recipe, mmproj: mmproj || undefined, ...flags, stream: true, subscribe: false });
}

// The name under which a new model is known.
export function registeredName(name) {
  return name.startsWith("user.") ? name : `user.${name}`;
}

// The repository of a checkpoint as people paste it, and the variant if it names one; null if it names no repository.
// "https://huggingface.co/o/r/tree/main" → { repository: "o/r", variant: "" }, "o/r:Q4_0" → { repository: "o/r", variant: "Q4_0" }
export function checkpointOf(text) {
  const found = /^(?:https?:\/\/[^/]+\/|hf\.co\/|hf:)?([\w.-]+\/[\w.-]+)(?:\/(?:tree|blob|resolve)\/.*|\/)?(?::([^:]+))?$/.exec(text.trim());
  return found && { repository: found[1], variant: found[2] ?? "" };
}

// The value of a load option that was typed as text: { value }, or { problem } in words. Nothing typed is { value: undefined }.
export function optionValue(option, text) {
  const given = text.trim();
  if (!given) return { value: undefined };
  if (option.kind === "bool") return { value: given === "true" };
  if (option.kind !== "int" && option.kind !== "number") return { value: given };
  if (option.automatic && given.toLowerCase() === "auto") return { value: "auto" };
  const number = Number(given);
  if (!Number.isFinite(number) || (option.kind === "int" && !Number.isInteger(number))) {
    return { problem: `${option.name} must be ${option.kind === "int" ? "a whole number" : "a number"}${option.automatic ? ", or auto" : ""}.` };
  }
  if (option.least !== undefined && number < option.least) return { problem: `${option.name} must be at least ${option.least}.` };
  if (option.most !== undefined && number > option.most) return { problem: `${option.name} must be at most ${option.most}.` };
  return { value: number };
}
