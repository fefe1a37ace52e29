"""`clue eval ivg`: scores worked out by hand, dialogues that settle, and the command itself."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from drawn_scenes import random_scenes
from evaluation_helpers import parsed
from it2p_files import write_it2p
from PIL import Image

from clue_ros.cli import main
from clue_ros.dialogue.types import AmbiguityEstimate, Box, Dialogue, Grounding, Question
from clue_ros.engine import Clue
from clue_ros.errors import BadImageError, ClueError
from clue_ros.lab.data.invig import InvigSample, reveal_pairs
from clue_ros.lab.data.it2p import load_it2p
from clue_ros.lab.evaluation.dialogue_curves import LEVELS
from clue_ros.lab.evaluation.table3_guesser import (
    Guess,
    GuesserOptions,
    TargetDialogue,
    as_table,
    guess_all,
    it2p_dialogues,
    load_dialogues,
    score_questions,
    summary,
)
from clue_ros.lab.metrics import wilson
from clue_ros.lab.simulator import shards
from clue_ros.model.backbone import IVG
from clue_ros.model.torch_backbone import TorchBackbone, load_model

NEW = Path(__file__).parents[1] / "data" / "invig_new"


def wanted(data: str, source: Path, *words: object) -> GuesserOptions:
    return parsed(GuesserOptions, "--data", data, "--source", source, *words)


class Pointer:
    """Not a model: it points at one box, and remembers what it was shown and told."""

    policy = "detector"

    def __init__(self, box: Box, *, obeys: bool = True) -> None:
        self.box, self.obeys = box, obeys
        self.looked: list[int] = []
        self.heard: list[tuple[int, str]] = []

    def look(self, image: npt.NDArray[np.uint8]) -> int:
        """The number of this look; remembers the grey of the first pixel."""
        self.looked.append(int(image[0, 0, 0]))
        return len(self.looked)

    def ambiguity(self, view: int, expression: str | Dialogue) -> AmbiguityEstimate:
        """Always unsure."""
        return AmbiguityEstimate(0.9, 0.5, np.zeros((4, 4), np.float32), (), 0.0)

    def reply(
        self, view: int, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """Point when it must."""
        self.heard.append((view, dialogue.context()))
        estimate = self.ambiguity(view, dialogue)
        if force_grounding and self.obeys:
            return Grounding(self.box, "it", 1.0, estimate)
        return Question("which one ?", (), (), estimate)


def told(
    name: str,
    image: str,
    box: tuple[float, float, float, float],
    exchanges: tuple[tuple[str, str], ...] = (),
    point: tuple[float, float] | None = None,
) -> TargetDialogue:
    grey = np.full((100, 200, 3), len(image), np.uint8)
    return TargetDialogue(InvigSample(name, image, lambda: grey, "that one", exchanges, box), point)


def test_boxes_are_compared_in_pixels_of_the_picture() -> None:
    items = [
        told("same", "a", (0.1, 0.2, 0.5, 0.6)),
        told("half", "a", (0.1, 0.2, 0.3, 0.6), (("which?", "left"),)),
        told("off", "bb", (0.6, 0.7, 0.9, 0.9), point=(0.3, 0.4)),
        told("near", "bb", (0.6, 0.7, 0.9, 0.9), point=(0.41, 0.4)),
    ]
    clue = Pointer(Box(20, 20, 100, 60))  # 0.1 0.2 0.5 0.6 of 200 x 100
    same, half, off, near = guess_all(clue, items, problem=pytest.fail)
    assert [g.iou for g in (same, half, off)] == pytest.approx([1, 0.5, 0])
    assert [g.center for g in (same, half, off)] == [True, False, False]
    assert [g.near for g in (same, off, near)] == [None, True, False]  # 0 px and 22 px away
    assert same.truth == pytest.approx([20, 20, 100, 60])


def test_the_whole_dialogue_is_heard_and_each_picture_seen_once() -> None:
    talk = (("which one ?", "the left one"), ("red ?", "yes"))
    items = [
        told("1", "a", (0, 0, 1, 1), talk),
        told("2", "a", (0, 0, 1, 1)),
        told("3", "bb", (0, 0, 1, 1)),
    ]
    clue = Pointer(Box(0, 0, 10, 10))
    guesses = guess_all(clue, items, problem=pytest.fail)
    assert clue.looked == [1, 2]
    assert clue.heard[0] == (
        1,
        "that one assistant: which one ? user: the left one assistant: red ? user: yes",
    )
    assert [view for view, _ in clue.heard] == [1, 1, 2]
    assert [guess.questions for guess in guesses] == [2, 0, 0]


def test_a_picture_that_cannot_be_read_is_told_and_the_next_is_tried() -> None:
    def broken() -> npt.NDArray[np.uint8]:
        raise BadImageError("b.png is empty")

    lost: list[str] = []
    bad = TargetDialogue(InvigSample("b1", "b", broken, "that", (), (0, 0, 1, 1)))
    guesses = guess_all(
        Pointer(Box(0, 0, 1, 1)), [bad, told("c", "c", (0, 0, 1, 1))], problem=lost.append
    )
    assert lost == ["b1: left out, b.png is empty"]
    assert [guess.id for guess in guesses] == ["c"]


def test_a_model_that_asks_all_the_same_is_an_error() -> None:
    with pytest.raises(ClueError, match="had to point"):
        guess_all(
            Pointer(Box(0, 0, 1, 1), obeys=False),
            [told("c", "c", (0, 0, 1, 1))],
            problem=pytest.fail,
        )


def guess(iou: float, questions: int, *, near: bool | None = None, estimated: bool = True) -> Guess:
    return Guess("i", "p", questions, "it", [], [], iou, iou > 0.3, near, estimated)


def test_the_summary_by_hand() -> None:
    result = summary([guess(0.95, 0), guess(0.5, 1), guess(0.45, 1), guess(0.0, 2)])
    whole = result["guesser"]
    low, high = wilson(2, 4)
    assert whole["accuracy"] == 0.5
    assert (whole["low"], whole["high"]) == (round(low, 4), round(high, 4))
    assert whole["mean_iou"] == 0.475
    assert whole["center"] == 0.75
    assert whole["n"] == 4
    assert "near_20px" not in whole
    expected = dict.fromkeys(map(str, LEVELS), 0.25)
    expected |= {"0.1": 0.75, "0.2": 0.75, "0.3": 0.75, "0.4": 0.75, "0.5": 0.5, "1.0": 0}
    assert whole["curve"] == expected
    assert list(result["by_questions"]) == ["0", "1", "2"]
    assert [part["accuracy"] for part in result["by_questions"].values()] == [1.0, 0.5, 0.0]


def test_points_are_told_where_there_are_some() -> None:
    guesses = [guess(0.9, 0, near=True), guess(0.2, 1, near=False, estimated=False)]
    result = summary(guesses)
    assert result["guesser"]["near_20px"] == 0.5
    assert result["guesser"]["stand_in_boxes"] == 1
    text = as_table(result, markdown=False)
    assert "within 20 px" in text
    assert "estimated from the photograph" in text
    assert "(1 of them are a fixed square)" in text
    assert as_table(result, markdown=True).count("| ---") > 1


# --- where the dialogues come from ---


def test_a_worlds_dialogues_are_in_its_own_language(tmp_path: Path) -> None:
    scenes = [
        replace(
            scene,  # the grammar of the world blocks has no word for jars
            objects=tuple(replace(thing, kind="jar") for thing in scene.objects),
        )
        for scene in random_scenes(3, 2)
    ]
    path = shards.shard_path(tmp_path, "test", 0, 0, "rich")
    shards.write_shard(path, scenes, "rich")
    options = wanted("tabletop", tmp_path, "--world", "rich")
    told, problems = load_dialogues(options)
    assert problems == []
    assert len(told) > 3
    assert any("jar" in item.sample.request for item in told)


def test_photographs_get_the_oracles_question_and_their_own_answer(tmp_path: Path) -> None:
    images = load_it2p(write_it2p(tmp_path)).images
    found, problems = it2p_dialogues(images, per_image=10, seed=0)
    assert problems == []
    asked = {item.sample.dialogue().context(): item for item in found if item.sample.exchanges}
    item = asked[
        "pick up the left block assistant: the yellow one or the purple one ? user: yellow"
    ]
    assert item.point == pytest.approx((50.6 / 250, 60.4 / 250), abs=0.01)
    assert item.estimated
    x_min, y_min, x_max, y_max = (250 * share for share in item.sample.box)
    assert abs((x_min + x_max) / 2 - 50) < 3
    assert abs((y_min + y_max) / 2 - 60) < 3
    assert 30 < x_max - x_min < 42
    clear = [item for item in found if not item.sample.exchanges]
    assert len(clear) == 8
    twins = [text for text in asked if text.startswith("pick up the green block assistant: the ")]
    assert len(twins) == 2


def test_dialogues_come_picture_by_picture_and_as_many_pictures_as_wanted() -> None:
    options = wanted("invig", NEW, "--limit", 1)
    items, _ = load_dialogues(options)
    assert {item.sample.image_id for item in items} == {"table-08"}
    items, _ = load_dialogues(wanted("invig", NEW, "--split", "all"))
    assert len(items) == 5


def test_a_limit_leaves_the_pictures_beyond_it_alone(tmp_path: Path) -> None:
    shutil.copytree(NEW, tmp_path / "data")
    (tmp_path / "data" / "images" / "table-09.jpg").unlink()
    items, problems = load_dialogues(wanted("invig", tmp_path / "data"))
    assert {item.sample.image_id for item in items} == {"table-08"}
    assert problems
    items, problems = load_dialogues(wanted("invig", tmp_path / "data", "--limit", 1))
    assert {item.sample.image_id for item in items} == {"table-08"}
    assert not problems


# --- the asker ---


def test_questions_are_scored_as_transformers_scores_a_suffix(random_model: Path) -> None:
    clue = Clue.load(random_model, device="cpu", dtype="float32", policy="detector")
    items, _ = load_dialogues(wanted("invig", NEW))
    scores = score_questions(clue, items, axes=False)
    parts, theirs = clue.checkpoint, TorchBackbone(load_model(random_model))
    theirs.load_adapter(IVG, random_model / IVG)
    total, count = 0.0, 0
    for item in items:
        picture = Image.fromarray(item.sample.load())
        for context, question in reveal_pairs(item.sample)[:-1]:
            inputs = parts.processor(
                text=f"<image>{parts.ivg.instruction} {context}",
                images=picture,
                suffix=question,
                return_tensors="pt",
            )
            with torch.inference_mode():
                loss = theirs.model.model(**inputs).loss
            length = int((inputs["labels"] != -100).sum())
            total, count = total + float(loss) * length, count + length
    assert scores["n"] == 5
    assert scores["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-3)
    assert "right_axis" not in scores


def test_no_questions_have_no_score(clue: Clue) -> None:
    scores = score_questions(clue, [told("1", "a", (0, 0, 1, 1))], axes=True)
    assert scores == {"token_accuracy": None, "perplexity": None, "right_axis": None, "n": 0}


# --- the command ---


def test_the_command_prints_one_json_object(
    random_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = tmp_path / "records.jsonl"
    words = ["eval", "ivg", "--data", "invig", "--source", str(NEW), "--model", str(random_model)]
    assert main([*words, "--json", "--asker", "--records", str(records)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["data"], result["split"]) == ("invig", "test")
    assert result["guesser"]["n"] == 3
    assert list(result["guesser"]["curve"]) == [str(level) for level in LEVELS]
    assert sum(part["n"] for part in result["by_questions"].values()) == 3
    assert result["asker"]["n"] == 5
    rows = [json.loads(line) for line in records.read_text("utf-8").splitlines()]
    assert [row["id"] for row in rows] == ["002", "003", "004"]
    right = sum(row["iou"] >= 0.5 for row in rows) / 3
    assert result["guesser"]["accuracy"] == pytest.approx(right, abs=1e-4)


def test_the_command_with_another_adapter_and_as_markdown(
    random_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "ivg", "--data", "invig", "--source", str(NEW), "--model", str(random_model)]
    assert main([*words, "--markdown", "--ivg", str(random_model / "ivg"), "--limit", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("| guesser |")
    assert "| IoU of at least |" in out
    assert main([*words, "--ivg", str(random_model / "nothing")]) == 2
    assert "there is no folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--data", "invig"], "give InViG's folder, file or hub id with --source"),
        (["--data", "invig", "--source", "nowhere"], "nowhere: no such file or folder"),
        (["--data", "invig", "--source", str(NEW), "--split", "val"], "no split validation"),
        (["--data", "invig", "--source", str(NEW), "--limit", "0"], "--limit: must be 1 or more"),
        (["--data", "tabletop", "--source", "nowhere"], "no test scenes"),
        (["--data", "tabletop", "--world", "blocks", "--source", "nowhere"], "world 'blocks'"),
        (["--data", "tabletop", "--per-image", "0"], "--per-image: must be 1 or more"),
        (["--data", "it2p", "--source", "nowhere"], "nowhere: no IT2P here"),
        (["--data", "coco"], "invalid choice: 'coco'"),
        ([], "--data"),
    ],
)
def test_bad_options_are_refused_in_one_line(
    words: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "ivg", *words]) == 2
    err = capsys.readouterr().err
    assert reason in err
    assert err.count("\n") == 1
