"""`clue check`, and loads that fail before a download, against a server that answers as the hub."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from check_machine import GB, NOBODY, Machine
from hub_server import Hub, serve

from clue_ros import memory
from clue_ros.cli import main
from clue_ros.engine import Clue
from clue_ros.errors import ClueWarning, ModelError
from clue_ros.model import devices, openvino_backbone, preflight
from clue_ros.model.checkpoint import load_checkpoint
from clue_ros.model.detector_baselines import BASELINES
from clue_ros.model.load_options import LoadOptions
from clue_ros.model.loading import Stored, find_model, read_json
from clue_ros.model.sizing import Weights

FULL = "google/paligemma2-3b-mix-448"
CONFIG = {
    "model_type": "paligemma",
    "text_config": {"model_type": "gemma2", "num_hidden_layers": 26},
    "vision_config": {"model_type": "siglip_vision_model", "image_size": 448, "patch_size": 14},
}
FILES = {
    "config.json": json.dumps(CONFIG).encode(),
    "tokenizer.json": b"{}",
    "model-00001-of-00002.safetensors": b"w" * 10,
    "model-00002-of-00002.safetensors": b"w" * 10,
    "README.md": b"about it",
}
SIZES = {"model-00001-of-00002.safetensors": 5 * GB, "model-00002-of-00002.safetensors": GB}


def hub(files: dict[str, bytes] = FILES, **more: Any) -> Hub:
    """The full model's repository; its weights are a few bytes that the hub calls gigabytes."""
    more = {"parameters": 3_033_000_000, "sizes": SIZES, "tags": ("license:gemma",), **more}
    return Hub(FULL, files, **more)


@pytest.fixture
def machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Machine:
    return Machine(monkeypatch, tmp_path / "cache", capsys)


def test_a_gated_model_without_a_login_says_so_and_fetches_nothing(machine: Machine) -> None:
    with serve(hub(gated="manual", refuse_files=(401, "GatedRepo"))) as server:
        machine.online(server.url)
        report = machine.check("--model", FULL, "--dtype", "float32")
        assert not any("/resolve/" in path for path in server.requests)
    assert report["problems"][0].startswith(f"{FULL} is gated: accept its licence on")
    assert "hf auth login" in report["problems"][0]
    (repository,) = report["hub"]["repositories"]
    assert repository["gated"] == "manual"
    assert repository["licence"] == "gemma"
    assert repository["access"] is False
    assert report["hub"]["account"] is None
    # The hub tells of what it withholds.
    assert report["parameters"] == 3_033_000_000
    assert report["memory"]["weights"] == 4 * 3_033_000_000
    assert report["download"]["bytes"] >= 6 * GB
    names = {file["name"]: file["size"] for file in repository["files"]}
    assert names["model-00001-of-00002.safetensors"] == 5 * GB
    assert "README.md" not in names


@pytest.mark.parametrize("granted", [True, False])
def test_with_a_token_the_hub_is_asked_whether_access_was_granted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, granted: bool
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    refusal = None if granted else (403, "GatedRepo")
    with serve(hub(gated="auto", refuse_files=refusal, account="ada")) as server:
        machine.online(server.url)
        report = machine.check("--model", FULL, status=0 if granted else 2)
    assert report["hub"]["account"] == "ada"
    assert report["hub"]["repositories"][0]["access"] is granted
    assert any("gated" in problem for problem in report["problems"]) is not granted


def test_a_bad_token_is_a_note_where_it_is_not_needed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    with serve(hub()) as server:
        machine.online(server.url)
        report = machine.check("--model", FULL, status=0)
    assert any("log in again" in note for note in report["notes"])


