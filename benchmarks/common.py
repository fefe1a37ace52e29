# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Shared by the benchmarks: their options, and a perception node in a process of its own."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from clue_ros.lab.options import add_options, option, read_options
from clue_ros.model.loading import DEFAULT_MODEL

T = TypeVar("T")
REQUEST = "pick up the block"


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Which model is measured, and where it runs."""

    model: str = option(DEFAULT_MODEL, "an embedded model's name, a folder or a hub id")
    device: str = option("auto", "auto, cpu or cuda")


def parse(options: type[T], doc: str | None, argv: list[str] | None = None) -> T:
    """The options of a benchmark from its command line; doc: its module's docstring."""
    parser = argparse.ArgumentParser(
        description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, options)
    return read_options(options, parser.parse_args(argv))


def noise(count: int = 1) -> npt.NDArray[np.uint8]:
    """Images of noise, (count, 480, 640, 3); always the same ones."""
    return np.random.default_rng(0).integers(0, 255, (count, 480, 640, 3), dtype=np.uint8)


def image_message(image: npt.NDArray[np.uint8]) -> Any:
    """The image as sensor_msgs/Image."""
    from sensor_msgs.msg import Image

    from clue_ros.nodes.image_conversion import fill_image

    return fill_image(Image(), image, "rgb8")


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, in user and kernel mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def perception_process(
    options: ModelOptions, *arguments: str, **parameters: Any
) -> Iterator[tuple[Any, Any]]:
    """Start a perception node; yields `demo.graph`'s Processes and Watcher, and ends both."""
    from demo.graph import Processes, Watcher, stay_on_this_machine

    stay_on_this_machine()
    with tempfile.TemporaryDirectory(prefix="clue_benchmark_") as logs:
        processes = Processes(Path(logs))
        watcher: Watcher | None = None
        try:
            processes.start(
                "perception", *arguments, model=options.model, device=options.device, **parameters
            )
            watcher = Watcher(processes)
            yield processes, watcher
        finally:
            processes.stop()
            if watcher is not None:
                watcher.close()


def result_of(watcher: Any, future: Any, what: str, seconds: float) -> Any:
    """The result of a ROS future; raises demo.graph.GraphError naming `what` after `seconds`."""
    watcher.wait(future.done, what, seconds)
    return future.result()


def send_goal(watcher: Any, client: Any, goal: Any) -> Any:
    """Send an action's goal in the thread that spins; returns the task of sending it.

    rclpy 9.1 may lose the acceptance of a goal that another thread sends.
    """
    return watcher.node.executor.create_task(client.send_goal_async, goal)
