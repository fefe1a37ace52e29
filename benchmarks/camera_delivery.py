#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure which part of a camera's images reaches perception, by QoS and Fast DDS profile.

    scripts/run python benchmarks/camera_delivery.py [--seconds 10] [--model M]

Perception runs in a process of its own with config/fastdds.xml, as the launch file starts it; so
does each camera, which sends at 30 Hz with that profile and without it, as reliable and as best
effort. The parameter image_reliability of perception is best_effort (the only way before the
parameter existed) and auto. One image in each message, none is sent while perception may still look
for the camera. Prints JSON, then the rows of a Markdown table; judges nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import IO, Any

import numpy as np

from benchmarks.common import (
    ModelOptions,
    image_message,
    parse,
    perception_process,
    publish_images,
)
from clue_ros.lab.options import at_least, option

RATE = 30.0
SIZES = ("640x480", "1280x720")
PROFILES = ("FASTDDS_DEFAULT_PROFILES_FILE", "FASTRTPS_DEFAULT_PROFILES_FILE")
SETTLED = 2.5  # seconds for discovery, and for perception to follow the reliability
LATE = 1.5  # seconds for images and diagnostics that are still on their way


@dataclass(frozen=True, kw_only=True)
class DeliveryOptions(ModelOptions):
    """The options of this benchmark."""

    seconds: int = option(10, "seconds that each camera sends", type=at_least(1))
    camera: str = option("", "for the benchmark's own use: be a camera, such as 640x480,reliable")


def be_camera(what: str, seconds: float) -> None:
    """Wait for a subscriber, then for a line on stdin, send, and say how many images were sent."""
    import rclpy
    from rclpy.qos import QoSProfile, ReliabilityPolicy
    from sensor_msgs.msg import Image

    size, reliability = what.split(",")
    width, height = map(int, size.split("x"))
    rclpy.init()
    node = rclpy.create_node("camera")
    qos = QoSProfile(depth=5, reliability=ReliabilityPolicy[reliability.upper()])
    publisher = node.create_publisher(Image, "image", qos)
    pixels = np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)
    message = image_message(pixels)
    while publisher.get_subscription_count() == 0:
        time.sleep(0.05)
    time.sleep(SETTLED)
    print("ready", flush=True)
    sys.stdin.readline()
    count = int(seconds * RATE)
    took = publish_images(node, publisher, count, RATE, lambda: message)
    print(json.dumps({"sent": count, "seconds": took}), flush=True)
    sys.stdin.readline()
    node.destroy_node()
    rclpy.shutdown()


@contextlib.contextmanager
def camera_process(
    what: str, seconds: float, *, profile: bool
) -> Iterator[tuple[IO[str], IO[str]]]:
    """Start a camera; yields its stdin and stdout."""
    environment = dict(os.environ)
    if not profile:
        for name in PROFILES:
            environment.pop(name, None)
    command = [sys.executable, "-m", "benchmarks.camera_delivery"]
    process = subprocess.Popen(
        [*command, "--camera", what, "--seconds", str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield process.stdin, process.stdout
    finally:
        process.stdin.close()
        process.wait()


def deliver(watcher: Any, what: str, seconds: float, *, profile: bool) -> dict[str, Any]:
    """Let one camera send; returns the images sent and received, and the rate of sending."""

    def received() -> int:
        time.sleep(LATE)
        return int(watcher.perception_sees)

    with camera_process(what, seconds, profile=profile) as (tell, hear):
        hear.readline()
        before = received()
        print("go", file=tell, flush=True)
        sent = json.loads(hear.readline())
        got = received() - before
        print("end", file=tell, flush=True)
    rate = round(sent["sent"] / sent["seconds"], 1)
    return {"sent": sent["sent"], "received": got, "sent_hz": rate}


def main() -> None:
    """Measure and print."""
    options = parse(DeliveryOptions, __doc__)
    if options.camera:
        be_camera(options.camera, options.seconds)
        return
    from rcl_interfaces.srv import SetParameters
    from rclpy.parameter import Parameter

    rows = []
    parameters = {"use_depth": False, "diagnostics_period": 0.2, "image_rate": 0.0}
    with perception_process(options, **parameters) as (_, watcher):
        watcher.transition("configure", 600.0)
        client = watcher.node.create_client(SetParameters, "perception/set_parameters")
        for mode in ("best_effort", "auto"):
            value = Parameter("image_reliability", value=mode).to_parameter_msg()
            future = client.call_async(SetParameters.Request(parameters=[value]))
            watcher.wait(future.done, "the parameter", 30.0)
            watcher.transition("activate")
            for size, reliability, profile in product(
                SIZES, ("reliable", "best_effort"), (False, True)
            ):
                what = {"image_reliability": mode, "size": size, "camera": reliability}
                got = deliver(watcher, f"{size},{reliability}", options.seconds, profile=profile)
                rows.append({**what, "profile": profile, **got})
                print(json.dumps(rows[-1]), flush=True)
            watcher.transition("deactivate")
    for row in rows:
        part = f"{100 * row['received'] / row['sent']:.0f} % of {row['sent']}"
        how = "with" if row["profile"] else "without"
        print(f"| {row['size']} | {row['camera']} | {how} | {row['image_reliability']} | {part} |")


if __name__ == "__main__":
    main()
