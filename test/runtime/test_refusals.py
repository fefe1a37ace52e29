"""With the embedded models, on several pictures: no refusal, stop or wait ever ends in a box."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from wordings import NONE_OF_THEM, READINGS, WANTED

from clue_ros.cli import main
from clue_ros.dialogue.conversation import Conversation, converse
from clue_ros.dialogue.reading import is_stop, read, wants
from clue_ros.dialogue.types import Dialogue, Grounding, Question
from clue_ros.dialogue.words import noun_phrase, offered_answers
from clue_ros.engine import Clue
from clue_ros.images import load_image

DEMO = Path(__file__).resolve().parents[2] / "demo"
# Pictures with a request that the model asks about: a colour, a place, which, or "I don't see it".
OPEN = {
    "mugs.png": "pick up the mug",
    "yellow_blocks.png": "pick up the block",
    "bananas_plate.png": "pick up the banana",
    "five_blocks.png": "pick up the block",
    "ball_block_can.png": "pick up the banana",
    "photos/plate.jpg": "pick up the banana",
}
WORDINGS = (*READINGS, *NONE_OF_THEM)


@pytest.fixture
def clue(household: Clue) -> Clue:
    """The embedded model, with one view of each picture."""
    household.num_views = 1
    return household


@pytest.fixture(params=OPEN)
def scene(request: pytest.FixtureRequest, clue: Clue) -> tuple[Any, str, Question]:
    """Give a view, a request about it, and the question that the model asks."""
    view = clue.look(load_image(DEMO / request.param))
    asked = clue.reply(view, Dialogue(OPEN[request.param]))
    assert isinstance(asked, Question)
    return view, OPEN[request.param], asked


class Once:
    """The real model, whose first question is known; counts the replies after it."""

    def __init__(self, clue: Clue, asked: Question) -> None:
        self.clue, self.asked, self.further = clue, asked, 0

    def reply(
        self, view: Any, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """Ask the known question first."""
        if len(dialogue.turns) == 1:
            return self.asked
        self.further += 1
        return self.clue.reply(view, dialogue, force_grounding=force_grounding)


def repeat(text: str) -> Callable[[Question], str]:
    """Return a person who says the same to every question."""
    return lambda _question: text


def test_there_are_more_than_sixty_wordings_in_two_languages() -> None:
    french = [text for text in WORDINGS if set(text.lower().split()) & {"pas", "ne", "non", "rien"}]
    assert len(WORDINGS) > 120
    assert len(french) > 10


@pytest.mark.parametrize("force", [False, True])
def test_none_ends_in_a_box_and_the_model_does_not_even_read_it(
    scene: tuple[Any, str, Question], clue: Clue, force: bool
) -> None:
    view, request, asked = scene
    offered = asked.suggested_answers or offered_answers(asked.text)
    about = noun_phrase(request)
    read_so = [text for text in WORDINGS if not wants(read(text, offered, about), offered)]
    assert len(read_so) >= 0.96 * len(WORDINGS)
    for text in read_so:
        model = Once(clue, asked)
        conversation = Conversation(request, force_grounding=force)
        outcome = converse(model, view, conversation, repeat(text))
        assert outcome is not None, text
        assert outcome.code in ("CANCELED", "ANSWER_TIMEOUT"), text
        assert outcome.grounding is None
        assert model.further == 0


def test_what_is_wanted_beside_a_refusal_is_pointed_at(clue: Clue) -> None:
    view = clue.look(load_image(DEMO / "mugs.png"))

    def box(text: str) -> Any:
        outcome = converse(clue, view, Conversation("pick up the mug"), repeat(text))
        assert outcome is not None
        assert outcome.grounding is not None, text
        return outcome.grounding.box

    black = box("the black one")
    for text in ("not the pink one", "no, not the pink one, the black one", *WANTED):
        parted = read(text, ("the red one", "the green one"), "mug").text
        if "rouge" in text or is_stop(text.split(",")[0]) or parted != WANTED.get(text, text):
            continue  # the model reads it whole: test_reading.py counts these
        said = text.replace("red", "pink").replace("green", "black")
        assert box(said).iou(black) > 0.8, said


def test_a_new_request_is_about_the_other_object(clue: Clue) -> None:
    view = clue.look(load_image(DEMO / "bananas_plate.png"))
    conversation = Conversation("pick up the banana")
    outcome = converse(clue, view, conversation, repeat("take the plate instead"))
    expected = clue.reply(view, Dialogue("take the plate"))
    assert outcome is not None
    assert outcome.grounding is not None
    assert isinstance(expected, Grounding)
    assert outcome.grounding.box.iou(expected.box) > 0.9
    assert outcome.grounding.label == "plate"


def ground(capsys: pytest.CaptureFixture[str], text: str, *answers: str) -> tuple[int, list[Any]]:
    """Return the exit status and the JSON lines of `clue ground`; stderr's last line is last."""
    options = [option for answer in answers for option in ("--answer", answer)]
    status = main(["ground", str(DEMO / "mugs.png"), text, "--json", *options])
    out, err = capsys.readouterr()
    return status, [*map(json.loads, out.splitlines()), err.strip().splitlines()[-1:]]


@pytest.mark.parametrize("answer", ["don't pick it up", "stop", "ne le prends pas"])
def test_clue_ground_ends_with_status_4_after_a_refusal(
    capsys: pytest.CaptureFixture[str], answer: str
) -> None:
    status, (question, canceled, _) = ground(capsys, "pick up the mug", answer)
    assert status == 4
    assert question["type"] == "question"
    assert canceled["type"] == "canceled"
    assert answer in canceled["text"]


def test_clue_ground_asks_once_more_after_no_and_waits(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, (question, (said,)) = ground(capsys, "pick up the mug", "no")
    assert (status, question["type"]) == (3, "question")
    assert said == "Then please tell me what you mean."
    assert ground(capsys, "pick up the mug", "no", "none of them")[0] == 4
    status, lines = ground(capsys, "pick up the mug", "no", "the black one")
    assert (status, lines[-2]["type"]) == (0, "grounding")


@pytest.mark.parametrize("text", ["don't pick up the mug", "stop", "wait", "n'y touche pas"])
def test_clue_ground_refuses_a_request_that_asks_for_nothing(
    capsys: pytest.CaptureFixture[str], text: str
) -> None:
    status, lines = ground(capsys, text)
    assert status == 2
    assert len(lines) == 1
    assert lines[0][0].startswith("clue: the person")
