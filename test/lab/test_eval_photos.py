"""`clue eval photos`: the folder's checks, and the figures against a model that is a script."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from tiny_model import WORDS, write_random_model

from clue_ros.cli import main
from clue_ros.dialogue.types import AmbiguityEstimate, Box, Dialogue, Grounding, NotFound, Question
from clue_ros.errors import ClueError
from clue_ros.lab.data.photographs import TRUTHS, load_photographs
from clue_ros.lab.evaluation.photos import (
    as_text,
    default_folder,
    measure,
    reply_to_photographs,
    summary,
    trust,
)
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.metrics import auroc

WIDTH, HEIGHT = 80, 60
LEFT, RIGHT = [5, 5, 25, 45], [50, 10, 75, 50]
REQUESTS: list[dict[str, Any]] = [
    {"text": "the left cup", "truth": "clear", "boxes": [LEFT]},
    {"text": "the right cup", "truth": "clear", "boxes": [RIGHT]},
    {"text": "the red cup", "truth": "clear", "boxes": [RIGHT]},
    {"text": "the cup", "truth": "ambiguous", "boxes": [LEFT, RIGHT]},
    {"text": "a cup please", "truth": "ambiguous", "boxes": [LEFT, RIGHT]},
    {"text": "the banana", "truth": "absent"},
    {"text": "the hammer", "truth": "absent", "boxes": []},
    {"text": "the spoon", "truth": "absent"},
]


def write_photos(folder: Path, requests: list[Any] | None = None, **changes: Any) -> Path:
    """A folder with one grey picture. changes: other values of the index's only photo."""
    folder.mkdir(exist_ok=True)
    Image.new("RGB", (WIDTH, HEIGHT), (90, 90, 90)).save(folder / "cups.png")
    photo = {"file": "cups.png", "requests": REQUESTS if requests is None else requests} | changes
    write_index(folder, {"format": "clue_photos", "version": 1, "photos": [photo]})
    return folder


def write_index(folder: Path, content: Any) -> None:
    (folder / "photos.json").write_text(json.dumps(content), encoding="utf-8")


