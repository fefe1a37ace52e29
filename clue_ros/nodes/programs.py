# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The programs of the nodes: `ros2 run clue_ros NAME_node` calls `executables.NAME`.

setup.py reads this file by its path, without the package: it imports nothing.
"""

PROGRAMS = ("console", "grasp_example", "image_source", "perception", "speech", "tts")
