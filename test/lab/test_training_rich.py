"""Training on the rich world: its kinds, its words, its language, the user's own meshes."""

from __future__ import annotations

import argparse
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn_scenes import random_scenes
from it2p_files import write_it2p
from scene_helpers import thing

from clue_ros.dialogue.inflection import plural
from clue_ros.errors import ClueError
from clue_ros.lab.language.dialogues import DialogueState
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.options import add_options, read_options
from clue_ros.lab.simulator import shards
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.simulator.worlds import BLOCKS, RICH, TABLE
from clue_ros.lab.training.adapters import check_words
from clue_ros.lab.training.base import new_model
from clue_ros.lab.training.datasets import TrainingData, load_training_data
from clue_ros.lab.training.loop import TrainingSettings
from clue_ros.lab.training.options import TrainingOptions
from clue_ros.lab.training.packing import pack
from clue_ros.lab.training.samples import (
    adapter_samples,
    base_samples,
    box_suffix,
    dialogue_query,
    list_query,
    oracle_query,
    scene_queries,
)
from clue_ros.lab.training.vision import DenseHeads, dense_targets
from clue_ros.model.loading import DEFAULT_MODEL, find_model
from clue_ros.model.oracle import ANSWER
from clue_ros.model.prompts import build_tokenizer, load_processor

SIZE = 32


def named(scene: Scene, seed: int) -> Scene:
    """The scene with kinds and colours of the rich world."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(["mug", "fork", "banana"], 2)
    objects = tuple(
        replace(o, kind=str(rng.choice(kinds)), color=str(rng.choice(["pink", "red"])), extent=0.1)
        for o in scene.objects
    )
    return replace(scene, objects=objects)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards of the rich world, with a kind of the user's own."""
    root = tmp_path_factory.mktemp("rich")
    spec = replace(RICH, nouns={**RICH.nouns, "cracker box": ("cracker box",)})
    for split, count in (("train", 12), ("val", 4)):
        scenes = [named(s, i) for i, s in enumerate(random_scenes(count, 2, size=SIZE))]
        own = replace(scenes[0].objects[0], kind="cracker box")
        scenes[0] = replace(scenes[0], objects=(own, *scenes[0].objects[1:]))
        path = shards.shard_path(root, split, 0, 0, "rich")
        shards.write_shard(path, scenes, "rich", spec=spec, meshes="abc")
    write_it2p(root / "it2p")
    return root


def options(folder: Path, *more: str) -> TrainingOptions:
    parser = argparse.ArgumentParser()
    add_options(parser, TrainingOptions)
    args = parser.parse_args(["--tabletop", str(folder), "--world", "rich", *more])
    return read_options(TrainingOptions, args)


@pytest.fixture(scope="module")
def data(folder: Path) -> TrainingData:
    return load_training_data(options(folder, "--it2p", str(folder / "it2p")), SIZE)


def test_the_data_knows_its_world(data: TrainingData, folder: Path) -> None:
    assert len(data.scenes) == 12
    assert data.kinds == (*RICH.kinds, "cracker box")
    assert data.colors == tuple(RICH.colors)
    assert data.language is grammar_of()
    assert shards.meshes_of(shards.list_shards(folder, "train", "rich")[0]) == "abc"
    assert TrainingOptions().world == "rich"


def test_missing_scenes_are_said_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="clue data tabletop --out"):
        load_training_data(options(tmp_path), SIZE)


def test_another_world_can_be_mixed_in(folder: Path) -> None:
    path = shards.shard_path(folder, "train", 0, 0, "blocks")
    shards.write_shard(path, random_scenes(5, 3, size=SIZE), "blocks")
    mixed = load_training_data(options(folder, "--mix", "blocks=4", "--scenes", "6"), SIZE)
    assert len(mixed.scenes) == 6 + 4
    assert mixed.kinds == (*RICH.kinds, "cracker box", "cylinder")
    assert mixed.language is grammar_of()
    for i in range(len(mixed.scenes)):
        assert scene_queries(mixed.scenes[i], 4, np.random.default_rng(i), mixed.language)
    with pytest.raises(FileNotFoundError, match="clue data tabletop --world blocks"):
        load_training_data(options(folder, "--mix", "blocks=6"), SIZE)


