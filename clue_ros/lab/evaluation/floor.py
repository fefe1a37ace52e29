"""How long a reply must take at least: its operations and bytes over what the machine can do.

Operations are those of the matrix products (two for a multiplication and an addition); bytes are
those of the weights, read once for the prompt and once for each further token. The machine's rate
and bandwidth are measured (`measure_machine`): a product of the decoder's widest matrix with a
prompt's tokens, and the sum of a tensor that no cache holds.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional

from clue_ros.lab.training.plan import ModelSizes

RUNS = 7


@dataclass(frozen=True)
class Work:
    """Operations, and bytes of weights."""

    operations: float
    bytes: float

    def __add__(self, other: Work) -> Work:
        """Both, one after the other."""
        return Work(self.operations + other.operations, self.bytes + other.bytes)

    def __mul__(self, count: float) -> Work:
        """The same `count` times."""
        return Work(self.operations * count, self.bytes * count)


@dataclass(frozen=True)
class Machine:
    """What was measured: operations and bytes a second."""

    rate: float
    bandwidth: float

    def seconds(self, work: Work) -> float:
        """The least time: the longer one of computing and of reading weights."""
        return max(work.operations / self.rate, work.bytes / self.bandwidth)


def measure_machine(sizes: ModelSizes, dtype: torch.dtype) -> Machine:
    """The best of RUNS runs, for the shapes of this model."""
    left = torch.randn(sizes.tokens + 16, sizes.width).to(dtype)
    right = torch.randn(2 * sizes.mlp, sizes.width).to(dtype)
    each = 2 * left.numel() * len(right)
    many = max(1, int(2e9 / each))
    large = torch.ones(64 * 2**20)
    with torch.inference_mode():
        product = _best(lambda: [functional.linear(left, right) for _ in range(many)])
        return Machine(each * many / product, large.nbytes / _best(large.sum))


def _best(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(RUNS):
        start = time.perf_counter()
        work()
        taken.append(time.perf_counter() - start)
    return min(taken)


def reply_work(
    sizes: ModelSizes, block: int, tokens: int, said: int, each: int, views: float = 1.0
) -> dict[str, Work]:
    """The parts of a first answer: `tokens` tokens of prompt with the image's, `said` of reply.

    block: the detector's; the blocks before it run whole. each: bytes of a weight. views: how many
    views of the picture are looked at, and pointed in.
    """
    head = sizes.width * sizes.vocab
    logits = Work(2 * head, head * each)
    steps = Work(0, 0)
    for past in range(tokens, tokens + said - 1):
        steps += _blocks(sizes, sizes.layers, 1, past, each) + logits
    attention = 4 * sizes.vision_layers * sizes.tokens**2 * sizes.vision_width
    look = Work(2 * sizes.vision * sizes.tokens + attention, sizes.vision * each)
    return {
        "look": look * views,
        "detector": _blocks(sizes, block, tokens, 0, each),
        "prompt": (_blocks(sizes, sizes.layers, tokens, 0, each) + logits) * views,
        "tokens": steps * views,
    }


def _blocks(sizes: ModelSizes, count: int, tokens: int, past: int, each: int) -> Work:
    """`count` blocks of the decoder on `tokens` tokens after `past` others."""
    attention = 4 * tokens * (past + tokens) * sizes.heads * sizes.head_dim
    return Work(count * (2 * sizes.block * tokens + attention), count * sizes.block * each)
