"""Prompts are PaliGemma's own, and a person's words can never become special tokens."""

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from tiny_model import gemma_processor
from transformers import AutoProcessor
from transformers.models.paligemma.processing_paligemma import PaliGemmaProcessor

from clue_ros.errors import ModelError
from clue_ros.model import prompts as ours
from clue_ros.model.config import read_config
from clue_ros.model.loading import DEFAULT_MODEL, find_model
from clue_ros.model.torch_backbone import load_config

WORDS = ["pick up the red block on the left", "detect clarify", "which one ?", "user : assistant"]
NASTY = [
    "<loc0000>",
    "take <image> now",
    "<bos><eos><pad>",
    "<LOC0005> <Image>",
    "<seg001>the<loc1023>block",
    "<unk><mask>",
    "<<loc0001>>",
    "the\nred",
    "<loc0001",
    "<ſeg001>",  # a long s, which lower case and case folding treat differently
    "<image>" * 50,
]


def word_processor() -> Any:
    return ours.build_processor(ours.build_tokenizer(WORDS), 56, 16)


@pytest.fixture(params=[word_processor, gemma_processor], ids=["word", "gemma"])
def processor(request: pytest.FixtureRequest) -> Any:
    return request.param()


def test_the_tokenizer_is_laid_out_as_paligemma() -> None:
    tokenizer = ours.build_tokenizer(WORDS)
    ids = tokenizer.convert_tokens_to_ids
    assert [ids(t) for t in ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "\n")] == list(range(6))
    assert ids(list(ours.LOCATIONS)) == list(range(ids("<loc0000>"), ids("<loc0000>") + 1024))
    assert ids(list(ours.SEGMENTS)) == list(range(ids("<seg000>"), ids("<seg000>") + 128))
    assert ids("<image>") == len(tokenizer) - 1 == tokenizer.image_token_id


def test_words_are_lower_case_and_punctuation_stands_alone() -> None:
    tokenizer = ours.build_tokenizer(WORDS)
    tokens = tokenizer("Pick up the RED block?\nWhich one").tokens()
    assert tokens == ["pick", "up", "the", "red", "block", "?", "\n", "which", "one"]
    assert tokenizer("zebra").tokens() == ["<unk>"]
    assert len(tokenizer("<loc0001><loc0020><loc0300><loc1023>").input_ids) == 4


@pytest.mark.parametrize(
    "suffixes", [None, ["<loc0001><loc0002><loc0003><loc0004>", "which one ?"]]
)
def test_prompts_equal_paligemma_processors(processor: Any, suffixes: list[str] | None) -> None:
    contexts = ["the red block", "the"]
    prompts = ours.encode_prompts(processor, "detect", contexts, suffixes).to("cpu")
    theirs = processor(
        images=[Image.new("RGB", (80, 60))] * 2,
        text=[f"<image>detect {context}" for context in contexts],
        suffix=suffixes,
        padding="longest",
        padding_side="right",
        return_tensors="pt",
    )
    for name in ("input_ids", "attention_mask", "token_type_ids"):
        assert torch.equal(theirs[name], getattr(prompts, name)), name
    if suffixes:
        assert torch.equal(theirs["labels"], prompts.labels)
    else:
        assert (prompts.labels == -100).all()


def test_queries_are_the_words_after_the_conditioning_word(processor: Any) -> None:
    prompts = ours.encode_prompts(processor, "detect", ["the red", "the"], ["the", "the red"])
    tokens = [
        processor.tokenizer.convert_ids_to_tokens(row[mask])
        for row, mask in zip(prompts.input_ids, prompts.query_mask, strict=True)
    ]
    assert [[token.strip("▁") for token in row] for row in tokens] == [["the", "red"], ["the"]]


@pytest.mark.parametrize("text", NASTY)
def test_typed_special_tokens_stay_words(processor: Any, text: str) -> None:
    prompts = ours.encode_prompts(processor, "detect", [text])
    tokenizer = processor.tokenizer
    ids = prompts.input_ids[0].tolist()[processor.image_seq_length + 1 :]
    tokens = tokenizer.convert_ids_to_tokens(ids)
    special = {*tokenizer.all_special_tokens, *ours.LOCATIONS, *ours.SEGMENTS} - {"<unk>"}
    assert not special & set(tokens)
    assert tokens.count("\n") == 1
    assert tokens[-1] == "\n"
    assert (prompts.input_ids == processor.image_token_id).sum() == processor.image_seq_length


def test_escape_keeps_plain_text_and_settles() -> None:
    tokenizer = ours.build_tokenizer(WORDS)
    assert ours.escape("the red block, 2 < 3", tokenizer) == "the red block, 2 < 3"
    for text in NASTY:
        once = ours.escape(text, tokenizer)
        assert ours.escape(once, tokenizer) == once


def test_the_processor_survives_saving(tmp_path: Path) -> None:
    before = word_processor()
    before.save_pretrained(tmp_path)
    picture = Image.fromarray(
        np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)
    )
    for after in (ours.load_processor(tmp_path), AutoProcessor.from_pretrained(tmp_path)):
        assert isinstance(after, PaliGemmaProcessor)
        arguments = {"images": picture, "text": "<image>detect the block", "return_tensors": "pt"}
        one, two = before(**arguments), after(**arguments)
        assert torch.equal(one["input_ids"], two["input_ids"])
        assert torch.equal(one["pixel_values"], two["pixel_values"])
        assert one["pixel_values"].shape == (1, 3, 56, 56)


def test_generated_ids_read_as_a_sentence() -> None:
    tokenizer = ours.build_tokenizer(["what's this , the red one or the blue one ?"])
    ids = tokenizer("what's this, the red one or the blue one?<eos>").input_ids
    assert ours.decode_text(tokenizer, ids) == "what's this, the red one or the blue one?"


