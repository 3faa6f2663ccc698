// Fields of forms: a label, a control, and a hint.
import { element } from "./dom.js";

let numbers = 0;

// A label above a control, with a hint below it that a screen reader reads with the control. `beside`: a button next to it.
export function field(label, control, hint = null, beside = null) {
  control.id ||= `field-${++numbers}`;
  const about = hint && element("span", { class: "soft hint", id: `${control.id}-hint` }, hint);
  if (about) control.setAttribute("aria-describedby", about.id);
  return element("div", { class: "form-field" }, element("label", { for: control.id }, label), beside ? element("div", { class: "field" }, control, beside) : control, about);
}

// choices: [[value, text], …]
export function select(choices, properties = {}) {
  const made = element("select", properties);
  offer(made, choices);
  return made;
}

// Replaces the choices of a select; the chosen value stays if it is still there.
export function offer(target, choices) {
  const before = target.value;
  target.replaceChildren(...choices.map(([value, text]) => element("option", { value }, text)));
  if (choices.some(([value]) => value === before)) target.value = before;
}

export function checkbox(label, properties = {}) {
  const box = element("input", { type: "checkbox", ...properties });
  return { box, element: element("label", { class: "field" }, box, label) };
}
