# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""`clue train intent`: the classifier of utterances (`clue_ros.dialogue.intent`), in minutes.

Learns from drawn utterances (`clue_ros.lab.language.utterances`) and from a user's own lines
(`--also FILE`), those many times, since they are few and true.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import save_file
from torch import Tensor, nn

from clue_ros.dialogue import intent, nouns
from clue_ros.dialogue.intent import CLASSES, WEIGHTS, Asked, IntentModel, Linear
from clue_ros.dialogue.object_names import KNOWN_NAMES
from clue_ros.dialogue.words import DETERMINERS
from clue_ros.errors import ClueError
from clue_ros.lab.data.rows import checked_json_rows
from clue_ros.lab.language.utterances import (
    LANGUAGES,
    MODIFIER,
    NOUN,
    Utterance,
    draw,
    unmarked,
)
from clue_ros.lab.options import add_options, at_least, option, read_options
from clue_ros.model.loading import replacing

SHARES = {
    "request": 0.27, "mixed": 0.04, "answer": 0.15, "refusal": 0.2, "chat": 0.2, "unnamed": 0.03,
    "yes": 0.025, "no": 0.025, "none": 0.02, "wait": 0.04,
}  # fmt: skip
"""Shares of drawn utterances, by the kinds of `clue_ros.lab.language.utterances.draw`."""
FRENCH = 0.25  # share of the utterances
Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
BATCH = 512
LEARNING_RATE = 0.03
ALSO = 20  # times that a user's own line is read an epoch
FADING = 0.01  # weight decay


@dataclass(frozen=True, kw_only=True)
class IntentOptions:
    """The options of `clue train intent`."""

    out: Path = option(WEIGHTS, "file of weights to write", metavar="FILE")
    also: tuple[Path, ...] = option(
        (), "JSON lines of your own, as `clue read --json` prints them: text and kind, and, of an"
        " answer, about and offered", nargs="+", metavar="FILE",
        type=Path,
    )  # fmt: skip
    utterances: int = option(300_000, "utterances that are drawn for each model", type=at_least(1))
    models: int = option(
        3, "models whose weights are averaged; each has its own draws", type=at_least(1)
    )
    epochs: int = option(4, "times that each is read", type=at_least(1))
    seed: int = option(0, "seed of the utterances and the training")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_options(parser, IntentOptions)


def run(args: argparse.Namespace) -> int:
    """Train and write the weights; 0 when they are there."""
    options = read_options(IntentOptions, args)
    own = [line for path in options.also for line in checked_json_rows(path, own_line)]
    seeds = range(options.seed, options.seed + options.models)
    trained = [train_intent(options.utterances, own, options.epochs, seed) for seed in seeds]
    model = IntentModel(mean([m.classes for m in trained]), mean([m.tags for m in trained]))
    write(model, options.out)
    size = options.out.stat().st_size
    print(json.dumps({"out": str(options.out), "bytes": size, "own_lines": len(own)}))
    return 0


def own_line(row: Any) -> Utterance:
    """A line of a user's own. Raises ValueError, KeyError, TypeError or AttributeError."""
    kind = "answer" if row["kind"] == "offered" else row["kind"]
    if kind not in CLASSES or not isinstance(row["text"], str) or not row["text"].strip():
        raise ValueError(f"kind must be one of {', '.join(CLASSES)}, text a sentence")
    asked = Asked(str(row.get("about", "")), tuple(map(str, row.get("offered", ()))))
    return Utterance(row["text"], kind, asked)


