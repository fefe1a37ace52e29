"""The rich world: household objects that fell onto a table, in clutter, and its unseen twin.

`rich` is for training, `rich-unseen` for measuring: the same kinds and colours under another light
on tables and coverings that `rich` never shows, through a lens that bends the other way.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from clue_ros.data.tabletop import kitchen, meshes, textures
from clue_ros.data.tabletop.household import Ware
from clue_ros.data.tabletop.novel import COLORS as ALL_COLORS
from clue_ros.data.tabletop.pantry import FINISHES, Pantry
from clue_ros.data.tabletop.spec import (
    Camera,
    Hsv,
    Light,
    Settling,
    Surfaces,
    Table,
    WorldSpec,
)

COLORS: dict[str, Hsv] = {name: hsv for name, hsv in ALL_COLORS.items() if name != "cyan"}
_METAL = ("gray", "gray", "gray", "black", "white", "red", "blue", "green", "pink")
WARES: dict[str, Ware] = {
    "mug": Ware(meshes.mug, None, FINISHES),
    "glass": Ware(kitchen.glass, None, ("glossy",)),
    "bottle": Ware(meshes.bottle, None, ("matte", "glossy", "striped")),
    "can": Ware(kitchen.can, None, ("matte", "glossy", "striped")),
    "jar": Ware(kitchen.jar, None, FINISHES),
    "bowl": Ware(meshes.bowl, None, FINISHES),
    "plate": Ware(meshes.plate, None, FINISHES),
    "pan": Ware(kitchen.pan, None, ("matte", "glossy")),
    "vase": Ware(kitchen.vase, None, FINISHES),
    "candle": Ware(kitchen.candle, None, ("matte", "mottled")),
    "ball": Ware(kitchen.ball, None, FINISHES),
    "block": Ware(kitchen.block, None, ("matte", "glossy", "grain", "mottled")),
    "box": Ware(meshes.box, None, ("matte", "striped", "grain")),
    "book": Ware(kitchen.book, None, ("matte", "glossy", "woven", "grain")),
    "sponge": Ware(kitchen.sponge, None, ("matte", "mottled")),
    "apple": Ware(meshes.apple, ("red", "red", "green", "yellow"), ("glossy", "mottled")),
    "pear": Ware(kitchen.pear, ("green", "green", "yellow"), ("matte", "mottled")),
    "banana": Ware(meshes.banana, ("yellow", "yellow", "green"), ("matte",)),
    "lemon": Ware(kitchen.lemon, ("yellow", "yellow", "green"), ("matte", "mottled")),
    "carrot": Ware(kitchen.carrot, ("orange",), ("matte",)),
    "egg": Ware(kitchen.egg, ("white", "brown"), ("matte", "mottled")),
    "donut": Ware(kitchen.donut, ("pink", "pink", "brown", "white"), ("glossy", "matte")),
    "fork": Ware(meshes.fork, _METAL, ("metal",)),
    "spoon": Ware(meshes.spoon, _METAL, ("metal",)),
    "knife": Ware(kitchen.knife, _METAL, ("metal",)),
    "pen": Ware(kitchen.pen, None, ("matte", "glossy")),
    "star": Ware(kitchen.star, None, FINISHES),
    "hammer": Ware(kitchen.hammer, None, ("matte", "glossy")),
}
NOUNS: dict[str, tuple[str, ...]] = {
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


def _coverings(rng: np.random.Generator) -> list[textures.Texture]:
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
    nouns=NOUNS,
    colors=COLORS,
    stock=lambda: Pantry(WARES, COLORS, Settling()),
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
        make=_coverings, count=6, size=textures.SIZE, dark=0.25, dim=(0.4, 0.7), lit=(0.7, 1.1),
        own_floor=True, repeat=6,
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
    stock=lambda: Pantry(WARES, COLORS, _UNSEEN_SETTLING),
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
