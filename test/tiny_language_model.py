"""A tiny causal language model with RANDOM weights and a tokenizer of single characters.

It knows nothing; real classes of transformers load it.
"""

from __future__ import annotations

import string
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

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
