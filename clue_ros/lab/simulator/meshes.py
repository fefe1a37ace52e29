"""Household objects as triangle meshes made by code: lathed, swept along a curve, or boxes.

Every builder draws its proportions from a generator and returns a `Shape` that rests on z = 0,
centred about the z axis, lengths in metres. Nothing here knows of MuJoCo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Points: TypeAlias = npt.NDArray[np.float64]
Rgb: TypeAlias = tuple[float, float, float]

STEM: Rgb = (0.25, 0.16, 0.08)
LEAF: Rgb = (0.2, 0.42, 0.12)


@dataclass(frozen=True)
class Mesh:
    """vertices: float64 (V, 3), metres. faces: int64 (F, 3), counter-clockwise from outside."""

    vertices: Points
    faces: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """A piece of an object. accent: its own colour (RGB, 0..1); None takes the object's."""

    mesh: Mesh
    accent: Rgb | None = None


@dataclass(frozen=True)
class Shape:
    """An object's parts and its footprint: all of it is within `radius` of a segment on x.

    The segment goes from (-half_length, 0) to (half_length, 0), metres.
    """

    parts: tuple[Part, ...]
    half_length: float
    radius: float


Builder: TypeAlias = Callable[[np.random.Generator], Shape]


def joined(meshes: Sequence[Mesh]) -> Mesh:
    """Several meshes as one."""
    starts = np.cumsum([0, *(len(m.vertices) for m in meshes[:-1])])
    faces = [m.faces + start for m, start in zip(meshes, starts, strict=True)]
    return Mesh(np.concatenate([m.vertices for m in meshes]), np.concatenate(faces))


def moved(mesh: Mesh, by: Sequence[float], scale: Sequence[float] = (1, 1, 1)) -> Mesh:
    """The mesh scaled along the axes (all positive) and then shifted."""
    return Mesh(mesh.vertices * np.asarray(scale) + np.asarray(by), mesh.faces)


def _strips(rings: int, segments: int) -> list[tuple[int, int, int]]:
    """Triangles between neighbouring rings of `segments` vertices each."""
    faces = []
    for i in range(rings - 1):
        for k in range(segments):
            a, b = i * segments + k, i * segments + (k + 1) % segments
            faces += [(a, b, b + segments), (a, b + segments, a + segments)]
    return faces


def closed(rings: Points, first: Points, last: Points) -> Mesh:
    """A tube of rings (N, S, 3), closed by a fan to a point at each end."""
    count, segments, _ = rings.shape
    vertices = np.concatenate([rings.reshape(-1, 3), [first, last]])
    faces = _strips(count, segments)
    start, top, tail = count * segments, count * segments + 1, (count - 1) * segments
    for k in range(segments):
        after = (k + 1) % segments
        faces += [(start, after, k), (top, tail + k, tail + after)]
    return Mesh(vertices, np.asarray(faces, dtype=np.int64))


def lathe(profile: Sequence[tuple[float, float]], segments: int = 36) -> Mesh:
    """The profile [(radius, z), ...] turned about the z axis.

    Its first and last point lie on the axis; it is given with the inside to its left, so from
    the bottom's centre outwards and up.
    """
    angles = np.linspace(0, 2 * np.pi, segments, endpoint=False)
    body = np.asarray(profile, dtype=np.float64)
    r, z = body[1:-1, 0, None], body[1:-1, 1, None]
    rings = np.stack([r * np.cos(angles), r * np.sin(angles), z + 0 * angles], axis=2)
    ends = [np.array([0.0, 0.0, body[i, 1]]) for i in (0, -1)]
    return closed(rings, *ends)