# -------------------------------------------------------------------------------------------------
# Without transformers: what replies need of its processor and its configuration.


def random_texts(words: list[str], count: int, seed: int) -> list[str]:
    """Words of a tokenizer, its special tokens, and characters that it lacks, in any order."""
    rng = np.random.default_rng(seed)
    odd = ["", " ", "\n", "Zebra", "éÉ", "\U0001f34c", "a_b", "<loc", "<LOC0007>", "don't", "１２"]
    pieces = [*words, *odd]
    return [
        rng.choice(["", " ", "  "]).join(rng.choice(pieces, rng.integers(0, 12)))
        for _ in range(count)
    ]


@pytest.fixture(params=[DEFAULT_MODEL, "random"])
def folder(request: pytest.FixtureRequest, random_model: Path) -> Path:
    """An embedded model and one of random weights."""
    return random_model if request.param == "random" else find_model(request.param)


def test_texts_get_the_tokens_of_transformers(folder: Path, fresh_seed: int) -> None:
    lean, theirs = ours.open_processor(folder).tokenizer, ours.load_processor(folder).tokenizer
    assert isinstance(lean, ours.LeanTokenizer)
    assert len(lean) == len(theirs)
    assert lean.get_vocab() == theirs.get_vocab()
    assert lean.get_added_vocab() == theirs.get_added_vocab()
    for name in ("all_special_tokens", "all_special_ids"):
        assert set(getattr(lean, name)) == set(getattr(theirs, name))
    for name in ("bos_token", "eos_token", "pad_token", "unk_token", "image_token"):
        assert getattr(lean, name) == getattr(theirs, name)
        assert getattr(lean, f"{name}_id") == getattr(theirs, f"{name}_id")
    tokens = [ours.IMAGE, "<loc0001>", "\n", "no such token"]
    assert lean.convert_tokens_to_ids(tokens) == theirs.convert_tokens_to_ids(tokens)
    rng = np.random.default_rng(fresh_seed)
    for text in random_texts(list(lean.get_vocab()), 200, fresh_seed):
        for special in (False, True):
            settings = {"add_special_tokens": special, "return_offsets_mapping": True}
            mine, their = lean(text, **settings), theirs(text, **settings)
            assert mine["input_ids"] == their["input_ids"], text
            assert mine["offset_mapping"] == their["offset_mapping"], text
        ids = rng.integers(0, len(lean), 9).tolist()
        for skip in (False, True):
            said = lean.decode(ids, skip_special_tokens=skip)
            assert said == theirs.decode(ids, skip_special_tokens=skip)
    padded: dict[str, Any] = {"padding": "max_length", "max_length": 9}
    assert lean("pick it up", **padded) == theirs("pick it up", **padded)


def test_a_tokenizer_that_transformers_has_written_again_needs_no_transformers(
    random_model: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(random_model, tmp_path / "m"))
    ours.load_processor(random_model).save_pretrained(folder)
    assert isinstance(ours.open_processor(folder).tokenizer, ours.LeanTokenizer)


@pytest.mark.parametrize(
    "change",
    [{"tokenizer_class": "GemmaTokenizer"}, {"clean_up_tokenization_spaces": True}, {"new": 1}],
)
def test_what_is_no_plain_tokenizer_is_left_to_transformers(
    random_model: Path, tmp_path: Path, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(shutil.copytree(random_model, tmp_path / "m"))
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    assert not isinstance(ours.open_processor(folder).tokenizer, ours.LeanTokenizer)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(ModelError, match=r"need transformers .*: pip install transformers"):
        ours.open_processor(folder)


@pytest.mark.parametrize("converts", [None, True, False])
def test_the_published_image_settings_need_no_transformers(
    random_model: Path, tmp_path: Path, picture: npt.NDArray[np.uint8], converts: bool | None
) -> None:
    """As google/paligemma2-3b-mix-448 has them: under the older name, do_convert_rgb null."""
    folder = Path(shutil.copytree(random_model, tmp_path / "m"))
    settings = json.loads((folder / "processor_config.json").read_text())["image_processor"]
    (folder / "processor_config.json").unlink()
    (folder / "preprocessor_config.json").write_text(
        json.dumps({**settings, "do_convert_rgb": converts})
    )
    lean, theirs = ours.open_processor(folder), ours.load_processor(folder)
    assert isinstance(lean, ours.LeanProcessor)
    pixels = ours.prepare_images(lean, [picture])
    assert np.array_equal(pixels, ours.prepare_images(theirs, [picture]))
    assert pixels.shape == (1, 3, 64, 64)


def test_sizes_are_those_that_transformers_reads(folder: Path) -> None:
    same_sizes(folder)


@pytest.mark.parametrize("silent", ["image_token_index", "text_config", "vision_config"])
def test_what_a_configuration_leaves_out_is_what_transformers_fills_in(
    random_model: Path, tmp_path: Path, silent: str
) -> None:
    content = json.loads((random_model / "config.json").read_text())
    if silent == "image_token_index":
        del content[silent]
    else:
        content[silent] = {"model_type": content[silent]["model_type"]}
    (tmp_path / "config.json").write_text(json.dumps(content))
    same_sizes(tmp_path)


def same_sizes(folder: Path) -> None:
    lean, theirs = read_config(folder), load_config(folder)
    assert lean.image_token_id == theirs.image_token_id
    assert lean.tie_word_embeddings == theirs.tie_word_embeddings
    parts = ((lean.text_config, theirs.text_config), (lean.vision_config, theirs.vision_config))
    for mine, their in parts:
        for name, value in vars(mine).items():
            assert getattr(their, name, None) == value, name
