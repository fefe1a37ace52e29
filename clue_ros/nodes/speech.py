"""The person's words, typed: each line of stdin goes out on `speech`.

The voice issue adds a microphone.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, TextIO

from rclpy.node import Node
from std_msgs.msg import String

from clue_ros.nodes.declare import declare
from clue_ros.nodes.parameters import SPEECH
from clue_ros.nodes.process import run_node

LISTENER_TIMEOUT = 5.0  # seconds to wait for somebody to subscribe before the first line is sent


class Speech(Node):
    """See the module's first lines. Raises (on construction): BadParameterError."""

    def __init__(self, lines: TextIO | None, **kwargs: Any) -> None:
        super().__init__("speech", **kwargs)
        declare(self, SPEECH)
        self._speech = self.create_publisher(String, "speech", 10)
        self._lines = lines
        if lines is None or lines.closed:
            self._nothing_to_read("stdin is closed")
            return
        self._terminal = lines.isatty()
        if not self._terminal:
            self.get_logger().info("stdin is not a terminal: its lines are read all the same")
        threading.Thread(target=self._read, name="typed lines", daemon=True).start()

    def _read(self) -> None:
        assert self._lines is not None
        try:
            while True:
                self._show_prompt()
                line = self._lines.readline()
                if not line:
                    break
                if line.strip():
                    self._publish(line.rstrip("\r\n"))
        except (OSError, ValueError, UnicodeError) as error:
            self._nothing_to_read(f"stdin cannot be read ({error})")
            return
        self._nothing_to_read("stdin has ended")

    def _show_prompt(self) -> None:
        if self._terminal:
            print(self.get_parameter("prompt").value, end="", flush=True)

    def _publish(self, text: str) -> None:
        # A line piped in at start would be lost while DDS still looks for the other side.
        deadline = time.monotonic() + LISTENER_TIMEOUT
        while self._speech.get_subscription_count() == 0 and time.monotonic() < deadline:
            time.sleep(0.02)
        if self._speech.get_subscription_count() == 0:
            self.get_logger().warning(f"nobody listens on {self._speech.topic_name}")
        self._speech.publish(String(data=text))

    def _nothing_to_read(self, why: str) -> None:
        topic = self._speech.topic_name
        self.get_logger().info(
            f"{why}: nothing more can be typed here. To say something: "
            f"ros2 topic pub --once {topic} std_msgs/msg/String \"{{data: '...'}}\""
        )


def main(args: list[str] | None = None) -> int:
    """Run the node until it is told to stop."""
    return run_node("speech", lambda _executor: Speech(sys.stdin), args)


if __name__ == "__main__":
    sys.exit(main())
