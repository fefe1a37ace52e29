"""Scenes for the tests of the simulator's worlds, and tables of objects for its language."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from clue_ros.lab.simulator.scene import Scene, SceneObject


def draw(make: Callable[[], Any], count: int) -> list[Scene]:
    """Scenes of the world that `make` makes, closed then; skips where nothing renders."""
    pytest.importorskip("mujoco")
    world = make()
    try:
        return [world.scene() for _ in range(count)]
    except RuntimeError as error:
        if "no OpenGL renderer" not in str(error):
            raise
        pytest.skip(str(error))
    finally:
        world.close()


def thing(
    x: float, y: float, kind: str = "mug", color: str = "red", extent: float = 0.1
) -> SceneObject:
    """Return an object whose box has its centre at (x, y); all in fractions of the picture."""
    half = extent / 2
    return SceneObject(kind, color, (x - half, y - half, x + half, y + half), extent)


def random_objects(rng: np.random.Generator) -> list[SceneObject]:
    """Return three to eight objects of up to three kinds and colours."""
    kinds = rng.choice(["mug", "bowl", "apple", "fork", "knife"], int(rng.integers(1, 4)), False)
    colors = rng.choice(["red", "blue", "green", "white"], int(rng.integers(1, 4)), False)
    out: list[SceneObject] = []
    for i in range(int(rng.integers(3, 9))):
        x, y = rng.uniform(0.1, 0.9, 2)
        kind = str(kinds[0]) if i < 2 else str(rng.choice(kinds))
        size = float(rng.choice([0.08, 0.1, 0.13]))
        out.append(thing(float(x), float(y), kind, str(rng.choice(colors)), size))
    return out
