// The vector of a text, and how near the vectors of two texts are.
import { element } from "../dom.js";
import { field } from "../fields.js";
import { count } from "../format.js";
import { textArea } from "./controls.js";
import { RequestForm } from "./request_form.js";
import { cosine, embeddingRequest } from "./requests.js";

const FIRST = 8; // numbers that are shown of a vector

export function embedding(context) {
  const one = textArea({ rows: 2 });
  const other = textArea({ rows: 2 });
  const result = element("dl", { class: "trial-facts", hidden: true });

  async function show(response) {
    const { data, usage } = await response.json();
    const vectors = data.map((each) => each.embedding);
    const near = vectors.length > 1 ? cosine(vectors[0], vectors[1]) : null;
    const facts = [
      near !== null && ["Cosine", near.toFixed(4)],
      ["Dimensions", count(vectors[0].length)],
      ...vectors.map((vector, place) => [vectors.length > 1 ? `Text ${place + 1}` : "Vector", `${vector.slice(0, FIRST).map((each) => each.toFixed(4)).join(", ")}, …`]),
      usage && ["Tokens", count(usage.total_tokens)],
    ].filter(Boolean);
    result.replaceChildren(...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
    result.hidden = false;
    return near === null ? `A vector of ${vectors[0].length} dimensions.` : `Cosine ${near.toFixed(4)}.`;
  }

  return new RequestForm(context, {
    ...{ title: "Embeddings", submit: "Embed", empty: "Write a text.", result, show },
    fields: [field("Text", one), field("Another text", other, "Optional: compared with the first.")],
    build(model) {
      const texts = [one.value, other.value].filter((text) => text.trim());
      return texts.length ? embeddingRequest(model, texts) : null;
    },
  });
}
