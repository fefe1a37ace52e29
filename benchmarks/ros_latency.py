#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure the time from image and sentence to the question on the ROS graph, and in the engine.

    scripts/run python benchmarks/ros_latency.py [--runs N] [--model M] [--device D] [--image FILE]

Perception runs in a process of its own. Each run sends a goal with the image and the sentence in it
and stops the clock when the question arrives on its topic; the goal is then canceled. The threshold
is 0, so that every request is asked about. The engine's time is the same image and sentence through
`Clue.look` and `Clue.reply` in this process. Prints JSON, then one row of a Markdown table; judges
nothing.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import (
    REQUEST,
    ModelOptions,
    image_message,
    noise,
    parse,
    perception_process,
    result_of,
    send_goal,
)
from clue_ros.dialogue.types import Dialogue
from clue_ros.engine import Clue
from clue_ros.images import load_image
from clue_ros.lab.options import at_least, option

WARM_UP = 3


@dataclass(frozen=True, kw_only=True)
class RosLatencyOptions(ModelOptions):
    """The options of this benchmark."""

    runs: int = option(50, "number of runs", type=at_least(1))
    image: Path | None = option(None, "an image file; default: noise of 640x480 pixels")


def summary(seconds: list[float]) -> dict[str, float]:
    """Return median and 99th percentile in milliseconds."""
    median, p99 = (round(1e3 * float(np.percentile(seconds, q)), 1) for q in (50, 99))
    return {"median_ms": median, "p99_ms": p99}


def engine_times(image: Any, options: RosLatencyOptions) -> list[float]:
    """Time look and reply, warm."""
    clue = Clue.load(options.model, device=options.device, threshold=0.0)
    seconds = []
    for _ in range(WARM_UP + options.runs):
        start = time.perf_counter()
        clue.reply(clue.look(image), Dialogue(REQUEST))
        seconds.append(time.perf_counter() - start)
    return seconds[WARM_UP:]


def graph_times(image: Any, options: RosLatencyOptions) -> list[float]:
    """Time goal to question, over DDS, warm."""
    from clue_msgs.action import GroundWithDialogue

    goal = GroundWithDialogue.Goal(expression=REQUEST, image=image_message(image))
    arrived = threading.Event()
    with perception_process(options, threshold=0.0) as (_, watcher):
        watcher.transition("configure", 600.0)
        watcher.transition("activate")
        client = watcher.action_client(GroundWithDialogue, "ground_with_dialogue")
        watcher.on_question = arrived.set

        def once() -> float:
            watcher.wait(client.server_is_ready, "the action server", 30.0)
            arrived.clear()
            begin = time.perf_counter()
            sending = send_goal(watcher, client, goal)
            if not arrived.wait(120.0):
                raise TimeoutError("no question within 120 s")
            seconds = time.perf_counter() - begin
            accepting = result_of(watcher, sending, "the goal", 120.0)
            handle = result_of(watcher, accepting, "the goal", 120.0)
            result_of(watcher, handle.cancel_goal_async(), "the cancellation", 120.0)
            result_of(watcher, handle.get_result_async(), "the result", 120.0)
            return seconds

        return [once() for _ in range(WARM_UP + options.runs)][WARM_UP:]


def main() -> None:
    """Measure and print."""
    options = parse(RosLatencyOptions, __doc__)
    image = load_image(options.image) if options.image else noise()[0]
    graph, engine = summary(graph_times(image, options)), summary(engine_times(image, options))
    size = f"{image.shape[1]}x{image.shape[0]}"
    result = {"model": options.model, "image": size, "runs": options.runs}
    print(json.dumps({**result, "graph": graph, "engine": engine}))
    cells = [*graph.values(), *engine.values(), options.runs]
    print(f"| {options.model}, {size} | {' | '.join(map(str, cells))} |")


if __name__ == "__main__":
    main()
