# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Every topic, service and action of the nodes: name, type, QoS and direction, a table for each.

The nodes make their publishers, subscriptions and servers from these tables, and tests compare
docs/ros.md, docs/voice.md and config/sros2/policy.xml with them. A relative name follows the node's
namespace and remappings; "~" stands for the node's own name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from rclpy.action import ActionClient, ActionServer
from rclpy.client import Client
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription

try:
    from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import PublisherEventCallbacks, SubscriptionEventCallbacks

# Reliable and volatile: a node that joins late must not act on an old message.
EVENTS = QoSProfile(depth=10)
# Transient local, depth 1: a node that joins late gets the last message.
LATEST = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
# Sensor data: best effort, depth 5. A subscription to a camera is reliable where its publishers are
# (camera_subscription.py). Of images that come in fragments, depth 1 loses more than depth 5 on a
# busy machine (docs/results-robot.md).
SENSOR = QoSProfile(depth=5, reliability=ReliabilityPolicy.BEST_EFFORT)
# As tf2_ros subscribes: its publishers are many, and the fixed transforms are sent once.
MOVING = QoSProfile(depth=100)
FIXED = QoSProfile(depth=100, durability=DurabilityPolicy.TRANSIENT_LOCAL)
# Seconds of sound, for a busy machine.
SOUND_IN, SOUND_OUT = QoSProfile(depth=500), QoSProfile(depth=50)
# Services: rclpy's default depth, 10, drops further simultaneous requests without an answer.
REQUESTS = QoSProfile(depth=64)

# rclpy's default event handlers warn of peers with an incompatible QoS, as the peer's own node does
# too. They are half of what rclpy's executor looks at in Python at each message.
QUIET_IN = {"event_callbacks": SubscriptionEventCallbacks(use_default_callbacks=False)}
QUIET_OUT = {"event_callbacks": PublisherEventCallbacks(use_default_callbacks=False)}


@dataclass(frozen=True)
class Interface:
    """A name in the ROS graph, its type as "package/msg/Name", and its QoS profile."""

    name: str
    kind: str
    qos: QoSProfile = field(default_factory=lambda: EVENTS)
    direction: ClassVar[str] = ""

    @property
    def type(self) -> Any:
        """The message, service or action class; its package is imported here."""
        package, folder, name = self.kind.split("/")
        return getattr(importlib.import_module(f"{package}.{folder}"), name)

    @property
    def missing(self) -> str:
        """Why the message class cannot be imported; empty if it can."""
        try:
            _ = self.type
        except (ImportError, AttributeError) as error:
            return str(error)
        return ""


class Topic(Interface):
    """A topic; any node may subscribe to it."""

    def subscribe(
        self,
        node: Node,
        callback: Callable[[Any], object],
        *,
        name: str = "",
        qos: QoSProfile | None = None,
        **options: Any,
    ) -> Subscription:
        """Create the subscription; `name` and `qos` replace the table's."""
        topic = name or self.name
        options = {**QUIET_IN, **options}
        return node.create_subscription(self.type, topic, callback, qos or self.qos, **options)


class Input(Topic):
    """A subscribed topic."""

    direction = "in"


class OptionalInput(Input):
    """A subscribed topic that exists only where its message package is installed."""


class Output(Topic):
    """A published topic."""

    direction = "out"

    def publisher(self, node: Node, *, name: str = "") -> Publisher:
        """Create the publisher; `name` replaces the table's."""
        return node.create_publisher(self.type, name or self.name, self.qos, **QUIET_OUT)


class ActiveOutput(Topic):
    """A topic that a managed node publishes only while it is active."""

    direction = "out"

    def publisher(self, node: Any) -> Any:
        """Create the lifecycle publisher."""
        return node.create_lifecycle_publisher(self.type, self.name, self.qos, **QUIET_OUT)


class OptionalOutput(ActiveOutput):
    """A topic that exists only where its message package is installed."""


class Call(Interface):
    """A service of another node that is called."""

    direction = "call"

    def client(self, node: Node, *, name: str = "", **options: Any) -> Client:
        """Create the client; `name` replaces the table's.

        With Fast DDS its queue also takes the answers to other clients: a short queue loses
        answers.
        """
        return node.create_client(self.type, name or self.name, qos_profile=self.qos, **options)


class Service(Call):
    """An offered service."""

    direction = "service"

    def serve(self, node: Node, callback: Callable[[Any, Any], Any], **options: Any) -> None:
        """Create the service."""
        node.create_service(self.type, self.name, callback, qos_profile=self.qos, **options)


