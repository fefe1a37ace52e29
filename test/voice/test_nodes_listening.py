"""The speech node's decisions about recognized phrases, without sound."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ros_helpers

ros_helpers.need_ros()

from clue_msgs.action import Listen  # noqa: E402
from clue_msgs.msg import ClarificationQuestion, Transcript  # noqa: E402
from rclpy.node import Node  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402
from std_msgs.msg import String  # noqa: E402

from clue_ros.lab.language import words  # noqa: E402
from clue_ros.lab.simulator.worlds import BLOCKS  # noqa: E402
from clue_ros.nodes.inference_worker import new_future  # noqa: E402
from clue_ros.nodes.speech_node import ListenGoal, ListeningState, SpeechNode  # noqa: E402
from clue_ros.voice.audio import Audio  # noqa: E402
from clue_ros.voice.confirmation import Action, Decision, Thresholds  # noqa: E402
from clue_ros.voice.endpointing import Phrase  # noqa: E402
from clue_ros.voice.grammar import Expecting, Hints, Hypothesis  # noqa: E402

SURE, UNSURE, NOISE = 0.9, 0.4, 0.05
HINTS = Hints(Expecting.ANSWER, (), "en")
PHRASE = Phrase(Audio(np.zeros(16000, np.int16), 16000), 0.0, 1.0, 0.5)
LEFT_OR_RIGHT = ("the left one", "the right one")


def listening() -> ListeningState:
    return ListeningState("en-US", Thresholds(0.6, 0.25))


def heard(state: ListeningState, text: str, confidence: float = SURE) -> Decision:
    return state.decide(Hypothesis(text, confidence), Thresholds(0.6, 0.25), 0.0, 100.0)


@pytest.mark.parametrize(
    ("answers", "text", "still"),
    [
        (LEFT_OR_RIGHT, "yes", True),  # perception asks which once more
        (LEFT_OR_RIGHT, "no", True),
        (LEFT_OR_RIGHT, "the left one", False),
        (LEFT_OR_RIGHT, "right", False),
        (LEFT_OR_RIGHT, "wait", True),
        (LEFT_OR_RIGHT, "stop", False),
        (LEFT_OR_RIGHT, "don't pick it up", False),
        (["yes", "no"], "yes", False),
    ],
)
def test_push_to_talk_listens_while_the_question_is_open(
    answers: list[str], text: str, still: bool
) -> None:
    state = listening()
    state.question_asked(ClarificationQuestion(suggested_answers=answers), now=0.0)
    assert state.waits_for_speech(1.0)
    heard(state, text)
    assert state.waits_for_speech(1.0) is still
    expecting = state.hints(1.0, helped=True).expecting
    assert expecting is (Expecting.ANSWER if still else Expecting.COMMAND)
    state.dialogue_ended()
    assert not state.waits_for_speech(1.0)


def test_a_goal_waits_on_for_its_own_seconds() -> None:
    state = listening()
    goal: Any = ListenGoal(SimpleNamespace(), SimpleNamespace(), timeout=2.0, deadline=2.0)
    assert state.open_goal(goal)
    state.extend(1.0, 8.0)
    assert goal.deadline == 3.0
    state.extend(0.0, 8.0)
    assert goal.deadline == 3.0


def offers() -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield what the questions of the language offer, and each way to give one as the answer."""
    for values, templates, slot in (
        (tuple(BLOCKS.colors), words.BY_COLOR, "c"),
        (tuple(words.PLACES), words.BY_PLACE, "p"),
    ):
        for value in values:
            other = next(v for v in values if v != value)
            for template in templates:
                filled = (template.format(**{slot: v, "n": "block"}) for v in (value, other))
                yield tuple(filled), template.format(**{slot: value, "n": "block"})


@pytest.mark.parametrize("confidence", [SURE, UNSURE])
def test_every_answer_that_a_question_offers_is_that_answer(confidence: float) -> None:
    """Also "right", which is no yes where the question offers it, nor after a read-back."""
    for answers, answer in offers():
        state = listening()
        state.question_asked(ClarificationQuestion(suggested_answers=answers), now=0.0)
        if confidence == UNSURE:
            assert heard(state, answers[1], UNSURE).action is Action.CONFIRM
        decision = heard(state, answer)
        assert (decision.action, decision.text) == (Action.ACCEPT, answer), answers
        assert not state.confirming
        assert not state.waits_for_speech(1.0)


