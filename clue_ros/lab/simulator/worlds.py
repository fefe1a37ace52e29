"""The worlds by name. A new one is a `WorldSpec` and a line here."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from clue_ros.lab.simulator import meshes, textures
from clue_ros.lab.simulator.objects import FINISHES, Household, Pantry, Ware
from clue_ros.lab.simulator.scene import COLORS, KINDS
from clue_ros.lab.simulator.spec import (
    Camera,
    Hsv,
    Light,
    Placed,
    Settling,
    Surfaces,
    Table,
    WorldSpec,
    rgb_of,
)
from clue_ros.lab.simulator.textures import noise

# -------------------------------------------------------------------------------------------------
# The default world: blocks, cylinders and balls in seven colours on a plain table.

MAX_OBJECTS = 7
TEXTURES = 4

# Hue, saturation and value ranges of each colour name (fractions). Dark greens, blues and purples
# are wide on purpose: real cameras under-expose them.
HSV: dict[str, Hsv] = {
    "red": ((-0.02, 0.02), (0.75, 1.0), (0.55, 1.0)),
    "green": ((0.33, 0.44), (0.5, 1.0), (0.28, 0.85)),
    "blue": ((0.57, 0.64), (0.7, 1.0), (0.4, 1.0)),
    "yellow": ((0.135, 0.17), (0.55, 1.0), (0.8, 1.0)),
    "purple": ((0.72, 0.82), (0.4, 0.9), (0.25, 0.7)),
    "orange": ((0.065, 0.095), (0.85, 1.0), (0.8, 1.0)),
    "white": ((0.0, 1.0), (0.0, 0.05), (0.85, 1.0)),
}
BLOCK_NOUNS: dict[str, tuple[str, ...]] = {
    "block": ("block", "block", "cube", "brick"),
    "cylinder": ("cylinder", "cylinder", "can", "tube"),
    "ball": ("ball", "ball", "sphere"),
}


class Primitives:
    """MuJoCo's own boxes, cylinders and spheres; a body's type and size change in place."""

    def xml(self, rng: np.random.Generator) -> tuple[str, str]:
        """MAX_OBJECTS bodies of one geom each."""
        return "", "".join(
            f'<body name="o{i}" pos="0 0 -9"><geom type="box" size=".03 .03 .03"/></body>'
            for i in range(MAX_OBJECTS)
        )

    def arrange(self, rng: np.random.Generator, most: int) -> list[Placed]:
        """Two to `most` objects; half of the scenes hold one kind only."""
        count = 2 if rng.uniform() < 0.1 else int(rng.integers(3, min(most, MAX_OBJECTS) + 1))
        one_kind = rng.uniform() < 0.5
        kinds = [str(rng.choice(KINDS))] if one_kind else list(KINDS)
        # A small palette makes look-alikes, which is what asking is about.
        palette = rng.permutation(COLORS)[: int(rng.integers(2, 6))]
        spread = rng.uniform(0.11, 0.16)
        size = rng.uniform(0.027, 0.043)
        out: list[Placed] = []
        for _ in range(40 * count):
            if len(out) == count:
                break
            x, y = rng.uniform(-spread, spread, 2)
            radius = size * rng.uniform(0.85, 1.2)
            if any(np.hypot(x - o.x, y - o.y) < 1.3 * (radius + o.radius) for o in out):
                continue
            kind, color = str(rng.choice(kinds)), str(rng.choice(palette))
            rgb = rgb_of(HSV, color, rng)
            height = radius * (1.0 if kind == "block" else float(rng.uniform(1.2, 1.9)))
            lying = kind == "cylinder" and rng.uniform() < 0.25
            yaw = rng.uniform(0, 2 * np.pi)
            place = (float(x), float(y), radius, height, yaw, lying)
            out.append(Placed(f"o{len(out)}", kind, color, rgb, *place))
        return out

    def show(self, model: Any, placed: list[Placed]) -> None:
        """Give the first bodies the objects' shapes; the others go below the floor."""
        for o in placed:
            self._put(model, o)
        for i in range(len(placed), MAX_OBJECTS):
            model.body_pos[model.body(f"o{i}").id] = (0, 0, -9)

    def _put(self, model: Any, o: Placed) -> None:
        import mujoco

        body = model.body(o.body).id
        geom = int(model.body_geomadr[body])
        types = {
            "block": mujoco.mjtGeom.mjGEOM_BOX,
            "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
            "ball": mujoco.mjtGeom.mjGEOM_SPHERE,
        }
        model.geom_type[geom] = int(types[o.kind])
        r = o.radius * (0.82 if o.kind != "ball" else 1.0)
        model.geom_size[geom] = (r, r, r) if o.kind == "block" else (r, o.height * 0.82, 0)
        model.geom_rgba[geom] = (*o.rgb, 1)
        half = {"block": r, "ball": r, "cylinder": r if o.lying else o.height * 0.82}[o.kind]
        model.body_pos[body] = (o.x, o.y, half)
        c, s = np.cos(o.yaw / 2), np.sin(o.yaw / 2)
        tilt = np.sqrt(0.5)  # a quarter turn about y lays a cylinder on its side
        model.body_quat[body] = (
            (c * tilt, -s * tilt, c * tilt, s * tilt) if o.lying else (c, 0, 0, s)
        )
        # The renderer culls by this, normally derived from type and size when compiled.
        model.geom_rbound[geom] = 3 * o.radius + o.height
        model.geom_matid[geom] = -1