def tube(path: Points, across: Points, upright: Points, segments: int = 12) -> Mesh:
    """An elliptic section swept along a path in the xz or xy plane, closed at both ends.

    path: (N, 3). across, upright: (N,), the section's half axes beside and above the path.
    """
    along = np.gradient(path, axis=0)
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    # The side vector is horizontal, except where the path itself runs along y or upwards.
    flat = np.ptp(path[:, 1]) < 1e-9
    side = (
        np.tile([0.0, 1.0, 0.0], (len(path), 1))
        if flat
        else np.stack([-along[:, 1], along[:, 0], 0 * along[:, 0]], axis=1)
    )
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    up = np.cross(along, side)
    turn = np.linspace(0, 2 * np.pi, segments, endpoint=False)
    rings = (
        path[:, None]
        + across[:, None, None] * np.cos(turn)[None, :, None] * side[:, None]
        + upright[:, None, None] * np.sin(turn)[None, :, None] * up[:, None]
    )
    return closed(rings, path[0], path[-1])


def cuboid(size: Sequence[float]) -> Mesh:
    """A box with its base's centre at the origin; size: its three sides, metres."""
    x, y, z = size
    sides = tube(
        np.array([[0.0, 0.0, 0.0], [0.0, 0.0, z]]), np.full(2, 0.5), np.full(2, 0.5), segments=4
    )
    corners = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) / 2 * (x, y)
    vertices = sides.vertices.copy()
    vertices[:4, :2] = vertices[4:8, :2] = corners
    return Mesh(vertices, sides.faces)


def shape(*parts: Part) -> Shape:
    """The parts with their common footprint."""
    points = np.concatenate([p.mesh.vertices for p in parts])[:, :2]
    half = max(0.0, float(np.abs(points[:, 0]).max() - np.abs(points[:, 1]).max()))
    beside = np.hypot(np.maximum(np.abs(points[:, 0]) - half, 0), points[:, 1])
    return Shape(parts, half, float(beside.max()))


def arc(count: int, start: float, end: float) -> Points:
    """(cos, sin) of `count` angles from start to end, radians: (count, 2)."""
    angles = np.linspace(start, end, count)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def _lying(mesh: Mesh, radius: float, height: float) -> Mesh:
    """An upright mesh tipped over onto its side along x."""
    x, y, z = mesh.vertices.T
    return Mesh(np.stack([z - height / 2, y, radius - x], axis=1), mesh.faces)


def mug(rng: np.random.Generator) -> Shape:
    """A hollow mug with a handle."""
    r, h, wall = rng.uniform(0.037, 0.045), rng.uniform(0.08, 0.1), 0.004
    foot = r * rng.uniform(0.78, 1.0)
    cup = lathe(
        [
            (0, 0), (foot - 0.003, 0), (foot, 0.004), (r, 0.35 * h), (r, h - 0.001),
            (r - wall / 2, h), (r - wall, h - 0.001), (r - wall, 0.35 * h), (foot - wall, 0.009),
            (0, 0.008),
        ]
    )  # fmt: skip
    reach, tall = rng.uniform(0.024, 0.032), 0.3 * h
    bow = arc(14, -np.pi / 2, np.pi / 2) * (reach, tall)
    path = np.stack([bow[:, 0] + r - 0.002, 0 * bow[:, 0], bow[:, 1] + 0.53 * h], axis=1)
    thick = np.full(len(path), 0.0055)
    return shape(Part(joined([cup, tube(path, thick, 0.8 * thick)])))


def bottle(rng: np.random.Generator) -> Shape:
    """A bottle with a neck and a cap, upright or lying."""
    r, h = rng.uniform(0.029, 0.037), rng.uniform(0.15, 0.19)
    neck, shoulder = rng.uniform(0.011, 0.014), rng.uniform(0.55, 0.66) * h
    round_part = arc(6, 0, np.pi / 2) * (r - neck, 0.2 * h) + (neck, shoulder)
    glass = lathe(
        [
            (0, 0), (r - 0.004, 0), (r, 0.004), *((float(a), float(b)) for a, b in round_part),
            (neck, 0.9 * h), (0, 0.9 * h),
        ]
    )  # fmt: skip
    top = neck + 0.002
    cap = lathe([(0, 0.89 * h), (top, 0.89 * h), (top, 0.995 * h), (top - 0.001, h), (0, h)])
    dark = rng.uniform() < 0.5
    if rng.uniform() < 0.25:
        glass, cap = _lying(glass, r, h), _lying(cap, r, h)
    return shape(Part(glass), Part(cap, (0.1, 0.1, 0.11) if dark else (0.9, 0.9, 0.88)))


