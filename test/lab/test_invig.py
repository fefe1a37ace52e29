"""The InViG reader on the published layouts, on rows that are wrong, and the files it writes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clue_ros.dialogue.types import Box, Dialogue
from clue_ros.errors import BadImageError
from clue_ros.lab.data.invig import InvigError, InvigSample, load_invig, reveal_pairs, write_invig

FIXTURES = Path(__file__).parents[1] / "data"
OLD, NEW = FIXTURES / "invig_old", FIXTURES / "invig_new"

Rows = list[dict[str, Any]]


@pytest.fixture
def old_rows() -> Rows:
    """The rows of the older fixture."""
    return [json.loads(line) for line in (OLD / "test.jsonl").read_text("utf-8").splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows beside the fixture's pictures; gives the folder."""

    def write(rows: Any, name: str = "test.json") -> Path:
        shutil.copytree(OLD / "images", tmp_path / "images", dirs_exist_ok=True)
        (tmp_path / name).write_text(json.dumps(rows), encoding="utf-8")
        return tmp_path

    return write


# --- the two layouts ---


def test_both_layouts_give_the_same_dialogues_boxes_and_pictures() -> None:
    old, new = load_invig(OLD), load_invig(NEW)
    assert old.problems == new.problems == ()
    assert len(old.samples) == len(new.samples) == 5
    by_request = {sample.request: sample for sample in new.samples}
    for sample in old.samples:
        same = by_request[sample.request]
        assert (sample.exchanges, sample.image_id) == (same.exchanges, same.image_id)
        assert sample.box == pytest.approx(same.box, abs=1e-4)
        np.testing.assert_array_equal(sample.load(), same.load())


def test_a_sample_of_the_newer_layout() -> None:
    sample = load_invig(NEW, split="train").samples[0]
    assert (sample.id, sample.image_id, sample.category) == ("000", "table-04", "Cylinder")
    assert sample.request == "Please hand me the yellow one."
    assert sample.exchanges == (("Do you mean the ball or the cylinder?", "The cylinder."),)
    assert sample.box == (0.3, 0.55833, 0.46875, 0.77083)
    assert sample.load().shape == (240, 320, 3)
    assert sample.load().dtype == np.uint8


def test_a_sample_of_the_older_layout_has_an_id_of_its_row() -> None:
    data = load_invig(OLD)
    assert [sample.id for sample in data.samples][:2] == ["table-04#1", "table-04#2"]
    assert data.samples[1].exchanges == ()
    assert data.samples[0].category == ""


@pytest.mark.parametrize("source", [OLD, NEW])
def test_the_chinese_dialogues(source: Path) -> None:
    sample = load_invig(source, split="test", language="cn").samples[-1]
    assert sample.request == "能把蓝色的东西递给我吗?".replace("?", "？")
    assert len(sample.exchanges) == 2


def test_splits_by_file_name_in_any_spelling() -> None:
    assert len(load_invig(NEW, split="test").samples) == 3
    with pytest.raises(InvigError, match="no split validation in it; it has test, train"):
        load_invig(NEW, split="val")
    with pytest.raises(InvigError, match="unknown split 'training'"):
        load_invig(NEW, split="training")


def test_splits_inside_one_file_and_a_file_that_names_none(
    folder: Callable[..., Path], old_rows: Rows
) -> None:
    path = folder({"train": old_rows[:3], "val": old_rows[3:]}, "all.json") / "all.json"
    assert len(load_invig(path, split="validation").samples) == 2
    assert len(load_invig(path).samples) == 5
    path.write_text(json.dumps(old_rows), encoding="utf-8")
    assert len(load_invig(path, split="test").samples) == 5


def test_the_authors_json_lines(tmp_path: Path) -> None:
    shutil.copytree(OLD / "images", tmp_path / "invig21k_imgs")
    row = {
        "filename": "table-04.jpg", "width": 320, "height": 240, "id": 7, "label": "Cylinder",
        "ann": {"ref_exp": "the yellow one", "questions": ["ball or cylinder?"],
                "answers": ["cylinder"], "ref_bboxes": [[96, 134, 150, 185]], "bboxes": []},
    }  # fmt: skip
    (tmp_path / "invig21k_test_anns.jsonl").write_text(json.dumps(row) + "\n")
    sample = load_invig(tmp_path, split="test").samples[0]
    assert (sample.id, sample.category) == ("7", "Cylinder")
    assert (sample.request, sample.exchanges) == (
        "the yellow one",
        (("ball or cylinder?", "cylinder"),),
    )
    assert sample.box == pytest.approx((96 / 320, 134 / 240, 150 / 320, 185 / 240))
    assert sample.others == ()


