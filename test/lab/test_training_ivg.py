"""`clue train ivg` on every data set, with every option, on really tiny models."""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from drawn_scenes import random_scenes
from it2p_files import write_it2p
from PIL import Image
from safetensors.torch import load_file
from tiny_model import SIZES, gemma_processor, write_random_model
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

from clue_ros.dialogue.episodes import GROUNDED, Episode, episode_files
from clue_ros.dialogue.reviews import CONFIRMED, CORRECTED, REJECTED, Review, write_review
from clue_ros.dialogue.types import AmbiguityEstimate, Box, Grounding
from clue_ros.errors import BadImageError, ClueError
from clue_ros.lab.data.invig import InvigSample, load_invig, reveal_pairs, write_invig
from clue_ros.lab.language.references import MAX_BOXES
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator import shards
from clue_ros.lab.training import ivg, joint
from clue_ros.lab.training.decoder import held_out_losses
from clue_ros.lab.training.ivg import PAPER, combine, loss_counts, summed_losses
from clue_ros.lab.training.ivg_data import (
    DialoguePictures,
    IvgData,
    dialogue_queries,
    load_splits,
)
from clue_ros.lab.training.loop import TrainingSettings
from clue_ros.lab.training.packing import PackedDecoder
from clue_ros.lab.training.parallel import Processes
from clue_ros.lab.training.photographs import fit_to
from clue_ros.lab.training.samples import one_query_each
from clue_ros.lab.training.vision import batch_tensor
from clue_ros.model.checkpoint import load_checkpoint
from clue_ros.model.config import tiny_config
from clue_ros.model.decoding import Vocabulary
from clue_ros.model.prompts import decode_text, encode_prompts, load_processor
from clue_ros.model.torch_backbone import load_model
from clue_ros.nodes.recorder import Recorder

SIZE = SIZES["image_size"]
CPU = torch.device("cpu")
EMBEDDED_LOSSES = (
    *("--average", "token", "--look-weight", "0.15", "--point-weight", "0.15"),
    *("--location-sigma", "1.5"),
)


def noise(seed: int) -> Callable[[], npt.NDArray[np.uint8]]:
    """A photograph that is no square."""
    return lambda: np.random.default_rng(seed).integers(0, 256, (40, 60, 3), dtype=np.uint8)


def dialogues(count: int, first: int = 0) -> list[InvigSample]:
    """Dialogues of none to three questions."""
    exchanges = (("which one ?", "the red <loc0007> one"), ("left ?", "yes"), ("é ?", "no"))
    return [
        InvigSample(
            id=f"d{i}",
            image_id=f"i{i}",
            load=noise(i),
            request="take\nthe <image> cup",
            exchanges=exchanges[: i % 4],
            box=(0.1, 0.2, 0.5, 0.9),
            category="cup",
        )
        for i in range(first, first + count)
    ]


def write_episodes(folder: Path) -> None:
    """Four dialogues that a robot held to the end, three of them reviewed, and one that it did not.

    One is confirmed, one corrected, one rejected.
    """
    recorder = Recorder(folder, 10**9, print)
    box, estimate = (
        Box(4, 5, 30, 20),
        AmbiguityEstimate(0.1, 0.5, np.zeros((2, 2), np.float32), (), 0.0),
    )
    for i in range(5):
        ends: dict[str, Any] = {
            "outcome": GROUNDED,
            "grounding": Grounding(box, "cup", 0.9, estimate),
        }
        turns = tuple((turn, 1.0) for turn in dialogues(1, first=i)[0].dialogue().turns)
        recorder.save(Episode(f"e{i}", noise(i)(), turns, **(ends if i < 4 else {})))
    recorder.close()
    verdicts = Review(CONFIRMED), Review(CORRECTED, (0.1, 0.2, 0.5, 0.6)), Review(REJECTED)
    for path, review in zip(episode_files(folder), verdicts, strict=False):
        write_review(path, review)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Drawn scenes, drawn IT2P photographs, made-up InViG; a model of our tokenizer, and Gemma's.

    The second is PaliGemma as published: pieces and bytes, location tokens after the words, a
    tower and a decoder of different widths, bfloat16.
    """
    root = tmp_path_factory.mktemp("ivg")
    for split, count, seed in (("train", 6, 0), ("val", 3, 1)):
        path = shards.shard_path(root / "scenes", split, 0, 0)
        shards.write_shard(path, random_scenes(count, seed, size=SIZE))
    write_it2p(root / "it2p")
    write_invig(dialogues(8), root / "invig", split="train")
    write_invig(dialogues(3, 100), root / "invig", split="validation")
    write_episodes(root / "episodes")
    write_random_model(root / "model", vocabulary())
    processor = gemma_processor()
    sizes = {**SIZES, "image_size": 56, "patch_size": 14}
    config: Any = tiny_config(
        len(processor.tokenizer) + 7, image_token_id=processor.image_token_id, **sizes
    )
    torch.manual_seed(0)
    model: Any = PaliGemmaForConditionalGeneration(config)
    model.to(torch.bfloat16).save_pretrained(root / "gemma")
    processor.save_pretrained(root / "gemma")
    return root


@pytest.fixture
def command(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Runs `clue train ivg`; returns the adapter's folder."""
    monkeypatch.setenv("CLUE_IT2P", str(root / "it2p"))

    def train(*more: object) -> Path:
        parser = argparse.ArgumentParser()
        ivg.add_arguments(parser)
        words = ["--tabletop", root / "scenes", "--invig", root / "invig", "--device", "cpu"]
        words += ["--episodes", root / "episodes"]
        words += ["--model", root / "model", "--run", tmp_path / "run", "--out", tmp_path / "out"]
        words += ["--steps", 2, "--batch", 2, *more]
        assert ivg.run(parser.parse_args([str(word) for word in words])) == 0
        return tmp_path / "out"

    return train


