"""The rich world measured: requests of every sort, what is not there, the worst slices named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from object_scenes import random_table

from clue_ros import cli
from clue_ros.dialogue.types import AmbiguityEstimate, Box, Dialogue, Grounding, NotFound, Question
from clue_ros.lab.evaluation.protocol import EvalSample, EvaluationReport, evaluate
from clue_ros.lab.evaluation.tabletop import (
    LEAST,
    all_slices,
    break_down,
    draw_worst,
    slices_of,
    tabletop_samples,
    worst_slices,
)
from clue_ros.lab.language.object_words import HELD_OUT_NOUNS
from clue_ros.lab.language.questions import ask
from clue_ros.lab.language.simulated_user import RichUser
from clue_ros.lab.simulator import shards
from clue_ros.lab.simulator.scene import Scene, SceneObject

ESTIMATE = AmbiguityEstimate(0.5, 0.5, np.zeros((2, 2), np.float32), (), 0.0)
NOUNS = {"mug": "mug", "bowl": "bowl", "apple": "apple", "fork": "fork"}


def scenes(count: int, seed: int = 0) -> list[Scene]:
    """Coloured squares with the rich world's names."""
    rng = np.random.default_rng(seed)
    out = []
    for number in range(count):
        image = np.full((120, 160, 3), 90, np.uint8)
        image[0, 0] = number  # two tables can get the same request
        objects = []
        for k in range(int(rng.integers(3, 7))):
            x, y = 0.1 + 0.8 * rng.uniform(size=2) * 0.8
            side = float(rng.choice([0.06, 0.12, 0.2]))
            kind = "mug" if k < 2 else str(rng.choice(list(NOUNS)))
            box = (float(x), float(y), float(x + side), float(y + side))
            color, visible = str(rng.choice(["red", "blue"])), float(rng.choice([0.5, 0.8, 1.0]))
            objects.append(SceneObject(kind, color, box, side, visible))
        out.append(Scene(image, tuple(objects), np.zeros((56, 56), np.uint8)))
    return out


