"""Equations 1 and 2, and the peaks of the map."""

from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest
import torch

from clue_ros.model.attention import attention_map, image_attention, min_max
from clue_ros.model.peaks import find_peaks, peak_masks

Array = npt.NDArray[Any]


def by_hand(attention: Array, mask: Array, grid: int) -> Array:
    """Equations 1 and 2 as they are written, one loop for each sum."""
    batch, heads, queries, _ = attention.shape
    maps = np.zeros((batch, grid * grid))
    for b in range(batch):
        rows = []
        for h in range(heads):
            for q in range(queries):
                if mask[b, q]:
                    row = attention[b, h, q, : grid * grid]
                    rows.append(row / (row.sum() + 1e-8))
        maps[b] = np.mean(rows, axis=0)
    return maps.reshape(batch, grid, grid)


def random_case(
    seed: int = 0, batch: int = 3, heads: int = 2, grid: int = 4, text: int = 5
) -> tuple[torch.Tensor, torch.Tensor, int]:
    generator = torch.Generator().manual_seed(seed)
    length = grid * grid + text
    logits = torch.randn(batch, heads, length, length, generator=generator)
    mask = torch.zeros(batch, length, dtype=torch.bool)
    for b in range(batch):
        mask[b, grid * grid + 1 : grid * grid + 2 + b] = True
    return logits.softmax(-1), mask, grid


def test_equations_1_and_2() -> None:
    attention, mask, grid = random_case()
    maps = image_attention(attention, mask, grid)
    assert maps.shape == (3, 4, 4)
    np.testing.assert_allclose(maps, by_hand(attention.numpy(), mask.numpy(), grid), atol=1e-6)
    np.testing.assert_allclose(maps.sum((1, 2)), 1, atol=1e-5)


def test_a_batch_gives_what_single_samples_give() -> None:
    attention, mask, grid = random_case()
    together = attention_map(attention, mask, grid)
    for i in range(3):
        alone = attention_map(attention[i : i + 1], mask[i : i + 1], grid)
        torch.testing.assert_close(alone[0], together[i])


def test_min_max_is_per_sample_and_flat_maps_are_zero() -> None:
    maps = torch.stack([torch.arange(4.0).view(2, 2), torch.full((2, 2), 7.0)])
    stretched = min_max(maps)
    torch.testing.assert_close(stretched[0].flatten(), torch.tensor([0, 1 / 3, 2 / 3, 1]))
    assert (stretched[1] == 0).all()


def test_no_query_gives_an_empty_map_and_no_nan() -> None:
    attention, mask, grid = random_case()
    maps = attention_map(attention, torch.zeros_like(mask), grid)
    assert torch.equal(maps, torch.zeros_like(maps))


def test_the_map_is_differentiable() -> None:
    attention, mask, grid = random_case()
    logits = attention.log().requires_grad_()
    total: Any = attention_map(logits.softmax(-1), mask, grid)[:, 1, 1].sum()
    total.backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert logits.grad.abs().sum() > 0


def hills(
    *places: tuple[float, float, float], grid: int = 14, width: float = 1.2
) -> npt.NDArray[np.float32]:
    y, x = np.mgrid[:grid, :grid]
    total = sum(
        tall * np.exp(-((y - row) ** 2 + (x - column) ** 2) / (2 * width**2))
        for row, column, tall in places
    )
    values: npt.NDArray[np.float32] = (total / total.max()).astype(np.float32)
    return values


@pytest.mark.parametrize("grid", [8, 14, 32])
def test_each_hill_is_one_peak_at_its_place(grid: int) -> None:
    scale = grid / 14
    places = [(3, 3, 1.0), (10, 4, 0.9), (6, 11, 0.7)]
    values = hills(*[(r * scale, c * scale, t) for r, c, t in places], grid=grid, width=1.2 * scale)
    peaks = find_peaks(values, 640, 480)
    assert len(peaks) == 3
    assert [peak.score for peak in peaks] == sorted((p.score for p in peaks), reverse=True)
    for peak, (row, column, tall) in zip(peaks, places, strict=True):
        x, y = peak.box.center
        assert abs(x - (column * scale + 0.5) / grid * 640) < 640 / grid
        assert abs(y - (row * scale + 0.5) / grid * 480) < 480 / grid
        assert peak.score == pytest.approx(tall, abs=0.1)


