"""Other tables and lights: what stays on its object, what changes, and what decides it."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from drawn_scenes import draw_scene

from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.training.augment import (
    RIM_CELLS,
    on_another_table,
    relit,
    texture_bank,
    unevenly_lit,
    unsharp,
)


@pytest.fixture
def scene() -> Scene:
    """Two blocks on a picture of 112 pixels; a cell of the instance map is two of them."""
    drawn = draw_scene(
        112, [("block", "red", (10, 10, 34, 34)), ("block", "blue", (70, 60, 100, 96))]
    )
    return replace(drawn, instances=np.ascontiguousarray(drawn.instances[::2, ::2]))


def test_another_table_leaves_the_objects_and_changes_what_lies_far_from_them(
    scene: Scene,
) -> None:
    objects = cv2.resize(scene.instances, (112, 112), interpolation=cv2.INTER_NEAREST) > 0
    reach = 2 * 2 * RIM_CELLS + 13  # of the rim, then of its blur (three sigmas)
    near = cv2.dilate(objects.astype(np.uint8), np.ones((2 * reach + 1,) * 2, np.uint8)) > 0
    for seed in range(12):
        found = on_another_table(scene.image, scene.instances, np.random.default_rng(seed))
        assert found.shape == scene.image.shape
        assert found.dtype == np.uint8
        change = np.abs(found.astype(int) - scene.image)
        assert change[objects].max() <= 2, "rounding, and the last of the blur"
        assert change[~near].mean() > 5


def test_uneven_light_is_smooth_and_keeps_the_mean_about() -> None:
    plain = np.full((112, 112, 3), 100, np.uint8)
    means = []
    for seed in range(40):
        found = unevenly_lit(plain, np.random.default_rng(seed)).astype(int)
        assert np.abs(np.diff(found, axis=0)).max() <= 8, "no edge of its own"
        assert found.std() > 1
        means.append(found.mean())
    assert np.mean(means) == pytest.approx(100, abs=8)


def test_unsharp_blurs_coarsens_compresses_or_adds_noise(scene: Scene) -> None:
    found = [unsharp(scene.image, np.random.default_rng(seed)) for seed in range(20)]
    rough = [np.abs(np.diff(image.astype(int))).mean() for image in found]
    before = np.abs(np.diff(scene.image.astype(int))).mean()
    assert min(rough) < before < max(rough)
    for image in found:
        assert image.shape == scene.image.shape
        assert image.dtype == np.uint8
        assert np.abs(image.astype(float).mean() - scene.image.mean()) < 4
        channels = image.mean(axis=(0, 1)) - scene.image.mean(axis=(0, 1))
        assert np.abs(channels).max() < 6, "red stays red"


def test_the_generator_alone_decides_and_tables_are_left_alone_unless_asked_for(
    scene: Scene,
) -> None:
    changed = {False: 0, True: 0}
    for seed in range(60):
        for tables in (False, True):
            found, again = (
                relit(scene.image, scene.instances, np.random.default_rng(seed), tables=tables)
                for _ in range(2)
            )
            np.testing.assert_array_equal(found, again)
            changed[tables] += not np.array_equal(found, scene.image)
    assert 15 < changed[False] < changed[True] < 60


def test_the_bank_does_not_show_what_is_kept_for_measuring() -> None:
    """`rich-unseen` alone has terrazzo and herringbone; the same seed would draw them again."""
    from clue_ros.lab.simulator import textures

    rng = np.random.default_rng(0)
    makers = (textures.noise, textures.wood, textures.marble, textures.tiles, *textures.CLOTHS)
    for i, texture in enumerate(texture_bank()):
        np.testing.assert_array_equal(texture, makers[i % len(makers)](rng))
