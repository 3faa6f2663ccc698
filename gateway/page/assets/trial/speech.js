// A text read aloud.
import { element } from "../dom.js";
import { field, select } from "../fields.js";
import { Download, numberInput, numberOf, textArea } from "./controls.js";
import { RequestForm } from "./request_form.js";
import { speechRequest } from "./requests.js";

const FORMATS = ["wav", "mp3", "opus", "flac"].map((each) => [each, each]);

export function speech(context) {
  const text = textArea({ placeholder: "What to say" });
  const voice = select([["", "default"]]);
  const speed = numberInput({ min: 0.25, max: 4, step: 0.05 });
  const format = select(FORMATS);
  const player = element("audio", { controls: true, "aria-label": "Speech" });
  const place = element("div", { class: "trial-actions" });
  const result = element("div", { class: "sound", hidden: true }, player, place);
  let file = null;
  let asked = "";

  async function show(response, request) {
    file?.close();
    file = new Download(await response.blob(), request.output);
    player.src = file.url;
    place.replaceChildren(file.link);
    result.hidden = false;
    player.play().catch(() => {}); // a browser may want a click first
    return "The speech is ready.";
  }

  // The voices are read from the model's files, so this loads no model.
  async function choose(model) {
    if (asked === model) return;
    asked = model;
    voice.replaceChildren(element("option", { value: "" }, "default"));
    try {
      const { voices } = await context.api.json("GET", `v1/audio/voices?model=${encodeURIComponent(model)}`);
      if (asked === model) voice.append(...voices.map(({ id, name }) => element("option", { value: id }, name)));
    } catch {
      asked = ""; // the default voice is enough
    }
  }

  return new RequestForm(context, {
    ...{ title: "Speech", submit: "Speak", empty: "Write what to say.", result, show, choose },
    fields: [field("Text", text), element("div", { class: "trial-row" }, field("Voice", voice), field("Speed", speed), field("Format", format))],
    build(model) {
      const options = { voice: voice.value, speed: numberOf(speed, "Speed"), format: format.value };
      return text.value.trim() ? speechRequest(model, text.value, options) : null;
    },
    close: () => player.pause(),
  });
}
