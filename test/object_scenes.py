"""Tables of real things for the tests of the object grammar, without pictures."""

from __future__ import annotations

import numpy as np

from clue_ros.dialogue.object_names import KIND_NAMES
from clue_ros.lab.simulator.object_catalogue import OBJECTS
from clue_ros.lab.simulator.scene import SceneObject

_NAMED = {name: entry for name, entry in OBJECTS.items() if entry.kind}


def real_thing(name: str, x: float, y: float, extent: float = 0.1) -> SceneObject:
    """An object of the catalogue whose box has its centre at (x, y), fractions of the picture."""
    entry, half = _NAMED[name], extent / 2
    names = tuple(dict.fromkeys([*entry.names, *KIND_NAMES[entry.kind]]))
    box = (x - half, y - half, x + half, y + half)
    return SceneObject(
        entry.kind, entry.colors[0], box, extent, 1.0, names, entry.colors, entry.material,
        entry.parts,
    )  # fmt: skip


def random_table(rng: np.random.Generator) -> list[SceneObject]:
    """Four to nine things; some of one kind, hypernym or colour, as the world arranges them."""
    every = sorted(_NAMED)
    first = str(rng.choice(every))
    words = (_NAMED[first].kind, *KIND_NAMES[_NAMED[first].kind])
    word = str(rng.choice(words))
    alike = [n for n in every if word in (_NAMED[n].kind, *KIND_NAMES[_NAMED[n].kind])]
    count = int(rng.integers(4, 10))
    chosen = [str(rng.choice(alike)) for _ in range(2 + int(rng.integers(2)))]
    chosen += [str(rng.choice(every)) for _ in range(count - len(chosen))]
    out = []
    for name in chosen:
        x, y = rng.uniform(0.1, 0.9, 2)
        size = float(rng.choice([0.08, 0.1, 0.1, 0.13]))
        out.append(real_thing(name, float(x), float(y), size))
    return out
