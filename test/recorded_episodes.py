"""Episodes for tests of what reads them, written by the robot's own recorder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clue_ros.dialogue.episodes import GROUNDED, Episode, episode_files
from clue_ros.dialogue.types import AmbiguityEstimate, Box, Grounding, Question, Turn
from clue_ros.nodes.recorder import Recorder

SIZE = (80, 60)  # width and height of the pictures
MAP = np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)
CANDIDATES = (Box(1, 2, 9, 9), Box(20, 2, 30, 9))
ANSWERED = ("pick up the block", "the red one or the green one?", "the red one")
FOUND = Box(8, 6, 40, 30)


def record_episodes(folder: Path, *episodes: dict[str, Any]) -> list[Path]:
    """Record dialogues; returns their JSON files, the oldest first.

    Each may give `texts` (the request first), `candidates` of its questions, `ended` (False: the
    person never answered), and `label` of the object.
    """
    recorder = Recorder(folder, 10**9, pytest.fail)
    for number, given in enumerate(episodes):
        texts = given.get("texts", ANSWERED)
        ended = given.get("ended", True)
        estimate = AmbiguityEstimate(0.9, 0.5, MAP, (), 0.1)
        question = Question("", given.get("candidates", CANDIDATES), (), estimate)
        sure = AmbiguityEstimate(0.2, 0.5, MAP.T, (), 0.1)
        found = Grounding(FOUND, given.get("label", "the red block"), 0.8, sure)
        image = np.random.default_rng(number).integers(0, 256, (*SIZE[::-1], 3), dtype=np.uint8)
        recorder.save(
            Episode(
                f"e{number}",
                image,
                tuple(
                    (Turn("robot" if n % 2 else "user", text), 10.0 + n)
                    for n, text in enumerate(texts)
                ),
                (*([question] * (len(texts) // 2)), *([found] if ended else [])),
                outcome=GROUNDED if ended else "ANSWER_TIMEOUT",
                grounding=found if ended else None,
                frame_id="camera",
                stamp=1790000000.0 + number,
            )
        )
    assert recorder.flush(30)
    recorder.close()
    return episode_files(folder)
