"""Scenes in memory, augmented one picture at a time: the source of every stage's pictures.

A pool holds pictures at the model's input size with their objects and instance maps. Simulated
scenes and IT2P photographs become the same records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.lab.data.it2p import It2pImage
from clue_ros.lab.simulator import textures
from clue_ros.lab.simulator.scene import Image, Scene

NEW_TABLES = 0.4  # share of simulated pictures with another table
UNEVEN_LIGHT = 0.5  # share of pictures with an uneven light
DEVELOPED = 0.6  # share of pictures that a camera's own processing changes
RIM_CELLS = 4  # cells around an object whose table and shadow stay
CROP_MARGIN = (0.05, 0.4)  # around a cropped object, as a share of its box's sides
ZOOM_MARGIN = (0.03, 0.3)  # around the zoomed objects on each side, as a share of their longer side
LARGEST_ZOOM = 0.8  # longer side of a zoomed part, with its margins, as a share of the picture
CUT = 0.02  # share of an object's box that may reach into it from outside
CROP_CELLS = 0.02  # share of a crop that an object covers at least to count as shown
_BANK = 48  # textures to choose from

Mirror = tuple[bool, bool]  # left-right, top-bottom
Shape = tuple[int, ...]  # height and width of a picture
NO_MIRROR: Mirror = (False, False)


@dataclass(frozen=True)
class Picture:
    """An augmented picture, uint8 RGB (S, S, 3), with its objects and instance map.

    mirror: the mirrored axes, which decide the words left and right. record: IT2P's record of a
    photograph. subject: the object at the centre of a crop; None for a whole picture.
    """

    scene: Scene
    mirror: Mirror = NO_MIRROR
    record: It2pImage | None = None
    subject: int | None = None


class ScenePool:
    """Pictures resized to (size, size), with their objects.

    size: None keeps the pictures as they are. records: of a pool of IT2P photographs, in the order
    of the scenes.
    """

    def __init__(
        self, scenes: Iterable[Scene], size: int | None, records: Sequence[It2pImage] | None = None
    ) -> None:
        self.records = records
        self._scenes: list[Scene] = []
        for scene in scenes:
            image: npt.NDArray[Any] = scene.image
            if size is not None:
                image = cv2.resize(image, (size, size), interpolation=cv2.INTER_AREA)
            self._scenes.append(
                Scene(np.asarray(image, dtype=np.uint8), scene.objects, scene.instances)
            )

    def __len__(self) -> int:
        return len(self._scenes)

    def __getitem__(self, index: int) -> Scene:
        return self._scenes[index]

    def record(self, index: int) -> It2pImage | None:
        """IT2P's record of a photograph; None for a simulated scene."""
        return None if self.records is None else self.records[index]

    def augmented(self, index: int, rng: np.random.Generator, *, turns: bool = False) -> Picture:
        """Mirror, shift, scale, relight, expose and develop picture `index` at random.

        Photographs, which show the table from above, are mirrored top to bottom too; simulated
        scenes, whose instance maps are exact, get other tables. turns: also turn photographs by
        multiples of 90 degrees (only without sentences about left or right).
        """
        photos = self.records is not None
        mirror = (bool(rng.uniform() < 0.5), bool(photos and rng.uniform() < 0.5))
        scene = mirrored(self._scenes[index], mirror)
        if turns and photos:
            scene = turned(scene, int(rng.integers(0, 4)))
        scene = shifted(scene, rng)
        return Picture(photographed(scene, rng, tables=not photos), mirror, self.record(index))


def photographed(scene: Scene, rng: np.random.Generator, *, tables: bool) -> Scene:
    """The scene relit, exposed and developed at random. tables: also with another table."""
    image = exposed(relit(scene.image, scene.instances, rng, tables=tables), rng)
    if rng.uniform() < DEVELOPED:
        image = developed(image, rng)
    return Scene(image, scene.objects, scene.instances)


