"""The worlds: what each says of itself, and that its pictures are true and reproducible."""

from __future__ import annotations

import colorsys
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest
import scene_helpers

from clue_ros import cli
from clue_ros.lab.simulator.optics import (
    INSTANCE_GRID,
    distort,
    full_instance_grid,
    silhouette,
    visible_share,
)
from clue_ros.lab.simulator.physics import TALLEST, SettledWorld, open_world
from clue_ros.lab.simulator.render import TabletopWorld
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.spec import WorldSpec
from clue_ros.lab.simulator.worlds import BLOCKS, RICH, RICH_UNSEEN, WORLDS, world_spec

SEED = 11
# The first scenes of SEED in the world blocks, as it was before there were others.
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
SHAPES = {
    "blocks": {(224, 224, 3), (240, 320, 3)},
    "rich": {(300, 300, 3), (300, 400, 3)},
    "rich-unseen": {(300, 300, 3), (300, 400, 3)},
}
# Too thin, shiny or transparent, or mostly of a colour of their own.
UNCLEAR = {"fork", "spoon", "knife", "glass", "jar", "pan", "box", "book", "egg", "donut", "pen"}


def draw(spec: WorldSpec, count: int, seed: int = SEED) -> list[Scene]:
    """Scenes of a world; skips the test where nothing renders."""
    return scene_helpers.draw(lambda: open_world(spec, seed), count)


@pytest.fixture(scope="module", params=[name for name in WORLDS if name in SHAPES])
def spec(request: pytest.FixtureRequest) -> WorldSpec:
    return world_spec(request.param)


@pytest.fixture(scope="module")
def rendered(spec: WorldSpec) -> list[Scene]:
    """Eight scenes of a world, shared by the tests."""
    return draw(spec, 8)


# --- what the worlds say


def test_an_unknown_world_is_named_with_those_there_are() -> None:
    assert world_spec("blocks") is BLOCKS
    with pytest.raises(ValueError, match=r"'moon'.*blocks, rich"):
        world_spec("moon")


def test_the_rich_world_has_many_kinds_and_colors() -> None:
    assert len(RICH.kinds) >= 20
    assert RICH.kinds == tuple(RICH.objects)
    asked = "mug bottle can bowl plate ball block box banana apple fork spoon"
    assert set(asked.split()) <= set(RICH.kinds)
    assert len(RICH.colors) >= 10
    assert all(BLOCKS.colors[c] == RICH.colors[c] for c in BLOCKS.colors), "a name means one colour"


def test_the_unseen_twin_differs_in_table_light_and_lens_alone() -> None:
    assert RICH_UNSEEN.nouns == RICH.nouns
    assert RICH_UNSEEN.colors == RICH.colors
    assert RICH_UNSEEN.camera == RICH.camera
    assert RICH.settling is not None
    assert RICH_UNSEEN.settling is not None
    assert RICH_UNSEEN.settling.octagon
    assert not RICH.settling.octagon
    assert RICH_UNSEEN.settling.lens[0] > RICH.settling.lens[1]
    for name in ("key", "fill", "ambient", "height"):
        (a, b), (c, d) = (getattr(s.light, name) for s in (RICH, RICH_UNSEEN))
        assert b < c or d < a, name
    assert RICH_UNSEEN.surfaces.make is not RICH.surfaces.make


def test_each_world_has_its_own_drawer() -> None:
    assert type(open_world(BLOCKS, 0)) is TabletopWorld
    assert type(open_world(RICH, 0)) is SettledWorld


# --- pictures of every world


def test_the_same_seed_gives_the_same_scenes_bit_for_bit(
    spec: WorldSpec, rendered: list[Scene]
) -> None:
    for a, b in zip(draw(spec, 2), rendered, strict=False):
        assert np.array_equal(a.image, b.image)
        assert a.objects == b.objects
        assert np.array_equal(a.instances, b.instances)
        assert (a.masks is None) == (b.masks is None) == (spec.settling is None)
        assert a.masks is None or b.masks is None or np.array_equal(a.masks, b.masks)
    assert not any(np.array_equal(a.image, b.image) for a, b in pairwise(rendered))


@pytest.mark.parametrize("spec", ["blocks"], indirect=True)
def test_another_seed_gives_another_scene(rendered: list[Scene]) -> None:
    assert rendered[0].objects != draw(BLOCKS, 1, SEED + 1)[0].objects


def test_a_scene_is_what_its_world_says(spec: WorldSpec, rendered: list[Scene]) -> None:
    for scene in rendered:
        assert scene.image.dtype == np.uint8
        assert scene.image.shape in SHAPES[spec.name]
        assert scene.image.flags.c_contiguous
        assert scene.image.std() > 5, "an empty picture"
        assert scene.instances.shape == (INSTANCE_GRID, INSTANCE_GRID)
        kinds = [o.kind for o in scene.objects]
        assert 2 <= len(kinds) <= (6 if spec.settling is None else spec.settling.objects[1])
        assert set(kinds) <= set(spec.kinds)
        assert {o.color for o in scene.objects} <= set(spec.colors)
        if spec is not BLOCKS:
            assert len(set(kinds)) < len(kinds), "no look-alikes"
        assert set(np.unique(scene.instances)) == set(range(len(kinds) + 1))
        for o in scene.objects:
            x0, y0, x1, y1 = o.box
            assert 0 < x0 < x1 < 1
            assert 0 < y0 < y1 < 1
            sides = x1 - x0, y1 - y0
            assert (min if spec.settling is None else max)(sides) >= spec.min_side
            assert spec.min_visible <= o.visible <= 1


