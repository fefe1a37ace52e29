# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""PaliGemma 2 as CLUE uses it (sections III-A.1, III-B.1): look once, decode half way or whole.

Nothing here depends on a model's size; every number comes from its config. The decoder runs in
eager attention, because the detector reads attention weights and Gemma 2's softcap exists in no
other kernel that returns them. Where no gradient is wanted, replies take `fast_decoder` instead
(`word_attention`, `read`), which a test compares with the plain path (`attention_at`, `forward`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from clue_ros.errors import ModelError
from clue_ros.model.fast_decoder import FastDecoder, KeyValues
from clue_ros.model.loading import check_config, check_weights, first_line, read_json
from clue_ros.model.prompts import Prompts
from clue_ros.model.quantization import loading_options, quantization_state

if TYPE_CHECKING:
    from transformers.cache_utils import Cache
    from transformers.models.paligemma.configuration_paligemma import PaliGemmaConfig
    from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

ATTENTION = {"text_config": "eager", "vision_config": "sdpa"}


class Backbone:
    """One PaliGemma 2, shared by both adapters (see `adapters`)."""

    def __init__(self, model: PaliGemmaForConditionalGeneration) -> None:
        self._model: Any = model
        self._take(model.config)
        self._fast = FastDecoder(model.model.language_model, self.text)

    def _take(self, config: Any) -> None:
        """Read the sizes."""
        self.config: Any = config
        self.text: Any = config.get_text_config()
        vision: Any = config.vision_config
        self.grid: int = vision.image_size // vision.patch_size
        self.blocks: int = self.text.num_hidden_layers

    @property
    def model(self) -> Any:
        """The class of transformers, with peft's layers inside once an adapter was added."""
        return self._model

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self.model.get_input_embeddings().weight.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The weights' type."""
        dtype: torch.dtype = self.model.get_input_embeddings().weight.dtype
        return dtype

    @property
    def is_mixed(self) -> bool:
        """Whether matrix products take operands of 16 bits where the weights' type is float32."""
        return False

    def memory_bytes(self) -> int:
        """Bytes of weights and buffers; a tensor used twice (tied embeddings) counts once."""
        tensors = [*self.model.parameters(), *self.model.buffers(), *quantization_state(self.model)]
        return sum({t.data_ptr(): t.numel() * t.element_size() for t in tensors}.values())

    def page_out(self) -> None:
        """Let the system take what replies no longer read; of transformers' model nothing."""

    def look(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Vision tower and projector.

        (B, 3, S, S) in -1..1 -> (B, N, D) features in the decoder's width.
        """
        pixels = pixel_values.to(self.device, self.dtype)
        features: torch.Tensor = self.model.model.get_image_features(pixels).pooler_output
        return features

    def embed(self, input_ids: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Token embeddings (B, T, D) with the image tokens replaced by `features` (B, N, D).

        A single image's features (1, N, D) serve every prompt of a batch.
        """
        is_image = input_ids == self.config.image_token_id
        # The real PaliGemma's <image> id lies outside the embedding table; any valid id will do, it
        # is overwritten.
        embedded = self._embed_tokens(input_ids.masked_fill(is_image, 0))
        features = features.to(embedded).expand(len(input_ids), -1, -1)
        if int(is_image.sum()) != features.shape[0] * features.shape[1]:
            raise ValueError(
                f"{int(is_image.sum())} image tokens for features {tuple(features.shape)}"
            )
        merged: torch.Tensor = embedded.masked_scatter(is_image.unsqueeze(-1), features)
        return merged

    def _embed_tokens(self, tokens: torch.Tensor) -> torch.Tensor:
        """Ids (B, T) -> embeddings (B, T, D), scaled as Gemma's are."""
        embedded: torch.Tensor = self.model.get_input_embeddings()(tokens)
        return embedded

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states (..., D) -> logits (..., V), not capped yet."""
        logits: torch.Tensor = self.model.lm_head(hidden)
        return logits

    def masks(
        self,
        embedded: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor | None,
        positions: torch.Tensor,
        cache: Cache | None = None,
    ) -> dict[str, Any]:
        """The masks of transformers for each kind of block: prefix bidirectional, suffix causal.

        embedded (B, T, D), attention_mask (B, past + T), token_type_ids (B, T) or None while
        generating. Each mask is (B, 1, T, past + T), to be added to the attention logits.
        """
        from transformers.masking_utils import (
            create_causal_mask,
            create_sliding_window_causal_mask,
        )

        shared: dict[str, Any] = {
            "config": self.text,
            "inputs_embeds": embedded,
            "attention_mask": attention_mask,
            "past_key_values": cache,
            "position_ids": positions,
        }
        if token_type_ids is not None:
            shared["block_sequence_ids"] = torch.where(token_type_ids == 0, 0, -1)
        full = create_causal_mask(**shared)
        if getattr(self.text, "sliding_window", None) is None:
            return {"full_attention": full, "sliding_attention": full}
        sliding = create_sliding_window_causal_mask(**shared)
        return {"full_attention": full, "sliding_attention": sliding}

    def attention_at(self, block: int, features: torch.Tensor, prompts: Prompts) -> torch.Tensor:
        """Half depth: run blocks 0..block and return that block's attention weights A (B, H, T, T).

        Equal to `output_attentions=True` at that block, but neither the last block's MLP nor any
        block above it is run. Differentiable with respect to whatever requires a gradient (the
        active adapter).
        """
        if not 0 <= block < self.blocks:
            raise ValueError(f"block {block} of a decoder with {self.blocks} blocks")
        decoder = self.model.model.language_model
        hidden, extra = self._prepare(features, prompts)
        for index, layer in enumerate(decoder.layers[:block]):
            hidden = layer(hidden, attention_mask=extra.mask(index), **extra.shared)
        last = decoder.layers[block]
        weights: torch.Tensor
        _, weights = last.self_attn(
            hidden_states=last.input_layernorm(hidden),
            attention_mask=extra.mask(block),
            **extra.shared,
        )
        return weights

    def word_attention(
        self, block: int, features: torch.Tensor, prompts: Prompts
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The part of `attention_at` that the words' rows hold, and which of its rows are words.

        Returns (B, H, R, T) and (B, R) bool: R rows, from the first word of any prompt to the last.
        Without gradients nothing else of `block` is computed than these rows and the keys.
        """
        where = prompts.query_mask.any(0).nonzero()
        rows = slice(int(where[0]), int(where[-1]) + 1) if len(where) else slice(0, 1)
        words = prompts.query_mask[:, rows]
        length = prompts.input_ids.shape[1]
        if torch.is_grad_enabled() or not self._fast.fits(length):
            return self.attention_at(block, features, prompts)[:, :, rows], words
        if not 0 <= block < self.blocks:
            raise ValueError(f"block {block} of a decoder with {self.blocks} blocks")
        embedded, mask, positions = self._start(features, prompts)
        return self._fast.attention(block, rows, embedded, mask, positions), words

    def read(
        self, features: torch.Tensor, prompts: Prompts, room: int
    ) -> tuple[torch.Tensor, Cache | KeyValues]:
        """Full depth over B whole prompts without suffixes, for a reply of up to `room` tokens.

        Returns the hidden states after each prompt's last token (B, D), and the cache for `step`.
        """
        lengths = prompts.attention_mask.sum(1)
        rows = torch.arange(len(lengths), device=lengths.device)
        if torch.is_grad_enabled() or not self._fast.fits(prompts.input_ids.shape[1] + room):
            from transformers.cache_utils import DynamicCache

            cache = DynamicCache(config=self.text)
            hidden, _ = self.forward(features, prompts, cache=cache)
            return hidden[rows, lengths - 1], cache
        embedded, mask, positions = self._start(features, prompts)
        kept = self._fast.cache(embedded, room)
        kept.padded = mask is not None
        hidden = self._fast.run(embedded, mask, positions, kept, last=mask is None)
        return hidden[:, -1] if mask is None else hidden[rows, lengths - 1], kept

    def _start(
        self, features: torch.Tensor, prompts: Prompts
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor]:
        """The decoder's input (B, T, D), its mask (None: all attends to all), positions (1, T)."""
        embedded = self.embed(prompts.input_ids, features)
        positions = torch.arange(1, embedded.shape[1] + 1, device=embedded.device).unsqueeze(0)
        types = prompts.token_type_ids
        if bool(prompts.attention_mask.all()) and not bool(types.any()):
            return embedded, None, positions
        masks = self.masks(embedded, prompts.attention_mask, types, positions)
        return embedded, masks["full_attention"], positions

    def hidden_at(
        self, block: int, features: torch.Tensor, prompts: Prompts
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run blocks 0..block whole: the hidden states after `block`, and its attention.

        The hidden states (B, T, D) have gone through the decoder's final norm, as an answer read
        there needs (`logits`); at the last block this is the full model. Attention (B, H, T, T).
        """
        if not 0 <= block < self.blocks:
            raise ValueError(f"block {block} of a decoder with {self.blocks} blocks")
        decoder = self.model.model.language_model
        hidden, extra = self._prepare(features, prompts)
        kept: list[torch.Tensor] = []
        # A block returns its hidden states only; its attention passes by here.
        handle = decoder.layers[block].self_attn.register_forward_hook(
            lambda _module, _arguments, out: kept.append(out[1])
        )
        try:
            for index, layer in enumerate(decoder.layers[: block + 1]):
                hidden = layer(hidden, attention_mask=extra.mask(index), **extra.shared)
        finally:
            handle.remove()
        return decoder.norm(hidden), kept[0]

    def attentions(self, features: torch.Tensor, prompts: Prompts) -> tuple[torch.Tensor, ...]:
        """Every block's attention (B, H, T, T), from one run at full depth."""
        _, attentions = self.forward(features, prompts, output_attentions=True)
        assert attentions is not None
        return attentions

    def _prepare(self, features: torch.Tensor, prompts: Prompts) -> tuple[torch.Tensor, _Extra]:
        """The decoder's input (B, T, D), and what every block needs beside it."""
        embedded = self.embed(prompts.input_ids, features)
        # PaliGemma counts positions from 1.
        positions = torch.arange(1, embedded.shape[1] + 1, device=embedded.device).unsqueeze(0)
        masks = self.masks(embedded, prompts.attention_mask, prompts.token_type_ids, positions)
        rotary = self.model.model.language_model.rotary_emb(embedded, positions)
        shared = {"position_embeddings": rotary, "position_ids": positions}
        return embedded, _Extra(masks, self.text.layer_types, shared)

    def forward(
        self,
        features: torch.Tensor,
        prompts: Prompts,
        *,
        cache: Cache | None = None,
        output_attentions: bool = False,
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...] | None]:
        """Full depth over whole prompts.

        Returns the last hidden states (B, T, D) and, if asked, every block's attention.

        Fills `cache`. Turn hidden states into logits with `logits`: only where needed, the
        vocabulary is large.
        """
        from transformers.modeling_outputs import BaseModelOutputWithPooling

        features = features.expand(len(prompts.input_ids), -1, -1)
        out = self.model.model(
            input_ids=prompts.input_ids,
            attention_mask=prompts.attention_mask,
            token_type_ids=prompts.token_type_ids,
            mm_encoder_outputs={"image": BaseModelOutputWithPooling(pooler_output=features)},
            past_key_values=cache,
            use_cache=cache is not None,
            output_attentions=output_attentions,
        )
        return out.last_hidden_state, out.attentions

    def step(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        attention_mask: torch.Tensor,
        cache: Cache | KeyValues,
    ) -> torch.Tensor:
        """One more token a row: tokens (B,), positions (B,), mask (B, past+1) -> hidden (B, D)."""
        if isinstance(cache, KeyValues):
            embedded = self._embed_tokens(tokens.unsqueeze(1))
            cache.room(1)
            mask = None
            if cache.padded:
                low = torch.finfo(embedded.dtype).min
                mask = (1 - attention_mask[:, None, None].to(embedded.dtype)) * low
            return self._fast.run(embedded, mask, positions.unsqueeze(1), cache)[:, 0]
        out = self.model.model(
            input_ids=tokens.unsqueeze(1),
            position_ids=positions.unsqueeze(1),
            attention_mask=attention_mask,
            past_key_values=cache,
            use_cache=True,
        )
        hidden: torch.Tensor = out.last_hidden_state[:, 0]
        return hidden

    def branches(
        self, tokens: torch.Tensor, lengths: torch.Tensor, cache: KeyValues
    ) -> torch.Tensor:
        """Several continuations of one prompt in one run: each sees the prompt and itself.

        tokens (S,): of all continuations, one after the other. lengths (n,): of each, with the sum
        S. cache: of `read` of the prompt alone, without padding; it is written on. Returns the
        hidden states (S, D).
        """
        past, count = cache.length, len(tokens)
        owner = torch.repeat_interleave(lengths)
        begins = (lengths.cumsum(0) - lengths)[owner]
        place = torch.arange(count, device=tokens.device)
        # PaliGemma counts positions from 1.
        positions = (past + 1 + place - begins).unsqueeze(0)
        embedded = self._embed_tokens(tokens.unsqueeze(0))
        hides = (owner[:, None] != owner) | (place[:, None] < place)
        mask = embedded.new_zeros(1, 1, count, past + count)
        mask[..., past:].masked_fill_(hides, torch.finfo(embedded.dtype).min)
        cache.room(count)
        return self._fast.run(embedded, mask, positions, cache)[0]

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states (..., D) -> float32 logits (..., V), with Gemma 2's final softcap.

        Capped in the weights' dtype, as in transformers: in bfloat16 the cap makes ties, and ties
        decide which token is greedy decoding's.
        """
        logits = self._head(hidden)
        cap = self.text.final_logit_softcapping
        return (logits if cap is None else torch.tanh(logits / cap) * cap).float()


class _Extra:
    """What a block needs beside its input: its kind's mask, positions, rotary embeddings."""

    def __init__(self, masks: dict[str, Any], kinds: list[str], shared: dict[str, Any]) -> None:
        self._masks, self._kinds, self.shared = masks, kinds, shared

    def mask(self, block: int) -> Any:
        return self._masks[self._kinds[block]]


def load_backbone(
    folder: str | Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    quantization: str = "none",
) -> Backbone:
    """A PaliGemma 2 from a folder of safetensors.

    quantization: "none", or "int8" or "nf4" for the decoder's projections (see `quantization`).
    Raises ModelError naming the file or the shape that is wrong, before any weight is read.
    """
    from clue_ros.model.paligemma import paligemma_class

    options = loading_options(quantization, device, dtype)
    folder = Path(folder)
    if not folder.is_dir():
        raise ModelError(f"there is no model folder {folder}")
    config = load_config(folder)
    check_weights(folder, config)
    try:
        with quietly():
            loader: Any = paligemma_class(config).from_pretrained
            model, report = loader(
                folder,
                config=config,
                dtype=dtype,
                attn_implementation=ATTENTION,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                **options,
            )
    except Exception as error:  # any library error here means the folder is unusable
        raise ModelError(f"cannot load the model in {folder}: {first_line(error)}") from error
    missing = sorted(report["missing_keys"])
    if missing:  # transformers would fill them with noise
        raise ModelError(f"{folder}: the safetensors lack {missing[0]} and {len(missing) - 1} more")
    # A quantised model is on its device already, and refuses to be moved.
    return Backbone((model if options else model.to(device)).eval())


def load_config(folder: Path) -> PaliGemmaConfig:
    """config.json, if it describes a PaliGemma 2. Raises ModelError."""
    from transformers.models.paligemma.configuration_paligemma import PaliGemmaConfig

    path = folder / "config.json"
    content = read_json(path)
    check_config(path, content)
    try:
        config: PaliGemmaConfig = PaliGemmaConfig.from_pretrained(folder)
    except Exception as error:  # whatever a wrong value leads to
        raise ModelError(f"cannot use {path}: {first_line(error)}") from error
    return config


@contextmanager
def quietly() -> Iterator[None]:
    """No progress bars and no load report: what matters in it becomes a ModelError."""
    from transformers.utils import logging

    log: Any = logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()
