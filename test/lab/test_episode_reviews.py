"""Reviews of episodes: what a person says of them, and what is learned and exported then."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from recorded_episodes import ANSWERED, CANDIDATES, record_episodes

from clue_ros.cli import main
from clue_ros.dialogue.episode_export import Export, zip_stream
from clue_ros.dialogue.episodes import Episode, read_row
from clue_ros.dialogue.reviews import (
    CONFIRMED,
    CORRECTED,
    REJECTED,
    Review,
    ReviewError,
    read_review,
    remove_review,
    review_path,
    write_review,
)
from clue_ros.dialogue.types import Turn
from clue_ros.errors import ClueError
from clue_ros.lab.data.episodes import load_episodes
from clue_ros.lab.data.export_episodes import export_episodes
from clue_ros.lab.data.invig import InvigError, load_invig
from clue_ros.lab.data.rows import load_rows
from clue_ros.nodes.recorder import Recorder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "episodes"


def test_a_review_is_a_private_file_beside_an_episode_that_stays_as_it_was(folder: Path) -> None:
    (path,) = record_episodes(folder, {})
    before = path.read_bytes()
    assert read_review(path) is None
    review = Review(CORRECTED, (0.1, 0.2, 0.5, 0.75), "red <b>block</b>", 12.5)
    write_review(path, review)
    assert read_review(path) == review
    assert path.read_bytes() == before
    file = review_path(path)
    assert file.name == f"{path.stem}.review.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert not list(folder.glob(".*")), "no temporary file is left"
    remove_review(path)
    assert read_review(path) is None
    remove_review(path)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "Expecting value"),
        ("[]", "version None"),
        ('{"version": 2, "verdict": "confirmed", "stamp": 1}', "version 2"),
        ('{"version": 1, "verdict": "good", "stamp": 1}', "verdict 'good'"),
        ('{"version": 1, "verdict": "corrected", "stamp": 1}', "needs a box"),
        ('{"version": 1, "verdict": "corrected", "box": [0, 0, 2, 1], "stamp": 1}', "fractions"),
        ('{"version": 1, "verdict": "corrected", "box": [1, 0, 0, 1], "stamp": 1}', "an area"),
        ('{"version": 1, "verdict": "corrected", "box": [NaN, 0, 1, 1], "stamp": 1}', "fractions"),
        ('{"version": 1, "verdict": "confirmed", "stamp": NaN}', "stamp"),
        ('{"version": 1, "verdict": "confirmed", "label": 3, "stamp": 1}', "label"),
        ("[" * 5000, "nested"),
        (" " * 30_000, "over"),
    ],
)
def test_a_review_that_cannot_be_read_counts_as_none_with_a_note(
    folder: Path, content: str, reason: str
) -> None:
    path, _ = record_episodes(folder, {}, {})
    review_path(path).write_text(content)
    with pytest.raises(ReviewError, match=reason) as raised:
        read_review(path)
    assert "treated as not reviewed" in str(raised.value)
    found = load_episodes(folder, unreviewed=True)
    assert len(found.samples) == 2
    assert any(review_path(path).name in problem for problem in found.problems)


def test_training_reads_reviewed_episodes_alone(folder: Path) -> None:
    paths = record_episodes(folder, {}, {}, {}, {}, {"ended": False}, {"ended": False})
    with pytest.raises(InvigError, match=r"4 unreviewed, 2 ended with ANSWER_.*clue review"):
        load_episodes(folder)
    write_review(paths[0], Review(CONFIRMED))
    write_review(paths[1], Review(CORRECTED, (0.5, 0.5, 0.75, 1.0), "a cup"))
    write_review(paths[2], Review(REJECTED))
    write_review(paths[5], Review(CORRECTED, (0.0, 0.0, 0.25, 0.25)))
    found = load_episodes(folder)
    by_id = {sample.id: (sample.box, sample.category) for sample in found.samples}
    assert by_id == {
        "e0": ((0.1, 0.1, 0.5, 0.5), "the red block"),
        "e1": ((0.5, 0.5, 0.75, 1.0), "a cup"),
        "e5": ((0.0, 0.0, 0.25, 0.25), ""),
    }
    (problem,) = found.problems
    assert "left out: 1 rejected, 1 unreviewed, 1 ended with ANSWER_TIMEOUT" in problem
    with_all = load_episodes(folder, unreviewed=True)
    assert {sample.id for sample in with_all.samples} == {"e0", "e1", "e3", "e5"}


def test_reviews_do_not_disturb_who_reads_the_folder_as_invig(folder: Path) -> None:
    (path,) = record_episodes(folder, {})
    write_review(path, Review(CONFIRMED))
    found = load_invig(folder)
    assert (len(found.samples), found.problems) == (1, ())


def test_a_review_is_removed_with_its_episode_and_counts_for_the_limit(folder: Path) -> None:
    paths = record_episodes(folder, {}, {}, {})
    for path in paths:
        review_path(path).write_text("x" * 15_000)
    orphan = folder / "episode-000099-gone.review.json"
    orphan.write_text("{}")
    kept = folder / "notes.review.json"
    kept.write_text("mine")
    sizes = sum(file.stat().st_size for file in folder.glob("episode-00000*"))
    recorder = Recorder(folder, sizes + 1000, pytest.fail)
    recorder.save(Episode("new", np.zeros((60, 80, 3), np.uint8), ((Turn("user", "go"), 1.0),)))
    assert recorder.flush(30)
    assert all(path.exists() for path in paths), "there was room"
    assert not orphan.exists()
    recorder.close()
    recorder = Recorder(folder, sizes - 1000, pytest.fail)
    recorder.save(Episode("next", np.zeros((60, 80, 3), np.uint8), ((Turn("user", "go"), 1.0),)))
    assert recorder.flush(30)
    recorder.close()
    assert [path.exists() for path in paths] == [False, True, True]
    assert [review_path(path).exists() for path in paths] == [False, True, True]
    assert kept.read_text() == "mine"


# --- export


def test_the_invig_layout_reads_back_with_reviewed_boxes_and_the_same_pictures(
    folder: Path, tmp_path: Path
) -> None:
    paths = record_episodes(folder, {}, {}, {}, {})
    write_review(paths[0], Review(CONFIRMED))
    write_review(paths[1], Review(CORRECTED, (0.5, 0.5, 0.75, 1.0)))
    write_review(paths[2], Review(REJECTED))
    out = tmp_path / "out"
    assert main(["data", "episodes", str(folder), "--out", str(out)]) == 0
    back = load_invig(out)
    assert back.problems == ()
    direct = load_episodes(folder).samples
    assert [(s.id, s.box, s.request, s.exchanges) for s in back.samples] == [
        (s.id, s.box, s.request, s.exchanges) for s in direct
    ]
    for one, other in zip(back.samples, direct, strict=True):
        np.testing.assert_array_equal(one.load(), other.load())
    assert {p.stat().st_mode & 0o777 for p in out.rglob("*") if p.is_file()} == {0o600}
    left_out = (out / "left_out.txt").read_text()
    assert f"{paths[2].stem}: rejected\n{paths[3].stem}: unreviewed" in left_out


def test_a_zip_stream_holds_the_same_files(folder: Path) -> None:
    paths = record_episodes(folder, {}, {})
    for path in paths:
        write_review(path, Review(CONFIRMED))
    chunks = list(zip_stream(Export(folder, "invig")))
    assert len(chunks) > 3, "it comes in pieces"
    with zipfile.ZipFile(io.BytesIO(b"".join(chunks))) as archive:
        assert archive.testzip() is None
        names = [f"images/{path.stem}.png" for path in paths]
        assert archive.namelist() == [*names, "episodes.json"]
        assert archive.read(names[0]) == paths[0].with_suffix(".png").read_bytes()


REQUESTS: list[tuple[dict[str, Any], Review, bool | str]] = [
    ({"texts": ("the cup",)}, Review(CONFIRMED), False),
    ({"texts": ("the cup",)}, Review(CORRECTED, (0.1, 0.1, 0.45, 0.5)), False),
    ({"texts": ("the cup",)}, Review(CORRECTED, (0.6, 0.6, 0.9, 0.9)), "another object"),
    ({}, Review(CONFIRMED), True),
    ({}, Review(CORRECTED, (0.6, 0.6, 0.9, 0.9)), True),
    ({"texts": ("the mug", "which mug?", "the left one")}, Review(CONFIRMED), True),
    ({"texts": ("the mug", "the red one?", "yes")}, Review(CONFIRMED), "chose nothing"),
    ({"candidates": CANDIDATES[:1]}, Review(CONFIRMED), "two candidates"),
    (
        {"texts": ("the red mug", "the red one or the blue one?", "the red one")},
        Review(CONFIRMED),
        "repeats the request",
    ),
    (
        {"texts": ("the mug", "which mug?", "give me the apple")},
        Review(CONFIRMED),
        "chose nothing",
    ),
    ({"texts": ("the mug", "which mug?"), "ended": False}, Review(REJECTED), "rejected"),
    (
        {"texts": ("the mug", "which mug?"), "ended": False},
        Review(CORRECTED, (0.6, 0.6, 0.9, 0.9)),
        "nobody answered",
    ),
]


@pytest.mark.parametrize(("given", "review", "wanted"), REQUESTS)
def test_a_request_is_clear_or_ambiguous_by_what_the_person_did(
    folder: Path, tmp_path: Path, given: dict[str, Any], review: Review, wanted: bool | str
) -> None:
    (path,) = record_episodes(folder, given)
    write_review(path, review)
    export = Export(folder, "detector")
    files = dict(export)
    if isinstance(wanted, str):
        assert export.count == 0
        assert wanted in export.left_out[0]
        return
    assert export.left_out == []
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    read = load_rows(tmp_path / "rows.jsonl")
    assert read.problems == ()
    ((sentence,),) = [image.sentences for image in read.images]
    assert sentence.text == given.get("texts", ANSWERED)[0]
    assert sentence.ambiguous is wanted
    assert len(sentence.boxes) == (0 if wanted else 1)
    if review.verdict == CONFIRMED and not wanted:
        assert sentence.boxes[0].as_list() == pytest.approx([8, 6, 40, 30])


def test_an_export_says_what_is_wrong(folder: Path, tmp_path: Path) -> None:
    def refuses(source: Path, out: Path, layout: str) -> str:
        with pytest.raises(ClueError) as raised:
            export_episodes(source, out, layout)
        return str(raised.value)

    assert "no episodes there" in refuses(tmp_path / "nowhere", tmp_path / "out", "invig")
    record_episodes(folder, {})
    assert "clue review" in refuses(folder, tmp_path / "out", "invig")
    assert "another one" in refuses(folder, folder / ".." / folder.name, "invig")
    assert "unknown layout" in refuses(folder, tmp_path / "out", "coco")


def test_links_are_not_exported(folder: Path, tmp_path: Path) -> None:
    (path,) = record_episodes(folder, {})
    write_review(path, Review(CONFIRMED))
    picture = path.with_suffix(".png")
    secret = tmp_path / "secret.png"
    Image.fromarray(np.zeros((60, 80, 3), np.uint8)).save(secret)
    picture.unlink()
    picture.symlink_to(secret)
    export = Export(folder, "invig")
    assert [name for name, _ in export] == ["left_out.txt", "episodes.json"]
    assert "cannot be read" in export.left_out[0]


@pytest.mark.parametrize(
    "content",
    [
        "[{",
        "[]",
        "[1, 2]",
        '[{"ref_list": [], "image_info": {}, "clue": {}}]',
        '[{"ref_list": [{}], "image_info": {"width": 0, "height": 1}, "clue": {}}]',
        '[{"ref_list": [{}], "image_info": {"width": 1e999, "height": 1}, "clue": {}}]',
        '[{"ref_list": [{}], "image_info": {"width": NaN, "height": 1}, "clue": {}}]',
        "[" * 5000,
    ],
)
def test_a_file_that_is_no_episode_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "episode-000001-a.json"
    path.write_text(content)
    with pytest.raises(ClueError, match=r"episode-000001-a\.json"):
        read_row(path)


def test_the_rows_of_an_export_are_json_lines(folder: Path, tmp_path: Path) -> None:
    (path,) = record_episodes(folder, {"texts": ("la tasse «été»",)})
    write_review(path, Review(CONFIRMED))
    argv = ["data", "episodes", str(folder), "--out", str(tmp_path), "--layout", "detector"]
    assert main(argv) == 0
    (line,) = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert json.loads(line)["sentence"] == "la tasse «été»"


def test_an_episode_without_its_replies_is_the_same_otherwise(folder: Path) -> None:
    words = ('the "replies": [ of the cup', "which?", 'the \\"replies\\": [1] one')
    (path,) = record_episodes(folder, {"texts": words})
    whole, short = read_row(path), read_row(path, replies=False)
    assert len(whole["clue"].pop("replies")) == 2
    assert short["clue"].pop("replies") == []
    assert short == whole
    path.write_text(json.dumps([whole], indent=2))  # a person's editor wrote it anew
    assert read_row(path, replies=False) == read_row(path)
