"use strict";
// Runs the script of /docs with as much of a DOM as it needs. Usage: node page_in_node.js SCRIPT DOCUMENT; prints what the page shows.

const fs = require("fs");

class Element {
  constructor(name) {
    Object.assign(this, { name, children: [], attributes: {}, dataset: {}, listeners: {}, hidden: false, open: false });
  }
  setAttribute(key, value) { this.attributes[key] = String(value); }
  append(...children) { this.children.push(...children); }
  replaceChildren(...children) { this.children = children; }
  addEventListener(kind, listener) { this.listeners[kind] = listener; }
  set textContent(text) { this.children = [String(text)]; }
  get text() { return this.children.map((child) => (child instanceof Element ? child.text : String(child))).join(""); }
  all(name) { return this.children.flatMap((child) => (child instanceof Element ? [...(child.name === name ? [child] : []), ...child.all(name)] : [])); }
  querySelectorAll() { return this.all("details").filter((each) => each.dataset.words !== undefined); }
}

const [script, documentFile] = process.argv.slice(2);
const byId = Object.fromEntries(["version", "about", "operations", "filter"].map((id) => [id, new Element("div")]));
globalThis.document = {
  createElement: (name) => new Element(name),
  getElementById: (id) => byId[id],
  querySelectorAll: () => byId.operations.all("section"),
};
globalThis.location = new URL("http://127.0.0.1:13305/docs");
globalThis.fetch = async (url) => ({ ok: true, json: async () => ({ ...JSON.parse(fs.readFileSync(documentFile, "utf8")), asked: String(url) }) });
(0, eval)(fs.readFileSync(script, "utf8"));

function openAll(element, depth) {
  for (const details of element.all("details")) {
    if (details.open || depth === 0) continue;
    details.open = true;
    details.listeners.toggle();
    openAll(details, depth - 1);
  }
}

setTimeout(() => {
  const operations = byId.operations.querySelectorAll();
  openAll(byId.operations, 3);
  const shown = operations.map((each) => ({ title: each.children[0].text, text: each.text }));
  byId.filter.listeners.input({ target: { value: "embed POST" } });
  const found = operations.filter((each) => !each.hidden).map((each) => each.children[0].text);
  console.log(JSON.stringify({ about: byId.about.text, version: byId.version.text, shown, found }));
}, 50);
