"""Dialogue manners over DDS: asking again in other words, stop, yes and no."""

from __future__ import annotations

import math

import numpy as np
import pytest
import ros_helpers
from ros_helpers import Client, wait_until

ros_helpers.need_ros()

from clue_msgs.msg import Transcript  # noqa: E402
from clue_msgs.srv import AnswerClarification  # noqa: E402
from ros_fixtures import REQUEST, client, model, node, shared, works  # noqa: E402

from clue_ros.dialogue.conversation import Conversation, Outcome, Think, in_words  # noqa: E402
from clue_ros.dialogue.types import AmbiguityEstimate, Box, Question  # noqa: E402

__all__ = ["client", "model", "node", "shared"]  # fixtures
ESTIMATE = AmbiguityEstimate(0.9, 0.5, np.zeros((4, 4), np.float32), (), 0.0)
BOX = Box(1, 2, 3, 4)


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


def test_stop_ends_a_dialogue_and_the_next_request_works(asked: Client) -> None:
    close(asked)
    works(asked)


def test_stop_is_no_answer_of_the_service_either(asked: Client) -> None:
    service = asked.node.create_client(AnswerClarification, "answer")
    assert service.wait_for_service(ros_helpers.TIMEOUT)
    future = service.call_async(AnswerClarification.Request(text="No, please stop."))
    wait_until(future.done, "the service's answer")
    assert future.result().accepted
    wait_until(lambda: said(asked)[-1:] == ["All right, I stop."], "the end")
    asked.set(threshold=1.0)
    works(asked)


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


# Without ROS.


def conversation(answers: tuple[str, ...], boxes: tuple[Box, ...]) -> Conversation:
    made = Conversation("pick up the block", 3)
    made.reply(Question("Do you mean the red one?", boxes, answers, ESTIMATE))
    return made


def test_yes_to_a_question_about_one_object_points_at_it() -> None:
    outcome = conversation(("yes", "no"), (BOX,)).answer("Yes, please.")
    assert isinstance(outcome, Outcome)
    assert outcome.grounding is not None
    assert outcome.grounding.box == BOX
    assert math.isnan(outcome.grounding.score)
    assert in_words(outcome) == "I see it."
    assert in_words(outcome, "fr-FR") == "Je le vois."


@pytest.mark.parametrize(
    ("answers", "boxes", "text"),
    [
        (("yes", "no"), (BOX,), "no"),
        (("yes", "no"), (BOX, BOX), "yes"),
        (("yes", "no"), (BOX,), "yes the left one"),
    ],
)
def test_anything_else_is_for_the_model(
    answers: tuple[str, ...], boxes: tuple[Box, ...], text: str
) -> None:
    assert conversation(answers, boxes).answer(text) == Think()
