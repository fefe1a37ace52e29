"""Lower bound of a reply's time: its operations and bytes over the machine's rates.

Operations are those of matrix products and convolutions (two for a multiplication and an addition);
bytes are those of the weights in their types, read once for each image or batch of images, once for
the prompt and once for each further token. `measure_machine` measures the machine's rate and
bandwidth: on a CPU by a product of the decoder's widest matrix with a prompt's tokens and the sum
of a tensor larger than the caches, on a GPU by a product of large square matrices and a copy within
its memory (reading and writing count). In mixed precision the rate is that of bfloat16, also for
operations in float32.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch.nn import functional

from clue_ros.lab.training.plan import ModelSizes

RUNS = 7
GPU_RUNS, WARM_UP = 20, 10  # a GPU raises its clock under load
SIDE = 8192  # of a GPU's matrices
COPIED = 2**30  # bytes


@dataclass(frozen=True)
class Work:
    """Operations, and bytes of weights."""

    operations: float
    bytes: float

    def __add__(self, other: Work) -> Work:
        """Both, one after the other."""
        return Work(self.operations + other.operations, self.bytes + other.bytes)

    def batch(self, count: int) -> Work:
        """The same for `count` inputs at once: each weight is read once."""
        return Work(self.operations * count, self.bytes)


@dataclass(frozen=True)
class Machine:
    """The measured rates: operations and bytes a second."""

    rate: float
    bandwidth: float

    def seconds(self, *works: Work) -> float:
        """The least time of works one after the other: of each, computing or reading weights."""
        return sum(max(w.operations / self.rate, w.bytes / self.bandwidth) for w in works)


def measure_machine(
    sizes: ModelSizes, dtype: torch.dtype, device: torch.device | str = "cpu"
) -> Machine:
    """Measure a device's rates with operands of `dtype`.

    CPU: the best of RUNS runs, for the shapes of this model; GPU: the median of GPU_RUNS.
    """
    device = torch.device(device)
    if device.type == "cuda":
        return _measure_gpu(dtype, device)
    left = torch.randn(sizes.tokens + 16, sizes.width).to(dtype)
    right = torch.randn(2 * sizes.mlp, sizes.width).to(dtype)
    each = 2 * left.numel() * len(right)
    many = max(1, int(2e9 / each))
    large = torch.ones(64 * 2**20)
    with torch.inference_mode():
        product = _best(lambda: [functional.linear(left, right) for _ in range(many)])
        return Machine(each * many / product, large.nbytes / _best(large.sum))


def _measure_gpu(dtype: torch.dtype, device: torch.device) -> Machine:
    left, right = torch.randn(2, SIDE, SIDE, device=device).to(dtype)
    out = torch.empty_like(left)
    rate = 2 * SIDE**3 / _median(lambda: torch.mm(left, right, out=out))
    source = torch.ones(COPIED, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return Machine(rate, 2 * COPIED / _median(lambda: target.copy_(source)))


def _median(work: Callable[[], object]) -> float:
    """Seconds of GPU_RUNS runs on the current GPU, by its own clock."""
    make: Any = torch.cuda.Event
    marks = [make(enable_timing=True) for _ in range(GPU_RUNS + 1)]
    for _ in range(WARM_UP):
        work()
    marks[0].record()
    for mark in marks[1:]:
        work()
        mark.record()
    torch.cuda.synchronize()
    return float(median(a.elapsed_time(b) for a, b in pairwise(marks))) / 1000


def _best(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(RUNS):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)


def reply_parts(
    sizes: ModelSizes, block: int, tokens: int, said: int, each: int, exact: int
) -> dict[str, Work]:
    """The work of replies: `tokens` tokens of prompt with the image's, `said` of reply.

    block: the detector's; the blocks before it run whole, in it only the keys count.
    each: bytes of a weight of the blocks, the projector, a stem and its patches; exact: of the
    others, larger in mixed precision: positions, the head, and patches without a stem.
    """
    head = sizes.width * sizes.vocab
    logits = Work(2 * head, head * exact)
    steps = Work(0, 0)
    for past in range(tokens, tokens + said - 1):
        steps += _blocks(sizes, sizes.layers, 1, past, each) + logits
    attention = 4 * sizes.vision_layers * sizes.tokens**2 * sizes.vision_width
    positions = sizes.tokens * sizes.vision_width
    patches, first = sizes.vision_input - positions, each if sizes.stem else exact
    keys = sizes.width * sizes.kv_heads * sizes.head_dim
    return {
        "look": Work(
            sizes.vision_operations + attention,
            (sizes.vision - sizes.vision_input) * each + patches * first + positions * exact,
        ),
        "detector": _blocks(sizes, block, tokens, 0, each) + Work(2 * keys * tokens, keys * each),
        "prompt": _blocks(sizes, sizes.layers - 1, tokens, 0, each)
        + Work(4 * keys * (tokens - 1), 0)  # the top block: keys and values of all tokens,
        + _blocks(sizes, 1, 1, tokens - 1, each)  # the rest of the last one alone
        + logits,
        "tokens": steps,
    }


def reply_work(parts: dict[str, Work], views: int = 1, *, looked: bool = False) -> list[Work]:
    """Return a reply's parts in order: the first view's, then the others' in one batch.

    looked: the image is encoded already, as on a later turn. The detector's work on further views,
    which policy "both" needs in doubt, is not counted.
    """
    look, point = parts["look"], [parts["prompt"], parts["tokens"]]
    works = [*([] if looked else [look]), parts["detector"], *point]
    if views > 1:
        works += [work.batch(views - 1) for work in (look, *point)]
    return works


def _blocks(sizes: ModelSizes, count: int, tokens: int, past: int, each: int) -> Work:
    """`count` blocks of the decoder on `tokens` tokens after `past` others."""
    attention = 4 * tokens * (past + tokens) * sizes.heads * sizes.head_dim
    return Work(count * (2 * sizes.block * tokens + attention), count * sizes.block * each)
