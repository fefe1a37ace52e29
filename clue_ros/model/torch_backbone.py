# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""PaliGemma 2 by transformers and peft: training, GPUs, any size, quantised (III-A.1, III-B.1).

`TorchModel` works on tensors and is differentiable: training uses it. `TorchBackbone` is the
protocol of `clue_ros.model.backbone` on top of it, for replies. Nothing depends on a model's size;
every number comes from its config. The decoder runs in eager attention, because the detector reads
attention weights and Gemma 2's softcap exists in no other kernel that returns them.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from clue_ros.errors import ClueWarning, ModelError
from clue_ros.model.adapters import Adapters
from clue_ros.model.attention import attention_map, min_max
from clue_ros.model.backbone import Array, Attention, Reader
from clue_ros.model.config import read_config
from clue_ros.model.conv_stem import ConvStem, holding
from clue_ros.model.details import detailed_pictures, details_in
from clue_ros.model.devices import choose_device, choose_dtype
from clue_ros.model.export import check_no_export
from clue_ros.model.heads import AnswerHead, CnnHead, Head, probability
from clue_ros.model.load_options import LoadOptions
from clue_ros.model.loading import check_config, check_weights, first_line, read_json
from clue_ros.model.prompts import Prompts
from clue_ros.model.quantization import (
    give_back,
    is_out_of_memory,
    loading_options,
    out_of_memory,
    quantization_state,
    with_room,
)
from clue_ros.model.shapes import weight_shapes

if TYPE_CHECKING:
    from transformers.cache_utils import Cache
    from transformers.models.paligemma.configuration_paligemma import PaliGemmaConfig
    from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

ATTENTION = {"text_config": "eager", "vision_config": "sdpa"}


