// Writes the command line that sends a request of this page: it works when it is pasted into any POSIX shell. Pure.

const KEY = "Authorization: Bearer $LEMONBUS_API_KEY";
const MOST_ON_THE_LINE = 30_000; // characters of a body: Linux refuses an argument of 128 KiB
const DATA_URL = /^data:([\w.+-]+\/[\w.+-]+)[^,]*;base64,/;
const SHORTEST_FILE = 256; // a data URL with fewer characters stays in the line
// Characters that a terminal acts upon, or that show a line in another order than it has.
const DECEPTIVE = /[\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

// Returns the curl line of a request: curlLine("POST", "/v1/load", { model_name: "X" }, { key: true })
//
// body: what is sent as JSON. options:
//   key      whether to send the key, which the line takes from the variable LEMONBUS_API_KEY
//   form     pairs [name, value] of a form instead of a body; a value is a text or { file: NAME }
//   files    [{ name, url }]: files that the body has as data URLs. The line reads them from the current directory; one that
//            is not listed gets a name from its type
//   output   the file for an answer that is not a text
//   picture  the file for the picture in an answer of images/generations
//   stream   whether the answer is to be shown as it comes
//   base     the address of the server; by default the one of this page
export function curlLine(method, path, body, options = {}) {
  const { key, form, files = [], output, picture, stream, base = document.baseURI.split(/[?#]/)[0] } = options;
  const words = [stream ? "curl -N" : "curl"];
  if (method !== (body || form ? "POST" : "GET")) words.push(`-X ${quoted(method)}`);
  const url = new URL(path.replace(/^\//, ""), base).href;
  words.push(quoted(url.slice(0, base.length) + url.slice(base.length).replace(/[[\]{}]/g, encodeURIComponent)));
  if (key) words.push(`-H "${KEY}"`);
  if (body) words.push("-H 'Content-Type: application/json'");
  for (const [name, value] of form ?? []) words.push(formField(name, value));
  const pieces = body ? bodyPieces(body, files) : [];
  const piped = pieces.length > 1 || (pieces[0]?.text.length ?? 0) > MOST_ON_THE_LINE;
  if (piped) words.push("--data-binary @-");
  else if (body) words.push(`-d ${quoted(pieces[0].text)}`);
  if (output) words.push(`-o ${quoted(output)}`);
  if (picture) words.push("-o answer.json --fail-with-body");
  const line = words.join(" \\\n  ");
  const whole = piped ? `{ ${pieces.map(written).join("; ")}; } |\n${line}` : line;
  return picture ? `${whole} &&\n${pictureFrom(picture)}` : whole;
}

// Returns a word that a POSIX shell reads as this text.
export function quoted(text) {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

function formField(name, value) {
  if (value.file === undefined) return `--form-string ${quoted(`${name}=${value}`)}`;
  const file = fileWord(value.file);
  const plain = /^[\w./ -]+$/.test(file) ? file : `"${file.replace(/["\\]/g, "\\$&")}"`;
  return `-F ${quoted(`${name}=@${plain}`)}`;
}

// Returns the JSON of the body as texts, with the files between them.
function bodyPieces(body, files) {
  const pieces = [{ text: "" }];
  const write = (text) => {
    pieces.at(-1).text += text;
  };
  const writeAll = (open, members, close, writeOne) => {
    members.forEach((member, position) => {
      write(position ? "," : open);
      writeOne(member);
    });
    write(members.length ? close : open + close);
  };
  const walk = (value) => {
    if (Array.isArray(value)) {
      writeAll("[", value, "]", walk);
    } else if (value !== null && typeof value === "object") {
      const members = Object.entries(value).filter(([, member]) => member !== undefined);
      writeAll("{", members, "}", ([name, member]) => {
        write(`${json(name)}:`);
        walk(member);
      });
    } else {
      const head = typeof value === "string" && value.length >= SHORTEST_FILE && DATA_URL.exec(value);
      if (!head) {
        write(json(value));
        return;
      }
      const usual = `file-${pieces.filter((piece) => piece.file).length + 1}.${head[1].split("/")[1]}`;
      write(`"${head[0]}`);
      pieces.push({ file: files.find((file) => file.url === value)?.name ?? usual }, { text: '"' });
    }
  };
  walk(body);
  return pieces;
}

function json(value) {
  return JSON.stringify(value).replace(DECEPTIVE, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// printf is part of the shell, so its arguments may have any length; base64 wraps its lines.
function written(piece) {
  return piece.file ? `base64 < ${quoted(fileWord(piece.file))} | tr -d '\\n'` : `printf %s ${quoted(piece.text)}`;
}

// curl takes "-" for its input.
function fileWord(name) {
  return name.startsWith("-") ? `./${name}` : name;
}

function pictureFrom(file) {
  return `sed -n 's/.*"b64_json": *"\\([^"]*\\)".*/\\1/p' answer.json | base64 -d > ${quoted(file)}`;
}
