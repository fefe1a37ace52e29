# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Shared by the benchmarks: their options, and a perception node in a process of its own."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from clue_ros.lab.options import add_options, option, read_options
from clue_ros.model.loading import DEFAULT_MODEL
from clue_ros.model.openvino_compiler import CACHE

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


@contextmanager
def cache_in(folder: Path) -> Iterator[None]:
    """Let the processes that start in here keep their graphs in a folder."""
    before = os.environ.get(CACHE)
    os.environ[CACHE] = str(folder)
    try:
        yield
    finally:
        del os.environ[CACHE]
        if before is not None:
            os.environ[CACHE] = before


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


def busy(pid: int, seconds: float) -> float:
    """CPU time of a process in the next seconds, in percent of one core."""
    used, begin = cpu_seconds(pid), time.monotonic()
    time.sleep(seconds)
    return round(100 * (cpu_seconds(pid) - used) / (time.monotonic() - begin), 1)


def publish_images(
    node: Any, publisher: Any, count: int, rate: float, next_image: Callable[[], Any]
) -> float:
    """Publish `count` messages of `next_image` at a rate in Hz, stamped; seconds that it took."""
    begin = time.monotonic()
    for number in range(count):
        message = next_image()
        message.header.stamp = node.get_clock().now().to_msg()
        publisher.publish(message)
        time.sleep(max(0.0, begin + (number + 1) / rate - time.monotonic()))
    return time.monotonic() - begin


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