def test_low_hills_are_no_peaks_and_a_flat_map_has_none() -> None:
    assert len(find_peaks(hills((3, 3, 1.0), (10, 10, 0.2)), 100, 100)) == 1
    assert find_peaks(np.zeros((14, 14), np.float32), 100, 100) == ()


def test_ripples_on_one_hill_are_one_peak() -> None:
    values = hills((7, 7, 1.0), width=3)
    ripples = np.random.default_rng(0).normal(0, 0.01, values.shape).astype(np.float32)
    assert len(find_peaks(np.clip(values + ripples, 0, 1), 100, 100)) == 1


def test_plateaus_end_and_boxes_stay_inside() -> None:
    values = np.zeros((6, 6), np.float32)
    values[0, :] = values[:, 0] = values[5, 3:] = 1.0
    for peak in find_peaks(values, 30, 60):
        assert 0 <= peak.box.x_min < peak.box.x_max <= 30
        assert 0 <= peak.box.y_min < peak.box.y_max <= 60
    assert len(find_peaks(values, 30, 60)) == 2
    assert len(find_peaks(np.ones((5, 5), np.float32), 10, 10)) == 1


@pytest.mark.parametrize(("row", "column", "sigma"), [(6.0, 7.0, 1.5), (5.3, 8.6, 1.2)])
def test_a_peaks_box_is_finer_than_a_patch(row: float, column: float, sigma: float) -> None:
    y, x = np.mgrid[:14, :14]
    hill = np.exp(-((y - row) ** 2 + (x - column) ** 2) / (2 * sigma**2)).astype(np.float32)
    (peak,) = find_peaks(hill, 224, 224)  # patches of 16 px
    half = 16 * sigma * np.sqrt(2 * np.log(2))  # where the hill is half as high
    for found, middle in zip(peak.box.center, (column, row), strict=True):
        assert abs(found - 16 * (middle + 0.5)) < 4
    for side in (peak.box.x_max - peak.box.x_min, peak.box.y_max - peak.box.y_min):
        assert abs(side - 2 * half) < 10


def test_a_peaks_mask_fills_its_box_and_leaves_the_other_hill() -> None:
    values = hills((3, 3, 1.0), (10, 10, 0.8))
    masks = []
    for peak in find_peaks(values, 640, 480):
        (mask,) = peak_masks(values, (peak,), 640, 480)
        assert mask.shape == (480, 640)
        ys, xs = np.nonzero(mask)
        sides = (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
        assert np.abs(np.array(sides) - peak.box.as_list()).max() <= 1
        assert peak.point is not None
        assert mask[int(peak.point[1]), int(peak.point[0])]
        masks.append(mask)
    assert len(masks) == 2
    assert not (masks[0] & masks[1]).any()
    assert 0.6 < masks[0].sum() / masks[0][masks[0].any(1)][:, masks[0].any(0)].size < 0.95


def test_a_lone_bright_patch_keeps_its_box() -> None:
    values = np.zeros((8, 8), np.float32)
    values[2, 5] = 1.0
    (peak,) = find_peaks(values, 80, 80)
    assert peak.box.x_min <= 50 < 60 <= peak.box.x_max
    assert peak.box.y_min <= 20 < 30 <= peak.box.y_max
    assert peak.point == (55.0, 25.0)


@pytest.mark.parametrize("seed", range(8))
def test_a_peaks_region_is_what_opencv_cuts_out(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def hill() -> npt.NDArray[np.float64]:
        top = rng.integers(2, 16)
        return np.concatenate([np.sort(rng.random(top)), [1.0], -np.sort(-rng.random(17 - top))])

    attention = np.outer(hill(), hill()).astype(np.float32)
    peaks = find_peaks(attention, 72, 72)
    assert len(peaks) == 1
    (found,) = peak_masks(attention, peaks, 72, 72)
    finer = cv2.resize(attention, (72, 72), interpolation=cv2.INTER_CUBIC)
    row, column = (4 * int(place) for place in np.unravel_index(attention.argmax(), (18, 18)))
    inside = (finer >= 0.5).astype(np.uint8)
    inside[row : row + 4, column : column + 4] = 1
    _, labels = cv2.connectedComponents(inside, connectivity=8)
    assert np.array_equal(found, labels == labels[row, column])
