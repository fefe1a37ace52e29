// The page "Two people": shows what the server lets this person see, sends what they do.

import { BoxEditor } from "./box_editor.js";
import { Connection, api, el, fill, notify, place } from "./common.js";

const SECTIONS = ["consent", "choose", "waiting", "pair", "ended"];
const TITLE = document.title;
const byId = Object.fromEntries([...document.querySelectorAll("[id]")].map((e) => [e.id, e]));

let connection = null;
let view = null;
let deadline = null; // of the turn, on the clock of performance.now()
let session = ""; // whose picture is shown
let editor = null;
let editing = ""; // what the editor's box is for
let draft = null; // the agent's box, kept from one question to the next
let redrawing = false; // the user corrects the target
let choosing = false; // role and room, while waiting
let announced = "";

function show(section) {
  const changed = section && byId[section].hidden;
  for (const name of SECTIONS) byId[name].hidden = name !== section;
  if (changed) focusIfLost(byId.main);
}

/** What had the focus may be hidden now. */
function focusIfLost(element) {
  if ([document.body, byId.main].includes(document.activeElement)) {
    element.focus({ preventScroll: true });
  }
}

function act(action) {
  if (!connection?.send(action)) notify("There is no connection: try again in a moment.", "error");
}

// ---------------------------------------------------------------------------------------------
// Consent, connection, end.

async function begin() {
  try {
    const { text, version, agreed } = await api("/pairs/consent");
    byId["consent-text"].textContent = text;
    byId["consent-version"].textContent = version;
    if (agreed) connect();
    else show("consent");
  } catch (error) {
    notify(error.message, "error");
  }
}

async function agree() {
  const version = byId["consent-version"].textContent;
  try {
    await api(`/pairs/consent?version=${encodeURIComponent(version)}`, { method: "POST" });
    connect();
  } catch (error) {
    notify(error.message, "error");
  }
}

function end(text) {
  connection?.close();
  connection = null;
  view = null;
  byId.you.hidden = true;
  byId.notice.hidden = true;
  document.title = TITLE;
  showConnection("closed");
  byId["ended-text"].textContent = text;
  show("ended");
}

function connect() {
  connection = new Connection("/pairs/socket", { message: receive, state: showConnection });
}

function showConnection(state) {
  const level = { open: "ok", connecting: "busy", lost: "error", refused: "error" }[state];
  byId.connection.dataset.level = level ?? "";
  byId.connection.textContent = {
    open: "connected",
    connecting: "connecting",
    lost: "connection lost",
    refused: "token needed",
  }[state] ?? "not connected";
}

function receive(message) {
  if (message.closed !== undefined) {
    if (message.closed !== "consent") return end(message.text);
    connection.close();
    connection = null;
    view = null;
    byId.you.hidden = true;
    begin();
  } else if (message.refused !== undefined) {
    notify(message.refused, "error");
  } else {
    deadline =
      message.seconds_left === null ? null : performance.now() + 1000 * message.seconds_left;
    render(message.view);
  }
}

// ---------------------------------------------------------------------------------------------
// What is shown.

function render(newer) {
  const before = view;
  view = newer;
  byId.you.hidden = false;
  byId.id.textContent = view.you;
  byId.notice.hidden = !view.notice;
  byId.notice.textContent = view.notice;
  if (view.stage === "pair") renderPair(before);
  else {
    leavePicture();
    if (view.stage === "waiting" && !choosing) renderWaiting();
    else show("choose");
  }
  announce();
}

function renderWaiting() {
  const { waiting, paired, room } = view;
  const place = room ? `in room ${room}` : "here";
  const others = waiting
    ? `${waiting} more waiting ${place}, for another role than you offer: take "either".`
    : `Nobody else waits ${place}.`;
  const pairs = paired ? ` ${paired} people are in dialogues.` : "";
  byId["waiting-text"].textContent = `${others}${pairs} This page goes on by itself.`;
  show("waiting");
}

function renderPair(before) {
  choosing = false;
  const { role, phase, verdict } = view;
  const mine = view.your_turn;
  if (session !== view.session) {
    leavePicture();
    session = view.session;
    byId.image.src = `/pairs/picture/${session}`;
    fillReasons(byId["why-skip"], view.skip_reasons);
    fillReasons(byId["why-wrong"], view.wrong_reasons);
    byId.text.value = "";
  }
  if (phase !== before?.phase) {
    redrawing = false;
    if (before?.your_turn) byId.text.value = ""; // it was sent
  }

  byId.role.textContent = `you are the ${role}`;
  byId.turn.textContent =
    phase === "done" ? "done" : mine ? "your turn" : "the other person's turn";
  byId.turn.dataset.level = mine ? "ok" : "";
  byId.partner.hidden = view.partner_here;
  byId.task.textContent = view.task;

  const drawing =
    role === "user"
      ? phase === "target" || (phase === "request" && redrawing)
      : phase === "question";
  edit(drawing ? role : "");
  if (phase === "target") draft = null;
  byId.use.hidden = !(drawing && role === "user");
  byId.redraw.hidden = !(role === "user" && phase === "request" && !redrawing);
  byId.point.hidden = !(drawing && role === "agent");
  showBoxes(drawing);

  renderChat();
  const talking =
    mine && (role === "user" ? phase !== "target" && phase !== "check" : view.questions_left > 0);
  byId.say.hidden = !talking;
  byId.send.textContent = role === "agent" ? "Ask" : "Send";
  byId["text-label"].textContent = {
    request: "Your request",
    question: "Your question",
    answer: "Your answer",
  }[phase] ?? "Your words";
  byId.left.textContent = role === "agent" ? `${view.questions_left} questions left` : "";
  byId.check.hidden = !(phase === "check" && mine);
  byId.done.hidden = phase !== "done";
  if (verdict) {
    const said = verdict.right ? "right" : `wrong (${verdict.reason})`;
    const overlap = verdict.iou.toFixed(2);
    byId.verdict.textContent = `The user said: ${said}. Overlap of both boxes (IoU): ${overlap}.`;
  }
  byId.next.disabled = view.ready;
  byId.next.textContent = view.ready ? "Waiting for the other person" : "Next picture";
  byId.skip.disabled = byId.reset.disabled = phase === "check" || phase === "done";

  show("pair");
  if (talking) focusIfLost(byId.text);
}

