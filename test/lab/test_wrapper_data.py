"""Referring expressions: published layouts, simulated candidates, training samples."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from drawn_scenes import random_scenes
from PIL import Image

from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.noun_phrases import read_phrase
from clue_ros.dialogue.nouns import nouns_of
from clue_ros.dialogue.types import Box, Dialogue
from clue_ros.lab.data.referring import (
    ReferringItem,
    ReferringPicture,
    simulated_items,
    turns_of,
    user_says,
)
from clue_ros.lab.data.referring_files import (
    ReferringError,
    hcrefloco_items,
    refcoco_items,
    talk2car_items,
)
from clue_ros.lab.data.simulated_detector import DetectorErrors, SceneSource, SimulatedDetector
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.training.wrapper import epoch_order
from clue_ros.lab.training.wrapper_data import ListingSample, listing_samples, meant_indices
from clue_ros.wrapper.grounder import Wrapper
from clue_ros.wrapper.prompt import PromptFormat
from clue_ros.wrapper.sources import CallableSource


def picture(folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (100, 50), (90, 90, 90)).save(folder / name)


def refs() -> list[dict[str, Any]]:
    sentences = [{"raw": "the left mug", "sent": "left mug", "sent_id": 1, "tokens": []}]
    ref = {"image_id": 7, "ann_id": 3, "ref_id": 1, "split": "testA", "sentences": sentences}
    return [ref, {**ref, "ann_id": 99}, {**ref, "split": "train"}]


def write_refcoco(folder: Path) -> None:
    picture(folder / "images", "COCO_7.jpg")
    instances = {
        "images": [{"id": 7, "file_name": "COCO_7.jpg", "width": 100, "height": 50}],
        "annotations": [{"id": 3, "image_id": 7, "bbox": [10, 5, 20, 10]}],
    }
    (folder / "instances.json").write_text(json.dumps(instances))


@pytest.mark.parametrize("name", ["refs(unc).p", "refs.json"])
def test_refcoco_is_read_as_published(tmp_path: Path, name: str) -> None:
    write_refcoco(tmp_path)
    content = pickle.dumps(refs(), 2) if name.endswith(".p") else json.dumps(refs()).encode()
    (tmp_path / name).write_bytes(content)
    data = refcoco_items(tmp_path, None, "test")
    (item,) = data.items
    assert item.dialogue.request == "the left mug"
    assert item.boxes((100, 50)) == (Box(10, 5, 30, 15),)
    assert item.picture.load().shape == (50, 100, 3)
    assert len(data.problems) == 1  # the annotation that is not there


class Rude:
    """Asks for a function when it is unpickled."""

    def __reduce__(self) -> Any:
        return print, ("run",)


def test_a_pickle_that_asks_for_a_function_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_refcoco(tmp_path)
    (tmp_path / "refs(unc).p").write_bytes(pickle.dumps([Rude()]))
    with pytest.raises(ReferringError, match="refused"):
        refcoco_items(tmp_path, None, "test")
    assert "run" not in capsys.readouterr().out


def test_talk2car_is_read_as_published(tmp_path: Path) -> None:
    picture(tmp_path / "imgs", "img_val_0.jpg")
    row = {"command": "park behind the silver car", "2d_box": [10, 5, 20, 10],
           "t2c_img": "img_val_0.jpg", "command_token": "a"}  # fmt: skip
    rows = [row, {**row, "t2c_img": "../secret.jpg"}, {**row, "2d_box": None}]
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / "val_commands.json").write_text(json.dumps({"commands": rows}))
    data = talk2car_items(tmp_path, "val")
    assert [i.boxes((100, 50)) for i in data.items] == [(Box(10, 5, 30, 15),)]
    assert len(data.problems) == 2


def test_hc_refloco_is_read_as_published(tmp_path: Path) -> None:
    picture(tmp_path / "images", "1.jpg")
    row = {"id": "1", "file_name": "1.jpg", "width": 100, "height": 50, "split": "val",
           "bbox": [10, 5, 20, 10], "caption": "The woman in the red coat."}  # fmt: skip
    (tmp_path / "hc_refloco_val.json").write_text(json.dumps({"annotations": [row]}))
    (item,) = hcrefloco_items(tmp_path, "val").items
    assert item.boxes((100, 50)) == (Box(10, 5, 30, 15),)
    with pytest.raises(ReferringError, match=r"hc_refloco\.json"):
        hcrefloco_items(tmp_path, "test")


MUGS = [Candidate(Box(0, 0, 20, 20), "mug"), Candidate(Box(50, 0, 70, 20), "mug")]


def item(*meant: Box) -> ReferringItem:
    image = np.zeros((100, 100, 3), np.uint8)
    return ReferringItem(ReferringPicture("p", lambda: image), user_says("the mug"), meant)


def test_the_answer_is_the_candidate_of_the_highest_iou_above_one_half() -> None:
    size = (100, 100)
    assert meant_indices(item(Box(0.5, 0, 0.7, 0.2)), MUGS, size) == (1,)
    assert meant_indices(item(Box(0.3, 0, 0.45, 0.2)), MUGS, size) is None
    both = item(Box(0, 0, 0.2, 0.2), Box(0.5, 0, 0.7, 0.2))
    assert meant_indices(both, MUGS, size) == (0, 1)
    assert meant_indices(item(), MUGS, size) == ()


def test_samples_without_two_candidates_or_a_right_one_are_left_out_and_counted() -> None:
    finder = Wrapper([CallableSource(lambda image, nouns: MUGS)])
    items = [item(Box(0, 0, 0.2, 0.2)), item(Box(0.3, 0, 0.45, 0.2)), item()]
    samples, left_out = listing_samples(items, finder, together=8)
    assert [len(s.queries) for s in samples] == [2]
    assert left_out["no candidate over IoU 0.5"] == 1
    alone = Wrapper([CallableSource(lambda image, nouns: MUGS[:1])])
    assert listing_samples(items, alone)[0] == []


def test_a_permuted_sample_means_the_same_boxes() -> None:
    sample = ListingSample(tuple(MUGS), (100, 100), (("the left mug", (0,)), ("none", ())))
    for seed in range(5):
        mixed = sample.permuted(np.random.default_rng(seed))
        assert mixed.candidates[mixed.queries[0][1][0]] == MUGS[0]
        assert mixed.queries[1][1] == ()


def test_an_epoch_has_each_sample_with_further_orders_and_easy_ones_first_if_wanted() -> None:
    few = ListingSample(tuple(MUGS), (9, 9), ())
    many = ListingSample(tuple(MUGS) * 8, (9, 9), ())
    epoch = epoch_order([many, few], 0, 1, easy_first=True)
    assert [len(s.candidates) for s, _ in epoch] == [2, 2, *[16] * 5]
    assert epoch == epoch_order([many, few], 0, 1, easy_first=True)
    once = epoch_order([many, few], 0, 1, permuted=False, easy_first=True)
    assert [len(s.candidates) for s, _ in once] == [2, 16]


def test_a_sample_listed_from_left_to_right_means_the_same_boxes() -> None:
    sample = ListingSample((MUGS[1], MUGS[0]), (100, 100), (("left", (1,)), ("both", (0, 1))))
    listed = sample.listed(PromptFormat(order="left-to-right"))
    assert listed.candidates == tuple(MUGS)
    assert listed.queries == (("left", (0,)), ("both", (1, 0)))
    assert sample.listed(PromptFormat()) == sample


def test_commands_of_the_grammar_are_asked_for_as_they_are_read() -> None:
    rng, grammar = np.random.default_rng(0), grammar_of()
    said = {
        turn.text
        for scene in random_scenes(20, seed=3, colors=("red", "green", "blue"))
        for _ in range(30)
        for state in grammar.dialogue(scene.objects, rng)
        for turn in turns_of(state.context)
        if turn.speaker == "user"
    }
    not_read = {"i", "me", "the", "a", "and", "or", "no", "so", "now", "please", "it", "hi"}
    same = 0
    for text in sorted(said):
        phrase = read_phrase(text)
        landmark = read_phrase(phrase.relation[1]).noun if phrase.relation else ""
        found = nouns_of(Dialogue(text))
        assert not set(" ".join(found).split()) & not_read, text
        if not set(phrase.noun.split()) & not_read:
            read = tuple(dict.fromkeys(filter(None, (phrase.noun, landmark))))
            same += found == (read or ("object",))
    assert same > 0.75 * len(said) > 150


def test_scenes_are_drawn_as_their_items_are_asked_for() -> None:
    drawn: list[Scene] = []

    def scenes() -> Iterator[Scene]:
        for scene in random_scenes(6, seed=2, colors=("red", "green")):
            drawn.append(scene)
            yield scene

    items = simulated_items(scenes(), grammar_of(), per_picture=2, seed=0)
    assert not drawn
    first = next(items)
    assert first.picture.scene is drawn[0]
    assert len(drawn) == 1
    assert len(list(items)) >= 6
    assert len(drawn) == 6


def test_the_simulated_detector_errs_as_told_and_the_same_way_each_time() -> None:
    objects = tuple(SceneObject("mug", "red", (x, 0.1, x + 0.1, 0.3)) for x in (0.1, 0.4, 0.7))
    scene = Scene(np.zeros((50, 100, 3), np.uint8), objects, np.zeros((4, 4), np.uint8))
    exact = SimulatedDetector({"mug": "cup"}, DetectorErrors(0, 0, 0, 0, 0)).find(scene)
    assert sorted(c.box.as_list() for c in exact) == [
        [10, 5, 20, 15], [40, 5, 50, 15], [70, 5, 80, 15]
    ]  # fmt: skip
    assert {c.label for c in exact} == {"cup"}
    source = SceneSource(SimulatedDetector({"mug": "cup"}), [scene])
    assert source.find(scene.image, ()) == source.find(scene.image.copy(), ())
