// Who has used what in a month: tables by API key and by model.
import { element, setText } from "../dom.js";
import { count, duration } from "../format.js";
import { keyedTable } from "../table.js";
import { lastMonths, sumsBy } from "./sums.js";

const MONTHS = 13;

export function view({ api, announce }) {
  const now = new Date().toISOString().slice(0, 7); // usage is counted by days in UTC
  const month = element("select", { onchange: load }, lastMonths(now, MONTHS).map((each) => element("option", { value: each }, each)));
  const again = element("button", { type: "button", onclick: load }, "Refresh");
  const note = element("p", { class: "soft" });
  const problem = element("p", { class: "problem", role: "alert" });
  const keys = usageTable("Usage by API key", "API key", "Without a key");
  const models = usageTable("Usage by model", "Model", "Unknown");
  const both = usageTable("Usage by API key and model", "API key and model", "");
  let controller = new AbortController();

  async function load() {
    controller.abort();
    controller = new AbortController();
    const { signal } = controller;
    try {
      const answer = await api.json("GET", `internal/usage?by_day=false&month=${month.value}`, undefined, { signal });
      const { total } = answer;
      keys.sync(sumsBy(answer.rows, "key"), total);
      models.sync(sumsBy(answer.rows, "model"), total);
      both.sync(sumsBy(answer.rows.map((row) => ({ ...row, both: `${row.key || "Without a key"}: ${row.model || "unknown"}` })), "both"), total);
      setText(note, `${answer.first_day} to ${answer.last_day}, days in UTC: ${count(total.requests)} requests, ${count(total.prompt_tokens)} prompt tokens, ${count(total.output_tokens)} output tokens.`);
      setText(problem, answer.problem);
      announce(`Usage of ${month.value}.`);
    } catch (error) {
      if (error.name !== "AbortError") setText(problem, `The usage cannot be read: ${error.message}`);
    }
  }

  load();
  return {
    element: element(
      "div",
      {},
      element("div", { class: "panel-head" }, element("h1", {}, "Usage"), element("span", { class: "grow" }), element("label", { class: "field" }, "Month ", month), again),
      note,
      problem,
      [["By API key", keys], ["By model", models], ["By API key and model", both]].map(([title, table]) => element("section", { class: "panel" }, element("h2", {}, title), table.element)),
    ),
    close: () => controller.abort(),
  };
}

function usageTable(caption, title, unnamed) {
  const number = (of, field, format = count) => ({ title: of, number: true, text: ({ sums }) => format(sums[field]) });
  const table = keyedTable({
    caption,
    empty: "No usage in this month.",
    rowClass: ({ isTotal }) => (isTotal ? "total" : null),
    columns: [
      { title, wrap: true, text: ({ name, isTotal }) => (isTotal ? "Total" : name || unnamed) },
      number("Requests", "requests"),
      number("Failed", "errors"),
      number("Refused", "refusals"),
      number("Cancelled", "cancelled"),
      number("Prompt tokens", "prompt_tokens"),
      number("Cached", "cached_tokens"),
      number("Output tokens", "output_tokens"),
      number("Engine time", "engine_seconds", duration),
    ],
  });
  return {
    element: table.element,
    sync(found, total) {
      const rows = found.map(([name, sums]) => [`row ${name}`, { name, sums }]);
      table.sync(rows.length > 1 ? [...rows, ["total", { sums: total, isTotal: true }]] : rows);
    },
  };
}
