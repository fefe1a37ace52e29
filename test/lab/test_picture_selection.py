"""`clue data select`: rules and the Bayesian filter on OpenImages' lists, worked by hand."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from clue_ros.cli import main
from clue_ros.errors import ClueError
from clue_ros.lab.data.openimages import OpenImagesBox, OpenImagesPicture, read_pictures
from clue_ros.lab.data.picture_selection import (
    BayesianFilter,
    SelectionOptions,
    ambiguity,
    rejection,
    select_pictures,
)

CODES = {"/m/1": "Cup", "/m/2": "Chair", "/m/3": "Spider", "/m/4": "Human ear", "/m/5": "Plate"}
HEADER = "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf"
HEADER += ",IsDepiction,IsInside\n"
# Image: classes of its boxes.
IMAGES = {
    "a1": "1 1 5", "a2": "1 1", "a3": "1 1 5", "b1": "2 2", "b2": "2 2 1", "c1": "1 1 5 4",
    "c2": "2 2 5", "c3": "1 1 2", "d1": "3 1 1", "d2": "1 2", "d3": "1",
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> SelectionOptions:
    """OpenImages' lists of the images above, and two ids files."""
    lines = [
        f"{name},x,/m/{code},1,{0.1 * n:.1f},{0.1 * n + 0.2:.1f},0.2,0.5,0,0,0,0,0\n"
        for name, codes in IMAGES.items()
        for n, code in enumerate(codes.split())
    ]
    (tmp_path / "boxes.csv").write_text(HEADER + "".join(lines))
    (tmp_path / "classes.csv").write_text("".join(f"{k},{v}\n" for k, v in CODES.items()))
    (tmp_path / "images.csv").write_text(
        "ImageID,Subset,OriginalSize,Rotation\n"
        + "".join(f"{n},train,{1000 + 100 * i},0.0\n" for i, n in enumerate(IMAGES) if n != "a2")
    )
    (tmp_path / "good.txt").write_text("a1\na2\na3\n")
    (tmp_path / "bad.txt").write_text("b1\nb2\n")
    return SelectionOptions(
        boxes=tmp_path / "boxes.csv", classes=tmp_path / "classes.csv", out=tmp_path / "out.csv"
    )


def test_the_bayesian_filter_worked_by_hand() -> None:
    """Three positive images, all with a cup, two with a plate; two negative ones."""
    bayes = BayesianFilter({"Cup": 3, "Plate": 2}, 3, {"Chair": 2, "Cup": 1}, 2)
    # p(+) = 3/5; p(cup | +) = 4/5, p(plate | +) = 3/5, p(chair | +) = 1/5
    # p(-) = 2/5; p(cup | -) = 2/4, p(plate | -) = 1/4, p(chair | -) = 3/4
    cup_plate = (3 / 5 * 4 / 5 * 3 / 5, 2 / 5 * 2 / 4 * 1 / 4)
    chair_plate = (3 / 5 * 1 / 5 * 3 / 5, 2 / 5 * 3 / 4 * 1 / 4)
    for classes, (good, bad) in (
        (("Cup", "Plate"), cup_plate),
        (("Chair", "Plate", "Chair"), chair_plate),
        ((), (3 / 5, 2 / 5)),
        (("Lamp",), (3 / 5 * 1 / 5, 2 / 5 * 1 / 4)),  # neither set has one
    ):
        assert bayes.probability(classes) == pytest.approx(good / (good + bad))
        assert bayes.log_odds(classes) == pytest.approx(math.log(good / bad))
    assert BayesianFilter({}, 1, {"Cup": 10**9}, 10**9).probability(["Cup"]) < 1e-9


def test_rules_and_filter_on_the_files(files: SelectionOptions) -> None:
    folder = files.boxes.parent
    kept, rejected = select_pictures(files)
    assert [name for name, *_ in kept] == ["a1", "a2", "a3", "b1", "b2", "c1", "c2", "c3"]
    assert rejected == {"excluded class": 1, "not ambiguous": 1, "too few objects": 1}
    options = replace(files, positive=folder / "good.txt", negative=folder / "bad.txt")
    kept, rejected = select_pictures(options)
    # Cup and plate 0.852 (the ear does not count), cup alone 0.706, chair and plate 0.490,
    # cup and chair 0.390, chair alone 0.286.
    assert [name for name, *_ in kept] == ["a1", "a3", "c1", "a2"]
    assert [p for *_, p in kept] == pytest.approx([0.85207, 0.85207, 0.85207, 0.70588], abs=1e-5)
    assert rejected["Bayesian filter"] == 4
    kept, rejected = select_pictures(
        replace(files, images=folder / "images.csv", min_bytes=1300, max_objects=2)
    )
    assert [name for name, *_ in kept] == ["b1"]
    assert rejected["file too small"] == 2
    assert rejected["not in the list of images"] == 1
    assert rejected["too many objects"] == 4


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"area": 0.0001}, "not ambiguous"),
        ({"area": 0.95}, "not ambiguous"),
        ({"group": True}, "not ambiguous"),
        ({"label": "Spider"}, "excluded class"),
        ({"label": "Human ear"}, "not ambiguous"),
        ({}, None),
    ],
)
def test_a_box_that_does_not_count(
    files: SelectionOptions, change: dict[str, Any], reason: str | None
) -> None:
    cup, plate = OpenImagesBox("Cup", 0.1, False, False), OpenImagesBox("Plate", 0.1, False, False)
    picture = OpenImagesPicture("x", (cup, replace(cup, **change), plate))
    assert ambiguity(picture.boxes) == (1 if "label" in change else 2)
    assert rejection(picture, files) == reason


def test_the_command_writes_ids_and_counts(
    files: SelectionOptions, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = files.boxes.parent
    words = ["data", "select", "--boxes", str(files.boxes), "--classes", str(files.classes)]
    assert main([*words, "--out", str(folder / "ids.txt"), "--min-ambiguity", "1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["kept"] == len((folder / "ids.txt").read_text().split()) == 9
    more = ["--positive", str(folder / "good.txt"), "--negative", str(folder / "bad.txt")]
    assert main([*words, *more, "--out", str(files.out)]) == 0
    with files.out.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {"ImageID": "a1", "ambiguity": "2", "probability": "0.852071"}
    assert main([*words, "--out", str(files.out), "--positive", str(folder / "good.txt")]) == 2
    assert main([*words, "--out", str(files.out), "--exclude", "Unicorn"]) == 2
    assert "no class 'Unicorn'" in capsys.readouterr().err


def test_files_that_are_out_of_order_or_broken_are_named(files: SelectionOptions) -> None:
    lines = files.boxes.read_text().splitlines(keepends=True)
    for content, reason in (
        ([lines[0], lines[-1], *lines[1:-1]], r"boxes.csv:3: ImageID 'a1' after 'd3'"),
        ([*lines, "e,x,/m/9,1,0,1,0,1,0,0,0,0,0\n"], "class '/m/9' is not among"),
        ([*lines, "e,x,/m/1,1,0,two,0,1,0,0,0,0,0\n"], "no number"),
        ([*lines, "e,x,/m/1,1,0,2,0,1,0,0,0,0,0\n"], "want fractions"),
        (lines[1:], "no column 'ImageID'"),
    ):
        files.boxes.write_text("".join(content))
        with pytest.raises(ClueError, match=reason):
            list(read_pictures(files.boxes, CODES))
