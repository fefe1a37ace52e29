"""Stage 2 of the base: projector and decoder on the tower, which is frozen or learns on slowly.

Suffix cross-entropy alone does not learn in hours; two things make it learn in minutes. The
simulator's masks tell the attention where to look (the words at the block the detector will read,
equations 1 and 2; each suffix token at the block above it), and the location tokens' targets are
Gaussians that narrow, not single bins.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

from clue_ros.lab.language.references import ORDER_AXES
from clue_ros.lab.language.references import by_order as ordered
from clue_ros.lab.language.references import by_size as sized
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.training.augment import ScenePool
from clue_ros.lab.training.datasets import TrainingData
from clue_ros.lab.training.loop import (
    Ahead,
    Group,
    Parts,
    Settings,
    mean_figures,
    scratch_groups,
    train,
)
from clue_ros.lab.training.packing import (
    NAME,
    Packed,
    attention_of,
    cross_entropy_sum,
    layout_of,
    pack,
    packed_positions,
    point_shares,
    query_maps,
)
from clue_ros.lab.training.parallel import PLAIN_SPEED, Speed, autocast
from clue_ros.lab.training.samples import Query, photo_queries, scene_queries
from clue_ros.lab.training.vision import (
    LOC_BINS,
    SIGMA_BINS,
    DenseHeads,
    DenseTargets,
    batch_tensor,
    dense_loss,
    dense_targets,
    owners,
    soft_bins,
)
from clue_ros.model.config import half_depth_block

LOOK_WEIGHT = 0.15
POINT_WEIGHT = 0.15
LOCATION_SIGMA = 1.5  # bins
FIRST_SIGMA = 8.0  # bins

Number = TypeVar("Number", Tensor, float)


def init_decoder(
    model: Any, tower: nn.Module, table: Tensor, tokenizer: Any, *, fresh: bool = True
) -> None:
    """Put stage 1's tower and table into a PaliGemma; a fresh one's projector becomes identity."""
    model.model.vision_tower.load_state_dict(tower.state_dict())
    first = tokenizer.convert_tokens_to_ids("<loc0000>")
    with torch.no_grad():
        model.get_input_embeddings().weight[first : first + LOC_BINS] = table
        linear = model.model.multi_modal_projector.linear
        if fresh and linear.weight.shape[0] == linear.weight.shape[1]:
            linear.weight.copy_(torch.eye(len(linear.weight)))
            linear.bias.zero_()


@dataclass(frozen=True)
class Teaching:
    """What the decoder is taught beside the suffix's words.

    look, point: weights of the attention's losses, where masks are known (0: none, nothing is
    computed). sigma: width of the location tokens' Gaussian targets in bins; 0 is the paper's plain
    cross-entropy. first_sigma: their width when a stage begins (`at`). dense, company: weights
    of what the tower's patches (`vision`) and the decoder's (`company`) are taught, by `Replicas`.
    """

    look: float = LOOK_WEIGHT
    point: float = POINT_WEIGHT
    sigma: float = LOCATION_SIGMA
    dense: float = 0.0
    first_sigma: float = FIRST_SIGMA
    company: float = 0.0

    def at(self, progress: float) -> Teaching:
        """What is taught at a share of a stage's steps: the width narrows until 0.7 of them."""
        if self.sigma <= 0:
            return self
        wider = max(1.0, self.first_sigma / self.sigma) ** max(0.0, 1 - progress / 0.7)
        return replace(self, sigma=self.sigma * wider)


