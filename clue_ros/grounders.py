# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Load what asks and points: CLUE's own model, or `model` "wrapper" around any detector."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clue_ros.dialogue.grounder import RobotGrounder
from clue_ros.errors import ClueError, ModelError
from clue_ros.model.load_options import BACKENDS, DEFAULT_POLICY, POLICIES, LoadOptions
from clue_ros.model.loading import add_model_argument
from clue_ros.model.multi_view import MAX_VIEWS
from clue_ros.model.quantization import QUANTIZATIONS
from clue_ros.wrapper import WRAPPER

if TYPE_CHECKING:
    from clue_ros.model.word_memory import WordMemory

DEFAULT_CANDIDATES = "base:household"
# What only CLUE's own model takes. A wrapper decides for itself, so it ignores the policy.
_OF_CLUE = (
    "revision",
    "detector",
    "head",
    "ivg",
    "mask_decoder",
    "num_views",
    "doubtful_score",
    "max_risk",
    "calibration",
)


def add_load_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say what to load, and how."""
    add_model_argument(parser)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument(
        "--backend",
        choices=BACKENDS,
        default="auto",
        help="what computes: openvino (a CPU), torch (any device), or auto (torch on a GPU and for"
        " a large decoder)",
    )
    parser.add_argument("--dtype", default="auto", help="auto, float32, mixed, bfloat16 or float16")
    parser.add_argument(
        "--quantization",
        choices=QUANTIZATIONS,
        default=QUANTIZATIONS[0],
        help="of the decoder's weights: none, int8, or nf4 (4 bits)",
    )
    parser.add_argument("--detector", help="another detector's folder, or a baseline's name")
    parser.add_argument(
        "--head",
        metavar="MODULE:CLASS",
        help="the detector's head, where it is code of your own: imports and runs it",
    )
    parser.add_argument("--ivg", help="another folder of adapter B")
    parser.add_argument(
        "--mask-decoder",
        metavar="FILE.safetensors",
        help="PaliGemma's mask decoder (the one in the model's folder, if any)",
    )
    parser.add_argument(
        "--candidates",
        action="append",
        default=[],
        metavar="KIND:ARGUMENT",
        help="with --model wrapper, where boxes come from: base:MODEL, grounding-dino:NAME,"
        " owlv2:NAME, florence2:NAME, json:FILE or python:MODULE:FUNCTION; clue:MODEL: CLUE has a"
        " say beside them; once more for an ensemble"
        f" (default: {DEFAULT_CANDIDATES})",
    )
    parser.add_argument(
        "--language-model",
        metavar="NAME",
        help="with --model wrapper, who chooses among the boxes: a hub id, a folder, a .gguf file,"
        " an adapter of `clue train wrapper`, folder or hub id, or a server's address,"
        " http://127.0.0.1:8000/v1 (default: rules)",
    )
    parser.add_argument(
        "--memory",
        metavar="DIR",
        help="the objects that people showed and named (default: the user's own; '': none)",
    )


def add_policy_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options that say how to decide."""
    parser.add_argument(
        "--policy",
        choices=POLICIES,
        default=DEFAULT_POLICY,
        help="who decides to ask: the ambiguity detector, the decoder's first token, or both; or"
        " zero-shot: the base model without adapters",
    )
    parser.add_argument(
        "--threshold", type=float, help="ask from this probability on (the model's own)"
    )
    parser.add_argument(
        "--views",
        type=int,
        metavar="N",
        help="number of augmented views of the picture that agree on the box (the model's own)",
    )
    parser.add_argument(
        "--max-risk",
        type=float,
        metavar="SHARE",
        help="share of requests that may end in a wrong box without a confirmation: what is less"
        " sure is shown first, 'this one?' (no bound; needs `clue calibrate`)",
    )
    parser.add_argument(
        "--calibration",
        metavar="FILE.json",
        help="the file of `clue calibrate` (calibration.json in the model's folder)",
    )


def load_options(args: argparse.Namespace) -> LoadOptions:
    """What the options of `add_load_arguments` and, if declared, `add_policy_arguments` say.

    Raises ClueError for a value that no model takes.
    """
    given = vars(args)
    threshold, views = given.get("threshold"), given.get("views")
    if threshold is not None and not 0.0 <= threshold <= 1.0:
        raise ClueError(f"--threshold must be between 0 and 1, not {threshold}")
    if views is not None and not 1 <= views <= MAX_VIEWS:
        raise ClueError(f"--views must be between 1 and {MAX_VIEWS}, not {views}")
    return LoadOptions(
        args.model,
        device=args.device,
        backend=args.backend,
        dtype=args.dtype,
        quantization=args.quantization,
        detector=args.detector,
        head=args.head,
        ivg=args.ivg,
        mask_decoder=args.mask_decoder,
        policy=given.get("policy", DEFAULT_POLICY),
        threshold=threshold,
        num_views=views,
        max_risk=given.get("max_risk"),
        calibration=given.get("calibration"),
        candidates=args.candidates,
        language_model=args.language_model,
        memory=args.memory,
    )


def quieten_libraries() -> None:
    """Keep notices of the libraries away from the one line that a command's refusal is."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def load_grounder(model: str | Path | LoadOptions, **settings: Any) -> RobotGrounder[Any]:
    """The grounder that a model's name means. settings: attributes of `LoadOptions`.

    A wrapper without candidates takes DEFAULT_CANDIDATES. Raises ModelError, for an attribute that
    belongs to another model too.
    """
    options = LoadOptions.of(model, settings)
    problem = misplaced(options)
    if problem:
        raise ModelError(problem)
    if str(options.model) != WRAPPER:
        from clue_ros.engine import Clue

        return Clue.load(options)
    from clue_ros.wrapper.grounder import Wrapper

    return Wrapper.load(
        options.candidates or (DEFAULT_CANDIDATES,),
        options.language_model,
        device=options.device,
        dtype=options.dtype,
        quantization=options.quantization,
        threshold=options.threshold,
        memory=options.memory,
    )


def memory_of(options: LoadOptions) -> WordMemory:
    """The word memory that options mean, without loading the model. Raises ClueError."""
    from clue_ros.model.loading import DEFAULT_MODEL, find_model
    from clue_ros.model.word_memory import open_memory

    of_wrapper = str(options.model) == WRAPPER
    model = DEFAULT_MODEL if of_wrapper else options.model
    return open_memory(options.memory, find_model(model, options.revision))


def has_checkpoint(grounder: object) -> bool:
    """Whether a grounder is a `Clue`: further adapters fit its PaliGemma 2. A wrapper is none."""
    return hasattr(grounder, "checkpoint")


def misplaced(options: LoadOptions) -> str:
    """Why options belong to another model than this one; empty where they do not."""
    if str(options.model) != WRAPPER:
        if options.candidates or options.language_model:
            return (
                f"candidates and a language model belong to model {WRAPPER!r}, not to"
                f" {options.model!r}"
            )
        return ""
    given = [name for name in _OF_CLUE if getattr(options, name) is not None]
    return f"model {WRAPPER!r} has no {given[0]}: leave it out" if given else ""
