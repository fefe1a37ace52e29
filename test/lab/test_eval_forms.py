"""Whether the form of a request matters to a robot's reply."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny_model import WORDS, write_random_model

from clue_ros.cli import main
from clue_ros.dialogue.types import AmbiguityEstimate, Box, Dialogue, Grounding, Question
from clue_ros.lab.evaluation.forms import FORMS, Pictured, compare_forms, share_of_same

ESTIMATE = AmbiguityEstimate(0.9, 0.5, np.zeros((4, 4), np.float32), (), 0.0)


class Fussy:
    """Asks when it is not asked politely, and points elsewhere at what it hears alone."""

    policy = "detector"

    def look(self, image: Any) -> Any:
        """Return the image."""
        return image

    def ambiguity(self, _view: Any, _expression: Any) -> AmbiguityEstimate:
        """Return the same estimate."""
        return ESTIMATE

    def reply(self, _view: Any, dialogue: Dialogue, *, force_grounding: bool = False) -> Any:
        """Reply by the form."""
        if dialogue.request.startswith("pick"):
            return Question("which one?", (), (), ESTIMATE)
        x = 0.0 if dialogue.request.startswith("the") else 50.0
        return Grounding(Box(x, 0, x + 10, 10), "mug", 0.9, ESTIMATE)


def test_pairs_of_forms_with_the_same_reply_are_counted() -> None:
    picture = Pictured("one", None, ("hand me the mug", "the mug", "take that"))
    (record,) = compare_forms(Fussy(), [picture])
    assert record["thing"] == "the mug", "asked for once, whatever form it had"
    assert record["replies"] == ["points", "asks", "points", "points"]
    assert record["same"] == 1, "the two polite ones"
    assert len(FORMS) == 4
    assert share_of_same([record]) == {
        "same": pytest.approx(1 / 6, abs=1e-4), "all_same": 0.0, "pairs": 6, "n": 1
    }  # fmt: skip


def test_the_command_measures_photographs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Image.new("RGB", (64, 48), (90, 90, 90)).save(tmp_path / "grey.png")
    requests = [{"text": "could you get me the cup", "truth": "absent"}]
    photos = [{"file": "grey.png", "requests": requests}]
    index = {"format": "clue_photos", "version": 1, "photos": photos}
    (tmp_path / "photos.json").write_text(json.dumps(index), encoding="utf-8")
    model = write_random_model(tmp_path / "m", words=[*WORDS, "cup"])
    words = ["eval", "forms", "--data", str(tmp_path), "--model", str(model), "--device", "cpu"]
    assert main([*words, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["same"] == 1.0, "a model reads all of them in one form"
    assert (figures["pairs"], figures["n"]) == (6, 1)
