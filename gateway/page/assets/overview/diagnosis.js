// Says in words what a model does, and why it is slow or not loaded. Pure.
import { age, count, duration, moment, percent, plural, rate, share } from "../format.js";

// From these values on, `lemonbus top` calls a model slow as well.
export const SLOW_FIRST_TOKEN_S = 5;
export const SLOW_TOKENS_PER_SECOND = 5;
export const SLOW_WAIT_S = 2;
const JUST_DIED_S = 300;
const DAY_S = 86400;

// A state of a model's lifecycle → what it is called, and the tone of its tag.
export const STATES = {
  absent: ["Not loaded", ""],
  downloading: ["Downloading", "info"],
  queued: ["Loading", "info"],
  checking: ["Loading", "info"],
  checked: ["Loading", "info"],
  loading: ["Loading", "info"],
  ready: ["Ready", "good"],
  draining: ["Unloading", "info"],
  restarting: ["Engine restarts", "bad"],
  reloading: ["Reloading", "info"],
  unloading: ["Unloading", "info"],
  backing_off: ["Failed", "bad"],
};
// A stage of a load → what happens in it.
export const STAGES = {
  queued: "waits for a worker",
  "waiting for node": "waits for a machine that was lost",
  "copying files": "its files are copied",
  checking: "its files are checked",
  "waiting for memory": "waits for memory: other models must be unloaded first",
  waiting: "waits until other models have been loaded or unloaded",
  starting: "the engine starts",
  loading: "the engine loads the weights",
  "warming up": "the engine warms up",
};
// States of models that can answer.
const SERVING = new Set(["ready", "draining"]);

// Several parts of the page ask about the same model at the same moment.
const diagnosed = new WeakMap();

// Returns { rank, tone, label, causes }: how much it needs attention (0: most), the tone and the label of its state, and the
// causes in words, the most important one first: [{ tone, text }].
export function diagnose(model, now) {
  const known = diagnosed.get(model);
  if (known?.now === now) return known;
  const [label, tone] = STATES[model.state] || [model.state, ""];
  const causes = [failure(model, now), queue(model), load(model, now), slowEngine(model), deaths(model, now)].filter(Boolean);
  const rank = Math.min(...causes.map((cause) => cause.rank), idleRank(model));
  const failed = model.state === "absent" && model.failure;
  const found = { now, rank, tone: failed ? "bad" : tone, label: failed ? "Failed" : label, causes };
  diagnosed.set(model, found);
  return found;
}

// Models without trouble: those that work, those that are loaded, the others.
function idleRank(model) {
  if (model.running) return 6;
  return SERVING.has(model.state) ? 7 : 8;
}

function failure({ failure: found, waiting = 0 }, now) {
  if (!found) return null;
  const times = found.failures > 1 ? ` It has failed ${found.failures} times.` : "";
  const left = (found.retry_at || 0) - now;
  const again = left > 0 ? ` It is tried again in ${age(left + 1)}.` : " The next request tries again.";
  return { rank: 0, kind: "failed", tone: "bad", text: `Not loaded: ${sentence(found.message)}${times}${again}${waiting ? ` ${plural(waiting, "request waits", "requests wait")}.` : ""}` };
}

function queue({ state, slots = 0, running = 0, waiting = 0, queue: shares = [], queue_wait_p50: wait = 0 }) {
  if (!SERVING.has(state)) return null;
  if (!waiting) {
    return wait < SLOW_WAIT_S ? null : { rank: 4, kind: "slots", tone: "warn", text: `Requests waited ${duration(wait)} for a slot (median of the last requests).` };
  }
  const next = Math.min(...shares.map((each) => each.wait_s).filter((each) => each > 0));
  const full = slots && running >= slots ? ` ${slots === 1 ? "The only slot is" : `All ${count(slots)} slots are`} taken.` : "";
  const about = Number.isFinite(next) ? ` The next one gets a slot in about ${duration(next)}.` : "";
  return { rank: 2, kind: "slots", tone: "warn", text: `${plural(waiting, "request waits", "requests wait")} for a slot.${full}${about}` };
}

// Returns what happens in a load, and where. `amount`: how much of it is done, shown if that is known.
export function stageInWords({ stage, node, done, total }, amount) {
  if (stage === "waiting for node") return `waits for ${node}, which was lost ${age(done)} ago`;
  return `${STAGES[stage] || stage}${node ? ` (${node})` : ""}${total ? amount : ""}`;
}

