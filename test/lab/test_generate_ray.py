"""Workers of Ray that die: nothing is lost, and a picture that ends them is named.

This file imports little: every worker imports it when it starts.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.types import Box, Grounding
from clue_ros.errors import ClueError
from clue_ros.lab.generation.machine import Case, MachineParts, MachineSettings
from clue_ros.lab.generation.ray_workers import Worker, ray_outcomes
from clue_ros.lab.ray_cluster import RaySettings

CUP = Box(10, 10, 60, 60)
NAMES = tuple(f"{number}.png" for number in range(20))
DEADLY, DEADLY_ONCE = "7.png", "17.png"


class Pointer:
    """Points at the cup, whatever is said."""

    policy = "scripted"

    def look(self, image: Any) -> Any:
        """See `Grounder`."""
        return image

    def ambiguity(self, view: Any, expression: Any) -> Any:
        """Nobody asks."""
        raise NotImplementedError

    def reply(self, view: Any, dialogue: Any, *, force_grounding: bool = False) -> Grounding:
        """See `Grounder`."""
        estimate: Any = None
        return Grounding(CUP, "", 0.9, estimate)


@pytest.fixture
def photographs(tmp_path: Path) -> dict[str, Path]:
    for name in NAMES:
        Image.fromarray(np.zeros((100, 200, 3), np.uint8)).save(tmp_path / name)
    return {name: tmp_path / name for name in NAMES}


def test_a_picture_that_ends_its_worker_is_named_and_a_killed_worker_loses_nothing(
    photographs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # at Ray's 15 other tests hold them up
    killed, test = tmp_path / "killed", os.getpid()

    def load() -> MachineParts:
        def describe(case: Case) -> tuple[str, tuple[int, ...]]:
            name = case.picture.name
            once = name == DEADLY_ONCE and not killed.exists()
            if os.getpid() != test and (name == DEADLY or once):
                if once:
                    killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return f"take cup {int(case.rng.integers(1000))}", ()

        return MachineParts(
            Pointer(),
            lambda picture, image, view: [Candidate(CUP, "cup")],
            describe,
            lambda case, request: lambda question: question,
        )

    settings, seed = MachineSettings(), 3
    paths = [*map(str, photographs.values())]
    batch = {"name": np.array([*photographs]), "path": np.array(paths)}
    alone = Worker(load, settings, seed)(batch)
    expected = {
        name: json.loads(outcome)["refs"]
        for name, outcome in zip(alone["name"], alone["outcome"], strict=True)
    }
    cluster = RaySettings("local", 2, 0.0)
    outcomes = ray_outcomes(photographs.items(), load, settings, seed, cluster)
    found: list[tuple[str, Any]] = []
    with pytest.raises(ClueError, match=r"no outcome of 7\.png: the worker failed each time"):
        found += ((name, outcome.refs) for (name, _), outcome, _ in outcomes)
    del expected[DEADLY]
    assert len(found) == len(expected), "none is done twice"
    assert dict(found) == expected
