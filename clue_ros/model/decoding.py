# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Decoding of replies with a cache, constrained to the policy's form (Alg. 1, Fig. 2).

Replies are greedy; reinforcement (`clue train grpo`) samples them.

Modes:
    question       words, up to <eos>; the first token may be neither a location, nor <eos>, nor
                   special
    grounding      four location tokens that make a valid box, y1 < y2 and x1 < x2; where the
                   decoder was taught to count aloud, up to `max_boxes` with ";" between
                   them, of which the last one is meant
    segment        four location tokens as above (or those of a given box), then sixteen segment
                   tokens: the mask in that box (`clue_ros.model.mask_decoder`)
    free           the decoder decides: its first token opens a question or a grounding, which then
                   follows those rules
    unconstrained  plain greedy decoding, as transformers' generate (for comparison)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from clue_ros.model.backbone import Array, Backbone
from clue_ros.model.location_tokens import BETWEEN, LAST, STEPS, Codes
from clue_ros.model.prompts import IMAGE, LOCATIONS, NEWLINE, SEGMENTS, Prompts

Bits = npt.NDArray[np.bool_]  # of the vocabulary, (V,)
Mode = Literal["question", "grounding", "segment", "free", "unconstrained"]

SIDES = 4  # location tokens of a box
MASK_TOKENS = 16  # segment tokens of a mask
ROOM = 32  # tokens of a reply that a cache has room for at first; it grows for longer ones
NEAR = 20
"""Location steps on either side that count as the same place in a score: 2 % of the image's side.

One step is a thousandth of the image, finer than the patches the decoder reads, and it may have
been taught with soft targets over neighbouring steps: the probability of a single one says little
(about 0.05 where the box is right). With every side off by 2 %, the box of an object 15 % wide
still has an IoU over 0.5. On simulated validation scenes windows of 5 to 32 steps told right boxes
from wrong ones about equally well.
"""

PLAUSIBLE = 0.01
"""A pragmatic reply has no token less likely than this, as a share of the likeliest one. Chosen on
simulated validation scenes."""


UNLIKELY = 1e-9  # probability of a side that counts for a box which the decoder rules out


@dataclass(frozen=True)
class Generation:
    """The reply to one prompt, without the final <eos>."""

    tokens: tuple[int, ...]
    # Of each token, among all tokens, before any constraint; of a location, with those NEAR it.
    probabilities: tuple[float, ...]
    codes: Codes | None  # the box of a grounding, its last one
    via: tuple[Codes, ...] = ()  # the boxes before it
    # Of each token, and of what came after the last: that the reply ended there instead.
    ends: tuple[float, ...] = ()
    segments: tuple[int, ...] = ()  # sixteen of 0..127, the mask in the box (mode "segment")
    # Of a sampled reply: of each token, and of the <eos> if it ended with one, among the tokens
    # that were allowed there.
    log_probs: tuple[float, ...] = ()

    @property
    def is_grounding(self) -> bool:
        """Whether this is a box rather than words."""
        return self.codes is not None

    @property
    def score(self) -> float:
        """Geometric mean of the tokens' probabilities, 0..1.

        Of a grounding: how sure the decoder is of a side of its box, to within 2 % of the image. Of
        a mask: of its sixteen tokens.
        """
        counted = self.probabilities
        if self.is_grounding:
            counted = counted[-(MASK_TOKENS if self.segments else SIDES) :]
        if not counted:
            return 0.0
        logs = [math.log(max(p, 1e-12)) for p in counted]
        return math.exp(sum(logs) / len(logs))


