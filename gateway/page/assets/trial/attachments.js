// Pictures for a question: chosen, pasted or dropped. They stay in the memory of this tab.
import { element } from "../dom.js";
import { bytes } from "../format.js";

const MOST = 8;
const LARGEST = 20 * 2 ** 20;

export class Attachments {
  pictures = []; // [{ name, url }], with data URLs

  // `onChange()` after each change; `onProblem(text)`.
  constructor({ onChange, onProblem }) {
    this.onChange = onChange;
    this.onProblem = onProblem;
    this.input = element("input", { type: "file", accept: "image/*", multiple: true, class: "visually-hidden", tabindex: -1, "aria-hidden": "true" });
    this.button = element("button", { type: "button", onclick: () => this.input.click() }, "Add pictures");
    this.list = element("ul", { class: "plain thumbnails", "aria-label": "Pictures to send", hidden: true });
    this.input.addEventListener("change", () => {
      this.add(this.input.files);
      this.input.value = "";
    });
  }

  // Takes pictures that are pasted into `text`, and those that are dropped on `area`, while `allowed()`.
  listen(text, area, allowed) {
    text.addEventListener("paste", (event) => {
      const files = [...event.clipboardData.files].filter(isPicture);
      if (!files.length || !allowed()) return;
      event.preventDefault();
      this.add(files);
    });
    area.addEventListener("dragover", (event) => {
      if (!event.dataTransfer.types.includes("Files")) return;
      event.preventDefault(); // also without `allowed`: otherwise the browser would leave the page and show the file
      event.dataTransfer.dropEffect = allowed() ? "copy" : "none";
    });
    area.addEventListener("drop", (event) => {
      if (!event.dataTransfer.files.length) return;
      event.preventDefault();
      if (allowed()) this.add(event.dataTransfer.files);
      else this.onProblem("This model takes no pictures.");
    });
  }

  async add(files) {
    for (const file of files) {
      if (!isPicture(file)) this.onProblem(`${file.name} is not a picture.`);
      else if (file.size > LARGEST) this.onProblem(`${file.name} has ${bytes(file.size)}: at most ${bytes(LARGEST)} are sent.`);
      else {
        const url = await dataUrl(file).catch(() => "");
        if (!url) this.onProblem(`${file.name} cannot be read.`);
        else if (this.pictures.length >= MOST) this.onProblem(`At most ${MOST} pictures are sent at once.`);
        else this.pictures = [...this.pictures, { name: file.name || "picture.png", url }];
      }
    }
    this.#show();
  }

  // Returns the pictures, and forgets them.
  take() {
    const taken = this.pictures;
    this.pictures = [];
    this.#show();
    return taken;
  }

  #show() {
    const items = this.pictures.map((picture) => {
      const remove = () => {
        this.pictures = this.pictures.filter((each) => each !== picture);
        this.#show();
        this.button.focus();
      };
      const button = element("button", { type: "button", class: "small", onclick: remove, "aria-label": `Remove ${picture.name}` }, "Remove");
      return element("li", {}, thumbnail(picture), button);
    });
    this.list.replaceChildren(...items);
    this.list.hidden = !items.length;
    this.onChange();
  }
}

export function thumbnail({ name, url }) {
  return element("img", { src: url, alt: name, title: name });
}

function isPicture(file) {
  return file.type.startsWith("image/");
}

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
