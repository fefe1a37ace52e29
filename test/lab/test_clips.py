"""Simulated videos: what happens in them, their requests, and IC-Seg's layout on disk."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from clue_ros.cli import main
from clue_ros.lab.data.export_clips import described, motions, requests_of
from clue_ros.lab.data.videos import COLUMNS, VideosError, icseg_requests
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.simulator.clips import CAMERA, EVENTS, FALL, HAND, Clip, ClipWorld
from clue_ros.lab.simulator.scene import SceneObject
from clue_ros.lab.simulator.worlds import world_spec

pa = pytest.importorskip("pyarrow")
pyarrow = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def clips() -> dict[str, Clip]:
    """A clip of each event with a hand or a moving camera, of a fixed seed."""
    world = ClipWorld(world_spec("rich"), 3, 240)
    try:
        return {event: world.clip(event) for event in EVENTS[1:]}
    except RuntimeError as error:
        pytest.skip(str(error))
    finally:
        world.close()


def test_each_object_keeps_its_number_in_every_frame(clips: dict[str, Clip]) -> None:
    for clip in clips.values():
        count = len(clip.frames)
        assert 12 <= count <= 24
        assert clip.frames.shape == (count, 180, 240, 3)
        assert clip.masks.shape == (count, 180, 240)
        assert clip.masks.max() == len(clip.objects)
        for k, o in enumerate(clip.objects, 1):
            rows, columns = np.nonzero(clip.masks[0] == k)
            assert columns.min() / 240 == pytest.approx(o.box[0])
            assert (rows.max() + 1) / 180 == pytest.approx(o.box[3])


def test_what_was_to_happen_does(clips: dict[str, Clip]) -> None:
    assert clips[CAMERA].camera
    assert not clips[CAMERA].moved
    assert clips[FALL].fell
    assert set(clips[FALL].fell) <= set(clips[FALL].moved)
    assert clips[HAND].moved
    fallen = clips[FALL]
    seen = [np.nonzero(m == fallen.fell[0] + 1)[0] for m in (fallen.masks[0], fallen.masks[-1])]
    assert seen[1].mean() > seen[0].mean() + 5  # lower in the picture


def test_the_same_seed_films_the_same_clip() -> None:
    made = []
    for _ in range(2):
        world = ClipWorld(world_spec("rich"), 8, 160)
        try:
            made.append(world.clip(FALL))
        except RuntimeError as error:
            pytest.skip(str(error))
        finally:
            world.close()
    assert np.array_equal(made[0].masks, made[1].masks)
    assert made[0].objects == made[1].objects


def still_clip(event: str, moved: tuple[int, ...], fell: tuple[int, ...] = ()) -> Clip:
    """A clip of grey frames with two mugs and a ball; its words alone count."""
    places = ((0.1, 0.1), (0.4, 0.4), (0.7, 0.7))
    objects = tuple(
        SceneObject(kind, color, (x, y, x + 0.2, y + 0.2))
        for (kind, color), (x, y) in zip(
            (("mug", "red"), ("mug", "red"), ("ball", "blue")), places, strict=True
        )
    )
    masks = np.zeros((12, 50, 50), np.uint8)
    for k, (x, y) in enumerate(places, 1):
        masks[:, int(50 * y) : int(50 * y) + 10, int(50 * x) : int(50 * x) + 10] = k
    return Clip(np.zeros((12, 50, 50, 3), np.uint8), masks, objects, event, False, moved, fell)


def test_motion_words_mean_those_that_they_hold_for() -> None:
    by = {words[0]: meant for words, meant in motions(still_clip("hand", (1,)))}
    assert by == {
        "the {} that moved": (1,),
        "the {} that did not move": (0, 2),
        "the {} that the hand pushed": (1,),
    }
    two = {words[0] for words, _ in motions(still_clip("hand", (0, 1)))}
    assert "the {} that the hand pushed" not in two  # it pushed one, which pushed the other
    assert not motions(still_clip("camera", ()))
    assert ("the {} that fell", (2,)) in [
        (words[0], meant) for words, meant in motions(still_clip("fall", (2,), (2,)))
    ]


def test_requests_are_ambiguous_clear_and_about_motion() -> None:
    clip, grammar = still_clip("push", (1,)), grammar_of("rich")
    found = [
        r for seed in range(8) for r in requests_of(clip, grammar, 4, np.random.default_rng(seed))
    ]
    assert {len(r.candidates) for r in found} >= {1, 2}
    by_motion = [r for r in found if r.motion]
    assert by_motion
    moved = [r for r in by_motion if "moved" in r.text or "pushed" in r.text]
    assert all(r.candidates == (1,) for r in moved)
    stayed = [r for r in by_motion if "mug that did not move" in r.text]
    assert all(r.candidates == (0,) for r in stayed)


def test_a_frames_description_has_the_innermost_pixel() -> None:
    mask = np.zeros((100, 200), bool)
    mask[20:60, 40:80] = True
    mask[70:72, 100:110] = True
    found = described(mask, most=2 * int(mask.sum()))
    assert found["bbox_2d"] == [200, 200, 550, 720]
    assert abs(found["point_2d"][0] - 300) < 10
    assert abs(found["point_2d"][1] - 400) < 15
    assert found["area"] == 0.5
    assert found["largest_area"] == pytest.approx(1600 / 1620 / 2)
    assert described(np.zeros((4, 4), bool), 1)["area"] == 0


def test_the_layout_is_written_and_read_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--clips", "1", "--per-clip", "4", "--split", "test", "--width", "160"]
    status = main(["data", "clips", "--out", str(tmp_path), *options])
    output = capsys.readouterr()
    if "OpenGL" in output.err:
        pytest.skip(output.err)
    assert status == 0
    made = json.loads(output.out)
    table = pyarrow.read_table(made["out"])
    assert tuple(table.column_names) == COLUMNS
    rows, problems = table.to_pylist(), list[str]()
    found = list(icseg_requests(tmp_path, "test", problems.append))
    assert not problems
    assert len(found) == len(rows) == made["requests"]
    for request, row in zip(found, rows, strict=True):
        assert len(row["images"]) == len(row["object"]) == 6
        assert all((tmp_path / name).is_file() for name in row["images"])
        assert request.text == row["question"]
        assert request.known is not None
        assert len(request.known.candidates) == request.count == row["initial_count"]
        assert request.known.target in request.known.candidates
        box = request.known.objects[request.known.target].box
        mask = request.truth(0)
        assert mask.shape == request.load(0).shape[:2] == (120, 160)
        assert np.flatnonzero(mask.any(0))[0] / 160 == pytest.approx(box[0])
        assert row["ability"] == {1: "other", 2: "simple", 3: "medium"}.get(
            request.count, "difficult"
        )


def test_rows_that_cannot_be_used_are_counted_and_the_rest_goes_on(tmp_path: Path) -> None:
    images = tmp_path / "RVOS_Test" / "JPEGImages" / "v"
    masks = tmp_path / "RVOS_Test" / "Annotations" / "v" / "7"
    for folder in (images, masks):
        folder.mkdir(parents=True)
    Image.new("RGB", (8, 6)).save(images / "00000.jpg")
    Image.new("L", (8, 6), 255).save(masks / "00000.png")
    rows = [
        {"question": "the cup", "video": "v", "oid": 7, "id": 1},
        {"question": "the cup", "video": "v", "oid": 8, "id": 2},
        {"question": "the cup", "video": "../v", "oid": 7, "id": 3},
        {"question": " ", "video": "v", "oid": 7, "id": 4},
    ]
    pyarrow.write_table(pa.Table.from_pylist(rows), tmp_path / "ambi-test.parquet")
    problems: list[str] = []
    found = list(icseg_requests(tmp_path, "test", problems.append))
    assert [r.target for r in found] == ["v/7"]
    assert found[0].truth(0).all()
    assert [p.split(":")[0].split()[-1] for p in problems] == ["2", "3", "4"]
    with pytest.raises(VideosError, match=r"no \.parquet file with train in its name"):
        list(icseg_requests(tmp_path, "train", problems.append))
