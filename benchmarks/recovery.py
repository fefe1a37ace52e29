#!/usr/bin/env python3
"""Seconds from `kill -9` of perception to the next request that ends in a box.

    scripts/run python benchmarks/recovery.py [--runs 5] [--model M] [--delay 0.5] [--keeper-too]

Perception is started as the launch file does (`--keep`), killed, and asked, with the image in the
request, until it answers: its keeper starts it again. `--keeper-too` kills the keeper, and so both,
and starts them again after `--delay` (respawn_delay of the launch file). Prints JSON with every
run. It measures and judges nothing: no test depends on it.
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

from clue_ros.model.loading import add_model_argument

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
    add_model_argument(parser)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--delay", type=float, default=0.5)
    parser.add_argument("--keeper-too", action="store_true", help="kill the keeper, not the node")
    options = parser.parse_args()
    from clue_msgs.srv import Ground
    from sensor_msgs.msg import Image

    from clue_ros.nodes.executables import KEEP
    from clue_ros.nodes.image_conversion import fill_image
    from clue_ros.nodes.supervisor import supervised
    from demo.graph import Processes, Watcher, stay_on_this_machine

    stay_on_this_machine()
    noise = np.random.default_rng(0).integers(0, 255, (480, 640, 3), dtype=np.uint8)
    request = Ground.Request(
        expression=REQUEST, force_grounding=True, image=fill_image(Image(), noise, "rgb8")
    )
    given = {"model": options.model, "device": options.device, "autostart": True}
    total: list[float] = []
    with tempfile.TemporaryDirectory(prefix="clue_recovery_") as logs:
        processes = Processes(Path(logs))
        watcher: Watcher | None = None
        try:
            processes.start("perception", KEEP, **given)
            watcher = Watcher(processes)
            client = watcher.node.create_client(Ground, "ground")
            grounded(watcher, client, request)
            for _ in range(options.runs):
                killed = time.monotonic()
                keeper = processes.pid("perception")
                if options.keeper_too:
                    os.kill(keeper, signal.SIGKILL)
                    time.sleep(options.delay)
                    processes.start("perception", KEEP, **given)
                else:
                    os.kill(supervised(keeper), signal.SIGKILL)
                grounded(watcher, client, request)
                total.append(round(time.monotonic() - killed, 2))
        finally:
            processes.stop()
            if watcher is not None:
                watcher.close()
    print(
        json.dumps(
            {
                "model": options.model,
                "killed": "keeper and node" if options.keeper_too else "node",
                "from_kill_s": total,
                "slowest_s": max(total),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
