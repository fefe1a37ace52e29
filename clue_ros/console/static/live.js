// The live page: connects the server's messages with the parts of the page.

import { Connection, api, notify } from "./common.js";
import { Chat } from "./chat.js";
import { Microphone } from "./microphone.js";
import { showDiagnostics, showObject, showSettings } from "./panels.js";
import { Stage } from "./stage.js";
import { Teaching } from "./teach.js";

const $ = (id) => document.getElementById(id);
const STATES = {
  inactive: ["Not active", "warn"],
  idle: ["Ready", "ok"],
  looking: ["Looking", "busy"],
  thinking: ["Thinking", "busy"],
  waiting: ["Waiting for an answer", "busy"],
  ended: ["Ready", "ok"],
  lost: ["No robot", "error"],
};

let page = null; // the server's page whose chat is shown
let status = { state: "lost" };
const stage = new Stage($("stage"), (candidate) => choose(candidate));
const narrow = matchMedia("(max-width: 1000px)");
const chat = new Chat($("chat"), $("question"), $("examples"), {
  choose,
  answer: say,
  highlight: (candidates) => stage.highlight(candidates),
  other() {
    $("say").placeholder = "Say which one you mean";
    $("say").focus();
  },
});

// The picture stands still while a box is drawn on it.
let still = null;
let moveOn = () => {};
const teaching = new Teaching(stage, {
  teach: (frame, box, name) => send({ type: "teach", frame, box, name }),
  forget: (name) => send({ type: "forget", name }),
  list() {
    still = new Promise((resolve) => { moveOn = resolve; });
    send({ type: "taught" });
  },
  ended: () => moveOn(),
  refuse: (reason) => notify(reason, "error"),
});

const connection = new Connection("/ws/live", {
  message: receive,
  async binary(data) {
    await still;
    const number = await stage.draw(data);
    if (document.hidden) {
      await new Promise((shown) => document.addEventListener("visibilitychange", shown, { once: true }));
    }
    connection.send({ type: "drawn", frame: number });
  },
  state(state) {
    const shown = {
      connecting: ["Connecting", "warn"],
      open: ["Connected", "ok"],
      lost: ["Connection lost, trying again", "error"],
      refused: ["Token needed: open the printed address", "error"],
    }[state];
    setBadge($("connection"), shown);
    document.body.classList.toggle("offline", state !== "open");
  },
});

function receive(message) {
  switch (message.type) {
    case "hello":
      if (page !== message.page) chat.clear();
      page = message.page;
      break;
    case "status": return showStatus(message);
    case "turn": return chat.addTurn(message);
    case "question":
      chat.showQuestion(message);
      stage.showQuestion(message);
      if (message.text !== null && narrow.matches) $("stage").scrollIntoView({ block: "start" });
      return undefined;
    case "grounding":
      stage.showFound(message.object);
      return showObject($("object"), message.object);
    case "attention": return stage.showAttention(message);
    case "options":
      return showSettings($("settings"), message.options, (name, value) => {
        send({ type: "option", name, value });
      });
    case "diagnostics": return showDiagnostics($("health"), $("level"), $("latency"), message);
    case "taught": return teaching.show(message.things);
    case "photograph":
      $("camera").hidden = message.name === null;
      $("camera").textContent = `Back to ${message.camera}`;
      $("source").textContent = message.name ?? message.camera;
      $("source").title = $("source").textContent;
      return undefined;
    case "notice": return notify(message.text);
    case "refused":
      chat.refuse(message.text);
      return notify(message.text, "error");
    default: return undefined;
  }
  return undefined;
}

function setBadge(badge, [text, level]) {
  if (badge.textContent !== text) badge.textContent = text;
  badge.dataset.level = level;
}

function showStatus(message) {
  status = message;
  const open = message.state === "waiting";
  chat.setOpen(open);
  stage.setOpen(open);
  const failed = message.error && message.error !== "NONE";
  $("outcome").textContent = message.message ?? "";
  $("outcome").title = failed ? message.error : "";
  $("say").placeholder = open ? "Answer, or click one" : "Say what to pick up";
  showSecondsLeft();
}

function showSecondsLeft() {
  const [text, level] = STATES[status.state] ?? [status.state, "warn"];
  let left = "";
  if (status.state === "waiting" && status.until) {
    left = ` · ${Math.max(0, Math.round(status.until - Date.now() / 1000))} s`;
  }
  const badge = $("state");
  // Each second is for the eye alone: a screen reader is told of the state once.
  if (badge.dataset.state !== status.state) {
    badge.dataset.state = status.state;
    badge.textContent = "";
    badge.append(text, document.createElement("span"));
    badge.lastChild.setAttribute("aria-hidden", "true");
  }
  badge.lastChild.textContent = left;
  badge.dataset.level = level;
}
setInterval(showSecondsLeft, 1000);

function send(message) {
  if (connection.send(message)) return true;
  notify("Not sent: there is no connection to the server. The page connects by itself.", "error");
  return false;
}

function say(text) {
  return send({ type: "say", text });
}

function choose(candidate) {
  if (status.state === "waiting") {
    send({ type: "choose", question: chat.question.number, candidate });
  }
}

function stop() {
  send({ type: "stop" });
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = $("say").value;
  if (text.trim() && say(text)) {
    chat.sent(text);
    $("say").value = "";
  }
  $("say").focus();
});
for (const example of $("examples").querySelectorAll("button")) {
  example.addEventListener("click", () => {
    $("say").value = example.textContent;
    $("say").focus();
  });
}
$("stop").addEventListener("click", stop);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") stop();
});

$("opacity").addEventListener("input", () => {
  $("opacity-value").textContent = `${$("opacity").value} %`;
  stage.setOpacity($("opacity").value / 100);
});
$("show-marks").addEventListener("change", () => stage.setMarks($("show-marks").checked));
stage.setOpacity($("opacity").value / 100);

// Photographs: by a file button, or dropped anywhere on the page.

async function usePhotograph(file) {
  if (!file) return;
  try {
    await api(`/api/photograph?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file });
    notify(`The robot looks at ${file.name}.`);
  } catch (error) {
    notify(error.message, "error");
  }
}

$("choose-file").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", async () => {
  await usePhotograph($("file").files[0]);
  $("file").value = "";
});
$("camera").addEventListener("click", () => {
  send({ type: "camera" });
  $("choose-file").focus();
});
const holdsFiles = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
document.addEventListener("dragover", (event) => {
  if (!holdsFiles(event)) return;
  event.preventDefault();
  $("drop").hidden = false;
});
document.addEventListener("dragleave", (event) => {
  if (event.relatedTarget === null) $("drop").hidden = true;
});
document.addEventListener("drop", (event) => {
  if (!holdsFiles(event)) return;
  event.preventDefault();
  $("drop").hidden = true;
  usePhotograph(event.dataTransfer.files[0]);
});

new Microphone($("microphone"), {
  sound: (samples) => connection.send(samples),
  failed: (reason) => notify(reason, "error"),
});
