"""The objects of each kind of world: bodies for a MuJoCo model, and their places in a scene.

`Primitives` are MuJoCo's own solids, `FallingObjects` are meshes that are dropped for `physics` to
settle.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.lab.simulator.meshes import Mesh, Rgb, Shape, scaled
from clue_ros.lab.simulator.spec import (
    PlacedObject,
    Quaternion,
    Settling,
    WorldSpec,
    has_look_alikes,
    palette,
    pick,
    rgb_of,
)
from clue_ros.lab.simulator.textures import Texture, grain, mottled, stripes, woven

MOST_OBJECTS = 6  # in a scene of primitives
HIDDEN = 5  # a geom group that is not rendered; the renderer shows 0 to 2


def turned(yaw: float, *, lying: bool = False) -> Quaternion:
    """A turn about z, after a quarter turn about y for an object that lies on its side."""
    c, s = np.cos(yaw / 2), np.sin(yaw / 2)
    if not lying:
        return (c, 0.0, 0.0, s)
    tilt = np.sqrt(0.5)
    return (c * tilt, -s * tilt, c * tilt, s * tilt)


def in_disc(rng: np.random.Generator, radius: float) -> tuple[float, float]:
    """A point (x, y) in a disc around the origin, uniform by area."""
    distance, angle = radius * np.sqrt(rng.uniform()), rng.uniform(0, 2 * np.pi)
    return float(distance * np.cos(angle)), float(distance * np.sin(angle))


# -------------------------------------------------------------------------------------------------
# Primitives: boxes, cylinders and spheres whose type and size change in place.


class Primitives:
    """MuJoCo's own solids, one geom a body."""

    def __init__(self, spec: WorldSpec) -> None:
        self._spec = spec

    def xml(self, rng: np.random.Generator) -> tuple[str, str]:
        """MOST_OBJECTS bodies of one geom each."""
        return "", "".join(
            f'<body name="o{i}" pos="0 0 -9"><geom type="box" size=".03 .03 .03"/></body>'
            for i in range(MOST_OBJECTS)
        )

    def place(self, rng: np.random.Generator) -> list[PlacedObject]:
        """Two to MOST_OBJECTS objects; half of the scenes hold one kind only."""
        spec = self._spec
        count = 2 if rng.uniform() < 0.1 else int(rng.integers(3, MOST_OBJECTS + 1))
        one_kind = rng.uniform() < 0.5
        kinds = [str(rng.choice(spec.kinds))] if one_kind else list(spec.kinds)
        colors = palette(spec.colors, rng)
        spread = rng.uniform(0.11, 0.16)
        mean_radius = rng.uniform(0.027, 0.043)
        taken: list[tuple[float, float, float]] = []
        out: list[PlacedObject] = []
        for _ in range(40 * count):
            if len(out) == count:
                break
            x, y = (float(v) for v in rng.uniform(-spread, spread, 2))
            radius = mean_radius * rng.uniform(0.85, 1.2)
            if any(np.hypot(x - u, y - v) < 1.3 * (radius + r) for u, v, r in taken):
                continue
            kind, color = str(rng.choice(kinds)), str(rng.choice(colors))
            rgb = rgb_of(spec.colors, color, rng)
            stretch = 1.0 if kind == "block" else float(rng.uniform(1.2, 1.9))  # of cylinders
            lying = kind == "cylinder" and rng.uniform() < 0.25
            turn = turned(rng.uniform(0, 2 * np.pi), lying=lying)
            r = radius if kind == "ball" else 0.82 * radius
            half = 0.82 * (radius * stretch) if kind == "cylinder" else r
            position = (x, y, r if lying else half)
            size = {"block": (r, r, r), "cylinder": (r, half, 0), "ball": (r, 0, 0)}[kind]
            out.append(PlacedObject(f"o{len(out)}", kind, color, rgb, position, turn, size))
            taken.append((x, y, radius))
        return out

    def show(self, model: Any, placed: list[PlacedObject]) -> None:
        """Give the first bodies the objects' shapes; the others go below the floor."""
        import mujoco

        types = {
            "block": mujoco.mjtGeom.mjGEOM_BOX,
            "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
            "ball": mujoco.mjtGeom.mjGEOM_SPHERE,
        }
        for i in range(MOST_OBJECTS):
            model.body_pos[model.body(f"o{i}").id] = (0, 0, -9)
        for o in placed:
            body = model.body(o.body).id
            geom = int(model.body_geomadr[body])
            model.body_pos[body], model.body_quat[body] = o.position, o.quaternion
            model.geom_type[geom], model.geom_size[geom] = int(types[o.kind]), o.size
            model.geom_rgba[geom] = (*o.rgb, 1)
            model.geom_matid[geom] = -1
            # The renderer culls by this bound, which compilation derives from type and size.
            model.geom_rbound[geom] = 3 * max(o.size)


# -------------------------------------------------------------------------------------------------
# Meshes: several variants of each kind in a model; those of a scene are shown.

