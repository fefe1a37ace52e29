// A box over a picture that is moved, resized and drawn with a pointer or the keyboard.

const SMALLEST = 2; // pixels of a side
const FAR = 4; // screen pixels that a pointer moves before it draws

/**
 * frame: the element that the picture fills. box: the element of the box in it, with handles whose
 * data-edge names the edges that they move ("n", "se"). changed() is called after each change.
 *
 * `value` is [x_min, y_min, x_max, y_max] in pixels of the picture, or null.
 */
export class BoxEditor {
  #frame; #box; #changed; #size = [1, 1]; #value = null; #drag = null; #drawing = false;

  constructor(frame, box, changed) {
    this.#frame = frame;
    this.#box = box;
    this.#changed = changed;
    frame.addEventListener("pointerdown", (event) => this.#start(event));
    frame.addEventListener("pointermove", (event) => this.#move(event));
    frame.addEventListener("pointerup", () => this.#end());
    frame.addEventListener("pointercancel", () => this.#cancel());
    box.addEventListener("keydown", (event) => this.#key(event));
  }

  get value() {
    return this.#value;
  }

  /** Show a box of a picture of this size; nothing is reported. */
  show(size, value) {
    this.#size = size;
    this.#value = value;
    this.#cancel();
    this.drawing = false;
    this.#draw();
  }

  /** Change the box, as a person does; sides are put in order and into the picture. */
  set(value) {
    this.#value = value && this.#inside(value);
    this.#draw();
    this.#changed();
  }

  /** Whether the next drag draws a new box wherever it begins, on a touch screen too. */
  get drawing() {
    return this.#drawing;
  }

  set drawing(on) {
    this.#drawing = on;
    this.#frame.classList.toggle("drawing", on);
  }

  /** A box in the middle of the picture, to begin with by keyboard. */
  placeInMiddle() {
    const [width, height] = this.#size;
    this.set([width * 0.375, height * 0.375, width * 0.625, height * 0.625]);
    this.#box.focus();
  }

  #inside(value) {
    const [x0, x1] = span(value[0], value[2], this.#size[0]);
    const [y0, y1] = span(value[1], value[3], this.#size[1]);
    return [x0, y0, x1, y1];
  }

  #draw() {
    const box = this.#box;
    box.hidden = this.#value === null;
    if (this.#value === null) return;
    place(box, this.#value, this.#size);
    const [x0, y0, x1, y1] = this.#value.map(Math.round);
    box.setAttribute(
      "aria-label",
      `Box from ${x0}, ${y0} to ${x1}, ${y1} of ${this.#size[0]} by ${this.#size[1]} pixels.`
        + " Arrow keys move it, Shift and arrow keys resize it.",
    );
  }

  #at(event) {
    const shown = this.#frame.getBoundingClientRect();
    return [
      ((event.clientX - shown.left) / shown.width) * this.#size[0],
      ((event.clientY - shown.top) / shown.height) * this.#size[1],
    ];
  }

  #start(event) {
    if (event.button !== 0 || this.#drag) return;
    const onBox = this.#box.contains(event.target) && !this.#drawing;
    if (!onBox && event.pointerType === "touch" && !this.#drawing) return; // scrolls the page
    event.preventDefault();
    const edge = onBox ? (event.target.dataset.edge ?? "") : null; // "": all of the box
    this.#drag = {
      edge, from: this.#at(event), screen: [event.clientX, event.clientY], value: this.#value,
      moved: false,
    };
    this.#frame.setPointerCapture(event.pointerId);
    if (onBox) this.#box.focus({ preventScroll: true });
  }

  #move(event) {
    const drag = this.#drag;
    if (!drag) return;
    const far = Math.hypot(event.clientX - drag.screen[0], event.clientY - drag.screen[1]);
    if (!drag.moved && far < (drag.edge === null ? FAR : 1)) return;
    drag.moved = true;
    const [x, y] = this.#at(event);
    if (drag.edge === null) {
      this.set([...drag.from, x, y]);
      return;
    }
    this.set(this.#shifted(drag.value, drag.edge, x - drag.from[0], y - drag.from[1]));
  }

  #end() {
    const { moved, edge } = this.#drag ?? {};
    this.#cancel();
    if (!moved) return;
    if (edge === null) this.drawing = false;
    this.#changed();
  }

  #cancel() {
    this.#drag = null;
  }

  #shifted([x0, y0, x1, y1], edge, dx, dy) {
    if (edge === "") {
      const [width, height] = this.#size;
      const right = clamp(dx, -x0, width - x1);
      const down = clamp(dy, -y0, height - y1);
      return [x0 + right, y0 + down, x1 + right, y1 + down];
    }
    return [
      x0 + (edge.includes("w") ? dx : 0), y0 + (edge.includes("n") ? dy : 0),
      x1 + (edge.includes("e") ? dx : 0), y1 + (edge.includes("s") ? dy : 0),
    ];
  }

  #key(event) {
    const by = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const direction = by[event.key];
    if (!direction || this.#value === null || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    event.stopPropagation();
    const [dx, dy] = direction.map((one) => one * (event.repeat ? 4 : 1));
    const [x0, y0, x1, y1] = this.#value.map(Math.round);
    if (!event.shiftKey) {
      this.set(this.#shifted([x0, y0, x1, y1], "", dx, dy));
      return;
    }
    const right = Math.max(x1 + dx, x0 + SMALLEST);
    const bottom = Math.max(y1 + dy, y0 + SMALLEST);
    this.set([x0, y0, right, bottom]);
  }
}

/** Put an element over a box, in parts of the picture's size. */
export function place(element, [x0, y0, x1, y1], [width, height]) {
  element.style.left = `${(100 * x0) / width}%`;
  element.style.top = `${(100 * y0) / height}%`;
  element.style.width = `${(100 * (x1 - x0)) / width}%`;
  element.style.height = `${(100 * (y1 - y0)) / height}%`;
}

function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

/** Two sides in order, whole numbers, at least SMALLEST apart and inside 0..most. */
function span(one, other, most) {
  const [low, high] = [one, other].map((side) => Math.round(clamp(side, 0, most))).sort((a, b) => a - b);
  const least = Math.min(SMALLEST, most);
  if (high - low >= least) return [low, high];
  return low + least <= most ? [low, low + least] : [most - least, most];
}
