# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A PaliGemma 2 and its adapters for replies alone: weights, and no class of transformers or peft.

Importing transformers' modelling code and peft takes longer than everything else of a start
together, and their modules are needed to train, to quantise, and as the reference. `LeanBackbone`
reads the same files into the few operations that replies take (the vision tower here, the decoder
in `fast_decoder`). Whatever else is asked of it (`model`: gradients, hidden states, every block's
attention) loads transformers' model and peft's adapters then, which take over from there on. What
this module does not know (another rotary embedding, DoRA, a file with an error to be named) is left
to them from the start: `open_lean` returns None.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from clue_ros import memory
from clue_ros.errors import ModelError
from clue_ros.model.adapters import CONFIG_FILE, WEIGHTS_FILE, Adapters
from clue_ros.model.backbone import ATTENTION, Backbone, load_backbone, load_config
from clue_ros.model.config import LeanConfig, lean_config
from clue_ros.model.conv_stem import ConvStem, has_stem, patch_embedding
from clue_ros.model.fast_decoder import GELU, FastDecoder, is_merged
from clue_ros.model.loading import (
    Shapes,
    check_config,
    published_name,
    read_json,
    shapes,
    weight_files,
)
from clue_ros.model.products import Product, attention_with, is_fused

INWARD = ("q_proj.weight", "k_proj.weight", "v_proj.weight")
ATTENTION_PARTS, MLP_PARTS = ("q_proj", "k_proj", "v_proj", "o_proj"), (
    "gate_proj", "up_proj", "down_proj",
)  # fmt: skip
NORMS = (
    "input_layernorm",
    "post_attention_layernorm",
    "pre_feedforward_layernorm",
    "post_feedforward_layernorm",
)
PRODUCTS = torch.bfloat16  # the operands of mixed precision's matrix products
TEXT, TOWER = "language_model.model.", "vision_tower."
PATCHES = f"{TOWER}embeddings.patch_embedding."
EMBEDDINGS = f"{TEXT}embed_tokens.weight"
HEAD, PROJECTOR = "language_model.lm_head.weight", "multi_modal_projector.linear."
PLAIN_LORA: dict[str, Any] = {
    "peft_type": "LORA", "bias": "none", "fan_in_fan_out": False, "use_dora": False,
    "use_rslora": False, "lora_bias": False, "modules_to_save": None, "rank_pattern": {},
    "alpha_pattern": {}, "layers_to_transform": None, "exclude_modules": None,
    "target_parameters": None, "trainable_token_indices": None, "layer_replication": None,
}  # fmt: skip
"""What an adapter_config.json says of a LoRA that is two matrices and a scale, where it says it."""


