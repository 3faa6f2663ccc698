// The header: which release runs since when, what it does now, its memory, its problems, and whether it can be heard.
import { element, keyedList, set, setAttribute, setText } from "./dom.js";
import { NONE, age, bytes, count, percent, placeName, share } from "./format.js";

const NEARLY_FULL = 0.9;
const STATES = { draining: "stopping: it takes no new requests", drained: "drained: it takes no new requests until it is undrained" };

export class Header {
  #links = new Map();
  #firstVersion = "";
  #access;

  constructor(parent, { views, access, store }) {
    this.#access = access;
    this.version = element("span", { class: "version" });
    this.connection = element("span", { class: "connection" }, "Connecting …");
    this.key = element("button", { type: "button", class: "plain", onclick: () => this.#changeKey() });
    const nav = element("nav", { "aria-label": "Views" }, element("ul", {}, views.map((each) => element("li", {}, this.#link(each)))));
    this.facts = element("dl", { class: "facts", "aria-label": "Server" });
    this.uptime = this.#fact("Up");
    this.running = this.#fact("Running");
    this.waiting = this.#fact("Waiting");
    const memory = element("dl", { class: "facts", "aria-label": "Memory" });
    this.syncMemory = keyedList(memory, meter);
    this.problems = element("ul", { class: "problems", "aria-label": "Problems", hidden: true });
    this.syncProblems = keyedList(this.problems, (text) => ({ element: element("li", {}, text) }));
    const brand = element("a", { class: "brand", href: "#/" }, element("strong", {}, "lemonbus"), " ", this.version);
    const docs = element("a", { href: "docs", class: "plain" }, "API");
    parent.append(
      element("div", { class: "bar" }, brand, nav, element("div", { class: "corner" }, this.connection, docs, this.key)),
      element("div", { class: "bar" }, this.facts, memory),
      this.problems,
    );
    this.update(store);
  }

  #link({ path, title }) {
    const link = element("a", { href: `#${path}` }, title);
    this.#links.set(path, link);
    return link;
  }

  #fact(title) {
    const value = element("dd", {}, NONE);
    this.facts.append(element("div", {}, element("dt", {}, title), value));
    return value;
  }

  select(view) {
    for (const [path, link] of this.#links) setAttribute(link, "aria-current", path === view?.path && "page");
  }

  update(store) {
    this.#showConnection(store);
    const { overview } = store;
    const keys = overview?.access?.keys_needed || this.#access.key || store.connection.state === "refused";
    this.key.hidden = !keys;
    setText(this.key, overview?.access?.key ? `Key: ${overview.access.key}` : "Key");
    if (!overview) return;
    const { server } = overview;
    setText(this.version, server.version);
    setText(this.uptime, age(store.now - server.started_at));
    setText(this.running, count(overview.running || 0));
    setText(this.waiting, count(overview.waiting || 0));
    set(this.waiting, { class: overview.waiting ? "attention" : false });
    const places = overview.memory || {};
    this.syncMemory(Object.entries(places).map(([key, place]) => [key, { ...place, title: key === "host" ? "Memory" : placeName(key, places) }]));
    this.#firstVersion ||= server.version;
    const upgraded = server.version === this.#firstVersion ? [] : [`The server was upgraded to ${server.version}: load this page again.`];
    const problems = [...upgraded, ...(STATES[server.state] ? [`The server is ${STATES[server.state]}.`] : []), ...(server.problems || [])];
    this.problems.hidden = problems.length === 0;
    this.syncProblems(problems.map((text) => [text, text]));
  }

  #showConnection(store) {
    const { state, message, retryAt } = store.connection;
    const wait = retryAt ? `; next attempt in ${Math.max(0, Math.ceil((retryAt - Date.now()) / 1000))} s` : "";
    const texts = {
      connecting: message ? `Connecting again … (${message})` : "Connecting …",
      live: store.silent ? "The server is silent" : "Live",
      lost: `Not connected: ${message}${wait}`,
      refused: `Refused: ${message}${wait}`,
    };
    setText(this.connection, texts[state]);
    setAttribute(this.connection, "data-state", state === "live" && store.silent ? "silent" : state);
    setAttribute(document.body, "data-stale", state !== "live" || store.silent ? "" : null);
  }

  async #changeKey() {
    const before = this.#access.key;
    this.#access.key = "";
    if (!(await this.#access.ask("", "", { wanted: true }))) this.#access.key = before;
    else location.reload();
  }
}

// One place of memory: its figures and a bar.
function meter(_place, key) {
  const fill = element("span", { class: "fill" });
  const value = element("dd");
  const title = element("dt");
  const whole = element("div", { class: "memory" }, title, value, element("span", { class: "meter", "aria-hidden": "true" }, fill));
  return {
    element: whole,
    update({ title: shown, total, free, used_percent: busy, limited_by: limit }) {
      const used = share(total - free, total);
      setText(title, shown);
      setText(value, `${bytes(total - free)} of ${bytes(total)}${busy === undefined ? "" : `, ${busy} % busy`}`);
      setAttribute(whole, "title", [key !== "host" && key, limit && `limited by ${limit}`].filter(Boolean).join(", ") || null);
      fill.style.setProperty("width", percent(used).replace(/[< ]/g, ""));
      setAttribute(fill, "data-full", used > NEARLY_FULL);
    },
  };
}
