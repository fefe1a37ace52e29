"""Both backbones give the same, and what plain transformers and peft give."""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tiny_model import write_random_model

from clue_ros.engine import Clue
from clue_ros.errors import ClueWarning, ModelError
from clue_ros.lab.evaluation.plain_transformers import PlainTransformers
from clue_ros.model import openvino_backbone, openvino_compiler, openvino_graphs
from clue_ros.model.backbone import DETECTOR, IVG, Backbone, Reader
from clue_ros.model.checkpoint import Checkpoint, load_checkpoint, open_backbone
from clue_ros.model.config import read_config
from clue_ros.model.decoding import forced, read_prompts
from clue_ros.model.load_options import LoadOptions
from clue_ros.model.loading import read_weights
from clue_ros.model.openvino_backbone import OpenVinoBackbone
from clue_ros.model.openvino_compiler import CACHE
from clue_ros.model.prompts import LeanProcessor, encode_prompts
from clue_ros.model.shapes import EMBEDDINGS, SCALE
from clue_ros.model.tensors import Mapped
from clue_ros.model.torch_backbone import TorchBackbone

REQUESTS = ("pick up the red block", "the left one", "the ball on the left of the blue cylinder")
CLOSE = 1e-4
ROOT = Path(__file__).resolve().parents[2]
Pixels = npt.NDArray[np.uint8]


def image(seed: int, height: int = 60, width: int = 80) -> Pixels:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def both(folder: Path, **settings: Any) -> tuple[Checkpoint, Checkpoint]:
    """The model by OpenVINO and by torch, in float32 on the CPU."""
    settings = {"device": "cpu", "dtype": "float32", **settings}
    ours, theirs = (
        load_checkpoint(folder, backend=name, **settings) for name in ("openvino", "torch")
    )
    assert isinstance(ours.backbone, OpenVinoBackbone)
    assert isinstance(theirs.backbone, TorchBackbone)
    return ours, theirs


@pytest.fixture(scope="module")
def pair(random_model: Path) -> tuple[Checkpoint, Checkpoint]:
    return both(random_model)


