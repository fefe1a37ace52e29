"""Triangle meshes of household objects, built from solids of revolution, tubes and extrusions.

Each builder draws its proportions from a generator. It returns a `Shape` that rests on z = 0,
centred about the z axis, in metres. This module does not use MuJoCo.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Points: TypeAlias = npt.NDArray[np.float64]
Faces: TypeAlias = npt.NDArray[np.int64]
Rgb: TypeAlias = tuple[float, float, float]

STEM: Rgb = (0.25, 0.16, 0.08)
LEAF: Rgb = (0.2, 0.42, 0.12)
STEEL: Rgb = (0.62, 0.63, 0.66)
PALE: Rgb = (0.93, 0.91, 0.85)
DARK: Rgb = (0.12, 0.12, 0.13)


@dataclass(frozen=True)
class Mesh:
    """vertices: float64 (V, 3), metres. faces: int64 (F, 3), counter-clockwise from outside."""

    vertices: Points
    faces: Faces


@dataclass(frozen=True)
class Part:
    """A piece of an object. accent: its own colour (RGB, 0..1); None takes the object's."""

    mesh: Mesh
    accent: Rgb | None = None


@dataclass(frozen=True)
class Shape:
    """An object's parts and its footprint: all vertices lie within `radius` of a segment on x.

    The segment goes from (-half_length, 0) to (half_length, 0), metres.
    """

    parts: tuple[Part, ...]
    half_length: float
    radius: float

    @cached_property
    def points(self) -> Points:
        """The vertices of all parts, float64 (V, 3), metres."""
        return np.concatenate([p.mesh.vertices for p in self.parts])

    @property
    def extent(self) -> float:
        """The longest side, metres."""
        return float(np.ptp(self.points, axis=0).max())


Builder: TypeAlias = Callable[[np.random.Generator], Shape]


def shape(*pieces: Mesh | Part) -> Shape:
    """The pieces with their common footprint. A mesh takes the object's colour."""
    parts = tuple(p if isinstance(p, Part) else Part(p) for p in pieces)
    points = np.concatenate([p.mesh.vertices for p in parts])[:, :2]
    half = max(0.0, float(np.abs(points[:, 0]).max() - np.abs(points[:, 1]).max()))
    beside = np.hypot(np.maximum(np.abs(points[:, 0]) - half, 0), points[:, 1])
    return Shape(parts, half, float(beside.max()))


def scaled(made: Shape, factor: float) -> Shape:
    """The shape, scaled in all directions."""
    meshes = (Mesh(p.mesh.vertices * factor, p.mesh.faces) for p in made.parts)
    return shape(*(Part(mesh, p.accent) for mesh, p in zip(meshes, made.parts, strict=True)))


# -------------------------------------------------------------------------------------------------
# Solids.


def joined(meshes: Sequence[Mesh]) -> Mesh:
    """Several meshes as one."""
    starts = np.cumsum([0, *(len(m.vertices) for m in meshes[:-1])])
    faces = [m.faces + start for m, start in zip(meshes, starts, strict=True)]
    return Mesh(np.concatenate([m.vertices for m in meshes]), np.concatenate(faces))


def moved(mesh: Mesh, by: Sequence[float], scale: Sequence[float] = (1, 1, 1)) -> Mesh:
    """The mesh, scaled along the axes (all factors positive) and then shifted."""
    return Mesh(mesh.vertices * np.asarray(scale) + np.asarray(by), mesh.faces)


def on_side(mesh: Mesh, radius: float, height: float) -> Mesh:
    """An upright mesh of that radius and height, laid on its side along x."""
    x, y, z = mesh.vertices.T
    return Mesh(np.stack([z - height / 2, y, radius - x], axis=1), mesh.faces)


