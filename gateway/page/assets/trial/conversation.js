// A conversation with a model: its exchanges, and how an answer grows with each event of its stream. Pure.

export const MAX_EXCHANGES = 100; // the oldest are forgotten, so that a page that is open for a day holds its memory
export const MAX_PICTURES = 30_000_000; // characters of all data URLs: each request sends them all, and servers usually take 32 MiB
export const MAX_ANSWER = 400_000; // characters of an answer; a model may never stop by itself
const CUT_OFF = "The connection ended before the answer was complete.";

// An answer's state: waiting, running, done, stopped (by the person), failed. Times are milliseconds.
export function newAnswer(model, now) {
  return {
    ...{ model, state: "waiting", text: "", reasoning: "", calls: [], problem: "", note: "" },
    ...{ askedAt: now, firstAt: null, lastAt: null, pieces: 0, usage: null, reported: null, position: null, wait: null },
  };
}

// What the response's header says of the queue: its position when it came, and the seconds until it is served.
export function withQueue(answer, headers) {
  const position = Number(headers.get("X-Queue-Position")) || null;
  return position ? { ...answer, position, wait: Number(headers.get("X-Queue-Wait")) || null } : answer;
}

// Returns the answer after one event of the stream of chat/completions.
export function received(answer, data, now) {
  if (isOver(answer)) return answer;
  if (data === "[DONE]") return { ...answer, state: "done" };
  let chunk;
  try {
    chunk = JSON.parse(data);
  } catch {
    return failed(answer, "The answer was cut off in the middle of an event.");
  }
  if (chunk.error) return failed(answer, chunk.error.message ?? String(chunk.error));
  const next = { ...answer };
  if (chunk.usage) next.usage = chunk.usage;
  if (chunk.timings) next.reported = chunk.timings;
  const choice = chunk.choices?.[0];
  if (choice?.finish_reason === "length") next.note = "Stopped at the limit of tokens.";
  if (choice?.finish_reason === "content_filter") next.note = "Stopped by a filter.";
  const delta = choice?.delta ?? {};
  const content = delta.content ?? "";
  const reasoning = delta.reasoning_content ?? "";
  if (!content && !reasoning && !delta.tool_calls) return next;
  next.state = "running";
  next.firstAt ??= now;
  next.lastAt = now;
  next.pieces += 1;
  next.text += content;
  next.reasoning += reasoning;
  if (delta.tool_calls) next.calls = withCalls(next.calls, delta.tool_calls);
  return next;
}

// Whether the answer is so long that the page must stop it.
export function isTooLong(answer) {
  return answer.text.length + answer.reasoning.length > MAX_ANSWER;
}

function withCalls(calls, deltas) {
  const next = [...calls];
  for (const delta of deltas) {
    const place = delta.index ?? next.length;
    const before = next[place] ?? { id: "", name: "", arguments: "" };
    next[place] = {
      id: before.id || delta.id || `call-${place}`,
      name: before.name + (delta.function?.name ?? ""),
      arguments: before.arguments + (delta.function?.arguments ?? ""),
    };
  }
  return next.filter(Boolean);
}

// The answer when its stream ends: only the server's own end mark makes it whole.
export function ended(answer) {
  return isOver(answer) ? answer : failed(answer, CUT_OFF);
}

// The answer when its request failed with a problem: before it began, or because the connection broke.
export function broken(answer, problem) {
  return answer.state === "waiting" ? failed(answer, problem) : ended(answer);
}

export function failed(answer, problem) {
  return { ...answer, state: "failed", problem };
}

export function stopped(answer, note = "Stopped.") {
  return isOver(answer) ? answer : { ...answer, state: "stopped", note };
}

export function isOver(answer) {
  return answer.state !== "waiting" && answer.state !== "running";
}

// What was measured: seconds, and tokens where the server has counted them. Values that are unknown are null.
export function measures(answer) {
  const firstToken = answer.firstAt === null ? null : (answer.firstAt - answer.askedAt) / 1000;
  const outputTokens = answer.usage?.completion_tokens ?? null;
  const seconds = answer.firstAt === null ? 0 : (answer.lastAt - answer.firstAt) / 1000;
  const counted = outputTokens ?? answer.pieces; // until the end, each piece is about one token
  const measured = seconds > 0 && counted > 1 ? (counted - 1) / seconds : null;
  return {
    firstToken,
    outputTokens,
    promptTokens: answer.usage?.prompt_tokens ?? null,
    cachedTokens: answer.usage?.prompt_tokens_details?.cached_tokens ?? null,
    pieces: answer.pieces,
    tokensPerSecond: answer.reported?.predicted_per_second ?? measured,
  };
}

// The exchanges with one more, [{ question, answer }, …], and without the oldest ones that are too many.
export function withExchange(exchanges, exchange) {
  const kept = [exchange];
  let size = sizeOf(exchange);
  for (const each of exchanges.toReversed()) {
    size += sizeOf(each);
    if (kept.length === MAX_EXCHANGES || size > MAX_PICTURES) break;
    kept.unshift(each);
  }
  return kept;
}

function sizeOf({ question }) {
  return question.pictures.reduce((size, { url }) => size + url.length, 0);
}

// The parts of an answer between fences of code: [{ code, language, text, start }], where `start` is their place in the text.
// A fence that is not closed yet lasts to the end.
export function parts(text) {
  const found = [];
  let part = { code: false, language: "", text: "", start: 0 };
  let fence = "";
  const begin = (next) => {
    if (part.text || part.code) found.push(part);
    part = next;
  };
  for (const { 0: line, index } of text.matchAll(/[^\n]*\n|[^\n]+$/g)) {
    const [, mark, language] = /^ {0,3}(`{3,}|~{3,})([^`\n]*)\n?$/.exec(line) ?? [];
    if (!fence && mark && line.endsWith("\n")) {
      begin({ code: true, language: language.trim(), text: "", start: index });
      fence = mark;
    } else if (fence && mark?.startsWith(fence) && !language.trim()) {
      begin({ code: false, language: "", text: "", start: index + line.length });
      fence = "";
    } else {
      part.text += line;
    }
  }
  if (part.text || part.code) found.push(part);
  return found;
}
