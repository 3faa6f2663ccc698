// Requests to this server, with the API key if there is one. Every failure is an ApiError whose message is for people.
import { EventParser } from "./events.js";

export class ApiError extends Error {
  // status: 0 if the server could not be reached.
  constructor(message, { status = 0, code = "", retryAfter = 0, requestId = "" } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
    this.requestId = requestId;
  }
}

export class Api {
  constructor(access) {
    this.access = access;
  }

  // An address of this server, which may be below a prefix of a proxy: url("v1/models")
  url(path) {
    return new URL(path.replace(/^\//, ""), document.baseURI.split(/[?#]/)[0]);
  }

  // Asks and returns the JSON of the answer: json("POST", "v1/unload", { model_name })
  async json(method, path, body, { signal } = {}) {
    const response = await this.request(method, path, { json: body, signal });
    const text = await this.#read(() => response.text());
    return text ? JSON.parse(text) : null;
  }

  // Returns the response of a request that succeeded. `json` or `body`: what to send; `accept`: an Accept header.
  // If the server wants a key, a person is asked for one, and the request is sent again.
  async request(method, path, { json, body, headers = {}, signal } = {}) {
    for (;;) {
      const key = this.access.key;
      const sent = { ...headers, ...(key ? { Authorization: `Bearer ${key}` } : {}), ...(json === undefined ? {} : { "Content-Type": "application/json" }) };
      const response = await this.#read(() =>
        fetch(this.url(path), { method, headers: sent, body: json === undefined ? body : JSON.stringify(json), signal, cache: "no-store" }),
      );
      if (response.ok) return response;
      const problem = await errorOf(response);
      if (response.status !== 401) throw problem;
      if (!(await this.access.ask(key ? problem.message : "", key))) throw problem;
    }
  }

  // Reads a stream of server-sent events until it ends: onEvent(event, data as text).
  async events(path, onEvent, { method = "GET", json, signal } = {}) {
    const response = await this.request(method, path, { json, signal, headers: { Accept: "text/event-stream" } });
    await this.texts(response, new EventParser(), ({ event, data }) => onEvent(event, data), signal);
  }

  // Reads a stream of lines of JSON until it ends: onObject(object).
  async objects(path, onObject, { method = "POST", json, signal } = {}) {
    const response = await this.request(method, path, { json, signal });
    let rest = "";
    const lines = {
      push(text) {
        const found = (rest + text).split("\n");
        rest = found.pop();
        return found.filter((line) => line.trim());
      },
      end: () => (rest.trim() ? [rest] : []),
    };
    await this.texts(response, lines, (line) => onObject(JSON.parse(line)), signal);
  }

  // Reads a body piece by piece: what `parser.push(text)` and at last `parser.end()` return goes to `take`, one after the other.
  async texts(response, parser, take, signal) {
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    try {
      for (;;) {
        const { done, value } = await this.#read(() => reader.read());
        if (!done) parser.push(decoder.decode(value, { stream: true })).forEach(take);
        else return parser.end?.().forEach(take);
      }
    } finally {
      if (!signal?.aborted) reader.cancel().catch(() => {});
    }
  }

  async #read(step) {
    try {
      return await step();
    } catch (problem) {
      if (problem.name === "AbortError") throw problem;
      throw new ApiError("the server cannot be reached");
    }
  }
}

// The error of a response, in the words of the server.
export async function errorOf(response) {
  let found = {};
  try {
    found = await response.json();
  } catch {
    // A proxy may have answered with a page.
  }
  const error = typeof found.error === "object" && found.error !== null ? found.error : { message: found.error };
  return new ApiError(error.message || `the server answered ${response.status} ${response.statusText}`.trim(), {
    status: response.status,
    code: error.code || "",
    retryAfter: Number(response.headers.get("Retry-After")) || 0,
    requestId: response.headers.get("X-Request-ID") || "",
  });
}
