"""A step's pictures shared among threads, each with a decoder of its own on the same weights.

One operation on several cores gains little on a small model: most are short, and most of a step is
spent in waiting for each other. A whole share of the batch on one core each does not wait. Modules
are copied, because what is read of their attention is theirs (hooks); parameters are not.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from types import TracebackType

import torch
from torch import Tensor

from clue_ros.data.tabletop.scene import Scene
from clue_ros.training.company import (
    Company,
    CompanyHeads,
    company_loss,
    company_of,
    image_states,
)
from clue_ros.training.decoder import PackedDecoder, Teaching, combine
from clue_ros.training.loop import Parts
from clue_ros.training.packed import Packed
from clue_ros.training.queries import Query
from clue_ros.training.vision import (
    SIGMA_BINS,
    DenseHeads,
    DenseTargets,
    dense_loss,
    dense_targets,
    owners,
)

DENSE_FIGURES = {"dense": "loss", "kind_right": "kind_right"}  # ours: `dense_loss`'s
COMPANY_FIGURES = {"company": "loss", "rank_right": "rank_right"}  # ours: `company_loss`'s


@dataclass(frozen=True)
class Share:
    """What one thread computes of a step.

    scenes: B pictures. rows: which of them each packed sequence is about, (R,). packed: R
    sequences. targets: of the dense heads, for every patch of the pictures. company: what their
    objects are among their kind. Both are None where neither is taught.
    """

    scenes: list[Scene]
    rows: list[int]
    packed: Packed
    targets: DenseTargets | None
    company: Company | None = None


def twin(decoder: PackedDecoder) -> PackedDecoder:
    """Another of the same weights: modules and tokenizer copied, parameters and buffers shared."""
    same = {id(t): t for t in (*decoder.model.parameters(), *decoder.model.buffers())}
    return PackedDecoder(
        copy.deepcopy(decoder.model, same),
        copy.deepcopy(decoder.tokenizer),
        decoder.device,
        decoder.precision,
    )


class Replicas:
    """`count` copies of a decoder and the threads that run them; a context, which ends them.

    dense: heads on the tower's features; company: heads on the picture's tokens in the decoder.
    Both are taught beside the decoder where given.
    """

    def __init__(
        self,
        decoder: PackedDecoder,
        count: int = 1,
        dense: DenseHeads | None = None,
        company: CompanyHeads | None = None,
    ) -> None:
        self.decoders = [decoder, *(twin(decoder) for _ in range(count - 1))]
        self.dense = dense
        self.company = company
        self._threads = torch.get_num_threads()
        each = partial(torch.set_num_threads, max(1, self._threads // count))
        self._pool = ThreadPoolExecutor(count, "replica", each) if count > 1 else None

    def __enter__(self) -> Replicas:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown()
            torch.set_num_threads(self._threads)

    @property
    def pool(self) -> Executor | None:
        """Where the shares of a step are computed; None: one after another, where it is asked."""
        return self._pool

    def shares(
        self, batch: Sequence[tuple[Scene, Sequence[Query]]], *, is_alone: bool
    ) -> list[Share]:
        """A step's pictures dealt out; is_alone: one query a sequence, not all of a picture's."""
        count = len(self.decoders)
        return [self._share(batch[i::count], is_alone) for i in range(min(count, len(batch)))]

    def _share(self, batch: Sequence[tuple[Scene, Sequence[Query]]], is_alone: bool) -> Share:
        decoder = self.decoders[0]
        scenes = [scene for scene, _ in batch]
        rows = list(range(len(batch)))
        if is_alone:
            rows = [b for b, (_, queries) in enumerate(batch) for _ in queries]
            batch = [(scene, [query]) for scene, queries in batch for query in queries]
        targets, company = None, None
        if self.dense is not None:
            heads = self.dense
            targets = dense_targets(scenes, decoder.grid, heads.kinds, heads.colors)
        if self.company is not None:
            # the dense targets know already whose each patch is
            owner = owners(scenes, decoder.grid) if targets is None else targets.owner
            company = company_of(scenes, owner.view(len(scenes), -1))
        return Share(scenes, rows, decoder.pack(batch), targets, company)

    def step(self, shares: Sequence[Share], teaching: Teaching, *, is_alone: bool) -> Parts:
        """The losses of a step, which are those of one decoder on the whole batch.

        The losses of the heads alone are means over each share's patches, and then over the shares.
        """
        counts = [self._counts(share, teaching) for share in shares]
        whole = {name: sum(count[name] for count in counts) for name in counts[0]}

        def losses(totals: Mapping[str, float]) -> list[Callable[[], dict[str, Tensor]]]:
            return [
                partial(self._losses, decoder, share, totals, teaching, is_alone)
                for decoder, share in zip(self.decoders, shares, strict=False)
            ]

        return Parts(whole, losses, self.pool)

    def _counts(self, share: Share, teaching: Teaching) -> dict[str, float]:
        counts = self.decoders[0].counts(share.packed, teaching)
        if share.targets is not None:
            counts |= dict.fromkeys(DENSE_FIGURES, 1.0)
        if share.company is not None:
            counts |= dict.fromkeys(COMPANY_FIGURES, 1.0)
        return counts

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
        listening: AbstractContextManager[list[Tensor]] = (
            nullcontext([]) if share.company is None else image_states(decoder)
        )
        with listening as states:
            sums = decoder.sums(rows, share.packed, teaching, image_sees_prefix=is_alone)
        if share.targets is not None and self.dense is not None:
            sigma = teaching.sigma or SIGMA_BINS[1]  # 0 is of the words' locations alone
            found = dense_loss(features.float(), self.dense, share.targets, sigma)
            sums |= {ours: found[theirs] for ours, theirs in DENSE_FIGURES.items()}
        if share.company is not None and self.company is not None:
            found = company_loss(states[0], share.rows, self.company, share.company)
            sums |= {ours: found[theirs] for ours, theirs in COMPANY_FIGURES.items()}
        return combine(sums, totals, teaching)