def bowl(rng: np.random.Generator) -> Shape:
    """A deep round bowl on a foot."""
    r, h, wall = rng.uniform(0.06, 0.075), rng.uniform(0.045, 0.06), 0.004
    low = 0.45 * r
    curve = arc(9, -np.pi / 2, 0) * (r - low, h) + (low, h)
    outer = [(float(a), float(b)) for a, b in curve]
    inner = [(a - wall, max(b + 0.0005, 0.006)) for a, b in reversed(outer[1:])]
    return shape(Part(lathe([(0, 0), *outer, (r - wall / 2, h + 0.002), *inner, (0, 0.006)])))


def plate(rng: np.random.Generator) -> Shape:
    """A flat plate with a raised rim."""
    r, h, well = rng.uniform(0.075, 0.095), rng.uniform(0.013, 0.019), rng.uniform(0.6, 0.7)
    return shape(
        Part(
            lathe(
                [
                    (0, 0), (well * r, 0), (well * r + 0.006, 0.004), (r, h - 0.003), (r, h),
                    (well * r + 0.004, 0.009), (well * r - 0.003, 0.004), (0, 0.0035),
                ],
                segments=48,
            )
        )
    )  # fmt: skip


def apple(rng: np.random.Generator) -> Shape:
    """An apple: dimples above and below, a stem, often a leaf."""
    r = rng.uniform(0.034, 0.041)
    turn = np.linspace(0, np.pi, 16)
    waist = r * np.sin(turn) * (1 - 0.12 * np.cos(turn - np.pi))
    dip = 0.35 * r * (np.exp(-((turn / 0.45) ** 2)) - np.exp(-(((np.pi - turn) / 0.4) ** 2)))
    z = -0.92 * r * np.cos(turn) + dip
    z -= z.min()
    flesh = lathe([(float(a), float(b)) for a, b in zip(waist, z, strict=True)])
    base, lean = float(z[-1]), rng.uniform(-0.006, 0.006)
    path = np.array([[0, 0, base - 0.004], [lean / 2, 0, base + 0.01], [lean, 0, base + 0.019]])
    stem = tube(path, np.full(3, 0.0017), np.full(3, 0.0017), segments=8)
    parts = [Part(flesh), Part(stem, STEM)]
    if rng.uniform() < 0.6:
        ball = lathe([(0, -1), *((float(a), float(b)) for a, b in arc(7, -1.2, 1.2)), (0, 1)], 12)
        parts.append(Part(moved(ball, (0.012, 0, base + 0.012), (0.012, 0.006, 0.0018)), LEAF))
    return shape(*parts)


def banana(rng: np.random.Generator) -> Shape:
    """A banana lying on its side, with a stalk and a dark tip."""
    bend, thick = rng.uniform(0.085, 0.11), rng.uniform(0.015, 0.018)
    half = rng.uniform(0.75, 0.95)
    curve = arc(26, np.pi / 2 + half, np.pi / 2 - half) * bend
    path = np.stack([curve[:, 0], curve[:, 1] - curve[:, 1].mean(), np.full(26, thick)], axis=1)
    along = np.linspace(-1, 1, 26)
    width = thick * np.clip((1 - np.abs(along) ** 3.5) ** 0.55, 0.22, 1.0)
    body = tube(path[1:-3], width[1:-3], width[1:-3])
    stalk = tube(path[-5:], 0.9 * width[-5:], 0.9 * width[-5:])
    dark = np.array([0.25, 0.3, 0.3]) * thick
    return shape(Part(body), Part(stalk), Part(tube(path[:3], dark, dark), STEM))