class Fake:
    """A grounder that keeps the image as its view; subclasses reply."""

    policy = "decoder"

    def look(self, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """See everything."""
        return image

    def ambiguity(self, view: Any, expression: str | Dialogue) -> AmbiguityEstimate:
        """Is of no use: the decoder decides."""
        return ESTIMATE


class Knowing(Fake):
    """Knows what every request means, or points at the corner from the share `wrong` of them on."""

    def __init__(self, samples: list[EvalSample], wrong: float = 0.0) -> None:
        self._truth: dict[tuple[int, str], list[list[float]]] = {}
        self._absent: set[tuple[int, str]] = set()
        self._people: dict[tuple[int, str], RichUser] = {}
        for n, sample in enumerate(samples):
            self._absent |= {(n, text) for text in sample.absent}
            texts = [r.text for r in sample.clear] + [e.text for e in sample.interactive]
            self._truth |= {(n, t): dict(sample.about(t))["truth"] for t in texts}
            for e in sample.interactive:
                assert isinstance(e.answer, RichUser)
                self._people[n, e.text] = e.answer
        self._rng = np.random.default_rng(0)
        self._wrong = wrong

    def reply(
        self, view: Any, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """Say the truth, most of the time."""
        text = (int(view[0, 0, 0]), dialogue.request)
        if text in self._absent:
            return NotFound("i don't see a thing.", (), (), ESTIMATE, "a thing")
        person = self._people.get(text)
        if person is not None and len(person.candidates) > 1 and not force_grounding:
            asked = ask(person.candidates, person.objects, NOUNS, asked=dialogue.questions)
            return Question(asked.text, (), (), ESTIMATE)
        if person is not None:
            x0, y0, x1, y1 = (v * n for v, n in zip(person.objects[person.target].box,
                              (160, 120) * 2, strict=True))  # fmt: skip
            return Grounding(Box(x0, y0, x1, y1), "it", 1.0, ESTIMATE)
        box = Box(*self._truth[text][0])
        if self._rng.uniform() < self._wrong:
            box = Box(0, 0, 3, 3)
        return Grounding(box, "it", 1.0, ESTIMATE)


def measured(wrong: float = 0.0) -> tuple[EvaluationReport, list[EvalSample]]:
    samples = tabletop_samples(scenes(30), per_image=2)
    return evaluate(Knowing(samples, wrong), samples), samples


@pytest.fixture(scope="module")
def perfect() -> tuple[EvaluationReport, list[EvalSample]]:
    return measured()


def test_someone_who_knows_the_truth_is_right(
    perfect: tuple[EvaluationReport, list[EvalSample]],
) -> None:
    summary = perfect[0].summary()
    assert summary["clear"]["accuracy"] == 1
    assert summary["absent"]["accuracy"] == 1
    assert summary["interactive"]["accuracy"] == 1
    assert summary["interactive"]["useless"] == 0
    assert 1 <= (summary["interactive"]["questions"] or 0) < 1.7
    assert min(row["n"] or 0 for row in summary.values()) > 30
    assert worst_slices(perfect[0]) == []


def test_every_request_falls_into_one_slice_of_each(
    perfect: tuple[EvaluationReport, list[EvalSample]],
) -> None:
    report = perfect[0]
    parts = slices_of(report)
    assert set(parts) == {"reference", "light", "object", "origin", "look-alikes", "size", "seen"}
    for by in ("reference", "light"):
        assert sum(len(p.records) for p in parts[by].values()) == len(report.records)
    with_target = [r for r in report.records if r["part"] != "absent"]
    for by in ("object", "origin", "look-alikes", "size", "seen"):
        assert sum(len(p.records) for p in parts[by].values()) == len(with_target)
    assert set(parts["seen"]) == {"much hidden", "partly hidden", "in full view"}
    assert set(parts["origin"]) == {"generated"}
    told = [r["truth"] for r in report.records if r["part"] == "interactive"]
    assert all(len(boxes) == 1 for boxes in told), "one target"
    assert set(parts["size"]) <= {"small", "medium", "large"}
    assert "place" in parts["reference"]


def test_the_worst_slices_come_first_and_are_large_enough() -> None:
    report, _ = measured(wrong=0.5)
    worst = worst_slices(report)
    assert worst
    assert all(s.n >= LEAST and s.share < 1 and s.part == "clear" for s in worst)
    shares = [s.share for s in all_slices(report)]
    assert shares[0] <= 0.5
    assert shares[-1] == 1


def test_the_breakdown_is_told_and_drawn(tmp_path: Path) -> None:
    report, samples = measured(wrong=0.5)
    path = tmp_path / "worst.png"
    found, told = break_down(report, samples, path)
    json.dumps(found)
    assert {row["by"] for row in found["worst"]} <= set(found["slices"])
    assert "worst:" in told
    assert "relation" in told
    image = cv2.imread(str(path))
    assert image is not None
    green = (image == (60, 220, 40)).all(axis=2)
    assert green.sum() > 100, "the truth is drawn"
    draw_worst(tmp_path / "one.png", report, samples, worst_slices(report)[:1])
    one = cv2.imread(str(tmp_path / "one.png"))
    assert one is not None
    assert one.shape[0] < image.shape[0]


def test_the_command_measures_the_rich_world(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], random_model: Path
) -> None:
    shards.write_shard(shards.shard_path(tmp_path, "test", 0, 0, "rich"), scenes(3), "rich")
    command = ["eval", "tabletop", "--world", "rich", "--tabletop", str(tmp_path), "--json"]
    assert cli.main([*command, "--model", str(random_model), "--per-image", "1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {"clear", "ambiguity", "interactive", "slices", "worst"} <= set(found)
    assert "reference" in found["slices"]


class Unsure(Fake):
    """Says of every second thing that it does not know it, and points firmly at every fourth."""

    def __init__(self) -> None:
        self._asked = 0

    def reply(
        self, view: Any, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """Take turns."""
        self._asked += 1
        if self._asked % 2:
            return NotFound("I don't know what that is.", (), (), ESTIMATE, "that")
        return Grounding(Box(0, 0, 3, 3), "it", 0.5 if self._asked % 4 else 0.49, ESTIMATE)


def test_a_scene_of_scanned_objects_has_a_request_with_a_held_out_noun() -> None:
    rng, image = np.random.default_rng(0), np.full((120, 160, 3), 90, np.uint8)
    tables = [Scene(image, tuple(random_table(rng)), np.zeros((56, 56), np.uint8))] * 8
    samples = tabletop_samples(tables, "table")
    told = [text.lower() for sample in samples for text in sample.held_out]
    assert len(told) == 8
    assert all(any(noun in text for noun in HELD_OUT_NOUNS) for text in told)
    assert len(set(told)) > 4
    only = [EvalSample(s.name, s.load, held_out=s.held_out) for s in samples]
    report = evaluate(Unsure(), only)
    assert report.summary()["held_out"] == {"unknown": 0.5, "firm": 0.25, "n": 8}
    assert "held-out nouns  unknown   firm  n\n                  0.500  0.250  8" in report.text()


def test_the_rich_grammar_has_no_held_out_nouns(
    perfect: tuple[EvaluationReport, list[EvalSample]],
) -> None:
    assert not any(sample.held_out for sample in perfect[1])
    assert "held_out" not in perfect[0].summary()
    assert "held-out" not in perfect[0].text()
