// The log as it is written: filters, a pause, and a bounded number of lines.
import { debounced, element, setText } from "../dom.js";
import { count, plural } from "../format.js";
import { KEPT, LogBuffer, SHOWN, timeOf } from "./buffer.js";
import { LogStream } from "./stream.js";

const DRAW_EVERY_MS = 100; // no person reads faster
const REST = 3; // after a drawing, the page is idle for this many times as long as the drawing took
const LEVELS = ["trace", "debug", "info", "warning", "error"];
const PROCESSES = ["supervisor", "gateway", "worker", "engine", "job"];
const FILTERS = ["level", "process", "node", "model", "request_id"];
const CLOSE_TO_END = 24; // pixels
let numbers = 0;

// folded: the panel is closed at first and follows nothing; filters: those to begin with, by name.
// Returns { element, filter({ request_id }), update(overview), close() }.
export function logPanel(context, { folded = false, filters = {} } = {}) {
  const buffer = new LogBuffer();
  const lines = element("div", { class: "log-lines", role: "log", "aria-live": "off", "aria-label": "Log lines", tabindex: "0" });
  const state = element("span", { class: "soft", role: "status" });
  const number = element("span", { class: "soft" });
  const pause = element("button", { type: "button", "aria-pressed": "false", onclick: togglePause }, "Pause");
  const fields = fieldsOf(context.store, filters);
  const search = element("input", { type: "search", size: 18, placeholder: "Words in a line", autocomplete: "off", oninput: debounced(() => redraw(buffer.filter(search.value)), 150) });
  const stream = new LogStream(context, { onEntries, onState: (text) => setText(state, text) });
  const follow = debounced(() => following && stream.follow(chosen()), 300);
  let paused = false;
  let following = false;
  let frame = 0;
  let restUntil = 0;

  const labels = Object.fromEntries(
    Object.entries({ Level: fields.level, Process: fields.process, Node: fields.node, Model: fields.model, Request: fields.request_id, Text: search }).map(([title, field]) => [title, element("label", { class: "field" }, title, " ", field)]),
  );
  for (const field of Object.values(fields)) field.addEventListener("input", follow);
  showNodeField(context.store.overview);
  const content = element(
    "div",
    { class: "stack" },
    element(
      "form",
      { class: "filters", role: "search", "aria-label": "Filter the log", onsubmit: (event) => event.preventDefault() },
      Object.values(labels),
      fields.models,
      fields.nodes,
      element("button", { type: "button", onclick: clearFilters }, "No filter"),
      pause,
      element("button", { type: "button", onclick: clear }, "Clear"),
    ),
    element("p", { class: "log-state" }, number, " ", state),
    lines,
  );
  const whole = folded
    ? element("details", { class: "panel", ontoggle: () => (whole.open ? start() : stop()) }, element("summary", {}, element("h2", {}, "Log")), content)
    : element("section", { class: "panel", "aria-label": "Log" }, content);
  if (!folded) start();

  // A server with one machine has nothing to choose here.
  function showNodeField(overview) {
    labels.Node.hidden = !overview?.nodes && !fields.node.value;
  }

  function chosen() {
    return Object.fromEntries(FILTERS.map((name) => [name, fields[name].value.trim()]));
  }

  function start() {
    if (following) return;
    following = true;
    stream.follow(chosen());
  }

  function stop() {
    following = false;
    stream.close();
    setText(state, "");
  }

  function onEntries(entries, isNew) {
    if (isNew) clear();
    buffer.add(entries);
    if (paused) showNumber();
    else frame ||= requestAnimationFrame(draw);
  }

  function draw(time) {
    frame = 0;
    if (paused) return;
    if (time < restUntil) {
      frame = requestAnimationFrame(draw);
      return;
    }
    const began = performance.now();
    const atEnd = lines.scrollHeight - lines.scrollTop - lines.clientHeight < CLOSE_TO_END;
    lines.append(...buffer.take().map(lineElement));
    while (lines.childElementCount > SHOWN) lines.firstChild.remove();
    if (atEnd) lines.scrollTop = lines.scrollHeight;
    showNumber();
    restUntil = time + Math.max(DRAW_EVERY_MS, REST * (performance.now() - began));
  }

  function redraw(found) {
    lines.replaceChildren(...found.map(lineElement));
    lines.scrollTop = lines.scrollHeight;
    showNumber();
  }

  function showNumber() {
    const waiting = paused && buffer.waiting ? `, ${plural(buffer.waiting, "new line")}` : "";
    const of = search.value.trim() ? ` of ${count(Math.min(buffer.kept, KEPT))}` : "";
    const missed = buffer.dropped ? `, ${plural(buffer.dropped, "line")} missed` : "";
    setText(number, `${plural(lines.childElementCount, "line")}${of}${lines.childElementCount >= SHOWN ? ` (the last ${count(SHOWN)})` : ""}${waiting}${missed}`);
  }

  function togglePause() {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    if (!paused) frame ||= requestAnimationFrame(draw);
  }

  function clear() {
    buffer.clear();
    lines.replaceChildren();
    showNumber();
  }

  function setFilters(given) {
    for (const name of FILTERS) fields[name].value = given[name] || "";
    search.value = "";
    showNodeField(context.store.overview);
    buffer.filter("");
    if (following) stream.follow(chosen());
  }

  function clearFilters() {
    setFilters({});
  }

  return {
    element: whole,
    filter(given) {
      setFilters(given);
      if (folded) whole.open = true;
      start();
      context.announce(`The log shows ${Object.values(given).join(", ")}.`);
      whole.scrollIntoView({ block: "start" });
      lines.focus({ preventScroll: true });
    },
    update: showNodeField,
    close() {
      cancelAnimationFrame(frame);
      stop();
    },
  };
}

function fieldsOf(store, filters) {
  numbers += 1;
  const [model, models] = suggested(`log-models-${numbers}`, () => store.overview?.models, filters.model);
  const [node, nodes] = suggested(`log-nodes-${numbers}`, () => store.overview?.nodes, filters.node);
  const fields = {
    level: choice("Any", LEVELS.map((level) => [level, `${level} and above`])),
    process: choice("Any", PROCESSES.map((name) => [name, name])),
    request_id: element("input", { size: 24, placeholder: "X-Request-ID", autocomplete: "off", spellcheck: "false", value: filters.request_id }),
  };
  for (const name of ["level", "process"]) fields[name].value = filters[name] || "";
  return { ...fields, model, models, node, nodes };
}

// A field that takes any name, and the list of those that the server has now.
function suggested(id, names, value) {
  const list = element("datalist", { id });
  const field = element("input", {
    ...{ list: id, size: 20, placeholder: "Any", autocomplete: "off", value },
    onfocus: () => list.replaceChildren(...Object.keys(names() || {}).map((name) => element("option", { value: name }))),
  });
  return [field, list];
}

function choice(any, options) {
  return element("select", {}, element("option", { value: "" }, any), options.map(([value, text]) => element("option", { value }, text)));
}

const LINE = element("div", {}, element("time"), " ", element("span", { class: "log-level" }), " ", element("span", { class: "log-process" }), " ", element("span", { class: "log-text" }));

// A copy of a made element costs a fraction of a new one.
function lineElement({ at, level, process, text }) {
  const line = LINE.cloneNode(true);
  line.className = `log-line log-${level}`;
  const [time, ...others] = line.children;
  time.title = `${at} UTC`;
  time.textContent = timeOf(at);
  [level, process, text].forEach((each, index) => (others[index].textContent = each));
  return line;
}
