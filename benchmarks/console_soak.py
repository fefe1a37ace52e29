#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure whether the operator's page drops frames instead of queueing them, and its memory.

    scripts/run python benchmarks/console_soak.py [--seconds 600] [--size 1280x720] [--rate 30]

The node console runs in a process of its own, and so does a camera, which sends at the rate and
writes its clock into each image. Two pages read the node's WebSocket: `fast` acknowledges each
frame at once, `slow` after half a second. For each page, JSON has the frames that it received, and
their age at arrival: the time from the camera's call of `publish` until the page has the JPEG. In
a queue the age of the slow page would grow without an end. Memory is the resident set of the
node's process once a second, with its growth as in benchmarks/soak.py; cpu_percent is of one core.
Judges nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from benchmarks.common import cpu_seconds, image_message, parse, publish_images
from benchmarks.soak import growth
from clue_ros.images import load_image
from clue_ros.lab.options import at_least, option
from clue_ros.memory import resident

BITS, BLOCK = 24, 40  # of the clock in an image; sides of a bit's block in pixels
PAUSES = {"fast": 0.0, "slow": 0.5}  # seconds until a page acknowledges a frame
PATIENCE = 60.0  # seconds for what must come at the beginning
PICTURE = Path(__file__).parents[1] / "demo" / "mugs.png"


@dataclass(frozen=True, kw_only=True)
class ConsoleSoakOptions:
    """The options of this benchmark."""

    seconds: int = option(600, "seconds that the camera sends", type=at_least(1))
    size: str = option("1280x720", "width and height of the images; at least 320x120")
    rate: int = option(30, "images a second", type=at_least(1))
    camera: bool = option(False, "for the benchmark's own use: be the camera")