def closed(rings: Points, first: npt.ArrayLike, last: npt.ArrayLike) -> Mesh:
    """A tube through rings of vertices (N, S, 3), closed by a fan to a point at each end."""
    count, segments, _ = rings.shape
    vertices = np.vstack([rings.reshape(-1, 3), first, last])
    index = np.arange(count * segments).reshape(count, segments)
    after = np.roll(index, -1, axis=1)
    a, b, c, d = index[:-1], after[:-1], after[1:], index[1:]
    sides = np.stack([a, b, c, a, c, d], axis=-1).reshape(-1, 3)
    start, top = np.full(segments, count * segments), np.full(segments, count * segments + 1)
    fans = np.stack([start, after[0], index[0], top, index[-1], after[-1]], axis=-1).reshape(-1, 3)
    return Mesh(vertices, np.concatenate([sides, fans]))


def lathe(profile: npt.ArrayLike, segments: int = 36) -> Mesh:
    """A profile of rows (radius, z), turned about the z axis.

    Its first and last point lie on the axis. Its inside lies to its left: it goes from the
    bottom's centre outwards and up.
    """
    angles = np.linspace(0, 2 * np.pi, segments, endpoint=False)
    body = np.asarray(profile, dtype=np.float64)
    r, z = body[1:-1, 0, None], body[1:-1, 1, None]
    rings = np.stack([r * np.cos(angles), r * np.sin(angles), z + 0 * angles], axis=2)
    return closed(rings, (0.0, 0.0, body[0, 1]), (0.0, 0.0, body[-1, 1]))


def tube(
    path: Points,
    across: npt.ArrayLike,
    upright: npt.ArrayLike | None = None,
    segments: int = 12,
) -> Mesh:
    """An elliptic section swept along a path in the xz or xy plane, closed at both ends.

    path: (N, 3). across, upright: the section's half axes beside and above the path, one for all
    points or (N,); upright is across where it is None.
    """
    along = np.gradient(path, axis=0)
    along /= np.linalg.norm(along, axis=1, keepdims=True)
    # The side vector is horizontal, except where the path itself runs along y or upwards.
    if np.ptp(path[:, 1]) < 1e-9:
        side = np.tile([0.0, 1.0, 0.0], (len(path), 1))
    else:
        side = np.stack([-along[:, 1], along[:, 0], 0 * along[:, 0]], axis=1)
        side /= np.linalg.norm(side, axis=1, keepdims=True)
    up = np.cross(along, side)
    turn = np.linspace(0, 2 * np.pi, segments, endpoint=False)
    wide, tall = (
        np.broadcast_to(np.asarray(half), len(path))[:, None, None]
        for half in (across, across if upright is None else upright)
    )
    rings = (
        path[:, None]
        + wide * np.cos(turn)[None, :, None] * side[:, None]
        + tall * np.sin(turn)[None, :, None] * up[:, None]
    )
    return closed(rings, path[0], path[-1])


def extruded(outline: Points, height: float, bevel: float = 0.0) -> Mesh:
    """A flat outline (N, 2), counter-clockwise and star-shaped about its mean, drawn upwards.

    bevel: how far the upper and lower edges are cut, metres.
    """
    middle = outline.mean(axis=0)
    levels = [(outline, bevel), (outline, height - bevel)]
    if bevel > 0:
        away = outline - middle
        inner = middle + away * (1 - bevel / np.hypot(*away.T).max())
        levels = [(inner, 0.0), *levels, (inner, height)]
    rings = np.stack([np.column_stack([o, np.full(len(o), z)]) for o, z in levels])
    return closed(rings, (*middle, 0.0), (*middle, height))


def rectangle(x: float, y: float) -> Points:
    """The outline of a rectangle with these sides, (4, 2)."""
    return np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) / 2 * (x, y)


def cuboid(x: float, y: float, z: float) -> Mesh:
    """A box with these sides, the centre of its base at the origin."""
    return extruded(rectangle(x, y), z)


def ring(radius: float, thick: float, segments: int = 40, around: int = 16) -> Mesh:
    """A torus lying on z = 0. radius: of its middle circle; thick: of its body, metres."""
    turn = np.linspace(0, 2 * np.pi, segments, endpoint=False)[:, None]
    body = np.linspace(0, 2 * np.pi, around, endpoint=False)[None]
    r = radius + thick * np.cos(body)
    z = thick + thick * np.sin(body) + 0 * turn
    vertices = np.stack([r * np.cos(turn), r * np.sin(turn), z], axis=2).reshape(-1, 3)
    a = np.arange(segments * around).reshape(segments, around)
    b, c = np.roll(a, -1, axis=0), np.roll(a, -1, axis=1)
    d = np.roll(b, -1, axis=1)
    return Mesh(vertices, np.stack([a, b, c, b, d, c], axis=-1).reshape(-1, 3))


