// What the AI SDK must find at a lemonbus server, each check once over the Responses API and once over chats.
//
// node checks.mjs BASE_URL TEXT PICTURE: the text of the tiny chat models, and a PNG in base64. The key is "root"; the keys
// "responses" and "chat" may each send one request a minute. Prints JSON lines: {"check", "problem"} for each check,
// "problem" empty if all is well, and {"streaming": MODEL} where that model's engine is to be killed.

import assert from "node:assert/strict";
import { createOpenAI } from "@ai-sdk/openai";
import {
  APICallError,
  embed,
  embedMany,
  generateText,
  jsonSchema,
  NoObjectGeneratedError,
  Output,
  stepCountIs,
  streamText,
  tool,
} from "ai";

const [baseURL, CHAT_TEXT, picture] = process.argv.slice(2);
const openai = createOpenAI({ baseURL, apiKey: "root" });
/** Spread into each request: it is sent once, and has a deadline of its own. */
const usual = {
  maxRetries: 0,
  get abortSignal() {
    return AbortSignal.timeout(60_000);
  },
};
const CITY = jsonSchema({
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
});
const ONLY_YES = jsonSchema({
  type: "object",
  properties: { answer: { type: "string", enum: ["yes"] } },
  required: ["answer"],
  additionalProperties: false,
});

/** A weather tool that notes with which arguments it was run. */
function weather(runs) {
  return tool({
    description: "Get the weather of a city.",
    inputSchema: CITY,
    execute: async (input) => {
      runs.push(input);
      return `sunny in ${input.city}`;
    },
  });
}

/** Chunks and the final values of a stream; an error in it is thrown. */
async function read(result) {
  const parts = [];
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
    parts.push(part);
  }
  return parts;
}

/** The error that `ask` must be rejected with. */
async function refusal(ask) {
  try {
    await ask();
  } catch (error) {
    assert.ok(APICallError.isInstance(error), `not an APICallError: ${error}`);
    return error;
  }
  return assert.fail("it was not refused");
}