def test_a_dialogue_may_have_several_targets(tmp_path: Path) -> None:
    shutil.copytree(OLD / "images", tmp_path / "images")
    boxes = [[96, 134, 150, 185], [16, 24, 160, 120], [96, 134, 150, 185]]
    row: dict[str, Any] = {
        "filename": "table-04.jpg", "width": 320, "height": 240, "id": 7,
        "ann": {"ref_exp": "the yellow ones", "questions": [], "answers": [], "ref_bboxes": boxes},
    }  # fmt: skip
    path = tmp_path / "test.jsonl"
    path.write_text(json.dumps(row) + "\n")
    (sample,) = load_invig(tmp_path, split="test").samples
    assert sample.box == pytest.approx((96 / 320, 134 / 240, 150 / 320, 185 / 240))
    (other,) = sample.others
    assert other == pytest.approx((0.05, 0.1, 0.5, 0.5))
    assert sample.iou(Box(0.05, 0.1, 0.5, 0.5)) == pytest.approx(1)
    last = [target for _, target in reveal_pairs(sample)]
    assert last == ["<loc0571><loc0307><loc0789><loc0480>", "<loc0102><loc0051><loc0512><loc0512>"]
    write_invig([sample], tmp_path / "out", split="test")
    (again,) = load_invig(tmp_path / "out").samples
    assert (again.box, again.others) == (sample.box, sample.others)
    row["ann"]["ref_bboxes"] = [boxes[0], [0, 0, 999, 999]]
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(InvigError, match="lies outside the 320x240 image"):
        load_invig(tmp_path, split="test")
    row["ann"]["ref_bboxes"] = []
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(InvigError, match=r"ref_bboxes is \[\], want a list of boxes"):
        load_invig(tmp_path, split="test")


def test_ref_list_as_columns_of_lists(folder: Callable[..., Path]) -> None:
    rows = json.loads((NEW / "train.json").read_text("utf-8"))
    refs = rows[0]["ref_list"]
    rows[0]["ref_list"] = {name: [ref[name] for ref in refs] for name in refs[0]}
    assert [s.id for s in load_invig(folder(rows)).samples] == ["000", "001"]


# --- boxes: as the layout says, checked against the image ---


@pytest.mark.parametrize(
    ("box", "reason"),
    [
        ([0.3, 0.5, 0.4, 0.7], r"\[0.3, 0.5, 0.4, 0.7\] in test.json:1 is smaller than a pixel"),
        ([200, 134, 54, 51], r"\[200, 134, 54, 51\] in test.json:1 encloses no area"),
        ([300, 20, 400, 80], r"in test.json:1 lies outside the 320x240 image: want x_min, y_min"),
    ],
    ids=["fractions", "width and height", "outside"],
)
def test_a_box_that_is_not_as_the_older_layout_says_is_refused(
    folder: Callable[..., Path], old_rows: Rows, box: list[float], reason: str
) -> None:
    old_rows[1]["bbox"] = box
    data = load_invig(folder(old_rows))
    assert len(data.samples) == 4
    assert re.match(f"table-04#1: box .*{reason}.* in pixels", data.problems[0])


@pytest.mark.parametrize(
    ("box", "reason"),
    [
        ([96, 134, 150, 185], "lies outside the 320x240 image"),
        ([0.5, 0.5, 0.2, 0.2], "encloses no area"),
    ],
    ids=["pixels", "width and height"],
)
def test_a_box_that_is_not_as_the_newer_layout_says_is_refused(
    folder: Callable[..., Path], box: list[float], reason: str
) -> None:
    rows = json.loads((NEW / "train.json").read_text("utf-8"))
    rows[0]["ref_list"][0]["bbox"] = box
    data = load_invig(folder(rows))
    assert [sample.id for sample in data.samples] == ["001"]
    assert re.match(f"000: box .* in test.json:0 {reason}.* in fractions", data.problems[0])


