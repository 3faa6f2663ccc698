"use strict";
// Shows openapi.json. All text goes into the page as text, never as HTML.

const METHODS = ["get", "post", "put", "patch", "delete"];
const MOST_NESTED = 6;
let api = null;

function element(name, attributes, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function resolved(value) {
  if (!value || !value.$ref) return value;
  const names = decodeURIComponent(value.$ref.slice(2)).split("/");
  return names.reduce((part, name) => part[name.replace(/~1/g, "/").replace(/~0/g, "~")], api);
}

// Text with `code` in it.
function prose(text) {
  const shown = element("p");
  (text || "").split("`").forEach((part, index) => shown.append(index % 2 ? element("code", {}, part) : part));
  return shown;
}

function typeName(schema) {
  if (!schema || Object.keys(schema).length === 0) return "anything";
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  const several = schema.anyOf || schema.oneOf || schema.allOf;
  if (several) return several.map(typeName).join(schema.allOf ? " and " : " | ");
  if (schema.type === "array") return `array of ${typeName(schema.items)}`;
  return schema.format === "binary" ? "file" : String(schema.type || "anything");
}

function bounds(schema) {
  const parts = [];
  for (const each of [schema, ...(schema.anyOf || [])]) {
    if (each.minimum !== undefined) parts.push(`from ${each.minimum}`);
    if (each.maximum !== undefined) parts.push(`to ${each.maximum}`);
    if (each.maxLength !== undefined) parts.push(`at most ${each.maxLength} characters`);
  }
  return parts.join(" ");
}

// The objects that a schema has in it: those whose fields can be shown.
function objectsIn(schema) {
  if (!schema) return [];
  if (schema.$ref) {
    const target = resolved(schema);
    return target.properties ? [[typeName(schema), target]] : objectsIn(target);
  }
  if (schema.properties) return [["object", schema]];
  return [...(schema.anyOf || []), ...(schema.oneOf || []), ...(schema.allOf || []), schema.items].flatMap(objectsIn);
}

function fieldsTable(schema, depth) {
  const required = new Set(schema.required || []);
  const table = element("table");
  for (const [name, field] of Object.entries(schema.properties)) {
    const cell = element("td", {}, element("code", {}, typeName(field)), " ", bounds(field), " ", field.description || "");
    for (const [inner, target] of depth < MOST_NESTED ? objectsIn(field) : []) cell.append(folded(inner, target, depth + 1));
    const label = element("td", {}, element("code", {}, name), required.has(name) ? " required" : "");
    table.append(element("tr", {}, label, cell));
  }
  return table;
}

function folded(name, schema, depth) {
  const details = element("details", {}, element("summary", {}, element("code", {}, name)));
  details.addEventListener("toggle", () => {
    if (details.open && details.children.length === 1) {
      if (schema.description) details.append(prose(schema.description));
      details.append(fieldsTable(schema, depth));
    }
  });
  return details;
}

function curl(method, path, content, example) {
  const url = new URL(path, location.origin);
  const words = ["curl"];
  if (method !== "get" && !(method === "post" && example)) words.push("-X", method.toUpperCase());
  words.push(quoted(url.href.replace(/%7B/g, "{").replace(/%7D/g, "}")));
  if (api.components.securitySchemes) words.push("-H", '"Authorization: Bearer $KEY"');
  if (example && content === "application/json") words.push("-d", quoted(JSON.stringify(example)));
  else if (example) for (const [name, value] of Object.entries(example)) words.push("-F", quoted(String(value).startsWith("(") ? `${name}=@FILE` : `${name}=${value}`));
  return words.join(" ");
}

function quoted(text) {
  return `'${text.replace(/'/g, "'\\''")}'`;
}

function requestPart(method, path, operation) {
  const part = element("div");
  if (operation.parameters) {
    const table = element("table");
    for (const parameter of operation.parameters) {
      const name = element("td", {}, element("code", {}, parameter.name), ` in ${parameter.in}`, parameter.required ? ", required" : "");
      table.append(element("tr", {}, name, element("td", {}, element("code", {}, typeName(parameter.schema)), " ", bounds(parameter.schema))));
    }
    part.append(element("h4", {}, "Parameters"), table);
  }
  const contents = operation.requestBody ? Object.entries(operation.requestBody.content) : [];
  for (const [type, content] of contents) {
    part.append(element("h4", {}, "Request ", element("span", { class: "soft" }, type)));
    for (const [name, schema] of objectsIn(content.schema)) part.append(folded(name, schema, 1));
    for (const [name, example] of Object.entries(content.examples || {})) {
      part.append(element("p", {}, name), element("pre", {}, curl(method, path, type, example.value)));
    }
  }
  if (!contents.some(([, content]) => content.examples)) part.append(element("pre", {}, curl(method, path)));
  return part;
}

function responsesPart(operation) {
  const table = element("table");
  for (const [status, reference] of Object.entries(operation.responses)) {
    const response = resolved(reference);
    const cell = element("td", {}, prose(response.description));
    for (const [type, content] of Object.entries(response.content || {})) {
      cell.append(element("div", { class: "soft" }, type));
      for (const [name, schema] of objectsIn(content.schema)) cell.append(folded(name, schema, 1));
      if (content.example) cell.append(element("pre", {}, content.example));
    }
    table.append(element("tr", {}, element("td", {}, element("code", {}, status)), cell));
  }
  return element("div", {}, element("h4", {}, "Responses"), table);
}

function operationPart(path, method, operation, aliases) {
  const line = element("summary", {}, element("span", { class: `method ${method}` }, method.toUpperCase()), element("code", {}, path), " ", element("span", { class: "soft" }, operation.summary));
  const details = element("details", { id: operation.operationId }, line);
  details.dataset.words = [method, path, ...aliases, operation.summary, ...operation.tags].join(" ").toLowerCase();
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    const body = element("div", { class: "body" });
    if (aliases.length) body.append(prose(`Also at ${aliases.map((each) => `\`${each}\``).join(", ")}.`));
    const scope = ((operation.security || [])[0] || {}).bearer;
    if (scope) body.append(prose(`Needs an API key with the scope \`${scope.join(" ")}\`.`));
    body.append(requestPart(method, path, operation), responsesPart(operation));
    details.append(body);
  });
  return details;
}

