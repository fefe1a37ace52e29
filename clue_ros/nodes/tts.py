"""The robot's voice: speaks what comes on `say` through pyttsx3.

Where it cannot, says so once and prints it.
"""

from __future__ import annotations

import sys
from typing import Any

from rclpy.node import Node
from std_msgs.msg import String

from clue_ros.nodes.declare import declare
from clue_ros.nodes.parameters import TTS
from clue_ros.nodes.process import run_node
from clue_ros.nodes.voice import Speaker, Voice


class Tts(Node):
    """See the module's first lines. Raises (on construction): BadParameterError."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__("tts", **kwargs)
        declare(self, TTS)
        speak = self._value("engine") != "print"
        self._speaker = Speaker(self._start if speak else None, _show, self._warn)
        self.create_subscription(String, "say", self._on_say, 10)

    def _value(self, name: str) -> Any:
        return self.get_parameter(name).value

    def _start(self) -> Voice:
        voice = Voice(self._value("voice"), self._value("rate"), self._value("volume"))
        self.get_logger().info(f"speaking through pyttsx3 and {voice.player}")
        return voice

    def _warn(self, reason: str) -> None:
        message = f"cannot speak, so I print: {reason}"
        if self._value("engine") == "pyttsx3":
            self.get_logger().error(message)
        else:
            self.get_logger().info(message)

    def close(self) -> None:
        """Say what is queued, for two seconds at most."""
        self._speaker.stop()
        self._speaker.join(2.0)

    def _on_say(self, message: String) -> None:
        text = " ".join(message.data.split())
        if text:
            self._speaker.say(text)


def _show(text: str) -> None:
    print(f"robot> {text}", flush=True)


def main(args: list[str] | None = None) -> int:
    """Run the node until it is told to stop."""
    return run_node("tts", lambda _executor: Tts(), args)


if __name__ == "__main__":
    sys.exit(main())