function load({ load: found, waiting = 0 }, now) {
  if (!found) return null;
  const stage = `${stageInWords(found, ` (${percent(share(found.done, found.total))})`)}, for ${age(now - found.asked_at)}`;
  if (!waiting) return { rank: 5, kind: "load", tone: "info", text: `Loading: ${stage}.` };
  return { rank: 3, kind: "load", tone: "warn", text: `${plural(waiting, "request waits", "requests wait")} for its load: ${stage}.` };
}

function slowEngine({ state, type, device, first_token_p50: first = 0, tokens_per_second: speed = 0 }) {
  if (!SERVING.has(state)) return null;
  const late = first >= SLOW_FIRST_TOKEN_S && `the first token comes after ${duration(first)}`;
  const slow = type === "llm" && speed > 0 && speed < SLOW_TOKENS_PER_SECOND && `${rate(speed)} tokens/s`;
  if (!late && !slow) return null;
  const where = device === "cpu" ? "; it runs on the CPU" : "";
  return { rank: 4, kind: "engine", tone: "warn", text: `The engine is slow: ${[late, slow].filter(Boolean).join(", ")}${where}.` };
}

function deaths({ deaths: found }, now) {
  const [last] = found?.last || [];
  if (!last || now - last.at > DAY_S) return null;
  const recent = now - last.at < JUST_DIED_S;
  const times = found.count > 1 ? `${found.count} times since the server started, last` : "once,";
  return { rank: recent ? 1 : 5, kind: "death", tone: recent ? "bad" : "warn", text: `Its engine died ${times} at ${moment(last.at, now)}: ${sentence(last.reason)}` };
}

function sentence(text) {
  const whole = String(text ?? "").trim();
  return /[.!?]$/.test(whole) || !whole ? whole : `${whole}.`;
}

// The models that are slow or not loaded now, with the cause: [{ name, tone, text }], the worst first.
export function troubles(models, now) {
  return Object.entries(models)
    .map(([name, model]) => ({ name, ...diagnose(model, now) }))
    .filter(({ causes }) => causes.some((cause) => cause.kind !== "death" && cause.rank < 5))
    .sort((one, other) => one.rank - other.rank || one.name.localeCompare(other.name))
    .map(({ name, causes }) => ({ name, tone: causes[0].tone, text: causes.find((cause) => cause.kind !== "death").text }));
}

// Who waits, by key: [{ key, requests, models }], the one with the most requests first. Only administrators are told.
export function waitingKeys(models) {
  const found = new Map();
  for (const [name, model] of Object.entries(models)) {
    for (const { key, requests } of model.queue || []) {
      const entry = found.get(key) || { key, requests: 0, models: [] };
      entry.requests += requests;
      entry.models.push(name);
      found.set(key, entry);
    }
  }
  return [...found.values()].sort((one, other) => other.requests - one.requests || one.key.localeCompare(other.key));
}

// The engines that died in the last day: [{ name, times, at, reason }], the last one first. `times` counts those that are listed.
export function recentDeaths(models, now) {
  return Object.entries(models)
    .map(([name, model]) => [name, (model.deaths?.last || []).filter((each) => now - each.at <= DAY_S)])
    .filter(([, last]) => last.length > 0)
    .map(([name, last]) => ({ name, times: last.length, at: last[0].at, reason: last[0].reason }))
    .sort((one, other) => other.at - one.at);
}

// When a loaded model is unloaded, in words.
export function unloading({ state, pinned, expires_at: expires = 0, running = 0, waiting = 0, last_use: used = 0 }, now) {
  if (!SERVING.has(state)) return "";
  if (running || waiting) return "In use";
  const idle = used ? `idle for ${age(now - used)}` : "";
  const end = pinned ? "pinned" : expires > now ? `unloaded in ${age(expires - now)}` : expires ? "about to be unloaded" : "";
  const whole = [idle, end].filter(Boolean).join(", ");
  return whole.charAt(0).toUpperCase() + whole.slice(1);
}

// What has happened since the overview before and a screen reader should say: engines that died, and models that failed.
// before, models: those of the two overviews.
export function news(before, models) {
  return Object.entries(models).flatMap(([name, { deaths, failure }]) => {
    const known = before[name] || {};
    const died = (deaths?.count || 0) > (known.deaths?.count || 0) && `The engine of ${name} died: ${sentence(deaths.last[0].reason)}`;
    const failed = failure && (failure.failures || 0) > (known.failure?.failures || 0) && `${name} is not loaded: ${sentence(failure.message)}`;
    return [died, failed].filter(Boolean);
  });
}
