// A form that sends one request at a time and shows its answer: everything but the chat is one of these.
import { curlBox } from "../curl_box.js";
import { element, setText } from "../dom.js";
import { duration } from "../format.js";
import { progressText } from "./progress.js";

const TICK_MS = 500;

// options:
//   title, submit     the heading, and the text of the button
//   fields            elements
//   result            the element where `show` puts answers
//   build(model)      returns the request; throws an error in words if a field is wrong; returns null if one is empty
//   show(response, request)  shows the answer and returns what a screen reader hears
//   empty             what to say if `build` returned null
//   choose?(model)    takes the name of the chosen model
//   close?()          the view is left
export class RequestForm {
  #context;
  #options;
  #model = "";
  #sent = null; // { abort, id, since, position }

  constructor(context, options) {
    this.#context = context;
    this.#options = options;
    this.progress = element("span", { class: "soft", "data-progress": true });
    this.problem = element("p", { class: "problem", hidden: true });
    this.submit = element("button", { type: "submit", class: "primary" }, options.submit);
    this.stop = element("button", { type: "button", hidden: true, onclick: () => this.#sent?.abort.abort() }, "Stop");
    this.curl = curlBox({ ...context, request: () => this.#built() });
    const form = element("form", { class: "trial-form" }, options.fields, element("div", { class: "trial-actions" }, this.submit, this.stop, this.progress), this.problem);
    form.noValidate = true;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    form.addEventListener("input", () => this.curl.update());
    form.addEventListener("change", () => this.curl.update());
    this.element = element("section", { class: "panel trial-panel", "aria-label": options.title }, element("h2", {}, options.title), form, options.result, this.curl.element);
  }

  choose(model) {
    this.#model = model.id;
    this.#options.choose?.(model.id);
    this.curl.update();
  }

  update(overview) {
    if (!this.#sent) return;
    const seconds = (performance.now() - this.#sent.since) / 1000;
    setText(this.progress, progressText({ ...this.#sent, seconds, overview }));
  }

  close() {
    this.#options.close?.();
  }

  #built() {
    try {
      return this.#options.build(this.#model);
    } catch {
      return null;
    }
  }

  async #send() {
    if (this.#sent) return;
    this.#fail("");
    let request;
    try {
      request = this.#options.build(this.#model);
      if (!request) throw new Error(this.#options.empty);
    } catch (problem) {
      this.#fail(problem.message);
      return;
    }
    const sent = { abort: new AbortController(), requestId: newRequestId(), since: performance.now(), model: this.#model };
    this.#sent = sent;
    this.submit.disabled = true;
    this.stop.hidden = false;
    const timer = setInterval(() => this.update(this.#context.store.overview), TICK_MS);
    this.update(this.#context.store.overview);
    try {
      const response = await this.#context.api.request(request.method, request.path, {
        ...(request.form ? { body: formData(request.form) } : { json: request.body }),
        headers: { "X-Request-ID": sent.requestId },
        signal: sent.abort.signal,
      });
      const text = await this.#options.show(response, request);
      this.#context.announce(text);
    } catch (problem) {
      if (problem.name !== "AbortError") this.#fail(problem.message);
    } finally {
      clearInterval(timer);
      const focused = document.activeElement === this.stop;
      this.#sent = null;
      this.submit.disabled = false;
      this.stop.hidden = true;
      if (focused) this.submit.focus();
      const seconds = (performance.now() - sent.since) / 1000;
      setText(this.progress, sent.abort.signal.aborted ? "Stopped." : this.problem.hidden ? `Took ${duration(seconds)}` : "");
    }
  }

  #fail(text) {
    setText(this.problem, text);
    this.problem.hidden = !text;
    if (text) this.#context.announce(text);
  }
}

// An id by which the overview and the log know the request.
export function newRequestId() {
  return `page-${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
}

function formData(form) {
  const data = new FormData();
  for (const [name, value] of form) {
    if (value.blob) data.append(name, value.blob, value.file);
    else data.append(name, value);
  }
  return data;
}
