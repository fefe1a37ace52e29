// Copyright 2026 clue_ros contributors
// SPDX-License-Identifier: Apache-2.0

import { el, place } from "./common.js";

const EDGES = ["n", "e", "s", "w", "nw", "ne", "sw", "se"]; // corners lie over the ends of edges
const SIDES = ["Left", "Top", "Right", "Bottom"];
const FAR = 4; // pixels of the screen that a pointer moves before it draws

/** One box on a picture, drawn with a mouse, a finger, the keyboard, or typed as four numbers.
 *
 *     const editor = new BoxEditor(element, { width: 640, height: 480 }, (box) => send(box));
 *     editor.box = [10, 20, 110, 220];  // null: none
 *     editor.size = { width: 320, height: 240 };  // of another picture; it has no box yet
 *     editor.disabled = true;           // shows the box, takes no input
 *     editor.hidden = true;             // hides the box from sight and keyboard; a drag draws one
 *     editor.drawing = true;            // the next drag draws a new box, wherever it begins
 *     editor.placeInMiddle();           // as the key Enter does
 *     editor.remove();
 *
 * A box is [x_min, y_min, x_max, y_max]: whole pixels of the image, x right, y down. One that the
 * program sets is shown as it is; what a person makes of it lies inside the image.
 *
 * element   holds the <img>, and layers over it that take no pointer; the editor lays itself over
 *           them and puts the four number inputs below. Its CSS is box_editor.css.
 * size      {width, height} of the image in pixels, which may differ from the shown size.
 * onchange  called with the box, or null, after each change that a person made (at the end of a
 *           drag); not when the program sets `box`.
 * options   label: what the box is for, read out ("Your target"); minimum: shortest side in pixels;
 *           numbers: the element that gets the number inputs; oninput: called with the box while
 *           it is dragged; fine: an arrow key goes by a pixel, held down by four, instead of by a
 *           hundredth of the picture; scrolls: a finger beside the box scrolls the page, unless
 *           `drawing` is on.
 *
 * Mouse and finger: drag on the picture draws, drag inside the box moves, drag at an edge or a
 * corner resizes. Keyboard, on the focused picture: arrows move, shift and arrows resize at the
 * lower right corner, with ctrl in steps of one pixel; Enter puts a box in the middle; Delete or
 * Escape removes it.
 */
export class BoxEditor {
  #area;
  #shown;
  #inputs;
  #fields;
  #size;
  #onchange;
  #options;
  #box = null;
  #disabled = false;
  #hidden = false;
  #drawing = false;
  #drag = null;

