// The log on a page of its own. Its address may have filters: #/logs?model=NAME&level=warning
import { element } from "../dom.js";
import { logPanel } from "./panel.js";

export function view(context) {
  const panel = logPanel(context, { filters: Object.fromEntries(context.params) });
  return { element: element("div", { class: "log-view" }, element("h1", {}, "Log"), panel.element), update: panel.update, close: panel.close };
}
