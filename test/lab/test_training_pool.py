"""Augmentation keeps every box on its object; dense targets say what is under each patch."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from drawn_scenes import RGB, draw_scene, random_scenes
from transformers.models.siglip.configuration_siglip import SiglipVisionConfig

from clue_ros.lab.data.it2p import It2pImage
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.worlds import BLOCKS
from clue_ros.lab.training.augment import (
    Picture,
    ScenePool,
    exposed,
    mirrored,
    shifted,
    turned,
)
from clue_ros.lab.training.vision import (
    LOC_BINS,
    DenseHeads,
    DenseTargets,
    batch_tensor,
    dense_loss,
    dense_targets,
    side_bins,
    sincos,
    soft_bins,
)
from clue_ros.model.prompts import build_processor, build_tokenizer

KINDS, COLORS = BLOCKS.kinds, tuple(BLOCKS.colors)
RED, BLUE = ("block", "red", (2, 4, 6, 12)), ("ball", "blue", (10, 2, 14, 6))


def mask_box(scene: Scene, index: int) -> list[float]:
    """Bounding box of an object's cells, fractions of the picture."""
    ys, xs = np.nonzero(scene.instances == index + 1)
    side = scene.instances.shape[0]
    return [xs.min() / side, ys.min() / side, (xs.max() + 1) / side, (ys.max() + 1) / side]


def assert_in_place(scene: Scene, tolerance: float, *, colors: bool = True) -> None:
    """Every box is around its mask, and the picture shows the object's colour there."""
    size = scene.image.shape[0]
    for k, o in enumerate(scene.objects):
        np.testing.assert_allclose(mask_box(scene, k), o.box, atol=tolerance)
        x, y = (int(v * size) for v in o.center)
        if colors:
            np.testing.assert_allclose(scene.image[y, x], RGB[o.color], atol=3)


def scenes_of(count: int, size: int = 128) -> list[Scene]:
    """Scenes whose masks are as fine as their pictures."""
    rng = np.random.default_rng(4)
    out = []
    for _ in range(count):
        side, x, y = (int(v) for v in rng.integers(18, 40, 3))
        first = ("block", str(rng.choice(COLORS)), (x, y, x + side, y + side))
        x, y = x + side + int(rng.integers(0, 20)), y + int(rng.integers(0, 40))
        second = ("ball", str(rng.choice(COLORS)), (x, y, x + 20, y + 20))
        out.append(draw_scene(size, [first, second]))
    return out


def test_mirrored_and_turned_by_hand() -> None:
    scene = draw_scene(16, [RED, BLUE])
    boxes: dict[str, tuple[Scene, list[tuple[int, int, int, int]]]] = {
        "as it is": (mirrored(scene, (False, False)), [(2, 4, 6, 12), (10, 2, 14, 6)]),
        "left-right": (mirrored(scene, (True, False)), [(10, 4, 14, 12), (2, 2, 6, 6)]),
        "top-bottom": (mirrored(scene, (False, True)), [(2, 4, 6, 12), (10, 10, 14, 14)]),
        "both": (mirrored(scene, (True, True)), [(10, 4, 14, 12), (2, 10, 6, 14)]),
        "a quarter": (turned(scene, 1), [(4, 10, 12, 14), (2, 2, 6, 6)]),
        "half": (turned(scene, 2), [(10, 4, 14, 12), (2, 10, 6, 14)]),
        "three quarters": (turned(scene, 3), [(4, 2, 12, 6), (10, 10, 14, 14)]),
    }
    for name, (found, expected) in boxes.items():
        assert [o.box for o in found.objects] == [
            pytest.approx([v / 16 for v in box]) for box in expected
        ], name
        assert [(o.kind, o.color) for o in found.objects] == [("block", "red"), ("ball", "blue")]
        assert_in_place(found, 1e-9)
    assert np.array_equal(turned(scene, 4).image, scene.image)


@pytest.mark.parametrize(
    "augment",
    [
        lambda scene, rng: shifted(scene, rng),
        lambda scene, rng: shifted(turned(mirrored(scene, (True, False)), 1), rng),
    ],
)
def test_shifting_keeps_boxes_on_their_objects_and_inside(
    augment: Callable[[Scene, np.random.Generator], Scene],
) -> None:
    rng = np.random.default_rng(0)
    moved = 0.0
    for scene in scenes_of(40):
        found = augment(scene, rng)
        assert_in_place(found, 1.6 / 128)
        for o, before in zip(found.objects, scene.objects, strict=True):
            assert 0 <= o.box[0] < o.box[2] <= 1
            assert 0 <= o.box[1] < o.box[3] <= 1
            moved = max(moved, abs(o.box[0] - before.box[0]))
    assert moved > 0.05, "shifting does shift"


