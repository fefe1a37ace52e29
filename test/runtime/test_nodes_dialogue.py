"""Whole dialogues with the perception node over DDS: every way they begin, go on and end."""

from __future__ import annotations

import subprocess
import sys

import pytest
import ros_helpers

ros_helpers.need_ros()

from action_msgs.msg import GoalStatus  # noqa: E402
from builtin_interfaces.msg import Duration  # noqa: E402
from clue_msgs.action import GroundWithDialogue  # noqa: E402
from clue_msgs.msg import DialogueTurn, Transcript  # noqa: E402
from ros_fixtures import LONG, REQUEST, asking_goal, works  # noqa: E402
from ros_helpers import Client, wait_until  # noqa: E402

Result = GroundWithDialogue.Result
State = GroundWithDialogue.Feedback


def test_a_clear_request_ends_in_a_grounding_that_is_published_and_said(client: Client) -> None:
    image = client.image()
    handle = client.goal(REQUEST, image=image)
    end = client.result(handle)
    assert (end.status, end.result.error_code) == (GoalStatus.STATUS_SUCCEEDED, Result.NONE)
    assert end.result.num_questions == 0
    # NaN (no pose) is never equal
    assert repr(end.result.grounding) == repr(client.next("grounding"))
    assert end.result.grounding.header == image.header
    assert end.result.grounding.dialogue_id == bytes(handle.goal_id.uuid).hex()
    assert [turn.text for turn in end.result.grounding.dialogue] == [REQUEST]
    assert client.next("say").data
    states = [feedback.state for feedback in client.feedback]
    assert states == [State.LOOKING, State.THINKING, State.GROUNDING]


@pytest.mark.parametrize("way", ["speech", "service"])
def test_a_question_travels_everywhere_and_its_answer_comes_either_way(
    client: Client, way: str
) -> None:
    image = client.image()
    handle, question = asking_goal(client, image=image)
    assert question.header == image.header
    assert question.dialogue_id == bytes(handle.goal_id.uuid).hex()
    assert question.turn == 1
    assert question.answer_timeout.sec == LONG
    assert client.next("say").data == question.text
    wait_until(lambda: client.feedback[-1].state == State.WAITING_FOR_ANSWER, "the feedback")
    assert repr(client.feedback[-1].question) == repr(question)  # NaN scores are never equal
    assert client.feedback[-1].ambiguity.is_ambiguous
    assert client.feedback[-1].ambiguity.header == image.header
    assert question.candidates
    assert all(candidate.header == image.header for candidate in question.candidates)
    client.set(threshold=1.0)
    if way == "speech":
        client.speak("the red one")
    else:
        response = client.answer("the red one", question.dialogue_id)
        assert (response.accepted, response.error_code) == (True, Result.NONE)
    end = client.result(handle)
    assert end.status == GoalStatus.STATUS_SUCCEEDED
    assert end.result.num_questions == 1
    said = [(turn.speaker, turn.text) for turn in end.result.grounding.dialogue]
    assert said == [
        (DialogueTurn.USER, REQUEST),
        (DialogueTurn.ROBOT, question.text),
        (DialogueTurn.USER, "the red one"),
    ]


def test_speech_starts_a_dialogue_and_speech_answers_it(client: Client) -> None:
    client.set(threshold=0.0)
    client.speak(REQUEST)
    question = client.next("question")
    assert question.dialogue_id
    client.set(threshold=1.0)
    client.speak("the red one")
    found = client.next("grounding")
    assert found.dialogue_id == question.dialogue_id
    assert [turn.text for turn in found.dialogue] == [REQUEST, question.text, "the red one"]
    assert client.next("say", 2).data.startswith("I see")


@pytest.mark.parametrize("text", ["", "\x07", "\N{ROBOT FACE}", "x" * 10_000])
def test_speech_that_is_no_request_is_said_and_the_next_one_works(
    client: Client, text: str
) -> None:
    client.speak(text)
    assert client.next("say").data.endswith(("say it again.", "in other words."))
    client.speak("pick up the <loc0000> <image> block")
    assert client.next("grounding").expression == "pick up the <loc0000> <image> block"


def test_an_unreadable_answer_is_refused_and_the_question_stays_open(client: Client) -> None:
    handle, question = asking_goal(client)
    assert client.answer(" ").error_code == Result.EMPTY_EXPRESSION
    assert client.answer("\N{GRINNING FACE}").error_code == Result.BAD_EXPRESSION
    assert client.answer("left", "nobody's").error_code == Result.UNKNOWN_DIALOGUE
    client.speak("\N{GRINNING FACE}")
    assert client.next("say", 2).data != question.text  # said in words that it was not understood
    client.set(threshold=1.0)
    assert client.answer("the left one", question.dialogue_id).accepted
    assert client.result(handle).result.error_code == Result.NONE


