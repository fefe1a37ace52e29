"""Stage 2 of the base: projector and decoder on a frozen or slowly learning tower.

The suffix's cross-entropy alone does not learn in hours; two things make it learn in minutes. The
simulator's masks teach the attention its objects (`ivg.attention_losses`), and the location tokens'
targets are Gaussians that narrow, not single bins.

Packed queries come first (`packing`), PaliGemma's own mask last. Threads share a step's pictures,
each with a copy of the decoder's modules on the same weights.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.training.datasets import TrainingData
from clue_ros.lab.training.ivg import USUAL, Teaching, combine, loss_counts, summed_losses
from clue_ros.lab.training.loop import (
    Group,
    Parts,
    TrainingSettings,
    mean_figures,
    prefetch,
    scratch_groups,
    train,
)
from clue_ros.lab.training.packing import Packed, PackedDecoder
from clue_ros.lab.training.samples import (
    Sample,
    base_samples,
    held_out_base_samples,
    one_query_each,
)
from clue_ros.lab.training.vision import (
    LOC_BINS,
    SIGMA_BINS,
    DenseHeads,
    DenseTargets,
    VisionTeacher,
    dense_loss,
    dense_targets,
)

QUERIES = 12  # a picture, packed
QUERIES_ALONE = 3  # a picture, one a sequence
ALONE_AT_END = 0.1  # share of the steps, at the end, with one query a sequence


def location_table(model: Any, tokenizer: Any) -> Tensor:
    """The embeddings of the location tokens, (1024, width), without a copy."""
    first = tokenizer.convert_tokens_to_ids("<loc0000>")
    table: Tensor = model.get_input_embeddings().weight[first : first + LOC_BINS]
    return table.detach()


def init_decoder(model: Any, teacher: VisionTeacher, tokenizer: Any, *, fresh: bool = True) -> None:
    """Put stage 1's tower and table into a PaliGemma; a fresh one's projector becomes identity."""
    model.model.vision_tower.load_state_dict(teacher.tower.state_dict())
    location_table(model, tokenizer).copy_(teacher.heads.table)
    linear = model.model.multi_modal_projector.linear
    if fresh and linear.weight.shape[0] == linear.weight.shape[1]:
        with torch.no_grad():
            linear.weight.copy_(torch.eye(len(linear.weight)))
            linear.bias.zero_()


def train_decoder(
    model: Any,
    tokenizer: Any,
    data: TrainingData,
    settings: TrainingSettings,
    folder: Path,
    device: torch.device,
    notes: Mapping[str, Any] | None = None,
    *,
    tower_rate: float = 0.0,
    decoder_rate: float = 1.0,
    teaching: Teaching = USUAL,
    alone_share: float = 0.0,
    workers: int = 1,
    replicas: int = 1,
    heads: DenseHeads | None = None,
) -> None:
    """Train projector and decoder of `model` in place; resumes from `folder`.

    notes: see `train`. tower_rate: share of the learning rate at which the vision tower learns on;
    0: it is frozen. decoder_rate: the same of projector and decoder; with 0 the tower alone learns,
    for the decoder and the adapters that there are. teaching: the losses at the end; the held-out
    figures always have the usual ones, so that runs compare. alone_share: share of the steps before
    the last tenth with one query a sequence (`is_alone`). workers: of `prefetch`. replicas: threads
    that share a step. heads: stage 1's, which go on with the dense targets if the tower learns on.
    """
    decoder = PackedDecoder(model, tokenizer, device)
    groups = decoder_groups(model, tower_rate, decoder_rate)
    if not teaching.dense or tower_rate == 0:
        heads = None
    if heads is not None:
        heads.to(device)
        groups += scratch_groups((f"heads.{n}", p) for n, p in heads.named_parameters())

    def training_mode() -> None:
        model.train()
        model.model.vision_tower.eval()

    def single(step: int) -> bool:
        return is_alone(step, settings.steps, alone_share)

    def evaluate() -> dict[str, float]:
        model.eval()
        figures: dict[str, float] = {}
        with torch.no_grad():
            for name, samples in held_out.items():
                parts = [samples[i : i + 10] for i in range(0, len(samples), 10)]
                figures.update(mean_figures(name, parts, partial(held_out_losses, decoder)))
        training_mode()
        return figures

    training_mode()
    held_out = held_out_base_samples(data, QUERIES_ALONE)
    kept = {
        "tower_rate": tower_rate,
        **({} if decoder_rate == 1 else {"decoder_rate": decoder_rate}),
        "teaching": asdict(teaching),
        "alone_share": alone_share,
    }
    with Replicas(decoder, replicas, heads) as threads:

        def draw(step: int) -> list[Share]:
            per_picture = QUERIES_ALONE if single(step) else QUERIES
            samples = base_samples(data, settings, step, per_picture)
            return threads.shares(samples, is_alone=single(step))

        def batch_loss(step: int) -> Parts:
            now = teaching.at(step / settings.steps)
            return threads.step(batches(step), now, is_alone=single(step))

        with prefetch(draw, workers, settings.steps, device) as batches:
            train(
                batch_loss, groups, settings, folder,
                evaluate=evaluate, notes={**kept, **(notes or {})},
            )  # fmt: skip
    model.eval()


def is_alone(step: int, steps: int, share: float) -> bool:
    """Return whether a step has one query a sequence: the last ones, and `share` of the others."""
    if step >= round(steps * (1 - ALONE_AT_END)):
        return True
    return int((step + 1) * share) > int(step * share)


def held_out_losses(
    decoder: PackedDecoder, samples: Sequence[Sample], teaching: Teaching = USUAL
) -> dict[str, Tensor]:
    """Mean losses and figures of a batch with one query a sequence, as at inference."""
    single, rows = one_query_each(samples)
    packed = decoder.pack(single)
    features = decoder.features([scene for scene, _ in samples])[rows]
    sums = summed_losses(decoder, features, packed, teaching, image_sees_prefix=True)
    return combine(sums, loss_counts(packed, teaching, decoder.first_location), teaching)


def decoder_groups(model: Any, tower_rate: float = 0.0, decoder_rate: float = 1.0) -> list[Group]:
    """Projector and decoder, and the tower; each at its share of the learning rate, 0: frozen."""
    tower = model.model.vision_tower
    of_tower = {id(p) for p in tower.parameters()}
    groups: list[Group] = []
    for rate, learns in ((decoder_rate, False), (tower_rate, True)):
        parts = [(n, p) for n, p in model.named_parameters() if (id(p) in of_tower) == learns]
        for _, p in parts:
            p.requires_grad_(rate > 0)
        if rate > 0:
            groups += [replace(g, lr_scale=rate) for g in scratch_groups(parts)]
    return groups


# --- a step's pictures shared among threads

DENSE_FIGURES = {"dense": "loss", "kind_right": "kind_right"}  # names here and in `dense_loss`


@dataclass(frozen=True)
class Share:
    """One thread's part of a step.

    scenes: B pictures. rows: the picture of each packed sequence, (R,). packed: R sequences.
    targets: of the dense heads, for every patch of the pictures; None if they are not taught.
    """

    scenes: list[Scene]
    rows: list[int]
    packed: Packed
    targets: DenseTargets | None


def twin(decoder: PackedDecoder) -> PackedDecoder:
    """A copy of a decoder's modules and tokenizer that shares its parameters and buffers."""
    same = {id(t): t for t in (*decoder.model.parameters(), *decoder.model.buffers())}
    return PackedDecoder(
        copy.deepcopy(decoder.model, same),
        copy.deepcopy(decoder.tokenizer),
        decoder.device,
        decoder.precision,
    )


