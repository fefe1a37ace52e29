"""What is said to an open question, by topic and service, and what follows the last question.

The node is real; its model is `ScriptedClue`, which asks the question that the test sets.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ros_helpers

ros_helpers.need_ros()

from builtin_interfaces.msg import Duration  # noqa: E402
from clue_msgs.action import GroundWithDialogue  # noqa: E402
from clue_msgs.srv import AnswerClarification  # noqa: E402
from rclpy.executors import MultiThreadedExecutor  # noqa: E402
from ros_helpers import Client, ros_client, wait_until  # noqa: E402
from scripted_perception import BOXES, Scripted, scripted  # noqa: E402
from wordings import REFUSALS, WAITS  # noqa: E402

from clue_ros.dialogue.words import offered_answers  # noqa: E402
from clue_ros.lab.language.questions import list_options  # noqa: E402
from clue_ros.nodes.client import CommandGrounder  # noqa: E402
from clue_ros.nodes.messages import box_of  # noqa: E402
from clue_ros.nodes.topics import Perception, Topic  # noqa: E402

Result = GroundWithDialogue.Result
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


def counting(subscribe: Callable[..., Any]) -> Callable[..., Any]:
    """Return `Topic.subscribe`, counting the node's speech once it has been taken."""

    def subscribed(topic: Topic, node: Any, callback: Callable[..., Any], **options: Any) -> Any:
        def counted(message: Any) -> None:
            callback(message)
            node.speeches += 1

        return subscribe(
            topic, node, counted if topic is Perception.SPEECH else callback, **options
        )

    return subscribed


@pytest.fixture(scope="module")
def node() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Topic, "subscribe", counting(Topic.subscribe))
        with scripted(MultiThreadedExecutor, 3, autostart=True) as node:
            node.may_load.set()
            wait_until(lambda: node.state == "active", "the node")
            yield node


@pytest.fixture(scope="module")
def shared(node: Any) -> Iterator[Client]:
    with ros_client() as client:
        client.start_camera()
        wait_until(lambda: client.ground(REQUEST, force=True).error_code == 0, "the first image")
        yield client


@pytest.fixture
def client(node: Any, shared: Client) -> Client:
    node.script.question, node.script.questions = QUESTIONS[-1], 1
    node.script.asks_each = False
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
    found = pointed(client, goal)
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
    turns = pointed(client, goal).dialogue
    assert [turn.text for turn in turns][2:] == ["Right."]


def tell(client: Client, text: str, way: str) -> Any:
    """Say something by a way; return the response of the service, None of the topic."""
    return client.speak(text) if way == "speech" else client.answer(text)


def wait_for_speeches(node: Scripted, count: int) -> None:
    """Wait until the node has heard so many since it was made."""
    wait_until(lambda: node.speeches == count, "all that was said")


def pointed(client: Client, goal: Any) -> Any:
    """Return the grounding that a dialogue ends with, once the topic has it as well.

    The topic may be later than the action: the next test would hear this test's grounding.
    """
    result = client.result(goal).result
    assert result.error_code == Result.NONE
    assert client.next("grounding").dialogue_id == result.grounding.dialogue_id
    return result.grounding


def nothing_was_pointed_at(client: Client) -> None:
    """Check it, after the next request has gone through the same topics."""
    assert client.ground(REQUEST, force=True).error_code == Result.NONE
    assert client.heard["grounding"] == []


@pytest.mark.parametrize("way", ["speech", "service"])
@pytest.mark.parametrize("text", ["No, don't!", "halt", "never mind", "ne le prends pas"])
def test_a_refusal_ends_the_dialogue_without_a_box(client: Client, text: str, way: str) -> None:
    goal = client.goal(REQUEST)
    client.next("question")
    response = tell(client, text, way)
    assert response is None or response.accepted
    result = client.result(goal).result
    assert result.error_code == Result.CANCELED
    assert text in result.error_msg
    assert client.next("say", 2).data == "All right, I stop."
    nothing_was_pointed_at(client)


@pytest.mark.parametrize("force", [False, True])
def test_nothing_said_beside_an_open_question_ends_in_a_box(
    client: Client, node: Any, force: bool
) -> None:
    assert client.set(force_grounding=force) == ""
    try:
        for number, text in enumerate((*REFUSALS, *WAITS)[force::4]):
            client.clear()
            heard = node.speeches
            goal = client.goal(REQUEST)
            client.next("question")
            for way in ("speech", "service") if number % 2 else ("service", "speech"):
                tell(client, text, way)
            tell(client, "stop", "speech")
            assert client.result(goal).result.error_code != Result.NONE, text
            # What was said after the dialogue's end must not reach the next one.
            wait_for_speeches(node, heard + 2)
            wait_until(lambda: client.ground(REQUEST, force=True).error_code == 0, "the end")
            assert client.heard["grounding"] == [], text
    finally:
        client.set(force_grounding=False)


@pytest.mark.parametrize("way", ["speech", "service"])
@pytest.mark.parametrize("text", ["no", "none of them", "aucun des deux"])
def test_no_is_asked_once_more_and_ends_the_dialogue_then(
    client: Client, text: str, way: str
) -> None:
    goal = client.goal(REQUEST)
    client.next("question")
    response = tell(client, text, way)
    if response is not None:
        assert not response.accepted
        assert response.error_code == Result.BAD_EXPRESSION
        assert "the question stays open" in response.error_msg
    assert client.next("say", 2).data == "Then please tell me what you mean."
    response = tell(client, text, way)
    assert response is None or response.accepted
    assert client.result(goal).result.error_code == Result.CANCELED
    nothing_was_pointed_at(client)


