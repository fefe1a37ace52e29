# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The kinds of detectors of transformers, without torch; `clue_ros.wrapper.detectors` runs them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

DETECTORS = GROUNDING_DINO, OWLV2, FLORENCE_2 = "grounding-dino", "owlv2", "florence2"
"""Their names in a source's line, and as model_type of a config.json."""


def wrong_model(name: str | Path, kind: str, config: Mapping[str, Any]) -> str:
    """Return why a config.json is not of a detector of this kind; empty if it is."""
    found = str(config.get("model_type", "unknown"))
    if found != kind:
        return f"{name} is a model of type {found}, want a {kind}"
    if "auto_map" in config:
        return (
            f"{name} is in the layout of code of its own, which is not run: take the same weights"
            " in the layout of transformers, such as florence-community/Florence-2-large"
        )
    return ""
