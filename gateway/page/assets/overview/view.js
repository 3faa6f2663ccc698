// The overview: what needs attention, what each model does, the last hour, the requests, and the log.
import { readOnlyReason } from "../access.js";
import { element, setText } from "../dom.js";
import { logPanel } from "../log/panel.js";
import { downloadsPanel } from "../management/downloads.js";
import { cards } from "./cards.js";
import { news } from "./diagnosis.js";
import { nodes } from "./nodes.js";
import { plots } from "./plots.js";
import { requests } from "./requests.js";
import { summary } from "./summary.js";

export function view(context) {
  const { store } = context;
  const waiting = element("p", { class: "empty", role: "status" }, "Waiting for the server …");
  const readOnly = element("p", { class: "soft", hidden: true });
  const models = cards(context);
  const attention = summary({ show: models.show });
  const downloads = downloadsPanel(context);
  const machines = nodes();
  const lastHour = plots(context);
  const log = logPanel(context, { folded: true });
  const inFlight = requests(context, (id) => log.filter({ request_id: id }));
  let known = null;
  const parts = element("div", { class: "stack", hidden: true }, attention.element, downloads.element, models.element, machines.element, lastHour.element, inFlight.element, log.element);
  return {
    element: element("div", {}, element("h1", { class: "visually-hidden" }, "Overview"), waiting, readOnly, parts),
    update(overview) {
      waiting.hidden = Boolean(overview);
      parts.hidden = !overview;
      if (!overview) return;
      const { access } = overview;
      readOnly.hidden = Boolean(access?.admin);
      setText(readOnly, readOnlyReason(access));
      const now = Math.floor(store.now);
      const said = known && known !== overview.models ? news(known, overview.models || {}) : [];
      known = overview.models || {};
      if (said.length) context.announce(said.join(" "));
      attention.update(overview, now);
      downloads.update(overview);
      models.update(overview, now);
      machines.update(overview, now);
      inFlight.update(overview, now);
      lastHour.update(now);
      log.update(overview);
    },
    close: log.close,
  };
}