BLOCKS = WorldSpec(
    name="blocks",
    nouns=BLOCK_NOUNS,
    colors=HSV,
    stock=Primitives,
    camera=Camera(
        elevation=(35, 72),
        azimuth=((-25, 25),),
        fovy=(35, 55),
        half_height=(0.17, 0.26),
        shapes=((0.7, 0.7), (0.75, 1.0)),
        # From straight above a ball and an upright cylinder are both discs.
        overhead=(78, 90),
        flat=frozenset({"block"}),
    ),
    tables=(Table("box", (0.35, 0.7), (0.32, 0.6)),),
    surfaces=Surfaces(
        make=lambda rng: [noise(rng) for _ in range(TEXTURES)],
        count=TEXTURES,
        size=128,
        dark=0.45,
        dim=(0.12, 0.5),
        lit=(0.5, 1.1),
    ),
    light=Light(),
    min_fill=0.42,  # less, and another object hides most of it
)


# -------------------------------------------------------------------------------------------------
# A world that training never had: household objects, other tables, another camera.

NOVEL_COLORS: dict[str, Hsv] = HSV | {
    "black": ((0.0, 1.0), (0.0, 0.15), (0.03, 0.09)),
    "brown": ((0.04, 0.065), (0.55, 0.75), (0.24, 0.38)),
    "pink": ((0.91, 0.95), (0.42, 0.6), (0.88, 1.0)),
    "gray": ((0.0, 1.0), (0.0, 0.05), (0.38, 0.52)),
    "cyan": ((0.485, 0.515), (0.75, 1.0), (0.75, 1.0)),
}
_METAL = ("gray", "gray", "gray", "black", "white", "red", "blue", "green", "pink")
NOVEL_WARES: dict[str, Ware] = {
    "mug": Ware(meshes.mug),
    "bottle": Ware(meshes.bottle),
    "bowl": Ware(meshes.bowl),
    "plate": Ware(meshes.plate),
    "apple": Ware(meshes.apple, ("red", "red", "green", "yellow"), ("glossy",)),
    "banana": Ware(meshes.banana, ("yellow", "yellow", "green"), ("matte",)),
    "fork": Ware(meshes.fork, _METAL, ("metal",)),
    "spoon": Ware(meshes.spoon, _METAL, ("metal",)),
    "box": Ware(meshes.box, None, ("matte",)),
}


def _novel_coverings(rng: np.random.Generator) -> list[textures.Texture]:
    """Tables of wood and stone, bare or with a cloth, and clothed all over; then floors."""
    cloths = [textures.CLOTHS[int(i)] for i in rng.permutation(len(textures.CLOTHS))]
    tops = [
        textures.wood(rng),
        textures.marble(rng),
        textures.laid(rng, textures.wood(rng), cloths[0](rng)),
        textures.laid(rng, textures.marble(rng), cloths[1](rng)),
        textures.laid(rng, textures.wood(rng), cloths[2](rng)),
        textures.checks(rng),
    ]
    return [*tops, *((textures.tiles, textures.wood)[i % 2](rng) for i in range(len(tops)))]


