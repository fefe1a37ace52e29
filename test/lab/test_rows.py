"""Labelled rows about photographs from anywhere: read, trained on, measured on."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from drawn_scenes import random_scenes
from PIL import Image
from safetensors.torch import load_file

from clue_ros.errors import ClueError
from clue_ros.lab.data.rows import Rows, RowsError, load_rows
from clue_ros.lab.evaluation import table1_detectors, table3_guesser
from clue_ros.lab.simulator import shards
from clue_ros.lab.training import detector
from clue_ros.lab.training.detector_data import (
    DetectorDataOptions,
    RowsPhotographs,
    load_detector_data,
)
from clue_ros.lab.training.loop import TrainingSettings
from clue_ros.lab.training.photographs import fit_to
from clue_ros.model.backbone import DETECTOR, IVG
from clue_ros.model.detector import DetectorSettings
from clue_ros.model.heads import CnnHead
from clue_ros.model.loading import read_json, write_json
from clue_ros.model.prompts import load_processor
from clue_ros.model.torch_backbone import load_model

CPU = torch.device("cpu")


def picture(path: Path, seed: int) -> None:
    """A picture that is no square."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four pictures, one of them twice under two names."""
    for i in range(4):
        picture(tmp_path / "images" / f"{i}.png", i)
    shutil.copy(tmp_path / "images" / "0.png", tmp_path / "images" / "copy.png")
    return tmp_path


def written(folder: Path, *rows: Any, name: str = "rows.jsonl") -> Rows:
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load_rows(folder / name)


def row(image: str = "images/0.png", **more: Any) -> dict[str, Any]:
    return {"image": image, "sentence": "get the mug", "ambiguous": True, **more}


TWO = [[0, 0, 10, 10], [20.5, 5, 60, 40]]


def test_rows_become_pictures_with_their_sentences(folder: Path) -> None:
    found = written(
        folder,
        row(boxes=TWO, split="train", source="a column that is not used"),
        row(sentence=" get  the red mug", ambiguous="clear", boxes=[[0, 0, 10, 10]]),
        row("images/1.png", ambiguous=0, split="test"),
    )
    assert not found.problems
    one, two = found.images
    assert (one.path.name, one.size, one.split) == ("0.png", (60, 40), "train")
    assert [(s.text, s.ambiguous) for s in one.sentences] == [
        ("get the mug", True),
        ("get the red mug", False),
    ]
    assert [box.as_list() for box in one.sentences[0].boxes] == TWO
    assert (two.split, two.sentences[0].boxes) == ("test", ())
    assert one.load().shape == (40, 60, 3)
    assert found.select("test") == (two,)
    assert found.select("all") == found.images


def test_csv_says_the_same_as_json_lines(folder: Path) -> None:
    lines = (
        "sentence,image,ambiguous,boxes,split",
        'get the mug,images/0.png,true,"[[0, 0, 10, 10], [20.5, 5, 60, 40]]",train',
        '"get the mug, please",images/1.png,clear,,',
    )
    from_csv = written(folder, *lines, name="rows.csv")
    from_json = written(
        folder,
        row(boxes=TWO, split="train"),
        row("images/1.png", sentence="get the mug, please", ambiguous=False),
    )
    assert from_csv == from_json
    assert from_csv.images[1].split in ("train", "val", "test"), "by the picture itself"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "want an object, not list"),
        ({"image": "images/1.png", "ambiguous": True}, '"sentence" is missing'),
        (row("images/none.png"), "none.png cannot be read: No such file"),
        (row("../outside.png"), "outside .*: give a path inside it"),
        (row("/etc/hostname"), "outside"),
        (row("link.png"), "outside"),
        (row("images/\0.png"), "no name of a file"),
        (row("images"), "cannot be read"),
        (row("text.png"), "not a picture"),
        (row("bomb.png"), "larger than 64 megapixels"),
        (row(7), "image 7, want a path"),  # type: ignore[arg-type]
        (row("images/1.png", sentence="  "), "the text is empty"),
        (row("images/1.png", sentence=None), "must be a string"),
        (row("images/1.png", ambiguous="perhaps"), "ambiguous 'perhaps', want true or false"),
        (row("images/1.png", split="dev"), "split 'dev', want train, val, test"),
        (row("images/1.png", boxes=TWO[:1]), "1 boxes, want two or more"),
        (row("images/1.png", ambiguous=False, boxes=TWO), "2 boxes, want one"),
        (row("images/1.png", boxes=[[0, 0, 9, 9], [0, 0, 61, 9]]), "inside 60x40 pixels"),
        (row("images/1.png", boxes=[[0, 0, 9, 9], [9, 0, 9, 9]]), "inside 60x40 pixels"),
        (row("images/1.png", boxes=[[0, 0, 9, 9], [0, 0, True, 9]]), "in pixels"),
        (row("images/1.png", boxes=7), "boxes must be a list"),
    ],
)
def test_a_bad_row_is_named_with_its_line_and_left_out(folder: Path, bad: Any, reason: str) -> None:
    (folder / "text.png").write_text("no picture")
    (folder.parent / "outside.png").write_bytes((folder / "images" / "0.png").read_bytes())
    (folder / "link.png").symlink_to(folder.parent / "outside.png")
    Image.new("1", (9000, 9000)).save(folder / "bomb.png")
    found = written(folder, row(), "", bad)
    assert len(found.images) == 1
    (problem,) = found.problems
    assert problem.startswith(f"{folder / 'rows.jsonl'}:3: ")
    assert re.search(reason, problem), problem


