"""The speech node's entry point: `ros2 run clue_ros speech_node`. The node is in speech_node.py."""

from __future__ import annotations

import sys

from clue_ros.nodes.perception import clue_msgs_missing


def main(args: list[str] | None = None) -> int:
    """Run the node until it is told to stop; returns the process's exit status."""
    if clue_msgs_missing("speech"):
        return 1
    from clue_ros.nodes.process import run_node
    from clue_ros.nodes.speech_node import SpeechNode

    return run_node("speech", SpeechNode, args, threads=3)


if __name__ == "__main__":
    sys.exit(main())
