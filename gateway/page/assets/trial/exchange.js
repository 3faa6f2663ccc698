// One question and its answer, as the page shows them. All of it is text: a model's answer never becomes HTML.
import { copyText } from "../curl_box.js";
import { element, setText } from "../dom.js";
import { count, duration, rate } from "../format.js";
import { thumbnail } from "./attachments.js";
import { isOver, measures, parts } from "./conversation.js";

const STATES = { done: "", waiting: "waiting", running: "answering", stopped: "stopped", failed: "failed" };

export class ExchangeView {
  #answer = null;
  #stable = 0; // where the last shown part begins: the parts before it do not change any more
  #last = null; // the element of that part

  constructor(question, { announce, retry }) {
    this.state = element("span", { class: "tag", hidden: true });
    this.model = element("h3");
    this.reasoning = element("div", { class: "text" });
    this.thoughts = element("details", { class: "reasoning", hidden: true }, element("summary", {}, "Reasoning"), this.reasoning);
    this.text = element("div", { class: "answer-text" });
    this.calls = element("ul", { class: "plain calls", "aria-label": "Tool calls", hidden: true });
    this.problem = element("p", { class: "problem", hidden: true });
    this.facts = element("p", { class: "soft facts-line" });
    this.copy = element("button", { type: "button", class: "small", hidden: true, onclick: () => copyText(this.#answer.text, this.text).then(announce) }, "Copy");
    this.retry = element("button", { type: "button", class: "small", hidden: true, onclick: retry }, "Try again");
    const pictures = question.pictures.length ? element("div", { class: "thumbnails" }, question.pictures.map(thumbnail)) : null;
    this.question = element("article", { class: "question", "aria-label": "Question" }, element("h3", {}, "You"), pictures, element("div", { class: "text" }, question.text));
    this.article = element(
      "article",
      { class: "answer", "aria-label": "Answer" },
      element("div", { class: "trial-actions" }, this.model, this.state),
      ...[this.thoughts, this.text, this.calls, this.problem],
      element("div", { class: "trial-actions" }, this.facts, this.copy, this.retry),
    );
    this.element = element("li", {}, this.question, this.article);
  }

  // `waiting`: what the answer waits for, in words; `last`: whether its question may be sent again.
  update(answer, { waiting = "", last = false } = {}) {
    const over = isOver(answer);
    this.retry.hidden = !over || !last || answer.state === "done";
    if (answer !== this.#answer) {
      this.#answer = answer;
      setText(this.model, answer.model);
      setText(this.state, STATES[answer.state]);
      this.state.hidden = !STATES[answer.state];
      this.state.classList.toggle("bad", answer.state === "failed");
      this.thoughts.hidden = !answer.reasoning;
      append(this.reasoning, answer.reasoning.trimStart());
      this.#showText(answer.text.trimStart()); // many models begin with a blank
      this.#showCalls(answer.calls);
      setText(this.problem, answer.problem);
      this.problem.hidden = !answer.problem;
      this.copy.hidden = !over || !answer.text;
    }
    setText(this.facts, answer.state === "waiting" ? waiting : factsOf(answer));
  }

  // Only what follows `#stable` is divided into parts again.
  #showText(text) {
    const found = parts(text.slice(this.#stable));
    found.forEach((part, place) => {
      if (place || !this.#last) {
        this.#last = element(part.code ? "pre" : "div", { class: part.code ? "code" : "text", "data-language": part.language || null, tabindex: part.code ? 0 : null });
        this.text.append(this.#last);
      }
      append(this.#last, part.code ? part.text.replace(/\n$/, "") : part.text.replace(/^\n+|\s+$/g, ""));
    });
    if (found.length) this.#stable += found.at(-1).start;
  }

  #showCalls(calls) {
    this.calls.hidden = !calls.length;
    if (!calls.length) return;
    this.calls.replaceChildren(...calls.map((call) => element("li", {}, element("strong", {}, call.name), element("pre", {}, pretty(call.arguments)))));
  }
}

// Gives an element a longer text; what was there before stays the same node, so that a selection stays.
function append(target, text) {
  const node = target.firstChild;
  if (!node) target.append(text);
  else if (text.startsWith(node.data)) node.appendData(text.slice(node.length));
  else node.data = text;
}

function pretty(words) {
  try {
    return JSON.stringify(JSON.parse(words), null, 2);
  } catch {
    return words;
  }
}

function factsOf(answer) {
  const { firstToken, outputTokens, promptTokens, cachedTokens, pieces, tokensPerSecond } = measures(answer);
  const cached = cachedTokens ? `, ${count(cachedTokens)} of them cached` : "";
  return [
    firstToken === null ? "" : `first token ${duration(firstToken)}`,
    tokensPerSecond === null ? "" : `${rate(tokensPerSecond)} tokens/s`,
    outputTokens === null ? pieces && `about ${count(pieces)} tokens` : `${count(outputTokens)} tokens`,
    promptTokens === null ? "" : `${count(promptTokens)} prompt tokens${cached}`,
    answer.note,
  ]
    .filter(Boolean)
    .join(" · ");
}