def test_pixels_in_a_file_of_fractions_leave_nothing(
    folder: Callable[..., Path],
) -> None:
    rows = json.loads((NEW / "test.json").read_text("utf-8"))
    for ref in (ref for row in rows for ref in row["ref_list"]):
        ref["bbox"] = [96, 134, 150, 185]
    with pytest.raises(InvigError, match=r"no usable row .* lies outside the .* image"):
        load_invig(folder(rows))


def test_a_box_a_little_outside_is_clipped_and_far_outside_is_bad(
    folder: Callable[..., Path], old_rows: Rows
) -> None:
    old_rows[0]["bbox"] = [-3, 134, 322, 242]
    old_rows[1]["bbox"] = [200, 70, 400, 109]
    data = load_invig(folder(old_rows))
    assert data.samples[0].box == pytest.approx((0.0, 134 / 240, 1.0, 1.0))
    (problem,) = data.problems
    assert problem.startswith("table-04#1: box [200, 70, 400, 109] in test.json:1 lies outside the")


def test_sizes_the_file_gives_are_checked_against_the_picture(folder: Callable[..., Path]) -> None:
    rows = json.loads((NEW / "test.json").read_text("utf-8"))
    rows[0]["image_info"] |= {"width": 448, "height": 448}  # the same picture, published larger
    rows[1]["image_info"] |= {"width": 240, "height": 320}
    rows.append(rows[0] | {"image_info": rows[0]["image_info"] | {"width": 10**400}})
    data = load_invig(folder(rows))
    assert len(data.samples) == 2
    assert "004: the file says 240x320 pixels, the picture has 320x240" in data.problems
    assert {p[:20] for p in data.problems} >= {"002: image size 1000", "003: image size 1000"}
    assert len(data.problems) == 3


# --- rows that are wrong ---


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"image": None, "image_id": None}, "no image"),
        ({"image": "gone.jpg"}, "no image 'gone.jpg'"),
        ({"image": "../test.json"}, "leaves the data's folder"),
        ({"image": "/etc/hostname"}, "leaves the data's folder"),
        ({"image": "a\0b"}, "is no file name"),
        ({"image": "x" * 400}, "is no file name"),
        ({"image": "\ud800"}, "is no file name"),
        ({"image": 5}, "image is of type int"),
        ({"image": "notes.txt"}, "not a picture that can be read"),
        ({"bbox": None}, "bbox is missing"),
        ({"bbox": [1, 2, 3]}, r"bbox \[1, 2, 3\], want four numbers"),
        ({"bbox": [1, 2, "3", 4]}, "holds something that is no number"),
        ({"bbox": [1, 2, float("nan"), 4]}, "is not finite"),
        ({"bbox": [1, 2, 10**400, 4]}, "is not finite"),
        ({"bbox": [90, 20, 60, 80]}, "encloses no area"),
        ({"dialog": None}, "no dialog"),
        ({"dialog": []}, "dialog is empty"),
        ({"dialog": [["", ""]]}, "dialog is empty"),
        ({"dialog": {"a": 1}}, "dialog is of type dict, want a list"),
        ({"dialog": "pick it up"}, r"dialog is of type str, want a list of \[text, text\] pairs"),
        ({"dialog": ["", "pick it up"]}, r"dialog\[0\] is '', want a \[text, text\] pair"),
        ({"dialog": [["", "a"], ["b", "c", "d"]]}, r"dialog\[1\] is .* pair"),
        ({"dialog": [["", "it"], ["", "left"]]}, "turn 2 is empty"),
        ({"dialog": [["", "it"], ["which?", {}]]}, "holds type dict, want text"),
        ({"dialog": [["which?", "it"]]}, "a question comes before any request"),
        ({"dialog": [["", "!!"]]}, "no letter or digit"),
        ({"dialog": [["", "a" * 1001]]}, "1001 characters"),
    ],
)
def test_a_bad_row_is_named_with_its_reason_and_the_others_are_used(
    folder: Callable[..., Path], old_rows: Rows, change: dict[str, Any], reason: str
) -> None:
    old_rows[1] |= change
    root = folder(old_rows)
    (root / "images" / "notes.txt").write_text("no picture")
    data = load_invig(root)
    assert len(data.samples) == 4
    (problem,) = data.problems
    assert problem.startswith(
        "test.json:1: " if change.get("image_id", 1) is None else "table-04#1: "
    )
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(problem)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (5, "test.json:5: the row is of type int"),
        ({"text": 1}, r"test.json:5: unknown kind of row \(it has the fields text\)"),
        ({"ref_list": []}, "test.json:5: image_info is missing"),
        ({"ref_list": [], "image_info": {"id": "a"}}, "a: ref_list is empty"),
        ({"ref_list": [3], "image_info": {"id": "a"}}, "a: ref_list holds type int"),
        ({"id": 9, "ann": {"ref_exp": "x", "questions": [], "answers": ["y"]}}, "9: questions and"),
    ],
)
def test_a_row_of_no_known_kind_is_named(
    folder: Callable[..., Path], old_rows: Rows, row: Any, reason: str
) -> None:
    data = load_invig(folder([*old_rows, row]))
    assert len(data.samples) == 5
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(data.problems[0])


