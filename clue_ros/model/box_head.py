# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Boxes of whatever lies at a point: a small network on a stem's frozen features, without words.

The decoder points well and misjudges extents. The head says, for each cell of a picture read at its
own aspect, how far the object there reaches to each side, how good that box is, and whether there
is an object at all: FCOS without classes (Tian and others, 2019), its quality as in OLN (Kim and
others, 2022). Rendered scenes taught it (`clue_ros.lab.training.box_head`). OpenVINO computes it in
float32, whichever backbone made the features:

    found = view.box_map
    boxes, scores = boxes_at(found, [(0.4, 0.7)])

A base with a head has box_head.safetensors beside its weights: `inp` (a product), `blocks` (3 x 3
convolutions, with their dilations), `out`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from clue_ros.errors import ModelError
from clue_ros.model.details import stage_stride
from clue_ros.model.loading import check_shapes, reading
from clue_ros.model.tensors import read_tensors

if TYPE_CHECKING:
    from clue_ros.model.openvino_compiler import Graph

WEIGHTS_FILE = "box_head.safetensors"
SIDE = 640  # pixels of the longer side of the pictures that it reads
CELL = 16  # pixels of a picture for one cell, each way
STRIDES = (8, CELL, 32)  # of the stages that it reads
DILATIONS = (1, 2, 4, 8, 1)
OUTPUTS = 6  # the logarithms of four distances, the logits of the box's quality and of an object
REACH = (-7.0, 1.0)  # limits of the logarithms, in units of SIDE pixels
MOST = 40  # candidates
OVERLAP = 0.7  # IoU from which two boxes are one candidate
LEAST_OBJECT = 0.1  # probability of an object below which a cell makes no candidate

Array = npt.NDArray[np.float32]


class BoxMap(NamedTuple):
    """What the head says about a picture, for each of its cells.

    boxes: (h, w, 4) x_min, y_min, x_max, y_max in fractions of the picture, 0..1. scores: (h, w)
    the IoU that a box is expected to have. objects: (h, w) the probability of an object there.
    """

    boxes: Array
    scores: Array
    objects: Array


def boxes_at(found: BoxMap, points: Sequence[tuple[float, float]]) -> tuple[Array, Array]:
    """The boxes (n, 4) of the objects at n points (x, y) and their scores (n,), all in 0..1.

    Points and boxes are in fractions of the picture's width and height; points outside of it count
    as at its rim.
    """
    rows, columns = found.scores.shape
    at = np.asarray(points, np.float64).reshape(-1, 2)
    x = np.clip((at[:, 0] * columns).astype(int), 0, columns - 1)
    y = np.clip((at[:, 1] * rows).astype(int), 0, rows - 1)
    return found.boxes[y, x], found.scores[y, x]


def candidates(found: BoxMap, most: int = MOST) -> tuple[Array, Array]:
    """The boxes (n, 4) of what a picture shows and their scores (n,), the best first; n <= most.

    A score is that of the box, times the square root of the probability of an object.
    """
    boxes = found.boxes.reshape(-1, 4)
    scores = (found.scores * np.sqrt(found.objects)).ravel()
    order = np.argsort(-scores, kind="stable")
    order = order[found.objects.ravel()[order] >= LEAST_OBJECT]
    kept: list[int] = []
    while len(order) and len(kept) < most:
        kept.append(int(order[0]))
        order = order[overlaps(boxes[order], boxes[order[0]]) < OVERLAP]
    return boxes[kept], scores[kept]


