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


# -------------------------------------------------------------------------------------------------
# Desk and bathroom.

WHITE: Rgb = (0.94, 0.94, 0.93)
COPPER: Rgb = (0.72, 0.45, 0.2)
KRAFT: Rgb = (0.66, 0.5, 0.33)
BRIGHT: tuple[Rgb, ...] = ((0.8, 0.1, 0.1), (0.1, 0.25, 0.7), (0.1, 0.55, 0.25), (0.95, 0.75, 0.1))


def _one(rng: np.random.Generator, accents: Sequence[Rgb]) -> Rgb:
    return accents[int(rng.integers(len(accents)))]


def _upright(flat: Mesh) -> Mesh:
    """A mesh that lies in the xy plane, set up in the yz plane."""
    return Mesh(flat.vertices[:, [2, 0, 1]], flat.faces)


def _line(points: npt.ArrayLike, z: float, wide: float = 0.002) -> Mesh:
    """A line drawn on a level surface through points (N, 2), no two above each other in x."""
    path = np.column_stack([np.asarray(points, np.float64), np.full(len(np.asarray(points)), z)])
    return tube(path, wide / 2, 0.0004, 4)


def _grounded(parts: Sequence[Part]) -> Shape:
    """The parts, raised so that the lowest point lies on z = 0."""
    low = min(float(p.mesh.vertices[:, 2].min()) for p in parts)
    return shape(*(Part(moved(p.mesh, (0, 0, -low)), p.accent) for p in parts))


def notebook(rng: np.random.Generator) -> Shape:
    """A closed notebook: covers, pale pages, and a wire spiral or an elastic band."""
    x, y, z = rng.uniform(0.12, 0.17), rng.uniform(0.09, 0.12), rng.uniform(0.008, 0.014)
    cover = 0.0015
    covers = joined([cuboid(x, y, cover), moved(cuboid(x, y, cover), (0, 0, z - cover))])
    pages = moved(cuboid(x - 0.003, y - 0.003, z - 2 * cover), (0, 0, cover))
    parts = [Part(covers), Part(pages, PALE)]
    if rng.uniform() < 0.55:
        loop = moved(_upright(ring(z / 2 + 0.003, 0.0011, 16, 6)), (0, -y / 2 + 0.003, z / 2))
        at = np.linspace(-0.46 * x, 0.46 * x, int(rng.integers(14, 22)))
        parts.append(Part(joined([moved(loop, (a, 0, 0)) for a in at]), _one(rng, (STEEL, DARK))))
    else:
        band = moved(cuboid(0.005, y + 0.002, z + 0.002), (0.36 * x, 0, -0.0005))
        back = moved(cuboid(x, cover, z), (0, -y / 2, 0))
        parts += [Part(back), Part(band, _one(rng, (DARK, *BRIGHT)))]
    if rng.uniform() < 0.5:
        label = moved(cuboid(0.4 * x, 0.3 * y, 0.0006), (-0.1 * x, 0.12 * y, z))
        lines = [_line([(-0.22 * x, h * y), (0.02 * x, h * y)], z + 0.0008) for h in (0.09, 0.15)]
        parts += [Part(label, WHITE), Part(joined(lines), DARK)]
    return _grounded(parts)


def toothbrush(rng: np.random.Generator) -> Shape:
    """A toothbrush lying flat: a bent handle with a grip, bristles up."""
    long, thick = rng.uniform(0.16, 0.185), rng.uniform(0.005, 0.0065)
    at = np.linspace(0, 1, 16)
    level = thick + rng.uniform(0.004, 0.009) * np.exp(-(((at - 0.68) / 0.12) ** 2))
    wide = thick * np.interp(at, [0, 0.1, 0.5, 0.62, 0.82, 0.86, 0.97, 1],
                             [0.8, 1.15, 1.25, 0.75, 0.6, 1.1, 1.1, 0.7])  # fmt: skip
    x = long * (at - 0.5)
    handle = tube(in_xz(x, level), wide, np.minimum(0.8 * wide, 0.6 * thick + 0 * at))
    grip = tube(in_xz(x[2:9], level[2:9] + 0.35 * thick), 0.7 * wide[2:9], 0.7 * thick)
    head, tall = 0.028, rng.uniform(0.01, 0.013)
    tuft = extruded(rectangle(head / 3, 1.9 * thick), tall, 0.001)
    tufts = [moved(tuft, (long * 0.41 + k * head / 3, 0, thick)) for k in (-1, 0, 1)]
    tip = _one(rng, (WHITE, *BRIGHT))
    return shape(handle, Part(grip, _one(rng, (WHITE, DARK, *BRIGHT))), Part(tufts[1], tip),
                 Part(joined([tufts[0], tufts[2]]), WHITE))  # fmt: skip


