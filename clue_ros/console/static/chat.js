// The dialogue: what was said, and the candidates and answers of the open question.

import { el, fill } from "./common.js";

const WHO = { user: "You", robot: "Robot" };

export class Chat {
  #log; #card; #actions; #last = 0; #sent = ""; #open = false;
  question = { number: 0, text: null };

  /** actions: choose(candidate), answer(text), highlight(candidate or null). */
  constructor(log, card, actions) {
    this.#log = log;
    this.#card = card;
    this.#actions = actions;
    this.clear();
  }

  clear() {
    this.#last = 0;
    fill(this.#log, el("p", { class: "turn note" }, "Nothing was said yet."));
  }

  addTurn({ number, speaker, text, stamp }) {
    if (number <= this.#last) return;
    if (this.#last === 0) fill(this.#log);
    this.#last = number;
    if (speaker === "user") this.#sent = "";
    const turn = el("div", { class: `turn ${speaker}` });
    if (WHO[speaker]) {
      const time = new Date(stamp * 1000);
      turn.title = time.toLocaleTimeString();
      turn.append(el("span", { class: "who" }, WHO[speaker]));
    }
    turn.append(text);
    this.#log.append(turn);
    while (this.#log.children.length > 300) this.#log.firstElementChild.remove();
    this.#log.scrollTop = this.#log.scrollHeight;
  }

  /** Remember what was typed: a refusal gives it back. */
  sent(text) {
    this.#sent = text;
  }

  /** The last thing was refused: put it back into an empty field, so that it can be corrected. */
  refuse() {
    const field = document.getElementById("say");
    if (this.#sent && !field.value) field.value = this.#sent;
    this.#sent = "";
  }

  showQuestion(question) {
    const focused = this.#card.contains(document.activeElement);
    this.question = question;
    const [answers, candidates] = this.#card.children;
    this.#card.hidden = question.text === null;
    if (this.#card.hidden) {
      fill(answers);
      fill(candidates);
      if (focused) document.getElementById("say").focus();
      return;
    }
    fill(answers, ...question.suggested_answers.map((answer) => el(
      "button", { type: "button", onclick: () => this.#actions.answer(answer) }, answer,
    )));
    fill(candidates, ...question.candidates.map((shown, index) => this.#candidate(shown, index)));
    this.setOpen(this.#open);
    this.#log.scrollTop = this.#log.scrollHeight;
  }

  /** Whether the robot waits for an answer now. */
  setOpen(open) {
    this.#open = open;
    const inside = this.#card.contains(document.activeElement);
    for (const button of this.#card.querySelectorAll("button")) button.disabled = !open;
    if (inside && !open) document.getElementById("say").focus();
  }

  #candidate(shown, index) {
    const [name, color] = shown.color;
    const chip = el("span", { class: "chip" }, `${index + 1} ${name}`.trim());
    chip.style.backgroundColor = color;
    const facts = [shown.label, percent(shown.score), coordinates(shown)].filter(Boolean).join(" · ");
    const look = () => this.#actions.highlight(index);
    const away = () => this.#actions.highlight(null);
    return el(
      "button",
      {
        type: "button", class: "candidate", onclick: () => this.#actions.choose(index),
        onfocus: look, onblur: away, onpointerenter: look, onpointerleave: away,
      },
      chip,
      el(
        "span", { class: "detail" },
        el("span", {}, `“${shown.says}”`),
        facts ? el("span", { class: "muted number" }, facts) : null,
      ),
    );
  }
}

export function percent(score) {
  return score === null ? "" : `score ${score.toFixed(2)}`;
}

function coordinates({ position }) {
  return position ? `${position.map(metres).join(", ")} m` : "";
}

/** A distance with two digits; a small one below zero is 0.00, not -0.00. */
function metres(value) {
  return (Math.round(value * 100) / 100 + 0).toFixed(2);
}

/** Where an object is, in metres; empty where it is not known. */
export function place({ position }) {
  return position ? `x ${metres(position[0])}  y ${metres(position[1])}  z ${metres(position[2])} m` : "";
}
