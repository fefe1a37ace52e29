"""More household objects as meshes made by code: vessels, food and things to handle.

As in `meshes`: each builder draws its proportions and returns a `Shape` that rests on z = 0,
centred about the z axis, in metres. `extruded` and `ring` join `lathe`, `tube` and `cuboid`.
"""

from __future__ import annotations

import numpy as np

from clue_ros.data.tabletop.meshes import (
    STEM,
    Mesh,
    Part,
    Points,
    Rgb,
    Shape,
    arc,
    closed,
    cuboid,
    handle_of,
    joined,
    lathe,
    moved,
    shape,
    tube,
)

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