const CHECKS = {
  async text(model) {
    const result = await generateText({ ...usual, model: model("chat"), instructions: "Be brief.", prompt: "Hello" });
    assert.equal(result.text, CHAT_TEXT);
    assert.equal(result.finishReason, "stop");
    assert.equal(result.usage.outputTokens, 21, "the end token counts");
    assert.equal(result.usage.totalTokens, result.usage.inputTokens + 21);
    assert.equal(result.response.modelId, "extra.tiny-chat");
    assert.ok(result.response.id);
    assert.ok(result.response.headers["x-request-id"]);
    assert.deepEqual(result.warnings ?? [], []);
  },

  async length(model) {
    const result = await generateText({ ...usual, model: model("loop"), prompt: "Hello", maxOutputTokens: 5 });
    assert.equal(result.finishReason, "length");
    assert.equal(result.text, " Once a very small model");
  },

  async request_id(model) {
    const headers = { "X-Request-ID": "ai-sdk.1" };
    const result = await generateText({ ...usual, model: model("chat"), prompt: "Hello", headers });
    assert.equal(result.response.headers["x-request-id"], "ai-sdk.1");
    const error = await refusal(() => generateText({ ...usual, model: model("none"), prompt: "Hello", headers }));
    assert.equal(error.responseHeaders["x-request-id"], "ai-sdk.1");
  },

  async stream(model) {
    const result = streamText({ ...usual, model: model("chat"), prompt: "Hello", onError: () => {} });
    const parts = await read(result);
    const deltas = parts.filter((part) => part.type === "text-delta").map((part) => part.text);
    assert.equal(deltas.join(""), CHAT_TEXT);
    assert.ok(deltas.length > 5, `the text came in ${deltas.length} pieces`);
    assert.equal(parts.at(-1).type, "finish");
    assert.equal(await result.finishReason, "stop");
    assert.equal((await result.usage).outputTokens, 21);
  },

  async reasoning(model, mode) {
    const result = await generateText({ ...usual, model: model("think"), prompt: "Hello" });
    assert.equal(result.text, "Forty two.");
    if (mode === "chat") return; // the SDK's chat model reads no reasoning
    assert.ok(result.usage.outputTokenDetails.reasoningTokens > 0);
    assert.ok(result.reasoning.length > 0, "there is a reasoning part");
  },

  async tools_in_steps(model) {
    const runs = [];
    const result = await generateText({
      ...usual,
      model: model("tool"),
      tools: { get_weather: weather(runs) },
      prompt: "Weather?",
      stopWhen: stepCountIs(3),
      prepareStep: ({ stepNumber }) => (stepNumber > 0 ? { model: model("chat") } : {}),
    });
    assert.deepEqual(runs, [{ city: "Paris" }]);
    assert.equal(result.steps.length, 2);
    assert.equal(result.steps[0].finishReason, "tool-calls");
    assert.equal(result.steps[0].toolResults[0].output, "sunny in Paris");
    assert.equal(result.text, CHAT_TEXT);
    const alone = await generateText({
      ...usual,
      model: model("chat"),
      tools: { get_weather: weather([]) },
      prompt: "Weather?",
    });
    assert.ok(result.steps[1].usage.inputTokens > alone.usage.inputTokens, "the call and its result are in the prompt");
  },

  async tool_of_a_model_without_tools(model) {
    const asked = {
      ...usual,
      model: model("chat"),
      maxOutputTokens: 400,
      tools: { answer: tool({ description: "The answer.", inputSchema: ONLY_YES }) },
      prompt: "Hello",
    };
    for (const toolChoice of ["required", { type: "tool", toolName: "answer" }]) {
      const result = await generateText({ ...asked, toolChoice });
      assert.deepEqual(result.toolCalls.map((call) => call.input), [{ answer: "yes" }]);
      assert.equal(result.finishReason, "tool-calls");
    }
    const parts = await read(streamText({ ...asked, toolChoice: "required", onError: () => {} }));
    assert.deepEqual(parts.filter((part) => part.type === "tool-call").map((call) => call.input), [{ answer: "yes" }]);
  },

  async tools_in_streamed_steps(model) {
    const runs = [];
    const result = streamText({
      ...usual,
      model: model("tool"),
      tools: { get_weather: weather(runs) },
      prompt: "Weather?",
      stopWhen: stepCountIs(3),
      prepareStep: ({ stepNumber }) => (stepNumber > 0 ? { model: model("chat") } : {}),
      onError: () => {},
    });
    const types = (await read(result)).map((part) => part.type);
    for (const type of ["tool-input-start", "tool-input-delta", "tool-call", "tool-result"])
      assert.ok(types.includes(type), `${type} in ${types}`);
    assert.deepEqual(runs, [{ city: "Paris" }]);
    assert.equal((await result.steps).length, 2);
    assert.equal(await result.text, CHAT_TEXT);
  },

  async structured_output(model) {
    const output = Output.object({ schema: ONLY_YES, name: "only_yes" });
    const result = await generateText({ ...usual, model: model("chat"), prompt: "Hello", output, maxOutputTokens: 60 });
    assert.deepEqual(result.output, { answer: "yes" });
    const streamed = streamText({ ...usual, model: model("chat"), prompt: "Hello", output, maxOutputTokens: 60 });
    const partial = [];
    for await (const value of streamed.partialOutputStream) partial.push(value);
    assert.deepEqual(partial.at(-1), { answer: "yes" });
    const cut = generateText({ ...usual, model: model("chat"), prompt: "Hello", output, maxOutputTokens: 1 });
    await assert.rejects(
      async () => (await cut).output,
      (error) => NoObjectGeneratedError.isInstance(error),
    );
  },

  async picture(model) {
    const ask = (...parts) =>
      generateText({
        ...usual,
        model: model("vision"),
        messages: [{ role: "user", content: [{ type: "text", text: "What is it?" }, ...parts] }],
      });
    const blind = await ask();
    const seen = await ask({ type: "file", mediaType: "image/png", data: Buffer.from(picture, "base64") });
    assert.equal(seen.text, CHAT_TEXT);
    assert.ok(seen.usage.inputTokens >= blind.usage.inputTokens + 16, "the picture is in the prompt");
  },

  async errors(model) {
    const unknown = await refusal(() => generateText({ ...usual, model: model("none"), prompt: "Hello" }));
    assert.equal(unknown.statusCode, 404);
    assert.equal(unknown.isRetryable, false);
    assert.equal(unknown.data.error.code, "model_not_found");
    assert.equal(unknown.message, unknown.data.error.message);
    const long = { ...usual, model: model("chat"), prompt: "word ".repeat(9000) };
    const refused = await refusal(() => generateText(long));
    assert.equal(refused.statusCode, 400);
    assert.equal(refused.isRetryable, false);
    assert.equal(refused.data.error.code, "context_length_exceeded");
    const streamed = streamText({ ...usual, model: model("none"), prompt: "Hello", onError: () => {} });
    assert.equal((await refusal(() => read(streamed))).statusCode, 404);
  },

  async refusal_that_waiting_cures(model, mode) {
    const limited = models(mode, createOpenAI({ baseURL, apiKey: mode }));
    const ask = () => generateText({ ...usual, model: limited("chat"), prompt: "Hello", maxOutputTokens: 1 });
    await ask();
    const error = await refusal(ask);
    assert.equal(error.statusCode, 429);
    assert.equal(error.isRetryable, true);
    assert.equal(error.data.error.code, "rate_limit_exceeded");
    assert.ok(Number(error.responseHeaders["retry-after"]) > 0);
    const wrong = models(mode, createOpenAI({ baseURL, apiKey: "wrong" }));
    assert.equal((await refusal(() => generateText({ ...usual, model: wrong("chat"), prompt: "Hello" }))).statusCode, 401);
  },

  async stream_that_breaks(model) {
    const result = streamText({ ...usual, model: model("loop"), prompt: "Hello", maxOutputTokens: 8000, onError: () => {} });
    let finish;
    const errors = [];
    for await (const part of result.fullStream) {
      if (part.type === "text-start") print({ streaming: "extra.tiny-loop" });
      if (part.type === "error") errors.push(part.error);
      if (part.type === "finish") finish = part.finishReason;
    }
    assert.equal(errors.length, 1, "the stream has an error part");
    assert.match(JSON.stringify(errors[0]), /backend_died/);
    assert.notEqual(finish, "stop");
  },
};

