"""Reading IT2P: what its files say, nothing in them executed, nothing dropped in silence."""

from __future__ import annotations

import math
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from it2p_files import npz_of, photograph, python2_npz, write_it2p

from clue_ros import cli
from clue_ros.images import load_image
from clue_ros.lab.data.it2p import (
    Block,
    It2pError,
    candidate_points,
    find_it2p,
    head_color,
    load_it2p,
    place_words,
    read_question_words,
    split_of,
)
from clue_ros.lab.data.it2p_boxes import block_boxes


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_it2p(tmp_path / "it2p")


def test_clear_commands_carry_their_points(root: Path) -> None:
    first = load_it2p(root).images[0]
    assert first.id == "0001"
    assert ("pick up the red block", (200.0, 100.0)) in [(c.text, c.point) for c in first.commands]


def test_near_points_are_one_block_with_the_colour_its_commands_name(root: Path) -> None:
    first = load_it2p(root).images[0]
    assert first.blocks == (
        Block((51.0, 60.5), "yellow"),
        Block((60.0, 180.0), "purple"),
        Block((200.0, 100.0), "red"),
    )


def test_ambiguous_commands_carry_words_and_the_blocks_they_fit(root: Path) -> None:
    colors, places = load_it2p(root).images[0].ambiguous
    assert colors.words == ("upper", "lower", "yellow", "purple")
    assert set(colors.candidates) == {(51.0, 60.5), (60.0, 180.0)}
    assert set(places.candidates) == {(51.0, 60.5), (60.0, 180.0)}


def test_the_answer_is_the_colour_where_it_tells_else_the_place(root: Path) -> None:
    first, second = load_it2p(root).images
    assert {(d.text, d.answers) for d in first.interactive} == {
        ("pick up the left block", ("yellow", "upper")),
        ("pick up the left block", ("purple", "lower")),
        ("pick up the block on the left", ("upper",)),
        ("pick up the block on the left", ("lower",)),
    }
    assert [(d.point, d.answer, d.source) for d in second.interactive] == [
        ((61.0, 51.0), "upperleft", "test_simulator"),
        ((190.0, 199.0), "lowerright", "test_simulator"),
    ]


def test_bad_rows_are_named_with_file_and_line(root: Path) -> None:
    script = root / "data" / "train_script" / "0001.txt"
    script.write_text(script.read_text() + "12 pick up\n\nnan 3 pick up the red block\n5 5\n")
    simulator = root / "data" / "test_simulator" / "0002.txt"
    simulator.write_text(simulator.read_text() + "1,2,pick up the green block\n")
    (root / "data" / "train_script" / "0009.txt").write_text("1 2 pick up the red block\n")
    data = load_it2p(root)
    found = [(Path(p.file).name, p.line) for p in data.problems]
    assert found == [
        ("0001.txt", 6), ("0001.txt", 8), ("0001.txt", 9), ("0002.txt", 3), ("0009.txt", 0),
    ]  # fmt: skip
    assert str(data.problems[0]).startswith(f"{script}:6: ")
    assert len(data.images[0].commands) == 5


def test_a_command_called_clear_and_ambiguous_is_reported_and_kept(root: Path) -> None:
    script = root / "data" / "train_script" / "0001.txt"
    script.write_text(script.read_text() + "50 60 pick up the left block\n")
    data = load_it2p(root)
    assert data.images[0].contradictory == {"pick up the left block"}
    assert "also listed as ambiguous" in data.problems[0].reason
    assert len(data.images[0].commands) == 6


def test_a_script_that_is_not_text_is_reported(root: Path) -> None:
    (root / "data" / "train_script" / "0001.txt").write_bytes(b"\xff\xfe\x00garbage")
    assert "cannot be read" in load_it2p(root).problems[0].reason


def test_no_data_set_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(It2pError, match="no IT2P here"):
        load_it2p(tmp_path)


def test_the_data_folder_itself_will_do(root: Path) -> None:
    assert [image.id for image in load_it2p(root / "data").images] == ["0001", "0002"]


def test_words_of_todays_numpy_are_read_too(tmp_path: Path) -> None:
    words = {"pick up the left block\n": ["yellow", "blue"], "pick up the top block": ["yellow"]}
    path = tmp_path / "words.npz"
    np.savez(path, np.array([words], dtype=object))
    assert read_question_words(path) == {
        "pick up the left block": ("yellow", "blue"),
        "pick up the top block": ("yellow",),
    }


