"""A chat model that sees pictures as an agent of videos, in the forms that IC-Seg's writes.

    ambiguous     a thought, then <call>{"name": "vlm_tool", "query": QUESTION}</call>
    one is left   a thought, then <keyframe>INDEX</keyframe>; -1: nothing in the video is meant
    key frame     a thought, then {"bbox_2d": [x1, y1, x2, y2], "point_2d": [x, y]}, 0..1000

The thought stands between <think> and </think>. Forms and the person's tags (<information>) are the
published ones; the words of the prompt are our own. `read_action` accepts common errors of models:
missing tags, prose around a form, single quotes, fractions, corners in another order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image as Picture

from clue_ros.dialogue.types import AmbiguityEstimate, Box, Dialogue, Question
from clue_ros.dialogue.words import offered_answers
from clue_ros.errors import ModelError
from clue_ros.lab.language.video_agent import (
    Action,
    AskPerson,
    Done,
    KeyFrame,
    Segment,
)
from clue_ros.model.loading import first_line, name_and_revision

SCALE = 1000.0  # of coordinates
BAD_FORM = "BAD_FORM"
TOKENS = 1024  # of a reply at most
SIDE = 448  # pixels of the longer side of the frames; the key frame comes at its own size
_THOUGHT = re.compile(r"<think>.*?(</think>|$)", re.DOTALL)
_CALL = re.compile(r"""["']query["']\s*:\s*(["'])(.*?)\1\s*[,}]""", re.DOTALL)
_KEY = re.compile(r"key_?\s?frame[^\d-]{0,9}(-?\d+)", re.IGNORECASE)
_NUMBER = r"\s*[\"']?(-?\d+(?:\.\d+)?)[\"']?\s*"
_BOX = re.compile(rf"bbox_2d\W*?\[\[?{','.join([_NUMBER] * 4)}\]", re.DOTALL)
_POINT = re.compile(rf"point_2d\W*?\[\[?{','.join([_NUMBER] * 2)}\]", re.DOTALL)

_RULES = (
    "You see {count} frames of one video, each after its number, and find the one object that a"
    " person asks for. Left and right are those of the viewer. First think, between <think> and"
    " </think>: list the objects that still match.{asking} When one is left, write"
    " <keyframe>NUMBER</keyframe>: the frame that shows it best, or -1 if none shows it. You are"
    ' then shown that frame, and write {{"bbox_2d": [x1, y1, x2, y2], "point_2d": [x, y]}} of the'
    " object, from 0 to 1000 of the frame's width and height."
)
ASKING = (
    " While there are several, never guess: ask about the one property (colour, shape, place,"
    " direction, action) that splits them most evenly, and write <call>"
    '{"name": "vlm_tool", "query": "QUESTION"}</call>. Call the object "the target", and do not'
    " ask which frame shows it."
)


def read_action(text: str, frames: int, width: int, height: int) -> Action:
    """The action that a reply means; Done(BAD_FORM) if it means none.

    frames: how many were shown. width, height: of the key frame in pixels.
    """
    said = _THOUGHT.sub(" ", text)
    if found := _BOX.search(said):
        x1, y1, x2, y2 = _scaled(found.groups(), width, height)
        box = Box(min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)).clipped(width, height)
        if not box.area:
            return Done("NOT_FOUND")  # the published form of "there is none" is zeros
        at = _POINT.search(said)
        point = box.center
        if at is not None:
            x, y = _scaled(at.groups(), width, height)
            point = (x, y)
        return Segment(box, point)
    if found := _CALL.search(said):
        question = " ".join(found[2].split())
        if question:
            return AskPerson(_question(question))
    if found := _KEY.search(said):
        index = int(found[1])
        return KeyFrame(index) if 0 <= index < frames else Done("NOT_FOUND")
    return Done(BAD_FORM)


def _scaled(numbers: Sequence[str], width: int, height: int) -> list[float]:
    """Coordinates, x and y in turn, in pixels; all up to 1 are taken for fractions."""
    values = [float(number) for number in numbers]
    scale = SCALE if max(values) > 1 else 1.0
    return [v / scale * (height if n % 2 else width) for n, v in enumerate(values)]


def _question(text: str) -> Question:
    unknown = AmbiguityEstimate(1.0, 0.5, np.zeros((1, 1), np.float32), (), 0.0)
    return Question(text, (), offered_answers(text), unknown)


class ChatModel:
    """A model of transformers that reads chats with pictures, such as Qwen3-VL."""

    def __init__(self, model: Any, processor: Any, max_new_tokens: int = TOKENS) -> None:
        self.model, self.processor = model.eval(), processor
        self.max_new_tokens = max_new_tokens

    @classmethod
    def load(cls, name: str, device: str = "auto", dtype: str = "auto") -> ChatModel:
        """Load a hub id (owner/name@revision) or a folder. Raises ModelError."""
        import transformers

        from clue_ros.model.devices import choose_device, choose_dtype
        from clue_ros.model.torch_backbone import quietly

        place, revision = name_and_revision(name)
        pinned: dict[str, Any] = {"revision": revision} if revision else {}
        where = choose_device(device)
        try:
            with quietly():
                processor = transformers.AutoProcessor.from_pretrained(place, **pinned)
                model = transformers.AutoModelForImageTextToText.from_pretrained(
                    place, use_safetensors=True, dtype=choose_dtype(dtype, where), **pinned
                )
        except Exception as error:  # whatever the hub's client and the libraries raise
            raise ModelError(f"cannot load the chat model {name}: {first_line(error)}") from error
        if not getattr(processor, "chat_template", None):
            raise ModelError(f"{name} has no chat template: it is not a chat model")
        return cls(model.to(where), processor)

    @property
    def tokenizer(self) -> Any:
        """The processor's tokenizer."""
        return self.processor.tokenizer

    @property
    def ends(self) -> tuple[int, ...]:
        """The tokens that end a reply."""
        found = self.model.generation_config.eos_token_id
        several = found if isinstance(found, list) else [] if found is None else [found]
        return (self.tokenizer.eos_token_id, *several)

    def say(self, messages: list[dict[str, Any]]) -> str:
        """The likeliest reply to a chat, whose pictures are PIL's."""
        inputs = self.processor.apply_chat_template(
            messages,
            add_generation_prompt=True,
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
        ).to(self.model.device, self.model.dtype)
        # Without gradients, by transformers' own decorator.
        out = self.model.generate(**inputs, do_sample=False, max_new_tokens=self.max_new_tokens)
        reply = out[0, inputs["input_ids"].shape[1] :]
        text: str = self.processor.decode(reply, skip_special_tokens=True)
        return text


