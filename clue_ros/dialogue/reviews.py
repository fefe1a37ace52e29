# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Reviews: what a person says of a recorded episode. Training learns from reviewed episodes.

The review of `episode-000012-3f2a9c01.json` is the file `episode-000012-3f2a9c01.review.json`:

    {"version": 1,
     "verdict": "confirmed",         the robot's box is right; corrected: `box` is; rejected
     "box": [x_min, y_min, x_max, y_max],    of a corrected one, in fractions of the image; or null
     "label": "red block",           what the object is called, where the person changed it; or null
     "stamp": 1790000000.0}          seconds since the epoch

It does not say who reviewed. The robot's own files stay as they are; without its review, an episode
is as it was before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clue_ros.dialogue.episodes import (
    GROUNDED,
    NAME,
    EpisodeError,
    fractions_of,
    read_file,
)
from clue_ros.dialogue.types import Fractions, clean_text
from clue_ros.errors import ClueError
from clue_ros.files import replace_file

CONFIRMED, CORRECTED, REJECTED = "confirmed", "corrected", "rejected"
VERDICTS = (CONFIRMED, CORRECTED, REJECTED)
UNREVIEWED = "unreviewed"
VERSION = 1
SUFFIX = ".review.json"
FILE_NAME = re.compile(rf"(?P<episode>{NAME.pattern})\.review\.json")
MAX_BYTES = 20_000


class ReviewError(EpisodeError):
    """A review cannot be read or cannot be given; the message says why."""

    code = "BAD_REVIEW"


@dataclass(frozen=True)
class Review:
    """A person's verdict on an episode.

    verdict: one of VERDICTS. box: of a corrected one, (x_min, y_min, x_max, y_max) in fractions of
    the image; else None. label: None where the robot's is kept. stamp: seconds since the epoch.

    Raises ReviewError (on construction) for values that do not go together.
    """

    verdict: str
    box: Fractions | None = None
    label: str | None = None
    stamp: float = 0.0

    def __post_init__(self) -> None:
        """Check the values."""
        if self.verdict not in VERDICTS:
            raise ReviewError(f"verdict {self.verdict!r:.40}: want {', '.join(VERDICTS)}")
        if (self.verdict == CORRECTED) != (self.box is not None):
            raise ReviewError("a corrected episode needs a box, and no other verdict has one")
        if self.verdict == REJECTED and self.label is not None:
            raise ReviewError("a rejected episode has no label")

    @classmethod
    def of(cls, values: Any, stamp: float | None = None) -> Review:
        """A review from JSON: `verdict`, and optionally `box`, `label`, `stamp`.

        stamp: replaces that of the values. Raises ReviewError.
        """
        if not isinstance(values, Mapping):
            raise ReviewError("a review is a JSON object with a verdict")
        verdict, sides, label = (values.get(name) for name in ("verdict", "box", "label"))
        box = fractions_of(sides)
        if sides is not None and box is None:
            raise ReviewError(
                f"box {sides!r:.80}: want x_min, y_min, x_max, y_max in fractions of the image,"
                " from 0 to 1, with an area"
            )
        if label is not None and not isinstance(label, str):
            raise ReviewError("the label must be text, or null")
        given: Any = values.get("stamp") if stamp is None else stamp
        if type(given) not in (int, float) or not 0 <= given < 1e12:
            raise ReviewError("the stamp must be seconds since the epoch")
        try:
            label = clean_text(label) if label else None
        except ClueError:
            raise ReviewError("the label needs a letter or digit, or is too long") from None
        return cls(str(verdict), box, label, float(given))


def review_path(episode: Path) -> Path:
    """The file of an episode's review, from that of the episode."""
    return episode.with_name(f"{episode.stem}{SUFFIX}")


def read_review(episode: Path) -> Review | None:
    """The review of an episode (its JSON file); None if there is none.

    Raises ReviewError where a review is there that cannot be read: it counts as none.
    """
    path = review_path(episode)
    if not path.exists():
        return None
    try:
        values = json.loads(read_file(path, MAX_BYTES))
        version = values.get("version") if isinstance(values, dict) else None
        if version != VERSION:
            raise ReviewError(f"version {version!r:.20}, want {VERSION}")
        return Review.of(values)
    except RecursionError:
        raise ReviewError(f"{path.name}: nested too deeply: treated as not reviewed") from None
    except (ValueError, ClueError) as error:
        raise ReviewError(f"{path.name}: {error}: treated as not reviewed") from None


def write_review(episode: Path, review: Review) -> None:
    """Write an episode's review, readable by its owner only; replaces an older one.

    Raises OSError.
    """
    content = json.dumps({"version": VERSION, **asdict(review)}, ensure_ascii=False)
    replace_file(review_path(episode), f"{content}\n".encode())


def remove_review(episode: Path) -> None:
    """Make an episode unreviewed again. Raises OSError."""
    review_path(episode).unlink(missing_ok=True)


def check_review(review: Review, row: Mapping[str, Any]) -> None:
    """Refuse a verdict that an episode's row cannot have. Raises ReviewError."""
    if review.verdict == CONFIRMED and robot_box(row) is None:
        raise ReviewError("the robot gave no box to confirm: draw one, or reject the episode")


def robot_box(row: Mapping[str, Any]) -> Fractions | None:
    """The box that a dialogue ended in; None if it ended otherwise."""
    ended = row["clue"].get("outcome") == GROUNDED
    return fractions_of(row["ref_list"][0].get("bbox")) if ended else None


def reviewed_row(row: Mapping[str, Any], review: Review) -> dict[str, Any] | None:
    """An episode's row as it was reviewed, without `clue`; None if there is nothing to learn.

    A rejected episode has none, nor has a confirmed one that did not end in a box.
    """
    box = robot_box(row) if review.verdict == CONFIRMED else review.box
    if review.verdict == REJECTED or box is None:
        return None
    ref = dict(row["ref_list"][0])
    label = ref.get("category") if review.label is None else review.label
    ref |= {"bbox": list(box), "category": label}
    return {"ref_list": [ref], "image_info": dict(row["image_info"])}
