"""Runs stage 2 (see `decoder`): packed queries first, PaliGemma's own mask to the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clue_ros.data.tabletop.scene import Scene
from clue_ros.training.ahead import Ahead
from clue_ros.training.company import CompanyHeads
from clue_ros.training.data import TrainingData
from clue_ros.training.decoder import PackedDecoder, Teaching
from clue_ros.training.loop import Group, Parts, Settings, mean_figures, scratch_groups, train
from clue_ros.training.pool import ScenePool
from clue_ros.training.queries import Query, photo_queries, scene_queries
from clue_ros.training.replicas import Replicas, Share
from clue_ros.training.speed import PLAIN_SPEED, Speed
from clue_ros.training.vision import LOC_BINS, DenseHeads

PHOTO_SHARE = 0.2  # share of a batch's pictures that come from IT2P
QUERIES = 12  # a picture, packed
QUERIES_ALONE = 3  # a picture, one a sequence
ALONE_SHARE = 0.1  # of the steps, at the end, with PaliGemma's own mask, at least

USUAL = Teaching()

Batch = list[tuple[Scene, list[Query]]]


def draw(data: TrainingData, settings: Settings, step: int, per_picture: int) -> Batch:
    """The pictures and queries of one step; a function of (seed, step) alone."""
    rng = np.random.default_rng((settings.seed, 7, step))
    batch: Batch = []
    while len(batch) < settings.batch:
        if len(data.photos) > 0 and rng.uniform() < PHOTO_SHARE:
            i = int(rng.integers(len(data.photos)))
            seen = data.photos.augmented(i, rng, upside_down=True)
            queries = photo_queries(
                data.records[i], seen.scene, seen.mirror, per_picture, rng, data.language
            )
        else:
            seen = data.scenes.augmented(int(rng.integers(len(data.scenes))), rng, tables=True)
            queries = scene_queries(seen.scene, per_picture, rng, data.language)
        if queries:
            batch.append((seen.scene, queries))
    return batch


def is_alone(step: int, steps: int, share: float) -> bool:
    """Whether a step has one query a sequence: the last ones, and `share` of those before."""
    if step >= round(steps * (1 - ALONE_SHARE)):
        return True
    return int((step + 1) * share) > int(step * share)


def alone(batch: Batch, features: Tensor) -> tuple[Batch, Tensor]:
    """One query a sequence, and each sequence's features."""
    rows = [b for b, (_, queries) in enumerate(batch) for _ in queries]
    return [(scene, [query]) for scene, queries in batch for query in queries], features[rows]


def held_out(data: TrainingData) -> dict[str, Batch]:
    """Fixed validation pictures with fixed queries: simulator scenes and IT2P photographs."""
    rng = np.random.default_rng(1)
    pool: ScenePool = data.held_out
    out: dict[str, Batch] = {
        "val": [
            (pool[i], scene_queries(pool[i], QUERIES_ALONE, rng, data.language))
            for i in range(min(100, len(pool)))
        ]
    }
    if data.held_out_records:
        photos = data.held_out_photos
        out["photo"] = [
            (
                photos[i],
                photo_queries(r, photos[i], (False, False), QUERIES_ALONE, rng, data.language),
            )
            for i, r in enumerate(data.held_out_records)
        ]
    return {name: [(s, q) for s, q in batch if q] for name, batch in out.items()}


def learned_groups(model: Any, tower_rate: float) -> list[Group]:
    """Projector and decoder, and the tower at `tower_rate` of their learning rate; 0: frozen."""
    tower = model.model.vision_tower
    tower.requires_grad_(False)
    groups = scratch_groups((n, p) for n, p in model.named_parameters() if p.requires_grad)
    if tower_rate > 0:
        tower.requires_grad_(True)
        groups += [
            replace(g, lr_scale=tower_rate) for g in scratch_groups(tower.named_parameters())
        ]
    return groups


def dense_heads(model: Any, tokenizer: Any, data: TrainingData) -> DenseHeads:
    """New heads for the tower's patches; where a box's side is, as the model's location tokens."""
    heads = DenseHeads(model.config.vision_config.hidden_size, data.kinds, data.colors)
    first = tokenizer.convert_tokens_to_ids("<loc0000>")
    table = model.get_input_embeddings().weight[first : first + LOC_BINS]
    heads.table.data.copy_(table.detach())
    return heads


def train_decoder(
    model: Any,
    tokenizer: Any,
    data: TrainingData,
    settings: Settings,
    folder: Path,
    device: torch.device,
    notes: Mapping[str, Any] | None = None,
    speed: Speed = PLAIN_SPEED,
    tower_rate: float = 0.0,
    teaching: Teaching = USUAL,
    alone_share: float = 0.0,
) -> None:
    """Train projector and decoder of `model` in place; resumes from `folder`.

    notes: more of what decides the run. tower_rate: share of the learning rate at which the vision
    tower learns on from what the decoder makes of it. teaching: the losses at the end; the held-out
    figures are always of the usual ones, so that they compare. alone_share: of the steps before the
    last tenth, how many have one query a sequence as well.
    """
    decoder = PackedDecoder(model, tokenizer, device)
    groups = learned_groups(model, tower_rate)
    dense, company = None, None
    if teaching.dense and tower_rate > 0:
        torch.manual_seed(settings.seed)
        dense = dense_heads(model, tokenizer, data).to(device)
    if teaching.company:
        torch.manual_seed(settings.seed)
        company = CompanyHeads(model.config.text_config.hidden_size).to(device)
    for heads in (dense, company):
        if heads is not None:
            groups += scratch_groups((f"heads.{n}", p) for n, p in heads.named_parameters())
    model.train()
    model.model.vision_tower.eval()
    replicas = Replicas(decoder, speed.replicas, dense, company)

    def single(step: int) -> bool:
        return is_alone(step, settings.steps, alone_share)

    def drawn(step: int) -> list[Share]:
        batch = draw(data, settings, step, QUERIES_ALONE if single(step) else QUERIES)
        return replicas.shares(batch, is_alone=single(step))

    def batch_loss(step: int, shares: list[Share]) -> Parts:
        taught = teaching.at(step / settings.steps)
        return replicas.step(shares, taught, is_alone=single(step))

    def held_out_losses(part: Batch) -> dict[str, Tensor]:
        rows, features = alone(part, decoder.features([scene for scene, _ in part]))
        return decoder.losses(features, rows, USUAL, image_sees_prefix=True)

    fixed = held_out(data)

    def evaluate() -> dict[str, float]:
        model.eval()
        figures: dict[str, float] = {}
        with torch.no_grad():
            for name, whole in fixed.items():
                parts = [whole[i : i + 10] for i in range(0, len(whole), 10)]
                figures.update(mean_figures(name, parts, held_out_losses))
        model.train()
        model.model.vision_tower.eval()
        return figures

    kept: dict[str, Any] = {
        "tower_rate": tower_rate,
        "teaching": asdict(teaching),
        "alone_share": alone_share,
    }
    with replicas, Ahead(drawn, speed.workers, settings.steps) as batches:
        train(
            lambda step: batch_loss(step, batches(step)),
            groups,
            settings,
            folder,
            evaluate=evaluate,
            notes={**kept, **(notes or {})},
        )
    model.eval()
