"""What Fast DDS keeps in /dev/shm."""

from __future__ import annotations

from pathlib import Path


def segment_of(lock: Path) -> Path | None:
    """The shared memory of a participant whose lock this file is; None if it is none's lock."""
    if not lock.name.startswith(("fastdds_", "fastrtps_")) or "_port" in lock.name:
        return None
    return lock.with_name(lock.name.removesuffix("_el")) if lock.name.endswith("_el") else None
