// The review page: a list of recorded episodes, a replay, and a person's verdict.

import { BoxEditor } from "./box_editor.js";
import { api, el, fill, notify, place } from "./common.js";

const LEVELS = { confirmed: "ok", corrected: "busy", rejected: "error", unreviewed: undefined };
const WORDS = { confirmed: "confirmed", corrected: "corrected", rejected: "rejected", unreviewed: "open" };
// As the live page draws it: from transparent violet over magenta and orange to pale yellow.
const HEAT = [[20, 11, 53], [84, 15, 109], [158, 42, 99], [219, 80, 59], [251, 155, 6], [252, 243, 160]];
const PAUSES = [600, 2500]; // milliseconds of a step that is played, at least and at most

const id = (name) => document.getElementById(name);
const list = { shown: [], next: null, asked: 0 };
let episode = null; // the chosen one
let asked = 0; // number of the last episode that was asked for
let step = 0;
let playing = 0; // timer
let busy = false;
let robotBox = null; // in pixels

const editor = new BoxEditor(id("frame"), { width: 1, height: 1 }, corrected, {
  oninput: corrected, numbers: id("sides"), minimum: 2, fine: true, scrolls: true,
});

function corrected() {
  stop();
  if (step !== lastStep()) showStep(lastStep());
  showCorrection();
}

// The list.

async function loadList(more = false) {
  const number = ++list.asked;
  const query = new URLSearchParams({ verdict: id("verdict").value, outcome: id("outcome").value });
  if (more && list.next) query.set("before", list.next);
  try {
    const answer = await api(`/api/review/episodes?${query}`);
    if (number !== list.asked) return false;
    list.shown = more ? [...list.shown, ...answer.episodes] : answer.episodes;
    list.next = answer.next;
    showCounts(answer.counts);
    showList();
    return true;
  } catch (error) {
    notify(error.message, "error");
    return false;
  }
}

function showList() {
  fill(id("episodes"), ...list.shown.map((one) => el("li", {}, rowOf(one))));
  id("older").hidden = list.next === null;
  const filtered = id("verdict").value || id("outcome").value;
  id("empty").hidden = list.shown.length > 0;
  id("empty").textContent = filtered
    ? "No episode is like that. Choose another filter."
    : "No episodes here yet. Start the robot with record:=FOLDER.";
}

function rowOf(one) {
  const questions = one.questions === 1 ? "1 question" : `${one.questions} questions`;
  const about = [`${number(one.name)}`, one.outcome, questions, date(one.stamp)];
  return el(
    "button",
    {
      type: "button", "data-name": one.name, onclick: () => choose(one.name),
      "aria-current": one.name === episode?.name ? "true" : undefined,
    },
    el("span", { class: "request" }, one.request || "(no words)"),
    badge(one.verdict),
    el("span", { class: "about" }, about.filter(Boolean).join(" · ")),
  );
}

function badge(verdict, count) {
  const text = count === undefined ? WORDS[verdict] : `${count} ${WORDS[verdict]}`;
  return el("span", { class: "badge", "data-level": LEVELS[verdict] }, text);
}

function showCounts(counts) {
  const found = Object.keys(WORDS).map((name) => el("li", {}, badge(name, counts[name])));
  fill(id("counts"), ...found);
}

async function loadOutcomes() {
  const outcomes = await api("/api/review/outcomes").catch(() => ({}));
  const chosen = id("outcome").value;
  const options = Object.entries(outcomes).map(([name, count]) =>
    el("option", { value: name, selected: name === chosen }, `${name || "(none)"} (${count})`));
  fill(id("outcome"), el("option", { value: "" }, "all"), ...options.filter((o) => o.value));
}

// One episode.

async function choose(name) {
  stop();
  const number = ++asked;
  try {
    const found = await api(`/api/review/episodes/${encodeURIComponent(name)}`);
    if (number !== asked) return;
    episode = found;
  } catch (error) {
    if (number === asked) notify(error.message, "error");
    return;
  }
  history.replaceState(null, "", `#${name}`);
  showEpisode();
  markChosen();
}