def test_duplicates_are_used_once_and_contradictions_not_at_all(folder: Path) -> None:
    found = written(
        folder,
        row(),
        row("images/copy.png", sentence="Get the mug"),
        row("images/1.png"),
        row("images/1.png", ambiguous=False),
        row("images/2.png", split="train"),
        row("images/2.png", sentence="get the cup", split="test"),
    )
    assert [(i.path.name, len(i.sentences)) for i in found.images] == [("0.png", 1)]
    twice, contradicted, shared = found.problems
    assert "rows.jsonl:2: the same picture and sentence as" in twice
    assert "rows.jsonl:4: contradicts" in contradicted
    assert "rows.jsonl:3" in contradicted
    assert "2.png is in several splits (test, train): left out" in shared


def test_a_file_without_a_usable_row_is_refused(folder: Path) -> None:
    with pytest.raises(RowsError, match=r"no row that can be used: .*rows.jsonl:1: .*missing"):
        written(folder, {})
    with pytest.raises(RowsError, match="cannot be read"):
        load_rows(folder / "nowhere.jsonl")
    with pytest.raises(RowsError, match='no column "ambiguous"'):
        written(folder, "image,sentence,label", name="rows.csv")
    (folder / "latin.csv").write_bytes("image,sentence,ambiguous\na,\xe9,1\n".encode("latin-1"))
    with pytest.raises(RowsError, match="cannot be read as CSV"):
        load_rows(folder / "latin.csv")


# --- training and measuring


