// The microphone, for as long as a person records.

const LONGEST_MS = 10 * 60 * 1000; // a forgotten recording ends
const TYPES = [["audio/webm;codecs=opus", "webm"], ["audio/ogg;codecs=opus", "ogg"], ["audio/mp4", "m4a"]];

// Why the browser gives no microphone, in words; "" if it may.
export function recordingRefusal() {
  if (!window.isSecureContext) return "Browsers allow the microphone only on https:// and on localhost. Choose a file instead.";
  if (!navigator.mediaDevices?.getUserMedia || !window.MediaRecorder) return "This browser cannot record. Choose a file instead.";
  return "";
}

export class Recorder {
  #recorder = null;
  #starting = false;

  // onSeconds(seconds) each second; onEnd(file, problem) once for each start: a File, or null and the reason in words.
  constructor({ onSeconds, onEnd }) {
    this.onSeconds = onSeconds;
    this.onEnd = onEnd;
  }

  get running() {
    return this.#starting || this.#recorder !== null;
  }

  async start() {
    if (this.running) return;
    this.#starting = true;
    let stream;
    try {
      stream = await navigator.mediaDevices.getUserMedia({ audio: true });
    } catch (problem) {
      const wasWanted = this.#starting;
      this.#starting = false;
      this.onEnd(null, wasWanted ? refusal(problem) : "Not recorded.");
      return;
    }
    if (!this.#starting) {
      for (const track of stream.getTracks()) track.stop();
      this.onEnd(null, "Not recorded.");
      return;
    }
    this.#starting = false;
    this.#record(stream);
  }

  stop() {
    this.#starting = false;
    if (this.#recorder?.state === "recording") this.#recorder.stop();
  }

  #record(stream) {
    const [type, suffix] = TYPES.find(([each]) => MediaRecorder.isTypeSupported(each)) ?? ["", "bin"];
    const pieces = [];
    const recorder = new MediaRecorder(stream, type ? { mimeType: type } : {});
    const began = performance.now();
    const timer = setInterval(() => {
      const elapsed = performance.now() - began;
      if (elapsed >= LONGEST_MS) this.stop();
      this.onSeconds(Math.round(elapsed / 1000));
    }, 1000);
    recorder.ondataavailable = (event) => pieces.push(event.data);
    recorder.onstop = () => {
      clearInterval(timer);
      for (const track of stream.getTracks()) track.stop();
      this.#recorder = null;
      const file = new File(pieces, `recording.${suffix}`, { type: recorder.mimeType });
      this.onEnd(file.size ? file : null, file.size ? "" : "Nothing was recorded.");
    };
    this.#recorder = recorder;
    recorder.start(1000);
    this.onSeconds(0);
  }
}

function refusal(problem) {
  if (problem.name === "NotAllowedError") return "The browser refused the microphone: allow it in the settings of this page.";
  if (problem.name === "NotFoundError") return "There is no microphone.";
  return `The microphone cannot be used: ${problem.message}`;
}
