"""What a process holds in memory. No ROS in it."""

from __future__ import annotations

from pathlib import Path


def resident(pid: int | None = None) -> int:
    """Return the resident memory of a process, of this one by default, in bytes.

    Raises OSError (ProcessLookupError for one that has ended) where there is no such process, or no
    /proc: Linux only.
    """
    status = Path(f"/proc/{'self' if pid is None else pid}/status").read_text(encoding="ascii")
    for line in status.splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)
