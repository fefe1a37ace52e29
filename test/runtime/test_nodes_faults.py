"""What goes wrong on a robot that runs all day, with real processes: the next request works."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ros_helpers

ros_helpers.need_ros()

from action_msgs.msg import GoalStatus  # noqa: E402
from builtin_interfaces.msg import Duration, Time  # noqa: E402
from clue_msgs.action import GroundWithDialogue  # noqa: E402
from robot import Robot, ask, recovered  # noqa: E402
from ros_fixtures import LONG, REQUEST, asking_goal  # noqa: E402
from ros_helpers import Client, action_client, ros_client, wait_until, within  # noqa: E402
from rosgraph_msgs.msg import Clock  # noqa: E402
from security_policy import must_hold  # noqa: E402
from std_msgs.msg import String  # noqa: E402

from clue_ros.memory import resident  # noqa: E402

ACTION = "ground_with_dialogue"
Result, State = GroundWithDialogue.Result, GroundWithDialogue.Feedback
STATES = {"looking": State.LOOKING, "thinking": State.THINKING, "waiting": State.WAITING_FOR_ANSWER}
OTHERS = ("image_source", "speech", "tts")


@pytest.fixture(scope="module")
def robot(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[Robot]:
    limits = {"answer_timeout": LONG, "image_timeout": 0.5, "max_image_age": 5.0}
    robot = Robot(tmp_path_factory.mktemp("robot"), model, threshold=0.0, **limits)
    yield robot
    statuses = robot.stop()
    assert statuses == dict.fromkeys(statuses, 0), robot.text("perception")


@pytest.fixture(scope="module")
def shared() -> Iterator[Client]:
    with ros_client("fault_tester") as client:
        yield client


@pytest.fixture
def client(robot: Robot, shared: Client) -> Client:
    """Give the client once the robot works; it asks whatever it is asked."""
    recovered(shared)
    shared.clear()
    return shared


def large_image(client: Client) -> Any:
    """Return an image that takes a while to look at."""
    from clue_ros.nodes.image_conversion import fill_image

    return fill_image(client.image(), np.full((3888, 5184), 90, np.uint8), "mono8")


def begin(client: Client, state: str) -> Any:
    """Send a goal and return its handle as soon as it is known to have come to `state`."""
    image = large_image(client) if state == "looking" else client.image()
    handle = client.goal(REQUEST, image=image)
    wait_until(lambda: any(f.state == STATES[state] for f in client.feedback), f"it is {state}")
    return handle


# kill -9


@pytest.mark.parametrize("state", STATES)
def test_perception_killed_in_a_dialogue_is_started_again_and_the_others_go_on(
    client: Client, robot: Robot, state: str
) -> None:
    begin(client, state)
    others = {name: robot.pid(name) for name in OTHERS}
    killed = robot.kill("perception")
    speaks(client, robot, f"still here, {state}")
    recovered(client)
    assert robot.pid("perception") != killed
    assert {name: robot.pid(name) for name in OTHERS} == others


def test_a_supervisor_that_is_killed_takes_its_node_along_and_both_are_started_again(
    client: Client, robot: Robot
) -> None:
    begin(client, "waiting")
    node = robot.kill("perception", supervisor=True)
    wait_until(lambda: not Path(f"/proc/{node}").exists(), "the end of the node")
    recovered(client)
    assert robot.pid("perception") != node


def speaks(client: Client, robot: Robot, words: str) -> None:
    """Wait until tts says something; a voice that has just started hears nothing for a moment.

    A publisher that met a dying voice may not find the next one: a new one asks every 15 s.
    """

    def said() -> bool:
        publisher = client.node.create_publisher(String, "say", 10)

        def heard() -> bool:
            publisher.publish(String(data=words))
            time.sleep(0.5)  # no more than it can say: what it hears is queued
            return words in robot.text("tts")

        try:
            return bool(within(15.0, heard))
        finally:
            client.node.destroy_publisher(publisher)

    wait_until(said, words)


@pytest.mark.parametrize("state", STATES)
def test_the_others_killed_in_a_dialogue_do_not_end_it_and_come_back(
    client: Client, robot: Robot, state: str
) -> None:
    perception = robot.pid("perception")
    handle = begin(client, state)
    killed = {name: robot.kill(name) for name in OTHERS}
    client.next("question")
    assert client.answer("the left one").accepted
    client.next("question", 2)
    client.cancel(handle)
    assert client.result(handle).status == GoalStatus.STATUS_CANCELED
    wait_until(lambda: all(robot.pid(n) != pid for n, pid in killed.items()), "their return")
    # Every one of them does its work again: tts speaks, and what is typed is asked about what the
    # camera sees.
    speaks(client, robot, f"back again, {state}")
    client.clear()
    requests = "take the other block"
    wait_until(lambda: typed_and_asked(client, robot, requests), "the answer to a typed request")
    robot.type_line("stop")
    wait_until(lambda: client.answer("?").error_code == Result.UNKNOWN_DIALOGUE, "the end")
    assert robot.pid("perception") == perception


def typed_and_asked(client: Client, robot: Robot, text: str) -> bool:
    """Type it, unless it has been asked about already; DDS may need some time to know the node."""
    if not client.heard["question"]:
        robot.type_line(text)
        time.sleep(0.5)
    return bool(client.heard["question"])


# The camera.


def test_a_camera_unplugged_is_told_and_works_again_when_it_is_back(
    client: Client, robot: Robot
) -> None:
    assert client.set(max_image_age=0.5) == ""
    robot.kill("image_source", for_good=True)
    stale = wait_until(
        lambda: (r := client.ground(REQUEST)).error_code == Result.STALE_IMAGE and r, "staleness"
    )
    assert "/image" in stale.error_msg
    statuses = client.heard["/diagnostics"]
    words = "active, but the last image came"
    wait_until(
        lambda: statuses and statuses[-1].status[0].message.startswith(words), "it in /diagnostics"
    )
    warning = "no image on /image for"
    wait_until(lambda: warning in robot.text("perception"), "a warning that names the topic")
    given = client.ground(REQUEST, image=client.image(), force=True)
    assert given.error_code == Result.NONE, "an image in the request still works"
    robot.start("image_source")
    recovered(client)
    wait_until(
        lambda: statuses and statuses[-1].status[0].message == "active", "health in /diagnostics"
    )
    assert client.set(max_image_age=5.0) == ""


def test_a_dialogue_goes_on_when_the_camera_goes(client: Client, robot: Robot) -> None:
    handle, _ = asking_goal(client)
    robot.kill("image_source", for_good=True)
    assert client.set(threshold=1.0) == ""
    assert client.answer("the left one").accepted
    assert client.result(handle).result.error_code == Result.NONE
    robot.start("image_source")
    client.set(threshold=0.0)


# The lifecycle.


def test_deactivation_while_the_model_works_ends_the_dialogue(client: Client) -> None:
    handle = begin(client, "looking")
    assert client.transition("deactivate")
    end = client.result(handle)
    assert (end.status, end.result.error_code) == (GoalStatus.STATUS_ABORTED, Result.INACTIVE)
    assert client.transition("activate")


def test_configuring_again_and_again_takes_no_more_memory(client: Client, robot: Robot) -> None:
    """The short form of `benchmarks/soak.py --cycles 100`."""
    own = [client.transition("deactivate"), client.transition("cleanup")]
    assert own == [True, True]
    folder = model_parameter(client)
    assert client.set(model="household") == ""
    after = []
    for _ in range(5):
        assert client.transition("configure")
        assert client.transition("cleanup")
        after.append(resident(robot.pid("perception")))
    # The first two fill allocators and caches. A model that is not freed is more each time.
    assert after[-1] - after[1] < 26e6, after
    assert client.set(model=folder) == ""
    assert client.transition("configure")
    assert client.transition("activate")


def model_parameter(client: Client) -> str:
    from rcl_interfaces.srv import GetParameters

    service = client.node.create_client(GetParameters, "perception/get_parameters")
    value = client.call(service, GetParameters.Request(names=["model"])).values[0].string_value
    client.node.destroy_client(service)
    return str(value)


# Fifty at once.

FIFTY = 50


def test_of_fifty_goals_at_once_one_runs_and_the_others_are_told_busy(client: Client) -> None:
    goals = Fifty(client)
    wait_until(lambda: len(goals.results) == FIFTY - 1, "all but one result")
    codes = [end.result.error_code for end in goals.results]
    assert codes == [Result.BUSY] * (FIFTY - 1)
    assert {end.status for end in goals.results} == {GoalStatus.STATUS_ABORTED}
    question = client.next("question")
    assert all(question.dialogue_id in end.result.error_msg for end in goals.results)
    assert client.set(threshold=1.0) == ""
    assert client.answer("the left one", question.dialogue_id).accepted
    wait_until(lambda: len(goals.results) == FIFTY, "the one that ran")
    assert goals.results[-1].result.error_code == Result.NONE
    assert len(client.heard["question"]) == 1
    client.set(threshold=0.0)


class Fifty:
    """Goals sent one after the other without waiting, from a client that keeps 10 replies.

    `results` fills as they end.
    """

    def __init__(self, client: Client) -> None:
        self.results: list[Any] = []
        image = client.image()
        self._client = action_client(client.node, GroundWithDialogue, ACTION)
        assert self._client.wait_for_server(ros_helpers.TIMEOUT)
        for _ in range(FIFTY):
            goal = GroundWithDialogue.Goal(expression=REQUEST, image=image)
            client.node.executor.create_task(self._send, goal)

    def _send(self, goal: Any) -> None:
        self._client.send_goal_async(goal).add_done_callback(self._accepted)

    def _accepted(self, future: Any) -> None:
        future.result().get_result_async().add_done_callback(
            lambda ended: self.results.append(ended.result())
        )


def test_of_fifty_calls_at_once_none_is_lost(client: Client) -> None:
    from clue_msgs.srv import Ground

    request = Ground.Request(expression=REQUEST, image=client.image(), force_grounding=True)
    service = client.node.create_client(Ground, "ground")  # it keeps 10 responses
    assert service.wait_for_service(ros_helpers.TIMEOUT)
    futures: list[Any] = []
    for _ in range(FIFTY):
        client.node.executor.create_task(lambda: futures.append(service.call_async(request)))
    wait_until(
        lambda: len(futures) == FIFTY and all(future.done() for future in futures), "every response"
    )
    codes = [future.result().error_code for future in futures]
    assert set(codes) <= {Result.NONE, Result.BUSY}
    assert Result.NONE in codes
    client.node.destroy_client(service)


# Nonsense. test_fuzz sends thousands to the functions, benchmarks/soak.py --fuzz to a node.


def test_nonsense_on_the_topics_does_no_harm(client: Client, robot: Robot) -> None:
    perception = robot.pid("perception")
    rng = np.random.default_rng(0)
    image = client.image()
    for _ in range(100):
        image.width, image.height, image.step = (int(n) for n in rng.integers(0, 2**32, 3))
        image.encoding = str(rng.choice(["rgb8", "bayer_rggb8", "nv12", "", "\x07"]))
        client.images.publish(image)
        points = rng.integers(1, 0x10FFFF, int(rng.integers(0, 2000)))
        client.speak("".join(chr(p) for p in points if not 0xD800 <= p < 0xE000))
    client.speak("stop")
    recovered(client)
    assert robot.pid("perception") == perception


# Clocks.


class Sim:
    """A simulation's clock: published ten times a second, standing still until it is set."""

    def __init__(self, client: Client) -> None:
        self.now = 1000.0
        self._publisher = client.node.create_publisher(Clock, "/clock", 10)
        self._stop = threading.Event()
        self.rate = 0.0  # simulated seconds a second
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            self.now += 0.1 * self.rate
            seconds = int(self.now)
            stamp = Time(sec=seconds, nanosec=int((self.now - seconds) * 1e9))
            self._publisher.publish(Clock(clock=stamp))

    def stop(self) -> None:
        """Publish no more."""
        self._stop.set()
        self._thread.join()


