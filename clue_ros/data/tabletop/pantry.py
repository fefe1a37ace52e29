"""Wares as bodies that fall: what a settled world's model holds, and how a table is laid.

Each body has one hidden convex hull, which touches, and its parts, which are seen. Only some kinds
are in a model at a time, in several sizes; `Pantry.lay` says which of them are let go where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from clue_ros.data.tabletop.household import Footprint, Ware, footprint, mesh_xml, numbers
from clue_ros.data.tabletop.meshes import Mesh, Part, Shape, shape
from clue_ros.data.tabletop.spec import Hsv, Settling, rgb_of
from clue_ros.data.tabletop.textures import Texture, grain, mottled, stripes, woven

HIDDEN = 5  # a geom group that is not rendered
SIZES = (0.78, 1.0, 1.0, 1.28)  # of a ware's own proportions
SKINS = {"grain": grain, "mottled": mottled, "striped": stripes, "woven": woven}
SKIN_SIDE = 128  # pixels of a material's texture
LOOKS: dict[str, str] = {
    "matte": 'specular="0.05" shininess="0.1"',
    "glossy": 'specular="0.7" shininess="0.85"',
    "metal": 'specular="0.5" shininess="0.75"',
    **{name: f'specular="0.15" shininess="0.3" texture="{name}" texrepeat="2 2"' for name in SKINS},
}
FINISHES = ("matte", "matte", "glossy", "glossy", *SKINS)
GAP = (0.002, 0.03)  # metres between two footprints that are let go beside each other
WIDEST = 0.25  # metres from the middle
FLAT_TOPS = frozenset({"book", "box", "sponge"})  # what other things may be put on
LYING = frozenset({"bottle", "can", "glass", "jar", "candle", "vase", "mug"})


@dataclass(frozen=True)
class Body:
    """A body of the model. points: every vertex, float64 (n, 3), metres, in the body's frame."""

    kind: str
    made: Shape
    points: npt.NDArray[np.float64]

    @property
    def extent(self) -> float:
        """Its longest side, metres."""
        return float(np.ptp(self.points, axis=0).max())


@dataclass(frozen=True)
class Dropped:
    """An object as it is let go.

    position: metres. quaternion: (w, x, y, z). rgb: 0..1.
    """

    body: str
    kind: str
    color: str
    rgb: tuple[float, float, float]
    position: tuple[float, float, float]
    quaternion: tuple[float, float, float, float]


def scaled(made: Shape, factor: float) -> Shape:
    """The shape, larger or smaller."""
    parts = (Part(Mesh(p.mesh.vertices * factor, p.mesh.faces), p.accent) for p in made.parts)
    return shape(*parts)


def product(
    a: tuple[float, float, float, float], b: tuple[float, float, float, float]
) -> tuple[float, float, float, float]:
    """The quaternion of turning by b, then by a."""
    (w, x, y, z), (p, q, r, s) = a, b
    return (
        w * p - x * q - y * r - z * s,
        w * q + x * p + y * s - z * r,
        w * r - x * s + y * p + z * q,
        w * s + x * r - y * q + z * p,
    )


