"""Chat models of any family, asked without training whether a sentence is ambiguous (Table I).

The paper's baselines are Gemma 3 of 4 and 27 billion parameters, prompted. Any image-text-to-text
model of transformers with a chat template can be asked, in two ways: by its generated answer, and
by the likelihoods of "yes" and "no" as its first word. The paper does not give its prompt:
`QUESTION` is ours.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image

from clue_ros.errors import ModelError
from clue_ros.model.detector_variants import NO, YES
from clue_ros.model.devices import OnDevice, choose_device, choose_dtype
from clue_ros.model.loading import (
    check_sizes,
    fingerprint,
    first_line,
    name_and_revision,
    why_not_fetched,
)
from clue_ros.model.prompts import escape
from clue_ros.model.quantization import NONE, loading_options
from clue_ros.model.torch_backbone import quietly

QUESTION = (
    'Look at the picture. A person says: "{}". Can these words mean more than one thing in the'
    " picture, so that one has to ask which? Answer with yes or no."
)
ANSWER_TOKENS = 16  # some models open with a few other words
_ANSWER = re.compile(rf"\b({YES}|{NO})\b", re.IGNORECASE)


class ChatModel(OnDevice):
    """An image-text-to-text model with its processor. name: a hub id (@revision) or a folder."""

    def __init__(self, model: Any, processor: Any, name: str) -> None:
        """Raises ModelError for a processor without a chat template, or words for yes and no."""
        self.model, self._processor, self.name = model.eval(), processor, name
        if not getattr(processor, "chat_template", None):
            raise ModelError(f"{name} has no chat template: want a model that was tuned to chat")
        self._yes, self._no = self._first_tokens(YES), self._first_tokens(NO)
        both = self._yes & self._no
        self._yes, self._no = self._yes - both, self._no - both
        if not self._yes or not self._no:
            raise ModelError(f"{name}: its tokenizer has no tokens for {YES!r} and {NO!r}")

    @classmethod
    def load(
        cls, name: str, *, device: str = "auto", dtype: str = "auto", quantization: str = NONE
    ) -> ChatModel:
        """Load a hub id or a folder; neither code nor pickles of it are run. Raises ModelError."""
        from transformers import AutoModelForImageTextToText, AutoProcessor

        place, revision = name_and_revision(name)
        pinned: dict[str, Any] = {"trust_remote_code": False}
        pinned |= {"revision": revision} if revision else {}
        where = choose_device(device)
        kind = choose_dtype(dtype, where)
        more = loading_options(quantization, where, kind)
        try:
            check_sizes(name, _configuration(name))
            with quietly():
                processor = AutoProcessor.from_pretrained(place, **pinned)
                model = AutoModelForImageTextToText.from_pretrained(
                    place, use_safetensors=True, dtype=kind, **pinned, **more
                )
        except ModelError:
            raise
        except Exception as error:  # whatever the hub's client and the libraries raise
            raise _cannot_load(name, error) from error
        return cls(model if more else model.to(where), processor, name)

    def _first_tokens(self, word: str) -> set[int]:
        """The tokens that an answer with this word can begin with."""
        tokenizer, found = self.tokenizer, set[int]()
        for written in (word, word.title(), word.upper()):
            for text in (written, f" {written}"):
                tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
                whole = tokens and tokenizer.decode(tokens[:1]).strip().lower() == word
                found |= {tokens[0]} if whole else set()
        return found

    @torch.inference_mode()
    def likelihood(self, image: npt.NDArray[np.uint8], sentences: Sequence[str]) -> list[float]:
        """Probability of "yes" against "no" as the first word, for sentences about one image.

        image: uint8 RGB (H, W, 3).
        """
        chances = []
        for inputs in self._asked(image, sentences):
            logits = self.model(**inputs).logits[0, -1].float().log_softmax(-1)
            yes, no = (logits[sorted(ids)].logsumexp(0) for ids in (self._yes, self._no))
            chances.append(float(torch.sigmoid(yes - no)))
        return chances

    @torch.inference_mode()
    def generated(self, image: npt.NDArray[np.uint8], sentences: Sequence[str]) -> list[float]:
        """1.0 if the greedy answer says yes first, else 0.0: no, or neither of the two."""
        said = []
        for inputs in self._asked(image, sentences):
            out = self.model.generate(**inputs, max_new_tokens=ANSWER_TOKENS, do_sample=False)
            said.append(self.read_answer(out[0, inputs["input_ids"].shape[1] :].tolist()))
        return said

    def read_answer(self, tokens: Sequence[int]) -> float:
        """1.0 if generated tokens say yes before they say no, else 0.0."""
        found = _ANSWER.search(self.tokenizer.decode(tokens, skip_special_tokens=True))
        return float(found is not None and found[1].lower() == YES)

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of the processor."""
        return self._processor.tokenizer

    def prompt(self, sentence: str) -> str:
        """Return the question about a sentence in the model's chat template, as text."""
        return str(
            self._processor.apply_chat_template(
                self._turn(None, sentence), add_generation_prompt=True, tokenize=False
            )
        )

    def _turn(self, picture: Any, sentence: str) -> list[dict[str, Any]]:
        text = QUESTION.format(escape(sentence, self.tokenizer))
        image = {"type": "image", **({} if picture is None else {"image": picture})}
        return [{"role": "user", "content": [image, {"type": "text", "text": text}]}]

    def _asked(self, image: npt.NDArray[np.uint8], sentences: Sequence[str]) -> list[Any]:
        """The inputs of a turn about the image for each sentence."""
        picture, asked = Image.fromarray(image), []
        for sentence in sentences:
            inputs = self._processor.apply_chat_template(
                self._turn(picture, sentence),
                add_generation_prompt=True,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
            )
            asked.append(inputs.to(self.device, dtype=self.model.dtype))
        return asked


class ChatBaseline:
    """A chat model, loaded at the first question. settings: of `ChatModel.load`."""

    def __init__(self, name: str, **settings: Any) -> None:
        self.name, self._settings = name, settings

    @cached_property
    def model(self) -> ChatModel:
        """The model."""
        return ChatModel.load(self.name, **self._settings)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of a folder's files, or the commit of a hub id; loads no weights."""
        folder = Path(self.name).expanduser()
        if folder.is_dir():
            return fingerprint(folder)
        return str(_configuration(self.name).get("_commit_hash") or self.name)


def _configuration(name: str) -> dict[str, Any]:
    """The content of config.json. Raises ModelError."""
    from transformers import PreTrainedConfig

    place, revision = name_and_revision(name)
    pinned = {"revision": revision} if revision else {}
    try:
        found: dict[str, Any] = PreTrainedConfig.get_config_dict(place, **pinned)[0]
        return found
    except Exception as error:  # whatever the hub's client and the libraries raise
        raise _cannot_load(name, error) from error


def _cannot_load(name: str, error: Exception) -> ModelError:
    """Return why a chat model fails to load: the hub's message, else the library's first line."""
    cause: Any = error.__cause__ or error
    if type(cause).__module__.startswith("huggingface_hub"):
        return ModelError(why_not_fetched(*name_and_revision(name), cause))
    return ModelError(f"cannot load the chat model {name}: {first_line(error)}")
