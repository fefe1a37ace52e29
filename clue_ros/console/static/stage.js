// The picture with what lies over it: attention, candidates, the object that was found.

const SVG = "http://www.w3.org/2000/svg";
// From transparent violet over magenta and orange to pale yellow, as clue_ros draws it elsewhere.
const HEAT = [[20, 11, 53], [84, 15, 109], [158, 42, 99], [219, 80, 59], [251, 155, 6], [252, 243, 160]];

export class Stage {
  #root; #picture; #attention; #marks; #empty; #choose;
  #size = [4, 3]; #question = null; #found = null; #open = false; #map = null;

  /** choose(candidate) is called for a click on one. */
  constructor(root, choose) {
    this.#root = root;
    this.#picture = root.querySelector("#picture");
    this.#attention = root.querySelector("#attention");
    this.#marks = root.querySelector("#marks");
    this.#empty = root.querySelector("#empty");
    this.#choose = choose;
    new ResizeObserver(() => this.#drawMarks()).observe(root);
  }

  /** Draw a picture: number, width, height (uint32 each), then a JPEG. Returns its number. */
  async draw(data) {
    const head = new DataView(data);
    const [number, width, height] = [0, 4, 8].map((at) => head.getUint32(at, true));
    try {
      const bitmap = await createImageBitmap(new Blob([data.slice(12)], { type: "image/jpeg" }));
      const picture = this.#picture;
      if (picture.width !== bitmap.width || picture.height !== bitmap.height) {
        picture.width = bitmap.width;
        picture.height = bitmap.height;
      }
      picture.getContext("2d").drawImage(bitmap, 0, 0);
      bitmap.close();
      picture.dataset.frame = number;
      if (this.#size[0] !== width || this.#size[1] !== height) {
        this.#size = [width, height];
        this.#drawMarks();
        this.#drawAttention();
      }
      if (!this.#empty.hidden) {
        this.#empty.hidden = true;
        this.#describe();
      }
    } catch {
      this.#empty.hidden = false;
      this.#empty.textContent = "This picture cannot be shown: its JPEG is broken.";
    }
    return number;
  }

  /** The number and the size in pixels of the picture that is shown. */
  get shown() {
    return { number: Number(this.#picture.dataset.frame ?? 0), size: this.#size };
  }

  showQuestion(question) {
    this.#question = question.text === null ? null : question;
    this.#root.classList.toggle("asking", Boolean(this.#question?.candidates.length));
    this.#drawMarks();
  }

  showFound(object) {
    this.#found = object;
    this.#drawMarks();
  }

  setOpen(open) {
    this.#open = open;
    for (const mark of this.#marks.querySelectorAll(".mark")) mark.classList.toggle("closed", !open);
  }

  /** Emphasise the boxes of these candidates alone. */
  highlight(candidates) {
    for (const mark of this.#marks.querySelectorAll(".mark")) {
      mark.classList.toggle("highlighted", candidates.includes(Number(mark.dataset.candidate)));
    }
  }

  setMarks(shown) {
    this.#marks.style.display = shown ? "" : "none";
  }

  setOpacity(opacity) {
    this.#attention.style.opacity = opacity;
  }

  showAttention({ rows, columns, values }) {
    this.#map = null;
    if (values !== null) {
      const levels = Uint8Array.from(atob(values), (c) => c.charCodeAt(0));
      const pixels = new ImageData(columns, rows);
      levels.forEach((level, n) => pixels.data.set(heat(level / 255), 4 * n));
      this.#map = new OffscreenCanvas(columns, rows);
      this.#map.getContext("2d").putImageData(pixels, 0, 0);
    }
    this.#drawAttention();
  }

  #drawAttention() {
    const canvas = this.#attention;
    const scale = Math.min(1, 480 / Math.max(...this.#size));
    canvas.width = Math.max(1, Math.round(this.#size[0] * scale));
    canvas.height = Math.max(1, Math.round(this.#size[1] * scale));
    canvas.dataset.shown = this.#map !== null;
    if (this.#map === null) return;
    const pen = canvas.getContext("2d");
    pen.imageSmoothingQuality = "high";
    pen.drawImage(this.#map, 0, 0, canvas.width, canvas.height);
  }

  #drawMarks() {
    const [width, height] = this.#size;
    this.#marks.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const box = this.#marks.getBoundingClientRect();
    const pixel = 1 / (Math.min(box.width / width, box.height / height) || 1); // of the screen
    const marks = (this.#question?.candidates ?? []).map((shown, index) => {
      const text = `${index + 1} ${shown.label}`.trim();
      const group = mark("mark", shown.box, text, pixel, this.#size);
      group.dataset.candidate = index;
      group.classList.toggle("closed", !this.#open);
      group.addEventListener("click", () => this.#choose(index));
      return group;
    });
    if (this.#found) {
      marks.push(mark("found", this.#found.box, this.#found.label || "found", pixel, this.#size));
    }
    this.#marks.replaceChildren(...marks);
    this.#describe();
  }

  /** What the picture shows, for those who do not see it. */
  #describe() {
    if (!this.#empty.hidden) return;
    const parts = ["Picture of the robot's camera"];
    const count = this.#question?.candidates.length ?? 0;
    if (count) parts.push(`${count} candidates are marked, listed beside it`);
    if (this.#found) parts.push(`${this.#found.label || "an object"} is marked as found`);
    this.#picture.setAttribute("aria-label", parts.join(". "));
  }
}

function heat(value) {
  const at = value * (HEAT.length - 1);
  const low = Math.min(Math.floor(at), HEAT.length - 2);
  const mixed = HEAT[low].map((c, n) => c + (HEAT[low + 1][n] - c) * (at - low));
  return [...mixed, 255 * Math.min(1, value * 1.6)];
}

function svg(tag, attributes, text = "") {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

const ruler = document.createElement("canvas").getContext("2d");

/** The width of a tag's text in pixels of the screen. */
function widthOf(text) {
  ruler.font = `700 14px ${getComputedStyle(document.body).fontFamily}`;
  return ruler.measureText(text).width;
}

/** A box with a dark casing, so that it shows on any picture, and a tag on its upper edge. */
function mark(kind, [x0, y0, x1, y1], text, pixel, [width]) {
  const group = svg("g", { class: kind });
  const rect = { x: x0, y: y0, width: Math.max(0, x1 - x0), height: Math.max(0, y1 - y0) };
  group.append(svg("rect", { ...rect, class: "hit" }), svg("rect", { ...rect, class: "casing" }));
  const edge = svg("rect", { ...rect, class: "edge" });
  const shown = text.length > 28 ? `${text.slice(0, 27)}…` : text;
  const tagWidth = (widthOf(shown) + 10) * pixel;
  const tagHeight = 20 * pixel;
  const x = Math.max(0, Math.min(x0, width - tagWidth));
  const y = Math.max(0, y0 - tagHeight);
  const tag = svg("rect", { x, y, width: tagWidth, height: tagHeight, rx: 3 * pixel, class: "tag" });
  const label = svg("text", { x: x + 5 * pixel, y: y + 15 * pixel, "font-size": 14 * pixel }, shown);
  group.append(edge, tag, label);
  return group;
}
