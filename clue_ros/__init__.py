# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""CLUE: a robot that looks, asks and points."""
