"""The perception node over DDS: its states and parameters, and what one request ends in."""

from __future__ import annotations

import array
import importlib.util
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ros_helpers

ros_helpers.need_ros()

import rclpy  # noqa: E402
from action_msgs.msg import GoalStatus  # noqa: E402
from clue_msgs.action import GroundWithDialogue  # noqa: E402
from rclpy.qos import DurabilityPolicy, QoSProfile  # noqa: E402
from ros_fixtures import REQUEST, works  # noqa: E402
from ros_helpers import Client, Process, picture, wait_until  # noqa: E402
from visualization_msgs.msg import Marker, MarkerArray  # noqa: E402

from clue_ros.nodes.image_conversion import fill_image  # noqa: E402
from clue_ros.nodes.topics import OptionalOutput, Perception, interfaces  # noqa: E402

Result = GroundWithDialogue.Result


# Before it is active. The order of these first tests matters: the node starts unconfigured.


def test_unconfigured_node_answers_every_request_with_inactive(shared: Client) -> None:
    assert shared.ground(REQUEST).error_code == Result.INACTIVE
    answer = shared.answer("the left one")
    assert (answer.accepted, answer.error_code) == (False, Result.INACTIVE)
    end = shared.result(shared.goal(REQUEST))
    assert (end.status, end.result.error_code) == (GoalStatus.STATUS_ABORTED, Result.INACTIVE)
    assert "configure" in end.result.error_msg


def _no_folder(folder: Path) -> str:
    shutil.rmtree(folder)
    return f"no model '{folder}'"


def _no_head(folder: Path) -> str:
    (folder / "detector" / "head.safetensors").unlink()
    return f"{folder / 'detector'} has no head.safetensors"


def _other_shape(folder: Path) -> str:
    from safetensors.numpy import load_file, save_file

    path = folder / "ivg" / "adapter_model.safetensors"
    weights = load_file(path)
    name = min(weights)
    weights[name] = np.ascontiguousarray(weights[name][:, 1:])
    save_file(weights, path, metadata={"format": "pt"})
    return f"{path}: {name} has shape"


@pytest.mark.parametrize("damage", [_no_folder, _no_head, _other_shape])
def test_broken_model_is_a_failure_with_its_reason_and_the_node_stays_up(
    shared: Client, node: Process, model: Path, tmp_path: Path, damage: Any
) -> None:
    folder = shutil.copytree(model, tmp_path / "model")
    reason = damage(folder)
    assert shared.set(model=str(folder)) == ""
    assert not shared.transition("configure")
    assert shared.state() == "unconfigured"
    assert reason in node.text()
    statuses = shared.heard["/diagnostics"]
    wait_until(lambda: statuses and reason in statuses[-1].status[0].message, "it in /diagnostics")
    assert statuses[-1].status[0].level == b"\x02"  # ERROR
    assert shared.set(model=str(model)) == ""
    assert shared.transition("configure")
    assert shared.state() == "inactive"
    assert shared.transition("cleanup")


def test_no_camera_is_no_image_and_the_warning_names_the_topic(
    shared: Client, node: Process
) -> None:
    assert shared.transition("configure")
    assert shared.transition("activate")
    response = shared.ground(REQUEST)
    assert response.error_code == Result.NO_IMAGE
    assert "/image" in response.error_msg
    wait_until(lambda: "no image on /image for" in node.text(), "the warning about the camera")
    assert shared.ground(REQUEST, image=shared.image()).error_code == Result.NONE


def test_another_perception_is_warned_of_and_depth_is_reported(
    shared: Client, node: Process
) -> None:
    from clue_msgs.msg import DialogueState

    statuses = shared.heard["/diagnostics"]
    second = rclpy.create_node("second", context=shared.node.context)
    second.create_publisher(DialogueState, "dialogue_state", 1)
    warning = "another perception has the same topics: /second"
    wait_until(lambda: warning in node.text(), "the warning about the second one")
    shared.clear()
    wait_until(lambda: statuses and warning in statuses[-1].status[0].message, "it in diagnostics")
    assert statuses[-1].status[0].level == b"\x01"  # WARN
    values = {value.key: value.value for value in statuses[-1].status[0].values}
    assert values["depth"] == "nobody publishes /depth: no poses"
    assert values["calibration"] == "nobody publishes /camera_info: no poses"
    second.destroy_node()
    wait_until(lambda: warning not in statuses[-1].status[0].message, "its end")


# Names.

OF_EVERY_NODE = r"/(rosout|parameter_events|perception/transition_event)|.*/_action/.*"


