# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The operator's page: a web page to see what the robot sees, to talk to it, and to make data.

`server` serves it, and `access` limits who may use it. `live` has the state that it shows, `robot`
the requests that it makes. A robot is a ROS node or, without ROS, `clue_ros.console.picture_robot`.
This package imports no ROS, and torch only when a model is loaded.
"""

SENT_SIDE = 1600
"""Largest side of a picture as a page gets it, in pixels."""
