// The requests that try a model: what each sends, as the page and its curl line both have it. Pure.
//
// A request is { method, path, body or form, files?, output?, picture?, stream? }, as curlLine() takes them. A value of a form
// is a text or { file, blob }.

const CHAT = "chat";

// The model's type → the name of the form that tries it; models of other types cannot be tried here.
export const FORMS = {
  llm: CHAT,
  image: "drawing",
  audio: "transcription",
  tts: "speech",
  embedding: "embedding",
  reranking: "reranking",
};

// Returns the form of a model of GET /v1/models?show_all=true; "" if there is none.
export function formOf(model) {
  return FORMS[model.model_type] ?? "";
}

// Whether a chat with the model may have pictures.
export function takesPictures(model) {
  return formOf(model) === CHAT && model.labels.includes("vision");
}

// The next answer of a conversation. `exchanges`: the former ones, of conversation.js; `question`: { text, pictures }.
// `options`: { system, temperature, maxTokens, tools, seesPictures }, all optional; numbers are null if they are left to the
// server. A model that sees no pictures only gets the words of former questions: another model may have had the pictures.
export function chatRequest(model, exchanges, question, options = {}) {
  const { system = "", temperature = null, maxTokens = null, tools = [], seesPictures = true } = options;
  const messages = system ? [{ role: "system", content: system }] : [];
  const pictures = [];
  for (const each of exchanges) {
    const { answer } = each;
    // Many models refuse two questions in a row, so a question whose answer failed is not sent again.
    if (!answer.text && !answer.calls.length) continue;
    messages.push(asked(each.question, pictures, seesPictures));
    const calls = answer.calls.map(({ id, name, arguments: words }) => ({ id, type: "function", function: { name, arguments: words } }));
    messages.push({ role: "assistant", content: answer.text, ...(calls.length ? { tool_calls: calls } : {}) });
    // The page has no tools, but each call needs a result before the next question.
    for (const call of calls) messages.push({ role: "tool", tool_call_id: call.id, content: "The tool is not available." });
  }
  messages.push(asked(question, pictures, seesPictures));
  const body = { model, messages, stream: true, stream_options: { include_usage: true } };
  if (temperature !== null) body.temperature = temperature;
  if (maxTokens !== null) body.max_tokens = maxTokens;
  if (tools.length) body.tools = tools;
  return { method: "POST", path: "v1/chat/completions", body, files: pictures, stream: true };
}

function asked({ text, pictures }, files, seesPictures) {
  if (!pictures.length) return { role: "user", content: text };
  if (!seesPictures) return { role: "user", content: text || "(a picture)" };
  files.push(...pictures);
  const parts = pictures.map(({ url }) => ({ type: "image_url", image_url: { url } }));
  return { role: "user", content: text ? [{ type: "text", text }, ...parts] : parts };
}

// A picture of a prompt. `options`: { size, steps, seed, avoid }; empty texts and nulls are left to the server.
export function drawingRequest(model, prompt, options = {}) {
  const { size = "", steps = null, seed = null, avoid = "" } = options;
  const body = { model, prompt };
  if (size) body.size = size;
  if (steps !== null) body.steps = steps;
  if (seed !== null) body.seed = seed;
  if (avoid) body.negative_prompt = avoid;
  return { method: "POST", path: "v1/images/generations", body, picture: "picture.png" };
}

// A picture of a prompt and another picture, a File: how much of that may change is `strength`, from 0 to 1.
export function editRequest(model, prompt, picture, { strength = null, ...options } = {}) {
  const { body } = drawingRequest(model, prompt, options);
  if (strength !== null) body.strength = strength;
  const form = Object.entries(body).map(([name, value]) => [name, String(value)]);
  form.push(["image", { file: picture.name, blob: picture }]);
  return { method: "POST", path: "v1/images/edits", form, picture: "picture.png" };
}

// A text read aloud.
export function speechRequest(model, text, { voice = "", speed = null, format = "wav" } = {}) {
  const body = { model, input: text, response_format: format };
  if (voice) body.voice = voice;
  if (speed !== null) body.speed = speed;
  return { method: "POST", path: "v1/audio/speech", body, output: `speech.${format}` };
}

// The text of a recording, a File. `language`: "" lets the model find out.
export function transcriptionRequest(model, recording, language = "") {
  const form = [
    ["model", model],
    ["file", { file: recording.name, blob: recording }],
  ];
  if (language) form.splice(1, 0, ["language", language]);
  return { method: "POST", path: "v1/audio/transcriptions", form };
}

// The vectors of texts.
export function embeddingRequest(model, texts) {
  return { method: "POST", path: "v1/embeddings", body: { model, input: texts.length === 1 ? texts[0] : texts } };
}

// How well documents answer a query.
export function rerankingRequest(model, query, documents) {
  return { method: "POST", path: "v1/rerank", body: { model, query, documents } };
}

// The cosine of the angle between two vectors: 1 for the same direction; null if one of them is zero.
export function cosine(one, other) {
  let dot = 0;
  let ones = 0;
  let others = 0;
  for (let place = 0; place < one.length; place += 1) {
    dot += one[place] * other[place];
    ones += one[place] ** 2;
    others += other[place] ** 2;
  }
  return ones && others ? dot / Math.sqrt(ones * others) : null;
}
