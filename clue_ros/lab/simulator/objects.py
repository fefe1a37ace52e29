"""Wares as bodies that fall: what a settled world's model holds, and how a table is laid.

Each body has one hidden convex hull, which touches, and its parts, which are seen. Only some kinds
are in a model at a time, in several sizes; `Pantry.lay` says which of them are let go where.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import trimesh

from clue_ros.errors import ClueError
from clue_ros.lab.simulator.meshes import Builder, Mesh, Part, Shape, shape
from clue_ros.lab.simulator.spec import Hsv, Placed, Settling, WorldSpec, rgb_of
from clue_ros.lab.simulator.textures import Texture, grain, mottled, stripes, woven

# -------------------------------------------------------------------------------------------------
# Meshes as MuJoCo bodies: several of each kind in a model, those of a scene are shown.

VARIANTS = 5  # bodies of each kind in a model, and so at most as many in a scene
SHOWN, HOUSEHOLD_HIDDEN = 0, 5  # geom groups; the renderer shows 0 to 2
HOUSEHOLD_GAP = 0.012  # metres between two footprints, at least
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

    def clear_of(self, other: Footprint, gap: float = HOUSEHOLD_GAP) -> bool:
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
                        f'<geom type="mesh" mesh="{name}.{k}" material="{look}"'
                        f' group="{HOUSEHOLD_HIDDEN}"'
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
            _group(model, name, HOUSEHOLD_HIDDEN)
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


# -------------------------------------------------------------------------------------------------
# The user's own meshes as wares of a settled world: a folder of mesh files, such as YCB.

SUFFIXES = (".obj", ".stl", ".ply", ".off")
MOST_FILES, MOST_BYTES, MOST_FACES = 400, 30_000_000, 20_000
SIDES = (0.02, 0.35)  # metres, of the longest side
UNITS = (1.0, 0.01, 0.001)  # metres, centimetres, millimetres
DEPTH = 4  # folders


@dataclass(frozen=True)
class OwnMeshes:
    """shapes: of each kind. digest: of all the geometry. problems: a line for each left out."""

    shapes: Mapping[str, tuple[Shape, ...]]
    digest: str
    problems: tuple[str, ...]


def read_meshes(folder: Path) -> OwnMeshes:
    """Every mesh of a folder. ClueError when it is none or no mesh in it can be used."""
    if not folder.is_dir():
        raise ClueError(f"{folder}: no folder of meshes")
    root = folder.resolve()
    files = [
        p
        for p in sorted(folder.rglob("*"))
        if p.suffix.lower() in SUFFIXES and len(p.relative_to(folder).parts) <= DEPTH
    ]
    if len(files) > MOST_FILES:
        raise ClueError(f"{folder}: {len(files)} meshes, at most {MOST_FILES} can be used")
    problems: list[str] = []
    shapes: dict[str, list[Shape]] = {}
    sha = hashlib.sha256()
    for path in files:
        try:
            if root not in path.resolve().parents:
                raise ValueError("it leads out of the folder")
            kind = kind_name(path.relative_to(folder).parts[0])
            made = shape(Part(upright(read_mesh(path))))
        except (OSError, ValueError) as error:
            problems.append(f"{path}: left out, {error}")
            continue
        shapes.setdefault(kind, []).append(made)
        sha.update(kind.encode() + made.parts[0].mesh.vertices.tobytes())
    if not shapes:
        first = f", the first: {problems[0]}" if problems else f" ({', '.join(SUFFIXES)})"
        raise ClueError(f"{folder}: no mesh that can be used{first}")
    kept = {kind: tuple(found) for kind, found in shapes.items()}
    return OwnMeshes(kept, sha.hexdigest()[:16], tuple(problems))


def kind_name(name: str) -> str:
    """What a file or folder is called by: "025_mug" -> "mug". ValueError without a letter."""
    words = re.findall(r"[a-z]+", re.sub(r"\.(obj|stl|ply|off)$", "", name.lower()))
    if not words:
        raise ValueError(f"no word in its name {name!r} to call it by")
    return " ".join(words)


def read_mesh(path: Path) -> Mesh:
    """Vertices and faces of an OBJ, STL, PLY or OFF file. ValueError says what is wrong with it."""
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"{size / 1e6:.0f} MB, at most {MOST_BYTES // 1_000_000} MB")
    suffix = path.suffix.lower()
    try:
        read = trimesh.load_mesh(io.BytesIO(path.read_bytes()), suffix[1:], process=False)
        faces = np.asarray(read.faces)
    except Exception as error:
        raise ValueError(f"no whole {suffix} file ({type(error).__name__}: {error})") from error
    if not 4 <= len(faces) <= MOST_FACES:
        raise ValueError(f"{len(faces)} triangles, want 4 to {MOST_FACES}: make it coarser")
    if faces.min() < 0 or faces.max() >= len(read.vertices):
        raise ValueError("a face names a vertex that is not there")
    if not np.isfinite(read.vertices).all():
        raise ValueError("a coordinate is no finite number")
    read.merge_vertices(merge_tex=True, merge_norm=True)
    vertices, faces = np.asarray(read.vertices, np.float64), np.asarray(read.faces, np.int64)
    return Mesh(vertices, faces)


def upright(mesh: Mesh) -> Mesh:
    """The mesh in metres, on z = 0, centred about the z axis. ValueError for an odd size."""
    low, high = mesh.vertices.min(axis=0), mesh.vertices.max(axis=0)
    longest = float((high - low).max())
    unit = next((u for u in UNITS if SIDES[0] <= longest * u <= SIDES[1]), None)
    if unit is None:
        raise ValueError(
            f"its longest side is {longest:.4g}, want {SIDES[0]} to {SIDES[1]} m (or in mm, cm)"
        )
    if float((high - low).min()) * unit < 1e-4:
        raise ValueError("it is flat")
    away = np.array([*(low + high)[:2] / 2, low[2]])
    return Mesh((mesh.vertices - away) * unit, mesh.faces)


def with_meshes(spec: WorldSpec, own: OwnMeshes) -> WorldSpec:
    """The world with these kinds besides its own. ValueError where nothing can fall in it."""
    settling = spec.settling
    if settling is None:
        raise ValueError(f"the world {spec.name!r} takes no meshes; --world rich does")
    stock = spec.stock()
    assert isinstance(stock, Pantry)
    wares = dict(stock.wares)
    for kind, shapes in own.shapes.items():
        there = wares.get(kind)
        if there is None:
            wares[kind] = Ware(_one_of(shapes), None, FINISHES)
        else:
            wares[kind] = replace(there, build=_either(there.build, _one_of(shapes)))
    nouns = {**spec.nouns, **{kind: (kind,) for kind in own.shapes if kind not in spec.nouns}}
    colors = spec.colors
    return replace(spec, nouns=nouns, stock=lambda: Pantry(wares, colors, settling))


def _one_of(shapes: tuple[Shape, ...]) -> Builder:
    return lambda rng: shapes[int(rng.integers(len(shapes)))]


def _either(first: Builder, second: Builder) -> Builder:
    return lambda rng: (first if rng.uniform() < 0.5 else second)(rng)
