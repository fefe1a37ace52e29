"""Dialogues of adapter B with simulated people, and their rewards.

A prompt is a request about a rendered scene: ambiguous, clear, or for an object that is not there;
or about a clip (`grpo_clips`), an episode of `video_agent`: adapter B asks about the first frame;
once it points there, its likeliest boxes in the frames that it sees choose the key frame by their
score, and the box that counts is sampled in that one.

The person (`RichUser`) knows the target and which objects match all that was said, so rewards are
exact. Replies are sampled from the distribution that the constrained decoding allows, all dialogues
of a step together; contexts that several of them share are read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate
from typing import Any, Protocol

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.helpful import asks_again
from clue_ros.dialogue.nouns import in_one_form
from clue_ros.dialogue.types import Box, Dialogue
from clue_ros.dialogue.words import offered_answers
from clue_ros.lab.language.answers import unique_references
from clue_ros.lab.language.references import Candidates
from clue_ros.lab.language.requests import requests_about
from clue_ros.lab.language.rich_grammar import RichGrammar
from clue_ros.lab.language.simulated_user import RichUser, question_axes
from clue_ros.lab.language.words import WHERE
from clue_ros.lab.metrics import MIN_IOU, mask_iou
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.training.grpo_rewards import (
    Ending,
    RewardOptions,
    box_reward,
    fewest_questions,
    group_advantages,
    information,
    point_reward,
    trajectory_reward,
    turn_reward,
    varies,
)
from clue_ros.model.backbone import IVG, Array
from clue_ros.model.checkpoint import IvgSettings, look_at
from clue_ros.model.decoding import (
    Bits,
    Generation,
    Mode,
    Prefill,
    Vocabulary,
    allowed_tokens,
    reply_to,
)
from clue_ros.model.location_tokens import decode_box
from clue_ros.model.masks import Mask, grabcut_mask
from clue_ros.model.prompts import decode_text, encode_prompts
from clue_ros.model.torch_backbone import TorchBackbone
from clue_ros.model.tracking import box_of

POINTING: Mode = "grounding"
AMBIGUOUS, CLEAR, ABSENT = KINDS = ("ambiguous", "clear", "absent")


class Footage(Protocol):
    """A clip as an episode needs it; a frame's number counts those that the agent sees."""

    @property
    def count(self) -> int:
        """The number of `frames`."""

    @property
    def frames(self) -> list[npt.NDArray[np.uint8]]:
        """The frames that the agent sees, uint8 RGB (H, W, 3) of one size."""

    def truth(self, frame: int) -> Mask:
        """The target's pixels in a frame, bool (H, W)."""

    def track(self, frame: int, box: Box) -> float:
        """J&F of the masks that a tracker finds from a box in a frame on, in both directions."""


@dataclass(frozen=True)
class Prompt:
    """A request about a scene.

    target: None where nothing in the scene is meant. seed: of the person who says it. footage: of
    the clip whose first frame is the scene's image; None: it is a picture.
    """

    scene: Scene
    text: str
    candidates: Candidates
    target: int | None
    seed: int
    footage: Footage | None = None

    @property
    def pictures(self) -> list[npt.NDArray[np.uint8]]:
        """The pictures that the agent sees."""
        return [self.scene.image] if self.footage is None else self.footage.frames

    @property
    def count(self) -> int:
        """The number of `pictures`."""
        return 1 if self.footage is None else self.footage.count

    @property
    def kind(self) -> str:
        """AMBIGUOUS, CLEAR or ABSENT."""
        return (ABSENT, CLEAR)[len(self.candidates)] if len(self.candidates) < 2 else AMBIGUOUS

    @cached_property
    def mask(self) -> Mask:
        """The target's pixels, bool (H, W) of the scene's image."""
        assert self.target is not None
        scene, (height, width) = self.scene, self.scene.image.shape[:2]
        if scene.masks is not None:
            return np.asarray(scene.masks == self.target + 1)
        whole = cv2.resize(scene.instances, (width, height), interpolation=cv2.INTER_NEAREST)
        return np.asarray(whole == self.target + 1)


