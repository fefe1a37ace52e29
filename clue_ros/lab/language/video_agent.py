"""IC-Seg's agent: ask about a video, choose a key frame of it, point there, be done.

An episode has at most MAX_TURNS actions of four kinds. `hold_episode` puts each question to the
person through `Conversation`, as on the robot. The agent of this module is a `Grounder`: it asks
about the first frame, and once nothing is ambiguous it points in each of the FRAMES frames and
takes the one in which the score of its box is highest. In the paper a chat model does all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.conversation import Conversation, Outcome, Think
from clue_ros.dialogue.types import Box, Dialogue, Grounding, Question

FRAMES = 6  # that the agent sees
MAX_TURNS = 6
Image = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class AskPerson:
    """A question to the person, about the frame `KeyFrame.index` or the first one."""

    question: Question


@dataclass(frozen=True)
class KeyFrame:
    """The frame, counted from 0 among those that the agent sees, in which to segment."""

    index: int


@dataclass(frozen=True)
class Segment:
    """The object in the key frame, in pixels: its box and a point in it."""

    box: Box
    point: tuple[float, float]


@dataclass(frozen=True)
class Done:
    """There is nothing to segment; code: of `Outcome`."""

    code: str


Action = AskPerson | KeyFrame | Segment | Done


class Agent(Protocol):
    """Chooses the next action."""

    def act(self, dialogue: Dialogue, done: Sequence[Action], *, may_ask: bool) -> Action:
        """The next action of an episode, after the ones that are done."""


@dataclass
class Episode:
    """The actions of an episode. found: the object at its end, None without one."""

    actions: list[Action] = field(default_factory=list)
    code: str = "MAX_TURNS"

    @property
    def frame(self) -> int:
        """The key frame, counted among those that the agent saw; the first if none was chosen."""
        return next((a.index for a in reversed(self.actions) if isinstance(a, KeyFrame)), 0)

    @property
    def found(self) -> Segment | None:
        """The object in the key frame; None if the episode ended without one."""
        last = self.actions[-1] if self.actions else None
        return last if isinstance(last, Segment) else None


def seen_frames(count: int, most: int = FRAMES) -> list[int]:
    """Numbers of the frames that an agent sees of a video of `count`: `most`, evenly spread.

    >>> seen_frames(12), seen_frames(3), seen_frames(9, 3)
    ([0, 2, 4, 7, 9, 11], [0, 1, 2], [0, 4, 8])
    """
    return sorted({round(float(n)) for n in np.linspace(0, count - 1, most)})


def hold_episode(
    agent: Agent,
    conversation: Conversation,
    answer: Callable[[Question], str],
    max_turns: int = MAX_TURNS,
) -> Episode:
    """Let an agent act until it has segmented, is done, or has used up its turns.

    The last two turns are kept for key frame and box, so that it may ask in the others alone. A yes
    to "do you mean this one?" ends the episode with that very box.
    """
    episode = Episode()
    while len(episode.actions) < max_turns:
        may_ask = len(episode.actions) < max_turns - 2
        action = agent.act(conversation.dialogue, episode.actions, may_ask=may_ask)
        episode.actions.append(action)
        if isinstance(action, Segment):
            episode.code = "NONE"
            break
        if isinstance(action, Done):
            episode.code = action.code
            break
        if not isinstance(action, AskPerson):
            continue
        step = conversation.reply(action.question)
        while not isinstance(step, Outcome | Think):
            step = conversation.answer(answer(step.question))
        if isinstance(step, Outcome):
            episode.code = step.code
            if step.grounding is not None:
                box = step.grounding.box
                episode.actions.append(Segment(box, box.center))
            break
    return episode


class GrounderAgent:
    """A `Grounder` as an agent; frames: uint8 RGB (H, W, 3) each."""

    def __init__(self, clue: Any, frames: Sequence[Image]) -> None:
        self.clue = clue
        self.views = [clue.look(frame) for frame in frames]

    def act(self, dialogue: Dialogue, done: Sequence[Action], *, may_ask: bool) -> Action:
        """See `Agent`."""
        chosen = [action.index for action in done if isinstance(action, KeyFrame)]
        if chosen:
            found = self.point(chosen[-1], dialogue)
            return Done("NOT_FOUND") if found is None else Segment(found.box, found.box.center)
        reply = self.clue.reply(self.views[0], dialogue, force_grounding=not may_ask)
        if isinstance(reply, Question):
            return AskPerson(reply)
        return KeyFrame(self.best_frame(dialogue))

    def point(self, frame: int, dialogue: Dialogue) -> Grounding | None:
        """Return its grounding in a frame; None if it says that there is no such thing."""
        reply = self.clue.reply(self.views[frame], dialogue, force_grounding=True)
        return reply if isinstance(reply, Grounding) else None

    def best_frame(self, dialogue: Dialogue) -> int:
        """The frame with the surest box, the earliest of several."""
        found = [self.point(frame, dialogue) for frame in range(len(self.views))]
        scores = [-1.0 if each is None else each.score for each in found]
        return int(np.argmax(scores))
