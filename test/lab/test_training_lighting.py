"""Other tables and lights: what stays on its object, what changes, and what decides it."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
from drawn_scenes import draw_scene

from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.training.augment import (
    RIM_CELLS,
    developed,
    on_another_table,
    relit,
    texture_bank,
    unevenly_lit,
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


def test_a_cheaper_camera_softens_sharpens_and_adds_noise(scene: Scene) -> None:
    found = [developed(scene.image, np.random.default_rng(seed)) for seed in range(60)]
    rough = [np.abs(np.diff(image.astype(int), axis=0)).mean() for image in found]
    before = np.abs(np.diff(scene.image.astype(int), axis=0)).mean()
    assert min(rough) < 0.8 * before
    assert max(rough) > 2 * before
    for image in found:
        assert image.shape == scene.image.shape
        assert image.dtype == np.uint8
        red, _, blue = image[10:34, 10:34].reshape(-1, 3).mean(axis=0)
        assert red > blue + 20, "red stays red"
        red, _, blue = image[60:96, 70:100].reshape(-1, 3).mean(axis=0)
        assert blue > red + 20, "blue stays blue"


def test_a_cheaper_camera_keeps_the_mean_and_changes_contrast_and_saturation() -> None:
    """A picture without edges: what sharpening and blur leave alone."""
    ramp = np.linspace(60, 180, 112)[:, None, None] * np.array([1.1, 1.0, 0.8])
    image = np.broadcast_to(ramp, (112, 112, 3)).astype(np.uint8)
    contrast, saturation = [], []
    for seed in range(60):
        found = developed(image, np.random.default_rng(seed)).astype(float)
        assert found.mean() == pytest.approx(image.mean(), abs=6)
        contrast.append(found[90:].mean() - found[:22].mean())
        saturation.append(found[..., 0].mean() - found[..., 2].mean())
    known = image.astype(float)
    was = known[90:].mean() - known[:22].mean()
    assert min(contrast) < 0.9 * was < 1.4 * was < max(contrast)
    was = known[..., 0].mean() - known[..., 2].mean()
    assert min(saturation) < 0.9 * was < 1.3 * was < max(saturation)


def test_noise_is_mostly_weak_and_sometimes_strong() -> None:
    plain = np.full((112, 112, 3), 128, np.uint8)
    spread = [developed(plain, np.random.default_rng(seed)).std() for seed in range(200)]
    noisy = sorted(s for s in spread if s > 1.5)
    assert 60 < len(noisy) < 140, "half of them"
    assert noisy[len(noisy) // 4] < 8
    assert noisy[-1] > 18


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