def _with_boxes(
    scene: Scene,
    image: npt.NDArray[np.uint8],
    instances: npt.NDArray[np.uint8],
    boxes: list[tuple[float, float, float, float]],
) -> Scene:
    objects = tuple(replace(o, box=b) for o, b in zip(scene.objects, boxes, strict=True))
    return Scene(np.ascontiguousarray(image), objects, np.ascontiguousarray(instances))


def mirrored(scene: Scene, mirror: Mirror) -> Scene:
    """The scene seen in a mirror: (left-right, top-bottom)."""
    image, instances = scene.image, scene.instances
    boxes = [o.box for o in scene.objects]
    if mirror[0]:
        image, instances = image[:, ::-1], instances[:, ::-1]
        boxes = [(1 - x1, y0, 1 - x0, y1) for x0, y0, x1, y1 in boxes]
    if mirror[1]:
        image, instances = image[::-1], instances[::-1]
        boxes = [(x0, 1 - y1, x1, 1 - y0) for x0, y0, x1, y1 in boxes]
    return _with_boxes(scene, image, instances, boxes)


def turned(scene: Scene, quarters: int) -> Scene:
    """The scene turned anticlockwise by quarter turns."""
    boxes = [o.box for o in scene.objects]
    for _ in range(quarters):
        boxes = [(y0, 1 - x1, y1, 1 - x0) for x0, y0, x1, y1 in boxes]
    return _with_boxes(
        scene, np.rot90(scene.image, quarters), np.rot90(scene.instances, quarters), boxes
    )


def shifted(scene: Scene, rng: np.random.Generator) -> Scene:
    """Scaled and moved at random, with every object kept wholly inside the picture."""
    height, width = scene.image.shape[:2]
    if not scene.objects:
        return scene
    lo = np.min([o.box[:2] for o in scene.objects], axis=0)
    hi = np.max([o.box[2:] for o in scene.objects], axis=0)
    limit = 0.98 / max(float((hi - lo).max()), 0.5)
    scale = float(rng.uniform(0.85, max(0.86, min(1.2, limit))))
    low = np.maximum(0.01 - scale * lo, -0.12 - (scale - 1) / 2)
    high = np.minimum(0.99 - scale * hi, 0.12 - (scale - 1) / 2)
    move = np.where(
        low < high, rng.uniform(np.minimum(low, high), np.maximum(low, high)), (low + high) / 2
    )
    matrix = np.array([[scale, 0, move[0] * width], [0, scale, move[1] * height]])
    image = cv2.warpAffine(scene.image, matrix, (width, height), borderMode=cv2.BORDER_REPLICATE)
    small = scene.instances.shape[0]
    matrix[:, 2] = move * small
    instances = cv2.warpAffine(scene.instances, matrix, (small, small), flags=cv2.INTER_NEAREST)
    boxes = []
    for o in scene.objects:
        b = np.clip(np.array(o.box) * scale + np.tile(move, 2), 0.0, 1.0)
        boxes.append((float(b[0]), float(b[1]), float(b[2]), float(b[3])))
    return _with_boxes(scene, np.asarray(image, np.uint8), np.asarray(instances, np.uint8), boxes)


def cropped(
    scene: Scene, target: int, rng: np.random.Generator, *, keeps_aspect: bool = False
) -> tuple[Scene, int] | None:
    """The picture around an object, resized to the same size, and the object's new index.

    keeps_aspect: the crop is not stretched; its longer side is the picture's.

    The crop has a margin of CROP_MARGIN of the box's sides and, in four draws of ten, sides of
    equal length; otherwise the picture is stretched to a square, as the processor does. Objects of
    which the crop shows little are left out of its objects and stay in its picture. None if too
    little of the object itself is shown.
    """
    x0, y0, x1, y1 = scene.objects[target].box
    width, height = x1 - x0, y1 - y0
    margin = float(rng.uniform(*CROP_MARGIN)) * np.array([width, height])
    half = np.array([width, height]) / 2 + margin
    if rng.uniform() < 0.4:
        half[:] = half.max()
    center = np.array([x0 + x1, y0 + y1]) / 2 + rng.uniform(-0.3, 0.3, 2) * margin
    low, high = np.maximum(center - half, 0), np.minimum(center + half, 1)
    part, shown = _part(scene, low, high, CROP_CELLS, keeps_aspect=keeps_aspect)
    return (part, shown.index(target)) if target in shown else None


