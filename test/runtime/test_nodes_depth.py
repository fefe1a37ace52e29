"""Depth beside the image: which one belongs to it, what it says in metres, and what comes out."""

from __future__ import annotations

import array
import math
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import cv2
import numpy as np
import pytest
import ros_helpers

ros_helpers.need_ros()

import rclpy  # noqa: E402
from clue_msgs.action import GroundWithDialogue  # noqa: E402
from geometry_msgs.msg import (  # noqa: E402
    PoseWithCovarianceStamped,
    Quaternion,
    TransformStamped,
    Vector3,
)
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.qos import qos_profile_sensor_data  # noqa: E402
from ros_fixtures import REQUEST  # noqa: E402
from ros_helpers import Client, isolate, picture, wait_until  # noqa: E402
from sensor_msgs.msg import (  # noqa: E402
    CameraInfo,
    CompressedImage,
    Image,
    PointCloud2,
    RegionOfInterest,
)

from clue_ros.dialogue.types import Box  # noqa: E402
from clue_ros.errors import NoPoseError  # noqa: E402
from clue_ros.nodes import image_source_node  # noqa: E402
from clue_ros.nodes.depth import (  # noqa: E402
    KEPT,
    DepthSettings,
    DepthSubscriber,
    FrameDepth,
    info_topic,
    pinhole,
)
from clue_ros.nodes.depth_image import metres  # noqa: E402
from clue_ros.nodes.image_conversion import fill_image  # noqa: E402
from clue_ros.nodes.pose_from_depth import Place, quaternion  # noqa: E402
from clue_ros.nodes.transforms import BODY, Transforms  # noqa: E402

WALL = 0.8  # metres from the camera to all that it sees
WIDTH, HEIGHT = 160, 120
SECOND = 1_000_000_000


def message(values: Any, encoding: str = "32FC1", stamp: int = 0, frame: str = "eye") -> Image:
    """A depth image; `stamp` in nanoseconds."""
    image = fill_image(Image(), np.asarray(values), encoding)
    image.header.stamp.sec, image.header.stamp.nanosec = divmod(stamp, SECOND)
    image.header.frame_id = frame
    return image


def wall(stamp: int = 0, frame: str = "eye") -> Image:
    return message(np.full((HEIGHT, WIDTH), WALL, np.float32), "32FC1", stamp, frame)


def calibration(frame: str = "eye") -> CameraInfo:
    info = image_source_node.from_fov(WIDTH, HEIGHT, 60.0)
    info.header.frame_id = frame
    return info


# Metres.


def test_millimetres_and_metres_are_metres_and_what_is_no_reading_is_a_hole() -> None:
    millimetres = np.array([[0, 99, 100], [1500, 10000, 10001]], np.uint16)
    expected = np.array([[np.nan, np.nan, 0.1], [1.5, 10.0, np.nan]])
    assert metres(message(millimetres, "16UC1"), 0.1, 10.0) == pytest.approx(expected, nan_ok=True)
    values = np.array([[np.nan, np.inf, -np.inf], [-1.0, 0.0, 2.5]], np.float32)
    holes = np.array([[np.nan] * 3, [np.nan, np.nan, 2.5]])
    assert metres(message(values), 0.1, 10.0) == pytest.approx(holes, nan_ok=True)


def test_padded_rows_and_both_byte_orders_are_read() -> None:
    values = np.array([[500, 1000], [1500, 2000]], np.uint16)
    padded = np.zeros((2, 3), np.uint16)
    padded[:, :2] = values
    for order, big in ((">", 1), ("<", 0)):
        image = message(values, "16UC1")
        image.step, image.is_bigendian = 6, big
        data = padded.astype(f"{order}u2").tobytes()
        image.data = array.array("B", data[:-2])  # the last row comes without its padding
        assert metres(image, 0.1, 10.0) == pytest.approx(values / 1000)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"encoding": "rgb8"}, "16UC1"),
        ({"step": 3}, "step is 3"),
        ({"height": 5000}, "needs"),
        ({"width": 0}, "empty"),
        ({"height": 60_000, "width": 60_000}, "60000"),
    ],
)
def test_a_broken_depth_image_is_refused_in_words(change: dict[str, Any], words: str) -> None:
    image = wall()
    for name, value in change.items():
        setattr(image, name, value)
    with pytest.raises(NoPoseError, match=words):
        metres(image, 0.1, 10.0)


