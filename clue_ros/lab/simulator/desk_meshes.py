"""Shapes of things on desks and in bathrooms, and an arm; built as those of `meshes`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from clue_ros.lab.simulator.meshes import (
    DARK,
    PALE,
    STEEL,
    Mesh,
    Part,
    Rgb,
    Shape,
    arc,
    cuboid,
    extruded,
    in_xz,
    joined,
    lathe,
    moved,
    on_side,
    rectangle,
    ring,
    scaled,
    shape,
    tube,
)
from clue_ros.lab.simulator.spec import pick

WHITE: Rgb = (0.94, 0.94, 0.93)
COPPER: Rgb = (0.72, 0.45, 0.2)
BRIGHT: tuple[Rgb, ...] = ((0.8, 0.1, 0.1), (0.1, 0.25, 0.7), (0.1, 0.55, 0.25), (0.95, 0.75, 0.1))


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
        parts.append(Part(joined([moved(loop, (a, 0, 0)) for a in at]), pick(rng, (STEEL, DARK))))
    else:
        band = moved(cuboid(0.005, y + 0.002, z + 0.002), (0.36 * x, 0, -0.0005))
        back = moved(cuboid(x, cover, z), (0, -y / 2, 0))
        parts += [Part(back), Part(band, pick(rng, (DARK, *BRIGHT)))]
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
    tip = pick(rng, (WHITE, *BRIGHT))
    return shape(handle, Part(grip, pick(rng, (WHITE, DARK, *BRIGHT))), Part(tufts[1], tip),
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
    return shape(joined(keys), Part(base, pick(rng, (STEEL, WHITE, (0.3, 0.3, 0.32)))))


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
    return shape(*parts, Part(moved(wheel, at), pick(rng, (DARK, STEEL, *BRIGHT))))


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
    return shape(paper, Part(stamp, pick(rng, BRIGHT)), Part(joined([*rows, *sender]), DARK))


def eraser(rng: np.random.Generator) -> Shape:
    """A rubber eraser in a printed sleeve, which has the object's colour."""
    x, y, z = rng.uniform(0.05, 0.06), rng.uniform(0.02, 0.026), rng.uniform(0.012, 0.015)
    rubber = extruded(rectangle(x, y), z, 0.002)
    sleeve = moved(cuboid(0.62 * x, y + 0.001, z + 0.001), (-0.16 * x, 0, -0.0005))
    band = moved(cuboid(0.12 * x, y + 0.0016, z + 0.0016), (rng.uniform(-0.3, 0) * x, 0, -0.0008))
    soft = pick(rng, (WHITE, WHITE, (0.95, 0.65, 0.7)))
    return shape(sleeve, Part(rubber, soft), Part(band, pick(rng, (WHITE, DARK))))


def glue(rng: np.random.Generator) -> Shape:
    """A glue stick with cap and label, or a bottle of glue with a pointed nozzle."""
    cap = pick(rng, (WHITE, DARK, *BRIGHT))
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
        extra, colors, wide = [nozzle, label], [cap, pick(rng, (WHITE, *BRIGHT))], r
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
    accents = (pick(rng, (COPPER, COPPER, WHITE, (0.85, 0.65, 0.2))), STEEL, STEEL)
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
        parts.append(Part(label, pick(rng, (WHITE, STEEL, DARK))))
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
             Part(joined(edge), pick(rng, (PALE, DARK, COPPER)))]  # fmt: skip
    if rng.uniform() < 0.5:
        card = moved(cuboid(0.07, 0.03, 0.001), (rng.uniform(-0.01, 0.01), y / 2 - 0.005, z / 2))
        parts.append(Part(card, pick(rng, (WHITE, *BRIGHT))))
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
        parts.append(Part(moved(tie, at), pick(rng, (DARK, WHITE, *BRIGHT))))
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
             Part(joined([socket, mark]), pick(rng, (DARK, (0.5, 0.5, 0.52))))]  # fmt: skip
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
    accents = (STEEL, pick(rng, (DARK, BRIGHT[0])), DARK)
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
    return shape(pieces[0], Part(pieces[1], WHITE), Part(pieces[2], pick(rng, (WHITE, PALE))))


def arm(rng: np.random.Generator) -> Shape:
    """A forearm that reaches along -x with its hand, fingers at the origin; bare or in a sleeve.

    It does not stand on z = 0: the world `table` lets it reach into pictures.
    """
    light = rng.uniform() ** 0.8
    skin: Rgb = tuple(float(v) for v in (0.3, 0.18, 0.12) + light * np.array([0.64, 0.58, 0.54]))  # type: ignore[assignment]
    red, green, blue = rng.uniform(0.05, 0.9, 3)
    cloth: Rgb = (float(red), float(green), float(blue))
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
