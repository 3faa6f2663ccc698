// The programs that models run on: their states, and how to install or remove one.
import { confirmDialog } from "../dialog.js";
import { element } from "../dom.js";
import { install, uninstall } from "./requests.js";

const STATE_CLASSES = { installed: "good", update_required: "warn", installable: "info", unsupported: "" };

// Returns { element, update(admin) }: a folded panel that asks for the list when it is opened.
export function backendsPanel(context) {
  const place = element("div", {}, element("p", { class: "soft" }, "Reading the list …"));
  const problem = element("p", { class: "problem", role: "alert", hidden: true });
  let admin = false;
  let busy = "";
  let recipes = null;
  const whole = element("details", { class: "panel", ontoggle: () => whole.open && !recipes && load() }, element("summary", {}, "Backends: the programs that models run on"), problem, place);

  async function load() {
    try {
      ({ recipes } = await context.api.json("GET", "v1/system-info"));
      show();
    } catch (refused) {
      fail(refused.message);
    }
  }

  function fail(text) {
    problem.textContent = text;
    problem.hidden = !text;
  }

  function show() {
    if (!recipes) return;
    const rows = Object.entries(recipes).flatMap(([recipe, about]) =>
      Object.entries(about.backends)
        .filter(([name]) => name !== "default")
        .map(([name, backend]) => row(recipe, name, backend, name === about.default_backend)),
    );
    const titles = ["Backend", "State", "Version", "Devices", "Note", "Actions"];
    const head = element("tr", {}, titles.map((title) => element("th", { scope: "col" }, title)));
    place.replaceChildren(element("div", { class: "table-wrap" }, element("table", { class: "rows" }, element("caption", { class: "visually-hidden" }, "Backends"), element("thead", {}, head), element("tbody", {}, rows))));
  }

  function row(recipe, name, backend, usual) {
    const id = `${recipe}:${name}`;
    const cells = [
      ["Backend", `${id}${usual ? " (default)" : ""}`],
      ["State", element("span", { class: `tag ${STATE_CLASSES[backend.state] ?? ""}` }, backend.state.replace("_", " "))],
      ["Version", backend.version ?? ""],
      ["Devices", backend.devices.join(", ")],
      ["Note", backend.message],
      ["Actions", admin ? actionsFor(recipe, name, backend) : ""],
    ];
    return element("tr", {}, cells.map(([title, content]) => element("td", { class: title === "Note" ? "wrap" : "", "data-title": title, "data-none": !content }, content)));
  }

  function actionsFor(recipe, name, backend) {
    const id = `${recipe}:${name}`;
    if (busy) return busy === id ? "working …" : "";
    const button = (text, danger, action) => element("button", { type: "button", class: danger ? "small danger" : "small", "aria-label": `${text} ${id}`, onclick: action }, text);
    if (backend.state === "installable") return button("Install", false, () => change(id, install(recipe, name), "installed"));
    if (backend.state === "update_required") return button("Update", false, () => change(id, install(recipe, name), "updated"));
    return backend.state === "installed" && backend.version ? button("Remove …", true, () => remove(id, uninstall(recipe, name))) : "";
  }

  async function remove(id, request) {
    if (await confirmDialog({ title: `Remove ${id}?`, text: "Models that use it are unloaded first.", action: "Remove" })) change(id, request, "removed");
  }

  async function change(id, { method, path, body }, done) {
    busy = id;
    fail("");
    show();
    try {
      await context.api.json(method, path, body);
      context.announce(`${id} is ${done}.`);
    } catch (refused) {
      fail(`${id}: ${refused.message}`);
    }
    busy = "";
    await load();
  }

  return {
    element: whole,
    update(isAdmin) {
      if (isAdmin === admin) return;
      admin = isAdmin;
      show();
    },
  };
}
