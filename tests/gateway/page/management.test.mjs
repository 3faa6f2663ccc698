// Model management: the rows of the list, what can be done with each model, and what is sent.

import assert from "node:assert/strict";
import { test } from "node:test";

import { requestOf } from "../../../gateway/page/assets/management/actions.js";
import { downloadText } from "../../../gateway/page/assets/management/downloads.js";
import * as models from "../../../gateway/page/assets/management/models.js";
import { evictionText, partsText } from "../../../gateway/page/assets/management/plan.js";
import * as requests from "../../../gateway/page/assets/management/requests.js";

const listed = (id, more = {}) => ({ id, checkpoint: `o/${id}:Q4_0`, recipe: "llamacpp", labels: [], model_type: "llm", downloaded: true, supported: true, origin: "files", ...more });
const rowOf = (model, overview) => models.rowsOf([model], overview)[0];
const named = (rows) => rows.map((row) => row.name);

test("loaded models come first, then downloads, downloaded models, others, and those that cannot run here", () => {
  const all = [listed("b10"), listed("b9"), listed("absent", { downloaded: false }), listed("npu", { downloaded: false, supported: false, unsupported_reason: "no NPU" }), listed("used"), listed("coming", { downloaded: false })];
  const overview = { models: { used: { state: "ready" } }, downloads: { coming: { state: "running" } } };
  assert.deepEqual(named(models.rowsOf(all, overview)), ["used", "coming", "b9", "b10", "absent", "npu"]);
});

test("a model that is being registered is in the list as long as its download is not over", () => {
  const found = models.rowsOf([], { downloads: { "user.new": { state: "paused" }, "user.done": { state: "done" }, "user.failed": { state: "failed" } } });
  assert.deepEqual(named(found), ["user.new"]);
  assert.equal(models.stateText(found[0]), "Download paused");
  assert.deepEqual(models.actionsOf(found[0]), ["resume", "delete"]);
});

test("states in words, and what can be done", () => {
  const cases = [
    [listed("m"), {}, "Not loaded", ["load", "options", "delete"]],
    [listed("m"), { state: "ready" }, "Ready", ["unload", "options", "pin", "delete"]],
    [listed("m"), { state: "ready", pinned: true }, "Ready", ["unload", "options", "unpin", "delete"]],
    [listed("m"), { state: "loading" }, "Loading", ["unload", "delete"]],
    [listed("m"), { state: "backing_off" }, "Failed", ["load", "options", "delete"]],
    [listed("m"), { state: "absent", failure: { message: "no" } }, "Failed", ["load", "options", "delete"]],
    [listed("m", { downloaded: false }), {}, "Not downloaded", ["download"]],
    [listed("m", { downloaded: false, supported: false, unsupported_reason: "no NPU" }), {}, "Cannot run here", []],
    [listed("user.m", { downloaded: false }), {}, "Not downloaded", ["download", "delete"]],
    [listed("extra.m"), {}, "Not loaded", ["load", "options"]],
    [listed("m", { origin: "server" }), {}, "Not loaded", ["load", "options"]],
  ];
  for (const [model, live, text, actions] of cases) {
    const row = rowOf(model, { models: { [model.id]: { state: "absent", ...live } } });
    assert.equal(models.stateText(row), text);
    assert.deepEqual(models.actionsOf(row), actions, text);
  }
});

test("without an overview, the list alone says what is loaded", () => {
  assert.equal(models.stateText(rowOf(listed("m", { loaded: true }), null)), "Ready");
});

test("filters", () => {
  const rows = models.rowsOf(
    [listed("Qwen3-4B", { labels: ["vision"], aliases: ["qwen"] }), listed("Whisper", { recipe: "whispercpp", model_type: "audio", downloaded: false }), listed("npu", { downloaded: false, supported: false, unsupported_reason: "no" })],
    { models: { "Qwen3-4B": { state: "ready" } } },
  );
  const shown = (filter) => named(models.filtered(rows, filter));
  assert.deepEqual(shown({}), ["Qwen3-4B", "Whisper"]);
  assert.deepEqual(shown({ text: "VISION qwen" }), ["Qwen3-4B"]);
  assert.deepEqual(shown({ text: "vision whisper" }), []);
  assert.deepEqual(shown({ shown: "loaded" }), ["Qwen3-4B"]);
  assert.deepEqual(shown({ shown: "here" }), ["Qwen3-4B"]);
  assert.deepEqual(shown({ shown: "missing" }), ["Whisper"]);
  assert.deepEqual(shown({ shown: "downloading" }), []);
  assert.deepEqual(shown({ shown: "unsupported" }), ["npu"]);
  assert.deepEqual(shown({ type: "audio" }), ["Whisper"]);
  assert.deepEqual(shown({ recipe: "llamacpp" }), ["Qwen3-4B"]);
  assert.deepEqual(models.valuesOf(rows, "recipe"), ["llamacpp", "whispercpp"]);
});

test("the speed of a download is that of its present file", () => {
  const state = (at, done, file = "a") => ({ at, done, file });
  assert.equal(models.bytesPerSecond([state(0, 0), state(2, 100)]), 50);
  assert.equal(models.bytesPerSecond([state(0, 900, "b"), state(1, 0), state(3, 20)]), 10);
  assert.equal(models.bytesPerSecond([state(0, 0), state(0.5, 100)]), 0);
  assert.equal(models.bytesPerSecond([]), 0);
});