def overlaps(boxes: npt.NDArray[Any], box: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The IoU of boxes (n, 4) with a box (4,) or with n boxes: (n,)."""
    low, high = np.maximum(boxes[:, :2], box[..., :2]), np.minimum(boxes[:, 2:], box[..., 2:])
    shared = (high - low).clip(0).prod(-1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(-1) + (box[..., 2:] - box[..., :2]).prod(-1)
    return np.asarray(shared / np.maximum(areas - shared, 1e-12))


@dataclass(frozen=True)
class BoxHead:
    """A trained head: its weights by their names in the file, and which stages it reads.

    channels: of each stage.
    """

    weights: Mapping[str, Array]
    stages: tuple[int, ...]
    channels: tuple[int, ...]

    def __call__(self, levels: Sequence[Array]) -> BoxMap:
        """What it says about a picture of which `Backbone.stages` gave these features."""
        return _decoded(self._graph({f"level{n}": v[None] for n, v in enumerate(levels)})["out"])

    @cached_property
    def _graph(self) -> Graph:
        from clue_ros.model.openvino_compiler import Compiler, digest
        from clue_ros.model.openvino_graphs import box_head_graph

        build = partial(box_head_graph, self.weights, self.channels, DILATIONS)
        return Compiler("f32")(build, f"box head {digest(self.weights)}")

    def nbytes(self) -> int:
        """Bytes of weights."""
        return sum(weight.nbytes for weight in self.weights.values())


def _decoded(out: Array) -> BoxMap:
    """The head's output (h, w, 6) as boxes."""
    rows, columns = out.shape[:2]
    reach = np.exp(out[..., :4].clip(*REACH)) * np.float32(SIDE / CELL)  # in cells
    x = np.arange(columns, dtype=np.float32)[None] + np.float32(0.5)
    y = np.arange(rows, dtype=np.float32)[:, None] + np.float32(0.5)
    sides = [x - reach[..., 0], y - reach[..., 1], x + reach[..., 2], y + reach[..., 3]]
    size = np.array([columns, rows, columns, rows], np.float32)
    chances = np.asarray(1 / (1 + np.exp(-out[..., 4:])), np.float32)
    boxes = np.asarray(np.stack(sides, -1) / size, np.float32).clip(0, 1)
    return BoxMap(boxes, chances[..., 0], chances[..., 1])


def head_shapes(channels: int, width: int) -> dict[str, tuple[int, ...]]:
    """The shape of each weight. channels: of a cell's features. width: of the hidden layers."""
    shapes: dict[str, tuple[int, ...]] = {"inp.weight": (width, channels), "inp.bias": (width,)}
    for number in range(len(DILATIONS)):
        shapes[f"blocks.{number}.weight"] = (width, width, 3, 3)
        shapes[f"blocks.{number}.bias"] = (width,)
    return shapes | {"out.weight": (OUTPUTS, width), "out.bias": (OUTPUTS,)}


def head_stages(sizes: Mapping[str, Any]) -> tuple[int, ...]:
    """The stages of a stem that a head reads: the last one of each of STRIDES.

    Raises ModelError for a stem that lacks one.
    """
    last = {stage_stride(sizes, stage): stage for stage in range(len(sizes["stages"]))}
    if not last.keys() >= set(STRIDES):
        raise ModelError(f"a box head reads stages of strides {STRIDES}, the stem has {[*last]}")
    return tuple(last[stride] for stride in STRIDES)


def head_channels(sizes: Mapping[str, Any]) -> int:
    """Numbers that a stem's stages have for each of the head's cells."""
    return sum(
        width * max(1, CELL // stride) ** 2
        for width, stride in zip(stage_channels(sizes), STRIDES, strict=True)
    )


def stage_channels(sizes: Mapping[str, Any]) -> tuple[int, ...]:
    """The channels of each stage that a head reads."""
    return tuple(int(sizes["stages"][stage][4]) for stage in head_stages(sizes))


def load_box_head(base: Path, vision_config: Any) -> BoxHead | None:
    """The head in a base's folder; None where there is none.

    Raises ModelError naming the file for a base without a stem, and for weights that do not fit.
    """
    path = base / WEIGHTS_FILE
    if not path.is_file():
        return None
    sizes = getattr(vision_config, "conv_stem", None)
    if sizes is None:
        raise ModelError(f"{path}: this model's vision tower has no stem whose features it reads")
    with reading(path):
        found = {name: tensor.float32() for name, tensor in read_tensors(path).items()}
    try:
        stages, channels = head_stages(sizes), head_channels(sizes)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error
    width = len(found["inp.bias"]) if "inp.bias" in found else 1
    shapes = head_shapes(channels, width)
    check_shapes(path, {name: array.shape for name, array in found.items()}, shapes)
    for name in shapes:
        if not np.isfinite(found[name]).all():
            raise ModelError(f"{path}: {name} holds a value that is no number")
    return BoxHead(found, stages, stage_channels(sizes))