def test_a_link_that_leads_out_of_the_folder_is_refused(
    folder: Callable[..., Path], old_rows: Rows, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "secret.jpg"
    shutil.copy(OLD / "images" / "table-04.jpg", outside)
    old_rows[0]["image"] = "link.jpg"
    root = folder(old_rows)
    (root / "images" / "link.jpg").symlink_to(outside)
    assert load_invig(root).problems == ("table-04#0: image 'link.jpg' leaves the data's folder",)


def test_a_broken_line_is_named_and_a_broken_file_refused(tmp_path: Path) -> None:
    shutil.copytree(OLD, tmp_path, dirs_exist_ok=True)
    with (tmp_path / "test.jsonl").open("a") as file:
        file.write("\n{broken\n" + "9" * 5000 + "\n")
    problems = load_invig(tmp_path).problems
    assert [problem[:22] for problem in problems] == [
        "test.jsonl:7: not JSON",
        "test.jsonl:8: not JSON",
    ]
    (tmp_path / "train.json").write_text("[1, 2")
    with pytest.raises(InvigError, match=r"train.json is not JSON"):
        load_invig(tmp_path, split="train")


def test_nothing_usable_is_an_error_with_the_first_reason(
    folder: Callable[..., Path], old_rows: Rows
) -> None:
    rows = [row | {"image": "gone.jpg"} for row in old_rows]
    with pytest.raises(
        InvigError, match=r"no usable row \(5 cannot be used, the first: table-04#0"
    ):
        load_invig(folder(rows))


@pytest.mark.parametrize(
    ("source", "reason"),
    [("nowhere", "no such file or folder"), ("a/b/c", "no such file or folder")],
)
def test_a_source_that_is_not_there(source: str, reason: str) -> None:
    with pytest.raises(InvigError, match=reason):
        load_invig(source)


def test_an_empty_folder_and_an_unknown_language(tmp_path: Path) -> None:
    with pytest.raises(InvigError, match=r"no .json, .jsonl or .parquet file"):
        load_invig(tmp_path)
    with pytest.raises(InvigError, match="unknown language 'fr'"):
        load_invig(OLD, language="fr")


def test_a_picture_that_breaks_later_says_so(folder: Callable[..., Path], old_rows: Rows) -> None:
    root = folder(old_rows)
    sample = load_invig(root).samples[0]
    path = root / "images" / "table-04.jpg"
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(BadImageError, match=r"table-04.jpg"):
        sample.load()


# --- dialogues ---


@pytest.mark.parametrize(
    "pairs",
    [
        [["", "U"], ["R1", "H1"], ["R2", "H2"]],
        [["U", "R1"], ["H1", "R2"], ["H2", ""]],
        [["U", "R1"], ["H1", "R2"], ["H2"]],
        [[None, "U"], ["R1", "H1"], ["R2", "H2"]],
    ],
)
def test_person_first_and_robot_first_read_the_same(
    folder: Callable[..., Path], old_rows: Rows, pairs: list[list[str]]
) -> None:
    data = load_invig(folder([old_rows[0] | {"dialog": pairs}]))
    (sample,) = data.samples
    assert (sample.request, sample.exchanges) == ("U", (("R1", "H1"), ("R2", "H2")))
    assert data.problems == ()


def test_last_words_of_the_robot_are_told_and_not_used(
    folder: Callable[..., Path], old_rows: Rows
) -> None:
    said = [["Give me the block.", "Which one?"], ["The blue one.", "Here you are."]]
    rows = [row | {"dialog": said} for row in old_rows[:2]]
    data = load_invig(folder(rows))
    assert data.samples[0].exchanges == (("Which one?", "The blue one."),)
    assert data.problems[0] == (
        "table-04#0: 'Here you are.' was said last and nobody answered, not used (and so in 1 other"
        " dialogues)"
    )


def test_text_is_cleaned_and_special_tokens_stay_data(
    folder: Callable[..., Path], old_rows: Rows
) -> None:
    said = [["", "take\tthe <loc0003>\x07 one\n"], ["the <bos>  one ?", "<image> yes"]]
    sample = load_invig(folder([old_rows[0] | {"dialog": said}])).samples[0]
    assert sample.request == "take the <loc0003> one"
    assert sample.exchanges == (("the <bos> one ?", "<image> yes"),)
    (context, question), _ = reveal_pairs(sample)
    assert context == "take the <loc0003> one"
    assert question == "the < bos> one ?"


def test_reveal_pairs_are_the_papers() -> None:
    sample = load_invig(OLD).samples[-1]
    pairs = reveal_pairs(sample)
    (first, second), dialogue = sample.exchanges, Dialogue(sample.request)
    assert pairs[0] == (sample.request, first[0])
    assert pairs[1] == (
        f"{sample.request} assistant: {first[0]} user: {first[1]}",
        second[0],
    )
    for question, answer in sample.exchanges:
        dialogue.add_question(question)
        dialogue.add_answer(answer)
    # x 209..260 of 320, y 112..172 of 240, in steps of 1023.
    box = [round(y / 240 * 1023) for y in (112, 172)], [round(x / 320 * 1023) for x in (209, 260)]
    (y1, y2), (x1, x2) = box
    assert pairs[2] == (
        dialogue.context(),
        f"<loc{y1:04d}><loc{x1:04d}><loc{y2:04d}><loc{x2:04d}>",
    )
    assert sample.dialogue().context() == dialogue.context()


# --- writing ---


def test_what_is_written_reads_back_the_same(tmp_path: Path) -> None:
    samples = load_invig(NEW).samples
    path = write_invig(samples, tmp_path, split="val")
    assert path == tmp_path / "validation.json"
    back = load_invig(tmp_path, split="validation")
    assert back.problems == ()
    for before, after in zip(
        sorted(samples, key=_key), sorted(back.samples, key=_key), strict=True
    ):
        assert _key(before) == _key(after)
        assert after.box == pytest.approx(before.box, abs=1e-12)
        np.testing.assert_array_equal(before.load(), after.load())
        assert (before.id, before.category) == (after.id, after.category)


def _key(sample: InvigSample) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    return sample.image_id, sample.request, sample.exchanges


def test_names_in_samples_do_not_choose_where_files_go(tmp_path: Path) -> None:
    image = np.zeros((40, 60, 3), np.uint8)
    sample = InvigSample("../x", "../../y", lambda: image, "that one", (), (0.1, 0.5, 0.9, 0.95))
    write_invig([sample], tmp_path / "out")
    assert sorted(p.name for p in tmp_path.rglob("*") if p.is_file()) == [
        "train-000000.png",
        "train.json",
    ]
    assert load_invig(tmp_path / "out").samples[0].image_id == "../../y"
    with pytest.raises(InvigError, match="unknown split"):
        write_invig([sample], tmp_path, split="../up")


def test_ids_that_repeat_are_made_different_and_said(folder: Callable[..., Path]) -> None:
    rows = json.loads((NEW / "train.json").read_text("utf-8"))
    rows[0]["ref_list"][1]["id"] = "000"
    data = load_invig(folder(rows))
    assert [sample.id for sample in data.samples] == ["000", "000~2"]
    assert data.problems == ("000: a second row with this id is called 000~2",)
