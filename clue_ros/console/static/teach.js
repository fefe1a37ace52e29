// Teaching: a box on the picture that stands still meanwhile, a name, and the list of what was taught.

import { BoxEditor } from "./box_editor.js";
import { el, fill } from "./common.js";

const $ = (id) => document.getElementById(id);

export class Teaching {
  #stage; #actions; #editor;

  /** actions: teach(frame, box, name), forget(name), list(), ended(), refuse(reason). */
  constructor(stage, actions) {
    this.#stage = stage;
    this.#actions = actions;
    const options = { label: "The object", numbers: $("teach-numbers") };
    this.#editor = new BoxEditor($("teach-area"), { width: 4, height: 3 }, () => {}, options);
    $("teach").addEventListener("click", () => (this.active ? this.#end() : this.#begin()));
    $("teach-end").addEventListener("click", () => this.#end());
    $("teaching").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    new ResizeObserver(() => this.#place()).observe($("stage"));
  }

  /** Whether the picture must stand still. */
  get active() {
    return !$("teaching").hidden;
  }

  /** things: what was taught, [{names, examples, thumbnail}]; null where nothing can be. */
  show(things) {
    $("teach").hidden = things === null;
    if (things === null && this.active) this.#end();
    fill($("taught"), ...(things ?? []).map((thing) => this.#item(thing)));
  }

  #item({ names, examples, thumbnail }) {
    const picture = thumbnail && el("img", { src: `data:image/jpeg;base64,${thumbnail}`, alt: "" });
    return el(
      "li", {},
      picture || null,
      el("span", {}, names.join(", ")),
      el("span", { class: "muted" }, `${examples} ${examples === 1 ? "example" : "examples"}`),
      el("button", { type: "button", onclick: () => this.#actions.forget(names[0]) }, `Forget ${names[0]}`),
    );
  }

  #begin() {
    const { number, size: [width, height] } = this.#stage.shown;
    if (!number) return this.#actions.refuse("There is no picture yet to draw on.");
    $("teaching").hidden = false;
    $("teach-area").hidden = false;
    this.#place();
    this.#editor.size = { width, height };
    this.#editor.drawing = true;
    this.#actions.list();
    return this.#editor.focus();
  }

  #submit() {
    const name = $("teach-name").value.trim();
    if (this.#editor.box === null) this.#actions.refuse("Draw a box around the object first.");
    else if (!name) this.#actions.refuse("Type the object's name first.");
    else if (this.#actions.teach(this.#stage.shown.number, this.#editor.box, name)) {
      $("teach-name").value = "";
    }
  }

  #end() {
    $("teaching").hidden = true;
    $("teach-area").hidden = true;
    this.#actions.ended();
    $("teach").focus();
  }

  /** Lay the editor over the picture, which fills its stage in one direction only. */
  #place() {
    if (!this.active) return;
    const { size: [width, height] } = this.#stage.shown;
    const stage = $("stage");
    const scale = Math.min(stage.clientWidth / width, stage.clientHeight / height);
    const area = $("teach-area");
    area.style.width = `${width * scale}px`;
    area.style.height = `${height * scale}px`;
    area.style.left = `${(stage.clientWidth - width * scale) / 2}px`;
    area.style.top = `${(stage.clientHeight - height * scale) / 2}px`;
  }
}
