"""`clue eval dialogue`: ranks and curves worked out by hand, and the oracle from training on."""

from __future__ import annotations

import json
import weakref
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from drawn_scenes import random_scenes
from tiny_model import write_random_model
from transformers.models.clip.configuration_clip import CLIPVisionConfig
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.clip.modeling_clip import CLIPVisionModelWithProjection

import clue_ros.model.oracle
from clue_ros.cli import main
from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.types import Box
from clue_ros.engine import Clue
from clue_ros.lab.data.invig import InvigSample, write_invig
from clue_ros.lab.evaluation import sentence_tasks
from clue_ros.lab.evaluation.belief import (
    Belief,
    current_texts,
    evidence_of,
    fit_belief,
    targets_among,
)
from clue_ros.lab.evaluation.clip_features import ClipFeatures
from clue_ros.lab.evaluation.dialogue_curves import task_table
from clue_ros.lab.evaluation.dialogue_tasks import choose_box, grounding_summary
from clue_ros.lab.evaluation.oracle_user import MOST_OTHERS, RATIONALITY, OracleUser
from clue_ros.lab.evaluation.sentence_tasks import (
    MomentsOnDisk,
    measure_sentences,
    moments,
    rank_of_first,
    retrieval_candidates,
    sentence_summary,
)
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator import shards
from clue_ros.lab.training.ivg_data import DialoguePictures
from clue_ros.model.location_tokens import Codes, encode_box, to_text

pytestmark = pytest.mark.usefixtures("no_java")


def sample(name: str, *exchanges: tuple[str, str]) -> InvigSample:
    def load() -> Any:
        return np.full((40, 60, 3), 90, np.uint8)

    return InvigSample(name, name, load, "take the cup", exchanges, (0.1, 0.2, 0.5, 0.9))


def test_the_truth_is_ranked_by_its_score_and_ties_share_their_rank() -> None:
    assert rank_of_first([0.9, 0.1, 0.5]) == 1
    assert rank_of_first([0.1, 0.9, 0.5]) == 3
    assert rank_of_first([0.5, 0.5, 0.5]) == 2, "a constant score is no knowledge"


def test_recall_at_one_and_five_and_the_mean_rank() -> None:
    record = {"said": "the red one", "truth": "the red one", "rank": 1.0, "among": 2}
    scores = sentence_summary([record, record | {"said": "no way", "truth": "no way"}])
    assert (scores["r@1"], scores["r@5"], scores["rank"]) == (100, 100, 1)
    ranks = ((1.0, 30), (3.0, 30), (7.0, 9))
    scores = sentence_summary([record | {"rank": r, "among": n} for r, n in ranks])
    assert scores["r@1"] == pytest.approx(100 / 3, abs=1e-3)
    assert scores["r@5"] == pytest.approx(200 / 3, abs=1e-3)
    assert scores["rank"] == pytest.approx(11 / 3, abs=1e-3)
    assert scores["among"] == 23


def test_candidates_come_from_the_most_similar_other_images() -> None:
    told = MomentsOnDisk()
    near, far = np.array([1, 0], np.float32), np.array([0, 1], np.float32)
    for name, said, features in (("a", "yes", near), ("b", "no", near), ("c", "left", far)):
        told.add_image(name, features)
        for moment in moments(0, sample(name, ("q", said)), "vqa"):
            told.add(moment)
    assert list(retrieval_candidates(told, 1, seed=0))[:2] == [["no"], ["yes"]]
    assert next(retrieval_candidates(told, 30, seed=0)) == ["no", "left"]
    assert next(retrieval_candidates(told, 0, seed=0)) == []


def test_moments_hold_what_was_said_before() -> None:
    two = sample("a", ("which?", "red"), ("this?", "yes"))
    answers, questions = moments(4, two, "vqa"), moments(4, two, "vqg")
    assert [m.truth for m in answers] == ["red", "yes"]
    assert [m.truth for m in questions] == ["which?", "this?"]
    assert (questions[0].position, questions[0].context) == (4, "take the cup")
    assert answers[0].context == "take the cup assistant: which?"