function markChosen() {
  for (const button of id("episodes").querySelectorAll("button")) {
    const chosen = button.dataset.name === episode?.name;
    if (chosen) {
      button.setAttribute("aria-current", "true");
      reveal(id("episodes"), button);
    } else button.removeAttribute("aria-current");
  }
}

function showEpisode() {
  const { name, width, height, turns } = episode;
  id("content").hidden = false;
  id("title").textContent = `Episode ${number(name)}: ${turns[0]?.text ?? ""}`;
  const picture = id("picture");
  picture.src = `/api/review/episodes/${encodeURIComponent(name)}/picture`;
  picture.alt = `What the robot saw in episode ${number(name)}`;
  id("frame").style.setProperty("--ratio", width / height);
  robotBox = pixels(episode.box);
  editor.size = { width, height };
  showReview();
  showTurns();
  showStep(lastStep());
}

/** Show the box and the label as they were reviewed, or else the robot's. */
function showReview() {
  const { review, verdict, note, outcome, message } = episode;
  const state = id("state");
  state.hidden = false;
  state.textContent = WORDS[verdict];
  if (LEVELS[verdict]) state.dataset.level = LEVELS[verdict];
  else delete state.dataset.level;
  const ended = outcome === "GROUNDED" ? "" : [`Ended with ${outcome}`, message].filter(Boolean).join(": ");
  const notes = [note, ended].filter(Boolean).join(". ");
  id("note").hidden = !notes;
  id("note").textContent = notes;
  editor.box = pixels(review?.box) ?? robotBox;
  id("label").value = review?.label ?? episode.label;
  id("undo").disabled = verdict === "unreviewed";
  showCorrection();
}

function pixels(box) {
  return box ? box.map((side, n) => side * (n % 2 ? episode.height : episode.width)) : null;
}

/** Show what saving would do now. */
function showCorrection() {
  id("draw").setAttribute("aria-pressed", editor.drawing);
  id("reset").disabled = robotBox === null || isRobots();
  const confirm = id("confirm");
  confirm.disabled = editor.box === null;
  confirm.textContent = editor.box === null || isUnchanged() ? "Confirm" : "Save correction";
  if (step === lastStep()) showMarks();
}

function isRobots() {
  return same(editor.box, robotBox);
}

function isUnchanged() {
  return isRobots() && id("label").value.trim() === episode.label.trim();
}

function same(one, other) {
  if (one === null || other === null) return one === other;
  return one.every((side, n) => Math.round(side) === Math.round(other[n]));
}

// The replay: a step for each turn, and one for the box.

const lastStep = () => episode?.turns.length ?? 0;

function showTurns() {
  const first = episode.turns[0]?.stamp ?? null;
  const rows = episode.turns.map((turn, n) => {
    const who = turn.speaker === "robot" ? "Robot" : "Person";
    const after = turn.stamp === null || first === null ? "" : `+${(turn.stamp - first).toFixed(1)} s`;
    return turnRow(n, who, after, turn.text, turn.speaker === "robot" ? "" : judged(replyOf(n)));
  });
  const found = episode.box ? episode.label || "an object" : episode.outcome;
  const score = episode.score === null ? "" : `score ${episode.score.toFixed(2)}`;
  rows.push(turnRow(lastStep(), "Result", score, found, ""));
  fill(id("turns"), ...rows);
}

function turnRow(n, who, about, text, below) {
  return el(
    "li", {},
    el(
      "button", { type: "button", "data-step": n, onclick: () => { stop(); showStep(n); } },
      el("span", { class: "who" }, el("span", {}, who), el("span", { class: "number" }, about)),
      text,
      below ? el("span", { class: "who" }, below) : null,
    ),
  );
}

/** The reply of the model that followed the person's turn n, or was the robot's turn n. */
function replyOf(n) {
  return episode.replies[Math.floor(n / 2)] ?? null;
}

function judged(reply) {
  if (!reply || reply.probability === null) return "";
  const threshold = reply.threshold === null ? "" : `, asks from ${reply.threshold.toFixed(2)}`;
  return `ambiguity ${reply.probability.toFixed(2)}${threshold}`;
}

