#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure whether the memory of perception stays flat, and whether every request is answered.

    scripts/run python benchmarks/soak.py [--dialogues 2000] [--cycles 100] [--fuzz 2000]
        [--rgbd SECONDS] [--model M] [--record FOLDER]

Perception runs in a process of its own and is talked to over DDS. `--dialogues`: each asks once, is
answered, and ends in a box; every tenth is canceled instead, every fiftieth times out. `--cycles`:
configure, activate, deactivate, cleanup, with a camera at 30 Hz. `--fuzz`: broken images and texts,
and a good request after each hundred. `--rgbd`: a camera with depth at 30 Hz (640x480, colour,
depth, calibration) and a /clock at 100 Hz, which perception follows (use_sim_time); for a third of
the time nobody asks, for a sixth a question is open, and then one-shot requests follow each other.
It prints the CPU time of perception's process in percent of one core, that of a request beyond it,
and the time of the requests in seconds. Memory is the resident set of the process; its growth is
that of the line through the second half of the samples, from end to end, in percent of their mean,
because the first half fills caches. Prints JSON; judges nothing.
"""

from __future__ import annotations

import array
import contextlib
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.common import (
    REQUEST,
    ModelOptions,
    busy,
    cpu_seconds,
    image_message,
    noise,
    parse,
    perception_process,
    result_of,
    send_goal,
)
from clue_ros.lab.options import at_least, option
from clue_ros.memory import resident

PATIENCE = 300.0  # seconds for any one answer


@dataclass(frozen=True, kw_only=True)
class SoakOptions(ModelOptions):
    """The options of this benchmark."""

    dialogues: int = option(2000, "number of dialogues", type=at_least(0))
    cycles: int = option(0, "number of lifecycle cycles", type=at_least(0))
    fuzz: int = option(0, "number of broken requests", type=at_least(0))
    rgbd: int = option(0, "seconds with an RGB-D camera at 30 Hz", type=at_least(0))
    record: str = option("", "folder to record the dialogues in, as episodes")
    report: int = option(100, "print the memory every so many dialogues; 0: never")


def growth(samples: list[int]) -> dict[str, float]:
    """Say how a series of bytes grew over its second half."""
    later = np.asarray(samples[len(samples) // 2 :], np.float64)
    slope = np.polyfit(np.arange(len(later)), later, 1)[0] if len(later) > 1 else 0.0
    return {
        "first_mb": round(samples[0] / 1e6, 1),
        "middle_mb": round(later[0] / 1e6, 1),
        "last_mb": round(later[-1] / 1e6, 1),
        "highest_mb": round(max(samples) / 1e6, 1),
        "growth_percent": round(100 * slope * (len(later) - 1) / later.mean(), 3),
    }


class Soak:
    """A client that works perception hard."""

    def __init__(self, watcher: Any, pid: int, report: int) -> None:
        from clue_msgs.action import GroundWithDialogue
        from clue_msgs.srv import AnswerClarification, Ground
        from rcl_interfaces.srv import SetParameters

        self._watcher, self._pid, self._report = watcher, pid, report
        node = watcher.node
        self._client = watcher.action_client(GroundWithDialogue, "ground_with_dialogue")
        self._answer = node.create_client(AnswerClarification, "answer")
        self._ground = node.create_client(Ground, "ground")
        self._set = node.create_client(SetParameters, "perception/set_parameters")
        self._asked = threading.Event()
        watcher.on_question = self._asked.set
        self._images = [image_message(image) for image in noise(4)]
        watcher.wait(self._client.server_is_ready, "the action server", 60.0)
        for client in (self._answer, self._ground, self._set):
            watcher.wait(client.service_is_ready, client.srv_name, 60.0)

    def sample(self, samples: list[int], number: int, what: str) -> None:
        """Note the memory, and say now and then how far it is."""
        samples.append(resident(self._pid))
        if self._report and number % self._report == 0:
            print(f"{what} {number}: {samples[-1] / 1e6:.1f} MB", file=sys.stderr, flush=True)

    def call(self, client: Any, request: Any) -> Any:
        """Call a service and return its response."""
        return self._done(client.call_async(request), f"the response of {client.srv_name}")

    def threshold(self, value: float) -> None:
        """Have perception ask whatever comes (0) or never (1)."""
        from rcl_interfaces.srv import SetParameters
        from rclpy.parameter import Parameter

        message = Parameter("threshold", value=value).to_parameter_msg()
        self.call(self._set, SetParameters.Request(parameters=[message]))

    def dialogues(self, count: int) -> dict[str, Any]:
        """Hold dialogues one after the other."""
        samples: list[int] = []
        ends: Counter[str] = Counter()
        begin = time.perf_counter()
        for number in range(1, count + 1):
            how = "timeout" if number % 50 == 0 else "cancel" if number % 10 == 0 else "answer"
            ends[f"{how}: {self._dialogue(number, how)}"] += 1
            self.sample(samples, number, "dialogue")
        seconds = time.perf_counter() - begin
        return {**growth(samples), "seconds": round(seconds), "ends": dict(ends)}

    def _dialogue(self, number: int, how: str) -> str:
        """Hold one dialogue and return how it ended."""
        from builtin_interfaces.msg import Duration
        from clue_msgs.action import GroundWithDialogue
        from clue_msgs.srv import AnswerClarification

        goal = GroundWithDialogue.Goal(
            expression=REQUEST, image=self._images[number % 4], max_turns=1
        )
        goal.answer_timeout = (
            Duration(nanosec=50_000_000) if how == "timeout" else Duration(sec=300)
        )
        self.threshold(0.0)
        self._asked.clear()
        sending = send_goal(self._watcher, self._client, goal)
        handle = self._done(self._done(sending, "the goal to be sent"), "the acceptance")
        if not self._asked.wait(PATIENCE):
            raise TimeoutError("no question came")
        if how == "answer":
            self.threshold(1.0)
            self.call(self._answer, AnswerClarification.Request(text="the left one"))
        elif how == "cancel":
            self._done(handle.cancel_goal_async(), "the cancellation")
        result = self._done(handle.get_result_async(), "the result").result
        return code_name(result)

    def _done(self, future: Any, what: str) -> Any:
        return result_of(self._watcher, future, what, PATIENCE)

    def cycles(self, count: int) -> dict[str, Any]:
        """Through all states, from and to unconfigured, with a camera that never stops."""
        samples: list[int] = []
        with self._camera():
            for number in range(1, count + 1):
                for name in ("configure", "activate", "deactivate", "cleanup"):
                    self._watcher.transition(name, PATIENCE)
                self.sample(samples, number, "cycle")
        return growth(samples)

    @contextlib.contextmanager
    def _camera(self) -> Iterator[None]:
        """Publish images 30 times a second."""
        from rclpy.qos import qos_profile_sensor_data
        from sensor_msgs.msg import Image

        publisher = self._watcher.node.create_publisher(Image, "image", qos_profile_sensor_data)
        stop = threading.Event()
        image = self._images[0]

        def run() -> None:
            while not stop.wait(1 / 30):
                publisher.publish(image)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def rgbd(self, seconds: float) -> dict[str, Any]:
        """Idle, with an open question, and at work, under an RGB-D camera and a fast clock."""
        from clue_msgs.action import GroundWithDialogue
        from clue_msgs.srv import Ground

        samples: list[int] = []
        took: list[float] = []
        failed: Counter[str] = Counter()
        request = Ground.Request(expression=REQUEST, force_grounding=True)
        with rgbd_camera(self._watcher.node, self._images[0]) as sent:
            self._watcher.wait(lambda: self._watcher.perception_sees > 30, "images", PATIENCE)
            self.call(self._ground, request)  # the first one warms up
            before, begin = self._watcher.perception_sees, sent.images
            idle = busy(self._pid, seconds / 3)
            taken = (self._watcher.perception_sees - before) / max(1, sent.images - begin)
            self.threshold(0.0)
            self._asked.clear()
            goal = GroundWithDialogue.Goal(expression=REQUEST)
            sending = send_goal(self._watcher, self._client, goal)
            handle = self._done(self._done(sending, "the goal to be sent"), "the acceptance")
            if not self._asked.wait(PATIENCE):
                raise TimeoutError("no question came")
            asked = busy(self._pid, seconds / 6)
            self._done(handle.cancel_goal_async(), "the cancellation")
            self._done(handle.get_result_async(), "the result")
            end = time.monotonic() + seconds / 2
            used, quiet = cpu_seconds(self._pid), time.monotonic()
            while time.monotonic() < end:
                begin_request = time.perf_counter()
                code = code_name(self.call(self._ground, request))
                took.append(time.perf_counter() - begin_request)
                failed.update([code] if code != "NONE" else [])
                self.sample(samples, len(took), "request")
                time.sleep(0.2)
            used = cpu_seconds(self._pid) - used - idle / 100 * (time.monotonic() - quiet)
        return {
            "cpu_idle_percent": idle,
            "cpu_question_open_percent": asked,
            "images_taken_percent": round(100 * taken),
            "requests": len(took),
            "failed": dict(failed),
            "cpu_s_per_request": round(used / len(took), 2),
            "median_s": round(float(np.median(took)), 3),
            "slowest_s": round(max(took), 3),
            **growth(samples),
        }

    def fuzz(self, count: int) -> dict[str, Any]:
        """Send nonsense, and something good after each hundred."""
        from clue_msgs.srv import Ground

        rng = np.random.default_rng(1)
        codes: Counter[str] = Counter()
        for number in range(1, count + 1):
            request = Ground.Request(expression=nonsense(rng), image=broken(rng))
            codes[code_name(self.call(self._ground, request))] += 1
            if number % 100 == 0:
                good = Ground.Request(
                    expression=REQUEST, image=self._images[number % 4], force_grounding=True
                )
                codes[f"good: {code_name(self.call(self._ground, good))}"] += 1
        return {"answers": dict(codes)}


@dataclass
class Sent:
    """Number of images that a camera has sent."""

    images: int = 0


@contextlib.contextmanager
def rgbd_camera(node: Any, colour: Any) -> Iterator[Sent]:
    """Publish colour, depth and calibration 30 times a second, and /clock 100 times."""
    from rclpy.qos import qos_profile_sensor_data
    from rosgraph_msgs.msg import Clock
    from sensor_msgs.msg import CameraInfo, Image

    from clue_ros.nodes.image_source_node import from_fov

    create, sensor = node.create_publisher, qos_profile_sensor_data
    colours, depths = create(Image, "image", sensor), create(Image, "depth", sensor)
    infos, clocks = create(CameraInfo, "camera_info", sensor), create(Clock, "/clock", 10)
    info = from_fov(colour.width, colour.height, 60.0)
    depth = Image(height=colour.height, width=colour.width, step=2 * colour.width)
    depth.encoding, depth.data = "16UC1", array.array("B", bytes(depth.step * depth.height))
    stop, sent = threading.Event(), Sent()

    def run_clock() -> None:
        while not stop.wait(0.01):
            now = time.time_ns()
            message = Clock()
            message.clock.sec, message.clock.nanosec = divmod(now, 1_000_000_000)
            clocks.publish(message)

    def run_camera() -> None:
        while not stop.wait(1 / 30):
            now = time.time_ns()
            for message, publisher in ((depth, depths), (info, infos), (colour, colours)):
                message.header.stamp.sec, message.header.stamp.nanosec = divmod(now, 1_000_000_000)
                publisher.publish(message)
            sent.images += 1

    threads = [threading.Thread(target=run, daemon=True) for run in (run_clock, run_camera)]
    for thread in threads:
        thread.start()
    try:
        yield sent
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def nonsense(rng: np.random.Generator) -> str:
    """Return a text of any characters that a ROS string can carry."""
    length = int(rng.choice([0, 1, 3, 20, 300, 3000]))
    points = rng.integers(1, 0x11000, length)
    return "".join(chr(p) for p in points if not 0xD800 <= p < 0xE000)


def broken(rng: np.random.Generator) -> Any:
    """Return an image message whose parts need not fit together."""
    from sensor_msgs.msg import Image

    encodings = ["rgb8", "bgr8", "mono8", "mono16", "bayer_rggb8", "yuv422", "nv12", "16UC1"]
    side = [0, 1, 2, 7, 64, 2**16, 2**32 - 1]
    message = Image(
        width=int(rng.choice(side)),
        height=int(rng.choice(side)),
        step=int(rng.choice([0, 1, 21, 192, 2**32 - 1])),
        encoding=str(rng.choice([*encodings, "", "x"])),
        is_bigendian=int(rng.choice([0, 1, 255])),
    )
    message.data = array.array("B", rng.bytes(int(rng.choice([0, 1, 100, 12_288]))))
    return message


def code_name(response: Any) -> str:
    """Return the name of a response's error code."""
    from clue_msgs.srv import AnswerClarification

    kinds = AnswerClarification.Response
    names = [n for n in dir(kinds) if n.isupper() and getattr(kinds, n) == response.error_code]
    return names[0] if names else str(response.error_code)


def main() -> None:
    """Soak and print."""
    options = parse(SoakOptions, __doc__)
    result: dict[str, Any] = {"model": options.model}
    extra: dict[str, Any] = {"record": options.record} if options.record else {}
    if options.rgbd:
        extra.update(use_sim_time=True, threshold=1.0)
    with perception_process(options, **extra) as (processes, watcher):
        soak = Soak(watcher, processes.pid("perception"), options.report)
        if options.cycles:
            result["cycles"] = {"n": options.cycles, **soak.cycles(options.cycles)}
        watcher.transition("configure", PATIENCE)
        watcher.transition("activate")
        if options.rgbd:
            result["rgbd"] = {"seconds": options.rgbd, **soak.rgbd(options.rgbd)}
        if options.fuzz:
            result["fuzz"] = {"n": options.fuzz, **soak.fuzz(options.fuzz)}
        if options.dialogues:
            result["dialogues"] = {"n": options.dialogues, **soak.dialogues(options.dialogues)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
