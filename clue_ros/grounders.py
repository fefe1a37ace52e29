# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Load what asks and points: CLUE's own model, or `model` "wrapper" around any detector."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from clue_ros.dialogue.grounder import RobotGrounder
from clue_ros.errors import ModelError
from clue_ros.wrapper import WRAPPER

DEFAULT_CANDIDATES = "base:household"


def add_wrapper_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `--model wrapper`."""
    parser.add_argument(
        "--candidates",
        action="append",
        default=[],
        metavar="KIND:ARGUMENT",
        help="with --model wrapper, where boxes come from: base:MODEL, grounding-dino:NAME,"
        " owlv2:NAME, json:FILE or python:MODULE:FUNCTION; clue:MODEL: CLUE has a say beside them;"
        " once more for an ensemble"
        f" (default: {DEFAULT_CANDIDATES})",
    )
    parser.add_argument(
        "--language-model",
        metavar="NAME",
        help="with --model wrapper, who chooses among the boxes: a hub id, a folder, a .gguf file,"
        " or an adapter of `clue train wrapper`, folder or hub id (default: rules)",
    )


def load_grounder(
    model: str | Path,
    *,
    candidates: Sequence[Any] = (),
    language_model: str | Path | None = None,
    **settings: Any,
) -> RobotGrounder[Any]:
    """The grounder that a model's name means.

    candidates: for "wrapper" alone, lines that name sources (`clue_ros.wrapper.sources`), or
    sources; none: DEFAULT_CANDIDATES. language_model: for "wrapper" alone. settings: of
    `Clue.load`; a wrapper takes device, dtype, quantization and threshold, and refuses others that
    are set. Raises ModelError.
    """
    problem = misplaced(model, candidates, language_model)
    if problem:
        raise ModelError(problem)
    if str(model) != WRAPPER:
        from clue_ros.engine import Clue

        return Clue.load(model, **settings)
    from clue_ros.wrapper.grounder import Wrapper

    taken = {name: settings.pop(name) for name in _TAKEN if name in settings}
    settings.pop("policy", None)  # it decides for itself
    problem = misplaced(model, settings=settings)
    if problem:
        raise ModelError(problem)
    return Wrapper.load(candidates or (DEFAULT_CANDIDATES,), language_model, **taken)


def has_checkpoint(grounder: object) -> bool:
    """Whether a grounder is a `Clue`: further adapters fit its PaliGemma 2. A wrapper is none."""
    return hasattr(grounder, "checkpoint")


def misplaced(
    model: str | Path,
    candidates: Sequence[Any] = (),
    language_model: str | Path | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Why options belong to another model than this one; empty where they do not.

    settings: of `Clue.load`, those that a wrapper does not take.
    """
    if str(model) != WRAPPER:
        if candidates or language_model:
            return f"candidates and a language model belong to model {WRAPPER!r}, not to {model!r}"
        return ""
    given = [name for name, value in settings.items() if value is not None]
    return f"model {WRAPPER!r} has no {given[0]}: leave it out" if given else ""


_TAKEN = ("device", "dtype", "quantization", "threshold")
