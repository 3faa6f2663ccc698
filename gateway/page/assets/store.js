// The newest overview of the server, the samples of the last hour, and whether the server can be heard.

// Applies a JSON Merge Patch (RFC 7396) without changing the target: what the patch does not touch is the same object afterwards.
export function mergePatch(target, patch) {
  if (!isObject(patch)) return patch;
  const result = isObject(target) ? { ...target } : {};
  for (const [name, value] of Object.entries(patch)) {
    if (value === null) delete result[name];
    else result[name] = mergePatch(result[name], value);
  }
  return result;
}

function isObject(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

// The samples with one more at the end, and at most as many as the hour has. Those of an equal or later time are replaced.
export function withSample(samples, sample, limit) {
  return [...samples.filter((each) => each.at < sample.at), sample].slice(-limit);
}

const MAX_SAMPLES = 360;
const SILENT_AFTER_MS = 4000;

export class Store {
  #listeners = new Set();
  #heardAt = 0;
  #said = "";
  overview = null; // null until the server has answered for the first time
  samples = [];
  stepSeconds = 10;
  connection = { state: "connecting", since: Date.now(), message: "", retryAt: 0 };
  onConnectionChange = () => {};

  // Calls `listener` after each change; returns a function that ends it.
  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  // Takes one message of the stream.
  receive(event, data) {
    this.#heardAt = performance.now();
    if (event === "overview") this.overview = data;
    else if (event === "patch") this.overview = mergePatch(this.overview, data);
    else if (event === "history") [this.stepSeconds, this.samples] = [data.step_s, data.samples];
    else if (event === "sample") this.samples = withSample(this.samples, data, MAX_SAMPLES);
    if (event === "overview" || event === "patch") this.setConnection("live");
    this.#changed();
  }

  // state: connecting, live, refused (by the server) or lost. `message` says why in words.
  setConnection(state, message = "", retryAt = 0) {
    const before = this.connection;
    if (before.state === state && before.message === message && before.retryAt === retryAt) return;
    this.connection = { state, message, retryAt, since: before.state === state ? before.since : Date.now() };
    this.#say();
    this.#changed();
  }

  // Whether a connection is open that brings nothing: the network or the server stands still.
  get silent() {
    return this.connection.state === "live" && performance.now() - this.#heardAt > SILENT_AFTER_MS;
  }

  // The server's time now, in Unix seconds: it goes on while the server is silent.
  get now() {
    return this.overview ? this.overview.time + (performance.now() - this.#heardAt) / 1000 : Date.now() / 1000;
  }

  // One announcement when the connection is lost and one when it is back, however many attempts are between them.
  #say() {
    const lost = this.connection.state === "lost" || this.connection.state === "refused";
    const text = lost ? "The connection to the server is lost." : this.connection.state === "live" && this.#said ? "Connected to the server again." : "";
    if (!text || text === this.#said) return;
    this.#said = lost ? text : "";
    this.onConnectionChange(text);
  }

  #changed() {
    for (const listener of this.#listeners) listener();
  }
}
