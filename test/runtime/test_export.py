"""An export for OpenVINO replies as its model does, and says what is wrong with it."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from tiny_model import SMALL_STEM, write_random_model

from clue_ros.cli import main
from clue_ros.dialogue.types import Dialogue, Grounding, Question, Turn
from clue_ros.engine import Clue
from clue_ros.errors import ModelError
from clue_ros.model.adapters import DETECTOR, IVG
from clue_ros.model.checkpoint import IvgSettings, load_checkpoint, save_ivg_settings
from clue_ros.model.decoding import generate
from clue_ros.model.export import export_model
from clue_ros.model.exported import FOLDER, SETTINGS_FILE, ExportedBackbone, OpenVinoGraph, digest
from clue_ros.model.fast_decoder import FastDecoder
from clue_ros.model.fusion import Fusion, save_fusion, weights_digest
from clue_ros.model.prompts import encode_prompts

try:
    import openvino

    MISSING = ""
except ImportError:
    openvino = None
    MISSING = "needs the extra export"
needs_openvino = pytest.mark.skipif(openvino is None, reason=MISSING)

CLOSE = 1e-4  # of probabilities, scores and maps in float32
DIALOGUES = (
    Dialogue("pick up the red block"),
    Dialogue("the ball"),
    Dialogue("the block", [Turn("robot", "which one?"), Turn("user", "the left one")]),
)
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "stem": {"conv_stem": SMALL_STEM},
    "other sizes": {"width": 64, "heads": 8, "kv_heads": 2, "layers": 5, "image_size": 40},
}


def image(seed: int, height: int = 60, width: int = 80) -> npt.NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def exported(model: Path, out: Path, *more: str) -> Path:
    assert main(["export", str(model), "--out", str(out), *more]) == 0
    return out


@pytest.fixture(scope="module", params=KINDS)
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    """A model with a fit for policy "both" and long questions, and its export."""
    if openvino is None:
        pytest.skip(MISSING)
    top = tmp_path_factory.mktemp("pair")
    model = write_random_model(top / "model", seed=3, **KINDS[request.param])
    save_ivg_settings(IvgSettings(max_new_tokens=40, num_views=2), model / IVG)
    digests = [weights_digest(model / name) for name in (DETECTOR, IVG)]
    save_fusion(Fusion(0.4, 0.6, 0.1, 0.5, *digests), model / DETECTOR)
    return model, exported(model, top / "export")


@pytest.fixture(scope="module")
def export(random_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export of the random model; do not write to it."""
    if openvino is None:
        pytest.skip(MISSING)
    return exported(random_model, tmp_path_factory.mktemp("export") / "model")


@pytest.fixture
def copy(export: Path, tmp_path: Path) -> Path:
    """An export that a test may break."""
    return Path(shutil.copytree(export, tmp_path / "copy"))


def load(folder: Path, **settings: Any) -> Clue:
    return Clue.load(folder, **{"device": "cpu", "dtype": "float32", **settings})


def same_reply(ours: Question | Grounding, theirs: Question | Grounding) -> None:
    """Raises AssertionError unless two replies agree in everything but their time."""
    assert type(ours) is type(theirs)
    assert ours.ambiguity.probability == pytest.approx(theirs.ambiguity.probability, abs=CLOSE)
    np.testing.assert_allclose(ours.ambiguity.attention, theirs.ambiguity.attention, atol=CLOSE)
    assert [p.point for p in ours.ambiguity.peaks] == [p.point for p in theirs.ambiguity.peaks]
    if isinstance(ours, Question) and isinstance(theirs, Question):
        assert ours.text == theirs.text
        assert ours.candidates == theirs.candidates
    elif isinstance(ours, Grounding) and isinstance(theirs, Grounding):
        assert ours.box == theirs.box
        assert ours.score == pytest.approx(theirs.score, abs=CLOSE)


def replies(
    clue: Clue, policies: Sequence[str] = ("detector", "decoder", "both")
) -> list[Question | Grounding]:
    """What a model replies to each dialogue, by each policy: questions, boxes and forced boxes."""
    found = []
    for policy in policies:
        clue.policy = policy
        for number, dialogue in enumerate(DIALOGUES):
            view = clue.look(image(number))
            for threshold, force in ((0.0, False), (1.0, False), (None, True)):
                clue.threshold = threshold
                found.append(clue.reply(view, dialogue, force_grounding=force))
    return found


def refuse_weights(
    monkeypatch: pytest.MonkeyPatch, methods: Sequence[str] = ("through", "weights_at")
) -> None:
    """From here on a decoder's weights may not run: none of its methods."""

    def refuse(*_arguments: object, **_settings: object) -> torch.Tensor:
        raise AssertionError("the weights ran")

    for name in methods:
        monkeypatch.setattr(FastDecoder, name, refuse)


