#!/usr/bin/env bash
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
# A SQLite bag whose recorder ended without closing it reads as empty in rosbags, without an error.
#
# rosbag2's SQLite storage can record with a write-ahead log (its preset "resilient" does). After a
# power cut all messages lie in the file that ends in -wal; SQLite itself reads them from there.
# rosbags 0.11.9 opens the database as immutable, which tells SQLite to ignore that file: the topic is
# there, and has no message. `clue replay` says that the recording was not ended, and where the
# messages are (clue_ros/nodes/replay.py).
#
# Seen:
#        SQLite: 3 messages
#        rosbags: /text, 0 messages
#
# Fails if this changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet rosbags==0.11.9
"$folder/venv/bin/python" - "$folder" <<'PY'
import shutil
import sqlite3
import sys
from pathlib import Path

from rosbags.rosbag2 import Reader
from rosbags.typesys import Stores, get_typestore

store = get_typestore(Stores.LATEST)
kind = "std_msgs/msg/String"
raw = bytes(store.serialize_cdr(store.types[kind]("hello"), kind))
recorded, left = Path(sys.argv[1], "recorded.db3"), Path(sys.argv[1], "left.db3")
bag = sqlite3.connect(recorded, isolation_level=None)
bag.executescript(
    "PRAGMA journal_mode=WAL; CREATE TABLE schema(schema_version INTEGER PRIMARY KEY, ros_distro TEXT"
    " NOT NULL); INSERT INTO schema VALUES (3, 'jazzy'); CREATE TABLE topics(id INTEGER PRIMARY KEY,"
    " name TEXT NOT NULL, type TEXT NOT NULL, serialization_format TEXT NOT NULL,"
    " offered_qos_profiles TEXT NOT NULL); INSERT INTO topics VALUES (1, '/text',"
    f" '{kind}', 'cdr', ''); CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER NOT NULL,"
    " timestamp INTEGER NOT NULL, data BLOB NOT NULL); PRAGMA wal_checkpoint(TRUNCATE);"
)
for stamp in (1, 2, 3):
    bag.execute("INSERT INTO messages(topic_id, timestamp, data) VALUES (1, ?, ?)", (stamp, raw))
for end in ("", "-wal"):  # what a power cut leaves: the recorder never closed its database
    shutil.copy(f"{recorded}{end}", f"{left}{end}")
with Reader(left) as reader:
    seen = [f"{c.topic}, {c.msgcount} messages" for c in reader.connections]
(count,) = sqlite3.connect(left).execute("SELECT count(*) FROM messages").fetchone()
print(f"SQLite: {count} messages\nrosbags: {seen[0]}")
sys.exit((count, seen) != (3, ["/text, 0 messages"]))
PY
