// Follows /logs/stream, and connects again when it ends: after the last line that came.
import { pauseBefore } from "../live.js";

const PROTOCOL = "lemonbus";

// The subprotocols of the handshake, the only place where a page can put a key.
export function subprotocols(key) {
  if (!key) return [PROTOCOL];
  const binary = String.fromCharCode(...new TextEncoder().encode(key));
  return [PROTOCOL, `bearer.${btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`];
}

export class LogStream {
  #socket = null;
  #timer = 0;
  #attempt = 0;
  #place = {}; // where to go on: { boot, after_seq }
  #filters = {};

  // onEntries(entries, isNew): lines, and whether those that came before belong to another log; onState(text): how it stands
  constructor(context, { onEntries, onState }) {
    this.api = context.api;
    this.access = context.access;
    this.onEntries = onEntries;
    this.onState = onState;
  }

  // Follows the lines with these fields from now on: { level, model, request_id, process }
  follow(filters) {
    this.#filters = Object.fromEntries(Object.entries(filters).filter(([, value]) => value));
    this.#place = {};
    this.#attempt = 0;
    this.#connect();
  }

  close() {
    clearTimeout(this.#timer);
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  #connect() {
    this.close();
    this.onState("connecting …");
    const url = this.api.url("logs/stream");
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const socket = (this.#socket = new WebSocket(url, subprotocols(this.access.key)));
    let opened = false;
    let refused = "";
    socket.onopen = () => {
      opened = true;
      socket.send(JSON.stringify({ type: "logs.subscribe", ...this.#filters, ...this.#place }));
    };
    socket.onmessage = ({ data }) => {
      if (socket !== this.#socket) return;
      const message = JSON.parse(data);
      if (message.type === "logs.snapshot") this.#begin(message);
      else if (message.type === "logs.entry") this.#take([message.entry]);
      else if (message.type === "error") refused = message.message;
    };
    socket.onclose = async () => {
      if (socket !== this.#socket) return;
      this.#socket = null;
      const reason = refused || (opened ? "the connection has ended" : await this.#refusal());
      if (this.#socket) return; // other filters were chosen meanwhile
      const pause = pauseBefore((this.#attempt += 1));
      this.onState(`not connected: ${reason}`);
      this.#timer = setTimeout(() => this.#connect(), pause);
    };
  }

  #begin({ boot, entries, dropped = 0 }) {
    this.#attempt = 0;
    this.onState("");
    const goesOn = this.#place.boot === boot;
    this.#place = { boot, after_seq: this.#place.after_seq };
    if (dropped && entries.length) entries[0].dropped = (entries[0].dropped || 0) + dropped;
    this.#take(entries, !goesOn);
  }

  #take(entries, isNew = false) {
    const last = entries.at(-1);
    if (last) this.#place.after_seq = last.seq;
    this.onEntries(entries, isNew);
  }

  // Why a handshake failed. A browser does not tell a page, but the same address answers a plain request in words.
  async #refusal() {
    try {
      await this.api.request("GET", "logs/stream");
    } catch (problem) {
      return problem.status === 426 ? "the WebSocket could not be opened; a proxy may not pass it on" : problem.message;
    }
    return "the WebSocket could not be opened";
  }
}