class Vocabulary:
    """Which token ids may be said when, for one tokenizer and a decoder of `size` tokens."""

    def __init__(self, tokenizer: Any, size: int) -> None:
        locations = tokenizer.convert_tokens_to_ids(list(LOCATIONS))
        if locations != list(range(locations[0], locations[0] + STEPS)):
            raise ValueError("the location tokens are not 1024 consecutive ids")
        self.first_location: int = locations[0]
        segments = tokenizer.convert_tokens_to_ids(list(SEGMENTS))
        known = segments == list(range(segments[0], segments[0] + len(SEGMENTS)))
        self.first_segment: int | None = segments[0] if known else None
        self.eos: int = tokenizer.eos_token_id
        between: list[int] = tokenizer(BETWEEN, add_special_tokens=False)["input_ids"]
        self.between: int | None = between[0] if len(between) == 1 else None
        words = np.ones(size, np.bool_)
        silent = {*tokenizer.all_special_ids, *tokenizer.convert_tokens_to_ids([IMAGE, *SEGMENTS])}
        words[[token for token in {*silent, *locations} if token < size]] = False
        words[len(tokenizer) :] = False  # rows of the embedding table that no token has
        self.words: Bits = words
        self.opening: Bits = words.copy()  # what may begin a question
        self.opening[tokenizer.convert_tokens_to_ids(NEWLINE)] = False
        self.later: Bits = words.copy()  # what may continue it
        self.later[self.eos] = True
        self.box_ends: Bits = np.zeros_like(words)  # what may follow a whole box
        self.box_ends[[self.eos, *between]] = True

    def locations(self, low: int, high: int) -> Bits:
        """A mask (V,) that allows the location tokens of steps low..high, both included."""
        mask = np.zeros_like(self.words)
        mask[self.first_location + low : self.first_location + high + 1] = True
        return mask

    def segments(self) -> Bits:
        """A mask (V,) that allows the segment tokens. Raises ValueError where there are none."""
        if self.first_segment is None:
            raise ValueError(f"this tokenizer has not {len(SEGMENTS)} consecutive segment tokens")
        mask = np.zeros_like(self.words)
        mask[self.first_segment : self.first_segment + len(SEGMENTS)] = True
        return mask

    def probability(self, shares: Array, token: int) -> float:
        """The share of a token in `shares` (V,); of a location, with those NEAR it added."""
        step = token - self.first_location
        if not 0 <= step < STEPS:
            return float(shares[token])
        low, high = max(step - NEAR, 0), min(step + NEAR, LAST)
        near = shares[self.first_location + low : self.first_location + high + 1]
        return min(float(near.sum()), 1.0)  # rounding may exceed 1


class _Row:
    """One prompt being answered: what it said so far and what it may say next."""

    def __init__(
        self, mode: Mode, vocabulary: Vocabulary, max_boxes: int, box: Codes | None = None
    ) -> None:
        self.mode, self.vocabulary, self.max_boxes, self.box = mode, vocabulary, max_boxes, box
        self.tokens: list[int] = []
        # Of each token and of the <eos>: the probability that the reply ended there, and its own.
        self.shares: list[tuple[float, float]] = []
        self.log_probs: list[float] = []
        self.done = False

    def allowed(self) -> Bits | None:
        """Mask (V,) of the tokens that may come next, or None for any."""
        if self.mode == "unconstrained":
            return None
        if self.mode == "grounding":
            return self._in_boxes()
        if self.mode == "segment":
            return self._in_segment()
        if self.tokens:
            return self.vocabulary.later
        if self.mode == "free":
            return np.logical_or(self.vocabulary.opening, self._in_boxes())
        return self.vocabulary.opening

    def _in_boxes(self) -> Bits:
        """A side, of which the first two leave room for the others; after a whole box, its end.

        The lower right corner lies beyond the upper left one.
        """
        said = len(self.tokens) % (SIDES + 1)
        if said < 2:
            return self.vocabulary.locations(0, LAST - 1)
        if said == SIDES:
            return self.vocabulary.box_ends
        return self.vocabulary.locations(self.tokens[-2] - self.vocabulary.first_location + 1, LAST)

    def _in_segment(self) -> Bits:
        """A side of the box, which may be given; after the box, a part of its mask."""
        said = len(self.tokens)
        if said >= SIDES:
            return self.vocabulary.segments()
        if self.box is None:
            return self._in_boxes()
        return self.vocabulary.locations(self.box[said], self.box[said])

    def add(self, token: int, shares: Array) -> None:
        """Take the next token; decide the form at the first one, and whether this was the last.

        shares (V,): the probabilities of all tokens.
        """
        vocabulary = self.vocabulary
        own = vocabulary.probability(shares, token)
        self.shares.append((float(shares[vocabulary.eos]), own))
        self.take(token)

    def take(self, token: int) -> None:
        """Take the next token without its probability."""
        vocabulary = self.vocabulary
        if token == vocabulary.eos:
            self.done = True
            return
        self.tokens.append(token)
        if self.mode == "free":
            step = token - vocabulary.first_location
            self.mode = "grounding" if 0 <= step < STEPS else "question"
        most = (SIDES + 1) * self.max_boxes - 1
        self.done = self.mode == "grounding" and len(self.tokens) == most
        self.done |= self.mode == "segment" and len(self.tokens) == SIDES + MASK_TOKENS

    def result(self) -> Generation:
        """The kind of reply; only a grounding has codes."""
        ends = tuple(end for end, _ in self.shares)
        said = tuple(self.tokens), tuple(own for _, own in self.shares[: len(self.tokens)])
        sampled = tuple(self.log_probs)
        if self.mode == "segment":
            first, part = self.vocabulary.first_location, self.vocabulary.first_segment or 0
            y1, x1, y2, x2 = (token - first for token in self.tokens[:SIDES])
            parts = tuple(token - part for token in self.tokens[SIDES:])
            return Generation(*said, (y1, x1, y2, x2), segments=parts)
        if self.mode != "grounding":
            return Generation(*said, None, ends=ends, log_probs=sampled)
        steps = [token - self.vocabulary.first_location for token in self.tokens]
        boxes: list[Codes] = [
            (steps[i], steps[i + 1], steps[i + 2], steps[i + 3])
            for i in range(0, len(steps), SIDES + 1)
        ]
        return Generation(*said, boxes[-1], tuple(boxes[:-1]), ends=ends, log_probs=sampled)


