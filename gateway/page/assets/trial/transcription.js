// The text of a recording: a file, or what the microphone hears.
import { copyText } from "../curl_box.js";
import { element } from "../dom.js";
import { field } from "../fields.js";
import { Download } from "./controls.js";
import { Recorder, recordingRefusal } from "./recorder.js";
import { RequestForm } from "./request_form.js";
import { transcriptionRequest } from "./requests.js";

export function transcription(context) {
  const input = element("input", { type: "file", accept: "audio/*,video/*" });
  const language = element("input", { type: "text", placeholder: "automatic", maxlength: 20, autocomplete: "off" });
  const record = element("button", { type: "button" }, "Record");
  const about = element("span", { class: "soft" });
  const player = element("audio", { controls: true, hidden: true, "aria-label": "Recording" });
  const text = element("div", { class: "text transcript" });
  const copy = element("button", { type: "button", class: "small", onclick: () => copyText(text.textContent, text).then(context.announce) }, "Copy");
  const result = element("div", { class: "trial-result", hidden: true }, element("h3", {}, "Transcript"), text, element("div", { class: "trial-actions" }, copy));
  let recorded = null; // a File
  let sound = null;

  const recorder = new Recorder({
    onSeconds: (seconds) => (about.textContent = `Recording: ${seconds} s`),
    onEnd(file, problem) {
      record.textContent = "Record";
      about.textContent = problem || `Recorded: ${file.name}`;
      context.announce(about.textContent);
      if (!file) return;
      input.value = "";
      take(file);
    },
  });
  const refusal = recordingRefusal();
  record.disabled = Boolean(refusal);
  about.textContent = refusal;
  record.addEventListener("click", () => {
    if (recorder.running) recorder.stop();
    else recorder.start();
    record.textContent = "Stop recording";
  });
  input.addEventListener("change", () => {
    if (!input.files.length) return;
    about.textContent = refusal;
    take(input.files[0]);
  });

  function take(file) {
    recorded = file;
    sound?.close();
    sound = new Download(file, file.name);
    player.src = sound.url;
    player.hidden = false;
    form.curl.update();
  }

  async function show(response) {
    const answer = await response.json();
    text.textContent = answer.text.trim() || "Nothing was heard.";
    result.hidden = false;
    return `Transcript: ${text.textContent.slice(0, 500)}`;
  }

  const form = new RequestForm(context, {
    ...{ title: "Transcription", submit: "Transcribe", empty: "Choose a sound file, or record one.", result, show },
    fields: [
      element("div", { class: "trial-row" }, field("Sound file", input), field("Language", language, "such as en or German")),
      element("div", { class: "trial-actions" }, record, about),
      player,
    ],
    build: (model) => (recorded ? transcriptionRequest(model, recorded, language.value.trim()) : null),
    close() {
      recorder.stop();
      player.pause();
    },
  });
  return form;
}
