"""Stage 2 of the base: projector and decoder on the frozen tower, from scratch.

Suffix cross-entropy alone does not learn in hours; two things make it learn in minutes. The
simulator's masks tell the attention where to look (the words at the block the detector will read,
equations 1 and 2; each suffix token at the block above it), and the location tokens' targets are
Gaussians that narrow, not single bins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

from clue_ros.data.tabletop.scene import Scene
from clue_ros.model.config import half_depth_block
from clue_ros.training.loop import autocast
from clue_ros.training.packed import (
    Packed,
    cross_entropy_to,
    pack,
    packed_mask,
    packed_positions,
    point_shares,
    query_maps,
)
from clue_ros.training.queries import Query
from clue_ros.training.vision import LOC_BINS, batch_tensor, soft_bins

LOOK_WEIGHT = 0.15
POINT_WEIGHT = 0.15


def init_decoder(model: Any, tower: nn.Module, table: Tensor, tokenizer: Any) -> None:
    """Put stage 1's tower and table into a fresh PaliGemma; its projector starts as identity."""
    model.model.vision_tower.load_state_dict(tower.state_dict())
    first = tokenizer.convert_tokens_to_ids("<loc0000>")
    with torch.no_grad():
        model.get_input_embeddings().weight[first : first + LOC_BINS] = table
        linear = model.model.multi_modal_projector.linear
        if linear.weight.shape[0] == linear.weight.shape[1]:
            linear.weight.copy_(torch.eye(len(linear.weight)))
            linear.bias.zero_()


class PackedDecoder:
    """A PaliGemma run on packed queries, and the losses of what it says and where it looks."""

    def __init__(
        self, model: PaliGemmaForConditionalGeneration, tokenizer: Any, device: torch.device
    ) -> None:
        self.model: Any = model.to(device)
        self.tokenizer = tokenizer
        self.device = device
        config: Any = model.config
        self.grid: int = config.vision_config.image_size // config.vision_config.patch_size
        self.tokens = self.grid * self.grid
        self.block = half_depth_block(config.text_config.num_hidden_layers)
        self.first_loc: int = tokenizer.convert_tokens_to_ids("<loc0000>")

    def features(self, scenes: Sequence[Scene]) -> Tensor:
        """Frozen tower's features (B, N, width) of pictures."""
        with torch.no_grad(), autocast(self.device):
            out = self.model.model.vision_tower(
                pixel_values=batch_tensor(list(scenes), self.device)
            )
        features: Tensor = out.last_hidden_state
        return features

    def run(
        self, features: Tensor, batch: Packed, *, image_sees_prefix: bool
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Hidden states (B, N + T, width) and every block's attention (B, H, S, S)."""
        model = self.model.model
        with autocast(self.device):
            image = model.multi_modal_projector(features)
            text = model.language_model.embed_tokens(batch.ids)
            allowed = packed_mask(batch, self.tokens, image_sees_prefix=image_sees_prefix)
            added = torch.zeros(allowed.shape, device=self.device).masked_fill(~allowed, -1e9)
            out = model.language_model(
                inputs_embeds=torch.cat([image.to(text.dtype), text], dim=1),
                attention_mask={"full_attention": added, "sliding_attention": added},
                position_ids=packed_positions(batch, self.tokens),
                output_attentions=True,
                use_cache=False,
            )
        return out.last_hidden_state, out.attentions

    def logits(self, hidden: Tensor) -> Tensor:
        """(n, width) to float32 logits (n, V), with the final softcap."""
        logits: Tensor = self.model.lm_head(hidden.to(self.model.lm_head.weight.dtype)).float()
        cap = self.model.config.text_config.final_logit_softcapping
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def losses(
        self,
        features: Tensor,
        batch: Sequence[tuple[Scene, Sequence[Query]]],
        sigma: float,
        *,
        image_sees_prefix: bool,
    ) -> dict[str, Tensor]:
        """All losses and figures of a batch. features: (B, N, width), one row a sequence."""
        packed = pack(batch, self.tokenizer, self.grid).to(self.device)
        hidden, attentions = self.run(features, packed, image_sees_prefix=image_sees_prefix)
        maps = query_maps(attentions[self.block], packed, self.tokens)
        look = cross_entropy_to(packed.maps, maps)
        points = point_shares(attentions[self.block + 1], packed, self.tokens)
        point = cross_entropy_to(packed.points, points)
        said = self._said(hidden, packed, sigma)
        said["loss"] = said["loss"] + LOOK_WEIGHT * look + POINT_WEIGHT * point
        return {**said, "look": look, "point": point}

    def _said(self, hidden: Tensor, packed: Packed, sigma: float) -> dict[str, Tensor]:
        """Suffix cross-entropy: location tokens against narrowing Gaussians, words as they are."""
        sequence, at = (packed.labels != -100).nonzero().unbind(1)
        labels = packed.labels[sequence, at]
        log_p = self.logits(hidden[sequence, at + self.tokens - 1]).log_softmax(-1)
        offset = labels - self.first_loc
        is_loc = (offset >= 0) & (offset < LOC_BINS)
        words, locs = log_p[~is_loc], log_p[is_loc][:, self.first_loc : self.first_loc + LOC_BINS]
        word_loss = F.nll_loss(words, labels[~is_loc], reduction="sum")
        loc_loss = -(soft_bins(offset[is_loc].float(), sigma) * locs).sum()
        with torch.no_grad():
            figures = {
                "word_right": (words.argmax(-1) == labels[~is_loc]).float().mean(),
                "box_right": box_right(locs.argmax(-1), offset[is_loc]),
            }
        return {"loss": (word_loss + loc_loss) / max(len(labels), 1), **figures}


def box_right(found: Tensor, truth: Tensor) -> Tensor:
    """Share of boxes with an IoU of at least 0.5.

    found, truth: (4 n,) bins in the order y1 x1 y2 x2.
    """
    a, b = found.view(-1, 4).float(), truth.view(-1, 4).float()
    low, high = torch.maximum(a[:, :2], b[:, :2]), torch.minimum(a[:, 2:], b[:, 2:])
    both = (high - low).clamp(min=0).prod(1)
    area_a, area_b = ((x[:, 2:] - x[:, :2]).clamp(min=0).prod(1) for x in (a, b))
    return (both / (area_a + area_b - both).clamp(min=1) >= 0.5).float().mean()