def keyboard(rng: np.random.Generator) -> Shape:
    """A keyboard: a grid of keys in the object's colour on a flat base."""
    columns = int(rng.integers(12, 16))
    pitch, tall = rng.uniform(0.0165, 0.0185), rng.uniform(0.008, 0.014)
    key = extruded(rectangle(0.86 * pitch, 0.86 * pitch), 0.005, 0.0015)
    place = [(c - (columns - 1) / 2, 2.0 - r) for r in range(5) for c in range(columns)]
    place = [(c, r) for c, r in place if r > -2 or abs(c) > 3]
    keys = [moved(key, (c * pitch, r * pitch, tall)) for c, r in place]
    keys.append(moved(extruded(rectangle(6.5 * pitch, 0.86 * pitch), 0.005, 0.0015),
                      (0, -2 * pitch, tall)))  # fmt: skip
    base = extruded(rectangle((columns + 0.5) * pitch, 5.6 * pitch), tall + 0.001, 0.002)
    return shape(joined(keys), Part(base, _one(rng, (STEEL, WHITE, (0.3, 0.3, 0.32)))))


def mouse(rng: np.random.Generator) -> Shape:
    """A computer mouse: a low dome with a wheel and the gaps of its buttons."""
    half = rng.uniform((0.05, 0.029, 0.032), (0.06, 0.034, 0.04))
    curve = arc(10, 0, np.pi / 2) ** (1, 0.85)
    dome = moved(lathe([(0, 0), (0.9, 0), *curve[:-1], (0, 1)]), (0, 0, 0), half.tolist())
    turn = np.linspace(0.12, np.pi / 2, 12)
    gap = tube(in_xz(half[0] * np.cos(turn), half[2] * np.sin(turn) ** 0.85), 0.0008, segments=6)
    parts = [Part(dome), Part(gap, DARK)]
    if rng.uniform() < 0.6:  # the buttons end here
        turn = np.linspace(0.15, np.pi - 0.15, 20)
        path = np.stack([0 * turn, half[1] * np.cos(turn), half[2] * np.sin(turn) ** 0.85], axis=1)
        across = Mesh(path[:, [1, 0, 2]], np.zeros((0, 3), np.int64)).vertices
        made = tube(across, 0.0008, segments=6)
        parts.append(Part(Mesh(made.vertices[:, [1, 0, 2]] * (1, -1, 1), made.faces), DARK))
    wheel = moved(ring(0.007, 0.004, 20, 8), (0, 0, -0.004))
    wheel = Mesh(wheel.vertices[:, [1, 2, 0]], wheel.faces)  # set up in the xz plane
    steep = float(np.arccos(0.6))
    at = (0.6 * half[0], 0, half[2] * np.sin(steep) ** 0.85 - 0.004)
    return shape(*parts, Part(moved(wheel, at), _one(rng, (DARK, STEEL, *BRIGHT))))


def envelope(rng: np.random.Generator) -> Shape:
    """An envelope: its back with the edges of the flap, or its front with stamp and address."""
    x, y, z = rng.uniform(0.16, 0.21), rng.uniform(0.1, 0.125), 0.0025
    a, b = 0.485 * x, 0.48 * y
    paper = extruded(rectangle(x, y), z, 0.0005)
    rim = [(-a, b), (0, rng.uniform(-0.2, 0.1) * y), (a, b)]
    if rng.uniform() < 0.6:
        flap = joined([_line(rim, z), _line([(-a, b), (a, b)], z)])
        seams = [
            _line([(-a, -b), (-0.1 * x, 0)], z, 0.0012),
            _line([(a, -b), (0.1 * x, 0)], z, 0.0012),
        ]
        parts = [Part(flap, (0.4, 0.36, 0.32)), Part(joined(seams), (0.55, 0.5, 0.46))]
        if rng.uniform() < 0.3:
            seal = moved(lathe([(0, 0), (0.011, 0), (0.01, 0.002), (0, 0.002)], 20), (*rim[1], z))
            parts.append(Part(seal, BRIGHT[0]))
        return shape(paper, *parts)
    stamp = moved(cuboid(0.022, 0.026, 0.0006), (a - 0.016, b - 0.018, z))
    rows = [_line([(-0.1 * x, h * y), (rng.uniform(0.15, 0.3) * x, h * y)], z, 0.003)
            for h in (-0.02, -0.12, -0.22)]  # fmt: skip
    sender = [_line([(-a + 0.008, h * y), (-0.25 * x, h * y)], z) for h in (0.32, 0.39)]
    return shape(paper, Part(stamp, _one(rng, BRIGHT)), Part(joined([*rows, *sender]), DARK))


