// Parts that the forms of all kinds of models share: fields with labels, numbers that may be empty, files to download.
import { element } from "../dom.js";

let numbers = 0;

// A label above a control, with a hint below it.
export function field(label, control, hint = "") {
  control.id ||= `trial-${++numbers}`;
  const about = hint && element("span", { class: "soft hint", id: `${control.id}-hint` }, hint);
  if (about) control.setAttribute("aria-describedby", about.id);
  return element("div", { class: "trial-field" }, element("label", { for: control.id }, label), control, about || null);
}

export function textArea(properties = {}) {
  return element("textarea", { rows: 3, ...properties });
}

// An input for a number, empty if the server is to choose.
export function numberInput(properties = {}) {
  return element("input", { type: "number", inputmode: "decimal", placeholder: "default", ...properties });
}

// The number of an input; null if it is empty. Throws an error in words if it is not a number or out of bounds.
export function numberOf(input, name) {
  if (input.validity.badInput || (input.value !== "" && !input.validity.valid)) throw new Error(`${name}: ${input.validationMessage}`);
  return input.value === "" ? null : Number(input.value);
}

export function select(options, properties = {}) {
  return element("select", properties, options.map(([value, text]) => element("option", { value }, text)));
}

// A picture or a sound in the page's memory, shown and offered as a file. `close()` must be called once it is not shown any more.
export class Download {
  constructor(blob, name) {
    this.url = URL.createObjectURL(blob);
    this.link = element("a", { class: "button small", href: this.url, download: name }, `Download ${name}`);
  }

  close() {
    URL.revokeObjectURL(this.url);
  }
}
