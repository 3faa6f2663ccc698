// The log lines that the page has: a bounded number is kept, fewer are shown, and new ones wait for the next drawing. Pure.
import { clock } from "../format.js";

export const KEPT = 4000;
export const SHOWN = 1000;

export class LogBuffer {
  #kept = [];
  #words = [];
  #waiting = [];
  dropped = 0; // lines that the server or this page could not keep up with, since the last clear()

  // Takes entries of the server, the oldest first.
  add(entries) {
    for (const entry of entries) {
      this.dropped += entry.dropped || 0;
      const line = lineOf(entry);
      this.#kept.push(line);
      if (this.#matches(line)) this.#waiting.push(line);
    }
    this.#kept = bounded(this.#kept, KEPT);
    this.#waiting = bounded(this.#waiting, SHOWN);
  }

  // How many lines the page has, shown or not: fewer than twice those that are kept for a filter.
  get kept() {
    return this.#kept.length;
  }

  // How many lines wait to be drawn.
  get waiting() {
    return Math.min(this.#waiting.length, SHOWN);
  }

  // Returns the lines to draw below those that are shown, and forgets that they wait.
  take() {
    const lines = this.#waiting.slice(-SHOWN);
    this.#waiting = [];
    return lines;
  }

  // Shows only lines with all of these words from now on; returns the lines to draw instead of all that are shown.
  filter(text) {
    this.#words = text.toLowerCase().split(/\s+/).filter(Boolean);
    this.#waiting = [];
    return this.#kept.slice(-KEPT).filter((line) => this.#matches(line)).slice(-SHOWN);
  }

  clear() {
    [this.#kept, this.#waiting, this.dropped] = [[], [], 0];
  }

  #matches({ text, process, level }) {
    if (this.#words.length === 0) return true;
    const whole = `${level} ${process} ${text}`.toLowerCase();
    return this.#words.every((word) => whole.includes(word));
  }
}

// The last lines of a list, but at most twice as many: it is not copied for each line.
function bounded(lines, most) {
  return lines.length > 2 * most ? lines.slice(-most) : lines;
}

// An entry of the stream as it is shown: its line begins with what the other fields say.
export function lineOf({ seq, timestamp = "", severity = "Info", tag = "", line = "" }) {
  const head = `${timestamp} [${severity}] (${tag}) `;
  return { seq, at: timestamp, level: severity.toLowerCase(), process: tag.toLowerCase(), text: line.startsWith(head) ? line.slice(head.length) : line };
}

// The local time of day of a line, whose time is in UTC: "2031-05-01 09:05:07.123" → "11:05:07.123"
export function timeOf(timestamp) {
  const date = new Date(`${timestamp.replace(" ", "T")}Z`);
  if (Number.isNaN(date.getTime())) return timestamp;
  return `${clock(date.getTime() / 1000)}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}
