"""Training samples of the LLM-wrapper: boxes that a detector listed, dialogues, and their answers.

A sample's answer names the candidate with the highest IoU to each box that is meant. As in the
paper a sample is left out if that IoU is not above 0.5, if there are 0 or 1 candidates, or if its
prompt is too long; and the order of the boxes is permuted, so that an index tells nothing, unless
the prompt's format has an order of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from clue_ros.dialogue.candidates import Candidate
from clue_ros.lab.data.referring import ReferringItem
from clue_ros.lab.metrics import MIN_IOU
from clue_ros.wrapper.grounder import Wrapper
from clue_ros.wrapper.language_model import MAX_PROMPT, LanguageModel
from clue_ros.wrapper.prompt import PromptFormat, answer_text, listed_order

IGNORED = -100  # target of a token that is no part of an answer
Query = tuple[str, tuple[int, ...]]
"""A dialogue's context C(k), and the indices of the candidates that it means."""


@dataclass(frozen=True)
class ListingSample:
    """Candidates of one picture of a size (width, height), and dialogues about it.

    queries: the context C(k) and the indices of the candidates that it means.
    """

    candidates: tuple[Candidate, ...]
    size: tuple[int, int]
    queries: tuple[Query, ...]

    def permuted(self, rng: np.random.Generator) -> ListingSample:
        """The same with the candidates in a random order."""
        return self._in_order([int(i) for i in rng.permutation(len(self.candidates))])

    def listed(self, form: PromptFormat) -> ListingSample:
        """The same with the candidates in the order of a prompt's lines."""
        return self._in_order(listed_order(self.candidates, form))

    def _in_order(self, order: Sequence[int]) -> ListingSample:
        place = {old: new for new, old in enumerate(order)}
        queries = tuple((text, tuple(place[i] for i in meant)) for text, meant in self.queries)
        return ListingSample(tuple(self.candidates[i] for i in order), self.size, queries)


def meant_indices(
    item: ReferringItem, candidates: Sequence[Candidate], size: tuple[int, int]
) -> tuple[int, ...] | None:
    """The candidate of the highest IoU for each box that is meant; None if one is not above 0.5.

    Of an ambiguous item it is enough that two boxes are found, since the question is about those.
    """
    found = []
    for box in item.boxes(size):
        ious = [c.box.iou(box) for c in candidates]
        best = int(np.argmax(ious)) if ious else -1
        if best >= 0 and ious[best] > MIN_IOU:
            found.append(best)
        elif len(item.meant) == 1:
            return None
    found = list(dict.fromkeys(found))
    return None if len(item.meant) > 1 and len(found) < 2 else tuple(found)


def listing_samples(
    items: Iterable[ReferringItem], finder: Wrapper, *, together: int = 1
) -> tuple[list[ListingSample], dict[str, int]]:
    """Samples of at most `together` dialogues each, and how many items were left out, by reason.

    finder: its sources list the candidates.
    """
    by_picture: dict[str, list[ReferringItem]] = {}
    for item in items:
        by_picture.setdefault(item.picture.name, []).append(item)
    samples: list[ListingSample] = []
    left_out = {"fewer than 2 candidates": 0, "no candidate over IoU 0.5": 0}
    for said in by_picture.values():
        view = finder.look(said[0].picture.load())
        size = (view.width, view.height)
        listed: dict[int, tuple[tuple[Candidate, ...], list[Query]]] = {}
        for item in said:
            candidates = finder.candidates(view, item.dialogue)
            meant = meant_indices(item, candidates, size)
            if len(candidates) < 2:
                left_out["fewer than 2 candidates"] += 1
            elif meant is None:
                left_out["no candidate over IoU 0.5"] += 1
            else:
                queries = listed.setdefault(id(candidates), (candidates, []))[1]
                queries.append((item.dialogue.context(), meant))
        for candidates, queries in listed.values():
            for first in range(0, len(queries), together):
                chunk = tuple(queries[first : first + together])
                samples.append(ListingSample(candidates, size, chunk))
    return samples, left_out


def extra_permutations(count: int) -> int:
    """Permutations that are added to a sample of so many candidates, as in the paper.

    >>> [extra_permutations(n) for n in (2, 3, 4, 5, 9)]
    [1, 2, 3, 4, 4]
    """
    return min(count - 1, 4)