def handle_of(length: float, start: float) -> Mesh:
    """The flat handle of a piece of cutlery: from x = start - length to start, a little arched."""
    x = np.linspace(start - length, start, 12)
    arch = 0.004 + 0.007 * np.sin(np.linspace(0.15, np.pi * 0.9, 12))
    wide = np.interp(np.linspace(0, 1, 12), [0, 0.15, 0.6, 1], [0.009, 0.0105, 0.0065, 0.0045])
    return tube(np.stack([x, 0 * x, arch], axis=1), wide, np.full(12, 0.0022))


def fork(rng: np.random.Generator) -> Shape:
    """A fork with four tines, lying flat."""
    handle = rng.uniform(0.09, 0.11)
    palm = np.array([0.0, 0.008, 0.018, 0.028])
    level = np.array([0.006, 0.004, 0.0035, 0.0035])
    width = np.array([0.0045, 0.011, 0.0165, 0.017])
    pieces = [
        handle_of(handle, 0.002),
        tube(np.stack([palm, 0 * palm, level], axis=1), width, np.full(4, 0.0022)),
    ]
    x = np.array([0.024, 0.04, 0.056, 0.066])
    for y in (-0.0145, -0.0048, 0.0048, 0.0145):
        path = np.stack([x, 0 * x, [0.0035, 0.004, 0.006, 0.009]], axis=1)
        tine = tube(path, np.array([0.0028, 0.0028, 0.0024, 0.001]), np.full(4, 0.0019), 8)
        pieces.append(moved(tine, (0, y, 0)))
    return shape(Part(moved(joined(pieces), ((handle - 0.066) / 2, 0, 0))))


def spoon(rng: np.random.Generator) -> Shape:
    """A spoon lying flat, its bowl up."""
    handle, long, wide = (
        rng.uniform(0.09, 0.11),
        rng.uniform(0.029, 0.034),
        rng.uniform(0.019, 0.023),
    )
    deep = 0.011
    outer = arc(8, -np.pi / 2, 0)
    inner = outer[::-1] * (0.9, 0.82)
    profile = [(float(a), float(b) + 1) for a, b in (*outer[1:], *inner[:-1])]
    dish = lathe([(0.0, 0.0), *profile, (0.0, 0.18)], 28)
    pieces = [handle_of(handle, 0.006), moved(dish, (long, 0, 0), (long, wide, deep))]
    return shape(Part(moved(joined(pieces), ((handle - 2 * long) / 2, 0, 0))))


def box(rng: np.random.Generator) -> Shape:
    """A carton, standing or flat, with a lid or a printed band; never a cube."""
    sizes = [rng.uniform(0.03, 0.04), rng.uniform(0.055, 0.07), rng.uniform(0.09, 0.12)]
    stands = rng.uniform() < 0.5
    x, y, z = (sizes[i] for i in ((1, 0, 2) if stands else (2, 1, 0)))
    light = rng.uniform() < 0.6
    accent = (0.92, 0.91, 0.86) if light else (0.12, 0.12, 0.13)
    if stands and rng.uniform() < 0.6:  # a lid that overhangs; on a flat box it would hide all
        lid = moved(cuboid((x + 0.004, y + 0.004, 0.2 * z)), (0, 0, 0.82 * z))
        return shape(Part(cuboid((x, y, 0.84 * z))), Part(lid, accent))
    band = moved(cuboid((x + 0.001, y + 0.001, 0.3 * z)), (0, 0, 0.4 * z))
    return shape(Part(cuboid((x, y, z))), Part(band, accent))


# -------------------------------------------------------------------------------------------------
# More household objects as meshes made by code: vessels, food and things to handle.

WOOD: Rgb = (0.62, 0.44, 0.26)
STEEL: Rgb = (0.62, 0.63, 0.66)
PALE: Rgb = (0.93, 0.91, 0.85)
DARK: Rgb = (0.12, 0.12, 0.13)
Profile = list[tuple[float, float]]


