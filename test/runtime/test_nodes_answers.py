"""Every answer that a question offers, by topic and service, and what follows the last question.

The node is real; its model is `ScriptedClue`, which asks the question that the test sets.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import ros_helpers

ros_helpers.need_ros()

import rclpy  # noqa: E402
from clue_msgs.action import GroundWithDialogue  # noqa: E402
from rclpy.executors import MultiThreadedExecutor  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402
from ros_helpers import TIMEOUT, Client, isolate, ros_client, wait_until  # noqa: E402

from clue_ros.dialogue.types import (  # noqa: E402
    AmbiguityEstimate,
    Box,
    Dialogue,
    Grounding,
    Question,
)
from clue_ros.dialogue.words import offered_answers  # noqa: E402
from clue_ros.lab.language.questions import list_options  # noqa: E402
from clue_ros.nodes.lifecycle import spin  # noqa: E402
from clue_ros.nodes.perception_node import PerceptionNode  # noqa: E402

Result = GroundWithDialogue.Result
ESTIMATE = AmbiguityEstimate(0.9, 0.5, np.zeros((4, 4), np.float32), (), 0.0)
BOXES = (Box(1, 2, 30, 40), Box(50, 2, 90, 40))
REQUEST = "pick up the mug"
OPTIONS = {
    "size": ("big", "small"),
    "color": ("red", "green"),
    "kind": ("mug", "bowl"),
    "place": ("left", "middle", "right"),
}
QUESTIONS = [list_options(axis, dict.fromkeys(words, (0,))).text for axis, words in OPTIONS.items()]
ANSWERS = [(question, answer) for question in QUESTIONS for answer in offered_answers(question)]
# The last word but "one" of an answer, alone: "right" to "the left one or the right one?".
SHORT = [(question, answer.removesuffix(" one").split()[-1]) for question, answer in ANSWERS]


class ScriptedClue:
    """A model that asks `question` until `questions` are asked or it is forced, then points."""

    model_name, device, dtype = "scripted", "cpu", "float32"
    policy: str
    threshold: float | None
    num_views: int | None
    question = ""
    questions = 1

    def look(self, image: Any) -> Any:
        """Return a view of the image."""
        return SimpleNamespace(image=image, height=image.shape[0], width=image.shape[1])

    def reply(self, _view: Any, dialogue: Dialogue, *, force_grounding: bool) -> Any:
        """Ask, or point with the person's last words as the label."""
        if force_grounding or dialogue.questions >= self.questions:
            return Grounding(BOXES[0], dialogue.turns[-1].text, 0.5, ESTIMATE)
        return Question(self.question, BOXES, offered_answers(self.question), ESTIMATE)

    def memory_bytes(self) -> int:
        """Return nothing to speak of."""
        return 0


class Scripted(PerceptionNode):
    """The perception node with a ScriptedClue."""

    def load(self) -> Any:
        """Return the scripted model."""
        self.script = ScriptedClue()
        return self.script


@pytest.fixture(scope="module")
def node() -> Iterator[Any]:
    isolate()
    context = rclpy.Context()
    rclpy.init(context=context)
    executor = MultiThreadedExecutor(3, context=context)
    on = [Parameter("autostart", value=True)]
    node = Scripted(executor, context=context, parameter_overrides=on)
    executor.add_node(node)
    thread = threading.Thread(target=spin, args=(executor,), daemon=True)
    thread.start()
    wait_until(lambda: node.state == "active", "the node")
    yield node
    node.close()
    context.try_shutdown()
    thread.join(TIMEOUT)
    executor.shutdown(timeout_sec=2.0)
    node.destroy_node()


@pytest.fixture(scope="module")
def shared(node: Any) -> Iterator[Client]:
    with ros_client() as client:
        client.start_camera()
        wait_until(lambda: client.ground(REQUEST, force=True).error_code == 0, "the first image")
        yield client


@pytest.fixture
def client(node: Any, shared: Client) -> Client:
    node.script.question, node.script.questions = QUESTIONS[-1], 1
    shared.clear()
    return shared


@pytest.mark.parametrize("way", ["speech", "service"])
@pytest.mark.parametrize(("question", "answer"), [*ANSWERS, *SHORT])
def test_an_offered_answer_is_taken_at_once(
    client: Client, node: Any, question: str, answer: str, way: str
) -> None:
    node.script.question = question
    goal = client.goal(REQUEST)
    assert client.next("question").text == question
    if way == "speech":
        client.speak(answer)
    else:
        assert client.answer(answer).accepted
    found = client.result(goal).result.grounding
    assert [turn.text for turn in found.dialogue] == [REQUEST, question, answer]
    said = [message.data for message in client.heard["say"]]
    assert not [text for text in said if text.startswith("Sorry")]


def test_yes_to_which_one_is_asked_again_and_then_right_is_an_answer(
    client: Client, node: Any
) -> None:
    node.script.question = "the left one or the right one?"
    goal = client.goal(REQUEST)
    client.next("question")
    client.speak("yes")
    assert client.next("say", 2).data.startswith("Sorry, I did not understand.")
    client.speak("Right.")
    turns = client.result(goal).result.grounding.dialogue
    assert [turn.text for turn in turns][2:] == ["Right."]


def dialogue(client: Client, questions: int) -> Any:
    """Hold a dialogue with this many answers, and return the action's result."""
    goal = client.goal(REQUEST)
    for number in range(questions):
        client.next("question", number + 1)
        assert client.answer("the left one").accepted
    return client.result(goal).result


def test_when_the_questions_are_used_up_it_ends_with_max_turns(client: Client, node: Any) -> None:
    node.script.questions = 99
    result = dialogue(client, questions=3)
    assert (result.error_code, result.num_questions) == (Result.MAX_TURNS, 3)


def test_with_force_grounding_it_points_at_its_best_guess(client: Client, node: Any) -> None:
    node.script.questions = 99
    assert client.set(force_grounding=True) == ""
    try:
        result = dialogue(client, questions=3)
        assert (result.error_code, result.num_questions) == (Result.NONE, 3)
        assert result.grounding.target.label == "the left one"
        assert client.next("grounding").target.label == "the left one"
    finally:
        client.set(force_grounding=False)


def test_views_may_be_set_by_their_old_name(client: Client, node: Any) -> None:
    assert client.set(looks=3) == ""
    assert node.get_parameter("num_views").value == 3
    assert client.ground(REQUEST, force=True).error_code == Result.NONE
    assert node.script.num_views == 3
    assert client.set(num_views=0) == ""
    assert client.ground(REQUEST, force=True).error_code == Result.NONE
    assert node.script.num_views is None
