// Numbers, sizes and times as people read them. Pure.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
export const NONE = "–"; // instead of a value that is not known

const known = (value) => typeof value === "number" && Number.isFinite(value);

// 0 → "0 B", 1536 → "1.5 KiB", 20 * 2 ** 30 → "20 GiB"
export function bytes(value) {
  if (!known(value)) return NONE;
  let size = Math.abs(value);
  let unit = 0;
  while (Math.round(size) >= 1024 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const text = unit === 0 || size >= 100 ? String(Math.round(size)) : String(Number(size.toFixed(1)));
  return `${value < 0 ? "-" : ""}${text} ${UNITS[unit]}`;
}

// A length of time: 0.0042 → "4 ms", 1.234 → "1.2 s", 75 → "1 min 15 s", 7500 → "2 h 5 min", 200000 → "2 d 7 h"
export function duration(seconds) {
  if (!known(seconds)) return NONE;
  const value = Math.max(0, seconds);
  if (value < 0.9995) return value === 0 ? "0 s" : `${Math.max(1, Math.round(value * 1000))} ms`;
  if (value < 9.95) return `${Number(value.toFixed(1))} s`;
  const whole = Math.round(value);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return joined(Math.floor(whole / 60), "min", whole % 60, "s");
  const minutes = Math.floor(whole / 60);
  if (minutes < 24 * 60) return joined(Math.floor(minutes / 60), "h", minutes % 60, "min");
  const hours = Math.floor(minutes / 60);
  return joined(Math.floor(hours / 24), "d", hours % 24, "h");
}

function joined(large, unit, small, part) {
  return small ? `${large} ${unit} ${small} ${part}` : `${large} ${unit}`;
}

// A length of time that is shown again each second: it changes seldom. 0.4 → "0 s", 119 → "1 min 59 s", 190 → "3 min"
export function age(seconds) {
  if (!known(seconds)) return NONE;
  const whole = Math.floor(Math.max(0, seconds));
  return duration(whole < 120 ? whole : whole - (whole % 60));
}

// 1234567 → "1,234,567"
export function count(value) {
  return known(value) ? Math.round(value).toLocaleString("en-US") : NONE;
}

// 0.2 → "0.2", 12.34 → "12.3", 187.4 → "187"
export function rate(value) {
  if (!known(value)) return NONE;
  return value >= 100 ? count(value) : String(Number(value.toFixed(1)));
}

// 0.125 → "13 %"; 0 and values above it differ: 0.001 → "<1 %"
export function percent(share) {
  if (!known(share)) return NONE;
  if (share > 0 && share < 0.005) return "<1 %";
  return `${Math.round(share * 100)} %`;
}

// The share of a whole, from 0 to 1; 0 of nothing.
export function share(part, whole) {
  return known(part) && known(whole) && whole > 0 ? Math.min(1, Math.max(0, part / whole)) : 0;
}

// plural(1, "slot") → "1 slot"; plural(2, "query", "queries") → "2 queries"
export function plural(number, one, several = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : several}`;
}

const two = (value) => String(value).padStart(2, "0");

// The local time of day of a Unix time: "09:05:07"
export function clock(unix) {
  if (!known(unix)) return NONE;
  const date = new Date(unix * 1000);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

// The local date and time of a Unix time: "2026-05-01 09:05:07"; without the date if `now` is the same day.
export function moment(unix, now) {
  if (!known(unix)) return NONE;
  const date = new Date(unix * 1000);
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return known(now) && new Date(now * 1000).toDateString() === date.toDateString() ? clock(unix) : `${day} ${clock(unix)}`;
}

// What people call a place of memory, which the server knows by its address: places is { address: { name } }.
export function placeName(key, places = {}) {
  const { name } = places[key] || {};
  if (!name) return key;
  return Object.values(places).filter((each) => each.name === name).length > 1 ? `${name} (${key})` : name;
}
