"""Image source and typed speech in processes of their own: what a camera and a person would do."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import ros_helpers
from ros_helpers import Client, Process, ros_client, wait_until

ros_helpers.need_ros()

from rclpy.qos import qos_profile_sensor_data  # noqa: E402
from sensor_msgs.msg import CameraInfo, CompressedImage, Image  # noqa: E402
from std_msgs.msg import String  # noqa: E402

from clue_ros.errors import (  # noqa: E402
    BadCalibrationError,
    BadImageError,
)
from clue_ros.nodes import image_source_node  # noqa: E402
from clue_ros.nodes.depth_image import metres  # noqa: E402
from clue_ros.nodes.image_conversion import compressed_to_rgb, to_rgb  # noqa: E402
from clue_ros.nodes.image_source_node import load_depth, open_source  # noqa: E402


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with ros_client("io_tester") as client:
        yield client


def write(path: Path, level: int, width: int = 64, height: int = 48) -> Path:
    cv2.imwrite(str(path), np.full((height, width, 3), level, np.uint8))
    return path


def video(path: Path, levels: tuple[int, ...]) -> Path:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*"MJPG"), 10, (64, 48))
    for level in levels:
        writer.write(np.full((48, 64, 3), level, np.uint8))
    writer.release()
    return path


# Where the pictures come from.


def test_a_folder_gives_its_pictures_in_order_and_a_broken_one_is_named(tmp_path: Path) -> None:
    write(tmp_path / "a.png", 10)
    (tmp_path / "b.png").write_bytes(b"no picture")
    write(tmp_path / "c.png", 30)
    (tmp_path / "notes.txt").write_text("not a picture")
    pictures = open_source(str(tmp_path), loop=False)
    assert pictures.next()[0, 0, 0] == 10  # type: ignore[index]
    with pytest.raises(BadImageError, match=r"b\.png"):
        pictures.next()
    assert pictures.next()[0, 0, 0] == 30  # type: ignore[index]
    assert pictures.next() is None
    looped = open_source(str(tmp_path), loop=True)
    levels = []
    for _ in range(4):
        try:
            levels.append(int(looped.next()[0, 0, 0]))  # type: ignore[index]
        except BadImageError:
            levels.append(-1)
    assert levels == [10, -1, 30, 10]


def test_a_video_ends_or_starts_again(tmp_path: Path) -> None:
    path = str(video(tmp_path / "v.avi", (40, 200)))
    once = open_source(path, loop=False)
    frames = [once.next() for _ in range(3)]
    assert [None if f is None else round(float(f.mean()), -1) for f in frames] == [40, 200, None]
    again = open_source(path, loop=True)
    assert [round(float(again.next().mean()), -1) for _ in range(4)] == [40, 200] * 2  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "source", ["", "missing.png", "empty", "broken.avi", "broken.png", "97", "~nobody_here/a.png"]
)
def test_a_source_that_cannot_be_read_says_so(source: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.avi").write_bytes(b"RIFF nothing")
    (tmp_path / "broken.png").write_bytes(b"\x89PNG nothing")
    name = source if source in ("", "97") or source[0] == "~" else str(tmp_path / source)
    with pytest.raises(BadImageError) as refusal:
        open_source(name, loop=True)
    assert (name or "source") in str(refusal.value)
    with pytest.raises(BadImageError, match="cannot be read"):
        load_depth(name)


def test_camera_info_from_a_field_of_view_and_from_a_file(tmp_path: Path) -> None:
    info = image_source_node.from_fov(640, 480, 90.0)
    assert info.k[0] == pytest.approx(320)
    assert (info.k[2], info.k[5], info.p[0]) == (320, 240, info.k[0])
    path = tmp_path / "camera.yaml"
    eye = "[1, 0, 0, 0, 1, 0, 0, 0, 1]"
    text = (
        "image_width: 64\nimage_height: 48\ndistortion_model: plumb_bob\n"
        "distortion_coefficients: {rows: 1, cols: 5, data: [0.1, 0, 0, 0, 0]}\n"
        "camera_matrix: {data: [70, 0, 32, 0, 70, 24, 0, 0, 1]}\n"
        f"rectification_matrix: {{data: {eye}}}\n"
        "projection_matrix: {data: [70, 0, 32, 0, 0, 70, 24, 0, 0, 0, 1, 0]}\n"
    )
    path.write_text(text)
    read = image_source_node.from_file(path)
    assert (read.width, read.k[0], read.d[0]) == (64, 70, 0.1)
    for broken in ("", "- a list", text.replace("camera_matrix", "other"), text.replace("70,", "")):
        path.write_text(broken)
        with pytest.raises(BadCalibrationError, match=r"camera\.yaml"):
            image_source_node.from_file(path)


# The camera of files.


def test_image_source_is_a_camera(client: Client, tmp_path: Path) -> None:
    images = client.listen(Image, "cam/image", qos_profile_sensor_data)
    infos = client.listen(CameraInfo, "cam/camera_info", qos_profile_sensor_data)
    jpegs = client.listen(CompressedImage, "cam/image/compressed", qos_profile_sensor_data)
    depths = client.listen(Image, "cam/depth", qos_profile_sensor_data)
    first, second = write(tmp_path / "1.png", 50), write(tmp_path / "2.png", 220, 80, 60)
    depth = tmp_path / "depth.png"
    cv2.imwrite(str(depth), np.full((48, 64), 1234, np.uint16))
    source = Process(
        "image_source",
        tmp_path / "log",
        *("--ros-args", "-r", "__ns:=/cam"),
        parameters={
            "source": first,
            "rate": 20.0,
            "compressed": True,
            "frame_id": "eye",
            "depth": depth,
        },
    )
    try:
        wait_until(lambda: images and infos and jpegs and depths, "one of each topic")
        assert to_rgb(images[-1]).mean() == 50
        assert images[-1].header.frame_id == infos[-1].header.frame_id == "eye"
        assert (infos[-1].width, infos[-1].height) == (64, 48)
        assert compressed_to_rgb(jpegs[-1].data, jpegs[-1].format).mean() == pytest.approx(
            50, abs=2
        )
        stamps = {(m.header.stamp.sec, m.header.stamp.nanosec) for m in infos}
        both = stamps & {(m.header.stamp.sec, m.header.stamp.nanosec) for m in images}
        assert both, "no image has the stamp of a CameraInfo"
        assert (depths[-1].encoding, depths[-1].header.frame_id) == ("16UC1", "eye")
        assert metres(depths[-1], 0.1, 10.0) == pytest.approx(np.full((48, 64), 1.234))
        assert "16-bit" in set_source(client, str(first), "depth")
        refusal = set_source(client, str(tmp_path / "missing.png"))
        assert "missing.png" in refusal
        changes = {"source": str(second), "camera_info": str(tmp_path / "no.yaml")}
        assert "no.yaml" in set_together(client, **changes)
        count = len(images)
        wait_until(lambda: len(images) > count + 2, "more images")
        assert images[-1].width == 64, "of what is refused together nothing is taken"
        assert set_source(client, str(second)) == ""
        wait_until(lambda: images[-1].width == 80, "the second picture")
        assert to_rgb(images[-1]).mean() == 220
    finally:
        assert source.stop() == 0, source.text()


def set_together(client: Client, **values: str) -> str:
    from rcl_interfaces.srv import SetParametersAtomically
    from rclpy.parameter import Parameter

    service = client.node.create_client(
        SetParametersAtomically, "/cam/image_source/set_parameters_atomically"
    )
    changes = [Parameter(name, value=value).to_parameter_msg() for name, value in values.items()]
    request = SetParametersAtomically.Request(parameters=changes)
    return str(client.call(service, request).result.reason)


def set_source(client: Client, value: str, name: str = "source") -> str:
    from rcl_interfaces.srv import SetParameters
    from rclpy.parameter import Parameter

    service = client.node.create_client(SetParameters, "/cam/image_source/set_parameters")
    request = SetParameters.Request(parameters=[Parameter(name, value=value).to_parameter_msg()])
    return str(client.call(service, request).results[0].reason)


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        ({"source": "/nowhere/a.png"}, "/nowhere/a.png"),
        ({"source": "/nowhere/a.png", "rate": 0.0}, "rate"),
        ({"source": 3.5}, "source"),
    ],
    ids=["missing", "range", "type"],
)
def test_image_source_ends_with_one_line_when_it_cannot_begin(
    parameters: dict[str, Any], words: str, tmp_path: Path
) -> None:
    source = Process("image_source", tmp_path / "log", parameters=parameters)
    assert source.popen.wait(60) == 2
    assert words in source.text()
    assert "Traceback" not in source.text()
    source.stop()


# Speech, typed.


def test_typed_lines_go_out_as_speech(client: Client, tmp_path: Path) -> None:
    heard = client.listen(String, "typed/speech", 10)
    speech = Process(
        "speech", tmp_path / "log", "--ros-args", "-r", "__ns:=/typed", stdin=subprocess.PIPE
    )
    assert speech.popen.stdin is not None
    speech.popen.stdin.write("pick up the block\n\n   \nthe left one \N{GRINNING FACE}\n".encode())
    speech.popen.stdin.close()
    wait_until(lambda: len(heard) >= 2, "two lines")
    assert [m.data for m in heard] == ["pick up the block", "the left one \N{GRINNING FACE}"]
    wait_until(lambda: "stdin has ended" in speech.text(), "a word about the end of stdin")
    assert speech.popen.poll() is None, "it should stay, quiet"
    assert speech.stop() == 0


def test_without_clue_msgs_perception_says_how_to_get_it(tmp_path: Path) -> None:
    hidden = tmp_path / "clue_msgs"
    hidden.mkdir()
    (hidden / "__init__.py").write_text("raise ImportError('not built')\n")
    code = f"import runpy, sys; sys.path.insert(0, {str(tmp_path)!r}); "
    code += "sys.argv = ['executables', 'perception']; "
    code += "runpy.run_module('clue_ros.nodes.executables', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert "colcon build --packages-select clue_msgs" in done.stderr
    assert "Traceback" not in done.stderr
