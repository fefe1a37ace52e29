"""Prompts are PaliGemma's own, and a person's words can never become special tokens."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_model import gemma_processor
from transformers import AutoProcessor
from transformers.models.paligemma.processing_paligemma import PaliGemmaProcessor

from clue_ros.model import prompts as ours

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
