// Documents in the order in which they answer a query.
import { element } from "../dom.js";
import { field } from "../fields.js";
import { textArea } from "./controls.js";
import { RequestForm } from "./request_form.js";
import { rerankingRequest } from "./requests.js";

export function reranking(context) {
  const query = element("input", { type: "text" });
  const documents = textArea({ rows: 5 });
  const rows = element("tbody");
  const head = element("tr", {}, element("th", { scope: "col", class: "number" }, "Score"), element("th", { scope: "col" }, "Document"));
  const result = element("div", { class: "table-wrap", hidden: true }, element("table", {}, element("thead", {}, head), rows));

  async function show(response, request) {
    const { results } = await response.json();
    const best = [...results].sort((a, b) => b.relevance_score - a.relevance_score);
    const cells = best.map(({ index, relevance_score: score }) => [score.toFixed(4), request.body.documents[index]]);
    rows.replaceChildren(...cells.map(([score, text]) => element("tr", {}, element("td", { class: "number" }, score), element("td", {}, text))));
    result.hidden = false;
    return `Best: ${cells[0][1].slice(0, 200)}`;
  }

  return new RequestForm(context, {
    ...{ title: "Reranking", submit: "Rank", empty: "Write a query and some documents.", result, show },
    fields: [field("Query", query), field("Documents", documents, "One per line.")],
    build(model) {
      const texts = documents.value.split("\n").filter((line) => line.trim());
      return query.value.trim() && texts.length ? rerankingRequest(model, query.value, texts) : null;
    },
  });
}