class ActionCall(Interface):
    """An action of another node that is asked for."""

    direction = "action call"

    @property
    def _services(self) -> dict[str, QoSProfile]:
        return {f"{kind}_service_qos_profile": self.qos for kind in ("goal", "result", "cancel")}

    def client(self, node: Node) -> ActionClient:
        """Create the action client."""
        return ActionClient(node, self.type, self.name, **self._services)


class Action(ActionCall):
    """An offered action."""

    direction = "action"

    def serve(
        self,
        node: Node,
        execute: Callable[[Any], Any],
        cancel: Callable[[Any], Any],
        **options: Any,
    ) -> ActionServer:
        """Create the action server; keep a reference to it."""
        return ActionServer(
            node,
            self.type,
            self.name,
            execute,
            cancel_callback=cancel,
            **self._services,
            **options,
        )


class Perception:
    """The node perception: images and words in, questions and groundings out."""

    IMAGE = Input("image", "sensor_msgs/msg/Image", SENSOR)
    COMPRESSED = Input("image/compressed", "sensor_msgs/msg/CompressedImage", SENSOR)
    DEPTH = Input("depth", "sensor_msgs/msg/Image", SENSOR)
    COMPRESSED_DEPTH = Input("depth/compressedDepth", "sensor_msgs/msg/CompressedImage", SENSOR)
    CAMERA_INFO = Input("camera_info", "sensor_msgs/msg/CameraInfo", SENSOR)
    TF = OptionalInput("/tf", "tf2_msgs/msg/TFMessage", MOVING)
    TF_STATIC = OptionalInput("/tf_static", "tf2_msgs/msg/TFMessage", FIXED)
    SPEECH = Input("speech", "std_msgs/msg/String")
    TRANSCRIPT = Input("transcript", "clue_msgs/msg/Transcript")
    QUESTION = ActiveOutput("question", "clue_msgs/msg/ClarificationQuestion")
    DIALOGUE_STATE = Output("dialogue_state", "clue_msgs/msg/DialogueState", LATEST)
    SAY = Output("say", "std_msgs/msg/String")
    # For whoever shows the dialogue: another subscription to `speech` would be matched first now
    # and then, and `ros2 topic pub --once speech` ends with the first match.
    HEARD = Output("~/heard", "std_msgs/msg/String")
    GROUNDING = ActiveOutput("grounding", "clue_msgs/msg/GroundingResult")
    TRACKED = ActiveOutput("tracked", "clue_msgs/msg/TrackedObject")
    ATTENTION_MAP = ActiveOutput("~/attention_map", "sensor_msgs/msg/Image", LATEST)
    DEBUG_IMAGE = ActiveOutput("~/debug_image", "sensor_msgs/msg/Image", LATEST)
    MARKERS = ActiveOutput("~/markers", "visualization_msgs/msg/MarkerArray", LATEST)
    GRASP_POSE = ActiveOutput("~/grasp_pose", "geometry_msgs/msg/PoseWithCovarianceStamped")
    OBJECT_CLOUD = ActiveOutput("~/object_cloud", "sensor_msgs/msg/PointCloud2", LATEST)
    COLLISION_OBJECT = OptionalOutput("~/collision_object", "moveit_msgs/msg/CollisionObject")
    DETECTIONS = OptionalOutput("~/detections", "vision_msgs/msg/Detection2DArray")
    DETECTIONS_3D = OptionalOutput("~/detections_3d", "vision_msgs/msg/Detection3DArray")
    ANNOTATIONS = OptionalOutput("~/annotations", "foxglove_msgs/msg/ImageAnnotations", LATEST)
    DIAGNOSTICS = Output("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray")
    GROUND = Service("ground", "clue_msgs/srv/Ground", REQUESTS)
    ANSWER = Service("answer", "clue_msgs/srv/AnswerClarification", REQUESTS)
    TRACK = Service("track", "clue_msgs/srv/Track", REQUESTS)
    TEACH = Service("teach", "clue_msgs/srv/TeachObject", REQUESTS)
    FORGET = Service("forget", "clue_msgs/srv/ForgetObject", REQUESTS)
    LIST_OBJECTS = Service("list_objects", "clue_msgs/srv/ListObjects", REQUESTS)
    GROUND_WITH_DIALOGUE = Action(
        "ground_with_dialogue", "clue_msgs/action/GroundWithDialogue", REQUESTS
    )


