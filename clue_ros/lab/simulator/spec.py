"""The description of a tabletop world: its objects, colours, tables, light, camera and pictures.

A world is a `WorldSpec`: `open_world` draws any of them, `clue_ros.lab.language` talks about any of
them, and `worlds` registers them by name. This module does not use MuJoCo.
"""

from __future__ import annotations

import colorsys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np

from clue_ros.lab.simulator.meshes import Builder, Rgb
from clue_ros.lab.simulator.textures import Texture

if TYPE_CHECKING:  # it imports this module
    from clue_ros.lab.simulator.assets import Assets

Range: TypeAlias = tuple[float, float]
Hsv: TypeAlias = tuple[Range, Range, Range]
Quaternion: TypeAlias = tuple[float, float, float, float]
T = TypeVar("T")

MARGIN = 1.05  # height of the picture divided by the height that it must show


@dataclass(frozen=True)
class ObjectKind:
    """The meshes and colours of one kind of object.

    colors, finishes: those it comes in; None for all of its world's.
    """

    build: Builder
    colors: tuple[str, ...] | None = None
    finishes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class PlacedObject:
    """An object before rendering, in the table's frame: z up, the table's top at z = 0.

    body: the MuJoCo body that shows it. rgb: 0..1. position: metres. quaternion: (w, x, y, z).
    size: half sizes of a MuJoCo primitive, metres; empty for a mesh.
    """

    body: str
    kind: str
    color: str
    rgb: Rgb
    position: tuple[float, float, float]
    quaternion: Quaternion
    size: tuple[float, ...] = ()


class ObjectLibrary(Protocol):
    """The objects of a world: the bodies of one MuJoCo model, and their places in a scene."""

    def xml(self, rng: np.random.Generator) -> tuple[str, str]:
        """MJCF for the <asset> and the <worldbody> of a new model."""

    def place(self, rng: np.random.Generator) -> list[PlacedObject]:
        """The objects of a new scene. Call `xml` first."""

    def show(self, model: Any, placed: list[PlacedObject]) -> None:
        """Put these objects into the model (in place) and hide all others."""


@dataclass(frozen=True)
class Camera:
    """Ranges that camera poses are drawn from. Angles in degrees, lengths in metres.

    elevation: above the table's plane. azimuth: from the table's front, one of several ranges.
    fovy: vertical angle of view. half_height: half the height of the view at the table's middle; it
    sets the distance (with a margin of 5 %). shapes: (height, width) of the pictures as fractions
    of the world's width; the first and the last are drawn equally often. overhead: elevation of
    half the pictures that hold only kinds of `flat`, which are recognisable from above. target:
    largest horizontal offset of the point aimed at. aim: its height over the table. roll: standard
    deviation of the tilt.
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


@dataclass(frozen=True)
class Table:
    """A kind of table top. kind: "box" or "cylinder" (MuJoCo geoms). x, y: half sides, metres."""

    kind: str
    x: Range
    y: Range


@dataclass(frozen=True)
class Surfaces:
    """Textures of the table and the floor.

    make: draws the textures of a model, the floor's own last. count: number of table textures.
    own_floor: whether the floor has as many of its own or shares the table's. size: pixels a side.
    dark: fraction of surfaces with a brightness from `dim`; the others' comes from `lit`.
    repeat: how often the floor's own texture repeats.
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
    """Ranges of the two lights (MuJoCo's 0..1).

    tint: largest deviation of a channel from white. height: of the key light above the table,
    metres. exponent: how fast the key light fades off its axis. shadows: pixels a side of the
    shadow map.
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
    """Settings for objects that fall onto a table (`physics.SettledWorld`).

    kinds: number of kinds in a model. variants: bodies of each. views: pictures of an arrangement,
    each with new colours, light and camera. objects: fewest and most. spread: radius in metres that
    objects are dropped in. piled: fraction of tables where they fall onto each other. lens: radial
    distortion at the corner, negative for barrel. rims: fraction of tables with a rim. octagon:
    whether table tops are octagons. distractors: most unnamed things on a table.
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

    nouns: the names people use for each kind. The order is the shards' numbering, as is that of
    colors (HSV ranges, fractions). library: makes the objects of a model. objects: how to build
    each kind; empty for MuJoCo's primitives. scenes_per_shard: scenes in a file. scenes_per_model:
    pictures until textures and bodies are rebuilt. min_side: smallest visible side of a box as a
    fraction of the picture. min_fill: smallest fraction of its box that an object covers (worlds
    whose objects do not fall). min_visible: smallest fraction of an object that no other one hides
    (the others). language: its grammar (`clue_ros.lab.language.grammars`). settling: for worlds
    whose objects fall. assets: for the worlds of `table.TableWorld`. unseen: whether they take the
    part of the assets that training never has. portrait, arms, close: shares of their pictures that
    are higher than wide, that an arm may reach into, and whose camera comes as near as the objects
    allow. crowded, heaped: shares of their arrangements whose objects lie close together, and are
    dropped onto each other.
    """

    name: str
    nouns: Mapping[str, tuple[str, ...]]
    colors: Mapping[str, Hsv]
    library: Callable[[WorldSpec], ObjectLibrary]
    camera: Camera
    tables: tuple[Table, ...]
    surfaces: Surfaces
    light: Light
    objects: Mapping[str, ObjectKind] = field(default_factory=dict)
    width: int = 320
    scenes_per_shard: int = 250
    scenes_per_model: int = 150
    min_side: float = 0.08
    min_fill: float = 0.0
    min_visible: float = 0.0
    language: str = "rich"
    settling: Settling | None = None
    assets: Assets | None = None
    unseen: bool = False
    portrait: float = 0.0
    arms: float = 0.0
    close: float = 0.0
    crowded: float = 0.0
    heaped: float = 0.0

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of objects, in the shards' numbering."""
        return tuple(self.nouns)


def pick(rng: np.random.Generator, options: Sequence[T]) -> T:
    """One of the options, all equally likely."""
    return options[int(rng.integers(len(options)))]


def palette(colors: Mapping[str, Hsv], rng: np.random.Generator) -> list[str]:
    """Two to five colour names of a scene: few colours make look-alikes."""
    return [str(c) for c in rng.permutation(list(colors))[: int(rng.integers(2, 6))]]


def rgb_of(colors: Mapping[str, Hsv], color: str, rng: np.random.Generator) -> Rgb:
    """A shade within a colour name's range, RGB 0..1."""
    (h0, h1), (s0, s1), (v0, v1) = colors[color]
    return colorsys.hsv_to_rgb(rng.uniform(h0, h1) % 1.0, rng.uniform(s0, s1), rng.uniform(v0, v1))


def has_look_alikes(objects: Sequence[PlacedObject]) -> bool:
    """Whether two objects are of one kind."""
    return len({o.kind for o in objects}) < len(objects)
