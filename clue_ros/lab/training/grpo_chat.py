"""A chat model that sees one picture as an agent of `grpo_rollouts`, for backend `trl`.

It replies in IC-Seg's forms: a call that asks, or a box. Replies are sampled from all tokens at
temperature 1. A dialogue is one sequence of tokens: the prompt with the picture, then the replies
with the person's words and the chat template's tokens between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from PIL import Image as Picture

from clue_ros.lab.language.chat_agent import ASKING, ChatModel, message, read_action, text_part
from clue_ros.lab.language.video_agent import Action, AskPerson, Done, Segment
from clue_ros.lab.training.grpo_rollouts import Prompt, Rollout
from clue_ros.model.backbone import Array
from clue_ros.model.decoding import Generation
from clue_ros.model.location_tokens import encode_box

RULES = (
    "You see a picture, and find the one object that a person asks for. Left and right are those"
    " of the viewer. First think, between <think> and </think>: list the objects that still match."
    + ASKING
    + ' When one is left, write {"bbox_2d": [x1, y1, x2, y2], "point_2d": [x, y]} of it, from 0 to'
    " 1000 of the picture's width and height, or zeros if there is none."
)
NOT_THERE = "I do not see it."  # the meaning of zeros
_REPLY = "\N{WHITE SQUARE}"  # stands for a reply in a chat


@dataclass(frozen=True)
class Tokens:
    """A dialogue as a trainer reads it.

    prompt, completion: token ids. spans: of each reply in the completion, first and one past last.
    """

    prompt: list[int]
    completion: list[int]
    spans: list[tuple[int, int]]

    def spread(self, values: Sequence[float]) -> list[float]:
        """The value of each reply for each of its tokens; 0 for those between the replies."""
        out = [0.0] * len(self.completion)
        for (first, end), value in zip(self.spans, values, strict=True):
            out[first:end] = [value] * (end - first)
        return out


def opening(request: str) -> list[dict[str, str]]:
    """The chat before the first reply, without its picture."""
    return [
        {"role": "system", "content": RULES},
        {"role": "user", "content": f"The person says: {request}"},
    ]


@dataclass
class ChatPolicy:
    """A chat model as the agent of `grpo_rollouts.play`."""

    chat: ChatModel
    _read: dict[int, tuple[Prompt, dict[str, Any]]] = field(default_factory=dict)

    def inputs(self, prompt: Prompt) -> dict[str, Any]:
        """The processor's tensors of a prompt: its tokens and its pictures."""
        if id(prompt) not in self._read:
            picture = {"type": "image", "image": Picture.fromarray(prompt.scene.image)}
            rules, request = (text_part(one["content"]) for one in opening(prompt.text))
            found = self.chat.processor.apply_chat_template(
                [message("system", [rules]), message("user", [picture, request])],
                add_generation_prompt=True,
                tokenize=True,
                return_dict=True,
                return_tensors="pt",
            )
            self._read[id(prompt)] = prompt, dict(found)
        return self._read[id(prompt)][1]

    def forget(self) -> None:
        """Drop the tensors of prompts that are done."""
        self._read.clear()

    def between(self, answer: str) -> list[int]:
        """The tokens from the end of a reply on to the next one, with the person's answer."""
        heard = f"<information>{answer}</information>"
        chat = [message("assistant", [text_part(_REPLY)]), message("user", [text_part(heard)])]
        text = self.chat.processor.apply_chat_template(chat, add_generation_prompt=True)
        after = text.rpartition(_REPLY)[2]
        ids: list[int] = self.chat.tokenizer(after, add_special_tokens=False)["input_ids"]
        return ids[1:] if ids and ids[0] in self.chat.ends else ids  # the reply has its end

    def tokens(self, rollout: Rollout) -> Tokens:
        """A dialogue so far, up to the next reply where one is wanted."""
        completion, spans = list[int](), list[tuple[int, int]]()
        answers = [turn.text for turn in rollout.dialogue.turns[1:] if turn.speaker == "user"]
        for number, turn in enumerate(rollout.turns):
            spans.append((len(completion), len(completion) + len(turn.said.tokens)))
            completion += turn.said.tokens
            if number < len(answers):
                completion += self.between(answers[number])
        return Tokens(self.inputs(rollout.prompt)["input_ids"][0].tolist(), completion, spans)

    def reply(
        self,
        features: Array,
        rollouts: Sequence[Rollout],
        contexts: Sequence[str],
        rng: np.random.Generator | None,
    ) -> list[Generation]:
        """The next reply of each dialogue, sampled by torch's generator."""
        return [self._generation(rollout, *self.sample(rollout)) for rollout in rollouts]

    def sample(self, rollout: Rollout) -> tuple[list[int], list[float]]:
        """The tokens of the next reply with the one that ends it, and their log-probabilities."""
        chat, tokens = self.chat, self.tokens(rollout)
        given = whole(self.inputs(rollout.prompt), tokens.completion)
        out = chat.model.generate(
            **{name: value.to(chat.model.device) for name, value in given.items()},
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=chat.max_new_tokens,
            suppress_tokens=[chat.model.config.image_token_id],  # a picture that nobody sent
            return_dict_in_generate=True,
            output_logits=True,
        )
        ids = out.sequences[0, given["input_ids"].shape[1] :]
        logs = torch.stack([row[0].float() for row in out.logits]).log_softmax(-1)
        return ids.tolist(), logs.gather(1, ids[:, None])[:, 0].tolist()

    def _generation(self, rollout: Rollout, ids: list[int], logs: list[float]) -> Generation:
        """A reply as `grpo_rollouts` reads it: a box, words, or one without a form."""
        height, width = rollout.prompt.scene.image.shape[:2]
        action = self._action(ids, width, height)
        box = encode_box(action.box, width, height) if isinstance(action, Segment) else None
        has_form = isinstance(action, AskPerson) or action == Done("NOT_FOUND")
        return Generation(
            tuple(ids),
            (1.0,) * len(ids),
            box,
            ends=(0.0,) * (len(ids) + 1) if has_form else (),
            log_probs=tuple(logs),
        )

    def words(self, said: Generation) -> str:
        """The question of a reply, or that there is no such thing."""
        action = self._action(said.tokens, 1, 1)
        return action.question.text if isinstance(action, AskPerson) else NOT_THERE

    def _action(self, ids: Sequence[int], width: int, height: int) -> Action:
        text = self.chat.processor.decode(list(ids), skip_special_tokens=True)
        return read_action(text, 0, width, height)


def whole(inputs: dict[str, Any], completion: Sequence[int]) -> dict[str, Any]:
    """A prompt's tensors with the tokens of a completion behind them."""
    more = torch.tensor([list(completion)], dtype=torch.long)
    tails = {"input_ids": more, "attention_mask": torch.ones_like(more)}
    shape = inputs["input_ids"].shape
    return {
        name: torch.cat([value, tails.get(name, torch.zeros_like(more)).to(value.dtype)], 1)
        if value.shape == shape  # one number a token: its kind, 0 for words
        else value
        for name, value in inputs.items()
    }
