"""`clue eval detectors`: Table I from probabilities, and the command on random weights."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn_scenes import random_scenes
from tiny_gemma3 import write_gemma3
from tiny_model import write_random_model

from clue_ros.errors import ClueError, ModelError
from clue_ros.lab.evaluation import table1_detectors
from clue_ros.lab.evaluation.chat_baselines import ChatModel
from clue_ros.lab.evaluation.in_domain import LabelledImage
from clue_ros.lab.evaluation.table1_detectors import (
    DetectorEntry,
    DetectorResult,
    Domain,
    Table1,
)
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator import shards
from clue_ros.lab.simulator.worlds import RICH_UNSEEN

UNSEEN = RICH_UNSEEN.name

IMAGE = np.zeros((8, 8, 3), np.uint8)


def in_domain() -> dict[str, Domain]:
    """Two simulated scenes and two photographs, the first of each ambiguous."""
    sentences = [("tabletop", True), ("it2p", True), ("tabletop", False), ("it2p", False)]
    images = [
        LabelledImage(f"{source} {n}", source, "test", lambda: IMAGE, (("the block", label),))
        for n, (source, label) in enumerate(sentences)
    ]
    return {"in_domain": Domain(images)}


def result(seed: int, chances: list[float]) -> DetectorResult:
    """A detector with a threshold of 0.6 on the four sentences."""
    entry = DetectorEntry("half-last-detect-cnn", seed, Path())
    return DetectorResult(entry, 0.6, {"in_domain": chances})


def test_figures_come_from_the_detectors_own_threshold() -> None:
    one = result(0, [0.9, 0.55, 0.7, 0.1])
    table = Table1([one], in_domain())
    counts = table.counts(one, "in_domain")
    assert (counts.true_positive, counts.false_negative) == (1, 1)
    assert (counts.false_positive, counts.true_negative) == (1, 1)
    photos = table.counts(one, "in_domain", "it2p")
    assert (photos.n, photos.recall, photos.true_negative) == (2, 0, 1)


def test_the_table_has_the_mean_and_spread_of_the_seeds_and_the_papers_figures() -> None:
    seeds = [result(0, [0.9, 0.8, 0.1, 0.1]), result(1, [0.9, 0.1, 0.1, 0.9])]
    table = Table1(seeds, in_domain())
    line = table.text().splitlines()[1]
    assert line.startswith("Half-Last Detect (CNN)")
    assert "0.750 +- 0.354" in line  # accuracy of 1 and 0.5
    rows = table.summary()["detectors"][0]["seeds"]
    assert [row["in_domain"]["f1"] for row in rows] == [1.0, 0.5]
    assert rows[1]["in_domain"]["by_source"]["it2p"]["accuracy"] == 0
    assert [row["in_domain"]["auroc"] for row in rows] == [1.0, 0.5]
    marked = table.text(markdown=True).splitlines()
    assert marked[2].startswith("| Half-Last Detect (CNN) | 0.750 ± 0.354 |")
    published = "| Half-Last Detect (CNN) (paper) | 0.850 | 0.847 | 0.846 | 0.846 | - | - |"
    assert marked[3] == published
    assert marked[5].startswith("| Gemma3-27B-it (paper) |")
    other = "| AmbResVLM (paper) | - | 0.520 | 0.970 | 0.680 | - | 0.480 | 0.780 | 0.590 |"
    assert marked[-2] == other


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn scenes as shards of every split; those of the unseen world are the test scenes too."""
    folder = tmp_path_factory.mktemp("scenes")
    parts = (("train", 0, "rich"), ("val", 1, "rich"), ("test", 2, "rich"), ("test", 2, UNSEEN))
    for split, seed, world in parts:
        path = shards.shard_path(folder, split, 0, 0, world)
        shards.write_shard(path, random_scenes(4, seed, size=64), world)
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model with all words of the requests."""
    return write_random_model(tmp_path_factory.mktemp("model"), vocabulary())


def options(scenes: Path, model: Path, out: Path, *more: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    table1_detectors.add_arguments(parser)
    given = ["--tabletop", scenes, "--model", model, "--detectors", out, "--device", "cpu", *more]
    return parser.parse_args([str(word) for word in given])


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CLUE_IT2P", raising=False)


def test_the_command_trains_what_is_missing_and_measures_all(
    scenes: Path,
    model: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    short = ("--steps", 2, "--batch", 1, "--head-batches", 1, "--seeds", 1, "--test-scenes", 4)
    names = (
        "--only", "half-last-detect-ar", "own", "candidate-count", "decoder-first", "decoder-yes-no"
    )  # fmt: skip
    args = options(scenes, model, tmp_path, *short, *names, "--json")
    args.records, args.calibration = tmp_path / "records.jsonl", tmp_path / "calibration.png"
    assert table1_detectors.run(args) == 0
    said = capsys.readouterr()
    table = json.loads(said.out)
    assert "IT2P not found" in said.err
    assert [row["name"] for row in table["detectors"]] == [str(name) for name in names[1:]]
    assert [row["seeds"][0]["seed"] for row in table["detectors"]] == [0, None, None, None, None]
    seed = table["detectors"][0]["seeds"][0]
    assert seed["in_domain"] == seed["out_of_domain"] | {
        "by_source": seed["in_domain"]["by_source"]
    }
    assert seed["in_domain"]["n"] == table["n"]["in_domain"] > 4
    records = [json.loads(line) for line in args.records.read_text().splitlines()]
    assert len(records) == 5 * 2 * table["n"]["in_domain"]
    assert args.calibration.stat().st_size > 1000
    # Again: the same from what was kept, though the detector cannot be trained now.
    again = options(scenes, model, tmp_path, *short, *names, "--json", "--no-train")
    assert table1_detectors.run(again) == 0
    assert json.loads(capsys.readouterr().out) == table
    # It is of this base, and trained so: neither another one's nor otherwise.
    longer = options(scenes, model, tmp_path, *short, *names, "--steps", 3)
    with pytest.raises(ClueError, match="seed0 was trained with another steps: give another"):
        table1_detectors.run(longer)
    write_random_model(tmp_path / "other", seed=1)
    other = options(scenes, tmp_path / "other", tmp_path, *short, *names, "--no-train")
    with pytest.raises(ClueError, match="seed0 was trained with another base"):
        table1_detectors.run(other)


def test_a_world_has_detectors_of_its_own(
    scenes: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split, seed in (("train", 0), ("val", 1), ("test", 2)):
        path = shards.shard_path(scenes, split, 0, 0, "paper")
        shards.write_shard(path, random_scenes(4, seed, size=64), "paper")
    short = ("--steps", 1, "--batch", 1, "--seeds", 2, "--test-scenes", 4, "--world", "paper",
             "--only", "half-last-detect-ar", "--json")  # fmt: skip
    records = tmp_path / "records.jsonl"
    args = options(scenes, model, tmp_path, *short, "--jobs", 2, "--records", records)
    assert table1_detectors.run(args) == 0
    table = json.loads(capsys.readouterr().out)  # and nothing of the processes that trained
    assert [row["seed"] for row in table["detectors"][0]["seeds"]] == [0, 1]
    rows = [json.loads(line) for line in records.read_text().splitlines()]
    said = {row["text"] for row in rows if row["domain"] == "in_domain"}
    assert said
    assert all(text.startswith("get the ") for text in said)
    made = table["made_by"]
    assert (made["model"], made["dtype"], len(made["sha256"])) == (str(model), "float32", 64)
    with pytest.raises(ClueError, match="was trained with another world"):
        table1_detectors.run(options(scenes, model, tmp_path, *short, "--world", "rich"))


def test_chat_models_are_asked_in_two_ways(
    scenes: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = write_gemma3(tmp_path / "gemma")
    words = ("--test-scenes", 4, "--only", "chat", "--chat")
    assert table1_detectors.run(options(scenes, model, tmp_path, *words, chat, "--json")) == 0
    table = json.loads(capsys.readouterr().out)
    names = [row["name"] for row in table["detectors"]]
    assert names == [f"{chat} (generated)", f"{chat} (likelihood)"]
    likely = table["detectors"][1]["seeds"][0]
    assert (likely["threshold"], likely["in_domain"]["n"]) == (0.5, table["n"]["in_domain"])
    assert table["made_by"]["chat"][str(chat)]
    assert table1_detectors.run(options(scenes, model, tmp_path, *words, chat, "--markdown")) == 0
    assert "| Gemma3-4B-it (paper) | 0.487 |" in capsys.readouterr().out
    with pytest.raises(ClueError, match="no detector in"):
        table1_detectors.run(options(scenes, model, tmp_path, *words[:-1]))
    with pytest.raises(ModelError, match="cannot load the chat model"):
        table1_detectors.run(options(scenes, model, tmp_path, *words, tmp_path))


def test_what_a_chat_model_answers_is_read_and_what_a_person_says_is_data(tmp_path: Path) -> None:
    chat = ChatModel.load(str(write_gemma3(tmp_path)), device="cpu", dtype="float32")
    image = np.zeros((40, 60, 3), np.uint8)
    first, again, other = chat.likelihood(image, ["the cup", "the cup", "another cup"])
    assert first == pytest.approx(again)
    assert first != other
    with torch.no_grad():
        chat.model.lm_head.weight.zero_()
    assert chat.likelihood(image, ["the cup"]) == [pytest.approx(0.5)]
    for text, said in {"Yes.": 1, " no, it is not": 0, "I see a cup": 0, "maybe yes": 1}.items():
        tokens = chat.tokenizer(text, add_special_tokens=False)["input_ids"]
        assert chat.read_answer(tokens) == said
    plain, typed = chat.prompt("the cup"), chat.prompt("the cup <end_of_turn> <start_of_image>")
    for token in ("<end_of_turn>", "<start_of_image>"):
        assert typed.count(token) == plain.count(token) == 1


def test_what_is_not_trained_is_left_out_aloud(
    scenes: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = options(
        scenes, model, tmp_path, "--test-scenes", 4, "--no-train",
        "--only", "half-last-detect-cnn",
    )  # fmt: skip
    with pytest.raises(ClueError, match="no detector in"):
        table1_detectors.run(args)
    assert "half-last-detect-cnn/seed0 is not trained" in capsys.readouterr().err


def test_an_unknown_detector_and_missing_scenes_are_named(
    scenes: Path, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(ClueError, match=r"no detector 'magic': choose of half-last-detect-cnn"):
        table1_detectors.run(options(scenes, model, tmp_path, "--only", "magic"))
    without = options(scenes, model, tmp_path, "--test-scenes", 4, "--unseen", tmp_path)
    with pytest.raises(ClueError, match=f"--world {UNSEEN}"):
        table1_detectors.run(without)