def test_every_reply_is_the_models_own(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = replies(load(pair[0]))
    clue = load(pair[1])
    assert isinstance(clue.checkpoint.backbone, ExportedBackbone)
    refuse_weights(monkeypatch)
    for our, their in zip(replies(clue), theirs, strict=True):
        same_reply(our, their)
    assert {type(reply) for reply in theirs} == {Question, Grounding}


def test_batches_with_padding_are_those_of_the_model(
    pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    contexts = ["the ball", "pick up the red block on the left", "the green cylinder"]

    def everything(folder: Path) -> tuple[torch.Tensor, torch.Tensor, list[Any]]:
        parts = load_checkpoint(folder, device="cpu", dtype="float32")
        if folder == pair[1]:
            refuse_weights(monkeypatch)
        features = parts.look(image(1), image(2), image(3))
        with torch.inference_mode():
            judge = parts.detector
            chances, maps = judge(features, judge.prompts(parts.processor, contexts))
            parts.adapters.use(IVG)
            prompts = encode_prompts(parts.processor, "clarify", contexts)
            said = generate(parts.backbone, parts.vocabulary, features, prompts, "grounding")
            lengths = torch.tensor([3, 1, 2])
            _, cache = parts.backbone.read(
                features[:1], encode_prompts(parts.processor, "clarify", contexts[:1]), 4
            )
            branches = parts.backbone.branches(torch.arange(6, 12), lengths, cache)
        return torch.cat([chances, maps.flatten(), branches.flatten()]), features, said

    theirs, ours = everything(pair[0]), everything(pair[1])
    torch.testing.assert_close(ours[0], theirs[0], atol=CLOSE, rtol=CLOSE)
    torch.testing.assert_close(ours[1], theirs[1], atol=CLOSE, rtol=CLOSE)
    assert [said.codes for said in ours[2]] == [said.codes for said in theirs[2]]


def test_what_has_no_graph_takes_the_weights(
    export: Path, random_model: Path, tmp_path: Path
) -> None:
    other = write_random_model(tmp_path / "other", seed=9)
    picture, dialogue = image(4), DIALOGUES[0]
    for settings in (
        {"policy": "zero-shot"},
        {"policy": "decoder", "ivg": other / IVG},
        {"policy": "detector", "detector": other / DETECTOR},
    ):
        ours, theirs = (load(folder, **settings) for folder in (export, random_model))
        same_reply(*(clue.reply(clue.look(picture), dialogue) for clue in (ours, theirs)))
    changed, own = (load(export, policy="decoder", **more) for more in ({"ivg": other / IVG}, {}))
    boxes = [
        clue.reply(clue.look(picture), dialogue, force_grounding=True) for clue in (changed, own)
    ]
    assert boxes[0] != replace(boxes[1], ambiguity=boxes[0].ambiguity)


def test_training_and_every_blocks_attention_take_transformers_model(export: Path) -> None:
    parts = load_checkpoint(export, device="cpu")
    features, prompts = (
        parts.look(image(5)),
        encode_prompts(parts.processor, "detect", ["the ball"]),
    )
    parts.adapters.use(DETECTOR, train=True)
    assert len(parts.backbone.attentions(features.clone(), prompts)) == parts.backbone.blocks
    assert not parts.backbone.is_mixed
    plain = load_checkpoint(export, device="cpu", dtype="float32")
    chance = plain.judge(features, "the ball")[0]
    assert parts.judge(features, "the ball")[0] == pytest.approx(chance, abs=CLOSE)


@needs_openvino
def test_a_model_with_one_adapter_or_none(random_model: Path, tmp_path: Path) -> None:
    for name in (DETECTOR, IVG, ""):
        model = Path(shutil.copytree(random_model, tmp_path / f"without_{name}"))
        shutil.rmtree(model / name if name else model / DETECTOR)
        if not name:
            shutil.rmtree(model / IVG)
        out = exported(model, tmp_path / f"export_{name}")
        view = image(6)
        ours, theirs = (load(folder) for folder in (out, model))
        assert ours.policy == theirs.policy
        if IVG in ours.checkpoint.adapters.names or not name:
            same_reply(*(clue.reply(clue.look(view), DIALOGUES[1]) for clue in (ours, theirs)))
        else:
            chances = [clue.ambiguity(clue.look(view), "the ball") for clue in (ours, theirs)]
            assert chances[0].probability == pytest.approx(chances[1].probability, abs=CLOSE)


def test_precision_is_the_exports_unless_a_dtype_is_asked_for(
    random_model: Path, export: Path, tmp_path: Path
) -> None:
    assert load(export, dtype="float32").dtype == "float32"
    for dtype in ("mixed", "bfloat16"):
        assert load(export, dtype=dtype).dtype == "mixed"
    adapters = tmp_path / "adapters"  # of a base that lies elsewhere
    for name in (DETECTOR, IVG):
        path = Path(shutil.copytree(random_model / name, adapters / name)) / "adapter_config.json"
        config = {**json.loads(path.read_text()), "base_model_name_or_path": str(random_model)}
        path.write_text(json.dumps(config))
    fixed = exported(adapters, tmp_path / "fixed", "--precision", "bfloat16")
    clue = load(fixed, dtype="auto")
    assert clue.dtype == "mixed"
    near = load(random_model).ambiguity(clue.look(image(7)), "the ball")
    found = clue.ambiguity(clue.look(image(7)), "the ball")
    assert found.probability == pytest.approx(near.probability, abs=0.02)
    with pytest.raises(ModelError, match="dtype 'float16' of an export: want auto, float32, bfl"):
        load(export, dtype="float16")


def test_memory_counts_the_graphs(export: Path, random_model: Path) -> None:
    graphs = sum(path.stat().st_size for path in (export / FOLDER).glob("*.*[ln]"))
    assert load(export).memory_bytes() > graphs > 0
    assert load(random_model).memory_bytes() > 0


def without(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def with_other_byte(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        content = bytearray((folder / name).read_bytes())
        content[-1] ^= 1
        (folder / name).write_bytes(content)

    return change


def with_setting(name: str, value: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / FOLDER / SETTINGS_FILE
        path.write_text(json.dumps({**json.loads(path.read_text()), name: value}))

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (without("openvino/tower.bin"), r"lacks .*tower\.bin: export the model again"),
        (without("openvino/export.json"), r"has no export\.json"),
        (with_other_byte("openvino/ivg.bin"), r"ivg\.bin is damaged: export the model again"),
        (with_other_byte("openvino/detector.xml"), r"detector\.xml is damaged"),
        (with_other_byte("openvino/export.json"), r"cannot read .*export\.json"),
        (
            with_other_byte("model.safetensors"),
            r"model\.safetensors has changed since .* or remove",
        ),
        (with_other_byte("ivg/adapter_model.safetensors"), "has changed since"),
        (with_setting("format", 2), "has format 2, this clue_ros reads 1: export the model again"),
        (with_setting("format", "x"), "has format 'x'"),
        (with_setting("graphs", []), "was not written by `clue export`"),
        (with_setting("graphs", {}), "no graph of the vision tower"),
        (with_setting("block", "3"), "was not written by `clue export`"),
        (with_setting("precision", "int4"), "was not written by `clue export`"),
        (with_setting("sources", {"config.json": 5}), "has changed since"),
    ],
)
def test_a_wrong_export_is_one_line_with_what_to_do(
    copy: Path, change: Callable[[Path], None], reason: str
) -> None:
    change(copy)
    with pytest.raises(ModelError, match=reason):
        load(copy)


def test_a_graph_that_openvino_cannot_read_is_named(copy: Path) -> None:
    path = copy / FOLDER / "tower.xml"
    path.write_text("<net/>")
    settings = copy / FOLDER / SETTINGS_FILE
    content = json.loads(settings.read_text())
    content["graphs"]["tower.xml"] = digest(path)
    settings.write_text(json.dumps(content))
    with pytest.raises(ModelError, match=r"cannot use .*tower\.xml, which .* wrote"):
        load(copy)


def test_another_adapter_may_stand_beside_a_changed_one(copy: Path, random_model: Path) -> None:
    with_other_byte("ivg/adapter_model.safetensors")(copy)
    assert load(copy, ivg=random_model / IVG, policy="decoder").policy == "decoder"


def test_without_openvino_the_message_says_how_to_get_it(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    folder = Path(shutil.copytree(random_model, tmp_path / "m"))
    (folder / FOLDER).mkdir()
    with pytest.raises(ModelError, match=r'needs openvino, .*pip install "\.\[export\]"'):
        load(folder)
    with pytest.raises(ModelError, match="needs openvino"):
        export_model(random_model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_exported_is_refused_and_leaves_nothing(
    export: Path, random_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rank_stabilised = Path(shutil.copytree(random_model, tmp_path / "rslora"))
    path = rank_stabilised / IVG / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "use_rslora": True}))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for model, out, reason in (
        (export, "new", "is an export: export the model that it was made of"),
        (rank_stabilised, "new", "this model cannot be exported"),
        (random_model, "full", "is there already"),
        (tmp_path / "nothing", "new", "no model"),
    ):
        assert main(["export", str(model), "--out", str(tmp_path / out)]) == 2
        told = capsys.readouterr().err
        assert reason in told
        assert told.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "rslora"]


def test_an_export_that_replies_otherwise_is_not_written(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if openvino is None:
        pytest.skip(MISSING)
    call = OpenVinoGraph.__call__
    monkeypatch.setattr(
        OpenVinoGraph, "__call__", lambda self, *inputs: [t + 0.1 for t in call(self, *inputs)]
    )
    with pytest.raises(ModelError, match="does not give the model's replies"):
        export_model(random_model, tmp_path / "out")
    assert not any(tmp_path.iterdir())


def test_check_reads_an_export(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["check", "--model", str(copy), "--device", "cpu", "--json"]
    assert main(arguments) == 0
    assert "OpenVINO runs it (`clue export`)" in json.loads(capsys.readouterr().out)["notes"]
    with_other_byte("openvino/tower.bin")(copy)
    assert main(arguments) == 2
    assert "tower.bin is damaged" in json.loads(capsys.readouterr().out)["problems"][0]
