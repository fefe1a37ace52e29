# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The operator's page: a web page to see what the robot sees, to talk to it, and to make data.

`server` serves it and `access` says who may use it; `live` is what it shows of a robot, `robot`
what it asks a robot to do. A robot is a ROS node or, without ROS, `clue_ros.console.picture_robot`.
This package imports no ROS, and torch only when a model is loaded.
"""

SENT_SIDE = 1600
"""Largest side of a picture as a page gets it, in pixels."""