test("downloads in words", () => {
  const half = { state: "running", done: 2 ** 20, total: 2 ** 21 };
  assert.equal(downloadText(half, 2 ** 18), "1 MiB of 2 MiB, 50 %, 256 KiB/s, 4 s left");
  assert.equal(downloadText(half, 0), "1 MiB of 2 MiB, 50 %");
  assert.equal(downloadText({ ...half, state: "paused" }, 0), "paused: 1 MiB of 2 MiB, 50 %");
  assert.equal(downloadText({ state: "running" }, 0), "begins");
  assert.equal(downloadText({ state: "done" }, 0), "complete");
});

test("what each action sends", () => {
  const bodies = Object.fromEntries(["load", "unload", "pin", "unpin", "download", "pause", "resume", "delete"].map((action) => [action, requestOf(action, "m")]));
  const sent = (path, more = {}) => ({ method: "POST", path, body: { model_name: "m", ...more } });
  const plain = JSON.parse(JSON.stringify(bodies)); // without the fields that are not sent
  assert.deepEqual(plain, {
    load: sent("/v1/load"),
    unload: sent("/v1/unload"),
    pin: sent("/v1/pin", { pinned: true }),
    unpin: sent("/v1/pin", { pinned: false }),
    download: sent("/v1/pull", { stream: true, subscribe: false }),
    pause: sent("/v1/downloads/pause"),
    resume: sent("/v1/pull", { stream: true, subscribe: false }),
    delete: sent("/v1/delete"),
  });
  assert.equal(requestOf("options", "m"), null);
});

test("a load with options sends what was chosen, and nothing else", () => {
  const whole = requests.load("m", { options: { ctx_size: "auto" }, pinned: false, ttl: 0, save: true, dryRun: true });
  assert.deepEqual(JSON.parse(JSON.stringify(whole.body)), { model_name: "m", ctx_size: "auto", pinned: false, ttl: 0, save_options: true, dry_run: true });
  assert.deepEqual(JSON.parse(JSON.stringify(requests.load("m", { options: {}, save: false }).body)), { model_name: "m" });
});

test("typed options", () => {
  const context = { name: "ctx_size", kind: "int", automatic: true, least: -1, most: 100 };
  const values = (option, ...texts) => texts.map((text) => requests.optionValue(option, text).value);
  assert.deepEqual(values(context, "", "  ", "AUTO", "-1", "100"), [undefined, undefined, "auto", -1, 100]);
  assert.deepEqual(values({ name: "x", kind: "bool" }, "true", "false"), [true, false]);
  assert.deepEqual(values({ name: "x", kind: "args" }, " --no-mmap "), ["--no-mmap"]);
  const problem = (option, text) => requests.optionValue(option, text).problem;
  assert.match(problem(context, "many"), /whole number, or auto/);
  assert.match(problem(context, "1.5"), /whole number/);
  assert.match(problem(context, "101"), /at most 100/);
  assert.match(problem(context, "-2"), /at least -1/);
  assert.equal(requests.optionValue({ name: "x", kind: "number" }, "0.5").value, 0.5);
});

test("repositories as people paste them", () => {
  const cases = [
    ["o/r", "o/r", ""], [" o/r:Q4_K_M ", "o/r", "Q4_K_M"], ["https://huggingface.co/o/r", "o/r", ""], ["https://huggingface.co/o/r/tree/main", "o/r", ""],
    ["https://huggingface.co/o/r/blob/main/m.gguf", "o/r", ""], ["hf.co/o/r:Q8_0", "o/r", "Q8_0"], ["hf:o/r", "o/r", ""], ["o/r.v2-GGUF:sub/m.gguf", "o/r.v2-GGUF", "sub/m.gguf"],
  ];
  for (const [text, repository, variant] of cases) assert.deepEqual(requests.checkpointOf(text), { repository, variant }, text);
  for (const text of ["", "qwen3:4b", "o", "a/b/c"]) assert.equal(requests.checkpointOf(text), null, text);
});

test("a new model", () => {
  const form = { name: "Mine", checkpoint: "https://huggingface.co/o/r", variant: "Q4_0", recipe: "llamacpp", mmproj: "", labels: new Set(["embedding"]) };
  const sent = (more) => JSON.parse(JSON.stringify(requests.register({ ...form, ...more }).body));
  const detached = { stream: true, subscribe: false };
  assert.deepEqual(sent({}), { model_name: "user.Mine", checkpoint: "o/r:Q4_0", recipe: "llamacpp", embedding: true, ...detached });
  assert.equal(sent({ name: "user.Mine" }).model_name, "user.Mine");
  assert.equal(sent({ checkpoint: "o/r:Q8_0", variant: "" }).checkpoint, "o/r:Q8_0");
  assert.equal(sent({ checkpoint: "o/r", variant: "" }).checkpoint, "o/r");
  assert.equal(sent({ checkpoint: "qwen3:4b", variant: "", recipe: "flm" }).checkpoint, "qwen3:4b");
});

test("what a load would unload, and what it needs", () => {
  assert.equal(evictionText({ model: "a", busy: false, idle_seconds: 75.4, frees: { host: 2 ** 30 } }), "a: idle for 1 min 15 s; frees 1 GiB");
  assert.equal(evictionText({ model: "a", busy: true, idle_seconds: 0, frees: {} }), "a: its running requests end first");
  assert.equal(evictionText({ model: "a", busy: false, idle_seconds: null, frees: {} }), "a: never used");
  assert.equal(partsText({ parts: { weights: 2 ** 30, cache: 0 }, measured: true }), "The need consists of weights 1 GiB; corrected by a former load.");
  assert.equal(partsText({ parts: {}, measured: false }), "");
});