def test_weights_that_do_not_fit_name_the_forms_that_would(machine: Machine) -> None:
    with serve(hub()) as server:
        machine.online(server.url)
        machine.memory(5 * GB)
        report = machine.check("--model", FULL, "--dtype", "float32")
        (problem,) = [text for text in report["problems"] if "weights take" in text]
        assert "12.1 GB as float32" in problem
        assert "5.0 GB free in RAM" in problem
        assert "--dtype bfloat16 --quantization nf4" in problem
        assert "--dtype bfloat16 (" not in problem  # 6.1 GB
        machine.memory(64 * GB)
        report = machine.check("--model", FULL, "--dtype", "bfloat16", status=0)
    assert report["memory"]["weights"] == 2 * 3_033_000_000
    assert 0.1 * GB < report["memory"]["activations"] < GB
    assert not any("weights take" in text for text in report["problems"])


def test_a_full_disk_is_said_before_the_download(machine: Machine) -> None:
    machine.disk(GB)
    with serve(hub()) as server:
        machine.online(server.url)
        report = machine.check("--model", FULL)
    (problem,) = [text for text in report["problems"] if "download takes 6.0 GB" in text]
    assert "HF_HOME" in problem
    assert report["download"]["free"] == GB


@pytest.mark.parametrize(
    ("files", "name", "expected"),
    [
        ({"config.json": b'{"model_type": "bert"}'}, FULL, "type bert"),
        ({"README.md": b"hello", "x.json": b"{}"}, FULL, "neither a model"),
        ({"config.json": FILES["config.json"], "pytorch_model.bin": b""}, FULL, "no safetensors"),
        (FILES, f"{FULL}@v2", "has no revision 'v2'"),
        (FILES, "google/another", "no model google/another on the hub"),
    ],
)
def test_what_is_no_paligemma_is_refused(
    machine: Machine, files: dict[str, bytes], name: str, expected: str
) -> None:
    with serve(hub(files)) as server:
        machine.online(server.url)
        report = machine.check("--model", name)
        assert not any("/resolve/" in p and "safetensors" in p for p in server.requests)
    assert expected in report["problems"][0]


def test_without_a_network_what_is_in_the_cache_is_checked(
    machine: Machine, random_model: Path
) -> None:
    files = {
        path.relative_to(random_model).as_posix(): path.read_bytes()
        for path in random_model.rglob("*")
        if path.is_file() and path.suffix in (".json", ".safetensors")
    }
    assert "the hub cannot be reached" in machine.check("--model", FULL)["problems"][0]
    with serve(Hub(FULL, files)) as server:
        machine.online(server.url)
        before = machine.check("--model", FULL, status=0)
        find_model(FULL)
        after = machine.check("--model", FULL, status=0)
    assert before["download"]["bytes"] == sum(map(len, files.values()))
    assert after["download"]["bytes"] == 0
    assert before["policy"] == after["policy"] == "detector", "no fit of policy both"
    assert before["parameters"] == after["parameters"] > 0
    assert before["memory"]["weights"] == after["memory"]["weights"] > 0
    assert before["memory"]["adapters"] == after["memory"]["adapters"] > 0
    machine.online(NOBODY)
    unreachable = machine.check("--model", FULL, status=0)
    machine.offline()
    for report in (unreachable, machine.check("--model", FULL, status=0)):
        assert any("cannot be reached" in note for note in report["notes"])
        assert report["memory"]["weights"] == after["memory"]["weights"]


@pytest.mark.parametrize(
    ("memory_size", "disk_size", "choices", "expected"),
    [
        (5 * GB, 64 * GB, {"dtype": "float32"}, "the weights take 12.1 GB"),
        (64 * GB, GB, {}, "the download takes 6.0 GB"),
        (64 * GB, 64 * GB, {"ivg": "/no/such"}, "no folder /no/such with adapter B"),
        (64 * GB, 64 * GB, {"mask_decoder": "/no/such"}, "no mask decoder /no/such"),
        (64 * GB, 64 * GB, {"dtype": "float8"}, "dtype 'float8' is unknown"),
    ],
)
def test_a_load_fails_before_the_download_for_what_can_be_known(
    machine: Machine, memory_size: int, disk_size: int, choices: dict[str, str], expected: str
) -> None:
    machine.memory(memory_size)
    machine.disk(disk_size)
    with serve(hub()) as server:
        machine.online(server.url)
        with pytest.raises(ModelError, match=expected):
            Clue.load(FULL, device="cpu", **choices)
        assert not any("tokenizer.json" in path for path in server.requests)


