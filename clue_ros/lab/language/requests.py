"""Requests about a simulated scene, drawn by the grammar of its world."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from clue_ros.lab.language.references import Reference
from clue_ros.lab.language.rich_grammar import RichGrammar
from clue_ros.lab.simulator.scene import Scene


@dataclass(frozen=True)
class SceneRequest:
    """A request, its reference, and the objects (by index) that it can mean."""

    text: str
    reference: Reference
    candidates: tuple[int, ...]


def requests_about(
    scene: Scene, grammar: RichGrammar, want: str, count: int, rng: np.random.Generator
) -> list[SceneRequest]:
    """Up to `count` different requests about a scene: "clear", "ambiguous" or "absent"."""
    found: dict[str, SceneRequest] = {}
    for _ in range(4 * count):
        if len(found) == count:
            break
        drawn = grammar.reference(scene.objects, rng, want)
        if drawn is not None:
            text = grammar.phrasing.request(drawn[0], rng)
            found[text] = SceneRequest(text, *drawn)
    return list(found.values())