def zoomed(scene: Scene, rng: np.random.Generator) -> Scene | None:
    """Crop the picture around some whole objects to show them larger; keep the crop's aspect.

    The part has the objects nearest to one of them, a margin of ZOOM_MARGIN of its sides, and sides
    of at most LARGEST_ZOOM of the picture's. None where it would cut another object.
    """
    count = len(scene.objects)
    if not count:
        return None
    boxes = np.array([o.box for o in scene.objects])
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    target = middles[int(rng.integers(count))]
    order = np.argsort(((middles - target) ** 2).sum(1), kind="stable")
    chosen = order[: int(rng.integers(1, count + 1))]
    low, high = boxes[chosen, :2].min(0), boxes[chosen, 2:].max(0)
    margins = rng.uniform(*ZOOM_MARGIN, (2, 2)) * max(high - low)
    low, high = np.maximum(low - margins[0], 0), np.minimum(high + margins[1], 1)
    short = (high - low).max() / 2 - (high - low)  # no side is less than half of the other
    low, high = np.maximum(low - short.clip(0) / 2, 0), np.minimum(high + short.clip(0) / 2, 1)
    if (high - low).max() > LARGEST_ZOOM:
        return None
    cut = [i for i in range(count) if i not in chosen and _overlap(boxes[i], low, high) > CUT]
    part, shown = _part(scene, low, high, 0.0, keeps_aspect=True)
    return part if not cut and {*shown} == {int(i) for i in chosen} else None


def _overlap(box: npt.NDArray[Any], low: npt.NDArray[Any], high: npt.NDArray[Any]) -> float:
    """The share of a box that lies in a window."""
    sides = np.minimum(box[2:], high) - np.maximum(box[:2], low)
    return float(np.prod(sides.clip(0)) / np.prod(box[2:] - box[:2]))


def _part(
    scene: Scene,
    low: npt.NDArray[Any],
    high: npt.NDArray[Any],
    least: float,
    *,
    keeps_aspect: bool,
) -> tuple[Scene, list[int]]:
    """Crop a scene; also return the indices of the objects that remain.

    low, high: the window's corners (x, y), fractions. least: share of the window that an object
    covers at least to be kept.
    """
    shape, small = scene.image.shape[:2], scene.instances.shape[0]
    scale = 1 / (high - low)

    def part(
        image: npt.NDArray[np.uint8], width: int, height: int, flags: int
    ) -> npt.NDArray[np.uint8]:
        stretch = scale * (width / image.shape[1], height / image.shape[0])
        shift = -low * scale * (width, height)
        matrix = np.array([[stretch[0], 0, shift[0]], [0, stretch[1], shift[1]]])
        return np.asarray(
            cv2.warpAffine(image, matrix, (width, height), flags=flags,
                           borderMode=cv2.BORDER_REPLICATE), np.uint8
        )  # fmt: skip

    instances = part(scene.instances, small, small, cv2.INTER_NEAREST)
    cells = np.bincount(instances.ravel(), minlength=len(scene.objects) + 1)[1:]
    shown = [i for i in range(len(scene.objects)) if cells[i] and cells[i] >= least * small * small]
    numbers = np.zeros(256, np.uint8)
    objects = []
    for k, i in enumerate(shown):
        numbers[i + 1] = k + 1
        box = (np.array(scene.objects[i].box).reshape(2, 2) - low) * scale
        a, b, c, d = (float(v) for v in box.clip(0, 1).ravel())
        objects.append(replace(scene.objects[i], box=(a, b, c, d)))
    size = np.array(shape[::-1])
    if keeps_aspect:
        pixels = (high - low) * size
        size = np.maximum(1, np.rint(pixels * max(shape) / pixels.max())).astype(int)
    image = part(scene.image, int(size[0]), int(size[1]), cv2.INTER_LINEAR)
    return Scene(image, tuple(objects), numbers[instances]), shown


