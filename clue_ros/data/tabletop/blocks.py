"""The default world: blocks, cylinders and balls in seven colours on a plain table.

Its random stream is fixed: shards made before other worlds existed come out the same to the bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from clue_ros.data.tabletop.scene import COLORS, KINDS
from clue_ros.data.tabletop.spec import (
    Camera,
    Hsv,
    Light,
    Placed,
    Surfaces,
    Table,
    WorldSpec,
    rgb_of,
)
from clue_ros.data.tabletop.textures import noise

MAX_OBJECTS = 7
TEXTURES = 4

# Hue, saturation and value ranges of each colour name (fractions). Dark greens, blues and purples
# are wide on purpose: real cameras under-expose them.
HSV: dict[str, Hsv] = {
    "red": ((-0.02, 0.02), (0.75, 1.0), (0.55, 1.0)),
    "green": ((0.33, 0.44), (0.5, 1.0), (0.28, 0.85)),
    "blue": ((0.57, 0.64), (0.7, 1.0), (0.4, 1.0)),
    "yellow": ((0.135, 0.17), (0.55, 1.0), (0.8, 1.0)),
    "purple": ((0.72, 0.82), (0.4, 0.9), (0.25, 0.7)),
    "orange": ((0.065, 0.095), (0.85, 1.0), (0.8, 1.0)),
    "white": ((0.0, 1.0), (0.0, 0.05), (0.85, 1.0)),
}
NOUNS: dict[str, tuple[str, ...]] = {
    "block": ("block", "block", "cube", "brick"),
    "cylinder": ("cylinder", "cylinder", "can", "tube"),
    "ball": ("ball", "ball", "sphere"),
}


class Primitives:
    """MuJoCo's own boxes, cylinders and spheres; a body's type and size change in place."""

    def xml(self, rng: np.random.Generator) -> tuple[str, str]:
        """MAX_OBJECTS bodies of one geom each."""
        return "", "".join(
            f'<body name="o{i}" pos="0 0 -9"><geom type="box" size=".03 .03 .03"/></body>'
            for i in range(MAX_OBJECTS)
        )

    def arrange(self, rng: np.random.Generator, most: int) -> list[Placed]:
        """Two to `most` objects; half of the scenes hold one kind only."""
        count = 2 if rng.uniform() < 0.1 else int(rng.integers(3, min(most, MAX_OBJECTS) + 1))
        one_kind = rng.uniform() < 0.5
        kinds = [str(rng.choice(KINDS))] if one_kind else list(KINDS)
        # A small palette makes look-alikes, which is what asking is about.
        palette = rng.permutation(COLORS)[: int(rng.integers(2, 6))]
        spread = rng.uniform(0.11, 0.16)
        size = rng.uniform(0.027, 0.043)
        out: list[Placed] = []
        for _ in range(40 * count):
            if len(out) == count:
                break
            x, y = rng.uniform(-spread, spread, 2)
            radius = size * rng.uniform(0.85, 1.2)
            if any(np.hypot(x - o.x, y - o.y) < 1.3 * (radius + o.radius) for o in out):
                continue
            kind, color = str(rng.choice(kinds)), str(rng.choice(palette))
            rgb = rgb_of(HSV, color, rng)
            height = radius * (1.0 if kind == "block" else float(rng.uniform(1.2, 1.9)))
            lying = kind == "cylinder" and rng.uniform() < 0.25
            yaw = rng.uniform(0, 2 * np.pi)
            place = (float(x), float(y), radius, height, yaw, lying)
            out.append(Placed(f"o{len(out)}", kind, color, rgb, *place))
        return out

    def show(self, model: Any, placed: list[Placed]) -> None:
        """Give the first bodies the objects' shapes; the others go below the floor."""
        for o in placed:
            self._put(model, o)
        for i in range(len(placed), MAX_OBJECTS):
            model.body_pos[model.body(f"o{i}").id] = (0, 0, -9)

    def _put(self, model: Any, o: Placed) -> None:
        import mujoco

        body = model.body(o.body).id
        geom = int(model.body_geomadr[body])
        types = {
            "block": mujoco.mjtGeom.mjGEOM_BOX,
            "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
            "ball": mujoco.mjtGeom.mjGEOM_SPHERE,
        }
        model.geom_type[geom] = int(types[o.kind])
        r = o.radius * (0.82 if o.kind != "ball" else 1.0)
        model.geom_size[geom] = (r, r, r) if o.kind == "block" else (r, o.height * 0.82, 0)
        model.geom_rgba[geom] = (*o.rgb, 1)
        half = {"block": r, "ball": r, "cylinder": r if o.lying else o.height * 0.82}[o.kind]
        model.body_pos[body] = (o.x, o.y, half)
        c, s = np.cos(o.yaw / 2), np.sin(o.yaw / 2)
        tilt = np.sqrt(0.5)  # a quarter turn about y lays a cylinder on its side
        model.body_quat[body] = (
            (c * tilt, -s * tilt, c * tilt, s * tilt) if o.lying else (c, 0, 0, s)
        )
        # The renderer culls by this, normally derived from type and size when compiled.
        model.geom_rbound[geom] = 3 * o.radius + o.height
        model.geom_matid[geom] = -1


BLOCKS = WorldSpec(
    name="blocks",
    nouns=NOUNS,
    colors=HSV,
    stock=Primitives,
    camera=Camera(
        elevation=(35, 72),
        azimuth=((-25, 25),),
        fovy=(35, 55),
        half_height=(0.17, 0.26),
        shapes=((0.7, 0.7), (0.75, 1.0)),
        # From straight above a ball and an upright cylinder are both discs.
        overhead=(78, 90),
        flat=frozenset({"block"}),
    ),
    tables=(Table("box", (0.35, 0.7), (0.32, 0.6)),),
    surfaces=Surfaces(
        make=lambda rng: [noise(rng) for _ in range(TEXTURES)],
        count=TEXTURES,
        size=128,
        dark=0.45,
        dim=(0.12, 0.5),
        lit=(0.5, 1.1),
    ),
    light=Light(),
    min_fill=0.42,  # less, and another object hides most of it
)