class Hostile:
    """Pickles as a call of any function with a command that makes the file `ran`."""

    def __init__(self, function: object, *args: object) -> None:
        self.call = function, args

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("name", ["posix.system", "builtins.eval"])
def test_a_pickle_that_runs_a_command_is_refused(
    tmp_path: Path, name: str, nested: bool, protocol: int
) -> None:
    path, marker = tmp_path / "evil.npz", tmp_path / "ran"
    evil = (
        Hostile(os.system, f"touch {marker}")
        if name == "posix.system"
        else Hostile(eval, f"open({str(marker)!r}, 'w')")
    )
    entry = {"pick up the red block": ["left", evil]}
    value = np.array([entry], dtype=object) if nested else evil
    path.write_bytes(npz_of(pickle.dumps(value, protocol)))
    with pytest.raises(It2pError, match=r"evil\.npz: .*which is refused"):
        read_question_words(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    "pickled",
    [
        b"cnumpy.core.multiarray\n_reconstruct.__globals__\n.",
        b"cnumpy\nload\n(S'/etc/passwd'\ntR.",
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I999999999999\ntS'd'\ntR.",
        b"\x80\x02]r\xff\xff\xff\x7f.",
        b"]p99999999999\n.",
        b"\x80\x05\x96\xff\xff\xff\xff\xff\x00\x00\x00a.",
    ],
    ids=["attribute", "numpy.load", "huge array", "huge memo", "huge memo, text", "huge bytes"],
)
def test_a_pickle_reaches_no_other_name_and_no_large_memory(tmp_path: Path, pickled: bytes) -> None:
    path = tmp_path / "evil.npz"
    path.write_bytes(npz_of(pickled))
    with pytest.raises(It2pError, match=r"evil\.npz"):
        read_question_words(path)


def test_an_array_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.npz"
    np.savez_compressed(path, np.array([{"a" * (1 << 20): ["b"]}], dtype=object))
    with pytest.raises(It2pError, match="larger than 1048576 bytes"):
        read_question_words(path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a zip",
        python2_npz({"a": ["b"]})[:120],
        npz_of(b"\x80\x02]."),
        npz_of(b"\x80\x02e."),
        npz_of(b"\x80\x02}(U\x01aK\x01u."),
        npz_of(b"\x80\x02h\x07."),
    ],
    ids=["empty", "no zip", "cut", "no dictionary", "no mark", "no words", "no memo"],
)
def test_a_malformed_words_file_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "0007.npz"
    path.write_bytes(content)
    with pytest.raises(It2pError, match=r"0007\.npz"):
        read_question_words(path)


def test_the_split_follows_from_the_id_alone() -> None:
    ids = [f"{n:04d}" for n in range(2000)]
    parts = [split_of(image_id) for image_id in ids]
    assert parts.count("train") == pytest.approx(1400, abs=60)
    assert parts.count("val") == pytest.approx(300, abs=45)
    assert parts.count("test") == 2000 - parts.count("train") - parts.count("val")


@pytest.mark.parametrize(
    ("text", "color"),
    [
        ("pick up the blue block between the red block and the green block", "blue"),
        ("pick up the block next to the red block", None),
        ("pick up the upper block which color is purple", "purple"),
        ("pick up the left block", None),
        ("grasp it", None),
    ],
)
def test_the_colour_of_a_command_is_that_of_its_own_block(text: str, color: str | None) -> None:
    assert head_color(text) == color


def test_candidates_of_a_colour_are_those_that_fit_the_place() -> None:
    blocks = (Block((40, 50), "red"), Block((60, 200), "blue"), Block((210, 100), "red"))
    assert candidate_points("pick up the left block", ["red", "blue"], blocks) == (
        (40, 50),
        (60, 200),
    )


def test_words_that_do_not_tell_give_no_candidates() -> None:
    blocks = (Block((40, 50), "red"), Block((60, 200), "blue"))
    assert candidate_points("pick up the left block", ["this"], blocks) == ()
    assert candidate_points("pick up the red block", ["upper", "lower"], blocks) == ()


