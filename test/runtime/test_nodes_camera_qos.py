"""The subscriptions to a camera: as reliable as its publishers, unless a setting says otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ros_helpers

ros_helpers.need_ros()

import rclpy  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.parameter import Parameter  # noqa: E402
from rclpy.qos import QoSProfile, ReliabilityPolicy  # noqa: E402
from ros_helpers import wait_until  # noqa: E402
from sensor_msgs.msg import CompressedImage, Image  # noqa: E402

from clue_ros.nodes.camera import Camera, Frame  # noqa: E402
from clue_ros.nodes.camera_subscription import CameraSubscription  # noqa: E402
from clue_ros.nodes.depth import DepthSettings, DepthSubscriber  # noqa: E402
from clue_ros.nodes.parameters import BadParameterError  # noqa: E402
from clue_ros.nodes.topics import Perception  # noqa: E402

RELIABLE, BEST_EFFORT = "RELIABLE", "BEST_EFFORT"
OVERRIDE = "qos_overrides./image.subscription."


class Graph:
    """A node that subscribes and one that publishes images."""

    def __init__(self, executor: SingleThreadedExecutor, **overrides: Any) -> None:
        context = executor.context
        given = [Parameter(OVERRIDE + name, value=value) for name, value in overrides.items()]
        self.node = rclpy.create_node("watcher", context=context, parameter_overrides=given)
        self.camera = rclpy.create_node("camera", context=context)
        self.received: list[Image] = []

    def publisher(self, reliability: str, topic: str = "image") -> Any:
        """Add a publisher."""
        qos = QoSProfile(depth=5, reliability=ReliabilityPolicy[reliability])
        return self.camera.create_publisher(Image, topic, qos)

    def publishers_seen(self, count: int) -> None:
        """Wait until the watcher's graph has so many publishers."""
        seen = self.node.get_publishers_info_by_topic
        wait_until(lambda: len(seen("/image")) == count, f"{count} publishers")

    def subscribe(self, reliability: str = "auto") -> CameraSubscription:
        """Subscribe to the images."""
        topic, put = Perception.IMAGE, self.received.append
        return CameraSubscription(self.node, topic, put, reliability=reliability)

    def subscribed(self, reliability: str, topic: str = "/image") -> Any:
        """Wait until the graph's one subscription is so; return its QoS."""

        def seen() -> Any:
            found = self.node.get_subscriptions_info_by_topic(topic)
            match = len(found) == 1 and found[0].qos_profile.reliability.name == reliability
            return found[0].qos_profile if match else None

        return wait_until(seen, f"a subscription of {topic} that is {reliability}")

    def close(self) -> None:
        """Leave."""
        self.node.destroy_node()
        self.camera.destroy_node()


@pytest.fixture
def graph(executor: SingleThreadedExecutor) -> Iterator[Graph]:
    graph = Graph(executor)
    yield graph
    graph.close()


@pytest.mark.parametrize("reliability", [RELIABLE, BEST_EFFORT])
def test_a_publisher_is_followed(graph: Graph, reliability: str) -> None:
    graph.publisher(reliability)
    graph.publishers_seen(1)
    subscription = graph.subscribe()
    graph.subscribed(reliability)
    assert subscription.reliable == (reliability == RELIABLE)


def test_a_change_of_publishers_is_followed(graph: Graph, executor: SingleThreadedExecutor) -> None:
    subscription = graph.subscribe()
    graph.subscribed(BEST_EFFORT)  # which matches whoever comes
    first = graph.publisher(RELIABLE)
    graph.publishers_seen(1)
    subscription.follow()
    graph.subscribed(RELIABLE)
    second = graph.publisher(BEST_EFFORT)
    graph.publishers_seen(2)
    subscription.follow()
    graph.subscribed(BEST_EFFORT)
    graph.camera.destroy_publisher(second)
    graph.publishers_seen(1)
    subscription.follow()
    graph.subscribed(RELIABLE)
    executor.add_node(graph.node)

    def arrives() -> bool:
        first.publish(Image(width=7))
        executor.spin_once(timeout_sec=0.1)
        return bool(graph.received)

    wait_until(arrives, "an image after the changes")
    graph.camera.destroy_publisher(first)
    graph.publishers_seen(0)
    subscription.follow()
    graph.subscribed(RELIABLE)  # nothing to follow


@pytest.mark.parametrize(
    ("parameter", "offered", "taken"),
    [("reliable", BEST_EFFORT, RELIABLE), ("best_effort", RELIABLE, BEST_EFFORT)],
)
def test_the_parameter_comes_before_the_publishers(
    graph: Graph, parameter: str, offered: str, taken: str
) -> None:
    graph.publisher(offered)
    graph.publishers_seen(1)
    subscription = graph.subscribe(parameter)
    subscription.follow()
    graph.subscribed(taken)


def test_qos_overrides_come_before_the_parameter_and_survive_a_change(
    executor: SingleThreadedExecutor,
) -> None:
    graph = Graph(executor, reliability="best_effort", depth=3)
    try:
        graph.publisher(RELIABLE)
        graph.publishers_seen(1)
        subscription = graph.subscribe("reliable")
        subscription.follow()
        graph.subscribed(BEST_EFFORT)
        assert graph.node.get_parameter(OVERRIDE + "depth").value == 3
        subscription.close()
        graph.subscribe("reliable")  # as after a deactivation
        graph.subscribed(BEST_EFFORT)
        assert Perception.IMAGE.qos.depth == 5, "the table is as it was"
    finally:
        graph.close()


