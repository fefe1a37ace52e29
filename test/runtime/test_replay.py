"""Bags that were recorded: pictures and requests in them, and what is said of broken ones."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rosbags", reason="rosbags is not installed (extra bags)")

from PIL import Image as Pillow
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

from clue_ros.cli import main
from clue_ros.nodes.replay import opened

STORE = get_typestore(Stores.LATEST)
STORE.register(get_types_from_msg("float32 grip\n", "lab_msgs/msg/Gripper"))
Header, Time = STORE.types["std_msgs/msg/Header"], STORE.types["builtin_interfaces/msg/Time"]
SECOND = 1_000_000_000
PICTURE = np.full((48, 64, 3), (200, 30, 30), np.uint8)


def header(seconds: float) -> Any:
    return Header(Time(int(seconds), int(seconds % 1 * SECOND)), "camera")


def image(seconds: float) -> Any:
    kind = STORE.types["sensor_msgs/msg/Image"]
    return kind(header(seconds), 48, 64, "rgb8", 0, 3 * 64, PICTURE.reshape(-1))


def text(words: str) -> Any:
    return STORE.types["std_msgs/msg/String"](words)


def write(folder: Path, messages: list[tuple[float, str, str, Any]], storage: Any) -> Path:
    """A bag of (seconds, topic, type, message)."""
    with Writer(folder, version=9, storage_plugin=storage) as writer:
        connections: dict[str, Any] = {}
        for seconds, topic, kind, message in messages:
            if topic not in connections:
                connections[topic] = writer.add_connection(topic, kind, typestore=STORE)
            raw = STORE.serialize_cdr(message, kind)
            writer.write(connections[topic], int((100 + seconds) * SECOND), raw)
    return folder


def table(folder: Path, storage: Any = StoragePlugin.MCAP) -> Path:
    gripper = STORE.types["lab_msgs/msg/Gripper"](0.5)
    rows: list[tuple[float, str, str, Any]] = [
        (n / 2, "/camera/image", "sensor_msgs/msg/Image", image(n / 2)) for n in range(6)
    ]
    rows += [
        (0.1, "/gripper", "lab_msgs/msg/Gripper", gripper),
        (1.2, "/speech", "std_msgs/msg/String", text("pick up the block")),
        (1.4, "/speech", "std_msgs/msg/String", text("stop")),
    ]
    return write(folder, sorted(rows, key=lambda row: row[0]), storage)


def replay(capsys: pytest.CaptureFixture[str], *args: Any) -> list[dict[str, Any]]:
    assert main(["replay", *map(str, args), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("storage", [StoragePlugin.MCAP, StoragePlugin.SQLITE3])
def test_requests_are_put_to_frames_and_other_topics_are_left_out(
    tmp_path: Path, random_model: Path, capsys: pytest.CaptureFixture[str], storage: Any
) -> None:
    bag = table(tmp_path / "bag", storage)
    rows = replay(capsys, bag, "pick up the block", "the ball", "--model", random_model)
    assert [row["seconds"] for row in rows] == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]
    assert [row["request"] for row in rows[:2]] == ["pick up the block", "the ball"]
    assert {row["type"] for row in rows} <= {"grounding", "question", "not found"}


def test_without_requests_those_that_were_recorded_are_answered(
    tmp_path: Path, random_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = replay(capsys, table(tmp_path / "bag"), "--model", random_model)
    assert [(row["seconds"], row["request"]) for row in rows] == [
        (1.2, "pick up the block"),
        (1.4, "stop"),
    ]
    assert rows[1]["type"] == "error"  # it asks for nothing
    assert rows[1]["code"] == "CANCELED"


def test_frames_are_written_for_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "photos"
    assert main(["replay", str(table(tmp_path / "bag")), "--label", str(out)]) == 0
    assert [path.name for path in sorted(out.iterdir())] == [
        "00000.000.png", "00001.000.png", "00002.000.png",
    ]  # fmt: skip
    assert np.array_equal(np.asarray(Pillow.open(out / "00001.000.png")), PICTURE)
    assert "3 frames" in capsys.readouterr().out


def test_an_mcap_file_without_a_profile_is_read(tmp_path: Path) -> None:
    file = next(table(tmp_path / "bag").glob("*.mcap"))
    data = file.read_bytes()
    profile, library = struct.unpack("<I", data[17:21])[0], data[25:29]
    assert (profile, data[21:25]) == (4, b"ros2")
    name = data[29 : 29 + struct.unpack("<I", library)[0]]
    longer = struct.pack("<I", len(name) + 4) + b"sdk " + name
    file.write_bytes(data[:17] + struct.pack("<I", 0) + longer + data[29 + len(name) :])
    with opened(file) as reader:
        assert reader.message_count == 9
        topics = {connection.topic for connection, _, _ in reader.messages()}
    assert topics == {"/camera/image", "/gripper", "/speech"}


def test_broken_bags_and_wrong_topics_are_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = table(tmp_path / "bag")
    file = next(bag.glob("*.mcap"))
    cut = tmp_path / "cut.mcap"
    cut.write_bytes(file.read_bytes()[:-60])
    empty = write(tmp_path / "empty", [], StoragePlugin.SQLITE3)
    nothing = tmp_path / "nothing.mcap"
    nothing.write_bytes(b"")
    silent = write(
        tmp_path / "silent",
        [(0.0, "/camera/image", "sensor_msgs/msg/Image", image(0.0))],
        StoragePlugin.MCAP,
    )
    for arguments, words in (
        ([tmp_path / "none", "the cup"], "there is no bag"),
        ([cut, "the cup"], "was never closed"),
        ([empty, "the cup"], "no messages: was its recording ended?"),
        ([nothing, "the cup"], "no ROS 2 bag"),
        ([bag, "the cup", "--image", "/depth"], "no pictures on /depth; the bag has /camera/image"),
        ([bag, "the cup", "--every", "0"], "--every must be"),
        ([silent], "no requests on /speech"),
        ([bag, "stop"], ""),
    ):
        assert main(["replay", *map(str, arguments)]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert words in error