def test_place_words_hold_for_one_block_only() -> None:
    words = ("left", "right", "middle", "upper", "upperright")
    others = [(50.0, 100.0), (200.0, 104.0)]
    assert place_words((125.0, 103.0), others, words) == ("middle",)
    assert place_words((50.0, 100.0), [(125.0, 103.0), (200.0, 104.0)], words) == ("left",)


def test_boxes_follow_dark_and_touching_blocks() -> None:
    blocks = [
        ("purple", (60, 60)),
        ("green", (98, 60)),
        ("green", (60, 170)),
        ("green", (97, 170)),
        ("yellow", (200, 120)),
    ]
    regions = block_boxes(photograph(blocks), [point for _, point in blocks])
    for (_, (x, y)), region in zip(blocks, regions, strict=True):
        assert region.estimated
        assert np.abs(np.subtract(region.box, (x - 18, y - 18, x + 18, y + 18))).max() <= 2
        assert region.mask[y, x]
        assert region.mask.sum() == pytest.approx(36 * 36, rel=0.12)
    assert not (regions[0].mask & regions[1].mask).any()


def test_where_there_is_no_block_a_square_stands_in() -> None:
    (region,) = block_boxes(photograph([("red", (60, 60))]), [(240.0, 240.0)])
    assert not region.estimated
    assert region.box == (222.0, 222.0, 250.0, 250.0)


def test_a_grey_image_is_refused() -> None:
    with pytest.raises(ValueError, match="uint8 RGB"):
        block_boxes(np.zeros((250, 250), np.uint8), [])


def test_the_folder_is_found_by_the_environment(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUE_IT2P", str(root))
    assert find_it2p() == root
    for unset in ("", None):
        if unset is None:
            monkeypatch.delenv("CLUE_IT2P")
        else:
            monkeypatch.setenv("CLUE_IT2P", unset)
        assert find_it2p() is None, "no folder is looked at that nobody named"


def test_a_wrong_variable_is_refused_and_not_taken_for_none(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a training goes on for hours without the photographs."""
    shutil.rmtree(root / "data" / "train_img")
    for wrong in (root, root / "no such folder"):
        monkeypatch.setenv("CLUE_IT2P", str(wrong))
        with pytest.raises(It2pError, match=f"CLUE_IT2P is {wrong}: no IT2P there"):
            find_it2p()


def test_a_command_stops_at_a_wrong_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CLUE_IT2P", str(tmp_path))
    folders = ["--run", str(tmp_path / "run"), "--out", str(tmp_path / "out")]
    train = ["train", "detector", "--model", "models/household", *folders]
    for command in (["eval", "it2p"], train):
        assert cli.main(command) == 2
        assert f"CLUE_IT2P is {tmp_path}: no IT2P there" in capsys.readouterr().err


def test_real_rows_are_all_read_and_contradictions_named(it2p_photographs: Path) -> None:
    data = load_it2p(it2p_photographs)
    assert all(image.commands and image.blocks for image in data.images)
    listed = ("also listed as ambiguous", "listed for two blocks")
    assert [p for p in data.problems if not p.reason.endswith(listed)] == []
    colored = [block.color for image in data.images for block in image.blocks]
    assert colored.count(None) <= 0.01 * len(colored)


def test_real_candidates_agree_with_the_simulator_files(it2p_photographs: Path) -> None:
    agree = []
    for image in load_it2p(it2p_photographs).images:
        rows = [d for d in image.interactive if d.source == "test_simulator"]
        for item in image.ambiguous:
            true = [d.point for d in rows if d.text == item.text]
            if len(true) > 1:
                found = candidate_points(item.text, item.words, image.blocks)
                agree.append(
                    len(found) == len(true)
                    and all(min(math.dist(p, q) for q in found) < 12 for p in true)
                )
    if not agree:
        pytest.skip("this copy of IT2P has no test_simulator files")
    assert sum(agree) >= 0.9 * len(agree)


def test_real_blocks_have_plausible_boxes_around_their_points(it2p_photographs: Path) -> None:
    for image in load_it2p(it2p_photographs).images[::20]:
        points = [block.point for block in image.blocks]
        for point, region in zip(points, block_boxes(load_image(image.path), points), strict=True):
            x_min, y_min, x_max, y_max = region.box
            assert region.estimated
            assert math.dist(((x_min + x_max) / 2, (y_min + y_max) / 2), point) < 15
