# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Point at the object that a sentence means in a picture, or ask if it could mean several.

Exit status: 0 it pointed, 3 it asked and waits for an answer (give it with --answer), 4 an answer
ended the dialogue ("stop", "don't pick it up"), 2 bad input (so is such a request).
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros import memory
from clue_ros.dialogue.conversation import Conversation, Outcome, converse
from clue_ros.dialogue.grounder import RobotGrounder
from clue_ros.dialogue.types import (
    MAX_QUESTIONS,
    AmbiguityEstimate,
    Grounding,
    NotFound,
    Question,
    Reply,
    Turn,
    clean_text,
)
from clue_ros.errors import BadImageError, ClueError
from clue_ros.grounders import (
    add_load_arguments,
    add_policy_arguments,
    load_grounder,
    load_options,
    quieten_libraries,
)
from clue_ros.images import load_image

WAITING, CANCELED = 3, 4
Mask = npt.NDArray[np.bool_]
_SAVED_AS = (".png", ".jpg", ".jpeg", ".webp", ".bmp")
_TYPED_TOKEN = re.compile(r"<(?:loc\d{4}|seg\d{3}|image|bos|eos|pad|unk|mask)>", re.IGNORECASE)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue ground``."""
    parser.add_argument("image", metavar="IMAGE", type=Path, help="a picture file")
    parser.add_argument("text", metavar="TEXT", help='what to point at: "pick up the left block"')
    parser.add_argument(
        "--answer",
        action="append",
        default=[],
        metavar="TEXT",
        help="the answer to the first question; once more for the second, and so on",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    parser.add_argument("--save", type=Path, metavar="OUT.png", help="draw the outcome")
    parser.add_argument(
        "--masks",
        action="store_true",
        help="the objects' pixels too: in --json as COCO's uncompressed RLE, in --save as a tint",
    )
    add_load_arguments(parser)
    add_policy_arguments(parser)
    parser.add_argument(
        "--max-turns",
        type=int,
        default=MAX_QUESTIONS,
        metavar="N",
        help=f"most questions to ask, then exit status 3 ({MAX_QUESTIONS}); 0: never ask, point",
    )
    parser.add_argument(
        "--force-grounding",
        action="store_true",
        help="point at the best guess when the questions are used up",
    )


def run(args: argparse.Namespace) -> int:
    """Run ``clue ground``; the exit status."""
    conversation = Conversation(
        args.text, args.max_turns, force_grounding=args.force_grounding or args.max_turns == 0
    )
    answers = deque(clean_text(a) for a in args.answer)
    _check(args)
    options = load_options(args)
    image = load_image(args.image)
    for text in (args.text, *args.answer):
        _note_typed_tokens(text)
    quieten_libraries()
    memory.share_the_heap()
    memory.map_blocks()
    clue = load_grounder(options)
    view = clue.look(image)
    reply, outcome = _converse(args, clue, view, conversation, answers)
    for named in conversation.named:
        try:
            clue.teach(view, named.box, named.name, instead=True)
            print(f"clue: note: {named.name!r} is known now", file=sys.stderr)
        except ClueError as error:
            print(f"clue: note: {named.name!r} is not learned: {error}", file=sys.stderr)
    if args.save is not None:
        masks = _masks(clue, view, reply) if args.masks else ()
        _save(args.save, image, reply, conversation, masks)
    if outcome is not None and outcome.code == "CANCELED":
        return CANCELED
    return 0 if isinstance(reply, Grounding) else WAITING


def _check(args: argparse.Namespace) -> None:
    """Refuse bad options before the model is loaded."""
    if args.max_turns < 0:
        raise ClueError(f"--max-turns must be 0 or more, not {args.max_turns}")
    if args.masks and args.save is None and not args.json:
        raise ClueError("--masks needs --json, --save or both: text shows no masks")
    if args.save is not None:
        if args.save.suffix.lower() not in _SAVED_AS:
            raise ClueError(f"--save {args.save}: the name must end in {', '.join(_SAVED_AS)}")
        if not args.save.resolve().parent.is_dir():
            raise ClueError(f"--save {args.save}: there is no folder {args.save.parent}")


def _note_typed_tokens(text: str) -> None:
    match = _TYPED_TOKEN.search(text)
    if match:
        print(f"clue: note: {match[0]} in the text is read as plain words", file=sys.stderr)


def _converse(
    args: argparse.Namespace,
    clue: RobotGrounder[Any],
    view: Any,
    conversation: Conversation,
    answers: deque[str],
) -> tuple[Reply, Outcome | None]:
    """Hold the dialogue and print each reply; return the last one, and how it ended."""
    replies: list[Reply] = []

    def show(reply: Reply) -> None:
        replies.append(reply)
        masks = _masks(clue, view, reply) if args.masks and args.json else None
        text = _as_json(reply, conversation, masks) if args.json else _as_text(reply)
        print(text, flush=True)

    def say(text: str) -> None:
        print(text, file=sys.stderr if args.json else sys.stdout, flush=True)

    def answer(_question: Question) -> str | None:
        return answers.popleft() if answers else None if args.json else _typed_answer()

    outcome = converse(clue, view, conversation, answer, show, say)
    if outcome is not None and outcome.grounding not in (None, replies[-1]):
        show(outcome.grounding)  # the only candidate of a question, confirmed by yes
    elif outcome is not None and outcome.grounding is None:
        if args.json and outcome.code == "CANCELED":
            print(json.dumps({"type": "canceled", "text": outcome.message}), flush=True)
        print(f"clue: note: {outcome.message}", file=sys.stderr)
    if answers:
        print(f"clue: note: {len(answers)} of the answers not needed", file=sys.stderr)
    return replies[-1], outcome


def _typed_answer() -> str | None:
    """Return the person's typed line; None without a terminal, or at the end of the input."""
    while sys.stdin is not None and sys.stdin.isatty():
        try:
            typed = input("> ")
        except EOFError:
            print()
            return None
        try:
            return clean_text(typed)
        except ClueError as error:
            print(f"clue: {error}", file=sys.stderr)
    return None


