# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The operator's page: a web page to see what the robot sees, to talk to it, and to make data.

`server` serves it; `live` is what it shows of a robot, `robot` what it asks a robot to do. A robot
is `clue_ros.nodes.console_node` or, without ROS, `clue_ros.console.demo_page`. This package imports
neither ROS nor torch.
"""
