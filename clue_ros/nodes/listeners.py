"""What happens as a dialogue of perception goes on: outputs, feedback, counters, a log of turns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from clue_ros.dialogue import Grounding, Question
from clue_ros.nodes.diagnostics import Health
from clue_ros.nodes.outputs import Feedback, Outputs
from clue_ros.nodes.session import Listener, Session
from clue_ros.voice.sayings import in_other_words


def together(*listeners: Listener) -> Listener:
    """Return one listener that calls each of these, in order."""

    def each(name: str) -> Callable[..., None]:
        def call(*args: Any) -> None:
            for listener in listeners:
                getattr(listener, name)(*args)

        return call

    return Listener(**{field.name: each(field.name) for field in fields(Listener)})


def log_turns(
    session: Session, write: Callable[[str], object], *, one_shot: bool = False
) -> Listener:
    """Return a listener that writes one line for each turn. Texts are cleaned: one line each.

    one_shot: nobody is asked, the question is the answer.
    """
    name = f"{'request' if one_shot else 'dialogue'} {session.id[:8]}"
    asks = "would ask" if one_shot else "asks"

    def thinking() -> None:
        turns = session.conversation.dialogue.turns
        said = "asks for" if len(turns) == 1 else "answers"
        write(f'{name}: the person {said} "{turns[-1].text}"')

    def replied(reply: Question | Grounding) -> None:
        sure = f"ambiguity {reply.ambiguity.probability:.2f}, {session.latency:.2f} s"
        if isinstance(reply, Question):
            write(f'{name}: the robot {asks} "{reply.text}" ({sure})')
        else:
            corners = ", ".join(f"{side:.0f}" for side in reply.box.as_list())
            write(f"{name}: the robot points at {corners} px ({sure}, score {reply.score:.2f})")

    return Listener(thinking=thinking, replied=replied)


def tell_all(
    session: Session,
    outputs: Outputs,
    health: Health,
    language: Callable[[], str],
    feedback: Feedback | None = None,
) -> Listener:
    """Return a listener that publishes what the robot sees and asks, and counts it.

    `feedback`: of the action, where there is a goal.
    """

    def replied(reply: Question | Grounding) -> None:
        health.replied(session.latency, session.stages)
        outputs.estimate(session, reply)
        if feedback:
            feedback.replied(session, reply)

    def asked(question: Question) -> None:
        health.questions += 1
        message = outputs.ask(session, question)
        if feedback:
            feedback.asked(message)

    def asked_again(question: Question, heard: bool) -> None:
        outputs.say(in_other_words(question.text, language(), heard=heard))

    return Listener(
        looking=feedback.looking if feedback else lambda: None,
        thinking=feedback.thinking if feedback else lambda: None,
        replied=replied,
        asked=asked,
        asked_again=asked_again,
    )
