// How an answer grows with the events of its stream, and how it is divided into text and code.

import assert from "node:assert/strict";
import { test } from "node:test";

import * as conversation from "../../../gateway/page/assets/trial/conversation.js";

const { received } = conversation;
const chunk = (delta, finish_reason = null, more = {}) => JSON.stringify({ choices: [{ index: 0, delta, finish_reason }], ...more });
const after = (...events) => events.reduce((answer, [data, now]) => received(answer, data, now), conversation.newAnswer("m", 1000));

test("a whole answer, with what was measured", () => {
  const answer = after(
    [chunk({ role: "assistant", content: "" }), 1400],
    [chunk({ reasoning_content: "Hm." }), 1500],
    [chunk({ content: "For" }), 2000],
    [chunk({ content: "ty" }), 2500],
    [chunk({}, "stop"), 2500],
    [JSON.stringify({ choices: [], usage: { completion_tokens: 5, prompt_tokens: 7 } }), 2500],
    ["[DONE]", 2500],
  );
  assert.deepEqual([answer.state, answer.text, answer.reasoning, answer.note], ["done", "Forty", "Hm.", ""]);
  assert.deepEqual(conversation.measures(answer), {
    ...{ firstToken: 0.5, outputTokens: 5, promptTokens: 7, cachedTokens: null, pieces: 3, tokensPerSecond: 4 },
  });
});

test("the engine's own speed is preferred", () => {
  const timings = { predicted_per_second: 87.5 };
  assert.equal(conversation.measures(after([chunk({ content: "a" }, "stop", { timings }), 1500])).tokensPerSecond, 87.5);
});

test("before the first token nothing is known", () => {
  const { firstToken, tokensPerSecond } = conversation.measures(conversation.newAnswer("m", 0));
  assert.deepEqual([firstToken, tokensPerSecond], [null, null]);
});

test("an event is applied to a copy", () => {
  const before = conversation.newAnswer("m", 0);
  assert.notEqual(received(before, chunk({ content: "a" }), 1), before);
  assert.equal(before.text, "");
});

test("a limit of tokens is told", () => {
  assert.match(after([chunk({ content: "a" }), 1], [chunk({}, "length"), 2]).note, /limit of tokens/);
});

test("calls of tools come in pieces", () => {
  const answer = after(
    [chunk({ tool_calls: [{ index: 0, id: "c1", function: { name: "get", arguments: "" } }] }), 1],
    [chunk({ tool_calls: [{ index: 0, function: { arguments: '{"a":' } }] }), 2],
    [chunk({ tool_calls: [{ index: 0, function: { arguments: "1}" } }, { index: 1, id: "c2", function: { name: "g", arguments: "{}" } }] }), 3],
  );
  assert.deepEqual(answer.calls, [
    { id: "c1", name: "get", arguments: '{"a":1}' },
    { id: "c2", name: "g", arguments: "{}" },
  ]);
});

test("an error inside the stream is shown in the server's words, and what came is kept", () => {
  const answer = after([chunk({ content: "Once" }), 1], [JSON.stringify({ error: { message: "the engine died", code: "backend_died" } }), 2]);
  assert.deepEqual([answer.state, answer.problem, answer.text], ["failed", "the engine died", "Once"]);
  assert.equal(received(answer, chunk({ content: "!" }), 3), answer, "nothing follows an error");
  assert.equal(conversation.ended(answer), answer);
});

test("an end without the server's end mark is a failure", () => {
  assert.match(conversation.ended(after([chunk({ content: "Once" }), 1])).problem, /before the answer was complete/);
  assert.equal(conversation.ended(after(["[DONE]", 1])).state, "done");
  assert.match(after(['{"choices":[{"del', 1]).problem, /cut off/);
});

test("a request that fails, and a connection that breaks", () => {
  assert.equal(conversation.broken(conversation.newAnswer("m", 0), "the server is full").problem, "the server is full");
  assert.match(conversation.broken(after([chunk({ content: "Once" }), 1]), "no connection").problem, /before the answer was complete/);
  assert.equal(conversation.broken(after(["[DONE]", 1]), "no connection").state, "done");
});

