"""`clue train oracle`: the adapter that plays the person of a dialogue (InViG's Oracle, M-VQA).

It learns the person's next words, token cross-entropy on the suffix, from the box that the person
has in mind and the dialogue so far (`clue_ros.model.oracle`), and the request that begins a
dialogue from the box alone. The data, the loop, the loss and the options are those of `clue train
ivg`; the attention losses, where objects have masks, teach the words to look at the box's object.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from clue_ros.errors import ClueError
from clue_ros.lab.training import ivg
from clue_ros.lab.training.ivg import DialogueAdapter, IvgOptions
from clue_ros.model.oracle import (
    ANSWER,
    DESCRIBE,
    ORACLE,
    OracleSettings,
    same_tokens,
    save_oracle_settings,
)


def _save(options: IvgOptions, folder: Path, **notes: Any) -> None:
    settings = OracleSettings(options.max_new_tokens, ANSWER, DESCRIBE)
    save_oracle_settings(settings, folder, **notes)


def _check(tokenizer: Any) -> None:
    if reason := same_tokens(tokenizer, ANSWER, DESCRIBE):
        raise ClueError(f"{reason}; train a base whose words include {ANSWER!r} and {DESCRIBE!r}")


THE_PERSON = DialogueAdapter(ORACLE, ANSWER, _save, _check)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `clue train oracle`, which are those of `clue train ivg`."""
    ivg.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Train the oracle and write its folder."""
    return ivg.run_training(args, THE_PERSON)
