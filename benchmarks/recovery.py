#!/usr/bin/env python3
"""Seconds from `kill -9` of perception to the next request that ends in a box.

    scripts/run python benchmarks/recovery.py [--runs 5] [--model M] [--delay 0.5]

Perception is killed, started again after `--delay` (respawn_delay of the launch file) and asked,
with the image in the request, until it answers. Prints JSON: every run, and the part from the start
of the new process. It measures and judges nothing: no test depends on it.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

REQUEST = "pick up the block"
PATIENCE = 300.0  # seconds
TRY = 1.0  # seconds after which a request is sent again: DDS may have sent it to the dead process


def grounded(watcher: Any, client: Any, request: Any) -> None:
    """Ask until the answer is a box."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        future = client.call_async(request)
        end = time.monotonic() + TRY
        while time.monotonic() < end and not future.done():
            time.sleep(0.005)
        if future.done() and future.result().error_code == 0:
            return
        time.sleep(0.02)
    raise TimeoutError(f"no box within {PATIENCE:g} s")


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--model", default="tabletop")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--delay", type=float, default=0.5)
    options = parser.parse_args()
    from clue_msgs.srv import Ground
    from sensor_msgs.msg import Image

    from clue_ros.nodes.convert import fill_image
    from clue_ros.nodes.demo_graph import Processes, Watcher, stay_on_this_machine

    stay_on_this_machine()
    noise = np.random.default_rng(0).integers(0, 255, (480, 640, 3), dtype=np.uint8)
    request = Ground.Request(
        expression=REQUEST, force_grounding=True, image=fill_image(Image(), noise, "rgb8")
    )
    given = {"model": options.model, "device": options.device, "autostart": True}
    total, process = [], []
    with tempfile.TemporaryDirectory(prefix="clue_recovery_") as logs:
        processes = Processes(Path(logs))
        watcher: Watcher | None = None
        try:
            processes.start("perception", **given)
            watcher = Watcher(processes)
            client = watcher.node.create_client(Ground, "ground")
            grounded(watcher, client, request)
            for _ in range(options.runs):
                killed = time.monotonic()
                os.kill(processes.pid("perception"), signal.SIGKILL)
                time.sleep(options.delay)
                started = time.monotonic()
                processes.start("perception", **given)
                grounded(watcher, client, request)
                total.append(round(time.monotonic() - killed, 2))
                process.append(round(time.monotonic() - started, 2))
        finally:
            processes.stop()
            if watcher is not None:
                watcher.close()
    print(
        json.dumps(
            {
                "model": options.model,
                "delay_s": options.delay,
                "from_kill_s": total,
                "from_start_s": process,
                "slowest_s": max(total),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