def extruded(outline: Points, height: float, bevel: float = 0.0) -> Mesh:
    """A flat outline (N, 2), counter-clockwise and seen whole from its middle, drawn upwards.

    bevel: how far the upper and lower edges are cut, metres.
    """
    middle = outline.mean(axis=0)
    away = outline - middle
    inner = middle + away * (1 - bevel / np.hypot(*away.T).max())
    levels = [(inner, 0.0), (outline, bevel), (outline, height - bevel), (inner, height)]
    chosen = levels if bevel > 0 else [(outline, 0.0), (outline, height)]
    rings = np.stack([np.column_stack([o, np.full(len(o), z)]) for o, z in chosen])
    return closed(rings, np.array([*middle, 0.0]), np.array([*middle, height]))


def ring(radius: float, thick: float, segments: int = 40, around: int = 16) -> Mesh:
    """A torus lying on z = 0. radius: of its middle circle; thick: of its body, metres."""
    turn = np.linspace(0, 2 * np.pi, segments, endpoint=False)[:, None]
    body = np.linspace(0, 2 * np.pi, around, endpoint=False)[None]
    r = radius + thick * np.cos(body)
    z = thick + thick * np.sin(body) + 0 * turn
    vertices = np.stack([r * np.cos(turn), r * np.sin(turn), z], axis=2).reshape(-1, 3)
    faces = []
    for i in range(segments):
        for j in range(around):
            a, b = i * around + j, (i + 1) % segments * around + j
            c, d = i * around + (j + 1) % around, (i + 1) % segments * around + (j + 1) % around
            faces += [(a, b, c), (b, d, c)]
    return Mesh(vertices, np.asarray(faces, dtype=np.int64))


def _turned(outline: Points) -> Profile:
    return [(float(a), float(b)) for a, b in outline]


def _round(radius: float, tall: float, count: int = 18) -> Profile:
    """The profile of an ellipsoid that stands on z = 0."""
    turn = np.linspace(0, np.pi, count)
    body = np.stack([radius * np.sin(turn), tall / 2 * (1 - np.cos(turn))], axis=1)
    body[[0, -1], 0] = 0.0
    return _turned(body)


def glass(rng: np.random.Generator) -> Shape:
    """A tumbler, wider at its rim, hollow and without a handle."""
    r, h, wall = rng.uniform(0.031, 0.037), rng.uniform(0.1, 0.125), 0.003
    foot = r * rng.uniform(0.68, 0.82)
    return shape(
        Part(
            lathe(
                [
                    (0, 0), (foot - 0.002, 0), (foot, 0.003), (r, h - 0.001), (r - wall / 2, h),
                    (r - wall, h - 0.001), (foot - wall, 0.012), (0, 0.011),
                ]
            )
        )
    )  # fmt: skip


def can(rng: np.random.Generator) -> Shape:
    """A drinks can or a tin: metal ends, a coloured side."""
    drink = rng.uniform() < 0.6
    r, h = (rng.uniform(0.03, 0.034), rng.uniform(0.105, 0.122))
    if not drink:
        r, h = rng.uniform(0.037, 0.043), rng.uniform(0.07, 0.1)
    neck = r * (0.86 if drink else 0.985)
    side = lathe([(0, 0.004), (r, 0.004), (r, h - 0.009), (neck, h - 0.002), (0, h - 0.002)])
    low = lathe([(0, 0), (neck, 0), (r - 0.001, 0.005), (0, 0.006)])
    top = lathe(
        [(0, h - 0.004), (neck + 0.0006, h - 0.004), (neck, h), (neck - 0.003, h),
         (neck - 0.004, h - 0.0015), (0, h - 0.0015)]
    )  # fmt: skip
    return shape(Part(side), Part(low, STEEL), Part(top, STEEL))