def compressed_bytes(picture: Any) -> Any:
    return array.array("B", 12 * b"\0" + cv2.imencode(".png", picture)[1].tobytes())


def compressed(counts: Any, encoding: str = "16UC1", numbers: tuple[float, float] = (0, 0)) -> Any:
    """A message of the transport compressedDepth: 12 bytes, then a PNG."""
    png = cv2.imencode(".png", counts)[1].tobytes()
    data = struct.pack("<iff", 0, *numbers) + png
    message = CompressedImage(
        format=f"{encoding}; compressedDepth png", data=array.array("B", data)
    )
    message.header = wall().header
    return message


def test_compressed_depth_is_a_png_behind_twelve_bytes() -> None:
    counts = np.array([[0, 99, 100], [1500, 10000, 10001]], np.uint16)
    expected = metres(message(counts, "16UC1"), 0.1, 10.0)
    assert metres(compressed(counts), 0.1, 10.0) == pytest.approx(expected, nan_ok=True)
    # Inverse depths, as image_transport_plugins quantises 32FC1 (quantization 100, to 10 m).
    scale = 100.0 * 101.0
    offset = 1.0 - scale / 10.0
    depth = np.array([[0.5, 1.0, 9.0]])
    packed = compressed((scale / depth + offset).astype(np.uint16), "32FC1", (scale, offset))
    assert metres(packed, 0.1, 20.0) == pytest.approx(depth, rel=0.01)
    none = metres(compressed(np.zeros((2, 2), np.uint16), "32FC1", (scale, offset)), 0.1, 20.0)
    assert np.isnan(none).all()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "16UC1; compressedDepth rvl"}, "as PNG"),
        ({"format": "16UC1; jpeg compressed"}, "compressedDepth"),
        ({"format": "rgb8; compressedDepth png"}, "want 16UC1 or 32FC1"),
        ({"data": array.array("B", b"0123456789")}, "10 bytes"),
        ({"data": array.array("B", 12 * b"0" + b"\x89PNG nothing")}, "broken"),
        ({"data": compressed_bytes(np.zeros((4, 4), np.uint8))}, "16 bits"),
    ],
)
def test_compressed_depth_of_another_kind_is_refused_in_words(
    change: dict[str, Any], words: str
) -> None:
    packed = compressed(np.ones((4, 4), np.uint16))
    for name, value in change.items():
        setattr(packed, name, value)
    with pytest.raises(NoPoseError, match=words):
        metres(packed, 0.1, 10.0)


@pytest.mark.parametrize("unit", [0.000125, 0.0002])
def test_a_count_is_depth_unit_metres(unit: float) -> None:
    counts = np.array([[round(0.8 / unit)]], np.uint16)
    for depth in (message(counts, "16UC1"), compressed(counts)):
        assert metres(depth, 0.1, 10.0, unit) == pytest.approx(0.8, abs=unit)
    assert metres(wall(), 0.1, 10.0, unit) == pytest.approx(WALL), "metres stay metres"


# As a driver wrote it that had not loaded its calibration, and one whose D was read as K.
UNFILLED = [772.8685, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 6.9e-310, 2.5e-323]
SQUARE = [500.0, 0.0, 239.5, 0.0, 500.0, 239.5, 0.0, 0.0, 1.0]
RATIONAL = [0.3338, -0.03908, -7.1e-05, -1.8e-05, -0.0015, 0.6651, -0.00981, -0.00932]


@pytest.mark.parametrize(
    ("k", "d", "words"),
    [
        (UNFILLED, [0.0] * 5, "772.9 and 1 pixels"),
        ([500.0, 0.0, 0.0, 0.0, 500.0, 239.5, 0.0, 0.0, 1.0], [], "principal point, 0 239.5"),
        ([500.0, 0.0, 239.5, 0.0, 500.0, 700.0, 0.0, 0.0, 1.0], [], "480x480"),
        (SQUARE, [-1200.0, 3400.0, 150.0, -80.0, 900.0], "D cannot be undone"),
    ],
)
def test_a_calibration_that_no_camera_has_gives_no_pose(
    k: list[float], d: list[float], words: str
) -> None:
    info = CameraInfo(width=480, height=480, k=k, d=d, distortion_model="plumb_bob")
    with pytest.raises(NoPoseError, match=words):
        pinhole(info, rectified=False)


