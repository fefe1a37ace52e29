"""What an object is among those of its kind: the targets by hand, and that heads learn them."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from decoder_helpers import Batch, new_batch, new_decoder
from drawn_scenes import draw_scene
from tiny_model import write_random_model
from torch.nn import functional as F

from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.training.decoder import (
    NUMBERS,
    UNKNOWN,
    CompanyHeads,
    Replicas,
    Teaching,
    company_loss,
    company_of,
    image_states,
)
from clue_ros.lab.training.loop import Settings, scratch_groups, train
from clue_ros.lab.training.vision import owners


def thing(x: float, kind: str, side: float) -> SceneObject:
    half = side / 2
    return SceneObject(kind, "red", (x - half, 0.5 - half, x + half, 0.5 + half), side)


def scene_of(*things: SceneObject) -> Scene:
    return Scene(np.zeros((8, 8, 3), np.uint8), things, np.zeros((8, 8), np.uint8))


def test_targets_by_hand() -> None:
    row = scene_of(
        thing(0.1, "mug", 0.08), thing(0.5, "mug", 0.12), thing(0.9, "mug", 0.08),
        thing(0.3, "bowl", 0.1),
    )  # fmt: skip
    many = scene_of(*(thing(0.1 + 0.15 * i, "fork", 0.1) for i in range(6)))
    scenes = [row, scene_of(), many]
    found = company_of(scenes, owners(scenes, 4))
    assert found.count.tolist() == [2, 2, 2, 0] + [NUMBERS - 1] * 6
    # left, right, top, bottom: side by side, nobody counts them from the top
    assert found.rank[:4].tolist() == [
        [0, 2, UNKNOWN, UNKNOWN], [1, 1, UNKNOWN, UNKNOWN], [2, 0, UNKNOWN, UNKNOWN],
        [UNKNOWN] * 4,
    ]  # fmt: skip
    assert found.rank[4:, 0].tolist() == [0, 1, 2, 3, 4, 4]
    assert found.rank[4:, 1].tolist() == [4, 4, 3, 2, 1, 0]
    # the small ones are two, and none of the forks is larger than another
    assert found.size.tolist() == [1, 0, 1, UNKNOWN] + [UNKNOWN] * 6


def test_the_loss_is_nothing_when_every_head_is_right_and_much_when_swapped() -> None:
    """Heads set by hand to read features that name the object of each patch."""
    scene = draw_scene(16, [("ball", "red", (0, 0, 4, 4)), ("ball", "blue", (12, 12, 16, 16))])
    targets = company_of([scene], owners([scene], 4))
    states = torch.zeros(1, 16, 8)
    states[0, 0, 0], states[0, 15, 1] = 1, 1  # the two balls' patches
    heads = CompanyHeads(8)
    seen = F.layer_norm(torch.eye(8)[:2], (8,))
    with torch.no_grad():
        for layer in (heads.count, heads.rank, heads.size):
            layer.weight.zero_()
            layer.bias.zero_()
        heads.count.bias[1] = 40
        rank = heads.rank.weight.view(4, NUMBERS + 1, 8)
        for i in (0, 1):
            for side in range(4):
                if targets.rank[i, side] != UNKNOWN:
                    rank[side, targets.rank[i, side]] += 20 * (seen[i] - seen[1 - i])
        found = company_loss(states, [0], heads, targets)
        swapped = company_loss(states.flip(1), [0], heads, targets)
    assert float(found["loss"]) < 1e-3
    assert float(found["rank_right"]) == 1
    assert float(swapped["loss"]) > 10
    assert float(swapped["rank_right"]) == 0


def test_a_picture_of_single_things_teaches_their_number_alone() -> None:
    scene = draw_scene(16, [("ball", "red", (0, 0, 8, 8)), ("block", "blue", (8, 8, 16, 16))])
    heads = CompanyHeads(8)
    found = company_loss(torch.randn(1, 16, 8), [0], heads, company_of([scene], owners([scene], 4)))
    torch.autograd.backward(found["loss"])
    assert heads.count.weight.grad is not None
    assert heads.count.weight.grad.abs().max() > 0
    for layer in (heads.rank, heads.size):
        assert layer.weight.grad is not None
        assert layer.weight.grad.abs().max() == 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("model"), vocabulary())


@pytest.fixture(scope="module")
def batch() -> Batch:
    return new_batch()


def test_what_is_read_enters_the_detectors_block(folder: Path, batch: Batch) -> None:
    decoder = new_decoder(folder)
    packed = decoder.pack(batch)
    features = decoder.features([scene for scene, _ in batch])
    layers = decoder.model.model.language_model.layers
    with image_states(decoder) as states, torch.no_grad():
        decoder.run(features, packed, image_sees_prefix=False)
        before = layers[decoder.block - 1].register_forward_hook(
            lambda _module, _args, out: states.append(out[0] if isinstance(out, tuple) else out)
        )
        decoder.run(features, packed, image_sees_prefix=False)
        before.remove()
    first, block_before, again = states
    assert first.shape == (len(batch), decoder.tokens, block_before.shape[-1])
    assert torch.equal(first, again)
    assert torch.equal(again, block_before[:, : decoder.tokens])
    with torch.no_grad():
        decoder.run(features, packed, image_sees_prefix=False)
    assert len(states) == 3  # it no longer listens


@pytest.mark.parametrize("is_alone", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_heads_learn_beside_the_decoder(
    folder: Path, batch: Batch, tmp_path: Path, count: int, is_alone: bool
) -> None:
    decoder = new_decoder(folder)
    torch.manual_seed(0)
    heads = CompanyHeads(decoder.model.config.text_config.hidden_size)
    groups = scratch_groups([(f"heads.{n}", p) for n, p in heads.named_parameters()])
    groups += scratch_groups(decoder.model.named_parameters())
    settings = Settings(steps=8, batch=len(batch), lr=2e-3, warmup=0.0)
    with Replicas(decoder, count, company=heads) as replicas:
        shares = replicas.shares(batch, is_alone=is_alone)
        train(
            lambda _: replicas.step(shares, Teaching(company=1.0), is_alone=is_alone),
            groups, settings, tmp_path, log_every=1,
        )  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    losses = [row["company"] for row in rows if "company" in row]
    assert losses[-1] < 0.8 * losses[0]
    assert all(0 <= row["rank_right"] <= 1 for row in rows if "rank_right" in row)
