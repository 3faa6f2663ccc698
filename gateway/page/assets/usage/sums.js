// Adds up rows of /internal/usage. Pure.

const FIGURES = ["requests", "errors", "refusals", "cancelled", "prompt_tokens", "cached_tokens", "output_tokens", "engine_seconds"];

// The sums of rows by one of their fields, the one with the most engine time first: [[value, sums], …]
export function sumsBy(rows, field) {
  const found = new Map();
  for (const row of rows) {
    if (!found.has(row[field])) found.set(row[field], Object.fromEntries(FIGURES.map((name) => [name, 0])));
    const sums = found.get(row[field]);
    for (const name of FIGURES) sums[name] += row[name];
  }
  return [...found].sort(([one, first], [other, second]) => second.engine_seconds - first.engine_seconds || (one < other ? -1 : 1));
}

// The months that can be chosen, this one first: lastMonths("2031-02", 3) → ["2031-02", "2031-01", "2030-12"]
export function lastMonths(month, number) {
  const [year, of] = month.split("-").map(Number);
  return Array.from({ length: number }, (_, back) => {
    const months = year * 12 + of - 1 - back;
    return `${Math.floor(months / 12)}-${String((months % 12) + 1).padStart(2, "0")}`;
  });
}
