"""What the perception node says about itself on /diagnostics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.node import Node

from clue_ros.memory import resident
from clue_ros.nodes.camera import Camera
from clue_ros.nodes.dialogue_session import Gate
from clue_ros.nodes.recorder import Recording


@dataclass
class Health:
    """Counters the node keeps as it works."""

    load_error: str = ""
    model_error: str = ""  # of the last request, until the model replies again
    last_error: str = ""
    last_latency: float | None = None  # seconds from request to the last reply of the model
    stages: dict[str, float] = field(default_factory=dict)  # seconds of each stage of it
    dialogues: int = 0
    questions: int = 0
    groundings: int = 0
    errors: dict[str, int] = field(default_factory=dict)
    ended: dict[str, int] = field(default_factory=dict)  # dialogues, by outcome

    def replied(self, latency: float, stages: dict[str, float]) -> None:
        """Note how long the last reply took."""
        self.last_latency, self.stages = latency, dict(stages)
        self.model_error = ""

    def end(self, outcome: str) -> None:
        """Count a dialogue's end."""
        self.ended[outcome] = self.ended.get(outcome, 0) + 1

    def failed(self, code: str, message: str) -> None:
        """Count an error."""
        self.errors[code] = self.errors.get(code, 0) + 1
        self.last_error = f"{code}: {message}"
        if code == "MODEL_ERROR":
            self.model_error = message

    def values(self) -> dict[str, object]:
        """Return what is counted here, and the process's memory."""
        counted = ", ".join(f"{code} {count}" for code, count in list(self.errors.items()))
        ended = ", ".join(f"{outcome} {count}" for outcome, count in list(self.ended.items()))
        return {
            "last reply took (s)": number(self.last_latency),
            **{f"last {name} took (s)": number(took) for name, took in self.stages.items()},
            "dialogues": self.dialogues,
            "questions": self.questions,
            "groundings": self.groundings,
            "dialogues ended": ended or "none",
            "errors": counted or "none",
            "last error": self.last_error or "none",
            "process memory (MB)": f"{memory_mb():.0f}",
        }


def number(value: float | None) -> str:
    """Return seconds with three decimals, or "none"."""
    return "none" if value is None else f"{value:.3f}"


def memory_mb() -> float:
    """Return the resident memory of this process in MB (Linux), or NaN elsewhere."""
    try:
        return resident() / 1e6
    except OSError:
        return float("nan")


def level(
    state: str, health: Health, frame_age: float | None, timeout: float, not_recorded: str = ""
) -> tuple[Any, str]:
    """Return the diagnostic level and a line that says why.

    `frame_age`: seconds, None where no image has arrived. `not_recorded`: why episodes are not
    written, or "".
    """
    if health.load_error:
        return DiagnosticStatus.ERROR, health.load_error
    if state != "active":
        return DiagnosticStatus.OK, state
    if health.model_error:
        return DiagnosticStatus.ERROR, f"active, but the model failed: {health.model_error}"
    if frame_age is None:
        return DiagnosticStatus.WARN, "active, but no image has arrived"
    if frame_age > timeout:
        return DiagnosticStatus.WARN, f"active, but the last image came {frame_age:.1f} s ago"
    if not_recorded:
        return DiagnosticStatus.WARN, f"active, but dialogues are not recorded: {not_recorded}"
    return DiagnosticStatus.OK, "active"


def values(gate: Gate, camera: Camera, health: Health, clue: Any, model: str) -> dict[str, object]:
    """Return everything that the node knows about itself; `clue` is None while none is loaded."""
    found: dict[str, object] = {
        "state": gate.state,
        "model": model,
        "image topic": camera.topic,
        "images received": camera.count,
        "age of the last image (s)": number(camera.age()),
        "dialogue open": gate.session is not None,
        **health.values(),
    }
    if clue is not None:
        found["device"] = clue.device
        found["model memory (MB)"] = f"{clue.memory_bytes() / 1e6:.0f}"
    return found


def report(
    name: str, stamp: Time, status: tuple[Any, str], hardware_id: str, values: dict[str, object]
) -> DiagnosticArray:
    """Return the message for one status with its values."""
    message = DiagnosticArray()
    message.header.stamp = stamp
    message.status = [
        DiagnosticStatus(
            level=status[0],
            name=name,
            message=status[1],
            hardware_id=hardware_id,
            values=[KeyValue(key=key, value=str(value)) for key, value in values.items()],
        )
    ]
    return message


class Reporter:
    """Publishes /diagnostics in every lifecycle state, and warns when the camera is silent.

    `clue` returns the model, None while none is loaded. Parameters: `diagnostics_period`,
    `image_timeout` and `model` of the node.
    """

    def __init__(
        self,
        node: Node,
        gate: Gate,
        camera: Camera,
        health: Health,
        recording: Recording,
        clue: Callable[[], Any],
    ) -> None:
        self._node, self._gate, self._camera = node, gate, camera
        self._health, self._recording, self._clue = health, recording, clue
        self._publisher = node.create_publisher(DiagnosticArray, "/diagnostics", 10)
        # The wall's clock even under use_sim_time: a paused simulation must not silence
        # diagnostics.
        node.create_timer(
            self._value("diagnostics_period"),
            self._report,
            clock=Clock(clock_type=ClockType.STEADY_TIME),
            callback_group=MutuallyExclusiveCallbackGroup(),
        )

    def _value(self, name: str) -> Any:
        return self._node.get_parameter(name).value

    def _report(self) -> None:
        node, gate, camera, health = self._node, self._gate, self._camera, self._health
        model, timeout = self._value("model"), self._value("image_timeout")
        if gate.state == "active":
            warning = camera.warning(timeout)
            if warning:
                node.get_logger().warning(warning)
        self._publisher.publish(
            report(
                f"{node.get_fully_qualified_name()}: clue",
                node.get_clock().now().to_msg(),
                level(gate.state, health, camera.age(), timeout, self._recording.trouble),
                model,
                values(gate, camera, health, self._clue(), model)
                | {"recording in": self._recording.folder or "none"},
            )
        )
