# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The ROS 2 nodes: perception, console, image_source, speech, tts, grasp_example.

Only this folder imports rclpy, and it never imports torch: `clue_ros.engine` does, when a model is
loaded.
"""