def test_a_dialogue_counts_only_where_it_has_turns_to_leave_out() -> None:
    rows = [("a", 0, 0.55), ("a", 1, 0.2), ("b", 0, 0.95)]
    records = [{"id": i, "dropped": d, "iou": v, "iou_chosen": 1.0} for i, d, v in rows]
    found = grounding_summary(records)
    assert found["turn-0"]["box"]["0.5"] == 1
    assert found["turn-0"]["box"]["0.6"] == 0.5
    assert found["turn-0"]["choice"]["1.0"] == 1
    assert found["turn-1"]["box"]["0.2"] == 1
    assert found["turn-1"]["box"]["0.3"] == 0
    assert (found["turn-1"]["n"], found["turn-1"]["same_whole"]) == (1, 1)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model, drawn scenes, and dialogues about two photographs."""
    root = tmp_path_factory.mktemp("tasks")
    write_random_model(root / "model", vocabulary())
    for split, count, seed in (("train", 6, 0), ("val", 2, 4)):
        path = shards.shard_path(root / "scenes", split, 0, 0)
        shards.write_shard(path, random_scenes(count, seed, size=64))
    talk = (("the red one or the blue one?", "the red one"), ("is it the left one?", "yes"))
    samples = [sample("a", *talk), sample("b", talk[0]), sample("c")]
    write_invig(samples, root / "invig", split="test")
    return root


@pytest.fixture(scope="module")
def oracle(root: Path) -> Path:
    """An oracle of two steps, which goes on from adapter B."""
    out = root / "oracle"
    words = ["train", "oracle", "--model", root / "model", "--out", out, "--run", root / "run"]
    words += ["--data", "tabletop", "--tabletop", root / "scenes", "--steps", 2, "--batch", 2]
    words += ["--init", root / "model" / "ivg", "--recipe", "embedded", "--device", "cpu"]
    assert main([str(word) for word in words]) == 0
    return out


def test_each_task_runs_on_invig_with_a_trained_oracle(
    root: Path, oracle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = ["eval", "dialogue", "--data", "invig", "--source", str(root / "invig"), "--json"]
    shared += ["--model", str(root / "model"), "--oracle", str(oracle), "--device", "cpu"]
    found = {}
    for task in ("vqa", "vqg", "vg", "ivg"):
        capsys.readouterr()
        assert main([*shared, "--task", task]) == 0
        found[task] = json.loads(capsys.readouterr().out)
    assert found["vqa"]["n"] == found["vqg"]["n"] == 3
    assert 1 <= found["vqa"]["rank"] <= 3
    assert found["vg"]["turn-0"]["n"] == 3
    assert found["vg"]["turn-2"]["n"] == 1
    assert found["ivg"]["n"] == 3
    levels = [str(n / 10) for n in range(1, 11)]
    assert list(found["ivg"]["box"]) == list(found["ivg"]["choice"]) == levels
    assert found["ivg"]["box"]["0.5"] == found["ivg"]["accuracy"]


def left_half(image: Any, nouns: Sequence[str]) -> list[Candidate]:
    """A detector that finds the left half of any image."""
    return [Candidate(Box(0, 0, image.shape[1] / 2, image.shape[0]), "cup")]


def nothing(image: Any, nouns: Sequence[str]) -> list[Candidate]:
    """A detector that finds nothing."""
    return []


# The object is within the left half, and 0.4 by 0.7 of the image.
@pytest.mark.parametrize(
    ("detector", "iou", "count"), [(left_half, 0.4 * 0.7 / 0.5, 1), (nothing, 0, 0)]
)
def test_a_detector_proposes_the_objects_to_choose_among(
    root: Path, tmp_path: Path, detector: Any, iou: float, count: int
) -> None:
    records = tmp_path / "records.jsonl"
    words = ["eval", "dialogue", "--task", "vg", "--data", "invig", "--source", root / "invig"]
    words += ["--model", root / "model", "--device", "cpu", "--records", records]
    words += ["--objects", f"python:{__name__}:{detector.__name__}"]
    assert main([str(word) for word in words]) == 0
    found = [json.loads(row) for row in records.read_text().splitlines()]
    assert {row["proposals"] for row in found} == {count}
    assert found[0]["iou_chosen"] == pytest.approx(iou)


def test_clip_says_which_images_are_similar(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "patch_size": 8}
    vision |= {"num_attention_heads": 1, "image_size": 16, "projection_dim": 4}
    config = CLIPVisionConfig(**vision)
    CLIPVisionModelWithProjection(config).save_pretrained(tmp_path)
    size = {"height": 16, "width": 16}
    CLIPImageProcessorPil(size=size, crop_size=size).save_pretrained(tmp_path)
    clip = ClipFeatures.load(tmp_path, "cpu")
    rng = np.random.default_rng(0)
    image, other = (rng.integers(0, 255, (20, 30, 3), dtype=np.uint8) for _ in range(2))
    assert clip(image).shape == (4,)
    assert float(clip(image) @ clip(image)) == pytest.approx(1, abs=1e-5)
    assert float(clip(image) @ clip(other)) < 0.9999
    words = ["eval", "dialogue", "--task", "vqg", "--data", "invig", "--source", root / "invig"]
    words += ["--model", root / "model", "--device", "cpu", "--json", "--clip"]
    assert main([str(word) for word in (*words, tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out)["rank"] is not None
    assert main([str(word) for word in (*words, root / "model")]) == 2
    assert "is a model of type paligemma, want a clip" in capsys.readouterr().err


class CountedSamples(Sequence[InvigSample]):
    """Dialogues that are made when they are read; counts those, and pictures, that are alive."""

    def __init__(self, count: int) -> None:
        self._count, self.pictures = count, 0
        self.alive = self.most = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, number: Any) -> Any:
        talk = ("which one?", f"the {number % 5}"), ("is it the red one?", "yes")
        made = replace(sample(str(number // 2), *talk), id=str(number), load=self._picture)
        return self._counted(made)

    def _picture(self) -> Any:
        self.pictures += 1
        return self._counted(np.full((40, 60, 3), self.pictures, np.uint8))

    def _counted(self, made: Any) -> Any:
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(made, self._gone)
        return made

    def _gone(self) -> None:
        self.alive -= 1


def test_dialogues_and_pictures_are_held_one_at_a_time(root: Path) -> None:
    samples = CountedSamples(40)
    clue = Clue.load(str(root / "model"), device="cpu")
    summary, records = measure_sentences(clue, None, samples, "vqg", ranked_among=3, seed=0)
    assert summary["n"] == len(records) == 80
    assert {record["among"] for record in records} <= {2, 3, 4}
    assert samples.pictures == 2 * 20, "once for the features, once for the questions"
    assert samples.most <= 4


@pytest.mark.parametrize("better", [0, 2, 6])
def test_the_truth_is_ranked_by_its_mean_log_probability_among_the_candidates(
    root: Path, monkeypatch: pytest.MonkeyPatch, better: int
) -> None:
    samples = [
        replace(sample(str(n), (f"is it number {n}?", "no")), request=f"cup {n}") for n in range(9)
    ]
    asked = list[list[str]]()

    def copier(
        parts: Any, adapter: str, features: Any, instruction: str, context: str, texts: list[str]
    ) -> Any:
        """Knows what was asked; by the sum of a sentence it would take any other."""
        truth = f"is it number {context.split()[1]}?"
        assert truth in texts
        lengths = torch.tensor([10.0 if text == truth else 1.0 for text in texts])
        means = [-0.5 if text == truth else -1.0 for text in texts]
        wrong = [n for n, text in enumerate(texts) if text != truth]
        for number in wrong[:better]:
            means[number] = -0.1
        asked.append(texts)
        return torch.tensor(means) * lengths, lengths

    monkeypatch.setattr(clue_ros.model.oracle, "suffix_log_probs", copier)
    monkeypatch.setattr(sentence_tasks, "text_scores", lambda pairs: {})
    clue = Clue.load(str(root / "model"), device="cpu")
    found, records = measure_sentences(clue, None, samples, "vqg", ranked_among=7, seed=0)
    assert {record["rank"] for record in records} == {1 + better}
    assert (found["rank"], found["r@1"]) == (1 + better, 100 * (better == 0))
    assert found["r@5"] == (100 if better < 5 else 0)
    assert found["among"] == 8
    assert all(len(set(texts)) == 8 for texts in asked)


def test_a_box_is_chosen_after_the_boxes_that_the_decoder_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left, right = Box(0, 0, 0.5, 1), Box(0.5, 0, 1, 1)
    counted = (1, 2, 3, 4)
    parts = SimpleNamespace(
        ivg=SimpleNamespace(instruction="clarify"),
        speak=lambda features, context, mode: SimpleNamespace(via=(counted,)),
    )

    def scores(parts: Any, adapter: str, features: Any, *words: Any) -> Any:
        instruction, context, suffixes = words
        assert (instruction, context) == ("clarify", "the right cup")
        assert suffixes == [
            f"{to_text(counted)};{to_text(encode_box(box, 1, 1))}" for box in (left, right)
        ]
        return torch.tensor([-3.0, -2.0]), torch.tensor([10, 10])

    monkeypatch.setattr(clue_ros.model.oracle, "suffix_log_probs", scores)
    clue: Any = SimpleNamespace(checkpoint=parts)
    assert choose_box(clue, None, "the right cup", [left, right]) == right


def test_self_play_has_both_curves(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "dialogue", "--task", "ivg", "--data", "tabletop", "--split", "val", "--json"]
    words += ["--source", str(root / "scenes"), "--model", str(root / "model"), "--device", "cpu"]
    capsys.readouterr()
    assert main([*words, "--records", str(tmp_path / "records")]) == 0
    found = json.loads(capsys.readouterr().out)
    rows = [json.loads(row) for row in (tmp_path / "records").read_text().splitlines()]
    assert found["box"]["0.5"] == pytest.approx(found["accuracy"], abs=1e-3)
    assert list(found["box"]) == [str(n / 10) for n in range(1, 11)]
    for how, level in (("box", 0.1), ("choice", 1.0)):
        right = [
            row["grades"][str(level)] if how == "box" else row["iou_chosen"] >= level
            for row in rows
        ]
        assert found[how][str(level)] == pytest.approx(sum(right) / len(rows), abs=1e-3)
    pointed = [row for row in rows if row["outcome"] == "NONE"]
    assert all(row["iou_chosen"] == 0 for row in rows if row not in pointed)
    assert {row["position"] for row in rows} == {0, 1}


def test_a_box_is_right_where_it_fits_any_target(root: Path, tmp_path: Path) -> None:
    two = replace(sample("two"), box=(0.5, 0.5, 1, 1), others=((0.0, 0.0, 0.5, 1.0),))
    write_invig([two], tmp_path / "invig", split="test")
    records = tmp_path / "records.jsonl"
    words = ["eval", "dialogue", "--task", "vg", "--data", "invig", "--source", tmp_path / "invig"]
    words += ["--model", root / "model", "--device", "cpu", "--records", records]
    words += ["--objects", f"python:{__name__}:left_half"]
    assert main([str(word) for word in words]) == 0
    (row,) = map(json.loads, records.read_text().splitlines())
    assert row["iou_chosen"] == pytest.approx(1)
    words = ["eval", "ivg", "--data", "invig", "--source", tmp_path / "invig", "--split", "test"]
    words += ["--model", root / "model", "--device", "cpu", "--records", records]
    assert main([str(word) for word in words]) == 0
    (row,) = map(json.loads, records.read_text().splitlines())
    box = Box(*row["box"])
    assert row["iou"] == pytest.approx(
        max(box.iou(target.in_pixels(60, 40)) for target in two.targets)
    )


def test_a_belief_is_carried_from_turn_to_turn() -> None:
    said = [np.log([0.5, 0.3, 0.2]), np.log([0.1, 0.8, 0.1])]
    evidence = evidence_of(said)
    forgets, keeps = Belief(0.0, 1.0).after(evidence), Belief(1.0, 1.0).after(evidence)
    assert np.exp(forgets) == pytest.approx(np.exp(said), abs=1e-5)
    both = np.array([0.05, 0.24, 0.02])
    assert np.exp(keeps[1]) == pytest.approx(both / both.sum(), abs=1e-5)
    assert np.exp(keeps[0]) == pytest.approx([0.5, 0.3, 0.2], abs=1e-5)
    told = sample("a", ("red or blue?", "red"), ("left or right?", "left"))
    assert current_texts(told.dialogue()) == [
        "take the cup",
        "take the cup assistant: red or blue? user: red",
        "take the cup assistant: left or right? user: left",
    ]


def test_the_beliefs_numbers_are_those_under_which_targets_are_likeliest() -> None:
    rng = np.random.default_rng(0)
    first, last = np.log(rng.dirichlet(np.ones(5), 200)), np.log(rng.dirichlet(np.ones(5), 200))

    def drawn(memory: float, weight: float) -> Belief:
        told = []
        for turns in zip(first, last, strict=True):
            evidence = evidence_of(turns)
            chances = np.exp(Belief(memory, weight).after(evidence)[-1])
            told.append((evidence, np.arange(5) == rng.choice(5, p=chances / chances.sum())))
        return fit_belief(told)

    assert drawn(1.0, 1.0).memory == pytest.approx(1, abs=0.4)
    assert drawn(1.0, 1.0).evidence == pytest.approx(1, abs=0.4)
    assert drawn(0.0, 1.0).memory < 0.3
    assert fit_belief([]) == Belief()
    boxes = [Box(0.1, 0.2, 0.5, 0.9), Box(0.5, 0.2, 0.9, 0.9)]
    assert targets_among(sample("a"), boxes).tolist() == [True, False]


def test_the_multi_turn_guesser_plays_asks_and_points(
    root: Path, oracle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    talk = (("the red one or the blue one?", "the red one"), ("is it the left one?", "yes"))
    samples = [replace(sample(name, *talk), box=box) for name, box in
               (("a", (0.1, 0.2, 0.5, 0.9)), ("a2", (0.5, 0.1, 0.9, 0.5)))]  # fmt: skip
    samples = [replace(s, image_id="a") for s in samples]
    write_invig(samples, root / "mt", split="test")
    write_invig(samples[:1], root / "mt", split="val")
    records, figure = tmp_path / "records.jsonl", tmp_path / "curves.png"
    shared = ["eval", "dialogue", "--data", "invig", "--source", str(root / "mt"), "--json"]
    shared += ["--model", str(root / "model"), "--device", "cpu", "--multi-turn"]
    shared += ["--records", str(records)]
    assert main([*shared, "--task", "vqg"]) == 0
    contexts = {json.loads(row)["context"] for row in records.read_text().splitlines()}
    whole = "take the cup assistant: the red one or the blue one? user: the red one"
    assert contexts == {"take the cup", whole}
    capsys.readouterr()
    assert main([*shared, "--task", "vg", "--figure", str(figure)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["multi_turn"]["fitted_on"] == 1
    assert set(found["turn-2"]) >= {"box", "choice", "belief"}
    assert {"iou_believed"} <= json.loads(records.read_text().splitlines()[0]).keys()
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert main([*shared, "--task", "ivg", "--oracle", str(oracle), "--figure", str(figure)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) >= {"box", "belief"}
    assert "choice" not in found
    assert main([*shared, "--task", "vqg", "--figure", str(figure)]) == 2
    assert "--figure draws the curves of --task vg and ivg" in capsys.readouterr().err
    assert main([*shared, "--task", "vg", "--split", "val"]) == 2
    assert "measure another one" in capsys.readouterr().err


def test_the_newest_exchange_keeps_the_request_and_what_was_refused() -> None:
    said = sample("a", ("red or blue?", "red")).dialogue()
    said.add_question("this one?")
    said.refuse(Box(0, 0, 9, 9), "no, the left one", "the left one")
    newest = said.newest()
    assert newest.context() == "take the cup assistant: this one? user: no, the left one"
    assert newest.for_model().context() == "take the cup assistant: this one? user: the left one"
    assert newest.refused == said.refused
    assert sample("b").dialogue().newest().context() == "take the cup"


@pytest.mark.parametrize(
    ("sees", "contexts"),
    [
        ("dialogue", {"take the cup assistant: which one?"}),
        ("question", {"which one?"}),
    ],
)
def test_an_oracle_is_trained_and_asked_by_what_it_sees(
    root: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    sees: str,
    contexts: set[str],
) -> None:
    talk = [sample("a", ("which one?", "the red one")), sample("b")]  # the second says nothing
    write_invig(talk, tmp_path / "invig", split="train")
    write_invig(talk, tmp_path / "invig", split="test")
    taught: list[Any] = []
    real = DialoguePictures.queries

    def queries(self: DialoguePictures, item: InvigSample) -> Any:
        found = real(self, item)
        taught.extend(found)
        return found

    monkeypatch.setattr(DialoguePictures, "queries", queries)
    out = tmp_path / "oracle"
    words = ["train", "oracle", "--model", root / "model", "--out", out, "--run", tmp_path / "run"]
    words += ["--data", "tabletop", "invig", "--tabletop", root / "scenes", "--steps", 2]
    words += ["--invig", tmp_path / "invig", "--batch", 2, "--device", "cpu", "--sees", sees]
    assert main([str(word) for word in words]) == 0
    assert {query.instruction for query in taught} == {"user"}
    assert {query.context for query in taught} == contexts
    assert json.loads((out / "oracle.json").read_text())["sees"] == sees
    shared = ["eval", "dialogue", "--data", "invig", "--source", str(tmp_path / "invig"), "--json"]
    shared += ["--model", str(root / "model"), "--oracle", str(out), "--device", "cpu"]
    capsys.readouterr()
    assert main([*shared, "--task", "vqa"]) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 1
    assert main([*shared, "--task", "ivg"]) == 2
    assert f"the oracle sees the {sees} and no box" in capsys.readouterr().err


def test_the_papers_choice_among_true_boxes_stands_beside_ours() -> None:
    found = grounding_summary([{"id": "a", "dropped": 0, "iou": 0.5, "iou_chosen": 1.0}])
    assert "paper" not in task_table("vg", found, markdown=False)
    head, _, *rows = task_table("vg", found, markdown=True).splitlines()
    column = [cell.strip() for cell in head.split("|")].index("0.5")
    assert [float(row.split("|")[column]) for row in rows] == [1, 1, 0.6, 0.551, 0.597]
    assert len({row.count("|") for row in (head, *rows)}) == 1


def test_games_of_guesswhat_have_answers_and_all_objects_as_proposals(
    root: Path, oracle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    games = Path(__file__).parents[1] / "data" / "guesswhat"
    shared = ["eval", "dialogue", "--data", "guesswhat", "--source", str(games), "--json"]
    shared += ["--model", str(root / "model"), "--oracle", str(oracle), "--device", "cpu"]
    records = tmp_path / "records.jsonl"
    found = {}
    for task in ("vqa", "vg"):
        capsys.readouterr()
        more = ["--task", task, "--split", "val", "--records", str(records)]
        assert main([*shared, *more]) == 0
        told = capsys.readouterr()
        found[task] = json.loads(told.out)
        assert "games left out by how they ended: 1 failure" in told.err
    assert (found["vqa"]["n"], found["vg"]["turn-0"]["n"]) == (5, 2)
    assert 0 <= found["vqa"]["accuracy"] <= 1
    assert {json.loads(row)["proposals"] for row in records.read_text().splitlines()} == {3}


def test_an_oracle_is_not_trained_where_its_prompts_are_unknown_words(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_random_model(tmp_path / "model", ["pick up the cup"])
    words = ["train", "oracle", "--model", str(tmp_path / "model"), "--out", str(tmp_path / "o")]
    words += ["--data", "invig", "--invig", str(root / "invig")]
    assert main([*words, "--steps", "1", "--device", "cpu"]) == 2
    assert "same tokens of 'user' and 'what'" in capsys.readouterr().err


def test_a_task_that_needs_the_oracle_says_so(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "dialogue", "--data", "invig", "--source", str(root / "invig")]
    assert main([*words, "--task", "vqa"]) == 2
    assert "clue train oracle" in capsys.readouterr().err


def test_the_oracle_plays_on_a_plain_world_beside_the_papers_success(
    root: Path, oracle: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "dialogue", "--task", "ivg", "--data", "tabletop", "--split", "val"]
    words += ["--source", str(root / "scenes"), "--model", str(root / "model")]
    capsys.readouterr()
    assert main([*words, "--oracle", str(oracle), "--device", "cpu", "--markdown"]) == 0
    own, *published = capsys.readouterr().out.split("\n\n")[0].splitlines()[2:]
    assert own.startswith("| self-play |")
    assert [line.split("|")[1:3] for line in published] == [
        [" InViG-Base 21K (paper, InViG) ", " 0.356 "],
        [" InViG-Base 500+21K (paper, InViG) ", " 0.456 "],
    ]


class FakeOracle:
    """Remembers what it is asked with; stands in for `Oracle`."""

    asked: ClassVar[list[tuple[Any, ...]]] = []

    def __init__(self, *_: object) -> None:
        self.asked.clear()

    def require_box(self) -> None:
        """It sees the box."""

    def answer(
        self, _features: object, codes: Codes, _context: str, others: Any, rationality: float
    ) -> str:
        """Always the same words."""
        self.asked.append((codes, *others, rationality))
        return "the red one"


def test_an_answer_is_told_from_the_nearest_other_proposals() -> None:
    own = Box(0.4, 0.4, 0.6, 0.6)
    same = Box(0.41, 0.4, 0.6, 0.6)
    far = [Box(0.0, 0.01 * n, 0.1, 0.01 * n + 0.1) for n in range(MOST_OTHERS)]
    near = Box(0.6, 0.4, 0.8, 0.6)
    user = OracleUser(
        FakeOracle(),  # type: ignore[arg-type]
        lambda: None,
        "take the cup",
        own,
        lambda: [same, *far, near, own],
        2.5,
    )
    assert user("which one ?") == "the red one"
    ((codes, first, *others, rationality),) = FakeOracle.asked
    assert codes == encode_box(own, 1, 1)
    assert first == encode_box(near, 1, 1)
    assert (len(others), rationality) == (MOST_OTHERS - 1, 2.5)
    assert encode_box(far[0], 1, 1) not in others, "the farthest is one too many"


@pytest.mark.parametrize("rationality", [None, 0.0])
def test_in_self_play_an_answer_is_told_from_the_other_objects(
    root: Path, monkeypatch: pytest.MonkeyPatch, rationality: float | None
) -> None:
    monkeypatch.setattr(clue_ros.model.oracle, "Oracle", FakeOracle)
    model = write_random_model(root / "asks", vocabulary(), threshold=0)
    words = ["eval", "dialogue", "--task", "ivg", "--data", "tabletop", "--split", "val"]
    words += [
        "--source",
        str(root / "scenes"),
        "--model",
        str(model),
    ]
    words += ["--oracle", "remembers", "--device", "cpu", "--json"]
    words += [] if rationality is None else ["--rationality", str(rationality)]
    assert main(words) == 0
    assert FakeOracle.asked, "the robot asks"
    scenes = shards.read_shard(shards.shard_path(root / "scenes", "val", 0, 0))
    known = [{encode_box(Box(*o.box), 1, 1) for o in scene.objects} for scene in scenes]
    for codes, *others, used in FakeOracle.asked:
        assert used == (RATIONALITY if rationality is None else rationality)
        objects = next(boxes for boxes in known if codes in boxes)
        assert {codes, *others} == ({codes} if rationality == 0 else objects)


@pytest.mark.parametrize("wrong", ["-1", "inf", "nan", "much"])
def test_a_rationality_that_is_none_is_refused(
    wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "dialogue", "--task", "ivg", "--data", "tabletop", "--rationality", wrong]
    assert main(words) == 2
    assert "--rationality" in capsys.readouterr().err


def test_a_wrapper_is_refused_where_a_decoder_is_needed(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "boxes.json").write_text("[]")
    words = ["eval", "dialogue", "--data", "invig", "--source", str(root / "invig")]
    words += ["--model", "wrapper", "--candidates", f"json:{tmp_path / 'boxes.json'}"]
    for more in (["--task", "vg"], ["--task", "ivg", "--oracle", str(tmp_path)]):
        assert main([*words, *more]) == 2
        assert "need a PaliGemma 2" in capsys.readouterr().err
