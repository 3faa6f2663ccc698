// The plots of the last hour.
import { element } from "../dom.js";
import { bytes, duration, placeName, rate } from "../format.js";
import { plot } from "./plot.js";

const line = (name, field) => (samples) => ({ name, points: samples.map((sample) => [sample.at, sample[field]]) });

export function plots({ store }) {
  const median = { wait: line("median", "queue_wait_p50"), first: line("median", "first_token_p50") };
  const slow = { wait: line("95 %", "queue_wait_p95"), first: line("95 %", "first_token_p95") };
  const all = [
    plot({ title: "Queue wait", format: duration, lines: (samples) => [median.wait(samples), slow.wait(samples)] }),
    plot({ title: "First token", format: duration, lines: (samples) => [median.first(samples), slow.first(samples)] }),
    plot({ title: "Tokens/s", format: rate, lines: (samples) => [{ name: "all models", points: samples.map((sample) => [sample.at, sample.tokens_per_second ?? 0]) }] }),
    plot({ title: "Memory in use", format: bytes, binary: true, lines: (samples) => memory(samples, store.overview?.memory || {}) }),
  ];
  let drawn = null;
  return {
    element: element("section", { class: "plots", "aria-label": "The last hour" }, all.map((each) => each.element)),
    // Draws when there is another sample: nothing else changes what is seen.
    update(now) {
      if (drawn === store.samples) return;
      drawn = store.samples;
      for (const each of all) each.update(store.samples, store.samples.at(-1)?.at ?? now, store.stepSeconds);
    },
  };
}

function memory(samples, known) {
  const places = [...new Set(samples.flatMap((sample) => Object.keys(sample.memory_used || {})))];
  return places.map((place) => ({ name: placeName(place, known), points: samples.map((sample) => [sample.at, sample.memory_used?.[place]]) }));
}
