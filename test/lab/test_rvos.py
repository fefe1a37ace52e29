"""Requests about videos: the measures, the published layouts, and the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from moving_pictures import cut_out, moving
from PIL import Image

from clue_ros.cli import main
from clue_ros.dialogue.types import Box
from clue_ros.lab.data.video_layouts import decoded, video_requests
from clue_ros.lab.data.videos import VideosError
from clue_ros.lab.tracks import contour_accuracy, region_similarity

Masks = list[npt.NDArray[np.bool_]]
FRAMES, WIDE, HIGH = 3, 30, 20


def rectangle(x: int, y: int, w: int, h: int, size: tuple[int, int] = (100, 100)) -> Any:
    mask = np.zeros(size, bool)
    mask[y : y + h, x : x + w] = True
    return mask


def test_j_is_the_intersection_over_union() -> None:
    a, b = rectangle(10, 10, 20, 20), rectangle(20, 10, 20, 20)
    empty = np.zeros_like(a)
    assert region_similarity(a, b) == pytest.approx(1 / 3)
    assert (region_similarity(empty, empty), region_similarity(a, empty)) == (1, 0)


def test_f_forgives_a_boundary_within_the_tolerance() -> None:
    a, empty = rectangle(10, 10, 40, 40), np.zeros((100, 100), bool)
    assert contour_accuracy(a, a) == 1
    assert contour_accuracy(a, rectangle(12, 11, 40, 40)) == 1  # ceil(0.008 x 141) = 2 pixels
    assert contour_accuracy(a, rectangle(60, 60, 30, 30)) == 0
    assert (contour_accuracy(empty, empty), contour_accuracy(a, empty)) == (1, 0)
    # One of two equal squares: all that was found is right, and half of what is true was found.
    two = rectangle(5, 5, 20, 20) | rectangle(60, 60, 20, 20)
    assert contour_accuracy(rectangle(5, 5, 20, 20), two) == pytest.approx(2 / 3)


def encoded(mask: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """A mask as COCO's runs."""
    flat = mask.T.reshape(-1)
    ends = np.flatnonzero(np.diff(flat)) + 1
    runs = np.diff([0, *ends, len(flat)]).tolist()
    return {"size": list(mask.shape), "counts": ([0, *runs] if flat[0] else runs)}


def test_run_lengths_are_decoded() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        mask = rng.uniform(size=(7, 9)) < 0.4
        assert np.array_equal(decoded(encoded(mask)), mask)
    # COCO's own text of the same runs, with negative changes and more than five bits.
    assert np.array_equal(
        decoded({"size": [10, 10], "counts": [33, 2, 8, 2, 55]}),
        decoded({"size": [10, 10], "counts": text_of([33, 2, 8, 2, 55])}),
    )
    for wrong in ({"size": [2, 2], "counts": [1, 2]}, {"size": [2, 2]}, {"counts": "12"}):
        with pytest.raises(ValueError, match="a mask"):
            decoded(wrong)


def text_of(runs: list[int]) -> str:
    """COCO's text of runs, as its C code writes it."""
    out = ""
    for n, run in enumerate(runs):
        value, more = run - (runs[n - 2] if n > 2 else 0), True
        while more:
            code = value & 31
            value >>= 5
            more = value != (-1 if code & 16 else 0)
            out += chr((code | 32 if more else code) + 48)
    return out


def write_frames(folder: Path, video: str) -> None:
    place = folder / video
    place.mkdir(parents=True)
    for n in range(FRAMES):
        Image.new("RGB", (WIDE, HIGH), (50 * n, 0, 0)).save(place / f"{n:05d}.jpg")


def truth(objects: int) -> Masks:
    """The masks of an object of two, in each frame; the second one leaves in the end."""
    size = (HIGH, WIDE)
    found = [rectangle(2 + 3 * n + 12 * (objects - 1), 4, 5, 6, size) for n in range(FRAMES)]
    if objects == 2:
        found[-1] = np.zeros(size, bool)
    return found


def in_mask_file(folder: Path, meta: Path, images: Path) -> None:
    """A data set as MeViS and ReVOS are laid out."""
    write_frames(images, "v1")
    names = [f"{n:05d}" for n in range(FRAMES)]
    expressions = {
        "0": {"exp": "the left one", "anno_id": ["7"]},
        "1": {"exp": "both of them", "anno_id": ["7", "8"]},
        "2": {"exp": "the ghost", "anno_id": ["9"]},
        "3": {"exp": "no annotation"},
    }
    meta.parent.mkdir(parents=True, exist_ok=True)
    meta.write_text(json.dumps({"videos": {"v1": {"expressions": expressions, "frames": names}}}))
    rows = {str(k + 6): [encoded(m) if m.any() else None for m in truth(k)] for k in (1, 2)}
    (folder / "mask_dict.json").write_text(json.dumps(rows))


