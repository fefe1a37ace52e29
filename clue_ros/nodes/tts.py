"""The tts node's entry point: `ros2 run clue_ros tts_node`. The node is in tts_node.py."""

from __future__ import annotations

import sys

from clue_ros.nodes.perception import clue_msgs_missing


def main(args: list[str] | None = None) -> int:
    """Run the node until it is told to stop; returns the process's exit status."""
    if clue_msgs_missing("tts"):
        return 1
    from clue_ros.nodes.process import run_node
    from clue_ros.nodes.tts_node import TtsNode

    return run_node("tts", TtsNode, args, threads=3)


if __name__ == "__main__":
    sys.exit(main())
