"""The perception node in a process of its own, over DDS: what every request, good or bad, ends in.

The model has random weights, so nothing here depends on what it answers: threshold 0 makes it ask,
threshold 1 point.
"""

from __future__ import annotations

import array
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ros_helpers
from ros_helpers import Client, Process, picture, ros_client, wait_until

ros_helpers.need_ros()

from action_msgs.msg import GoalStatus  # noqa: E402
from builtin_interfaces.msg import Duration  # noqa: E402
from clue_msgs.action import GroundWithDialogue  # noqa: E402
from clue_msgs.msg import DialogueTurn  # noqa: E402

from clue_ros.nodes.convert import fill_image  # noqa: E402

Result = GroundWithDialogue.Result
State = GroundWithDialogue.Feedback
REQUEST = "pick up the block"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from clue_ros.model.tiny import write_random_model

    return write_random_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Iterator[Process]:
    process = Process(
        "perception",
        tmp_path_factory.mktemp("log") / "perception.log",
        parameters={"model": model, "image_timeout": 0.5, "answer_timeout": 20.0},
    )
    yield process
    status = process.stop()
    assert status == 0, process.text()


@pytest.fixture(scope="module")
def shared(node: Process) -> Iterator[Client]:
    with ros_client() as client:
        yield client


@pytest.fixture
def client(shared: Client, node: Process) -> Client:
    """Give the client with the node active, the camera running, and nothing heard yet."""
    assert node.popen.poll() is None, f"the node has ended: {node.text()}"
    if shared.state() == "unconfigured":
        assert shared.transition("configure"), node.text()
    if shared.state() == "inactive":
        assert shared.transition("activate"), node.text()
    shared.set(threshold=1.0, image_transport="raw", max_image_age=5.0, answer_timeout=20.0)
    shared.start_camera()
    wait_until(lambda: shared.ground(REQUEST).error_code == Result.NONE, "the first image")
    shared.clear()
    return shared


def works(client: Client) -> None:
    """Check that the next good request gets its answer."""
    response = client.ground(REQUEST, image=client.image(), force=True)
    assert response.error_code == Result.NONE, response.error_msg


def asking_goal(client: Client, **fields: Any) -> tuple[Any, Any]:
    """Start a dialogue that asks; return the goal's handle and the question."""
    assert client.set(threshold=0.0) == ""
    handle = client.goal(REQUEST, **fields)
    return handle, client.next("question")


# Before it is active. The order of these first tests matters: the node starts unconfigured.


def test_unconfigured_node_answers_every_request_with_inactive(shared: Client) -> None:
    assert shared.ground(REQUEST).error_code == Result.INACTIVE
    answer = shared.answer("the left one")
    assert (answer.accepted, answer.error_code) == (False, Result.INACTIVE)
    end = shared.result(shared.goal(REQUEST))
    assert (end.status, end.result.error_code) == (GoalStatus.STATUS_ABORTED, Result.INACTIVE)
    assert "configure" in end.result.error_msg


def test_broken_model_is_a_failure_with_its_reason_and_the_node_stays_up(
    shared: Client, node: Process, model: Path
) -> None:
    shared.next("/diagnostics")
    assert shared.set(model="/nowhere/at/all") == ""
    assert not shared.transition("configure")
    assert shared.state() == "unconfigured"
    assert "/nowhere/at/all" in node.text()
    statuses = shared.heard["/diagnostics"]
    wait_until(lambda: statuses[-1].status[0].level == b"\x02", "an error in /diagnostics")
    assert "/nowhere/at/all" in statuses[-1].status[0].message
    assert shared.set(model=str(model)) == ""
    assert shared.transition("configure")
    assert shared.state() == "inactive"


def test_no_camera_is_no_image_and_the_warning_names_the_topic(
    shared: Client, node: Process
) -> None:
    assert shared.transition("activate")
    response = shared.ground(REQUEST)
    assert response.error_code == Result.NO_IMAGE
    assert "/image" in response.error_msg
    wait_until(lambda: "no image on /image for" in node.text(), "the warning about the camera")
    assert shared.ground(REQUEST, image=shared.image()).error_code == Result.NONE


# Parameters.


def test_nonsense_parameters_are_refused_with_a_reason(client: Client) -> None:
    assert "policy" in client.set(policy="coin")
    assert client.set(threshold=7.0) != ""
    assert "threshold" in client.set(threshold=-0.5)
    assert client.set(max_questions=-1) != ""
    assert client.set(answer_timeout=float("nan")) != ""
    assert client.set(model=3) != ""
    works(client)