def test_objects_that_fill_the_picture_stay_inside() -> None:
    rng = np.random.default_rng(1)
    wide = draw_scene(
        128, [("block", "red", (1, 1, 30, 30)), ("block", "blue", (97, 97, 127, 127))]
    )
    for _ in range(30):
        found = shifted(wide, rng)
        assert_in_place(found, 1.6 / 128)


def test_a_picture_without_objects_can_be_shifted() -> None:
    empty = draw_scene(16, [])
    assert shifted(empty, np.random.default_rng(0)).objects == ()


def test_a_pool_resizes_and_augments(scenes: list[Scene]) -> None:
    photos = ScenePool(scenes, 64, [It2pImage] * 6)  # type: ignore[list-item]
    assert len(photos) == 6
    mirrors = set()
    for i in range(60):
        seen = photos.augmented(i % 6, np.random.default_rng(i), turns=i % 2 == 0)
        mirrors.add(seen.mirror)
        assert seen.scene.image.shape == (64, 64, 3)
        assert seen.scene.image.dtype == np.uint8
        # masks have 56 cells a side: a box ends within a cell or so of its mask
        assert_in_place(seen.scene, 2 / 56, colors=False)
        again = photos.augmented(i % 6, np.random.default_rng(i), turns=i % 2 == 0)
        assert same(seen, again), "decided by the generator alone"
    assert mirrors == {(a, b) for a in (False, True) for b in (False, True)}


def test_simulated_scenes_are_not_mirrored_top_to_bottom(scenes: list[Scene]) -> None:
    pool = ScenePool(scenes, 64)
    seen = [pool.augmented(0, np.random.default_rng(i), turns=True) for i in range(20)]
    assert {picture.mirror for picture in seen} == {(False, False), (True, False)}
    assert not any(picture.record for picture in seen)


@pytest.fixture
def scenes() -> list[Scene]:
    """Six scenes of 128 pixels."""
    return list(random_scenes(6, 0, size=128))


def same(a: Picture, b: Picture) -> bool:
    return a.mirror == b.mirror and np.array_equal(a.scene.image, b.scene.image)


def test_exposure_changes_brightness_and_keeps_order() -> None:
    ramp = np.tile(np.arange(256, dtype=np.uint8)[:, None, None], (1, 4, 3))
    changed = 0
    for seed in range(10):
        found = exposed(ramp, np.random.default_rng(seed))
        assert found.shape == ramp.shape
        brightness = found[:, 0].mean(axis=-1)
        assert (np.diff(brightness) >= -1).all(), "darker stays darker"
        changed += not np.array_equal(found, ramp)
    assert changed == 10


def test_exposure_changes_saturation_and_keeps_the_hue() -> None:
    teal = np.full((4, 4, 3), (40, 120, 110), dtype=np.uint8)
    spread = []
    for seed in range(20):
        red, green, blue = exposed(teal, np.random.default_rng(seed))[0, 0].astype(int)
        assert red < min(green, blue)
        spread.append(green - red)
    assert min(spread) < 60 < 90 < max(spread)


