// Controls of the forms that try models: texts, numbers that may be empty, files to download.
import { element } from "../dom.js";

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