@dataclass(frozen=True)
class Prefill:
    """Prompts that the whole decoder has read.

    logits (B, V) of each prompt's next token, and the backbone's state.
    """

    logits: Array
    state: Any


def read_prompts(
    backbone: Backbone, features: Array, prompts: Prompts, adapter: str | None
) -> Prefill:
    """Read B prompts (without suffixes) through an adapter. features: (B or 1, N, D)."""
    state, logits = backbone.read(features, prompts, adapter)
    return Prefill(logits, state)


def reply_to(
    backbone: Backbone,
    vocabulary: Vocabulary,
    prefill: Prefill,
    mode: Mode,
    *,
    max_new_tokens: int = 48,
    max_boxes: int = 1,
    box: Codes | None = None,
    rng: np.random.Generator | None = None,
) -> list[Generation]:
    """Decode with the adapter that read the prompts.

    One token for all rows at a time until each is done; the prefill can be used again. box: in mode
    "segment", the box whose mask is wanted; None: the decoder chooses it too. rng: samples each
    token from the distribution over the allowed ones, at temperature 1; None: the likeliest.
    """
    if max_boxes > 1 and vocabulary.between is None:
        raise ValueError(f"this tokenizer has no token {BETWEEN!r} to put between boxes")
    logits = prefill.logits
    rows = [_Row(mode, vocabulary, max_boxes, box) for _ in logits]
    limit = SIDES + MASK_TOKENS if mode == "segment" else max_new_tokens
    if mode in ("grounding", "free"):
        limit = max(limit, (SIDES + 1) * max_boxes)
    for count in range(limit):
        chosen = _choose(logits, rows, rng)
        if all(row.done for row in rows) or count == limit - 1:
            break
        logits = backbone.step(prefill.state, chosen)
    backbone.rewind(prefill.state, count)
    return [row.result() for row in rows]