@pytest.fixture(params=["merged", "shared", "cut"])
def storage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A small decoder has a copy an adapter; of a large one the adapters are inputs.

    cut: into a graph a block, and three for the head.
    """
    if request.param != "merged":
        monkeypatch.setattr(openvino_backbone, "MERGED_BYTES", 0)
    if request.param == "cut":
        monkeypatch.setattr(openvino_backbone, "PART_BYTES", 60_000)
    return str(request.param)


@pytest.mark.parametrize(
    "sizes", [{}, {"width": 64, "heads": 8, "kv_heads": 2, "layers": 5}], ids=["tiny", "grouped"]
)
def test_features_maps_probabilities_and_replies_are_the_same(
    tmp_path: Path, storage: str, sizes: dict[str, Any], fresh_seed: int
) -> None:
    folder = write_random_model(tmp_path / "m", seed=5, **sizes)
    found = []
    for checkpoint in both(folder):
        features = checkpoint.look(image(fresh_seed), image(fresh_seed + 1))
        judged = [checkpoint.judge(features[:1], text) for text in REQUESTS]
        shares = [checkpoint.second_opinion(features[1:], text)[0] for text in REQUESTS]
        boxes = [s.tokens for text in REQUESTS for s in checkpoint.point(features, text)]
        words = [checkpoint.speak(features[:1], text, "question").tokens for text in REQUESTS]
        found.append((features, judged, shares, boxes, words))
    (features, judged, shares, *said), (theirs, their_judged, their_shares, *their_said) = found
    assert np.allclose(features, theirs, atol=CLOSE)
    for (chance, attention), (their_chance, their_attention) in zip(
        judged, their_judged, strict=True
    ):
        assert chance == pytest.approx(their_chance, abs=CLOSE)
        assert np.abs(attention - their_attention).max() < 10 * CLOSE
    assert shares == pytest.approx(their_shares, abs=CLOSE)
    assert said == their_said


def test_a_detector_and_a_reply_are_those_of_plain_transformers_and_peft(
    random_model: Path, fresh_seed: int
) -> None:
    plain, picture = PlainTransformers(random_model), image(fresh_seed)
    checkpoint = load_checkpoint(random_model, backend="openvino", dtype="float32")
    features = checkpoint.look(picture)
    for text in REQUESTS:
        chance = checkpoint.judge(features, text)[0]
        assert chance == pytest.approx(plain.probability(picture, text), abs=CLOSE)
        said = checkpoint.speak(features, text, "unconstrained").tokens
        assert list(said)[:6] == plain.reply(picture, text, max(len(said), 1))[:6][: len(said)]


def test_a_batch_with_padding_is_each_prompt_alone(
    pair: tuple[Checkpoint, Checkpoint], storage: str, random_model: Path, fresh_seed: int
) -> None:
    checkpoint = load_checkpoint(random_model, backend="openvino", dtype="float32")
    features = checkpoint.look(*(image(fresh_seed + i) for i in range(len(REQUESTS))))
    prompts = encode_prompts(checkpoint.processor, "clarify", REQUESTS)
    assert not prompts.attention_mask.all()
    for parts in (checkpoint, pair[1]):
        detector = parts.detector
        chances, maps = detector(features, detector.prompts(parts.processor, REQUESTS))
        state, logits = parts.backbone.read(features, prompts, IVG)
        further = [parts.backbone.step(state, np.array([7, 8, 9])) for _ in range(3)]
        for row, text in enumerate(REQUESTS):
            alone = features[row : row + 1]
            chance, attention = parts.judge(alone, text)
            assert chances[row] == pytest.approx(chance, abs=CLOSE)
            assert np.abs(maps[row] - attention).max() < 10 * CLOSE
            one = encode_prompts(parts.processor, "clarify", [text])
            state, own = parts.backbone.read(alone, one, IVG)
            assert np.allclose(logits[row], own[0], atol=CLOSE * 10)
            for logit in further:
                own = parts.backbone.step(state, np.array([7 + row]))
                assert np.allclose(logit[row], own[0], atol=CLOSE * 10)


def test_one_images_features_serve_all_prompts(pair: tuple[Checkpoint, Checkpoint]) -> None:
    for parts in pair:
        features = parts.look(image(3))
        prompts = encode_prompts(parts.processor, "clarify", REQUESTS)
        _, logits = parts.backbone.read(features, prompts, IVG)
        _, own = parts.backbone.read(np.repeat(features, len(REQUESTS), 0), prompts, IVG)
        assert np.allclose(logits, own, atol=CLOSE)


def test_some_features_of_a_picture_are_read_alike(
    pair: tuple[Checkpoint, Checkpoint], fresh_seed: int
) -> None:
    asked = []
    for parts in pair:
        some = parts.look(image(fresh_seed))[:, 10:35:5]
        prompts = encode_prompts(parts.processor, "answer en", REQUESTS, image_tokens=5)
        state, logits = parts.backbone.read(some, prompts, None)
        asked.append([logits, parts.backbone.step(state, np.array([7, 8, 9]))])
    for ours, theirs in zip(*asked, strict=True):
        assert np.allclose(ours, theirs, atol=10 * CLOSE)


def test_the_base_alone_and_each_adapter_stay_apart(
    pair: tuple[Checkpoint, Checkpoint], fresh_seed: int
) -> None:
    found = []
    for parts in pair:
        features = parts.look(image(fresh_seed))
        prompts = encode_prompts(parts.processor, "detect", REQUESTS[:1])
        names = (None, DETECTOR, IVG, None)
        found.append(
            [parts.backbone.attend(features, prompts, Reader(name, 1)).map for name in names]
        )
    ours, theirs = found
    assert np.array_equal(ours[0], ours[3])
    assert not np.allclose(ours[0], ours[1])
    assert not np.allclose(ours[1], ours[2])
    for mine, their in zip(ours, theirs, strict=True):
        assert np.abs(mine - their).max() < 10 * CLOSE


@pytest.fixture(scope="module")
def joint_model(random_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose adapter B judges too."""
    folder = tmp_path_factory.mktemp("joint") / "model"
    own = Path(shutil.copytree(random_model, folder)) / "joint"
    shutil.move(folder / IVG, own)
    settings = json.loads((folder / DETECTOR / "detector.json").read_text())
    (own / "detector.json").write_text(json.dumps({**settings, "instruction": "clarify"}))
    shutil.copy(folder / DETECTOR / "head.safetensors", own)
    shutil.rmtree(folder / DETECTOR)
    return folder


