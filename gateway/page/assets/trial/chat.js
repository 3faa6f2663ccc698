// A chat: streamed answers, pictures in questions, and the options of the next request.
import { curlBox } from "../curl_box.js";
import { element, setText } from "../dom.js";
import { EventParser } from "../events.js";
import { field } from "../fields.js";
import { Attachments } from "./attachments.js";
import { numberInput, numberOf, textArea } from "./controls.js";
import * as conversation from "./conversation.js";
import { ExchangeView } from "./exchange.js";
import { progressText } from "./progress.js";
import { newRequestId } from "./request_form.js";
import { chatRequest, takesPictures } from "./requests.js";

const TICK_MS = 500;
const SPOKEN = 1000; // characters of an answer that a screen reader hears by itself

export class Chat {
  #context;
  #model = null;
  #exchanges = []; // [{ question, answer, view }]
  #sent = null; // { abort, requestId } of the answer that is being written
  #frame = 0;
  #timer = 0;

  constructor(context) {
    this.#context = context;
    this.system = textArea({ rows: 2 });
    this.temperature = numberInput({ min: 0, max: 2, step: 0.1 });
    this.maxTokens = numberInput({ min: 1, step: 1, value: 512, placeholder: "no limit" });
    this.tools = textArea({ rows: 3, class: "mono", spellcheck: "false" });
    this.message = textArea({ rows: 3, placeholder: "Enter sends, Shift+Enter begins a new line" });
    this.problem = element("p", { class: "problem", hidden: true });
    this.list = element("ol", { class: "plain exchanges" });
    this.log = element("div", { class: "conversation", role: "region", "aria-label": "Conversation", tabindex: 0, hidden: true }, this.list);
    this.send = element("button", { type: "submit", class: "primary" }, "Send");
    this.stop = element("button", { type: "button", hidden: true, onclick: () => this.#sent?.abort.abort() }, "Stop");
    this.clear = element("button", { type: "button", disabled: true, onclick: () => this.#clear() }, "Clear");
    this.attachments = new Attachments({ onChange: () => this.curl?.update(), onProblem: (text) => this.#fail(text) });
    this.curl = curlBox({ ...context, request: () => this.#next() });
    this.form = this.#form();
    this.element = element("section", { class: "panel trial-panel chat", "aria-label": "Chat" }, element("h2", {}, "Chat"), this.log, this.form, this.curl.element);
    this.attachments.listen(this.message, this.element, () => takesPictures(this.#model));
  }

  #form() {
    const options = element(
      "details",
      { class: "options" },
      element("summary", {}, "Options"),
      field("System prompt", this.system),
      element("div", { class: "trial-row" }, field("Temperature", this.temperature), field("Max tokens", this.maxTokens)),
      field("Tools", this.tools, "A JSON array, as the field tools of chat/completions has it."),
    );
    const { button, input, list } = this.attachments;
    const actions = element("div", { class: "trial-actions" }, this.send, this.stop, button, input, this.clear);
    const form = element("form", { class: "trial-form" }, field("Message", this.message), list, actions, this.problem, options);
    form.noValidate = true;
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    form.addEventListener("input", () => this.curl.update());
    this.message.addEventListener("keydown", (event) => {
      // While an input method composes a character, Enter ends the composition.
      if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
      event.preventDefault();
      this.#submit();
    });
    return form;
  }

  choose(model) {
    this.#model = model;
    this.attachments.button.hidden = !takesPictures(model);
    if (!takesPictures(model)) this.attachments.take();
    this.curl.update();
  }

  update() {
    if (this.#sent) this.#render();
  }

  close() {}

  // The request that would be sent now; null if a field is wrong or there is nothing to send.
  #next() {
    try {
      const text = this.message.value;
      const { pictures } = this.attachments;
      return text.trim() || pictures.length ? this.#request({ text, pictures }) : this.#former();
    } catch {
      return null;
    }
  }

  // After a message was sent, the curl line still shows it.
  #former() {
    const last = this.#exchanges.at(-1);
    return last ? chatRequest(this.#model.id, this.#exchanges.slice(0, -1), last.question, this.#options()) : null;
  }

  #request(question) {
    const former = conversation.withExchange(this.#exchanges, { question }).slice(0, -1);
    return chatRequest(this.#model.id, former, question, this.#options());
  }

  // Throws an error in words if a field is wrong.
  #options() {
    const tools = this.tools.value.trim();
    return {
      system: this.system.value.trim(),
      temperature: numberOf(this.temperature, "Temperature"),
      maxTokens: numberOf(this.maxTokens, "Max tokens"),
      tools: tools ? arrayOf(tools) : [],
      seesPictures: takesPictures(this.#model),
    };
  }

  #submit() {
    const text = this.message.value;
    if (this.#sent || (!text.trim() && !this.attachments.pictures.length)) return;
    const question = { text, pictures: this.attachments.pictures };
    if (!this.#ask(question)) return;
    this.message.value = "";
    this.attachments.take();
    this.curl.update();
  }

  // Sends a question; returns whether the fields were right.
  #ask(question) {
    this.#fail("");
    let request;
    try {
      request = this.#request(question);
    } catch (problem) {
      this.#fail(problem.message);
      return false;
    }
    const view = new ExchangeView(question, { announce: this.#context.announce, retry: () => this.#again() });
    const exchange = { question, answer: conversation.newAnswer(this.#model.id, performance.now()), view };
    const kept = conversation.withExchange(this.#exchanges, exchange);
    for (const each of this.#exchanges) if (!kept.includes(each)) each.view.element.remove();
    this.#exchanges = kept;
    this.list.append(view.element);
    this.log.hidden = false;
    this.#stream(exchange, request);
    this.log.scrollTop = this.log.scrollHeight;
    this.message.scrollIntoView({ block: "nearest" });
    return true;
  }

  // The last question once more, instead of its answer that was stopped or failed.
  #again() {
    if (this.#sent) return;
    const { question, view } = this.#exchanges.at(-1);
    const before = this.#exchanges;
    this.#exchanges = this.#exchanges.slice(0, -1);
    if (!this.#ask(question)) {
      this.#exchanges = before;
      return;
    }
    view.element.remove();
    this.message.focus();
  }

  async #stream(exchange, request) {
    const sent = { abort: new AbortController(), requestId: newRequestId() };
    const { api, announce } = this.#context;
    const { signal } = sent.abort;
    const take = (change) => {
      exchange.answer = change(exchange.answer);
      this.#render();
    };
    this.#working(sent);
    try {
      const headers = { "X-Request-ID": sent.requestId, Accept: "text/event-stream" };
      const response = await api.request(request.method, request.path, { json: request.body, headers, signal });
      take((answer) => conversation.withQueue(answer, response.headers));
      const onEvent = ({ data }) => {
        take((answer) => conversation.received(answer, data, performance.now()));
        if (!conversation.isTooLong(exchange.answer)) return;
        take((answer) => conversation.stopped(answer, "Stopped by this page: the answer is too long to be shown."));
        sent.abort.abort();
      };
      await api.texts(response, new EventParser(), onEvent, signal);
      take(conversation.ended);
    } catch (problem) {
      take((answer) => (problem.name === "AbortError" ? conversation.stopped(answer) : conversation.broken(answer, problem.message)));
    }
    this.#working(null);
    this.curl.update();
    if (document.activeElement === this.message) this.message.scrollIntoView({ block: "nearest" });
    announce(spoken(exchange.answer));
  }

  #working(sent) {
    const focused = document.activeElement;
    this.#sent = sent;
    this.send.disabled = Boolean(sent);
    this.stop.hidden = !sent;
    this.clear.disabled = Boolean(sent) || !this.#exchanges.length;
    if (focused === this.stop || focused === this.send) (sent ? this.stop : this.message).focus();
    clearInterval(this.#timer);
    this.#timer = sent ? setInterval(() => this.#render(), TICK_MS) : 0;
    this.#render();
  }

  // At most once for each frame, however many tokens arrive.
  #render() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      const atEnd = this.log.scrollHeight - this.log.scrollTop - this.log.clientHeight < 40;
      const last = this.#exchanges.at(-1);
      for (const exchange of this.#exchanges.slice(-2)) exchange.view.update(exchange.answer, { last: exchange === last && !this.#sent, waiting: this.#waiting(exchange) });
      if (atEnd) this.log.scrollTop = this.log.scrollHeight;
    });
  }

  #waiting({ answer }) {
    if (answer.state !== "waiting" || !this.#sent) return "";
    const { model, position } = answer;
    const seconds = (performance.now() - answer.askedAt) / 1000;
    return progressText({ seconds, model, position, requestId: this.#sent.requestId, overview: this.#context.store.overview });
  }

  #clear() {
    this.#exchanges = [];
    this.list.replaceChildren();
    this.log.hidden = true;
    this.clear.disabled = true;
    this.#fail("");
    this.curl.update();
    this.message.focus();
    this.#context.announce("The conversation is cleared.");
  }

  #fail(text) {
    setText(this.problem, text);
    this.problem.hidden = !text;
    if (text) this.#context.announce(text);
  }
}

function arrayOf(text) {
  let tools = null;
  try {
    tools = JSON.parse(text);
  } catch (problem) {
    throw new Error(`Tools: ${problem.message}`);
  }
  if (!Array.isArray(tools)) throw new Error("Tools: this is not a JSON array.");
  return tools;
}

function spoken(answer) {
  const words = [answer.text.trim().slice(0, SPOKEN), answer.calls.length ? `Tool calls: ${answer.calls.map((call) => call.name).join(", ")}.` : ""];
  if (answer.state === "failed") words.push(`The answer failed: ${answer.problem}`);
  else words.push(answer.note || "");
  return words.filter(Boolean).join(" ") || "The answer is empty.";
}
