#!/usr/bin/env python3
"""Time to the first answer from process start, and of a warm reply: medians of 20 on the CPU.

    scripts/run python benchmarks/engine_latency.py [--runs N] [--model M] [--device D]

The same as ``clue bench engine --markdown``. It measures and judges nothing: no test depends on it.
"""

import sys

from clue_ros.cli import main

if __name__ == "__main__":
    sys.exit(main(["bench", "engine", "--markdown", *sys.argv[1:]]))
