"""`clue eval tasks`: its scores are those of the answers, and it runs on any base."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from drawn_scenes import random_scenes
from tiny_model import write_random_model

from clue_ros import cli
from clue_ros.dialogue.types import Box
from clue_ros.lab.evaluation.public_tasks import (
    as_text,
    crop,
    is_named,
    listed_boxes,
    matched,
    same_answer,
    summary_of,
)
from clue_ros.lab.language.public_tasks import DETECTIONS, public_tasks
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator import shards
from clue_ros.lab.simulator.scene import SceneObject
from clue_ros.lab.training.samples import detection_query

RICH = public_tasks("rich")
MUG = SceneObject("mug", "red", (0.1, 0.1, 0.3, 0.4))


def test_the_boxes_of_an_answer_are_read_back() -> None:
    objects = (MUG, SceneObject("bowl", "blue", (0.5, 0.5, 0.9, 0.8)))
    suffix = detection_query([("red mug", (0,)), ("bowl", (1,))], objects).suffix or ""
    for text in (suffix, suffix.replace("><", "> <")):
        found = listed_boxes(text, 100, 200)
        assert [label for _, label in found] == ["red mug", "bowl"]
        for (box, _), o in zip(found, objects, strict=True):
            want = np.array(o.box) * (100, 200, 100, 200)
            np.testing.assert_allclose(box.as_list(), want, atol=0.5)
    assert listed_boxes("i don ' t see a mug . <loc0001><loc0002>", 100, 100) == []


def test_each_object_is_found_once() -> None:
    one, other = Box(0, 0, 10, 10), Box(50, 50, 60, 60)
    assert matched([one, one], [one]) == 1
    assert matched([one, other], [other, one]) == 2
    assert matched([one], [other]) == matched([], [one]) == 0
    # the better of two boxes takes the object, the other one the second object
    near = Box(0, 0, 10, 8)
    assert matched([near, one], [one, near]) == 2


@pytest.mark.parametrize(
    ("said", "wanted", "right"),
    [("red", "red", True), ("red .", "red", True), ("Two", "2", True), ("cup", "mug", True),
     ("mug , fork", "fork , mug", True), ("yes", "no", False), ("", "no", False),
     ("blue", "red", False), ("mug", "mug , fork", False)],
)  # fmt: skip
def test_an_answer_is_right_in_other_words(said: str, wanted: str, right: bool) -> None:
    assert same_answer(said, wanted, RICH) == right


def test_a_caption_names_an_object_by_colour_and_noun() -> None:
    assert is_named(MUG, "a red mug and a fork", RICH)
    assert is_named(MUG, "two red cups", RICH)
    assert not is_named(MUG, "a red fork and a blue mug", RICH)


def test_a_crop_has_a_margin_and_stays_in_the_image() -> None:
    image = np.zeros((60, 80, 3), np.uint8)
    image[20:40, 30:40] = 200
    part = crop(image, Box(30, 20, 40, 40), margin=0.2)
    assert part.shape == (28, 14, 3)
    assert int((part[..., 0] == 200).sum()) == 20 * 10
    assert crop(image, Box(-5, -5, 100, 100)).shape == image.shape


def test_the_summary_counts_boxes_and_answers() -> None:
    records = [
        {"task": "detect", "sort": "noun", "objects": 2, "boxes": 2, "hits": 2},
        {"task": "detect", "sort": "several", "objects": 6, "boxes": 3, "hits": 2},
        {"task": "detect", "sort": "absent", "objects": 0, "boxes": 0, "hits": 0},
        {"task": "detect", "sort": "absent", "objects": 0, "boxes": 2, "hits": 0},
        {"task": "answer", "sort": "color", "right": True},
        {"task": "crop", "sort": "color", "right": False},
        {"task": "caption", "sort": "caption", "objects": 4, "named": 3, "parts": 6, "true": 3},
    ]
    found = summary_of(records)
    assert found["detect"]["all"] == {
        "n": 2, "precision": 0.8, "recall": 0.5, "all_right": 0.5,
    }  # fmt: skip
    assert found["detect"]["by_number"]["5+"]["recall"] == pytest.approx(1 / 3, abs=1e-3)
    assert found["detect"]["absent"] == {"n": 2, "empty": 0.5}
    assert found["answer"]["color"] == {"n": 1, "right": 1.0}
    assert found["crop"]["all"]["right"] == 0.0
    assert found["caption"] == {"n": 1, "objects_named": 0.75, "parts_true": 0.5}
    assert "absent: empty answer" in as_text(found, markdown=True)


def test_it_measures_any_base(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_random_model(tmp_path / "model", vocabulary("blocks", public=True))
    path = shards.shard_path(tmp_path, "val", 0, 0, "blocks")
    shards.write_shard(path, random_scenes(2, 3), "blocks")
    records = tmp_path / "records.jsonl"
    words = [
        "eval",
        "tasks",
        "--model",
        str(model),
        "--world",
        "blocks",
        "--tabletop",
        str(tmp_path),
    ]
    assert cli.main([*words, "--scenes", "2", "--json", "--records", str(records)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["scenes"] == 2
    assert set(found["detect"]["by_form"]) == set(DETECTIONS) - {"absent"}
    assert found["caption"]["n"] == 2
    lines = [json.loads(line) for line in records.read_text().splitlines()]
    assert {line["task"] for line in lines} == {"detect", "answer", "crop", "caption"}
    assert cli.main([*words, "--scenes", "3"]) == cli.BAD_INPUT
    assert "3 are wanted" in capsys.readouterr().err
