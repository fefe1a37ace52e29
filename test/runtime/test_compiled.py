"""A compiled model replies as its model does, and says what it cannot compile."""

from pathlib import Path
from typing import Any

import pytest
import torch
from test_export import CLOSE, DIALOGUES, image, load, refuse_weights, replies, same_reply
from tiny_model import SMALL_STEM, write_random_model
from torch._inductor import cpp_builder, exc

from clue_ros.dialogue.types import Grounding, Question
from clue_ros.engine import Clue
from clue_ros.errors import ModelError
from clue_ros.model.adapters import DETECTOR, IVG
from clue_ros.model.backbone import load_backbone
from clue_ros.model.checkpoint import IvgSettings, load_checkpoint, save_ivg_settings
from clue_ros.model.compiled import compile_model
from clue_ros.model.decoding import generate
from clue_ros.model.fusion import Fusion, save_fusion, weights_digest
from clue_ros.model.graph_decoder import GraphDecoder
from clue_ros.model.prompts import encode_prompts

try:
    cpp_builder.get_cpp_compiler()
    MISSING = ""
except exc.InvalidCxxCompiler:
    MISSING = "torch.compile needs a C++ compiler on a CPU: apt install g++"
needs_compiler = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with a stem, grouped heads, two views and a fit for policy "both"."""
    folder = tmp_path_factory.mktemp("compiled") / "model"
    write_random_model(
        folder, seed=5, conv_stem=SMALL_STEM, width=64, heads=4, kv_heads=2, layers=3
    )
    save_ivg_settings(IvgSettings(max_new_tokens=6, num_views=2), folder / IVG)
    digests = [weights_digest(folder / name) for name in (DETECTOR, IVG)]
    save_fusion(Fusion(0.4, 0.6, 0.1, 0.5, *digests), folder / DETECTOR)
    return folder


@pytest.fixture(scope="module")
def clue(model: Path) -> Clue:
    if MISSING:
        pytest.skip(MISSING)
    return load(model, compile=True)


def test_every_reply_is_the_models_own(
    clue: Clue, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = replies(load(model), ["both"])
    refuse_weights(monkeypatch, ("run", "attention"))  # what takes the place of a graph
    for our, their in zip(replies(clue, ["both"]), theirs, strict=True):
        same_reply(our, their)
    assert {type(reply) for reply in theirs} == {Question, Grounding}


def test_a_batch_with_padding_is_that_of_the_model(clue: Clue, model: Path) -> None:
    contexts = ["the ball", "pick up the red block on the left"]

    def everything(parts: Any) -> tuple[torch.Tensor, list[Any]]:
        features = parts.look(image(1), image(2))
        with torch.inference_mode():
            chances, maps = parts.detector(
                features, parts.detector.prompts(parts.processor, contexts)
            )
            parts.adapters.use(IVG)
            prompts = encode_prompts(parts.processor, "clarify", contexts)
            said = generate(parts.backbone, parts.vocabulary, features, prompts, "grounding")
        return torch.cat([chances, maps.flatten()]), [each.codes for each in said]

    theirs = everything(load_checkpoint(model, "cpu", "float32"))
    ours = everything(clue.checkpoint)
    torch.testing.assert_close(ours[0], theirs[0], atol=CLOSE, rtol=CLOSE)
    assert ours[1] == theirs[1]


@needs_compiler
@pytest.mark.parametrize("dtype", ["bfloat16", "mixed"])
def test_16_bits_stay_close(model: Path, dtype: str) -> None:
    plain, ours = (load_checkpoint(model, "cpu", dtype, compile=which) for which in (False, True))
    assert isinstance(ours.backbone._fast, GraphDecoder)
    for text in ("the ball", "the red block"):
        features = plain.look(image(3))
        for parts in (plain, ours):
            torch.testing.assert_close(parts.look(image(3)), features, atol=0.05, rtol=0.05)
        chances = [parts.judge(features, text)[0] for parts in (plain, ours)]
        shares = [parts.second_opinion(features, text)[0] for parts in (plain, ours)]
        assert chances[1] == pytest.approx(chances[0], abs=0.02)
        assert shares[1] == pytest.approx(shares[0], abs=0.02)


def test_without_an_adapter_the_weights_reply(clue: Clue, model: Path) -> None:
    plain = load(model, policy="zero-shot")
    clue.policy = "zero-shot"
    try:
        ours, theirs = (each.reply(each.look(image(4)), DIALOGUES[0]) for each in (clue, plain))
    finally:
        clue.policy = "both"
    same_reply(ours, theirs)


def test_a_model_that_transformers_runs_is_refused(random_model: Path) -> None:
    parts = load_checkpoint(random_model, "cpu")
    with pytest.raises(ModelError, match="turn `compile` off"):
        compile_model(load_backbone(random_model), parts.adapters, 1)


def test_without_a_compiler_the_error_says_what_to_install(
    random_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> str:
        raise exc.InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", missing)
    with pytest.raises(ModelError, match=r"apt install g\+\+"):
        load(random_model, compile=True)