class TorchModel:
    """transformers' PaliGemma 2 on tensors, differentiable, shared by both adapters."""

    def __init__(self, model: PaliGemmaForConditionalGeneration) -> None:
        self._model: Any = model
        self._word: torch.Tensor | None = None
        self._take(model.config)

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
        """The device of the weights."""
        device: torch.device = self.model.get_input_embeddings().weight.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """The weights' type."""
        dtype: torch.dtype = self.model.get_input_embeddings().weight.dtype
        return dtype

    def memory_bytes(self) -> int:
        """Bytes of weights and buffers; a tensor used twice (tied embeddings) counts once."""
        tensors = [*self.model.parameters(), *self.model.buffers(), *quantization_state(self.model)]
        return sum({t.data_ptr(): t.numel() * t.element_size() for t in tensors}.values())

    def look(
        self, pixel_values: torch.Tensor, stem_features: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Vision tower and projector.

        (B, 3, S, S) in -1..1 -> (B, N, D) features in the decoder's width. stem_features: what
        `ConvStem.holding` takes, of these pictures.
        """
        pixels = pixel_values.to(self.device, self.dtype)
        with holding(self.model.model.vision_tower, stem_features):
            features: torch.Tensor = self.model.model.get_image_features(pixels).pooler_output
        return features

    def details(self, pictures: Sequence[torch.Tensor]) -> torch.Tensor | None:
        """The stem's second reading of pictures (3, h, w) in -1..1; None for no picture."""
        if not pictures:
            return None
        stem = self.model.model.vision_tower.embeddings.patch_embedding
        found: torch.Tensor = stem.details([p.to(self.device, self.dtype) for p in pictures])
        return found

    def image_details(self, *images: npt.NDArray[np.uint8]) -> torch.Tensor | None:
        """`details` of images, uint8 RGB (H, W, 3) each; None for a stem that reads none."""
        read = details_in(self.config.vision_config)
        pictures = [] if read is None else detailed_pictures(images, read.side)
        return self.details([torch.from_numpy(picture) for picture in pictures])

    def embed(self, input_ids: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Token embeddings (B, T, D) with the image tokens replaced by `features` (B, N, D).

        A single image's features (1, N, D) serve every prompt of a batch.
        """
        is_image = input_ids == self.config.image_token_id
        # The real PaliGemma's <image> id lies outside the embedding table; any valid id will do, it
        # is overwritten.
        embedded = self.embed_tokens(input_ids.masked_fill(is_image, 0))
        features = features.to(embedded).expand(len(input_ids), -1, -1)
        if int(is_image.sum()) != features.shape[0] * features.shape[1]:
            raise ValueError(
                f"{int(is_image.sum())} image tokens for features {tuple(features.shape)}"
            )
        merged: torch.Tensor = embedded.masked_scatter(is_image.unsqueeze(-1), features)
        return merged

    def embed_tokens(self, tokens: torch.Tensor) -> torch.Tensor:
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

    @contextmanager
    def saying(self, word: torch.Tensor) -> Iterator[None]:
        """Give the conditioning word's tokens these embeddings (k, D), scaled as Gemma's are."""
        before, self._word = self._word, word
        try:
            yield
        finally:
            self._word = before

    def _prepare(self, features: torch.Tensor, prompts: Prompts) -> tuple[torch.Tensor, _Extra]:
        """The decoder's input (B, T, D), and what every block needs beside it."""
        embedded = self.embed(prompts.input_ids, features)
        if self._word is not None:  # it follows the image tokens and <bos>
            first = self.grid**2 + 1
            word = self._word.to(embedded).expand(len(embedded), -1, -1)
            rest = embedded[:, first + word.shape[1] :]
            embedded = torch.cat([embedded[:, :first], word, rest], 1)
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
        cache: Cache,
    ) -> torch.Tensor:
        """One more token a row: tokens (B,), positions (B,), mask (B, past+1) -> hidden (B, D)."""
        out = self.model.model(
            input_ids=tokens.unsqueeze(1),
            position_ids=positions.unsqueeze(1),
            attention_mask=attention_mask,
            past_key_values=cache,
            use_cache=True,
        )
        hidden: torch.Tensor = out.last_hidden_state[:, 0]
        return hidden

    def suffix_hidden(
        self, features: torch.Tensor, prompts: Prompts, rows: torch.Tensor, tokens: torch.Tensor
    ) -> torch.Tensor:
        """Teacher forcing as replies are generated, differentiable: each prefix is read once.

        features (U, N, D) and U prompts without suffixes; suffixes `tokens` (B, S), padded with any
        token, each after the prompt `rows` (B,). Returns the hidden states (B, S, D), each of which
        predicts the token at its place. Equal to `forward` and then `step` for each token.
        """
        from transformers.cache_utils import DynamicCache

        cache = DynamicCache(config=self.text)
        read, _ = self.forward(features, prompts, cache=cache)
        lengths = prompts.attention_mask.sum(1)
        last = read[torch.arange(len(lengths), device=read.device), lengths - 1][rows]
        if tokens.shape[1] == 1:
            return last[:, None]
        cache.batch_select_indices(rows)
        before = tokens[:, :-1]
        mask = torch.cat([prompts.attention_mask[rows], torch.ones_like(before)], 1)
        places = torch.arange(1, before.shape[1] + 1, device=read.device)
        out = self.model.model(
            input_ids=before,
            position_ids=lengths[rows][:, None] + places,
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
        )
        return torch.cat([last[:, None], out.last_hidden_state], 1)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Hidden states (..., D) -> float32 logits (..., V), with Gemma 2's final softcap.

        Capped in the weights' dtype, as in transformers: in bfloat16 the cap makes ties, and ties
        decide which token is greedy decoding's.
        """
        logits = self._head(hidden)
        cap = self.text.final_logit_softcapping
        return (logits if cap is None else torch.tanh(logits / cap) * cap).float()


class _Extra:
    """The inputs of a block beside the states: its kind's mask, positions, rotary embeddings."""

    def __init__(self, masks: dict[str, Any], kinds: list[str], shared: dict[str, Any]) -> None:
        self._masks, self._kinds, self.shared = masks, kinds, shared

    def mask(self, block: int) -> Any:
        return self._masks[self._kinds[block]]


@dataclass
class State:
    """B prompts that were read. mask: (B, S) 1 for a token. positions: (B,) of the next one."""

    adapter: str | None
    cache: Cache
    mask: torch.Tensor
    positions: torch.Tensor


class TorchBackbone:
    """See `clue_ros.model.backbone.Backbone`."""

    def __init__(self, model: TorchModel, peft: Adapters | None = None) -> None:
        self.model, self.peft = model, peft or Adapters(model)
        self.config = model.config
        self._heads: dict[int, tuple[Any, Head]] = {}

    @property
    def device(self) -> str:
        """See `Backbone`."""
        return str(self.model.device)

    @property
    def dtype(self) -> str:
        """See `Backbone`."""
        return str(self.model.dtype).removeprefix("torch.")

    @property
    def adapters(self) -> tuple[str, ...]:
        """See `Backbone`."""
        return self.peft.names

    def load_adapter(self, name: str, folder: Path) -> None:
        """See `Backbone`."""
        self.peft.load(name, folder)

    def memory_bytes(self) -> int:
        """See `Backbone`."""
        return self.model.memory_bytes()

    @with_room(2)
    @torch.inference_mode()
    def look(self, pixels: Array, detailed: Sequence[Array] = ()) -> Array:
        """See `Backbone`."""
        details = self.model.details([torch.from_numpy(picture) for picture in detailed])
        return _array(self.model.look(torch.from_numpy(pixels), details))

    @torch.inference_mode()
    def stem_features(self, pixels: Array, detailed: Sequence[Array]) -> Array:
        """All frozen features of a stem with details, (n, C, g, g); arguments as for `look`."""
        stem = self.model.model.model.vision_tower.embeddings.patch_embedding
        levels = stem.levels(torch.from_numpy(pixels).to(self.model.device, self.model.dtype))
        details = self.model.details([torch.from_numpy(picture) for picture in detailed])
        assert details is not None
        return _array(torch.cat([levels, details], dim=1))

    @torch.inference_mode()
    def stages(self, picture: Array, stages: Sequence[int]) -> list[Array]:
        """See `Backbone`."""
        stem = self.model.model.model.vision_tower.embeddings.patch_embedding
        if not isinstance(stem, ConvStem):
            raise ValueError("this model has no stem whose stages could be read")
        seen = torch.from_numpy(picture[None]).to(self.model.device, self.model.dtype)
        return [_array(level[0]) for level in stem.stage_features(seen, stages)]

    @with_room(2)
    @torch.inference_mode()
    def attend(self, features: Array, prompts: Prompts, reader: Reader) -> Attention:
        """See `Backbone`."""
        self.peft.use(reader.adapter)
        seen, asked = self._tensors(features, prompts)
        if reader.cnn is None and reader.answers is None and reader.head is None:
            weights = self.model.attention_at(reader.block, seen, asked)
            maps = attention_map(weights, asked.query_mask, self.model.grid)
            return Attention(_array(maps), None)
        found = self._head(reader).read(self.model, reader.block, seen, asked)
        chance = probability(found.logits, reader.temperature)
        return Attention(_array(min_max(found.attention)), _array(chance))

    @with_room(2)
    @torch.inference_mode()
    def read(self, features: Array, prompts: Prompts, adapter: str | None) -> tuple[State, Array]:
        """See `Backbone`."""
        from transformers.cache_utils import DynamicCache

        self.peft.use(adapter)
        seen, asked = self._tensors(features, prompts)
        cache = DynamicCache(config=self.model.text)
        hidden, _ = self.model.forward(seen, asked, cache=cache)
        lengths = asked.attention_mask.sum(1)
        last = hidden[torch.arange(len(lengths), device=hidden.device), lengths - 1]
        state = State(adapter, cache, asked.attention_mask, lengths + 1)
        return state, _array(self.model.logits(last))

    @with_room(2)
    @torch.inference_mode()
    def attend_and_read(
        self, features: Array, prompts: Prompts, reader: Reader
    ) -> tuple[Attention, State, Array]:
        """See `Backbone`."""
        kept: list[torch.Tensor] = []
        layer = self.model.model.model.language_model.layers[reader.block]
        handle = layer.self_attn.register_forward_hook(
            lambda _module, _arguments, out: kept.append(out[1])
        )
        try:
            state, logits = self.read(features, prompts, reader.adapter)
        finally:
            handle.remove()
        words = self._tensors(features, prompts)[1].query_mask
        maps = attention_map(kept[0][..., : words.shape[1]], words, self.model.grid)
        if reader.cnn is None:
            return Attention(_array(maps), None), state, logits
        head = self._head(reader)
        assert isinstance(head, CnnHead)
        chance = probability(head(maps), reader.temperature)
        return Attention(_array(maps), _array(chance)), state, logits

    @with_room(1)
    @torch.inference_mode()
    def step(self, state: State, tokens: npt.NDArray[np.int64]) -> Array:
        """See `Backbone`."""
        self.peft.use(state.adapter)
        state.mask = torch.cat([state.mask, state.mask.new_ones(len(tokens), 1)], 1)
        said = torch.from_numpy(tokens).to(state.mask.device)
        hidden = self.model.step(said, state.positions, state.mask, state.cache)
        state.positions = state.positions + 1
        return _array(self.model.logits(hidden))

    @torch.inference_mode()
    def rewind(self, state: State, count: int) -> None:
        """See `Backbone`."""
        state.cache.crop(-count)
        state.mask = state.mask[:, : state.mask.shape[1] - count]
        state.positions = state.positions - count

    @with_room(1)
    @torch.inference_mode()
    def follow(self, state: State, tokens: npt.NDArray[np.int64]) -> Array:
        """See `Backbone`. Each continuation has a copy of its row."""
        rows = len(state.positions)
        copied = self.select(state, np.arange(rows).repeat(len(tokens) // rows))
        return np.stack([self.step(copied, column) for column in tokens.T], 1)

    @with_room(1)
    @torch.inference_mode()
    def select(self, state: State, rows: npt.NDArray[np.int64]) -> State:
        """The state of these rows of the prompts, each as often as wanted; the given one stays."""
        chosen = torch.from_numpy(rows).to(state.mask.device)
        cache = copy.deepcopy(state.cache)
        cache.batch_select_indices(chosen)
        return State(state.adapter, cache, state.mask[chosen], state.positions[chosen])

    def _tensors(self, features: Array, prompts: Prompts) -> tuple[torch.Tensor, Prompts]:
        device = self.model.device
        return torch.from_numpy(features).to(device, self.model.dtype), prompts.to(device)

    def _head(self, reader: Reader) -> Head:
        """The module of a reader's head, made once."""
        if reader.head is not None:
            own: Head = reader.head.to(self.model.device)
            return own
        if reader.answers is not None:
            return AnswerHead(*reader.answers)
        if id(reader.cnn) not in self._heads:
            head = CnnHead()
            assert reader.cnn is not None
            weights = {name: torch.from_numpy(array) for name, array in reader.cnn.items()}
            head.load_state_dict(weights)
            self._heads[id(reader.cnn)] = reader.cnn, head.eval().to(self.model.device)
        return self._heads[id(reader.cnn)][1]


def open_torch(base: Path, options: LoadOptions) -> TorchBackbone:
    """A base on the device that the options ask for. Raises ModelError.

    Where device "auto" finds a GPU that the model does not fit into, it goes to the CPU, with a
    warning.
    """
    place = choose_device(options.device)
    try:
        return _open(base, place, options)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    give_back()
    if options.device != "auto" or place.type == "cpu":
        raise out_of_memory(place)
    warnings.warn(f"{out_of_memory(place)}. It runs on the CPU, slowly", ClueWarning, 2)
    return _open(base, torch.device("cpu"), options)


def _open(base: Path, place: torch.device, options: LoadOptions) -> TorchBackbone:
    dtype = choose_dtype(options.dtype, place)
    return TorchBackbone(
        load_model(base, device=place, dtype=dtype, quantization=options.quantization)
    )


def _array(tensor: torch.Tensor) -> Array:
    return tensor.float().cpu().numpy()


def load_model(
    folder: str | Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    quantization: str = "none",
) -> TorchModel:
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
    check_weights(folder, weight_shapes(read_config(folder)))
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
    return TorchModel((model if options else model.to(device)).eval())


def load_config(folder: Path) -> PaliGemmaConfig:
    """config.json, if it describes a PaliGemma 2. Raises ModelError."""
    from transformers.models.paligemma.configuration_paligemma import PaliGemmaConfig

    path = folder / "config.json"
    content = read_json(path)
    check_config(path, content)
    check_no_export(folder, content)
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