def drawn(count: int, seed: int) -> list[Utterance]:
    """Utterances of all classes, in random order."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(list(SHARES), size=count, p=np.array(list(SHARES.values())))
    english, french = LANGUAGES
    return [draw(str(kind), rng, french if rng.uniform() < FRENCH else english) for kind in kinds]


def train_intent(count: int, own: Sequence[Utterance], epochs: int, seed: int) -> IntentModel:
    """Train on `count` drawn utterances and a user's own."""
    drawn_lines = drawn(count, seed)
    lines = [*drawn_lines, *(line for line in own for _ in range(ALSO))]
    rows = [intent.features(line.text, line.asked) for line in lines]
    labels = [CLASSES.index(line.kind) for line in lines]
    classes = fit(rows, labels, intent.BUCKETS, len(CLASSES), epochs, seed)
    tags: list[int] = []
    tag_rows: list[Rows] = []
    for line in drawn_lines[: count // 2]:
        if line.kind in ("request", "answer"):
            said, marks = marked_words(line.marked)
            for at, mark in enumerate(marks):
                if mark is not None:
                    tag_rows.append(nouns.features(said, at))
                    tags.append(mark)
    return IntentModel(classes, fit(tag_rows, tags, nouns.BUCKETS, len(nouns.Tag), epochs, seed))


def marked_words(marked: str) -> tuple[list[str], list[int | None]]:
    """The words of a marked utterance, and the tag of each; None where it is not known.

    A template's own words may name things too ("take the lid off {np}"): after a determiner, and
    where they are a known name.
    """
    said: list[str] = []
    tags: list[int | None] = []
    for part in marked.split():
        tag = {NOUN: nouns.Tag.NOUN, MODIFIER: nouns.Tag.MODIFIER}.get(part[0], nouns.Tag.OTHER)
        for word in intent.words(unmarked(part)):
            names = word in KNOWN_NAMES or (bool(said) and said[-1] in DETERMINERS)
            unsure = tag is nouns.Tag.OTHER and names and word not in ("one", "ones")
            said.append(word)
            tags.append(None if unsure else int(tag) if word[0].isalnum() else 0)
    return said, tags


def fit(
    rows: Sequence[Rows], labels: Sequence[int], buckets: int, columns: int, epochs: int, seed: int
) -> Linear:
    """Multinomial logistic regression on hashed features, by Adam; rounded to 8 bits."""
    torch.manual_seed(seed)
    target = torch.tensor(labels)
    table = nn.EmbeddingBag(buckets, columns, mode="sum")
    nn.init.zeros_(table.weight)
    bias = nn.Parameter(torch.zeros(columns))
    optimizer = torch.optim.AdamW([table.weight, bias], LEARNING_RATE, weight_decay=FADING)
    batch = min(BATCH, len(rows))
    steps = epochs * (len(rows) // batch)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, steps)
    order = np.random.default_rng(seed)
    for epoch in range(epochs):
        total = 0.0
        shuffled = order.permutation(len(rows))
        for begin in range(0, len(rows) - batch + 1, batch):
            chosen = shuffled[begin : begin + batch]
            logits = _logits(table, bias, [rows[i] for i in chosen])
            loss = nn.functional.cross_entropy(logits, target[chosen])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
            total += float(loss.detach())
        print(f"epoch {epoch + 1}: loss {total / (len(rows) // batch):.4f}", file=sys.stderr)
    return rounded(table.weight.detach().numpy(), bias.detach().numpy())


def _logits(table: nn.EmbeddingBag, bias: Tensor, rows: Sequence[Rows]) -> Tensor:
    sizes = np.array([len(row) for row in rows])
    offsets = torch.from_numpy(np.concatenate([[0], np.cumsum(sizes)[:-1]]))
    total = table(torch.from_numpy(np.concatenate(rows)), offsets)
    shares: Tensor = total / torch.from_numpy(np.sqrt(sizes).astype(np.float32))[:, None]
    return bias + shares


def mean(parts: Sequence[Linear]) -> Linear:
    """Average linear models, and so their logits."""
    weights = np.stack([p.weights * p.scales for p in parts]).mean(axis=0)
    return rounded(weights, np.stack([p.bias for p in parts]).mean(axis=0))


def rounded(weights: Floats, bias: Floats) -> Linear:
    """Weights of 8 bits, with a scale for each column."""
    scales = np.abs(weights).max(axis=0).clip(1e-9) / 127
    kept = np.rint(weights / scales).astype(np.int8)
    return Linear(kept, scales.astype(np.float32), bias.astype(np.float32))


def write(model: IntentModel, path: Path) -> None:
    """Write the weights as safetensors. Raises ClueError if they cannot be written."""
    parts = {"classes": model.classes, "tags": model.tags}
    arrays = {f"{name}.{key}": v for name, part in parts.items() for key, v in vars(part).items()}
    try:
        with replacing(path) as partial:
            save_file(arrays, str(partial))
    except OSError as error:
        raise ClueError(f"--out {path}: cannot be written: {error}") from None
