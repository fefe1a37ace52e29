# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A dialogue without ROS and without a model: its types, Algorithm 1, words and sentences.

``from clue_ros.dialogue import Dialogue, Question, Grounding`` is the public API.
"""

from clue_ros.dialogue.types import (
    AmbiguityEstimate,
    Box,
    Dialogue,
    Grounding,
    NotFound,
    Peak,
    Question,
    Reply,
    Turn,
    clean_text,
)

__all__ = [
    "AmbiguityEstimate",
    "Box",
    "Dialogue",
    "Grounding",
    "NotFound",
    "Peak",
    "Question",
    "Reply",
    "Turn",
    "clean_text",
]