NOVEL = WorldSpec(
    name="novel",
    # The tokenizer has these words, training never used them.
    nouns={"mug": ("mug", "mug", "cup")} | {kind: (kind,) for kind in NOVEL_WARES if kind != "mug"},
    colors=NOVEL_COLORS,
    stock=lambda: Household(NOVEL_WARES, NOVEL_COLORS),
    camera=Camera(
        elevation=(22, 33),
        azimuth=((-80, -30), (30, 80)),
        fovy=(15, 23),
        half_height=(0.175, 0.25),
        aim=0.02,
        shapes=((0.5625, 1.0),),
    ),
    tables=(
        Table("cylinder", (0.4, 0.55), (0.4, 0.55)),
        Table("box", (0.35, 0.5), (0.45, 0.7)),
    ),
    surfaces=Surfaces(
        make=_novel_coverings, count=6, size=textures.SIZE, dark=0.2, dim=(0.5, 0.7),
        lit=(0.8, 1.1), own_floor=True, repeat=5,
    ),
    light=Light(
        key=(0.5, 0.7), fill=(0.2, 0.35), ambient=(0.25, 0.4), specular=(0.0, 0.3), tint=0.12,
        exponent=2, shadows=4096,
    ),
    width=384,
    scenes_per_shard=100,
    scenes_per_model=25,
    min_side=0.045,
    min_visible=0.7,
)  # fmt: skip


# -------------------------------------------------------------------------------------------------
# The rich world: household objects that fell onto a table, in clutter, and its unseen twin.

RICH_COLORS: dict[str, Hsv] = {name: hsv for name, hsv in NOVEL_COLORS.items() if name != "cyan"}
RICH_WARES: dict[str, Ware] = {
    "mug": Ware(meshes.mug, None, FINISHES),
    "glass": Ware(meshes.glass, None, ("glossy",)),
    "bottle": Ware(meshes.bottle, None, ("matte", "glossy", "striped")),
    "can": Ware(meshes.can, None, ("matte", "glossy", "striped")),
    "jar": Ware(meshes.jar, None, FINISHES),
    "bowl": Ware(meshes.bowl, None, FINISHES),
    "plate": Ware(meshes.plate, None, FINISHES),
    "pan": Ware(meshes.pan, None, ("matte", "glossy")),
    "vase": Ware(meshes.vase, None, FINISHES),
    "candle": Ware(meshes.candle, None, ("matte", "mottled")),
    "ball": Ware(meshes.ball, None, FINISHES),
    "block": Ware(meshes.block, None, ("matte", "glossy", "grain", "mottled")),
    "box": Ware(meshes.box, None, ("matte", "striped", "grain")),
    "book": Ware(meshes.book, None, ("matte", "glossy", "woven", "grain")),
    "sponge": Ware(meshes.sponge, None, ("matte", "mottled")),
    "apple": Ware(meshes.apple, ("red", "red", "green", "yellow"), ("glossy", "mottled")),
    "pear": Ware(meshes.pear, ("green", "green", "yellow"), ("matte", "mottled")),
    "banana": Ware(meshes.banana, ("yellow", "yellow", "green"), ("matte",)),
    "lemon": Ware(meshes.lemon, ("yellow", "yellow", "green"), ("matte", "mottled")),
    "carrot": Ware(meshes.carrot, ("orange",), ("matte",)),
    "egg": Ware(meshes.egg, ("white", "brown"), ("matte", "mottled")),
    "donut": Ware(meshes.donut, ("pink", "pink", "brown", "white"), ("glossy", "matte")),
    "fork": Ware(meshes.fork, _METAL, ("metal",)),
    "spoon": Ware(meshes.spoon, _METAL, ("metal",)),
    "knife": Ware(meshes.knife, _METAL, ("metal",)),
    "pen": Ware(meshes.pen, None, ("matte", "glossy")),
    "star": Ware(meshes.star, None, FINISHES),
    "hammer": Ware(meshes.hammer, None, ("matte", "glossy")),
}
RICH_NOUNS: dict[str, tuple[str, ...]] = {
    "mug": ("mug", "mug", "mug", "cup"), "glass": ("glass", "glass", "tumbler"),
    "bottle": ("bottle",), "can": ("can", "can", "tin"), "jar": ("jar",), "bowl": ("bowl",),
    "plate": ("plate", "plate", "dish"), "pan": ("pan", "pan", "skillet"), "vase": ("vase",),
    "candle": ("candle",), "ball": ("ball", "ball", "sphere"),
    "block": ("block", "block", "cube", "brick"), "box": ("box", "box", "carton", "package"),
    "book": ("book",), "sponge": ("sponge",), "apple": ("apple",), "pear": ("pear",),
    "banana": ("banana",), "lemon": ("lemon",), "carrot": ("carrot",), "egg": ("egg",),
    "donut": ("donut", "donut", "doughnut"), "fork": ("fork",), "spoon": ("spoon",),
    "knife": ("knife",), "pen": ("pen", "pen", "marker"), "star": ("star",),
    "hammer": ("hammer",),
}  # fmt: skip