class PackedDecoder:
    """A PaliGemma run on packed queries, and the losses of what it says and where it looks."""

    def __init__(
        self,
        model: PaliGemmaForConditionalGeneration,
        tokenizer: Any,
        device: torch.device,
        precision: str = "auto",
    ) -> None:
        self.model: Any = model.to(device)
        self.tokenizer = tokenizer
        self.device = device
        self.precision = precision
        config: Any = model.config
        self.grid: int = config.vision_config.image_size // config.vision_config.patch_size
        self.tokens = self.grid * self.grid
        self.block = half_depth_block(config.text_config.num_hidden_layers)
        self.first_loc: int = tokenizer.convert_tokens_to_ids("<loc0000>")

    def pack(self, batch: Sequence[tuple[Scene, Sequence[Query]]]) -> Packed:
        """Tokenize and lay out queries for this model."""
        return pack(batch, self.tokenizer, self.grid)

    def features(self, scenes: Sequence[Scene]) -> Tensor:
        """The tower's features (B, N, width) of pictures; with gradients only if it learns."""
        tower = self.model.model.vision_tower
        pixels = batch_tensor(list(scenes), self.device).to(tower.dtype)
        with autocast(self.device, self.precision):
            features: Tensor = tower(pixel_values=pixels).last_hidden_state
        return features

    def run(
        self,
        features: Tensor,
        batch: Packed,
        *,
        image_sees_prefix: bool,
        blocks: Sequence[int] | None = None,
    ) -> tuple[Tensor, dict[int, Tensor]]:
        """Hidden states (B, N + T, width); attention (B, H, T, N) to the image, of `blocks`.

        blocks: None for all.
        """
        model = self.model.model
        decoder = model.language_model
        read = range(len(decoder.layers)) if blocks is None else blocks
        seen: dict[int, Tensor] = {}
        hooks = [
            decoder.layers[i].self_attn.register_forward_hook(
                lambda _module, _args, out, i=i: seen.__setitem__(i, out[1])
            )
            for i in read
        ]
        layout = layout_of(
            batch, self.tokens, image_sees_prefix=image_sees_prefix, read=frozenset(read)
        )
        try:
            with autocast(self.device, self.precision), attention_of(decoder, NAME):
                image = model.multi_modal_projector(features)
                text = decoder.embed_tokens(batch.ids)
                out = decoder(
                    inputs_embeds=torch.cat([image.to(text.dtype), text], dim=1),
                    attention_mask={"full_attention": None, "sliding_attention": None},
                    position_ids=packed_positions(batch, self.tokens),
                    use_cache=False,
                    layout=layout,
                )
        finally:
            for hook in hooks:
                hook.remove()
        return out.last_hidden_state, seen

    def logits(self, hidden: Tensor) -> Tensor:
        """(n, width) to float32 logits (n, V), with the final softcap."""
        logits: Tensor = self.model.lm_head(hidden.to(self.model.lm_head.weight.dtype)).float()
        cap = self.model.config.text_config.final_logit_softcapping
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def losses(
        self,
        features: Tensor,
        batch: Sequence[tuple[Scene, Sequence[Query]]],
        teaching: Teaching,
        *,
        image_sees_prefix: bool,
    ) -> dict[str, Tensor]:
        """All losses and figures of a batch. features: (B, N, width), one row a sequence."""
        packed = self.pack(batch)
        sums = self.sums(features, packed, teaching, image_sees_prefix=image_sees_prefix)
        return combine(sums, self.counts(packed, teaching), teaching)

    def counts(self, packed: Packed, teaching: Teaching) -> dict[str, float]:
        """What each of `sums` is a sum over: suffix tokens, maps, pointing tokens, words, boxes."""
        labels = packed.labels[packed.labels != -100]
        locations = int(self._is_location(labels).sum())
        return {
            "suffix": float(len(labels)),
            "look": float(len(packed.map_rows)) if teaching.look else 0.0,
            "point": float(len(packed.point_rows)) if teaching.point else 0.0,
            "word_right": float(len(labels) - locations),
            "box_right": locations / 4,
        }

    def sums(
        self, features: Tensor, packed: Packed, teaching: Teaching, *, image_sees_prefix: bool
    ) -> dict[str, Tensor]:
        """Losses and figures summed over a batch, so that parts of a larger one add up."""
        packed = packed.to(self.device)
        blocks = [self.block, self.block + 1] if teaching.look or teaching.point else []
        hidden, attention = self.run(
            features, packed, image_sees_prefix=image_sees_prefix, blocks=blocks
        )
        sums = self._said(hidden, packed, teaching.sigma)
        if teaching.look:
            maps = query_maps(attention[self.block], packed)
            sums["look"] = cross_entropy_sum(packed.maps, maps)
        if teaching.point:
            points = point_shares(attention[self.block + 1], packed)
            sums["point"] = cross_entropy_sum(packed.points, points)
        return sums

    def _is_location(self, labels: Tensor) -> Tensor:
        return (labels >= self.first_loc) & (labels < self.first_loc + LOC_BINS)

    def _said(self, hidden: Tensor, packed: Packed, sigma: float) -> dict[str, Tensor]:
        """Suffix cross-entropy: location tokens against Gaussians, words as they are."""
        sequence, at = (packed.labels != -100).nonzero().unbind(1)
        labels = packed.labels[sequence, at]
        log_p = self.logits(hidden[sequence, at + self.tokens - 1]).log_softmax(-1)
        is_loc = self._is_location(labels)
        bins = labels[is_loc] - self.first_loc
        words, locs = log_p[~is_loc], log_p[is_loc][:, self.first_loc : self.first_loc + LOC_BINS]
        loss = F.nll_loss(words, labels[~is_loc], reduction="sum")
        if sigma > 0:
            loss = loss - (soft_bins(bins.float(), sigma) * locs).sum()
        else:
            loss = loss + F.nll_loss(locs, bins, reduction="sum")
        with torch.no_grad():
            figures = {
                "word_right": (words.argmax(-1) == labels[~is_loc]).float().sum(),
                "box_right": boxes_right(locs.argmax(-1), bins).sum(),
            }
        return {"suffix": loss, **figures}


