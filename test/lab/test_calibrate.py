"""`clue calibrate`: the shares by hand, the table, the file, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from recorded_episodes import record_episodes
from test_eval_photos import REQUESTS, write_photos

from clue_ros.cli import main
from clue_ros.dialogue.reviews import CONFIRMED, CORRECTED, REJECTED, Review, write_review
from clue_ros.errors import ClueError
from clue_ros.lab.data.photographs import load_requests
from clue_ros.lab.evaluation.calibrate import kept_in_splits, outcomes, trust_of
from clue_ros.lab.evaluation.photos import PhotoReply
from clue_ros.model.loading import DEFAULT_MODEL
from clue_ros.model.risk import Calibration, Promise, load_calibration


def reply(score: float | None, hit: bool = True, image: str = "a.png") -> PhotoReply:
    """A clear request that is pointed at with a score; None: it is asked about."""
    did = "asks" if score is None else "points"
    return PhotoReply(image, "the cup", "clear", did, 0.0, score=score, hit=hit)


def test_shares_under_a_promise_by_hand() -> None:
    replies = [reply(0.9), reply(0.8, False), reply(0.7), reply(None)]
    assert [trust_of(one) for one in replies] == [0.9, 0.8, 0.7, -1.0]
    calibration = Calibration((0.75, *[0.9] * 60), (True, *[False] * 60))
    assert calibration.bound(0.05) == 0.751
    assert outcomes(Promise(0.05, calibration), replies) == {
        "wrong": 0.25, "pointed": 0.5, "confirmed": 0.25,
    }  # fmt: skip
    assert outcomes(Promise(0.01, calibration), replies)["confirmed"] == 0.75


def test_half_of_the_photographs_promises_for_the_other_half() -> None:
    few = [reply(0.9, image=f"{n}.png") for n in range(40)]
    refused = kept_in_splits(few, 0.05, 0.1, splits=5)
    assert refused == {"max_risk": 0.05, "kept": 1, "promised": 0, "wrong": 0, "pointed": 0}
    many = [reply(0.9, image=f"{n}.png") for n in range(100)]
    many += [reply(0.2, False, image=f"{n}.png") for n in range(100)]
    kept = kept_in_splits(many, 0.05, 0.1, splits=5)
    assert kept == {"max_risk": 0.05, "kept": 1, "promised": 1, "wrong": 0, "pointed": 0.5}


@pytest.fixture
def episodes(tmp_path: Path) -> Path:
    """Four episodes: confirmed, corrected, rejected, and one that nobody reviewed."""
    paths = record_episodes(tmp_path / "episodes", {}, {}, {}, {})
    write_review(paths[0], Review(CONFIRMED))
    write_review(paths[1], Review(CORRECTED, (0.5, 0.5, 1.0, 1.0)))
    write_review(paths[2], Review(REJECTED))
    return paths[0].parent


def test_reviewed_episodes_are_clear_requests(episodes: Path, tmp_path: Path) -> None:
    problems: list[str] = []
    confirmed, corrected = load_requests(episodes, problems.append)
    assert problems == []
    (request,) = confirmed.requests
    assert (request.text, request.truth) == ("pick up the block", "clear")
    assert request.boxes[0].as_list() == pytest.approx([8, 6, 40, 30])
    assert corrected.requests[0].boxes[0].as_list() == pytest.approx([40, 30, 80, 60])
    (unreviewed,) = record_episodes(tmp_path / "others", {})
    with pytest.raises(ClueError, match="none of 1 episodes was reviewed"):
        load_requests(unreviewed.parent, problems.append)


def test_the_command_writes_what_the_model_then_keeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    requests: list[Any] = [
        {"text": f"the {word} cup", "truth": "absent"}
        for word in ("red", "blue", "green", "white", "black", "left", "right", "big")
    ]
    folder = write_photos(tmp_path / "photos", requests)
    out = tmp_path / "own.json"
    words = ["calibrate", str(folder), "--out", str(out), "--json", "--splits", "2"]
    assert main([*words, "--max-risk", "0.3"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["n"], found["out"]) == (8, str(out))
    assert [row["max_risk"] for row in found["risks"]] == [0.02, 0.05, 0.1, 0.2, 0.3]
    assert [row["supported"] for row in found["risks"]] == [False] * 4 + [True]
    assert len(found["splits"]) == 5
    made = load_calibration(out)
    assert (made.n, made.policy, made.data) == (8, "both", "photos")
    picture = str(folder / "cups.png")
    assert main(["ground", picture, "the cup", "--max-risk", "0.3", "--calibration", str(out),
                 "--json"]) in (0, 3)  # fmt: skip
    capsys.readouterr()
    assert main([*words[:2], "--model", DEFAULT_MODEL]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("8 labelled requests")
    assert "support a max_risk of 0.251 or more" in printed.err


def test_too_few_requests_are_refused_before_the_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_photos(tmp_path / "photos", REQUESTS)
    words = ["calibrate", str(folder), "--model", "/no/such/model", "--max-risk", "0.05"]
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "needs 45 labelled requests, there are 8: label 37 more, or promise 0.251" in line
    assert main([*words, "--on-average"]) == 2
    assert "on average needs 19" in capsys.readouterr().err
    assert main([*words[:2], "--delta", "2"]) == 2
    assert "--delta 2" in capsys.readouterr().err
    assert main([*words[:2], "--out", str(tmp_path / "no" / "own.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert main([*words[:2], "--out", str(tmp_path / "new")]) == 2
    assert "no such folder or model" in capsys.readouterr().err