def test_one_adapter_judges_and_replies_in_one_pass(
    joint_model: Path, storage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for checkpoint in both(joint_model):
        backbone, reader = checkpoint.backbone, checkpoint.detector.reader
        assert checkpoint.is_joint
        assert backbone.adapters == (IVG,)
        features = np.concatenate([checkpoint.look(image(seed)) for seed in (1, 2)])
        prompts = checkpoint.detector.prompts(checkpoint.processor, REQUESTS[1:])
        attention, state, logits = backbone.attend_and_read(features, prompts, reader)
        apart = backbone.attend(features, prompts, reader)
        assert attention.probability is not None
        assert apart.probability is not None
        assert np.abs(attention.map - apart.map).max() < CLOSE
        assert np.abs(attention.probability - apart.probability).max() < CLOSE
        assert np.abs(logits - backbone.read(features, prompts, IVG)[1]).max() < CLOSE
        tokens = logits.argmax(1)
        found.append([*attention, logits, backbone.step(state, tokens)])
        with monkeypatch.context() as patch:  # nothing is read twice
            patch.setattr(type(backbone), "attend", None)
            chance, _, prefill = checkpoint.judge_and_read(features[:1], REQUESTS[1])
            assert chance == pytest.approx(float(apart.probability[0]), abs=CLOSE)
            assert prefill is not None
    for ours, theirs in zip(*found, strict=True):
        assert np.abs(ours - theirs).max() < CLOSE


def test_a_joint_adapter_of_two_instructions_is_refused(joint_model: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(joint_model / "joint", tmp_path / "joint"))
    settings = json.loads((own / "detector.json").read_text())
    (own / "detector.json").write_text(json.dumps({**settings, "instruction": "detect"}))
    with pytest.raises(ModelError, match="no joint adapter"):
        load_checkpoint(joint_model, detector=own, ivg=own)


def test_a_long_reply_outgrows_the_room_of_its_state(pair: tuple[Checkpoint, Checkpoint]) -> None:
    found = []
    for parts in pair:
        features = parts.look(image(1))
        prompts = encode_prompts(parts.processor, "clarify", [REQUESTS[0]])
        state, _ = parts.backbone.read(features, prompts, IVG)
        steps = [parts.backbone.step(state, np.array([5 + i % 20])) for i in range(70)]
        found.append(steps[-1])
    ours, theirs = found
    assert np.allclose(ours, theirs, atol=CLOSE * 10)


def test_teacher_forcing_side_by_side_is_that_of_the_whole_sequence(
    pair: tuple[Checkpoint, Checkpoint],
) -> None:
    ours, theirs = pair
    assert isinstance(theirs.backbone, TorchBackbone)
    features, texts = ours.look(image(2)), ["the red one", "yes", "the one on the left"]
    tokenizer = ours.processor.tokenizer
    tokens = [tokenizer(t + "<eos>", add_special_tokens=False)["input_ids"] for t in texts]
    alone = encode_prompts(ours.processor, "clarify", [REQUESTS[0]])
    prompts = encode_prompts(ours.processor, "clarify", [REQUESTS[0]] * len(texts), texts)
    model = theirs.backbone.model
    theirs.backbone.peft.use(IVG)
    with torch.inference_mode():
        hidden, _ = model.forward(torch.from_numpy(features), prompts.to("cpu"))
        logs = model.logits(hidden).log_softmax(-1)
    for parts in pair:
        prefill = read_prompts(parts.backbone, features, alone, IVG)
        many = 30  # times the texts: more than are read at once
        likely, _ = forced(parts.backbone, prefill, tokens * many)
        assert len(likely) == many * len(tokens)
        for row, own in enumerate(likely):
            ids, begin = tokens[row % len(tokens)], alone.input_ids.shape[1] - 1
            wanted = [
                float(logs[row % len(tokens), begin + i, token]) for i, token in enumerate(ids)
            ]
            assert own == pytest.approx(wanted, abs=CLOSE * 10)


def test_a_state_that_is_wound_back_goes_on_as_if_nothing_was_said(
    pair: tuple[Checkpoint, Checkpoint],
) -> None:
    features = pair[0].look(image(5), image(6))
    prompts = encode_prompts(pair[0].processor, "clarify", REQUESTS[:2])
    for parts in pair:
        state, _ = parts.backbone.read(features, prompts, IVG)
        first = [parts.backbone.step(state, np.array([t, t + 1])) for t in (5, 6, 7)]
        parts.backbone.rewind(state, 3)
        followed = parts.backbone.follow(
            state, np.array([[9, 9, 9], [5, 6, 7], [6, 7, 8], [9, 9, 9]])
        )
        again = [parts.backbone.step(state, np.array([t, t + 1])) for t in (5, 6, 7)]
        assert np.array_equal(again, first)
        for place, logits in enumerate(first):
            assert np.allclose(followed[[1, 2], place], logits, atol=CLOSE * 10)


@pytest.mark.parametrize("shape", [(60, 80), (300, 200), (31, 7), (1, 1)])
def test_pixels_are_bit_by_bit_those_of_transformers(
    pair: tuple[Checkpoint, Checkpoint], shape: tuple[int, int], fresh_seed: int
) -> None:
    processor = pair[0].processor
    assert isinstance(processor, LeanProcessor)
    pixels = image(fresh_seed, *shape)
    theirs = processor.whole.image_processor([Image.fromarray(pixels)], return_tensors="np")
    assert np.array_equal(processor.pixels([pixels]), theirs["pixel_values"])


def test_sixteen_bits_stay_near_float32(random_model: Path) -> None:
    plain = load_checkpoint(random_model, backend="openvino", dtype="float32")
    mixed = load_checkpoint(random_model, backend="openvino", dtype="mixed")
    features = plain.look(image(4))
    assert np.abs(mixed.look(image(4)) - features).max() < 0.1
    for text in REQUESTS:
        assert mixed.judge(features, text)[0] == pytest.approx(
            plain.judge(features, text)[0], abs=0.05
        )


def test_a_reply_imports_no_library_that_is_slow_and_not_needed(random_model: Path) -> None:
    script = (
        "import sys, numpy; from clue_ros.engine import Clue; "
        "from clue_ros.dialogue.types import Dialogue; "
        f"clue = Clue.load({str(random_model)!r}, policy='detector'); "
        "view = clue.look(numpy.zeros((60, 80, 3), numpy.uint8)); "
        "clue.reply(view, Dialogue('the block'), force_grounding=True); "
        "heavy = ('torch', 'transformers', 'peft', 'huggingface_hub', 'cv2');"
        "print([name for name in heavy if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def python(*words: str) -> None:
    subprocess.run([sys.executable, *words], capture_output=True, check=True)


@pytest.mark.parametrize(
    "words",
    [
        ("-m", "clue_ros.cli", "ground", "PICTURE", "pick up the mug on the right"),
        ("-c", "import clue_ros.model.openvino_graphs"),
    ],
    ids=["clue ground", "graphs"],
)
def test_openvino_writes_nothing_into_the_home_folder_and_asks_nobody(
    words: tuple[str, ...], asked_by_openvino: Callable[[], list[str]]
) -> None:
    python(*(str(ROOT / "demo" / "mugs.png") if word == "PICTURE" else word for word in words))
    assert asked_by_openvino() == []


def test_openvinos_own_import_asks(asked_by_openvino: Callable[[], list[str]]) -> None:
    """Else the test above would prove nothing."""
    pytest.importorskip("openvino_telemetry")
    python("-c", "import openvino")
    assert asked_by_openvino()


def test_a_cache_that_cannot_be_written_to_is_said_and_done_without(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "file"
    place.write_text("no folder")
    monkeypatch.setenv(CACHE, str(place))
    with pytest.warns(ClueWarning, match=f"cannot be written to.*{CACHE}"):
        clue = Clue.load(random_model, backend="openvino", policy="detector")
    assert clue.ambiguity(clue.look(image(1)), REQUESTS[0]).probability > 0


def test_models_that_are_loaded_at_once_leave_the_locale_alone(
    random_model: Path, tmp_path: Path
) -> None:
    """OpenVINO sets the process's locale while it reads its cache (findings/)."""
    script = (
        "import locale, threading, numpy\n"
        "from clue_ros.model.checkpoint import load_checkpoint\n"
        "def load():\n"
        "    for _ in range(5):\n"
        f"        parts = load_checkpoint({str(random_model)!r}, backend='openvino')\n"
        "        parts.look(numpy.zeros((60, 80, 3), numpy.uint8))\n"
        "load()\n"
        "before = locale.getpreferredencoding(False)\n"
        "threads = [threading.Thread(target=load) for _ in range(4)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "print(before, locale.getpreferredencoding(False))\n"
    )
    place = {CACHE: str(tmp_path), "LC_ALL": "C.UTF-8", "PYTHONUTF8": "0"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True, text=True, check=True, env={**os.environ, **place},
    )  # fmt: skip
    assert done.stdout.split() == ["UTF-8", "UTF-8"]


def test_the_cache_notices_changed_weights(random_model: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(random_model, tmp_path / "m"))
    before = load_checkpoint(folder, backend="openvino", dtype="float32").look(image(1))
    path = folder / "model.safetensors"
    facts, state = path.stat(), load_file(path)
    (name,) = [key for key in state if key.endswith("post_layernorm.bias")]
    save_file({**state, name: state[name] + 1}, path, metadata={"format": "pt"})
    assert path.stat().st_size == facts.st_size
    after = load_checkpoint(folder, backend="openvino", dtype="float32").look(image(1))
    assert np.abs(after - before).max() > 0.01


def test_a_later_start_makes_no_graph(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))

    def answers() -> tuple[Any, ...]:
        parts = load_checkpoint(random_model, backend="openvino")
        features = parts.look(image(1))
        chance, attention = parts.judge(features, REQUESTS[0])
        return features, attention, chance, parts.second_opinion(features, REQUESTS[0])[0]

    before = answers()
    made = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.graph")}
    with monkeypatch.context() as patch:
        patch.setattr(openvino_graphs, "vision_graph", None)
        patch.setattr(openvino_graphs, "Decoder", None)
        again = answers()
    assert all(np.array_equal(one, other) for one, other in zip(before, again, strict=True))
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == made.keys()


def _changed(whole: bytes) -> bytes:
    """A byte in the middle, where the weights are, has another value."""
    middle = len(whole) // 2
    return whole[:middle] + bytes([whole[middle] ^ 64]) + whole[middle + 1 :]


@pytest.mark.parametrize(
    "damage",
    [lambda _whole: b"", lambda whole: whole[:1000], lambda whole: whole[:-1], _changed],
    ids=["empty", "cut short", "one byte less", "changed"],
)
def test_a_damaged_graph_is_said_and_made_again(
    random_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[bytes], bytes],
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))
    before = load_checkpoint(random_model, backend="openvino").look(image(1))
    (path,) = tmp_path.rglob("*.graph")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    with pytest.warns(ClueWarning, match=f"{path} cannot be used .*made again"):
        after = load_checkpoint(random_model, backend="openvino").look(image(1))
    assert np.array_equal(after, before)
    assert path.read_bytes() != damage(whole)


