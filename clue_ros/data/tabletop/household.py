"""Meshes as MuJoCo bodies: several of each kind in a model, those of a scene are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.data.tabletop.meshes import Builder, Mesh, Shape
from clue_ros.data.tabletop.spec import Hsv, Placed, rgb_of

VARIANTS = 5  # bodies of each kind in a model, and so at most as many in a scene
SHOWN, HIDDEN = 0, 5  # geom groups; the renderer shows 0 to 2
GAP = 0.012  # metres between two footprints, at least
SPREAD = 0.25  # metres around the table's middle where objects' centres lie
MATERIALS: dict[str, str] = {
    "matte": 'specular="0.05" shininess="0.1"',
    "glossy": 'specular="0.7" shininess="0.85"',
    "metal": 'specular="0.5" shininess="0.75"',
    "speckled": 'specular="0.4" shininess="0.5" texture="speckles" texrepeat="3 3"',
}


@dataclass(frozen=True)
class Ware:
    """How a kind is made. colors, finishes: those it comes in; None for every colour."""

    build: Builder
    colors: tuple[str, ...] | None = None
    finishes: tuple[str, ...] = ("matte", "glossy", "speckled")


def numbers(values: npt.NDArray[Any]) -> str:
    """An array as MJCF writes it."""
    return " ".join(f"{v:.5g}" for v in values.reshape(-1))


def mesh_xml(name: str, mesh: Mesh, more: str = "") -> str:
    """A mesh as an MJCF asset. more: other attributes."""
    vertices, faces = numbers(mesh.vertices), " ".join(map(str, mesh.faces.reshape(-1)))
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
    """Where an object stands: a segment and the radius around it, metres."""

    ends: npt.NDArray[np.float64]
    radius: float

    def clear_of(self, other: Footprint, gap: float = GAP) -> bool:
        """Whether there is a gap between the two, metres."""
        apart = segment_distance(self.ends, other.ends)
        return apart >= self.radius + other.radius + gap


def footprint(made: Shape, x: float, y: float, yaw: float) -> Footprint:
    """The footprint of a shape that stands at (x, y), turned by yaw."""
    middle, along = np.array([x, y]), np.array([np.cos(yaw), np.sin(yaw)])
    ends = np.stack([middle - made.half_length * along, middle + made.half_length * along])
    return Footprint(ends, made.radius)


class Household:
    """A stock of wares. Needs `xml` before `arrange`."""

    def __init__(self, wares: Mapping[str, Ware], colors: Mapping[str, Hsv]) -> None:
        self._wares, self._colors = wares, colors
        self.shapes: dict[str, Shape] = {}
        self._finish: dict[str, str] = {}

    def xml(self, rng: np.random.Generator) -> tuple[str, str]:
        """VARIANTS new shapes of every kind."""
        assets = [
            '<texture name="speckles" type="2d" builtin="flat" rgb1=".95 .95 .95" mark="random"'
            ' markrgb=".55 .55 .55" random="0.03" width="128" height="128"/>',
            *(f'<material name="{name}" {look}/>' for name, look in MATERIALS.items()),
        ]
        bodies = []
        for kind, ware in self._wares.items():
            for i in range(VARIANTS):
                name = f"{kind}{i}"
                made = self.shapes[name] = ware.build(rng)
                finish = ware.finishes[int(rng.integers(len(ware.finishes)))]
                geoms = []
                for k, part in enumerate(made.parts):
                    assets.append(mesh_xml(f"{name}.{k}", part.mesh))
                    rgb = part.accent if part.accent is not None else (1, 1, 1)
                    look = "matte" if part.accent is not None else finish
                    geoms.append(
                        f'<geom type="mesh" mesh="{name}.{k}" material="{look}" group="{HIDDEN}"'
                        f' contype="0" conaffinity="0" rgba="{numbers(np.array(rgb))} 1"/>'
                    )
                bodies.append(f'<body name="{name}">{"".join(geoms)}</body>')
        return "".join(assets), "".join(bodies)

    def arrange(self, rng: np.random.Generator, most: int) -> list[Placed]:
        """Three to `most` objects (now and then two), two of one kind at least."""
        while True:
            placed = self._arrange(rng, most)
            kinds = [o.kind for o in placed]
            if len(set(kinds)) < len(kinds):
                return placed

    def _arrange(self, rng: np.random.Generator, most: int) -> list[Placed]:
        count = 2 if rng.uniform() < 0.1 else int(rng.integers(3, most + 1))
        chosen = rng.permutation(list(self._wares))[: int(rng.integers(1, 4))]
        kinds = [str(chosen[0])] * 2 + [str(rng.choice(chosen)) for _ in range(count - 2)]
        palette = [str(c) for c in rng.permutation(list(self._colors))[: int(rng.integers(2, 6))]]
        used: dict[str, int] = {}
        feet: list[Footprint] = []
        out: list[Placed] = []
        for kind in kinds:
            number = used.get(kind, 0)
            if number == VARIANTS:
                continue
            body = f"{kind}{number}"
            made = self.shapes[body]
            for _ in range(40):
                distance, angle = SPREAD * np.sqrt(rng.uniform()), rng.uniform(0, 2 * np.pi)
                x, y = float(distance * np.cos(angle)), float(distance * np.sin(angle))
                yaw = float(rng.uniform(0, 2 * np.pi))
                foot = footprint(made, x, y, yaw)
                if not all(foot.clear_of(other) for other in feet):
                    continue
                color = self._color(kind, palette, rng)
                rgb = rgb_of(self._colors, color, rng)
                out.append(Placed(body, kind, color, rgb, x, y, made.radius, 0.0, yaw, False))
                feet.append(foot)
                used[kind] = number + 1
                break
        return out

    def _color(self, kind: str, palette: Sequence[str], rng: np.random.Generator) -> str:
        """One of the scene's colours that the kind comes in, else one of the kind's own."""
        own = self._wares[kind].colors
        options = [c for c in palette if own is None or c in own] or list(own or palette)
        return options[int(rng.integers(len(options)))]

    def show(self, model: Any, placed: list[Placed]) -> None:
        """Show the bodies of the scene where they stand, in their colours."""
        for name in self.shapes:
            _group(model, name, HIDDEN)
        for o in placed:
            body = _group(model, o.body, SHOWN)
            model.body_pos[body] = (o.x, o.y, 0)
            model.body_quat[body] = (np.cos(o.yaw / 2), 0, 0, np.sin(o.yaw / 2))
            first = int(model.body_geomadr[body])
            for k, part in enumerate(self.shapes[o.body].parts):
                if part.accent is None:
                    model.geom_rgba[first + k] = (*o.rgb, 1)


def _group(model: Any, name: str, group: int) -> int:
    """Move all geoms of a body to a group; the body's number."""
    body = int(model.body(name).id)
    first = int(model.body_geomadr[body])
    model.geom_group[first : first + int(model.body_geomnum[body])] = group
    return body
