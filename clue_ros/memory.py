# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the memory of a process constant over hours: without this it grows, although nothing leaks.

A dialogue leaves cycles for Python's collector: a coroutine, its session, its pictures. The
collector looks at old objects only when a quarter has been added, which is rare beside the million
objects of the loaded libraries. And glibc keeps the holes that pictures, masks and activations
leave between small blocks. So the loaded objects are set aside, and cycles and holes are given back
between dialogues (benchmarks/soak.py), and every few steps of a training.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
from collections.abc import Iterator
from pathlib import Path

HEAPS = 2
_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1  # malloc.h
KEPT, MAPPED = 256 * 2**20, 32 * 2**20
"""Free bytes at the end of a heap that stay there until `trim`, and the smallest block of memory
that is mapped by itself, and so returned as soon as it is free."""
SMALL = 512 * 2**10  # bytes from which a block has a mapping of its own (`map_blocks`)
CGROUP = Path("/sys/fs/cgroup")  # the limits of a container
# functions that other C libraries lack
_MISSING = (AttributeError, OSError)


def share_the_heap() -> None:
    """Keep to two heaps, unless MALLOC_ARENA_MAX says how many; before threads start.

    By default each thread gets one of its own, up to eight for each core.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        with contextlib.suppress(*_MISSING):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, HEAPS)


def keep_pages() -> None:
    """Keep the memory that a reply frees for the next one; `trim` returns it.

    MALLOC_ variables go first.

    By default glibc returns the activations of every layer at once, and the next layer takes new
    pages, which the kernel clears: 12,000 of them for a box from three views of `household`.
    """
    with contextlib.suppress(*_MISSING):
        libc = ctypes.CDLL(None)
        if "MALLOC_TRIM_THRESHOLD_" not in os.environ:
            libc.mallopt(_M_TRIM_THRESHOLD, KEPT)
        if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
            libc.mallopt(_M_MMAP_THRESHOLD, MAPPED)


def map_blocks() -> None:
    """Map blocks of half a megabyte or more by themselves, for a process that answers once.

    They leave no holes in the heap. MALLOC_MMAP_THRESHOLD_ goes first.
    """
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        with contextlib.suppress(*_MISSING):
            ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, SMALL)


def freeze_garbage() -> None:
    """Hide all living objects from the collector, so that it is quick about the rest."""
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def frozen_garbage() -> Iterator[None]:
    """Apply `freeze_garbage` while something runs, however it ends.

    If the process has frozen its objects already, they stay frozen, and no others are.
    """
    frozen = gc.get_freeze_count() > 0
    if not frozen:
        freeze_garbage()
    try:
        yield
    finally:
        trim(everything=not frozen)


def trim(*, everything: bool = False) -> None:
    """Collect cycles, and return the pages of every heap that hold nothing to the system.

    Takes milliseconds after `freeze_garbage`. everything: frozen objects too, which takes
    longer.
    """
    if everything:
        gc.unfreeze()
    gc.collect()
    with contextlib.suppress(*_MISSING):
        ctypes.CDLL(None).malloc_trim(0)


def resident(pid: int | None = None) -> int:
    """Return the resident memory of a process, of this one by default, in bytes.

    Raises OSError (ProcessLookupError for one that has ended) where there is no such process, or no
    /proc: Linux only.
    """
    return _status("VmRSS:", pid)


def forget_peak() -> None:
    """Let `peak` count from here on. Raises OSError where there is no /proc."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def peak() -> int:
    """Return the largest resident memory that this process has had since `forget_peak`, in bytes.

    Since its start if that was never called.
    """
    return _status("VmHWM:")


def _status(field: str, pid: int | None = None) -> int:
    status = Path(f"/proc/{'self' if pid is None else pid}/status").read_text(encoding="ascii")
    for line in status.splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


# -------------------------------------------------------------------------------------------------
# Free memory.


def available() -> int | None:
    """Bytes of memory that this process can still take without swapping; None where unknown.

    The lesser of what Linux calls available and what the container's limit (cgroup v2) leaves.
    """
    left = [_machine_available(), _container_available()]
    known = [value for value in left if value is not None]
    return min(known) if known else None


def _machine_available() -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _container_available() -> int | None:
    with contextlib.suppress(OSError, ValueError):  # no limit reads "max"
        limit = int((CGROUP / "memory.max").read_text(encoding="ascii"))
        used = int((CGROUP / "memory.current").read_text(encoding="ascii"))
        stat = (CGROUP / "memory.stat").read_text(encoding="ascii").split()
        cached = int(stat[stat.index("inactive_file") + 1]) if "inactive_file" in stat else 0
        return max(0, limit - used + cached)
    return None