class LeanBackbone(Backbone):
    """A backbone that holds weights alone until `model` is asked for."""

    def __init__(
        self,
        folder: Path,
        config: Any,
        weights: dict[str, torch.Tensor],
        device: torch.device,
        dtype: torch.dtype,
        products: torch.dtype | None = None,
    ) -> None:
        self._folder, self._place, self._dtype = folder, device, dtype
        self.products = products
        self._weights: dict[str, torch.Tensor] | None = weights
        self._whole: Any = None
        self.switch = Switch()
        self.merges = False  # replies read copies that adapters are merged into, for certain
        self.copied: list[torch.Tensor] = []  # mapped weights of which replies read copies
        self.then: list[Callable[[], None]] = []  # what follows when transformers' model is loaded
        self._take(config)
        self.decoder = _decoder(weights, self.text)
        self.tower: Callable[[torch.Tensor], torch.Tensor] = Tower(weights, config.vision_config)
        self._fast = FastDecoder(self.decoder, self.text, products)
        self._embeddings = weights[EMBEDDINGS]
        self._output = Product(weights.get(HEAD, self._embeddings))
        self._scale = torch.tensor(self.text.hidden_size**0.5, dtype=dtype, device=device)

    @property
    def model(self) -> Any:
        """The model of transformers, loaded when it is asked for first; it takes over then."""
        if self._whole is None:
            with torch.inference_mode(False):  # weights that are made in it cannot be trained
                whole = load_backbone(self._folder, device=self._place, dtype=self._dtype)
                self._whole, self._weights = whole.model, None
                self._take(whole.config)
                self._fast = FastDecoder(whole.model.model.language_model, self.text)
                del self.decoder, self.tower, self._embeddings, self._output
                for follow in self.then:
                    follow()
        return self._whole

    def run_through(
        self, tower: Callable[[torch.Tensor], torch.Tensor], decoder: FastDecoder
    ) -> None:
        """Look and read through these, until transformers' model is asked for."""
        self.tower, self._fast = tower, decoder

    @property
    def is_lean(self) -> bool:
        """Whether transformers' model has not been asked for yet."""
        return self._whole is None

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self._place if self.is_lean else super().device

    @property
    def dtype(self) -> torch.dtype:
        """The weights' type."""
        return self._dtype

    @property
    def is_mixed(self) -> bool:
        """Whether matrix products take operands of 16 bits where the weights' type is float32."""
        return self.is_lean and self.products is not None

    def make_tower(self) -> Tower:
        """The vision tower and the projector, of the same weights."""
        assert self._weights is not None, "transformers' model has taken over"
        return Tower(self._weights, self.config.vision_config)

    def memory_bytes(self) -> int:
        """Bytes of weights; one used twice (tied embeddings) counts once."""
        if self._weights is None:
            return super().memory_bytes()
        tensors = [*self._weights.values(), *self.switch.weights]
        return sum({t.data_ptr(): t.numel() * t.element_size() for t in tensors}.values())

    def page_out(self) -> None:
        """Let the system take weights of which replies read a copy, packed or merged.

        They are views of the model's file. What asks for them once more reads them again.
        """
        for weight in self.copied:
            memory.page_out(weight.data_ptr(), weight.nbytes)

    def look(self, pixel_values: torch.Tensor) -> torch.Tensor:
        """Vision tower and projector: (B, 3, S, S) in -1..1 -> (B, N, D)."""
        if not self.is_lean or torch.is_grad_enabled():
            return super().look(pixel_values)
        return self.tower(pixel_values.to(self._place, self._dtype))

    def masks(self, *arguments: Any, **settings: Any) -> dict[str, Any]:
        """See `Backbone`. transformers makes them, from its own configuration."""
        if self.is_lean:
            if isinstance(self.config, LeanConfig):
                self._take(load_config(self._folder))
            # Without a kind of attention it makes none, and padding would be attended to.
            self.text._attn_implementation = ATTENTION["text_config"]
        return super().masks(*arguments, **settings)

    def _embed_tokens(self, tokens: torch.Tensor) -> torch.Tensor:
        if not self.is_lean:
            return super()._embed_tokens(tokens)
        return functional.embedding(tokens, self._embeddings).to(self._dtype) * self._scale

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        if self._weights is None:
            return super()._head(hidden)
        return self._output(hidden)


class Switch:
    """Which adapter is on, for every adapted projection; and all of the adapters' weights."""

    def __init__(self) -> None:
        self.name: str | None = None
        self.weights: list[torch.Tensor] = []