def eraser(rng: np.random.Generator) -> Shape:
    """A rubber eraser in a printed sleeve, which has the object's colour."""
    x, y, z = rng.uniform(0.05, 0.06), rng.uniform(0.02, 0.026), rng.uniform(0.012, 0.015)
    rubber = extruded(rectangle(x, y), z, 0.002)
    sleeve = moved(cuboid(0.62 * x, y + 0.001, z + 0.001), (-0.16 * x, 0, -0.0005))
    band = moved(cuboid(0.12 * x, y + 0.0016, z + 0.0016), (rng.uniform(-0.3, 0) * x, 0, -0.0008))
    soft = _one(rng, (WHITE, WHITE, (0.95, 0.65, 0.7)))
    return shape(sleeve, Part(rubber, soft), Part(band, _one(rng, (WHITE, DARK))))


def glue(rng: np.random.Generator) -> Shape:
    """A glue stick with cap and label, or a bottle of glue with a pointed nozzle."""
    cap = _one(rng, (WHITE, DARK, *BRIGHT))
    if rng.uniform() < 0.6:
        r, h = rng.uniform(0.012, 0.016), rng.uniform(0.085, 0.11)
        body = lathe([(0, 0), (r, 0), (r, 0.68 * h), (0, 0.68 * h)])
        foot = lathe([(0, 0), (1.06 * r, 0), (1.06 * r, 0.1 * h), (0, 0.1 * h)])
        top = lathe([(0, 0.67 * h), (1.07 * r, 0.67 * h), (1.07 * r, h - 0.002),
                     (0.95 * r, h), (0, h)])  # fmt: skip
        extra = [foot, top, lathe([(0, 0.3 * h), (1.01 * r, 0.3 * h), (1.01 * r, 0.5 * h),
                                   (0, 0.5 * h)])]  # fmt: skip
        colors, wide = [cap, cap, WHITE], 1.07 * r
    else:
        r, h = rng.uniform(0.02, 0.026), rng.uniform(0.11, 0.14)
        body = lathe([(0, 0), (r - 0.002, 0), (r, 0.003), (r, 0.55 * h), (0.45 * r, 0.68 * h),
                      (0, 0.68 * h)])  # fmt: skip
        nozzle = lathe([(0, 0.67 * h), (0.55 * r, 0.67 * h), (0.5 * r, 0.77 * h),
                        (0.14 * r, h), (0, h)])  # fmt: skip
        label = lathe([(0, 0.12 * h), (1.01 * r, 0.12 * h), (1.01 * r, 0.42 * h), (0, 0.42 * h)])
        extra, colors, wide = [nozzle, label], [cap, _one(rng, (WHITE, *BRIGHT))], r
    pieces = [body, *extra]
    if rng.uniform() < 0.6:
        pieces = [on_side(piece, wide, h) for piece in pieces]
    return shape(pieces[0], *(Part(m, c) for m, c in zip(pieces[1:], colors, strict=True)))


def battery(rng: np.random.Generator) -> Shape:
    """A round battery, mostly lying: a copper or pale ring at the end with the tip."""
    r, h = rng.uniform(0.009, 0.016), rng.uniform(0.052, 0.064)
    side = lathe([(0, 0.001), (r, 0.001), (r, 0.7 * h), (0, 0.7 * h)])
    end = lathe([(0, 0.69 * h), (r, 0.69 * h), (r, 0.94 * h), (0, 0.94 * h)])
    base = lathe([(0, 0), (0.9 * r, 0), (0.9 * r, 0.002), (0, 0.002)])
    tip = lathe([(0, 0.9 * h), (0.94 * r, 0.93 * h), (0.9 * r, 0.955 * h), (0.35 * r, 0.955 * h),
                 (0.33 * r, h), (0, h)])  # fmt: skip
    pieces = [side, end, base, tip]
    if rng.uniform() < 0.8:
        pieces = [on_side(piece, r, h) for piece in pieces]
    accents = (_one(rng, (COPPER, COPPER, WHITE, (0.85, 0.65, 0.2))), STEEL, STEEL)
    return shape(pieces[0], *(Part(m, c) for m, c in zip(pieces[1:], accents, strict=True)))


