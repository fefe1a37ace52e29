#!/usr/bin/env python3
"""From image and sentence to the question on the ROS graph, beside the engine's own time.

    scripts/run python benchmarks/ros_latency.py [--runs N] [--model M] [--device D] [--image FILE]

Perception runs in a process of its own. Each run sends a goal with the image and the sentence in it
and stops the clock when the question arrives on its topic; the goal is then canceled. The threshold
is set to 0, so that every request is asked about. The engine's time is the same image and sentence
through `Clue.look` and `Clue.reply` in this process. Prints JSON, then one row of a Markdown table.
It measures and judges nothing: no test depends on it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from clue_ros.dialogue.types import Dialogue
from clue_ros.engine import Clue
from clue_ros.images import load_image
from clue_ros.model.loading import add_model_argument

REQUEST = "pick up the block"
WARM_UP = 3


def summary(seconds: list[float]) -> dict[str, float]:
    """Return median and 99th percentile in milliseconds."""
    return {
        "median_ms": round(1e3 * statistics.median(seconds), 1),
        "p99_ms": round(1e3 * float(np.percentile(seconds, 99)), 1),
    }


def engine_times(image: Any, options: argparse.Namespace) -> list[float]:
    """Time look and reply, warm."""
    clue = Clue.load(options.model, device=options.device, threshold=0.0)

    def once() -> float:
        begin = time.perf_counter()
        clue.reply(clue.look(image), Dialogue(REQUEST))
        return time.perf_counter() - begin

    return [once() for _ in range(WARM_UP + options.runs)][WARM_UP:]


def graph_times(image: Any, options: argparse.Namespace, logs: Path) -> list[float]:
    """Time goal to question, over DDS, warm."""
    from demo.graph import Processes, Watcher, stay_on_this_machine

    stay_on_this_machine()
    processes = Processes(logs)
    watcher: Watcher | None = None
    try:
        processes.start("perception", model=options.model, device=options.device, threshold=0.0)
        watcher = Watcher(processes)
        watcher.transition("configure", 600.0)
        watcher.transition("activate")
        once = asker(watcher, image)
        return [once() for _ in range(WARM_UP + options.runs)][WARM_UP:]
    finally:
        processes.stop()
        if watcher is not None:
            watcher.close()


def asker(watcher: Any, image: Any) -> Callable[[], float]:
    """Return a function that sends one goal and returns the seconds until its question."""
    from clue_msgs.action import GroundWithDialogue
    from sensor_msgs.msg import Image

    from clue_ros.nodes.image_conversion import fill_image

    goal = GroundWithDialogue.Goal(expression=REQUEST, image=fill_image(Image(), image, "rgb8"))
    client = watcher.action_client(GroundWithDialogue, "ground_with_dialogue")
    arrived = threading.Event()
    watcher.on_question = arrived.set

    def done(future: Any) -> Any:
        watcher.wait(future.done, "the goal", 120.0)
        return future.result()

    def once() -> float:
        watcher.wait(client.server_is_ready, "the action server", 30.0)
        arrived.clear()
        begin = time.perf_counter()
        # in the thread that spins: rclpy 9.1 may lose the acceptance that another thread takes
        sending = watcher.node.executor.create_task(client.send_goal_async, goal)
        if not arrived.wait(120.0):
            raise TimeoutError("no question within 120 s")
        seconds = time.perf_counter() - begin
        handle = done(done(sending))
        done(handle.cancel_goal_async())
        done(handle.get_result_async())
        return seconds

    return once


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=50)
    add_model_argument(parser)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--image", type=Path, help="default: noise of 640x480 pixels")
    options = parser.parse_args()
    noise = np.random.default_rng(0).integers(0, 255, (480, 640, 3), dtype=np.uint8)
    image = load_image(options.image) if options.image else noise
    with tempfile.TemporaryDirectory(prefix="clue_bench_") as logs:
        graph = summary(graph_times(image, options, Path(logs)))
    engine = summary(engine_times(image, options))
    size = f"{image.shape[1]}x{image.shape[0]}"
    result = {"model": options.model, "image": size, "runs": options.runs}
    print(json.dumps({**result, "graph": graph, "engine": engine}))
    print(
        f"| {options.model}, {size} | {graph['median_ms']} | {graph['p99_ms']} "
        f"| {engine['median_ms']} | {engine['p99_ms']} | {options.runs} |"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