class Console:
    """The node console: the operator's page. It follows perception, and speaks for a person."""

    IMAGE = Perception.IMAGE
    COMPRESSED = Perception.COMPRESSED
    DIALOGUE_STATE = Input("dialogue_state", "clue_msgs/msg/DialogueState", LATEST)
    GROUNDING = Input("grounding", "clue_msgs/msg/GroundingResult")
    # Topics and services of the node that the parameter `perception` names.
    ATTENTION_MAP = Input("perception/attention_map", "sensor_msgs/msg/Image", LATEST)
    HEARD = Input("perception/heard", "std_msgs/msg/String")
    SAY = Input("say", "std_msgs/msg/String")
    TRANSCRIPT = Input("transcript", "clue_msgs/msg/Transcript")
    DIAGNOSTICS = Input("/diagnostics", "diagnostic_msgs/msg/DiagnosticArray")
    PARAMETER_EVENTS = Input("/parameter_events", "rcl_interfaces/msg/ParameterEvent")
    SPEECH = Output("speech", "std_msgs/msg/String")
    AUDIO = Output("audio", "clue_msgs/msg/AudioChunk", SOUND_OUT)
    GET_PARAMETERS = Call("perception/get_parameters", "rcl_interfaces/srv/GetParameters")
    SET_PARAMETERS = Call("perception/set_parameters", "rcl_interfaces/srv/SetParameters")
    GET_STATE = Call("perception/get_state", "lifecycle_msgs/srv/GetState")
    CHANGE_STATE = Call("perception/change_state", "lifecycle_msgs/srv/ChangeState")
    ANSWER = Call("answer", "clue_msgs/srv/AnswerClarification", REQUESTS)
    TEACH = Call("teach", "clue_msgs/srv/TeachObject", REQUESTS)
    FORGET = Call("forget", "clue_msgs/srv/ForgetObject", REQUESTS)
    LIST_OBJECTS = Call("list_objects", "clue_msgs/srv/ListObjects", REQUESTS)
    GROUND_WITH_DIALOGUE = ActionCall(
        "ground_with_dialogue", "clue_msgs/action/GroundWithDialogue", REQUESTS
    )


class ImageSource:
    """The node image_source: a camera made of files."""

    IMAGE = Output("image", "sensor_msgs/msg/Image", SENSOR)
    COMPRESSED = Output("image/compressed", "sensor_msgs/msg/CompressedImage", SENSOR)
    DEPTH = Output("depth", "sensor_msgs/msg/Image", SENSOR)
    CAMERA_INFO = Output("camera_info", "sensor_msgs/msg/CameraInfo", SENSOR)


class Speech:
    """The node speech: sound or typed lines in, text out."""

    AUDIO = Input("audio", "clue_msgs/msg/AudioChunk", SOUND_IN)
    QUESTION = Input("question", "clue_msgs/msg/ClarificationQuestion")
    GROUNDING = Input("grounding", "clue_msgs/msg/GroundingResult")
    SPEAKING = Input("speaking", "clue_msgs/msg/Speaking", LATEST)
    SPEECH = Output("speech", "std_msgs/msg/String")
    TRANSCRIPT = Output("transcript", "clue_msgs/msg/Transcript")
    HEARING = Output("hearing", "std_msgs/msg/Bool")
    SAY = Output("say", "std_msgs/msg/String")
    STOP_SPEAKING = Output("stop_speaking", "std_msgs/msg/Empty")
    LISTEN = Action("~/listen", "clue_msgs/action/Listen")


class Tts:
    """The node tts: text in, sound out."""

    SAY = Input("say", "std_msgs/msg/String")
    QUESTION = Input("question", "clue_msgs/msg/ClarificationQuestion")
    STOP_SPEAKING = Input("stop_speaking", "std_msgs/msg/Empty")
    SPEAKING = Output("speaking", "clue_msgs/msg/Speaking", LATEST)
    SPOKEN_AUDIO = Output("spoken_audio", "clue_msgs/msg/AudioChunk", SOUND_OUT)
    STOP = Service("~/stop", "std_srvs/srv/Trigger")
    SAY_ACTION = Action("~/say", "clue_msgs/action/Say")


class GraspExample:
    """The node grasp_example: an object's pose in, a gripper's pose out."""

    GROUNDING = Input("grounding", "clue_msgs/msg/GroundingResult")
    GRASP_POSE = Output("grasp_pose", "geometry_msgs/msg/PoseStamped")
    PREGRASP_POSE = Output("pregrasp_pose", "geometry_msgs/msg/PoseStamped")


NODES: dict[str, type] = {
    "perception": Perception,
    "console": Console,
    "image_source": ImageSource,
    "speech": Speech,
    "tts": Tts,
    "grasp_example": GraspExample,
}


def interfaces(node: str) -> tuple[Interface, ...]:
    """Return the table of the node `node`, in the order above."""
    return tuple(value for value in vars(NODES[node]).values() if isinstance(value, Interface))


def is_remapped(node: Node, name: str) -> bool:
    """Return whether a remapping rule of the node applies to the relative name `name`."""
    full = node.resolve_topic_name(name, only_expand=True)
    return bool(node.resolve_topic_name(name) != full)
