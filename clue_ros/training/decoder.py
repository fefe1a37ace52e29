"""Stage 2 of the base: projector and decoder on the tower, which is frozen or learns on slowly.

Suffix cross-entropy alone does not learn in hours; two things make it learn in minutes. The
simulator's masks tell the attention where to look (the words at the block the detector will read,
equations 1 and 2; each suffix token at the block above it), and the location tokens' targets are
Gaussians that narrow, not single bins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

from clue_ros.data.tabletop.scene import Scene
from clue_ros.model.config import half_depth_block
from clue_ros.training.packed import (
    Packed,
    cross_entropy_sum,
    pack,
    packed_positions,
    point_shares,
    query_maps,
)
from clue_ros.training.packed_attention import NAME, attention_of, layout_of
from clue_ros.training.processes import autocast
from clue_ros.training.queries import Query
from clue_ros.training.vision import LOC_BINS, batch_tensor, soft_bins

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
