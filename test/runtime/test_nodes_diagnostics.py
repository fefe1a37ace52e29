"""What /diagnostics says of the node's health, and its level, without a graph."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import ros_helpers

ros_helpers.need_ros()

import rclpy  # noqa: E402
from clue_msgs.msg import DialogueState  # noqa: E402
from diagnostic_msgs.msg import DiagnosticStatus  # noqa: E402
from ros_helpers import wait_until  # noqa: E402

from clue_ros.nodes.diagnostics import (  # noqa: E402
    TWIN_AFTER,
    Health,
    Others,
    level,
    model_values,
)
from clue_ros.nodes.topics import LATEST  # noqa: E402

OK, WARN, ERROR = DiagnosticStatus.OK, DiagnosticStatus.WARN, DiagnosticStatus.ERROR
TIMEOUT = 5.0  # seconds
GROUNDING: Any = None  # Health does not read it


def reply(latency: float, **stages: float) -> Any:
    """Return a session as far as Health reads one, after a reply."""
    return SimpleNamespace(latency=latency, stages=stages)


def test_a_model_that_fails_is_an_error_until_it_replies_again() -> None:
    health = Health()
    assert level("active", health, 0.1, TIMEOUT) == (OK, "active")
    health.failed("BUSY", "another dialogue is open")
    assert level("active", health, 0.1, TIMEOUT) == (OK, "active")
    health.failed("MODEL_ERROR", "out of memory")
    found, why = level("active", health, 0.1, TIMEOUT)
    assert (found, "out of memory" in why) == (ERROR, True)
    health.failed("BUSY", "another dialogue is open")
    assert level("active", health, 0.1, TIMEOUT)[0] == ERROR
    health.replied(reply(0.2, image=0.1), GROUNDING)
    assert level("active", health, 0.1, TIMEOUT) == (OK, "active")


def test_the_worst_is_told_first() -> None:
    health = Health()
    assert level("active", health, 0.1, TIMEOUT, "disk full")[0] == WARN
    assert "disk full" in level("active", health, 0.1, TIMEOUT, "disk full")[1]
    assert "no image" in level("active", health, None, TIMEOUT, "disk full")[1]
    assert "9.0 s ago" in level("active", health, 9.0, TIMEOUT, "disk full")[1]
    assert level("inactive", health, None, TIMEOUT, "disk full") == (OK, "inactive")
    health.load_error = "model 'x' cannot be loaded"
    assert level("unconfigured", health, None, TIMEOUT) == (ERROR, health.load_error)


def test_a_request_that_got_no_reply_leaves_the_last_latency() -> None:
    health = Health()
    assert health.values()["last reply took (s)"] == "none"
    health.failed("BAD_IMAGE", "the image is empty")
    assert health.values()["last reply took (s)"] == "none"
    health.replied(reply(0.25, image=0.1, decoding=0.05), GROUNDING)
    told = health.values()
    assert told["last reply took (s)"] == "0.250"
    assert told["last decoding took (s)"] == "0.050"
    assert told["errors"] == "BAD_IMAGE 1"


def test_a_wrappers_diagnostics_show_how_its_language_model_answers() -> None:
    clue = SimpleNamespace(device="cpu", memory_bytes=lambda: 3_000_000)
    assert model_values(clue) == {"device": "cpu", "model memory (MB)": "3"}
    clue.answer_counts = Counter({"point": 4, "out of range": 1})
    assert model_values(clue)["answers of the language model"] == "point 4, out of range 1"


def test_another_perception_on_the_same_topics_is_noticed(executor: Any) -> None:
    def perception(name: str, namespace: str = "") -> Any:
        node = rclpy.create_node(name, namespace=namespace, context=executor.context)
        node.create_publisher(DialogueState, "dialogue_state", LATEST)
        return node

    now = [0.0]
    own, apart = perception("perception"), perception("perception", "left")
    others = Others(own, lambda: now[0])
    wait_until(lambda: own.count_publishers("/left/dialogue_state"), "the other namespace")
    assert others.found() == ()
    second = perception("second")
    wait_until(lambda: others.found() == ("/second",), "the second one")
    second.destroy_node()
    wait_until(lambda: others.found() == (), "its end")
    # One of the same name may be a process that was killed and that DDS has not forgotten yet.
    twin = perception("perception")
    wait_until(lambda: own.count_publishers("/dialogue_state") == 2, "the twin")
    assert others.found() == ()
    now[0] += TWIN_AFTER + 1
    assert others.found() == ("/perception",)
    for node in (own, apart, twin):
        node.destroy_node()