def test_yes_and_no_still_answer_what_was_read_back() -> None:
    for reply, action, text in (
        ("yes", Action.ACCEPT, "the left one"),
        ("no", Action.DENIED, "the left one"),
        ("that is right", Action.ACCEPT, "the left one"),
        ("right", Action.ACCEPT, "right"),
    ):
        state = listening()
        state.question_asked(ClarificationQuestion(suggested_answers=LEFT_OR_RIGHT), now=0.0)
        heard(state, "the left one", UNSURE)
        decision = heard(state, reply)
        assert (decision.action, decision.text) == (action, text), reply


class Ears:
    """A speech node without a recognizer, and what it publishes."""

    def __init__(self, executor: Any) -> None:
        self.executor = executor
        off = [Parameter("autostart", value=False)]
        self.node = SpeechNode(executor, context=executor.context, parameter_overrides=off)
        self.client = Node("listener", context=executor.context)
        self.transcripts: list[Transcript] = []
        self.speech: list[str] = []
        make = self.client.create_subscription
        make(Transcript, "transcript", self.transcripts.append, 10)
        make(String, "speech", lambda m: self.speech.append(m.data), 10)
        self.question = self.client.create_publisher(ClarificationQuestion, "question", 10)
        executor.add_node(self.node)
        executor.add_node(self.client)
        count = self.node.count_subscribers
        self.until(lambda: count("transcript") and count("speech") and count("question"))

    def until(self, condition: Callable[[], object]) -> None:
        """Spin until the condition is true."""
        deadline = time.monotonic() + 60.0
        while not condition():
            assert time.monotonic() < deadline
            self.executor.spin_once(timeout_sec=0.02)

    def hears(self, *phrases: tuple[str, float]) -> list[int]:
        """Give the node recognized phrases; returns the statuses of their transcripts."""
        self.transcripts.clear()
        self.speech.clear()
        for text, confidence in phrases:
            self.node.on_recognized(PHRASE, Hypothesis(text, confidence), HINTS)
        self.until(lambda: len(self.transcripts) == len(phrases))
        return [message.status for message in self.transcripts]


@pytest.fixture
def ears(executor: Any) -> Iterator[Ears]:
    made = Ears(executor)
    yield made
    made.node.destroy_node()
    made.client.destroy_node()


def test_no_to_what_was_read_back_is_denied_and_not_a_phrase_that_was_not_understood(
    ears: Ears,
) -> None:
    """Perception would ask its question again, beside "Then please say it again."."""
    assert ears.hears(("the red one", UNSURE), ("no", SURE)) == [
        Transcript.UNCONFIRMED,
        Transcript.DENIED,
    ]
    assert ears.transcripts[1].is_final


def test_a_cough_leaves_what_was_read_back_open(ears: Ears) -> None:
    ended = new_future(ears.node.spinner)
    handle: Any = SimpleNamespace(is_active=False)
    ears.node.listening.open_goal(ListenGoal(handle, ended, 60.0, 1e12))
    assert ears.hears(("the red one", UNSURE), ("", NOISE), ("yes", SURE)) == [
        Transcript.UNCONFIRMED,
        Transcript.UNCONFIRMED,
        Transcript.ACCEPTED,
    ]
    assert ended.result()[0] == Listen.Result.HEARD
    assert ears.hears(("", NOISE)) == [Transcript.NOT_UNDERSTOOD]


def test_right_is_published_as_the_answer_that_the_question_offers(ears: Ears) -> None:
    ears.question.publish(ClarificationQuestion(suggested_answers=LEFT_OR_RIGHT))
    ears.until(lambda: ears.node.listening.waits_for_speech(0.0))
    assert ears.hears(("the left one", UNSURE), ("right", SURE)) == [
        Transcript.UNCONFIRMED,
        Transcript.ACCEPTED,
    ]
    ears.until(lambda: ears.speech)
    assert ears.speech == ["right"]
    assert ears.transcripts[1].text == "right"
