# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The perception node's health on /diagnostics."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from clue_msgs.msg import ClarificationQuestion
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.node import Node

from clue_ros.dialogue.types import Grounding, Question
from clue_ros.memory import resident
from clue_ros.nodes import topics
from clue_ros.nodes.camera import Camera
from clue_ros.nodes.dialogue_session import DialogueSlot, Listener, Session
from clue_ros.nodes.recorder import Recorder

STAGE = "last {} took (s)"  # key of a stage's seconds


def latency(values: Iterable[KeyValue]) -> dict[str, float]:
    """Return the milliseconds of each stage of the last reply, from a message's values.

    It leaves out the whole reply, and values that are no number (before the first reply).
    """
    pattern = re.compile(re.escape(STAGE).replace(r"\{\}", "(.+)"))
    found = {}
    for value in values:
        named = pattern.fullmatch(value.key)
        if named and named[1] != "reply" and re.fullmatch(r"\d+(\.\d*)?", value.value):
            found[named[1]] = float(value.value) * 1e3
    return found


@dataclass
class Health(Listener):
    """Counters of the node's dialogues and errors."""

    load_error: str = ""
    model_error: str = ""  # of the last request, until the model replies again
    last_error: str = ""
    last_latency: float | None = None  # seconds from request to the last reply of the model
    stages: dict[str, float] = field(default_factory=dict)  # seconds of each stage of it
    dialogues: int = 0
    questions: int = 0
    groundings: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    ended: Counter[str] = field(default_factory=Counter)  # dialogues, by outcome

    def replied(self, session: Session, reply: Question | Grounding) -> None:
        """Note how long the reply took."""
        self.last_latency, self.stages = session.latency, dict(session.stages)
        self.model_error = ""

    def asked(self, session: Session, question: ClarificationQuestion) -> None:
        """Count a question."""
        self.questions += 1

    def failed(self, code: str, message: str) -> None:
        """Count an error."""
        self.errors[code] += 1
        self.last_error = f"{code}: {message}"
        if code == "MODEL_ERROR":
            self.model_error = message

    def values(self) -> dict[str, object]:
        """Return the counters, and the process's memory, as diagnostics show them."""
        try:
            memory = f"{resident() / 1e6:.0f}"
        except OSError:  # no /proc
            memory = "unknown"
        return {
            STAGE.format("reply"): _seconds(self.last_latency),
            **{STAGE.format(name): _seconds(took) for name, took in self.stages.items()},
            "dialogues": self.dialogues,
            "questions": self.questions,
            "groundings": self.groundings,
            "dialogues ended": _counts(self.ended),
            "errors": _counts(self.errors),
            "last error": self.last_error or "none",
            "process memory (MB)": memory,
        }


def _seconds(value: float | None) -> str:
    return "none" if value is None else f"{value:.3f}"


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in list(counter.items())) or "none"


def level(
    state: str, health: Health, frame_age: float | None, timeout: float, not_recorded: str = ""
) -> tuple[Any, str]:
    """Return the diagnostic level and its reason.

    frame_age: seconds, None where no image has arrived. not_recorded: why episodes are not written.
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


def model_values(clue: Any) -> dict[str, object]:
    """Return the diagnostics of a loaded model; a wrapper adds its answers and faults of boxes."""
    values: dict[str, object] = {
        "device": clue.device,
        "model memory (MB)": f"{clue.memory_bytes() / 1e6:.0f}",
    }
    answers = getattr(clue, "answer_counts", None)
    if answers is not None:
        values["answers of the language model"] = _counts(answers)
    faults = getattr(clue, "faults", None)
    if faults is not None and faults.counts:
        values["faults of candidates"] = _counts(faults.counts)
    return values


TWIN_AFTER = 25.0  # seconds: DDS remembers a process that was killed for 20 s


class Others:
    """Notices another perception on the same topics, which answers the same requests.

    One of the same name may be this node's earlier process, until DDS forgets it.
    """

    def __init__(self, node: Node, clock: Callable[[], float] = time.monotonic) -> None:
        self._node, self._clock = node, clock
        self._topic = node.resolve_topic_name(topics.Perception.DIALOGUE_STATE.name)
        self._twin_since: float | None = None

    def found(self) -> tuple[str, ...]:
        """Return the full names of the others, sorted. Call it more than once."""
        own = self._node.get_fully_qualified_name()
        publishers = self._node.get_publishers_info_by_topic(self._topic)
        names = [f"{p.node_namespace.rstrip('/')}/{p.node_name}" for p in publishers]
        others = {name for name in names if name != own}
        if names.count(own) < 2:
            self._twin_since = None
        elif self._twin_since is None:
            self._twin_since = self._clock()
        elif self._clock() - self._twin_since > TWIN_AFTER:
            others.add(own)
        return tuple(sorted(others))


class Reporter:
    """Publishes /diagnostics in every lifecycle state, and warns when the camera is silent.

    `clue` returns the model, None while none is loaded. Uses the node's parameters
    `diagnostics_period`, `image_timeout` and `model`.
    """

    def __init__(
        self,
        node: Node,
        slot: DialogueSlot,
        camera: Camera,
        health: Health,
        recorder: Recorder | None,
        clue: Callable[[], Any],
    ) -> None:
        self._node, self._slot, self._camera = node, slot, camera
        self._health, self._recorder, self._clue = health, recorder, clue
        self._others = Others(node)
        self._known: tuple[str, ...] = ()  # others that were warned of
        self._publisher = topics.Perception.DIAGNOSTICS.publisher(node)
        # Real time even under use_sim_time: diagnostics go on while a simulation is paused.
        node.create_timer(
            self._value("diagnostics_period"),
            self._report,
            clock=Clock(clock_type=ClockType.STEADY_TIME),
            callback_group=MutuallyExclusiveCallbackGroup(),
        )

    def _value(self, name: str) -> Any:
        return self._node.get_parameter(name).value

    def _report(self) -> None:
        node, state, timeout = self._node, self._slot.state, self._value("image_timeout")
        warning = self._camera.warning(timeout) if state == "active" else None
        if warning:
            node.get_logger().warning(warning)
        others = self._others.found()
        rivals = f"another perception has the same topics: {', '.join(others)}"
        if others and others != self._known:
            node.get_logger().warning(f"{rivals}. Each answers every request: end one")
        self._known = others
        trouble = self._recorder.trouble if self._recorder else ""
        status, reason = level(state, self._health, self._camera.age(), timeout, trouble)
        if others:
            status, reason = max(status, DiagnosticStatus.WARN), f"{reason}; {rivals}"
        message = DiagnosticArray()
        message.header.stamp = node.get_clock().now().to_msg()
        message.status = [
            DiagnosticStatus(
                level=status,
                name=f"{node.get_fully_qualified_name()}: clue",
                message=reason,
                hardware_id=self._value("model"),
                values=[KeyValue(key=k, value=str(v)) for k, v in self._values().items()],
            )
        ]
        self._publisher.publish(message)

    def _values(self) -> dict[str, object]:
        values: dict[str, object] = {
            "state": self._slot.state,
            "model": self._value("model"),
            "image topic": self._camera.topic,
            "images taken": self._camera.count,
            "age of the last image (s)": _seconds(self._camera.age()),
            **self._camera.lacks(),
            "dialogue open": self._slot.session is not None,
            **self._health.values(),
        }
        clue = self._clue()
        if clue is not None:
            values |= model_values(clue)
        values["recording in"] = self._recorder.folder if self._recorder else "none"
        return values
