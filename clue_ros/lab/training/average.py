"""`clue train average`: the weighted mean of bases that were trained one from another.

The mean of two ends of a training often errs less than each of them, at no cost when the model is
used ("model soups", Wortsman and others, ICML 2022). The bases must have the same sizes and the
same tokens. Adapters belong to the base that they were trained on: train new ones. With a single
base and `--dtype bfloat16` the command rounds its weights.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path

import torch

from clue_ros.errors import ClueError
from clue_ros.lab.options import add_options, option, read_options, required
from clue_ros.lab.training.base import base_weights, save_base
from clue_ros.model.loading import DEFAULT_MODEL, find_base, find_model
from clue_ros.model.prompts import load_processor
from clue_ros.model.torch_backbone import load_model

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def weighted_base(text: str) -> tuple[str, float]:
    """Read MODEL=WEIGHT. Raises ArgumentTypeError with the reason."""
    model, _, weight = text.rpartition("=")
    try:
        share = float(weight)
    except ValueError:
        share = math.nan
    if not model or not 0 < share <= 1:
        raise argparse.ArgumentTypeError(
            f"{text!r}: want MODEL=WEIGHT with a weight above 0 and up to 1, for example first=0.4"
        )
    return model, share


@dataclass(frozen=True, kw_only=True)
class AverageOptions:
    """The options of `clue train average`."""

    bases: tuple[tuple[str, float], ...] = required(
        "bases (folders, names or hub ids) with their weights, which sum to 1",
        nargs="+",
        type=weighted_base,
        metavar="MODEL=WEIGHT",
    )
    out: Path = required("folder to write the base to")
    dtype: str = option("float32", "type of the written weights", choices=tuple(DTYPES))

    def __post_init__(self) -> None:
        """Raises ClueError for weights that do not sum to 1, and for the shipped model's name."""
        total = sum(weight for _, weight in self.bases)
        if abs(total - 1) > 1e-6:
            raise ClueError(f"--bases: the weights sum to {total:g}, want 1")
        if str(self.out) == DEFAULT_MODEL:
            raise ClueError(f"--out {self.out} is the name of the shipped model: give a folder")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_options(parser, AverageOptions)


def run(args: argparse.Namespace) -> int:
    """Write the mean; 0 when it is there."""
    options = read_options(AverageOptions, args)
    average(options.bases, options.out, DTYPES[options.dtype])
    print(json.dumps({"out": str(options.out), "bases": dict(options.bases)}))
    return 0


@torch.no_grad()
def average(bases: tuple[tuple[str, float], ...], out: Path, dtype: torch.dtype) -> None:
    """Write the weighted mean of the bases' weights, computed in float32.

    Raises ClueError if their sizes or tokens differ, ModelError if one cannot be read.
    """
    (first, share), *others = bases
    folder = find_base(find_model(first))
    model, processor = load_model(folder).model, load_processor(folder)
    mean = base_weights(model)
    for weight in mean.values():
        weight.mul_(share)
    for name, share in others:
        folder = find_base(find_model(name))
        weights = base_weights(load_model(folder).model)
        if load_processor(folder).tokenizer.get_vocab() != processor.tokenizer.get_vocab():
            raise ClueError(f"{name} has other tokens than {first}: only like bases have a mean")
        for key in sorted({*mean, *weights}):
            here, there = mean.get(key), weights.get(key)
            if here is None or there is None or here.shape != there.shape:
                shapes = ["nothing" if w is None else tuple(w.shape) for w in (here, there)]
                raise ClueError(f"{key} is {shapes[0]} in {first} and {shapes[1]} in {name}")
            here.add_(there, alpha=share)
    save_base(model.to(dtype), processor.tokenizer, out)
