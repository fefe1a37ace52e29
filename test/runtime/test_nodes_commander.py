"""CommandGrounder and the example of a grasp planner, with real perception in another process."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ros_helpers

ros_helpers.need_ros()

import rclpy  # noqa: E402
from clue_msgs.action import GroundWithDialogue  # noqa: E402
from clue_msgs.msg import ClarificationQuestion, GroundingResult  # noqa: E402
from geometry_msgs.msg import PoseStamped  # noqa: E402
from ros_fixtures import LONG, REQUEST  # noqa: E402
from ros_helpers import TIMEOUT, Client, Process, wait_until  # noqa: E402
from security_policy import must_hold  # noqa: E402

from clue_ros.nodes.client import (  # noqa: E402
    CommandGrounder,
    GroundingError,
    error_name,
)
from clue_ros.nodes.pose_from_depth import quaternion, rotation  # noqa: E402


@pytest.fixture(scope="module")
def grounder(node: Process) -> Iterator[CommandGrounder]:
    ros_helpers.isolate()
    with CommandGrounder("picker", context=rclpy.Context()) as grounder:
        yield grounder


def test_every_error_of_the_action_has_its_name() -> None:
    assert error_name(GroundWithDialogue.Result.NONE) == "NONE"
    assert error_name(GroundWithDialogue.Result.MAX_TURNS) == "MAX_TURNS"
    assert error_name(9999) == "error 9999"


# Before perception is active. The order of these first tests matters.


def test_waiting_for_a_perception_that_is_not_active_ends_with_a_word(
    grounder: CommandGrounder, shared: Client
) -> None:
    assert shared.state() == "unconfigured"

    def refusal() -> GroundingError:
        with pytest.raises(GroundingError) as caught:
            grounder.wait_until_active(timeout=1.0)
        return caught.value

    # Before perception is discovered, and where it is slow to answer, the refusal is another one.
    inactive = wait_until(
        lambda: next((r for r in [refusal()] if r.code == "INACTIVE"), None),
        "the discovery of perception",
    )
    assert "perception is unconfigured" in inactive.message
    with pytest.raises(GroundingError, match="configure") as caught:
        grounder.ground(REQUEST, timeout=TIMEOUT)
    assert caught.value.code == "INACTIVE"


def test_without_perception_it_says_so(node: Process) -> None:
    with CommandGrounder("lost", namespace="/nowhere", context=rclpy.Context()) as lost:
        for call in (
            lambda: lost.ground(REQUEST, timeout=0.3),
            lambda: lost.start(REQUEST, timeout=0.3),
            lambda: lost.ground_once(REQUEST, timeout=0.3),
            lambda: lost.wait_until_active(timeout=0.3),
        ):
            with pytest.raises(GroundingError, match="/nowhere/ground") as caught:
                call()
            assert caught.value.code == "NO_SERVER"


# Whole dialogues.


def test_a_clear_request_returns_its_grounding(grounder: CommandGrounder, client: Client) -> None:
    grounder.wait_until_active(timeout=TIMEOUT)
    result = grounder.ground(REQUEST, timeout=TIMEOUT)
    assert isinstance(result, GroundingResult)
    assert result.expression == REQUEST
    assert result.target.box.x_max > result.target.box.x_min
    assert not result.target.has_pose
    assert math.isnan(result.target.pose.pose.position.x)


def test_questions_are_asked_and_their_answers_given(
    grounder: CommandGrounder, client: Client
) -> None:
    asked: list[Any] = []

    def on_question(question: ClarificationQuestion) -> str:
        asked.append((question, threading.current_thread()))
        if len(asked) == 2:
            client.set(threshold=1.0)
        return "the red one"

    client.set(threshold=0.0)
    result = grounder.ground(REQUEST, on_question=on_question, timeout=TIMEOUT)
    assert [question.turn for question, _ in asked] == [1, 2]
    assert {thread for _, thread in asked} == {threading.current_thread()}
    answers = ["the red one", "the red one"]
    assert [turn.text for turn in result.dialogue if turn.speaker == turn.USER] == [
        REQUEST,
        *answers,
    ]


def test_an_answer_left_to_somebody_else_may_come_by_speech(
    grounder: CommandGrounder, client: Client
) -> None:
    client.set(threshold=0.0)

    def elsewhere(_question: ClarificationQuestion) -> None:
        client.set(threshold=1.0)
        client.speak("the left one")

    result = grounder.ground(REQUEST, on_question=elsewhere, timeout=TIMEOUT)
    assert result.dialogue[-1].text == "the left one"


def test_an_empty_answer_is_asked_for_again_a_few_times(
    grounder: CommandGrounder, client: Client
) -> None:
    client.set(threshold=0.0)
    given = iter(["", " ", "the left one"])

    def on_question(_question: ClarificationQuestion) -> str:
        text = next(given)
        if text.strip():
            client.set(threshold=1.0)
        return text

    assert grounder.ground(REQUEST, on_question=on_question, timeout=TIMEOUT).target.box
    client.set(threshold=0.0)
    with pytest.raises(GroundingError) as caught:
        grounder.ground(REQUEST, on_question=lambda _q: "", timeout=TIMEOUT)
    assert caught.value.code == "EMPTY_EXPRESSION"
    client.set(threshold=1.0)
    assert grounder.ground(REQUEST, timeout=TIMEOUT), "it was canceled: perception is not busy"


@pytest.mark.parametrize(
    ("text", "fields", "code"),
    [
        ("", {}, "EMPTY_EXPRESSION"),
        (REQUEST, {"max_turns": 1}, "MAX_TURNS"),
        (REQUEST, {"answer_timeout": 0.2}, "ANSWER_TIMEOUT"),
        (REQUEST, {"timeout": 1.5}, "TIMEOUT"),
    ],
)
def test_how_it_ends_is_the_errors_code(
    grounder: CommandGrounder, client: Client, text: str, fields: dict[str, Any], code: str
) -> None:
    client.set(threshold=0.0)
    answers = {"MAX_TURNS": "the left one"}
    with pytest.raises(GroundingError) as caught:
        grounder.ground(
            text, on_question=lambda _q: answers.get(code), **{"timeout": TIMEOUT, **fields}
        )
    assert caught.value.code == code
    assert caught.value.message
    assert str(caught.value).startswith(f"{code}: ")
    client.set(threshold=1.0)
    assert grounder.ground(REQUEST, timeout=TIMEOUT)


def test_an_error_in_on_question_cancels_the_dialogue(
    grounder: CommandGrounder, client: Client
) -> None:
    client.set(threshold=0.0)

    def fails(_question: ClarificationQuestion) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grounder.ground(REQUEST, on_question=fails, timeout=TIMEOUT)
    client.set(threshold=1.0)
    assert grounder.ground(REQUEST, timeout=TIMEOUT)


def test_a_task_can_be_watched_answered_and_canceled(
    grounder: CommandGrounder, client: Client
) -> None:
    client.set(threshold=0.0)
    task = grounder.start(REQUEST, timeout=TIMEOUT)
    question = wait_until(lambda: task.question, "the question")
    assert not task.done()
    assert question.text
    assert task.feedback is not None
    with pytest.raises(GroundingError) as caught:
        grounder.ground("pick up the ball", timeout=TIMEOUT)
    assert caught.value.code == "BUSY"
    client.set(threshold=1.0)
    assert task.answer("the left one")
    assert task.result(TIMEOUT).expression == REQUEST
    assert task.done()
    assert not task.answer("too late")
    client.set(threshold=0.0)
    second = grounder.start(REQUEST, timeout=TIMEOUT)
    second.cancel()  # perhaps before it was accepted
    with pytest.raises(GroundingError) as caught:
        second.result(TIMEOUT)
    assert caught.value.code == "CANCELED"


def test_one_shot_returns_the_question_or_the_grounding(
    grounder: CommandGrounder, client: Client
) -> None:
    client.set(threshold=0.0)
    asked = grounder.ground_once(REQUEST, timeout=TIMEOUT)
    assert isinstance(asked, ClarificationQuestion)
    image = client.image()
    found = grounder.ground_once(REQUEST, force=True, image=image, timeout=TIMEOUT)
    assert isinstance(found, GroundingResult)
    assert found.header == image.header
    with pytest.raises(GroundingError) as caught:
        grounder.ground_once(" ", timeout=TIMEOUT)
    assert caught.value.code == "EMPTY_EXPRESSION"
    assert grounder.answer("to whom?") is False


def test_it_may_be_called_in_a_callback_of_another_node(
    grounder: CommandGrounder, client: Client
) -> None:
    from std_msgs.msg import String

    results: list[Any] = []
    client.node.create_subscription(
        String,
        "order",
        lambda m: results.append(grounder.ground(m.data, timeout=TIMEOUT)),
        10,
    )
    publisher = client.node.create_publisher(String, "order", 10)
    wait_until(lambda: publisher.get_subscription_count() > 0, "the subscription")
    image = client.image()
    assert image  # the client's thread is the one that will be blocked: the camera has its own
    publisher.publish(String(data=REQUEST))
    wait_until(lambda: results, "the grounding")
    assert results[0].expression == REQUEST


@pytest.mark.parametrize("asks", [True, False])
def test_the_code_in_the_client_guide_works(client: Client, asks: bool) -> None:
    text = (ros_helpers.ROOT / "docs" / "howto-client.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    client.set(threshold=0.0 if asks else 1.0)  # it asks twice, its max_turns, and gives up
    done = subprocess.run(
        [sys.executable, "-c", code],
        input="the left one\nthe red one\n",
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("robot:") == (2 if asks else 0)
    words = "MAX_TURNS: still unclear" if asks else "no pose: no depth image has arrived on /depth"
    assert words in done.stdout
    assert ("box from x" in done.stdout) is not asks


# Python leaves SIGINT alone where it is ignored at its start, as in a shell's background.
HEEDS_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


def test_ctrl_c_at_a_question_leaves_no_dialogue_open(
    grounder: CommandGrounder, client: Client
) -> None:
    text = (ros_helpers.ROOT / "docs" / "howto-client.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    client.set(threshold=0.0)
    person = subprocess.Popen(
        [sys.executable, "-u", "-c", HEEDS_CTRL_C + code],
        stdin=subprocess.PIPE,  # nobody types
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert person.stdout is not None
    assert b"robot:" in person.stdout.readline()
    client.set(threshold=1.0)
    with pytest.raises(GroundingError) as caught:
        grounder.ground(REQUEST, timeout=TIMEOUT)
    assert caught.value.code == "BUSY"
    person.send_signal(signal.SIGINT)
    person.wait(TIMEOUT)  # communicate() would close its stdin, and that might come first
    assert person.stderr is not None
    assert b"KeyboardInterrupt" in person.stderr.read()
    assert grounder.ground(REQUEST, timeout=TIMEOUT)


# A grasp planner.


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    log = tmp_path_factory.mktemp("log") / "grasp.log"
    process = Process("grasp_example", log, parameters={"max_opening": 0.06, "standoff": 0.2})
    yield process
    assert process.stop() == 0, process.text()


def standing(width: float) -> GroundingResult:
    """A block of width x 12 cm x 8 cm on a table, seen from 45 degrees above."""
    result = GroundingResult(expression="the block")
    result.header.frame_id = "camera_color_optical_frame"
    result.header.stamp.sec = 7
    target = result.target
    target.header = target.pose.header = result.header
    target.has_pose = True
    s = math.sqrt(0.5)
    axes = np.array([[1.0, 0, 0], [0, -s, -s], [0, s, -s]])  # z up from the table
    q = target.pose.pose.orientation
    q.x, q.y, q.z, q.w = quaternion(axes)
    at = target.pose.pose.position
    at.x, at.y, at.z = 0.1, 0.0, 0.7
    target.size.x, target.size.y, target.size.z = 0.12, width, 0.08
    return result


def test_the_grasp_example_publishes_where_the_gripper_goes(
    planner: Process, shared: Client
) -> None:
    grasps = shared.listen(PoseStamped, "grasp_pose", 10)
    before = shared.listen(PoseStamped, "pregrasp_pose", 10)
    publisher = shared.node.create_publisher(GroundingResult, "grounding", 10)
    nodes = shared.node.get_node_names
    wait_until(lambda: "grasp_example" in nodes(), "the planner")
    subscribed = shared.node.get_subscriber_names_and_types_by_node
    wait_until(lambda: "/grounding" in dict(subscribed("grasp_example", "/")), "its subscription")
    wait_until(lambda: shared.node.count_publishers("grasp_pose") > 0, "its publisher")
    message = standing(0.05)
    wait_until(lambda: publisher.publish(message) or (grasps and before), "a grasp")
    grasp, above = grasps[0], before[0]
    assert grasp.header == above.header == message.header
    q = grasp.pose.orientation
    gripper = rotation((q.x, q.y, q.z, q.w))
    s = math.sqrt(0.5)
    assert gripper[:, 2] == pytest.approx([0, s, s]), "it comes from above"
    assert abs(gripper[:, 1] @ np.array([0, -s, s])) == pytest.approx(1), "over the shorter side"
    at, over = grasp.pose.position, above.pose.position
    assert (at.x, at.y, at.z) == pytest.approx((0.1, 0.0, 0.7))
    assert (over.x, over.y, over.z) == pytest.approx((0.1, -0.2 * s, 0.7 - 0.2 * s))
    publisher.publish(standing(0.07))
    wait_until(lambda: "the gripper opens to 60 mm" in planner.text(), "the refusal")
    blind = standing(0.05)
    blind.target.has_pose, blind.target.no_pose_reason = False, "no depth image has arrived"
    publisher.publish(blind)
    wait_until(lambda: "no grasp of 'the block': no depth image" in planner.text(), "the reason")


def test_the_security_policy_names_exactly_what_the_planner_has(
    planner: Process, shared: Client
) -> None:
    must_hold(shared.node, "grasp_example")


# Killed in the middle. Last, because it ends the shared process.


def test_a_perception_that_dies_in_the_dialogue_is_lost_and_the_next_one_works(
    grounder: CommandGrounder, client: Client, node: Process, model: Path, tmp_path: Path
) -> None:
    client.set(threshold=0.0)
    task = grounder.start(REQUEST, timeout=TIMEOUT)
    wait_until(lambda: task.question, "the question")
    client.stop_camera()
    node.kill()
    again = Process(
        "perception",
        tmp_path / "again.log",
        parameters={"model": model, "autostart": True, "answer_timeout": LONG},
    )
    node.popen = again.popen  # for the fixture, which stops it and looks at its exit status
    with pytest.raises(GroundingError) as caught:
        task.result(TIMEOUT)
    assert caught.value.code == "SERVER_LOST"
    with CommandGrounder("picker_again", context=rclpy.Context()) as fresh:
        fresh.wait_until_active(timeout=TIMEOUT)
        assert fresh.ground_once(REQUEST, image=client.image(), force=True, timeout=TIMEOUT)