function showStep(n) {
  step = Math.max(0, Math.min(lastStep(), n));
  for (const button of id("turns").querySelectorAll("button")) {
    const current = Number(button.dataset.step) === step;
    if (current) {
      button.setAttribute("aria-current", "step");
      reveal(id("turns"), button);
    } else button.removeAttribute("aria-current");
  }
  const reply = step === lastStep() ? null : replyOf(step);
  const turn = episode.turns[step];
  const said = turn ? judged(reply) : "the box";
  id("step").textContent = `Step ${step + 1} of ${lastStep() + 1}${said ? `: ${said}` : ""}`;
  id("back").disabled = step === 0;
  id("forward").disabled = step === lastStep();
  editor.hidden = step !== lastStep();
  showMarks();
  showAttention(reply?.attention ?? null);
}

/** The candidates of a question, or the robot's own box beside a corrected one. */
function showMarks() {
  const marks = [];
  if (step === lastStep()) {
    if (robotBox && !isRobots()) marks.push([robotBox, "mark robot", ""]);
  } else if (episode.turns[step].speaker === "robot") {
    const boxes = replyOf(step)?.candidates ?? [];
    marks.push(...boxes.map((box, n) => [box, "mark", String(n + 1)]));
  }
  fill(id("marks"), ...marks.map(([box, kind, text]) => {
    const mark = el("div", { class: kind }, text ? el("span", {}, text) : null);
    place(mark, box, episode);
    return mark;
  }));
}

