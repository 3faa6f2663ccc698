// What is sent to try a model.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as requests from "../../../gateway/page/assets/trial/requests.js";

const PICTURE = { name: "cat.png", url: "data:image/png;base64,AA==" };
const exchange = (text, answer) => ({ question: { text, pictures: [] }, answer: { text: answer, calls: [] } });

test("the form of each type of model", () => {
  assert.equal(requests.formOf({ model_type: "llm" }), "chat");
  assert.equal(requests.formOf({ model_type: "tts" }), "speech");
  assert.equal(requests.formOf({ model_type: "other" }), "");
  assert.equal(requests.takesPictures({ model_type: "llm", labels: ["vision"] }), true);
  assert.equal(requests.takesPictures({ model_type: "llm", labels: [] }), false);
  assert.equal(requests.takesPictures({ model_type: "image", labels: ["vision"] }), false);
});

test("a first question, with everything left to the server", () => {
  assert.deepEqual(requests.chatRequest("m", [], { text: "Hi", pictures: [] }), {
    method: "POST",
    path: "v1/chat/completions",
    body: { model: "m", messages: [{ role: "user", content: "Hi" }], stream: true, stream_options: { include_usage: true } },
    files: [],
    stream: true,
  });
});

test("a question with all options and a former exchange; one without an answer is left out", () => {
  const exchanges = [exchange("A", "a"), exchange("B", "")];
  const options = { system: "Be brief.", temperature: 0, maxTokens: 5, tools: [{ type: "function" }] };
  const { body } = requests.chatRequest("m", exchanges, { text: "C", pictures: [] }, options);
  assert.deepEqual(body.messages, [
    { role: "system", content: "Be brief." },
    { role: "user", content: "A" },
    { role: "assistant", content: "a" },
    { role: "user", content: "C" },
  ]);
  assert.deepEqual([body.temperature, body.max_tokens, body.tools], [0, 5, [{ type: "function" }]]);
});

test("pictures are parts, and are listed with their names", () => {
  const former = { question: { text: "", pictures: [PICTURE] }, answer: { text: "A cat.", calls: [] } };
  const { body, files } = requests.chatRequest("m", [former], { text: "And?", pictures: [PICTURE] });
  const part = { type: "image_url", image_url: { url: PICTURE.url } };
  assert.deepEqual(body.messages[0].content, [part]);
  assert.deepEqual(body.messages[2].content, [{ type: "text", text: "And?" }, part]);
  assert.deepEqual(files, [PICTURE, PICTURE]);
});

test("a model that sees no pictures gets the words alone", () => {
  const former = ["", "Look!"].map((text) => ({ question: { text, pictures: [PICTURE] }, answer: { text: "A cat.", calls: [] } }));
  const { body, files } = requests.chatRequest("m", former, { text: "And?", pictures: [] }, { seesPictures: false });
  assert.deepEqual(body.messages.filter(({ role }) => role === "user").map(({ content }) => content), ["(a picture)", "Look!", "And?"]);
  assert.deepEqual(files, []);
});

test("a call of a tool gets a result before the next question", () => {
  const answer = { text: "", calls: [{ id: "c1", name: "f", arguments: "{}" }] };
  const { body } = requests.chatRequest("m", [{ question: { text: "A", pictures: [] }, answer }], { text: "B", pictures: [] });
  assert.deepEqual(body.messages.slice(1, 3), [
    { role: "assistant", content: "", tool_calls: [{ id: "c1", type: "function", function: { name: "f", arguments: "{}" } }] },
    { role: "tool", tool_call_id: "c1", content: "The tool is not available." },
  ]);
});

test("a picture", () => {
  assert.deepEqual(requests.drawingRequest("m", "a cat").body, { model: "m", prompt: "a cat" });
  const options = { size: "512x512", steps: 4, seed: 0, avoid: "dogs" };
  assert.deepEqual(requests.drawingRequest("m", "a cat", options).body, {
    ...{ model: "m", prompt: "a cat", size: "512x512", steps: 4, seed: 0, negative_prompt: "dogs" },
  });
});

test("a picture of another one", () => {
  const picture = new File(["PNG"], "cat.png");
  const { form, path } = requests.editRequest("m", "a dog", picture, { steps: 4, strength: 0.5 });
  assert.equal(path, "v1/images/edits");
  assert.deepEqual(form, [["model", "m"], ["prompt", "a dog"], ["steps", "4"], ["strength", "0.5"], ["image", { file: "cat.png", blob: picture }]]);
});

test("speech", () => {
  const request = requests.speechRequest("m", "Hello", { voice: "af", speed: 1.5, format: "mp3" });
  assert.deepEqual(request.body, { model: "m", input: "Hello", response_format: "mp3", voice: "af", speed: 1.5 });
  assert.equal(request.output, "speech.mp3");
  assert.deepEqual(requests.speechRequest("m", "Hello").body, { model: "m", input: "Hello", response_format: "wav" });
});

test("a transcription sends the file last", () => {
  const recording = new File(["RIFF"], "a.wav");
  const { form } = requests.transcriptionRequest("m", recording, "en");
  assert.deepEqual(form, [["model", "m"], ["language", "en"], ["file", { file: "a.wav", blob: recording }]]);
  assert.equal(requests.transcriptionRequest("m", recording).form.length, 2);
});

test("vectors and scores", () => {
  assert.deepEqual(requests.embeddingRequest("m", ["a"]).body, { model: "m", input: "a" });
  assert.deepEqual(requests.embeddingRequest("m", ["a", "b"]).body, { model: "m", input: ["a", "b"] });
  assert.deepEqual(requests.rerankingRequest("m", "q", ["d"]).body, { model: "m", query: "q", documents: ["d"] });
});

test("cosine", () => {
  assert.equal(requests.cosine([1, 0], [0, 2]), 0);
  assert.equal(requests.cosine([3, 4], [6, 8]), 1);
  assert.equal(requests.cosine([1, 1], [-2, -2]), -1);
  assert.equal(requests.cosine([0, 0], [1, 1]), null);
});