def draw_prompts(
    scenes: Sequence[Scene],
    grammar: RichGrammar,
    count: int,
    rng: np.random.Generator,
    *,
    clear: float,
    absent: float,
) -> list[Prompt]:
    """Requests about random scenes. clear, absent: their shares; the others are ambiguous."""
    prompts: list[Prompt] = []
    while len(prompts) < count:
        scene = scenes[int(rng.integers(len(scenes)))]
        chance = rng.uniform()
        want = CLEAR if chance < clear else ABSENT if chance < clear + absent else AMBIGUOUS
        prompts += prompts_about(scene, grammar, want, 1, rng)
    return prompts


def prompts_about(
    scene: Scene, grammar: RichGrammar, want: str, count: int, rng: np.random.Generator
) -> list[Prompt]:
    """Up to `count` requests of one kind about a scene, each with a target of its own."""
    found = []
    for request in requests_about(scene, grammar, want, count, rng):
        meant = request.candidates
        target = int(rng.choice(meant)) if meant else None
        found.append(Prompt(scene, request.text, meant, target, int(rng.integers(2**31))))
    return found


@dataclass(frozen=True)
class Turn:
    """A reply with its context and reward.

    told: the context of a model that is told the target, "" where the step level has nothing to
    say. reward: r_t. frame: the number of the prompt's picture that it is about. mode: of its
    decoding.
    """

    context: str
    said: Generation
    told: str = ""
    reward: float = 0.0
    frame: int = 0
    mode: Mode = "free"


@dataclass
class Rollout:
    """A dialogue from a prompt on.

    image: the number of its first picture's features. points: it only has to point, in a clip's
    key frame. frame: that key frame, once it is chosen.
    """

    prompt: Prompt
    image: int
    user: RichUser | None
    dialogue: Dialogue
    turns: list[Turn] = field(default_factory=list)
    ending: Ending | None = None
    reward: float = 0.0
    right: bool = False
    points: bool = False
    frame: int = 0

    @property
    def questions(self) -> int:
        """Number of questions asked, a last one without an answer too."""
        return sum(not turn.said.is_grounding for turn in self.turns)

    @property
    def acts(self) -> str:
        """Its replies in order, "q" for words and "b" for a box."""
        return "".join("b" if turn.said.is_grounding else "q" for turn in self.turns)

    @property
    def useless(self) -> int:
        """Number of questions that separated no candidates, or came when one was left."""
        return self.user.useless if self.user is not None else 0