def jar(rng: np.random.Generator) -> Shape:
    """A squat jar with a broad lid of another colour."""
    r, h = rng.uniform(0.036, 0.043), rng.uniform(0.07, 0.09)
    neck, top = 0.8 * r, 0.78 * h
    body = lathe([(0, 0), (r - 0.004, 0), (r, 0.005), (r, top - 0.012), (neck, top), (0, top)])
    lid = lathe(
        [(0, top - 0.002), (0.9 * r, top - 0.002), (0.9 * r, h - 0.002), (0.87 * r, h), (0, h)]
    )
    return shape(Part(body), Part(lid, (PALE, DARK, STEEL)[int(rng.integers(3))]))


def vase(rng: np.random.Generator) -> Shape:
    """A vase: a belly, a waist and a flared, hollow mouth."""
    r, h = rng.uniform(0.036, 0.046), rng.uniform(0.14, 0.18)
    at = np.linspace(0, 1, 16)
    body = r * (0.62 + 0.38 * np.sin(np.pi * (at * 1.35 + 0.12)) ** 2) * (1 - 0.28 * at)
    body[-1] *= 1.12
    outer = _turned(np.stack([body, h * at], axis=1))
    inner = [(a - 0.004, b) for a, b in reversed(outer[4:])]
    return shape(Part(lathe([(0, 0), *outer, *inner, (0, inner[-1][1])])))


def pan(rng: np.random.Generator) -> Shape:
    """A frying pan: a coloured dish, a dark inside, a long handle."""
    r, h = rng.uniform(0.065, 0.08), rng.uniform(0.024, 0.032)
    wall = 0.004
    dish = lathe(
        [(0, 0), (0.85 * r, 0), (r, h - 0.001), (r - wall / 2, h), (r - wall, h - 0.001),
         (0.82 * r, 0.004), (0, 0.004)], 48,
    )  # fmt: skip
    inside = lathe([(0, 0.0041), (0.82 * r, 0.0041), (0.83 * r, 0.006), (0, 0.006)], 48)
    long = rng.uniform(0.09, 0.12)
    x = np.linspace(r - 0.006, r + long, 8)
    path = np.stack([x, 0 * x, h - 0.006 + 0.012 * np.linspace(0, 1, 8)], axis=1)
    handle = tube(path, np.linspace(0.007, 0.009, 8), np.full(8, 0.005))
    by = (-long / 2, 0, 0)
    return shape(
        Part(moved(dish, by)), Part(moved(inside, by), DARK), Part(moved(handle, by), DARK)
    )


def candle(rng: np.random.Generator) -> Shape:
    """A thick candle with a wick."""
    r, h = rng.uniform(0.022, 0.03), rng.uniform(0.06, 0.12)
    wax = lathe(
        [(0, 0), (r, 0), (r, h - 0.003), (r - 0.003, h), (0.5 * r, h - 0.003), (0, h - 0.004)]
    )
    wick = np.array([[0, 0, h - 0.006], [0.001, 0, h + 0.006], [0.003, 0, h + 0.012]])
    return shape(Part(wax), Part(tube(wick, np.full(3, 0.0016), np.full(3, 0.0016), 8), DARK))


def ball(rng: np.random.Generator) -> Shape:
    """A ball, now and then with a pale band about it."""
    r = float(rng.uniform(0.027, 0.036))
    if rng.uniform() < 0.6:
        return shape(Part(lathe(_round(r, 2 * r), 32)))
    turn = np.arcsin(0.18)
    band = arc(5, -turn, turn) * r * 1.003 + (0, r)
    ends = ((0.0, r - 0.18 * r), (0.0, r + 0.18 * r))
    return shape(
        Part(lathe(_round(r, 2 * r), 32)), Part(lathe([ends[0], *_turned(band), ends[1]], 32), PALE)
    )


def block(rng: np.random.Generator) -> Shape:
    """A toy cube with bevelled edges."""
    half = rng.uniform(0.021, 0.029)
    corners = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * half
    return shape(Part(extruded(corners, 2 * half, 0.002)))