class _Adapted:
    """A projection with LoRA adapters, with the attributes of peft's layer that are read here."""

    def __init__(self, base: nn.Linear, switch: Switch) -> None:
        self.base_layer, self._switch = base, switch
        self.lora_A: dict[str, Any] = {}
        self.lora_B: dict[str, Any] = {}
        self.scaling: dict[str, float] = {}

    @property
    def active_adapters(self) -> list[str]:
        return [self._switch.name] if self._switch.name is not None else []

    @property
    def disable_adapters(self) -> bool:
        return self._switch.name is None

    def __call__(self, hidden: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.base_layer(hidden)
        name = self._switch.name
        if name is None or name not in self.lora_A:
            return out
        low = functional.linear(hidden.to(self.lora_A[name].weight.dtype), self.lora_A[name].weight)
        more = functional.linear(low, self.lora_B[name].weight) * self.scaling[name]
        return (out + more).to(out.dtype)


class LeanAdapters(Adapters):
    """The adapters of a `LeanBackbone`; peft's as soon as transformers' model is loaded."""

    def __init__(self, backbone: LeanBackbone) -> None:
        super().__init__(backbone)
        self._lean = backbone
        self._folders: dict[str, Path] = {}
        backbone.then.append(self._hand_over)

    def _hand_over(self) -> None:
        active = self._lean.switch.name
        for name, folder in self._folders.items():
            super().load(name, folder)
        super().use(active)

    @property
    def names(self) -> tuple[str, ...]:
        """The adapters that were added or loaded."""
        return tuple(self._folders) if self._lean.is_lean else super().names

    def use(self, name: str | None, *, train: bool = False) -> None:
        """Make one adapter the active one; None is the base model without any."""
        if not self._lean.is_lean or train:
            _ = self._lean.model
            super().use(name, train=train)
        elif name is not None and name not in self._folders:
            raise KeyError(f"no adapter {name}")
        else:
            self._lean.switch.name = name

    def load(self, name: str, folder: str | Path) -> None:
        """Read one adapter and make it active. Raises ModelError."""
        folder = Path(folder)
        if not self._lean.is_lean or not self._read(name, folder):
            _ = self._lean.model  # peft knows more kinds, and names what is wrong
            super().load(name, folder)
            return
        self._folders[name] = folder
        self._lean.switch.name = name

    def save(self, name: str, folder: str | Path) -> None:
        """Write one adapter in peft's format."""
        _ = self._lean.model
        super().save(name, folder)

    def _read(self, name: str, folder: Path) -> bool:
        """Put a folder's adapter beside the decoder's projections; False if it is not plain."""
        try:
            config = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8"))
            state = _tensors([folder / WEIGHTS_FILE])
            pattern, rank = re.compile(config["target_modules"]), int(config["r"])
            scale = float(config["lora_alpha"]) / rank
        except Exception:  # noqa: BLE001 - peft says what is wrong with it
            return False
        if any(config.get(key, value) != value for key, value in PLAIN_LORA.items()):
            return False
        wanted: dict[str, tuple[int, ...]] = {}
        places = {}
        for path, owner, part in _projections(self._lean.decoder):
            if pattern.fullmatch(path) is None:
                continue
            weight = getattr(getattr(owner, part), "base_layer", getattr(owner, part)).weight
            places[path] = owner, part
            wanted[f"base_model.model.{path}.lora_A.weight"] = (rank, weight.shape[1])
            wanted[f"base_model.model.{path}.lora_B.weight"] = (weight.shape[0], rank)
        others = ("model.vision_tower.encoder.layers.0.self_attn.q_proj", "lm_head")
        if {key: tuple(t.shape) for key, t in state.items()} != wanted or any(
            map(pattern.fullmatch, others)
        ):
            return False
        for path, (owner, part) in places.items():
            adapted = getattr(owner, part)
            if not isinstance(adapted, _Adapted):
                adapted = _Adapted(adapted, self._lean.switch)
                setattr(owner, part, adapted)
            for side, kept in (("lora_A", adapted.lora_A), ("lora_B", adapted.lora_B)):
                weight = state[f"base_model.model.{path}.{side}.weight"]
                if self._lean.merges:
                    self._lean.copied.append(weight)
                else:  # in float32 beside weights of 16 bits, as peft holds them
                    weight = weight.to(self._lean.device, torch.float32)
                kept[name] = SimpleNamespace(weight=weight)
                self._lean.switch.weights.append(weight)
            adapted.scaling[name] = scale
        return True


def open_lean(
    folder: Path,
    device: torch.device,
    dtype: torch.dtype,
    *,
    mixed: bool = False,
    make: Callable[..., LeanBackbone] = LeanBackbone,
) -> LeanBackbone | None:
    """A folder's model for replies alone; None where transformers has to load it.

    mixed: matrix products in bfloat16, the rest in `dtype`. Of a decoder too large to be merged the
    head's product and the embeddings are in bfloat16 too.
    make: the class, or what makes one with its arguments.

    Raises ModelError for a config.json that cannot be used.
    """
    content = read_json(folder / "config.json")
    check_config(folder / "config.json", content)
    config: Any = lean_config(content) or load_config(folder)
    try:
        weights = _tensors(weight_files(folder))
    except (ModelError, OSError, ValueError):
        return None
    weights = {published_name(name): weight for name, weight in weights.items()}
    types = held_types(config, shapes(weights), dtype, mixed=mixed)
    if types is None:
        return None
    products = PRODUCTS if mixed else None
    used = {name: weights[name].to(device, kind) for name, kind in types.items()}
    made = make(folder, config, used, device, dtype, products)
    if mixed:
        stem, made.merges = has_stem(config.vision_config), _is_small(shapes(used))
        made.copied = [
            weight
            for name, weight in used.items()
            if weight is weights[name]  # no copy, so a view of the file
            and (_is_product(name, stem) or (made.merges and _is_projection(name)))
        ]
    return made


def held_types(
    config: Any, found: Shapes, dtype: torch.dtype, *, mixed: bool
) -> dict[str, torch.dtype | None] | None:
    """The type that `open_lean` holds each weight in; None: as it is in the file.

    config: a PaliGemmaConfig or `LeanConfig`. found: the shapes of the weights in the model's
    files. Weights that replies do not need are left out. Returns None where transformers has to
    load the model.
    """
    wanted = _wanted(config, found)
    if wanted is None:
        return None
    stem, small = has_stem(config.vision_config), _is_small(wanted)

    def kind(name: str) -> torch.dtype | None:
        if not mixed:
            return dtype
        if small and _is_projection(name):
            return None  # mapped, not copied: what is computed with are the copies
        large = not small and (_is_projection(name) or name in (EMBEDDINGS, HEAD))
        return PRODUCTS if large or _is_product(name, stem) else dtype

    return {name: kind(name) for name in wanted}


def copied_bytes(found: Shapes, held: torch.dtype, blocks: int, *, mixed: bool) -> int:
    """Bytes of the copies that an adapter is merged into, where it reads this many blocks.

    found: the shapes of the model's weights. held: their type. 0 where no copies are made.
    """
    products = PRODUCTS if mixed else None
    if not is_merged(_projections_size(found), held, products):
        return 0
    kind, total = products or held, 0
    for name, shape in found.items():
        if _is_projection(name) and int(name.split(".")[3]) < blocks:
            # In oneDNN's layout q, k and v are one matrix; the detector reads each by itself.
            twice = mixed and is_fused(kind) and name.endswith(INWARD)
            total += (1 + twice) * kind.itemsize * math.prod(shape)
    return total


def _wanted(config: Any, found: Shapes) -> dict[str, tuple[int, ...]] | None:
    """The weights that replies need of those in a model's files; None if they need transformers."""
    text, vision = config.get_text_config(), config.vision_config
    rotary = getattr(text, "rope_parameters", None) or {}
    plain = (
        text.hidden_activation == GELU
        and vision.hidden_act == GELU
        and not text.attention_bias
        and not getattr(vision, "vision_use_head", True)
        and rotary.get("rope_type") == "default"
        and vision.num_channels == 3
    )
    if not plain:
        return None
    try:
        wanted = _shapes(text, vision)
    except Exception:  # noqa: BLE001 - whatever a wrong size leads to: transformers names it
        return None
    if not text.tie_word_embeddings and not config.tie_word_embeddings:
        wanted[HEAD] = wanted[EMBEDDINGS]
    return wanted if all(found.get(name) == wanted[name] for name in wanted) else None


def _is_product(name: str, stem: bool) -> bool:
    """Whether a weight is of a linear layer of the vision tower, of a stem or the projector."""
    if stem and name.startswith(PATCHES):
        return True
    return name.startswith(PROJECTOR) or (
        name.startswith(f"{TOWER}encoder.") and (".self_attn." in name or ".mlp." in name)
    )


def _is_projection(name: str) -> bool:
    """Whether a weight is of the decoder's projections, of which a small one has merged copies."""
    return name.startswith(TEXT) and "_proj." in name


def _projections_size(found: Shapes) -> int:
    """Number of weights in the decoder's projections."""
    return sum(math.prod(shape) for name, shape in found.items() if _is_projection(name))


def _is_small(found: Shapes) -> bool:
    """Whether a decoder is small enough for merged copies in mixed precision."""
    return is_merged(_projections_size(found), torch.float32, PRODUCTS)


def _tensors(paths: Iterable[Path]) -> dict[str, torch.Tensor]:
    """The tensors of safetensors files, mapped into memory. Raises OSError, ValueError."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    found: dict[str, torch.Tensor] = {}
    for path in paths:
        try:
            found.update(load_file(path))
        except SafetensorError as error:
            raise ValueError(str(error)) from error
    return found


def _shapes(text: Any, vision: Any) -> dict[str, tuple[int, ...]]:
    """The published name and the shape of every weight of a model with tied embeddings."""
    width, mlp = text.hidden_size, text.intermediate_size
    inner, shared = (
        text.num_attention_heads * text.head_dim,
        text.num_key_value_heads * text.head_dim,
    )
    sizes = {
        "q_proj": (inner, width), "k_proj": (shared, width), "v_proj": (shared, width),
        "o_proj": (width, inner), "gate_proj": (mlp, width), "up_proj": (mlp, width),
        "down_proj": (width, mlp),
    }  # fmt: skip
    named = {
        f"{TEXT}embed_tokens.weight": (text.vocab_size, width),
        f"{TEXT}norm.weight": (width,),
    }
    for block in range(text.num_hidden_layers):
        layer = f"{TEXT}layers.{block}."
        named |= {f"{layer}{norm}.weight": (width,) for norm in NORMS}
        named |= {f"{layer}self_attn.{part}.weight": sizes[part] for part in ATTENTION_PARTS}
        named |= {f"{layer}mlp.{part}.weight": sizes[part] for part in MLP_PARTS}
    seen, wide, patch = vision.hidden_size, vision.intermediate_size, vision.patch_size
    grid = vision.image_size // patch
    both: dict[str, tuple[int, ...]] = {
        f"{TOWER}post_layernorm": (seen,),
        PROJECTOR.removesuffix("."): (width, seen),
    }
    for block in range(vision.num_hidden_layers):
        layer = f"{TOWER}encoder.layers.{block}."
        both |= {f"{layer}{name}": (seen,) for name in ("layer_norm1", "layer_norm2")}
        both |= {
            f"{layer}self_attn.{part}": (seen, seen)
            for part in ("q_proj", "k_proj", "v_proj", "out_proj")
        }
        both |= {f"{layer}mlp.fc1": (wide, seen), f"{layer}mlp.fc2": (seen, wide)}
    with torch.device("meta"):
        patches = patch_embedding(vision).state_dict()
    named |= {f"{PATCHES}{name}": tuple(t.shape) for name, t in patches.items()}
    for name, shape in both.items():
        named |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return {**named, f"{TOWER}embeddings.position_embedding.weight": (grid**2, seen)}


class Tower:
    """SigLIP and the projector, as functions of their weights."""

    def __init__(self, weights: dict[str, torch.Tensor], vision: Any) -> None:
        self._vision = vision

        def pair(name: str) -> tuple[torch.Tensor, torch.Tensor]:
            return weights[f"{name}.weight"], weights[f"{name}.bias"]

        with torch.device("meta"):
            self._patches = patch_embedding(vision)
        own = {n.removeprefix(PATCHES): w for n, w in weights.items() if n.startswith(PATCHES)}
        self._patches.load_state_dict(own, assign=True)
        self._patches.requires_grad_(False)
        if isinstance(self._patches, ConvStem):
            self._patches.pack()
        self._positions = weights[f"{TOWER}embeddings.position_embedding.weight"]
        norms = ("layer_norm1", "layer_norm2")
        products = (*(f"self_attn.{p}_proj" for p in ("q", "k", "v", "out")), "mlp.fc1", "mlp.fc2")
        paths = [f"{TOWER}encoder.layers.{block}." for block in range(vision.num_hidden_layers)]
        self._blocks = [
            (
                [pair(path + n) for n in norms],
                [Product(*pair(path + p), pack=True) for p in products],
            )
            for path in paths
        ]
        self._attend = attention_with(weights[f"{paths[0]}self_attn.q_proj.weight"])
        self._last = pair(f"{TOWER}post_layernorm")
        self._projector = Product(*pair(PROJECTOR.removesuffix(".")), pack=True)

    def __call__(self, pixels: torch.Tensor) -> torch.Tensor:
        """(B, 3, S, S) -> (B, N, D)."""
        seen = self._patches(pixels.to(self._patches.weight.dtype)).to(pixels.dtype)
        return self.encode(seen)

    def encode(self, seen: torch.Tensor) -> torch.Tensor:
        """The blocks and the projector: patches (B, D, grid, grid) -> (B, N, D of the decoder)."""
        size, eps = (self._vision.hidden_size,), self._vision.layer_norm_eps
        heads = self._vision.num_attention_heads
        hidden = seen.flatten(2).transpose(1, 2) + self._positions
        for (norm1, norm2), (q, k, v, out, fc1, fc2) in self._blocks:
            normed = functional.layer_norm(hidden, size, *norm1, eps).to(q.dtype)
            shape = (*normed.shape[:2], heads, -1)
            queries, keys, values = (part(normed).view(shape).transpose(1, 2) for part in (q, k, v))
            mixed = self._attend(queries, keys, values)
            hidden = hidden + out(mixed.transpose(1, 2).flatten(2))
            normed = functional.layer_norm(hidden, size, *norm2, eps).to(q.dtype)
            hidden = hidden + fc2(fc1.gelu(normed))
        return self._projector(functional.layer_norm(hidden, size, *self._last, eps))


def _decoder(weights: dict[str, torch.Tensor], text: Any) -> Any:
    """The decoder's weights under the names that `fast_decoder` reads from transformers' module."""
    layers = []
    for block in range(text.num_hidden_layers):
        name = f"{TEXT}layers.{block}."
        attention = {p: _linear(weights[f"{name}self_attn.{p}.weight"]) for p in ATTENTION_PARTS}
        mlp: dict[str, Any] = {p: _linear(weights[f"{name}mlp.{p}.weight"]) for p in MLP_PARTS}
        norms = {n: SimpleNamespace(weight=weights[f"{name}{n}.weight"]) for n in NORMS}
        layers.append(
            SimpleNamespace(
                self_attn=SimpleNamespace(**attention),
                mlp=SimpleNamespace(**mlp, act_fn=nn.GELU("tanh")),
                **norms,
            )
        )
    norm = SimpleNamespace(weight=weights[f"{TEXT}norm.weight"])
    return SimpleNamespace(layers=layers, norm=norm, rotary_emb=_Rotary(text))


def _linear(weight: torch.Tensor) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    return linear


def _projections(decoder: Any) -> Iterable[tuple[str, Any, str]]:
    """Every projection's path in transformers' model, the object that holds it, and its name."""
    for block, layer in enumerate(decoder.layers):
        path = f"model.language_model.layers.{block}"
        yield from ((f"{path}.self_attn.{p}", layer.self_attn, p) for p in ATTENTION_PARTS)
        yield from ((f"{path}.mlp.{p}", layer.mlp, p) for p in MLP_PARTS)


class _Rotary:
    """Cosines and sines (1, T, size) in float32 of positions (1, T)."""

    def __init__(self, text: Any) -> None:
        size, base = text.head_dim, text.rope_parameters["rope_theta"]
        self._rates = 1.0 / (base ** (torch.arange(0, size, 2, dtype=torch.float) / size))

    def __call__(
        self, like: torch.Tensor, positions: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        angles = positions[..., None].float() * self._rates.to(like.device)
        both = torch.cat((angles, angles), dim=-1)
        return both.cos().to(like.dtype), both.sin().to(like.dtype)
