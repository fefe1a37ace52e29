#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure the seconds from `kill -9` of perception to the next request that ends in a box.

    scripts/run python benchmarks/recovery.py [--runs 5] [--model M] [--delay 0.5]
        [--supervisor-too]

Perception is started as the launch file does (`--keep`), killed, and asked, with the image in the
request, until it answers: its supervisor starts it again. `--supervisor-too` kills the supervisor,
and so both, and starts them again after `--delay` (respawn_delay of the launch file). Prints JSON
with every run; judges nothing.
"""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.common import REQUEST, ModelOptions, image_message, noise, parse, perception_process
from clue_ros.lab.options import at_least, option

PATIENCE = 300.0  # seconds
TRY = 1.0  # seconds after which a request is sent again: DDS may have sent it to the dead process


@dataclass(frozen=True, kw_only=True)
class RecoveryOptions(ModelOptions):
    """The options of this benchmark."""

    runs: int = option(5, "number of kills", type=at_least(1))
    delay: float = option(0.5, "seconds until both are started again")
    supervisor_too: bool = option(False, "kill the supervisor, not only the node")


def wait_for_box(client: Any, request: Any) -> None:
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


def main() -> None:
    """Measure and print."""
    options = parse(RecoveryOptions, __doc__)
    from clue_msgs.srv import Ground

    from clue_ros.nodes.executables import KEEP
    from clue_ros.nodes.supervisor import supervised

    request = Ground.Request(
        expression=REQUEST, force_grounding=True, image=image_message(noise()[0])
    )
    total: list[float] = []
    with perception_process(options, KEEP, autostart=True) as (processes, watcher):
        client = watcher.node.create_client(Ground, "ground")
        wait_for_box(client, request)
        for _ in range(options.runs):
            killed = time.monotonic()
            supervisor = processes.pid("perception")
            if options.supervisor_too:
                os.kill(supervisor, signal.SIGKILL)
                time.sleep(options.delay)
                given = {"model": options.model, "device": options.device}
                processes.start("perception", KEEP, autostart=True, **given)
            else:
                os.kill(supervised(supervisor), signal.SIGKILL)
            wait_for_box(client, request)
            total.append(round(time.monotonic() - killed, 2))
    what = "supervisor and node" if options.supervisor_too else "node"
    result = {"model": options.model, "killed": what, "from_kill_s": total, "slowest_s": max(total)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
