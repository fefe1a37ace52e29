# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The ROS 2 nodes: perception, image_source, speech, tts, and the demo that starts them.

Only this folder imports rclpy, and it never imports torch: `clue_ros.engine` does, when a model is
loaded.
"""
