"""What speech does with what it heard: the words are given here, and no sound is made of them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ros_helpers

ros_helpers.need_ros()

from clue_msgs.action import Listen  # noqa: E402
from clue_msgs.msg import ClarificationQuestion, Transcript  # noqa: E402
from ros_fixtures import executor  # noqa: E402

from clue_ros.nodes.inference_worker import new_future  # noqa: E402
from clue_ros.nodes.speech_node import (  # noqa: E402
    Job,
    Listening,
    SpeechNode,
)
from clue_ros.voice.audio import Audio  # noqa: E402
from clue_ros.voice.confirmation import Thresholds  # noqa: E402
from clue_ros.voice.endpointing import Phrase  # noqa: E402
from clue_ros.voice.grammar import Expecting, Hints  # noqa: E402
from clue_ros.voice.recognizers import EngineSettings  # noqa: E402
from clue_ros.voice.sphinx import Heard  # noqa: E402

__all__ = ["executor"]  # a fixture
SURE, UNSURE, NOISE = 0.9, 0.4, 0.05
HINTS = Hints(Expecting.ANSWER, (), "en")
PHRASE = Phrase(Audio(np.zeros(16000, np.int16), 16000), 0.0, 1.0, 0.5)


def listening() -> Listening:
    return Listening("en-US", Thresholds(0.6, 0.25))


def heard(made: Listening, text: str, sure: float = SURE) -> None:
    made.decide(Heard(text, sure), HINTS, Thresholds(0.6, 0.25), until=100.0)


@pytest.mark.parametrize(
    ("answers", "text", "still"),
    [
        (["the left one", "the right one"], "yes", True),  # perception asks which once more
        (["the left one", "the right one"], "no", True),
        (["the left one", "the right one"], "the left one", False),
        (["the left one", "the right one"], "stop", False),
        (["yes", "no"], "yes", False),
    ],
)
def test_push_to_talk_listens_while_the_question_is_open(
    answers: list[str], text: str, still: bool
) -> None:
    made = listening()
    made.asked(ClarificationQuestion(suggested_answers=answers), now=0.0)
    assert made.open(1.0)
    heard(made, text)
    assert made.open(1.0) is still
    expecting = made.hints(1.0, helped=True).expecting
    assert expecting is (Expecting.ANSWER if still else Expecting.COMMAND)
    made.over()
    assert not made.open(1.0)


def test_a_goal_waits_on_for_its_own_seconds() -> None:
    made = listening()
    job: Any = Job(SimpleNamespace(), SimpleNamespace(), seconds=2.0, deadline=2.0)
    assert made.claim(job)
    made.wait_on(1.0, 8.0)
    assert job.deadline == 3.0
    made.wait_on(0.0, 8.0)
    assert job.deadline == 3.0


@pytest.fixture
def speech(executor: Any) -> Iterator[Any]:
    """Give a node that is active, as far as it knows; its recognizer has nothing to say."""
    node: Any = SpeechNode(executor, context=executor.context)
    node._recognizer = SimpleNamespace(settings=EngineSettings("sphinx", "en-US", ""))
    node.told = []
    node._transcript = SimpleNamespace(publish=node.told.append)
    yield node
    node.destroy_node()


def statuses(node: Any, *phrases: tuple[str, float]) -> list[int]:
    """What becomes of each phrase."""
    node.told.clear()
    for text, sure in phrases:
        node._on_heard(PHRASE, Heard(text, sure), HINTS)
    return [message.status for message in node.told]


def test_no_to_what_was_read_back_is_denied_and_not_a_phrase_that_was_not_understood(
    speech: Any,
) -> None:
    """Perception would ask its question again, beside "Then please say it again."."""
    assert statuses(speech, ("the red one", UNSURE), ("no", SURE)) == [
        Transcript.UNCONFIRMED,
        Transcript.DENIED,
    ]
    assert speech.told[1].is_final


def test_a_cough_leaves_what_was_read_back_open(speech: Any) -> None:
    ended = new_future(speech.spinner)
    speech._listening.claim(Job(SimpleNamespace(is_active=False), ended, 60.0, 1e12))
    assert statuses(speech, ("the red one", UNSURE), ("", NOISE), ("yes", SURE)) == [
        Transcript.UNCONFIRMED,
        Transcript.UNCONFIRMED,
        Transcript.ACCEPTED,
    ]
    assert ended.result()[0] == Listen.Result.HEARD
    assert statuses(speech, ("", NOISE)) == [Transcript.NOT_UNDERSTOOD]
