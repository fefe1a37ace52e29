"""Arrangements of the world `table`: its objects, and their places after physics.

Objects are scanned ones and generated shapes. Several of one kind, of one family ("fruit") or of
one colour are put together on purpose. Physics is MuJoCo's, with convex hulls; an object that is
hollow from above (a bowl, a cup) has a hull of pieces, so that others fall into it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.errors import ClueError
from clue_ros.lab.simulator.assets import Assets
from clue_ros.lab.simulator.meshes import Mesh, Rgb
from clue_ros.lab.simulator.objects import in_disc, numbers
from clue_ros.lab.simulator.scanned_objects import ScannedObject, load_object
from clue_ros.lab.simulator.spec import WorldSpec, palette, pick, rgb_of
from clue_ros.lab.simulator.textured_meshes import TexturedMesh

Floats = npt.NDArray[Any]

HULL = 64  # points of a hull
SECTORS = 8  # of a hollow object's wall
STEPS, CHECK = 260, 20  # of physics, 4 ms each
AT_REST, RESTLESS = 0.04, 0.4  # metres and radians a second
ROOM = 0.34  # metres from the middle that objects may lie at
PROBES = 500  # points on an object's surface by which its visible share is measured
ROUGHNESS = {
    "ceramic": 0.2, "glass": 0.12, "metal": 0.32, "plastic": 0.4, "cardboard": 0.6, "wood": 0.6,
    "fabric": 0.95, "rubber": 0.7, "foam": 0.9, "leather": 0.55, "paper": 0.85,
}  # fmt: skip
FINISHES = {"matte": (0.55, 0.95), "glossy": (0.12, 0.35), "metal": (0.2, 0.4)}


@dataclass(frozen=True)
class Piece:
    """A part of a model with one look: a mesh with a texture, or in one colour.

    color: None where the object's own colour holds.
    """

    key: str
    vertices: Floats
    faces: npt.NDArray[Any]
    uv: Floats | None
    normals: Floats | None
    texture: npt.NDArray[np.uint8] | None
    color: Rgb | None
    roughness: float
    metallic: float


@dataclass(frozen=True)
class Model:
    """A thing to place, standing on z = 0, metres.

    name: unique in its process. colors: words, the dominant first; () where they are drawn.
    hulls: points of each convex piece. probes: points on its surface and their normals, (n, 3)
    each.
    """

    name: str
    kind: str
    names: tuple[str, ...]
    colors: tuple[str, ...]
    material: str
    parts: tuple[str, ...]
    pieces: tuple[Piece, ...]
    hulls: tuple[Floats, ...]
    probes: tuple[Floats, Floats]
    hollow: bool
    generated: bool

    @property
    def points(self) -> Floats:
        """Points that bound it, (n, 3)."""
        return np.concatenate(self.hulls)

    @property
    def extent(self) -> float:
        """Its longest side, metres."""
        return float(np.ptp(self.points, axis=0).max())


@dataclass(frozen=True)
class Resting:
    """A model on the table. color: its word; rgb: sRGB, for a generated shape."""

    model: Model
    color: str
    rgb: Rgb
    position: Floats
    rotation: Floats

    @property
    def resting_points(self) -> Floats:
        """Points of its surface where they are on the table, (n, 3), metres."""
        return np.asarray(self.model.points @ self.rotation.T + self.position)


@lru_cache(maxsize=1)
def _sphere() -> Floats:
    """HULL directions, evenly spread, and the six axes."""
    k = np.arange(HULL - 6) + 0.5
    z, turn = 1 - 2 * k / (HULL - 6), np.pi * (1 + 5**0.5) * k
    ring = np.sqrt(1 - z * z)
    even = np.stack([ring * np.cos(turn), ring * np.sin(turn), z], axis=1)
    return np.concatenate([even, np.eye(3), -np.eye(3)])


def _hull(points: Floats) -> Floats:
    """The points that lie furthest in many directions, not all in a plane."""
    found = points[np.unique(np.argmax(points @ _sphere().T, axis=0))]
    low, high = points.min(axis=0), points.max(axis=0)
    if len(found) < 6 or np.linalg.svd(found - found.mean(axis=0))[1][-1] < 2e-3:
        pad = np.maximum(0.002 - (high - low), 0) / 2
        low, high = low - pad, high + pad
        corners = np.stack(np.meshgrid(*zip(low, high, strict=True)), axis=-1)
        found = np.concatenate([found, corners.reshape(-1, 3)])
    return np.asarray(found, np.float64)


def _is_hollow(vertices: Floats, faces: npt.NDArray[Any]) -> bool:
    """Whether its middle, seen from above, lies well below its rim."""
    height = float(vertices[:, 2].max())
    wide = float(np.ptp(vertices[:, :2], axis=0).min())
    if wide < 0.05:
        return False
    triangles = vertices[faces]
    levels = []
    for x, y in 0.12 * wide * np.array([(0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)]):
        a, b, c = (triangles[:, k, :2] - (x, y) for k in range(3))
        sides = [p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0] for p, q in ((a, b), (b, c), (c, a))]
        inside = np.all([s >= 0 for s in sides], axis=0) | np.all([s <= 0 for s in sides], axis=0)
        if not inside.any():
            return False
        levels.append(float(triangles[inside, :, 2].max(axis=1).max()))
    return max(levels) < 0.55 * height


def _hulls(vertices: Floats, faces: npt.NDArray[Any], hollow: bool) -> tuple[Floats, ...]:
    """Convex pieces of a mesh: one, or a floor and the sectors of a wall."""
    if not hollow:
        return (_hull(vertices),)
    triangles = vertices[faces]
    dense = np.concatenate([vertices, triangles.mean(axis=1)])
    reach = np.hypot(dense[:, 0], dense[:, 1])
    radius = float(np.ptp(vertices[:, :2], axis=0).min()) / 2
    floor = dense[(reach < 0.62 * radius) & (dense[:, 2] < 0.5 * dense[:, 2].max())]
    wall = dense[reach >= 0.5 * radius]
    sector = ((np.arctan2(wall[:, 1], wall[:, 0]) / (2 * np.pi) + 0.5) * SECTORS).astype(int)
    pieces = [p for p in (floor, *(wall[sector == k] for k in range(SECTORS))) if len(p) >= 8]
    return tuple(_hull(p) for p in pieces) if len(pieces) > SECTORS // 2 else (_hull(vertices),)


def _probes(vertices: Floats, faces: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """PROBES points spread over the surface by area, and the normals there."""
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    across = np.cross(b - a, c - a)
    area = np.linalg.norm(across, axis=1)
    ends = np.cumsum(area)
    where = np.searchsorted(ends, (np.arange(PROBES) + 0.5) / PROBES * ends[-1])
    where = where.clip(0, len(faces) - 1)
    return (a + b + c)[where] / 3, across[where] / np.maximum(area[where], 1e-20)[:, None]


def model_of(
    name: str,
    pieces: tuple[Piece, ...],
    kind: str,
    about: ScannedObject | None = None,
) -> Model:
    """A model of pieces that stand on z = 0."""
    vertices = np.concatenate([p.vertices for p in pieces])
    starts = np.cumsum([0, *(len(p.vertices) for p in pieces)])
    faces = np.concatenate([p.faces + s for p, s in zip(pieces, starts, strict=False)])
    hollow = _is_hollow(vertices, faces)
    words = (about.names, about.colors, about.material, about.parts) if about else ((), (), "", ())
    return Model(
        name, kind, *words, pieces, _hulls(vertices, faces, hollow), _probes(vertices, faces),
        hollow, about is None,
    )  # fmt: skip


@lru_cache(maxsize=1024)
def scanned_model(o: ScannedObject) -> Model | None:
    """A scanned object's model; None for one that cannot be read."""
    try:
        mesh: TexturedMesh = load_object(o)
    except ClueError:
        return None
    roughness = ROUGHNESS.get(o.material, 0.5)
    piece = Piece(
        o.name, mesh.vertices.astype(np.float64), mesh.faces, mesh.uv, mesh.normals, mesh.texture,
        (1.0, 1.0, 1.0) if mesh.texture is not None else mesh.color, roughness, 0.0,
    )  # fmt: skip
    return model_of(o.name, (piece,), o.kind, o)


