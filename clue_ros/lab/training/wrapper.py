"""Train the LLM-wrapper: LoRA on a language model that names the box a dialogue means.

The default is the paper's: rank 128, alpha 256, dropout 0.1 on all seven projections and lm_head,
an NF4 base on a GPU, learning rate 1e-5, batch 4, one epoch, the loss on the answer alone. The
answers "ask k1 k2 ..." and "none" are ours (`clue_ros.wrapper.prompt`). `--recipe small` suits
models of some hundred million weights on a CPU.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from clue_ros.errors import ClueError
from clue_ros.lab.data.referring_options import CANDIDATES, EVALUATION_SEED, ReferringOptions
from clue_ros.lab.metrics import count, ratio
from clue_ros.lab.options import add_options, add_recipe, at_least, option, read_options, required
from clue_ros.lab.training.detector import fit_threshold
from clue_ros.lab.training.loop import Group, PartLosses, Parts, TrainingSettings, train
from clue_ros.lab.training.parallel import Processes, start_processes
from clue_ros.lab.training.wrapper_data import (
    ListingSample,
    PackedPrompt,
    answer_logits,
    extra_permutations,
    listing_samples,
    pack,
    right_answers,
    without_long_prompts,
)
from clue_ros.model.loading import name_and_revision, usual_mode
from clue_ros.wrapper.deciding import ambiguity_of
from clue_ros.wrapper.language_model import (
    MAX_PROMPT,
    LanguageModel,
    WrapperSettings,
    load_causal,
    save_settings,
)
from clue_ros.wrapper.prompt import GIVEN, ORDERS, STYLES, UNITS

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
HEAD = "lm_head"
SMALL_RECIPE = {
    "rank": 32, "alpha": 64, "dropout": 0.0, "lr": 1e-3, "final_rate": 0.05, "batch": 2,
    "together": 8, "style": "centers", "units": "percent", "order": "left-to-right",
    "no_scores": True,
}  # fmt: skip
HELD_OUT = 24  # packed validation samples that are measured at each saved state
HELD_OUT_SCENES = 100  # simulated validation scenes
SHOWN = 5  # rows left out that are named
JUDGED = 150  # validation dialogues that the threshold is chosen on


@dataclass(frozen=True, kw_only=True)
class WrapperTrainingOptions(ReferringOptions):
    """The options of ``clue train wrapper``."""

    scenes: int | None = option(None, "largest number of simulated scenes; default: all")
    together: int = option(
        1, "dialogues about a picture in one sequence, which reads its boxes once", type=at_least(1)
    )
    seed: int = option(0, "seed of dialogues, orders, weights and dropout")

    language_model: str = required("hub id, folder or GGUF file of a causal language model")
    out: Path = required("folder to write the adapter to")
    run: Path | None = option(None, "folder of states and logs, resumed; default: OUT/run")
    rank: int = option(128, "rank of the LoRA matrices", type=at_least(1))
    alpha: int = option(256, "scale of the LoRA matrices, divided by the rank", type=at_least(1))
    dropout: float = option(0.1, "dropout in the LoRA matrices")
    lr: float = option(1e-5, "learning rate")
    final_rate: float = option(0.0, "share of the learning rate that is left after the last step")
    batch: int = option(4, "sequences a step", type=at_least(1))
    epochs: int = option(1, "passes over the samples", type=at_least(1))
    steps: int | None = option(None, "optimizer steps; default: as the epochs need", metavar="N")
    style: str = option("paper", "wording of the prompt", choices=STYLES)
    units: str = option("pixels", "of the boxes' corners", choices=UNITS)
    order: str = option(
        "given", "of the boxes' lines: given, and permuted in training, or by place", choices=ORDERS
    )
    no_scores: bool = option(False, "leave the detector's scores out of the prompt")
    no_colors: bool = option(False, "leave measured colours out of the prompt")
    quantization: str = option(
        "auto",
        "of the frozen base: auto is nf4 on a GPU, else none",
        choices=("auto", "none", "int8", "nf4"),
    )
    gradient_checkpointing: bool = option(False, "use less memory and more time")
    easy_first: bool = option(
        False, "begin with pictures of few boxes, whose prompts are short, not in random order"
    )
    threads: int = option(0, "number of CPU threads, 0 for PyTorch's own choice")
    save_every: int = option(100, "steps between two saved states")

    @property
    def prompt(self) -> WrapperSettings:
        """The prompt's format of boxes, and their sources."""
        return WrapperSettings(
            self.style,
            self.units,
            not self.no_scores,
            not self.no_colors,
            self.order,
            candidates=self.candidates or CANDIDATES,
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue train wrapper``."""
    add_options(parser, WrapperTrainingOptions)
    add_recipe(parser, small=SMALL_RECIPE)


def run(args: argparse.Namespace) -> int:
    """Run ``clue train wrapper``; the exit status."""
    train_wrapper(read_options(WrapperTrainingOptions, args))
    return 0


def train_wrapper(options: WrapperTrainingOptions) -> None:
    """Train the adapter from the state in the run folder, if there is one, and write it."""
    if options.threads:
        torch.set_num_threads(options.threads)
    processes = start_processes(options.device)
    data = load_data(options)
    if not data.train:
        raise ClueError("no training samples: name data with --simulated, --it2p, --invig, ...")
    model = adapted_model(options, processes)
    leave_out_long_prompts(model, data)
    epoch = epoch_order(
        data.train,
        options.seed,
        options.epochs,
        permuted=options.order == GIVEN,
        easy_first=options.easy_first,
    )
    steps = options.steps or math.ceil(len(epoch) / options.batch)
    settings = TrainingSettings(
        steps=steps,
        batch=options.batch,
        lr=options.lr,
        weight_decay=0.0,
        schedule="linear",
        final_rate=options.final_rate,
        seed=options.seed,
        save_every=options.save_every,
    )
    notes = {**data.notes, **_notes(options), "samples": len(data.train)}
    if processes.is_main:
        print(json.dumps({"steps": steps, **notes}), file=sys.stderr)
    held_out = [p for s in data.val[:HELD_OUT] if (p := pack(model, s)) is not None]

    def evaluate() -> dict[str, float]:
        figures = held_out_figures(model, held_out)
        if processes.is_main:
            write_adapter(model, options, {**notes, "held_out": figures})
        return figures

    trainable = [p for p in model.model.parameters() if p.requires_grad]
    train(
        lambda step: _step(model, epoch, options, processes, step),
        [Group(trainable)],
        settings,
        options.run or options.out / "run",
        evaluate=evaluate,
        notes=notes,
        processes=processes,
    )
    if processes.is_main:
        threshold, figures = choose_threshold(model, data.val, JUDGED)
        write_adapter(model, options, {**notes, "validation": figures}, threshold)
        print(json.dumps({"out": str(options.out), "threshold": threshold, **figures}))
    processes.close()


@dataclass
class WrapperData:
    """Training and validation samples; notes: their sources."""

    train: list[ListingSample]
    val: list[ListingSample]
    notes: dict[str, Any] = field(default_factory=dict)


def load_data(options: WrapperTrainingOptions) -> WrapperData:
    """The samples of all data sets that were named."""
    notes: dict[str, Any] = {"per_picture": options.per_picture, "together": options.together}
    if options.candidates not in ((), CANDIDATES):
        notes["candidates"] = options.candidates
    data = WrapperData([], [], notes)
    for split in ("train", "val"):
        seed = options.seed if split == "train" else EVALUATION_SEED
        most = options.scenes if split == "train" else HELD_OUT_SCENES
        for name, items in options.read(split, seed, most):
            for problem in items.problems[:SHOWN]:
                print(f"note: {problem}", file=sys.stderr)
            finder = options.finder(name, items.items, seed)
            samples, left_out = listing_samples(items.items, finder, together=options.together)
            (data.train if split == "train" else data.val).extend(samples)
            notes[f"{name} {split}"] = {"items": len(items.items), "left out": left_out}
    return data


def leave_out_long_prompts(model: LanguageModel, data: WrapperData) -> None:
    """Take dialogues with too long a prompt out of the samples, and note how many these were.

    Raises ClueError if no training sample is left.
    """
    for name, samples in (("train", data.train), ("val", data.val)):
        samples[:], too_long = without_long_prompts(model, samples)
        if too_long:  # else no note, so that a run of before goes on
            left_out = {f"prompt over {MAX_PROMPT} tokens": too_long}
            data.notes[f"dialogues {name}"] = {"left out": left_out}
    if not data.train:
        raise ClueError(f"every prompt is longer than {MAX_PROMPT} tokens: list fewer boxes")


def _notes(options: WrapperTrainingOptions) -> dict[str, Any]:
    """Return the notes that decide the run, beside its settings and data."""
    names = ("language_model", "rank", "alpha", "dropout", "style", "units", "order",
             "no_scores", "no_colors", "quantization", "easy_first")  # fmt: skip
    return {name: getattr(options, name) for name in names}


def adapted_model(options: WrapperTrainingOptions, processes: Processes) -> LanguageModel:
    """Return the base with a new adapter, without effect until trained."""
    from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training

    device = processes.device
    quantization = options.quantization
    if quantization == "auto":
        quantization = "nf4" if device.type == "cuda" else "none"
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    base, tokenizer = load_causal(options.language_model, dtype, quantization, device)
    if quantization != "none":
        base = prepare_model_for_kbit_training(
            base, use_gradient_checkpointing=options.gradient_checkpointing
        )
    else:
        base = base.to(device)
        if options.gradient_checkpointing:
            base.gradient_checkpointing_enable()
            base.enable_input_require_grads()
    torch.manual_seed(options.seed)
    named = [name for name, _ in base.named_modules()]
    targets = [p for p in (*PROJECTIONS, HEAD) if any(n.endswith(p) for n in named)]
    if len(targets) <= 1:
        raise ClueError(f"{options.language_model} has none of the projections {PROJECTIONS}")
    config = LoraConfig(
        r=options.rank,
        lora_alpha=options.alpha,
        lora_dropout=options.dropout,
        bias="none",
        target_modules=targets,
        task_type="CAUSAL_LM",
    )
    model = get_peft_model(base, config)
    for p in model.parameters():
        if p.requires_grad:
            p.data = p.data.float()  # the optimizer's steps are too small for bfloat16
    model.train()
    return LanguageModel(model, tokenizer, options.language_model, options.prompt)


Epoch = list[tuple[ListingSample, int]]
"""Samples in the order of training, each with the seed of its permutation."""


def epoch_order(
    samples: Sequence[ListingSample],
    seed: int,
    epochs: int,
    *,
    permuted: bool = True,
    easy_first: bool = False,
) -> Epoch:
    """Every sample, shuffled; permuted: with further orders of its boxes, as many as the paper has.

    easy_first: the first epoch goes from few boxes to many.
    """
    order: Epoch = []
    for number in range(epochs):
        rng = np.random.default_rng([seed, number])
        more = [extra_permutations(len(s.candidates)) if permuted else 0 for s in samples]
        copies = [s for s, extra in zip(samples, more, strict=True) for _ in range(1 + extra)]
        places = [int(i) for i in rng.permutation(len(copies))]
        if easy_first and number == 0:
            places.sort(key=lambda i: len(copies[i].candidates) + rng.normal())
        order += [(copies[i], int(rng.integers(2**31))) for i in places]
    return order


def _step(
    model: LanguageModel,
    epoch: Epoch,
    options: WrapperTrainingOptions,
    processes: Processes,
    step: int,
) -> Parts:
    """The losses of this process's share of a step."""
    first = step * options.batch
    chosen = [epoch[(first + i) % len(epoch)] for i in range(options.batch)]
    mine = chosen[processes.rank :: processes.count]
    packed = [
        p
        for sample, seed in mine
        if (p := pack(model, sample.permuted(np.random.default_rng(seed)))) is not None
    ]
    counts = {
        "answer": float(sum(len(p.answers) for p in packed)),
        "right": float(sum(len(set(p.group[p.answers].tolist())) for p in packed)),
    }

    def losses(totals: Mapping[str, float]) -> Iterator[PartLosses]:
        for sequence in packed:
            yield partial(_losses, model, sequence, totals)

    return Parts(counts, losses)


def _losses(
    model: LanguageModel, packed: PackedPrompt, totals: Mapping[str, float]
) -> dict[str, Tensor]:
    logits, targets = answer_logits(model, packed)
    loss = F.cross_entropy(logits, targets, reduction="sum") / max(1.0, totals["answer"])
    right = sum(right_answers(packed, logits.detach())) / max(1.0, totals["right"])
    return {"loss": loss, "answer": loss.detach(), "right": torch.tensor(right)}


@torch.inference_mode()
def held_out_figures(model: LanguageModel, sequences: Iterable[PackedPrompt]) -> dict[str, float]:
    """Mean loss of an answer's token, and share of answers whose tokens are all the likeliest.

    By kind too: "point" for an index, "ask" for several, "none".
    """
    model.model.eval()
    total, tokens = 0.0, 0
    right: dict[str, list[bool]] = {"right": []}
    for packed in sequences:
        logits, targets = answer_logits(model, packed)
        total += float(F.cross_entropy(logits, targets, reduction="sum"))
        tokens += len(targets)
        kinds = _kinds(model, packed)
        for kind, good in zip(kinds, right_answers(packed, logits), strict=True):
            right["right"].append(good)
            right.setdefault(f"right_{kind}", []).append(good)
    model.model.train()
    shares = {f"val_{k}": round(ratio(sum(v), len(v)), 4) for k, v in right.items()}
    return {"val_loss": round(total / max(1, tokens), 4), **shares}


def _kinds(model: LanguageModel, packed: PackedPrompt) -> list[str]:
    """Return the kind of answer of each dialogue of a sequence: "point", "ask" or "none"."""
    at = packed.answers
    groups, targets = packed.group[at].tolist(), packed.targets[at].tolist()
    first = dict(zip(reversed(groups), reversed(targets), strict=True))
    names = {model.answer_tokens(word)[0]: word for word in ("ask", "none")}
    return [names.get(first[g], "point") for g in dict.fromkeys(groups)]


def choose_threshold(
    model: LanguageModel, samples: Sequence[ListingSample], most: int
) -> tuple[float, dict[str, Any]]:
    """The probability of ambiguity with the best F1 on validation dialogues, and figures there."""
    model.model.eval()
    chances: list[float] = []
    labels: list[float] = []
    for sample in samples:
        if len(chances) >= most:
            break
        listing = model.read(sample.candidates, sample.size)
        for context, meant in sample.queries:
            choice = model.choose(listing, context)
            chances.append(ambiguity_of(choice, sample.candidates))
            labels.append(float(len(meant) != 1))
    if not chances or len(set(labels)) < 2:
        return model.settings.threshold, {"n": len(chances)}
    threshold = fit_threshold(torch.tensor(chances), torch.tensor(labels))
    decided = [(bool(y), c >= threshold) for c, y in zip(chances, labels, strict=True)]
    return threshold, {**count(decided).summary(), "n": len(chances)}


def write_adapter(
    model: LanguageModel,
    options: WrapperTrainingOptions,
    notes: Mapping[str, Any],
    threshold: float | None = None,
) -> None:
    """Write the adapter, wrapper.json and the card."""
    options.out.mkdir(parents=True, exist_ok=True)
    name, revision = name_and_revision(options.language_model)
    here = Path(name).exists()
    # As it was named: of a GGUF file peft would write the converted copy in this machine's cache.
    for config in model.model.peft_config.values():
        config.base_model_name_or_path = str(Path(name).resolve()) if here else name
        config.revision = revision
    model.model.save_pretrained(str(options.out), save_embedding_layers=False)
    usual_mode(*options.out.glob("*.safetensors"))
    settings = options.prompt
    if threshold is not None:
        settings = WrapperSettings(**{**asdict(settings), "threshold": threshold})
    save_settings(settings, options.out, **notes)
    about = {"candidates": settings.candidates, **notes}
    (options.out / "README.md").write_text(card(options, about), encoding="utf-8")


def card(options: WrapperTrainingOptions, notes: Mapping[str, Any]) -> str:
    """Return the adapter's model card: description, use, training data."""
    rows = "\n".join(f"| {name} | {json.dumps(value)} |" for name, value in notes.items())
    return (
        f"---\nlibrary_name: peft\nbase_model: {options.language_model}\n---\n\n"
        "# LLM-wrapper for clue_ros\n\n"
        f"A LoRA adapter on `{options.language_model}` that names the box a dialogue means, among"
        " the boxes that a detector listed, or asks which of several.\n\n"
        f"    clue ground --model wrapper --language-model {options.out} IMAGE TEXT\n\n"
        f"| Training | |\n| --- | --- |\n{rows}\n"
    )