def _as_text(reply: Reply) -> str:
    likely = f"ambiguity {reply.ambiguity.probability:.2f}"
    if isinstance(reply, Question):
        return f"{reply.text}  ({likely})"
    corners = ", ".join(f"{value:.0f}" for value in reply.box.as_list())
    name = reply.label or "it"
    return f"{name}: box [{corners}]  (score {reply.score:.2f}, {likely})"


def _masks(clue: RobotGrounder[Any], view: Any, reply: Reply) -> tuple[Mask, ...]:
    """The masks of a question's candidates, or the one of a grounding, bool (H, W)."""
    if isinstance(reply, Grounding):
        return (clue.mask(view, reply),)
    return clue.peak_masks(view, reply.ambiguity) if reply.candidates else ()


def run_lengths(mask: Mask) -> dict[str, list[int]]:
    """A mask as COCO's uncompressed run-length encoding, which pycocotools reads.

    size is [height, width]; counts are the lengths of runs of 0, 1, 0, ... down the columns, the
    first one 0 where the first pixel is set.
    """
    flat = mask.reshape(-1, order="F")
    edges = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    counts = np.diff(np.concatenate([[0], edges, [len(flat)]])).tolist()
    return {"size": list(mask.shape), "counts": [0, *counts] if flat[0] else counts}


def _as_json(reply: Reply, conversation: Conversation, masks: Sequence[Mask] | None = None) -> str:
    estimate = reply.ambiguity
    row: dict[str, Any]
    if isinstance(reply, Question):
        row = {
            "type": "question",
            "text": reply.text,
            "candidates": [_rounded(box.as_list()) for box in reply.candidates],
            "suggested_answers": list(reply.suggested_answers),
            "confirm": reply.confirm,
        }
        if isinstance(reply, NotFound):
            row["missing"] = reply.missing
        if masks is not None:
            row["masks"] = [run_lengths(mask) for mask in masks]
    else:
        row = {
            "type": "grounding",
            "box": _rounded(reply.box.as_list()),
            "label": reply.label,
            "score": _number(reply.score),
            "intermediate_boxes": [_rounded(box.as_list()) for box in reply.intermediate_boxes],
            "confirmed": reply.confirmed,
            "max_risk": _number(reply.max_risk),
        }
        if masks:
            row["mask"] = run_lengths(masks[0])
    row |= {
        "probability": _number(estimate.probability),
        "threshold": _number(estimate.threshold),
        "turn": conversation.questions,
        "peaks": [
            {"box": _rounded(peak.box.as_list()), "score": _number(peak.score)}
            for peak in estimate.peaks
        ],
    }
    return json.dumps(row)  # ASCII: it stays JSON whatever the terminal's encoding


def _number(value: float) -> float | None:
    """Return None for NaN, which JSON lacks."""
    return None if math.isnan(value) else round(float(value), 4)


def _rounded(values: list[float]) -> list[float]:
    return [round(float(value), 2) for value in values]


def outcome_picture(
    image: npt.NDArray[np.uint8],
    reply: Reply,
    turns: Sequence[Turn],
    masks: Sequence[Mask] = (),
) -> npt.NDArray[np.uint8]:
    """The picture of an outcome: attention, peaks or the box, masks, and what was said."""
    from clue_ros.drawing import draw

    names = {"user": "You", "robot": "Robot"}
    lines = [f"{names[turn.speaker]}: {turn.text}" for turn in turns]
    estimate: AmbiguityEstimate = reply.ambiguity
    if isinstance(reply, Grounding):
        return draw(
            image,
            attention=estimate.attention,
            masks=masks,
            via=reply.intermediate_boxes,
            box=reply.box,
            caption="\n".join(lines),
        )
    return draw(
        image,
        attention=estimate.attention,
        masks=masks,
        peaks=estimate.peaks,
        caption="\n".join(lines),
    )


def _save(
    path: Path,
    image: npt.NDArray[np.uint8],
    reply: Reply,
    conversation: Conversation,
    masks: Sequence[Mask],
) -> None:
    from PIL import Image

    turns = [turn for turn, _ in conversation.spoken]
    try:
        Image.fromarray(outcome_picture(image, reply, turns, masks)).save(path)
    except OSError as error:
        raise BadImageError(f"cannot write {path}: {error.strerror or error}") from error
