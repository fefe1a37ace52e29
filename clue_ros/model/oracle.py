# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The third adapter, "oracle": the person of a dialogue, who has one box in mind.

It answers the robot's questions (InViG's task M-VQA) and says the request that begins a dialogue.
The box stands as location tokens in the instruction, which is ours and not a person's words:

    user <locY1><locX1><locY2><locX2> {request} assistant: {q1} user: {a1} ... assistant: {qT}
    what <locY1><locX1><locY2><locX2>

The first one asks for the user's answer, the second one for the request. Both words are in every
embedded tokenizer; "answer" and "describe" are not in all, and unknown words are all the same
token. The paper's own form of the task does not have the box; whoever answers "is it the left one?"
needs it. An oracle may be trained to see less, to measure what the rest is worth (SEES):

    user {request} assistant: {q1} user: {a1} ... assistant: {qT}        dialogue, the paper's form
    user {qT}                                                            question alone

Evaluations and data generation load this adapter; a robot does not.

Where the boxes of other objects are known, an answer is one that fits them less than the person's
own (`decoding.pragmatic_reply`): of "the small one" and "the left one" the adapter alone says the
likelier, also where another object is as small.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.errors import ClueWarning, ModelError
from clue_ros.model.backbone import Array
from clue_ros.model.checkpoint import Checkpoint, existing_folder
from clue_ros.model.decoding import forced, pragmatic_reply, read_prompts
from clue_ros.model.loading import is_number, read_settings, write_json
from clue_ros.model.location_tokens import Codes, to_text
from clue_ros.model.prompts import encode_prompts

ORACLE = "oracle"
ANSWER, DESCRIBE = "user", "what"
SEES = BOX, DIALOGUE, QUESTION = "box", "dialogue", "question"
SETTINGS_FILE = "oracle.json"


@dataclass
class OracleSettings:
    """oracle.json: max_new_tokens of an answer or a request; the words that begin its prompts.

    sees: what an answer is made from, of SEES: the box and the dialogue, the dialogue, or the
    question. Files without the words were written when they were "answer" and "describe".
    """

    max_new_tokens: int = 48
    answer: str = "answer"
    describe: str = "describe"
    sees: str = BOX


def load_oracle_settings(folder: str | Path) -> OracleSettings:
    """Read and check oracle.json. Raises ModelError."""
    path = Path(folder) / SETTINGS_FILE
    settings = read_settings(path, OracleSettings)
    limit = settings.max_new_tokens
    if not is_number(limit, 1) or not isinstance(limit, int):
        raise ModelError(f"{path}: max_new_tokens {limit!r}, want a whole number above 0")
    for word in (settings.answer, settings.describe):
        if not isinstance(word, str):
            raise ModelError(f"{path}: a prompt begins with {word!r}, want a word")
    if settings.sees not in SEES:
        raise ModelError(f"{path}: sees is {settings.sees!r}, want one of {', '.join(SEES)}")
    return settings


