"""Requests about the novel world: words that training knew and words that it did not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from drawn_scenes import draw_scene

from clue_ros.dialogue.types import AmbiguityEstimate, Box, Grounding
from clue_ros.lab.evaluation.protocol import evaluate
from clue_ros.lab.evaluation.tabletop import GROUPS, tabletop_samples
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator.worlds import BLOCKS, NOVEL

TOKENIZER = Path(__file__).parents[2] / "models" / "tabletop" / "tokenizer.json"
CLEAR = AmbiguityEstimate(0.0, 0.5, np.zeros((1, 1), np.float32), (), 0.0)


def test_the_models_tokenizer_has_the_words_of_every_world() -> None:
    words = {w for w in json.loads(TOKENIZER.read_text())["model"]["vocab"] if w.isalpha()}
    assert words == set(vocabulary())
    for spec in (BLOCKS, NOVEL):  # the others need a base of their own (`clue train base --world`)
        assert {n for nouns in spec.nouns.values() for n in nouns} | set(spec.colors) <= words


def test_requests_name_what_training_knew_and_what_it_did_not() -> None:
    rng = np.random.default_rng(4)
    scenes = []
    for _ in range(60):
        kinds = rng.choice(NOVEL.kinds, 2)
        spots = [(4, 4, 20, 20), (40, 6, 60, 22), (6, 40, 20, 60), (40, 40, 60, 60)]
        scenes.append(
            draw_scene(
                64,
                [
                    (str(rng.choice(kinds)), str(rng.choice(["red", "pink", "blue"])), box)
                    for box in spots[: int(rng.integers(2, 5))]
                ],
            )
        )
    samples = tabletop_samples(scenes)
    texts = [r.text for s in samples for r in s.clear] + [t for s in samples for t in s.ambiguous]
    said = [sample.about(text) for sample in samples for text in sample.ambiguous]
    assert all(set(row) == {"names", "unseen"} for row in said)
    unseen = [bool(samples[0].about(text)["unseen"]) for text in texts]
    assert 0.2 < np.mean(unseen) < 0.95
    words = {w for text in texts for w in text.split()}
    assert words & {"mug", "cup", "plate", "fork"}
    assert words & {"object", "thing", "item"}
    assert {w for w in words if w.isalpha()} <= set(vocabulary())


def test_the_breakdown_counts_every_record_once() -> None:
    class Pointing:
        """Points at the upper left corner, whatever is said, and never asks."""

        policy = "decoder"

        def look(self, image: Any) -> Any:
            return image

        def ambiguity(self, view: Any, expression: Any) -> Any:
            raise AssertionError("the decoder decides")

        def reply(self, view: Any, dialogue: Any, *, force_grounding: bool = False) -> Grounding:
            return Grounding(Box(4, 4, 20, 20), "it", 1.0, CLEAR)

    scene = draw_scene(
        64,
        [("mug", "red", (4, 4, 20, 20)), ("mug", "pink", (40, 4, 60, 20)),
         ("fork", "red", (4, 40, 20, 60))],
    )  # fmt: skip
    report = evaluate(Pointing(), tabletop_samples([scene] * 40, per_image=3))
    parts = [report.where(belongs) for belongs in GROUPS.values()]
    assert all(part.records for part in parts)
    for name in ("clear", "ambiguous", "interactive"):
        assert sum(len(part.of(name)) for part in parts) == len(report.of(name))
        right = [sum(record["right"] for record in r.of(name)) for r in (*parts, report)]
        assert right[0] + right[1] == right[2]
    summary = parts[0].summary()
    assert summary["clear"]["n"] == len(parts[0].of("clear"))
    assert summary["ambiguity"]["n"] == len(parts[0].of("clear") + parts[0].of("ambiguous"))