def test_what_needs_a_reload_cannot_change_while_active(client: Client) -> None:
    assert "clean up" in client.set(model="other")
    assert "clean up" in client.set(device="cuda")
    assert "deactivate" in client.set(image_transport="compressed")
    assert client.set(diagnostics_period=9.0) != ""
    works(client)


# One shot.


def test_ground_points_with_the_header_of_the_image(client: Client) -> None:
    client.stop_camera()
    image = client.image(picture(200, 100))
    response = client.ground("pick up the block", image=image)
    assert response.error_code == Result.NONE
    assert not response.is_question
    found = response.grounding
    assert found.header == image.header
    assert found.target.header == found.ambiguity.header == image.header
    assert (found.target.image_width, found.target.image_height) == (200, 100)
    box, roi = found.target.box, found.target.roi
    assert 0 <= box.x_min < box.x_max <= 200
    assert 0 <= box.y_min < box.y_max <= 100
    assert roi.x_offset <= box.x_min
    assert roi.x_offset + roi.width >= box.x_max
    assert 0 <= found.target.score <= 1
    assert found.expression == "pick up the block"
    attention = client.next("perception/attention_map")
    assert (attention.header, attention.encoding) == (image.header, "32FC1")
    assert attention.width == attention.height == found.ambiguity.attention_map.width > 1


def test_ground_returns_the_question_and_leaves_no_dialogue_open(client: Client) -> None:
    client.set(threshold=0.0)
    response = client.ground(REQUEST)
    assert (response.error_code, response.is_question) == (Result.NONE, True)
    assert response.question.text
    assert response.question.dialogue_id == ""
    assert client.answer("the left one").error_code == Result.UNKNOWN_DIALOGUE
    forced = client.ground(REQUEST, force=True)
    assert (forced.error_code, forced.is_question) == (Result.NONE, False)


def test_a_stopped_camera_is_a_stale_image(client: Client) -> None:
    client.stop_camera()
    client.set(max_image_age=0.1)
    response = wait_until(
        lambda: (r := client.ground(REQUEST)).error_code == Result.STALE_IMAGE and r, "staleness"
    )
    assert "/image" in response.error_msg
    works(client)


def _cut(message: Any) -> None:
    message.data = message.data[: len(message.data) // 2]


def _depth(message: Any) -> None:
    message.encoding = "16UC1"


def _unknown(message: Any) -> None:
    message.encoding = "\N{PILE OF POO}"


def _no_height(message: Any) -> None:
    message.height = 0


def _no_width(message: Any) -> None:
    message.width = 0


def _small_step(message: Any) -> None:
    message.step = 3


def _huge(message: Any) -> None:
    message.height = message.width = 60_000


BROKEN = [_cut, _depth, _unknown, _no_height, _no_width, _small_step, _huge]


@pytest.mark.parametrize("damage", BROKEN, ids=lambda f: f.__name__.strip("_"))
def test_a_broken_image_is_bad_image_and_the_next_good_one_works(
    client: Client, damage: Any
) -> None:
    message = client.image()
    damage(message)
    response = client.ground(REQUEST, image=message)
    assert response.error_code == Result.BAD_IMAGE, response.error_msg
    assert response.error_msg
    works(client)


def test_a_twenty_megapixel_image_works(client: Client) -> None:
    message = client.image()
    fill_image(message, np.full((3888, 5184), 90, np.uint8), "mono8")
    response = client.ground(REQUEST, image=message)
    assert response.error_code == Result.NONE, response.error_msg
    assert response.grounding.target.image_width == 5184


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", "EMPTY_EXPRESSION"),
        (" \t\n ", "EMPTY_EXPRESSION"),
        ("\x00\x07\x1b", "EMPTY_EXPRESSION"),
        ("\N{GRINNING FACE}\N{ROBOT FACE}", "BAD_EXPRESSION"),
        ("block " * 1667, "BAD_EXPRESSION"),
        ("pick\x07 up \x1b[31m the block", "NONE"),
        ("pick up the <loc0000><image> block <bos>", "NONE"),
        ("pick up the \N{GRINNING FACE} block", "NONE"),
    ],
    ids=["empty", "spaces", "controls", "emoji", "10000", "escape", "tokens", "mixed"],
)
def test_any_text_gets_its_code_and_the_node_goes_on(client: Client, text: str, code: str) -> None:
    if "\x00" in text:
        text = text.replace("\x00", "\x01")  # a ROS string ends at its first zero byte
    response = client.ground(text)
    assert response.error_code == getattr(Result, code), response.error_msg
    end = client.result(client.goal(text))
    assert end.result.error_code == getattr(Result, code), end.result.error_msg
    works(client)