@pytest.mark.parametrize("way", ["speech", "service"])
def test_wait_keeps_the_question_open_and_its_time_starts_again(client: Client, way: str) -> None:
    goal = client.goal(REQUEST, answer_timeout=Duration(sec=3))
    client.next("question")
    begin = time.monotonic()
    for number in range(2):
        time.sleep(1.7)
        response = tell(client, "one moment", way)
        assert response is None or response.accepted
        assert client.next("say", 2 + number).data == "All right, I wait."
    assert time.monotonic() - begin > 3.0
    assert tell(client, "the left one", "service").accepted
    pointed(client, goal)


def test_a_refusal_while_the_model_runs_ends_the_dialogue(client: Client, node: Any) -> None:
    node.script.may_go_on.clear()
    try:
        goal = client.goal(REQUEST)
        wait_until(lambda: node.script.runs, "the model")
        client.speak("no, don't pick it up")
        assert client.result(goal).result.error_code == Result.CANCELED
    finally:
        node.script.may_go_on.set()
    nothing_was_pointed_at(client)


def test_a_chosen_candidate_counts_whatever_the_words(client: Client, node: Any) -> None:
    node.script.question = "the red one or the green one?"
    assert (
        client.answer("", candidate=0).error_code == AnswerClarification.Response.UNKNOWN_DIALOGUE
    )
    goal = client.goal(REQUEST)
    question = client.next("question")
    assert [list(meant.indices) for meant in question.suggested_candidates] == [[0], [1]]
    assert [found.label for found in question.candidates] == ["mug", "bowl"]
    assert not question.confirm
    for missing in (2, -2):
        refused = client.answer("", candidate=missing)
        assert refused.error_code == AnswerClarification.Response.BAD_EXPRESSION
        assert f"candidate {missing}" in refused.error_msg
    assert client.answer("the red one", candidate=1).accepted
    found = pointed(client, goal)
    assert box_of(found.target.box) == BOXES[1]
    assert (found.target.label, found.confirmed) == ("bowl", True)
    assert math.isnan(found.max_risk), "no bound is in force"
    assert found.dialogue[-1].text == "the green one"
    goal = client.goal(REQUEST)
    client.next("question", 2)
    client.answer("the green one")
    client.result(goal)
    assert not client.next("grounding", 2).confirmed


def test_the_client_answers_by_a_candidate_too(client: Client, node: Any) -> None:
    with CommandGrounder("chooser", context=client.node.context) as grounder:
        found = grounder.ground(REQUEST, on_question=lambda _question: 1, timeout=60.0)
    assert box_of(found.target.box) == BOXES[1]
    assert client.next("grounding").confirmed


def test_that_it_is_busy_is_said_once_until_it_is_free(client: Client, node: Any) -> None:
    busy = "One moment, I am still busy."
    for asked in (1, 2):
        node.script.may_go_on.clear()
        goal = client.goal(REQUEST)
        wait_until(lambda: node.script.runs, "the model to run")
        before = node.speeches
        for number in range(9):  # the topic keeps 10
            client.speak(f"pick up the bowl {number}")
        wait_for_speeches(node, before + 9)
        node.script.may_go_on.set()
        client.next("question", asked)
        assert client.answer("the left one").accepted
        assert client.result(goal).result.error_code == Result.NONE
        nothing_more = client.ground(REQUEST, force=True)
        assert nothing_more.error_code == Result.NONE
        assert [m.data for m in client.heard["say"]].count(busy) == asked


def test_a_request_for_another_object_starts_the_dialogue_over(client: Client, node: Any) -> None:
    node.script.questions = 2
    node.script.asks_each = True
    goal = client.goal(REQUEST)
    first = client.next("question")
    client.speak("no, pick up the bowl instead")
    second = client.next("question", 2)
    assert (first.turn, second.turn) == (1, 2)
    assert first.dialogue_id == second.dialogue_id
    client.speak("the left one")
    result = client.result(goal).result
    assert (result.error_code, result.num_questions) == (Result.NONE, 2)
    turns = [turn.text for turn in result.grounding.dialogue]
    question = node.script.question
    assert turns == [REQUEST, question, "pick up the bowl instead", question, "the left one"]


@pytest.mark.parametrize("text", ["don't pick up the apple", "stop", "wait", "n'y touche pas"])
def test_a_request_that_asks_for_nothing_points_at_nothing(client: Client, text: str) -> None:
    client.speak(text)
    assert client.next("say").data == "All right."
    for force in (False, True):
        response = client.ground(text, force=force)
        assert response.error_code == Result.CANCELED
        assert text in response.error_msg
    assert client.result(client.goal(text)).result.error_code == Result.CANCELED
    nothing_was_pointed_at(client)


def test_with_force_grounding_it_points_at_its_best_guess(client: Client, node: Any) -> None:
    node.script.questions = 99
    assert client.set(force_grounding=True) == ""
    try:
        goal = client.goal(REQUEST)
        for number in range(3):
            client.next("question", number + 1)
            assert client.answer("the left one").accepted
        result = client.result(goal).result
        assert (result.error_code, result.num_questions) == (Result.NONE, 3)
        assert result.grounding.target.label == "the left one"
        assert client.next("grounding").target.label == "the left one"
    finally:
        client.set(force_grounding=False)


def test_the_number_of_views_reaches_the_model(client: Client, node: Any) -> None:
    assert client.set(num_views=3) == ""
    assert client.ground(REQUEST, force=True).error_code == Result.NONE
    assert node.script.num_views == 3
    assert client.set(num_views=0) == ""
    assert client.ground(REQUEST, force=True).error_code == Result.NONE
    assert node.script.num_views is None
