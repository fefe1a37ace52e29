// The panels below the picture: the object, latency, diagnostics, settings.

import { el, fill } from "./common.js";
import { percent, place } from "./chat.js";

const facts = (rows) => el(
  "dl", { class: "facts" },
  ...rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
);
const muted = (text) => el("p", { class: "muted" }, text);

export function showObject(panel, object) {
  if (object === null) {
    fill(panel, muted("The object that a dialogue ends with is shown here."));
    return;
  }
  const rows = [["Name", object.label || "(no name)"]];
  if (object.score !== null) rows.push(["Score", percent(object.score).replace("score ", "")]);
  rows.push(["Box", object.box.map((side) => Math.round(side)).join(", ") + " px"]);
  if (object.position) {
    rows.push(["Position", place(object)]);
    if (object.frame_id) rows.push(["Frame", object.frame_id]);
  } else {
    rows.push(["Position", object.no_pose_reason || "not known"]);
  }
  fill(panel, facts(rows));
}

export function showDiagnostics(panel, badge, latency, { level, message, rows, latency: stages }) {
  badge.textContent = level;
  badge.dataset.level = level;
  fill(panel, message ? el("p", {}, message) : null, facts(rows));
  if (stages.length === 0) {
    fill(latency, muted("No reply yet."));
    return;
  }
  const total = stages.reduce((sum, [, milliseconds]) => sum + milliseconds, 0);
  const list = el("div", { class: "stages" });
  for (const [name, milliseconds] of stages) {
    const bar = el("div");
    bar.style.width = `${total > 0 ? (100 * milliseconds) / total : 0}%`;
    list.append(
      el("span", {}, name),
      el("div", { class: "bar" }, bar),
      el("span", { class: "number" }, `${milliseconds.toFixed(0)} ms`),
    );
  }
  list.append(
    el("span", { class: "total" }, "total"), el("span"),
    el("span", { class: "number total" }, `${total.toFixed(0)} ms`),
  );
  fill(latency, list);
}

/**
 * Settings as controls; change(name, value) is called when a person changes one. What a person is
 * typing stays when the robot's values arrive meanwhile.
 */
export function showSettings(form, options, change) {
  const described = options.map(({ value, choices, ...option }) => ({
    ...option,
    choices: choices.length === 0 || choices.includes(value) ? choices : [value, ...choices],
  }));
  const shown = JSON.stringify(described);
  if (form.dataset.shown !== shown) {
    const focused = form.contains(document.activeElement) ? document.activeElement.id : "";
    form.dataset.shown = shown;
    form.onsubmit = (event) => event.preventDefault();
    fill(form, ...described.map((option) => {
      const control = controlOf(option, change);
      return el("div", {}, el("label", { for: control.id, title: option.help }, option.name.replaceAll("_", " ")), control);
    }));
    if (focused) document.getElementById(focused)?.focus();
  }
  for (const { name, value } of options) {
    const control = form.elements.namedItem(name);
    control.dataset.value = value;
    if (control.dataset.typing === undefined) control.value = value;
  }
}

/** The robot's value is in dataset.value; dataset.typing is there while another one is typed. */
function controlOf({ name, help, choices, minimum, maximum }, change) {
  const common = {
    id: `option-${name}`, name, title: help,
    oninput: () => { control.dataset.typing = ""; },
    onchange: () => {
      delete control.dataset.typing;
      if (control.checkValidity()) change(name, control.value);
      else control.reportValidity();
    },
    onblur: () => { // still typing: it is again what it was, so there was no change
      if (control.dataset.typing !== undefined) control.value = control.dataset.value;
      delete control.dataset.typing;
    },
  };
  const number = minimum !== null || maximum !== null;
  const limits = number ? { min: minimum, max: maximum, step: "any" } : {};
  const control = choices.length
    ? el("select", common, ...choices.map((choice) => el("option", { value: choice }, choice)))
    : el("input", { ...common, type: number ? "number" : "text", ...limits });
  return control;
}
