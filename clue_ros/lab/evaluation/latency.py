"""How long a person waits: from process start to the first answer, and for a warm reply.

Each is the median of some runs (20) on a picture drawn here, in milliseconds of wall clock. The
first runs the whole `clue ground` command as a shell would, to its first line; the second keeps
model and picture and replies again. And ratios: what policy "both" costs, in turns with "detector",
and what three looks cost a box, in turns with one.
Prints one JSON object and, with --markdown, a row for docs/results.md.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from clue_ros.engine import DEFAULT_POLICY, POLICIES
from clue_ros.errors import ClueError
from clue_ros.model.loading import add_model_argument

if TYPE_CHECKING:
    from clue_ros.dialogue.types import Dialogue
    from clue_ros.engine import Clue, View

T = TypeVar("T")
REQUEST = "pick up the block on the left"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue bench engine``."""
    add_model_argument(parser)
    parser.add_argument("--device", default="cpu", help="cpu (default), cuda or auto")
    parser.add_argument("--policy", choices=POLICIES, default=DEFAULT_POLICY, help="who decides")
    parser.add_argument("--runs", type=int, default=20, metavar="N", help="runs of each (20)")
    parser.add_argument("--image", type=Path, help="a picture file, instead of a drawn one")
    parser.add_argument("--text", default=REQUEST, help=f'the request ("{REQUEST}")')
    parser.add_argument("--markdown", action="store_true", help="print a table row as well")


def run(args: argparse.Namespace) -> int:
    """Run ``clue bench engine``; the exit status."""
    if args.runs < 1:
        raise ClueError(f"--runs must be 1 or more, not {args.runs}")
    with tempfile.TemporaryDirectory() as folder:
        picture = args.image or _write_picture(Path(folder) / "blocks.png")
        result: dict[str, Any] = {
            "model": args.model,
            "device": args.device,
            "cpu": f"{platform.machine()}, {os.cpu_count()} cores",
            "runs": args.runs,
            "policy": args.policy,
            **warm(args, picture),
            "start_to_answer_ms": _ms([_first_answer(args, picture) for _ in range(args.runs)]),
        }
    print(json.dumps(result))
    if args.markdown:
        names = ("start_to_answer_ms", "load_ms", "look_ms", "ambiguity_ms", "reply_ms")
        row = " | ".join(f"{result[name]:.0f}" for name in names)
        print(f"| {result['model']} | {result['device']} ({result['cpu']}) | {row} |")
    return 0


def warm(args: argparse.Namespace, picture: Path) -> dict[str, float]:
    """Medians with the model loaded, in ms: look, ambiguity and reply; and one cold load."""
    from clue_ros.dialogue.types import Dialogue
    from clue_ros.images import load_image

    image, dialogue, runs = load_image(picture), Dialogue(args.text), args.runs
    start = time.perf_counter()
    from clue_ros.engine import Clue

    clue = Clue.load(args.model, device=args.device, policy=args.policy)
    loaded = time.perf_counter() - start
    view = clue.look(image)
    clue.reply(view, dialogue)
    ratios = {
        f"{form}_both_to_detector": _policies(clue, view, dialogue, threshold, runs)
        for form, threshold in (("question", 0.0), ("box", 1.0))
    }
    return {
        "load_ms": round(loaded * 1000, 1),
        "look_ms": _ms(_times(lambda: clue.look(image), runs)),
        "ambiguity_ms": _ms(_times(lambda: clue.ambiguity(view, dialogue), runs)),
        "reply_ms": _ms(_times(lambda: clue.reply(view, dialogue), runs)),
        **ratios,
        "box_three_looks_to_one": _looks(clue, image, dialogue, runs),
    }


def _policies(clue: Clue, view: View, dialogue: Dialogue, threshold: float, runs: int) -> float:
    """How much longer a reply takes by policy "both" than by "detector", taken in turns.

    threshold: 0 or 1, so that both reply in the same form, whatever they think.
    """
    before = clue.policy, clue.threshold
    clue.threshold = threshold

    def seconds(policy: str) -> float:
        clue.policy = policy
        return _times(lambda: clue.reply(view, dialogue), 1)[0]

    ratio = _in_turns(seconds, "both", "detector", runs)
    clue.policy, clue.threshold = before
    return ratio


def _looks(clue: Clue, image: npt.NDArray[np.uint8], dialogue: Dialogue, runs: int) -> float:
    """How much longer it takes to point with three looks than with one, taken in turns.

    The picture is new each time, and its first look not counted.
    """
    before = clue.num_views

    def seconds(looks: int) -> float:
        clue.num_views, view = looks, clue.look(image)
        return _times(lambda: clue.reply(view, dialogue, force_grounding=True), 1)[0]

    ratio = _in_turns(seconds, 3, 1, runs)
    clue.num_views = before
    return ratio


def _in_turns(seconds: Callable[[T], float], this: T, that: T, runs: int) -> float:
    """How many times as long this takes as that: their medians, one of each a run."""
    taken = [(seconds(that), seconds(this)) for _ in range(runs)]
    one = statistics.median(time for time, _ in taken)
    return round(statistics.median(time for _, time in taken) / one, 3)


def _first_answer(args: argparse.Namespace, picture: Path) -> float:
    """Seconds from starting ``clue ground`` to its first line."""
    command = [sys.executable, "-m", "clue_ros.cli", "ground", str(picture), args.text]
    command += ["--json", "--model", args.model, "--device", args.device]
    command += ["--policy", args.policy]
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


def _times(work: Callable[[], object], runs: int) -> list[float]:
    """Seconds that each of ``runs`` calls takes."""
    seconds = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start)
    return seconds


def _ms(seconds: list[float]) -> float:
    return round(statistics.median(seconds) * 1000, 1)


def _write_picture(path: Path) -> Path:
    """Three squares on a dark table: the work does not depend on what is in the picture."""
    from PIL import Image

    picture: npt.NDArray[np.uint8] = np.full((480, 640, 3), 24, np.uint8)
    for left, color in ((90, (200, 40, 40)), (280, (40, 90, 200)), (470, (230, 210, 90))):
        picture[200:280, left : left + 80] = color
    Image.fromarray(picture).save(path)
    return path