def test_a_rational_model_with_fourteen_coefficients_works() -> None:
    d = [*RATIONAL, 0.0, 0.0, 0.0, 0.0, 0.000197, -0.000532]
    info = CameraInfo(width=480, height=480, k=SQUARE, d=d, distortion_model="rational_polynomial")
    x, y = np.meshgrid(np.linspace(0, 479, 9), np.linspace(0, 479, 9))
    assert np.isfinite(pinhole(info, rectified=False).rays(x, y)).all()


def test_camera_info_counts_with_its_region_and_binning() -> None:
    info = image_source_node.from_fov(640, 480, 60.0)
    whole = pinhole(info, rectified=False)
    info.binning_x = info.binning_y = 2
    info.roi = RegionOfInterest(x_offset=100, y_offset=40, width=320, height=240)
    part = pinhole(info, rectified=False)
    assert (part.width, part.height, part.fx) == (160, 120, whole.fx / 2)
    assert (part.cx, part.cy) == ((320 - 100) / 2, (240 - 40) / 2)
    info.d = [0.1, 0.0, 0.0, 0.0, 0.0]
    assert pinhole(info, rectified=False).distortion
    assert not pinhole(info, rectified=True).distortion
    far = RegionOfInterest(x_offset=600, y_offset=400, width=40, height=80)
    info.roi, info.binning_x, info.binning_y = far, 1, 1
    assert pinhole(info, rectified=False).cx < 0, "the middle may lie outside of a region"
    with pytest.raises(NoPoseError, match="calibrate"):
        pinhole(CameraInfo(width=640, height=480), rectified=False)


# Which depth image belongs to an image.


@pytest.fixture(scope="module")
def subscriber() -> Iterator[Any]:
    """Give a node to subscribe with."""
    isolate()
    context = rclpy.Context()
    rclpy.init(context=context)
    node = rclpy.create_node("eye", context=context)
    yield node
    node.destroy_node()
    context.try_shutdown()


@pytest.fixture
def depths(subscriber: Any) -> Iterator[DepthSubscriber]:
    made = DepthSubscriber(DepthSettings)
    made.open(subscriber, None)
    made.put_info(calibration())
    yield made
    made.close()


def follow(depths: DepthSubscriber, stamp: int, frame: str = "eye") -> FrameDepth:
    return depths.follow(wall(stamp, frame).header)


def matched(depths: DepthSubscriber, wanted: FrameDepth) -> int:
    stamp = depths.match(wanted)[0].header.stamp
    return int(stamp.sec * SECOND + stamp.nanosec)


def test_the_depth_image_nearest_in_time_is_the_one_before_or_after_the_image(
    depths: DepthSubscriber,
) -> None:
    for stamp in (960, 990, 1020):
        depths.put(wall(stamp * 1_000_000))
    before = follow(depths, SECOND)
    assert matched(depths, before) == 990_000_000
    after = follow(depths, 1_052_000_000)
    for stamp in (1050, 1080, 1110):
        depths.put(wall(stamp * 1_000_000))
    assert matched(depths, after) == 1_050_000_000


def test_a_depth_image_on_its_way_is_waited_for(depths: DepthSubscriber) -> None:
    depths.put(wall(SECOND - 40_000_000))
    wanted = follow(depths, SECOND)
    late = threading.Timer(0.1, depths.put, (wall(SECOND),))
    late.start()
    assert matched(depths, wanted) == SECOND


def test_depth_that_lags_behind_some_images_finds_its_own(depths: DepthSubscriber) -> None:
    period = SECOND // 30
    wanted = [follow(depths, SECOND + i * period) for i in range(4)]
    for i in range(4):
        depths.put(wall(SECOND + i * period))
    for later in range(KEPT + 1):  # the model has taken its time
        depths.put(wall(2 * SECOND + later * period))
    assert [matched(depths, w) for w in wanted] == [SECOND + i * period for i in range(4)]


