# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Deprecated: import `clue_ros.nodes.client` instead."""

import warnings

from clue_ros.nodes.client import *  # noqa: F403

warnings.warn(
    "clue_ros.nodes.commander is now clue_ros.nodes.client", DeprecationWarning, stacklevel=2
)