@dataclass(frozen=True)
class PackedPrompt:
    """A sample as one sequence: the boxes once, then each dialogue with its answer.

    tokens, positions, targets: (T,). A dialogue's positions go on where the boxes end, and it sees
    the boxes and itself alone (group: 0 for the boxes, else the dialogue's number), so that each
    is read as if it stood alone. targets: of the next token; IGNORED outside of answers.
    """

    tokens: Tensor
    positions: Tensor
    group: Tensor
    targets: Tensor

    @property
    def answers(self) -> Tensor:
        """Positions (A,) in the sequence whose next token is part of an answer."""
        return (self.targets != IGNORED).nonzero()[:, 0]

    def mask(self, dtype: torch.dtype) -> Tensor:
        """Additive attention mask (1, 1, T, T)."""
        length = len(self.tokens)
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        seen = causal & ((self.group[None] == 0) | (self.group[None] == self.group[:, None]))
        return torch.zeros(length, length, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)[
            None, None
        ]


def without_long_prompts(
    model: LanguageModel, samples: Iterable[ListingSample]
) -> tuple[list[ListingSample], int]:
    """The samples without dialogues that make a prompt too long, and how many these were."""
    kept, left_out = [], 0
    for sample in samples:
        listed = sample.listed(model.settings.form)
        lengths = [sum(map(len, _parts(model, listed, *query))) for query in listed.queries]
        pairs = zip(sample.queries, lengths, strict=True)
        queries = tuple(query for query, length in pairs if length <= MAX_PROMPT)
        left_out += len(lengths) - len(queries)
        if queries:
            kept.append(replace(sample, queries=queries))
    return kept, left_out


def _parts(
    model: LanguageModel, sample: ListingSample, context: str, meant: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    """The tokens of the boxes, of a dialogue about them, and of its answer."""
    before, rest = model.prompt(sample.candidates, sample.size, context)
    return before, rest, model.answer_tokens(answer_text(meant))


def pack(model: LanguageModel, sample: ListingSample) -> PackedPrompt | None:
    """The sample as one sequence; without dialogues that make a prompt too long; None if all do."""
    tokens: list[int] = []
    positions: list[int] = []
    group: list[int] = []
    targets: list[int] = []
    sample = sample.listed(model.settings.form)
    for number, (context, meant) in enumerate(sample.queries, start=1):
        before, rest, answer = parts = _parts(model, sample, context, meant)
        if sum(map(len, parts)) > MAX_PROMPT:
            continue
        if not tokens:
            tokens += before
            positions += range(len(before))
            group += [0] * len(before)
            targets += [IGNORED] * len(before)
        own = [*rest, *answer[:-1]]
        tokens += own
        positions += range(len(before), len(before) + len(own))
        group += [number] * len(own)
        targets += [IGNORED] * (len(rest) - 1) + answer
    if not tokens:
        return None
    return PackedPrompt(*(torch.tensor(part) for part in (tokens, positions, group, targets)))


def answer_logits(model: LanguageModel, packed: PackedPrompt) -> tuple[Tensor, Tensor]:
    """Logits (A, vocabulary) at the answers of a packed sample, and their targets (A,)."""
    device = model.device
    at = packed.answers
    alone = int(packed.group.max()) <= 1
    dtype = next(model.model.parameters()).dtype
    out = model.model(
        input_ids=packed.tokens[None].to(device),
        position_ids=packed.positions[None].to(device),
        attention_mask=None if alone else packed.mask(dtype).to(device),
        logits_to_keep=at.to(device),
        use_cache=False,
    )
    return out.logits[0].float(), packed.targets[at].to(device)


def right_answers(packed: PackedPrompt, logits: Tensor) -> list[bool]:
    """Return for each dialogue whether every token of its answer is the likeliest."""
    at = packed.answers
    right = (logits.argmax(-1).cpu() == packed.targets[at]).tolist()
    groups = packed.group[at].tolist()
    return [
        all(r for r, g in zip(right, groups, strict=True) if g == number)
        for number in dict.fromkeys(groups)
    ]
