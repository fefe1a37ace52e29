"""Adapters that learn from a table's photographs: the samples, the training, and what is kept."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from drawn_scenes import random_scenes
from safetensors.torch import load_file
from test_eval_photos import write_photos

from clue_ros.engine import Clue
from clue_ros.lab.adapt_trial import try_adapters, with_adapters
from clue_ros.lab.data.photographs import load_photographs
from clue_ros.lab.evaluation.photos import PhotoReply
from clue_ros.lab.simulator import shards
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD
from clue_ros.lab.training.adapt import Recipe, TablePhotographs, labelled, train_adapters
from clue_ros.lab.training.photographs import Pixels
from clue_ros.lab.training.vision import side_bins
from clue_ros.model.loading import find_model

CUPS = [[5, 5, 25, 45], [50, 10, 75, 50]]
REQUESTS: list[dict[str, Any]] = [
    {"text": "give me the blue cup", "truth": "clear", "boxes": CUPS[:1]},
    {"text": "the cup on the right", "truth": "clear", "boxes": CUPS[1:]},
    {"text": "pick up the cup", "truth": "ambiguous", "boxes": CUPS},
    {"text": "the banana please", "truth": "absent"},
]


def fit(image: Pixels) -> Pixels:
    """A square of 64 pixels, by the nearest ones."""
    rows, columns = (np.arange(64) * side // 64 for side in image.shape[:2])
    return np.asarray(image[rows][:, columns], np.uint8)


def test_requests_become_boxes_questions_and_what_is_not_there(tmp_path: Path) -> None:
    rows = labelled(load_photographs(write_photos(tmp_path, REQUESTS)))
    assert [asked.phrase for asked in rows[0].asked] == [
        "blue cup", "cup on the right", "cup", "banana",
    ]  # fmt: skip
    said = TablePhotographs(rows, fit, instruction="clarify", seed=0, known=lambda p: "on" not in p)
    seen = TablePhotographs(rows, fit, instruction="detect", seed=0)
    contexts: set[str] = set()
    kinds: set[str] = set()
    for position in range(40):
        scene, queries = said(position)
        assert scene.image.shape == (64, 64, 3)
        for query in queries:
            contexts.add(query.context)
            assert "on the" not in query.context, "of words that the tokenizer lacks"
            assert query.suffix is not None
            kinds.add(query.suffix[:4])
            if not query.ambiguous:
                (meant,) = query.meant
                y0, x0, y1, x1 = (round(side) for side in side_bins(scene.objects[meant].box))
                assert query.suffix == f"<loc{y0:04}><loc{x0:04}><loc{y1:04}><loc{x1:04}>"
        again, same = said(position)
        assert np.array_equal(again.image, scene.image)
        assert same == queries, "of the seed and the position alone"
    assert len(contexts) > 30, "in many forms"
    assert kinds >= {"<loc", "the ", "i do"}
    mirrored = {q.context for position in range(40) for q in seen(position)[1]}
    assert any("cup on the left" in context for context in mirrored)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """One step of each adapter, beside a few drawn scenes."""
    folder = tmp_path_factory.mktemp("scenes")
    for split, count, seed in (("train", 6, 0), ("val", 3, 1)):
        path = shards.shard_path(folder, split, 0, 0)
        shards.write_shard(path, random_scenes(count, seed, size=96))
    return Recipe(folder, DEFAULT_WORLD, "cpu", 1, {"ivg": 1, "detector": 1})


def test_adapters_learn_and_decide_as_the_models_own(
    recipe: Recipe, tmp_path: Path, household: Clue
) -> None:
    source, photographs = find_model("household"), load_photographs(write_photos(tmp_path / "p"))
    figures = train_adapters(source, photographs, tmp_path / "out", recipe)
    for part, settings in (("ivg", "ivg.json"), ("detector", "detector.json")):
        out = tmp_path / "out" / part
        learned, own = (load_file(p / "adapter_model.safetensors") for p in (out, source / part))
        assert any(not torch.equal(learned[name], own[name]) for name in own)
        assert (out / settings).read_bytes() == (source / part / settings).read_bytes()
    adapted = with_adapters(household, tmp_path / "out")
    assert adapted.policy == "both", "the fusion goes along"
    shutil.rmtree(tmp_path / "out" / "run")
    again = train_adapters(source, photographs, tmp_path / "out", recipe)
    assert again == figures, "what was trained is not trained again"


@pytest.mark.parametrize(
    ("gains", "simulated", "kept"), [(True, 0.895, "all"), (True, 0.88, None), (False, 0.9, None)]
)
def test_adapters_are_kept_where_the_other_photographs_gain_and_scenes_lose_little(
    recipe: Recipe, tmp_path: Path, gains: bool, simulated: float, kept: str | None
) -> None:
    for name, found in (("half0", 0.9), ("half1", 0.9), ("own", 0.9), ("all", simulated)):
        shutil.copytree(find_model("household"), tmp_path / name, ignore=_weights_of_the_base)
        (tmp_path / name / "simulated.json").write_text(json.dumps({"box_right": found}))
    photographs = load_photographs(write_photos(tmp_path / "photos")) * 2

    def ask(part: str, n: int, answer: object) -> list[PhotoReply]:
        did = "points" if gains and part == "adapters" else "not there"
        return [PhotoReply("a.png", "the cup", "clear", did, 0.1, hit=did == "points")]

    model = Clue.load(memory="")
    trial = try_adapters(model, find_model("household"), photographs, (), tmp_path, recipe, ask)
    assert trial.kept == (None if kept is None else tmp_path / kept)
    assert trial.halves == (tmp_path / "half0", tmp_path / "half1")
    assert "| clear, right at once or after a yes |" in trial.text


def _weights_of_the_base(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name in ("model.safetensors", "box_head.safetensors")]