def arc(count: int, start: float, end: float) -> Points:
    """(cos, sin) of `count` angles from start to end, radians: (count, 2)."""
    angles = np.linspace(start, end, count)
    return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def in_xz(x: npt.ArrayLike, z: npt.ArrayLike) -> Points:
    """A path in the xz plane, (N, 3). z: of each point, or of all."""
    return np.stack(np.broadcast_arrays(x, 0.0, z), axis=1)


def _on_axis(radii: Points, heights: Points) -> Points:
    """A profile whose ends are put onto the axis, (N, 2)."""
    profile = np.stack([radii, heights], axis=1)
    profile[[0, -1], 0] = 0
    return profile


# -------------------------------------------------------------------------------------------------
# Vessels.


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
    bow = arc(14, -np.pi / 2, np.pi / 2) * (rng.uniform(0.024, 0.032), 0.3 * h)
    handle = tube(in_xz(bow[:, 0] + r - 0.002, bow[:, 1] + 0.53 * h), 0.0055, 0.8 * 0.0055)
    return shape(joined([cup, handle]))


def glass(rng: np.random.Generator) -> Shape:
    """A tumbler, wider at its rim, hollow and without a handle."""
    r, h, wall = rng.uniform(0.031, 0.037), rng.uniform(0.1, 0.125), 0.003
    foot = r * rng.uniform(0.68, 0.82)
    return shape(
        lathe(
            [
                (0, 0), (foot - 0.002, 0), (foot, 0.003), (r, h - 0.001), (r - wall / 2, h),
                (r - wall, h - 0.001), (foot - wall, 0.012), (0, 0.011),
            ]
        )
    )  # fmt: skip


def bottle(rng: np.random.Generator) -> Shape:
    """A bottle with a neck and a cap, upright or lying."""
    r, h = rng.uniform(0.029, 0.037), rng.uniform(0.15, 0.19)
    neck, shoulder = rng.uniform(0.011, 0.014), rng.uniform(0.55, 0.66) * h
    curve = arc(6, 0, np.pi / 2) * (r - neck, 0.2 * h) + (neck, shoulder)
    body = lathe([(0, 0), (r - 0.004, 0), (r, 0.004), *curve, (neck, 0.9 * h), (0, 0.9 * h)])
    top = neck + 0.002
    cap = lathe([(0, 0.89 * h), (top, 0.89 * h), (top, 0.995 * h), (top - 0.001, h), (0, h)])
    dark = rng.uniform() < 0.5
    if rng.uniform() < 0.25:
        body, cap = on_side(body, r, h), on_side(cap, r, h)
    return shape(body, Part(cap, (0.1, 0.1, 0.11) if dark else (0.9, 0.9, 0.88)))


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
    return shape(side, Part(low, STEEL), Part(top, STEEL))


def jar(rng: np.random.Generator) -> Shape:
    """A squat jar with a broad lid of another colour."""
    r, h = rng.uniform(0.036, 0.043), rng.uniform(0.07, 0.09)
    neck, top = 0.8 * r, 0.78 * h
    body = lathe([(0, 0), (r - 0.004, 0), (r, 0.005), (r, top - 0.012), (neck, top), (0, top)])
    lid = lathe(
        [(0, top - 0.002), (0.9 * r, top - 0.002), (0.9 * r, h - 0.002), (0.87 * r, h), (0, h)]
    )
    return shape(body, Part(lid, (PALE, DARK, STEEL)[int(rng.integers(3))]))


