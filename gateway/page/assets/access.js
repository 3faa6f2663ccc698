// The API key of this browser tab: typed into a dialog, kept until the tab is closed, sent to this server alone.
import { openDialog } from "./dialog.js";
import { element } from "./dom.js";

const PLACE = "lemonbus-key";

// Why a page changes nothing, for a caller that is not an administrator. `access`: of the overview.
export function readOnlyReason(access) {
  return access?.keys_needed
    ? `Read-only: the key ${access.key} is not an administrator's. It sees its own models and requests.`
    : "Read-only: without keys, only a browser on the server's machine may change it.";
}

export class Access {
  #asking = null;
  #declined = false;
  onChange = () => {};

  get key() {
    return sessionStorage.getItem(PLACE) || "";
  }

  set key(value) {
    if (value) sessionStorage.setItem(PLACE, value);
    else sessionStorage.removeItem(PLACE);
    this.onChange();
  }

  // Asks a person for a key; returns whether the key now differs from `refused`. Several callers share one dialog.
  // After a person has closed it, requests do not open it again; only `wanted` does, from the button in the header.
  async ask(problem = "", refused = "", { wanted = false } = {}) {
    if (this.key !== refused) return true;
    if (this.#declined && !wanted) return false;
    this.#asking ||= this.#dialog(problem).finally(() => (this.#asking = null));
    this.#declined = !(await this.#asking);
    return !this.#declined;
  }

  async #dialog(problem) {
    const input = element("input", { type: "password", id: "key", name: "key", autocomplete: "off", required: true, spellcheck: "false" });
    const fields = [
      problem && element("p", { class: "problem", role: "alert" }, problem),
      element("p", {}, "This server needs an API key. An administrator's key shows everything and may change the server; another key shows its own models and requests. The key is kept until this tab is closed."),
      element("label", { for: "key" }, "API key"),
      input,
    ].filter(Boolean);
    const given = await openDialog({ title: "API key", body: fields, submit: "Use this key", focus: input, result: () => input.value.trim() });
    if (given) this.key = given;
    return Boolean(given);
  }
}
