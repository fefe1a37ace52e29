"""The C library's heaps, in processes of their own: glibc's settings last as long as a process."""

from __future__ import annotations

import gc
import os
import platform
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from clue_ros import memory

ROOT = Path(__file__).resolve().parents[2]
if platform.libc_ver()[0] != "glibc":
    pytest.skip("the C library is not glibc", allow_module_level=True)

# Prints how many heaps there are after eight threads have each taken memory at the same time.
COUNT = """
import ctypes, re, tempfile, threading
from clue_ros import memory
memory.share_the_heap()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
together = threading.Barrier(8)
def take():
    together.wait()
    for _ in range(100): libc.malloc(1000)
    together.wait()
threads = [threading.Thread(target=take) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.fopen.restype = ctypes.c_void_p
libc.malloc_info.argtypes = [ctypes.c_int, ctypes.c_void_p]
libc.fclose.argtypes = [ctypes.c_void_p]
with tempfile.NamedTemporaryFile() as file:
    stream = libc.fopen(file.name.encode(), b"w")
    libc.malloc_info(0, stream)
    libc.fclose(stream)
    print(len(re.findall(b"<heap nr", file.read())))
"""

# Prints the resident MB before and after holes of 60 MB between pieces that stay are given back.
HOLES = """
import ctypes
from clue_ros import memory
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
def resident():
    with open("/proc/self/statm") as file: return int(file.read().split()[1]) * 4096 // 1_000_000
pieces = [libc.malloc(30_000) for _ in range(2000)]
for piece in pieces: ctypes.memset(piece, 1, 30_000)
kept = pieces[::20]
for piece in set(pieces) - set(kept): libc.free(piece)
before = resident()
memory.trim()
print(before, resident())
"""

# Prints how many pages the kernel clears for a block of 24 MB that is taken and freed ten times,
# and the resident MB before and after what is kept is given back.
AGAIN = """
import ctypes, resource
from clue_ros import memory
KEEP
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
def again():
    block = libc.malloc(24_000_000)
    ctypes.memset(block, 1, 24_000_000)
    libc.free(block)
again()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10): again()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(memory.resident() // 1_000_000)
memory.trim()
print(memory.resident() // 1_000_000)
"""

# Prints by how many bytes the peak is above what is resident, after blocks of 64 MB taken and freed
# before and after it is forgotten. In a heap with pages kept free a block would add nothing.
PEAK = """
from clue_ros import memory
def take():
    block = bytearray(b"x") * 64_000_000
take()
memory.forget_peak()
print(memory.peak() - memory.resident())
take()
print(memory.peak() - memory.resident())
"""


def printed(script: str, **environment: str) -> list[int]:
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    found = subprocess.run(
        [sys.executable, "-c", script],
        env={**clean, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(word) for word in found.stdout.split()]


def test_threads_share_two_heaps_unless_the_environment_says_otherwise() -> None:
    assert printed(COUNT)[0] <= 2
    assert printed(COUNT, MALLOC_ARENA_MAX="6")[0] > 2


def test_freed_pages_are_kept_until_they_are_given_back() -> None:
    block = 24_000_000 // 4096
    keep = AGAIN.replace("KEEP", "memory.keep_pages()")
    pages, before, after = printed(keep)
    assert pages < block / 10
    assert before - after > 20
    mapped = {"MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_TRIM_THRESHOLD_": "1000000"}
    assert printed(keep, **mapped)[0] > 9 * block


def test_kernels_are_limited_unless_the_environment_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = "ONEDNN_PRIMITIVE_CACHE_CAPACITY"
    for before, after in ((None, str(memory.KERNELS)), ("7", "7")):
        with monkeypatch.context() as patch:
            patch.delenv(name, raising=False)
            if before is not None:
                patch.setenv(name, before)
            memory.limit_kernels()
            assert os.environ.pop(name) == after


def test_holes_between_pieces_that_stay_are_given_back() -> None:
    before, after = printed(HOLES)
    assert before - after > 40


class Cycle:
    """Something that only the collector can take away."""

    def __init__(self) -> None:
        self.itself = self


def test_what_was_set_aside_stays_and_later_cycles_go() -> None:
    gc.disable()
    try:
        loaded = weakref.ref(Cycle())
        assert loaded() is not None
        kept = Cycle()
        aside = weakref.ref(kept)
        memory.freeze_garbage()
        assert loaded() is None
        del kept
        dialogue = weakref.ref(Cycle())
        memory.trim()
        assert dialogue() is None
        assert aside() is not None
        memory.trim(everything=True)
        assert aside() is None
    finally:
        gc.unfreeze()
        gc.enable()


def test_what_was_frozen_before_stays_so_and_nothing_else_is() -> None:
    gc.freeze()
    before = gc.get_freeze_count()
    with memory.frozen_garbage():
        assert gc.get_freeze_count() == before > 0
    assert gc.get_freeze_count() == before


def test_the_peak_counts_from_where_it_was_forgotten() -> None:
    before, after = printed(PEAK)
    assert before < 32_000_000
    assert after > 32_000_000


def test_pages_of_a_mapped_file_leave_and_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "file"  # which no other process has mapped: then its pages would stay
    path.write_bytes(os.urandom(2**24))
    kind = subprocess.run(
        ["stat", "-f", "-c", "%T", path], capture_output=True, text=True, check=True
    ).stdout.strip()
    if kind == "tmpfs":
        pytest.skip("temporary files are kept in memory here, where their pages stay")
    os.sync()  # pages that are not on the disk yet stay too
    mapped = np.memmap(path, np.uint8, mode="r")
    before, total = memory.resident(), int(mapped.sum())
    read = memory.resident()
    memory.page_out(mapped.ctypes.data + 1, len(mapped) - 1)
    assert read - before > 0.8 * len(mapped)
    assert read - memory.resident() > 0.8 * len(mapped)
    assert int(mapped.sum()) == total
    assert total == int(np.frombuffer(path.read_bytes(), np.uint8).sum())


def test_what_was_written_to_a_mapped_file_privately_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(1_000_000))
    mapped = np.memmap(path, np.uint8, mode="c")
    mapped[:] = 7
    memory.page_out(mapped.ctypes.data, len(mapped))
    assert (mapped == 7).all()
    memory.page_out(mapped.ctypes.data, 100)  # less than a page: nothing to do