def test_a_cache_without_room_is_said_and_done_without(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))
    checkpoint = load_checkpoint(random_model, backend="openvino")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.warns(ClueWarning, match=f"does not take a graph .*{CACHE}"):
            features = checkpoint.look(image(1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert np.isfinite(features).all()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_cpu_that_openvino_does_not_know_is_said(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import openvino

    def refuse(*_arguments: Any) -> Any:
        """As OpenVINO answers on an architecture that it has no plugin for."""
        raise RuntimeError('Device with "CPU" name is not registered in the OpenVINO Runtime')

    monkeypatch.setenv(CACHE, str(tmp_path))
    monkeypatch.setattr(openvino.Core, "compile_model", refuse)
    checkpoint = load_checkpoint(random_model, backend="openvino")
    with pytest.raises(ModelError, match=r"cannot compile .*not registered.*backend 'torch'"):
        checkpoint.look(image(1))


def test_graphs_that_were_not_used_for_long_are_removed(
    random_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE, str(tmp_path))
    folder = tmp_path / "openvino"
    folder.mkdir()
    for name, age in (("old", 1.1), ("used", 0.9)):
        (folder / f"{name}.graph").touch()
        when = time.time() - age * openvino_compiler.UNUSED
        os.utime(folder / f"{name}.graph", (when, when))
    load_checkpoint(random_model, backend="openvino").look(image(1))
    assert not (folder / "old.graph").exists()
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(("kind", "each"), [("F32", 4), ("BF16", 2), ("I8", 1), ("U8", 0.53)])
def test_weights_stay_as_small_as_they_are_stored(kind: str, each: float) -> None:
    from openvino import Core, Model
    from openvino import opset13 as op

    rng = np.random.default_rng(0)
    stored: dict[str, Mapped] = {}
    matrices = []
    for name in ("a", "b"):
        if kind == "I8":
            stored[name] = Mapped(kind, rng.integers(-127, 128, (256, 256), np.int8))
            stored[name + SCALE] = Mapped("F32", np.ones((256, 1), np.float32))
            matrices.append(stored[name].float32())
        elif kind == "U8":
            values = rng.integers(-8, 8, (256, 256), np.int8)
            packed = (values[:, ::2] & 15 | values[:, 1::2] << 4).view(np.uint8)
            stored[name] = Mapped(kind, packed)
            stored[name + SCALE] = Mapped("F32", np.ones((256, 2, 1), np.float32))
            matrices.append(values.astype(np.float32))
        else:
            stored[name] = Mapped.of(rng.standard_normal((256, 256), np.float32), kind)
            matrices.append(stored[name].float32())
    hidden = op.parameter([-1, 256], np.float32)
    joined = openvino_graphs.Weights(stored).joined(["a", "b"])
    product = Model([op.result(op.matmul(hidden, joined, False, True))], [hidden], "product")
    settings = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0}
    compiled = Core().compile_model(product, "CPU", settings)
    assert len(compiled.export_model().getbuffer()) < 1.1 * each * 2 * 256 * 256 + 8192
    given = rng.standard_normal((3, 256), np.float32)
    (found,) = compiled([given]).values()
    whole = np.concatenate(matrices)
    assert np.allclose(found, given @ whole.T, rtol=1e-3, atol=np.abs(whole).max() * 1e-4)


def test_the_heads_table_keeps_16_bits(random_model: Path) -> None:
    """Its logits are divided by the softcap, which OpenVINO writes into a table of float32."""
    import openvino

    config, stored = read_config(random_model), dict(read_weights(random_model))
    stored[EMBEDDINGS] = Mapped.of(stored[EMBEDDINGS].float32(), "BF16")
    head = openvino_graphs.Decoder(openvino_graphs.Weights(stored), config, 0).head()
    compiled = openvino.Core().compile_model(head, "CPU", {"INFERENCE_PRECISION_HINT": "bf16"})
    size = 2 * math.prod(stored[EMBEDDINGS].shape)
    assert len(compiled.export_model().getbuffer()) < 1.1 * size + 8192


def test_a_weight_that_is_missing_is_named(random_model: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(random_model, tmp_path / "m"))
    path = folder / "model.safetensors"
    state = load_file(path)
    (name,) = [key for key in state if "layers.1.mlp.fc1.weight" in key]
    save_file({key: weight for key, weight in state.items() if key != name}, path)
    for backend in ("openvino", "torch"):
        with pytest.raises(ModelError, match=r"lacks .*layers\.1\.mlp\.fc1\.weight"):
            load_checkpoint(folder, backend=backend, device="cpu")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use_dora": True}, "use_dora is True, which needs backend 'torch'"),
        ({"r": 0}, "cannot read the adapter"),
        ({"r": 8}, "has shape"),
        ({"r": "many"}, "cannot read the adapter"),
    ],
)
def test_an_adapter_that_the_graphs_cannot_take_is_refused_with_the_reason(
    random_model: Path, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    folder = Path(shutil.copytree(random_model, tmp_path / "m"))
    path = folder / IVG / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    backbone: Backbone = open_backbone(folder, LoadOptions(folder, backend="openvino"))
    with pytest.raises(ModelError, match=message):
        backbone.load_adapter(IVG, folder / IVG)


def test_rank_stabilised_lora_is_scaled_as_peft_scales_it(
    random_model: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(random_model, tmp_path / "m"))
    path = folder / IVG / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "use_rslora": True}))
    (folder / DETECTOR / "fusion.json").unlink(missing_ok=True)
    ours, theirs = both(folder)
    features = ours.look(image(5))
    share, _ = ours.second_opinion(features, REQUESTS[0])
    assert share == pytest.approx(theirs.second_opinion(features, REQUESTS[0])[0], abs=CLOSE)


def test_a_model_that_the_graphs_do_not_know_goes_to_torch_and_says_so(
    random_model: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(random_model, tmp_path / "m"))
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["text_config"]["hidden_activation"] = "silu"
    path.write_text(json.dumps(config))
    with pytest.warns(ClueWarning, match="activation is silu"):
        backbone = open_backbone(folder, LoadOptions(folder))
    assert isinstance(backbone, TorchBackbone)
    with pytest.raises(ModelError, match="activation is silu"):
        open_backbone(folder, LoadOptions(folder, backend="openvino"))
