#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure the time from image and sentence to the question on the ROS graph, and in the engine.

    scripts/run python benchmarks/ros_latency.py [--runs N] [--model M] [--device D] [--image FILE]
        [--sizes 640x480 1920x1080] [--no-masks]

Perception runs in a process of its own; every frame is new to it. A run takes, one after the other:

    engine            what the node asks of `Clue`, in this process with as many threads: look,
                      reply, masks of the candidates (--no-masks: neither here nor there)
    service           `ground` with the image in the request, from the call to the response
    service, topic    `ground` on the newest frame of the image topic, published 0.2 s before
    action            a goal with the image in it, from sending it to the question on its topic

The threshold is 0, so that every request is asked about. What ROS adds is the median over the runs
of the difference to the engine's time in the same run, with the lowest and the highest quarter.
Prints JSON, then the rows of a Markdown table; judges nothing.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from benchmarks.common import (
    REQUEST,
    ModelOptions,
    image_message,
    parse,
    perception_process,
    result_of,
    send_goal,
)
from clue_ros import memory
from clue_ros.dialogue.types import Dialogue
from clue_ros.engine import Clue
from clue_ros.images import load_image
from clue_ros.lab.options import at_least, option
from clue_ros.model.loading import demo_folder
from clue_ros.nodes.executables import leave_a_core_free

WARM_UP = 3
ENGINE, SERVICE, TOPIC, ACTION = "engine", "service", "service, topic", "action"
PATIENCE = 120.0  # seconds for any one answer
ON_ITS_WAY = 0.2  # seconds that a published frame has to arrive
AGAIN = 3  # frames, as one is lost while perception subscribes anew, reliably


@dataclass(frozen=True, kw_only=True)
class RosLatencyOptions(ModelOptions):
    """The options of this benchmark."""

    runs: int = option(50, "number of runs of each size", type=at_least(1))
    image: Path | None = option(None, "an image file; default: one of the demo's")
    no_masks: bool = option(False, "measure without the objects' masks")
    sizes: tuple[str, ...] = option(
        ("640x480", "1920x1080"), "sizes that the image is scaled to", nargs="+"
    )


class Frames:
    """A picture scaled to one size; each frame has a pixel that none had before."""

    def __init__(self, picture: npt.NDArray[np.uint8], size: str) -> None:
        width, height = map(int, size.split("x"))
        self._image = cv2.resize(picture, (width, height)).astype(np.uint8)
        self._count = 0

    def next(self) -> npt.NDArray[np.uint8]:
        """A new frame, RGB (H, W, 3)."""
        self._count += 1
        image: npt.NDArray[np.uint8] = self._image.copy()
        image[0, 0] = self._count & 255, self._count >> 8 & 255, 1
        return image


class Graph:
    """A client that asks perception in three ways. Each method returns seconds."""

    def __init__(self, watcher: Any) -> None:
        from clue_msgs.action import GroundWithDialogue
        from clue_msgs.srv import Ground
        from rclpy.qos import QoSProfile
        from sensor_msgs.msg import Image

        self._watcher = watcher
        self._action = watcher.action_client(GroundWithDialogue, "ground_with_dialogue")
        self._ground = watcher.node.create_client(Ground, "ground")
        self._camera = watcher.node.create_publisher(Image, "image", QoSProfile(depth=1))
        self._arrived = threading.Event()
        watcher.on_question = self._arrived.set
        watcher.wait(self._action.server_is_ready, "the action server", 30.0)
        watcher.wait(self._ground.service_is_ready, "the service", 30.0)
        watcher.wait(self._camera.get_subscription_count, "a subscriber of images", 30.0)

    def service(self, image: npt.NDArray[np.uint8]) -> float:
        """The service with the image in the request."""
        from clue_msgs.srv import Ground

        request = Ground.Request(expression=REQUEST, image=image_message(image))
        return self._call(request)[0]

    def topic(self, image: npt.NDArray[np.uint8]) -> float:
        """The service on the newest frame of the topic."""
        from clue_msgs.srv import Ground

        message = image_message(image)
        for _ in range(AGAIN):
            message.header.stamp = self._watcher.node.get_clock().now().to_msg()
            self._camera.publish(message)
            time.sleep(ON_ITS_WAY)
            seconds, response = self._call(Ground.Request(expression=REQUEST))
            if response.question.header.stamp == message.header.stamp:
                return seconds
        raise TimeoutError(f"{AGAIN} frames were not there {ON_ITS_WAY} s after being published")

    def _call(self, request: Any) -> tuple[float, Any]:
        done = threading.Event()
        begin = time.perf_counter()
        future = self._ground.call_async(request)
        future.add_done_callback(lambda _future: done.set())
        if not done.wait(PATIENCE):
            raise TimeoutError(f"no response within {PATIENCE:g} s")
        seconds, response = time.perf_counter() - begin, future.result()
        if not response.is_question:
            raise ValueError(f"no question, but error {response.error_code} {response.error_msg}")
        return seconds, response

    def action(self, image: npt.NDArray[np.uint8]) -> float:
        """The action, until its question is there; it is canceled then."""
        from clue_msgs.action import GroundWithDialogue

        goal = GroundWithDialogue.Goal(expression=REQUEST, image=image_message(image))
        self._arrived.clear()
        begin = time.perf_counter()
        sending = send_goal(self._watcher, self._action, goal)
        if not self._arrived.wait(PATIENCE):
            raise TimeoutError(f"no question within {PATIENCE:g} s")
        seconds = time.perf_counter() - begin
        accepting = result_of(self._watcher, sending, "the goal", PATIENCE)
        handle = result_of(self._watcher, accepting, "the goal", PATIENCE)
        result_of(self._watcher, handle.cancel_goal_async(), "the cancellation", PATIENCE)
        result_of(self._watcher, handle.get_result_async(), "the result", PATIENCE)
        return seconds


