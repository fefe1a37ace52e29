"""The worlds by name. To add one, write a `WorldSpec` here and list it in `WORLDS`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clue_ros.errors import ClueError
from clue_ros.lab.simulator import desk_meshes, meshes, textures
from clue_ros.lab.simulator.assets import Assets
from clue_ros.lab.simulator.meshes import Builder, Shape
from clue_ros.lab.simulator.objects import FallingObjects, Primitives
from clue_ros.lab.simulator.spec import (
    Camera,
    Hsv,
    Light,
    ObjectKind,
    Settling,
    Surfaces,
    Table,
    WorldSpec,
    pick,
)
from clue_ros.lab.simulator.textures import Texture
from clue_ros.lab.simulator.user_meshes import UserMeshes

# Hue, saturation and value ranges of each colour name (fractions). Dark greens, blues and purples
# are wide on purpose: real cameras under-expose them.
BASIC_COLORS: dict[str, Hsv] = {
    "red": ((-0.02, 0.02), (0.75, 1.0), (0.55, 1.0)),
    "green": ((0.33, 0.44), (0.5, 1.0), (0.28, 0.85)),
    "blue": ((0.57, 0.64), (0.7, 1.0), (0.4, 1.0)),
    "yellow": ((0.135, 0.17), (0.55, 1.0), (0.8, 1.0)),
    "purple": ((0.72, 0.82), (0.4, 0.9), (0.25, 0.7)),
    "orange": ((0.065, 0.095), (0.85, 1.0), (0.8, 1.0)),
    "white": ((0.0, 1.0), (0.0, 0.05), (0.85, 1.0)),
}
HOUSEHOLD_COLORS: dict[str, Hsv] = BASIC_COLORS | {
    "black": ((0.0, 1.0), (0.0, 0.15), (0.03, 0.09)),
    "brown": ((0.04, 0.065), (0.55, 0.75), (0.24, 0.38)),
    "pink": ((0.91, 0.95), (0.42, 0.6), (0.88, 1.0)),
    "gray": ((0.0, 1.0), (0.0, 0.05), (0.38, 0.52)),
}
CUTLERY = ("gray", "gray", "gray", "black", "white", "red", "blue", "green", "pink")


def _cloths(rng: np.random.Generator) -> list[textures.Make]:
    """The three cloths in a random order."""
    return [textures.CLOTHS[int(i)] for i in rng.permutation(len(textures.CLOTHS))]


def _tiles_and_planks(rng: np.random.Generator) -> list[Texture]:
    """Six floors."""
    return [(textures.tiles, textures.wood)[i % 2](rng) for i in range(6)]


# -------------------------------------------------------------------------------------------------
# blocks: blocks, cylinders and balls in seven colours on a plain table.

BLOCKS = WorldSpec(
    name="blocks",
    nouns={
        "block": ("block", "block", "cube", "brick"),
        "cylinder": ("cylinder", "cylinder", "can", "tube"),
        "ball": ("ball", "ball", "sphere"),
    },
    colors=BASIC_COLORS,
    library=Primitives,
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
        make=lambda rng: [textures.noise(rng) for _ in range(4)], count=4, size=128, dark=0.45,
        dim=(0.12, 0.5), lit=(0.5, 1.1),
    ),
    light=Light(),
    min_fill=0.42,  # less, and another object hides most of it
)  # fmt: skip


# -------------------------------------------------------------------------------------------------
# rich, the default world: household objects that fell onto a table, in clutter. rich-unseen: the
# same objects on other tables, under other light and through another lens.

_RICH_OBJECTS = {
    "mug": ObjectKind(meshes.mug),
    "glass": ObjectKind(meshes.glass, None, ("glossy",)),
    "bottle": ObjectKind(meshes.bottle, None, ("matte", "glossy", "striped")),
    "can": ObjectKind(meshes.can, None, ("matte", "glossy", "striped")),
    "jar": ObjectKind(meshes.jar),
    "bowl": ObjectKind(meshes.bowl),
    "plate": ObjectKind(meshes.plate),
    "pan": ObjectKind(meshes.pan, None, ("matte", "glossy")),
    "vase": ObjectKind(meshes.vase),
    "candle": ObjectKind(meshes.candle, None, ("matte", "mottled")),
    "ball": ObjectKind(meshes.ball),
    "block": ObjectKind(meshes.block, None, ("matte", "glossy", "grain", "mottled")),
    "box": ObjectKind(meshes.box, None, ("matte", "striped", "grain")),
    "book": ObjectKind(meshes.book, None, ("matte", "glossy", "woven", "grain")),
    "sponge": ObjectKind(meshes.sponge, None, ("matte", "mottled")),
    "apple": ObjectKind(meshes.apple, ("red", "red", "green", "yellow"), ("glossy", "mottled")),
    "pear": ObjectKind(meshes.pear, ("green", "green", "yellow"), ("matte", "mottled")),
    "banana": ObjectKind(meshes.banana, ("yellow", "yellow", "green"), ("matte",)),
    "lemon": ObjectKind(meshes.lemon, ("yellow", "yellow", "green"), ("matte", "mottled")),
    "carrot": ObjectKind(meshes.carrot, ("orange",), ("matte",)),
    "egg": ObjectKind(meshes.egg, ("white", "brown"), ("matte", "mottled")),
    "donut": ObjectKind(meshes.donut, ("pink", "pink", "brown", "white"), ("glossy", "matte")),
    "fork": ObjectKind(meshes.fork, CUTLERY, ("metal",)),
    "spoon": ObjectKind(meshes.spoon, CUTLERY, ("metal",)),
    "knife": ObjectKind(meshes.knife, CUTLERY, ("metal",)),
    "pen": ObjectKind(meshes.pen, None, ("matte", "glossy")),
    "star": ObjectKind(meshes.star),
    "hammer": ObjectKind(meshes.hammer, None, ("matte", "glossy")),
}
_RICH_SYNONYMS: dict[str, tuple[str, ...]] = {
    "mug": ("mug", "mug", "mug", "cup"),
    "glass": ("glass", "glass", "tumbler"),
    "can": ("can", "can", "tin"),
    "plate": ("plate", "plate", "dish"),
    "pan": ("pan", "pan", "skillet"),
    "ball": ("ball", "ball", "sphere"),
    "block": ("block", "block", "cube", "brick"),
    "box": ("box", "box", "carton", "package"),
    "donut": ("donut", "donut", "doughnut"),
    "pen": ("pen", "pen", "marker"),
}


def _light_noise(rng: np.random.Generator) -> Texture:
    """Noise that is bright enough to see a dark object on."""
    while True:
        made = textures.noise(rng, textures.SIZE)
        if made.mean() > 90:
            return made


def _rich_surfaces(rng: np.random.Generator) -> list[Texture]:
    """Tables of wood, stone and noise, bare or under a cloth; then floors."""
    cloth, other, _ = _cloths(rng)
    return [
        textures.wood(rng),
        textures.marble(rng),
        _light_noise(rng),
        textures.laid(rng, textures.wood(rng), cloth(rng)),
        textures.laid(rng, _light_noise(rng), other(rng)),
        _light_noise(rng),
        *_tiles_and_planks(rng),
    ]


def _unseen_surfaces(rng: np.random.Generator) -> list[Texture]:
    """Tables of terrazzo and herringbone, bare or under a cloth; then floors of herringbone."""
    return [
        textures.terrazzo(rng),
        textures.herringbone(rng),
        textures.terrazzo(rng),
        textures.laid(rng, textures.herringbone(rng), textures.terrazzo(rng)),
        *(textures.herringbone(rng) for _ in range(4)),
    ]


RICH = WorldSpec(
    name="rich",
    nouns={kind: (kind,) for kind in _RICH_OBJECTS} | _RICH_SYNONYMS,
    colors=HOUSEHOLD_COLORS,
    library=FallingObjects,
    objects=_RICH_OBJECTS,
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
        make=_rich_surfaces, count=6, size=textures.SIZE, dark=0.25, dim=(0.4, 0.7),
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
    settling=Settling(),
)  # fmt: skip

RICH_UNSEEN = replace(
    RICH,
    name="rich-unseen",
    tables=(Table("box", (0.6, 0.62), (0.6, 0.62)),),
    surfaces=Surfaces(
        make=_unseen_surfaces, count=4, size=textures.SIZE, dark=0.3, dim=(0.5, 0.7),
        lit=(0.75, 1.1), own_floor=True, repeat=3,
    ),
    # One low lamp at the side, warm or cold, and little other light.
    light=Light(
        key=(0.72, 0.86), fill=(0.04, 0.1), ambient=(0.13, 0.17), specular=(0.0, 0.4),
        height=(0.7, 1.1), tint=0.16, exponent=1, shadows=2048,
    ),
    settling=Settling(octagon=True, rims=0.0, lens=(0.06, 0.12)),
)  # fmt: skip

# paper: the scenes of rich, each with look-alikes, and the sentences of CLUE's Dataset 1.
PAPER = replace(RICH, name="paper", language="paper")


# -------------------------------------------------------------------------------------------------
# table: scanned objects on a real-looking table (`table.TableWorld`), with some of the shapes of
# rich. table-unseen: objects, table tops and panoramas that training never has.

_TABLE_SHAPES = {
    kind: how
    for kind, how in _RICH_OBJECTS.items()
    if kind not in ("glass", "pan", "star", "donut")  # a glass that is not clear, and toys
}

OFFICE = ("black", "black", "gray", "white")
_DESK_OBJECTS = {
    "notebook": ObjectKind(desk_meshes.notebook, None, ("matte", "matte", "glossy")),
    "toothbrush": ObjectKind(desk_meshes.toothbrush, None, ("matte", "glossy")),
    "keyboard": ObjectKind(desk_meshes.keyboard, (*OFFICE, "white", "pink"), ("matte",)),
    "mouse": ObjectKind(desk_meshes.mouse, (*OFFICE, "red", "blue", "pink"), ("matte", "glossy")),
    "envelope": ObjectKind(
        desk_meshes.envelope,
        ("white", "white", "white", "brown", "yellow", "pink", "blue"),
        ("matte",),
    ),
    "eraser": ObjectKind(desk_meshes.eraser, None, ("matte",)),
    "glue": ObjectKind(desk_meshes.glue, None, ("matte", "glossy")),
    "battery": ObjectKind(desk_meshes.battery, None, ("glossy",)),
    "usb stick": ObjectKind(desk_meshes.usb_stick, None, ("matte", "glossy")),
    "wallet": ObjectKind(
        desk_meshes.wallet, ("brown", "brown", "black", "black", "red", "blue", "pink"), ("matte",)
    ),
    "cable": ObjectKind(desk_meshes.cable, (*OFFICE, "white", "red", "blue"), ("matte",)),
    "pliers": ObjectKind(desk_meshes.pliers, None, ("matte", "glossy")),
    "charger": ObjectKind(desk_meshes.charger, ("white", "white", "black"), ("matte", "glossy")),
    "lighter": ObjectKind(desk_meshes.lighter, None, ("glossy",)),
    "ketchup": ObjectKind(desk_meshes.ketchup, ("red",), ("matte", "glossy")),
}
_DESK_SYNONYMS: dict[str, tuple[str, ...]] = {
    "mouse": ("mouse", "computer mouse"),
    "wallet": ("wallet", "purse"),
    "cable": ("cable", "usb cable"),
    "pliers": ("pliers", "pair of pliers", "tool"),
    "charger": ("charger", "phone charger"),
    "ketchup": ("ketchup", "ketchup bottle", "bottle of ketchup", "bottle"),
}

TABLE_UNSEEN = replace(
    RICH,
    name="table-unseen",
    language="objects",
    objects=_TABLE_SHAPES,  # the language keeps all of rich's nouns, for a `--mix` of both
    width=448,
    scenes_per_shard=100,
    min_side=0.05,
    min_visible=0.35,
    settling=None,
    assets=Assets(),
    unseen=True,
)

# For training alone: measurements use the other world.
TABLE = replace(
    TABLE_UNSEEN,
    name="table",
    nouns=dict(RICH.nouns) | {kind: (kind,) for kind in _DESK_OBJECTS} | _DESK_SYNONYMS,
    objects=_TABLE_SHAPES | _DESK_OBJECTS,
    unseen=False,
    portrait=0.2,
    arms=0.12,
    close=0.45,
    crowded=0.35,
)
# Things on and in each other, seen from near: for the box head.
HEAPS = replace(
    TABLE, name="heaps", min_visible=0.25, close=0.85, crowded=0.5, heaped=0.9,
)  # fmt: skip

DEFAULT_WORLD = RICH.name
WORLDS: dict[str, WorldSpec] = {
    spec.name: spec for spec in (BLOCKS, RICH, RICH_UNSEEN, PAPER, TABLE, TABLE_UNSEEN, HEAPS)
}


def world_spec(name: str) -> WorldSpec:
    """The world of that name. ValueError says which there are."""
    if name not in WORLDS:
        raise ValueError(f"no simulator world {name!r}; there are: {', '.join(WORLDS)}")
    return WORLDS[name]


def with_assets(spec: WorldSpec, assets: Assets) -> WorldSpec:
    """The world made of these assets, with the kinds of all objects, in order of their names.

    The scanned kinds of the seen and the unseen world are the same. ClueError for a world
    without assets.
    """
    if spec.assets is None:
        raise ClueError(f"the world {spec.name!r} takes no assets; --world table does")
    kinds = sorted({o.kind for o in assets.objects if o.kind} - set(spec.nouns))
    nouns = dict(spec.nouns) | {kind: (kind,) for kind in kinds}
    return replace(spec, nouns=nouns, assets=assets)


def with_meshes(spec: WorldSpec, own: UserMeshes) -> WorldSpec:
    """The world with these meshes added. ClueError for a world whose objects do not fall."""
    if spec.settling is None:
        raise ClueError(f"the world {spec.name!r} takes no meshes; --world rich does")
    objects = dict(spec.objects)
    for kind, shapes in own.shapes.items():
        known = objects.get(kind)
        build = _builder(shapes, known.build if known else None)
        objects[kind] = replace(known, build=build) if known else ObjectKind(build)
    nouns = {kind: (kind,) for kind in objects} | dict(spec.nouns)
    return replace(spec, nouns=nouns, objects=objects)


def _builder(shapes: tuple[Shape, ...], other: Builder | None) -> Builder:
    """A builder of one of the shapes, or half of the time by another builder."""

    def build(rng: np.random.Generator) -> Shape:
        if other is not None and rng.uniform() < 0.5:
            return other(rng)
        return pick(rng, shapes)

    return build