def test_one_adapter_learns_to_judge_and_to_reply(
    command: Callable[..., Path], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ivg, "add_arguments", joint.add_arguments)
    monkeypatch.setattr(ivg, "run", joint.run)
    monkeypatch.setattr(joint, "EMBEDDED", {**joint.EMBEDDED, "head_batches": 1})
    out = command(
        "--recipe", "embedded", "--data", "tabletop", "--detector-weight", "0.5", "--head-steps", 3
    )
    row = log(tmp_path / "run" / "joint")[0]
    look = 0.15 * row["look"] + 0.15 * row["point"]
    assert row["loss"] == pytest.approx(row["suffix"] + look + 0.5 * row["decide"], abs=2e-3)
    settings = json.loads((out / "detector.json").read_text())
    assert (settings["instruction"], settings["head"]) == ("clarify", "cnn")
    checkpoint = load_checkpoint(root / "model", device="cpu", detector=out, ivg=out)
    assert checkpoint.is_joint
    assert checkpoint.backbone.adapters == ("ivg",)
    features = checkpoint.look(noise(0)())
    chance, _, prefill = checkpoint.judge_and_read(features, "the red block")
    assert 0 < chance < 1
    assert checkpoint.speak(features, "the red block", "grounding", prefill).codes is not None


@pytest.mark.parametrize(
    ("more", "message"),
    [(("--together", "2"), "one training pair a sequence"), (("--data", "invig"), "threshold")],
)
def test_what_joint_training_cannot_do_is_refused(
    command: Callable[..., Path],
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.setattr(ivg, "add_arguments", joint.add_arguments)
    monkeypatch.setattr(ivg, "run", joint.run)
    with pytest.raises(ClueError, match=message):
        command(*more)


def log(folder: Path) -> list[dict[str, float]]:
    """The rows of the steps, without their times."""
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


# --- data


def test_an_adapter_taught_to_count_aloud_may_say_their_boxes(
    command: Callable[..., Path], root: Path
) -> None:
    out = command("--data", "tabletop", "--via")
    notes = json.loads((out / "ivg.json").read_text())
    assert notes["max_boxes"] == MAX_BOXES
    assert notes["training"]["via"] is True
    checkpoint = load_checkpoint(root / "model", device="cpu", ivg=out)
    assert checkpoint.ivg.max_boxes == MAX_BOXES
    features = checkpoint.look(noise(0)())
    spoken = checkpoint.speak(features, "the red block", "grounding")
    assert spoken.codes is not None
    assert len(spoken.tokens) in {5 * n - 1 for n in range(1, MAX_BOXES + 1)}


@pytest.mark.parametrize(
    ("data", "held_out"),
    [
        (["tabletop"], {"val"}),
        (["it2p"], set()),  # its two photographs are both for training
        (["invig"], {"invig"}),
        (["episodes"], set()),
        (["invig", "episodes"], {"invig"}),
        (["tabletop", "it2p", "invig"], {"val", "invig"}),
    ],
)
def test_every_data_set_trains_with_the_papers_recipe(
    command: Callable[..., Path], data: list[str], held_out: set[str]
) -> None:
    notes = json.loads((command("--data", *data) / "ivg.json").read_text())
    training = notes["training"]
    assert training["data"] == sorted(data)
    taught = [training[k] for k in ("look_weight", "point_weight", "location_sigma")]
    assert taught == [0.0, 0.0, 0.0]
    assert training["average"] == "example"
    assert (training["steps"], training["batch"], training["lr"]) == (2, 2, 1e-4)
    figures = notes["validation"]
    assert {name.split("_")[0] for name in figures} == held_out
    assert {f"{name}_loss" for name in held_out} <= set(figures)
    assert ("invig_look" in figures) is False, "InViG has no masks"


def test_a_robots_own_dialogues_are_learned_from_once_they_are_reviewed(
    command: Callable[..., Path], root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = json.loads((command("--data", "episodes") / "ivg.json").read_text())
    assert notes["training"]["episodes"] == 2
    said = capsys.readouterr().err
    assert "left out: 1 rejected, 1 unreviewed, 1 ended with OPEN (review them with" in said
    more = ("--unreviewed", "--run", root / "unreviewed")
    notes = json.loads((command("--data", "episodes", *more) / "ivg.json").read_text())
    assert notes["training"]["episodes"] == 3
    with pytest.raises(ClueError, match="no episodes there"):
        command("--data", "episodes", "--episodes", root / "nowhere")


def test_the_options_say_what_is_taught_and_how_the_adapter_meant(
    command: Callable[..., Path], root: Path
) -> None:
    teaching = ("--look-weight", 0.5)
    lora = ("--rank", 4, "--alpha", 8, "--dropout", 0.2, "--max-new-tokens", 30)
    out = command("--data", "tabletop", *teaching, *lora)
    notes = json.loads((out / "ivg.json").read_text())
    taught = [notes["training"][k] for k in ("look_weight", "point_weight", "location_sigma")]
    assert taught == [0.5, 0.0, 0.0]
    assert notes["max_new_tokens"] == 30
    assert notes["max_boxes"] == 1, "the paper's"
    assert "val_look" in notes["validation"]
    assert "val_point" not in notes["validation"]
    config = json.loads((out / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["lora_dropout"]) == (4, 8, 0.2)
    assert config["base_model_name_or_path"] == str(root / "model"), "it lies elsewhere"


def test_the_loss_without_masks_is_plain_cross_entropy_of_the_suffix(root: Path) -> None:
    backbone, processor = load_model(root / "model"), load_processor(root / "model")
    pictures = DialoguePictures(dialogues(4), fit_to(processor), pairs=0, seed=0)
    batch = [(scene, [query]) for scene, queries in map(pictures, range(4)) for query in queries]
    assert len(batch) == 1 + 2 + 3 + 4
    decoder = PackedDecoder(backbone.model, processor.tokenizer, CPU, "float32")
    scenes, queries = [scene for scene, _ in batch], [query for _, (query,) in batch]
    suffixes = [query.suffix for query in queries if query.suffix is not None]
    with torch.no_grad():
        found = held_out_losses(decoder, batch, replace(PAPER, per_example=False))
        each = [float(held_out_losses(decoder, [one], PAPER)["loss"]) for one in batch]
        mean_of_pairs = held_out_losses(decoder, batch, PAPER)["loss"]
        contexts = [q.context for q in queries]
        prompts = encode_prompts(processor, "clarify", contexts, suffixes).to("cpu")
        features = backbone.look(batch_tensor(scenes, CPU))
        hidden, _ = backbone.forward(features, prompts)
        expected = torch.nn.functional.cross_entropy(
            backbone.logits(hidden)[:, :-1].flatten(0, 1), prompts.labels[:, 1:].flatten()
        )
    torch.testing.assert_close(found["loss"], expected, atol=1e-4, rtol=1e-5)
    assert float(mean_of_pairs) == pytest.approx(np.mean(each), abs=1e-4)
    assert abs(float(mean_of_pairs) - float(expected)) > 1e-3, "a question is longer than a box"
    assert set(found) == {"loss", "suffix", "word_right", "box_right"}


def test_dialogues_are_revealed_step_by_step(root: Path) -> None:
    sample = dialogues(1, 2)[0]
    queries = dialogue_queries(sample)
    assert [(q.context, q.suffix) for q in queries] == list(reveal_pairs(sample))
    assert [q.ambiguous for q in queries] == [True, True, False]
    assert queries[-1].suffix == "<loc0205><loc0102><loc0921><loc0512>"
    assert {q.meant for q in queries} == {()}
    both = dialogue_queries(replace(sample, others=((0.0, 0.0, 0.5, 0.5),)))
    assert both[:-1] == queries, "each target is learned, after the whole dialogue"
    assert (both[-1].context, both[-1].ambiguous) == (queries[-1].context, False)
    assert both[-1].suffix == "<loc0000><loc0000><loc0512><loc0512>"


def test_every_epoch_holds_each_dialogue_once_in_another_order() -> None:
    def order(seed: int) -> list[list[int]]:
        seen: list[int] = []

        def sample(i: int) -> InvigSample:
            return replace(dialogues(1, i)[0], load=lambda: np.full((2, 2, 3), i, np.uint8))

        pictures = DialoguePictures([sample(i) for i in range(6)], lambda x: x, pairs=2, seed=seed)
        for position in range(18):
            scene, queries = pictures(position)
            assert 1 <= len(queries) <= 2
            seen.append(int(scene.image[0, 0, 0]))
        return [seen[i : i + 6] for i in (0, 6, 12)]

    epochs = order(3)
    assert all(sorted(epoch) == list(range(6)) for epoch in epochs)
    assert epochs[0] != epochs[1] != epochs[2]
    assert order(3) == epochs != order(4)


def test_a_photograph_that_cannot_be_read_is_named_once_and_replaced(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken() -> npt.NDArray[np.uint8]:
        raise BadImageError("i1.png: not an image")

    samples = dialogues(3)
    samples[1] = replace(samples[1], load=broken)
    pictures = DialoguePictures(samples, lambda x: x, pairs=0, seed=0)
    again = DialoguePictures(samples, lambda x: x, pairs=0, seed=0)
    for position in range(12):
        scene, _ = pictures(position)
        assert np.array_equal(scene.image, again(position)[0].image), "a function of position"
    told = capsys.readouterr().err.splitlines()
    assert told == ["left out: InViG d1: i1.png: not an image"] * 2
    nothing = DialoguePictures([samples[1]], lambda x: x, pairs=0, seed=0)
    with pytest.raises(ClueError, match="cannot be read"):
        nothing(0)


def test_pictures_are_what_the_processor_makes_of_them(root: Path) -> None:

    processor: Any = load_processor(root / "model")
    scene, _ = DialoguePictures(dialogues(1), fit_to(processor), pairs=0, seed=0)(0)
    image = Image.fromarray(noise(0)())
    expected = processor.image_processor(image, return_tensors="pt")["pixel_values"]
    torch.testing.assert_close(batch_tensor([scene], CPU), expected, atol=1e-5, rtol=0)


def test_a_source_without_a_validation_split_holds_pictures_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_invig(dialogues(200), tmp_path)
    rows = json.loads(source.read_text())
    rows[0]["ref_list"][0]["bbox"] = [0, 0, "x", 1]
    named = source.rename(tmp_path / "dialogues.json")
    named.write_text(json.dumps(rows))
    train, held_out = load_splits(str(named), "en", tmp_path / "left_out.txt")
    assert len(train) + len(held_out) == 199
    assert 0 < len(held_out) < 20
    assert not {s.image_id for s in train} & {s.image_id for s in held_out}
    assert "d0" in (tmp_path / "left_out.txt").read_text()
    assert "d0" in capsys.readouterr().err
    assert len(load_invig(named).samples) == 199


def test_mixed_data_gives_each_its_share_and_each_dialogue_its_turn(root: Path) -> None:
    class Counted(DialoguePictures):
        def __call__(self, position: int) -> Any:  # its position in place of a dialogue
            return position

    pictures = Counted(dialogues(4), lambda x: x, pairs=0, seed=0)
    data = IvgData(None, pictures, 0.3, {}, {})
    settings = TrainingSettings(steps=10, batch=5, lr=1.0)
    positions: list[list[Any]] = [
        [slot() for slot in data.slots(settings, step)] for step in range(10)
    ]
    assert [p for step in positions for p in step] == list(range(15))
    assert {len(step) for step in positions} == {1, 2}


def test_invig_and_games_of_guesswhat_train_together(command: Callable[..., Path]) -> None:
    games = Path(__file__).parents[1] / "data" / "guesswhat"
    more = ["--data", "invig", "guesswhat", "--guesswhat", games, "--steps", 2, "--batch", 2]
    settings = json.loads((command(*more) / "ivg.json").read_text())["training"]
    assert (settings["invig"], settings["guesswhat"]) == (8, 2)
    with pytest.raises(ClueError, match="needs --guesswhat"):
        command("--data", "guesswhat")


def test_missing_data_is_named(command: Callable[..., Path], root: Path) -> None:
    with pytest.raises(ClueError, match="no such folder"):
        command("--data", "invig", "--invig", root / "no such folder")
    with pytest.raises(ClueError, match="share"):
        command("--data", "invig", "tabletop", "--invig-share", 2)


# --- the same batch however it is divided


def test_accumulation_changes_nothing(command: Callable[..., Path], tmp_path: Path) -> None:
    more = ["--data", "tabletop", "invig", "--dropout", "0", "--batch", "6", "--log-every", "1"]
    more += ["--steps", "4", "--lr", "3e-3", "--precision", "float32", *EMBEDDED_LOSSES]
    command(*more)
    command(*more, "--accumulate", 4, "--workers", 0, "--run", tmp_path / "parts")
    whole, parts = log(tmp_path / "run" / "ivg"), log(tmp_path / "parts" / "ivg")
    assert [row.keys() for row in whole] == [row.keys() for row in parts]
    assert {"look", "point", "box_right", "word_right"} <= set(whole[0])
    for a, b in zip(whole, parts, strict=True):
        assert b == pytest.approx(a, rel=1e-4, abs=1e-4)
    with pytest.raises(ClueError, match="at least 7 pictures"):
        command(*more, "--accumulate", 7)


def test_parts_of_a_batch_add_up_whoever_takes_them(root: Path) -> None:
    """Losses weigh each token of the whole batch alike, not each process's mean."""
    backbone, processor = load_model(root / "model"), load_processor(root / "model")
    decoder = PackedDecoder(backbone.model, processor.tokenizer, CPU, "float32")
    pictures = DialoguePictures(dialogues(4), fit_to(processor), pairs=0, seed=0)
    slots = [lambda i=i: pictures(i) for i in range(4)]
    losses, counts = [], []
    trainers = []
    for rank in range(3):
        processes = Processes(CPU, "float32", rank, 3)
        trainers.append(ivg.IvgTrainer(decoder, PAPER, processes))
    mine = [trainer.shares(slots) for trainer in trainers]
    assert sorted(len(part) for parts in mine for part in parts) == [1, 1, 2]
    steps = [trainer.step(parts) for trainer, parts in zip(trainers, mine, strict=True)]
    totals = {name: sum(step.counts[name] for step in steps) for name in steps[0].counts}
    with torch.no_grad():
        for step in steps:
            losses += [float(compute()["loss"]) for compute in step.losses(totals)]
            counts.append(step.counts["suffix"])
        (whole,) = [[picture for parts in mine for part in parts for picture in part]]
        single, rows = one_query_each(whole)
        packed = decoder.pack(single)
        features = decoder.features([scene for scene, _ in whole])[rows]
        sums = summed_losses(decoder, features, packed, PAPER, image_sees_prefix=True)
        expected = combine(sums, loss_counts(packed, PAPER, decoder.first_location), PAPER)
    assert len(set(counts)) > 1, "shares differ, or the test says nothing"
    assert sum(losses) == pytest.approx(float(expected["loss"]), rel=1e-5)


def test_pairs_read_together_are_blind_to_each_other_and_the_image_to_them(root: Path) -> None:
    backbone, processor = load_model(root / "model"), load_processor(root / "model")
    decoder = PackedDecoder(backbone.model, processor.tokenizer, CPU, "float32")
    pictures = DialoguePictures(dialogues(4), fit_to(processor), pairs=0, seed=0)
    (share,) = shares = [[pictures(i) for i in range(4)]]
    single, rows = one_query_each(share)
    assert len(single) > len(share), "several pairs of a picture, or the test says nothing"
    one_process = Processes(CPU, "float32", 0, 1)
    trainer = ivg.IvgTrainer(decoder, PAPER, one_process, together=True)
    step = trainer.step(shares)
    with torch.no_grad():
        (loss,) = [compute()["loss"] for compute in step.losses(step.counts)]
        packed = decoder.pack(single)
        features = decoder.features([scene for scene, _ in share])[rows]
        for sees in (False, True):
            sums = summed_losses(decoder, features, packed, PAPER, image_sees_prefix=sees)
            alone = combine(sums, loss_counts(packed, PAPER, decoder.first_location), PAPER)
            assert (float(loss) == pytest.approx(float(alone["loss"]), rel=1e-5)) is not sees


def test_a_run_of_pairs_together_is_ended_by_one_of_pairs_apart(
    command: Callable[..., Path], tmp_path: Path
) -> None:
    more = ["--data", "tabletop", "--steps", "3", "--log-every", "1", *EMBEDDED_LOSSES]
    first = command(*more, "--together", 7).rename(tmp_path / "first")
    noted = json.loads((first / "ivg.json").read_text())["training"]
    assert noted["together"] == 7
    out = command(*more, "--init", first, "--run", tmp_path / "then")
    assert json.loads((out / "ivg.json").read_text())["training"]["together"] == 0
    with pytest.raises(ClueError, match="--together -1"):
        command(*more, "--together", -1)


# --- the full-size model's ways


def test_a_published_model_trains_in_bfloat16_with_checkpointing(
    command: Callable[..., Path], root: Path, tmp_path: Path
) -> None:
    more = ["--model", root / "gemma", "--base-dtype", "bfloat16", "--gradient-checkpointing"]
    more += ["--steps", "6", "--batch", "4", "--lr", "1e-2", "--log-every", "1"]
    out = command("--data", "tabletop", "invig", *more)
    learned = load_file(out / "adapter_model.safetensors").values()
    assert {weight.dtype for weight in learned} == {torch.float32}, "small steps need float32"
    losses = [row["suffix"] for row in log(tmp_path / "run" / "ivg") if "suffix" in row]
    assert max(losses[-3:]) < losses[0] - 0.1


def test_gradient_checkpointing_changes_no_figure(
    command: Callable[..., Path], root: Path, tmp_path: Path
) -> None:
    more = ["--model", root / "gemma", "--data", "tabletop", "--steps", "3", "--log-every", "1"]
    more += ["--precision", "float32"]
    command(*more)
    command(*more, "--gradient-checkpointing", "--run", tmp_path / "less")
    for a, b in zip(log(tmp_path / "run" / "ivg"), log(tmp_path / "less" / "ivg"), strict=True):
        assert b == pytest.approx(a, rel=1e-5, abs=1e-5)


def test_the_gemma_tokenizer_gets_boxes_as_four_tokens(root: Path) -> None:
    backbone, processor = load_model(root / "gemma"), load_processor(root / "gemma")
    decoder = PackedDecoder(backbone.model, processor.tokenizer, CPU)
    pictures = DialoguePictures(dialogues(4), fit_to(processor), pairs=0, seed=0)
    batch = [(scene, [query]) for scene, queries in map(pictures, range(4)) for query in queries]
    packed = decoder.pack(batch)
    counts = loss_counts(packed, PAPER, decoder.first_location)
    assert counts["box_right"] == 4, "a dialogue ends in one box; typed tokens are no boxes"
    labels = packed.labels[0][packed.labels[0] != -100].tolist()
    assert decode_text(processor.tokenizer, labels[:-1]) in {q.suffix for _, (q,) in batch}
    prefix = packed.ids[0][packed.types[0] == 0].tolist()
    assert processor.image_token_id not in prefix
    vocabulary = Vocabulary(processor.tokenizer, backbone.text.vocab_size)
    box = "<loc0001>" * 4
    two: Any = processor.tokenizer(f"{box};{box}", add_special_tokens=False)["input_ids"]
    assert len(two) == 9
    assert two[4] == vocabulary.between


# --- a folder holds one run


def test_a_run_with_other_weights_or_data_is_refused(
    command: Callable[..., Path], root: Path, tmp_path: Path
) -> None:
    command("--data", "tabletop", *EMBEDDED_LOSSES)
    for other, words in (
        (("--look-weight", 0.3), "look_weight 0.15, now 0.3"),
        (("--point-weight", 0), "point_weight 0.15, now 0"),
        (("--location-sigma", 0), "location_sigma 1.5, now 0"),
        (("--average", "example"), "average token, now example"),
        (("--final-rate", 0.05), "final_rate 0.0, now 0.05"),
        (("--scenes", 4), "scenes 6, now 4"),
        (("--data", "tabletop", "it2p"), "data .*'tabletop'"),
        (("--alpha", 8), "alpha 32, now 8"),
        (("--via",), "via False, now True"),
        (("--lr", 1e-3), "lr 0.0001, now 0.001"),
    ):
        with pytest.raises(ClueError, match=words):
            command("--data", "tabletop", *EMBEDDED_LOSSES, *other)