# The whole dialogue.


def test_a_clear_request_ends_in_a_grounding_that_is_published_and_said(client: Client) -> None:
    image = client.image()
    handle = client.goal(REQUEST, image=image)
    end = client.result(handle)
    assert (end.status, end.result.error_code) == (GoalStatus.STATUS_SUCCEEDED, Result.NONE)
    assert end.result.num_questions == 0
    assert end.result.grounding == client.next("grounding")
    assert end.result.grounding.header == image.header
    assert end.result.grounding.dialogue_id == bytes(handle.goal_id.uuid).hex()
    assert [turn.text for turn in end.result.grounding.dialogue] == [REQUEST]
    assert client.next("say").data
    states = [feedback.state for feedback in client.feedback]
    assert states == [State.LOOKING, State.THINKING, State.GROUNDING]


@pytest.mark.parametrize("way", ["speech", "service"])
def test_a_question_travels_everywhere_and_its_answer_comes_either_way(
    client: Client, way: str
) -> None:
    image = client.image()
    handle, question = asking_goal(client, image=image)
    assert question.header == image.header
    assert question.dialogue_id == bytes(handle.goal_id.uuid).hex()
    assert question.turn == 1
    assert question.answer_timeout.sec == 20
    assert client.next("say").data == question.text
    wait_until(lambda: client.feedback[-1].state == State.WAITING_FOR_ANSWER, "the feedback")
    assert repr(client.feedback[-1].question) == repr(question)  # NaN scores are never equal
    assert client.feedback[-1].ambiguity.is_ambiguous
    client.set(threshold=1.0)
    if way == "speech":
        client.speak("the red one")
    else:
        response = client.answer("the red one", question.dialogue_id)
        assert (response.accepted, response.error_code) == (True, Result.NONE)
    end = client.result(handle)
    assert end.status == GoalStatus.STATUS_SUCCEEDED
    assert end.result.num_questions == 1
    said = [(turn.speaker, turn.text) for turn in end.result.grounding.dialogue]
    assert said == [
        (DialogueTurn.USER, REQUEST),
        (DialogueTurn.ROBOT, question.text),
        (DialogueTurn.USER, "the red one"),
    ]


def test_speech_starts_a_dialogue_and_speech_answers_it(client: Client) -> None:
    client.set(threshold=0.0)
    client.speak(REQUEST)
    question = client.next("question")
    assert question.dialogue_id
    client.set(threshold=1.0)
    client.speak("the red one")
    found = client.next("grounding")
    assert found.dialogue_id == question.dialogue_id
    assert [turn.text for turn in found.dialogue] == [REQUEST, question.text, "the red one"]
    assert client.next("say", 2).data.startswith("I see")


def test_an_unreadable_answer_is_refused_and_the_question_stays_open(client: Client) -> None:
    handle, question = asking_goal(client)
    assert client.answer(" ").error_code == Result.EMPTY_EXPRESSION
    assert client.answer("\N{GRINNING FACE}").error_code == Result.BAD_EXPRESSION
    assert client.answer("left", "nobody's").error_code == Result.UNKNOWN_DIALOGUE
    client.speak("\N{GRINNING FACE}")
    assert client.next("say", 2).data != question.text  # said in words that it was not understood
    client.set(threshold=1.0)
    assert client.answer("the left one", question.dialogue_id).accepted
    assert client.result(handle).result.error_code == Result.NONE


def test_an_answer_that_never_comes_is_answer_timeout(client: Client) -> None:
    handle, question = asking_goal(client, answer_timeout=Duration(nanosec=200_000_000))
    assert question.answer_timeout.nanosec == 200_000_000
    end = client.result(handle)
    assert (end.status, end.result.error_code) == (
        GoalStatus.STATUS_ABORTED,
        Result.ANSWER_TIMEOUT,
    )
    assert end.result.num_questions == 1
    assert client.next("say", 2).data
    assert client.answer("too late").error_code == Result.UNKNOWN_DIALOGUE
    works(client)


def test_too_many_questions_is_max_turns(client: Client) -> None:
    handle, _ = asking_goal(client, max_turns=2)
    assert client.answer("the left one").accepted
    assert client.next("question", 2).turn == 2
    assert client.answer("the red one").accepted
    end = client.result(handle)
    assert (end.status, end.result.error_code) == (GoalStatus.STATUS_ABORTED, Result.MAX_TURNS)
    assert end.result.num_questions == 2
    works(client)


