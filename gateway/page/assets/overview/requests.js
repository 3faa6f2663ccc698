// The requests in flight, and the last requests that ended.
import { confirmDialog } from "../dialog.js";
import { element, setText } from "../dom.js";
import { NONE, age, count, duration, moment, plural, rate } from "../format.js";
import { keyedTable } from "../table.js";

const MOST_IN_FLIGHT = 200;
const ENDED_AT_FIRST = 10;

// `filter(id)`: shows the log of a request.
export function requests(context, filter) {
  let now = 0;
  let admin = false;
  const running = keyedTable({
    caption: "Requests in flight",
    empty: "No request runs or waits.",
    columns: [
      { title: "Request, key", make: () => requestCell(filter) },
      { title: "Model, endpoint", wrap: true, make: modelCell },
      { title: "State", wrap: true, text: stateOf },
      { title: "Waited", number: true, text: (item) => waited(item, now) },
      { title: "Age", number: true, text: ({ arrived_at: at }) => age(now - at) },
      { title: "Tokens", number: true, text: ({ tokens, state }) => (state === "running" ? count(tokens || 0) : NONE) },
      { title: "Tokens/s", number: true, text: (item) => speedOf(item, now) },
      { title: "Cancel", make: (key) => cancelButton(context, key, () => admin) },
    ],
  });
  const ended = keyedTable({
    caption: "Last requests that ended",
    empty: "No request has ended since the server started.",
    rowClass: ({ code }) => (code ? "failed" : null),
    columns: [
      { title: "Request, key", make: () => requestCell(filter) },
      { title: "Model, endpoint", wrap: true, make: modelCell },
      { title: "Ended", text: ({ ended_at: at }) => moment(at, now) },
      { title: "Waited", number: true, text: ({ queue_s: wait }) => duration(wait || 0) },
      { title: "First token", number: true, text: ({ first_token_s: first }) => (first ? duration(first) : NONE) },
      { title: "Total", number: true, text: ({ total_s: total }) => duration(total) },
      { title: "Tokens", number: true, text: ({ prompt_tokens: read, output_tokens: made }) => (read || made ? `${count(read || 0)} → ${count(made || 0)}` : NONE) },
      { title: "Result", wrap: true, text: ({ code, message }) => (code ? [code, message].filter(Boolean).join(": ") : "complete") },
    ],
  });
  const number = element("span", { class: "soft" });
  const failed = element("span", { class: "soft" });
  const all = element("button", { type: "button", onclick: showAll });
  let last = [];
  let most = ENDED_AT_FIRST;

  function showAll() {
    most = most === Infinity ? ENDED_AT_FIRST : Infinity;
    showEnded();
  }

  function showEnded() {
    ended.sync(last.slice(0, most));
    all.hidden = last.length <= ENDED_AT_FIRST;
    setText(all, most === Infinity ? `Show the last ${ENDED_AT_FIRST}` : `Show the last ${last.length}`);
  }

  return {
    element: element(
      "div",
      { class: "stack" },
      panel("Requests in flight", number, running),
      panel("Last requests that ended", failed, ended, all),
    ),
    update(overview, time) {
      now = time;
      admin = Boolean(overview.access?.admin);
      const found = Object.entries(overview.requests || {});
      running.sync(found.sort(([, one], [, other]) => one.arrived_at - other.arrived_at));
      const total = (overview.running || 0) + (overview.waiting || 0);
      setText(number, total > found.length ? `${count(found.length)} of ${count(total)} are shown${found.length < MOST_IN_FLIGHT ? ": the others belong to other keys" : ""}` : "");
      last = Object.entries(overview.ended || {}).sort(([, one], [, other]) => other.ended_at - one.ended_at);
      showEnded();
      const wrong = last.filter(([, { code }]) => code).length;
      setText(failed, wrong ? `${plural(wrong, "request")} of ${last.length} failed` : "");
    },
  };
}

function panel(title, note, table, button) {
  return element("section", { class: "panel" }, element("div", { class: "panel-head" }, element("h2", {}, title), note, element("span", { class: "grow" }), button), table.element);
}

// The id of a request, which shows its log lines, and the name of its key below.
function requestCell(filter) {
  const button = element("button", { type: "button", class: "plain id", title: "Show its log lines", onclick: () => filter(button.textContent) });
  const key = element("div", { class: "soft" });
  return {
    element: element("div", {}, button, key),
    update(item) {
      setText(button, item.id);
      setText(key, item.key);
    },
  };
}

function modelCell() {
  const model = element("div");
  const endpoint = element("div", { class: "soft" });
  return {
    element: element("div", {}, model, endpoint),
    update(item) {
      setText(model, item.model || NONE);
      setText(endpoint, `${item.endpoint}${item.dialect ? ` (${item.dialect})` : ""}${item.stream ? ", stream" : ""}`);
    },
  };
}

function stateOf({ state, position, wait_s: wait }) {
  if (state !== "waiting") return state;
  return [`waiting${position ? `, position ${position}` : ""}`, wait && `about ${duration(wait)}`].filter(Boolean).join(", ");
}

function waited({ arrived_at: arrived, granted_at: granted }, now) {
  return granted ? duration(granted - arrived) : age(now - arrived);
}

function speedOf({ tokens = 0, first_token_at: first }, now) {
  return first && tokens > 1 && now - first >= 1 ? rate(tokens / (now - first)) : NONE;
}

function cancelButton(context, key, allowed) {
  let id = "";
  const button = element("button", { type: "button", class: "small danger", onclick: cancel }, "Cancel");
  async function cancel() {
    const text = `The engine stops working on ${id}, and its client is told that an operator cancelled it.`;
    if (!(await confirmDialog({ title: "Cancel the request?", text, action: "Cancel the request", cancel: "Keep it" }))) return;
    try {
      await context.api.json("DELETE", `internal/requests/${encodeURIComponent(key)}`);
      context.announce(`The request ${id} is cancelled.`);
    } catch (problem) {
      context.announce(`The request ${id} was not cancelled: ${problem.message}`);
      button.title = problem.message;
    }
  }
  return {
    element: button,
    update(item) {
      id = item.id;
      button.hidden = !allowed();
      button.setAttribute("aria-label", `Cancel ${id}`);
    },
  };
}