def combine(
    sums: Mapping[str, Number], counts: Mapping[str, float], teaching: Teaching
) -> dict[str, Number]:
    """Sums to means (over larger counts: to shares of means), and the loss made of them."""
    means = {name: total / max(counts[name], 1) for name, total in sums.items()}
    loss = means["suffix"]
    for name in ("look", "point", "dense", "company"):
        if name in means:
            loss = loss + getattr(teaching, name) * means[name]
    # a share of nothing is no figure
    return {"loss": loss, **{k: v for k, v in means.items() if counts[k] > 0}}


def boxes_right(found: Tensor, truth: Tensor) -> Tensor:
    """Which boxes have an IoU of at least 0.5: (n,) 0. or 1.

    found, truth: (4 n,) bins in the order y1 x1 y2 x2.
    """
    a, b = found.view(-1, 4).float(), truth.view(-1, 4).float()
    low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    both = (high - low).clamp(min=0).prod(1)
    area_a, area_b = ((x[:, 2:] - x[:, :2]).clamp(min=0).prod(1) for x in (a, b))
    return (both / (area_a + area_b - both).clamp(min=1) >= 0.5).float()


# -------------------------------------------------------------------------------------------------
# What an object is among those of its kind, taught to the picture's tokens before the words ask.

NUMBERS = 4  # counted one by one; more are one class
SIZES = 3  # the biggest, the smallest, neither
UNKNOWN = -100  # people would differ, or there is nothing to compare: not taught


@dataclass(frozen=True)
class Company:
    """What there is to say of n objects, in the order of the scenes; UNKNOWN where nothing is.

    owner: (B, N) int64, each patch's object, over B scenes, as `vision.owners` counts them. count:
    (n,) 0..NUMBERS - 1, how many of its kind there are, from 1. rank: (n, 4) 0..NUMBERS, its number
    from the left, right, top and bottom, from the first. size: (n,) 0..SIZES - 1.
    """

    owner: Tensor
    count: Tensor
    rank: Tensor
    size: Tensor


def company_of(scenes: Sequence[Scene], owner: Tensor) -> Company:
    """The targets of scenes, by what requests mean (`clue_ros.lab.language.references`).

    owner: (B, N) int64, of `vision.owners`.
    """
    rows = [
        (len(pool), _ranks(i, pool, scene.objects), _size(i, pool, scene.objects))
        for scene in scenes
        for i, pool in enumerate(_pools(scene.objects))
    ]
    return Company(
        owner,
        torch.tensor([min(count, NUMBERS) - 1 for count, _, _ in rows], dtype=torch.long),
        torch.tensor([rank for _, rank, _ in rows], dtype=torch.long).view(-1, len(ORDER_AXES)),
        torch.tensor([size for _, _, size in rows], dtype=torch.long),
    )