# -------------------------------------------------------------------------------------------------
# Without a hub.


def test_the_embedded_model_would_load(
    machine: Machine, capsys: pytest.CaptureFixture[str]
) -> None:
    report = machine.check(status=0)
    assert report["works"]
    assert report["policies"] == ["zero-shot", "detector", "decoder", "both"]
    assert report["download"]["bytes"] == 0
    assert {"openvino", "tokenizers"} <= report["versions"].keys()
    assert "torch" not in report["versions"], "OpenVINO needs none"
    assert main(["check", "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    assert "would load" in text
    assert "would not load" not in text


def test_an_adapter_that_cannot_be_right_is_a_problem(
    machine: Machine, random_model: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(random_model, tmp_path / "model"))
    path = folder / "ivg" / "adapter_config.json"
    config = {**read_json(path), "modules_to_save": ["multi_modal_projector"]}
    path.write_text(json.dumps(config))
    weights = folder / "detector" / "adapter_model.safetensors"
    weights.rename(weights.with_suffix(".bin"))
    told = " ".join(machine.check("--model", folder)["problems"])
    assert f"{path}: modules_to_save is ['multi_modal_projector']" in told
    assert "only adapter_model.bin, a pickle" in told


def test_missing_files_and_devices_are_problems(
    machine: Machine, random_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(random_model, folder)
    (folder / "ivg" / "adapter_model.safetensors").unlink()
    (folder / "model.safetensors").write_bytes(b"cut")
    report = machine.check("--model", folder, "--detector", "/no/such")
    told = " ".join(report["problems"])
    assert "ivg has no adapter_model.safetensors" in told
    assert "cut short or broken" in told
    assert "no folder /no/such" in told
    assert "cannot be used" in machine.check("--device", "cuda:77")["problems"][0]
    assert "no model" in machine.check("--model", "nonsense")["problems"][0]
    assert "unknown" in machine.check("--dtype", "float8")["problems"][0]


def test_one_adapter_alone_has_its_policies(
    machine: Machine, random_model: Path, tmp_path: Path
) -> None:
    for missing, policies in (
        ("ivg", ["zero-shot", "detector"]),
        ("detector", ["zero-shot", "detector", "decoder"]),
    ):
        folder = tmp_path / missing
        shutil.copytree(random_model, folder)
        shutil.rmtree(folder / missing)
        report = machine.check("--model", folder, status=0)
        assert (
            report["policies"] == list(load_checkpoint(folder, device="cpu").policies) == policies
        )


def test_adapters_alone_bring_the_base_that_they_name(
    machine: Machine, random_model: Path, tmp_path: Path
) -> None:
    for name in ("detector", "ivg"):
        shutil.copytree(random_model / name, tmp_path / name)
        path = tmp_path / name / "adapter_config.json"
        content = {**read_json(path), "base_model_name_or_path": str(random_model)}
        path.write_text(json.dumps(content))
    report = machine.check("--model", tmp_path, status=0)
    assert report["folder"] == str(random_model)
    assert report["parameters"] > 0


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_counted_weights_are_those_that_a_loaded_model_holds(dtype: str) -> None:
    options = LoadOptions("household", device="cpu", dtype=dtype, backend="torch")
    counted = preflight.inspect_model(options).memory
    assert counted.weights is not None
    held = Clue.load(options).memory_bytes()
    assert counted.weights + counted.adapters == pytest.approx(held, rel=0.02)


@pytest.mark.parametrize(("dtype", "size"), [("float32", 4), ("mixed", 2)])
def test_copies_that_adapters_are_merged_into_count_unless_the_decoder_is_too_large(
    monkeypatch: pytest.MonkeyPatch, dtype: str, size: int
) -> None:
    options = LoadOptions("household", device="cpu", backend="openvino", dtype=dtype)
    whole = preflight.inspect_model(options).memory.weights
    monkeypatch.setattr(openvino_backbone, "MERGED_BYTES", 0)
    once = preflight.inspect_model(options)
    assert once.parts[0].sizes is not None
    header = once.parts[0].sizes.header or {}
    names = [name for name in header if "language_model" in name and "_proj" in name]
    copy = size * sum(math.prod(header[name].shape) for name in names)
    assert whole is not None
    assert once.memory.weights is not None
    assert whole - once.memory.weights == 2 * copy > 0


def test_auto_leaves_a_large_decoder_to_torch_and_keeps_an_export(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["export", str(random_model), "--out", str(tmp_path / "small")]) == 0
    monkeypatch.setattr(openvino_backbone, "MERGED_BYTES", 0)
    for folder, engine in ((random_model, "torch"), (tmp_path / "small", "openvino")):
        report = preflight.inspect_model(LoadOptions(folder, device="cpu"))
        assert (report.problems, report.backend) == ([], engine)
        loaded = load_checkpoint(folder, device="cpu").backbone
        assert type(loaded).__module__ == f"clue_ros.model.{engine}_backbone"


def test_an_export_counts_a_byte_a_weight_of_the_decoder(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["export", str(random_model), "--out", str(tmp_path / "small")]) == 0
    monkeypatch.setattr(openvino_backbone, "MERGED_BYTES", 0)
    options = LoadOptions(tmp_path / "small", device="cpu", dtype="float32")
    small = preflight.inspect_model(options)
    assert small.problems == []
    held = load_checkpoint(tmp_path / "small", dtype="float32").memory_bytes()
    assert small.memory.weights is not None
    assert small.memory.weights + small.memory.adapters == pytest.approx(held, rel=0.02)
    monkeypatch.undo()  # an export is merged into no copies, however small
    again = preflight.inspect_model(options)
    assert again.memory.weights == small.memory.weights
    torch_alone = LoadOptions(tmp_path / "small", device="cpu", backend="torch")
    assert "OpenVINO alone runs" in preflight.inspect_model(torch_alone).problems[0]


def test_quantised_weights_are_those_of_the_decoders_projections() -> None:
    shapes = {
        "language_model.model.layers.0.self_attn.q_proj.weight": (64, 64),
        "language_model.model.layers.0.input_layernorm.weight": (64,),
        "language_model.model.embed_tokens.weight": (10, 64),
        "vision_tower.encoder.layers.0.self_attn.q_proj.weight": (64, 64),
    }
    weights = Weights({name: Stored(shape, "F32") for name, shape in shapes.items()})
    others = 2 * (64 + 640 + 4096)
    assert weights.bytes_in("bfloat16", "none") == 2 * 4096 + others
    assert weights.bytes_in("bfloat16", "int8") == 4096 + others
    assert weights.bytes_in("bfloat16", "nf4") == round(4096 * 0.51587) + others


@pytest.mark.parametrize(
    ("part", "sizes"),
    [
        ("text_config", {"num_hidden_layers": 10**9}),
        ("text_config", {"hidden_size": 10**7}),
        ("vision_config", {"patch_size": 0}),
        ("vision_config", {"conv_stem": {"first": 8, "stages": [[10**9, 3, 1, 1, 8]], "read": []}}),
    ],
)
def test_sizes_that_no_model_has_are_refused_at_once(
    machine: Machine, random_model: Path, tmp_path: Path, part: str, sizes: dict[str, Any]
) -> None:
    folder = shutil.copytree(random_model, tmp_path / "model")
    config = read_json(folder / "config.json")
    config[part].update(sizes)
    (folder / "config.json").write_text(json.dumps(config))
    begin = time.perf_counter()
    (problem,) = machine.check("--model", folder)["problems"]
    assert problem.startswith(f"{folder / 'config.json'}: ")
    assert "want 1 to 10" in problem
    with pytest.raises(ModelError, match="want 1 to 10"):
        load_checkpoint(folder, device="cpu")
    assert time.perf_counter() - begin < 5


def test_fake_small_gpu_means_the_cpu_where_any_device_will_do(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "GPUS", (str(tmp_path),))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "FAKE")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (1000, 2000))
    monkeypatch.setattr(openvino_backbone, "has_fast_bfloat16", lambda: False)
    report = preflight.inspect_model(LoadOptions(random_model))
    assert (report.device, report.dtype, report.problems) == ("cpu", "float32", [])
    assert any("free on the GPU" in note and "CPU" in note for note in report.notes)
    monkeypatch.setattr(devices, "choose_device", torch.device)
    report = preflight.inspect_model(LoadOptions(random_model, device="cuda"))
    assert "free on the GPU" in report.problems[0]


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("dtype", ["auto", "mixed", "float32", "bfloat16"])
@pytest.mark.parametrize("tanh", [True, False])
def test_the_number_format_is_that_of_the_loaded_model(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fast: bool, dtype: str,
    tanh: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(openvino_backbone, "has_fast_bfloat16", lambda: fast)
    folder = shutil.copytree(random_model, tmp_path / "model")
    if not tanh:  # an activation that is left to transformers
        config = read_json(folder / "config.json")
        config["text_config"]["hidden_activation"] = "relu"
        (folder / "config.json").write_text(json.dumps(config))
    report = preflight.inspect_model(LoadOptions(folder, device="cpu", dtype=dtype))
    with contextlib.nullcontext() if tanh else pytest.warns(ClueWarning, match="torch does"):
        clue = Clue.load(folder, device="cpu", dtype=dtype, policy="detector")
    assert report.dtype == clue.dtype
    assert any("torch does" in note for note in report.notes) is not tanh
    mixed = dtype in ("mixed", "bfloat16") or (dtype == "auto" and fast)
    assert report.dtype == (
        "mixed" if tanh and mixed else "bfloat16" if dtype == "bfloat16" else "float32"
    )


def test_a_window_that_a_prompt_does_not_fit_into_is_left_to_torch(
    random_model: Path, tmp_path: Path
) -> None:
    """As of a model for pictures of 896 pixels: 4096 image tokens and a window of 4096."""
    folder = shutil.copytree(random_model, tmp_path / "model")
    config = read_json(folder / "config.json")
    config["text_config"]["sliding_window"] = 64
    (folder / "config.json").write_text(json.dumps(config))
    report = preflight.inspect_model(LoadOptions(folder, device="cpu"))
    assert any("window of 64 tokens" in note for note in report.notes)
    report = preflight.inspect_model(LoadOptions(folder, device="cpu", backend="openvino"))
    assert "window of 64 tokens" in report.problems[0]


def test_without_openvino_the_message_says_how_to_get_it(
    random_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(ModelError, match=r"OpenVINO is missing .*: pip install openvino"):
        load_checkpoint(random_model, device="cpu")


@pytest.mark.parametrize("baseline", BASELINES)
def test_a_baseline_is_a_detector_without_a_folder(
    random_model: Path, baseline: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["check", "--model", str(random_model), "--detector", baseline, "--device", "cpu"]
    assert main([*argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["problems"] == []
    assert "detector" in found["policies"]


def test_a_containers_limit_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path)
    whole = memory.available()
    assert whole is not None
    (tmp_path / "memory.max").write_text("1000000\n")
    (tmp_path / "memory.current").write_text("600000\n")
    (tmp_path / "memory.stat").write_text("anon 5\ninactive_file 100000\n")
    assert memory.available() == devices.free_memory("cpu") == 500_000
    (tmp_path / "memory.max").write_text("max\n")
    unlimited = memory.available()
    assert unlimited is not None
    assert unlimited > 500_000
