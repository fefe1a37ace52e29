"""The worlds by name. A new one is a `WorldSpec` and a line here."""

from __future__ import annotations

from clue_ros.data.tabletop.blocks import BLOCKS
from clue_ros.data.tabletop.novel import NOVEL
from clue_ros.data.tabletop.rich import RICH, RICH_UNSEEN
from clue_ros.data.tabletop.spec import WorldSpec

DEFAULT_WORLD = BLOCKS.name
WORLDS: dict[str, WorldSpec] = {spec.name: spec for spec in (BLOCKS, NOVEL, RICH, RICH_UNSEEN)}


def world_spec(name: str) -> WorldSpec:
    """The world of that name. ValueError says which there are."""
    if name not in WORLDS:
        raise ValueError(f"no simulator world {name!r}; there are: {', '.join(WORLDS)}")
    return WORLDS[name]