function show() {
  document.getElementById("version").textContent = api.info.version;
  const link = element("a", { href: "openapi.json" }, "openapi.json");
  document.getElementById("about").replaceChildren(prose(api.info.description), "The document itself: ", link);
  const aliases = {};
  for (const [path, item] of Object.entries(api.paths)) {
    if (item["x-alias-of"]) (aliases[item["x-alias-of"]] ||= []).push(path);
  }
  const main = document.getElementById("operations");
  for (const tag of api.tags) {
    const section = element("section", {}, element("h2", {}, tag.name), prose(tag.description));
    for (const [path, item] of Object.entries(api.paths)) {
      for (const method of METHODS) {
        if (item[method] && !item["x-alias-of"] && item[method].tags.includes(tag.name)) section.append(operationPart(path, method, item[method], aliases[path] || []));
      }
    }
    main.append(section);
  }
}

function filter(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  for (const section of document.querySelectorAll("section")) {
    const operations = [...section.querySelectorAll("details[data-words]")];
    for (const each of operations) each.hidden = !words.every((word) => each.dataset.words.includes(word));
    section.hidden = operations.every((each) => each.hidden);
  }
}


document.getElementById("filter").addEventListener("input", (event) => filter(event.target.value));
fetch("openapi.json")
  .then((response) => (response.ok ? response.json() : Promise.reject(new Error(`status ${response.status}`))))
  .then((found) => { api = found; show(); })
  .catch((problem) => { document.getElementById("about").textContent = `The document cannot be read: ${problem.message}`; });