@pytest.fixture
def sim(client: Client) -> Iterator[Sim]:
    """Give a simulated clock that perception follows for the test."""
    sim = Sim(client)
    assert client.set(use_sim_time=True) == ""
    yield sim
    sim.stop()
    assert client.set(use_sim_time=False) == ""


def at(client: Client, wanted: Callable[[int], bool]) -> None:
    """Wait until perception's own clock, as its diagnostics have it, is as wanted."""
    statuses = client.heard["/diagnostics"]
    statuses.clear()
    wait_until(lambda: statuses and wanted(statuses[-1].header.stamp.sec), "the clock's jump")


def test_jumps_of_the_simulated_clock_end_no_dialogue(client: Client, sim: Sim) -> None:
    at(client, lambda now: now == 1000)
    handle, _ = asking_goal(client)
    sim.now = 4600.0
    at(client, lambda now: now == 4600)
    assert client.answer("the left one").accepted
    client.next("question", 2)
    sim.now = 7.0
    at(client, lambda now: now == 7)
    assert client.set(threshold=1.0) == ""
    assert client.answer("the red one").accepted
    result = client.result(handle).result
    assert result.error_code == Result.NONE
    assert [turn.stamp.sec for turn in result.grounding.dialogue] == [1000, 1000, 4600, 4600, 7]
    client.set(threshold=0.0)


