# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Depth images in metres: raw ones and those of the image transport compressedDepth."""

from __future__ import annotations

import struct
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from clue_ros.errors import BadImageError, NoPoseError
from clue_ros.nodes.image_conversion import decoded, read_rows

MILLIMETRE = 0.001  # metres a count of an integer depth image (REP 118)
COUNTS = ("16UC1", "mono16")
# The header of compressedDepth (image_transport_plugins): a format, then 32FC1's quantisation.
HEADER = struct.Struct("<iff")


def metres(
    msg: Any, nearest: float, farthest: float, unit: float = MILLIMETRE
) -> NDArray[np.float32]:
    """Return a depth image (H, W) in metres, NaN where a reading is not from nearest to farthest.

    msg: sensor_msgs/Image, or the CompressedImage of compressedDepth. unit: metres of a count of
    16UC1 and mono16. Raises NoPoseError: another encoding, empty, corrupt, or too few bytes.
    """
    try:
        depth = _decompressed(msg, unit) if hasattr(msg, "format") else _read(msg, unit)
    except BadImageError as error:
        raise NoPoseError(f"the depth image is broken: {error}") from error
    with np.errstate(invalid="ignore"):  # a comparison with NaN is false
        depth[~((depth >= nearest) & (depth <= farthest))] = np.nan
    return depth


def _read(msg: Any, unit: float) -> NDArray[np.float32]:
    if msg.encoding in COUNTS:
        return read_rows(msg, np.uint16).astype(np.float32) * np.float32(unit)
    if msg.encoding == "32FC1":
        return read_rows(msg, np.float32).copy()
    raise NoPoseError(
        f"the depth image is {msg.encoding[:40]!r}: want 16UC1 (counts of depth_unit) or 32FC1 (m)"
    )


def _decompressed(msg: Any, unit: float) -> NDArray[np.float32]:
    """Read a header of 12 bytes and a PNG of 16 bits; 32FC1 has inverse depths in it."""
    encoding, _, transport = (part.strip() for part in msg.format.partition(";"))
    if "compressedDepth" not in transport or "rvl" in transport.lower():
        raise NoPoseError(
            f"the depth image is {msg.format[:40]!r}: want compressedDepth as PNG, or a raw image"
        )
    if encoding not in (*COUNTS, "32FC1"):
        raise NoPoseError(f"the depth image is {encoding[:40]!r}: want 16UC1 or 32FC1")
    data = bytes(msg.data)
    if len(data) <= HEADER.size:
        raise NoPoseError(f"the depth image holds {len(data)} bytes: no picture")
    _, scale, offset = HEADER.unpack_from(data)
    counts = decoded(data[HEADER.size :], msg.format, cv2.IMREAD_UNCHANGED)
    if counts.dtype != np.uint16 or counts.ndim != 2:
        raise NoPoseError("the compressed depth image holds no PNG of 16 bits")
    if encoding in COUNTS:
        return counts.astype(np.float32) * np.float32(unit)
    with np.errstate(all="ignore"):  # values that are no depth are out of range
        depth = np.float32(scale) / (counts.astype(np.float32) - np.float32(offset))
    depth[counts == 0] = np.nan
    return np.asarray(depth, np.float32)
