"""The C library's heap of a node that runs all day.

Pictures, masks and activations come and go in sizes of their own, between small pieces that stay:
glibc keeps the holes, and resident memory creeps up although nothing is lost (by 20 MB in 250
dialogues, benchmarks/soak.py). So a node has few heaps, and gives holes back between dialogues.
"""

from __future__ import annotations

import contextlib
import ctypes
import os

HEAPS = 2
_M_ARENA_MAX = -8  # malloc.h
# what another C library than glibc lacks
_MISSING = (AttributeError, OSError)


def share_the_heap() -> None:
    """Keep to two heaps, unless MALLOC_ARENA_MAX says how many; before threads start.

    By default each thread gets one of its own, up to eight for each core.
    """
    if "MALLOC_ARENA_MAX" not in os.environ:
        with contextlib.suppress(*_MISSING):
            ctypes.CDLL(None).mallopt(_M_ARENA_MAX, HEAPS)


def give_back() -> None:
    """Return the pages of every heap that hold nothing to the system; takes milliseconds."""
    with contextlib.suppress(*_MISSING):
        ctypes.CDLL(None).malloc_trim(0)