def usb_stick(rng: np.random.Generator) -> Shape:
    """A USB stick: a small body and a metal plug with two holes."""
    x, y, z = rng.uniform(0.038, 0.048), rng.uniform(0.018, 0.022), rng.uniform(0.008, 0.01)
    body = moved(extruded(rectangle(x, y), z, 0.0015), (-0.008, 0, 0))
    end = x / 2 - 0.008
    plug = moved(cuboid(0.016, 0.0125, 0.005), (end + 0.007, 0, z / 2 - 0.0025))
    hole = cuboid(0.0025, 0.0025, 0.0004)
    holes = [moved(hole, (end + 0.009, s, z / 2 + 0.0025)) for s in (-0.003, 0.003)]
    parts = [Part(body), Part(plug, STEEL), Part(joined(holes), DARK)]
    if rng.uniform() < 0.6:
        label = moved(cuboid(0.5 * x, 0.6 * y, 0.0006), (-0.01, 0, z))
        parts.append(Part(label, _one(rng, (WHITE, STEEL, DARK))))
    return shape(*parts)


def wallet(rng: np.random.Generator) -> Shape:
    """A folded wallet: two leaves about a gap, stitches along the edge, often a card."""
    x, y, z = rng.uniform(0.105, 0.12), rng.uniform(0.082, 0.095), rng.uniform(0.014, 0.022)
    leaf = extruded(rectangle(x, y), 0.44 * z, 0.0025)
    fold = tube(np.array([[-x / 2, -y / 2 + 0.004, z / 2], [x / 2, -y / 2 + 0.004, z / 2]]),
                0.006, z / 2)  # fmt: skip
    lining = moved(cuboid(x - 0.004, y - 0.004, 0.2 * z), (0, 0, 0.4 * z))
    u, v = x / 2 - 0.007, y / 2 - 0.007
    edge = [_line([(k, s * v), (k + 0.004, s * v)], z) for s in (-1, 1)
            for k in np.arange(-u, u - 0.004, 0.007)]  # fmt: skip
    edge += [moved(cuboid(0.001, 0.004, 0.0005), (s * u, k, z)) for s in (-1, 1)
             for k in np.arange(-v, v, 0.007)]  # fmt: skip
    parts = [Part(joined([leaf, moved(leaf, (0, 0, 0.56 * z)), fold])), Part(lining, DARK),
             Part(joined(edge), _one(rng, (PALE, DARK, COPPER)))]  # fmt: skip
    if rng.uniform() < 0.5:
        card = moved(cuboid(0.07, 0.03, 0.001), (rng.uniform(-0.01, 0.01), y / 2 - 0.005, z / 2))
        parts.append(Part(card, _one(rng, (WHITE, *BRIGHT))))
    return shape(*parts)


def cable(rng: np.random.Generator) -> Shape:
    """A coiled cable with a plug at each end, often tied together."""
    thick, radius = rng.uniform(0.0022, 0.0032), rng.uniform(0.036, 0.052)
    turns = int(rng.integers(3, 5))
    turn = np.linspace(0, 2 * np.pi * turns, 40 * turns)
    away = radius + 0.1 * radius * np.sin(turn * rng.uniform(0.55, 0.8)) + 0.004 * turn / turns
    squeezed = rng.uniform(0.75, 1.0)
    height = 1.3 * thick + 0.9 * thick * turn / np.pi / 2
    coil = np.stack([away * np.cos(turn), squeezed * away * np.sin(turn), height], axis=1)
    ends, plugs, tips = [], [], []
    for start, way in ((coil[0], -1), (coil[-1], 1)):
        y = np.linspace(0, rng.uniform(0.03, 0.055), 8)
        bend = rng.uniform(0.1, 0.3) * y**2 / 0.05
        path = np.stack([start[0] + bend, start[1] + way * y,
                         np.linspace(start[2], 0.004, 8)], axis=1)  # fmt: skip
        ends.append(tube(path, thick, segments=8))
        x, y_end = path[-1, :2]
        plugs.append(moved(extruded(rectangle(0.012, 0.024), 0.008, 0.001),
                           (x, y_end + way * 0.011, 0)))  # fmt: skip
        tips.append(moved(cuboid(0.009, 0.012, 0.004), (x, y_end + way * 0.028, 0.002)))
    parts = [Part(joined([tube(coil, thick, segments=8), *ends, *plugs])),
             Part(joined(tips), STEEL)]  # fmt: skip
    if rng.uniform() < 0.5:
        tie = moved(_upright(ring(1.0, 0.12, 20, 6)), (0, 0, 0), (0.035, 0.011, 0.0075))
        at = (0, squeezed * (radius + 0.002), 0.0075 - float(tie.vertices[:, 2].max()) + 0.0045)
        parts.append(Part(moved(tie, at), _one(rng, (DARK, WHITE, *BRIGHT))))
    return _grounded(parts)