  constructor(element, size, onchange, options = {}) {
    this.#onchange = onchange;
    this.#options = { label: "Box", minimum: 4, ...options };
    element.classList.add("box-editor");

    const handles = EDGES.map((edges) =>
      el("span", { class: "box-editor-handle", "data-edges": edges }),
    );
    this.#shown = el("div", { class: "box-editor-box" }, ...handles);
    this.#area = el("div", { class: "box-editor-area", role: "application" }, this.#shown);
    this.#area.classList.toggle("scrolls", Boolean(options.scrolls));

    this.#inputs = SIDES.map(() =>
      el("input", { type: "number", min: "0", onchange: () => this.#typed() }),
    );
    this.#fields = el(
      "fieldset",
      { class: "box-editor-numbers" },
      el("legend", {}, `${this.#options.label}, in pixels`),
      ...SIDES.map((name, side) => el("label", {}, `${name} `, this.#inputs[side])),
    );

    this.#area.addEventListener("pointerdown", (event) => this.#begin(event));
    this.#area.addEventListener("pointermove", (event) => this.#move(event));
    this.#area.addEventListener("pointerup", (event) => this.#end(event));
    this.#area.addEventListener("pointercancel", () => this.#cancel());
    this.#area.addEventListener("keydown", (event) => this.#key(event));
    element.append(this.#area);
    (this.#options.numbers ?? element).append(this.#fields);
    this.size = size;
  }

  get box() {
    return this.#box === null ? null : [...this.#box];
  }

  set box(box) {
    this.#drag = null;
    this.drawing = false;
    this.#box = box === null ? null : box.map(Math.round);
    this.#draw();
  }

  set size({ width, height }) {
    this.#size = { width, height };
    this.#inputs.forEach((input, side) => {
      input.max = String(side % 2 ? height : width);
    });
    this.box = null;
  }

  get disabled() {
    return this.#disabled;
  }

  set disabled(disabled) {
    this.#disabled = disabled;
    if (disabled) this.#cancel();
    this.#fields.disabled = disabled;
    this.#area.setAttribute("aria-disabled", String(disabled));
    this.#show();
  }

  get hidden() {
    return this.#hidden;
  }

  set hidden(hidden) {
    this.#hidden = hidden;
    this.#show();
  }

  get drawing() {
    return this.#drawing;
  }

  set drawing(drawing) {
    this.#drawing = drawing;
    this.#area.classList.toggle("drawing", drawing);
  }

  placeInMiddle() {
    const { width, height } = this.#size;
    this.#change([0.4 * width, 0.4 * height, 0.6 * width, 0.6 * height]);
    this.focus();
  }

  focus() {
    this.#area.focus({ preventScroll: true });
  }

  remove() {
    this.#area.parentElement?.classList.remove("box-editor");
    this.#area.remove();
    this.#fields.remove();
  }

  get #minimum() {
    return Math.min(this.#options.minimum, this.#size.width, this.#size.height);
  }

  // Sides in order, whole, inside the image, no shorter than the minimum.
  #inside([x0, y0, x1, y1]) {
    const span = (a, b, limit) => {
      const [low, high] = [Math.min(a, b), Math.max(a, b)].map((v) =>
        Math.round(Math.min(Math.max(v, 0), limit)),
      );
      if (high - low >= this.#minimum) return [low, high];
      const start = Math.min(low, limit - this.#minimum);
      return [start, start + this.#minimum];
    };
    const [left, right] = span(x0, x1, this.#size.width);
    const [top, bottom] = span(y0, y1, this.#size.height);
    return [left, top, right, bottom];
  }

  // The same size at another place, stopped by the edges.
  #moved([x0, y0, x1, y1], dx, dy) {
    const x = Math.round(Math.min(Math.max(dx, -x0), this.#size.width - x1));
    const y = Math.round(Math.min(Math.max(dy, -y0), this.#size.height - y1));
    return [x0 + x, y0 + y, x1 + x, y1 + y];
  }

  // The box with the edges that a drag has hold of moved; "" is all of it.
  #pulled(box, edges, dx, dy) {
    if (edges === "") return this.#moved(box, dx, dy);
    const [x0, y0, x1, y1] = box;
    return this.#inside([
      x0 + (edges.includes("w") ? dx : 0),
      y0 + (edges.includes("n") ? dy : 0),
      x1 + (edges.includes("e") ? dx : 0),
      y1 + (edges.includes("s") ? dy : 0),
    ]);
  }

  #show() {
    this.#shown.hidden = this.#hidden || this.#box === null;
    this.#area.tabIndex = this.#disabled || this.#hidden ? -1 : 0;
  }

  #draw() {
    this.#show();
    let state = "none. Drag on the picture, or press Enter for one in the middle.";
    if (this.#box !== null) {
      place(this.#shown, this.#box, this.#size);
      const [x0, y0, x1, y1] = this.#box;
      const { width, height } = this.#size;
      state = `from ${x0}, ${y0} to ${x1}, ${y1} of ${width} by ${height} pixels.`
        + " Arrow keys move it, Shift and arrow keys resize it, Delete removes it.";
    }
    this.#area.setAttribute("aria-label", `${this.#options.label}: ${state}`);
    this.#inputs.forEach((input, side) => {
      input.value = this.#box === null ? "" : String(this.#box[side]);
    });
  }

  #change(box) {
    this.#box = box === null ? null : this.#inside(box);
    this.#draw();
    this.#onchange(this.box);
  }

  #typed() {
    const values = this.#inputs.map((input) => input.valueAsNumber);
    if (values.every(Number.isFinite)) this.#change(values);
  }

  // Where the pointer is, in pixels of the image.
  #point(event) {
    const frame = this.#area.getBoundingClientRect();
    return [
      ((event.clientX - frame.left) / frame.width) * this.#size.width,
      ((event.clientY - frame.top) / frame.height) * this.#size.height,
    ];
  }

