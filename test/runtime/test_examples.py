"""The examples of one's own parts: each stands where the package's own ones do."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from clue_ros.dialogue.types import Box
from clue_ros.model.tracking import box_of

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def printed(name: str, *arguments: str) -> list[str]:
    words = [sys.executable, str(EXAMPLES / name), *arguments]
    ended = subprocess.run(words, capture_output=True, text=True, check=True, timeout=600)
    return ended.stdout.splitlines()


def loaded(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_examples_for_developers_are_short() -> None:
    for path in EXAMPLES.glob("own_*.py"):
        code = path.read_text(encoding="utf-8").split('"""', 2)[2].strip()
        assert len(code.splitlines()) <= 40, path.name


def test_a_detector_of_ones_own_is_pointed_with() -> None:
    picture = str(ROOT / "demo" / "five_blocks.png")
    (said,) = printed("own_detector.py", picture, "pick up the green block")
    assert Box(*map(float, said.strip("[]").split(","))).iou(Box(350, 135, 467, 251)) > 0.8


def test_a_recognizer_of_ones_own_speaks_german() -> None:
    assert printed("own_recognizer.py") == ["ja", "nein"]


def test_a_tracker_of_ones_own_follows() -> None:
    tracker = loaded("own_tracker").HueTracker()
    for number in range(5):
        frame = np.full((120, 160, 3), 90, np.uint8)
        x = 20 + 12 * number
        frame[40:70, x : x + 30] = (200, 30, 30)
        truth = Box(x, 40, x + 30, 70)
        if number == 0:
            tracker.start(frame, truth)
            continue
        step = tracker.step(frame)
        assert not step.lost
        assert box_of(step.mask).iou(truth) > 0.5
    assert tracker.step(np.full((120, 160, 3), 90, np.uint8)).lost
