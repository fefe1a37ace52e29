"""Peaks against candidates, on maps and boxes made by hand, and the command on drawn scenes."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from drawn_scenes import random_scenes
from evaluation_helpers import parsed
from it2p_files import write_it2p

from clue_ros.cli import main
from clue_ros.dialogue.types import AmbiguityEstimate, Box, Dialogue, Peak
from clue_ros.lab.evaluation.localisation import (
    HITS,
    Candidate,
    LabelledRequest,
    LabelledScene,
    LocalisationOptions,
    it2p_truth,
    matches,
    measure,
    tabletop_truth,
)
from clue_ros.lab.simulator import shards

IMAGE = np.zeros((80, 80, 3), np.uint8)  # a map of 8 x 8: patches of 10 px


def candidate(x_min: int, y_min: int, x_max: int, y_max: int) -> Candidate:
    mask = np.zeros((80, 80), bool)
    mask[y_min:y_max, x_min:x_max] = True
    return Candidate(Box(x_min, y_min, x_max, y_max), mask)


LEFT, RIGHT, LOW = candidate(0, 0, 20, 20), candidate(60, 0, 80, 20), candidate(0, 60, 20, 80)


class FakeClue:
    """Not a model: it has the peaks that it was told for each request."""

    def __init__(self, peaks: dict[str, tuple[Peak, ...]]) -> None:
        self.peaks = peaks

    def look(self, image: npt.NDArray[np.uint8]) -> int:
        """Nothing to see."""
        return 0

    def ambiguity(self, view: int, expression: str | Dialogue) -> AmbiguityEstimate:
        """The peaks of the request, and a map that is high in the upper left quarter."""
        grid = np.zeros((8, 8), np.float32)
        grid[:2, :2] = 1.0
        return AmbiguityEstimate(0.5, 0.5, grid, self.peaks[str(expression)], 0.0)


def peak(box: Box, score: float = 1.0, point: tuple[float, float] | None = None) -> Peak:
    return Peak(box, score, point)


def test_a_candidate_is_hit_once_and_by_the_strongest_peak() -> None:
    boxes = [Box(1, 1, 19, 19), Box(2, 2, 18, 18), Box(61, 1, 79, 19)]
    assert matches(boxes, [LEFT.box, RIGHT.box], HITS["center"]) == [(0, 0), (2, 1)]


def test_of_two_fitting_candidates_the_better_overlap_is_hit() -> None:
    wide, tight = Box(0, 0, 80, 80), Box(30, 30, 50, 50)
    assert matches([Box(32, 32, 48, 48)], [wide, tight], HITS["center"]) == [(0, 1)]


def test_hits_by_hand() -> None:
    small, shifted = Box(0, 0, 10, 20), Box(0, 0, 20, 10)
    far = Box(40, 40, 50, 50)
    clue = FakeClue(
        {
            "one": (peak(small, point=(5, 5)),),  # IoU 0.5, centre inside
            "two": (peak(shifted, point=(65, 5)), peak(far, 0.8)),  # one candidate of two
            "none": (),
        }
    )
    pictures = [
        LabelledScene(
            "a",
            lambda: IMAGE,
            (
                LabelledRequest("one", (LEFT,)),
                LabelledRequest("two", (LEFT, RIGHT)),
                LabelledRequest("none", (LEFT, RIGHT, LOW)),
            ),
        )
    ]
    result = measure(clue, pictures)
    every, clear, ambiguous = (result.groups[name] for name in ("all", "clear", "ambiguous"))
    assert (every.requests, every.candidates, every.peaks) == (3, 6, 3)
    assert every.hits == {"center": 2, "iou30": 2, "iou50": 2}
    assert every.precision("center") == pytest.approx(2 / 3)
    assert every.recall("center") == pytest.approx(2 / 6)
    assert every.f1("iou50") == pytest.approx(4 / 9)
    assert (every.pointed, every.counted) == (2, 2)  # "two" has two peaks, though one is wrong
    assert (clear.requests, clear.pointed, clear.f1("center")) == (1, 1, 1.0)
    assert ambiguous.requests == 2
    assert result.groups["3 candidates"].peaks == 0
    assert math.isnan(result.groups["3 candidates"].precision("center"))
    assert every.box_ious == [0.5, 0.5]
    # The map's own region is LEFT exactly, but for the corners' fraction of a patch.
    assert all(value > 0.9 for value in every.mask_ious)
    assert list(result.summary()) == ["all", "clear", "ambiguous", "2 candidates", "3 candidates"]
    assert result.summary()["3 candidates"]["center"] == {
        "precision": None, "recall": 0.0, "f1": 0.0,
    }  # fmt: skip
    assert [record["pointed"] for record in result.records] == [True, True, False]
    assert "| all | 3 | 6 | 3 |" in result.text(markdown=True)


def configured(*words: object) -> LocalisationOptions:
    return parsed(LocalisationOptions, *words)


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six drawn scenes as a test shard."""
    folder = tmp_path_factory.mktemp("scenes")
    shards.write_shard(shards.shard_path(folder, "test", 0, 0), random_scenes(6, 3, size=64))
    return folder


def test_simulated_truth_has_one_candidate_for_clear_requests_and_its_mask(scenes: Path) -> None:
    pictures = tabletop_truth(configured("--tabletop", scenes, "--scenes", 6))
    asked = [(p, a) for p in pictures for a in p.requests]
    counts = [len(a.candidates) for _, a in asked]
    assert 1 in counts
    assert max(counts) > 1
    for picture, request in asked:
        size = picture.load().shape[0]
        for one in request.candidates:
            ys, xs = np.nonzero(one.mask)
            scale = size / one.mask.shape[0]
            found = np.array([xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]) * scale
            assert np.abs(found - one.box.as_list()).max() <= 2 * scale


def test_photographs_leave_out_what_the_data_set_does_not_tell(tmp_path: Path) -> None:
    root = write_it2p(tmp_path)
    pictures, notes = [], []
    for split in ("train", "val", "test"):
        found, told = it2p_truth(configured("--it2p", root, "--split", split))
        pictures += found
        notes += told
    asked = [a for p in pictures for a in p.requests]
    assert asked
    assert all(a.candidates for a in asked)
    assert all("left out" in note for note in notes)


def test_the_command_prints_its_groups(
    scenes: Path, random_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "localisation", "--tabletop", str(scenes), "--scenes", "6"]
    words += ["--model", str(random_model), "--device", "cpu"]
    records = tmp_path / "records.jsonl"
    assert main([*words, "--json", "--records", str(records)]) == 0
    report = json.loads(capsys.readouterr().out)
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    assert report["all"]["requests"] == len(rows) > 6
    assert report["all"]["peaks"] == sum(len(row["peaks"]) for row in rows)
    assert main([*words[:5], "7", *words[6:]]) == 2
    assert "has 6 test scenes, 7 are wanted" in capsys.readouterr().err
