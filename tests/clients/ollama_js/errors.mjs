// What Ollama's package for JavaScript makes of errors, in Node.js and, with the headers of a browser, in one.
//
// node errors.mjs URL CHAT_MODEL: prints a JSON line for each call: {"client", "call", "name", "message", "status"}.

import { Ollama } from "ollama";
import { Ollama as BrowserOllama } from "ollama/browser";

const [host, chat] = process.argv.slice(2);

/** Sends what a browser sends: its own User-Agent, whatever the page asked for. */
function browserFetch(url, options) {
  const headers = new Headers(options.headers);
  headers.set("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0");
  return fetch(url, { ...options, headers, signal: AbortSignal.timeout(60_000) });
}

const clients = {
  node: new Ollama({ host, fetch: (url, options) => fetch(url, { ...options, signal: AbortSignal.timeout(60_000) }) }),
  browser: new BrowserOllama({ host, fetch: browserFetch }),
};
const messages = [{ role: "user", content: "Hello" }];

async function read(stream) {
  for await (const _ of stream);
}

const calls = {
  generate: (client) => client.generate({ model: "nope", prompt: "Hello" }),
  chat: (client) => client.chat({ model: "nope", messages }),
  chatStream: async (client) => read(await client.chat({ model: "nope", messages, stream: true })),
  embeddings: (client) => client.embeddings({ model: "nope", prompt: "Hello" }),
  embed: (client) => client.embed({ model: "nope", input: "Hello" }),
  show: (client) => client.show({ model: "nope" }),
  delete: (client) => client.delete({ model: "nope" }),
  copy: (client) => client.copy({ source: "nope", destination: "other" }),
  wrongOption: (client) => client.chat({ model: chat, messages, options: { temperature: -1 } }),
};

for (const [client, ollama] of Object.entries(clients)) {
  for (const [call, ask] of Object.entries(calls)) {
    let error = {};
    try {
      await ask(ollama);
    } catch (problem) {
      error = { name: problem.name, message: problem.message, status: problem.status_code };
    }
    console.log(JSON.stringify({ client, call, ...error }));
  }
}
