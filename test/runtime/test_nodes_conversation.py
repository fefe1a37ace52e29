"""The dialogue's state machine, without ROS."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clue_ros.dialogue.conversation import (
    Ask,
    Conversation,
    Outcome,
    Phase,
    Think,
    converse,
    in_words,
)
from clue_ros.dialogue.types import (
    AmbiguityEstimate,
    Box,
    Dialogue,
    Grounding,
    NotFound,
    Question,
    Reply,
)
from clue_ros.errors import BadExpressionError, BadImageError, EmptyExpressionError

ESTIMATE = AmbiguityEstimate(0.9, 0.5, np.zeros((4, 4), np.float32), (), 0.0)
QUESTION = Question("The red one?", (), (), ESTIMATE)
GROUNDING = Grounding(Box(1, 2, 3, 4), "block", 0.8, ESTIMATE)


def test_a_clear_request_ends_at_once() -> None:
    conversation = Conversation("  pick up\tthe block ", 3)
    assert conversation.request == "pick up the block"
    outcome = conversation.reply(GROUNDING)
    assert outcome == Outcome("NONE", grounding=GROUNDING)
    assert conversation.phase is Phase.FINISHED
    assert [turn.text for turn, _ in conversation.spoken] == ["pick up the block"]


def test_questions_and_answers_build_the_context_in_order() -> None:
    clock = iter([3.0, 5.5, 9.25])
    conversation = Conversation("pick up the block", 3, lambda: next(clock))
    assert conversation.reply(QUESTION) == Ask(QUESTION)
    assert conversation.phase is Phase.WAITING
    assert conversation.answer("the left one") == Think()
    assert conversation.reply(GROUNDING) == Outcome("NONE", grounding=GROUNDING)
    turns = [(turn.speaker, turn.text) for turn, _ in conversation.spoken]
    assert turns == [
        ("user", "pick up the block"),
        ("robot", "The red one?"),
        ("user", "the left one"),
    ]
    assert [stamp for _, stamp in conversation.spoken] == [3.0, 5.5, 9.25]


@pytest.mark.parametrize("limit", [0, 1, 2])
def test_one_question_too_many_is_max_turns(limit: int) -> None:
    conversation = Conversation("pick up the block", limit)
    for _ in range(limit):
        assert isinstance(conversation.reply(QUESTION), Ask)
        conversation.answer("the other one")
    outcome = conversation.reply(QUESTION)
    assert isinstance(outcome, Outcome)
    assert outcome.code == "MAX_TURNS"
    assert conversation.dialogue.questions == limit


def test_what_is_not_there_is_said_and_another_name_may_follow() -> None:
    missing = NotFound("I don't see a banana.", (), (), ESTIMATE, "a banana")
    conversation = Conversation("pick up the banana", 1)
    assert conversation.reply(missing) == Ask(missing)
    assert conversation.answer("the apple then") == Think()
    assert conversation.reply(missing) == Outcome("NOT_FOUND", "I don't see a banana.")


def test_an_unreadable_answer_leaves_the_question_open() -> None:
    conversation = Conversation("pick up the block", 3)
    conversation.reply(QUESTION)
    with pytest.raises(EmptyExpressionError):
        conversation.answer(" ")
    with pytest.raises(BadExpressionError):
        conversation.answer("\N{GRINNING FACE}")
    assert conversation.phase is Phase.WAITING
    assert conversation.answer("left") == Think()


def test_events_that_do_not_fit_are_errors_of_the_caller() -> None:
    conversation = Conversation("pick up the block", 3)
    with pytest.raises(RuntimeError):
        conversation.answer("left")
    conversation.reply(QUESTION)
    with pytest.raises(RuntimeError):
        conversation.reply(GROUNDING)


def test_the_first_end_counts() -> None:
    conversation = Conversation("pick up the block", 3)
    canceled = conversation.end(Outcome("CANCELED", "by the caller"))
    assert conversation.end(Outcome("ANSWER_TIMEOUT", "late")) == canceled
    assert conversation.fail(ValueError("later")) == canceled


def test_errors_become_codes() -> None:
    assert Conversation("a", 1).fail(BadImageError("torn")) == Outcome("BAD_IMAGE", "torn")
    assert Conversation("a", 1).fail(MemoryError("full")).code == "MODEL_ERROR"


def test_every_outcome_has_words() -> None:
    import re
    from pathlib import Path

    srv = Path(__file__).parents[2] / "clue_msgs" / "srv" / "AnswerClarification.srv"
    codes = re.findall(r"^uint16 ([A-Z_]+)=", srv.read_text(), re.MULTILINE)
    assert "ANSWER_TIMEOUT" in codes
    for code in set(codes) - {"NONE", "UNKNOWN_DIALOGUE"}:  # the latter only answers the service
        assert in_words(Outcome(code)) != in_words(Outcome("no such code")), code
    assert "block" in in_words(Outcome("NONE", grounding=GROUNDING))


def test_with_force_grounding_the_model_must_point_after_the_last_question() -> None:
    conversation = Conversation("pick up the block", 2, force_grounding=True)
    assert conversation.think() == Think(force=False)
    conversation.reply(QUESTION)
    assert conversation.answer("the left one") == Think(force=False)
    conversation.reply(QUESTION)
    assert conversation.answer("the upper one") == Think(force=True)
    assert conversation.reply(GROUNDING) == Outcome("NONE", grounding=GROUNDING)


class FakeClue:
    """Asks a number of times, then points; stands in for the model."""

    def __init__(self, questions: int) -> None:
        self.questions, self.forced = questions, 0

    def reply(self, _view: object, dialogue: Dialogue, *, force_grounding: bool) -> Reply:
        """Ask or point."""
        self.forced += force_grounding
        asks = dialogue.questions < self.questions and not force_grounding
        return QUESTION if asks else GROUNDING


@pytest.mark.parametrize(("force", "code", "forced"), [(False, "MAX_TURNS", 0), (True, "NONE", 1)])
def test_converse_holds_a_dialogue_to_its_end(force: bool, code: str, forced: int) -> None:
    heard: list[Reply] = []
    clue: Any = FakeClue(questions=9)
    conversation = Conversation("pick up the block", 2, force_grounding=force)
    outcome = converse(clue, None, conversation, lambda _question: "that one", heard.append)
    assert outcome is not None
    assert (outcome.code, clue.forced) == (code, forced)
    assert len(heard) == 3
    assert conversation.dialogue.questions == 2


def test_converse_waits_where_nobody_answers() -> None:
    clue: Any = FakeClue(questions=1)
    conversation = Conversation("pick up the block")
    assert converse(clue, None, conversation, lambda _question: None) is None
    assert conversation.phase is Phase.WAITING