def pliers(rng: np.random.Generator) -> Shape:
    """A pair of pliers lying flat: two bowed handles in the object's colour, metal jaws."""
    grip, jaw, thick = rng.uniform(0.1, 0.12), rng.uniform(0.045, 0.06), 0.0075
    at = np.linspace(0, 1, 14)
    bow = rng.uniform(0.02, 0.027) * np.sin(np.pi * at**0.7 * 0.82) ** 1.2 + 0.007
    handles, arms = [], []
    for side in (-1, 1):
        path = np.stack([-0.012 - grip * at, side * bow, np.full(14, thick)], axis=1)
        handles.append(tube(path[2:], 0.0075, 0.0065))
        arms.append(tube(path[:4], 0.006, 0.005))
        outline = np.array([(-0.014, 0.0008), (jaw, 0.0008), (jaw, 0.004), (0.4 * jaw, 0.012),
                            (0, 0.014), (-0.014, 0.011)]) * (1, side)  # fmt: skip
        arms.append(moved(extruded(outline[::-side], 0.01), (0, 0, thick - 0.005)))
    pivot = moved(lathe([(0, 0), (0.007, 0), (0.006, 0.004), (0, 0.004)], 20), (-0.002, 0, 0.011))
    by = ((grip - jaw) / 2, 0, 0)
    return shape(moved(joined(handles), by), Part(moved(joined(arms), by), STEEL),
                 Part(moved(pivot, by), DARK))  # fmt: skip


def charger(rng: np.random.Generator) -> Shape:
    """A plug-in charger: a block with two prongs and a socket, sometimes with its cable."""
    x, y, z = rng.uniform(0.042, 0.055), rng.uniform(0.036, 0.046), rng.uniform(0.024, 0.03)
    block = extruded(rectangle(x, y), z, 0.003)
    prong = on_side(lathe([(0, 0), (0.0026, 0), (0.0026, 0.021), (0, 0.022)], 12), 0.0026, 0.022)
    prongs = [moved(prong, (x / 2 + 0.01, s, z / 2)) for s in (-0.0095, 0.0095)]
    plate = moved(cuboid(0.006, 0.8 * y, 0.8 * z), (x / 2, 0, 0.1 * z))
    socket = moved(cuboid(0.001, 0.014, 0.006), (-x / 2, 0, z / 2))
    mark = moved(cuboid(0.3 * x, 0.12 * y, 0.0006), (0, 0, z))
    parts = [Part(joined([block, plate])), Part(joined(prongs), STEEL),
             Part(joined([socket, mark]), _one(rng, (DARK, (0.5, 0.5, 0.52))))]  # fmt: skip
    if rng.uniform() < 0.5:
        out = np.linspace(0, 1, 24)
        path = np.stack([-x / 2 - 0.075 * out, 0.03 * np.sin(2.2 * np.pi * out) * out,
                         z / 2 * (1 - out) ** 2 + 0.0025], axis=1)  # fmt: skip
        parts.append(Part(tube(path, 0.0022, segments=8)))
    return shape(*parts)


def lighter(rng: np.random.Generator) -> Shape:
    """A pocket lighter, mostly lying: an oval body, a metal hood, a wheel and a button."""
    half, h = rng.uniform(0.011, 0.013), rng.uniform(0.072, 0.082)
    body = lathe([(0, 0), (0.95, 0), (1, 0.03), (1, 0.74), (0, 0.74)])
    hood = lathe([(0, 0.73), (0.96, 0.73), (0.96, 1), (0, 1)])
    body, hood = (moved(m, (0, 0, 0), (half, 0.62 * half, h)) for m in (body, hood))
    button = moved(cuboid(0.8 * half, 0.9 * half, 0.06 * h), (-0.75 * half, 0, 0.76 * h))
    wheel = moved(_upright(ring(0.0035, 0.0022, 14, 6)), (0, 0, 0.99 * h))
    pieces = [body, hood, button, wheel]
    if rng.uniform() < 0.85:  # on its broad side
        wide = 0.62 * half
        pieces = [Mesh(m.vertices[:, [2, 0, 1]] + (-h / 2, 0, wide), m.faces) for m in pieces]
    accents = (STEEL, _one(rng, (DARK, BRIGHT[0])), DARK)
    return shape(pieces[0], *(Part(m, c) for m, c in zip(pieces[1:], accents, strict=True)))