def save_oracle_settings(settings: OracleSettings, folder: str | Path, **notes: Any) -> None:
    """Write oracle.json; `notes` (data, date, scores) are kept beside the settings."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / SETTINGS_FILE, {**notes, **asdict(settings)})


def instruction_for(word: str, codes: Codes) -> str:
    """The instruction of a task (ANSWER or DESCRIBE) about a box.

    >>> instruction_for("user", (1, 2, 3, 4))
    'user <loc0001><loc0002><loc0003><loc0004>'
    """
    return f"{word} {to_text(codes)}"


def seen_context(context: str, sees: str) -> str:
    """Return the text that an oracle with this context reads of a dialogue with an open question.

    >>> seen_context("the cup assistant: this one? user: no assistant: which one?", "question")
    'which one?'
    """
    return context.rpartition(" assistant: ")[2] if sees == QUESTION else context


def same_tokens(tokenizer: Any, *words: str) -> str:
    """Why a model cannot tell its tasks apart by these words, or "".

    >>> same_tokens(tokenizer, "answer", "describe")
    "the model's tokenizer makes the same tokens of 'answer' and 'describe': it cannot ..."
    """
    ids = {tuple(tokenizer(word, add_special_tokens=False)["input_ids"]) for word in words}
    if len(ids) == len(words):
        return ""
    named = " and ".join(map(repr, words))
    return (
        f"the model's tokenizer makes the same tokens of {named}: it cannot tell an answer from a"
        " request"
    )


class Oracle:
    """The oracle adapter of a loaded model, which may have the other adapters too."""

    def __init__(self, checkpoint: Checkpoint, folder: str | Path) -> None:
        """Load the adapter in a folder that `clue train oracle` wrote. Raises ModelError."""
        path = existing_folder(folder, "an oracle (`clue train oracle`)")
        self.settings = load_oracle_settings(path)
        self._checkpoint = checkpoint
        words = self.settings.answer, self.settings.describe
        if reason := same_tokens(checkpoint.processor.tokenizer, *words):
            warnings.warn(f"{path}: {reason}. Train it again", ClueWarning, 2)
        checkpoint.backbone.load_adapter(ORACLE, path)

    def require_box(self) -> None:
        """Raise ModelError for an oracle that does not see what the person has in mind."""
        if self.settings.sees != BOX:
            raise ModelError(
                f"the oracle sees the {self.settings.sees} and no box: it is for --task vqa alone"
            )

    def prompt(self, codes: Codes, context: str) -> tuple[str, str]:
        """The instruction and the context where an answer about a box is wanted."""
        word, sees = self.settings.answer, self.settings.sees
        instruction = instruction_for(word, codes) if sees == BOX else word
        return instruction, seen_context(context, sees)

    def answer(
        self,
        features: Array,
        codes: Codes,
        context: str,
        others: Sequence[Codes] = (),
        rationality: float = 0.0,
    ) -> str:
        """The person's answer. context: the dialogue, which ends with the robot's question.

        features: (1, N, D). codes: the box that the person has in mind. others: boxes of other
        objects. rationality: how much the answer should fit its box better than theirs; 0: the
        likeliest words.
        """
        prompts = [self.prompt(box, context) for box in (codes, *others)]
        instructions = [instruction for instruction, _ in prompts]
        return self._say(features, instructions, prompts[0][1], rationality)

    def describe(self, features: Array, codes: Codes) -> str:
        """The person's request for the object in a box, which may fit other objects too."""
        return self._say(features, [instruction_for(self.settings.describe, codes)], "")

    def _say(
        self,
        features: Array,
        instructions: Sequence[str],
        context: str,
        rationality: float = 0.0,
    ) -> str:
        """Words after the first instruction, apart from what would be said after the others."""
        parts = self._checkpoint
        prompts = encode_prompts(parts.processor, instructions, [context] * len(instructions))
        prefill = read_prompts(parts.backbone, features, prompts, ORACLE)
        said = pragmatic_reply(
            parts.backbone,
            parts.vocabulary,
            prefill,
            rationality,
            max_new_tokens=self.settings.max_new_tokens,
        )
        return parts.words(said)


def suffix_log_probs(
    checkpoint: Checkpoint,
    adapter: str,
    features: Array,
    instruction: str,
    context: str,
    suffixes: Sequence[str],
) -> tuple[Array, npt.NDArray[np.int64]]:
    """Teacher forcing of n suffixes to one prompt: log-probabilities, lengths; (n,) each.

    Each sum is over the suffix's tokens and its <eos>, in nats. features: (1, N, D). suffixes are
    tokenised with their tokens: take apart what a person said (`without_tokens`). The prompt is
    read once; all suffixes follow it side by side.
    """
    tokenizer = checkpoint.processor.tokenizer
    tokens = [
        tokenizer(suffix + tokenizer.eos_token, add_special_tokens=False)["input_ids"]
        for suffix in suffixes
    ]
    prompts = encode_prompts(checkpoint.processor, instruction, [context])
    prefill = read_prompts(checkpoint.backbone, features, prompts, adapter)
    likely, _ = forced(checkpoint.backbone, prefill, tokens)
    return np.array([row.sum() for row in likely]), np.array([len(row) for row in tokens])