function showAttention(map) {
  const canvas = id("attention");
  const shown = map !== null && id("show-attention").checked;
  canvas.hidden = !shown;
  id("show-attention").disabled = map === null;
  if (!shown) return;
  canvas.width = map[0].length;
  canvas.height = map.length;
  const image = new ImageData(canvas.width, canvas.height);
  map.flat().forEach((value, n) => image.data.set(heat(value), 4 * n));
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function heat(value) {
  const at = Math.max(0, Math.min(1, value)) * (HEAT.length - 1);
  const low = Math.min(Math.floor(at), HEAT.length - 2);
  const mixed = HEAT[low].map((c, n) => c + (HEAT[low + 1][n] - c) * (at - low));
  return [...mixed, 255 * Math.min(1, Math.max(0, value) * 1.6)];
}

function play() {
  if (playing) return stop();
  showStep(step === lastStep() ? 0 : step);
  id("play").textContent = "Pause";
  id("play").setAttribute("aria-pressed", "true");
  schedule();
}

function schedule() {
  const [now, following] = [episode.turns[step]?.stamp, episode.turns[step + 1]?.stamp];
  const real = now && following ? (following - now) * 1000 : 1200;
  playing = setTimeout(() => {
    showStep(step + 1);
    if (step === lastStep()) stop();
    else schedule();
  }, Math.max(PAUSES[0], Math.min(PAUSES[1], real)));
}

function stop() {
  clearTimeout(playing);
  playing = 0;
  id("play").textContent = "Play";
  id("play").setAttribute("aria-pressed", "false");
}

// The verdict.

async function judge(verdict) {
  if (!episode || busy) return;
  const name = episode.name;
  let json = { verdict };
  if (verdict === "confirmed") {
    if (editor.box === null) {
      notify("There is no box: draw one, or reject the episode.");
      return;
    }
    if (!isUnchanged()) json = correction();
  }
  await save(name, { method: "PUT", json }, `Episode ${number(name)} is ${WORDS[json.verdict]}.`);
}

function correction() {
  const label = id("label").value.trim();
  const exact = isRobots() ? robotBox : editor.box;
  const box = exact.map((side, n) =>
    Math.max(0, Math.min(1, side / (n % 2 ? episode.height : episode.width))));
  return { verdict: "corrected", box, label: label === episode.label.trim() ? null : label || null };
}

async function undo() {
  if (!episode || busy || episode.verdict === "unreviewed") return;
  const name = episode.name;
  await save(name, { method: "DELETE" }, `Episode ${number(name)} is open again.`, false);
}

async function save(name, request, done, advance = id("advance").checked) {
  busy = true;
  try {
    const path = `/api/review/episodes/${encodeURIComponent(name)}/review`;
    const { counts, ...reviewed } = await api(path, request);
    showCounts(counts);
    const one = list.shown.find((other) => other.name === name);
    if (one) {
      one.verdict = reviewed.verdict;
      const button = [...id("episodes").querySelectorAll("button")].find((b) => b.dataset.name === name);
      button?.replaceWith(rowOf(one));
    }
    id("done").textContent = done;
    if (episode?.name === name) {
      Object.assign(episode, reviewed);
      showReview();
      showStep(lastStep());
    }
  } catch (error) {
    notify(error.message, "error");
    return;
  } finally {
    busy = false;
  }
  if (advance && episode?.name === name) await go(1);
}

/** Choose the episode that is `by` further down the list; loads older ones at its end. */
async function go(by) {
  const at = list.shown.findIndex((one) => one.name === episode?.name);
  const wanted = at < 0 ? 0 : at + by;
  if (wanted >= list.shown.length && list.next) await loadList(true);
  const one = list.shown[wanted];
  if (!one) return;
  await choose(one.name);
  if (id("frame").getBoundingClientRect().top < 0) id("replay").scrollIntoView(); // on a phone
}

// Small things.

/** Scroll a list, and nothing around it, so that one of its children is seen. */
function reveal(container, child) {
  const [outer, inner] = [container.getBoundingClientRect(), child.getBoundingClientRect()];
  if (inner.top < outer.top) container.scrollTop -= outer.top - inner.top;
  else if (inner.bottom > outer.bottom) container.scrollTop += inner.bottom - outer.bottom;
}

function number(name) {
  return Number(name.split("-")[1]);
}

function date(stamp) {
  return stamp ? new Date(stamp * 1000).toLocaleString([], { dateStyle: "medium", timeStyle: "short" }) : "";
}

const KEYS = {
  c: () => judge("confirmed"), r: () => judge("rejected"), u: undo,
  j: () => go(1), n: () => go(1), k: () => go(-1), p: () => go(-1),
  ArrowLeft: () => { stop(); showStep(step - 1); }, ArrowRight: () => { stop(); showStep(step + 1); },
};

document.addEventListener("keydown", (event) => {
  if (!id("keys").checked || event.ctrlKey || event.altKey || event.metaKey || event.repeat) return;
  if (event.target.matches("select, textarea, input:not([type=checkbox])")) return;
  const act = KEYS[event.key];
  if (!act || !episode) return;
  event.preventDefault();
  act();
});

for (const name of ["verdict", "outcome"]) id(name).addEventListener("change", () => loadList());
id("older").addEventListener("click", () => loadList(true));
id("back").addEventListener("click", () => { stop(); showStep(step - 1); });
id("forward").addEventListener("click", () => { stop(); showStep(step + 1); });
id("play").addEventListener("click", play);
id("show-attention").addEventListener("change", () => episode && showStep(step));
id("confirm").addEventListener("click", () => judge("confirmed"));
id("reject").addEventListener("click", () => judge("rejected"));
id("undo").addEventListener("click", undo);
id("previous").addEventListener("click", () => go(-1));
id("next").addEventListener("click", () => go(1));
id("reset").addEventListener("click", () => {
  editor.box = robotBox;
  corrected();
});
id("label").addEventListener("input", showCorrection);
id("draw").addEventListener("click", (event) => {
  if (event.detail === 0 && editor.box === null) editor.placeInMiddle(); // by keyboard
  else editor.drawing = !editor.drawing;
  showCorrection();
});
id("picture").addEventListener("error", () => {
  if (episode) notify(`The picture of episode ${number(episode.name)} cannot be shown.`, "error");
});

const wanted = /^#(episode-[\w-]+)$/.exec(location.hash);
const loaded = await loadList();
if (wanted) await choose(wanted[1]);
else if (loaded && list.shown.length) await choose(list.shown[0].name);
loadOutcomes();
