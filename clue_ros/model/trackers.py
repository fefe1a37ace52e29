# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Makes the tracker of a name: optical flow, or SAM 2 and EdgeTAM, which need torch."""

from __future__ import annotations

from clue_ros.errors import ModelError
from clue_ros.model.tracking import FlowTracker, Tracker
from clue_ros.requirements import missing

FLOW, SAM2 = "flow", "sam2:"
"""Names of trackers: the flow's, and the beginning of SAM 2's and EdgeTAM's."""


def check_tracker(spec: str) -> None:
    """Raises ModelError unless a tracker has this name: "flow", or "sam2:" and a hub id."""
    if spec != FLOW and (not spec.startswith(SAM2) or spec == SAM2):
        raise ModelError(f"no tracker {spec!r}: want {FLOW}, or {SAM2}HUB-ID (or a folder)")


def make_tracker(spec: str = FLOW, device: str = "auto") -> Tracker:
    """A new tracker: "flow", or "sam2:" and a hub id or folder of SAM 2 or EdgeTAM.

    device: of SAM 2 and EdgeTAM, which are loaded once and shared. Raises ModelError.
    """
    check_tracker(spec)
    if spec == FLOW:
        return FlowTracker()
    try:
        from clue_ros.model.sam2_tracker import Sam2Tracker, load_network
    except ImportError as error:
        raise ModelError(missing(str(error.name), f"the tracker {spec}")) from error
    return Sam2Tracker(load_network(spec.removeprefix(SAM2), device))
