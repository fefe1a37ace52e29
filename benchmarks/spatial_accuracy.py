#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure the error of 3D positions on simulated tables with a noisy depth camera.

    scripts/run python benchmarks/spatial_accuracy.py [--scenes 60] [--model household] [--json]

Every object of every scene is placed from its true box, and, where its colour and kind name it
alone, from the box that the model grounds ("pick up the red block"; boxes with an IoU under 0.5 are
counted as wrong and not placed). The depth has noise that grows with the square of the distance
(--noise, at 1 m), 16-bit millimetres, and 5 % of its pixels missing. The masks of placed objects
are compared with the simulator's: from the depth, by GrabCut in the same box, and the filled box.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box, Dialogue, Grounding
from clue_ros.engine import Clue
from clue_ros.errors import NoPoseError
from clue_ros.lab.metrics import mask_iou
from clue_ros.lab.simulator.render import TabletopWorld
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.worlds import BLOCKS
from clue_ros.model.loading import add_model_argument
from clue_ros.model.masks import box_mask, grabcut_mask
from clue_ros.nodes.pinhole import Pinhole
from clue_ros.nodes.pose_from_depth import locate

MISSING = 0.05


class RgbdWorld(TabletopWorld):
    """The simulator with a depth camera in the colour camera's place."""

    def depth(self, scene: Scene) -> npt.NDArray[np.float32]:
        """The depth (H, W) of the scene just drawn, metres."""
        size = scene.image.shape[:2]
        renderer = next(r for r in self.renderers if (r.height, r.width) == size)
        renderer.enable_depth_rendering()
        renderer.update_scene(self.data, "eye")
        depth: npt.NDArray[np.float32] = np.array(renderer.render(), dtype=np.float32)
        renderer.disable_depth_rendering()
        return depth

    def camera(self, scene: Scene) -> Pinhole:
        """The intrinsics of both cameras."""
        height, width = scene.image.shape[:2]
        focal = height / 2 / np.tan(np.deg2rad(float(self.model.cam_fovy[0])) / 2)
        return Pinhole(width, height, focal, focal, width / 2 - 0.5, height / 2 - 0.5)

    def masks(self, scene: Scene) -> npt.NDArray[np.uint8]:
        """The number of the object that each pixel shows, from 1; uint8 (H, W), 0 for none."""
        size = scene.image.shape[:2]
        renderer = next(r for r in self.renderers if (r.height, r.width) == size)
        return self._masks(renderer, {o.body: k for k, o in enumerate(self.placed, 1)})

    def middles(self) -> list[npt.NDArray[np.float64]]:
        """Each object's middle (3,) in the camera's optical frame, in the scene's order."""
        axes = self.data.cam_xmat[0].reshape(3, 3) @ np.diag([1.0, -1.0, -1.0])
        owners = np.asarray(self.model.geom_bodyid)
        found = []
        for placed in self.placed:
            geom = int(np.nonzero(owners == self.model.body(placed.body).id)[0][0])
            found.append((self.data.geom_xpos[geom] - self.data.cam_xpos[0]) @ axes)
        return found


def add_noise(depth: npt.NDArray[np.float32], noise: float, rng: np.random.Generator) -> Any:
    """The depth with a camera's noise, its resolution of 1 mm, and missing pixels (NaN)."""
    noisy = depth + rng.normal(0, noise, depth.shape) * depth * depth
    noisy = np.round(noisy * 1000) / 1000
    noisy[rng.random(depth.shape) < MISSING] = np.nan
    return noisy.astype(np.float32)


def measure(model: str, scenes: int, seed: int, noise: float) -> dict[str, Any]:
    """Place every object of every scene. noise: of the depth at 1 m, metres."""
    rng, world = np.random.default_rng(seed), RgbdWorld(BLOCKS, seed)
    clue = Clue.load(model)
    off: dict[str, list[tuple[str, float]]] = {"true boxes": [], "the model's boxes": []}
    masks: dict[str, list[float]] = {}
    count: Counter[str] = Counter()
    seconds = 0.0
    for _ in range(scenes):
        scene = world.scene()
        depth, camera = add_noise(world.depth(scene), noise, rng), world.camera(scene)
        size = (camera.width, camera.height)
        names = Counter(f"{o.color} {o.kind}" for o in scene.objects)
        view, shown = clue.look(scene.image), world.masks(scene)
        for k, (thing, middle) in enumerate(zip(scene.objects, world.middles(), strict=True), 1):
            true = Box(*np.multiply(thing.box, (*size, *size)))
            boxes = {"true boxes": true}
            if names[f"{thing.color} {thing.kind}"] == 1:
                dialogue = Dialogue(f"pick up the {thing.color} {thing.kind}")
                reply = clue.reply(view, dialogue, force_grounding=True)
                assert isinstance(reply, Grounding)
                count["asked"] += 1
                if reply.box.iou(true) >= 0.5:
                    count["right"] += 1
                    boxes["the model's boxes"] = reply.box
            for key, box in boxes.items():
                begun = time.process_time()
                try:
                    place = locate(depth, camera, box, size)
                except NoPoseError:
                    count[f"no place, {key}"] += 1
                    continue
                seconds += time.process_time() - begun
                ways = {
                    "depth": place.mask(),
                    "GrabCut": grabcut_mask(scene.image, box),
                    "box": box_mask(box, *size),
                }
                for way, mask in ways.items():
                    iou = mask_iou(mask, shown == k)
                    masks.setdefault(f"mask IoU, {key}, {way}", []).append(iou)
                off[key].append((thing.kind, float(np.linalg.norm(place.position - middle))))
    world.close()
    placed = sum(map(len, off.values()))
    result: dict[str, Any] = {**count, "milliseconds of CPU a place": 1000 * seconds / placed}
    result |= {
        key: {"n": len(ious), "mean": float(np.mean(ious)), "median": float(np.median(ious))}
        for key, ious in masks.items()
    }
    for key, rows in off.items():
        for kind in ("all", *sorted({kind for kind, _ in rows})):
            values = [1000 * value for k, value in rows if kind in ("all", k)]
            result[f"{key}, {kind}"] = {
                "n": len(values),
                "median_mm": float(np.median(values)),
                "p90_mm": float(np.quantile(values, 0.9)),
                "max_mm": max(values),
            }
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scenes", type=int, default=60, help="number of scenes")
    parser.add_argument("--seed", type=int, default=4242, help="seed of scenes and noise")
    parser.add_argument(
        "--noise", type=float, default=0.002, metavar="METRES", help="depth noise at 1 m"
    )
    add_model_argument(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    result = measure(args.model, args.scenes, args.seed, args.noise)
    if args.json:
        print(json.dumps(result))
        return
    for name, value in result.items():
        if isinstance(value, dict):
            value = "  ".join(f"{k} {v:.4g}" for k, v in value.items())
        print(f"{name:38}{value}")


if __name__ == "__main__":
    main()