test("a stop keeps what came", () => {
  const answer = conversation.stopped(after([chunk({ content: "Once" }), 1]));
  assert.deepEqual([answer.state, answer.text], ["stopped", "Once"]);
  assert.equal(conversation.stopped(after(["[DONE]", 1])).state, "done");
});

test("an answer without an end is too long at some time", () => {
  const answer = after([chunk({ content: "x".repeat(conversation.MAX_ANSWER) }), 1]);
  assert.equal(conversation.isTooLong(answer), false);
  assert.equal(conversation.isTooLong(received(answer, chunk({ reasoning_content: "y" }), 2)), true);
});

test("the queue, as the header has it", () => {
  const answer = conversation.newAnswer("m", 0);
  const queued = conversation.withQueue(answer, new Headers({ "X-Queue-Position": "3", "X-Queue-Wait": "1.500" }));
  assert.deepEqual([queued.position, queued.wait], [3, 1.5]);
  assert.equal(conversation.withQueue(answer, new Headers()), answer);
});

const about = (name, size = 0) => ({ name, question: { pictures: size ? [{ url: "x".repeat(size) }] : [] } });
const names = (exchanges) => exchanges.map(({ name }) => name);

test("a long conversation forgets its oldest exchanges", () => {
  let exchanges = [];
  for (let count = 0; count < conversation.MAX_EXCHANGES + 2; count += 1) exchanges = conversation.withExchange(exchanges, about(count));
  assert.equal(exchanges.length, conversation.MAX_EXCHANGES);
  assert.deepEqual([exchanges[0].name, exchanges.at(-1).name], [2, conversation.MAX_EXCHANGES + 1]);
});

test("many pictures are forgotten as well, but never those of the question itself", () => {
  const third = conversation.MAX_PICTURES / 3;
  let exchanges = ["a", "b", "c"].reduce((former, name) => conversation.withExchange(former, about(name, third)), []);
  assert.deepEqual(names(exchanges), ["a", "b", "c"]);
  exchanges = conversation.withExchange(exchanges, about("d", third));
  assert.deepEqual(names(exchanges), ["b", "c", "d"]);
  assert.deepEqual(names(conversation.withExchange(exchanges, about("e", 4 * third))), ["e"]);
});

const shown = (text) => conversation.parts(text).map(({ code, language, text: words }) => [code ? `code ${language}`.trim() : "text", words]);

test("code between fences", () => {
  assert.deepEqual(shown("See:\n```js\nlet a;\n```\nDone."), [["text", "See:\n"], ["code js", "let a;\n"], ["text", "Done."]]);
  assert.deepEqual(shown("```\na\n~~~\nb\n```"), [["code", "a\n~~~\nb\n"]]);
  assert.deepEqual(shown("````md\n```\nx\n```\n````\n"), [["code md", "```\nx\n```\n"]]);
  assert.deepEqual(shown("a ``` b\n`` c"), [["text", "a ``` b\n`` c"]]);
  assert.deepEqual(shown(""), []);
});

test("a fence that is not closed lasts to the end; its line must be whole", () => {
  assert.deepEqual(shown("```py\nx = 1"), [["code py", "x = 1"]]);
  assert.deepEqual(shown("```py"), [["text", "```py"]]);
  assert.deepEqual(shown("```py\n"), [["code py", ""]]);
});

test("each part begins where dividing can go on", () => {
  const text = "One\n```js\nlet a;\n```\nTwo\n```\nb\n```\nThree";
  for (const { start } of conversation.parts(text)) {
    const before = conversation.parts(text.slice(0, start)).length;
    const whole = conversation.parts(text);
    assert.deepEqual(conversation.parts(text.slice(start)).map((part) => part.text), whole.slice(before).map((part) => part.text));
  }
});
