"""The dialogue's state machine, without ROS."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clue_ros.dialogue.conversation import (
    MAX_WAITS,
    Ask,
    Conversation,
    Ignored,
    Outcome,
    Phase,
    Think,
    converse,
    in_words,
)
from clue_ros.dialogue.naming import Named, Naming, read_naming
from clue_ros.dialogue.reading import Kind, Reading, read
from clue_ros.dialogue.types import (
    AmbiguityEstimate,
    Box,
    Dialogue,
    Grounding,
    NotFound,
    Question,
    Reply,
)
from clue_ros.errors import (
    BadExpressionError,
    BadImageError,
    EmptyExpressionError,
    NothingWantedError,
)

UTTERANCES = Path(__file__).resolve().parents[1] / "utterances"
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
        self.questions, self.forced, self.question = questions, 0, QUESTION

    def reply(self, _view: object, dialogue: Dialogue, *, force_grounding: bool) -> Reply:
        """Ask or point."""
        self.forced += force_grounding
        asks = dialogue.questions < self.questions and not force_grounding
        return self.question if asks else GROUNDING


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


# What a person may say to an open question.

WHICH = Question("the red one or the green one?", (), ("the red one", "the green one"), ESTIMATE)


def asked(language: str = "en", **options: Any) -> Conversation:
    conversation = Conversation("pick up the block", language=language, **options)
    conversation.reply(WHICH)
    return conversation


@pytest.mark.parametrize("text", ["stop", "no, don't pick it up", "laisse tomber"])
def test_a_stop_and_a_refusal_end_a_dialogue(text: str) -> None:
    conversation = asked()
    outcome = conversation.answer(text)
    assert isinstance(outcome, Outcome)
    assert (outcome.code, outcome.grounding) == ("CANCELED", None)
    assert text in outcome.message
    assert conversation.phase is Phase.FINISHED


@pytest.mark.parametrize(
    ("language", "first"),
    [("en", "Then please tell me what you mean."), ("fr", "Alors dites-moi ce que vous voulez")],
)
def test_no_to_which_one_is_asked_once_more_and_then_ends(language: str, first: str) -> None:
    conversation = asked(language)
    again = conversation.answer("no")
    assert isinstance(again, Ask)
    assert (again.question, again.unanswered) == (WHICH, True)
    assert again.instead.startswith(first)
    outcome = conversation.answer("none of them")
    assert isinstance(outcome, Outcome)
    assert outcome.code == "CANCELED"
    assert conversation.questions == 1


def test_after_a_no_the_answer_counts_and_a_new_question_is_asked_once_more_too() -> None:
    conversation = asked()
    conversation.answer("no")
    assert conversation.answer("the red one") == Think()
    texts = [turn.text for turn, _ in conversation.spoken]
    assert texts == ["pick up the block", WHICH.text, "the red one"]
    conversation.reply(WHICH)
    assert isinstance(conversation.answer("no"), Ask)


@pytest.mark.parametrize(("force", "step"), [(False, "MAX_TURNS"), (True, Think(force=True))])
def test_yes_to_which_one_twice_is_no_answer(force: bool, step: object) -> None:
    conversation = asked(force_grounding=force)
    again = conversation.answer("yes")
    assert isinstance(again, Ask)
    assert again.instead.startswith("Sorry, I did not understand. ")
    end = conversation.answer("ok")
    assert (end.code if isinstance(end, Outcome) else end) == step


def test_no_with_force_grounding_does_not_point_either() -> None:
    conversation = asked(force_grounding=True)
    conversation.answer("no")
    outcome = conversation.answer("no")
    assert isinstance(outcome, Outcome)
    assert outcome.code == "CANCELED"


def test_wait_keeps_a_question_open_but_not_for_ever() -> None:
    conversation = asked()
    for _ in range(MAX_WAITS):
        step = conversation.answer("one moment")
        assert step == Ask(WHICH, "All right, I wait.")
    outcome = conversation.answer("one moment")
    assert isinstance(outcome, Outcome)
    assert outcome.code == "ANSWER_TIMEOUT"


def test_a_request_for_another_object_starts_over() -> None:
    clock = iter(range(9))
    conversation = Conversation("pick up the block", 2, clock=lambda: float(next(clock)))
    conversation.reply(WHICH)
    assert conversation.answer("no, pick up the mug instead") == Think()
    assert conversation.request == "pick up the mug instead"
    assert conversation.dialogue.context() == "pick up the mug instead"
    assert isinstance(conversation.reply(WHICH), Ask)
    conversation.answer("the red one")
    assert conversation.questions == 2  # both count, so a goal's max_turns holds
    outcome = conversation.reply(WHICH)
    assert isinstance(outcome, Outcome)
    assert outcome.code == "MAX_TURNS"
    spoken = [(turn.text, at) for turn, at in conversation.spoken]
    assert spoken == [
        ("pick up the block", 0.0),
        (WHICH.text, 1.0),
        ("pick up the mug instead", 2.0),
        (WHICH.text, 3.0),
        ("the red one", 4.0),
    ]


def test_a_refusal_that_says_what_is_wanted_is_an_answer() -> None:
    conversation = asked()
    assert conversation.answer("don't take the red one, take the green one") == Think()
    assert conversation.dialogue.turns[-1].text == "take the green one"


@pytest.mark.parametrize(
    "text", ["stop", "don't pick up the apple", "do not touch it", "wait", "no"]
)
def test_a_request_that_asks_for_nothing_opens_no_dialogue(text: str) -> None:
    with pytest.raises(NothingWantedError, match="the person"):
        Conversation(text)


@pytest.mark.parametrize("text", ["yes", "please", "ok robot"])
def test_a_request_that_names_nothing_opens_none_either(text: str) -> None:
    with pytest.raises(NothingWantedError) as error:
        Conversation(text)
    assert error.value.is_chat


def test_a_request_that_refuses_another_object_is_about_the_one_that_is_wanted() -> None:
    conversation = Conversation("don't take the bowl, take the mug")
    assert conversation.request == "take the mug"


def test_converse_gives_an_open_question_to_the_person_again() -> None:
    said: list[str] = []
    answers = iter(["no", "wait", "the red one"])
    clue: Any = FakeClue(questions=1)
    clue.question = WHICH
    conversation = Conversation("pick up the block")
    outcome = converse(clue, None, conversation, lambda _: next(answers), on_say=said.append)
    assert outcome == Outcome("NONE", grounding=GROUNDING)
    assert said == ["Then please tell me what you mean.", "All right, I wait."]


# Where it is in doubt whether something is wanted, and side talk.


def doubtful_request() -> str:
    """A request of a held-out list of which the reader is not sure."""
    rows = (UTTERANCES / "held_out_2.jsonl").read_text().splitlines()
    texts: list[str] = [row["text"] for row in map(json.loads, rows) if row["kind"] == "request"]
    return next(t for t in texts if read(t).confirm and read(t).kind is Kind.REQUEST)


def test_in_doubt_the_box_is_confirmed_before_the_robot_points() -> None:
    conversation = Conversation(doubtful_request())
    asked = conversation.hold(GROUNDING)
    assert isinstance(asked, Question)
    assert asked.text == "Should I take the block?"
    assert asked.candidates == (GROUNDING.box,)
    assert asked.suggested_answers == ("yes", "no")
    assert conversation.reply(asked) == Ask(asked)
    assert conversation.questions == 1
    confirmed = replace(GROUNDING, confirmed=True)
    assert conversation.answer("yes please") == Outcome("NONE", grounding=confirmed)


def test_no_to_that_ends_the_dialogue() -> None:
    conversation = Conversation(doubtful_request())
    conversation.reply(conversation.hold(GROUNDING))
    outcome = conversation.answer("no")
    assert isinstance(outcome, Outcome)
    assert (outcome.code, outcome.grounding) == ("CANCELED", None)


def test_a_clear_answer_settles_the_doubt() -> None:
    conversation = Conversation(doubtful_request())
    assert conversation.hold(WHICH) is WHICH  # a question needs no other one before it
    conversation.reply(WHICH)
    assert conversation.answer("the red one") == Think()
    assert conversation.hold(GROUNDING) is GROUNDING


def test_the_person_sees_the_question_and_not_the_box() -> None:
    clue: Any = FakeClue(questions=0)
    seen: list[Reply] = []
    answers = iter(["yes"])
    converse(clue, None, Conversation(doubtful_request()), lambda _: next(answers), seen.append)
    assert [type(reply) for reply in seen] == [Question]


def test_side_talk_leaves_a_question_open_and_nobody_is_answered() -> None:
    said: list[str] = []
    answers = iter(["did you see the game last night", "the red one"])
    clue: Any = FakeClue(questions=1)
    clue.question = WHICH
    conversation = Conversation("pick up the block")
    outcome = converse(clue, None, conversation, lambda _: next(answers), on_say=said.append)
    assert outcome == Outcome("NONE", grounding=GROUNDING)
    assert said == []
    assert [heard.kind for heard in conversation.heard] == ["request", "chat", "offered"]
    assert conversation.heard[1].about == "block"


def test_side_talk_alone_asks_for_nothing_quietly() -> None:
    with pytest.raises(NothingWantedError) as error:
        Conversation("did you see the game last night")
    assert error.value.is_chat
    conversation = Conversation("pick up the block")
    conversation.reply(WHICH)
    assert isinstance(conversation.answer("my sister called yesterday"), Ignored)
    assert conversation.phase is Phase.WAITING


def conversation_about(answers: tuple[str, ...], boxes: tuple[Box, ...]) -> Conversation:
    made = Conversation("pick up the block", 3)
    made.reply(Question("Do you mean the red one?", boxes, answers, ESTIMATE))
    return made


def test_yes_to_a_question_about_one_object_points_at_it() -> None:
    outcome = conversation_about(("yes", "no"), (GROUNDING.box,)).answer("Yes, please.")
    assert isinstance(outcome, Outcome)
    assert outcome.grounding is not None
    assert outcome.grounding.box == GROUNDING.box
    assert math.isnan(outcome.grounding.score)
    assert in_words(outcome) == "I see it."
    assert in_words(outcome, "fr-FR") == "Je le vois."


@pytest.mark.parametrize(
    ("answers", "boxes", "text"),
    [
        (("yes", "no"), (GROUNDING.box,), "no"),
        (("yes", "no"), (GROUNDING.box,) * 2, "yes"),
        (("yes", "no"), (GROUNDING.box,), "yes the left one"),
    ],
)
def test_anything_else_is_for_the_model(
    answers: tuple[str, ...], boxes: tuple[Box, ...], text: str
) -> None:
    assert conversation_about(answers, boxes).answer(text) == Think()


def bound(confirm: bool = False) -> Question:
    """A question with its answers bound to candidates: of one block, or of three."""
    if confirm:
        return Question(
            "Do you mean the red block?", (GROUNDING.box,), ("yes", "no"), ESTIMATE,
            answer_candidates=((0,), ()), labels=("red block",), confirm=True,
        )  # fmt: skip
    boxes = tuple(Box(x, 0, x + 5, 5) for x in (0.0, 10.0, 20.0))
    return Question(
        "The red one or the blue one?", boxes, ("the red one", "the blue one"), ESTIMATE,
        answer_candidates=((0, 2), (1,)), labels=("red block", "blue block", "red block"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("index", "words", "label"),
    [(0, "this one", "red block"), (1, "the blue one", "blue block"), (2, "this one", "red block")],
)
def test_a_click_points_at_that_very_candidate(index: int, words: str, label: str) -> None:
    conversation = Conversation("pick up the block")
    question = bound()
    conversation.reply(question)
    outcome = conversation.choose(index)
    assert outcome.grounding is not None
    assert (outcome.grounding.box, outcome.grounding.label) == (question.candidates[index], label)
    assert conversation.spoken[-1][0].text == words
    assert conversation.heard[-1].kind == "offered"
    assert conversation.phase is Phase.FINISHED


@pytest.mark.parametrize("index", [-1, 3])
def test_a_click_beside_the_candidates_leaves_the_question_open(index: int) -> None:
    conversation = Conversation("pick up the block")
    with pytest.raises(RuntimeError):
        conversation.choose(0)
    conversation.reply(bound())
    with pytest.raises(BadExpressionError, match=f"candidate {index} is none of the question's 3"):
        conversation.choose(index)
    assert conversation.phase is Phase.WAITING


@pytest.mark.parametrize("text", ["no", "neither", "the other one"])
def test_no_to_a_confirmation_leaves_that_box_out_and_goes_on(text: str) -> None:
    conversation = Conversation("pick up the block", 2)
    conversation.reply(bound(confirm=True))
    assert conversation.answer(text) == Think()
    dialogue = conversation.dialogue
    assert dialogue.refused == (GROUNDING.box,)
    assert dialogue.for_model().context() == "pick up the block"
    assert text in dialogue.context()
    assert isinstance(conversation.reply(bound(confirm=True)), Ask)
    conversation.answer(text)
    assert conversation.questions == 2, "confirmations count"
    end = conversation.reply(bound())
    assert isinstance(end, Outcome)
    assert end.code == "MAX_TURNS"


@pytest.mark.parametrize(
    ("text", "refused"), [("no, the left one", (GROUNDING.box,)), ("the left one", ())]
)
def test_words_after_a_confirmation_are_read_with_the_question_that_the_model_wrote(
    text: str, refused: tuple[Box, ...]
) -> None:
    conversation = Conversation("pick up the block")
    conversation.reply(replace(bound(confirm=True), written="which block?"))
    assert conversation.answer(text) == Think()
    dialogue = conversation.dialogue
    assert dialogue.refused == refused
    assert [turn.text for turn in dialogue.turns[1:]] == ["Do you mean the red block?", text]
    read = "pick up the block assistant: which block? user: the left one"
    assert dialogue.for_model().context() == read


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("no, yellow", "yellow"), ("no, small", "small"), ("no I meant yellow", "I meant yellow"),
        ("no, wrong", ""), ("no, not that", ""), ("no, the other one", ""),
    ],
)  # fmt: skip
def test_what_follows_a_no_to_a_confirmation_narrows(text: str, rest: str) -> None:
    conversation = Conversation("pick up the yellow block")
    conversation.reply(bound(confirm=True))
    assert conversation.answer(text) == Think()
    assert conversation.dialogue.refused == (GROUNDING.box,)
    read = [turn.text for turn in conversation.dialogue.for_model().turns]
    assert read[0] == "pick up the yellow block"
    assert (rest in read[-1]) if rest else len(read) == 1


def test_yes_to_a_confirmation_points_at_the_box_that_was_shown() -> None:
    conversation = Conversation("pick up the block")
    conversation.reply(bound(confirm=True))
    outcome = conversation.answer("yes")
    assert isinstance(outcome, Outcome)
    assert outcome.grounding is not None
    assert (outcome.grounding.box, outcome.grounding.label) == (GROUNDING.box, "red block")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": ("a",)}, "1 labels for 3 candidates"),
        ({"answer_candidates": ((0,),)}, "1 groups of candidates for 2 answers"),
        ({"answer_candidates": ((0,), (3,))}, "more than 3 candidates"),
        ({"confirm": True}, "shows 3 candidates, want 1"),
    ],
)
def test_what_a_question_binds_must_fit(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        replace(bound(), **change)


def test_a_request_that_has_been_read_is_not_read_again() -> None:
    said = Reading(Kind.REQUEST, "take the mug", 0.9)
    conversation = Conversation("leave the cup, take the mug", reading=said)
    assert conversation.request == "take the mug"
    assert conversation.heard[0].text == "leave the cup, take the mug"


NO_WORD = NotFound(
    "I don't know what a stapler is. Say its colour, or where it is.",
    (), (), ESTIMATE, "a stapler", "stapler",
)  # fmt: skip


def test_what_stands_for_an_unknown_word_is_confirmed_and_then_named() -> None:
    conversation = Conversation("pick up the stapler")
    conversation.reply(NO_WORD)
    assert conversation.answer("the black one on the left") == Think()
    shown = conversation.hold(GROUNDING)
    assert isinstance(shown, Question)
    assert (shown.text, shown.candidates) == ("Do you mean this one?", (GROUNDING.box,))
    assert shown.confirm
    conversation.reply(shown)
    end = conversation.answer("yes")
    assert isinstance(end, Outcome)
    assert end.grounding is not None
    assert (end.grounding.box, end.grounding.label) == (GROUNDING.box, "stapler")
    assert conversation.named == [Named(GROUNDING.box, "stapler")]


def test_what_was_refused_is_not_named() -> None:
    conversation = Conversation("pick up the stapler")
    conversation.reply(NO_WORD)
    conversation.answer("the black one on the left")
    conversation.reply(conversation.hold(GROUNDING))
    assert conversation.answer("no") == Think()
    assert conversation.named == []
    assert conversation.dialogue.refused == (GROUNDING.box,)
    other = Conversation("pick up the mug")
    assert other.hold(GROUNDING) is GROUNDING, "a known word is not asked about"


@pytest.mark.parametrize(
    ("text", "names", "ends"),
    [
        ("that is the tape", ["tape"], False),
        ("no, that is the tape", ["tape"], False),
        ("that is a block", ["block"], True),
        ("yes, that's the block", ["block"], True),
        ("yes", [], True),
    ],
)
def test_a_name_settles_or_corrects_what_is_shown(text: str, names: list[str], ends: bool) -> None:
    conversation = Conversation("pick up the block")
    conversation.reply(bound(confirm=True))
    step = conversation.answer(text)
    assert [named.name for named in conversation.named] == names
    assert all(named.box == GROUNDING.box for named in conversation.named)
    assert isinstance(step, Outcome if ends else Think)
    assert bool(conversation.dialogue.refused) is not ends


@pytest.mark.parametrize(
    ("text", "name", "corrects"),
    [
        ("That is a stapler.", "stapler", False),
        ("this is called the gizmo", "gizmo", False),
        ("it's my red mug", "red mug", False),
        ("no, that is the tape", "tape", True),
        ("No that's a screwdriver!", "screwdriver", True),
        ("that one is the spatula", "spatula", False),
        ("that is the left one", None, False),
        ("that is right", None, False),
        ("that's a good idea", None, False),
        ("that is not a stapler", None, False),
        ("the tape", None, False),
        ("take the tape", None, False),
        ("that is the wrong one", None, False),
    ],
)
def test_sentences_that_name_a_thing_are_read(text: str, name: str | None, corrects: bool) -> None:
    assert read_naming(text) == (None if name is None else Naming(name, corrects))
