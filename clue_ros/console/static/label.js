// The label page: a box and a name for each object on photographs; every change is saved at once.

import { BoxEditor } from "./box_editor.js";
import { api, el, fill, notify, place } from "./common.js";

const id = (name) => document.getElementById(name);
let photographs = [];
let at = 0; // the shown one
let chosen = null; // index of the object that is changed; null: a new one
let busy = false;

const editor = new BoxEditor(id("frame"), { width: 1, height: 1 }, drawn, {
  numbers: id("sides"), minimum: 4, fine: true,
});

const shown = () => photographs[at];
const path = ({ name }) => `/api/label/photographs/${encodeURIComponent(name)}`;

function drawn() {
  if (editor.box) id("name").focus();
}

function show(n) {
  at = Math.max(0, Math.min(photographs.length - 1, n));
  const { name, width, height, note } = shown();
  id("title").textContent = `${name} (${at + 1} of ${photographs.length})`;
  id("picture").src = path(shown());
  id("picture").alt = name;
  id("frame").style.setProperty("--ratio", width / height);
  id("note").hidden = !note;
  id("note").textContent = note;
  id("done").textContent = "";
  editor.size = { width, height };
  id("previous").disabled = at === 0;
  id("next").disabled = at === photographs.length - 1;
  history.replaceState(null, "", `#${encodeURIComponent(name)}`);
  choose(null);
  showList();
}

/** Begin to change an object, or a new one. */
function choose(n) {
  chosen = n;
  const object = n === null ? null : shown().objects[n];
  editor.box = object?.box ?? null;
  id("name").value = object?.name ?? "";
  id("save").textContent = object ? "Save change" : "Save object";
  showObjects();
}

function showObjects() {
  const { objects, width, height } = shown();
  fill(id("objects"), ...objects.map((object, n) => el(
    "li", { class: "row" },
    el("button", {
      type: "button", onclick: () => choose(n), "aria-current": n === chosen ? "step" : undefined,
    }, `${n + 1}  ${object.name}`),
    el("button", {
      type: "button", class: "danger", "aria-label": `Remove ${object.name}`,
      onclick: () => save(objects.filter((_, other) => other !== n), `${object.name} is removed.`),
    }, "Remove"),
  )));
  fill(id("marks"), ...objects.map(({ box }, n) => {
    if (n === chosen) return null;
    const mark = el("div", { class: "mark" }, el("span", {}, String(n + 1)));
    place(mark, box, { width, height });
    return mark;
  }));
}

function showList() {
  const labelled = photographs.filter(({ objects }) => objects.length).length;
  id("progress").textContent = `${labelled} of ${photographs.length} are labelled`;
  fill(id("photographs"), ...photographs.map(({ name, objects }, n) => el("li", {}, el(
    "button",
    { type: "button", onclick: () => show(n), "aria-current": n === at ? "true" : undefined },
    el("span", { class: "request" }, name),
    el("span", { class: "badge", "data-level": objects.length ? "ok" : undefined },
      String(objects.length)),
  ))));
  const names = new Set(photographs.flatMap(({ objects }) => objects.map(({ name }) => name)));
  fill(id("names"), ...[...names].sort().map((name) => el("option", { value: name })));
}

async function save(objects, done) {
  if (busy) return;
  busy = true;
  const n = at;
  try {
    const { requests, ...photograph } = await api(path(shown()), { method: "PUT", json: { objects } });
    photographs[n] = photograph;
    if (n !== at) return showList();
    id("note").hidden = true;
    id("done").textContent = `${done} ${requests} requests in all.`;
    choose(null);
    showList();
  } catch (error) {
    notify(error.message, "error");
  } finally {
    busy = false;
  }
}

id("object").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = id("name").value.trim();
  if (editor.box === null) {
    notify("There is no box: drag one around the object.");
    return;
  }
  const objects = [...shown().objects];
  objects[chosen ?? objects.length] = { name, box: editor.box };
  save(objects, `${name} is saved.`);
});
id("cancel").addEventListener("click", () => choose(null));
id("previous").addEventListener("click", () => show(at - 1));
id("next").addEventListener("click", () => show(at + 1));
id("picture").addEventListener("error", () => {
  if (photographs.length) notify(`${shown().name} cannot be shown: is the file whole?`, "error");
});

try {
  const found = await api("/api/label/photographs");
  photographs = found.photographs;
  const problems = Object.values(found.problems);
  id("problems").hidden = !problems.length;
  fill(id("problems"), ...problems.map((reason) => el("li", {}, reason)));
  const wanted = decodeURIComponent(location.hash.slice(1));
  const there = photographs.findIndex(({ name }) => name === wanted);
  const open = photographs.findIndex(({ objects }) => !objects.length);
  show(there >= 0 ? there : Math.max(open, 0));
} catch (error) {
  notify(error.message, "error");
}
