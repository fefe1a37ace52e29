"""Scores of generated sentences against one reference each: BLEU, METEOR, ROUGE-L, CIDEr-D.

The code is pycocoevalcap's, as for the published figures of captions and of InViG. BLEU,
ROUGE-L and CIDEr-D are Python. METEOR 1.5 and the Penn Treebank tokenizer are Java programs. METEOR
runs where there is a `java`; else nltk's METEOR of 2005 stands for it, with exact and stem matches
and without WordNet's synonyms. `meteor_version` says which. Sentences are split by `tokenize`,
which needs no Java.

Both packages are the extra `scores`: without them the scores are None.
"""

from __future__ import annotations

import importlib
import re
import shutil
from collections.abc import Sequence
from typing import Any

from clue_ros.requirements import install, missing

COLUMNS = ("bleu_1", "bleu_2", "bleu_3", "bleu_4", "meteor", "rouge_l", "cider")
NOT_INSTALLED = f"text scores are left out: {missing('pycocoevalcap', 'BLEU')}"
NO_METEOR = f"METEOR is left out: it needs Java, or nltk: {install('scores')}"
METEOR_JAVA, METEOR_NLTK = "1.5 (Java)", "2005 (nltk, without synonyms)"

Words = list[str]


def tokenize(text: str) -> Words:
    """Lower-case words without punctuation; a contraction is two words.

    >>> tokenize("It's the red one, isn't it?")
    ['it', "'s", 'the', 'red', 'one', 'is', "n't", 'it']
    """
    text = re.sub(r"n't\b", " n't", text.lower())
    return re.findall(r"n't|'[a-z]+|[^\W_]+", text)


def text_scores(pairs: Sequence[tuple[str, str]]) -> dict[str, float | str | None]:
    """COLUMNS of (generated, reference) pairs, times 100, and meteor_version.

    None for what needs a package that is not installed. Raises ValueError for no pairs.
    """
    if not pairs:
        raise ValueError("no sentences to score")
    said = {i: [" ".join(tokenize(text))] for i, (text, _) in enumerate(pairs)}
    truth = {i: [" ".join(tokenize(text))] for i, (_, text) in enumerate(pairs)}
    scores: dict[str, float | str | None] = dict.fromkeys(COLUMNS)
    if _optional("pycocoevalcap.bleu.bleu") is not None:
        for n, value in enumerate(_scorer("bleu", "Bleu").compute_score(truth, said, 0)[0], 1):
            scores[f"bleu_{n}"] = 100 * float(value)
        scores["rouge_l"] = 100 * float(_scorer("rouge", "Rouge").compute_score(truth, said)[0])
        # CIDEr weighs words by the references that have them: it has none without any word.
        spoken = any(text for (text,) in truth.values())
        found = _scorer("cider", "Cider").compute_score(truth, said)[0] if spoken else 0.0
        scores["cider"] = 100 * float(found)
    scores["meteor"], scores["meteor_version"] = _meteor(said, truth)
    return scores


def problems_of(scores: dict[str, Any]) -> list[str]:
    """Return a message about the scores that `text_scores` left out."""
    if scores["bleu_1"] is None:
        return [NOT_INSTALLED]
    return [NO_METEOR] if scores["meteor"] is None else []


def _optional(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        return None


def _scorer(name: str, kind: str) -> Any:
    return getattr(importlib.import_module(f"pycocoevalcap.{name}.{name}"), kind)()


Sentences = dict[int, list[str]]


def _meteor(said: Sentences, truth: Sentences) -> tuple[float | None, str | None]:
    if shutil.which("java") and _optional("pycocoevalcap.meteor.meteor") is not None:
        try:
            value = float(_scorer("meteor", "Meteor").compute_score(truth, said)[0])
            return 100 * value, METEOR_JAVA
        except (OSError, ValueError):  # it does not start, or ended without an answer
            pass
    nltk = _optional("nltk.translate.meteor_score")
    if nltk is None:
        return None, None
    one, none = nltk.single_meteor_score, _NoSynonyms()
    pairs = [(text.split(), said[i][0].split()) for i, (text,) in truth.items()]
    return 100 * sum(float(one(a, b, wordnet=none)) for a, b in pairs) / len(pairs), METEOR_NLTK


class _NoSynonyms:
    """Stands for WordNet, whose data are a download."""

    def synsets(self, word: str) -> list[Any]:
        return []
