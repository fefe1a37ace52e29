"""Scores of generated sentences against one reference each: BLEU, ROUGE-L, CIDEr-D, METEOR.

BLEU-1 to -4, ROUGE-L and CIDEr-D follow coco-caption's definitions and need no package and no Java.
METEOR is that of 2005 by nltk, with exact and stem matches and without WordNet's synonyms; without
nltk it is left out. Published METEOR figures (version 1.5) come from a Java program and are higher.
Sentences are split as PTB does for plain text: lower case, without punctuation.
"""

from __future__ import annotations

import importlib
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

ORDERS = 4  # longest n-gram
BETA = 1.2  # of ROUGE-L: recall counts more
SIGMA = 6.0  # of CIDEr-D's length penalty, in words

Words = list[str]
Grams = Counter[tuple[str, ...]]


def tokenize(text: str) -> Words:
    """Lower-case words without punctuation; a contraction is two words.

    >>> tokenize("It's the red one, isn't it?")
    ['it', "'s", 'the', 'red', 'one', 'is', "n't", 'it']
    """
    text = re.sub(r"n't\b", " n't", text.lower())
    return re.findall(r"n't|'[a-z]+|[^\W_]+", text)


def text_scores(pairs: Sequence[tuple[str, str]]) -> dict[str, float | None]:
    """The scores of (generated, reference) pairs, times 100; None for METEOR without nltk.

    Raises ValueError for no pairs.
    """
    if not pairs:
        raise ValueError("no sentences to score")
    said = [(tokenize(a), tokenize(b)) for a, b in pairs]
    scores: dict[str, float | None] = {
        f"bleu_{n}": 100 * value for n, value in enumerate(bleu(said), start=1)
    }
    scores["meteor"] = _meteor(said)
    scores["rouge_l"] = 100 * sum(rouge_l(a, b) for a, b in said) / len(said)
    scores["cider"] = 100 * cider(said)
    return scores


def bleu(pairs: Sequence[tuple[Words, Words]]) -> list[float]:
    """Corpus BLEU-1 to BLEU-4, 0..1: clipped precisions of all sentences, brevity penalty."""
    matched, total = [0] * ORDERS, [0] * ORDERS
    for said, truth in pairs:
        for n in range(ORDERS):
            found, wanted = _grams(said, n + 1), _grams(truth, n + 1)
            matched[n] += sum((found & wanted).values())
            total[n] += sum(found.values())
    length, wanted_length = sum(len(a) for a, _ in pairs), sum(len(b) for _, b in pairs)
    if not length:
        return [0.0] * ORDERS
    penalty = 1.0 if length >= wanted_length else math.exp(1 - wanted_length / length)
    scores, product = [], 1.0
    for n in range(ORDERS):
        product *= matched[n] / total[n] if total[n] else 0.0
        scores.append(penalty * product ** (1 / (n + 1)))
    return scores


def rouge_l(said: Words, truth: Words) -> float:
    """F of the longest common subsequence, 0..1, with recall weighted by BETA."""
    common = _longest_common(said, truth)
    if not common:
        return 0.0
    precision, recall = common / len(said), common / len(truth)
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def cider(pairs: Sequence[tuple[Words, Words]]) -> float:
    """CIDEr-D, 0..10: cosine of TF-IDF n-grams, clipped, with a Gaussian length penalty.

    The document frequencies are those of the references.
    """
    frequency: Counter[tuple[str, ...]] = Counter()
    for _, truth in pairs:
        frequency.update({gram for n in range(ORDERS) for gram in _grams(truth, n + 1)})
    log_count = math.log(len(pairs))

    def vector(words: Words, n: int) -> dict[tuple[str, ...], float]:
        grams = _grams(words, n)
        return {g: k * (log_count - math.log(max(1, frequency[g]))) for g, k in grams.items()}

    total = 0.0
    for said, truth in pairs:
        length = math.exp(-((len(said) - len(truth)) ** 2) / (2 * SIGMA**2))
        for n in range(1, ORDERS + 1):
            a, b = vector(said, n), vector(truth, n)
            norm = math.sqrt(sum(v * v for v in a.values()) * sum(v * v for v in b.values()))
            if norm:
                total += length * sum(min(v, b[g]) * b[g] for g, v in a.items() if g in b) / norm
    return 10 * total / ORDERS / len(pairs)


def _meteor(pairs: Sequence[tuple[Words, Words]]) -> float | None:
    try:
        meteor: Any = importlib.import_module("nltk.translate.meteor_score")
    except ImportError:
        return None
    one = meteor.single_meteor_score
    total = sum(one(b, a, wordnet=_NoSynonyms()) for a, b in pairs)
    return 100 * float(total) / len(pairs)


class _NoSynonyms:
    """Stands for WordNet, whose data are a download."""

    def synsets(self, word: str) -> list[Any]:
        return []


def _grams(words: Words, n: int) -> Grams:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def _longest_common(a: Words, b: Words) -> int:
    row = [0] * (len(b) + 1)
    for word in a:
        before = row
        row = [0]
        for j, other in enumerate(b):
            row.append(before[j] + 1 if word == other else max(row[j], before[j + 1]))
    return row[-1]
