"""Wrapper asks and points with any detector; it and Clue are two grounders of one protocol."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_language_model import write_random_language_model
from tiny_model import write_random_model

from clue_ros.cli import main
from clue_ros.console.live import LivePage
from clue_ros.console.picture_robot import PictureRobot
from clue_ros.dialogue.candidates import Asked, Candidate
from clue_ros.dialogue.conversation import Conversation, converse
from clue_ros.dialogue.grounder import RobotGrounder
from clue_ros.dialogue.types import Box, Dialogue, Grounding, NotFound, Question, Turn
from clue_ros.errors import BadImageError, ClueError, ClueWarning, ModelError
from clue_ros.grounders import load_grounder
from clue_ros.model.loading import demo_folder
from clue_ros.wrapper.deciding import ambiguity_of, distinct, pointed_at, still_likely
from clue_ros.wrapper.grounder import Wrapper
from clue_ros.wrapper.language_model import Choice, LanguageModel, Listing
from clue_ros.wrapper.prompt import read_answer
from clue_ros.wrapper.sources import CallableSource
from clue_ros.wrapper.wording import problem, worded

RED, BLUE, PLATE = Box(10, 10, 40, 40), Box(60, 10, 90, 40), Box(20, 60, 80, 95)


def scene() -> np.ndarray:
    image = np.full((100, 100, 3), (150, 120, 90), np.uint8)
    image[12:38, 12:38] = (220, 30, 30)
    image[12:38, 62:88] = (30, 60, 220)
    image[62:93, 22:78] = (240, 240, 240)
    return image


def listed(image: Any, nouns: Any) -> list[Any]:
    return [(RED, "mug", 0.9), (BLUE, "mug", 0.8), (PLATE, "plate", 0.7)]


class ScriptedModel(LanguageModel):
    """A fake language model that answers by a script: dialogue -> answer."""

    def __init__(self, answers: dict[str, str], said: str = "") -> None:
        super().__init__(None, None, "scripted")
        self.answers, self.said, self.read_count = answers, said, 0

    def read(self, candidates: Sequence[Candidate], size: tuple[int, int]) -> Listing:
        """Count the reading."""
        self.read_count += 1
        return Listing(tuple(range(len(candidates))), "", None, 0)

    def choose(self, listing: Listing, dialogue: str) -> Choice:
        """Answer by the script."""
        text = self.answers[dialogue]
        answer = read_answer(text, listing.count)
        shares = [0.01] * listing.count
        for i in answer.indices:
            shares[i] = 0.9 / len(answer.indices)
        left = 1 - sum(shares)
        asks = left if text.startswith("ask") else 0.0
        return Choice(answer, text, tuple(shares), asks, left - asks)

    def matching(self, listing: Listing, dialogue: str) -> tuple[int, ...]:
        """Name the first two."""
        return (0, 1)

    def say(self, request: str) -> str:
        """Say the one sentence."""
        return self.said


def scripted(answers: dict[str, str], said: str = "", **more: Any) -> Wrapper:
    return Wrapper([CallableSource(listed)], ScriptedModel(answers, said), **more)


class SureOfTheFirst(ScriptedModel):
    """Whatever it writes, its logits among the allowed answers are for the first box."""

    def choose(self, listing: Listing, dialogue: str) -> Choice:
        """Answer by the script."""
        text = self.answers[dialogue]
        shares = (0.97, *[0.0] * (listing.count - 1))
        return Choice(read_answer(text, listing.count), text, shares, 0.02, 0.01)


def test_a_sentence_that_denies_or_asks_becomes_no_box() -> None:
    answers = {"the mug": "There is no such object.", "the thing": "Which do you mean, 1 or 2?"}
    wrapper = Wrapper([CallableSource(listed)], SureOfTheFirst(answers))
    view = wrapper.look(scene())
    denied = wrapper.reply(view, Dialogue("the mug"))
    assert isinstance(denied, NotFound)
    assert denied.ambiguity.probability == 1
    asked = wrapper.reply(view, Dialogue("the thing"))
    assert isinstance(asked, Question)
    assert asked.candidates == (RED, BLUE)
    assert wrapper.answer_counts == {"none": 1, "ask": 1}


def test_without_a_language_model_the_rules_ask_and_point() -> None:
    wrapper = Wrapper([CallableSource(listed)])
    view = wrapper.look(scene())
    asked = wrapper.reply(view, Dialogue("pick up the mug"))
    assert isinstance(asked, Question)
    assert asked.text == "The red one or the blue one?"
    assert asked.candidates == (RED, BLUE)
    assert len(wrapper.peak_masks(view, asked.ambiguity)) == 2
    pointed = wrapper.reply(view, Dialogue("pick up the red mug"))
    assert isinstance(pointed, Grounding)
    assert pointed.box == RED
    assert wrapper.mask(view, pointed).shape == (100, 100)
    missing = wrapper.reply(view, Dialogue("pick up the banana"))
    assert isinstance(missing, NotFound)
    assert missing.missing == "a banana"


def test_rules_choose_without_torch(tmp_path: Path) -> None:
    boxes = tmp_path / "boxes.json"
    boxes.write_text(json.dumps([{"label": "black mug", "box": [20, 180, 160, 330], "score": 0.9}]))
    code = "import sys\nfor name in ('torch', 'transformers', 'peft'): sys.modules[name] = None\n"
    code += "from clue_ros.cli import main\nsys.exit(main(sys.argv[1:]))"
    words = "ground", str(demo_folder() / "mugs.png"), "the black mug", "--json"
    wrapper = "--model", "wrapper", "--candidates", f"json:{boxes}"
    command = [sys.executable, "-c", code, *words, *wrapper]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == ""
    assert json.loads(done.stdout)["box"] == [20, 180, 160, 330]


def test_a_dialogue_is_held_to_its_end() -> None:
    wrapper = Wrapper([CallableSource(listed)])
    conversation = Conversation("the mug")
    outcome = converse(wrapper, wrapper.look(scene()), conversation, lambda _q: "the blue one")
    assert outcome is not None
    assert outcome.grounding is not None
    assert outcome.grounding.box == BLUE


def test_an_answer_may_call_the_thing_by_a_name_that_no_label_has() -> None:
    wrapper = Wrapper([CallableSource(listed)])
    view = wrapper.look(scene())
    asked = wrapper.reply(view, Dialogue("the mug"))
    turns = [Turn("robot", asked.text), Turn("user", "the blue goblet")]  # type: ignore[union-attr]
    reply = wrapper.reply(view, Dialogue("the mug", turns))
    assert isinstance(reply, Grounding)
    assert reply.box == BLUE


def test_a_detectors_own_labels_go_before_those_that_repeat_the_request() -> None:
    lists = CallableSource(listed, "lists", open_vocabulary=False)
    told = CallableSource(lambda _i, nouns: [(b, nouns[0], 0.99) for b in (BLUE, PLATE)], "told")
    wrapper = Wrapper([lists, told])
    view = wrapper.look(scene())
    pointed = wrapper.reply(view, Dialogue("the plate"))  # "told" calls the blue mug a plate, too
    assert isinstance(pointed, Grounding)
    assert pointed.box == PLATE
    asked = wrapper.reply(view, Dialogue("the saucepan"))  # which "lists" does not know
    assert isinstance(asked, Question)
    assert set(asked.candidates) == {BLUE, PLATE}


def test_a_misspelt_name_is_confirmed_before_the_robot_points() -> None:
    wrapper = Wrapper([CallableSource(listed)])
    view, dialogue = wrapper.look(scene()), Dialogue("give me the palte")
    asked = wrapper.reply(view, dialogue)
    assert isinstance(asked, Question)
    assert asked.text == "Do you mean the white plate?"
    assert asked.candidates == (PLATE,)
    dialogue.add_question(asked.text)
    dialogue.add_answer("yes")
    pointed = wrapper.reply(view, dialogue)
    assert isinstance(pointed, Grounding)
    assert pointed.box == PLATE
    forced = wrapper.reply(view, Dialogue("give me the palte"), force_grounding=True)
    assert isinstance(forced, Grounding)
    assert forced.box == PLATE


def test_a_thing_that_is_partly_of_the_colour_is_confirmed_where_no_other_is_of_it() -> None:
    image = scene()
    image[12:38, 12:22] = (250, 140, 20)  # two fifths of the red mug
    wrapper = Wrapper([CallableSource(listed)])
    view, dialogue = wrapper.look(image), Dialogue("the orange mug")
    asked = wrapper.reply(view, dialogue)
    assert isinstance(asked, Question)
    assert asked.text == "Do you mean the red mug?"
    dialogue.add_question(asked.text)
    dialogue.add_answer("yes")
    pointed = wrapper.reply(view, dialogue)
    assert isinstance(pointed, Grounding)
    assert pointed.box == RED
    missing = wrapper.reply(view, Dialogue("the green mug"))
    assert isinstance(missing, NotFound)


def test_memory_and_place_are_those_of_detectors_and_language_model(tmp_path: Path) -> None:
    wrapper = load_grounder(
        "wrapper", candidates=[f"base:{write_random_model(tmp_path)}"], device="cpu"
    )
    assert wrapper.device == "cpu"
    assert wrapper.memory_bytes() > 0


def test_the_language_models_index_is_pointed_at() -> None:
    wrapper = scripted({"the thing under the mugs": "3"})
    reply = wrapper.reply(wrapper.look(scene()), Dialogue("the thing under the mugs"))
    assert isinstance(reply, Grounding)
    assert (reply.box, reply.label, reply.score) == (PLATE, "plate", 0.7)
    assert not reply.ambiguity.is_ambiguous


def test_ask_becomes_a_question_about_those_boxes() -> None:
    wrapper = scripted({"the mug": "ask 1 2"}, wording="rules")
    reply = wrapper.reply(wrapper.look(scene()), Dialogue("the mug"))
    assert isinstance(reply, Question)
    assert reply.candidates == (RED, BLUE)
    assert reply.text == "The red one or the blue one?"
    assert [peak.box for peak in reply.ambiguity.peaks] == [RED, BLUE]


def test_none_says_that_there_is_no_such_thing() -> None:
    wrapper = scripted({"the banana": "none"})
    reply = wrapper.reply(wrapper.look(scene()), Dialogue("the banana"))
    assert isinstance(reply, NotFound)
    assert reply.missing == "a banana"


@pytest.mark.parametrize("text", ["7", "the mug"])
@pytest.mark.parametrize(("request_text", "box"), [("the mug", RED), ("the plate", PLATE),
                                                   ("the thing", RED)])  # fmt: skip
def test_an_answer_that_cannot_be_used_points_at_the_surest_box_of_the_noun(
    text: str, request_text: str, box: Box
) -> None:
    wrapper = scripted({request_text: text}, threshold=0.1)
    view = wrapper.look(scene())
    reply = wrapper.reply(view, Dialogue(request_text))
    assert isinstance(reply, Grounding)
    assert reply.box == box
    assert not reply.ambiguity.is_ambiguous
    forced = wrapper.reply(view, Dialogue(request_text), force_grounding=True)
    assert isinstance(forced, Grounding)
    assert forced.box == box


@pytest.mark.parametrize("text", ["7", "the mug"])
def test_answers_that_cannot_be_used_are_counted(text: str) -> None:
    wrapper = scripted({"the mug": text})
    view = wrapper.look(scene())
    reply = wrapper.reply(view, Dialogue("the mug"), force_grounding=True)
    assert isinstance(reply, Grounding)
    assert reply.box == RED
    assert wrapper.rates.summary()["out of range" if text == "7" else "no integer"] == 1
    assert wrapper.answer_counts == {"out of range" if text == "7" else "no integer": 1}


def test_with_one_candidate_the_language_model_is_not_asked() -> None:
    model = ScriptedModel({})
    one = Wrapper([CallableSource(lambda image, nouns: [(RED, "mug", 0.5)])], model)
    reply = one.reply(one.look(scene()), Dialogue("the mug"))
    assert isinstance(reply, Grounding)
    assert reply.box == RED
    none = Wrapper([CallableSource(lambda image, nouns: [])], model)
    assert isinstance(none.reply(none.look(scene()), Dialogue("the mug")), NotFound)
    forced = none.reply(none.look(scene()), Dialogue("the mug"), force_grounding=True)
    assert isinstance(forced, Grounding)
    assert forced.score == 0
    assert model.read_count == 0


def test_the_boxes_are_read_once_for_all_dialogues_about_an_image() -> None:
    wrapper = scripted({"the mug": "1", "the plate": "3"})
    closed = CallableSource(listed, open_vocabulary=False)
    wrapper = Wrapper([closed], wrapper.language_model)
    view = wrapper.look(scene())
    for text in ("the mug", "the plate", "the mug"):
        wrapper.reply(view, Dialogue(text))
    assert isinstance(wrapper.language_model, ScriptedModel)
    assert wrapper.language_model.read_count == 1


def test_the_threshold_decides_and_none_is_the_models_own() -> None:
    wrapper = scripted({"the mug": "1"}, threshold=0.05)
    view = wrapper.look(scene())
    assert isinstance(wrapper.reply(view, Dialogue("the mug")), Question)
    wrapper.threshold = 0.9
    assert isinstance(wrapper.reply(view, Dialogue("the mug")), Grounding)
    wrapper.threshold = None
    assert wrapper.threshold == 0.5
    with pytest.raises(ModelError, match="no probability"):
        wrapper.threshold = 2


def test_a_page_can_set_when_a_wrapper_asks(tmp_path: Path) -> None:
    from PIL import Image

    Image.fromarray(scene()).save(tmp_path / "scene.png")
    pictures, wrapper = {"scene": tmp_path / "scene.png"}, Wrapper([CallableSource(listed)])
    robot = PictureRobot(LivePage(), pictures, lambda name: wrapper, ["wrapper"])
    robot.start()
    robot.wait_until_loaded()
    robot.set_option("threshold", "0.97")
    assert robot.threshold == wrapper.threshold == 0.97
    robot.set_option("threshold", "")
    assert robot.threshold == 0.5
    with pytest.raises(ClueError, match="no setting"):
        robot.set_option("policy", "both")
    robot.close()


def test_warming_up_runs_the_language_model_and_counts_no_answer() -> None:
    wrapper = scripted({"the object": "1"})
    wrapper.warm_up()
    assert isinstance(wrapper.language_model, ScriptedModel)
    assert wrapper.language_model.read_count == 1
    assert wrapper.answer_counts == {}
    Wrapper([CallableSource(listed)]).warm_up()


def test_two_detectors_boxes_of_one_thing_are_one_thing() -> None:
    same = Box(11, 11, 41, 41)
    candidates = [Candidate(RED, "mug", 0.5, "a"), Candidate(BLUE, "mug", 0.8, "a"),
                  Candidate(same, "cup", 0.9, "b")]  # fmt: skip
    choice = Choice(read_answer("1", 3), "1", (0.45, 0.1, 0.4), 0.05, 0.0)
    assert ambiguity_of(choice, candidates) == pytest.approx(0.15)
    assert pointed_at(choice, candidates, Dialogue("the mug")) == 0
    assert distinct((0, 2, 1), candidates) == (2, 1)
    assert len(still_likely(choice, candidates)) == 2


def test_a_worded_question_is_used_only_if_it_says_the_options_and_nothing_else() -> None:
    asked = Asked("the red one or the blue one?", ("the red one", "the blue one"))
    dialogue = Dialogue("the mug")
    good = worded(asked, dialogue, lambda _: '"Do you want the red or the blue mug?"')
    assert good.text == "do you want the red or the blue mug?"
    assert good.options == asked.options
    for bad in ("the red or the green mug?", "red.", "", "red? blue?", "red " * 30 + "blue?",
                "the red one or the blue one on the left?"):  # fmt: skip
        assert worded(asked, dialogue, lambda _, bad=bad: bad) == asked, bad  # type: ignore[misc]
    assert problem("the red mug or the blue mug?", asked, dialogue) == ""


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("the red zebra or the blue elephant?", "zebra"),
        ("the red one or the blue one in the fridge?", "in"),
        ("i have a knife: red or blue?", "have"),
        ("the crimson one, the red one or the blue one?", "crimson"),
        ("the red one, not the blue one?", "not"),
        ("the red one or the blue one there?", "there"),
        ("the red one or the blue one, 2?", "2"),
        ("the red one, the blue one or the rouge à lèvres?", "rouge"),
        ("the red cup or the blue cup?", "cup"),
    ],
)
def test_a_worded_question_may_say_nothing_that_nobody_named(text: str, word: str) -> None:
    asked = Asked("the red one or the blue one?", ("the red one", "the blue one"))
    assert repr(word) in problem(text, asked, Dialogue("pick up the mug"))


@pytest.mark.parametrize(
    "text",
    [
        "which one do you mean, the red or the blue one?",
        "would you like the red mug or the blue mug?",
        "should i pick up the red one or the blue one?",
        "which of the cups, red or blue?",
    ],
)
def test_a_worded_question_may_use_the_words_of_dialogue_and_labels(text: str) -> None:
    pair = tuple(Candidate(box, "coffee cup") for box in (RED, BLUE))
    options = ("the red one", "the blue one")
    asked = Asked("the red one or the blue one?", options, ((pair[0],), (pair[1],)))
    assert problem(text, asked, Dialogue("pick up the mug")) == ""


def test_both_are_grounders_of_one_protocol(tmp_path: Path) -> None:
    path = tmp_path / "boxes.json"
    path.write_text(json.dumps([{"box": RED.as_list(), "label": "block", "score": 0.5}]))
    grounders: list[RobotGrounder[Any]] = [
        load_grounder(write_random_model(tmp_path / "clue"), device="cpu"),
        load_grounder("wrapper", candidates=[f"json:{path}"], device="cpu"),
    ]
    for grounder in grounders:
        view = grounder.look(scene())
        estimate = grounder.ambiguity(view, "pick up the block")
        assert 0 <= estimate.probability <= 1
        assert estimate.attention.dtype == np.float32
        assert estimate.attention.shape[0] == estimate.attention.shape[1]
        reply = grounder.reply(view, Dialogue("pick up the block"), force_grounding=True)
        assert isinstance(reply, Grounding)
        assert grounder.mask(view, reply).shape == (100, 100)
        assert grounder.memory_bytes() >= 0
        assert grounder.device == "cpu"
        with pytest.raises(BadImageError):
            grounder.look(np.zeros((3, 3), np.uint8))


def test_a_wrapper_refuses_what_belongs_to_clue_and_clue_what_belongs_to_a_wrapper() -> None:
    with pytest.raises(ModelError, match="no detector"):
        load_grounder("wrapper", candidates=["json:x"], detector="decoder-yes-no")
    with pytest.raises(ModelError, match="belong to model 'wrapper'"):
        load_grounder("household", candidates=["json:x"])


def test_clue_ground_points_with_a_wrapper(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    Image.fromarray(scene()).save(tmp_path / "scene.png")
    path = tmp_path / "boxes.json"
    rows = [{"box": b.as_list(), "label": label, "score": s} for b, label, s in listed(None, ())]
    path.write_text(json.dumps(rows))
    model = write_random_language_model(tmp_path / "lm")
    command = ["ground", str(tmp_path / "scene.png"), "the red mug", "--model", "wrapper",
               "--candidates", f"json:{path}", "--json"]  # fmt: skip
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["box"] == RED.as_list()
    assert main([*command, "--language-model", str(model), "--max-turns", "0"]) == 0
    assert json.loads(capsys.readouterr().out)["type"] == "grounding"
    assert main(["ground", str(tmp_path / "scene.png"), "the mug", "--candidates", "json:x"]) == 2


@pytest.mark.parametrize(
    ("more", "parts", "said"),
    [
        ([[0, 0, 0, 0]], False, "1 of 3 boxes left out: no area"),
        ([[99.6, 10, 99.6, 50]], False, "1 of 3 boxes left out: no area"),
        ([], True, "fractions of the image"),
    ],
)
def test_clue_ground_keeps_the_good_boxes_and_says_what_was_wrong(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    more: list[list[float]],
    parts: bool,
    said: str,
) -> None:
    from PIL import Image

    Image.fromarray(scene()).save(tmp_path / "scene.png")
    boxes = [[side / 100 if parts else side for side in box.as_list()] for box in (RED, BLUE)]
    entries = [{"box": box, "label": "mug", "score": 0.9} for box in (*boxes, *more)]
    (tmp_path / "boxes.json").write_text(json.dumps(entries))
    with pytest.warns(ClueWarning, match=said):
        status = main(
            ["ground", str(tmp_path / "scene.png"), "the mug", "--model", "wrapper",
             "--candidates", f"json:{tmp_path / 'boxes.json'}", "--json"]
        )  # fmt: skip
    assert status == 3
    found = json.loads(capsys.readouterr().out)
    assert found["candidates"] == [RED.as_list(), BLUE.as_list()]
