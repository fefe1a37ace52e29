"""A GGUF file as a language model: written here with random weights, read by transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from tiny_language_model import END, START, TEMPLATE
from transformers.convert_slow_tokenizer import bytes_to_unicode

from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.types import Box
from clue_ros.wrapper.language_model import LanguageModel, converted_folder

gguf: Any = pytest.importorskip("gguf", reason="needs the extra wrapper")

WIDTH, WIDE, HEADS, GROUPS, BLOCKS = 32, 64, 4, 2, 2
QUANTISED = ("ffn_down", "ffn_up", "ffn_gate", "attn_v")


def write_gguf(path: Path, seed: int = 0) -> dict[str, np.ndarray]:
    """Write a small Llama in GGUF, its larger weights in 8 bits; the weights as they are read."""
    tokens = [END, START, *bytes_to_unicode().values(), "ab"]
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_block_count(BLOCKS)
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(WIDE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(GROUPS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens)
    writer.add_token_types([3, 3, *[1] * (len(tokens) - 2)])  # control, then normal
    writer.add_token_merges(["a b"])
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(1)
    writer.add_chat_template(TEMPLATE)
    rng, read = np.random.default_rng(seed), {}
    shapes = {"token_embd": (len(tokens), WIDTH), "output_norm": (WIDTH,)}
    for block in range(BLOCKS):
        own = {
            "attn_norm": (WIDTH,), "ffn_norm": (WIDTH,),
            "attn_q": (WIDTH, WIDTH), "attn_output": (WIDTH, WIDTH),
            "attn_k": (WIDTH * GROUPS // HEADS, WIDTH), "attn_v": (WIDTH * GROUPS // HEADS, WIDTH),
            "ffn_gate": (WIDE, WIDTH), "ffn_up": (WIDE, WIDTH), "ffn_down": (WIDTH, WIDE),
        }  # fmt: skip
        shapes |= {f"blk.{block}.{name}": shape for name, shape in own.items()}
    for name, shape in shapes.items():
        weight = rng.normal(0, 0.1, shape).astype(np.float32)
        if name.rsplit(".", 1)[-1] in QUANTISED:
            kind = gguf.GGMLQuantizationType.Q8_0
            packed = gguf.quants.quantize(weight, kind)
            writer.add_tensor(f"{name}.weight", packed, raw_dtype=kind)
            weight = gguf.quants.dequantize(packed, kind)
        else:
            writer.add_tensor(f"{name}.weight", weight)
        read[name] = weight
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return read


@pytest.fixture
def cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which the cache lies too."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_a_gguf_file_is_converted_once_and_chooses(cached: Path) -> None:
    path = cached / "tiny.Q8_0.gguf"
    written = write_gguf(path)
    model = LanguageModel.load(path, device="cpu", dtype="float32")
    folder = converted_folder(path)
    kept = load_file(folder / "model.safetensors")
    assert {weight.dtype for weight in kept.values()} == {torch.bfloat16}
    for block in range(BLOCKS):
        for ours, theirs in (("ffn_down", "mlp.down_proj"), ("attn_v", "self_attn.v_proj")):
            found = kept[f"model.layers.{block}.{theirs}.weight"].float()
            wanted = torch.from_numpy(written[f"blk.{block}.{ours}"])
            torch.testing.assert_close(found, wanted, rtol=0.01, atol=1e-6)
    candidates = [Candidate(Box(10.0 * i, 5, 10.0 * i + 8, 20), "mug", 0.5, "a") for i in range(4)]
    choice = model.choose(model.read(candidates, (200, 100)), "the left mug")
    total = sum(choice.probabilities) + choice.ask + choice.none
    assert total == pytest.approx(1, abs=1e-5)

    made = (folder / "config.json").stat().st_mtime_ns
    again = LanguageModel.load(path, device="cpu", dtype="float32")
    assert (folder / "config.json").stat().st_mtime_ns == made
    assert again.choose(again.read(candidates, (200, 100)), "the left mug") == choice


def test_a_changed_gguf_file_is_converted_anew(cached: Path) -> None:
    path = cached / "tiny.gguf"
    write_gguf(path, seed=0)
    LanguageModel.load(path, device="cpu", dtype="float32")
    first = converted_folder(path)
    write_gguf(path, seed=1)
    second = converted_folder(path)
    LanguageModel.load(path, device="cpu", dtype="float32")
    assert first != second
    name = "model.layers.0.mlp.down_proj.weight"
    one, other = (load_file(folder / "model.safetensors")[name] for folder in (first, second))
    assert not torch.equal(one, other)
