"""A tiny causal language model with RANDOM weights and a tokenizer of single characters.

It knows nothing; real classes of transformers load it.
"""

from __future__ import annotations

import string
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    LlamaConfig,
    LlamaForCausalLM,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
    PreTrainedTokenizerFast,
)

END, START, UNKNOWN = "<|im_end|>", "<|im_start|>", "<unk>"
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def write_random_language_model(folder: str | Path, seed: int = 0, width: int = 32) -> Path:
    """Write it into a folder, in about 0.1 s, and return the folder."""
    folder = Path(folder)
    letters = [END, START, UNKNOWN, *string.printable[:95], "\n"]
    vocabulary = {token: number for number, token in enumerate(letters)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
    tokenizer.decoder = decoders.Fuse()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=END, bos_token=START, unk_token=UNKNOWN, pad_token=END
    )
    fast.chat_template = TEMPLATE
    config = LlamaConfig(
        vocab_size=len(letters),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        eos_token_id=0,
        bos_token_id=1,
        pad_token_id=0,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        LlamaForCausalLM(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def write_random_chat_model(folder: Path) -> Path:
    """LLaVA with random weights, a tokenizer of single characters, and a chat template."""
    write_random_language_model(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    tokenizer.add_tokens(["<image>"], special_tokens=True)
    text = LlamaConfig.from_pretrained(folder)
    text.vocab_size = len(tokenizer)
    vision = CLIPVisionConfig(
        hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        image_size=32, patch_size=16, projection_dim=16,
    )  # fmt: skip
    config = LlavaConfig(
        vision_config=vision, text_config=text,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
    )  # fmt: skip
    pictures = CLIPImageProcessorPil(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
    )
    template = (
        "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for c in m['content'] %}"
        "{% if c['type'] == 'image' %}<image>{% else %}{{ c['text'] }}{% endif %}{% endfor %}"
        "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
    )
    LlavaForConditionalGeneration(config).save_pretrained(folder)
    LlavaProcessor(
        pictures, tokenizer, patch_size=16, vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=template,
    ).save_pretrained(folder)  # fmt: skip
    return folder
