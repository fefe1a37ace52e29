"""`clue check --model wrapper`: each source of candidates and the language model.

The detectors' and language models' configurations are real; their weights are a few bytes.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import torch
from check_machine import GB, Machine
from hub_server import SHA, Hub, serve
from safetensors.torch import load_file
from tiny_language_model import write_random_language_model

from clue_ros.cli import main
from clue_ros.errors import ModelError
from clue_ros.model.loading import read_json, write_json
from clue_ros.wrapper import preflight
from clue_ros.wrapper.grounder import Wrapper
from clue_ros.wrapper.language_model import LanguageModel, converted_folder

DINO = "IDEA-Research/grounding-dino-tiny"
LLAMA = "meta-llama/Meta-Llama-3-8B-Instruct"
DETECTOR_FILES = {
    "config.json": json.dumps({"model_type": "grounding-dino"}).encode(),
    "preprocessor_config.json": b"{}",
    "tokenizer.json": b"{}",
    "model.safetensors": b"w" * 10,
    "onnx/config.json": b"{}",
}
SIZES = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
         "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256}  # fmt: skip
LLAMA_FILES = {
    "config.json": json.dumps({"model_type": "llama", **SIZES}).encode(),
    "tokenizer.json": b"{}",
    "model-00001-of-00002.safetensors": b"w" * 10,
    "model-00002-of-00002.safetensors": b"w" * 10,
    "original/consolidated.safetensors": b"w" * 99,
}
LLAMA_SIZES = {f"model-0000{n}-of-00002.safetensors": 8 * GB for n in (1, 2)}


def listed(image: Any, nouns: Any) -> list[Any]:
    """For python:test_check_wrapper:listed."""
    return []


@pytest.fixture
def machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Machine:
    return Machine(monkeypatch, tmp_path / "cache", capsys)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_language_model(tmp_path_factory.mktemp("lm"))


def packages(monkeypatch: pytest.MonkeyPatch, versions: Mapping[str, str | None]) -> None:
    """Have these versions of packages; None: not installed."""
    real = metadata.version

    def version(name: str) -> str:
        found = versions[name] if name in versions else real(name)
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(metadata, "version", version)


def check(machine: Machine, *words: object, status: int = 2) -> dict[str, Any]:
    return machine.check("--model", "wrapper", *words, status=status)


def test_without_choices_it_is_the_embedded_base_and_rules(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    report = check(machine, status=0)
    (source,) = report["candidates"]
    assert (source["name"], source["kind"]) == ("base:household", "base")
    assert source["parameters"] > 1e6
    assert report["language_model"]["kind"] == "rules"
    assert report["memory"]["needed"] > source["weights"]
    assert {"scipy", "gguf", "sentencepiece", "bitsandbytes", "timm"} <= report["versions"].keys()
    assert main(["check", "--model", "wrapper", "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    assert "candidates   base:household: paligemma" in text
    assert "would load" in text


def test_each_source_that_cannot_be_used_is_a_problem_of_its_own(
    machine: Machine, tmp_path: Path
) -> None:
    broken = tmp_path / "boxes.json"
    broken.write_text("{")
    (tmp_path / "empty").mkdir()
    lines = {
        "yolo:x": "want KIND:ARGUMENT",
        f"json:{broken}": "cannot read the candidates",
        "python:os:nope": "no function 'nope'",
        "python:no_such_module:find": "PYTHONPATH",
        "topic:two words": "no name of a ROS topic",
        f"grounding-dino:{tmp_path / 'empty'}": "has no config.json",
        "grounding-dino:/no/such": "no folder and no hub id",
        "base:nonsense": "no model 'nonsense'",
    }
    report = check(machine, *(word for line in lines for word in ("--candidates", line)))
    for line, problem in lines.items():
        assert any(line in said and problem in said for said in report["problems"]), line
    assert len(report["candidates"]) == len(lines) - 1


def test_files_functions_and_topics_are_described(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "find_spec", lambda name: None)  # no ROS here
    path = tmp_path / "boxes.json"
    path.write_text(json.dumps([{"box": [1, 2, 3, 4], "label": "mug"}]))
    words = ["--candidates", f"json:{path}", "--candidates", "python:test_check_wrapper:listed",
             "--candidates", "topic:/yolo", "--candidates", "topic:/asked@clue_msgs"]  # fmt: skip
    report = check(machine, *words, status=0)
    facts = [source["facts"] for source in report["candidates"]]
    assert facts[0] == ["1 box"]
    assert facts[1] == ["callable"]
    missing = ["vision_msgs not found", "yolo_msgs not found"]
    assert facts[2] == ["read by the perception node alone", *missing]
    assert facts[3] == ["read by the perception node alone"]
    monkeypatch.setattr(preflight, "find_spec", lambda name: 1 if name == "rclpy" else None)
    report = check(machine, "--candidates", "topic:/a", "--candidates", "topic:/a@yolo_msgs")
    assert "vision_msgs is missing" in report["problems"][0]
    assert "yolo_msgs is missing: build it" in report["problems"][1]


def test_a_detector_on_the_hub_is_described_and_only_its_configuration_is_fetched(
    machine: Machine,
) -> None:
    with serve(Hub(DINO, DETECTOR_FILES, sizes={"model.safetensors": GB})) as server:
        machine.online(server.url)
        report = check(machine, "--candidates", f"grounding-dino:{DINO}", status=0)
        assert not any("tokenizer.json" in path for path in server.requests)
        owl = check(machine, "--candidates", f"owlv2:{DINO}")
    (source,) = report["candidates"]
    assert source["model_type"] == "grounding-dino"
    assert source["weights"] == GB
    assert report["download"]["bytes"] >= GB
    (repository,) = report["hub"]["repositories"]
    assert "onnx/config.json" not in {file["name"] for file in repository["files"]}
    assert any("type grounding-dino, want a owlv2" in problem for problem in owl["problems"])


def test_owlv2_without_scipy_and_a_timm_backbone_without_timm_are_problems(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages(monkeypatch, {"scipy": None, "timm": None})
    write_json(tmp_path / "config.json", {"model_type": "owlv2"})
    report = check(machine, "--candidates", f"owlv2:{tmp_path}")
    assert "package scipy is missing: scripts/install wrapper" in report["problems"][0]
    assert report["versions"]["scipy"] == "not installed"
    own = {"AutoModelForCausalLM": "modeling_florence2.Florence2ForConditionalGeneration"}
    write_json(tmp_path / "config.json", {"model_type": "florence2", "auto_map": own})
    report = check(machine, "--candidates", f"florence2:{tmp_path}")
    assert "code of its own, which is not run: take the same weights" in report["problems"][0]
    write_json(tmp_path / "config.json", {"model_type": "grounding-dino", "use_timm_backbone": 1})
    report = check(machine, "--candidates", f"grounding-dino:{tmp_path}")
    assert "needs timm" in report["problems"][0]
    assert "no model.safetensors" in report["problems"][1]


def test_a_language_models_memory_is_that_of_the_loaded_one(machine: Machine, folder: Path) -> None:
    report = check(machine, "--language-model", folder, status=0)
    chooser = report["language_model"]
    assert (chooser["kind"], chooser["model_type"]) == ("folder", "llama")
    loaded = LanguageModel.load(folder, device="cpu", dtype="float32")
    assert chooser["weights"] == loaded.memory_bytes()
    assert chooser["activations"] > 0


def test_a_language_model_on_the_hub_that_does_not_fit_names_the_forms_that_would(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages(monkeypatch, {"bitsandbytes": "1"})
    repository = Hub(LLAMA, LLAMA_FILES, sizes=LLAMA_SIZES, parameters=8_030_000_000)
    with serve(repository) as server:
        machine.online(server.url)
        machine.memory(20 * GB)
        report = check(machine, "--language-model", LLAMA)
        machine.memory(64 * GB)
        fits = check(machine, "--language-model", f"{LLAMA}@main", status=0)
    (problem,) = report["problems"]
    assert "32.2 GB" in problem
    assert "--dtype bfloat16 (16.1 GB)" in problem
    assert "nf4" in problem
    assert fits["download"]["bytes"] == 16 * GB + 2  # and tokenizer.json; config.json is here
    assert fits["language_model"]["facts"] == ["not downloaded"]


@pytest.mark.parametrize(
    ("config", "files", "expected"),
    [
        ({"model_type": "bert_of_mine"}, {}, "no causal language model"),
        ({"model_type": "llama"}, {}, "no model.safetensors"),
        ({"model_type": "llama", "num_hidden_layers": 10**9}, {}, "want 0 to 1000"),
        ({"model_type": "gpt2", "n_layer": 10**9}, {}, "n_layer is 1000000000, want 0 to 1000"),
        (
            {"model_type": "llama", "sub": {"depths": [2, 10**9]}},
            {},
            "depths is .*, want 0 to 1000",
        ),
        ({"model_type": "llama"}, {"pytorch_model.bin": b"x"}, "a pickle"),
        ({"model_type": "llama"}, {"model.safetensors": b"cut"}, "cut short or broken"),
    ],
)
def test_what_is_no_language_model_is_refused(
    machine: Machine, tmp_path: Path, config: dict[str, Any], files: dict[str, bytes], expected: str
) -> None:
    write_json(tmp_path / "config.json", config)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    report = check(machine, "--language-model", tmp_path)
    assert re.search(expected, report["problems"][0])
    assert report["problems"][0].startswith(f"language model {tmp_path}")


def test_a_language_model_without_a_tokenizer_is_refused(
    machine: Machine, folder: Path, tmp_path: Path
) -> None:
    for name in ("config.json", "model.safetensors"):
        shutil.copy(folder / name, tmp_path / name)
    report = check(machine, "--language-model", tmp_path)
    assert "has no tokenizer" in report["problems"][0]


def test_a_gguf_file_needs_its_package_until_it_is_converted(
    machine: Machine, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    packages(monkeypatch, {"gguf": None})
    path = tmp_path / "model.gguf"
    assert "there is no file" in check(machine, "--language-model", path)["problems"][0]
    path.write_bytes(b"GGUF")
    report = check(machine, "--language-model", path)
    assert "gguf is missing: scripts/install wrapper" in report["problems"][0]
    assert report["language_model"]["facts"] == ["no converted copy yet"]
    assert report["memory"]["needed"] is None
    shutil.copytree(folder, converted_folder(path))
    report = check(machine, "--language-model", path, status=0)
    assert report["language_model"]["facts"] == [f"converted copy in {converted_folder(path)}"]
    assert report["language_model"]["kind"] == "GGUF file"


def test_a_broken_gguf_file_is_named(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf", reason="needs the extra wrapper")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    report = check(machine, "--language-model", path)
    assert "cannot read" in report["problems"][0]


def write_adapter(folder: Path, base: Path) -> None:
    from peft import LoraConfig, get_peft_model

    model = LanguageModel.load(base, device="cpu", dtype="float32").model
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))
    adapted.save_pretrained(str(folder))
    write_json(folder / "wrapper.json", {"threshold": 0.3, "candidates": ["json:a.json"]})


def test_an_adapter_is_checked_with_its_base(
    machine: Machine, folder: Path, tmp_path: Path
) -> None:
    write_adapter(tmp_path, folder)
    report = check(machine, "--language-model", tmp_path, status=0)
    chooser = report["language_model"]
    assert (chooser["kind"], chooser["base"]) == ("adapter", str(folder))
    assert "LoRA of rank 2" in chooser["facts"]
    assert "trained with json:a.json" in chooser["facts"]
    assert report["memory"]["adapters"] > chooser["adapters"] > 0
    path = tmp_path / "adapter_config.json"
    write_json(path, {**read_json(path), "base_model_name_or_path": "/no/such/base"})
    problem = check(machine, "--language-model", tmp_path)["problems"][0]
    assert "/no/such/base" in problem
    (tmp_path / "adapter_model.safetensors").unlink()
    problem = check(machine, "--language-model", tmp_path)["problems"][0]
    assert "no adapter_model.safetensors" in problem


def test_an_adapter_on_the_hub_is_checked_and_loaded_with_its_settings(
    machine: Machine, folder: Path, tmp_path: Path
) -> None:
    write_adapter(tmp_path, folder)
    files = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with serve(Hub("lab/my-wrapper", files, revisions=("main", "v1", SHA))) as server:
        machine.online(server.url)
        report = check(machine, "--language-model", "lab/my-wrapper@v1", status=0)
        assert not any("adapter_model" in path for path in server.requests)
        loaded = LanguageModel.load("lab/my-wrapper@v1", device="cpu", dtype="float32")
    machine.offline()
    check(machine, "--language-model", "lab/my-wrapper@v1", status=0)  # the copy in the cache
    chooser = report["language_model"]
    assert (chooser["kind"], chooser["base"]) == ("adapter", str(folder))
    assert report["download"]["bytes"] >= chooser["adapters"] > 0
    assert loaded.settings.threshold == 0.3
    assert "lora" in str(type(loaded.model.base_model)).lower()


def test_an_adapter_of_a_bin_file_is_fetched_only_where_there_is_no_other(
    machine: Machine, folder: Path, tmp_path: Path
) -> None:
    write_adapter(tmp_path, folder)
    path = tmp_path / "adapter_model.safetensors"
    torch.save(load_file(path), tmp_path / "adapter_model.bin")
    files = {p.name: p.read_bytes() for p in tmp_path.iterdir() if p.is_file()}
    both, old = Hub("lab/both", files), Hub("lab/old", {**files})
    old.files = {name: data for name, data in files.items() if name != path.name}
    loaded = {}
    for hub in (both, old):
        with serve(hub) as server:
            machine.online(server.url)
            report = check(machine, "--language-model", hub.name, status=0)
            loaded[hub.name] = LanguageModel.load(hub.name, device="cpu", dtype="float32")
            fetched = {name.rsplit("/", 1)[-1] for name in server.requests}
        names = {file["name"] for file in report["hub"]["repositories"][0]["files"]}
        wanted, other = ("adapter_model.bin", path.name)[:: -1 if hub is both else 1]
        assert wanted in names
        assert wanted in fetched
        assert other not in names | fetched
    ones, others = (model.model.state_dict() for model in loaded.values())
    assert all(torch.equal(ones[name], others[name]) for name in ones)


def test_options_of_the_other_model_are_problems(machine: Machine, tmp_path: Path) -> None:
    report = check(machine, "--detector", tmp_path)
    assert report["problems"] == ["model 'wrapper' has no detector: leave it out"]
    report = machine.check("--candidates", "base:household")
    assert "belong to model 'wrapper'" in report["problems"][0]


def test_a_wrapper_is_refused_before_a_detector_is_downloaded(
    machine: Machine, tmp_path: Path
) -> None:
    write_json(tmp_path / "config.json", {"model_type": "bert_of_mine"})
    with serve(Hub(DINO, DETECTOR_FILES)) as server:
        machine.online(server.url)
        with pytest.raises(ModelError, match="no causal language model"):
            Wrapper.load([f"grounding-dino:{DINO}"], tmp_path, device="cpu")
        assert not any("tokenizer.json" in path for path in server.requests)
