"""Fused products give what the plain operations give, and mixed precision stays near float32."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional

from clue_ros.dialogue.types import Dialogue, Grounding
from clue_ros.engine import Clue
from clue_ros.model import devices, fast_decoder, products
from clue_ros.model.products import Product, attention_with, capped_product

ROWS = (1, 5, 340)


@pytest.fixture(params=["fused", "split", "plain"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With oneDNN's operations, as on a CPU without AVX512, and as on a machine without them."""
    monkeypatch.setattr(products, "has_wide_vectors", lambda: request.param != "split")
    if request.param == "plain":
        monkeypatch.setattr(products, "is_fused", lambda _dtype: False)
    elif not products.is_fused(torch.float32):
        pytest.skip("this PyTorch has no fused products")
    return str(request.param)


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(
    ("dtype", "close"), [(torch.float32, 1e-5), (torch.bfloat16, 0.02), (torch.float16, 0.01)]
)
def test_a_product_is_the_linear_layer(
    rows: int, dtype: torch.dtype, close: float, fresh_seed: int
) -> None:
    torch.manual_seed(fresh_seed)
    hidden, weight, bias = torch.randn(2, rows, 48), torch.randn(40, 48) / 7, torch.randn(40)
    plain = functional.linear(hidden, weight, bias)
    with torch.inference_mode():
        for pack in (False, True):
            product = Product(weight.to(dtype), bias.to(dtype), pack=pack)
            out, gelu = product(hidden), product.gelu(hidden)
            assert out.dtype is gelu.dtype is torch.float32
            torch.testing.assert_close(out, plain, rtol=close, atol=close)
            expected = functional.gelu(plain, approximate="tanh")
            torch.testing.assert_close(gelu, expected, rtol=close, atol=close)


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("rows", ROWS)
def test_a_capped_product_is_the_softcap_of_it(rows: int, fresh_seed: int) -> None:
    torch.manual_seed(fresh_seed)
    left, right = torch.randn(4, rows, 24), torch.randn(4, 24, 77).transpose(1, 2)
    with torch.inference_mode():
        found = capped_product(left, right, 50.0)
        larger = capped_product(100 * left, right, 50.0)
    expected = 50 * torch.tanh(left @ right.transpose(1, 2))
    torch.testing.assert_close(found, expected, rtol=2e-6, atol=1e-5)
    assert larger.abs().max() == 50
    assert larger.isfinite().all()


@pytest.mark.usefixtures("kind")
@pytest.mark.parametrize("cached", [1, 2 * 70**2, products.CACHED])
def test_attention_is_that_of_pytorch(
    cached: int, monkeypatch: pytest.MonkeyPatch, fresh_seed: int
) -> None:
    """However many heads are computed at a time."""
    monkeypatch.setattr(products, "CACHED", cached)
    torch.manual_seed(fresh_seed)
    for dtype, close in ((torch.float32, 1e-5), (torch.bfloat16, 0.02)):
        mixed = torch.randn(2, 70, 3, 3, 16)  # heads as views of one product, as the tower's are
        queries, keys, values = (part.to(dtype).transpose(1, 2) for part in (3 * mixed).unbind(2))
        with torch.inference_mode():
            found = attention_with(keys)(queries, keys, values)
        q, k, v = (part.double() for part in (queries, keys, values))
        expected = functional.scaled_dot_product_attention(q, k, v)
        assert found.dtype is dtype
        error = (found.double() - expected).square().mean().sqrt() / expected.std()
        assert float(error) < close


def test_operations_that_are_missing_or_wrong_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_arguments: object) -> torch.Tensor:
        raise AttributeError("no such operation")

    def wrong(rows: torch.Tensor, weight: torch.Tensor, *_arguments: object) -> torch.Tensor:
        return rows @ weight.T

    for fake in (missing, wrong):
        with monkeypatch.context() as patch:
            patch.setattr(torch.ops.mkldnn, "_linear_pointwise", fake)
            products.is_fused.cache_clear()
            assert not products.is_fused(torch.float32)
        products.is_fused.cache_clear()