def write_clock(image: npt.NDArray[np.uint8], seconds: float) -> None:
    """Write a clock's milliseconds into the upper left corner, as black and white blocks."""
    value = int(seconds * 1000) % 2**BITS
    bits = (value >> np.arange(BITS)) & 1
    blocks = (bits * 255).astype(np.uint8).reshape(BITS // 8, 8)
    image[: BLOCK * BITS // 8, : BLOCK * 8] = np.kron(blocks, np.ones((BLOCK, BLOCK), np.uint8))[
        ..., None
    ]


def age(jpeg: bytes, now: float) -> float:
    """Return the seconds since the clock in a picture, which is at most some hours old."""
    small = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_REDUCED_GRAYSCALE_8)
    assert small is not None
    side = BLOCK // 8
    blocks = small[side // 2 : BITS // 8 * side : side, side // 2 : 8 * side : side]
    bits = (blocks > 127).reshape(-1).astype(np.int64)
    value = int((bits << np.arange(BITS)).sum())
    return float((int(now * 1000) - value) % 2**BITS) / 1000


def be_camera(options: ConsoleSoakOptions) -> None:
    """Wait for a subscriber, send, and say how many images were sent."""
    import rclpy
    from rclpy.qos import qos_profile_sensor_data
    from sensor_msgs.msg import Image

    rclpy.init()
    node = rclpy.create_node("camera")
    publisher = node.create_publisher(Image, "image", qos_profile_sensor_data)
    width, height = map(int, options.size.split("x"))
    pixels = np.asarray(cv2.resize(load_image(PICTURE), (width, height)), np.uint8)
    while publisher.get_subscription_count() == 0:
        time.sleep(0.05)

    def next_image() -> Any:
        write_clock(pixels, time.monotonic())
        return image_message(pixels)

    count = options.seconds * options.rate
    took = publish_images(node, publisher, count, options.rate, next_image)
    print(json.dumps({"images": count, "seconds": took}), flush=True)
    node.destroy_node()
    rclpy.shutdown()


@dataclass
class Page:
    """One page, as its browser would read the WebSocket, in a thread."""

    url: str
    pause: float
    ages: list[float] = field(default_factory=list)
    error: str = ""

    def __post_init__(self) -> None:
        """Open it."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        from websockets.exceptions import ConnectionClosed
        from websockets.sync.client import connect

        try:
            with connect(self.url, max_size=None) as socket:
                while not self._stop.is_set():
                    with contextlib.suppress(TimeoutError):
                        message = socket.recv(timeout=0.2)
                        if isinstance(message, bytes):
                            number = int(np.frombuffer(message, "<u4", 1)[0])
                            self.ages.append(age(message[12:], time.monotonic()))
                            self._stop.wait(self.pause)
                            socket.send(json.dumps({"type": "drawn", "frame": number}))
        except (ConnectionClosed, OSError) as error:
            self.error = f"{type(error).__name__}: {error}"

    def close(self) -> None:
        """Close it."""
        self._stop.set()
        self._thread.join()

    def figures(self, seconds: float) -> dict[str, Any]:
        """Return what it received, and how old that was."""
        later = self.ages[len(self.ages) // 2 :]
        middle, high, highest = (
            (np.percentile(self.ages, (50, 95, 100)) * 1000).round().tolist()
            if self.ages
            else (None, None, None)
        )
        return {
            "frames": len(self.ages),
            "hz": round(len(self.ages) / seconds, 2),
            "age_ms": {
                "median": middle,
                "p95": high,
                "highest": highest,
                "median_of_the_second_half": round(1000 * float(np.median(later)))
                if later
                else None,
            },
            **({"error": self.error} if self.error else {}),
        }


@contextlib.contextmanager
def console_process() -> Iterator[tuple[int, str]]:
    """Start the node; yields its process id and the page's address."""
    from demo.graph import Processes, stay_on_this_machine

    stay_on_this_machine()
    with tempfile.TemporaryDirectory(prefix="clue_benchmark_") as logs:
        processes = Processes(Path(logs))
        try:
            processes.start("console", port=0)
            end = time.monotonic() + PATIENCE
            found = None
            while found is None:
                processes.check()
                if time.monotonic() > end:
                    raise TimeoutError("the page is not there: " + processes.tail("console"))
                time.sleep(0.1)
                log = (Path(logs) / "console.log").read_text()
                found = re.search(r"the operator's page: http://(\S+)/", log)
            yield processes.pid("console"), f"ws://{found[1]}/ws/live"
            processes.check()
        finally:
            processes.stop()


def measure(options: ConsoleSoakOptions) -> dict[str, Any]:
    """Run the camera and the pages against the node."""
    arguments = ["--seconds", str(options.seconds), "--rate", str(options.rate)]
    arguments += ["--size", options.size, "--camera"]
    loads: list[float] = []
    samples: list[int] = []
    with console_process() as (pid, url):
        pages = {name: Page(url, pause) for name, pause in PAUSES.items()}
        camera = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.console_soak", *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert camera.stdout is not None
        try:
            begin, used = time.monotonic(), cpu_seconds(pid)
            while camera.poll() is None:
                samples.append(resident(pid))
                loads.append(os.getloadavg()[0])
                time.sleep(1.0)
            took = time.monotonic() - begin
            cpu = 100 * (cpu_seconds(pid) - used) / took
            sent = json.loads(camera.stdout.readline())
        finally:
            camera.kill()
            camera.wait()
            for page in pages.values():
                page.close()
    return {
        "size": options.size,
        "sent": sent["images"],
        "sent_hz": round(sent["images"] / sent["seconds"], 2),
        "seconds": round(sent["seconds"], 1),
        "pages": {name: page.figures(sent["seconds"]) for name, page in pages.items()},
        "memory": growth(samples),
        "cpu_percent": round(cpu, 1),
        "load": {"mean": round(float(np.mean(loads)), 1), "cores": os.cpu_count()},
    }


def main() -> None:
    """Measure and print."""
    options = parse(ConsoleSoakOptions, __doc__)
    if options.camera:
        be_camera(options)
        return
    print(json.dumps(measure(options), indent=2))


if __name__ == "__main__":
    main()
