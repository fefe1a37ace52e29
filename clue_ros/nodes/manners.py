"""Dialogue manners: what a person says that is neither a request nor an answer."""

from __future__ import annotations

from collections.abc import Callable

from clue_ros.nodes.conversation import Outcome, offers_yes
from clue_ros.nodes.session import Session
from clue_ros.voice.sayings import Saying, say
from clue_ros.voice.words import means_stop, means_yes_or_no


def stopped(session: Session, text: str, language: str) -> bool:
    """End the dialogue where the text asks to stop; whether it did."""
    if not means_stop(text, language):
        return False
    session.stop(Outcome("CANCELED", "the person asked to stop"))
    return True


def settled(
    session: Session | None, text: str, language: str, speak: Callable[[str], object]
) -> bool:
    """Take "stop" in any state, and yes or no to a question that asks which; whether it was that.

    Yes or no to such a question has it asked once more; the second time it passes as an answer.
    """
    if session is None:
        stop = means_stop(text, language)
        if stop:
            speak(say(Saying.NOTHING_TO_STOP, language))
        return stop
    if stopped(session, text, language):
        return True
    question = session.question
    if question is None or offers_yes(question) or not means_yes_or_no(text, language):
        return False
    return session.ask_again(heard=True)