def _pools(objects: Sequence[SceneObject]) -> list[list[int]]:
    """Of each object, all of its kind."""
    return [[i for i, p in enumerate(objects) if p.kind == o.kind] for o in objects]


def _ranks(i: int, pool: Sequence[int], objects: Sequence[SceneObject]) -> list[int]:
    found = []
    for side in ORDER_AXES:
        numbers = [n for n in range(1, len(pool) + 1) if ordered(pool, objects, n, side) == (i,)]
        found.append(min(numbers[0] - 1, NUMBERS) if numbers else UNKNOWN)
    return found


def _size(i: int, pool: Sequence[int], objects: Sequence[SceneObject]) -> int:
    big, small = (sized(pool, objects, size) for size in ("big", "small"))
    if big and i in big:
        return 0
    if small and i in small:
        return 1
    return UNKNOWN if big is None or small is None else 2


class CompanyHeads(nn.Module):
    """Reads the targets off hidden states (n, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.count = nn.Linear(width, NUMBERS)
        self.rank = nn.Linear(width, len(ORDER_AXES) * (NUMBERS + 1))
        self.size = nn.Linear(width, SIZES)


@contextmanager
def image_states(decoder: PackedDecoder) -> Iterator[list[Tensor]]:
    """Collects what the picture's tokens are, (R, N, width), whenever the decoder is run."""
    seen: list[Tensor] = []
    block = decoder.model.model.language_model.layers[decoder.block]
    hook = block.register_forward_pre_hook(
        lambda _module, args: seen.append(args[0][:, : decoder.tokens])
    )
    try:
        yield seen
    finally:
        hook.remove()


def company_loss(
    states: Tensor, rows: Sequence[int], heads: CompanyHeads, targets: Company
) -> dict[str, Tensor]:
    """Loss and figures of a batch; every patch of an object says what the object is.

    states: (R, N, width). rows: which scene each of the R is about.
    """
    owner = targets.owner[list(rows)].flatten().to(states.device)
    mine = owner >= 0
    row = owner[mine]
    hidden = states.float().flatten(0, 1)[mine]
    hidden = F.layer_norm(hidden, hidden.shape[-1:])
    counts, ranks, sizes = (
        known.to(states.device)[row] for known in (targets.count, targets.rank, targets.size)
    )
    # An object counts as much as another, however many patches are its own.
    share = 1 / row.bincount()[row]
    count, rank = heads.count(hidden), heads.rank(hidden).unflatten(-1, (-1, NUMBERS + 1))
    parts = [
        _mean_loss(count, counts, share),
        _mean_loss(rank.flatten(0, 1), ranks.flatten(), share.repeat_interleave(4)),
        _mean_loss(heads.size(hidden), sizes, share),
    ]
    with torch.no_grad():
        said = ranks != UNKNOWN
        right = (rank.argmax(-1) == ranks)[said].float()
    return {
        "loss": torch.stack(parts).sum(),
        "rank_right": right.mean() if len(right) else right.sum(),
    }


def _mean_loss(logits: Tensor, truth: Tensor, share: Tensor) -> Tensor:
    """Cross-entropy over what is known, weighted; 0 where nothing is."""
    wrong = F.cross_entropy(logits, truth, reduction="none", ignore_index=UNKNOWN)
    weight = share * (truth != UNKNOWN)
    return (wrong * weight).sum() / weight.sum().clamp(min=1e-6)


# -------------------------------------------------------------------------------------------------
# A step's pictures shared among threads, each with a decoder of its own on the same weights.

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


# -------------------------------------------------------------------------------------------------
# Runs stage 2 (see `decoder`): packed queries first, PaliGemma's own mask to the end.

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