class Replicas:
    """A context of `count` copies of a decoder and the threads that run them.

    dense: heads on the tower's features, taught beside the decoder if given.
    """

    def __init__(
        self, decoder: PackedDecoder, count: int = 1, dense: DenseHeads | None = None
    ) -> None:
        self.decoders = [decoder, *(twin(decoder) for _ in range(count - 1))]
        self.dense = dense
        self._threads = torch.get_num_threads()
        each = partial(torch.set_num_threads, max(1, self._threads // count))
        self.pool: Executor | None = (
            ThreadPoolExecutor(count, "replica", each) if count > 1 else None
        )

    def __enter__(self) -> Replicas:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.pool is not None:
            self.pool.shutdown()
            torch.set_num_threads(self._threads)

    def shares(self, samples: Sequence[Sample], *, is_alone: bool) -> list[Share]:
        """A step's pictures dealt out to the threads. is_alone: one query a sequence."""
        count = len(self.decoders)
        return [self._share(samples[i::count], is_alone) for i in range(min(count, len(samples)))]

    def _share(self, samples: Sequence[Sample], is_alone: bool) -> Share:
        decoder, heads = self.decoders[0], self.dense
        scenes, targets = [scene for scene, _ in samples], None
        if heads is not None:
            targets = dense_targets(scenes, decoder.grid, heads.kinds, heads.colors)
        rows = list(range(len(samples)))
        if is_alone:
            samples, rows = one_query_each(samples)
        return Share(scenes, rows, decoder.pack(samples), targets)

    def step(self, shares: Sequence[Share], teaching: Teaching, *, is_alone: bool) -> Parts:
        """Return a step's losses, equal to those of one decoder on the whole batch.

        The dense losses are means over each share's patches, and then over the shares.
        """
        counts: dict[str, float] = {}
        for share in shares:
            own = loss_counts(share.packed, teaching, self.decoders[0].first_location)
            if share.targets is not None:
                own |= dict.fromkeys(DENSE_FIGURES, 1.0)
            counts = {name: counts.get(name, 0) + value for name, value in own.items()}

        def losses(totals: Mapping[str, float]) -> list[Callable[[], dict[str, Tensor]]]:
            return [
                partial(self._losses, decoder, share, totals, teaching, is_alone)
                for decoder, share in zip(self.decoders, shares, strict=False)
            ]

        return Parts(counts, losses, self.pool)

    def _losses(
        self,
        decoder: PackedDecoder,
        share: Share,
        totals: Mapping[str, float],
        teaching: Teaching,
        is_alone: bool,
    ) -> dict[str, Tensor]:
        features = decoder.features(share.scenes)
        rows = features if len(share.rows) == len(features) else features[share.rows]
        sums = summed_losses(decoder, rows, share.packed, teaching, image_sees_prefix=is_alone)
        if share.targets is not None and self.dense is not None:
            sigma = teaching.sigma or SIGMA_BINS[1]  # 0 is for the location tokens alone
            found = dense_loss(features.float(), self.dense, share.targets, sigma)
            sums |= {ours: found[theirs] for ours, theirs in DENSE_FIGURES.items()}
        return combine(sums, totals, teaching)
