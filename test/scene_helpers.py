"""Scenes for the tests of the simulator's worlds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from clue_ros.lab.simulator.scene import Scene


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