def _plain(rng: np.random.Generator) -> textures.Texture:
    """Noise that is not too dark to see a dark object on."""
    while True:
        made = textures.noise(rng, textures.SIZE)
        if made.mean() > 90:
            return made


def _rich_coverings(rng: np.random.Generator) -> list[textures.Texture]:
    """Wood, stone, cloth and plain noise for the table; then floors."""
    cloths = [textures.CLOTHS[int(i)] for i in rng.permutation(len(textures.CLOTHS))]
    tops = [
        textures.wood(rng),
        textures.marble(rng),
        _plain(rng),
        textures.laid(rng, textures.wood(rng), cloths[0](rng)),
        textures.laid(rng, _plain(rng), cloths[1](rng)),
        _plain(rng),
    ]
    return [*tops, *((textures.tiles, textures.wood)[i % 2](rng) for i in range(len(tops)))]


def _unseen_coverings(rng: np.random.Generator) -> list[textures.Texture]:
    """Terrazzo and herringbone, bare or under a cloth; a plain colour floor."""
    tops = [
        textures.terrazzo(rng),
        textures.herringbone(rng),
        textures.terrazzo(rng),
        textures.laid(rng, textures.herringbone(rng), textures.terrazzo(rng)),
    ]
    return [*tops, *(textures.herringbone(rng) for _ in tops)]


RICH = WorldSpec(
    name="rich",
    nouns=RICH_NOUNS,
    colors=RICH_COLORS,
    stock=lambda: Pantry(RICH_WARES, RICH_COLORS, Settling()),
    camera=Camera(
        elevation=(20, 70),
        azimuth=((-180, 180),),
        fovy=(20, 56),
        half_height=(0.13, 0.33),
        aim=0.03,
        target=0.06,
        roll=3.0,
        shapes=((0.75, 0.75), (0.75, 1.0)),
    ),
    tables=(
        Table("box", (0.4, 0.7), (0.35, 0.6)),
        Table("cylinder", (0.4, 0.6), (0.4, 0.6)),
    ),
    surfaces=Surfaces(
        make=_rich_coverings, count=6, size=textures.SIZE, dark=0.25, dim=(0.4, 0.7),
        lit=(0.7, 1.1), own_floor=True, repeat=6,
    ),
    light=Light(
        key=(0.4, 0.65), fill=(0.12, 0.25), ambient=(0.18, 0.34), specular=(0.0, 0.4), tint=0.08,
        exponent=3, shadows=2048,
    ),
    width=400,
    scenes_per_shard=100,
    scenes_per_model=60,
    min_side=0.06,
    min_visible=0.4,
    language="rich",
    settling=Settling(),
)  # fmt: skip

_UNSEEN_SETTLING = Settling(octagon=True, rims=0.0, lens=(0.06, 0.12))
RICH_UNSEEN = replace(
    RICH,
    name="rich-unseen",
    stock=lambda: Pantry(RICH_WARES, RICH_COLORS, _UNSEEN_SETTLING),
    tables=(Table("box", (0.6, 0.62), (0.6, 0.62)),),
    surfaces=Surfaces(
        make=_unseen_coverings, count=4, size=textures.SIZE, dark=0.3, dim=(0.5, 0.7),
        lit=(0.75, 1.1), own_floor=True, repeat=3,
    ),
    # One lamp low at the side, warm or cold, and little else.
    light=Light(
        key=(0.72, 0.86), fill=(0.04, 0.1), ambient=(0.13, 0.17), specular=(0.0, 0.4),
        height=(0.7, 1.1), tint=0.16, exponent=1, shadows=2048,
    ),
    settling=_UNSEEN_SETTLING,
)  # fmt: skip


DEFAULT_WORLD = BLOCKS.name
WORLDS: dict[str, WorldSpec] = {spec.name: spec for spec in (BLOCKS, NOVEL, RICH, RICH_UNSEEN)}


def world_spec(name: str) -> WorldSpec:
    """The world of that name. ValueError says which there are."""
    if name not in WORLDS:
        raise ValueError(f"no simulator world {name!r}; there are: {', '.join(WORLDS)}")
    return WORLDS[name]
