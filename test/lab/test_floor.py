"""The least work of a reply, by numbers worked out by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from clue_ros.lab.evaluation.floor import Machine, Work, measure_machine, reply_parts, reply_work
from clue_ros.lab.training.plan import ModelSizes
from clue_ros.model.conv_stem import EFFICIENTNET_LITE0, FrozenConv, patch_embedding, stem_cost

STEM = {"first": 2, "stages": [[1, 3, 1, 1, 2], [1, 3, 2, 2, 4]], "read": [0, 1]}
SIZES = ModelSizes(
    tokens=4, vision_width=3, vision_mlp=5, vision_layers=2, patch=4, width=6, mlp=7, layers=3,
    heads=2, kv_heads=1, head_dim=4, vocab=10, stem=172, stem_operations=3392,
)  # fmt: skip


def vision(stem: object, size: int, patch: int, width: int) -> SimpleNamespace:
    return SimpleNamespace(
        conv_stem=stem, image_size=size, patch_size=patch, hidden_size=width, num_channels=3
    )


def test_a_stems_convolutions_are_counted() -> None:
    # First convolution 54 weights on 4x4; block 1: 18 + 4 on 4x4; block 2: 8 on 4x4, 36 + 16 on
    # 2x2; projection (2 * 4 + 4) * 3 on 2x2.
    weights = 54 + 22 + 60 + 36
    products = 54 * 16 + 22 * 16 + 8 * 16 + 52 * 4 + 36 * 4
    assert stem_cost(vision(STEM, 8, 4, 3)) == (weights, 2 * products) == (172, 3392)
    assert stem_cost(vision(None, 8, 4, 3)) == (0, 0)


def test_the_count_is_that_of_pytorch() -> None:
    config = vision(EFFICIENTNET_LITE0, 288, 16, 192)
    with torch.device("meta"):
        stem, picture = patch_embedding(config), torch.empty(1, 3, 288, 288)
    left_out = 0

    def count(conv: FrozenConv, _given: object, found: torch.Tensor) -> None:
        nonlocal left_out
        if conv.stride == 2:  # computes a row and a column more than it returns
            height, width = found.shape[2:]
            left_out += 2 * conv.weight.numel() * (height + width + 1)

    for part in stem.modules():
        if isinstance(part, FrozenConv):
            part.register_forward_hook(count)
    with FlopCounterMode(display=False) as counter:
        stem(picture)
    patches = 3 * 16**2 * 192
    weights = sum(t.numel() for t in stem.state_dict().values() if t.ndim > 1) - patches
    operations = counter.get_total_flops() - 2 * patches * 18**2 - left_out
    assert stem_cost(config) == (weights, operations)
    assert 0 < left_out < 0.002 * operations


def test_the_parts_of_a_reply_are_counted() -> None:
    assert SIZES.block == 48 + 24 + 24 + 48 + 3 * 42 == 270
    assert SIZES.vision == 2 * (36 + 30) + 172 + (48 + 4) * 3 + 18 == 478
    assert SIZES.vision_operations == 2 * (132 + 144 + 18) * 4 + 3392 == 5744
    parts = reply_parts(SIZES, block=1, tokens=6, said=3, each=2, exact=4)
    block = 2 * 270 * 6 + 4 * 6 * 6 * 8  # of six tokens, with attention
    steps = [2 * 270 + 4 * length * 8 for length in (6, 7, 8)]  # a token that attends to so many
    assert parts == {
        "look": Work(5744 + 4 * 2 * 4**2 * 3, 150 * 2 + 316 * 2 + 12 * 4),
        "detector": Work(block + 2 * 24 * 6, 270 * 2 + 24 * 2),
        "prompt": Work(2 * block + 2 * 48 * 5 + steps[0] + 120, 3 * 270 * 2 + 60 * 4),
        "tokens": Work(3 * (steps[1] + steps[2]) + 2 * 120, 2 * (3 * 270 * 2 + 60 * 4)),
    }
    assert [part.operations for part in parts.values()] == [6128, 4680, 10116, 4920]
    assert [part.bytes for part in parts.values()] == [980, 588, 1860, 3720]


def test_a_reply_is_the_sum_of_its_parts_and_further_views_read_the_weights_once_more() -> None:
    parts = reply_parts(SIZES, block=1, tokens=6, said=3, each=2, exact=4)
    works = [reply_work(parts), reply_work(parts, 3), reply_work(parts, looked=True)]
    assert works[0] == [*parts.values()]
    one, three, later = (sum(work, Work(0, 0)) for work in works)
    assert one == Work(25844, 7148)
    assert three == Work(25844 + 2 * (6128 + 10116 + 4920), 7148 + 6560)
    assert later == Work(25844 - 6128, 7148 - 980)


def test_the_least_time_is_that_of_the_scarcer_means() -> None:
    machine = Machine(rate=100.0, bandwidth=10.0)
    assert machine.seconds(Work(500.0, 20.0)) == 5.0
    assert machine.seconds(Work(100.0, 20.0)) == 2.0
    assert machine.seconds(Work(500.0, 20.0), Work(100.0, 20.0)) == 7.0


def test_a_cpu_is_measured_with_the_models_own_shapes() -> None:
    sizes = replace(SIZES, tokens=256, width=512, mlp=2048)
    machine = measure_machine(sizes, torch.float32, "cpu")
    assert 1e8 < machine.rate < 1e14
    assert 1e8 < machine.bandwidth < 1e13
    assert machine.seconds(Work(machine.rate, 0)) == pytest.approx(1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_a_gpu_is_measured_with_large_matrices() -> None:
    wide, narrow = (measure_machine(SIZES, d, "cuda") for d in (torch.float32, torch.bfloat16))
    assert 1e12 < wide.rate < narrow.rate
    assert narrow.bandwidth == pytest.approx(wide.bandwidth, rel=0.2)
    assert narrow.bandwidth > 1e11