def book(rng: np.random.Generator) -> Shape:
    """A book lying flat: coloured covers and back, pale pages."""
    x, y, z = rng.uniform(0.12, 0.15), rng.uniform(0.085, 0.105), rng.uniform(0.018, 0.032)
    cover = 0.0035
    lower, upper = cuboid((x, y, cover)), moved(cuboid((x, y, cover)), (0, 0, z - cover))
    back = moved(cuboid((x, cover, z)), (0, -(y - cover) / 2, 0))
    pages = moved(cuboid((x - 0.006, y - 0.006, z - 2 * cover)), (0, 0.001, cover))
    return shape(Part(joined([lower, upper, back])), Part(pages, PALE))


def sponge(rng: np.random.Generator) -> Shape:
    """A kitchen sponge with a dark scouring side."""
    x, y, z = rng.uniform(0.09, 0.11), rng.uniform(0.055, 0.068), rng.uniform(0.025, 0.032)
    outline = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) / 2 * (x, y)
    pad = extruded(outline, 0.006)
    soft = moved(extruded(outline, z, 0.004), (0, 0, 0.0055))
    return shape(Part(soft), Part(pad, (0.12, 0.2, 0.14)))


def pear(rng: np.random.Generator) -> Shape:
    """A pear with its stem."""
    r, h = rng.uniform(0.03, 0.036), rng.uniform(0.085, 0.1)
    at = np.linspace(0, 1, 18)
    body = r * np.sin(np.pi * at**0.75) ** 0.8 * (1 - 0.62 * np.clip((at - 0.35) / 0.65, 0, 1))
    body[[0, -1]] = 0
    flesh = lathe(_turned(np.stack([body, h * at], axis=1)))
    path = np.array([[0, 0, h - 0.004], [0.002, 0, h + 0.008], [0.006, 0, h + 0.016]])
    return shape(Part(flesh), Part(tube(path, np.full(3, 0.002), np.full(3, 0.002), 8), STEM))


def _onto_x(mesh: Mesh, radius: float, tall: float) -> Mesh:
    """A standing mesh laid down along x."""
    x, y, z = mesh.vertices.T
    return Mesh(np.stack([z - tall / 2, y, radius - x], axis=1), mesh.faces)


def lemon(rng: np.random.Generator) -> Shape:
    """A lemon lying on its side, with a tip at each end."""
    r, tall = rng.uniform(0.025, 0.03), rng.uniform(0.07, 0.085)
    at = np.linspace(0, 1, 22)
    body = np.maximum(
        r * np.sin(np.pi * np.clip((at - 0.06) / 0.88, 0, 1)) ** 0.75,
        0.0065 * np.sin(np.pi * at) ** 0.3,
    )
    body[[0, -1]] = 0
    return shape(Part(_onto_x(lathe(_turned(np.stack([body, tall * at], axis=1))), r, tall)))


def carrot(rng: np.random.Generator) -> Shape:
    """A carrot lying down, with a tuft of green."""
    r, tall = rng.uniform(0.014, 0.018), rng.uniform(0.13, 0.165)
    at = np.linspace(0, 1, 20)
    body = r * (0.12 + 0.88 * at**0.8) * np.clip((1 - at) / 0.06, 0, 1) ** 0.5
    body[0] = 0
    root = _onto_x(lathe(_turned(np.stack([body, tall * at], axis=1)), 24), r, tall)
    leaves = []
    for lean in (-0.35, 0.0, 0.35):
        x = np.linspace(tall / 2 - 0.006, tall / 2 + 0.04, 5)
        path = np.stack([x, lean * (x - x[0]), r + 0.15 * (x - x[0])], axis=1)
        leaves.append(tube(path, np.array([0.002, 0.004, 0.005, 0.004, 0.001]), np.full(5, 0.002)))
    return shape(
        Part(moved(root, (-0.02, 0, 0))),
        Part(moved(joined(leaves), (-0.02, 0, 0)), (0.2, 0.45, 0.13)),
    )


