"""The simulator: scenes that are true, the same for the same seed, and kept on disk."""

import colorsys
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
import scene_helpers
from drawn_scenes import draw_scene, random_scenes

from clue_ros import cli
from clue_ros.errors import ClueError
from clue_ros.lab.evaluation.tabletop import _read
from clue_ros.lab.simulator import shards
from clue_ros.lab.simulator.optics import INSTANCE_GRID
from clue_ros.lab.simulator.physics import open_world
from clue_ros.lab.simulator.scene import COLORS, KINDS, Scene
from clue_ros.lab.simulator.worlds import BLOCKS, WORLDS

SEED = 11
# Of SEED, drawn before the simulator knew more than one world.
FIRST = [
    ["purple ball", "red ball", "red cylinder", "purple cylinder", "purple ball"],
    ["yellow cylinder", "red cylinder", "orange cylinder", "red cylinder", "red cylinder"],
    ["white ball", "yellow ball", "white ball", "yellow ball"],
]
FIRST_BOXES = [
    [0.172, 0.467, 0.322, 0.662],
    [0.763, 0.228, 0.906, 0.42],
    [0.234, 0.321, 0.4, 0.542],
]


def draw(seed: int, count: int) -> list[Scene]:
    """Scenes of the simulator; skips the test where nothing renders."""
    return scene_helpers.draw(lambda: open_world(BLOCKS, seed), count)


@pytest.fixture(scope="module")
def rendered() -> list[Scene]:
    return draw(SEED, 8)


def same(a: Scene, b: Scene) -> bool:
    return (
        np.array_equal(a.image, b.image)
        and a.objects == b.objects
        and np.array_equal(a.instances, b.instances)
    )


# --- what is drawn


def test_the_same_seed_gives_the_same_scenes_bit_for_bit(rendered: list[Scene]) -> None:
    again = draw(SEED, 3)
    assert all(same(a, b) for a, b in zip(again, rendered, strict=False))
    assert not any(same(a, rendered[0]) for a in rendered[1:])
    assert not same(draw(SEED + 1, 1)[0], rendered[0])


def test_the_default_world_draws_what_it_drew_before_there_were_others(
    rendered: list[Scene],
) -> None:
    """Shards that were made once must not change: objects and boxes of the first scenes."""
    first = [[f"{o.color} {o.kind}" for o in scene.objects] for scene in rendered[:3]]
    assert first == FIRST
    boxes = np.array([scene.objects[0].box for scene in rendered[:3]])
    np.testing.assert_allclose(boxes, FIRST_BOXES, atol=0.02)  # renderers differ by a pixel
    assert BLOCKS.kinds == KINDS
    assert tuple(BLOCKS.colors) == COLORS


def test_a_scene_is_what_its_type_says(rendered: list[Scene]) -> None:
    for scene in rendered:
        assert scene.image.dtype == np.uint8
        assert scene.image.shape in {(224, 224, 3), (240, 320, 3)}
        assert scene.image.flags.c_contiguous
        assert scene.image.std() > 5, "an empty picture"
        assert scene.instances.shape == (INSTANCE_GRID, INSTANCE_GRID)
        assert 2 <= len(scene.objects) <= 6
        assert set(np.unique(scene.instances)) == set(range(len(scene.objects) + 1))
        assert {o.kind for o in scene.objects} <= set(KINDS)
        assert {o.color for o in scene.objects} <= set(COLORS)


def test_every_object_is_inside_and_large_enough_to_see(rendered: list[Scene]) -> None:
    for scene in rendered:
        for k, o in enumerate(scene.objects):
            x0, y0, x1, y1 = o.box
            assert 0 < x0 < x1 < 1
            assert 0 < y0 < y1 < 1
            assert min(x1 - x0, y1 - y0) >= BLOCKS.min_side
            seen = np.count_nonzero(scene.instances == k + 1) / scene.instances.size
            assert seen > 0.3 * (x1 - x0) * (y1 - y0)


def test_boxes_tightly_hold_the_masks(rendered: list[Scene]) -> None:
    cell = 1 / INSTANCE_GRID
    for scene in rendered:
        for k, o in enumerate(scene.objects):
            ys, xs = np.nonzero(scene.instances == k + 1)
            # A cell holds the pixel at its upper left corner; round things end between two cells.
            for cells, low, high in ((xs, o.box[0], o.box[2]), (ys, o.box[1], o.box[3])):
                assert low - 0.5 * cell <= cells.min() * cell <= low + 2 * cell
                assert high - 2.5 * cell <= cells.max() * cell < high


def test_objects_have_the_colors_they_are_called_by(rendered: list[Scene]) -> None:
    checked = 0
    for scene in rendered:
        height, width = scene.image.shape[:2]
        masks = cv2.resize(scene.instances, (width, height), interpolation=cv2.INTER_NEAREST)
        for k, o in enumerate(scene.objects):
            red, green, blue = np.median(scene.image[masks == k + 1], axis=0) / 255
            hue, saturation, _ = colorsys.rgb_to_hsv(red, green, blue)
            if o.color == "white":
                assert saturation < 0.3, o
                continue
            (low, high), _, _ = BLOCKS.colors[o.color]
            off = min(abs(hue + turn - (low + high) / 2) for turn in (-1, 0, 1))
            assert off < (high - low) / 2 + 0.05, (o, hue)
            checked += 1
    assert checked > 10


def test_no_renderer_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mujoco = pytest.importorskip("mujoco")

    def broken(*_: object) -> None:
        raise OSError("no display")

    monkeypatch.setattr(mujoco, "Renderer", broken)
    with pytest.raises(RuntimeError, match=r"apt-get install .*libegl1.*no display"):
        open_world(BLOCKS, 0).scene()
    assert cli.main(["data", "tabletop", "--png", "--scenes", "1", "--out", str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


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
        _read(shard.parent, "train", 10)
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


# --- clue data tabletop


def test_the_command_makes_only_the_missing_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    draw(0, 1)  # skips where nothing renders
    monkeypatch.setitem(WORLDS, "blocks", replace(BLOCKS, scenes_per_shard=2))
    kept = shards.shard_path(tmp_path, "val", 0, 0)
    shards.write_shard(kept, random_scenes(2, 3))
    before = (kept.read_bytes(), kept.stat().st_mtime_ns)
    command = ["data", "tabletop", "--split", "val", "--scenes", "3", "--out", str(tmp_path)]
    assert cli.main([*command, "--processes", "1"]) == 0
    assert "2 shards wanted, 1 to make" in capsys.readouterr().err
    assert (kept.read_bytes(), kept.stat().st_mtime_ns) == before
    made = shards.shard_path(tmp_path, "val", 0, 1)
    assert shards.list_shards(tmp_path, "val") == [kept, made]
    # what is in a shard follows from its name alone
    again = draw(shards.shard_seed("val", 0, 1), 2)
    for a, b in zip(again, shards.read_shard(made), strict=True):
        assert np.array_equal(a.instances, b.instances)
    assert cli.main([*command, "--processes", "1"]) == 0
    assert "0 to make" in capsys.readouterr().err


def test_pictures_for_people_have_their_truth_beside_them(tmp_path: Path) -> None:
    draw(0, 1)
    assert cli.main(["data", "tabletop", "--png", "--scenes", "1", "--out", str(tmp_path)]) == 0
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
        assert o["kind"] in KINDS
        assert o["color"] in COLORS