def bowl(rng: np.random.Generator) -> Shape:
    """A deep round bowl on a foot."""
    r, h, wall = rng.uniform(0.06, 0.075), rng.uniform(0.045, 0.06), 0.004
    low = 0.45 * r
    outer = arc(9, -np.pi / 2, 0) * (r - low, h) + (low, h)
    inner = [(a - wall, max(b + 0.0005, 0.006)) for a, b in outer[:0:-1]]
    return shape(lathe([(0, 0), *outer, (r - wall / 2, h + 0.002), *inner, (0, 0.006)]))


def plate(rng: np.random.Generator) -> Shape:
    """A flat plate with a raised rim."""
    r, h, well = rng.uniform(0.075, 0.095), rng.uniform(0.013, 0.019), rng.uniform(0.6, 0.7)
    profile = [
        (0, 0), (well * r, 0), (well * r + 0.006, 0.004), (r, h - 0.003), (r, h),
        (well * r + 0.004, 0.009), (well * r - 0.003, 0.004), (0, 0.0035),
    ]  # fmt: skip
    return shape(lathe(profile, 48))


def pan(rng: np.random.Generator) -> Shape:
    """A frying pan: a coloured dish, a dark inside, a long handle."""
    r, h, wall = rng.uniform(0.065, 0.08), rng.uniform(0.024, 0.032), 0.004
    dish = lathe(
        [(0, 0), (0.85 * r, 0), (r, h - 0.001), (r - wall / 2, h), (r - wall, h - 0.001),
         (0.82 * r, 0.004), (0, 0.004)], 48,
    )  # fmt: skip
    inside = lathe([(0, 0.0041), (0.82 * r, 0.0041), (0.83 * r, 0.006), (0, 0.006)], 48)
    long = rng.uniform(0.09, 0.12)
    path = in_xz(np.linspace(r - 0.006, r + long, 8), h - 0.006 + 0.012 * np.linspace(0, 1, 8))
    handle = tube(path, np.linspace(0.007, 0.009, 8), 0.005)
    by = (-long / 2, 0, 0)
    return shape(moved(dish, by), Part(moved(inside, by), DARK), Part(moved(handle, by), DARK))


def vase(rng: np.random.Generator) -> Shape:
    """A vase: a belly, a waist and a flared, hollow mouth."""
    r, h = rng.uniform(0.036, 0.046), rng.uniform(0.14, 0.18)
    at = np.linspace(0, 1, 16)
    body = r * (0.62 + 0.38 * np.sin(np.pi * (at * 1.35 + 0.12)) ** 2) * (1 - 0.28 * at)
    body[-1] *= 1.12
    outer = np.stack([body, h * at], axis=1)
    inner = outer[:3:-1] - (0.004, 0)
    return shape(lathe([(0, 0), *outer, *inner, (0, inner[-1, 1])]))


# -------------------------------------------------------------------------------------------------
# Boxes and toys.


def box(rng: np.random.Generator) -> Shape:
    """A carton, standing or flat, with a lid or a printed band; never a cube."""
    sizes = [rng.uniform(0.03, 0.04), rng.uniform(0.055, 0.07), rng.uniform(0.09, 0.12)]
    stands = rng.uniform() < 0.5
    x, y, z = (sizes[i] for i in ((1, 0, 2) if stands else (2, 1, 0)))
    light = rng.uniform() < 0.6
    accent = (0.92, 0.91, 0.86) if light else DARK
    if stands and rng.uniform() < 0.6:  # a lid that overhangs; on a flat box it would hide all
        lid = moved(cuboid(x + 0.004, y + 0.004, 0.2 * z), (0, 0, 0.82 * z))
        return shape(cuboid(x, y, 0.84 * z), Part(lid, accent))
    band = moved(cuboid(x + 0.001, y + 0.001, 0.3 * z), (0, 0, 0.4 * z))
    return shape(cuboid(x, y, z), Part(band, accent))


def book(rng: np.random.Generator) -> Shape:
    """A book lying flat: coloured covers and back, pale pages."""
    x, y, z = rng.uniform(0.12, 0.15), rng.uniform(0.085, 0.105), rng.uniform(0.018, 0.032)
    cover = 0.0035
    lower, upper = cuboid(x, y, cover), moved(cuboid(x, y, cover), (0, 0, z - cover))
    back = moved(cuboid(x, cover, z), (0, -(y - cover) / 2, 0))
    pages = moved(cuboid(x - 0.006, y - 0.006, z - 2 * cover), (0, 0.001, cover))
    return shape(joined([lower, upper, back]), Part(pages, PALE))