@cache
def texture_bank() -> tuple[textures.Texture, ...]:
    """Noise, wood, stone, tiles and cloths; never the coverings that `rich-unseen` alone has."""
    rng = np.random.default_rng(0)
    makers = (textures.noise, textures.wood, textures.marble, textures.tiles, *textures.CLOTHS)
    return tuple(makers[i % len(makers)](rng) for i in range(_BANK))


def _smooth(rng: np.random.Generator, shape: Shape) -> npt.NDArray[np.float32]:
    """A smooth field (H, W) in about -1..1: two cells to five a side."""
    cells = rng.uniform(-1, 1, (int(rng.integers(2, 6)),) * 2).astype(np.float32)
    return np.asarray(cv2.resize(cells, shape[::-1], interpolation=cv2.INTER_LINEAR))


def _texture(rng: np.random.Generator, shape: Shape) -> npt.NDArray[np.float32]:
    """A texture of the bank turned, scaled and tinted, float32 (H, W, 3) in 0..255."""
    bank = texture_bank()
    texture = bank[int(rng.integers(len(bank)))]
    side = texture.shape[0]
    turn = cv2.getRotationMatrix2D(
        (side / 2, side / 2), rng.uniform(0, 360), rng.uniform(0.4, 2.0) * max(shape) / side
    )
    turned = cv2.warpAffine(texture, turn, shape[::-1], borderMode=cv2.BORDER_REFLECT_101)
    tint = rng.uniform(0.4, 1.1) * (1 + rng.uniform(-0.2, 0.2, 3))
    return np.asarray(turned * tint, dtype=np.float32)


def on_another_table(
    image: Image, instances: npt.NDArray[np.uint8], rng: np.random.Generator
) -> Image:
    """Blend a texture over the background of the picture (H, W, 3).

    instances: (M, M), 0 where there is no object. Pixels close to an object stay.
    """
    shape = image.shape[:2]
    rim = cv2.dilate((instances > 0).astype(np.uint8), np.ones((2 * RIM_CELLS + 1,) * 2, np.uint8))
    near = cv2.resize(rim.astype(np.float32), shape[::-1], interpolation=cv2.INTER_LINEAR)
    # Blurred: no edge that gives objects away.
    near = cv2.GaussianBlur(near, (0, 0), max(shape) / 40)[..., None]
    share = (1 - near) * float(rng.uniform(0.3, 0.95))
    mixed = (1 - share) * image + share * _texture(rng, shape)
    return np.asarray(mixed.clip(0, 255), dtype=np.uint8)


def unevenly_lit(image: Image, rng: np.random.Generator) -> Image:
    """Light that falls off over the picture (H, W, 3), and is warmer on one side."""
    shape = image.shape[:2]
    gain = 1 + float(rng.uniform(0.1, 0.5)) * _smooth(rng, shape)[..., None]
    warmth = 0.06 * _smooth(rng, shape)[..., None] * np.array([1, 0, -1], dtype=np.float32)
    return np.asarray((image * gain * (1 + warmth)).clip(0, 255), dtype=np.uint8)


def _enhanced(image: Image, rng: np.random.Generator) -> npt.NDArray[np.float32]:
    """Contrast around the mean and saturation, from flat to vivid, float32 and not clipped."""
    found = image.astype(np.float32)
    mean = found.mean()
    found = (found - mean) * float(rng.uniform(0.7, 1.8)) + mean
    gray = found.mean(axis=2, keepdims=True)
    return np.asarray(gray + (found - gray) * float(rng.uniform(0.7, 1.6)), np.float32)