class FakeClue:
    """Not a model: it asks what it was told to ask, and points at LEFT, as surely as told."""

    policy = "detector"
    asks = ("the cup", "the red cup", "the spoon")
    missing = ("the banana",)
    scores = (("the left cup", 0.9), ("the right cup", 0.6), ("a cup please", 1.0))

    def look(self, image: npt.NDArray[np.uint8]) -> tuple[int, ...]:
        """The picture's shape."""
        return image.shape

    def ambiguity(self, view: Any, expression: str | Dialogue) -> AmbiguityEstimate:
        """Unsure of what it asks about."""
        text = expression.request if isinstance(expression, Dialogue) else expression
        chance = 0.8 if text in self.asks + self.missing else 0.2
        return AmbiguityEstimate(chance, 0.5, np.zeros((4, 4), np.float32), (), 0.0)

    def reply(
        self, view: Any, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """What it was told."""
        assert view == (HEIGHT, WIDTH, 3)
        estimate = self.ambiguity(view, dialogue)
        if dialogue.request in self.missing and not force_grounding:
            return NotFound("i don't see a banana", (), (), estimate, "a banana")
        if dialogue.request in self.asks and not force_grounding:
            return Question("which one ?", (), (), estimate)
        score = dict(self.scores).get(dialogue.request, 0.3)
        return Grounding(Box(*LEFT), "it", score, estimate)


def test_the_photographs_of_clue_ros_are_small_licensed_and_in_words_it_knows() -> None:
    folder = default_folder()
    photographs = load_photographs(folder)
    assert 8 <= len(photographs) <= 15
    licences = (folder / "LICENSES.md").read_text(encoding="utf-8")
    known = set(vocabulary("rich"))
    for photograph in photographs:
        assert f"| `{photograph.path.name}` |" in licences
        assert photograph.path.stat().st_size <= 60_000
        with Image.open(photograph.path) as picture:
            assert (picture.format, max(picture.size) <= 480) == ("JPEG", True)
        assert 3 <= len(photograph.requests) <= 7
        assert {word for r in photograph.requests for word in r.text.split()} <= known
    pictures = {path.name for path in folder.glob("*.jpg")}
    assert pictures == {photograph.path.name for photograph in photographs}
    assert {r.truth for p in photographs for r in p.requests} == set(TRUTHS)


def test_each_reply_is_judged_by_the_truth(tmp_path: Path) -> None:
    judged = {
        j.text: j
        for j in reply_to_photographs(FakeClue(), load_photographs(write_photos(tmp_path)))
    }
    assert [j.text for j in judged.values() if j.right] == ["the left cup", "the cup", "the banana"]
    assert [j.did for j in judged.values()] == [
        "points", "points", "asks", "asks", "points", "not there", "points", "asks",
    ]  # fmt: skip
    wrong = [j.text for j in judged.values() if j.firm and not j.right]
    assert wrong == ["the right cup", "a cup please"]
    hammer = judged["the hammer"]  # pointed at without being there, but not firmly
    assert (hammer.hit, hammer.firm, hammer.score) == (False, False, 0.3)
    red = judged["the red cup"]
    assert (red.box, red.forced_box, red.forced_hit) == (None, LEFT, False)
    assert judged["the left cup"].forced_score == 0.9
    assert judged["the cup"].forced_box is None  # only clear requests are forced
    assert judged["the banana"].said == "i don't see a banana"


def test_the_figures_by_hand(tmp_path: Path) -> None:
    figures = summary(
        measure(reply_to_photographs(FakeClue(), load_photographs(write_photos(tmp_path))))
    )
    assert figures["all"] == {
        "n": 8, "right": 0.375, "points": 0.5, "points_firmly": 0.375, "firmly_wrong": 0.25,
        "firmly_one_of_several": 0.125, "asks": 0.375, "not_there": 0.125, "unsure": 0.5,
        "confirms": 0.0, "right_after_yes": 0.375, "unconfirmed": 0.375, "questions": 0.5,
    }  # fmt: skip
    assert figures["ambiguous"]["firmly_wrong"] == 0.5
    assert figures["absent"]["firmly_wrong"] == 0
    # Boxes at 0.9 and 1 are right, at 0.6 and 0.3 wrong; 1 and 0.9 share the last of ten bins.
    assert figures["score"] == {
        "n": 4, "so": 0.5, "mean_if_so": 0.95, "mean_if_not": 0.45,
        "ece": pytest.approx((2 * 0.05 + 0.6 + 0.3) / 4), "auroc": 1.0,
    }  # fmt: skip
    assert figures["forced_score"] == {
        "n": 3, "so": 0.3333, "mean_if_so": 0.9, "mean_if_not": 0.45,
        "ece": pytest.approx((0.1 + 0.6 + 0.3) / 3, abs=1e-4), "auroc": 1.0,
    }  # fmt: skip
    # 0.8 of one ambiguous and one clear request, 0.2 of one ambiguous and two clear ones.
    assert figures["ambiguity"]["n"] == 5
    assert figures["ambiguity"]["ece"] == pytest.approx(2 / 5 * 0.3 + 3 / 5 * (1 / 3 - 0.2), 1e-3)
    assert figures["ambiguity"]["auroc"] == pytest.approx((1 + 1 + 0.5 + 0.5 + 0.5 + 0) / 6, 1e-3)


def test_the_text_says_how_many_were_firm_and_wrong(tmp_path: Path) -> None:
    figures = measure(reply_to_photographs(FakeClue(), load_photographs(write_photos(tmp_path))))
    text = as_text(figures)
    assert "firm (score 0.5 or more) and wrong: 2 of 8, 0.250 (0.071 to 0.591)" in text
    assert "| clear, questions forbidden | 3 | 0.333 |" in as_text(figures, markdown=True)


def test_nothing_to_tell_apart_is_a_dash_and_null() -> None:
    assert summary({"score": trust([], [])})["score"] == {
        "n": 0, "so": None, "mean_if_so": None, "mean_if_not": None, "ece": None, "auroc": None,
    }  # fmt: skip
    one_sided = trust([0.2, 0.4], [False, False])
    assert math.isnan(one_sided["auroc"])
    assert one_sided["ece"] == pytest.approx(0.3)


def test_auroc_by_hand() -> None:
    assert auroc([0.9, 0.8, 0.1], [True, True, False]) == 1
    assert auroc([0.1, 0.2, 0.9], [True, True, False]) == 0
    assert auroc([0.5, 0.5], [True, False]) == 0.5
    assert auroc([0.9, 0.3, 0.6, 0.1], [True, True, False, False]) == 0.75
    assert math.isnan(auroc([0.5], [True]))
    with pytest.raises(ValueError, match="zip"):
        auroc([0.5], [])


BOX = {"text": "the cup", "truth": "clear"}
BAD_REQUESTS: list[tuple[Any, str]] = [
    (BOX, "boxes given: 0, clear wants exactly one"),
    (BOX | {"boxes": [LEFT, RIGHT]}, "boxes given: 2, clear wants exactly one"),
    (BOX | {"truth": "ambiguous", "boxes": [LEFT]}, "boxes given: 1, ambiguous wants two or more"),
    (BOX | {"truth": "absent", "boxes": [LEFT]}, "boxes given: 1, absent wants none"),
    (BOX | {"truth": "maybe"}, "truth 'maybe', want clear, ambiguous, absent"),
    (BOX | {"truth": []}, "want clear, ambiguous, absent"),
    (BOX | {"boxes": [[5, 5, 81, 45]]}, "is outside the picture, 80x60 px"),
    (BOX | {"boxes": [[-1, 5, 25, 45]]}, "is outside the picture, 80x60 px"),
    (BOX | {"boxes": [[25, 5, 5, 45]]}, "has no area"),
    (BOX | {"boxes": [[math.nan, 5, 25, 45]]}, "has no area"),
    (BOX | {"boxes": [[1, 2, 3]]}, "want [x_min, y_min, x_max, y_max]"),
    (BOX | {"boxes": [[1, 2, 3, "4"]]}, "want [x_min, y_min, x_max, y_max]"),
    (BOX | {"boxes": [5]}, "want [x_min, y_min, x_max, y_max]"),
    (BOX | {"boxes": 5}, "boxes must be a list"),
    (BOX | {"box": [LEFT]}, 'unknown field "box"'),
    (BOX | {"text": " "}, "the text is empty"),
    (BOX | {"text": 5}, "the text must be a string"),
    ({"text": "the cup"}, '"truth" is missing'),
    ("the cup", "want an object, not str"),
]


@pytest.mark.parametrize(("request_", "reason"), BAD_REQUESTS)
def test_a_bad_request_is_one_line_that_says_where(
    tmp_path: Path, request_: Any, reason: str
) -> None:
    with pytest.raises(ClueError) as error:
        load_photographs(write_photos(tmp_path, [REQUESTS[0], request_]))
    assert f"{tmp_path / 'photos.json'}: photo 1 (cups.png), request 2" in str(error.value)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"file": "no.png"}, "has no such file"),
        ({"file": "."}, "has no such file"),
        ({"file": "../cups.png"}, "is outside"),
        ({"file": "/etc/passwd"}, "is outside"),
        ({"file": "a\0b"}, "no name of a file"),
        ({"file": 5}, "must be text"),
        ({"requests": {}}, "requests a list"),
        ({"requests": []}, "there are no requests about it"),
        ({"licence": "CC0"}, 'unknown field "licence"'),
    ],
)
def test_a_bad_photograph_is_one_line(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    folder = write_photos(tmp_path / "photos", **changes)
    (tmp_path / "cups.png").write_bytes((folder / "cups.png").read_bytes())
    with pytest.raises(ClueError, match=reason):
        load_photographs(folder)


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    folder = write_photos(tmp_path / "photos", file="link.png")
    os.rename(folder / "cups.png", tmp_path / "cups.png")
    (folder / "link.png").symlink_to(tmp_path / "cups.png")
    with pytest.raises(ClueError, match="is outside"):
        load_photographs(folder)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ([], "want an object"),
        ({"photos": []}, "want an object"),
        ({"format": "clue_photos", "version": 2, "photos": []}, "version 2, want 1"),
        ({"format": "clue_photos", "version": 1, "photos": []}, "list that is not empty"),
        ({"format": "clue_photos", "version": 1, "photos": ["cups.png"]}, "photo 1: want an obj"),
    ],
)
def test_an_index_of_another_shape_is_one_line(tmp_path: Path, content: Any, reason: str) -> None:
    write_index(tmp_path, content)
    with pytest.raises(ClueError, match=reason):
        load_photographs(tmp_path)


