// A plot of the last hour as SVG: lines over time, with a title and a description for those who do not see it.
import { element, keyedList, set, setText, svgElement } from "../dom.js";
import { NONE, clock } from "../format.js";
import { extremes, pathOf, roundMax } from "./scale.js";

const WIDTH = 320;
const HEIGHT = 110;
const TOP = 8;
const BOTTOM = 18;
const HOUR_S = 3600;
const TICKS = [-60, -45, -30, -15, 0];
let numbers = 0;

// title: of the plot; format(value): a value as text; lines(samples): [{ name, points: [[at, value], …], whole? }]
export function plot({ title, format, lines, binary = false }) {
  const id = `plot-${++numbers}`;
  const name = svgElement("title", { id: `${id}-title` }, title);
  const description = svgElement("desc", { id: `${id}-description` });
  const grid = svgElement("g", { class: "grid" });
  const paths = svgElement("g", { class: "lines" });
  const cursor = svgElement("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM, visibility: "hidden" });
  const top = svgElement("text", { x: 2, y: TOP + 9 });
  const labels = TICKS.map((minutes) => {
    const x = WIDTH + (minutes / 60) * WIDTH;
    grid.append(svgElement("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }));
    return svgElement("text", { x: Math.min(Math.max(x, 2), WIDTH - 2), y: HEIGHT - 4, "text-anchor": minutes === -60 ? "start" : minutes === 0 ? "end" : "middle" }, minutes ? `${minutes} min` : "now");
  });
  const svg = svgElement("svg", { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-labelledby": `${id}-title ${id}-description` }, name, description, grid, paths, cursor, top, labels);
  const legend = element("ul", { class: "plain legend" });
  const syncLegend = keyedList(legend, legendItem);
  const syncPaths = keyedList(paths, () => {
    const path = svgElement("path");
    return { element: path, update: ({ d, index }) => set(path, { d, class: `line line-${index}` }) };
  });
  let shown = [];
  let scale = null;

  function showLegend(at) {
    syncLegend(shown.map(({ name: of, points }, index) => [index, { index, name: of, text: texts(points, at) }]));
  }

  function texts(points, at) {
    if (at === null) {
      const { latest, max } = extremes(points);
      return max === undefined ? "no value" : `${latest === undefined ? NONE : format(latest)}, max ${format(max)}`;
    }
    const [found, value] = points.reduce((best, each) => (Math.abs(each[0] - at) < Math.abs(best[0] - at) ? each : best), [Infinity, undefined]);
    return Number.isFinite(found) ? `${value === undefined || value === null ? NONE : format(value)} at ${clock(found)}` : "no value";
  }

  svg.addEventListener("pointermove", (event) => {
    if (!scale) return;
    const box = svg.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    set(cursor, { x1: share * WIDTH, x2: share * WIDTH, visibility: "visible" });
    showLegend(scale.start + share * HOUR_S);
  });
  svg.addEventListener("pointerleave", () => {
    set(cursor, { visibility: "hidden" });
    showLegend(null);
  });

  return {
    element: element("figure", { class: "panel plot-panel" }, element("figcaption", {}, element("h3", {}, title), legend), svg),
    update(samples, now, step) {
      shown = lines(samples);
      const values = shown.flatMap(({ points, whole }) => [extremes(points).max ?? 0, whole ?? 0]);
      const max = roundMax(Math.max(0, ...values), binary);
      const start = now - HOUR_S;
      scale = { start };
      const x = (at) => ((at - start) / HOUR_S) * WIDTH;
      const y = (value) => HEIGHT - BOTTOM - (value / max) * (HEIGHT - BOTTOM - TOP);
      syncPaths(shown.map(({ points }, index) => [index, { index, d: pathOf(points.filter(([at]) => at >= start), x, y, step * 2.5) }]));
      setText(top, values.some((value) => value > 0) ? format(max) : "");
      showLegend(null);
      setText(description, `The last hour. ${shown.map(({ name: of, points }) => `${of}: ${texts(points, null)}.`).join(" ")}`);
    },
  };
}

function legendItem() {
  const name = element("span");
  const text = element("strong");
  const swatch = element("i", { "aria-hidden": "true" });
  return {
    element: element("li", {}, swatch, name, " ", text),
    update(item) {
      set(swatch, { class: `swatch line-${item.index}` });
      setText(name, item.name);
      setText(text, item.text);
    },
  };
}
