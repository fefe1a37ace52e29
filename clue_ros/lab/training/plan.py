"""Memory and time of training the adapters, by arithmetic from a model's sizes.

Nothing here was measured on a GPU. Each number follows from parameters, the LoRA, and activations
with gradient checkpointing; docs/full-size-memory.md has the formulas. `clue train full --plan`
prints them, and `clue train full` divides a step into parts so that it fits the card.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from clue_ros.errors import ClueError
from clue_ros.lab.options import at_least, option, required
from clue_ros.lab.training.parallel import pick_device
from clue_ros.model.detector_variants import VARIANTS, Variant
from clue_ros.model.loading import find_base, find_model

GB = 1e9
RESERVE = 2.0 * GB  # CUDA's context, workspaces, fragments
# Bytes that a block keeps while its backward pass runs, from the tensors of `packing.attend` and
# peft's LoRA layers under bfloat16 autocast: for each score of the attention, for each value of the
# MLP's inner layers, and for each input value of an adapted projection (a float32 copy, dropout).
PER_SCORE, PER_MLP, PER_LORA_INPUT = 20, 16, 9
PER_LOGIT = 16  # float32 logits, their log-softmax, gradients
TRAINED_BYTES = 16  # of a LoRA weight: itself, gradient, two moments of AdamW, in float32


@dataclass(frozen=True)
class ModelSizes:
    """The sizes of a PaliGemma 2 that memory and time depend on."""

    tokens: int  # image tokens
    vision_width: int
    vision_mlp: int
    vision_layers: int
    patch: int
    width: int
    mlp: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    stem: int = 0  # weights of the vision tower's convolutional stem
    stem_operations: int = 0  # of it, for a picture

    @classmethod
    def of(cls, config: Any) -> ModelSizes:
        """The sizes in a PaliGemma 2's configuration, transformers' or `read_config`'s."""
        from clue_ros.model.conv_stem import stem_cost  # imports torch

        text, vision = config.text_config, config.vision_config
        return cls(
            (vision.image_size // vision.patch_size) ** 2,
            vision.hidden_size,
            vision.intermediate_size,
            vision.num_hidden_layers,
            vision.patch_size,
            text.hidden_size,
            text.intermediate_size,
            text.num_hidden_layers,
            text.num_attention_heads,
            text.num_key_value_heads,
            text.head_dim,
            text.vocab_size,
            *stem_cost(vision),
        )

    @property
    def projections(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of q, k, v, o, gate, up and down of a block."""
        inner, shared = self.heads * self.head_dim, self.kv_heads * self.head_dim
        w, m = self.width, self.mlp
        return ((w, inner), (w, shared), (w, shared), (inner, w), (w, m), (w, m), (m, w))

    @property
    def block(self) -> int:
        """Weights of a decoder block's projections."""
        return sum(a * b for a, b in self.projections)

    @property
    def vision(self) -> int:
        """Weights of the vision tower, with its stem, and the projector."""
        v, m = self.vision_width, self.vision_mlp
        return self.vision_layers * (4 * v * v + 2 * v * m) + self.vision_input + v * self.width

    @property
    def vision_input(self) -> int:
        """Weights before the tower's blocks: stem, patches and positions."""
        return self.stem + (3 * self.patch**2 + self.tokens) * self.vision_width

    @property
    def vision_operations(self) -> int:
        """Operations of the tower and the projector for a picture, attention left out."""
        each = self.vision - self.stem - self.tokens * self.vision_width  # positions are added
        return 2 * each * self.tokens + self.stem_operations

    @property
    def parameters(self) -> int:
        """All weights but norms and biases, under a thousandth of them."""
        return self.vision + self.vocab * self.width + self.layers * self.block

    def lora(self, rank: int, blocks: int) -> int:
        """Weights of a LoRA in so many blocks."""
        return blocks * rank * sum(a + b for a, b in self.projections)


FULL_MODEL = "google/paligemma2-3b-mix-448"
FULL_SIZE = ModelSizes(1024, 1152, 4304, 27, 14, 2304, 9216, 26, 8, 4, 256, 257216)


@dataclass(frozen=True)
class Workload:
    """The workload of a training step.

    pictures: of a step. sequences: of a picture (sentences, or training pairs of a dialogue).
    words, suffix: text tokens of a sequence, and those of them that are predicted. run: blocks that
    are run. adapted: the last of them, through which gradients flow. rank: of the LoRA. steps: all.
    """

    pictures: int
    sequences: float
    words: int
    suffix: int
    run: int
    adapted: int
    rank: int
    steps: int


def detector_workload(
    sizes: ModelSizes, variant: Variant, *, pictures: int, steps: int
) -> Workload:
    """Adapter A of a variant: three sentences a picture; an AR detector answers with a token."""
    adapted = variant.adapted(sizes.layers)
    answer = 1 if variant.head == "ar" else 0
    return Workload(pictures, 3, 24, answer, adapted.stop, len(adapted), 16, steps)


def ivg_workload(sizes: ModelSizes, *, pictures: int, steps: int) -> Workload:
    """Adapter B at full depth: all pairs of a dialogue, about 3.6 questions and a box (InViG)."""
    return Workload(pictures, 4.6, 64, 14, sizes.layers, sizes.layers, 16, steps)


def step_bytes(sizes: ModelSizes, work: Workload, pictures: int, base_bytes: int = 2) -> float:
    """Bytes of GPU memory for a step with so many pictures in memory at once."""
    length = sizes.tokens + work.words
    inputs = sum(a for a, _ in sizes.projections)
    block = (
        PER_SCORE * sizes.heads * length**2
        + PER_MLP * length * sizes.mlp
        + PER_LORA_INPUT * length * inputs
    )
    kept = 4 * length * sizes.width * work.adapted  # each block's input
    logits = PER_LOGIT * work.suffix * sizes.vocab
    features = 4 * sizes.tokens * (sizes.vision_mlp + 4 * sizes.vision_width)
    fixed = base_bytes * sizes.parameters + TRAINED_BYTES * sizes.lora(work.rank, work.adapted)
    each = work.sequences * (block + kept + logits) + features
    return fixed + pictures * each + RESERVE


def parts_that_fit(sizes: ModelSizes, work: Workload, card: float, base_bytes: int = 2) -> int:
    """The fewest parts of a step (`--accumulate`) that fit a card of so many bytes.

    Raises ClueError if one picture does not.
    """
    for parts in range(1, work.pictures + 1):
        if step_bytes(sizes, work, -(-work.pictures // parts), base_bytes) <= card:
            return parts
    need = step_bytes(sizes, work, 1, base_bytes) / GB
    raise ClueError(
        f"a step needs {need:.1f} GB for a single picture, the card has {card / GB:.0f} GB"
    )


def sizes_of(model: str) -> ModelSizes:
    """A base's sizes; those of the paper's model are known without its files."""
    if model.partition("@")[0] == FULL_MODEL:
        return FULL_SIZE
    from clue_ros.model.torch_backbone import load_config

    return ModelSizes.of(load_config(find_base(find_model(model))))


@dataclass(frozen=True, kw_only=True)
class PlannedOptions:
    """The settings of both adapters' trainings (`clue train full`, `clue reproduce`)."""

    model: str = required("base (of the paper wrapper: a language model): a hub id or a folder")
    detector_steps: int = option(2000, "steps of adapter A", type=at_least(1))
    detector_batch: int = option(12, "pictures a step, three sentences each", type=at_least(1))
    ivg_steps: int = option(2000, "steps of adapter B, three epochs of InViG", type=at_least(1))
    ivg_batch: int = option(32, "dialogues a step, all pairs of each", type=at_least(1))
    limit: int | None = option(None, "measure on the first N images only", type=at_least(1))
    device: str = option("auto", "auto, cpu or cuda")
    base_dtype: str = option(
        "bfloat16", "precision of the frozen base", choices=("float32", "bfloat16")
    )
    plan: bool = option(False, "print steps, memory and time, and run nothing")

    @property
    def ivg_workload(self) -> Workload:
        """Return the workload of adapter B's training."""
        sizes, pictures = sizes_of(self.model), self.ivg_batch
        return ivg_workload(sizes, pictures=pictures, steps=self.ivg_steps)

    def detector_workload(self, variant: str, seeds: int = 1) -> Workload:
        """Return the workloads of a detector's trainings."""
        steps, pictures = self.detector_steps * seeds, self.detector_batch
        sizes, found = sizes_of(self.model), VARIANTS[variant]
        return detector_workload(sizes, found, pictures=pictures, steps=steps)

    def parts(self, work: Workload) -> int:
        """The parts of a step that fit this machine's GPU; 1 on a CPU."""
        place = pick_device(self.device)
        if place.type != "cuda":
            return 1
        card = torch.cuda.get_device_properties(place).total_memory
        sizes, base_bytes = sizes_of(self.model), 4 if "32" in self.base_dtype else 2
        return parts_that_fit(sizes, work, card, base_bytes)


def step_flops(sizes: ModelSizes, work: Workload) -> float:
    """Floating-point operations of a step.

    Forward through all blocks that are run; through adapted ones also the forward pass that
    checkpointing repeats and the gradients of the activations (the base's own weights have none).
    """
    length = sizes.tokens + work.words
    attention = 4 * length**2 * sizes.heads * sizes.head_dim
    block = 2 * length * sizes.block + attention
    passes = work.run + 2 * work.adapted
    logits = 6 * work.suffix * sizes.width * sizes.vocab
    each = work.sequences * (passes * block + logits) + sizes.vision_operations
    return work.pictures * each


@dataclass(frozen=True)
class Card:
    """A GPU by its memory in bytes, and dense bfloat16 operations a second by its data sheet."""

    name: str
    memory: float
    peak: float


UTILISATION = 0.25  # assumed share of the peak: attention is eager, one block at a time
CARDS = (
    Card("24 GB (RTX 4090)", 24 * GB, 165e12),
    Card("40 GB (A100)", 40 * GB, 312e12),
    Card("80 GB (H100)", 80 * GB, 989e12),
)


def hours(sizes: ModelSizes, work: Workload, card: Card) -> float:
    """Expected hours of all steps on a card."""
    return work.steps * step_flops(sizes, work) / (UTILISATION * card.peak) / 3600


def table_of(sizes: ModelSizes, workloads: dict[str, Workload]) -> list[list[str]]:
    """A row for each card and workload: parts of a step, memory, hours."""
    rows = [["card", "part", "parts a step", "memory", "time"]]
    for card in CARDS:
        for name, work in workloads.items():
            try:
                parts = parts_that_fit(sizes, work, card.memory)
            except ClueError:
                rows.append([card.name, name, "-", "does not fit", "-"])
                continue
            memory = step_bytes(sizes, work, -(-work.pictures // parts)) / GB
            time = f"{hours(sizes, work, card):.1f} h"
            rows.append([card.name, name, str(parts), f"{memory:.1f} GB", time])
    return rows
