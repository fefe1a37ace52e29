"""Latency from process start to the first answer, and of warm replies: medians over the runs.

The first is the time of the command `clue ground` to its first line of output; for the second the
model and the image stay loaded. Two ratios compare costs in alternation: policy "both" to
"detector", and a box from three views to one from a single view. Times are wall-clock milliseconds,
on a drawn image without --image. Prints one JSON object and, with --markdown, a row for
docs/results.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from clue_ros.engine import DEFAULT_POLICY, POLICIES
from clue_ros.errors import ClueError
from clue_ros.lab.evaluation.options import ModelOptions
from clue_ros.lab.options import add_options, at_least, option, read_options

if TYPE_CHECKING:
    from clue_ros.dialogue.types import Dialogue
    from clue_ros.engine import Clue, View

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class LatencyOptions(ModelOptions):
    """The options of ``clue bench engine``."""

    device: str = option("cpu", "cpu, cuda or auto")
    policy: str = option(DEFAULT_POLICY, "decides between a question and a box", choices=POLICIES)
    runs: int = option(20, "number of runs of each measurement", type=at_least(1))
    image: Path | None = option(None, "image file; default: a drawn image")
    text: str = option("pick up the block on the left", "request")
    markdown: bool = option(False, "also print a table row")


def times(work: Callable[[], object], runs: int, warm_up: int = 0) -> list[float]:
    """Seconds that each of ``runs`` calls takes, after ``warm_up`` calls that are not counted."""
    seconds = []
    for _ in range(warm_up + runs):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds[warm_up:]


def in_turns(seconds: Callable[[T], float], this: T, that: T, runs: int) -> float:
    """Median seconds of ``this`` over the median seconds of ``that``, one of each a run."""
    taken = [(seconds(that), seconds(this)) for _ in range(runs)]
    base = statistics.median(time for time, _ in taken)
    return round(statistics.median(time for _, time in taken) / base, 3)


def median_ms(seconds: list[float]) -> float:
    """The median in milliseconds."""
    return round(statistics.median(seconds) * 1000, 1)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue bench engine``."""
    add_options(parser, LatencyOptions)


def run(args: argparse.Namespace) -> int:
    """Run ``clue bench engine``; the exit status."""
    options = read_options(LatencyOptions, args)
    with tempfile.TemporaryDirectory() as folder:
        picture = options.image or _write_picture(Path(folder) / "blocks.png")
        result: dict[str, Any] = {
            "model": options.model,
            "device": options.device,
            "cpu": f"{platform.machine()}, {os.cpu_count()} cores",
            "runs": options.runs,
            "policy": options.policy,
            **warm(options, picture),
            "start_to_answer_ms": median_ms(
                [_first_answer(options, picture) for _ in range(options.runs)]
            ),
        }
    print(json.dumps(result))
    if options.markdown:
        names = ("start_to_answer_ms", "load_ms", "look_ms", "ambiguity_ms", "reply_ms")
        row = " | ".join(f"{result[name]:.0f}" for name in names)
        print(f"| {result['model']} | {result['device']} ({result['cpu']}) | {row} |")
    return 0


def warm(options: LatencyOptions, picture: Path) -> dict[str, float]:
    """Medians with the model loaded, in ms: look, ambiguity and reply; and one cold load."""
    from clue_ros.dialogue.types import Dialogue
    from clue_ros.images import load_image

    image, dialogue, runs = load_image(picture), Dialogue(options.text), options.runs
    start = time.perf_counter()
    from clue_ros.engine import Clue

    clue = Clue.load(options.model, device=options.device, policy=options.policy)
    loaded = time.perf_counter() - start
    view = clue.look(image)
    clue.reply(view, dialogue)
    return {
        "load_ms": round(loaded * 1000, 1),
        "look_ms": median_ms(times(lambda: clue.look(image), runs)),
        "ambiguity_ms": median_ms(times(lambda: clue.ambiguity(view, dialogue), runs)),
        "reply_ms": median_ms(times(lambda: clue.reply(view, dialogue), runs)),
        # A threshold of 0 or 1 has both policies reply in the same form.
        "question_both_to_detector": _both_to_detector(clue, view, dialogue, 0.0, runs),
        "box_both_to_detector": _both_to_detector(clue, view, dialogue, 1.0, runs),
        "box_three_views_to_one": _three_views_to_one(clue, image, dialogue, runs),
    }


def _both_to_detector(
    clue: Clue, view: View, dialogue: Dialogue, threshold: float, runs: int
) -> float:
    before = clue.policy, clue.threshold
    clue.threshold = threshold

    def seconds(policy: str) -> float:
        clue.policy = policy
        return times(lambda: clue.reply(view, dialogue), 1)[0]

    ratio = in_turns(seconds, "both", "detector", runs)
    clue.policy, clue.threshold = before
    return ratio


def _three_views_to_one(
    clue: Clue, image: npt.NDArray[np.uint8], dialogue: Dialogue, runs: int
) -> float:
    """The image is new each time, and its first look is not counted."""
    before = clue.num_views

    def seconds(views: int) -> float:
        clue.num_views, view = views, clue.look(image)
        return times(lambda: clue.reply(view, dialogue, force_grounding=True), 1)[0]

    ratio = in_turns(seconds, 3, 1, runs)
    clue.num_views = before
    return ratio


def _first_answer(options: LatencyOptions, picture: Path) -> float:
    """Seconds from starting ``clue ground`` to its first line."""
    command = [sys.executable, "-m", "clue_ros.cli", "ground", str(picture), options.text]
    command += ["--json", "--model", options.model, "--device", options.device]
    command += ["--policy", options.policy]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        seconds = time.perf_counter() - start
        if not line:
            reason = process.stderr.read().decode(errors="replace").strip()
            raise ClueError(f"clue ground gave no answer: {reason}")
        process.communicate()
    return seconds


def _write_picture(path: Path) -> Path:
    """Three squares on a dark table: the work does not depend on the content of the image."""
    from PIL import Image

    picture: npt.NDArray[np.uint8] = np.full((480, 640, 3), 24, np.uint8)
    for left, color in ((90, (200, 40, 40)), (280, (40, 90, 200)), (470, (230, 210, 90))):
        picture[200:280, left : left + 80] = color
    Image.fromarray(picture).save(path)
    return path