@dataclass(frozen=True)
class Agent:
    """Adapter B on the torch backbone at this step. mode: of its decoding."""

    backbone: TorchBackbone
    processor: Any
    vocabulary: Vocabulary
    settings: IvgSettings
    mode: Mode = "free"

    def look(self, prompts: Sequence[Prompt]) -> Array:
        """Features (n, N, D) of the prompts' pictures in order; a scene is looked at once."""
        once = {id(prompt.scene): prompt for prompt in prompts}
        seen = {
            key: look_at(self.backbone, self.processor, prompt.pictures)
            for key, prompt in once.items()
        }
        return np.concatenate([seen[id(prompt.scene)] for prompt in prompts])

    def reply(
        self,
        features: Array,
        rollouts: Sequence[Rollout],
        contexts: Sequence[str],
        rng: np.random.Generator | None,
    ) -> list[Generation]:
        """A reply to each context, sampled with `rng`, else the likeliest.

        A rollout that has to point does so in its key frame, which is chosen here.
        """
        keys = [(r.image, context) for r, context in zip(rollouts, contexts, strict=True)]
        points = [i for i, r in enumerate(rollouts) if r.points]
        if points:
            clips = [(keys[i], rollouts[i].prompt.count) for i in points]
            for i, frame in zip(points, self._key_frames(features, clips), strict=True):
                rollouts[i].frame = frame
                keys[i] = rollouts[i].image + frame, contexts[i]
        said: dict[int, Generation] = {}
        asks = [i for i in range(len(keys)) if i not in points]
        for rows, mode in ((asks, self.mode), (points, POINTING)):
            if rows:
                replies = self._say(features, [keys[i] for i in rows], mode, rng)
                said |= zip(rows, replies, strict=True)
        return [said[i] for i in range(len(keys))]

    def _key_frames(
        self, features: Array, clips: Sequence[tuple[tuple[int, str], int]]
    ) -> list[int]:
        """The frame of each clip in which the likeliest box has the highest score, the earliest.

        clips: the number of a clip's first picture, a context, and the number of its frames.
        """
        scores = np.full((len(clips), max(count for _, count in clips)), -1.0)
        for frame in range(scores.shape[1]):
            rows = [i for i, (_, count) in enumerate(clips) if frame < count]
            keys = [(clips[i][0][0] + frame, clips[i][0][1]) for i in rows]
            found = self._say(features, keys, POINTING, None)
            scores[rows, frame] = [said.score for said in found]
        return [int(frame) for frame in scores.argmax(1)]

    def _say(
        self,
        features: Array,
        keys: Sequence[tuple[int, str]],
        mode: Mode,
        rng: np.random.Generator | None,
    ) -> list[Generation]:
        """A reply to each picture's number and context; equal ones are read once."""
        once = list(dict.fromkeys(keys))
        prompts = encode_prompts(
            self.processor,
            self.settings.instruction,
            [context for _, context in once],
        )
        images = features[[image for image, _ in once]]
        state, logits = self.backbone.read(images, prompts, IVG)
        rows = np.array([once.index(key) for key in keys])
        prefill = Prefill(logits[rows], self.backbone.select(state, rows))
        return reply_to(
            self.backbone,
            self.vocabulary,
            prefill,
            mode,
            max_new_tokens=self.settings.max_new_tokens,
            max_boxes=self.settings.max_boxes,
            rng=rng,
        )

    def words(self, said: Generation) -> str:
        """The sentence of a reply."""
        return decode_text(self.processor.tokenizer, said.tokens)

    def sampled(self, said: Generation) -> tuple[int, ...]:
        """The tokens of a reply with the <eos> that ended it, if one did."""
        ended = len(said.log_probs) > len(said.tokens)
        return (*said.tokens, self.vocabulary.eos) if ended else said.tokens

    def allowed(self, turn: Turn) -> Bits:
        """Return the tokens that sampling allows at each position of a reply, bool (S, V)."""
        said = self.sampled(turn.said)
        return allowed_tokens(self.vocabulary, turn.mode, said, self.settings.max_boxes)


class Policy(Protocol):
    """The protocol of an agent for `play`: `Agent`, or a chat model (`grpo_chat`)."""

    def reply(
        self,
        features: Array,
        rollouts: Sequence[Rollout],
        contexts: Sequence[str],
        rng: np.random.Generator | None,
    ) -> list[Generation]:
        """A reply to each context, sampled with `rng`, else the likeliest."""

    def words(self, said: Generation) -> str:
        """The sentence of a reply."""


def play(
    agent: Policy,
    grammar: RichGrammar,
    prompts: Sequence[Prompt],
    features: Array,
    weights: RewardOptions,
    *,
    each: int,
    max_questions: int,
    rng: np.random.Generator | None,
) -> list[list[Rollout]]:
    """`each` dialogues from each prompt to their ends, with their rewards.

    features: of the prompts' pictures, (n, N, D). rng: samples replies; None: the likeliest. A
    question after `max_questions` of them ends a dialogue without a box, as on the robot.
    """
    images = accumulate((prompt.count for prompt in prompts), initial=0)
    groups = [
        [_opened(grammar, prompt, image) for _ in range(each)]
        for prompt, image in zip(prompts, images, strict=False)
    ]
    everyone = [rollout for group in groups for rollout in group]
    while waiting := [r for r in everyone if r.ending is None]:
        contexts = [in_one_form(r.dialogue.for_model()).context() for r in waiting]
        said = agent.reply(features, waiting, contexts, rng)
        for rollout, context, reply in zip(waiting, contexts, said, strict=True):
            _take(agent, grammar, rollout, context, reply, weights, max_questions)
    return groups