def sponge(rng: np.random.Generator) -> Shape:
    """A kitchen sponge with a dark scouring side."""
    x, y, z = rng.uniform(0.09, 0.11), rng.uniform(0.055, 0.068), rng.uniform(0.025, 0.032)
    soft = moved(extruded(rectangle(x, y), z, 0.004), (0, 0, 0.0055))
    return shape(soft, Part(cuboid(x, y, 0.006), (0.12, 0.2, 0.14)))


def block(rng: np.random.Generator) -> Shape:
    """A toy cube with bevelled edges."""
    side = 2 * rng.uniform(0.021, 0.029)
    return shape(extruded(rectangle(side, side), side, 0.002))


def star(rng: np.random.Generator) -> Shape:
    """A flat toy star."""
    r, h = rng.uniform(0.038, 0.05), rng.uniform(0.016, 0.024)
    turn = np.linspace(0, 2 * np.pi, 10, endpoint=False)
    reach = np.where(np.arange(10) % 2 == 0, r, 0.45 * r)[:, None]
    return shape(extruded(reach * np.stack([np.cos(turn), np.sin(turn)], axis=1), h, 0.002))


def ball(rng: np.random.Generator) -> Shape:
    """A ball, sometimes with a pale band about it."""
    r = float(rng.uniform(0.027, 0.036))
    turn = np.linspace(0, np.pi, 18)
    whole = lathe(_on_axis(r * np.sin(turn), 2 * r / 2 * (1 - np.cos(turn))), 32)
    if rng.uniform() < 0.6:
        return shape(whole)
    half = np.arcsin(0.18)
    band = arc(5, -half, half) * r * 1.003 + (0, r)
    return shape(whole, Part(lathe([(0, r - 0.18 * r), *band, (0, r + 0.18 * r)], 32), PALE))


def candle(rng: np.random.Generator) -> Shape:
    """A thick candle with a wick."""
    r, h = rng.uniform(0.022, 0.03), rng.uniform(0.06, 0.12)
    wax = lathe(
        [(0, 0), (r, 0), (r, h - 0.003), (r - 0.003, h), (0.5 * r, h - 0.003), (0, h - 0.004)]
    )
    wick = tube(in_xz([0, 0.001, 0.003], [h - 0.006, h + 0.006, h + 0.012]), 0.0016, segments=8)
    return shape(wax, Part(wick, DARK))


# -------------------------------------------------------------------------------------------------
# Food.


def apple(rng: np.random.Generator) -> Shape:
    """An apple: dimples above and below, a stem, often a leaf."""
    r = rng.uniform(0.034, 0.041)
    turn = np.linspace(0, np.pi, 16)
    waist = r * np.sin(turn) * (1 - 0.12 * np.cos(turn - np.pi))
    dip = 0.35 * r * (np.exp(-((turn / 0.45) ** 2)) - np.exp(-(((np.pi - turn) / 0.4) ** 2)))
    z = -0.92 * r * np.cos(turn) + dip
    z -= z.min()
    base, lean = float(z[-1]), rng.uniform(-0.006, 0.006)
    stem = tube(in_xz([0, lean / 2, lean], [base - 0.004, base + 0.01, base + 0.019]), 0.0017,
                segments=8)  # fmt: skip
    parts = [Part(lathe(np.stack([waist, z], axis=1))), Part(stem, STEM)]
    if rng.uniform() < 0.6:
        leaf = lathe([(0, -1), *arc(7, -1.2, 1.2), (0, 1)], 12)
        parts.append(Part(moved(leaf, (0.012, 0, base + 0.012), (0.012, 0.006, 0.0018)), LEAF))
    return shape(*parts)


