# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Speech recognition, speech synthesis and sound, without ROS. The nodes are in clue_ros.nodes."""