def parse(module: ModuleType, *words: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args([str(word) for word in (*words, "--device", "cpu")])


def labelled(folder: Path) -> Path:
    """Rows of every split; those of two pictures have boxes."""
    rows = []
    for i, split in enumerate(("train", "train", "val", "test")):
        boxes = (TWO, TWO[:1]) if i % 2 else ([], [])
        image = f"images/{i}.png"
        rows.append(row(image, split=split, boxes=boxes[0]))
        clear = row(image, sentence="get the red block", ambiguous=False, split=split)
        rows.append({**clear, "boxes": boxes[1]})
    written(folder, *rows, {"image": "images/0.png"})
    return folder / "rows.jsonl"


def test_a_detector_learns_from_rows_and_is_measured_on_them(
    folder: Path, random_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, out = labelled(folder), folder / "out"
    words = ("--model", random_model, "--data", "rows", "--rows", rows, "--out", out)
    quick = ("--steps", 3, "--batch", 2, "--run", folder / "run", "--look-weight", 0.1)
    assert detector.run(parse(detector, *words, *quick, "--accumulate", 2)) == 0
    assert "rows.jsonl:9" in capsys.readouterr().err
    left_out = folder / "run" / "detector-half-last-detect-cnn" / "left_out.txt"
    assert "rows.jsonl:9" in left_out.read_text()
    notes = json.loads((out / "detector.json").read_text())
    assert notes["training"]["data"] == ["rows"]
    assert notes["training"]["rows"] == 2
    assert notes["validation"]["n"] == 2
    measure = ("--model", random_model, "--rows", rows, "--detector", out, "--json")
    store = ("--detectors", folder / "store", "--only", "own", "decoder-first")
    assert table1_detectors.run(parse(table1_detectors, *measure, *store)) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["n"] == {"rows": 2}
    own = result["detectors"][0]["seeds"][0]["rows"]
    assert {"accuracy", "f1", "auroc"} <= set(own)
    assert own["auroc"] in (0.0, 0.5, 1.0)
    with pytest.raises(ClueError, match="give both or neither"):
        detector.run(parse(detector, *words[:4], "--out", out))
    written(folder, row(split="test"), name="test.jsonl")
    bad = ("--model", random_model, "--rows", folder / "test.jsonl", "--rows-split", "val")
    with pytest.raises(ClueError, match="no photograph of the split val"):
        table1_detectors.run(parse(table1_detectors, *bad, *store))


def test_detectors_are_measured_on_a_bare_base(
    folder: Path, random_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither adapter B nor a detector of the model's own is needed."""
    base = Path(shutil.copytree(random_model, folder / "base"))
    given = Path(shutil.move(base / DETECTOR, folder / "given"))
    shutil.rmtree(base / IVG)
    words = ("--model", base, "--rows", labelled(folder), "--detector", given, "--json")
    more = ("--only", "own", "decoder-first", "candidate-count", "--dtype", "float32")
    store = ("--detectors", folder / "store", "--quantization", "none")
    assert table1_detectors.run(parse(table1_detectors, *words, *more, *store)) == 0
    said = capsys.readouterr()
    assert [d["name"] for d in json.loads(said.out)["detectors"]] == ["own", "candidate-count"]
    assert "left out: decoder-first needs adapter B" in said.err


def test_the_parts_of_a_step_add_up(folder: Path, random_model: Path) -> None:
    backbone, processor = load_model(random_model), load_processor(random_model)
    images = load_rows(labelled(folder)).images
    photographs = RowsPhotographs(images, fit_to(processor), instruction="detect")
    samples = [photographs(i) for i in range(3)]
    samples[0] = (samples[0][0], samples[0][1][:1])  # parts of different sizes
    torch.manual_seed(0)
    head = CnnHead().eval()  # no dropout, which differs from part to part
    losses = []
    for accumulate in (1, 2, 3):
        options = detector.DetectorOptions(model="m", accumulate=accumulate)
        settings = DetectorSettings(block=2)
        trainer = detector.DetectorTrainer(backbone, processor, settings, CPU, options)
        trainer.head = head
        parts = list(trainer.step(samples).losses({}))
        assert len(parts) == accumulate
        with torch.no_grad():
            losses.append(sum(float(part()["loss"]) for part in parts))
    assert losses[1:] == pytest.approx([losses[0]] * 2, rel=1e-4)


def test_checkpointing_changes_no_figure_of_a_detector(folder: Path, random_model: Path) -> None:
    """With the LoRA in every block, whose activations are computed again."""
    data = ("--model", random_model, "--data", "rows", "--rows", labelled(folder))
    quick = ("--variant", "half-full-detect-cnn", "--steps", 2, "--batch", 2, "--lr", "1e-2")
    rows = []
    for name, more in (("plain", ()), ("less", ("--gradient-checkpointing",))):
        run = ("--run", folder / name, "--out", folder / f"{name}-out")
        assert detector.run(parse(detector, *data, *quick, *run, *more)) == 0
        log = (folder / name / "detector-half-full-detect-cnn" / "log.jsonl").read_text()
        rows.append([json.loads(line)["loss"] for line in log.splitlines() if '"loss"' in line])
    assert rows[0] == pytest.approx(rows[1], rel=1e-5)
    weights = [
        load_file(folder / f"{n}-out" / "adapter_model.safetensors") for n in ("plain", "less")
    ]
    for key, plain in weights[0].items():
        torch.testing.assert_close(plain, weights[1][key], rtol=1e-3, atol=1e-5)


def test_rows_and_scenes_share_a_step(folder: Path, random_model: Path) -> None:
    for split in ("train", "val"):
        path = shards.shard_path(folder / "scenes", split, 0, 0)
        shards.write_shard(path, random_scenes(3, 0, size=64))
    options = DetectorDataOptions(
        data=("tabletop", "rows"),
        rows=(labelled(folder),),
        tabletop=folder / "scenes",
        rows_share=0.25,
    )
    processor = load_processor(random_model)
    data = load_detector_data(options, processor, "detect", folder / "left_out.txt")
    settings = TrainingSettings(steps=4, batch=4, lr=1.0)
    steps = [data.samples(settings, step) for step in range(4)]
    photographs = [sum(q.context.startswith("get the") for q in s[-1][1]) for s in steps]
    assert photographs == [2] * 4, "the last picture of each step, with both of its sentences"
    again = data.samples(settings, 2)
    assert [q for _, q in again] == [q for _, q in steps[2]]
    assert set(data.held_out()) == {"val", "rows"}
    boxed = next(s for step in steps for s in [step[-1]] if s[0].objects)
    scene, queries = boxed
    assert [len(q.meant) for q in queries] == [2, 1]
    cover = scene.coverage(8)
    assert cover[0, 0, 0] > 0.9
    assert cover[1, 7, 7] > 0.9
    assert not cover[:, 7, 0].any()


def test_adapter_b_alone_is_measured(
    folder: Path, random_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone = folder / "adapters"
    shutil.copytree(random_model / IVG, alone / IVG)
    config = alone / IVG / "adapter_config.json"
    write_json(config, {**read_json(config), "base_model_name_or_path": str(random_model)})
    source = Path(__file__).parents[1] / "data" / "invig_new"
    words = ("--model", alone, "--data", "invig", "--source", source, "--json")
    more = ("--dtype", "bfloat16", "--quantization", "none")
    assert table3_guesser.run(parse(table3_guesser, *words, *more)) == 0
    assert json.loads(capsys.readouterr().out)["guesser"]["n"] > 0
    shutil.rmtree(alone / IVG)
    shutil.copytree(random_model / DETECTOR, alone / DETECTOR)
    config = alone / DETECTOR / "adapter_config.json"
    write_json(config, {**read_json(config), "base_model_name_or_path": str(random_model)})
    with pytest.raises(ClueError, match="needs adapter B"):
        table3_guesser.run(parse(table3_guesser, *words))
