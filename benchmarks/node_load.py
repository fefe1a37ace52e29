#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure what a perception node takes while nobody asks: its memory, and CPU under a camera.

    scripts/run python benchmarks/node_load.py [--seconds 30] [--size 1280x720] [--model M]
        [--device D] [--requests 5] [--keep]

Perception runs in a process of its own, is configured (which loads the model and warms it up) and
activated. Memory is the resident set of its process, and its proportional set, in which pages that
it shares with other processes count in part: after the warm-up, and after some one-shot requests
about images of the given size; then that of an idle console, with the launch file's profile. With
--keep a supervisor restarts the node, and memory is that of both. CPU is that of the node in
percent of one core, first without a camera, then with one that sends 30 images a second from a
third process (reliable, with the Fast DDS profile of the launch file). Prints JSON; judges nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.camera_delivery import LATE, camera_process
from benchmarks.common import (
    REQUEST,
    ModelOptions,
    busy,
    image_message,
    parse,
    perception_process,
    result_of,
)
from clue_ros.lab.options import at_least, option
from clue_ros.memory import resident
from clue_ros.nodes.executables import KEEP

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, kw_only=True)
class NodeLoadOptions(ModelOptions):
    """The options of this benchmark."""

    seconds: int = option(30, "seconds with the camera, and as many without", type=at_least(1))
    size: str = option("1280x720", "size of the images")
    requests: int = option(5, "number of requests before the second look at the memory")
    keep: bool = option(False, "let a supervisor keep the node, as the launch file does")


def proportional(pid: int) -> int:
    """The proportional set of a process in bytes."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def family(pid: int) -> list[int]:
    """The pids of a process, its children and theirs."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text("ascii").split()]
    return [pid, *(each for child in children for each in family(child))]


def megabytes(pid: int) -> dict[str, float]:
    """Resident and proportional memory of a process and its children, in 10^6 bytes."""
    pids = family(pid)
    return {
        "resident_mb": round(sum(map(resident, pids)) / 1e6, 1),
        "proportional_mb": round(sum(map(proportional, pids)) / 1e6, 1),
    }


def ask(watcher: Any, size: str, count: int) -> None:
    """Send one-shot requests, each about an image of its own."""
    from clue_msgs.srv import Ground

    client = watcher.node.create_client(Ground, "ground")
    watcher.wait(client.service_is_ready, "the service", 30.0)
    width, height = map(int, size.split("x"))
    rng = np.random.default_rng(0)
    for _ in range(count):
        image = image_message(rng.integers(0, 255, (height, width, 3), dtype=np.uint8))
        request = Ground.Request(expression=REQUEST, image=image, force_grounding=True)
        result_of(watcher, client.call_async(request), "the response", 120.0)


def console(processes: Any, watcher: Any) -> dict[str, float]:
    """Memory of an idle console."""
    profile, before = "FASTDDS_DEFAULT_PROFILES_FILE", os.environ.copy()
    os.environ[profile] = str(ROOT / "config" / "fastdds_small.xml")
    try:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        processes.start("console", port=port)
    finally:
        os.environ.pop(profile)
        os.environ.update(before)

    def answers() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return True
        return False

    watcher.wait(answers, "the console's page", 120.0)
    return megabytes(processes.pid("console"))


def under_camera(watcher: Any, pid: int, options: NodeLoadOptions) -> dict[str, Any]:
    """CPU while a camera sends, and how many of its images were taken."""
    before = watcher.perception_sees
    with camera_process(f"{options.size},reliable", options.seconds + 1, profile=True) as camera:
        tell, hear = camera
        hear.readline()
        print("go", file=tell, flush=True)
        percent = busy(pid, options.seconds)
        sent = json.loads(hear.readline())["sent"]
        time.sleep(LATE)
        taken = watcher.perception_sees - before
        print("end", file=tell, flush=True)
    return {"cpu_percent": percent, "images_sent": sent, "images_taken": taken}


def main() -> None:
    """Measure and print."""
    options = parse(NodeLoadOptions, __doc__)
    result: dict[str, Any] = {"model": options.model, "images": options.size}
    words = [KEEP] if options.keep else []
    with perception_process(options, *words, diagnostics_period=1.0) as (processes, watcher):
        watcher.transition("configure", 600.0)
        watcher.transition("activate")
        pid = processes.pid("perception")
        result["after warm-up"] = megabytes(pid)
        ask(watcher, options.size, options.requests)
        result[f"after {options.requests} requests"] = megabytes(pid)
        result["console"] = console(processes, watcher)
        node = family(pid)[-1]
        result["idle"] = {"seconds": options.seconds, "cpu_percent": busy(node, options.seconds)}
        result["idle, 30 Hz camera"] = under_camera(watcher, node, options)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
