"""Dialogues about scenes as InViG, with masks: what is written is read back by our own reader."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from drawn_scenes import random_scenes
from PIL import Image

from clue_ros import cli
from clue_ros.lab.data.export_invig import exchanges_of, sample_dialogues
from clue_ros.lab.data.invig import load_invig, reveal_pairs
from clue_ros.lab.language.dialogues import DialogueState
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.simulator import shards
from clue_ros.model.prompts import detokenize


def test_word_tokens_are_joined_as_people_write() -> None:
    assert detokenize("i don ' t see a mug .") == "i don't see a mug."
    assert detokenize("the red one , the blue one or it ?") == "the red one, the blue one or it?"


def test_a_revealed_dialogue_gives_its_exchanges() -> None:
    states = [
        DialogueState("the mug", (0, 1), "the red one or the blue one ?"),
        DialogueState("the mug assistant: the red one or the blue one ? user: red", (0,), None),
    ]
    assert exchanges_of(states) == (("the red one or the blue one?", "red"),)


@pytest.mark.parametrize("world", ["blocks", "rich"])
def test_the_command_writes_what_the_reader_reads(
    world: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenes = random_scenes(5, 3, colors=("red", "blue"))
    for index in (0, 1):
        path = shards.shard_path(tmp_path / "shards", "train", 0, index, world)
        shards.write_shard(path, scenes, world)
    out = tmp_path / "out"
    command = ["data", "invig", "--world", world, "--tabletop", str(tmp_path / "shards")]
    assert cli.main([*command, "--out", str(out), "--scenes", "8", "--per-image", "2"]) == 0
    count = json.loads(capsys.readouterr().out)["dialogues"]
    data = load_invig(out, split="train")
    assert len(data.samples) == count >= 8
    assert data.problems == ()
    assert {s.category for s in data.samples} <= {"block", "ball"}
    assert any(s.exchanges for s in data.samples)
    rows = [row for path in sorted(out.glob("*.json")) for row in json.loads(path.read_text())]
    refs = {ref["id"]: (ref, row["image_info"]) for row in rows for ref in row["ref_list"]}
    for sample in data.samples:
        assert "<loc" in reveal_pairs(sample)[-1][1]
        ref, info = refs[sample.id]
        mask = np.array(Image.open(out / ref["mask"]["file_name"]))
        assert mask.shape == (info["height"], info["width"])
        ys, xs = np.nonzero(mask == ref["mask"]["value"])
        middle = (xs.mean() + 0.5) / info["width"], (ys.mean() + 0.5) / info["height"]
        x0, y0, x1, y1 = sample.box
        assert x0 < middle[0] < x1
        assert y0 < middle[1] < y1
    again = tmp_path / "again"
    assert cli.main([*command, "--out", str(again), "--scenes", "8", "--per-image", "2"]) == 0
    for path in sorted(out.glob("*.json")):
        assert path.read_text() == (again / path.name).read_text(), "the seed decides"


def test_shards_of_two_seeds_have_files_of_their_own(tmp_path: Path) -> None:
    for seed in (0, 1):
        path = shards.shard_path(tmp_path, "train", seed, 0, "rich")
        shards.write_shard(path, random_scenes(3, seed), "rich")
    out = tmp_path / "out"
    command = ["data", "invig", "--world", "rich", "--tabletop", str(tmp_path), "--out", str(out)]
    assert cli.main([*command, "--per-image", "2"]) == 0
    assert sorted(path.name for path in out.glob("*.json")) == [
        "train-0-0000.json",
        "train-1-0000.json",
    ]
    images = {sample.image_id for sample in load_invig(out, split="train").samples}
    assert len(images) == 6


def test_no_shards_is_said_with_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["data", "invig", "--world", "blocks", "--tabletop", str(tmp_path), "--out", "x"]
    assert cli.main(command) == 2
    assert "clue data tabletop --world blocks" in capsys.readouterr().err


def test_each_scene_has_different_requests() -> None:
    told = sample_dialogues(random_scenes(4, 1), grammar_of("rich"), name="a", per_image=4, seed=1)
    for image in {sample.image_id for sample, _ in told}:
        texts = [sample.request for sample, _ in told if sample.image_id == image]
        assert len(set(texts)) == len(texts)
