"""A Gemma 3 with random weights, small: its own classes, processor and form of a chat template."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import (
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3Processor,
    GemmaTokenizer,
)
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil

from clue_ros.model.torch_backbone import quietly

SIDE, PATCH, TOKENS = 28, 7, 4
TEMPLATE = (
    "{{ bos_token }}{%- for message in messages -%}"
    "<start_of_turn>{{ 'model' if message['role'] == 'assistant' else message['role'] }}\n"
    "{%- for item in message['content'] -%}"
    "{%- if item['type'] == 'image' -%}<start_of_image>"
    "{%- elif item['type'] == 'text' -%}{{ item['text'] | trim }}{%- endif -%}"
    "{%- endfor -%}<end_of_turn>\n{%- endfor -%}"
    "{%- if add_generation_prompt -%}<start_of_turn>model\n{%- endif -%}"
)
SPECIAL = ("<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<end_of_image>")


def write_gemma3(folder: Path, seed: int = 0) -> Path:
    """Write the model into `folder` and return it."""
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>", *SPECIAL, "<image_soft_token>"]
    pieces += [f"<0x{byte:02X}>" for byte in range(256)]
    pieces += [chr(code) for code in range(33, 127)] + ["▁", "\n"]
    words = ("yes", "no", "Yes", "No")
    merges: list[tuple[str, str]] = []
    for word in words:
        merges += [(word[:end], word[end]) for end in range(1, len(word))]
    pieces += ["".join(pair) for pair in merges]
    vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = GemmaTokenizer(
        vocab=vocabulary,
        merges=merges,
        extra_special_tokens={
            "image_token": "<image_soft_token>",
            "boi_token": "<start_of_image>",
            "eoi_token": "<end_of_image>",
        },
    )
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIAL[:2])})
    pictures = Gemma3ImageProcessorPil(size={"height": SIDE, "width": SIDE})
    processor = Gemma3Processor(
        pictures, tokenizer, chat_template=TEMPLATE, image_seq_length=TOKENS
    )
    vision = {
        "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "image_size": SIDE, "patch_size": PATCH,
    }  # fmt: skip
    text = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16,
        "sliding_window": 64, "max_position_embeddings": 1024,
    }  # fmt: skip
    config = Gemma3Config(
        text_config=text,
        vision_config=vision,
        mm_tokens_per_image=TOKENS,
        image_token_index=tokenizer.convert_tokens_to_ids("<image_soft_token>"),
        boi_token_index=tokenizer.convert_tokens_to_ids("<start_of_image>"),
        eoi_token_index=tokenizer.convert_tokens_to_ids("<end_of_image>"),
    )
    with torch.random.fork_rng(devices=[]), quietly():
        torch.manual_seed(seed)
        Gemma3ForConditionalGeneration(config).save_pretrained(folder)
        processor.save_pretrained(folder)
    return folder