def pragmatic_reply(
    backbone: Backbone,
    vocabulary: Vocabulary,
    prefill: Prefill,
    rationality: float,
    *,
    max_new_tokens: int = 48,
) -> Generation:
    """Words after the first of B prompts of one length that would be said less after the others.

    A pragmatic speaker of rational speech acts (Cohn-Gordon, Goodman and Potts, 2018, by
    characters). Each token maximises

        log P(token | first) + rationality * log (P(token | first) / mean of P(token | each prompt))

    Tokens less likely after the first prompt than PLAUSIBLE times its likeliest are left out, as in
    contrastive decoding (Li and others, 2023). All prompts read the same tokens. With a rationality
    of 0 the words are those of `reply_to` in mode "question".
    """
    row = _Row("question", vocabulary, 1)
    logits, count = prefill.logits, len(prefill.logits)
    for said in range(max_new_tokens):
        allowed = row.allowed()
        assert allowed is not None
        logs = log_softmax(np.where(allowed, logits, -np.inf))
        own = logs[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            apart = own - np.log(np.exp(logs).sum(0) / count)
            scores = own + rationality * apart
        scores = np.where(own >= own.max() + math.log(PLAUSIBLE), scores, -np.inf)
        token = int(scores.argmax())
        row.add(token, softmax(logits[0]))
        if row.done or said == max_new_tokens - 1:
            break
        logits = backbone.step(prefill.state, np.full(count, token))
    return row.result()


def forced(
    backbone: Backbone,
    prefill: Prefill,
    suffixes: Sequence[Sequence[int]],
) -> tuple[list[Array], list[npt.NDArray[np.int64]]]:
    """Teacher forcing of token sequences after one prompt each, or all after the only one.

    Returns, for each suffix, the log-probabilities of its tokens and the likeliest tokens there.
    """
    longest = max(map(len, suffixes))
    tokens = np.zeros((len(suffixes), longest), np.int64)
    for row, suffix in enumerate(suffixes):
        tokens[row, : len(suffix)] = suffix
    logs = log_softmax(_logits_before(backbone, prefill, tokens))
    likely, first = [], []
    for row, suffix in enumerate(suffixes):
        known = logs[row, : len(suffix)]
        likely.append(np.array(known[np.arange(len(suffix)), list(suffix)], np.float32))
        first.append(known.argmax(-1))
    return likely, first


def _logits_before(backbone: Backbone, prefill: Prefill, tokens: npt.NDArray[np.int64]) -> Array:
    """The logits (R, T, V) by which R continuations (R, T) of B prompts are judged, R / B each."""
    begin = np.repeat(prefill.logits, len(tokens) // len(prefill.logits), 0)[:, None]
    if tokens.shape[1] == 1:
        return begin
    return np.concatenate([begin, backbone.follow(prefill.state, tokens[:, :-1])], 1)


def rate_boxes(
    backbone: Backbone, vocabulary: Vocabulary, prefill: Prefill, codes: npt.NDArray[np.int64]
) -> Array:
    """Return the decoder's log-probabilities of boxes, (B, N): the logarithm of `Generation.score`.

    codes: (B, N, 4), N boxes for each of B prompts.
    """
    first, steps = vocabulary.first_location, codes.reshape(-1, SIDES)
    shares = softmax(_logits_before(backbone, prefill, steps + first))
    sums = np.pad(shares[..., first : first + STEPS].cumsum(-1), ((0, 0), (0, 0), (1, 0)))
    ends = np.minimum(steps + NEAR, LAST) + 1, np.maximum(steps - NEAR, 0)
    high, low = (np.take_along_axis(sums, end[..., None], -1)[..., 0] for end in ends)
    total = np.log(np.maximum(high - low, UNLIKELY)).sum(1)
    return np.asarray(total / SIDES, np.float32).reshape(codes.shape[:2])


def question_share(vocabulary: Vocabulary, prefill: Prefill) -> Array:
    """Return the probability that the decoder opens with no location: its own judgement (Alg. 1).

    (B,) in 0..1.
    """
    first = vocabulary.first_location
    shares = softmax(prefill.logits)
    return np.asarray(1 - shares[:, first : first + STEPS].sum(-1))


def softmax(logits: Array) -> Array:
    """Probabilities over the last dimension."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def log_softmax(logits: Array) -> Array:
    """Logarithms of `softmax`; -inf where a logit is."""
    shifted = logits - logits.max(-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(-1, keepdims=True)))


def allowed_tokens(
    vocabulary: Vocabulary, mode: Mode, said: Sequence[int], max_boxes: int = 1
) -> Bits:
    """Which tokens could come at each place of a reply: (S, V), for S tokens with any <eos>."""
    row = _Row(mode, vocabulary, max_boxes)
    masks = np.ones((len(said), len(vocabulary.words)), np.bool_)
    for place, token in enumerate(said):
        allowed = row.allowed()
        if allowed is not None:
            masks[place] = allowed
        row.take(token)
    return masks


def _choose(
    logits: Array, rows: Sequence[_Row], rng: np.random.Generator | None
) -> npt.NDArray[np.int64]:
    """An allowed token of each row; rows that are done go on with <eos>, unheard.

    (B, V) -> (B,).
    """
    chosen = []
    for row, logit in zip(rows, logits, strict=True):
        if row.done:
            chosen.append(row.vocabulary.eos)
            continue
        allowed = row.allowed()
        scores = logit if allowed is None else np.where(allowed, logit, -np.inf)
        if rng is None:
            token = int(scores.argmax())
        else:
            logs = log_softmax(scores.astype(np.float64))
            token = int(rng.choice(len(logs), p=np.exp(logs)))
            row.log_probs.append(float(logs[token]))
        row.add(token, softmax(logit))
        chosen.append(token)
    return np.array(chosen)
