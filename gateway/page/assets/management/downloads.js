// The downloads that run or are paused: how far each is, how fast, and what can be done with it.
import { element, keyedList, setAttribute, setText } from "../dom.js";
import { bytes, duration, percent, share } from "../format.js";
import { actionButtons, modelActions } from "./actions.js";
import { bytesPerSecond } from "./models.js";

const USABLE = { running: ["pause", "delete"], paused: ["resume", "delete"], failed: ["resume", "delete"] };
const KEPT = 10; // states of a download from which its speed is taken

// Returns { element, update(overview) }. The panel is hidden while there is no download. `changed()` is called after each action in it.
export function downloadsPanel(context, changed = () => {}) {
  const problem = element("p", { class: "problem", role: "alert", hidden: true });
  const actions = modelActions(context, {
    changed,
    failed(text) {
      problem.textContent = text;
      problem.hidden = !text;
    },
  });
  const list = element("ul", { class: "plain downloads" });
  const sync = keyedList(list, (_download, name) => downloadItem(name, actions));
  const panel = element("section", { class: "panel", "aria-label": "Downloads", hidden: true }, element("h2", {}, "Downloads"), problem, list);
  return {
    element: panel,
    update(overview) {
      const downloads = Object.entries(overview?.downloads ?? {});
      panel.hidden = downloads.length === 0;
      sync(downloads.map(([name, download]) => [name, { ...download, at: overview.time, admin: Boolean(overview.access?.admin) }]));
    },
  };
}

function downloadItem(name, actions) {
  const text = element("span", { class: "number" });
  const file = element("p", { class: "soft" });
  const fill = element("span", { class: "fill" });
  const meter = element("span", { class: "meter", role: "progressbar", "aria-label": `Download of ${name}`, "aria-valuemin": 0, "aria-valuemax": 100 }, fill);
  const buttons = actionButtons(actions, name, ({ state }) => USABLE[state] ?? []);
  const item = element("li", {}, element("div", { class: "download-head" }, element("strong", {}, name), text, buttons.element), meter, file);
  const states = [];
  return {
    element: item,
    update(download) {
      const { state, done = 0, total = 0, at, admin } = download;
      if (states.at(-1)?.at !== at) states.push({ at, file: download.file, done });
      states.splice(0, states.length - KEPT);
      const part = share(done, total);
      setText(text, downloadText(download, state === "running" ? bytesPerSecond(states) : 0));
      setText(file, state === "failed" ? (download.message ?? "") : fileText(download));
      setAttribute(file, "class", state === "failed" ? "problem" : "soft");
      fill.style.setProperty("width", `${(100 * (state === "done" ? 1 : part)).toFixed(1)}%`);
      setAttribute(meter, "aria-valuenow", Math.round(100 * (state === "done" ? 1 : part)));
      buttons.update({ name, state, busy: 0 }, admin);
    },
  };
}

// "1.2 GiB of 4 GiB, 30 %, 25 MiB/s, 2 min left" – of the present file.
export function downloadText({ state, done = 0, total = 0 }, speed) {
  if (state === "done") return "complete";
  if (state === "failed") return "failed";
  const amount = total ? `${bytes(done)} of ${bytes(total)}, ${percent(share(done, total))}` : "begins";
  if (state === "paused") return `paused: ${amount}`;
  return speed > 0 ? `${amount}, ${bytes(speed)}/s, ${duration(Math.ceil((total - done) / speed))} left` : amount;
}

function fileText({ file, file_index: index, files }) {
  return file ? `${file}${files > 1 ? ` (file ${index} of ${files})` : ""}` : "";
}
