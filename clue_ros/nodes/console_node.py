# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The node console: it serves the operator's page, and is the robot that the page talks to.

A thread serves the page. The executor hands messages of the graph to `LivePage`, whose methods
never block. The page's requests (`Robot`) run and wait in the server's threads. Topics and
parameters: topics.Console, parameter_tables.CONSOLE, docs/console.md.
"""

from __future__ import annotations

import array
import math
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from clue_msgs.action import GroundWithDialogue
from clue_msgs.msg import AudioChunk, DialogueState, GroundedObject, GroundingResult, Transcript
from clue_msgs.srv import ForgetObject, ListObjects, TeachObject
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.client import Client
from rclpy.clock import Clock, ClockType
from rclpy.executors import Executor
from rclpy.node import Node
from rclpy.task import Future
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import String

from clue_ros.console.access import token_for
from clue_ros.console.choosing import ShownQuestion
from clue_ros.console.live import LivePage
from clue_ros.console.pair_routes import pair_router
from clue_ros.console.review import review_router
from clue_ros.console.robot import Diagnostics, ShownObject, State, Status, TaughtThing
from clue_ros.console.server import create_app, serve
from clue_ros.console.shown_dialogue import ShownDialogue
from clue_ros.dialogue.types import Box
from clue_ros.errors import BadImageError, ClueError, EmptyExpressionError
from clue_ros.nodes.camera import FOLLOW, image_topic
from clue_ros.nodes.camera_subscription import CameraSubscription
from clue_ros.nodes.client import (
    Caller,
    GroundingError,
    GroundingTask,
    answer_request,
    error_name,
)
from clue_ros.nodes.diagnostics import latency
from clue_ros.nodes.image_conversion import compressed_to_rgb, fill_image, jpeg_size, to_rgb
from clue_ros.nodes.messages import box_msg, box_of, seconds
from clue_ros.nodes.parameter_tables import CONSOLE
from clue_ros.nodes.parameters import declare, guard
from clue_ros.nodes.perception_settings import PerceptionSettings
from clue_ros.nodes.topics import Console
from clue_ros.voice.audio import RATE, StreamResampler, mono

STATES: dict[int, State] = {
    DialogueState.STATE_INACTIVE: "inactive",
    DialogueState.STATE_IDLE: "idle",
    DialogueState.STATE_LOOKING: "looking",
    DialogueState.STATE_THINKING: "thinking",
    DialogueState.STATE_WAITING_FOR_ANSWER: "waiting",
    DialogueState.STATE_ENDED: "ended",
}
LEVELS = {
    DiagnosticStatus.OK: "ok",
    DiagnosticStatus.WARN: "warn",
    DiagnosticStatus.ERROR: "error",
    DiagnosticStatus.STALE: "stale",
}
LOOK = 0.5  # seconds between looks at whether perception is there
SILENCE = 4.0  # least seconds without a message of perception after which it is lost
PERIODS = 3.0  # the same in periods of /diagnostics; the longer counts
TEACH = 60.0  # seconds for the model to learn an object
AGAIN = 2.0  # seconds until the list of taught objects is asked for again: DDS may lose a request
READY = 5.0  # seconds for a listener, or the action's server, to be found
MATCHED = 1.0  # seconds to find the listeners that the graph has
STOP = "stop"  # a stop in every language
GONE = Diagnostics("stale", "perception sends nothing")


class ConsoleNode(Node):
    """The node; see the module's first lines. `page` shows what it tells.

    Raises (on construction): BadParameterError, ClueError: the page's address cannot be used.
    """

    def __init__(self, executor: Executor, page: LivePage | None = None, **kwargs: Any) -> None:
        super().__init__("console", **kwargs)
        declare(self, CONSOLE)
        guard(self, CONSOLE)
        self.page = page or LivePage()
        self._caller = Caller(self, executor)
        self._dialogue = ShownDialogue(self.page)
        self._diagnostics = GONE
        self._heard_at = float("-inf")  # the last message of perception, on the monotonic clock
        self._photograph: npt.NDArray[np.uint8] | None = None
        self._task: GroundingTask | None = None  # the last dialogue about the photograph
        self._resampler = StreamResampler(RATE)
        self._microphone = threading.Lock()  # of the resampler: pages have threads of their own
        perception = self._value("perception")
        self._perception = self.resolve_service_name(perception)
        self._settings = PerceptionSettings(
            self,
            self._caller,
            perception,
            changed=self.page.show_options,
            notice=self._notice,
            trouble=lambda: self._diagnostics.message if self._diagnostics.level == "error" else "",
        )
        self._action = Console.GROUND_WITH_DIALOGUE.client(self)
        self._answer = Console.ANSWER.client(self)
        self._teach = Console.TEACH.client(self)
        self._forget = Console.FORGET.client(self)
        self._list = Console.LIST_OBJECTS.client(self)
        self._list_again = 0.0  # when to ask what was taught, on the monotonic clock
        self._speech = Console.SPEECH.publisher(self)
        self._audio = Console.AUDIO.publisher(self)
        # In this order: where words and the state that they led to wait, the words come first.
        for topic, callback, name in (
            (Console.HEARD, self._on_heard, f"{perception}/heard"),
            (Console.SAY, lambda message: self._dialogue.show_turn("robot", message.data), ""),
            (Console.TRANSCRIPT, self._on_transcript, ""),
            (Console.ATTENTION_MAP, self._on_attention, f"{perception}/attention_map"),
            (Console.GROUNDING, self._on_grounding, ""),
            (Console.DIALOGUE_STATE, self._on_state, ""),
            (Console.DIAGNOSTICS, self._on_diagnostics, ""),
        ):
            topic.subscribe(self, self._surviving(callback), name=name)
        transport = self._value("image_transport")
        self._camera = CameraSubscription(
            self,
            Console.COMPRESSED if transport == "compressed" else Console.IMAGE,
            self._surviving(self._on_image),
            name=image_topic(self, transport),
            reliability=self._value("image_reliability"),
        )
        # Real time even under use_sim_time, which may stand still.
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self.create_timer(FOLLOW, self._camera.follow, clock=steady)
        self.create_timer(LOOK, self._look, clock=steady)
        self.page.show_camera_name(self._camera.topic_name)
        self.page.show_diagnostics(GONE)
        self._server = self._serve()

    def _value(self, name: str) -> Any:
        return self.get_parameter(name).value

    def _serve(self) -> Any:
        host, files = self._value("host"), (self._value("certificate"), self._value("key"))
        certificate, key = (Path(name).expanduser() if name else None for name in files)
        token = token_for(host, self._value("token") or None)
        app = create_app(self.page, self, token=token, routers=self._routers())
        server = serve(app, host, self._value("port"), certificate=certificate, key=key)
        self.get_logger().info(f"the operator's page: {server.url}")
        return server

    def _routers(self) -> list[Any]:
        """Return the further pages that the parameters ask for. Raises ClueError."""
        routers = []
        recordings, pairs, images = (
            Path(folder).expanduser() if folder else None
            for folder in map(self._value, ("recordings", "pairs", "pair_images"))
        )
        if (pairs is None) != (images is None):
            raise ClueError("the page for two people needs both parameters, pairs and pair_images")
        if recordings is not None:
            make_folder(recordings)  # perception, which fills it, may start later
            routers.append(review_router(recordings))
        if pairs is not None and images is not None:
            routers.append(pair_router(images, pairs))
        return routers

    @property
    def url(self) -> str:
        """The page's address, with the token if there is one."""
        return str(self._server.url)

    def close(self) -> None:
        """Close the page before the process ends."""
        self._server.stop()

    # Messages of the graph, in the executor's thread.

    def _surviving(self, callback: Callable[[Any], object]) -> Callable[[Any], None]:
        """Return the callback that logs its errors: anyone may publish, and rclpy would end."""

        def call(message: Any) -> None:
            try:
                callback(message)
            except Exception as error:  # noqa: BLE001 - of a message that is nonsense
                kind = type(message).__name__
                self.get_logger().warning(
                    f"a {kind} is not shown: {type(error).__name__}: {error}",
                    throttle_duration_sec=10.0,
                )

        return call

    def _on_image(self, message: Image | CompressedImage) -> None:
        """Hand the frame on if a page is ready for it. Otherwise it is dropped, unconverted."""
        if self._photograph is not None or not self.page.wants_frame():
            return
        try:
            if isinstance(message, Image):
                self.page.show_frame(to_rgb(message))
                return
            size = jpeg_size(message.data, message.format)
            if size is None:
                self.page.show_frame(compressed_to_rgb(message.data, message.format))
            else:
                self.page.show_frame(bytes(message.data), size)
        except BadImageError as error:
            self.get_logger().warning(f"no picture: {error}", throttle_duration_sec=10.0)

    def _on_heard(self, message: String) -> None:
        self._dialogue.show_turn("user", message.data)

    def _on_transcript(self, message: Transcript) -> None:
        if message.is_final and message.status == Transcript.NOT_UNDERSTOOD:
            self._notice("Something was said, and not understood.")

    def _on_attention(self, message: Image) -> None:
        if message.encoding != "32FC1" or len(message.data) != 4 * message.width * message.height:
            return
        order = ">f4" if message.is_bigendian else "<f4"
        values = np.frombuffer(message.data, order).astype(np.float32)
        grid = values.reshape(message.height, message.width)
        self._dialogue.show_attention(np.clip(np.nan_to_num(grid), 0.0, 1.0))

    def _on_grounding(self, message: GroundingResult) -> None:
        self._dialogue.show_grounding(message.dialogue_id, _shown(message.target))

    def _on_state(self, message: DialogueState) -> None:
        """Show what perception does, and the open question."""
        state = STATES.get(message.state, "inactive")
        self._is_there()
        left = None
        if state == "waiting":
            question = message.question
            timeout, begin = seconds(question.answer_timeout), seconds(message.header.stamp)
            now = self.get_clock().now().nanoseconds * 1e-9
            left = min(timeout, max(0.0, begin + timeout - now))
        error = error_name(message.error_code) if message.error_code else ""
        if state in ("inactive", "idle"):  # not in a dialogue: the process may be another one
            self._settings.forget()
        status = Status(state, message.dialogue_id, error, message.error_msg, left)
        self._dialogue.show_status(status, message.expression)
        if state == "waiting":
            self.page.show_question(
                ShownQuestion(
                    question.text,
                    tuple(_shown(found) for found in question.candidates),
                    tuple(question.suggested_answers),
                    tuple(tuple(meant.indices) for meant in question.suggested_candidates),
                    question.confirm,
                )
            )

    def _on_diagnostics(self, message: DiagnosticArray) -> None:
        for status in message.status:
            if status.name == f"{self._perception}: clue":
                self._is_there()
                self._diagnostics = Diagnostics(
                    LEVELS.get(status.level, "stale"),
                    status.message,
                    tuple((value.key, value.value) for value in status.values),
                    tuple(latency(status.values).items()),
                )
                self.page.show_diagnostics(self._diagnostics)

    def _is_there(self) -> None:
        """Note a message of perception."""
        self._heard_at = time.monotonic()
        if self._dialogue.is_lost:
            self._dialogue.find()
            self.get_logger().info(f"{self._perception} is there")

    def _look(self) -> None:
        """Notice that perception is gone; ask for its parameters when it is there.

        Its silence tells: DDS keeps a killed process in the graph for some 20 s.
        """
        if self._dialogue.is_lost:
            return
        silent = time.monotonic() - self._heard_at
        if silent <= max(SILENCE, PERIODS * self._settings.period):
            self._settings.read()
            self._read_taught()
            return
        self.get_logger().warning(f"{self._perception} has sent nothing for {silent:.0f} s")
        self._settings.forget()
        self._diagnostics = GONE
        self._dialogue.lose()
        self._list_again = 0.0
        self.page.show_taught(None)
        self.page.show_diagnostics(GONE)

    def _read_taught(self) -> None:
        """Ask for the list of taught objects until an answer has come."""
        if time.monotonic() < self._list_again or not self._list.service_is_ready():
            return
        self._list_again = time.monotonic() + AGAIN
        self._list.call_async(ListObjects.Request()).add_done_callback(self._on_taught)

    def _on_taught(self, future: Future) -> None:
        response = future.result()
        if response is None or response.error_code == response.INACTIVE:
            return
        self._list_again = math.inf
        things = [
            TaughtThing(
                (found.name, *found.other_names), found.num_examples, bytes(found.thumbnail.data)
            )
            for found in response.objects
        ]
        self.page.show_taught(things if response.error_code == response.NONE else None)

    def _notice(self, text: str) -> None:
        self.get_logger().info(text)
        self.page.show_notice(text)

    # Requests of the page (Robot), in threads of the server.

    def say(self, text: str) -> None:
        """Publish a person's words, or begin the dialogue about the photograph."""
        if not text.strip():
            raise EmptyExpressionError("say what the robot should do")
        self._need_perception()
        photograph = self._photograph
        if photograph is None or self._dialogue.is_open or self._holds_dialogue():
            self._publish_speech(text)
            return
        try:
            name = Console.GROUND_WITH_DIALOGUE.name
            self._caller.wait_for(self._action.server_is_ready, READY, name)
        except GroundingError as error:
            raise ClueError(error.message) from error
        goal = GroundWithDialogue.Goal(expression=text)
        fill_image(goal.image, photograph, "rgb8")
        goal.image.header.stamp = self.get_clock().now().to_msg()
        goal.image.header.frame_id = "photograph"
        self._dialogue.show_turn("user", text)  # it is not on `speech`
        task = GroundingTask(self._caller, self._action, lambda _text, _id: False, goal)
        self._task = task
        threading.Thread(target=self._follow, args=(task,), daemon=True).start()

    def choose(self, candidate: int) -> None:
        """Choose a candidate of the open question, by perception's service `answer`."""
        self._need_perception()
        request = answer_request(candidate, self._dialogue.status.dialogue_id)
        response = self._call(self._answer, request, READY)
        if response.error_code == response.UNKNOWN_DIALOGUE:
            raise ClueError("this question is no longer open")
        if response.error_code != response.NONE:
            raise ClueError(response.error_msg)

    def _call(self, client: Client, request: Any, seconds: float) -> Any:
        """Call a service of perception. Raises ClueError where no response comes."""
        try:
            return self._caller.call(client, request, seconds)
        except GroundingError as error:
            raise ClueError(error.message) from error

    def teach(self, image: npt.NDArray[np.uint8], box: Box, name: str) -> None:
        """Teach perception by its service `teach`, with the picture that the page showed."""
        self._need_perception()
        request = TeachObject.Request(name=name, box=box_msg(box))
        fill_image(request.image, image, "rgb8")
        request.image.header.stamp = self.get_clock().now().to_msg()
        self._taught_anew(self._call(self._teach, request, TEACH))
        self._notice(f"The robot knows “{name}” now.")

    def forget(self, name: str) -> None:
        """Have perception forget an object, by its service `forget`."""
        self._need_perception()
        self._taught_anew(self._call(self._forget, ForgetObject.Request(name=name), TEACH))
        self._notice(f"The robot has forgotten “{name}”.")

    def _taught_anew(self, response: Any) -> None:
        if response.error_code != response.NONE:
            raise ClueError(response.error_msg)
        self.list_taught()

    def list_taught(self) -> None:
        """Ask perception for the list of taught objects."""
        self._list_again = 0.0
        self._caller.soon(self._read_taught)

    def _follow(self, task: GroundingTask) -> None:
        """Wait for the dialogue's end: no other message tells of a refused one."""
        try:
            task.result()
        except GroundingError as error:
            if error.code not in ("CANCELED", "SHUTDOWN"):
                self._notice(str(error))

    def _holds_dialogue(self) -> bool:
        return self._task is not None and not self._task.done()

    def stop(self) -> None:
        """Cancel the dialogue about the photograph, or say "stop" to any other."""
        self._need_perception()
        if self._task is not None and not self._task.done():
            self._task.cancel()
        else:
            self._publish_speech(STOP)

    def use_photograph(self, image: npt.NDArray[np.uint8] | None, name: str = "") -> None:
        """Show this picture, and hold the next dialogues about it; None: about the camera's."""
        if self._dialogue.is_open:
            raise ClueError("a dialogue is open: end it before another picture is looked at")
        self._photograph = image
        self.page.show_grounding(None)
        self.page.show_attention(None)
        if image is not None:
            self.page.show_frame(image)

    def set_option(self, name: str, value: str) -> None:
        """Set a parameter of perception; a notice tells when a new model is ready."""
        self._need_perception()
        self._settings.change(name, value)

    def hear(self, samples: npt.NDArray[np.int16], sample_rate: int) -> None:
        """Publish the sound at 16 kHz for the node speech."""
        if not self._audio.get_subscription_count():
            raise ClueError(
                f"nobody listens to {self._audio.topic_name}: start the launch file with "
                "voice:=true speech_source:=topic"
            )
        sound = mono(samples, sample_rate, 1)
        with self._microphone:
            if self._resampler.source != sound.rate:
                self._resampler = StreamResampler(sound.rate)
            heard = self._resampler.feed(sound.samples)
            message = AudioChunk(sample_rate=RATE, channels=1)
            message.header.stamp = self.get_clock().now().to_msg()
            message.header.frame_id = "console"
            message.data = array.array("h", heard.tobytes())
            self._audio.publish(message)

    def _need_perception(self) -> None:
        if self._dialogue.is_lost:
            raise ClueError(f"{self._perception} sends nothing: is it running?")

    def _publish_speech(self, text: str) -> None:
        begin, topic = time.monotonic(), self._speech.topic_name
        # Another listener may be matched before perception: wait a moment for all in the graph.
        while (heard := self._speech.get_subscription_count()) < max(
            1, self.count_subscribers(topic)
        ):
            waited = time.monotonic() - begin
            if heard and waited > MATCHED:
                break
            if waited > READY:
                raise ClueError(f"nobody listens to {topic}")
            time.sleep(0.05)
        self._speech.publish(String(data=text))


def make_folder(folder: Path) -> None:
    """Make the folder, for its owner alone, if it is missing. Raises ClueError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ClueError(f"{folder} cannot be made: {error.strerror or error}") from error


def _shown(found: GroundedObject) -> ShownObject:
    """Return an object of a message as the page shows it."""
    at = found.pose.pose.position
    return ShownObject(
        box_of(found.box),
        found.label,
        float(found.score),
        (at.x, at.y, at.z) if found.has_pose else None,
        found.pose.header.frame_id,
        found.no_pose_reason,
    )