TEXTURES = {"grain": grain, "mottled": mottled, "striped": stripes, "woven": woven}
MATERIALS = {
    "matte": 'specular="0.05" shininess="0.1"',
    "glossy": 'specular="0.7" shininess="0.85"',
    "metal": 'specular="0.5" shininess="0.75"',
} | {name: f'specular="0.15" shininess="0.3" texture="{name}" texrepeat="2 2"' for name in TEXTURES}


def numbers(values: npt.ArrayLike) -> str:
    """An array as MJCF writes it."""
    return " ".join(f"{v:.5g}" for v in np.ravel(values))


def mesh_xml(name: str, mesh: Mesh, more: str = "") -> str:
    """A mesh as an MJCF asset. more: other attributes."""
    faces = " ".join(map(str, mesh.faces.reshape(-1)))
    vertices = numbers(mesh.vertices)
    return f'<mesh name="{name}" inertia="shell" vertex="{vertices}" face="{faces}"{more}/>'


def segment_distance(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> float:
    """Distance of two segments in the plane, each (2, 2): its two ends."""

    def side(of: Any, point: Any) -> float:
        (px, py), (qx, qy) = of
        return float((qx - px) * (point[1] - py) - (qy - py) * (point[0] - px))

    def to_segment(point: Any, ends: Any) -> float:
        along = ends[1] - ends[0]
        length = float(along @ along)
        share = 0.0 if length == 0 else float(np.clip((point - ends[0]) @ along / length, 0, 1))
        return float(np.hypot(*(point - ends[0] - share * along)))

    if side(a, b[0]) * side(a, b[1]) < 0 and side(b, a[0]) * side(b, a[1]) < 0:
        return 0.0
    return min(*(to_segment(p, b) for p in a), *(to_segment(p, a) for p in b))


@dataclass(frozen=True)
class Footprint:
    """The area that an object stands on: a segment at (x, y), turned by yaw, and a radius around.

    Metres and radians.
    """

    half_length: float
    radius: float
    x: float
    y: float
    yaw: float

    @cached_property
    def ends(self) -> npt.NDArray[np.float64]:
        """The ends of the segment, (2, 2)."""
        middle, along = np.array([self.x, self.y]), np.array([np.cos(self.yaw), np.sin(self.yaw)])
        return np.stack([middle - self.half_length * along, middle + self.half_length * along])

    def clear_of(self, others: Iterable[Footprint], gap: float) -> bool:
        """Whether it is at least `gap` metres from each of the others."""
        return all(
            segment_distance(self.ends, other.ends) >= self.radius + other.radius + gap
            for other in others
        )


class FallingObjects:
    """Meshes that fall, made from a world's `ObjectKind`s, one geom a part.

    Each body has a hidden convex hull for contacts beside its visible parts. A model holds some of
    the kinds, each as several bodies of several sizes, so a scene holds at most as many. shapes:
    those of the model's bodies, by name.
    """

    GAP = (0.002, 0.03)  # range in metres between two footprints that are dropped side by side
    WIDEST = 0.25  # metres from the table's middle, at most
    FLAT_TOPS = frozenset({"book", "box", "sponge"})  # kinds that other objects may be put on
    CAN_LIE = frozenset({"bottle", "can", "glass", "jar", "candle", "vase", "mug"})
    TEXTURE_SIDE = 128  # pixels
    SIZES = (0.78, 1.0, 1.0, 1.28)  # factors on a shape's own proportions
    FINISHES = ("matte", "matte", "glossy", "glossy", *TEXTURES)  # of kinds that come in all

    def __init__(self, spec: WorldSpec) -> None:
        self._spec = spec
        self._settling: Settling = spec.settling or Settling()
        self._present: list[str] = []  # the model's kinds
        self.shapes: dict[str, Shape] = {}

    def xml(self, rng: np.random.Generator) -> tuple[str, str]:
        """MJCF for the <asset> and the <worldbody> of a model with new shapes."""
        self.shapes = {}
        assets, bodies = list[str](), list[str]()
        for name in TEXTURES:
            assets.append(
                f'<texture name="{name}" type="2d" builtin="flat" width="128" height="128"/>'
            )
        assets += [f'<material name="{name}" {look}/>' for name, look in MATERIALS.items()]
        kinds = rng.permutation(list(self._spec.objects))[: self._settling.kinds]
        self._present = [str(kind) for kind in kinds]
        for kind in self._present:
            for i in range(self._settling.variants):
                name, how = f"{kind}{i}", self._spec.objects[kind]
                made = self.shapes[name] = scaled(how.build(rng), pick(rng, self.SIZES))
                finish = pick(rng, how.finishes or self.FINISHES)
                # Without faces MuJoCo makes the convex hull of the vertices.
                hull = numbers(made.points)
                assets.append(f'<mesh name="{name}.hull" maxhullvert="48" vertex="{hull}"/>')
                geoms = (
                    f'<freejoint/><geom type="mesh" mesh="{name}.hull" group="{HIDDEN}"'
                    ' contype="0" conaffinity="0" condim="6" friction="0.9 0.02 0.01"'
                    ' density="400"/>'
                )
                for k, part in enumerate(made.parts):
                    assets.append(mesh_xml(f"{name}.{k}", part.mesh))
                    geoms += (
                        f'<geom type="mesh" mesh="{name}.{k}" group="{HIDDEN}" mass="0"'
                        f' material="{"matte" if part.accent else finish}" contype="0"'
                        f' conaffinity="0" rgba="{numbers(part.accent or (1, 1, 1))} 1"/>'
                    )
                bodies.append(f'<body name="{name}">{geoms}</body>')
        return "".join(assets), "".join(bodies)

    def textures(self, rng: np.random.Generator) -> dict[str, Texture]:
        """New textures of the finishes that have one, by name."""
        return {name: make(rng, self.TEXTURE_SIDE) for name, make in TEXTURES.items()}

    def place(self, rng: np.random.Generator) -> list[PlacedObject]:
        """The objects of a scene, two of one kind at least."""
        while True:
            placed = self._place_once(rng)
            if has_look_alikes(placed):
                return placed

    def _draw_kinds(self, rng: np.random.Generator) -> list[str]:
        """The kinds of a table's objects, the first one twice; few kinds make look-alikes."""
        least, most = self._settling.objects
        count = int(rng.integers(least, most + 1))
        chosen = [str(k) for k in rng.permutation(self._present)[: int(rng.integers(1, 7))]]
        return [chosen[0]] * 2 + [str(rng.choice(chosen)) for _ in range(count - 2)]

    def _place_once(self, rng: np.random.Generator) -> list[PlacedObject]:
        """Objects above the table, to be dropped: side by side, on a flat one, or in a pile."""
        piled = rng.uniform() < self._settling.piled
        spread = rng.uniform(*self._settling.spread) * (0.6 if piled else 1.0)
        gap = rng.uniform(*self.GAP)
        colors = palette(self._spec.colors, rng)
        used: Counter[str] = Counter()
        feet: list[Footprint] = []
        out: list[PlacedObject] = []
        for kind in self._draw_kinds(rng):
            if used[kind] == self._settling.variants:
                continue
            name = f"{kind}{used[kind]}"
            made = self.shapes[name]
            half_length, radius, low = made.half_length, made.radius, 0.0
            yaw = float(rng.uniform(0, 2 * np.pi))
            lying = kind in self.CAN_LIE and rng.uniform() < (0.4 if piled else 0.15)
            if lying:  # its z axis becomes the footprint's x axis
                _, y_most, z_most = (float(v) for v in np.abs(made.points).max(axis=0))
                half_length, radius = max(0.0, z_most - y_most), y_most * 1.42
                low = -float(made.points[:, 0].max())
            tops = [o for o in out if o.kind in self.FLAT_TOPS and o.position[2] < 0.02]
            if tops and kind not in self.FLAT_TOPS and rng.uniform() < 0.25:
                under = pick(rng, tops)
                top = float(self.shapes[under.body].points[:, 2].max())
                position = (*under.position[:2], top + 0.004 - low)
            elif piled:
                position = (*in_disc(rng, spread), 0.004 - low + 0.05 * len(out))
            else:
                tries = (
                    Footprint(half_length, radius, *in_disc(rng, spread), yaw) for _ in range(30)
                )
                foot = next((f for f in tries if f.clear_of(feet, gap)), None)
                if foot is None:  # no room: a little further out
                    spread = min(1.25 * spread, self.WIDEST)
                    continue
                feet.append(foot)
                position = (foot.x, foot.y, 0.003 - low)
            color, rgb = self._paint(kind, colors, rng)
            turn = turned(yaw, lying=lying)
            out.append(PlacedObject(name, kind, color, rgb, position, turn))
            used[kind] += 1
        return out

    def _paint(self, kind: str, colors: Sequence[str], rng: np.random.Generator) -> tuple[str, Rgb]:
        """One of the scene's colours that the kind comes in, else one of its own; and a shade."""
        own = self._spec.objects[kind].colors
        color = pick(rng, [c for c in colors if own is None or c in own] or list(own or colors))
        return color, rgb_of(self._spec.colors, color, rng)

    def recolored(self, placed: list[PlacedObject], rng: np.random.Generator) -> list[PlacedObject]:
        """The objects in new colours."""
        colors = palette(self._spec.colors, rng)
        new = [self._paint(o.kind, colors, rng) for o in placed]
        return [replace(o, color=c, rgb=rgb) for o, (c, rgb) in zip(placed, new, strict=True)]

    def show(self, model: Any, placed: list[PlacedObject]) -> None:
        """Show the bodies of these objects in their colours and hide all others.

        Physics moves the bodies; the hulls of hidden ones touch nothing.
        """
        shown = {o.body: o for o in placed}
        for name, made in self.shapes.items():
            body, o = model.body(name), shown.get(name)
            end = int(body.geomadr[0] + body.geomnum[0])
            first = end - len(made.parts)
            model.geom_group[first:end] = HIDDEN if o is None else 0
            hull, on = int(body.geomadr[0]), int(o is not None)
            model.geom_contype[hull] = model.geom_conaffinity[hull] = on
            model.body_contype[body.id] = model.body_conaffinity[body.id] = on
            for k, part in enumerate(made.parts):
                if o is not None and part.accent is None:
                    model.geom_rgba[first + k] = (*o.rgb, 1)