def _grain(rng: np.random.Generator, shape: Shape) -> npt.NDArray[np.float32]:
    """Noise of the sensor (H, W, 3): sigma 2 to 24, more or less coarse and coloured."""
    gray = rng.standard_normal((*shape, 1), dtype=np.float32)
    colored = rng.standard_normal((*shape, 3), dtype=np.float32)
    share = float(rng.uniform(0, 1))
    noise = np.sqrt(1 - share) * gray + np.sqrt(share) * colored
    width = float(rng.uniform(0, 0.9))
    if width > 0.3:
        noise = cv2.GaussianBlur(noise, (0, 0), width)
        noise /= noise.std()
    sigma = 2 * 12 ** float(rng.uniform(0, 1))  # small ones are more common
    return np.asarray(noise * sigma, np.float32)


def developed(image: Image, rng: np.random.Generator) -> Image:
    """The picture (H, W, 3) as a cheaper camera develops it.

    At random, in a camera's order: blur or few pixels, contrast and saturation, noise, sharpening,
    compression. The renderer's own pictures are soft, flat and clean.
    """
    shape = image.shape[:2]
    softness = rng.uniform()
    if softness < 0.15:
        image = np.asarray(cv2.GaussianBlur(image, (0, 0), float(rng.uniform(0.4, 1.0))), np.uint8)
    elif softness < 0.3:
        share = float(rng.uniform(0.5, 0.9))
        coarse = (max(1, round(shape[1] * share)), max(1, round(shape[0] * share)))
        small = cv2.resize(image, coarse, interpolation=cv2.INTER_AREA)
        image = np.asarray(cv2.resize(small, shape[::-1]), np.uint8)
    found = _enhanced(image, rng) if rng.uniform() < 0.5 else image.astype(np.float32)
    if rng.uniform() < 0.5:
        found = found + _grain(rng, shape)
    if rng.uniform() < 0.4:
        blurred = cv2.GaussianBlur(found, (0, 0), float(rng.uniform(0.6, 1.6)))
        found = found + float(rng.uniform(0.3, 2.0)) * (found - blurred)
    image = np.asarray(found.clip(0, 255), np.uint8)
    if rng.uniform() < 0.3:
        quality = int(rng.integers(20, 80))
        # The channels' order decides only which of red and blue is kept better.
        _, written = cv2.imencode(".jpg", image, (cv2.IMWRITE_JPEG_QUALITY, quality))
        image = np.asarray(cv2.imdecode(written, cv2.IMREAD_COLOR), np.uint8)
    return image


def relit(
    image: Image, instances: npt.NDArray[np.uint8], rng: np.random.Generator, *, tables: bool
) -> Image:
    """Vary the picture's light and camera at random. tables: also the table."""
    if tables and rng.uniform() < NEW_TABLES:
        image = on_another_table(image, instances, rng)
    if rng.uniform() < UNEVEN_LIGHT:
        image = unevenly_lit(image, rng)
    return image


def exposed(image: npt.NDArray[np.uint8], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Random exposure, gamma, white balance and saturation, uint8 RGB of the same shape."""
    levels = np.arange(256, dtype=np.float32)[:, None] / 255
    gain = rng.uniform(0.7, 1.25) * (1 + rng.uniform(-0.08, 0.08, 3))
    table = (levels ** rng.uniform(0.75, 1.3) * gain + rng.uniform(-0.04, 0.04)).clip(0, 1) * 255
    found = cv2.LUT(image, table.astype(np.uint8)[None])
    gray = cv2.cvtColor(cv2.cvtColor(found, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    vivid = float(rng.uniform(0.7, 1.3))
    return np.asarray(cv2.addWeighted(found, vivid, gray, 1 - vivid, 0), dtype=np.uint8)