def documented(name: str, of: str) -> dict[str, str]:
    """Map names to types from the rows `| of | name, ... | type | ...` of a document's tables."""
    text = (ros_helpers.ROOT / name).read_text()
    rows = re.findall(rf"^\| {of} \| (.+?) \| (.+?) \|", text, re.MULTILINE)
    code = re.compile("`(.+?)`")
    found = {n: code.findall(kind)[0] for names, kind in rows for n in code.findall(names)}
    return {f"/{n}".replace("/~", "/perception").replace("//", "/"): k for n, k in found.items()}


@pytest.mark.parametrize("document", ["docs/ros.md"])
def test_the_documents_name_what_the_node_has(client: Client, document: str) -> None:
    def real(by_node: Any) -> dict[str, str]:
        return {
            name: re.sub("/(msg|srv|action)/", "/", kinds[0])
            for name, kinds in by_node("perception", "/")
            if not re.fullmatch(OF_EVERY_NODE, name)
        }

    told = documented(document, "in")
    # Of image and depth one transport is subscribed to; of tf what the parameters need.
    for name in ("/image/compressed", "/depth/compressedDepth", "/tf"):
        told.pop(name)
    if Perception.TF_STATIC.missing:
        told.pop("/tf_static")
    heard = client.node.get_subscriber_names_and_types_by_node
    wait_until(lambda: set(real(heard)) == set(told), f"the inputs {sorted(told)}")
    outputs = real(client.node.get_publisher_names_and_types_by_node)
    wanted = documented(document, "out")
    for topic in (t for t in interfaces("perception") if isinstance(t, OptionalOutput)):
        kind = wanted.pop(f"/perception{topic.name[1:]}")
        found = outputs.pop(f"/perception{topic.name[1:]}", "")
        assert found == ("" if topic.missing else kind)
    assert outputs == wanted
    services = real(client.node.get_service_names_and_types_by_node)
    own = {name: kind for name, kind in services.items() if not name.startswith("/perception/")}
    assert own == documented(document, "service")
    actions = [name for name, _ in client.node.get_service_names_and_types()]
    for name in documented(document, "action"):
        assert f"{name}/_action/send_goal" in actions


# Parameters.


def test_nonsense_parameters_are_refused_with_a_reason(client: Client) -> None:
    assert "policy" in client.set(policy="coin")
    assert client.set(threshold=7.0) != ""
    assert "threshold" in client.set(threshold=-0.5)
    assert client.set(num_views=6) != ""
    assert client.set(max_questions=-1) != ""
    assert client.set(answer_timeout=float("nan")) != ""
    assert client.set(model=3) != ""
    assert "max_depth" in client.set(min_depth=50.0)
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


def test_the_number_of_views_may_change_at_any_time(client: Client) -> None:
    """Three views of random weights find three things: the first's box, with less of a score."""
    client.stop_camera()
    image, found = client.image(picture(200, 100)), []
    for num_views in (1, 3, 0):
        assert client.set(num_views=num_views) == ""
        response = client.ground("pick up the block", image=image, force=True)
        assert response.error_code == Result.NONE
        found.append(response.grounding.target)
    assert found[2].box == found[0].box
    assert found[2].score == found[0].score, "the model's own number is one"
    assert found[1].score < found[0].score


def test_with_a_bound_and_no_calibration_a_box_is_shown_before_it_is_pointed_at(
    client: Client, node: Process
) -> None:
    plain = client.ground(REQUEST).grounding
    assert (plain.confirmed, math.isnan(plain.max_risk)) == (False, True)
    client.clear()
    assert client.set(max_risk=0.05) == ""
    try:
        goal = client.goal(REQUEST)
        (shown,) = client.next("question").candidates
        assert client.answer("yes").accepted
        found = client.result(goal).result.grounding
    finally:
        client.set(max_risk=0.0)
    assert (found.confirmed, math.isnan(found.max_risk)) == (True, True)
    assert found.target.box == shown.box
    assert "max_risk is not promised" in node.text()
    assert client.set(max_risk=1.0) != ""
    works(client)


