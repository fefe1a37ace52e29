// The dialogue: what was said, and the candidates and answers of the open question.

import { el, fill } from "./common.js";

const WHO = { user: "You", robot: "Robot" };

export class Chat {
  #log; #card; #examples; #actions; #last = 0; #sent = ""; #open = false;
  question = { number: 0, text: null };

  /** actions: choose(candidate), answer(text), highlight(candidates), other(). */
  constructor(log, card, examples, actions) {
    this.#log = log;
    this.#card = card;
    this.#examples = examples;
    this.#actions = actions;
    this.clear();
  }

  clear() {
    this.#last = 0;
    fill(this.#log, el("p", { class: "turn note" }, "Nothing was said yet. Say what the robot should pick up, such as:"));
    this.#examples.hidden = false;
  }

  addTurn({ number, speaker, text, stamp }) {
    if (number <= this.#last) return;
    if (this.#last === 0) fill(this.#log);
    this.#examples.hidden = true;
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
    const [asked, options] = this.#card.children;
    this.#card.hidden = question.text === null;
    if (this.#card.hidden) {
      fill(options);
      if (focused) document.getElementById("say").focus();
      return;
    }
    asked.textContent = question.text;
    this.#card.classList.toggle("confirm", question.confirm);
    fill(options, ...(question.confirm ? this.#confirmation(question) : this.#choices(question)));
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

  /** One list: each candidate, then the answers that mean several of them, or none. */
  #choices({ candidates, others }) {
    const choose = (index) => () => this.#actions.choose(index);
    return [
      ...candidates.map((shown, index) => this.#option(
        [index], shown.name, factsOf(shown), choose(index), "candidate",
      )),
      ...others.map(({ text, candidates: meant }) => this.#option(
        meant, text, {}, () => this.#actions.answer(text), "answer",
      )),
    ];
  }

  /** Yes, No, or another one. */
  #confirmation({ candidates: [shown], others }) {
    const no = others[0]?.text ?? "no";
    return [
      this.#option([0], "Yes", factsOf(shown), () => this.#actions.choose(0), "candidate"),
      this.#option([], "No", {}, () => this.#actions.answer(no), "answer"),
      this.#option([], "Another…", {}, () => this.#actions.other(), "answer"),
    ];
  }

  #option(meant, text, { label, facts }, act, kind) {
    const look = () => this.#actions.highlight(meant);
    const away = () => this.#actions.highlight([]);
    return el(
      "button",
      {
        type: "button", class: `option ${kind}`, onclick: act,
        onfocus: look, onblur: away, onpointerenter: look, onpointerleave: away,
      },
      ...meant.map((index) => el("span", { class: "chip" }, `${index + 1}`)),
      el(
        "span", { class: "detail" },
        el("span", { class: "name" }, text),
        label && label !== text ? el("span", { class: "muted label" }, label) : null,
        facts ? el("span", { class: "muted number facts" }, facts) : null,
      ),
    );
  }
}

function factsOf(shown) {
  const score = shown.score === null ? "" : shown.score.toFixed(2);
  const facts = [score, coordinates(shown)].filter(Boolean).join(" · ");
  return { label: shown.label, facts };
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