def test_boxes_tightly_hold_the_masks(spec: WorldSpec, rendered: list[Scene]) -> None:
    cell = 1 / INSTANCE_GRID
    for scene in rendered:
        for k, o in enumerate(scene.objects, 1):
            if scene.masks is not None:
                assert scene.masks.shape == scene.image.shape[:2]
                ys, xs = np.nonzero(scene.masks == k)
                tight = (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
                size = scene.masks.shape[::-1] * 2
                assert o.box == pytest.approx(tuple(np.divide(tight, size)))
            elif spec is BLOCKS:
                ys, xs = np.nonzero(scene.instances == k)
                # A cell holds the pixel at its upper left; round things end between two cells.
                for cells, low, high in ((xs, o.box[0], o.box[2]), (ys, o.box[1], o.box[3])):
                    assert low - 0.5 * cell <= cells.min() * cell <= low + 2 * cell
                    assert high - 2.5 * cell <= cells.max() * cell < high
                share = len(xs) / scene.instances.size
                assert share > 0.3 * (o.box[2] - o.box[0]) * (o.box[3] - o.box[1])


def test_objects_show_the_colors_they_are_called_by(spec: WorldSpec, rendered: list[Scene]) -> None:
    checked = 0
    for scene in rendered:
        size = scene.image.shape[1::-1]
        masks = scene.masks
        if masks is None:
            masks = np.asarray(cv2.resize(scene.instances, size, interpolation=cv2.INTER_NEAREST))
        for k, o in enumerate(scene.objects, 1):
            red, green, blue = np.median(scene.image[masks == k], axis=0) / 255
            hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
            (low, high), (least, _), _ = spec.colors[o.color]
            if o.color == "black":
                assert value < 0.35, o
            elif spec is BLOCKS and o.color == "white":
                assert saturation < 0.3, o
            elif least > 0.3 and o.kind not in UNCLEAR and value > 0.15:
                off = min(abs(hue + turn - (low + high) / 2) for turn in (-1, 0, 1))
                assert off < (high - low) / 2 + 0.06, (o, hue)
                checked += 1
    assert checked > 5


# --- pictures of one world


@pytest.mark.parametrize("spec", ["blocks"], indirect=True)
def test_the_world_of_blocks_draws_what_it_drew_before_there_were_others(
    rendered: list[Scene],
) -> None:
    """Shards that were made once must not change: objects and boxes of the first scenes."""
    scenes = rendered[:3]
    assert [[f"{o.color} {o.kind}" for o in scene.objects] for scene in scenes] == FIRST
    boxes = np.array([scene.objects[0].box for scene in scenes])
    np.testing.assert_allclose(boxes, FIRST_BOXES, atol=0.02)  # renderers differ by a pixel


@pytest.mark.parametrize("spec", ["rich"], indirect=True)
def test_objects_overlap_in_pictures_and_some_are_hidden_in_part(rendered: list[Scene]) -> None:
    shares = [o.visible for scene in rendered for o in scene.objects]
    assert min(shares) < 0.97
    assert np.mean(np.array(shares) > 0.98) > 0.3, "most can be seen well"


@pytest.mark.usefixtures("rendered")  # skips where nothing renders
@pytest.mark.parametrize("spec", ["rich"], indirect=True)
def test_what_fell_lies_still_on_the_table() -> None:
    world = SettledWorld(RICH, SEED)
    world.scene()
    lowest = [float(world.points(o)[:, 2].min()) for _ in range(6) for o in world.settle()]
    world.close()
    assert len(lowest) > 20
    assert min(lowest) > -0.006, "a contact is a little soft"
    assert max(lowest) < TALLEST
    assert np.mean(np.array(lowest) < 0.004) > 0.8, "the others lie on something"


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


# --- optics


def test_a_hidden_share_is_that_of_the_objects_own_outline() -> None:
    corners = np.array([[10.0, 10], [30, 10], [30, 30], [10, 30]])
    faces = np.array([[0, 2, 1], [0, 3, 2]])  # clockwise on the screen: towards us
    alone = silhouette(corners, faces, (40, 40)) | silhouette(corners, faces[:, ::-1], (40, 40))
    assert alone.sum() == pytest.approx(400, rel=0.12)
    masks = np.zeros((40, 40), np.uint8)
    masks[10:30, 10:30] = 1
    assert visible_share(masks, 1, alone) == 1
    masks[10:30, 20:40] = 2
    assert visible_share(masks, 1, alone) == pytest.approx(0.5, abs=0.04)
    assert visible_share(masks, 3, alone & False) == 0


@pytest.mark.parametrize("k", [-0.12, 0.0, 0.1])
def test_a_lens_bends_picture_and_masks_alike(k: float) -> None:
    masks = np.zeros((60, 80), np.uint8)
    masks[10:20, 50:70] = 3
    image = np.repeat(masks[..., None] * 80, 3, axis=2).astype(np.uint8)
    out, numbers = distort(image, masks, k)
    assert out.shape == image.shape
    same = (out[..., 0] > 120) == (numbers == 3)
    assert same.mean() > 0.97
    assert np.array_equal(numbers, masks) == (k == 0)


def test_a_thin_object_keeps_a_cell_of_the_instance_grid() -> None:
    masks = np.zeros((400, 400), np.uint8)
    masks[100:300, 203:205] = 1
    assert not np.any(cv2.resize(masks, (56, 56), interpolation=cv2.INTER_NEAREST) == 1)
    assert np.count_nonzero(full_instance_grid(masks, 1) == 1) == 1