def test_ground_returns_the_question_and_leaves_no_dialogue_open(
    client: Client, node: Process
) -> None:
    client.set(threshold=0.0)
    response = client.ground(REQUEST)
    assert (response.error_code, response.is_question) == (Result.NONE, True)
    assert response.question.text
    assert response.question.dialogue_id == ""
    assert client.answer("the left one").error_code == Result.UNKNOWN_DIALOGUE
    forced = client.ground(REQUEST, force=True)
    assert (forced.error_code, forced.is_question) == (Result.NONE, False)
    lines = re.findall(r": request \w{8}: (.*)", node.text())
    would = f'the robot would ask "{response.question.text}" (ambiguity '
    assert any(line.startswith(would) for line in lines), lines
    assert sum(line == f'the person asks for "{REQUEST}"' for line in lines) >= 2
    assert "the robot points at" in lines[-1]


def test_a_stopped_camera_is_a_stale_image(client: Client) -> None:
    client.stop_camera()
    client.set(max_image_age=0.1)
    response = wait_until(
        lambda: (r := client.ground(REQUEST)).error_code == Result.STALE_IMAGE and r, "staleness"
    )
    assert "/image" in response.error_msg
    client.set(max_image_age=2.0)
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
        ("pick up the <loc0000><image><bos> block", "NONE"),
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
    from sensor_msgs.msg import Image

    works(client)  # nobody listens: were this drawn, a late listener would get it first
    qos = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    pictures = client.listen(Image, "perception/debug_image", qos)
    image = client.image()
    wait_until(lambda: client.ground(REQUEST, image=image) and pictures, "a debug image")
    assert pictures[0].encoding == "rgb8"
    assert pictures[0].header == image.header
    pixels = np.frombuffer(pictures[0].data, np.uint8)
    assert isinstance(pictures[0].data, array.array)
    assert len(np.unique(pixels)) > 10


# Markers and detections of its objects.


@pytest.fixture
def seen(client: Client) -> Iterator[list[MarkerArray]]:
    qos = QoSProfile(depth=20, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    heard = client.heard.get("perception/markers")
    if heard is None:
        heard = client.listen(MarkerArray, "perception/markers", qos)
    client.start_camera()
    wait_until(lambda: client.ground(REQUEST).error_code == 0, "an image")
    client.clear()
    yield heard
    client.stop_camera()


def test_markers_come_with_the_question_and_go_with_the_dialogue(
    client: Client, seen: list[MarkerArray]
) -> None:
    client.set(threshold=0.0)
    handle = client.goal(REQUEST)
    client.next("question")
    wait_until(lambda: len(seen) == 2, "markers deleted at the beginning, and the question's")
    client.cancel(handle)
    client.result(handle)
    wait_until(lambda: len(seen) == 3, "markers deleted at the end")
    for told in seen:
        assert told.markers[0].action == Marker.DELETEALL
    assert len(seen[-1].markers) == 1


def test_markers_can_be_switched_off(client: Client, seen: list[MarkerArray]) -> None:
    assert client.set(markers=False) == ""
    try:
        assert client.ground(REQUEST).error_code == 0
        assert client.ground(REQUEST).error_code == 0
        wait_until(lambda: len(seen) >= 2, "the deletions of two requests")
        assert all(len(told.markers) == 1 for told in seen)
    finally:
        client.set(markers=True)


def test_vision_msgs_is_looked_for_when_perception_is_configured(
    client: Client, node: Any, seen: list[MarkerArray]
) -> None:
    if importlib.util.find_spec("vision_msgs") is None:
        pytest.skip("vision_msgs is not installed (it is no wheel: scripts/extra_ros)")
    from vision_msgs.msg import Detection2DArray, Detection3DArray

    flat = client.listen(Detection2DArray, "perception/detections", 10)
    solid = client.listen(Detection3DArray, "perception/detections_3d", 10)
    topics = ("/perception/detections", "/perception/detections_3d")
    count = client.node.count_publishers
    wait_until(lambda: [count(topic) for topic in topics] == [1, 1], "both publishers")
    target = client.ground(REQUEST, force=True).grounding.target
    wait_until(lambda: flat and solid, "detections")
    (detection,) = flat[0].detections
    assert detection.results[0].hypothesis.class_id == (target.label or "candidate")
    assert detection.bbox.size_x == pytest.approx(target.box.x_max - target.box.x_min)
    assert flat[0].header == target.header
    assert client.transition("deactivate")
    assert client.transition("cleanup")
    assert client.set(detections=False) == ""
    assert client.transition("configure")
    wait_until(lambda: [count(topic) for topic in topics] == [0, 0], "no publisher")
    assert client.transition("cleanup")
    assert client.set(detections=True) == ""
    assert client.transition("configure")
    assert client.transition("activate")
    wait_until(lambda: [count(topic) for topic in topics] == [1, 1], "both publishers again")
