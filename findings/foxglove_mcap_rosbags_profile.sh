#!/usr/bin/env bash
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
# A ROS 2 recording that foxglove-sdk writes by its defaults is refused by rosbags.
#
# foxglove-sdk 0.30.3 writes an MCAP file with an empty profile in its header; nothing in a channel
# says less than ROS needs (schema "sensor_msgs/msg/Image", encoding "ros2msg", messages in cdr).
# rosbags 0.11.9 reads MCAP files of the profile "ros2" alone and names no other reason; the same file
# is read once the profile is set at writing (MCAPWriteOptions(profile="ros2")). `clue replay` reads
# both (clue_ros/nodes/replay.py).
#
# Seen:
#        by default: ReaderError: Profile is not ros2.
#        profile ros2: 1 message on /text
#
# Fails if this changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet foxglove-sdk==0.30.3 rosbags==0.11.9
"$folder/venv/bin/python" - "$folder" <<'PY'
import sys
from pathlib import Path

import foxglove
from foxglove import Channel, Schema
from foxglove.mcap import MCAPWriteOptions
from rosbags.rosbag2 import Reader, ReaderError
from rosbags.typesys import Stores, get_typestore

store = get_typestore(Stores.LATEST)
kind = "std_msgs/msg/String"
raw = bytes(store.serialize_cdr(store.types[kind]("hello"), kind))
schema = Schema(name=kind, encoding="ros2msg", data=b"string data\n")


def outcome(name, **options):
    path = Path(sys.argv[1], f"{name}.mcap")
    context = foxglove.Context()
    with foxglove.open_mcap(path, context=context, **options):
        channel = Channel("/text", schema=schema, message_encoding="cdr", context=context)
        channel.log(raw)
    try:
        with Reader(path) as reader:
            found = list(reader.messages())
    except ReaderError as error:
        return f"ReaderError: {error}"
    return f"{len(found)} message on {found[0][0].topic}"


seen = outcome("default"), outcome("ros2", writer_options=MCAPWriteOptions(profile="ros2"))
print(f"by default: {seen[0]}\nprofile ros2: {seen[1]}")
sys.exit(seen != ("ReaderError: Profile is not ros2.", "1 message on /text"))
PY
