// What a request is waiting for, in words. Pure.
import { duration, percent, plural, share } from "../format.js";

// `seconds`: since it was sent. `overview`: the newest one, or null; `position`: as the response's header had it, or null.
export function progressText({ seconds, model, requestId, overview, position = null }) {
  const since = duration(Math.floor(seconds));
  const request = Object.values(overview?.requests ?? {}).find((each) => each.id === requestId);
  const about = overview?.models?.[model];
  if (request?.state === "running") return `The model has worked for ${since}`;
  if (about?.state === "loading" || about?.load) return `Waiting for ${since}: ${loading(about.load)}`;
  const place = request?.position ?? position;
  if (!place) return `Waiting for ${since}`;
  const ahead = place > 1 ? [`${plural(place - 1, "request")} before it`] : [];
  const expected = request?.wait_s ? [`about ${duration(request.wait_s)} to go`] : [];
  const facts = [...ahead, ...expected].join(", ");
  return `Waiting in the queue for ${since}${facts && `: ${facts}`}`;
}

function loading(load) {
  const done = load?.total ? `, ${percent(share(load.done, load.total))}` : "";
  return `the model is loading${done}`;
}

// What choosing a model means: its state now. `about`: the model in the overview, absent if nothing is to be said about it.
export function modelText(model, about) {
  const busy = about?.slots ? `${about.running ?? 0} of ${plural(about.slots, "slot")} busy` : "";
  const waiting = about?.waiting ? `, ${plural(about.waiting, "request")} waiting` : "";
  if (about?.state === "ready") return `Loaded${busy && `, ${busy}`}${waiting}.`;
  if (about?.load || about?.state === "loading") return `Not ready: ${loading(about.load)}${waiting}.`;
  if (about?.failure) return `Not loaded. The last load failed: ${about.failure.message}`;
  return about || !model.loaded ? "Not loaded: the first request loads it." : "Loaded.";
}
