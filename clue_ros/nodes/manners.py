"""Dialogue manners: what a person says that is neither a request nor an answer."""

from __future__ import annotations

from collections.abc import Callable

from clue_ros.nodes.conversation import Outcome, offers_yes
from clue_ros.nodes.session import Session
from clue_ros.voice.sayings import Saying, say
from clue_ros.voice.words import means_no, means_stop, means_yes

STOPPED = Outcome("CANCELED", "the person asked to stop")


def settled(
    session: Session | None, text: str, language: str, speak: Callable[[str], object]
) -> bool:
    """Take "stop" in any state, and yes or no to a question that asks which; whether it was that.

    Yes or no to such a question has it asked once more; the second time it passes as an answer.
    """
    if means_stop(text, language):
        if session is not None:
            session.stop(STOPPED)
        else:
            speak(say(Saying.NOTHING_TO_STOP, language))
        return True
    question = session.question if session is not None else None
    if session is None or question is None or offers_yes(question):
        return False
    if means_yes(text, language) or means_no(text, language):
        return session.ask_again(heard=True)
    return False