def pear(rng: np.random.Generator) -> Shape:
    """A pear with its stem."""
    r, h = rng.uniform(0.03, 0.036), rng.uniform(0.085, 0.1)
    at = np.linspace(0, 1, 18)
    body = r * np.sin(np.pi * at**0.75) ** 0.8 * (1 - 0.62 * np.clip((at - 0.35) / 0.65, 0, 1))
    stem = tube(in_xz([0, 0.002, 0.006], [h - 0.004, h + 0.008, h + 0.016]), 0.002, segments=8)
    return shape(lathe(_on_axis(body, h * at)), Part(stem, STEM))


def banana(rng: np.random.Generator) -> Shape:
    """A banana lying on its side, with a stalk and a dark tip."""
    bend, thick = rng.uniform(0.085, 0.11), rng.uniform(0.015, 0.018)
    half = rng.uniform(0.75, 0.95)
    curve = arc(26, np.pi / 2 + half, np.pi / 2 - half) * bend
    path = np.stack([curve[:, 0], curve[:, 1] - curve[:, 1].mean(), np.full(26, thick)], axis=1)
    along = np.linspace(-1, 1, 26)
    width = thick * np.clip((1 - np.abs(along) ** 3.5) ** 0.55, 0.22, 1.0)
    tip = tube(path[:3], np.array([0.25, 0.3, 0.3]) * thick)
    return shape(tube(path[1:-3], width[1:-3]), tube(path[-5:], 0.9 * width[-5:]), Part(tip, STEM))


def lemon(rng: np.random.Generator) -> Shape:
    """A lemon lying on its side, with a tip at each end."""
    r, tall = rng.uniform(0.025, 0.03), rng.uniform(0.07, 0.085)
    at = np.linspace(0, 1, 22)
    flesh = r * np.sin(np.pi * np.clip((at - 0.06) / 0.88, 0, 1)) ** 0.75
    tips = 0.0065 * np.sin(np.pi * at) ** 0.3
    return shape(on_side(lathe(_on_axis(np.maximum(flesh, tips), tall * at)), r, tall))


def carrot(rng: np.random.Generator) -> Shape:
    """A carrot lying down, with a tuft of green."""
    r, tall = rng.uniform(0.014, 0.018), rng.uniform(0.13, 0.165)
    at = np.linspace(0, 1, 20)
    body = r * (0.12 + 0.88 * at**0.8) * np.clip((1 - at) / 0.06, 0, 1) ** 0.5
    root = on_side(lathe(_on_axis(body, tall * at), 24), r, tall)
    x = np.linspace(tall / 2 - 0.006, tall / 2 + 0.04, 5)
    paths = [np.stack([x, lean * (x - x[0]), r + 0.15 * (x - x[0])], axis=1)
             for lean in (-0.35, 0.0, 0.35)]  # fmt: skip
    leaves = joined([tube(path, [0.002, 0.004, 0.005, 0.004, 0.001], 0.002) for path in paths])
    by = (-0.02, 0, 0)
    return shape(moved(root, by), Part(moved(leaves, by), (0.2, 0.45, 0.13)))


def egg(rng: np.random.Generator) -> Shape:
    """An egg lying on its side."""
    r, tall = rng.uniform(0.021, 0.024), rng.uniform(0.055, 0.062)
    turn = np.linspace(0, np.pi, 18)
    body = r * np.sin(turn) * (1 + 0.14 * np.cos(turn))
    return shape(on_side(lathe(_on_axis(body, tall * (1 - np.cos(turn)) / 2)), r, tall))


def donut(rng: np.random.Generator) -> Shape:
    """A doughnut: a coloured icing over dough."""
    radius, thick = rng.uniform(0.028, 0.034), rng.uniform(0.013, 0.016)
    icing = moved(ring(radius, 0.93 * thick), (0, 0, 0.0042))
    return shape(icing, Part(ring(radius, thick), (0.72, 0.5, 0.27)))


# -------------------------------------------------------------------------------------------------
# Cutlery and tools.


def _cutlery_handle(length: float, end: float) -> Mesh:
    """A flat, slightly arched handle from x = end - length to x = end."""
    arch = 0.004 + 0.007 * np.sin(np.linspace(0.15, np.pi * 0.9, 12))
    wide = np.interp(np.linspace(0, 1, 12), [0, 0.15, 0.6, 1], [0.009, 0.0105, 0.0065, 0.0045])
    return tube(in_xz(np.linspace(end - length, end, 12), arch), wide, 0.0022)