class Pantry:
    """A stock of wares that fall. Needs `xml` before `lay`."""

    def __init__(
        self, wares: Mapping[str, Ware], colors: Mapping[str, Hsv], settling: Settling
    ) -> None:
        self.wares, self._colors, self._settling = wares, colors, settling
        self.bodies: dict[str, Body] = {}

    def xml(self, rng: np.random.Generator) -> tuple[str, str]:
        """MJCF for <asset> and <worldbody> of new shapes of some kinds."""
        self.bodies = {}
        side = SKIN_SIDE
        assets = [
            f'<texture name="{name}" type="2d" builtin="flat" width="{side}" height="{side}"/>'
            for name in SKINS
        ]
        assets += [f'<material name="{name}" {look}/>' for name, look in LOOKS.items()]
        bodies = []
        kinds = rng.permutation(list(self.wares))[: self._settling.kinds]
        for kind in map(str, kinds):
            for i in range(self._settling.variants):
                asset, body = self._body(f"{kind}{i}", kind, rng)
                assets += asset
                bodies.append(body)
        return "".join(assets), "".join(bodies)

    def _body(self, name: str, kind: str, rng: np.random.Generator) -> tuple[list[str], str]:
        ware = self.wares[kind]
        made = scaled(ware.build(rng), SIZES[int(rng.integers(len(SIZES)))])
        points = np.concatenate([p.mesh.vertices for p in made.parts])
        self.bodies[name] = Body(kind, made, points)
        finish = ware.finishes[int(rng.integers(len(ware.finishes)))]
        # Without faces MuJoCo makes the convex hull of the vertices.
        assets = [f'<mesh name="{name}.hull" maxhullvert="48" vertex="{numbers(points)}"/>']
        geoms = [
            f'<geom type="mesh" mesh="{name}.hull" group="{HIDDEN}" contype="0" conaffinity="0"'
            ' condim="6" friction="0.9 0.02 0.01" density="400"/>'
        ]
        for k, part in enumerate(made.parts):
            assets.append(mesh_xml(f"{name}.{k}", part.mesh))
            rgb = part.accent if part.accent is not None else (1, 1, 1)
            look = "matte" if part.accent is not None else finish
            geoms.append(
                f'<geom type="mesh" mesh="{name}.{k}" material="{look}" group="{HIDDEN}" mass="0"'
                f' contype="0" conaffinity="0" rgba="{numbers(np.array(rgb))} 1"/>'
            )
        return assets, f'<body name="{name}"><freejoint/>{"".join(geoms)}</body>'

    def skins(self, rng: np.random.Generator) -> dict[str, Texture]:
        """New textures of the materials that have one, by name."""
        return {name: make(rng, SKIN_SIDE) for name, make in SKINS.items()}

    def lay(self, rng: np.random.Generator) -> list[Dropped]:
        """Objects in the air over the table, two of one kind at least."""
        while True:
            dropped = self._lay(rng)
            kinds = [o.kind for o in dropped]
            if len(set(kinds)) < len(kinds):
                return dropped

    def _kinds(self, rng: np.random.Generator) -> list[str]:
        """Which kinds, the first one twice: few kinds on a table make look-alikes."""
        least, most = self._settling.objects
        count = int(rng.integers(least, most + 1))
        there = list(dict.fromkeys(b.kind for b in self.bodies.values()))
        chosen = [str(k) for k in rng.permutation(there)[: int(rng.integers(1, 7))]]
        return [chosen[0]] * 2 + [str(rng.choice(chosen)) for _ in range(count - 2)]

    def _lay(self, rng: np.random.Generator) -> list[Dropped]:
        piled = rng.uniform() < self._settling.piled
        spread = rng.uniform(*self._settling.spread) * (0.6 if piled else 1.0)
        gap = rng.uniform(*GAP)
        palette = self.palette(rng)
        used: dict[str, int] = {}
        feet: list[Footprint] = []
        out: list[Dropped] = []
        for kind in self._kinds(rng):
            number = used.get(kind, 0)
            if number == self._settling.variants:
                continue
            name = f"{kind}{number}"
            found = self._place(name, out, feet, rng, spread=spread, gap=gap, piled=piled)
            if found is None:  # full there: a little further out
                spread = min(1.25 * spread, WIDEST)
                continue
            color = self.color(kind, palette, rng)
            out.append(Dropped(name, kind, color, rgb_of(self._colors, color, rng), *found))
            used[kind] = number + 1
        return out

    def _place(
        self,
        name: str,
        others: Sequence[Dropped],
        feet: list[Footprint],
        rng: np.random.Generator,
        *,
        spread: float,
        gap: float,
        piled: bool,
    ) -> tuple[tuple[float, float, float], tuple[float, float, float, float]] | None:
        """A place in the air: beside the others, on a flat one, or above them all; None if full."""
        body = self.bodies[name]
        yaw = float(rng.uniform(0, 2 * np.pi))
        tips = body.kind in LYING and rng.uniform() < (0.4 if piled else 0.15)
        turn = (np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2))
        low, made = 0.0, body.made
        if tips:  # a quarter turn about y: what was up is now along x
            turn = product(turn, (np.sqrt(0.5), 0.0, np.sqrt(0.5), 0.0))
            x, y, z = body.points.T
            low = float(-x.max())
            made = _footed(np.stack([z, y], axis=1), body.made)
        tops = [o for o in others if o.kind in FLAT_TOPS and o.position[2] < 0.02]
        if tops and body.kind not in FLAT_TOPS and rng.uniform() < 0.25:
            under = tops[int(rng.integers(len(tops)))]
            top = float(self.bodies[under.body].points[:, 2].max())
            x, y, _ = under.position
            return (x, y, top + 0.004 - low), turn
        for _ in range(30):
            distance, angle = spread * np.sqrt(rng.uniform()), rng.uniform(0, 2 * np.pi)
            x, y = float(distance * np.cos(angle)), float(distance * np.sin(angle))
            foot = footprint(made, x, y, yaw)
            if piled:
                return (x, y, 0.004 - low + 0.05 * len(others)), turn
            if all(foot.clear_of(other, gap) for other in feet):
                feet.append(foot)
                return (x, y, 0.003 - low), turn
        return None

    def palette(self, rng: np.random.Generator) -> list[str]:
        """The few colours of one picture."""
        return [str(c) for c in rng.permutation(list(self._colors))[: int(rng.integers(2, 6))]]

    def color(self, kind: str, palette: Sequence[str], rng: np.random.Generator) -> str:
        """One of the picture's colours that the kind comes in, else one of the kind's own."""
        own = self.wares[kind].colors
        options = [c for c in palette if own is None or c in own] or list(own or palette)
        return options[int(rng.integers(len(options)))]

    def rgb(self, color: str, rng: np.random.Generator) -> tuple[float, float, float]:
        """A shade of a colour, 0..1."""
        r, g, b = rgb_of(self._colors, color, rng)
        return float(r), float(g), float(b)


def _footed(across: npt.NDArray[np.float64], made: Shape) -> Shape:
    """The same parts with the footprint of points (n, 2)."""
    reach = float(np.abs(across[:, 0]).max())
    side = float(np.abs(across[:, 1]).max())
    return Shape(made.parts, max(0.0, reach - side), side * 1.42)