  #begin(event) {
    if (this.#disabled || this.#drag !== null || event.button !== 0) return;
    const onBox = !this.#drawing && this.#shown.contains(event.target);
    const scrolls = this.#options.scrolls && !this.#drawing && event.pointerType === "touch";
    if (scrolls && !onBox) return;
    this.#drag = {
      pointer: event.pointerId,
      edges: onBox ? (event.target.dataset.edges ?? "") : null, // null: draws
      from: this.#point(event),
      screen: [event.clientX, event.clientY],
      before: this.#box,
      moved: false,
    };
    this.#area.setPointerCapture(event.pointerId);
    if (onBox) this.focus();
    event.preventDefault();
  }

  #move(event) {
    const drag = this.#drag;
    if (drag === null || event.pointerId !== drag.pointer) return;
    // A tap, or the shake of a finger, draws nothing.
    const far = Math.hypot(event.clientX - drag.screen[0], event.clientY - drag.screen[1]);
    if (!drag.moved && far < (drag.edges === null ? FAR : 1)) return;
    drag.moved = true;
    const [[fromX, fromY], [x, y]] = [drag.from, this.#point(event)];
    this.#box =
      drag.edges === null
        ? this.#inside([fromX, fromY, x, y])
        : this.#pulled(drag.before, drag.edges, x - fromX, y - fromY);
    this.#draw();
    this.#options.oninput?.(this.box);
  }

  #end(event) {
    const drag = this.#drag;
    if (drag === null || event.pointerId !== drag.pointer) return;
    this.#drag = null;
    if (!drag.moved) return;
    if (drag.edges === null) {
      this.drawing = false;
      this.focus();
    }
    this.#change(this.#box);
  }

  #cancel() {
    if (this.#drag === null) return;
    this.#box = this.#drag.before;
    this.#drag = null;
    this.#draw();
    this.#options.oninput?.(this.box);
  }

  #key(event) {
    if (this.#disabled || this.#hidden || event.altKey || event.metaKey) return;
    const direction = {
      ArrowLeft: [-1, 0],
      ArrowRight: [1, 0],
      ArrowUp: [0, -1],
      ArrowDown: [0, 1],
    }[event.key];
    if (event.key === "Delete" || event.key === "Backspace" || event.key === "Escape") {
      if (this.#drag !== null) this.#cancel();
      else if (this.#box !== null) this.#change(null);
    } else if ((direction || event.key === "Enter") && this.#box === null) {
      this.placeInMiddle();
    } else if (direction) {
      const [dx, dy] = direction.map((one, axis) => one * this.#step(event)[axis]);
      const [x0, y0, x1, y1] = this.#box;
      if (event.shiftKey) {
        this.#change([
          x0,
          y0,
          Math.max(x1 + dx, x0 + this.#minimum),
          Math.max(y1 + dy, y0 + this.#minimum),
        ]);
      } else {
        this.#change(this.#moved(this.#box, dx, dy));
      }
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  // How far an arrow key goes, in x and y.
  #step({ ctrlKey, repeat }) {
    if (ctrlKey) return [1, 1];
    if (this.#options.fine) return repeat ? [4, 4] : [1, 1];
    return [this.#size.width / 100, this.#size.height / 100].map(Math.ceil);
  }
}
