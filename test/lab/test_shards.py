"""Scenes on disk: shards, and `clue data tabletop` that renders them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import scene_helpers
import trimesh
from drawn_scenes import draw_scene, random_scenes

from clue_ros import cli
from clue_ros.errors import ClueError
from clue_ros.lab.evaluation.tabletop import load_scenes
from clue_ros.lab.simulator import shards
from clue_ros.lab.simulator.physics import open_world
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.simulator.worlds import BLOCKS, RICH, WORLDS

RENDERS = pytest.mark.usefixtures("renderer")


@pytest.fixture(scope="module")
def renderer() -> None:
    """Skip the test where nothing renders."""
    scene_helpers.draw(lambda: open_world(BLOCKS, 0), 1)


# --- scenes without a renderer


@pytest.mark.parametrize("grid", [1, 5, 14, 56])
def test_coverage_sums_to_the_masks(grid: int) -> None:
    scene = random_scenes(1, 0)[0]
    cover = scene.coverage(grid)
    assert cover.shape == (len(scene.objects), grid, grid)
    assert cover.dtype == np.float32
    assert cover.min() >= 0
    assert cover.sum(axis=0).max() <= 1 + 1e-6
    cells = np.bincount(np.arange(56) * grid // 56).astype(float)  # mask cells of a grid cell
    for k in range(len(scene.objects)):
        total = float((cover[k] * cells[:, None] * cells[None]).sum())
        assert total == pytest.approx(np.count_nonzero(scene.instances == k + 1), rel=1e-5)


def test_coverage_lies_where_the_object_is() -> None:
    scene = draw_scene(8, [("block", "red", (0, 2, 4, 4)), ("block", "blue", (7, 7, 8, 8))])
    first, second = scene.coverage(2)
    assert first.tolist() == [[0.5, 0.0], [0.0, 0.0]]
    assert second.tolist() == [[0.0, 0.0], [0.0, 1 / 16]]


def test_a_scene_without_objects_has_an_empty_coverage() -> None:
    photograph = Scene(np.zeros((8, 8, 3), np.uint8), (), np.zeros((0, 0), np.uint8))
    assert photograph.coverage(14).shape == (0, 14, 14)


# --- scenes on disk


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    """A shard of four scenes in a folder of its own."""
    path = shards.shard_path(tmp_path / "shards", "train", 0, 0)
    shards.write_shard(path, random_scenes(4, 1))
    return path


def test_a_shard_holds_what_was_written(tmp_path: Path) -> None:
    wide = Scene(np.full((30, 40, 3), (200, 100, 50), np.uint8), (), np.zeros((56, 56), np.uint8))
    written = [*random_scenes(4, 1), wide]
    path = tmp_path / "deep" / "folder" / "train-0-0000.npz"
    shards.write_shard(path, written)
    read = list(shards.read_shard(path))
    assert len(read) == len(written)
    for a, b in zip(written, read, strict=True):
        assert [(o.kind, o.color) for o in a.objects] == [(o.kind, o.color) for o in b.objects]
        np.testing.assert_allclose(
            [o.box for o in a.objects], [o.box for o in b.objects], atol=1e-7
        )
        assert np.array_equal(a.instances, b.instances)
        assert a.image.shape == b.image.shape
        assert np.abs(a.image.astype(int) - b.image).mean() < 6, "JPEG, but of the same picture"
    assert np.abs(read[-1].image.astype(int) - [200, 100, 50]).max() < 6, "red stays red"
    assert [p.name for p in path.parent.iterdir()] == [path.name], "no partial file is left"


def test_scenes_of_a_split_come_in_order_and_up_to_a_limit(tmp_path: Path) -> None:
    scenes = random_scenes(5, 2)
    shards.write_shard(shards.shard_path(tmp_path, "train", 0, 0), scenes[:2])
    shards.write_shard(shards.shard_path(tmp_path, "train", 0, 1), scenes[2:4])
    shards.write_shard(shards.shard_path(tmp_path, "val", 0, 0), scenes[4:])
    kinds = [[o.kind for o in s.objects] for s in scenes]
    read = [[o.kind for o in s.objects] for s in shards.read_scenes(tmp_path, "train")]
    assert read == kinds[:4]
    assert len(list(shards.read_scenes(tmp_path, "train", 3))) == 3
    assert len(list(shards.read_scenes(tmp_path, "val"))) == 1
    with pytest.raises(FileNotFoundError, match=r"clue data tabletop .*--split test"):
        list(shards.read_scenes(tmp_path, "test"))


def _other_content(path: Path) -> None:
    """A shard that is whole as a file, but whose boxes were changed."""
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
    arrays["boxes"] = arrays["boxes"] + 0.1
    np.savez(path, **arrays)


def _without_checksum(path: Path) -> None:
    with np.load(path) as file:
        arrays = {name: file[name] for name in file.files if name != "sha256"}
    np.savez(path, **arrays)


def _flip(path: Path, at: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(at * len(content))] ^= 0xFF
    path.write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "no archive": lambda path: path.write_text("boxes"),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "a byte at the start": lambda path: _flip(path, 0.0),
    "a byte in the middle": lambda path: _flip(path, 0.5),
    "a byte near the end": lambda path: _flip(path, 0.9),
    "other content": _other_content,
    "no checksum": _without_checksum,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_shard_is_named_with_what_to_do(shard: Path, damage: str) -> None:
    assert len(list(shards.read_shard(shard))) == 4
    DAMAGE[damage](shard)
    with pytest.raises(ValueError, match="delete it and make it again") as caught:
        list(shards.read_shard(shard))
    assert str(shard) in str(caught.value)
    with pytest.raises(ClueError, match="delete it and make it again") as refused:
        load_scenes(shard.parent, "train", 10)
    assert str(shard) in str(refused.value)


def test_every_shard_has_a_seed_of_its_own() -> None:
    seeds = [
        shards.shard_seed(split, seed, index)
        for split in shards.SPLITS
        for seed in range(5)
        for index in range(20)
    ]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= seed < 2**64 for seed in seeds)


@pytest.fixture
def unseen_scenes() -> list[Scene]:
    """Flat pictures with the names of the world rich-unseen."""
    return [
        draw_scene(64, [("mug", "pink", (4, 4, 20, 20)), ("fork", "gray", (40, 40, 60, 50))]),
        draw_scene(64, [("apple", "red", (4, 4, 20, 20)), ("apple", "green", (40, 4, 60, 20))]),
    ]


def test_worlds_share_a_folder_and_are_not_mixed_up(
    tmp_path: Path, unseen_scenes: list[Scene]
) -> None:
    theirs = shards.shard_path(tmp_path, "test", 0, 0, "rich-unseen")
    ours = shards.shard_path(tmp_path, "test", 0, 0)
    shards.write_shard(theirs, unseen_scenes, "rich-unseen")
    shards.write_shard(ours, random_scenes(3, 0))
    assert (theirs.name, ours.name) == ("rich-unseen-test-0-0000.npz", "rich-test-0-0000.npz")
    assert shards.shard_seed("test", 0, 0, "rich-unseen") != shards.shard_seed("test", 0, 0)
    read = list(shards.read_scenes(tmp_path, "test", world="rich-unseen"))
    assert [[(o.kind, o.color) for o in s.objects] for s in read] == [
        [(o.kind, o.color) for o in s.objects] for s in unseen_scenes
    ]
    assert len(list(shards.read_scenes(tmp_path, "test"))) == 3


def test_a_renamed_shard_is_found_out(tmp_path: Path, unseen_scenes: list[Scene]) -> None:
    path = shards.shard_path(tmp_path, "train", 0, 0)  # as if it were for training
    shards.write_shard(path, unseen_scenes, "rich-unseen")
    assert len(list(shards.read_shard(path))) == 2
    with pytest.raises(ValueError, match=r"train-0-0000.*'rich-unseen', not 'rich'"):
        list(shards.read_scenes(tmp_path, "train"))
    with pytest.raises(ClueError, match="train-0-0000"):
        load_scenes(tmp_path, "train", 10)


def test_a_missing_world_is_said_with_the_command_that_makes_it(tmp_path: Path) -> None:
    wanted = r"'rich-unseen'.*clue data tabletop --world rich-unseen .*--split test --scenes 7"
    with pytest.raises(ClueError, match=wanted):
        load_scenes(tmp_path, "test", 7, "rich-unseen")
    with pytest.raises(FileNotFoundError, match="--world rich-unseen"):
        list(shards.read_scenes(tmp_path, "test", world="rich-unseen"))


def test_a_shard_keeps_sizes_shares_and_masks(tmp_path: Path) -> None:
    scenes = []
    for i, scene in enumerate(random_scenes(3, 4)):
        objects = tuple(replace(o, extent=0.1, visible=0.5 + 0.1 * i) for o in scene.objects)
        whole = cv2.resize(scene.instances, (64, 64), interpolation=cv2.INTER_NEAREST)
        scenes.append(replace(scene, objects=objects, masks=np.asarray(whole, np.uint8)))
    path = shards.shard_path(tmp_path, "train", 0, 0, "rich")
    whole_world = replace(RICH, nouns={**RICH.nouns, **BLOCKS.nouns})
    shards.write_shard(path, scenes, "rich", spec=whole_world)
    assert path.name == "rich-train-0-0000.npz"
    for a, b in zip(shards.read_shard(path, "rich"), scenes, strict=True):
        assert b.masks is not None
        assert [(o.kind, o.color, o.extent, o.visible) for o in a.objects] == [
            (o.kind, o.color, o.extent, o.visible) for o in b.objects
        ]
        assert a.masks is not None
        assert np.array_equal(a.masks, b.masks)
    assert shards.list_shards(tmp_path, "train", "rich-unseen") == []


def test_scenes_without_masks_are_kept_too(tmp_path: Path) -> None:
    thing = SceneObject("mug", "red", (0.125, 0.125, 0.5, 0.5), 0.1, 0.8)
    scene = Scene(np.zeros((20, 20, 3), np.uint8), (thing, thing), np.zeros((56, 56), np.uint8))
    path = tmp_path / "rich-val-0-0000.npz"
    shards.write_shard(path, [scene], "rich")
    assert next(shards.read_shard(path)).objects == scene.objects
    assert next(shards.read_shard(path)).masks is None


# --- clue data tabletop


@RENDERS
def test_the_command_makes_only_the_missing_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(WORLDS, "blocks", replace(BLOCKS, scenes_per_shard=2))
    kept = shards.shard_path(tmp_path, "val", 0, 0, "blocks")
    shards.write_shard(kept, random_scenes(2, 3), "blocks")
    before = (kept.read_bytes(), kept.stat().st_mtime_ns)
    command = ["data", "tabletop", "--world", "blocks", "--split", "val", "--scenes", "3"]
    command += ["--out", str(tmp_path)]
    assert cli.main([*command, "--processes", "1"]) == 0
    assert "2 shards wanted, 1 to make" in capsys.readouterr().err
    assert (kept.read_bytes(), kept.stat().st_mtime_ns) == before
    made = shards.shard_path(tmp_path, "val", 0, 1, "blocks")
    assert shards.list_shards(tmp_path, "val", "blocks") == [kept, made]
    # what is in a shard follows from its name alone
    seed = shards.shard_seed("val", 0, 1, "blocks")
    again = scene_helpers.draw(lambda: open_world(BLOCKS, seed), 2)
    for a, b in zip(again, shards.read_shard(made), strict=True):
        assert np.array_equal(a.instances, b.instances)
    assert cli.main([*command, "--processes", "1"]) == 0
    assert "0 to make" in capsys.readouterr().err


@RENDERS
def test_pictures_for_people_have_their_truth_beside_them(tmp_path: Path) -> None:
    command = ["data", "tabletop", "--world", "blocks", "--png", "--scenes", "1"]
    assert cli.main([*command, "--out", str(tmp_path)]) == 0
    (picture,) = tmp_path.glob("*.png")
    image = cv2.imread(str(picture))
    assert image is not None
    height, width = image.shape[:2]
    assert (height, width) in {(480, 640), (448, 448)}
    objects = json.loads(picture.with_suffix(".json").read_text())["objects"]
    assert len(objects) >= 2
    for o in objects:
        x0, y0, x1, y1 = o["box"]
        assert 0 <= x0 < x1 <= width
        assert 0 <= y0 < y1 <= height
        assert o["kind"] in BLOCKS.kinds
        assert o["color"] in BLOCKS.colors


@RENDERS
def test_the_command_draws_the_world_and_its_contact_sheet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sheet = tmp_path / "sheets" / "blocks.png"
    monkeypatch.setattr("clue_ros.lab.simulator.command.SCENES", 3)
    command = ["data", "tabletop", "--world", "blocks", "--out", str(tmp_path)]
    assert cli.main([*command, "--contact-sheet", str(sheet)]) == 0
    image = cv2.imread(str(sheet))
    assert image is not None
    assert image.shape[1] == 960
    assert sheet.stat().st_size < 400_000
    assert cli.main([*command, "--png", "--split", "test", "--scenes", "1"]) == 0
    truth = json.loads((tmp_path / "blocks-test-0-0000.json").read_text())["objects"]
    assert {o["kind"] for o in truth} <= set(BLOCKS.kinds)


@RENDERS
def test_the_command_draws_own_meshes_and_does_not_mix_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "own").mkdir()
    trimesh.creation.box((0.04, 0.06, 0.1)).export(tmp_path / "own" / "brick.obj")
    command = ["data", "tabletop", "--world", "rich", "--out", str(tmp_path), "--scenes", "1"]
    assert cli.main([*command, "--png", "--meshes", str(tmp_path / "own")]) == 0
    truth = json.loads((tmp_path / "rich-train-0-0000.json").read_text())["objects"]
    assert truth
    scene = Scene(np.zeros((20, 20, 3), np.uint8), (), np.zeros((56, 56), np.uint8))
    shards.write_shard(tmp_path / "rich-train-0-0000.npz", [scene], "rich")
    assert cli.main([*command, "--meshes", str(tmp_path / "own")]) == 2
    assert "made with other meshes" in capsys.readouterr().err


def test_a_preset_makes_all_splits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], unseen_scenes: list[Scene]
) -> None:
    for split in shards.SPLITS:
        path = shards.shard_path(tmp_path, split, 0, 0, "paper")
        shards.write_shard(path, unseen_scenes[:1], "paper")
    command = ["data", "tabletop", "--preset", "paper", "--out", str(tmp_path)]
    assert cli.main([*command, "--scenes", "100"]) == 0
    said = capsys.readouterr().err
    for split in shards.SPLITS:
        assert f"{split}: 1 shards wanted, 0 to make" in said
    assert cli.main([*command, "--png"]) == 2
    assert "--preset renders shards of all splits" in capsys.readouterr().err
