"""`clue train oracle`: the adapter that plays the person of a dialogue (InViG's Oracle, M-VQA).

It learns the person's next words, token cross-entropy on the suffix, from the box that the person
has in mind and the dialogue so far (`clue_ros.model.oracle`), and the request that begins a
dialogue from the box alone. The data, the loop, the loss and the options are those of `clue train
ivg`; the attention losses, where objects have masks, teach the words to look at the box's object.
With `--sees dialogue` or `--sees question` it learns answers without the box, or from the question
alone (X-VLM's row in InViG's Table II).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from clue_ros.errors import ClueError
from clue_ros.lab.options import add_options, add_recipe, option
from clue_ros.lab.training.ivg import EMBEDDED, DialogueAdapter, IvgOptions, run_training
from clue_ros.lab.training.samples import Query
from clue_ros.model.oracle import (
    ANSWER,
    BOX,
    DESCRIBE,
    ORACLE,
    SEES,
    OracleSettings,
    same_tokens,
    save_oracle_settings,
    seen_context,
)


@dataclass(frozen=True, kw_only=True)
class OracleOptions(IvgOptions):
    """The options of `clue train oracle`."""

    sees: str = option(
        BOX,
        "input of answers: the person's box and the dialogue, the dialogue (the paper's"
        " form of the task), or the question alone",
        choices=SEES,
    )


def _save(options: OracleOptions, folder: Path, **notes: Any) -> None:
    settings = OracleSettings(options.max_new_tokens, ANSWER, DESCRIBE, options.sees)
    save_oracle_settings(settings, folder, **notes)


def as_seen(query: Query, sees: str) -> Query | None:
    """A query of the person as one that sees so much learns it; None for a request without a box.

    Without the box no word can look at the person's object.
    """
    if sees == BOX:
        return query
    if not query.instruction.startswith(f"{ANSWER} "):
        return None
    context = seen_context(query.context, sees)
    return replace(query, instruction=ANSWER, context=context, meant=(), pointers=())


def _check(tokenizer: Any) -> None:
    if reason := same_tokens(tokenizer, ANSWER, DESCRIBE):
        raise ClueError(f"{reason}; train a base whose words include {ANSWER!r} and {DESCRIBE!r}")


def _seen(options: OracleOptions) -> Callable[[Query], Query | None]:
    return partial(as_seen, sees=options.sees)


def _notes(options: OracleOptions) -> dict[str, str]:
    return {"sees": options.sees}


THE_PERSON = DialogueAdapter(ORACLE, ANSWER, _save, _check, notes=_notes, change=_seen)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `clue train oracle`: those of `clue train ivg`, and `--sees`."""
    add_options(parser, OracleOptions)
    add_recipe(parser, embedded=EMBEDDED)


def run(args: argparse.Namespace) -> int:
    """Train the oracle and write its folder."""
    return run_training(args, THE_PERSON, OracleOptions)
