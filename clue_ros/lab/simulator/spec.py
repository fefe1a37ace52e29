"""What makes a tabletop world: its objects, colours, tables, light, camera and pictures.

A world is a `WorldSpec`, nothing else: `TabletopWorld` draws any of them, `clue_ros.lab.language`
talks about any of them. `worlds` holds the registry. No MuJoCo here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from clue_ros.lab.simulator.textures import Texture

Range: TypeAlias = tuple[float, float]
Hsv: TypeAlias = tuple[Range, Range, Range]

MARGIN = 1.05  # of the picture over the height that it is meant to show


@dataclass(frozen=True)
class Placed:
    """An object before rendering: metres in the table's frame, radians.

    body: the MuJoCo body that shows it. rgb: 0..1. radius: of its footprint. height: of an
    upright cylinder; 0 where the body knows its own. yaw: about the table's normal.
    """

    body: str
    kind: str
    color: str
    rgb: tuple[float, float, float]
    x: float
    y: float
    radius: float
    height: float
    yaw: float
    lying: bool


class Stock(Protocol):
    """The objects that a world owns; one a `TabletopWorld`, as it keeps what a model holds."""

    def xml(self, rng: np.random.Generator) -> tuple[str, str]:
        """MJCF for the <asset> and the <worldbody> of a new model."""

    def arrange(self, rng: np.random.Generator, most: int) -> list[Placed]:
        """At most `most` objects on the table, apart from each other."""

    def show(self, model: Any, placed: list[Placed]) -> None:
        """Put the objects into the model (in place) and hide all others."""


@dataclass(frozen=True)
class Camera:
    """Ranges that pictures are taken from. Angles in degrees, lengths in metres.

    elevation: above the table's plane. azimuth: off the table's front, one of several ranges.
    fovy: vertical angle of view. half_height: of what is seen at the table's middle; it sets the
    distance (with a margin of 5 %). aim: height of the point aimed at, over the table. shapes:
    (height, width) of the pictures as shares of the world's width, the first and the last are
    drawn equally often. overhead: elevation of half the pictures of `flat` kinds alone, which can
    be told apart from above. target, roll: how far it aims off the middle, and tilts.
    """

    elevation: Range
    azimuth: tuple[Range, ...]
    fovy: Range
    half_height: Range
    shapes: tuple[tuple[float, float], ...]
    overhead: Range | None = None
    flat: frozenset[str] = frozenset()
    target: float = 0.03
    aim: float = 0.0
    roll: float = 2.0

    @property
    def distance(self) -> Range:
        """Least and greatest distance from the point aimed at, metres."""
        low, high = (np.tan(np.deg2rad(f / 2)) for f in self.fovy)
        near, far = self.half_height
        return MARGIN * near / float(high), MARGIN * far / float(low)


@dataclass(frozen=True)
class Table:
    """A kind of table top. kind: "box" or "cylinder" (MuJoCo geoms). x, y: half sides, metres."""

    kind: str
    x: Range
    y: Range


@dataclass(frozen=True)
class Surfaces:
    """Coverings. make: the textures of a model, those of the floor last.

    count: that may lie on the table. own_floor: whether the floor has as many of its own, or
    shares them. size: pixels a side. dark: share of coverings that are dimmed to `dim`, the rest
    is dimmed to `lit`. repeat: of the floor's own texture.
    """

    make: Callable[[np.random.Generator], list[Texture]]
    count: int
    size: int
    dark: float
    dim: Range
    lit: Range
    own_floor: bool = False
    repeat: int = 1


@dataclass(frozen=True)
class Light:
    """Ranges of the two lights (MuJoCo's 0..1). tint: how far a channel is off white.

    height: of the key light above the table, metres. exponent: how fast the key light fades off
    its axis. shadows: pixels a side of the shadow map.
    """

    key: Range = (0.55, 1.0)
    fill: Range = (0.1, 0.35)
    ambient: Range = (0.08, 0.25)
    specular: Range = (0.0, 0.4)
    height: Range = (1.2, 2.2)
    tint: float = 0.08
    exponent: float = 10.0
    shadows: int = 1024


@dataclass(frozen=True)
class Settling:
    """How a world whose objects fall into place draws its tables (`settled`, `pantry`).

    kinds: in a model at once. variants: bodies of each. views: pictures of an arrangement, in new
    colours, light and from elsewhere. objects: least and most. spread: metres around the middle
    that they are let go in. piled: share of tables where they fall onto each other. lens: radial
    distortion at the corner, barrel below 0. rims: share of tables with a rim around them.
    octagon: whether table tops have eight corners. distractors: most things that have no name.
    """

    kinds: int = 14
    variants: int = 5
    views: int = 2
    objects: tuple[int, int] = (3, 12)
    spread: Range = (0.09, 0.22)
    piled: float = 0.33
    lens: Range = (-0.1, 0.05)
    rims: float = 0.33
    octagon: bool = False
    distractors: int = 6


@dataclass(frozen=True)
class WorldSpec:
    """One world.

    nouns: the kinds and what people call them. The order is the shards' numbering, as is that of
    colors (HSV ranges, fractions). stock: makes a `Stock`, or a `Pantry` for worlds that settle.
    scenes_per_shard: of a file. scenes_per_model: pictures until textures and bodies are made
    anew. min_side: least visible side of a box as a fraction of the picture. min_fill: least
    share of its box that an object shows; None where shapes are too thin for that, then
    min_visible counts: the least share of the object that no other one hides. language: how people
    talk about it (`clue_ros.lab.language.grammars`). settling: for worlds that physics arranges.
    """

    name: str
    nouns: Mapping[str, tuple[str, ...]]
    colors: Mapping[str, Hsv]
    stock: Callable[[], Any]
    camera: Camera
    tables: tuple[Table, ...]
    surfaces: Surfaces
    light: Light
    width: int = 320
    scenes_per_shard: int = 250
    scenes_per_model: int = 150
    min_side: float = 0.08
    min_fill: float | None = None
    min_visible: float | None = None
    language: str = "plain"
    settling: Settling | None = None

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of objects, in the shards' numbering."""
        return tuple(self.nouns)


def rgb_of(spec_colors: Mapping[str, Hsv], color: str, rng: np.random.Generator) -> Any:
    """A colour within its name's range, RGB 0..1."""
    import colorsys

    (h0, h1), (s0, s1), (v0, v1) = spec_colors[color]
    return colorsys.hsv_to_rgb(rng.uniform(h0, h1) % 1.0, rng.uniform(s0, s1), rng.uniform(v0, v1))
