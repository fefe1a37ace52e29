# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""``clue replay BAG "request" ...``: replies to the pictures of a recorded bag.

MCAP and SQLite bags are read without ROS (rosbags). Each request is put to frames of the bag;
without one, the requests that were recorded on `speech` are put to the newest frame of their time.
Types that the bag does not define are those of ROS 2 itself; topics of other types are not read.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from clue_ros.dialogue.conversation import wanted
from clue_ros.dialogue.types import Dialogue, Grounding, NotFound, Question
from clue_ros.errors import BadImageError, ClueError
from clue_ros.grounders import (
    add_load_arguments,
    add_policy_arguments,
    load_grounder,
    load_options,
    quieten_libraries,
)
from clue_ros.nodes.image_conversion import Rgb, compressed_to_rgb, to_rgb
from clue_ros.requirements import missing

if TYPE_CHECKING:
    from rosbags.interfaces import Connection

RAW, COMPRESSED = "sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage"
TEXT = "std_msgs/msg/String"
MAGIC = b"\x89MCAP0\r\n"
NANO = 1e-9


class BadBagError(ClueError):
    """A bag cannot be read; the message says what to do."""

    code = "BAD_BAG"


@dataclass(frozen=True)
class Recorded:
    """One message of a bag: seconds since its first message, its topic, and its content."""

    seconds: float
    topic: str
    message: Any


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue replay``."""
    parser.add_argument("bag", type=Path, help="a bag's folder, or its .mcap or .db3 file")
    parser.add_argument("text", nargs="*", help="requests; none: those recorded on --speech")
    parser.add_argument("--image", metavar="TOPIC", help="the camera (the only one in the bag)")
    parser.add_argument("--speech", metavar="TOPIC", default="/speech", help="(/speech)")
    parser.add_argument(
        "--every", type=float, default=1.0, metavar="S", help="seconds between frames (1)"
    )
    parser.add_argument(
        "--label",
        type=Path,
        metavar="FOLDER",
        help="write these frames as PNG files instead, for a data set of your own",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    add_load_arguments(parser)
    add_policy_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run ``clue replay``; the exit status."""
    if not (math.isfinite(args.every) and args.every > 0):
        raise ClueError(f"--every must be a number of seconds over 0, not {args.every}")
    for text in args.text:
        wanted(text)  # before the bag and the model
    with opened(args.bag) as reader:
        camera = _camera(reader.connections, args.image)
        topics = [camera] if args.text or args.label else [camera, args.speech]
        if len(topics) > 1 and not _of(reader.connections, args.speech, (TEXT,)):
            raise ClueError(
                f"{args.bag} has no requests on {args.speech} (std_msgs/String): name another"
                " topic with --speech, or write the requests behind the bag"
            )
        if args.label:
            return _write_frames(reader, camera, args.every, args.label)
        quieten_libraries()
        clue = load_grounder(load_options(args))
        for row in _replies(clue, reader, topics, args):
            print(json.dumps(row) if args.json else _as_text(row), flush=True)
    return 0


