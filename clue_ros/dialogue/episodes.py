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
               "replies": [{"probability", "threshold", "attention", "candidates"}]}}]

`bbox` is in fractions of the image, null unless the robot pointed; boxes of `candidates` are in
pixels. `outcome` is OPEN, GROUNDED, or the error's name (CANCELED, ANSWER_TIMEOUT, ...). Stamps are
seconds since the epoch, of the robot's ROS clock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import AmbiguityEstimate, Box, Grounding, Question, Turn

OPEN, GROUNDED = "OPEN", "GROUNDED"
NAME = re.compile(r"episode-(\d{6,})-[0-9a-zA-Z]{1,16}")
"""An episode's files without their suffix; the number grows with time."""
_DIGITS = 4  # of an attention map's values


@dataclass(frozen=True)
class Episode:
    """A dialogue as far as it went.

    image: uint8 RGB (H, W, 3). turns: with their stamps, the request first. replies: the model's,
    in order. outcome: see the module's first lines. frame_id, stamp: of the image.
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
        "replies": [_reply(reply) for reply in episode.replies],
    }
    info = {"file_name": file_name, "height": height, "id": episode.id, "width": width}
    return {"ref_list": [ref], "image_info": info, "clue": kept}


def _fractions(box: Box, width: int, height: int) -> list[float]:
    """As InViG has boxes, cut to the image."""
    sides = box.x_min / width, box.y_min / height, box.x_max / width, box.y_max / height
    return [min(max(float(side), 0.0), 1.0) for side in sides]


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