def _opened(grammar: RichGrammar, prompt: Prompt, image: int) -> Rollout:
    user = None
    if prompt.target is not None:
        objects = prompt.scene.objects
        user = RichUser(grammar, objects, prompt.target, prompt.candidates, prompt.seed)
    return Rollout(prompt, image, user, Dialogue(prompt.text))


def _take(
    agent: Policy,
    grammar: RichGrammar,
    rollout: Rollout,
    context: str,
    said: Generation,
    weights: RewardOptions,
    max_questions: int,
) -> None:
    """Add a reply to a dialogue: the person answers a question, a box ends it."""
    prompt, user = rollout.prompt, rollout.user
    if said.is_grounding and prompt.footage is not None and not rollout.points:
        # It points: the first location says so, the others are of a box that nobody uses.
        first = replace(said, tokens=said.tokens[:1], log_probs=said.log_probs[:1])
        rollout.turns.append(Turn(context, first))
        rollout.points = True
        return
    if said.is_grounding:
        told = _told(grammar, rollout) if weights.step_weight else ""
        mode: Mode = POINTING if rollout.points else "free"
        rollout.turns.append(Turn(context, said, told, frame=rollout.frame, mode=mode))
        _end(rollout, _pointed(grammar, rollout, said, weights), weights)
        return
    text = agent.words(said)
    parses = len(said.ends) > len(said.tokens)  # else it was cut short
    axes = question_axes(text)
    if user is None:
        found = parses and axes == ("nothing",)
        rollout.turns.append(Turn(context, said))
        rollout.right = found
        share = float(found)
        _end(rollout, Ending(found, share, share, share), weights)
        return
    if not parses or rollout.questions == max_questions:
        rollout.turns.append(Turn(context, said, reward=0.0))
        _end(rollout, Ending(False), weights)
        return
    turns = rollout.dialogue.turns
    heard = [turn.text for turn in turns if turn.speaker == "user"]
    repeats = asks_again(text, offered_answers(text), heard) or any(
        turn.text == text for turn in turns if turn.speaker == "robot"
    )
    before, useless = len(user.candidates), user.useless
    answer = user(text)
    # A person may tell more than was asked: that is not the question's merit.
    left = before if user.useless > useless else len(user.candidates)
    gained = information(before, left, len(prompt.candidates))
    reward = turn_reward(gained, repeats=repeats, axes=len(axes), weights=weights)
    rollout.turns.append(Turn(context, said, reward=reward))
    rollout.dialogue.add_question(text)
    rollout.dialogue.add_answer(answer)


def _end(rollout: Rollout, ending: Ending, weights: RewardOptions) -> None:
    rollout.ending, rollout.reward = ending, trajectory_reward(ending, weights)


def _pointed(
    grammar: RichGrammar, rollout: Rollout, said: Generation, weights: RewardOptions
) -> Ending:
    """Return the reward terms of a box."""
    prompt, user, footage = rollout.prompt, rollout.user, rollout.prompt.footage
    if user is None or prompt.target is None:
        return Ending(True, guessed=True)
    assert said.codes is not None
    image = prompt.scene.image
    height, width = image.shape[:2]
    box = decode_box(said.codes, width, height)
    if footage is None:
        pixels = prompt.mask
        truth = Box(*prompt.scene.objects[prompt.target].box).in_pixels(width, height)
    else:
        pixels = footage.truth(rollout.frame)
        truth = box_of(pixels) if pixels.any() else Box(0.0, 0.0, 0.0, 0.0)
    rollout.right = box.iou(truth) >= MIN_IOU
    fewest = fewest_questions(prompt.candidates, prompt.scene.objects, grammar.nouns)
    ending = Ending(
        True,
        box_reward(box, truth),
        point_reward(box.center, pixels),
        excess=max(0, rollout.questions - fewest),
        guessed=len(user.candidates) > 1,
    )
    if box.iou(truth) == 0:  # GrabCut and the tracker take time
        return ending
    if footage is None:
        iou = mask_iou(grabcut_mask(image, box), pixels) if weights.mask_weight else 0.0
        return replace(ending, mask=iou)
    earns = weights.track_weight and not ending.guessed
    return replace(ending, track=footage.track(rollout.frame, box) if earns else 0.0)