@pytest.mark.parametrize("wrong", ["blocks", "blocks=", "blocks=-1", "blocks=0", "moon=3", "=3"])
def test_what_cannot_be_mixed_in_is_refused_with_the_form(
    wrong: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        options(folder, "--mix", wrong)
    assert "WORLD=SCENES" in capsys.readouterr().err


def test_a_world_with_other_colours_cannot_be_mixed_in(folder: Path) -> None:
    path = shards.shard_path(folder, "train", 0, 0, "blocks")
    shards.write_shard(path, random_scenes(1, 3, size=SIZE), "blocks")
    with pytest.raises(ClueError, match="--mix rich: blocks has no black, brown"):
        load_training_data(options(folder, "--world", "blocks", "--mix", "rich=1"), SIZE)


def test_dense_targets_know_every_kind(data: TrainingData) -> None:
    scenes = [data.scenes[i] for i in range(12)]
    targets = dense_targets(scenes, 4, data.kinds, data.colors)
    assert int(targets.kinds.max()) == data.kinds.index("cracker box")
    heads = DenseHeads(8, data.kinds, data.colors)
    assert heads.kind(torch.zeros(1, 8)).shape == (1, len(RICH.kinds) + 1)
    assert heads.color(torch.zeros(1, 8)).shape == (1, len(RICH.colors))


def test_the_oracle_learns_mostly_answers(data: TrainingData) -> None:
    settings = TrainingSettings(steps=40, batch=4, lr=1.0, seed=1)
    batches = [adapter_samples(data, settings, step, ANSWER) for step in range(40)]
    queries = [q for samples in batches for _, queries in samples for q in queries]
    asked = [q for q in queries if q.instruction.startswith(f"{ANSWER} ")]
    assert 0.7 < len(asked) / len(queries) < 0.9
    assert all(" assistant: " in q.context for q in asked)
    assert {q.context for q in queries if q not in asked} == {""}


def test_the_oracle_never_asks_for_what_is_not_there() -> None:
    objects, rich = [thing(0.2, 0.5), thing(0.8, 0.5, "fork")], grammar_of()
    absent = DialogueState("the bowl", (), "i don ' t see a bowl .")
    told = f"{absent.context} assistant: {absent.question} user: i mean the fork"
    states = [absent, DialogueState(told, (1,), None)]
    drawn = [oracle_query(states, objects, np.random.default_rng(i), rich) for i in range(60)]
    assert None in drawn, "the request names no object that has a box"
    assert {q.suffix for q in drawn if q} == {"i mean the fork"}
    clear = [DialogueState("the fork", (1,), None)]
    drawn = [oracle_query(clear, objects, np.random.default_rng(i), rich) for i in range(60)]
    assert {q.suffix for q in drawn if q} == {"the fork"}


def test_queries_are_in_the_rich_language(data: TrainingData) -> None:
    rng = np.random.default_rng(0)
    known = set(grammar_of().words()) | {"cracker", "box"}
    words = {w for text in known for w in re.findall(r"[a-z]+", text)}
    queries = [q for i in range(12) for q in scene_queries(data.scenes[i], 12, rng, data.language)]
    texts = [f"{q.context} {q.suffix or ''}" for q in queries]
    said = {w for text in texts for w in re.findall(r"[a-z]+", re.sub(r"<loc\d+>", "", text))}
    assert said <= words | {"assistant", "user"}
    assert any("don ' t see" in text for text in texts)
    assert all(q.ambiguous == (len(q.meant) != 1) for q in queries)
    assert {q.instruction for q in queries} == {"clarify", "detect"}


def test_photographs_are_spoken_of_in_the_same_language(data: TrainingData) -> None:
    batch = base_samples(data, TrainingSettings(steps=1, batch=12, lr=1.0), 0, 3)
    assert {o.kind for scene, _ in batch for o in scene.objects} > {"block"}, "both sorts"
    pictures = adapter_samples(data, TrainingSettings(1, 12, 1.0), 0, "clarify")
    questions = {q.suffix for _, p in pictures for q in p if q.suffix and "?" in q.suffix}
    assert questions
    assert not [q for q in questions if q.startswith("do you mean")], "the default language"


def test_a_listed_kind_of_two_words_is_pointed_at_as_a_whole() -> None:
    objects = (
        SceneObject("cracker box", "red", (0.1, 0.1, 0.3, 0.3)),
        SceneObject("mug", "pink", (0.6, 0.1, 0.8, 0.3)),
    )
    query = list_query("the things", (0, 1), objects)
    assert query.suffix == f"{box_suffix(objects[0])} red cracker box ; " + (
        f"{box_suffix(objects[1])} pink mug"
    )
    owners = dict(query.pointers)
    assert [owners.get(k) for k in range(14)] == [0] * 7 + [None] + [1] * 6


def test_what_is_counted_on_the_way_is_pointed_at_before_what_is_meant() -> None:
    objects = tuple(SceneObject("mug", "red", (x, 0.1, x + 0.1, 0.3)) for x in (0.7, 0.1, 0.4))
    query = dialogue_query(DialogueState("the third mug", (0,), None, via=(1, 2)), objects)
    assert query.suffix == ";".join(box_suffix(objects[i]) for i in (1, 2, 0))
    assert query.pointers == tuple(
        (5 * n + k, i) for n, i in enumerate((1, 2, 0)) for k in range(4)
    )
    assert query.meant == (0,)
    assert not query.ambiguous


def test_the_option_decides_whether_training_counts_aloud(data: TrainingData) -> None:
    def boxes(data: TrainingData) -> set[int]:
        batch = base_samples(data, TrainingSettings(steps=1, batch=40, lr=1.0), 0, 8)
        queries = [q for _, drawn in batch for q in drawn if q.instruction == "clarify"]
        return {(q.suffix or "").count("<loc") // 4 for q in queries}

    assert boxes(data) == {0, 1}
    assert boxes(replace(data, via=True)) > {0, 1, 2}


def test_household_knows_every_word_that_training_says() -> None:
    """Of the world blocks, which is mixed in, training says the kinds and the colours."""
    tokenizer = load_processor(find_model(DEFAULT_MODEL)).tokenizer
    for world in (RICH.name, TABLE.name):
        check_words(tokenizer, world, DEFAULT_MODEL)
    said = [*vocabulary(TABLE.name, public=True), *BLOCKS.kinds, *map(plural, BLOCKS.kinds)]
    known = tokenizer.get_vocab()
    assert not [word for word in (*said, *BLOCKS.colors) if word not in known]


def test_a_new_base_has_every_word_and_an_old_one_is_refused(data: TrainingData) -> None:
    model, tokenizer = new_model(0, "rich", ["cracker box"])
    check_words(tokenizer, "rich", "new")
    assert model.config.text_config.vocab_size >= len(tokenizer)
    boxes: Any = tokenizer("the cracker boxes don ' t", add_special_tokens=False)["input_ids"]
    assert tokenizer.unk_token_id not in boxes
    scene = data.scenes[0]
    batch = pack(
        [(scene, scene_queries(scene, 4, np.random.default_rng(1), data.language))], tokenizer, 4
    )
    assert not (batch.ids == tokenizer.unk_token_id).any()
    with pytest.raises(ClueError, match=r"lacks .*clue train base --world rich"):
        check_words(build_tokenizer(["the red block"]), "rich", "old")