/** Checks that have no modes. */
const OTHERS = {
  async embeddings() {
    const model = openai.embedding("extra.tiny-embed");
    const one = await embed({ ...usual, model, value: "a lemon" });
    assert.equal(one.embedding.length, 32);
    const many = await embedMany({ ...usual, model, values: ["a lemon", "a lime"] });
    assert.equal(many.embeddings.length, 2);
    assert.notDeepEqual(many.embeddings[0], many.embeddings[1]);
    one.embedding.forEach((value, index) => assert.ok(Math.abs(value - many.embeddings[0][index]) < 1e-6));
    assert.ok(many.usage.tokens > one.usage.tokens);
    const error = await refusal(() => embed({ ...usual, model: openai.embedding("none"), value: "a" }));
    assert.equal(error.statusCode, 404);
  },
};

/** Makes models of one mode by the short names of the tiny ones. */
function models(mode, provider = openai) {
  return (name) => (mode === "chat" ? provider.chat(`extra.tiny-${name}`) : provider(`extra.tiny-${name}`));
}

function print(line) {
  console.log(JSON.stringify(line));
}

async function run(name, check) {
  let problem = "";
  try {
    await check();
  } catch (error) {
    problem = String(error?.stack ?? error);
  }
  print({ check: name, problem });
}

for (const [name, check] of Object.entries(OTHERS)) await run(name, check);
for (const mode of ["responses", "chat"])
  for (const [name, check] of Object.entries(CHECKS)) await run(`${mode}: ${name}`, () => check(models(mode), mode));
print({ check: "end", problem: "" });
