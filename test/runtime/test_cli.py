"""``clue`` as a shell uses it: real processes, exit statuses, one line of reason, JSON."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from it2p_files import write_it2p
from PIL import Image
from safetensors.numpy import load_file, save_file
from safetensors.torch import load_file as read_tensors
from tiny_model import SMALL_STEM, write_random_model

from clue_ros.cli import main
from clue_ros.lab.evaluation import random_models
from clue_ros.lab.evaluation.speed import REQUESTS, Bench
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.simulator.shards import shard_path, write_shard

ROOT = Path(__file__).resolve().parents[2]
TEXT = "pick up the red block"


def environment() -> dict[str, str]:
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "COLUMNS": "80"}


def clue(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run ``clue`` in a process of its own, without a terminal."""
    return subprocess.run(
        [sys.executable, "-m", "clue_ros.cli", *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=300,
        check=False,
    )


@pytest.fixture(scope="module")
def pointing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights that always points."""
    return write_random_model(tmp_path_factory.mktemp("points") / "model", threshold=1.0)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pixels = np.random.default_rng(0).integers(0, 255, (60, 80, 3), np.uint8)
    path = tmp_path_factory.mktemp("images") / "noise.png"
    Image.fromarray(pixels).save(path)
    return path


def test_a_grounding_is_one_json_line_and_status_0(
    pointing: Path, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ground", str(image), TEXT, "--json", "--model", str(pointing)]
    assert main([*words, "--policy", "detector"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    (line,) = printed.out.splitlines()
    row = json.loads(line)
    assert row["type"] == "grounding"
    x_min, y_min, x_max, y_max = row["box"]
    assert 0 <= x_min < x_max <= 80
    assert 0 <= y_min < y_max <= 60
    assert 0 <= row["probability"] <= 1
    assert row["threshold"] == 1.0


def test_a_question_that_waits_is_status_3(pointing: Path, image: Path, tmp_path: Path) -> None:
    saved = tmp_path / "out.png"
    words = ("--json", "--model", pointing, "--threshold", "0", "--save", saved)
    done = clue("ground", image, TEXT, *words)
    assert done.returncode == 3, done.stderr
    (note,) = done.stderr.splitlines()
    assert note.startswith("clue: note: policy 'both' was not fitted for these adapters")
    (line,) = done.stdout.splitlines()
    row = json.loads(line)
    assert row["type"] == "question"
    assert isinstance(row["text"], str)
    assert row["suggested_answers"] == list(row["suggested_answers"])
    with Image.open(saved) as picture:
        assert picture.width == 640


def test_answers_lead_to_a_grounding_after_the_last_question(
    pointing: Path, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ground", str(image), TEXT, "--model", str(pointing), "--threshold", "0", "--json"]
    words += ["--max-turns", "2", "--answer", "the left one", "--answer", "the upper one"]
    assert main(words) == 3, "the questions are used up, and it does not guess"
    printed = capsys.readouterr()
    types = [json.loads(line)["type"] for line in printed.out.splitlines()]
    assert types == ["question"] * 3
    assert printed.err.startswith("clue: note: still unclear after 2 questions")
    assert main([*words, "--force-grounding"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["type"] for row in rows] == ["question", "question", "grounding"]
    assert [row["turn"] for row in rows] == [0, 1, 2]
    assert rows[-1]["intermediate_boxes"] == [], "a model with one box a reply leads past nothing"


def test_answers_that_were_not_needed_are_mentioned(
    pointing: Path, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["ground", str(image), TEXT, "--model", str(pointing), "--answer", "left"]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "box [" in printed.out
    assert printed.err == "clue: note: 1 of the answers not needed\n"


def test_the_answer_is_typed_where_there_is_a_terminal(pointing: Path, image: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "clue_ros.cli", "ground", str(image), TEXT, "--model"]
    command += [str(pointing), "--threshold", "0", "--max-turns", "1", "--force-grounding"]
    command += ["--policy", "detector"]
    # An empty line is asked for again.
    os.write(ours, b"\nthe left one\n")
    with subprocess.Popen(
        command,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        out, err = process.communicate(timeout=300)
    os.close(ours)
    os.close(theirs)
    assert process.returncode == 0, err
    assert "box [" in out.splitlines()[-1]
    assert err.startswith("clue: the text is empty")


def test_typed_tokens_are_words_and_are_mentioned(
    pointing: Path, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = ["--model", str(pointing), "--json"]
    assert main(["ground", str(image), "pick up the <loc0000><image> block", *base]) == 0
    printed = capsys.readouterr()
    assert printed.err == "clue: note: <loc0000> in the text is read as plain words\n"
    assert json.loads(printed.out)["type"] == "grounding"


def test_json_is_ascii_and_control_characters_are_spaces(
    pointing: Path, image: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "pick\x07 up the \N{ROBOT FACE}\x1b block"
    assert main(["ground", str(image), text, "--json", "--model", str(pointing)]) == 0
    printed = capsys.readouterr().out
    assert printed.isascii()
    assert json.loads(printed)["label"] == "\N{ROBOT FACE} block"


def broken_image(folder: Path, name: str) -> Path:
    path = folder / name
    if name == "empty.jpg":
        path.write_bytes(b"")
    elif name == "text.png":
        path.write_text("I am not a picture\n")
    elif name == "cut.jpg":
        pixels = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
        Image.fromarray(pixels).save(path)
        path.write_bytes(path.read_bytes()[:900])
    elif name == "huge.png":
        Image.new("1", (8100, 8100)).save(path)
    return path


def refusal(*words: str | Path) -> str:
    """Run it, check that it was refused with status 2 and exactly one line, and return the line."""
    done = clue(*words)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("clue: ")
    return line


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("missing.png", "does not exist"),
        ("empty.jpg", "is empty"),
        ("text.png", "not a picture"),
        ("cut.jpg", "cannot be read"),
        ("huge.png", "larger than 64 megapixels"),
        (".", "is a folder"),
    ],
)
def test_a_bad_picture_is_refused_in_one_line(tmp_path: Path, name: str, reason: str) -> None:
    assert reason in refusal("ground", broken_image(tmp_path, name), TEXT)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        (" \t\n", "is empty"),
        ("\x01\x02\x7f", "is empty"),
        ("a" * 10_000, "at most 1000"),
        ("😀🤖", "no letter or digit"),
        ("?!...", "no letter or digit"),
    ],
    ids=["empty", "blank", "control", "long", "emoji", "marks"],
)
def test_a_bad_text_is_refused_in_one_line(image: Path, text: str, reason: str) -> None:
    assert reason in refusal("ground", image, text)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ((), "no command given"),
        (("dance",), "no command clue 'dance'"),
        (("eval",), "no command given"),
        (("ground", "a.png"), "required: TEXT"),
        (("ground", "a.png", TEXT, "--max-turns", "-1"), "--max-turns"),
        (("ground", "a.png", TEXT, "--threshold", "2"), "--threshold"),
        (("ground", "a.png", TEXT, "--threshold", "x"), "--threshold"),
        (("ground", "a.png", TEXT, "--answer", ""), "is empty"),
        (("ground", "a.png", TEXT, "--save", "out.txt"), "must end in"),
        (("ground", "a.png", TEXT, "--save", "/no/such/out.png"), "there is no folder"),
        (("eval", "it2p", "--data", "/no/such"), "no IT2P here"),
        (("eval", "tabletop", "--tabletop", "/no/such"), "clue data tabletop"),
        (("eval", "it2p", "--data", ".", "--per-image", "-3"), "--per-image"),
        (("bench", "--repeats", "0"), "--repeats"),
        (("bench", "--device", "auto"), "--device"),
        pytest.param(
            ("bench", "--device", "cuda"),
            "device 'cuda' cannot be used here",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA GPU"),
        ),
    ],
)
def test_bad_arguments_are_refused_in_one_line(
    words: tuple[str, ...], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert reason in line


def broken_model(folder: Path, damage: str) -> str:
    """Damage a model folder; what the reason must name."""
    if damage == "no folder":
        shutil.rmtree(folder)
        return str(folder)
    if damage == "empty config":
        (folder / "config.json").write_text("{}")
        return str(folder / "config.json")
    path = folder / "detector" / "head.safetensors"
    if damage == "missing file":
        path.unlink()
        return f"{folder / 'detector'} has no head.safetensors"
    weights = load_file(path)
    name = min(weights)
    weights[name] = np.concatenate([weights[name]] * 2)
    save_file(weights, path)
    return f"{path}: {name} has shape"


@pytest.mark.parametrize("damage", ["no folder", "empty config", "missing file", "wrong shape"])
def test_a_bad_model_folder_is_refused_and_the_next_request_works(
    pointing: Path, image: Path, tmp_path: Path, damage: str, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = shutil.copytree(pointing, tmp_path / "model")
    reason = broken_model(folder, damage)
    assert main(["ground", str(image), TEXT, "--model", str(folder)]) == 2
    printed = capfd.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert reason in line
    assert main(["ground", str(image), TEXT, "--model", str(pointing)]) == 0


def test_a_twenty_megapixel_picture_is_pointed_at_in_its_own_pixels(
    pointing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "large.jpg"
    Image.effect_noise((5472, 3648), 90).convert("RGB").save(path)
    assert main(["ground", str(path), TEXT, "--json", "--model", str(pointing)]) == 0
    x_min, y_min, x_max, y_max = json.loads(capsys.readouterr().out)["box"]
    assert 0 <= x_min < x_max <= 5472
    assert 0 <= y_min < y_max <= 3648


def test_eval_it2p_prints_the_three_measurements(
    pointing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_it2p(tmp_path / "it2p")
    script = data / "data" / "train_script" / "0001.txt"
    script.write_text(script.read_text() + "this row is bad\n")
    Image.new("RGB", (250, 250)).save(data / "data" / "train_img" / "0003.png")
    (data / "data" / "train_img" / "0004.jpg").write_bytes(b"broken")
    records = tmp_path / "records.jsonl"
    words = ["eval", "it2p", "--data", str(data), "--per-image", "2", "--json"]
    assert main([*words, "--model", str(pointing), "--records", str(records)]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert list(result) == ["clear", "ambiguity", "interactive", "made_by"]
    made = result["made_by"]
    assert made["command"].startswith("clue eval it2p --data ")
    assert (made["model"], made["dtype"], made["seed"]) == (str(pointing), "float32", 0)
    assert len(made["sha256"]) == 64
    assert list(result["clear"]) == ["accuracy", "n"]
    assert list(result["ambiguity"]) == ["accuracy", "precision", "recall", "f1", "n"]
    assert list(result["interactive"]) == ["accuracy", "accuracy_forced", "questions", "n"]
    assert (result["clear"]["n"], result["ambiguity"]["n"], result["interactive"]["n"]) == (4, 7, 4)
    assert f"note: {script}:6: " in printed.err
    assert "note: 0004.jpg: left out" in printed.err
    assert len(records.read_text().splitlines()) == 4 + 3 + 4


def test_eval_tabletop_prints_the_same_shape(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_random_model(tmp_path / "model", vocabulary(), threshold=1.0)
    things = tuple(
        SceneObject(kind, color, (x, 0.4, x + 0.1, 0.5))
        for kind, color, x in (("block", "red", 0.1), ("block", "blue", 0.8), ("ball", "red", 0.5))
    )
    scene = Scene(np.zeros((64, 64, 3), np.uint8), things, np.zeros((16, 16), np.uint8))
    write_shard(shard_path(tmp_path, "test", 0, 0), [scene, scene])
    words = ["eval", "tabletop", "--tabletop", str(tmp_path), "--json", "--model", str(model)]
    assert main([*words, "--per-image", "1"]) == 0
    result = json.loads(capsys.readouterr().out)
    parts = ["clear", "ambiguity", "interactive", "absent"]
    assert list(result) == [*parts, "slices", "worst", "made_by"]
    assert [result[part]["n"] for part in parts] == [2, 4, 2, 2]
    # It always points, so it never asks: every ambiguous request was missed.
    assert result["ambiguity"]["recall"] == 0.0
    assert result["interactive"]["questions"] == 0.0
    shard_path(tmp_path, "test", 0, 0).write_bytes(b"broken")
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "test-0-0000.npz" in line


def test_bench_compares_with_plain_transformers_in_tables_and_json(
    pointing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "speed.json"
    words = ["bench", "--model", str(pointing), "--repeats", "1", "--starts", "0", "--markdown"]
    assert main([*words, "--requests", "1", "--out", str(out)]) == 0
    result = json.loads(out.read_text())
    assert result["versions"]["torch"] == torch.__version__
    assert "gpu_memory" not in result
    rows = ("p_amb, detector", "p_amb, both", "first answer, box", "first answer, question")
    assert list(result["rows"]) == [*rows, "later turn, box", "two turns"]
    for row in result["rows"].values():
        assert row["to_plain"][0] == pytest.approx(row["ours_ms"] / row["plain_ms"], rel=0.02)
    assert list(result["costs"]["views"]) == ["1", "3", "5"]
    assert all(part["least_ms"] > 0 for part in result["floor"]["parts"].values())
    replies = result["floor"]["replies"]
    assert {*replies} == {"first answer, box, 3 views", *result["rows"]} - {
        "two turns",
        "p_amb, both",
    }
    for reply in replies.values():
        assert reply["to_least"] == pytest.approx(
            reply["measured_ms"] / reply["least_ms"], abs=0.01
        )
    printed = capsys.readouterr().out
    assert "| first answer, box | " in printed
    assert "| first answer, box, 3 views | " in printed


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_bench_measures_every_contender_on_a_gpu(pointing: Path, tmp_path: Path) -> None:
    out = tmp_path / "speed.json"
    words = ["bench", "--device", "cuda", "--repeats", "1", "--starts", "0", "--requests", "1"]
    assert main([*words, "--model", str(pointing), "--out", str(out)]) == 0
    result = json.loads(out.read_text())
    assert result["device"] == torch.cuda.get_device_name()
    assert (result["dtype"], result["best_dtype"]) == ("bfloat16", "bfloat16")
    for taken in result["gpu_memory"].values():
        assert taken["held"] > 0
        assert taken["beside"] > 0
    assert all(reply["to_least"] > 1 for reply in result["floor"]["replies"].values())


def test_random_weights_are_the_same_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = replace(random_models.SIZES["300m"], vision_layers=1, layers=2, width=64, mlp=64)
    sizes = replace(sizes, tokens=16, vision_width=64, vision_mlp=64, vocab=4096, heads=4)
    monkeypatch.setitem(random_models.SIZES, "300m", sizes)
    folders = [
        random_models.write_random_model(tmp_path / name, "300m", torch.bfloat16) for name in "ab"
    ]
    for name in ("model.safetensors", "ivg/adapter_model.safetensors"):
        one, other = (read_tensors(folder / name) for folder in folders)
        assert all(torch.equal(weight, other[key]) for key, weight in one.items())
        assert name.startswith("ivg") or {w.dtype for w in one.values()} == {torch.bfloat16}


def test_transformers_at_its_best_answers_in_float32_and_in_bfloat16(tmp_path: Path) -> None:
    """As every contender of `clue bench`: two types of one model, with a stem."""
    folder = write_random_model(tmp_path / "model", conv_stem=SMALL_STEM)
    bench = Bench(folder, "float32", "float32", None, REQUESTS[:1])
    request = REQUESTS[0]
    image = bench.images[request.image]
    chances = {name: best.probability(image, request.clear) for name, best in bench.bests.items()}
    assert bench.best is bench.bests[bench.best_dtype]
    assert [*chances] == ["float32", "bfloat16"]
    assert chances["bfloat16"] == pytest.approx(chances["float32"], abs=0.1)
    for name, best in bench.bests.items():
        assert str(best.base.dtype) == f"torch.{name}"
        assert len(best.reply(image, request.clear, 3)) == 3


def test_records_that_cannot_be_written_are_one_line(
    pointing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "it2p", "--data", str(write_it2p(tmp_path)), "--limit", "1", "--model"]
    assert main([*words, str(pointing), "--records", "/no/such/folder/r.jsonl"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "/no/such/folder/r.jsonl" in line
    assert main([*words, str(pointing), "--limit", "0"]) == 2
    assert "--limit: must be 1 or more" in capsys.readouterr().err
    worst = ["eval", "tabletop", "--world", "rich", "--worst", str(tmp_path / "worst.pdf")]
    assert main(worst) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "worst.pdf" in line
    assert ".png" in line


def test_help_needs_no_pytorch() -> None:
    check = (
        "import sys; from clue_ros.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'transformers' not in sys.modules"
    )
    for words in (
        [],
        ["--help"],
        ["train", "--help"],
        ["ground", "--help"],
        ["eval", "it2p", "-h"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", check, *words],
            capture_output=True,
            text=True,
            env=environment(),
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_a_reader_that_leaves_is_no_crash() -> None:
    command = f"{sys.executable} -m clue_ros.cli --help"
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command.split(),
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        timeout=120,
        check=False,
    )
    os.close(writer)
    assert done.stderr == ""
    assert done.returncode == 141
