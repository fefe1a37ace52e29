# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Episodes: the file format of a dialogue that a robot held, an InViG sample with its history.

An episode is two files, `episode-000012-3f2a9c01.json` and the picture of the same name. The JSON
file is a list of one row in InViG's newer layout (docs/invig.md), so everything that reads InViG
reads a folder of episodes; `clue`, beside `ref_list` and `image_info`, is ours:

    [{"ref_list": [{"bbox", "category", "dialog", "dialog_cn", "id"}],
      "image_info": {"file_name", "height", "id", "width"},
      "clue": {"outcome", "message", "score", "frame_id", "stamp",
               "turns": [{"speaker", "text", "stamp"}],
               "heard": [{"text", "kind", "confidence", "about", "offered", "stamp"}],
               "replies": [{"probability", "threshold", "attention", "candidates"}]}}]

`bbox` is in fractions of the image, null unless the robot pointed; boxes of `candidates` are in
pixels. `outcome` is OPEN, GROUNDED, or the error's name (CANCELED, ANSWER_TIMEOUT, ...). Stamps are
seconds since the epoch, of the robot's ROS clock. `heard` is all that the person said, as it was
read, side talk too: with a corrected `kind` a line of it teaches the reader (`clue train intent
--also`). What a person says of an episode is a third file
(`clue_ros.dialogue.reviews`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import AmbiguityEstimate, Box, Fractions, Grounding, Question, Turn
from clue_ros.errors import ClueError

OPEN, GROUNDED = "OPEN", "GROUNDED"
NAME = re.compile(r"episode-(\d{6,})-[0-9a-zA-Z]{1,16}")
"""An episode's files without their suffix; the number grows with time."""
MAX_BYTES = 16_000_000
"""Most bytes of an episode's JSON file. A large one has some 100 kB."""
MAX_PICTURE_BYTES = 200_000_000
_DIGITS = 4  # of an attention map's values


class EpisodeError(ClueError):
    """A file is no episode, or cannot be read; the message says why."""

    code = "BAD_EPISODE"


@dataclass(frozen=True)
class Episode:
    """A dialogue as far as it went.

    image: uint8 RGB (H, W, 3). turns: with their stamps, the request first. replies: the model's,
    in order. outcome, heard: see the module's first lines. frame_id, stamp: of the image.
    """

    id: str
    image: npt.NDArray[np.uint8]
    turns: tuple[tuple[Turn, float], ...]
    replies: tuple[Question | Grounding, ...] = ()
    outcome: str = OPEN
    message: str = ""
    grounding: Grounding | None = None
    frame_id: str = ""
    stamp: float = 0.0
    heard: tuple[dict[str, Any], ...] = ()


def episode_row(episode: Episode, file_name: str) -> dict[str, Any]:
    """The row of an episode whose picture is `file_name`."""
    height, width = episode.image.shape[:2]
    found = episode.grounding
    ref = {
        "bbox": None if found is None else _fractions(found.box, width, height),
        "category": "" if found is None else found.label,
        "dialog": _pairs([turn for turn, _ in episode.turns]),
        "dialog_cn": [],
        "id": episode.id,
    }
    score = None if found is None or not np.isfinite(found.score) else float(found.score)
    kept = {
        "outcome": episode.outcome,
        "message": episode.message,
        "score": score,
        "frame_id": episode.frame_id,
        "stamp": episode.stamp,
        "turns": [
            {"speaker": turn.speaker, "text": turn.text, "stamp": stamp}
            for turn, stamp in episode.turns
        ],
        "heard": list(episode.heard),
        "replies": [_reply(reply) for reply in episode.replies],
    }
    info = {"file_name": file_name, "height": height, "id": episode.id, "width": width}
    return {"ref_list": [ref], "image_info": info, "clue": kept}


def _fractions(box: Box, width: int, height: int) -> list[float]:
    """As InViG has boxes, cut to the image."""
    return [float(side) for side in box.in_fractions(width, height).clipped().as_tuple()]


def _pairs(turns: Sequence[Turn]) -> list[list[str]]:
    """[["", request], [question, answer], ...]; a question without an answer has "" there."""
    texts = ["", *(turn.text for turn in turns)]
    return [[asked, (texts[i + 1 :] or [""])[0]] for i, asked in list(enumerate(texts))[::2]]


def _reply(reply: Question | Grounding) -> dict[str, Any]:
    estimate: AmbiguityEstimate = reply.ambiguity
    boxes = reply.candidates if isinstance(reply, Question) else ()
    return {
        "probability": float(estimate.probability),
        "threshold": float(estimate.threshold),
        "attention": np.asarray(estimate.attention, np.float64).round(_DIGITS).tolist(),
        "candidates": [[float(side) for side in box.as_list()] for box in boxes],
    }


def episode_files(folder: Path) -> list[Path]:
    """The JSON files of a folder's episodes, oldest first."""
    numbered = ((NAME.fullmatch(path.stem), path) for path in folder.glob("episode-*.json"))
    found = [(int(match[1]), path.name, path) for match, path in numbered if match]
    return [path for _, _, path in sorted(found)]


# -------------------------------------------------------------------------------------------------
# Reading, and writing as a whole.


def read_row(path: Path, *, replies: bool = True) -> dict[str, Any]:
    """The row of an episode's JSON file, in the form that the module's first lines show.

    Its parts are mappings, with one entry in `ref_list`, and the image's size is two whole numbers
    above 0. Other values may be of any type. replies: False leaves them out of a file that
    the recorder wrote, which is many times faster, as they hold the attention maps.

    Raises EpisodeError.
    """
    content = read_file(path, MAX_BYTES)
    if not replies:
        with contextlib.suppress(EpisodeError):
            # A quote within a text is written \", so this is the key and never a person's words.
            return _row_of(path, content.partition(b'"replies": [')[0] + b'"replies": []}}]')
    return _row_of(path, content)


def _row_of(path: Path, content: bytes) -> dict[str, Any]:
    try:
        row = _single(json.loads(content, parse_constant=_refuse))
        ref, info, kept = _single(row["ref_list"]), row["image_info"], row["clue"]
    except RecursionError:
        raise EpisodeError(f"{path.name}: nested too deeply") from None
    except (ValueError, TypeError, KeyError) as error:
        raise EpisodeError(f"{path.name} is not an episode: {error}") from None
    if not all(isinstance(part, dict) for part in (row, ref, info, kept)):
        raise EpisodeError(f"{path.name} is not an episode: a part of it is not a JSON object")
    for side in (info.get("width"), info.get("height")):
        if type(side) is not int or not 0 < side < 1 << 24:
            raise EpisodeError(f"{path.name} has no size of its picture")
    return dict(row)


def fractions_of(value: Any) -> Fractions | None:
    """A JSON value as a box in fractions of the image; None unless it is one with an area."""
    if not isinstance(value, (list, tuple)) or len(value) != 4:
        return None
    if not all(type(side) in (int, float) and 0 <= side <= 1 for side in value):
        return None
    x_min, y_min, x_max, y_max = map(float, value)
    return (x_min, y_min, x_max, y_max) if x_min < x_max and y_min < y_max else None


def read_file(path: Path, most: int) -> bytes:
    """The content of a regular file of at most `most` bytes. Links are not followed.

    Raises EpisodeError.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise EpisodeError(f"{path.name} is not a regular file")
            content = file.read(most + 1)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise EpisodeError(f"{path.name} cannot be read: {reason}") from None
    if len(content) > most:
        raise EpisodeError(f"{path.name} has over {most / 1e6:g} MB")
    return content


def _single(value: Any) -> Any:
    if not isinstance(value, list) or len(value) != 1:
        raise ValueError("want a list with one entry")
    return value[0]


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not a number")
