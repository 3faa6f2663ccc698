// Starts the page: the header, the connection to the server, and the view that the address names.
import { Access } from "./access.js";
import { Api } from "./api.js";
import { element } from "./dom.js";
import { Header } from "./header.js";
import { follow } from "./live.js";
import { Store } from "./store.js";

// A view is a module with `view(context)`, which returns { element, update(overview)?, close()? }.
const VIEWS = [
  { path: "/", title: "Overview", load: () => import("./overview/view.js") },
  { path: "/models", title: "Models", load: () => import("./management/view.js") },
  { path: "/try", title: "Try a model", load: () => import("./trial/view.js") },
  { path: "/usage", title: "Usage", load: () => import("./usage/view.js") },
  { path: "/logs", title: "Logs", load: () => import("./log/view.js") },
];
const TICK_MS = 1000;

const access = new Access();
const api = new Api(access);
const store = new Store();
const main = document.getElementById("main");
const announcer = document.getElementById("announcer");
const header = new Header(document.getElementById("header"), { views: VIEWS, access, store });
let shown = null;
let opening = 0;

// Says a text to a screen reader. The same text twice is said twice.
function announce(text) {
  announcer.textContent = announcer.textContent === text ? `${text}\u00a0` : text;
}

// The view of an address such as `#/logs?request=ID`, and its parameters.
function addressed() {
  const [path, query] = (location.hash.slice(1) || "/").split("?");
  return { found: VIEWS.find((each) => each.path === path), params: new URLSearchParams(query) };
}

async function open() {
  const number = ++opening;
  const { found, params } = addressed();
  shown?.close?.();
  shown = null;
  header.select(found);
  if (!found) {
    main.replaceChildren(element("p", {}, "There is no such view. ", element("a", { href: "#/" }, "Overview")));
    return;
  }
  try {
    const { view } = await found.load();
    if (number !== opening) return;
    const next = view({ api, store, access, announce, params });
    main.replaceChildren(next.element);
    document.title = `${found.title} – lemonbus`;
    shown = next;
    shown.update?.(store.overview);
  } catch (problem) {
    if (number === opening) main.replaceChildren(element("p", { role: "alert" }, `This view cannot be shown: ${problem.message}`));
  }
}

// At most one rendering for each frame, however many messages arrive.
let due = false;
let renderedAt = 0;
function render() {
  if (due) return;
  due = true;
  requestAnimationFrame((time) => {
    due = false;
    renderedAt = time;
    header.update(store);
    shown?.update?.(store.overview);
  });
}

document.getElementById("skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
window.addEventListener("hashchange", () => {
  open();
  main.focus({ preventScroll: true });
  window.scrollTo(0, 0);
});
store.subscribe(render);
store.onConnectionChange = (text) => announce(text);
setInterval(() => performance.now() - renderedAt > TICK_MS && render(), TICK_MS); // ages go on while the server is silent
open();
follow(api, store);