def fork(rng: np.random.Generator) -> Shape:
    """A fork with four tines, lying flat."""
    handle = rng.uniform(0.09, 0.11)
    palm = in_xz([0.0, 0.008, 0.018, 0.028], [0.006, 0.004, 0.0035, 0.0035])
    prong = in_xz([0.024, 0.04, 0.056, 0.066], [0.0035, 0.004, 0.006, 0.009])
    tine = tube(prong, [0.0028, 0.0028, 0.0024, 0.001], 0.0019, 8)
    pieces = [
        _cutlery_handle(handle, 0.002),
        tube(palm, [0.0045, 0.011, 0.0165, 0.017], 0.0022),
        *(moved(tine, (0, y, 0)) for y in (-0.0145, -0.0048, 0.0048, 0.0145)),
    ]
    return shape(moved(joined(pieces), ((handle - 0.066) / 2, 0, 0)))


def spoon(rng: np.random.Generator) -> Shape:
    """A spoon lying flat, its bowl up."""
    handle, long, wide = (
        rng.uniform(*limits) for limits in ((0.09, 0.11), (0.029, 0.034), (0.019, 0.023))
    )
    outer = arc(8, -np.pi / 2, 0)
    sides = np.concatenate([outer[1:], outer[:0:-1] * (0.9, 0.82)]) + np.array([0, 1])
    dish = lathe([(0, 0), *sides, (0, 0.18)], 28)
    pieces = [_cutlery_handle(handle, 0.006), moved(dish, (long, 0, 0), (long, wide, 0.011))]
    return shape(moved(joined(pieces), ((handle - 2 * long) / 2, 0, 0)))


def knife(rng: np.random.Generator) -> Shape:
    """A table knife: a long flat blade."""
    handle, blade = rng.uniform(0.08, 0.095), rng.uniform(0.085, 0.1)
    outline = np.array(
        [[0, -0.008], [0.75 * blade, -0.0095], [blade, 0.003], [0.97 * blade, 0.007], [0, 0.008]]
    )
    flat = moved(extruded(outline, 0.0022), (0, 0, 0.0035))
    both = joined([_cutlery_handle(handle, 0.004), flat])
    return shape(moved(both, ((handle - blade) / 2, 0, 0)))


def pen(rng: np.random.Generator) -> Shape:
    """A thick marker pen: a coloured body, a cap, a tip."""
    r, tall = rng.uniform(0.008, 0.0105), rng.uniform(0.12, 0.14)
    body = lathe([(0, 0), (r - 0.001, 0), (r, 0.002), (r, 0.72 * tall), (0, 0.72 * tall)], 20)
    cap = lathe([(0, 0.72 * tall), (1.1 * r, 0.72 * tall), (1.05 * r, tall - 0.002), (0, tall)], 20)
    body, cap = on_side(body, 1.1 * r, tall), on_side(cap, 1.1 * r, tall)
    return shape(body, Part(cap, PALE if rng.uniform() < 0.5 else DARK))


def hammer(rng: np.random.Generator) -> Shape:
    """A hammer lying flat: a coloured handle, a steel head."""
    long, thick = rng.uniform(0.14, 0.17), rng.uniform(0.009, 0.0115)
    x, level = np.linspace(0, long, 10), 0.014
    grip = thick * np.interp(x / long, [0, 0.1, 0.45, 0.6, 1], [0.8, 1.15, 1.1, 0.7, 0.7])
    handle = tube(in_xz(x, level), grip, np.minimum(grip, level))
    y = np.array([-0.045, -0.02, -0.016, 0.016, 0.022, 0.036, 0.038])
    path = np.stack([0 * y + long - 0.012, y, 0 * y + level], axis=1)
    head = tube(path, [0.0035, 0.011, 0.012, 0.012, 0.01, 0.014, 0.0135])
    by = (-long / 2, 0, 0)
    return shape(moved(handle, by), Part(moved(head, by), STEEL))