def ketchup(rng: np.random.Generator) -> Shape:
    """A ketchup bottle with a pale label and a white cap, upright, on its cap or lying."""
    r, h = rng.uniform(0.028, 0.034), rng.uniform(0.15, 0.18)
    on_cap = rng.uniform() < 0.4
    top = (0.8 if on_cap else 0.42) * r
    body = lathe([(0, 0), (r - 0.004, 0), (r, 0.005), (0.93 * r, 0.35 * h), (r, 0.6 * h),
                  (0.8 * r, 0.74 * h), (top, 0.82 * h), (0, 0.82 * h)])  # fmt: skip
    cap = lathe([(0, 0.81 * h), (1.08 * top, 0.81 * h), (0.95 * top, 0.93 * h),
                 ((0.9 if on_cap else 0.3) * top, h), (0, h)])  # fmt: skip
    label = lathe([(0, 0.2 * h), (0.98 * r, 0.2 * h), (0.945 * r, 0.35 * h), (0.98 * r, 0.5 * h),
                   (0, 0.5 * h)])  # fmt: skip
    pieces = [body, cap, label]
    if rng.uniform() < 0.35:
        pieces = [on_side(piece, r, h) for piece in pieces]
    elif on_cap:
        pieces = [Mesh(m.vertices * (1, -1, -1) + (0, 0, h), m.faces) for m in pieces]
    return shape(pieces[0], Part(pieces[1], WHITE), Part(pieces[2], _one(rng, (WHITE, PALE))))


def arm(rng: np.random.Generator) -> Shape:
    """A forearm that reaches along -x with its hand, fingers at the origin; bare or in a sleeve.

    It rests nowhere: the world `table` has it reach into pictures.
    """
    light = rng.uniform() ** 0.8
    skin: Rgb = tuple(float(v) for v in (0.3, 0.18, 0.12) + light * np.array([0.64, 0.58, 0.54]))  # type: ignore[assignment]
    cloth = (
        float(rng.uniform(0.05, 0.9)),
        float(rng.uniform(0.05, 0.9)),
        float(rng.uniform(0.05, 0.9)),
    )
    size, bend = rng.uniform(0.85, 1.1), rng.uniform(0.0, 0.03)
    fingers = []
    for k, long in enumerate((0.06, 0.075, 0.08, 0.07)):
        at = np.linspace(0, 1, 7)
        path = np.stack([0.08 - long * at, (k - 1.5) * (0.019 + 0.006 * at),
                         0.02 - bend * at**2], axis=1)  # fmt: skip
        fingers.append(tube(path, np.interp(at, [0, 0.8, 1], [0.009, 0.0085, 0.004])))
    at = np.linspace(0, 1, 7)
    thumb = np.stack([0.12 - 0.06 * at, -0.03 - 0.035 * at**0.7, 0.015 - 0.5 * bend * at], axis=1)
    fingers.append(tube(thumb, np.interp(at, [0, 0.8, 1], [0.013, 0.01, 0.005])))
    x = np.array([0.065, 0.075, 0.1, 0.13, 0.16, 0.19, 0.3, 0.45, 0.9])
    wide = np.array([0.03, 0.039, 0.042, 0.04, 0.032, 0.027, 0.033, 0.042, 0.048])
    tall = np.array([0.01, 0.013, 0.015, 0.017, 0.019, 0.021, 0.03, 0.039, 0.045])
    parts = [Part(joined([*fingers, tube(in_xz(x, 0.018), wide, tall, 20)]), skin)]
    start = rng.uniform(0.17, 0.5)
    if rng.uniform() < 0.7:
        x = np.linspace(start, 0.9, 8)
        sleeve = np.interp(x, [0.17, 0.45, 0.9], [0.043, 0.055, 0.06])
        parts.append(Part(tube(in_xz(x, 0.018), sleeve, 0.9 * sleeve, 20), cloth))
    return scaled(shape(*parts), float(size))
