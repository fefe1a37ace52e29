"""Threads that share a step's pictures learn what one decoder learns on them all."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from decoder_helpers import Batch, new_batch, new_decoder
from tiny_model import write_random_model
from torch import Tensor

from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator.worlds import BLOCKS
from clue_ros.lab.training.decoder import Replicas, twin
from clue_ros.lab.training.ivg import Teaching
from clue_ros.lab.training.loop import Group, TrainingSettings, train
from clue_ros.lab.training.vision import DenseHeads

TEACHING = Teaching(dense=0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_model(tmp_path_factory.mktemp("model"), vocabulary())


@pytest.fixture(scope="module")
def batch() -> Batch:
    return new_batch()


def trained(
    folder: Path, batch: Batch, run: Path, count: int, heads: DenseHeads | None, *, is_alone: bool
) -> Mapping[str, Tensor]:
    """The weights after two steps on the same pictures."""
    decoder = new_decoder(folder)
    groups = [Group(list(decoder.model.parameters()))]
    if heads is not None:
        groups.append(Group(list(heads.parameters())))
    settings = TrainingSettings(steps=2, batch=len(batch), lr=1e-3, warmup=0.0)
    with Replicas(decoder, count, heads) as replicas:
        shares = replicas.shares(batch, is_alone=is_alone)
        assert len(shares) == count
        assert sum(len(share.scenes) for share in shares) == len(batch)
        train(
            lambda _: replicas.step(shares, TEACHING, is_alone=is_alone),
            groups, settings, run, log_every=1,
        )  # fmt: skip
    weights: Mapping[str, Tensor] = decoder.model.state_dict()
    return weights


def losses(run: Path) -> list[float]:
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows]


@pytest.mark.parametrize("is_alone", [False, True])
def test_threads_learn_what_one_decoder_learns(
    folder: Path, batch: Batch, tmp_path: Path, is_alone: bool
) -> None:
    one = trained(folder, batch, tmp_path / "one", 1, None, is_alone=is_alone)
    three = trained(folder, batch, tmp_path / "three", 3, None, is_alone=is_alone)
    assert losses(tmp_path / "three") == pytest.approx(losses(tmp_path / "one"), rel=1e-5)
    before = new_decoder(folder).model.state_dict()
    moved = 0.0
    for name, weights in one.items():
        # Adam divides by the gradient's size: where that is near nothing, rounding decides
        torch.testing.assert_close(three[name], weights, atol=2e-4, rtol=1e-3)
        moved = max(moved, float((weights - before[name]).abs().max()))
    assert moved > 1e-3


def test_the_towers_heads_learn_in_every_thread(folder: Path, batch: Batch, tmp_path: Path) -> None:
    heads = DenseHeads(
        new_decoder(folder).model.config.vision_config.hidden_size,
        BLOCKS.kinds,
        tuple(BLOCKS.colors),
    )
    before = heads.kind.weight.detach().clone()
    trained(folder, batch, tmp_path / "run", 2, heads, is_alone=False)
    assert (heads.kind.weight - before).abs().max() > 1e-4
    row = (tmp_path / "run" / "log.jsonl").read_text().splitlines()[0]
    assert '"dense"' in row
    assert '"kind_right"' in row


def test_a_twin_has_its_own_modules_and_the_same_weights(folder: Path) -> None:
    decoder = new_decoder(folder)
    other = twin(decoder)
    assert other.model is not decoder.model
    assert other.tokenizer is not decoder.tokenizer
    mine, its = dict(decoder.model.named_parameters()), dict(other.model.named_parameters())
    assert mine.keys() == its.keys()
    assert all(mine[name] is its[name] for name in mine)
    layers = [d.model.model.language_model.layers[0] for d in (decoder, other)]
    assert layers[0] is not layers[1]


def test_the_threads_end_and_give_the_cores_back(folder: Path) -> None:
    before = torch.get_num_threads()
    with Replicas(new_decoder(folder), 2) as replicas:
        assert replicas.pool is not None
        replicas.pool.submit(torch.get_num_threads).result()
    assert torch.get_num_threads() == before
    with pytest.raises(RuntimeError):
        replicas.pool.submit(int)
    with Replicas(new_decoder(folder), 1) as alone:
        assert alone.pool is None
