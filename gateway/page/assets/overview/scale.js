// The arithmetic of plots. Pure.

// The smallest round number (1, 2, 2.5 or 5 times a power of ten; of two for bytes) that is not below a value.
export function roundMax(value, binary = false) {
  if (!(value > 0)) return 1;
  if (binary) return 2 ** Math.ceil(Math.log2(value));
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 2.5, 5, 10].map((step) => step * power).find((step) => step >= value * (1 - 1e-9));
}

// The pieces of an SVG path through points, with gaps where a value is absent or samples are missing.
// points: [[at, value], …]; x(at), y(value): coordinates; most: seconds between samples that are still neighbours.
export function pathOf(points, x, y, most) {
  let path = "";
  let last = null;
  for (const [at, value] of points) {
    if (value === undefined || value === null) {
      last = null;
      continue;
    }
    path += `${last !== null && at - last <= most ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    if (last === null) path += "h0.01"; // a value alone is a point
    last = at;
  }
  return path;
}

// The latest and the largest value of a line: { latest, max }, undefined if there is none.
export function extremes(points) {
  const values = points.map(([, value]) => value).filter((value) => value !== undefined && value !== null);
  return { latest: points.at(-1)?.[1] ?? undefined, max: values.length ? values.reduce((one, other) => Math.max(one, other)) : undefined };
}
