// What a request waits for, in words.

import assert from "node:assert/strict";
import { test } from "node:test";

import { modelText, progressText } from "../../../gateway/page/assets/trial/progress.js";

const about = { seconds: 3.7, model: "m", requestId: "page-1" };
const overview = (request, model = {}) => ({ requests: { "g:1": { id: "page-1", model: "m", ...request } }, models: { m: model } });

test("a request that waits, works, or waits for a load", () => {
  const table = [
    [null, "Waiting for 3 s"],
    [overview({ state: "waiting", position: 1 }), "Waiting in the queue for 3 s"],
    [overview({ state: "waiting", position: 3, wait_s: 12 }), "Waiting in the queue for 3 s: 2 requests before it, about 12 s to go"],
    [overview({ state: "waiting", position: 1 }, { state: "loading", load: { done: 1, total: 4 } }), "Waiting for 3 s: the model is loading, 25 %"],
    [overview({ state: "running" }), "The model has worked for 3 s"],
    [{ ...overview({ state: "running" }), requests: {} }, "Waiting for 3 s"],
  ];
  for (const [now, text] of table) assert.equal(progressText({ ...about, overview: now }), text);
});

test("without an overview, the position of the response's header", () => {
  assert.equal(progressText({ ...about, overview: null, position: 2 }), "Waiting in the queue for 3 s: 1 request before it");
});

test("the state of a model", () => {
  const table = [
    [{ loaded: false }, undefined, "Not loaded: the first request loads it."],
    [{ loaded: true }, undefined, "Loaded."],
    [{ loaded: true }, { state: "ready", slots: 4, running: 1, waiting: 2 }, "Loaded, 1 of 4 slots busy, 2 requests waiting."],
    [{ loaded: false }, { state: "loading", load: { done: 1, total: 2 } }, "Not ready: the model is loading, 50 %."],
    [{ loaded: false }, { state: "unloaded", failure: { message: "no memory" } }, "Not loaded. The last load failed: no memory"],
    [{ loaded: true }, { state: "unloaded" }, "Not loaded: the first request loads it."],
  ];
  for (const [model, known, text] of table) assert.equal(modelText(model, known), text);
});