def test_an_images_depth_is_kept_however_long_its_dialogue_lasts(depths: DepthSubscriber) -> None:
    depths.put(wall(SECOND))
    wanted = follow(depths, SECOND)
    for later in range(2, 3 * KEPT):
        depths.put(wall(later * SECOND))
        follow(depths, later * SECOND)
    assert matched(depths, wanted) == SECOND


def test_depth_of_another_time_or_camera_is_refused_in_words(depths: DepthSubscriber) -> None:
    depths.put(wall(SECOND))
    with pytest.raises(NoPoseError, match=r"0\.500 s from the image"):
        follow(depths, SECOND + SECOND // 2).locator(WIDTH, HEIGHT)
    with pytest.raises(NoPoseError, match="registered"):
        follow(depths, SECOND, "another_frame").locator(WIDTH, HEIGHT)
    with pytest.raises(NoPoseError, match="not of the same camera"):
        follow(depths, SECOND).locator(WIDTH, WIDTH)
    depths.put_info(calibration("another_frame"))
    with pytest.raises(NoPoseError, match="camera_info is in the frame 'another_frame'"):
        follow(depths, SECOND).locator(WIDTH, HEIGHT)


# The frame of the poses.

BOX = Box(40, 30, 120, 90)


class Eye:
    """A subscriber that has seen a wall 0.8 m away, with parameters of its own."""

    def __init__(self, node: Any, frame: str, **settings: Any) -> None:
        self.transforms, self._frame = Transforms(), frame
        self.depths = DepthSubscriber(lambda: DepthSettings(**settings), transforms=self.transforms)
        self.depths.open(node, None)
        self.depths.put_info(calibration(frame))
        self.depths.put(wall(SECOND, frame))

    def place(self) -> Place:
        """Locate the middle of the picture."""
        return follow(self.depths, SECOND, self._frame).locator(WIDTH, HEIGHT)(BOX)


@pytest.fixture
def eyes(subscriber: Any) -> Iterator[Callable[..., Eye]]:
    made: list[Eye] = []

    def make(frame: str = "eye_optical_frame", **settings: Any) -> Eye:
        made.append(Eye(subscriber, frame, **settings))
        return made[-1]

    yield make
    for eye in made:
        eye.depths.close()


def test_a_pose_is_in_the_images_frame_as_that_one_is_said_to_be(eyes: Callable[..., Eye]) -> None:
    optical = eyes().place()
    assert (optical.frame, optical.position[2]) == ("", pytest.approx(WALL, abs=0.01))
    assert eyes("eye_link", optical_frame="given").place().position == pytest.approx(
        optical.position
    )
    body = eyes("eye_link", optical_frame="convert").place()
    x, y, z = optical.position
    assert body.frame == "eye_link"
    assert body.position == pytest.approx([z, -x, -y])
    # A name that says nothing is taken as given; tf tells of an optical frame beside it.
    eye = eyes("eye_link")
    assert eye.place().position == pytest.approx(optical.position)
    q = dict(zip("xyzw", quaternion(BODY), strict=True))
    beside = TransformStamped(child_frame_id="eye_optical")
    beside.header.frame_id, beside.transform.rotation = "eye_link", Quaternion(**q)
    eye.transforms.put([beside], fixed=True)
    assert eye.place().position == pytest.approx(body.position)


def test_a_frame_that_may_be_no_optical_one_is_warned_of_once(
    eyes: Callable[..., Eye], capfd: pytest.CaptureFixture[str]
) -> None:
    for frame, words in (("", "empty frame_id"), ("eye_link", "'eye_link', does not say")):
        eye = eyes(frame)
        for _ in range(2):
            eye.place()
        assert capfd.readouterr().err.count(words) == 1
    for frame, setting in (("eye_optical_frame", "auto"), ("eye_link", "given")):
        eyes(frame, optical_frame=setting).place()
        assert "frame" not in capfd.readouterr().err


def test_poses_are_published_in_the_target_frame_or_the_reason_is_given(
    eyes: Callable[..., Eye],
) -> None:
    optical = eyes().place()
    eye = eyes(target_frame="base_link")
    with pytest.raises(NoPoseError, match="target_frame 'base_link': tf has no frame"):
        eye.place()
    above = TransformStamped(child_frame_id="eye_optical_frame")
    above.header.frame_id = "base_link"
    above.transform.translation = Vector3(x=0.1, y=0.2, z=0.3)
    above.transform.rotation = Quaternion(x=1.0, w=0.0)  # it looks down
    above.header.stamp.sec = 1
    eye.transforms.put([above], fixed=False)
    place = eye.place()
    x, y, z = optical.position
    assert place.frame == "base_link"
    assert place.position == pytest.approx([0.1 + x, 0.2 - y, 0.3 - z])
    assert eyes("base_link", target_frame="base_link").place().frame == ""
    with pytest.raises(NoPoseError, match="empty frame_id"):
        eyes("", target_frame="base_link").place()


def test_the_transform_of_an_image_is_kept_as_long_as_its_dialogue(
    eyes: Callable[..., Eye],
) -> None:
    eye = eyes(target_frame="base_link")
    step = TransformStamped(child_frame_id="eye_optical_frame")
    step.header.frame_id, step.header.stamp.sec = "base_link", 1
    step.transform.rotation = Quaternion(w=1.0)
    eye.transforms.put([step], fixed=False)
    depth = follow(eye.depths, SECOND, "eye_optical_frame")
    first = depth.locator(WIDTH, HEIGHT)(BOX)
    step.header.stamp.sec = 1000
    step.transform.translation.x = 5.0
    eye.transforms.put([step], fixed=False)  # tf has forgotten the time of the image
    assert depth.locator(WIDTH, HEIGHT)(BOX).position == pytest.approx(first.position)


def test_depth_that_is_registered_under_another_name_is_taken_where_it_is_said(
    eyes: Callable[..., Eye],
) -> None:
    for registered in (False, True):
        eye = eyes("depth_frame", depth_registered=registered)
        depth = follow(eye.depths, SECOND, "eye_optical_frame")
        if registered:
            assert depth.locator(WIDTH, HEIGHT)(BOX).position[2] == pytest.approx(WALL, abs=0.01)
        else:
            with pytest.raises(NoPoseError, match="set the parameter depth_registered"):
                depth.locator(WIDTH, HEIGHT)


def test_compressed_depth_is_subscribed_where_only_it_exists(subscriber: Any) -> None:
    depths = DepthSubscriber(DepthSettings)
    depths.open(subscriber, None)
    heard: list[str] = []
    packed = compressed(np.full((HEIGHT, WIDTH), int(WALL * 1000), np.uint16))

    def received() -> bool:
        rclpy.spin_once(subscriber, executor=executor, timeout_sec=0.02)
        depths.follow_publishers()
        source.publish(packed if source is squeezed else wall(SECOND, "eye"))
        count, heard[:] = depths.count, [depths.lacks()["depth"]]
        return count > 0

    executor = SingleThreadedExecutor(context=subscriber.context)
    squeezed = subscriber.create_publisher(
        CompressedImage, "depth/compressedDepth", qos_profile_sensor_data
    )
    assert "nobody publishes /depth" in depths.lacks()["depth"]
    source = squeezed
    wait_until(received, "compressed depth")
    assert heard == ["comes on /depth/compressedDepth"]
    depths.put_info(calibration())
    place = follow(depths, SECOND).locator
    with pytest.raises(NoPoseError, match="depth_slop"):  # its stamp is 0: it is this message
        place(WIDTH, HEIGHT)
    raw = subscriber.create_publisher(Image, "depth", qos_profile_sensor_data)
    source = raw
    wait_until(lambda: received() and heard == ["comes on /depth"], "raw depth, which is better")
    depths.close()
    assert depths.lacks() == dict.fromkeys(("depth", "calibration"), "not subscribed")
    for publisher in (squeezed, raw):
        subscriber.destroy_publisher(publisher)


def test_diagnostics_say_what_depth_and_calibration_lack(subscriber: Any) -> None:
    off = DepthSubscriber(lambda: DepthSettings(use_depth=False))
    off.open(subscriber, None)
    assert off.lacks()["depth"] == "off (use_depth is false)"
    depths = DepthSubscriber(DepthSettings)
    depths.open(subscriber, None)
    lacks = depths.lacks()
    assert lacks["depth"] == "nobody publishes /depth: no poses"
    assert lacks["calibration"] == "nobody publishes /camera_info: no poses"
    depths.put_info(CameraInfo(width=480, height=480, k=UNFILLED))
    assert "calibrate the camera" in depths.lacks()["calibration"]
    depths.put_info(calibration())
    assert depths.lacks()["calibration"] == "comes on /camera_info"
    depths.close()


def test_what_is_missing_is_named(subscriber: Any) -> None:
    depths = DepthSubscriber(DepthSettings)
    wanted = follow(depths, SECOND)
    with pytest.raises(NoPoseError, match="use_depth"):
        wanted.locator(WIDTH, HEIGHT)
    depths.open(subscriber, None)
    with pytest.raises(NoPoseError, match="no depth image has arrived on /depth"):
        follow(depths, SECOND).locator(WIDTH, HEIGHT)
    depths.put(wall(SECOND))
    with pytest.raises(NoPoseError, match="no CameraInfo has arrived on /camera_info"):
        follow(depths, SECOND).locator(WIDTH, HEIGHT)
    depths.close()
    with pytest.raises(NoPoseError, match="use_depth"):
        follow(depths, SECOND).locator(WIDTH, HEIGHT)


@pytest.mark.parametrize(
    ("rules", "topic"),
    [
        ([], "/camera_info"),
        (["image:=/eye/color/image_raw"], "/eye/color/camera_info"),
        (["image:=/eye/image_raw", "camera_info:=/calibration"], "/calibration"),
        (["__ns:=/arm"], "/arm/camera_info"),
    ],
    ids=["plain", "image", "both", "namespace"],
)
def test_camera_info_is_looked_for_beside_the_image(rules: list[str], topic: str) -> None:
    context = rclpy.Context()
    rclpy.init(context=context)
    arguments = ["--ros-args", *(word for rule in rules for word in ("-r", rule))]
    eye = rclpy.create_node("eye", context=context, cli_args=arguments)
    try:
        assert eye.resolve_topic_name(info_topic(eye)) == topic
    finally:
        eye.destroy_node()
        context.try_shutdown()


# Over DDS. The model's weights are random, so the box is anywhere: all that is seen is a wall.


class RgbdCamera:
    """A colour image, its depth and its calibration, with one stamp and one frame."""

    def __init__(self, client: Client) -> None:
        self._client = client
        create = client.node.create_publisher
        self._colour = create(Image, "image", qos_profile_sensor_data)
        self._depth = create(Image, "depth", qos_profile_sensor_data)
        self._info = create(CameraInfo, "camera_info", qos_profile_sensor_data)
        self.late = 0  # nanoseconds from the image's stamp to the depth's
        self.frame = "test_camera"
        self.with_depth = True

    def show(self) -> None:
        """Publish one of each."""
        image = self._client.image()
        stamp = image.header.stamp.sec * SECOND + image.header.stamp.nanosec
        if self.with_depth:
            depth = np.full((HEIGHT // 2, WIDTH // 2), WALL * 1000, np.uint16)
            self._depth.publish(message(depth, "16UC1", stamp + self.late, self.frame))
            info = calibration("test_camera")
            info.header.stamp = image.header.stamp
            self._info.publish(info)
        self._colour.publish(image)


@pytest.fixture(scope="module")
def rgbd(shared: Client) -> RgbdCamera:
    return RgbdCamera(shared)


@pytest.fixture
def eye(client: Client, rgbd: RgbdCamera) -> Iterator[RgbdCamera]:
    rgbd.late, rgbd.frame, rgbd.with_depth = 0, "test_camera", True
    client.set(masks=True)
    client.start_camera(rgbd.show)
    wait_until(lambda: client.ground(REQUEST).grounding.target.has_pose, "depth of an image")
    client.clear()
    yield rgbd
    client.set(masks=False)
    client.stop_camera()


def at_the_wall(found: Any) -> None:
    """Check that an object is where its box meets the wall."""
    assert found.has_pose, found.no_pose_reason
    assert found.no_pose_reason == ""
    assert found.pose.header == found.header
    assert found.header.frame_id == "test_camera"
    focal = WIDTH / 2 / math.tan(math.radians(30))
    box, at = found.box, found.pose.pose.position
    pixel = WALL / focal
    x = ((box.x_min + box.x_max) / 2 - 0.5 - WIDTH / 2) * pixel
    y = ((box.y_min + box.y_max) / 2 - 0.5 - HEIGHT / 2) * pixel
    assert (at.x, at.y, at.z) == pytest.approx((x, y, WALL), abs=2.5 * pixel)
    sides = sorted([(box.x_max - box.x_min) * pixel, (box.y_max - box.y_min) * pixel])
    assert sorted([found.size.x, found.size.y]) == pytest.approx(sides, abs=5 * pixel)
    assert found.size.z < 0.01
    q = found.pose.pose.orientation
    assert math.hypot(q.x, q.y, q.z, q.w) == pytest.approx(1)


def without_pose(found: Any, words: str) -> None:
    """Check that an object says why it has no pose, and that nobody could take it for one."""
    assert not found.has_pose
    assert words in found.no_pose_reason
    assert math.isnan(found.pose.pose.position.z)
    assert math.isnan(found.size.x)


def test_the_grounding_has_its_pose_from_the_topics(client: Client, eye: RgbdCamera) -> None:
    handle = client.goal(REQUEST)
    end = client.result(handle)
    at_the_wall(end.result.grounding.target)
    target = client.next("grounding").target
    at_the_wall(target)
    mask = np.frombuffer(target.mask.data, np.uint8).reshape(HEIGHT, WIDTH)
    assert (target.mask.encoding, target.mask.header) == ("mono8", target.header)
    assert set(np.unique(mask)) == {0, 255}
    box = target.box
    middle = mask[int((box.y_min + box.y_max) / 2), int((box.x_min + box.x_max) / 2)]
    assert middle == 255


def test_every_candidate_has_its_mask_score_and_pose(client: Client, eye: RgbdCamera) -> None:
    client.set(threshold=0.0)
    handle = client.goal(REQUEST)
    question = client.next("question")
    candidates = question.candidates
    assert candidates
    assert all(0 <= candidate.score <= 1 for candidate in candidates)
    for candidate in candidates:
        assert (candidate.mask.width, candidate.mask.height) == (WIDTH, HEIGHT)
        mask = np.frombuffer(candidate.mask.data, np.uint8).reshape(HEIGHT, WIDTH)
        ys, xs = np.nonzero(mask)
        box = candidate.box
        # The object at the peak may be wider than the peak, which the box encloses.
        across, down = 0.2 * (box.x_max - box.x_min) + 1, 0.2 * (box.y_max - box.y_min) + 1
        assert box.x_min - across <= xs.min() < xs.max() < box.x_max + across
        assert box.y_min - down <= ys.min() < ys.max() < box.y_max + down
        at_the_wall(candidate)
    client.cancel(handle)
    client.result(handle)


def test_markers_show_where_the_object_is(client: Client, eye: RgbdCamera) -> None:
    from visualization_msgs.msg import Marker, MarkerArray

    seen = client.listen(MarkerArray, "perception/markers", 10)
    target = client.ground(REQUEST).grounding.target
    wait_until(lambda: any(len(array.markers) > 1 for array in seen), "the object's markers")
    first, box, *_ = next(array for array in seen if len(array.markers) > 1).markers
    assert (first.action, box.type) == (Marker.DELETEALL, Marker.CUBE)
    assert (box.header, box.pose) == (target.header, target.pose.pose)


def test_planners_get_a_grasp_and_the_objects_points(client: Client, eye: RgbdCamera) -> None:
    grasps = client.listen(PoseWithCovarianceStamped, "perception/grasp_pose", 10)
    clouds = client.listen(PointCloud2, "perception/object_cloud", 10)
    target = wait_until(
        lambda: (t := client.ground(REQUEST).grounding.target) and grasps and clouds and t,
        "a grasp and a cloud",
    )
    grasp, cloud = grasps[-1], clouds[-1]
    assert grasp.header.frame_id == cloud.header.frame_id == target.pose.header.frame_id
    at = target.pose.pose.position
    assert grasp.pose.pose.position.z == pytest.approx(at.z, abs=0.01)
    assert np.array(grasp.pose.covariance).reshape(6, 6)[2, 2] > 0
    points = np.frombuffer(cloud.data, "<f4").reshape(-1, 3)
    assert len(points) == cloud.width >= 12
    assert points[:, 2] == pytest.approx(WALL, abs=0.01)


def test_masks_come_only_where_they_are_asked_for(client: Client, eye: RgbdCamera) -> None:
    client.set(masks=False)
    target = client.ground(REQUEST).grounding.target
    assert (target.mask.width, len(target.mask.data)) == (0, 0)
    client.set(threshold=0.0)
    candidates = client.ground(REQUEST).question.candidates
    assert candidates
    assert all(candidate.mask.width == 0 for candidate in candidates)
    client.set(masks=True)  # of a question's candidates, and of an object in an image of one's own
    image = client.image(picture(WIDTH, HEIGHT))
    asked = client.ground(REQUEST, image).question.candidates
    found = client.ground(REQUEST, image, force=True).grounding.target
    assert len(asked) == len(candidates)
    for one in (*asked, found):
        assert (one.mask.width, one.mask.height, one.mask.encoding) == (WIDTH, HEIGHT, "mono8")
        assert set(one.mask.data) == {0, 255}


def test_a_request_brings_its_own_depth(client: Client, eye: RgbdCamera) -> None:
    client.stop_camera()
    image, depth = client.image(picture(WIDTH, HEIGHT)), wall(0, "test_camera")
    camera = calibration("test_camera")

    def target(**fields: Any) -> Any:
        return client.ground(REQUEST, image, **fields).grounding.target

    without_pose(target(), "an image and no depth")
    without_pose(target(depth=depth), "camera_info gives no image size")
    at_the_wall(target(depth=depth, camera_info=camera))
    cut = wall(0, "test_camera")
    cut.data = cut.data[:100]
    without_pose(target(depth=cut, camera_info=camera), "100 bytes")
    goal = client.goal(REQUEST, image=image, depth=depth, camera_info=camera)
    at_the_wall(client.result(goal).result.grounding.target)


def test_depth_of_another_time_or_frame_or_none_is_said(client: Client, eye: RgbdCamera) -> None:
    def reason() -> str:
        response = client.ground(REQUEST)
        assert response.error_code == GroundWithDialogue.Result.NONE
        target = response.grounding.target
        if not target.has_pose:
            without_pose(target, "")
        return str(target.no_pose_reason)

    wait_until(lambda: reason() == "", "a pose")
    eye.late = -SECOND
    wait_until(lambda: "depth_slop" in reason(), "depth that is late")
    eye.late, eye.frame = 0, "test_depth_camera"
    wait_until(lambda: "test_depth_camera" in reason(), "depth in another frame")
    eye.frame = "test_camera"
    wait_until(lambda: reason() == "", "a pose again")


def test_a_simulators_body_frame_is_converted(client: Client, eye: RgbdCamera) -> None:
    assert "deactivate" in client.set(optical_frame="convert")
    assert client.transition("deactivate")
    assert client.set(optical_frame="convert") == ""
    try:
        assert client.transition("activate")
        target = wait_until(
            lambda: (t := client.ground(REQUEST).grounding.target).has_pose and t, "a pose"
        )
        assert target.pose.pose.position.x == pytest.approx(WALL, abs=0.01)
        assert target.pose.header == target.header
    finally:
        assert client.transition("deactivate")
        assert client.set(optical_frame="auto") == ""
        assert client.transition("activate")


def test_depth_can_be_left_out(client: Client, eye: RgbdCamera) -> None:
    assert "deactivate" in client.set(use_depth=False)
    assert client.transition("deactivate")
    assert client.set(use_depth=False) == ""
    try:
        assert client.transition("activate")
        response = wait_until(
            lambda: (r := client.ground(REQUEST)).error_code == 0 and r, "an image"
        )
        without_pose(response.grounding.target, "use_depth is false")
        heard = client.node.get_subscriber_names_and_types_by_node("perception", "/")
        assert "/depth" not in dict(heard)
    finally:
        assert client.transition("deactivate")
        assert client.set(use_depth=True) == ""
        assert client.transition("activate")