def test_a_canceled_goal_is_canceled_and_the_next_one_works(client: Client) -> None:
    handle, _ = asking_goal(client)
    client.cancel(handle)
    end = client.result(handle)
    assert (end.status, end.result.error_code) == (GoalStatus.STATUS_CANCELED, Result.CANCELED)
    works(client)


def test_a_goal_canceled_at_once_ends_one_way_or_the_other(client: Client) -> None:
    client.set(threshold=0.0)
    handle = client.goal(REQUEST)
    client.cancel(handle)
    end = client.result(handle)
    assert (end.status, end.result.error_code) == (GoalStatus.STATUS_CANCELED, Result.CANCELED)
    works(client)


def test_everything_else_is_busy_while_a_dialogue_is_open(client: Client) -> None:
    handle, question = asking_goal(client)
    assert client.ground(REQUEST).error_code == Result.BUSY
    second = client.result(client.goal("pick up the ball"))
    assert (second.status, second.result.error_code) == (GoalStatus.STATUS_ABORTED, Result.BUSY)
    assert question.dialogue_id in second.result.error_msg
    client.set(threshold=1.0)
    assert client.answer("the left one").accepted
    assert client.result(handle).result.error_code == Result.NONE


def test_deactivation_ends_the_dialogue_and_activation_brings_the_node_back(client: Client) -> None:
    handle, _ = asking_goal(client)
    assert client.transition("deactivate")
    end = client.result(handle)
    assert (end.status, end.result.error_code) == (GoalStatus.STATUS_ABORTED, Result.INACTIVE)
    assert client.ground(REQUEST, image=client.image()).error_code == Result.INACTIVE
    assert client.transition("cleanup")
    assert client.state() == "unconfigured"
    assert client.transition("configure")
    assert client.transition("activate")
    works(client)


# Pictures in and out.


def test_compressed_images_come_in_and_corrupt_ones_are_bad_image(client: Client) -> None:
    import cv2

    jpeg = cv2.imencode(".jpg", picture())[1].tobytes()
    assert client.transition("deactivate")
    assert client.set(image_transport="compressed") == ""
    assert client.transition("activate")
    client.start_camera(lambda: client.show_jpeg(jpeg))
    wait_until(lambda: client.ground(REQUEST).error_code == Result.NONE, "a compressed image")
    client.start_camera(lambda: client.show_jpeg(b"\xff\xd8 no picture"))
    wait_until(lambda: client.ground(REQUEST).error_code == Result.BAD_IMAGE, "the corrupt image")
    client.start_camera(lambda: client.show_jpeg(jpeg))
    wait_until(lambda: client.ground(REQUEST).error_code == Result.NONE, "the next good image")
    assert client.transition("deactivate")
    assert client.set(image_transport="raw") == ""


def test_the_debug_image_is_drawn_for_whoever_listens(client: Client) -> None:
    from rclpy.qos import DurabilityPolicy, QoSProfile
    from sensor_msgs.msg import Image

    qos = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    pictures = client.listen(Image, "perception/debug_image", qos)
    image = client.image()
    wait_until(lambda: client.ground(REQUEST, image=image) and pictures, "a debug image")
    assert pictures[0].encoding == "rgb8"
    assert pictures[0].header == image.header
    pixels = np.frombuffer(pictures[0].data, np.uint8)
    assert isinstance(pictures[0].data, array.array)
    assert len(np.unique(pixels)) > 10


def test_the_client_in_the_documentation_works(client: Client) -> None:
    text = (ros_helpers.ROOT / "docs" / "ros.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    client.set(threshold=0.0)  # so it asks twice, its max_turns, and then gives up
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="the left one\nthe red one\n",
        capture_output=True,
        text=True,
        timeout=ros_helpers.TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("robot:") == 2
    assert f"{Result.MAX_TURNS} still unclear after 2 questions" in done.stdout


# Killed in the middle. Last, because it ends the shared process.


def test_a_node_killed_in_a_dialogue_works_again_when_restarted(
    client: Client, node: Process, model: Path, tmp_path: Path
) -> None:
    asking_goal(client)
    client.stop_camera()
    node.kill()
    again = Process("perception", tmp_path / "again.log", parameters={"model": model})
    node.popen = again.popen  # for the fixture, which stops it and looks at its exit status
    # A new client: the old one may still know the dead node and send its requests there.
    with ros_client("second_tester") as fresh:
        assert fresh.state() == "unconfigured"
        assert fresh.transition("configure")
        assert fresh.transition("activate")
        fresh.set(threshold=1.0)
        fresh.start_camera()
        wait_until(lambda: fresh.ground(REQUEST).error_code == Result.NONE, "an image")
        assert fresh.result(fresh.goal(REQUEST)).result.error_code == Result.NONE
