// What the list of models, the overview and the downloads say about each model, as one row for each. Pure.
import { STATES } from "../overview/diagnosis.js";

const GB = 1e9;
const byName = new Intl.Collator("en", { numeric: true });
const READY = new Set(["ready", "draining", "restarting", "reloading"]);

export const SHOWN = [
  ["", "All models"], ["loaded", "Loaded"], ["here", "Downloaded"], ["missing", "Not downloaded"], ["downloading", "Being downloaded"], ["unsupported", "Cannot run here"],
];

// Returns the rows: those that are loaded first, then those that are here, each part by name.
// `listed`: `data` of v1/models?show_all=true; `overview`: the latest one, or null.
export function rowsOf(listed, overview) {
  const models = overview?.models ?? {};
  const downloads = overview?.downloads ?? {};
  const known = new Set(listed.map((model) => model.id));
  const rows = listed.map((model) => rowOf(model, models[model.id], downloads[model.id]));
  for (const [name, download] of Object.entries(downloads)) {
    if (!known.has(name) && unfinished(download)) rows.push(rowOf({ id: name, labels: [], aliases: [] }, models[name], download));
  }
  return rows.sort((a, b) => rank(a) - rank(b) || byName.compare(a.name, b.name));
}

function rowOf(model, live, download) {
  const running = unfinished(download) ? download : null;
  return {
    name: model.id,
    type: model.model_type ?? "",
    recipe: model.recipe ?? "",
    checkpoint: model.checkpoint ?? "",
    labels: model.labels,
    aliases: model.aliases ?? [],
    bytes: (model.size ?? 0) * GB,
    here: Boolean(model.downloaded),
    origin: model.origin ?? "files",
    unsupported: model.supported === false ? model.unsupported_reason : "",
    state: live?.state ?? (model.loaded ? "ready" : "absent"),
    pinned: Boolean(live?.pinned),
    context: live?.context || model.context_length || 0,
    trained: model.max_context_window ?? 0,
    busy: (live?.running ?? 0) + (live?.waiting ?? 0),
    memory: live?.memory ?? 0,
    failure: live?.failure?.message ?? "",
    download: running,
  };
}

function unfinished(download) {
  return download?.state === "running" || download?.state === "paused";
}

function rank(row) {
  return row.state !== "absent" ? 0 : row.download ? 1 : row.here ? 2 : row.unsupported ? 4 : 3;
}

// What a row's state is called.
export function stateText(row) {
  if (row.download) return row.download.state === "paused" ? "Download paused" : "Downloading";
  if (row.state !== "absent") return STATES[row.state]?.[0] ?? row.state;
  if (row.failure) return "Failed";
  return row.here ? "Not loaded" : row.unsupported ? "Cannot run here" : "Not downloaded";
}

// The class of a state's tag: good, info, warn, bad, or none.
export function stateClass(row) {
  if (row.download) return row.download.state === "paused" ? "warn" : "info";
  return row.state === "absent" && row.failure ? "bad" : (STATES[row.state]?.[1] ?? "");
}

// What an administrator can do with a model, the usual thing first.
export function actionsOf(row) {
  const loaded = row.state !== "absent" && row.state !== "backing_off" && row.state !== "downloading";
  const files = row.origin === "files" && !row.name.startsWith("extra.");
  if (row.download) return [row.download.state === "paused" ? "resume" : "pause", "delete"];
  if (loaded) return ["unload", ...(READY.has(row.state) ? ["options", row.pinned ? "unpin" : "pin"] : []), ...(files ? ["delete"] : [])];
  if (!row.here) return [...(row.unsupported ? [] : ["download"]), ...(row.name.startsWith("user.") ? ["delete"] : [])];
  return ["load", "options", ...(files ? ["delete"] : [])];
}

// Returns the rows that a filter lets through: { text, shown, type, recipe }. Every word of the text must be in a row.
export function filtered(rows, { text = "", shown = "", type = "", recipe = "" }) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter((row) => {
    if (type && row.type !== type) return false;
    if (recipe && row.recipe !== recipe) return false;
    if (!isShown(row, shown)) return false;
    const whole = [row.name, row.checkpoint, row.recipe, row.type, ...row.labels, ...row.aliases].join("\n").toLowerCase();
    return words.every((word) => whole.includes(word));
  });
}

function isShown(row, shown) {
  if (shown === "loaded") return row.state !== "absent";
  if (shown === "here") return row.here;
  if (shown === "missing") return !row.here && !row.unsupported;
  if (shown === "downloading") return Boolean(row.download);
  if (shown === "unsupported") return Boolean(row.unsupported);
  return !row.unsupported || row.here || row.state !== "absent";
}

// The values that a column has, for the choices of a filter.
export function valuesOf(rows, column) {
  return [...new Set(rows.map((row) => row[column]).filter(Boolean))].sort();
}

// How fast a download is, in bytes a second, from its last states: [{ at, file, done }, …], the oldest first. 0: unknown.
export function bytesPerSecond(states) {
  const last = states.at(-1);
  const first = states.find((each) => each.file === last?.file);
  if (!first || last.at - first.at < 1) return 0;
  return Math.max(0, (last.done - first.done) / (last.at - first.at));
}