@pytest.mark.parametrize("fast", [True, False])
def test_auto_is_mixed_where_the_cpu_multiplies_faster_in_bfloat16(
    random_model: Path, monkeypatch: pytest.MonkeyPatch, fast: bool
) -> None:
    monkeypatch.setattr(devices, "has_fast_bfloat16", lambda: fast)
    kinds = {name: Clue.load(random_model, device="cpu", dtype=name).dtype for name in
             ("auto", "mixed", "float32", "bfloat16")}  # fmt: skip
    wanted = {"mixed": "mixed", "float32": "float32", "bfloat16": "bfloat16"}
    assert kinds == {"auto": "mixed" if fast else "float32", **wanted}
    assert not devices.wants_mixed("auto", torch.device("cuda"))


@pytest.mark.parametrize("large", [False, True])
def test_mixed_precision_stays_near_float32(
    random_model: Path, monkeypatch: pytest.MonkeyPatch, fresh_seed: int, large: bool
) -> None:
    """large: of a decoder too large to be merged, whose adapters stay beside its weights."""
    if large:
        monkeypatch.setattr(fast_decoder, "MERGED_BYTES", 0)
    exact, mixed = (Clue.load(random_model, device="cpu", dtype=d) for d in ("float32", "mixed"))
    assert mixed.dtype == "mixed"
    assert mixed.memory_bytes() < exact.memory_bytes() * (0.8 if large else 1.0)
    rng = np.random.default_rng(fresh_seed)
    for text in ("pick up the red block", "the cup on the left"):
        image = rng.integers(0, 256, (60, 80, 3), np.uint8)
        judged, replies = [], []
        for clue in (exact, mixed):
            view = clue.look(image)
            judged.append(clue.ambiguity(view, text))
            reply = clue.reply(view, Dialogue(text), force_grounding=True)
            assert isinstance(reply, Grounding)
            replies.append(reply)
        one, other = judged
        assert one.probability == pytest.approx(other.probability, abs=0.02)
        assert not np.array_equal(one.attention, other.attention)  # it is not the same arithmetic
        assert np.abs(one.attention - other.attention).max() < 0.1
        assert replies[0].score == pytest.approx(replies[1].score, abs=0.05)


def test_mixed_precision_makes_the_same_of_weights_in_16_and_in_32_bits(
    random_model: Path, tmp_path: Path, fresh_seed: int
) -> None:
    clues = []
    for dtype in (torch.bfloat16, torch.float32):
        folder = Path(shutil.copytree(random_model, tmp_path / str(dtype)))
        path = folder / "model.safetensors"
        rounded = {n: w.to(torch.bfloat16).to(dtype) for n, w in load_file(path).items()}
        save_file(rounded, path, {"format": "pt"})
        clues.append(Clue.load(folder, device="cpu", dtype="mixed"))
    small, large = clues
    assert small.memory_bytes() < large.memory_bytes()
    rng = np.random.default_rng(fresh_seed)
    for text in ("pick up the red block", "the cup on the left"):
        image = rng.integers(0, 256, (60, 80, 3), np.uint8)
        one, other = (
            clue.reply(clue.look(image), Dialogue(text), force_grounding=True) for clue in clues
        )
        assert isinstance(one, Grounding)
        assert isinstance(other, Grounding)
        assert (one.box, one.score) == (other.box, other.score)
        assert one.ambiguity.probability == other.ambiguity.probability
        assert np.array_equal(one.ambiguity.attention, other.ambiguity.attention)


def test_training_in_mixed_precision_may_be_the_first_to_ask_what_is_fused() -> None:
    products.is_fused.cache_clear()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        within = [products.is_fused(dtype) for dtype in (torch.float32, torch.bfloat16)]
    products.is_fused.cache_clear()
    assert within == [products.is_fused(dtype) for dtype in (torch.float32, torch.bfloat16)]