def test_pixels_are_those_of_the_processor() -> None:
    (scene,) = random_scenes(1, 3)
    pictures = build_processor(build_tokenizer(["a"]), 64, 64).image_processor
    expected = pictures([scene.image], return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(batch_tensor([scene], torch.device("cpu")), expected)


# --- dense targets


def test_soft_bins_sum_to_one_and_peak_at_their_value() -> None:
    values = torch.tensor([[0.0, 17.0], [511.6, 1023.0]])
    for sigma in (1.5, 8.0, 16.0):
        found = soft_bins(values, sigma)
        assert found.shape == (2, 2, LOC_BINS)
        torch.testing.assert_close(found.sum(-1), torch.ones(2, 2))
        assert found.argmax(-1).tolist() == [[0, 17], [512, 1023]]
    inside = soft_bins(torch.tensor([300.25]), 8.0)[0]
    bins = torch.arange(LOC_BINS)
    mean = float((inside * bins).sum())
    assert mean == pytest.approx(300.25, abs=1e-3)
    assert float((inside * (bins - mean) ** 2).sum()) == pytest.approx(64, rel=1e-2)


def test_side_bins_are_in_the_order_of_location_tokens() -> None:
    assert side_bins((0.0, 0.25, 0.5, 1.0)) == pytest.approx([255.75, 0, 1023, 511.5])


def test_dense_targets_by_hand() -> None:
    first = draw_scene(16, [("block", "red", (0, 0, 8, 4)), ("ball", "blue", (12, 12, 16, 16))])
    second = draw_scene(16, [("block", "white", (4, 4, 8, 5))])
    empty = draw_scene(16, [])
    targets = dense_targets([first, empty, second], 4, KINDS, COLORS)
    owner = targets.owner.view(3, 4, 4)
    assert owner[0].tolist() == [[0, 0, -1, -1], [-1] * 4, [-1] * 4, [-1, -1, -1, 1]]
    assert owner[1].tolist() == [[-1] * 4] * 4
    # a quarter of a patch is neither an object nor the table
    assert owner[2].tolist() == [[-1] * 4, [-1, -2, -1, -1], [-1] * 4, [-1] * 4]
    assert [KINDS[k] for k in targets.kinds.tolist()] == ["block", "ball", "block"]
    assert [COLORS[c] for c in targets.colors.tolist()] == ["red", "blue", "white"]
    assert targets.sides.shape == (3, 4)
    assert targets.sides[0].tolist() == pytest.approx(side_bins((0, 0, 0.5, 0.25)))


def test_dense_loss_falls_to_nothing_when_every_head_is_right() -> None:
    """Heads set by hand to read one-hot features: kinds, colours and objectness all right."""
    scenes = [draw_scene(16, [("block", "red", (0, 0, 4, 4)), ("ball", "blue", (12, 12, 16, 16))])]
    targets = dense_targets(scenes, 4, KINDS, COLORS)
    config = SiglipVisionConfig(hidden_size=8)
    heads = DenseHeads(config.hidden_size, KINDS, COLORS)
    features = torch.zeros(1, 16, 8)
    features[0, 0, 0], features[0, 15, 1] = 1, 1  # the red block's patch, the blue ball's
    with torch.no_grad():
        for layer in (heads.object, heads.kind, heads.color):
            layer.weight.zero_()
            layer.bias.zero_()
        heads.object.weight[0, :2] = 40
        heads.object.bias[0] = -20
        for column, (kind, color) in enumerate((("block", "red"), ("ball", "blue"))):
            heads.kind.weight[KINDS.index(kind), column] = 40
            heads.color.weight[COLORS.index(color), column] = 40
        found = dense_loss(features, heads, targets, 2.0)
        swapped = dense_loss(features.flip(1), heads, targets, 2.0)
    assert float(found["object"]) == pytest.approx(0, abs=1e-6)
    assert (float(found["kind_right"]), float(found["color_right"])) == (1, 1)
    assert (float(swapped["kind_right"]), float(swapped["color_right"])) == (0, 0)
    assert float(swapped["loss"]) > float(found["loss"]) + 50


def test_an_object_of_four_patches_weighs_twice_one_of_a_single_patch() -> None:
    heads = DenseHeads(8, KINDS, COLORS)
    targets = DenseTargets(
        owner=torch.tensor([0, 1, 1, 1, 1, -1]),
        kinds=torch.tensor([0, 1]),
        colors=torch.tensor([0, 0]),
        sides=torch.zeros(2, 4),
    )
    features = torch.zeros(1, 6, 8, requires_grad=True)
    torch.autograd.backward(dense_loss(features, heads, targets, 4.0)["loss"])
    # every patch has the same features: the gradients at the kind head's bias are the weights
    bias = heads.kind.bias.grad
    assert bias is not None
    chance = heads.kind.bias.detach().softmax(0)
    weights = torch.zeros_like(bias)
    weights[:2] = torch.tensor([1.0, 4 * 0.5]) / 3
    torch.testing.assert_close(bias, 2 * (chance - weights))


def test_sincos_is_smooth_and_tells_positions_apart() -> None:
    table = sincos(LOC_BINS, 32, 2.0 * LOC_BINS, 0.2)
    assert table.shape == (LOC_BINS, 32)
    assert float(table.abs().max()) <= 0.2 + 1e-6
    near = (table[1:] - table[:-1]).norm(dim=1).max()
    apart = (table[0] - table[100:]).norm(dim=1).min()
    assert near < 0.5 * apart
