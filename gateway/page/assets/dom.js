// Makes and updates elements. All text goes into the page as text, never as HTML.

// element("button", { class: "primary", onclick: f, disabled: true, dataset: { key } }, "Text", child, null)
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  set(made, properties);
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function svgElement(name, properties = {}, ...children) {
  const made = document.createElementNS(SVG, name);
  set(made, properties);
  made.append(...children.flat().filter(Boolean));
  return made;
}

// Sets attributes; false, null and undefined remove one. `on…` adds a listener, `dataset` and `style` set each of their fields.
export function set(target, properties) {
  for (const [name, value] of Object.entries(properties)) {
    if (name.startsWith("on")) target.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(target.dataset, value);
    else if (name === "style") for (const [key, each] of Object.entries(value)) target.style.setProperty(key, each);
    else setAttribute(target, name, value);
  }
}

export function setAttribute(target, name, value) {
  if (value === false || value === null || value === undefined) {
    if (target.hasAttribute(name)) target.removeAttribute(name);
    return;
  }
  const text = value === true ? "" : String(value);
  if (target.getAttribute(name) !== text) target.setAttribute(name, text);
}

// Changes a text only if it differs, so that selections stay and screen readers hear no repetition.
export function setText(target, text) {
  const wanted = String(text ?? "");
  if (target.textContent !== wanted) target.textContent = wanted;
}

// Keeps the children of `parent` in step with a list: one node for each key, which stays the same node while the key is there.
// `create(item, key)` returns { element, update(item)? }. The returned function takes the items: [[key, item], …] in their order.
export function keyedList(parent, create) {
  const parts = new Map();
  return function sync(entries) {
    const focused = parent.contains(document.activeElement) ? document.activeElement : null;
    const wanted = new Set(entries.map(([key]) => key));
    for (const [key, part] of parts) {
      if (wanted.has(key)) continue;
      part.element.remove();
      part.close?.();
      parts.delete(key);
    }
    let place = parent.firstChild;
    for (const [key, item] of entries) {
      let part = parts.get(key);
      if (!part) parts.set(key, (part = create(item, key)));
      part.update?.(item);
      if (part.element === place) place = place.nextSibling;
      else parent.insertBefore(part.element, place);
    }
    if (focused && focused !== document.activeElement && focused.isConnected) focused.focus({ preventScroll: true });
  };
}

// A function that calls `action` once, `delay` ms after its last call.
export function debounced(action, delay) {
  let timer = 0;
  return (...values) => {
    clearTimeout(timer);
    timer = setTimeout(action, delay, ...values);
  };
}