def test_an_override_of_the_depth_leaves_the_reliability_to_the_publishers(
    executor: SingleThreadedExecutor,
) -> None:
    graph = Graph(executor, depth=2)
    try:
        subscription = graph.subscribe()
        graph.publisher(RELIABLE)
        graph.publishers_seen(1)
        subscription.follow()
        graph.subscribed(RELIABLE)
    finally:
        graph.close()


def test_an_override_that_is_no_policy_is_refused(executor: SingleThreadedExecutor) -> None:
    graph = Graph(executor, reliability="perhaps")
    try:
        with pytest.raises(BadParameterError, match="perhaps"):
            graph.subscribe()
    finally:
        graph.close()


def test_the_camera_with_depth_follows_by_itself(
    graph: Graph, executor: SingleThreadedExecutor
) -> None:
    camera = Camera(depths=DepthSubscriber(DepthSettings))
    camera.open(graph.node, "raw", None)
    for topic in ("/image", "/depth"):
        graph.subscribed(BEST_EFFORT, topic)
        graph.publisher(RELIABLE, topic)
    executor.add_node(graph.node)

    def followed(topic: str) -> bool:
        executor.spin_once(timeout_sec=0.1)
        found = graph.node.get_subscriptions_info_by_topic(topic)
        return len(found) == 1 and found[0].qos_profile.reliability.name == RELIABLE

    wait_until(lambda: followed("/image"), "the colour images to be followed")
    wait_until(lambda: followed("/depth"), "the depth images to be followed")
    assert camera.topic == "/image"
    camera.close()
    assert camera.topic == ""


def test_a_silent_camera_is_explained_by_who_publishes(graph: Graph) -> None:
    camera = Camera()
    camera.open(graph.node, "raw", None)
    assert "nobody publishes it" in camera.silence_cause()
    graph.publisher(BEST_EFFORT)
    graph.publishers_seen(1)
    assert "FASTDDS_DEFAULT_PROFILES_FILE" in camera.silence_cause()
    camera.close()
    camera.open(graph.node, "raw", None, "reliable")
    assert "image_reliability" in camera.silence_cause()
    camera.close()
    assert "closed" in camera.silence_cause()


@pytest.mark.parametrize(
    ("transport", "published", "kind", "advice"),
    [
        ("raw", "image/compressed", CompressedImage, "/image/compressed: set image_transport to c"),
        ("compressed", "image", Image, "publishes /image: set image_transport to raw"),
    ],
)
def test_the_other_transport_is_named_where_only_that_is_published(
    graph: Graph, transport: str, published: str, kind: Any, advice: str
) -> None:
    camera = Camera()
    camera.open(graph.node, transport, None)
    graph.camera.create_publisher(kind, published, 5)
    wait_until(lambda: advice in camera.silence_cause(), f"advice: {advice}")
    assert "camera publishes" in camera.silence_cause()
    camera.close()


def test_right_after_activation_the_first_image_is_awaited(graph: Graph) -> None:
    now = [100.0]
    camera = Camera(lambda: now[0])
    camera.open(graph.node, "raw", None)
    now[0] += 0.4
    assert camera.newest(2.0) == (
        "NO_IMAGE",
        "no image has arrived on /image yet: active for 0.4 s, the first one is awaited",
    )
    now[0] += 5
    assert "nobody publishes it" in camera.newest(2.0)[1]  # type: ignore[index]
    camera.close()


def test_a_polled_camera_has_the_newest_image_when_it_is_asked(
    graph: Graph, executor: SingleThreadedExecutor
) -> None:
    camera = Camera()
    camera.open(graph.node, "raw", None, "reliable", rate=1e-3)  # no timer fires in this test
    graph.subscribed(RELIABLE)
    publisher = graph.publisher(RELIABLE)
    wait_until(lambda: publisher.get_subscription_count() == 1, "the camera to be matched")
    executor.add_node(graph.node)
    assert camera.newest(60.0)[0] == "NO_IMAGE"  # type: ignore[index]
    for height in (1, 2, 3):
        publisher.publish(Image(height=height))
        executor.spin_once(timeout_sec=0.1)
    assert camera.count == 0, "the executor leaves the images alone"

    def shown() -> int:
        frame = camera.newest(60.0)
        return frame.message.height if isinstance(frame, Frame) else 0

    wait_until(lambda: shown() == 3, "the newest image")
    assert shown() == 3, "it is kept until there is another"
    assert camera.age() is not None
    camera.close()


def test_a_polled_camera_takes_images_while_nobody_asks(
    graph: Graph, executor: SingleThreadedExecutor
) -> None:
    camera = Camera()
    camera.open(graph.node, "raw", None, "reliable", rate=50.0)
    publisher = graph.publisher(RELIABLE)
    wait_until(lambda: publisher.get_subscription_count() == 1, "the camera to be matched")
    executor.add_node(graph.node)
    publisher.publish(Image(height=7))

    def taken() -> bool:
        executor.spin_once(timeout_sec=0.1)
        return camera.count == 1

    wait_until(taken, "the image")
    assert camera.age() is not None
    camera.close()
    executor.spin_once(timeout_sec=0.1)
    assert camera.age() is None