class ChatAgent:
    """An agent of `video_agent`; frames: uint8 RGB (H, W, 3) each. model: has `say`."""

    def __init__(self, model: Any, frames: Sequence[npt.NDArray[np.uint8]]) -> None:
        self.model = model
        self.frames = [Picture.fromarray(frame) for frame in frames]

    def act(self, dialogue: Dialogue, done: Sequence[Action], *, may_ask: bool) -> Action:
        """See `Agent`. A question where it may not ask ends the episode."""
        chosen = [action.index for action in done if isinstance(action, KeyFrame)]
        frame = self.frames[chosen[-1] if chosen else 0]
        text = self.model.say(self._messages(dialogue, chosen, may_ask))
        action = read_action(text, len(self.frames), frame.width, frame.height)
        if isinstance(action, AskPerson) and not may_ask:
            return Done("MAX_TURNS")
        if isinstance(action, Segment) and not chosen:
            return Done(BAD_FORM)  # of no frame in particular
        return action

    def _messages(
        self, dialogue: Dialogue, chosen: Sequence[int], may_ask: bool
    ) -> list[dict[str, Any]]:
        """The chat so far, in the forms that the model writes itself."""
        rules = _RULES.format(count=len(self.frames), asking=ASKING if may_ask else "")
        request, *later = dialogue.turns
        opening: list[dict[str, Any]] = []
        for number, frame in enumerate(self.frames):
            small = frame.copy()
            small.thumbnail((SIDE, SIDE))
            opening += [text_part(f"Frame {number}:"), {"type": "image", "image": small}]
        opening.append(text_part(f"The person says: {request.text}"))
        messages = [{"role": "system", "content": [text_part(rules)]}, message("user", opening)]
        for turn in later:
            if turn.speaker == "robot":
                call = f'<call>{{"name": "vlm_tool", "query": "{turn.text}"}}</call>'
                messages.append(message("assistant", [text_part(call)]))
            else:
                heard = f"<information>{turn.text}</information>"
                messages.append(message("user", [text_part(heard)]))
        if chosen:
            key = f"<keyframe>{chosen[-1]}</keyframe>"
            messages.append(message("assistant", [text_part(key)]))
            picture = {"type": "image", "image": self.frames[chosen[-1]]}
            messages.append(message("user", [text_part("The key frame:"), picture]))
        return messages


def text_part(text: str) -> dict[str, Any]:
    """Words as a part of a message."""
    return {"type": "text", "text": text}


def message(role: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    """A message of a chat."""
    return {"role": role, "content": content}