function renderChat() {
  const lines = view.turns.map(({ speaker, text }) =>
    el(
      "li",
      { class: speaker === view.role ? "own" : "other" },
      el("span", { class: "who" }, speaker === view.role ? `${speaker} (you)` : speaker),
      el("span", { class: "words" }, text),
    ),
  );
  // Only new lines are added, so that a screen reader reads these alone.
  const kept = byId.chat.children.length;
  const same = [...byId.chat.children].every((line, i) => lines[i]?.textContent === line.textContent);
  if (same) byId.chat.append(...lines.slice(kept));
  else fill(byId.chat, ...lines);
  if (!same || lines.length > kept) byId.log.scrollTop = byId.log.scrollHeight;
}

function fillReasons(select, reasons) {
  fill(
    select,
    el("option", { value: "" }, "choose a reason"),
    ...reasons.map((reason) => el("option", { value: reason }, reason)),
  );
}

function announce() {
  const text = view.stage === "pair" ? `${byId.turn.textContent}. ${view.task}` : "";
  const all = [view.notice, text].filter(Boolean).join(" ");
  document.title = view.your_turn ? `Your turn - ${TITLE}` : TITLE;
  if (all !== announced) byId.live.textContent = all;
  announced = all;
}

// ---------------------------------------------------------------------------------------------
// Boxes.

function edit(what) {
  if (what === editing) return;
  if (editing === "agent") draft = editor.box;
  editor?.remove();
  editor = null;
  editing = what;
  byId.use.disabled = byId.point.disabled = true;
  if (!what) return;
  const [width, height] = view.size;
  const changed = (box) => {
    byId.use.disabled = byId.point.disabled = box === null;
  };
  const label = what === "user" ? "Your object" : "The object that the user means";
  editor = new BoxEditor(byId.picture, { width, height }, changed, { label });
  const box = what === "user" ? view.target : draft;
  if (box) {
    editor.box = box;
    changed(box);
  }
}

function showBoxes(drawing) {
  const boxes = [];
  const words = [];
  if (view.target && !drawing) {
    boxes.push(["target", view.target]);
    words.push("Solid: your object.");
  }
  if (view.answer) {
    boxes.push(["answer", view.answer]);
    words.push("Dashed: the agent's box.");
  }
  const [width, height] = view.size;
  fill(
    byId.shown,
    ...boxes.map(([kind, box]) => {
      const shown = el("div", { class: `shown-box ${kind}` });
      place(shown, box, { width, height });
      return shown;
    }),
  );
  byId.legend.textContent = words.join(" ");
}

function leavePicture() {
  session = "";
  redrawing = false;
  edit("");
  draft = null;
  fill(byId.shown);
  fill(byId.chat);
  byId.image.removeAttribute("src");
}

// ---------------------------------------------------------------------------------------------
// What a person does.

byId.agree.addEventListener("click", agree);
byId.decline.addEventListener("click", () =>
  end("You did not agree, so nothing was stored. You can close this page."),
);
byId.again.addEventListener("click", () => {
  show("");
  begin();
});
byId.join.addEventListener("submit", (event) => {
  event.preventDefault();
  choosing = false;
  act({ do: "join", role: byId.wish.value, room: byId.room.value.trim() });
  if (view?.stage === "waiting") renderWaiting();
});
byId.change.addEventListener("click", () => {
  choosing = true;
  show("choose");
  byId.wish.focus();
});
for (const button of [byId.leave, byId["stop-waiting"]]) {
  button.addEventListener("click", () => act({ do: "leave" }));
}
byId.use.addEventListener("click", () => {
  redrawing = false;
  act({ do: "choose", box: editor.box });
});
byId.redraw.addEventListener("click", () => {
  redrawing = true;
  render(view);
  editor.focus();
});
byId.point.addEventListener("click", () => act({ do: "point", box: editor.box }));
byId.say.addEventListener("submit", (event) => {
  event.preventDefault();
  if (!byId.text.value.trim()) return;
  act({ do: "say", text: byId.text.value });
});
byId.right.addEventListener("click", () => act({ do: "judge", right: true }));
byId.wrong.addEventListener("click", () =>
  act({ do: "judge", right: false, reason: byId["why-wrong"].value }),
);
byId.next.addEventListener("click", () => act({ do: "next" }));
byId.skip.addEventListener("click", () => act({ do: "skip", reason: byId["why-skip"].value }));
byId.reset.addEventListener("click", () => act({ do: "reset" }));

setInterval(() => {
  if (view?.stage !== "pair" || deadline === null) return;
  const left = Math.max(0, Math.round((deadline - performance.now()) / 1000));
  const clock = `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
  byId.time.textContent = `${clock} left`;
}, 500);

byId.room.value = new URL(location.href).searchParams.get("room") ?? "";
begin();