def mevis(folder: Path) -> None:
    part = folder / "valid_u"
    part.mkdir()
    in_mask_file(part, part / "meta_expressions.json", part / "JPEGImages")


def revos(folder: Path) -> None:
    in_mask_file(folder, folder / "meta_expressions_valid_u_.json", folder / "JPEGImages")


def refytvos(folder: Path) -> None:
    part = folder / "valid_u"
    write_frames(part / "JPEGImages", "v1")
    masks = part / "Annotations" / "v1"
    masks.mkdir(parents=True)
    for n, (a, b) in enumerate(zip(truth(1), truth(2), strict=True)):
        picture = Image.fromarray((a + 2 * b).astype(np.uint8), "P")
        picture.putpalette([0, 0, 0, 200, 0, 0, 0, 200, 0])
        picture.save(masks / f"{n:05d}.png")
    meta = folder / "meta_expressions" / "valid_u" / "meta_expressions.json"
    meta.parent.mkdir(parents=True)
    expressions = {
        "0": {"exp": "the left one", "obj_id": "1"},
        "1": {"exp": "the right one", "obj_id": "2"},
        "2": {"exp": "masks are not published"},
        "3": {"exp": "", "obj_id": "1"},
    }
    names = [f"{n:05d}" for n in range(FRAMES)]
    meta.write_text(json.dumps({"videos": {"v1": {"expressions": expressions, "frames": names}}}))


@pytest.mark.parametrize("layout", [mevis, revos, refytvos])
def test_a_published_layout_is_read(layout: Callable[[Path], None], tmp_path: Path) -> None:
    layout(tmp_path)
    problems: list[str] = []
    name = layout.__name__
    found = list(video_requests(name, tmp_path, "valid_u", problems.append))
    assert [r.name for r in found] == ["v1/0", "v1/1"]
    assert len(problems) == 2
    assert "expression 2" in problems[0]
    united = name != "refytvos"
    for n, (a, b) in enumerate(zip(truth(1), truth(2), strict=True)):
        assert np.array_equal(found[0].truth(n), a)
        assert np.array_equal(found[1].truth(n), a | b if united else b)
    assert found[0].load(1).shape == (HIGH, WIDE, 3)
    with pytest.raises(VideosError, match="cannot read"):
        list(video_requests(name, tmp_path, "other", problems.append))


def test_the_command_follows_and_counts_what_it_leaves_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = tmp_path / "valid"
    masks, names = list[Any](), list[str]()
    images = part / "JPEGImages" / "ball"
    images.mkdir(parents=True)
    clip = moving(cut_out("volleyball.jpg", Box(6, 6, 314, 314), 150), "cutlery.jpg", frames=5)
    for n, (frame, mask) in enumerate(clip):
        Image.fromarray(frame).save(images / f"{n:05d}.jpg", quality=95)
        masks.append(encoded(mask))
        names.append(f"{n:05d}")
    empty = [None] * len(names)
    expressions = {
        "0": {"exp": "the ball", "anno_id": ["1"]},
        "1": {"exp": "the flying thing", "anno_id": ["1"]},
        "2": {"exp": "the ghost", "anno_id": ["2"]},
    }
    (part / "meta_expressions.json").write_text(
        json.dumps({"videos": {"ball": {"expressions": expressions, "frames": names}}})
    )
    (part / "mask_dict.json").write_text(json.dumps({"1": masks, "2": empty}))
    records = tmp_path / "records.jsonl"
    arguments = ["--data", str(tmp_path), "--layout", "mevis", "--split", "valid", "--json"]
    ways = ["--ways", "true mask", "true box", "--records", str(records)]
    assert main(["eval", "rvos", *arguments, *ways]) == 0
    output = capsys.readouterr()
    found = json.loads(output.out)
    assert found["true mask"]["clear"]["n"] == 2
    assert found["true mask"]["clear"]["jf"] > 0.9
    assert found["true box"]["clear"]["right"] == 1.0
    assert found["left_out"] == 1
    assert "the object is in no frame" in output.err
    assert found["tracker"]["frames"] == 8  # two requests that mean the same share a run
    assert len(records.read_text().splitlines()) == 4
    assert main(["eval", "rvos", *arguments, "--tracker", "sam3"]) == 2
    assert "want flow, or sam2:HUB-ID" in capsys.readouterr().err