def _replies(
    clue: Any, reader: Any, topics: Sequence[str], args: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    camera, due = topics[0], -math.inf
    newest: Recorded | None = None
    for recorded in messages(reader, topics):
        if recorded.topic != camera:
            if newest is None:
                _note(f"{recorded.seconds:.2f} s: a request before the first picture is left out")
                continue
            yield _reply(clue, newest, recorded.message.data, recorded.seconds)
            continue
        newest = recorded
        if args.text and recorded.seconds >= due:
            due = recorded.seconds + args.every
            for text in args.text:
                yield _reply(clue, recorded, text, recorded.seconds)


def _reply(clue: Any, frame: Recorded, text: str, seconds: float) -> dict[str, Any]:
    row: dict[str, Any] = {"seconds": round(seconds, 3), "request": text}
    try:
        request = wanted(text).text
        view = clue.look(pixels(frame.message))
        reply: Question | Grounding = clue.reply(view, Dialogue(request))
    except ClueError as error:
        return row | {"type": "error", "code": error.code, "text": str(error)}
    row["probability"] = round(float(reply.ambiguity.probability), 4)
    if isinstance(reply, Grounding):
        score = None if math.isnan(reply.score) else round(float(reply.score), 4)
        box = [round(float(side), 1) for side in reply.box.as_list()]
        return row | {"type": "grounding", "box": box, "label": reply.label, "score": score}
    kind = "not found" if isinstance(reply, NotFound) else "question"
    return row | {"type": kind, "text": reply.text}


def _as_text(row: dict[str, Any]) -> str:
    said = row.get("text") or f"{row['label'] or 'it'}: box {row['box']}  (score {row['score']})"
    return f"{row['seconds']:9.2f} s  {row['request']!r}: {said}"


def _write_frames(reader: Any, camera: str, every: float, folder: Path) -> int:
    """Write frames as FOLDER/SECONDS.png."""
    from PIL import Image

    try:
        folder.mkdir(parents=True, exist_ok=True)
        count, due = 0, -math.inf
        for recorded in messages(reader, [camera]):
            if recorded.seconds < due:
                continue
            due = recorded.seconds + every
            try:
                picture = pixels(recorded.message)
            except BadImageError as error:
                _note(f"{recorded.seconds:.2f} s: left out, {error}")
                continue
            Image.fromarray(picture).save(folder / f"{recorded.seconds:09.3f}.png")
            count += 1
    except OSError as error:
        raise ClueError(f"cannot write {folder}: {error.strerror or error}") from error
    print(f"{count} frames in {folder}")
    return 0


def pixels(message: Any) -> Rgb:
    """An Image or CompressedImage of a bag, as uint8 RGB (H, W, 3). Raises BadImageError."""
    if hasattr(message, "format"):
        return compressed_to_rgb(message.data, message.format)
    return to_rgb(message)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A bag that is open for reading. Raises BadBagError."""
    try:
        from rosbags.rosbag2 import Reader, ReaderError
    except ImportError as error:
        raise BadBagError(missing(error.name or "rosbags", "clue replay")) from error
    if not path.exists():
        raise BadBagError(f"there is no bag {path}")
    try:
        reader = Reader(_readable(path))
        reader.open()
    except (ReaderError, OSError, ValueError, AssertionError) as error:
        raise BadBagError(_why(path, error)) from error
    try:
        if not any(connection.msgcount for connection in reader.connections):
            raise BadBagError(
                f"{path} has no messages: was its recording ended? (a file that ends in -wal beside"
                " it holds them; ros2 bag reindex makes the metadata anew)"
            )
        yield reader
    finally:
        reader.close()


def _why(path: Path, error: Exception) -> str:
    reason = str(error)
    if "end magic" in reason:
        return (
            f"{path} was never closed, so its index is missing: mcap recover {path} -o WHOLE.mcap"
        )
    return f"{path} is no ROS 2 bag that can be read: {reason or type(error).__name__}"


def _camera(connections: Sequence[Connection], wanted_topic: str | None) -> str:
    """The topic of the pictures. Raises BadBagError: none, or several and none was chosen."""
    cameras = {c.topic for c in connections if c.msgtype in (RAW, COMPRESSED) and c.msgcount}
    if wanted_topic is not None:
        if wanted_topic not in cameras:
            raise BadBagError(
                f"no pictures on {wanted_topic}; the bag has {', '.join(sorted(cameras)) or 'none'}"
            )
        return wanted_topic
    if len(cameras) != 1:
        raise BadBagError(
            "the bag has no pictures (sensor_msgs/Image or CompressedImage)"
            if not cameras
            else f"choose the camera with --image: {', '.join(sorted(cameras))}"
        )
    return cameras.pop()


def _of(connections: Sequence[Connection], topic: str, kinds: Sequence[str]) -> list[Connection]:
    return [c for c in connections if c.topic == topic and c.msgtype in kinds]


def messages(reader: Any, topics: Sequence[str]) -> Iterator[Recorded]:
    """The messages of some topics in the order of their times; one that is damaged is named."""
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.LATEST)
    chosen = [c for t in topics for c in _of(reader.connections, t, (RAW, COMPRESSED, TEXT))]
    begin = reader.start_time
    for connection, stamp, raw in reader.messages(connections=chosen):
        seconds = (stamp - begin) * NANO
        try:
            message = store.deserialize_cdr(raw, connection.msgtype)
        except Exception as error:  # noqa: BLE001 - rosbags raises whatever the bytes lead to
            _note(f"{seconds:.2f} s: a message on {connection.topic} cannot be read ({error})")
            continue
        yield Recorded(seconds, connection.topic, message)


def _note(text: str) -> None:
    print(f"clue: note: {text}", file=sys.stderr)


# An MCAP file without a profile (foxglove-sdk 0.30 writes such ones) is refused by rosbags 0.11.


def _readable(path: Path) -> Path:
    """Return the bag's path; an MCAP file without a profile then reads as if it had one."""
    if path.suffix != ".mcap" or not path.is_file():
        return path
    with path.open("rb") as file:
        begin = file.read(len(MAGIC) + 1 + 8 + 4 + 4)
        if len(begin) < 25 or begin[:8] != MAGIC:
            return path
        profile, library = struct.unpack("<II", begin[17:25])
    return _WithProfile(path) if profile == 0 and library >= len("ros2") else path


class _WithProfile(type(Path())):  # type: ignore[misc]
    """An MCAP file whose empty profile reads as "ros2"; its library's name is as much shorter."""

    def open(self, *args: Any, **kwargs: Any) -> BinaryIO:
        """Open it for reading bytes."""
        return io.BufferedReader(_Patched(self))


class _Patched(io.FileIO):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        begin = super().read(25)
        (library,) = struct.unpack("<I", begin[21:25])
        name = super().read(library)
        super().seek(0)
        self._begin = begin[:17] + struct.pack("<I", 4) + b"ros2"
        self._begin += struct.pack("<I", library - 4) + name[4:]

    def readinto(self, buffer: Any) -> int:
        at = self.tell()
        count = super().readinto(buffer)
        ours = self._begin[at : at + count]
        memoryview(buffer)[: len(ours)] = ours
        return count
