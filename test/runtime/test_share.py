"""`clue share`: a folder that others can load, by clue_ros, and by peft as its card says."""

from __future__ import annotations

import json
import re
import shutil
import stat
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import PeftModel
from tiny_model import SMALL_STEM, write_random_model
from transformers import AutoModelForImageTextToText, AutoProcessor
from transformers.models.paligemma.modeling_paligemma import PaliGemmaForConditionalGeneration

from clue_ros.cli import main
from clue_ros.engine import Clue
from clue_ros.model.checkpoint import load_checkpoint
from clue_ros.model.share import share

IMAGE = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)


def adapters_of(model: Path, folder: Path) -> Path:
    """A folder of the adapters alone, of a base in a folder of this machine."""
    for part in ("detector", "ivg"):
        shutil.copytree(model / part, folder / part)
        path = folder / part / "adapter_config.json"
        config = json.loads(path.read_text()) | {"base_model_name_or_path": str(model)}
        path.write_text(json.dumps(config))
    return folder


def test_the_card_loads_both_adapters_by_peft_alone(random_model: Path, tmp_path: Path) -> None:
    adapters = adapters_of(random_model, tmp_path / "mine")
    shared, base = tmp_path / "shared", "owner/base@v1"
    share(adapters, shared, "me/adapters", base)
    card = (shared / "README.md").read_text()
    header = card.split("---")[1]
    assert "library_name: peft" in header
    assert "base_model: owner/base\n" in header
    for part in ("detector", "ivg"):
        config = json.loads((shared / part / "adapter_config.json").read_text())
        assert (config["base_model_name_or_path"], config["revision"]) == ("owner/base", "v1")
    # What the card says, with the folders of this test in place of the hub's names.
    (code,) = re.findall(r"peft alone:\n\n((?:    .*\n|\n)+)", card)
    code = "\n".join(line.removeprefix("    ") for line in code.splitlines())
    code = code.replace(', revision="v1"', "")
    code = code.replace('"owner/base"', repr(str(random_model)))
    code = code.replace('"me/adapters"', repr(str(shared)))
    made: dict[str, object] = {}
    exec(code, made)  # noqa: S102 - the card's own lines
    model, processor = made["model"], made["processor"]
    assert isinstance(model, PeftModel)
    assert set(model.peft_config) == {"detector", "ivg"}
    ours = load_checkpoint(random_model, device="cpu", backend="torch", dtype="float32")
    prefill = ours.read(ours.look(IMAGE), "the block")
    inputs = processor(  # type: ignore[operator]
        images=IMAGE, text="<image>clarify the block", return_tensors="pt"
    )
    with torch.no_grad():
        theirs = model.eval()(**inputs).logits[0, -1]
    np.testing.assert_allclose(theirs.numpy(), prefill.logits[0], atol=1e-3)


def test_a_whole_model_is_shared_without_what_is_its_owners(tmp_path: Path) -> None:
    model = write_random_model(tmp_path / "model", conv_stem=SMALL_STEM)
    (model / "words").mkdir()
    (model / "words" / "mug.json").write_text("{}")
    path = model / "detector" / "detector.json"
    notes = json.loads(path.read_text())
    path.write_text(json.dumps(notes | {"training": {"init": "/home/ann/first", "steps": 3}}))
    (model / "README.md").write_text("---\nlicense: x\n---\n\nOf our lab.\n")
    shared = tmp_path / "shared"
    words = ["share", str(model), "--name", "me/mine", "--out", str(shared)]
    assert main(words) == 0
    card = (shared / "README.md").read_text()
    assert "license: x" not in card
    assert "Of our lab." in card
    assert "| training: steps | 3 |" in card
    assert not (shared / "words").exists()
    assert "/home/ann" not in card + (shared / "detector" / "detector.json").read_text()
    same = [Clue.load(f, device="cpu").ambiguity(Clue.load(f).look(IMAGE), "the block")
            for f in (model, shared)]  # fmt: skip
    assert same[0].probability == same[1].probability
    # transformers' own loader makes the class that the card imports
    loaded = AutoModelForImageTextToText.from_pretrained(shared)
    assert type(loaded).__name__ == "PaliGemmaWithStem"
    processor = AutoProcessor.from_pretrained(shared)
    pixels = processor.image_processor(IMAGE, return_tensors="pt")["pixel_values"]
    ours = load_checkpoint(model, device="cpu", backend="torch", dtype="float32")
    with torch.no_grad():
        features = loaded.model.get_image_features(pixels).pooler_output
    np.testing.assert_allclose(features.numpy(), ours.look(IMAGE), atol=1e-4)


def test_a_plain_model_keeps_the_class_of_transformers(random_model: Path) -> None:
    loaded = AutoModelForImageTextToText.from_pretrained(random_model)
    assert type(loaded) is PaliGemmaForConditionalGeneration


def test_what_cannot_be_shared_is_said_in_one_line(
    random_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    adapters, out = adapters_of(random_model, tmp_path / "mine"), tmp_path / "out"
    for words, says in (
        ([str(adapters), "--name", "me/x"], "give the base's hub id with --base"),
        ([str(adapters), "--name", "x", "--base", "a/b"], "'x' is no name on the hub"),
        ([str(adapters), "--name", "me/x", "--base", "here"], "'here' is no name on the hub"),
        ([str(tmp_path), "--name", "me/x"], "nothing to share"),
    ):
        assert main(["share", *words, "--out", str(out)]) == 2
        assert says in capsys.readouterr().err
        assert not out.exists()
    assert main(["share", str(random_model), "--name", "me/x", "--out", str(tmp_path)]) == 2
    assert "there and not empty" in capsys.readouterr().err


def test_nothing_is_pushed_without_a_login(
    random_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    words = ["share", str(random_model), "--name", "me/x", "--out", str(tmp_path / "out"), "--push"]
    assert main(words) == 2
    assert "nobody is logged in to the hub" in capsys.readouterr().err
    assert (tmp_path / "out" / "README.md").is_file()


def test_weights_have_the_mode_that_the_umask_gives(random_model: Path) -> None:
    for path in random_model.rglob("*.safetensors"):
        if path.parent != random_model:  # written by this project, not by transformers
            assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(
                (path.parent / "adapter_config.json").stat().st_mode
            )