def in_turns(
    ways: Mapping[str, Callable[[npt.NDArray[np.uint8]], float]], frames: Frames, runs: int
) -> dict[str, list[float]]:
    """Seconds of each way, one new frame for each in every run; the first runs are not counted."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(WARM_UP + runs):
        for name, way in ways.items():
            taken[name].append(way(frames.next()))
    return {name: seconds[WARM_UP:] for name, seconds in taken.items()}


def summary(taken: dict[str, list[float]]) -> dict[str, dict[str, Any]]:
    """Median and 99th percentile in ms of each way, and what it adds to the engine's time."""
    told: dict[str, dict[str, Any]] = {}
    for name, seconds in taken.items():
        median, p99 = (round(1e3 * float(np.percentile(seconds, q)), 1) for q in (50, 99))
        told[name] = {"median_ms": median, "p99_ms": p99}
        if name != ENGINE:
            more = 1e3 * (np.asarray(seconds) - np.asarray(taken[ENGINE]))
            quarters = [round(float(np.percentile(more, q)), 1) for q in (50, 25, 75)]
            told[name]["adds_ms"] = quarters
    return told


def main() -> None:
    """Measure and print."""
    options = parse(RosLatencyOptions, __doc__)
    leave_a_core_free()  # both as perception does
    memory.keep_pages()
    picture = load_image(options.image or demo_folder() / "yellow_blocks.png")
    clue = Clue.load(options.model, device=options.device, threshold=0.0)
    masks = not options.no_masks

    def engine(image: npt.NDArray[np.uint8]) -> float:
        begin = time.perf_counter()
        view = clue.look(image)
        reply = clue.reply(view, Dialogue(REQUEST))
        if masks:
            clue.peak_masks(view, reply.ambiguity)
        return time.perf_counter() - begin

    found = {}
    with perception_process(options, threshold=0.0, masks=masks) as (_, watcher):
        watcher.transition("configure", 600.0)
        watcher.transition("activate")
        graph = Graph(watcher)
        ways = {
            ENGINE: engine, SERVICE: graph.service, TOPIC: graph.topic, ACTION: graph.action,
        }  # fmt: skip
        for size in options.sizes:
            found[size] = summary(in_turns(ways, Frames(picture, size), options.runs))
    result = {"model": options.model, "dtype": clue.dtype, "masks": masks, "runs": options.runs}
    print(json.dumps({**result, "sizes": found}))
    for size, rows in found.items():
        for name, row in rows.items():
            middle, low, high = row.get("adds_ms", ("", "", ""))
            adds = f"{middle} ({low} to {high})" if name != ENGINE else ""
            print(f"| {size}, {name} | {row['median_ms']} | {row['p99_ms']} | {adds} |")


if __name__ == "__main__":
    main()