def _around(mesh: Mesh) -> Floats:
    """Texture coordinates around the z axis."""
    x, y, z = mesh.vertices.T
    return np.stack([np.arctan2(y, x) / (2 * np.pi) + 0.5, z / max(float(np.ptp(z)), 1e-3)], axis=1)


class Arranger:
    """Draws arrangements of a world; the same generator gives the same ones."""

    def __init__(self, spec: WorldSpec, assets: Assets, rng: np.random.Generator) -> None:
        self._spec, self._rng = spec, rng
        self._by_kind: dict[str, list[ScannedObject]] = defaultdict(list)
        self._by_word: dict[str, list[ScannedObject]] = defaultdict(list)
        self._by_color: dict[str, list[ScannedObject]] = defaultdict(list)
        for o in assets.objects:
            self._by_kind[o.kind].append(o)
            if o.kind:
                for word in o.names:
                    self._by_word[word].append(o)
                for color in o.colors[:1]:
                    self._by_color[color].append(o)
        self._kinds = sorted(kind for kind in self._by_kind if kind)
        self._several = [k for k in self._kinds if len(self._by_kind[k]) > 1]
        self._words = sorted(
            w for w, group in self._by_word.items() if len({o.kind for o in group}) > 1
        )
        self._colors = sorted(c for c, group in self._by_color.items() if len(group) > 2)
        self._shapes = 0  # made so far

    # --- which

    def _shape(self, kind: str) -> Model:
        """A generated shape of a kind."""
        rng, how = self._rng, self._spec.objects[kind]
        made = how.build(rng)
        finish = pick(rng, how.finishes or ("matte", "matte", "glossy"))
        low, high = FINISHES.get(finish, FINISHES["matte"])
        roughness, scale = float(rng.uniform(low, high)), float(rng.uniform(0.85, 1.15))
        metallic = 1.0 if finish == "metal" else 0.0
        self._shapes += 1
        name = f"{kind}/{self._shapes}"
        pieces = tuple(
            Piece(
                f"{name}.{k}", part.mesh.vertices * scale, part.mesh.faces, _around(part.mesh),
                None, None, part.accent, roughness, metallic,
            )
            for k, part in enumerate(made.parts)
        )  # fmt: skip
        return model_of(name, pieces, kind)

    def _any_scanned(self) -> ScannedObject:
        return pick(self._rng, self._by_kind[pick(self._rng, self._kinds)])

    def _theme(self) -> list[ScannedObject | str]:
        """Two to four things that have something in common; a str is a kind of generated shape."""
        rng = self._rng
        shapes = list(self._spec.objects)
        theme = rng.uniform()
        if not self._kinds or theme < 0.12:
            return [pick(rng, shapes)] * int(rng.integers(2, 4))
        if theme < 0.5 and self._several:
            group = self._by_kind[pick(rng, self._several)]
            return [pick(rng, group) for _ in range(int(rng.integers(2, 4)))]
        if theme < 0.68 and self._words:
            group = self._by_word[pick(rng, self._words)]
        elif theme < 0.85 and self._colors:
            group = self._by_color[pick(rng, self._colors)]
        else:
            return [self._any_scanned() for _ in range(2)]
        kinds = sorted({o.kind for o in group})
        chosen = [str(k) for k in rng.permutation(kinds)[: int(rng.integers(2, 5))]]
        return [pick(rng, [o for o in group if o.kind == kind]) for kind in chosen]

    def draw(self) -> list[tuple[Model, str, Rgb]]:
        """The models of an arrangement with their colours."""
        rng = self._rng
        count = int(rng.choice([2, 3, 4, 5, 6, 7, 8], p=[0.1, 0.17, 0.2, 0.18, 0.15, 0.11, 0.09]))
        chosen = self._theme()[:count]
        only_shapes = not self._kinds or rng.uniform() < 0.1
        while len(chosen) < count:
            if only_shapes or rng.uniform() < 0.25:
                known = [c for c in chosen if isinstance(c, str)]
                again = known and rng.uniform() < 0.4
                chosen.append(pick(rng, known if again else list(self._spec.objects)))
            else:
                chosen.append(self._any_scanned())
        if self._by_kind.get("") and rng.uniform() < 0.35:
            chosen += [pick(rng, self._by_kind[""]) for _ in range(int(rng.integers(1, 3)))]
        colors = palette(self._spec.colors, rng)
        out = []
        for c in chosen:
            model = self._shape(c) if isinstance(c, str) else scanned_model(c)
            if model is not None:
                out.append((model, *self.paint(model, colors)))
        return out

    def paint(self, model: Model, colors: Sequence[str]) -> tuple[str, Rgb]:
        """A model's colour word, and the shade that a generated shape gets."""
        if not model.generated:
            return (model.colors or ("",))[0], (1.0, 1.0, 1.0)
        own = self._spec.objects[model.kind].colors
        usable = [c for c in colors if own is None or c in own] or list(own or colors)
        color = pick(self._rng, usable)
        return color, rgb_of(self._spec.colors, color, self._rng)

    def repainted(self, resting: list[Resting]) -> list[Resting]:
        """The same arrangement with new colours of its generated shapes."""
        colors = palette(self._spec.colors, self._rng)
        out = []
        for r in resting:
            color, rgb = self.paint(r.model, colors)
            out.append(Resting(r.model, color, rgb, r.position, r.rotation))
        return out

    # --- where

    def _poses(self, models: Sequence[Model]) -> list[tuple[Floats, Floats]]:
        """Return the position and the rotation matrix from which each model is dropped."""
        rng = self._rng
        piled = rng.uniform() < 0.12
        spread = rng.uniform(0.09, 0.24) * (0.6 if piled else 1.0)
        gap = rng.uniform(0.0, 0.03)
        heaped = bool(self._spec.heaped) and rng.uniform() < self._spec.heaped
        if heaped:
            spread = rng.uniform(0.02, 0.09)
        if self._spec.crowded and rng.uniform() < self._spec.crowded:
            spread, gap = 0.5 * spread, 0.0
        discs: list[tuple[float, float, float]] = []
        out: list[tuple[Floats, Floats]] = []
        tops: list[tuple[Floats, float, float, bool]] = []  # place, height, room, hollow
        for index, model in enumerate(models):
            turn = rng.uniform(0, 2 * np.pi)
            rotation = about_z(turn)
            sides = np.ptp(model.points, axis=0)
            way = rng.uniform()
            if way < 0.16 and sides[2] > 0.6 * sides[:2].max():
                rotation = rotation @ _about_x(np.pi / 2)  # on its side
            elif way < 0.2:
                rotation = rotation @ _about_x(np.pi) if way < 0.18 else _anyhow(rng)
            points = model.points @ rotation.T
            low = points.min(axis=0)
            middle = (points.min(axis=0) + points.max(axis=0)) / 2
            radius = float(np.hypot(*(points[:, :2] - middle[:2]).T).max())
            onto = [
                t
                for t in tops
                if radius < t[2] * (0.8 if t[3] else 1.1) or (t[3] and radius < 0.025)
            ]
            if onto and rng.uniform() < (0.5 if any(t[3] for t in onto) else 0.22):
                place, height, _, _ = onto[int(rng.integers(len(onto)))]
                at = np.array([*(place[:2] - middle[:2]), height - low[2] + 0.004])
                tops = [t for t in tops if t[0] is not place]
            elif (piled and index > 1) or (heaped and index > 0):
                x, y = in_disc(rng, spread)
                at = np.array([x - middle[0], y - middle[1], 0.05 * index - low[2]])
            else:
                for _ in range(40):
                    x, y = in_disc(rng, spread)
                    if all(np.hypot(x - u, y - v) > radius + r + gap for u, v, r in discs):
                        break
                    spread = min(spread * 1.03, ROOM - 0.02)
                else:
                    out.append((np.full(3, np.nan), rotation))
                    continue
                discs.append((x, y, radius))
                at = np.array([x - middle[0], y - middle[1], 0.002 - low[2]])
                upright = bool(rotation[2, 2] > 0.99)
                flat = sides[2] < 0.09 and sides[:2].min() > 0.07
                if upright and (model.hollow or flat):
                    room = float(sides[:2].min()) / 2
                    tops.append((np.array([x, y, 0.0]), float(sides[2]), room, model.hollow))
            out.append((at, rotation))
        return out

    def arrange(self) -> list[Resting]:
        """Objects at rest near the table's middle; fewer than two when nothing came of it."""
        drawn = self.draw()
        dropped = [
            (m, pose) for m, pose in zip(drawn, self._poses([m for m, _, _ in drawn]), strict=True)
            if np.isfinite(pose[0]).all()
        ]  # fmt: skip
        rested = settle([m for (m, _, _), _ in dropped], [pose for _, pose in dropped])
        out = []
        for ((model, color, rgb), _), (position, rotation) in zip(dropped, rested, strict=True):
            points = model.points @ rotation.T + position
            middle = (points.min(axis=0) + points.max(axis=0)) / 2
            if np.hypot(*middle[:2]) < ROOM and -0.02 < points[:, 2].min() < 0.2:
                out.append(Resting(model, color, rgb, position, rotation))
        return out


