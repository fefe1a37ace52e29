# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""LLM-wrapper: any detector lists boxes with labels, a language model names the one that is meant.

After "LLM-wrapper: Black-Box Semantic-Aware Adaptation of Vision-Language Models for Referring
Expression Comprehension" (Cardiel and others, ICLR 2025). The detector stays a black box. Where
several boxes match, the paper's model guesses; here it asks.
"""

WRAPPER = "wrapper"  # the name of this model


def is_address(name: object) -> bool:
    """Whether the name of a language model is a server's address (`served_model`).

    >>> is_address("http://127.0.0.1:8000/v1"), is_address("owner/model")
    (True, False)
    """
    return str(name).startswith(("http://", "https://"))
