#!/usr/bin/env bash
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
# OpenVINO's model cache, read by several threads at once, leaves the process in the locale "C".
#
# openvino 2026.4.1, CPU, CACHE_DIR set. While a cached graph is read, the library sets the locale of
# the whole process to "C", and afterwards to what it found before. Two threads that do so at once:
# the second one finds "C", and sets "C" at its end. From then on Python's open(), Path.read_text()
# and text pipes without an encoding decode as ASCII, in code that has nothing to do with OpenVINO.
# Without a cache, or with one thread, the locale stays. clue_ros compiles one graph at a time
# (clue_ros/model/openvino_compiler.py).
#
# Seen (in one to three rounds of four threads):
#        one thread: UTF-8
#        four threads: ANSI_X3.4-1968
#
# Fails if this changes.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet openvino==2026.4.1 openvino-telemetry==2025.2.0
CI=true LC_ALL=C.UTF-8 HOME="$folder" "$folder/venv/bin/python" - "$folder/cache" <<'PY'
import locale
import sys
import threading

import numpy as np
import openvino
from openvino import opset13 as op

core = openvino.Core()


def compile_some(first):
    for value in range(first, first + 3):
        x = op.parameter([1, 64], np.float32)
        weight = op.constant(np.full((64, 64), value, np.float32))
        graph = openvino.Model([op.result(op.matmul(x, weight, False, False))], [x], "graph")
        core.compile_model(graph, "CPU", {"CACHE_DIR": sys.argv[1]})


for first in (0, 10, 20, 30) * 2:  # written, then read
    compile_some(first)
alone = locale.getpreferredencoding(False)
for _ in range(50):
    threads = [threading.Thread(target=compile_some, args=(i,)) for i in (0, 10, 20, 30)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    together = locale.getpreferredencoding(False)
    if together != alone:
        break
print(f"one thread: {alone}\nfour threads: {together}")
sys.exit(alone != "UTF-8" or together == "UTF-8")
PY
