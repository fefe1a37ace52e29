"""`clue data stats`: the figures of hand-made dialogues, every kind of source, the plots."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from drawn_scenes import random_scenes
from recorded_episodes import record_episodes

from clue_ros.cli import main
from clue_ros.dialogue.reviews import CONFIRMED, Review, write_review
from clue_ros.errors import ClueError
from clue_ros.lab.evaluation.dialogue_statistics import (
    DialogueFacts,
    Statistics,
    StatsOptions,
    measure,
    question_type,
)
from clue_ros.lab.simulator import shards

FIXTURES = Path(__file__).parents[1] / "data"


def test_figures_of_two_dialogues_counted_by_hand() -> None:
    counts = Statistics()
    first = (("Which one?", "the left one"), ("Is it red?", "yes"), ("OK, here it is.", "thanks"))
    counts.add(DialogueFacts("p", "give me the cup", first, None, (0.04,)))
    counts.add(DialogueFacts("p", "the cup", (), None, (0.5,)))
    found = counts.summary()
    assert (found["dialogues"], found["pictures"], found["tokens"]) == (2, 1, 20)
    assert found["rounds"] == {
        "mean": 1.5,
        "most": 3,
        "within_6": 1.0,
        "histogram": {"0": 1, "3": 1},
    }
    assert found["objects_per_picture"]["mean"] == 2
    assert found["box_area"]["below_5_percent"] == 0.5
    assert found["box_area"]["histogram"][0] == found["box_area"]["histogram"][10] == 1
    assert found["words"]["question"]["mean"] == pytest.approx(9 / 3)
    assert [q["which"] for q in found["questions"]] == [1, 0, 0]
    assert [q["thanks"] for q in found["questions"]] == [0, 0, 1]
    spatial = {(t["role"], t["turn"]): t["spatial"] for t in found["turns"]}
    assert spatial["answer", 1] == 1
    assert spatial["question", 1] == 0
    assert found["turns"][0]["words"]["cup"] == 2


def test_categories_are_counted_once_for_each_object() -> None:
    counts = Statistics()
    counts.add(DialogueFacts("p", "the cup", (), 3, (0.1,), ("cup", "cup", "fork")))
    counts.add(DialogueFacts("p", "the fork", (), 3, (0.1,), ("cup", "cup", "fork")))
    counts.add(DialogueFacts("q", "the dog", (), None, (0.1, 0.2), ("dog",)))
    counts.add(DialogueFacts("q", "that", (), None, (0.1,), ("",)))
    found = counts.summary()
    assert found["objects"] == 3 + 2 + 1, "two targets are two objects"
    assert found["box_area"]["n"] == 5
    assert found["categories"] == {"n": 3, "most_frequent": {"cup": 2, "fork": 1, "dog": 1}}


@pytest.mark.parametrize(
    ("question", "kind"),
    [
        ("What color is it?", "which"),
        ("The mug on the left?", "confirm"),
        ("Okay, which mug?", "which"),
        ("the big or the small one", "choice"),
        ("Got it.", "thanks"),
        ("!", "other"),
    ],
)
def test_kinds_of_questions(question: str, kind: str) -> None:
    assert question_type(question) == kind


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    """A folder with a shard of drawn scenes."""
    path = shards.shard_path(tmp_path / "scenes", "train", 0, 0)
    shards.write_shard(path, random_scenes(4, 0, size=64))
    return tmp_path / "scenes"


def test_all_layouts_and_simulated_scenes_have_plots(
    tmp_path: Path, scenes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "figures"
    sources = [str(FIXTURES / name) for name in ("invig_new", "invig_old", "guesswhat")]
    words = ["data", "stats", *sources, str(scenes), "--json", "--out", str(out)]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == [*sources, str(scenes)]
    assert found[sources[0]]["dialogues"] == found[sources[1]]["dialogues"] == 5
    assert found[sources[0]]["rounds"] == found[sources[1]]["rounds"]
    assert found[sources[2]]["words"]["request"]["n"] == 0  # nobody says a request there
    assert found[sources[2]]["objects_per_picture"]["mean"] == 3
    assert found[str(scenes)]["pictures"] <= 4
    assert {p.name for p in out.iterdir()} >= {
        "rounds.png",
        "sentence_lengths.png",
        "objects_per_picture.png",
        "box_areas.png",
        "question_types.png",
        "word_clouds-4.png",
        "statistics.json",
    }
    assert main(["data", "stats", *sources[:1], "--markdown"]) == 0
    assert "| source | dialogues |" in capsys.readouterr().out


def test_reviewed_episodes_are_counted_and_the_others_are_named(tmp_path: Path) -> None:
    paths = record_episodes(tmp_path, {}, {}, {"ended": False})
    with pytest.raises(ClueError, match="none of 3 dialogues can be learned from: 2 unreviewed"):
        measure(str(tmp_path), StatsOptions())
    write_review(paths[0], Review(CONFIRMED))
    found = measure(str(tmp_path), StatsOptions(language="cn")).summary()
    assert (found["dialogues"], found["rounds"]["mean"], found["box_area"]["n"]) == (1, 1, 1)
    assert found["words"]["answer"]["n"] == 1
    assert found["first_problems"][0].startswith(
        f"{tmp_path}: left out: 1 unreviewed, 1 ended with"
    )


def test_a_source_without_dialogues_says_why(tmp_path: Path) -> None:
    (tmp_path / "train.json").write_text('[{"a": 1}]')
    with pytest.raises(ClueError, match=r"no dialogue to count; the first problem: .*unknown kind"):
        measure(str(tmp_path), StatsOptions())
