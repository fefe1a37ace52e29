# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A subscription to a camera's topic whose reliability follows the topic's publishers.

Best effort matches every publisher. But an image that is larger than the shared memory of the
camera's process comes in fragments, and a best-effort subscription loses the whole image with one
of them: most images, with Fast DDS's defaults. A reliable one has the fragment sent again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rcl_interfaces.msg import ParameterDescriptor
from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions, QoSPolicyKind
from rclpy.subscription import Subscription

from clue_ros.nodes.parameters import BadParameterError
from clue_ros.nodes.topics import Input

RELIABLE, BEST_EFFORT = ReliabilityPolicy.RELIABLE, ReliabilityPolicy.BEST_EFFORT
FIXED = {"reliable": RELIABLE, "best_effort": BEST_EFFORT}
# A queue of one is empty while an image arrives in fragments (docs/results-robot.md).
POLLED_DEPTH = 3
UNSET = "system_default"  # no QoS override: the parameter image_reliability counts
OVERRIDES = QoSOverridingOptions(
    (QoSPolicyKind.HISTORY, QoSPolicyKind.DEPTH, QoSPolicyKind.DURABILITY)
)


class Unscheduled(CallbackGroup):
    """The callback group of a subscription that the executor takes nothing from."""

    def can_execute(self, entity: Any) -> bool:
        """Never."""
        return False

    def beginning_execution(self, entity: Any) -> bool:
        """Do not hold anything back."""
        return True

    def ending_execution(self, entity: Any) -> None:
        """Nothing to do."""


class CameraSubscription:
    """Subscribes to a topic of a camera, and again when `follow` finds other publishers.

    reliability: "auto" (reliable if every publisher offers it, else best effort), "reliable" or
    "best_effort". polled: `take` hands the newest images to the callback; the executor takes none,
    which saves the CPU of images that nobody asks about. The queue then has a depth of
    `POLLED_DEPTH`. The QoS overrides of ROS (`qos_overrides./image.subscription.reliability`,
    `depth`, `history`, `durability`) come first. Use it from the executor's thread alone.

    Raises BadParameterError: an override is none of the policies.
    """

    def __init__(
        self,
        node: Node,
        topic: Input,
        callback: Callable[[Any], object],
        *,
        name: str = "",
        reliability: str = "auto",
        callback_group: Any = None,
        polled: bool = False,
    ) -> None:
        self._node, self._topic, self._callback = node, topic, callback
        self.polled = polled
        group = Unscheduled() if polled else callback_group
        self._options = {"name": name, "callback_group": group}
        self.topic_name: str = node.resolve_topic_name(name or topic.name)
        self.message_type = topic.kind
        fixed = self._override() or reliability
        self._follows = fixed == "auto"
        self.reliable = fixed == "reliable" if not self._follows else bool(self._offered())
        self._subscription: Subscription = self._subscribe()

    def follow(self) -> None:
        """Subscribe again if the publishers offer another reliability than before."""
        offered = self._offered() if self._follows else None
        if offered is None or offered == self.reliable:
            return
        self.reliable = offered
        self._node.destroy_subscription(self._subscription)
        self._subscription = self._subscribe()
        kind = "reliable" if offered else "best effort"
        self._node.get_logger().info(f"{self.topic_name}: subscribed as {kind}, as it is published")

    def take(self) -> None:
        """Hand the queued messages of a polled subscription to the callback."""
        subscription = self._subscription
        with subscription.handle:
            while taken := subscription.handle.take_message(subscription.msg_type, False):
                self._callback(taken[0])

    def close(self) -> None:
        """Unsubscribe."""
        self._node.destroy_subscription(self._subscription)

    def _offered(self) -> bool | None:
        """Whether every publisher offers reliable; None without a publisher."""
        publishers = self._node.get_publishers_info_by_topic(self.topic_name)
        if not publishers:
            return None
        return all(publisher.qos_profile.reliability == RELIABLE for publisher in publishers)

    def _override(self) -> str:
        """Return the reliability of a QoS override, or "": rclpy's own parameter has no "unset"."""
        name = f"qos_overrides.{self.topic_name}.subscription.reliability"
        if not self._node.has_parameter(name):
            about = f"Reliability of the subscription; {UNSET}: as image_reliability says."
            descriptor = ParameterDescriptor(description=about, read_only=True)
            self._node.declare_parameter(name, UNSET, descriptor)
        value = str(self._node.get_parameter(name).value).lower()
        if value not in (UNSET, *FIXED):
            raise BadParameterError(f"{name} must be one of {', '.join(FIXED)}; got {value!r}")
        return "" if value == UNSET else value

    def _subscribe(self) -> Subscription:
        base = self._topic.qos
        # A copy: rclpy writes the overrides into the profile that it is given.
        qos = QoSProfile(
            history=base.history,
            depth=POLLED_DEPTH if self.polled else base.depth,
            durability=base.durability,
            reliability=RELIABLE if self.reliable else BEST_EFFORT,
        )
        return self._topic.subscribe(
            self._node, self._callback, qos=qos, qos_overriding_options=OVERRIDES, **self._options
        )
