"""A world that training never had: household objects, other tables, another camera.

It measures what a model is worth out of its domain (Table I's second half). No picture of it may
enter training. Side by side with the default world, whose camera cannot take these pictures:

    ==================  ==========================  ===============================
                        blocks                      novel
    ==================  ==========================  ===============================
    kinds               block, cylinder, ball       mug, bottle, bowl, plate, apple,
                                                    banana, fork, spoon, box
    colours             red green blue yellow       these, and black, brown, pink,
                        purple orange white         gray, cyan
    material            matte, one colour           matte, glossy, metal, speckled;
                                                    parts in other colours
    table               rectangle, noise            round or rectangle; planks, marble,
                                                    cloths (chequered, dotted, striped)
    floor               noise                       tiles, planks
    camera's elevation  35..72, 78..90 degrees      22..33 degrees
    camera's azimuth    -25..25 degrees             30..80 degrees, left or right
    angle of view       35..55 degrees              15..23 degrees (telephoto)
    distance            0.34..0.87 m                0.90..1.99 m
    picture             1:1 and 4:3                 16:9
    ==================  ==========================  ===============================
"""

from __future__ import annotations

import numpy as np

from clue_ros.data.tabletop import meshes, textures
from clue_ros.data.tabletop.blocks import HSV
from clue_ros.data.tabletop.household import Household, Ware
from clue_ros.data.tabletop.spec import Camera, Hsv, Light, Surfaces, Table, WorldSpec

COLORS: dict[str, Hsv] = HSV | {
    "black": ((0.0, 1.0), (0.0, 0.15), (0.03, 0.09)),
    "brown": ((0.04, 0.065), (0.55, 0.75), (0.24, 0.38)),
    "pink": ((0.91, 0.95), (0.42, 0.6), (0.88, 1.0)),
    "gray": ((0.0, 1.0), (0.0, 0.05), (0.38, 0.52)),
    "cyan": ((0.485, 0.515), (0.75, 1.0), (0.75, 1.0)),
}
_METAL = ("gray", "gray", "gray", "black", "white", "red", "blue", "green", "pink")
WARES: dict[str, Ware] = {
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


def _coverings(rng: np.random.Generator) -> list[textures.Texture]:
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
    nouns={"mug": ("mug", "mug", "cup")} | {kind: (kind,) for kind in WARES if kind != "mug"},
    colors=COLORS,
    stock=lambda: Household(WARES, COLORS),
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
        make=_coverings, count=6, size=textures.SIZE, dark=0.2, dim=(0.5, 0.7), lit=(0.8, 1.1),
        own_floor=True, repeat=5,
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