def settle(
    models: Sequence[Model], poses: Sequence[tuple[Floats, Floats]]
) -> list[tuple[Floats, Floats]]:
    """Let models fall from their poses onto z = 0; the poses they come to rest in, [] if never."""
    import mujoco

    assets, bodies = [], []
    for i, (model, (position, rotation)) in enumerate(zip(models, poses, strict=True)):
        quaternion = np.zeros(4)
        mujoco.mju_mat2Quat(quaternion, np.ascontiguousarray(rotation).reshape(-1))
        geoms = ""
        for k, points in enumerate(model.hulls):
            assets.append(f'<mesh name="{i}.{k}" maxhullvert="{HULL}" vertex="{numbers(points)}"/>')
            geoms += f'<geom type="mesh" mesh="{i}.{k}"/>'
        bodies.append(
            f'<body name="{i}" pos="{numbers(position)}" quat="{numbers(quaternion)}">'
            f"<freejoint/>{geoms}</body>"
        )
    # Positions of meshes are given in their own frames, which MuJoCo keeps in the geom's pose.
    model = mujoco.MjModel.from_xml_string(
        '<mujoco><option timestep="0.004"/><size memory="32M"/><default><geom condim="6"'
        ' friction="0.9 0.02 0.01" density="400"/></default>'
        f"<asset>{''.join(assets)}</asset><worldbody>"
        '<geom type="plane" size="2 2 .1"/>'
        f"{''.join(bodies)}</worldbody></mujoco>"
    )
    data = mujoco.MjData(model)
    for step in range(1, STEPS + 1):
        mujoco.mj_step(model, data)
        if step % CHECK == 0 and np.abs(data.qvel).max() < AT_REST:
            break
    if not np.isfinite(data.qpos).all() or np.abs(data.qvel).max() > RESTLESS:
        return [(np.array([9.0, 9.0, 0.0]), np.eye(3))] * len(models)
    bodies_at = (data.body(str(i)) for i in range(len(models)))
    return [(b.xpos.copy(), b.xmat.reshape(3, 3).copy()) for b in bodies_at]


def about_z(turn: float) -> Floats:
    """The rotation matrix of a turn about the z axis, radians."""
    c, s = np.cos(turn), np.sin(turn)
    return np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]])


def _about_x(turn: float) -> Floats:
    c, s = np.cos(turn), np.sin(turn)
    return np.array([[1.0, 0, 0], [0, c, -s], [0, s, c]])


def _anyhow(rng: np.random.Generator) -> Floats:
    """A random rotation."""
    q, r = np.linalg.qr(rng.standard_normal((3, 3)))
    q = q * np.sign(np.diag(r))
    return np.asarray(q * np.linalg.det(q) if np.linalg.det(q) > 0 else -q)
