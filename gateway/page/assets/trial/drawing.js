// Pictures of a prompt, and of another picture if there is one.
import { element } from "../dom.js";
import { field, select } from "../fields.js";
import { Download, numberInput, numberOf, textArea } from "./controls.js";
import { RequestForm } from "./request_form.js";
import { drawingRequest, editRequest } from "./requests.js";

const KEPT = 8; // pictures; older ones are forgotten
const SIZES = [["", "default"], ...["256x256", "512x512", "768x768", "1024x1024", "1024x576", "576x1024"].map((size) => [size, size])];

export function drawing(context) {
  const prompt = textArea({ placeholder: "What to draw" });
  const avoid = element("input", { type: "text", maxlength: 4000 });
  const size = select(SIZES);
  const steps = numberInput({ min: 1, max: 100, step: 1 });
  const seed = numberInput({ min: 0, step: 1, placeholder: "random" });
  const start = element("input", { type: "file", accept: "image/png,image/jpeg" });
  const strength = numberInput({ min: 0, max: 1, step: 0.05 });
  const pictures = element("ul", { class: "plain pictures", "aria-label": "Pictures" });
  const shown = [];

  async function show(response, request) {
    const answer = await response.json();
    for (const each of answer.data ?? []) {
      const bytes = Uint8Array.from(atob(each.b64_json), (character) => character.charCodeAt(0));
      const file = new Download(new Blob([bytes], { type: "image/png" }), `picture-${each.seed ?? shown.length}.png`);
      const image = element("img", { src: file.url, alt: (request.body ?? Object.fromEntries(request.form)).prompt });
      const seedText = each.seed === undefined ? "" : `Seed ${each.seed}`;
      const item = element("li", {}, image, element("div", { class: "trial-actions" }, element("span", { class: "soft" }, [answer.size, seedText].filter(Boolean).join(", ")), file.link));
      pictures.prepend(item);
      shown.push({ file, item });
    }
    for (const old of shown.splice(0, Math.max(0, shown.length - KEPT))) {
      old.file.close();
      old.item.remove();
    }
    return "The picture is drawn.";
  }

  return new RequestForm(context, {
    ...{ title: "Picture", submit: "Draw", empty: "Write what to draw.", result: pictures, show },
    fields: [
      field("Prompt", prompt),
      element("div", { class: "trial-row" }, field("Size", size), field("Steps", steps), field("Seed", seed), field("What to avoid", avoid)),
      element("div", { class: "trial-row" }, field("Start from a picture", start, "Optional: a PNG or JPEG to change."), field("Strength", strength, "How much of it may change.")),
    ],
    build(model) {
      const options = { size: size.value, steps: numberOf(steps, "Steps"), seed: numberOf(seed, "Seed"), avoid: avoid.value.trim() };
      if (!prompt.value.trim()) return null;
      const [picture] = start.files;
      if (!picture) return drawingRequest(model, prompt.value, options);
      return editRequest(model, prompt.value, picture, { ...options, strength: numberOf(strength, "Strength") });
    },
  });
}
