"""GuessWhat?! in its published layout: games as dialogues, for training and evaluation."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from clue_ros.lab.data.invig import index_invig, load_invig
from clue_ros.lab.data.invig_layouts import GUESSWHAT_REQUEST, STATUSES
from clue_ros.lab.evaluation.sentence_tasks import moments, plain_answer
from clue_ros.lab.training.ivg_data import load_splits, oracle_queries

GAMES = Path(__file__).parents[1] / "data" / "guesswhat"


def test_a_game_is_a_dialogue_about_its_object() -> None:
    data = load_invig(GAMES, split="validation")
    first, second = data.samples
    assert (first.id, first.image_id, first.category) == ("11", "4", "bowl")
    assert first.request == GUESSWHAT_REQUEST
    assert first.exchanges == (("Is it food?", "No"), ("is it the bowl on the table?", "Yes"))
    assert first.box == pytest.approx((96 / 320, 134 / 240, 150 / 320, 185 / 240))
    assert len(first.objects) == 3
    assert first.objects[1] == pytest.approx((20.5 / 320, 30.25 / 240, 80.5 / 320, 70.25 / 240))
    assert first.load().shape == (240, 320, 3)
    assert second.exchanges[2] == ("Is it full?", "N/A")


def test_games_that_were_lost_are_counted_and_left_out_unless_asked_for() -> None:
    data = index_invig(GAMES, split="validation")
    assert len(data.samples) == 2
    assert data.problems == (f"{GAMES}: games left out by how they ended: 1 failure",)
    everything = load_invig(GAMES, split="validation", games=STATUSES)
    assert [sample.id for sample in everything.samples] == ["11", "12", "13"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"object_id": 9}, "object_id 9 is none of its 3 objects"),
        ({"objects": None}, "objects is no list"),
        ({"qas": [3]}, "qas is no list of objects"),
        ({"image": "a.jpg"}, "image is missing"),
        ({"qas": [{"question": "", "answer": "Yes"}]}, "turn 2 is empty"),
        ({"objects": [{"id": 1, "bbox": [1, 2, 3]}]}, "want four numbers"),
        ({"objects": [{"id": 1, "bbox": [1, 2, 0, 5]}]}, "encloses no area"),
    ],
)
def test_a_bad_game_is_named_and_the_others_are_used(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    with gzip.open(GAMES / "guesswhat.valid.jsonl.gz", "rt") as file:
        rows = [json.loads(line) for line in file]
    rows[0] |= change
    (tmp_path / "images").symlink_to(GAMES / "images")
    (tmp_path / "guesswhat.valid.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    data = index_invig(tmp_path)
    assert len(data.samples) == 1
    assert data.problems[0].startswith("11: ")
    assert reason in data.problems[0]


def test_training_and_the_oracle_read_games(
    capsys: pytest.CaptureFixture[str],
) -> None:
    train, held_out = load_splits(str(GAMES), "en", None)
    assert [len(train), len(held_out)] == [2, 2]
    assert "1 incomplete" in capsys.readouterr().err
    queries = oracle_queries(held_out[0])
    assert [query.suffix for query in queries] == [GUESSWHAT_REQUEST, "No", "Yes"]

    def truths(task: str) -> list[str]:
        return [m.truth for sample in held_out for m in moments(0, sample, task)]

    assert truths("vqa") == ["No", "Yes", "Yes", "Yes", "N/A"]
    assert plain_answer("n / a") == plain_answer("N/A")