def _told(grammar: RichGrammar, rollout: Rollout) -> str:
    """The dialogue with one more answer that names the target alone; "" if nothing does."""
    prompt = rollout.prompt
    if prompt.target is None:
        return ""
    names = unique_references(prompt.target, prompt.scene.objects)
    if not names:
        return ""
    rng = np.random.default_rng(prompt.seed)
    dialogue = Dialogue(prompt.text, rollout.dialogue.turns[1:])
    dialogue.add_question(WHERE)
    dialogue.add_answer(grammar.phrasing.phrase(names[0], rng))
    return in_one_form(dialogue.for_model()).context()


@dataclass(frozen=True)
class Lesson:
    """A reply to learn from.

    image: the number of its picture's features. advantage: A of its turn, without that of its
    steps.
    """

    image: int
    turn: Turn
    advantage: float


def lessons(groups: Sequence[Sequence[Rollout]], weights: RewardOptions) -> list[Lesson]:
    """The replies of the groups whose final rewards differ."""
    out = []
    for group in groups:
        rewards = [rollout.reward for rollout in group]
        if not varies(rewards):
            continue
        turns = [[turn.reward for turn in rollout.turns] for rollout in group]
        for rollout, row in zip(group, group_advantages(rewards, turns, weights), strict=True):
            pairs = zip(rollout.turns, row, strict=True)
            out += [Lesson(rollout.image + turn.frame, turn, a) for turn, a in pairs]
    return out


def figures(rollouts: Sequence[Rollout]) -> dict[str, tuple[float, int]]:
    """Sums over dialogues, and the numbers that their means are over.

    reward and the terms of `Ending`: of all, mask of pictures and track of clips. later: whether a
    clip's key frame is not the first. right, right_clear, right_absent: ambiguous, clear and
    absent requests that end at the target, or with the word that there is none. questions, useless,
    unasked: of an ambiguous request the questions, those that separated no candidates, and whether
    it was answered without asking. asked_clear: clear ones that were asked about. turn: r_t of a
    question about an ambiguous one.
    """
    kinds = {kind: [r for r in rollouts if r.prompt.kind == kind] for kind in KINDS}
    ambiguous, clear = kinds[AMBIGUOUS], kinds[CLEAR]
    ends = [r.ending for r in rollouts if r.ending is not None]
    values: dict[str, list[float]] = {"reward": [r.reward for r in rollouts]}
    clips = any(r.prompt.footage is not None for r in rollouts)
    for name in ("parses", "box", "point", "track" if clips else "mask", "excess", "guessed"):
        values[name] = [float(getattr(end, name)) for end in ends]
    for name, kind in (("right", AMBIGUOUS), ("right_clear", CLEAR), ("right_absent", ABSENT)):
        values[name] = [float(r.right) for r in kinds[kind]]
    if clips:
        values["later"] = [float(r.frame > 0) for r in rollouts]
    values |= {
        "questions": [float(r.questions) for r in ambiguous],
        "useless": [float(r.useless) for r in ambiguous],
        "unasked": [float(r.questions == 0) for r in ambiguous],
        "asked_clear": [float(r.questions > 0) for r in clear],
        "turn": [t.reward for r in ambiguous for t in r.turns if not t.said.is_grounding],
    }
    return {name: (sum(row), len(row)) for name, row in values.items()}
