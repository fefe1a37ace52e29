"""The console node against a real perception node: what it shows of it, and asks of it."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ros_helpers

ros_helpers.need_ros()

import rclpy  # noqa: E402
from clue_msgs.msg import (  # noqa: E402
    AudioChunk,
    BoundingBox,
    ClarificationQuestion,
    DialogueState,
    GroundedObject,
    GroundingResult,
    TaughtObject,
)
from clue_msgs.srv import ForgetObject, ListObjects, TeachObject  # noqa: E402
from console_node_helpers import FakePage, console  # noqa: E402
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue  # noqa: E402
from rclpy.duration import Duration  # noqa: E402
from rclpy.qos import DurabilityPolicy, QoSProfile  # noqa: E402
from ros_fixtures import LONG, REQUEST  # noqa: E402
from ros_helpers import TIMEOUT, Client, picture, wait_until  # noqa: E402
from security_policy import must_hold  # noqa: E402
from sensor_msgs.msg import Image  # noqa: E402
from std_msgs.msg import String  # noqa: E402

from clue_ros.console.live import LivePage  # noqa: E402
from clue_ros.dialogue.types import Box  # noqa: E402
from clue_ros.errors import ClueError  # noqa: E402
from clue_ros.nodes.diagnostics import Health, latency  # noqa: E402
from clue_ros.nodes.image_conversion import compressed_to_rgb, jpeg_size, to_rgb  # noqa: E402
from clue_ros.nodes.messages import box_of  # noqa: E402


@pytest.fixture(scope="module")
def robot() -> Iterator[Any]:
    with console(FakePage()) as made:
        yield made


@pytest.fixture
def page(client: Client, robot: Any) -> FakePage:
    """Give the page once it sees perception at work, with nothing shown before."""
    shown: FakePage = robot.page
    shown.comes_to("idle", "ended")
    wait_until(lambda: shown.options, "the settings")
    for kept in (shown.frames, shown.turns, shown.questions, shown.groundings, shown.notices):
        kept.clear()
    shown.maps.clear()
    shown.ready = True
    return shown


def test_a_whole_dialogue_is_shown_as_it_goes_on(
    client: Client, robot: Any, page: FakePage
) -> None:
    client.set(threshold=0.0)
    robot.say(REQUEST)
    status = page.comes_to("waiting")
    assert 0 < status.seconds_left <= LONG
    wait_until(lambda: page.questions, "the question")
    question = page.questions[-1]
    assert question.candidates
    assert all(found.box.x_max > found.box.x_min for found in question.candidates)
    wait_until(lambda: page.maps and page.maps[-1] is not None, "the attention map")
    assert page.maps[-1].dtype == np.float32
    assert page.maps[-1].ndim == 2
    assert 0.0 <= page.maps[-1].min() <= page.maps[-1].max() <= 1.0
    client.set(threshold=1.0)
    robot.say("the left one")
    assert page.comes_to("ended").error == ""
    wait_until(lambda: page.groundings[-1] is not None, "the grounding")
    assert page.groundings[-1].position is None
    assert page.groundings[-1].no_pose_reason
    wait_until(lambda: len(page.turns) >= 4, "the chat")
    assert page.turns[:3] == [("user", REQUEST), ("robot", question.text), ("user", "the left one")]
    assert page.turns[3][0] == "robot"


def test_stop_ends_the_dialogue(client: Client, robot: Any, page: FakePage) -> None:
    client.set(threshold=0.0)
    robot.say(REQUEST)
    page.comes_to("waiting")
    robot.stop()
    assert page.comes_to("ended").error == "CANCELED"


def test_a_request_of_another_node_is_in_the_chat(client: Client, page: FakePage) -> None:
    client.result(client.goal("pick up the ball"))
    wait_until(lambda: ("user", "pick up the ball") in page.turns, "the request")


def test_a_photograph_takes_the_place_of_the_camera_until_it_is_given_back(
    client: Client, robot: Any, page: FakePage
) -> None:
    photograph = picture(64, 48, seed=7)
    wait_until(lambda: page.frames, "a frame of the camera")
    robot.use_photograph(photograph, "table.jpg")
    try:
        time.sleep(0.3)  # frames of the camera, which must not be shown
        assert page.frames[-1][0] is photograph
        client.set(threshold=0.0)
        robot.say(REQUEST)
        page.comes_to("waiting")
        with pytest.raises(ClueError, match="a dialogue is open"):
            robot.use_photograph(None)
        wait_until(lambda: page.questions, "the question")
        for found in page.questions[-1].candidates:
            assert found.frame_id == "photograph"
            assert found.box.x_max <= 64
            assert found.box.y_max <= 48
        client.set(threshold=1.0)
        robot.say("the left one")
        page.comes_to("ended")
        wait_until(lambda: page.groundings[-1] is not None, "the grounding")
        assert page.groundings[-1].frame_id == "photograph"
        assert [turn for turn in page.turns if turn[0] == "user"] == [
            ("user", REQUEST),
            ("user", "the left one"),
        ]
    finally:
        robot.use_photograph(None)
    page.frames.clear()
    wait_until(lambda: page.frames, "the camera again")


def test_stop_cancels_the_dialogue_about_a_photograph(
    client: Client, robot: Any, page: FakePage
) -> None:
    client.set(threshold=0.0)
    robot.use_photograph(picture(64, 48))
    try:
        robot.say(REQUEST)
        page.comes_to("waiting")
        robot.stop()
        assert page.comes_to("ended").error == "CANCELED"
        assert page.notices == []
    finally:
        wait_until(lambda: page.state() == "ended", "its end")
        robot.use_photograph(None)


def test_a_refused_request_about_a_photograph_is_a_notice(robot: Any, page: FakePage) -> None:
    robot.use_photograph(picture(64, 48))
    try:
        robot.say("?!")
        assert page.notices_of("BAD_EXPRESSION")
    finally:
        robot.use_photograph(None)


def test_frames_are_taken_only_while_a_page_is_ready(page: FakePage) -> None:
    wait_until(lambda: page.frames, "frames")
    image, size = page.frames[-1]
    assert (image.shape, image.dtype, size) == ((120, 160, 3), np.uint8, None)
    page.ready = False
    time.sleep(0.1)
    count = len(page.frames)
    time.sleep(0.3)
    assert len(page.frames) == count


def test_a_jpeg_goes_to_the_page_as_it_is(client: Client, page: FakePage) -> None:
    import cv2

    ok, data = cv2.imencode(".jpg", picture(64, 48))
    assert ok
    jpeg = data.tobytes()
    assert jpeg_size(jpeg) == (64, 48)
    assert jpeg_size(cv2.imencode(".png", picture(64, 48))[1].tobytes()) is None
    assert jpeg_size(jpeg[:5]) is None
    turned = FakePage()
    with console(turned, image_transport="compressed"):
        client.start_camera(lambda: client.show_jpeg(jpeg))
        wait_until(lambda: turned.frames, "the JPEG")
        assert turned.frames[-1] == (jpeg, (64, 48))
        client.start_camera(lambda: client.show_jpeg(b"\xff\xd8\xff broken"))
        time.sleep(0.3)
        turned.frames.clear()
        client.start_camera(lambda: client.show_jpeg(jpeg))
        wait_until(lambda: turned.frames, "the next good one")


def test_a_jpeg_that_its_exif_data_turn_is_decoded(tmp_path: Path) -> None:
    from PIL import Image

    turned = Image.fromarray(picture(64, 48))
    exif = turned.getexif()
    exif[0x0112] = 6
    turned.save(tmp_path / "turned.jpg", exif=exif)
    data = (tmp_path / "turned.jpg").read_bytes()
    assert jpeg_size(data) is None  # a browser would turn it, and the boxes would be elsewhere
    assert compressed_to_rgb(data, "jpeg").shape == (48, 64, 3)


def test_settings_are_perceptions_and_follow_it(client: Client, robot: Any, page: FakePage) -> None:
    assert page.options["threshold"].value == "1.0"
    assert (page.options["threshold"].minimum, page.options["threshold"].maximum) == (-1.0, 1.0)
    assert "zero-shot" in page.options["policy"].choices
    assert "candidates" not in page.options  # of the model "wrapper" alone
    robot.set_option("threshold", "0.25")
    wait_until(lambda: page.options["threshold"].value == "0.25", "the new value")
    robot.set_option("policy", "decoder")
    wait_until(lambda: page.options["policy"].value == "decoder", "the new policy")
    robot.set_option("force_grounding", "true")
    wait_until(lambda: page.options["force_grounding"].value == "true", "the new switch")
    client.set(num_views=2)  # by another node
    wait_until(lambda: page.options["num_views"].value == "2", "the other node's value")
    client.set(num_views=0, policy="detector", force_grounding=False)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("threshold", "2", "must be from 0 to 1"),
        ("threshold", "much", "must be a number"),
        ("num_views", "1.5", "must be a whole number"),
        ("policy", "dice", "must be one of"),
        ("force_grounding", "perhaps", "must be true or false"),
        ("record", "/tmp", "is no setting of this page"),
    ],
)
def test_a_value_that_a_setting_cannot_have_is_refused(
    robot: Any, page: FakePage, name: str, value: str, reason: str
) -> None:
    with pytest.raises(ClueError, match=reason):
        robot.set_option(name, value)


def test_a_new_model_is_loaded_and_one_that_cannot_be_leaves_the_old_one(
    client: Client, robot: Any, page: FakePage, model: Path
) -> None:
    robot.set_option("model", "/no/such/model")
    assert "cannot be loaded" in page.notices_of("as before")
    assert page.comes_to("idle").error == ""
    assert client.state() == "active"
    other = f"{model}/"
    robot.set_option("model", other)
    page.notices_of("is ready after")
    wait_until(lambda: page.options["model"].value == other, "the new model")
    assert client.state() == "active"
    wait_until(lambda: client.ground(REQUEST).error_code == 0, "a request that works")


def test_health_and_latency_are_shown(client: Client, robot: Any, page: FakePage) -> None:
    client.ground(REQUEST)
    wait_until(lambda: dict(page.health[-1].latency).get("decoding", 0.0) > 0, "the stages' times")
    stages = dict(page.health[-1].latency)
    assert set(stages) == {"image", "ambiguity", "decoding", "placing"}
    wait_until(lambda: dict(page.health[-1].rows)["state"] == "active", "the state")
    wait_until(lambda: page.health[-1].level == "ok", "new images, which a loaded machine delays")


def test_latency_reads_what_health_writes_and_no_other_values() -> None:
    health = Health(last_latency=0.25, stages={"ambiguity": 0.094})
    values = [KeyValue(key=key, value=str(value)) for key, value in health.values().items()]
    assert latency(values) == {"ambiguity": 94.0}
    assert latency([KeyValue(key="last image took (s)", value="none")]) == {}
    assert latency([KeyValue(key="last image took (s)", value="nan")]) == {}


def test_sound_is_published_at_16_khz_while_somebody_listens(
    client: Client, robot: Any, page: FakePage
) -> None:
    tone = (1000 * np.sin(np.arange(4800) / 10)).astype(np.int16)
    with pytest.raises(ClueError, match="nobody listens"):
        robot.hear(tone, 48000)
    heard = client.listen(AudioChunk, "audio", 50)

    def found() -> bool:
        try:
            robot.hear(tone, 48000)
        except ClueError:
            return False
        return bool(heard)

    wait_until(found, "sound")
    assert (heard[-1].sample_rate, heard[-1].channels) == (16000, 1)
    assert abs(len(heard[-1].data) - 1600) <= 1
    with pytest.raises(ClueError, match="can be used"):
        robot.hear(tone, 1)


def test_words_of_others_and_of_the_robot_are_in_the_chat(client: Client, page: FakePage) -> None:
    client.speak("stop")
    wait_until(lambda: len(page.turns) >= 2, "the answer")
    assert page.turns[0] == ("user", "stop")
    assert page.turns[1][0] == "robot"


def test_words_that_are_published_once_reach_perception_beside_a_console(
    client: Client, page: FakePage
) -> None:
    """As `ros2 topic pub --once` does, which ends soon after it has found a subscription.

    It waits 0.1 s; here the writer waits until its one reader has the words, as a loaded machine
    may need longer.
    """
    assert client.node.count_subscribers("speech") == 1
    latched = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    for number in range(1, 5):
        context = rclpy.Context()
        rclpy.init(context=context)
        node = rclpy.create_node("pub_once", context=context)
        once = node.create_publisher(String, "speech", latched)
        wait_until(once.get_subscription_count, "a subscription")
        once.publish(String(data=f"stop {number}"))
        assert once.wait_for_all_acked(Duration(seconds=TIMEOUT))
        node.destroy_node()
        context.try_shutdown()
        wait_until(functools.partial(page.turns.__contains__, ("user", f"stop {number}")), "it")


class FakeTeacher:
    """The services teach, forget and list_objects of a perception, in the namespace "school"."""

    def __init__(self, node: Any) -> None:
        self.lessons: list[Any] = []
        for kind, name, callback in (
            (TeachObject, "teach", self._teach),
            (ForgetObject, "forget", self._forget),
            (ListObjects, "list_objects", self._list),
        ):
            node.create_service(kind, f"school/{name}", callback)
        latest = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        self._state = node.create_publisher(DialogueState, "school/dialogue_state", latest)
        self.is_there()

    def is_there(self) -> None:
        """Say so, as perception does."""
        self._state.publish(DialogueState(state=DialogueState.STATE_IDLE))

    def _teach(self, request: Any, response: Any) -> Any:
        if not request.box.x_max:
            response.error_code, response.error_msg = response.BAD_BOX, "the box is empty"
        else:
            self.lessons.append(request)
        return response

    def _forget(self, request: Any, response: Any) -> Any:
        self.lessons = [lesson for lesson in self.lessons if lesson.name != request.name]
        return response

    def _list(self, _request: Any, response: Any) -> Any:
        response.objects = [
            TaughtObject(name=lesson.name, other_names=["tacker"], num_examples=1)
            for lesson in self.lessons
        ]
        return response


def test_the_page_teaches_by_the_services_of_perception(client: Client) -> None:
    teacher = FakeTeacher(client.node)
    with console(LivePage(), namespace="school") as robot:
        viewer = robot.page.join(lambda: None)

        def shown(words: str) -> bool:
            teacher.is_there()
            time.sleep(0.05)
            return any(words in str(message) for message in viewer.take())

        wait_until(lambda: shown('"type": "taught", "things": []'), "what was taught: nothing")
        pixels = picture(64, 48)
        robot.teach(pixels, Box(1, 2, 30, 40), "stapler")
        (lesson,) = teacher.lessons
        assert (lesson.name, box_of(lesson.box)) == ("stapler", Box(1, 2, 30, 40))
        assert np.array_equal(to_rgb(lesson.image), pixels)
        wait_until(lambda: shown('"names": ["stapler", "tacker"]'), "the stapler")
        with pytest.raises(ClueError, match="the box is empty"):
            robot.teach(pixels, Box(0, 0, 0, 0), "nothing")
        robot.forget("stapler")
        wait_until(lambda: shown('"type": "taught", "things": []'), "nothing again")


def test_nothing_is_said_in_silence(robot: Any, page: FakePage) -> None:
    with pytest.raises(ClueError, match="say what the robot should do"):
        robot.say("  ")
    robot.say("stop")
    wait_until(lambda: any(speaker == "robot" for speaker, _ in page.turns), "the robot's answer")


def test_two_consoles_show_the_same(client: Client, robot: Any, page: FakePage) -> None:
    client.set(threshold=0.0)
    robot.say(REQUEST)
    page.comes_to("waiting")
    late = FakePage()
    with console(late) as second:
        late.comes_to("waiting")
        assert [q.text for q in late.questions] == [page.questions[-1].text]

        def ended() -> bool:
            # Again, as DDS keeps no speech for a listener that discovers the new console later.
            second.stop()
            time.sleep(0.5)
            return late.state() == "ended"

        wait_until(ended, "the end of the dialogue")
        assert late.comes_to("ended").error == "CANCELED"
    page.comes_to("ended")


def test_the_security_policy_names_exactly_what_the_console_has(
    client: Client, page: FakePage
) -> None:
    must_hold(client.node, "console")


def test_nonsense_on_its_topics_does_not_end_the_console(client: Client) -> None:
    """Of a namespace of its own, so that the others do not hear it."""
    nan = float("nan")
    broken = GroundedObject(box=BoundingBox(x_min=nan, y_min=1e30, x_max=-1.0, y_max=nan))
    state = DialogueState(state=DialogueState.STATE_WAITING_FOR_ANSWER, error_code=999)
    state.question = ClarificationQuestion(text="", candidates=[broken, broken])
    state.question.answer_timeout.sec = -5
    bare = Image(encoding="32FC1", width=2**31, height=2**31)
    unknown = DiagnosticArray(
        status=[DiagnosticStatus(name="/nonsense/perception: clue", level=b"\x07")]
    )
    latest = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
    with console(LivePage(), namespace="nonsense") as robot:
        page = robot.page
        viewer = page.join(lambda: None)
        for topic, message in (
            ("/nonsense/dialogue_state", state),
            ("/nonsense/dialogue_state", DialogueState(state=200)),
            ("/nonsense/grounding", GroundingResult(target=broken)),
            ("/nonsense/perception/attention_map", bare),
            ("/diagnostics", unknown),
            ("/nonsense/perception/heard", String(data="\x00\u202e" * 500)),
        ):
            publisher = client.node.create_publisher(type(message), topic, latest)
            wait_until(functools.partial(client.node.count_subscribers, topic), topic)
            publisher.publish(message)
        alive = client.node.create_publisher(String, "/nonsense/say", 10)
        wait_until(lambda: alive.get_subscription_count() > 0, "say")

        def shown() -> bool:
            alive.publish(String(data="still here"))
            time.sleep(0.1)
            return any("still here" in str(message) for message in viewer.take())

        wait_until(shown, "a message after all the nonsense")


def test_without_perception_the_page_says_so(tmp_path: Path) -> None:
    alone = FakePage()
    # In a namespace of its own: the newest state of a test before may still be on the common topic.
    with console(alone, namespace="alone", perception="/nowhere/perception") as robot:
        wait_until(lambda: alone.statuses and alone.health, "what the page is told at first")
        assert alone.state() == "lost"
        assert alone.health[-1].level == "stale"
        for ask in (lambda: robot.say(REQUEST), robot.stop, lambda: robot.set_option("x", "1")):
            with pytest.raises(ClueError, match="/nowhere/perception sends nothing"):
                ask()


def test_folders_of_further_pages_are_made_or_asked_for(tmp_path: Path) -> None:
    with console(FakePage(), recordings=str(tmp_path / "new" / "episodes")):
        assert (tmp_path / "new" / "episodes").is_dir()
    (tmp_path / "file").touch()
    with (
        pytest.raises(ClueError, match="cannot be made"),
        console(FakePage(), recordings=str(tmp_path / "file" / "x")),
    ):
        pass
    with pytest.raises(ClueError, match="needs both"), console(FakePage(), pairs=str(tmp_path)):
        pass


def test_an_address_of_another_machine_needs_a_token_and_gets_one() -> None:
    import re
    import urllib.error
    import urllib.request

    with console(FakePage(), host="0.0.0.0") as robot:
        found = re.search(r":(\d+)/\?token=(.+)", robot.url)
        assert found
        address = f"http://127.0.0.1:{found[1]}/api/pages"
        for query in ("", "?token=wrong"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(address + query, timeout=10)
            assert refused.value.code == 401
        with urllib.request.urlopen(f"{address}?token={found[2]}", timeout=10) as answer:
            assert answer.status == 200