def test_nobody_answering_is_noticed_while_the_simulation_is_paused(
    client: Client, sim: Sim
) -> None:
    at(client, lambda now: now == 1000)
    handle, _ = asking_goal(client, answer_timeout=Duration(nanosec=300_000_000))
    assert client.result(handle).result.error_code == Result.ANSWER_TIMEOUT
    recovered(client)  # the camera's images are no older than before


def test_the_camera_of_files_goes_on_after_its_clock_was_set_back(
    client: Client, robot: Robot
) -> None:
    from rcl_interfaces.srv import SetParameters
    from rclpy.parameter import Parameter
    from rclpy.qos import qos_profile_sensor_data
    from sensor_msgs.msg import CameraInfo

    service = client.node.create_client(SetParameters, "image_source/set_parameters")
    infos = client.listen(CameraInfo, "camera_info", qos_profile_sensor_data)

    def follow(simulated: bool) -> None:
        message = Parameter("use_sim_time", value=simulated).to_parameter_msg()
        client.call(service, SetParameters.Request(parameters=[message]))

    sim = Sim(client)
    sim.now, sim.rate = 5000.0, 1.0
    follow(True)
    try:
        wait_until(lambda: infos and 5000 <= infos[-1].header.stamp.sec < 6000, "simulated stamps")
        sim.now = 100.0
        wait_until(lambda: infos[-1].header.stamp.sec < 1000, "an image after the jump")
        count = len(infos)
        wait_until(lambda: len(infos) > count + 3, "more images")
    finally:
        follow(False)
        sim.stop()
    wait_until(lambda: infos[-1].header.stamp.sec > 10_000, "the real time again")
    assert ask(client, REQUEST, force_grounding=True).error_code == Result.NONE


# Security.


@pytest.mark.parametrize("node", ["perception", *OTHERS])
def test_the_security_policy_names_exactly_what_a_node_has(client: Client, node: str) -> None:
    # a node that was killed stays in the graph for some seconds, beside its successor
    must_hold(client.node, node)