def egg(rng: np.random.Generator) -> Shape:
    """An egg lying on its side."""
    r, tall = rng.uniform(0.021, 0.024), rng.uniform(0.055, 0.062)
    turn = np.linspace(0, np.pi, 18)
    body = r * np.sin(turn) * (1 + 0.14 * np.cos(turn))
    body[[0, -1]] = 0
    profile = _turned(np.stack([body, tall * (1 - np.cos(turn)) / 2], axis=1))
    return shape(Part(_onto_x(lathe(profile), r, tall)))


def donut(rng: np.random.Generator) -> Shape:
    """A doughnut: a coloured icing over dough."""
    radius, thick = rng.uniform(0.028, 0.034), rng.uniform(0.013, 0.016)
    dough = ring(radius, thick)
    icing = moved(ring(radius, 0.93 * thick), (0, 0, 0.0042))
    return shape(Part(icing), Part(dough, (0.72, 0.5, 0.27)))


def star(rng: np.random.Generator) -> Shape:
    """A flat toy star."""
    r, h = rng.uniform(0.038, 0.05), rng.uniform(0.016, 0.024)
    turn = np.linspace(0, 2 * np.pi, 10, endpoint=False)
    reach = np.where(np.arange(10) % 2 == 0, r, 0.45 * r)[:, None]
    return shape(Part(extruded(reach * np.stack([np.cos(turn), np.sin(turn)], axis=1), h, 0.002)))


def knife(rng: np.random.Generator) -> Shape:
    """A table knife: a long flat blade."""
    handle, blade = rng.uniform(0.08, 0.095), rng.uniform(0.085, 0.1)
    outline = np.array(
        [[0, -0.008], [0.75 * blade, -0.0095], [blade, 0.003], [0.97 * blade, 0.007], [0, 0.008]]
    )
    flat = moved(extruded(outline, 0.0022), (0, 0, 0.0035))
    both = joined([handle_of(handle, 0.004), flat])
    return shape(Part(moved(both, ((handle - blade) / 2, 0, 0))))


def pen(rng: np.random.Generator) -> Shape:
    """A thick marker pen: a coloured body, a cap, a tip."""
    r, tall = rng.uniform(0.008, 0.0105), rng.uniform(0.12, 0.14)
    body = lathe([(0, 0), (r - 0.001, 0), (r, 0.002), (r, 0.72 * tall), (0, 0.72 * tall)], 20)
    cap = lathe([(0, 0.72 * tall), (1.1 * r, 0.72 * tall), (1.05 * r, tall - 0.002), (0, tall)], 20)
    light = rng.uniform() < 0.5
    return shape(
        Part(_onto_x(body, 1.1 * r, tall)),
        Part(_onto_x(cap, 1.1 * r, tall), PALE if light else DARK),
    )


def hammer(rng: np.random.Generator) -> Shape:
    """A hammer lying flat: a coloured handle, a steel head."""
    long, thick = rng.uniform(0.14, 0.17), rng.uniform(0.009, 0.0115)
    x = np.linspace(0, long, 10)
    level = 0.014
    grip = thick * np.interp(x / long, [0, 0.1, 0.45, 0.6, 1], [0.8, 1.15, 1.1, 0.7, 0.7])
    handle = tube(np.stack([x, 0 * x, np.full(10, level)], axis=1), grip, np.minimum(grip, level))
    y = np.array([-0.045, -0.02, -0.016, 0.016, 0.022, 0.036, 0.038])
    wide = np.array([0.0035, 0.011, 0.012, 0.012, 0.01, 0.014, 0.0135])
    head = tube(np.stack([0 * y + long - 0.012, y, 0 * y + level], axis=1), wide, wide)
    by = (-long / 2, 0, 0)
    return shape(Part(moved(handle, by)), Part(moved(head, by), STEEL))
