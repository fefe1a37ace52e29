// Copyright 2026 clue_ros contributors
// SPDX-License-Identifier: Apache-2.0

/** One box on a picture, drawn with a mouse, a finger, the keyboard, or typed as four numbers.
 *
 *     const editor = new BoxEditor(element, { width: 640, height: 480 }, (box) => send(box));
 *     editor.box = [10, 20, 110, 220];  // null: none
 *     editor.box = null;
 *     editor.disabled = true;           // shows the box, takes no input
 *     editor.remove();
 *
 * A box is [x_min, y_min, x_max, y_max]: whole pixels of the image, x right, y down, inside it.
 *
 * element   holds the <img> and nothing else; the editor lays itself over the picture and puts the
 *           four number inputs below it. Its CSS is box_editor.css.
 * size      {width, height} of the image in pixels, which may differ from the shown size.
 * onchange  called with the box, or null, after each change that a person made (at the end of a
 *           drag); not when the program sets `box`.
 * options   label: what the box is for, read out ("Your target"); minimum: shortest side in pixels.
 *
 * Mouse and finger: drag on the picture draws, drag inside the box moves, drag at a corner resizes.
 * Keyboard, on the focused picture: arrows move, shift and arrows resize at the lower right corner,
 * with ctrl in steps of one pixel; Enter puts a box in the middle; Delete or Escape removes it.
 */
export class BoxEditor {
  #area;
  #shown;
  #inputs;
  #fields;
  #size;
  #minimum;
  #onchange;
  #box = null;
  #disabled = false;
  #drag = null;

  constructor(element, size, onchange, { label = "Box", minimum = 4 } = {}) {
    this.#size = { width: size.width, height: size.height };
    this.#minimum = Math.min(minimum, size.width, size.height);
    this.#onchange = onchange;
    element.classList.add("box-editor");

    this.#area = document.createElement("div");
    this.#area.className = "box-editor-area";
    this.#area.tabIndex = 0;
    this.#area.setAttribute("role", "application");
    this.#area.setAttribute("aria-label", `${label}: drag on the picture, or use the arrow keys`);
    this.#shown = document.createElement("div");
    this.#shown.className = "box-editor-box";
    for (const corner of ["nw", "ne", "sw", "se"]) {
      const handle = document.createElement("span");
      handle.className = `box-editor-handle box-editor-${corner}`;
      handle.dataset.corner = corner;
      this.#shown.append(handle);
    }
    this.#area.append(this.#shown);

    this.#fields = document.createElement("fieldset");
    this.#fields.className = "box-editor-numbers";
    const legend = document.createElement("legend");
    legend.textContent = `${label}, in pixels`;
    this.#fields.append(legend);
    this.#inputs = ["left", "top", "right", "bottom"].map((name, side) => {
      const field = document.createElement("label");
      const input = document.createElement("input");
      input.type = "number";
      input.min = "0";
      input.max = String(side % 2 ? size.height : size.width);
      input.addEventListener("change", () => this.#typed());
      field.append(`${name} `, input);
      this.#fields.append(field);
      return input;
    });

    this.#area.addEventListener("pointerdown", (event) => this.#begin(event));
    this.#area.addEventListener("pointermove", (event) => this.#move(event));
    this.#area.addEventListener("pointerup", (event) => this.#end(event));
    this.#area.addEventListener("pointercancel", () => this.#cancel());
    this.#area.addEventListener("keydown", (event) => this.#key(event));
    element.append(this.#area, this.#fields);
    this.#draw();
  }

  get box() {
    return this.#box === null ? null : [...this.#box];
  }

  set box(box) {
    this.#drag = null;
    this.#box = box === null ? null : this.#inside(box);
    this.#draw();
  }

  get disabled() {
    return this.#disabled;
  }

  set disabled(disabled) {
    this.#disabled = disabled;
    if (disabled) this.#cancel();
    this.#fields.disabled = disabled;
    this.#area.tabIndex = disabled ? -1 : 0;
    this.#area.setAttribute("aria-disabled", String(disabled));
  }

  focus() {
    this.#area.focus();
  }

  remove() {
    this.#area.parentElement?.classList.remove("box-editor");
    this.#area.remove();
    this.#fields.remove();
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

  #draw() {
    this.#shown.hidden = this.#box === null;
    const [x0, y0, x1, y1] = this.#box ?? [0, 0, 0, 0];
    const { width, height } = this.#size;
    Object.assign(this.#shown.style, {
      left: `${(100 * x0) / width}%`,
      top: `${(100 * y0) / height}%`,
      width: `${(100 * (x1 - x0)) / width}%`,
      height: `${(100 * (y1 - y0)) / height}%`,
    });
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
    const [x, y] = this.#point(event);
    const before = this.#box;
    const corner = event.target.dataset.corner;
    if (corner && before) {
      const [x0, y0, x1, y1] = before; // the opposite corner stays
      const fixed = [corner.includes("w") ? x1 : x0, corner.includes("n") ? y1 : y0];
      this.#drag = { pointer: event.pointerId, before, fixed };
    } else if (event.target === this.#shown) {
      this.#drag = { pointer: event.pointerId, before, from: [x, y] };
    } else {
      this.#drag = { pointer: event.pointerId, before, fixed: [x, y], drawn: true };
    }
    this.#area.setPointerCapture(event.pointerId);
    this.#area.focus({ preventScroll: true });
    event.preventDefault();
  }

  #move(event) {
    const drag = this.#drag;
    if (drag === null || event.pointerId !== drag.pointer) return;
    const [x, y] = this.#point(event);
    if (drag.from) {
      this.#box = this.#moved(drag.before, x - drag.from[0], y - drag.from[1]);
    } else {
      // A tap, or the shake of a finger, draws nothing.
      const far = Math.max(Math.abs(x - drag.fixed[0]), Math.abs(y - drag.fixed[1]));
      if (drag.drawn && far < this.#minimum) return;
      drag.drawn = false;
      this.#box = this.#inside([...drag.fixed, x, y]);
    }
    this.#draw();
  }

  #end(event) {
    const drag = this.#drag;
    if (drag === null || event.pointerId !== drag.pointer) return;
    this.#drag = null;
    if (String(this.#box) !== String(drag.before)) this.#change(this.#box);
  }

  #cancel() {
    if (this.#drag === null) return;
    this.#box = this.#drag.before;
    this.#drag = null;
    this.#draw();
  }

  #key(event) {
    if (this.#disabled || event.altKey || event.metaKey) return;
    const { width, height } = this.#size;
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
      this.#change([0.4 * width, 0.4 * height, 0.6 * width, 0.6 * height]);
    } else if (direction) {
      const [stepX, stepY] = event.ctrlKey ? [1, 1] : [width / 100, height / 100].map(Math.ceil);
      const [dx, dy] = [direction[0] * stepX, direction[1] * stepY];
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
  }
}