def test_the_command_prints_json_markdown_and_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_photos(tmp_path / "photos")
    # it has the requests' nouns: it points at none that it lacks
    model = write_random_model(tmp_path / "m", words=[*WORDS, "cup", "banana", "hammer", "spoon"])
    words = ["eval", "photos", "--data", str(folder), "--model", str(model)]
    words += ["--device", "cpu", "--threshold", "1"]  # no probability is 1: it never asks
    records = tmp_path / "records.jsonl"
    assert main([*words, "--json", "--records", str(records)]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures.pop("made_by")["model"] == str(model)
    assert list(figures) == ["all", *TRUTHS, "score", "forced_score", "ambiguity", "questions"]
    assert (figures["all"]["n"], figures["all"]["points"], figures["all"]["unsure"]) == (8, 1, 0)
    assert (figures["score"]["n"], figures["forced_score"]["n"]) == (8, 3)
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    assert [row["text"] for row in rows] == [request["text"] for request in REQUESTS]
    assert (
        sum(row["firm"] and not row["right"] for row in rows) == 8 * figures["all"]["firmly_wrong"]
    )
    assert main([*words, "--markdown"]) == 0
    assert capsys.readouterr().out.startswith("| requests | n | right | points |")


def test_the_command_goes_on_without_a_broken_picture(
    random_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_photos(tmp_path / "photos")
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 255, (HEIGHT, WIDTH, 3), np.uint8))
    noise.save(folder / "cut.jpg")
    whole = (folder / "cut.jpg").read_bytes()
    (folder / "cut.jpg").write_bytes(whole[: len(whole) // 2])  # its header is still there
    index = json.loads((folder / "photos.json").read_text())
    index["photos"].append({"file": "cut.jpg", "requests": REQUESTS[:1]})
    write_index(folder, index)
    words = ["eval", "photos", "--data", str(folder), "--model", str(random_model), "--json"]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["all"]["n"] == 8
    assert "note: left out, " in printed.err
    assert "cut.jpg" in printed.err
    index["photos"] = index["photos"][1:]
    write_index(folder, index)
    assert main(words) == 2
    assert "none of 1 photographs can be read" in capsys.readouterr().err


def test_a_folder_without_an_index_is_refused_before_the_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval", "photos", "--data", str(tmp_path), "--model", "/no/such/model"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "has no photos.json" in line
    (tmp_path / "photos.json").write_text("{")
    assert main(["eval", "photos", "--data", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is not JSON" in line