def test_an_answer_that_never_comes_is_answer_timeout(client: Client) -> None:
    handle, question = asking_goal(client, answer_timeout=Duration(nanosec=200_000_000))
    assert question.answer_timeout.nanosec == 200_000_000
    end = client.result(handle)
    assert (end.status, end.result.error_code) == (
        GoalStatus.STATUS_ABORTED,
        Result.ANSWER_TIMEOUT,
    )
    assert end.result.num_questions == 1
    assert client.next("say", 2).data
    assert client.answer("too late").error_code == Result.UNKNOWN_DIALOGUE
    works(client)


def test_too_many_questions_is_max_turns(client: Client) -> None:
    handle, _ = asking_goal(client, max_turns=2)
    assert client.answer("the left one").accepted
    assert client.next("question", 2).turn == 2
    assert client.answer("the red one").accepted
    end = client.result(handle)
    assert (end.status, end.result.error_code) == (GoalStatus.STATUS_ABORTED, Result.MAX_TURNS)
    assert end.result.num_questions == 2
    works(client)


def test_a_goal_canceled_at_once_is_canceled_too(client: Client) -> None:
    client.set(threshold=0.0)
    handle = client.goal(REQUEST)
    client.cancel(handle)
    end = client.result(handle)
    assert (end.status, end.result.error_code) == (GoalStatus.STATUS_CANCELED, Result.CANCELED)
    works(client)


def test_everything_else_is_busy_while_a_dialogue_is_open(client: Client) -> None:
    handle, question = asking_goal(client)
    assert client.ground(REQUEST).error_code == Result.BUSY
    second = client.result(client.goal("pick up the ball"))
    assert (second.status, second.result.error_code) == (GoalStatus.STATUS_ABORTED, Result.BUSY)
    assert question.dialogue_id in second.result.error_msg
    client.set(threshold=1.0)
    assert client.answer("the left one").accepted
    assert client.result(handle).result.error_code == Result.NONE


def test_deactivation_ends_the_dialogue_and_activation_brings_the_node_back(client: Client) -> None:
    handle, _ = asking_goal(client)
    assert client.transition("deactivate")
    end = client.result(handle)
    assert (end.status, end.result.error_code) == (GoalStatus.STATUS_ABORTED, Result.INACTIVE)
    assert client.ground(REQUEST, image=client.image()).error_code == Result.INACTIVE
    assert client.transition("cleanup")
    assert client.state() == "unconfigured"
    assert client.transition("configure")
    assert client.transition("activate")
    works(client)


def test_the_client_in_the_documentation_works(client: Client) -> None:
    text = (ros_helpers.ROOT / "docs" / "howto-client.md").read_text()
    code = text.split("```python\n")[2].split("```")[0]
    client.set(threshold=0.0)  # so it asks twice, its max_turns, and then gives up
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="the left one\nthe red one\n",
        capture_output=True,
        text=True,
        timeout=ros_helpers.TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("robot:") == 2
    assert f"{Result.MAX_TURNS} still unclear after 2 questions" in done.stdout


# Manners: stop, and asking again in other words.


def said(client: Client) -> list[str]:
    return [message.data for message in client.heard["say"]]


@pytest.fixture
def asked(client: Client) -> Client:
    """Give the client with a question open."""
    client.set(threshold=0.0, ask_again_after=0.0)
    client.speak(REQUEST)
    client.next("question")
    client.next("say")
    return client


def close(client: Client) -> None:
    client.speak("stop")
    wait_until(lambda: said(client)[-1:] == ["All right, I stop."], "the end")
    client.set(threshold=1.0, ask_again_after=0.0)


def test_an_answer_that_was_not_understood_is_asked_again_once(asked: Client) -> None:
    publisher = asked.node.create_publisher(Transcript, "transcript", 10)
    wait_until(lambda: publisher.get_subscription_count() > 0, "perception on transcript")
    for _ in range(2):
        publisher.publish(Transcript(status=Transcript.NOT_UNDERSTOOD, is_final=True))
    wait_until(lambda: len(said(asked)) >= 2, "the question in other words")
    again = said(asked)[1]
    assert again.startswith("Sorry, I did not understand.")
    assert again != said(asked)[0]
    close(asked)
    assert sum(text.startswith("Sorry") for text in said(asked)) == 1


def test_silence_has_it_asked_again_and_ends_it_aloud(client: Client) -> None:
    client.set(threshold=0.0, ask_again_after=0.2, answer_timeout=1.0)
    client.speak(REQUEST)
    wait_until(lambda: len(said(client)) >= 3, "question, once more, and the end")
    assert said(client)[1].startswith("I did not hear you.")
    assert said(client)[2] == "I did not hear an answer, so I stop here."
    client.set(threshold=1.0, ask_again_after=0.0, answer_timeout=20.0)


def test_stop_with_nothing_open_is_no_request(client: Client) -> None:
    client.speak("never mind")
    wait_until(lambda: said(client) == ["All right."], "a word")
    works(client)
