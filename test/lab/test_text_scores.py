"""Scores of sentences, by cases that are worked out by hand."""

from __future__ import annotations

import math
import random
import shutil
import sys

import pytest

from clue_ros.lab.evaluation.text_scores import (
    COLUMNS,
    METEOR_JAVA,
    NOT_INSTALLED,
    problems_of,
    text_scores,
    tokenize,
)

NEEDS = "needs the extra scores"


def found(*pairs: tuple[str, str]) -> dict[str, float]:
    """The scores; skips without the packages."""
    pytest.importorskip("pycocoevalcap.bleu.bleu", reason=NEEDS)
    pytest.importorskip("nltk.translate.meteor_score", reason=NEEDS)
    scores = text_scores(pairs)
    assert problems_of(scores) == []
    out = {}
    for name in COLUMNS:
        value = scores[name]
        assert isinstance(value, float)
        out[name] = value
    return out


@pytest.mark.usefixtures("no_java")
def test_equal_sentences_score_the_most() -> None:
    scores = found(
        ("the red mug on the left", "The red mug on the left."),
        ("a blue one is it", "a blue one is it?"),
    )
    for name in ("bleu_1", "bleu_4", "rouge_l"):
        assert scores[name] == pytest.approx(100)
    assert scores["cider"] == pytest.approx(1000), "coco-caption's scale is 0 to 10"


@pytest.mark.usefixtures("no_java")
def test_bleu_clips_repeated_words_and_penalises_brevity() -> None:
    # "the the" against "the mug on a tray": 1 of 2 words counts, and 2 words stand for 5.
    scores = found(("the the", "the mug on a tray"))
    assert scores["bleu_1"] == pytest.approx(100 * 0.5 * math.exp(1 - 5 / 2))
    assert scores["bleu_2"] < 1e-4  # the library smooths zeros


@pytest.mark.usefixtures("no_java")
def test_bleu_counts_over_the_whole_corpus() -> None:
    # Words: 2 of 2 and 1 of 2. Pairs of words: 1 of 1 and 0 of 1.
    scores = found(("a b", "a b"), ("a x", "a b"))
    assert scores["bleu_1"] == pytest.approx(100 * 3 / 4)
    assert scores["bleu_2"] == pytest.approx(100 * math.sqrt(3 / 4 * 1 / 2))


@pytest.mark.usefixtures("no_java")
def test_rouge_l_is_the_f_of_the_longest_common_subsequence() -> None:
    # "the one" is common: precision 2/3, recall 2/4.
    p, r, b = 2 / 3, 2 / 4, 1.2**2
    expected = (1 + b) * p * r / (r + b * p)
    assert found(("the red one", "the big blue one"))["rouge_l"] == pytest.approx(100 * expected)
    assert found(("a", "b"), ("", "b"))["rouge_l"] == 0


@pytest.mark.usefixtures("no_java")
def test_cider_ignores_words_that_every_reference_has() -> None:
    # "one" is in both references and weighs log(2/2) = 0, so that "red" alone counts. "red one" and
    # "red" are in one reference each; longer n-grams are in none: 2 of 4 orders are right.
    scores = found(("red one", "red one"), ("one", "blue one"))
    assert scores["cider"] == pytest.approx(100 * 10 * (2 / 4) / 2)


@pytest.mark.usefixtures("no_java")
def test_meteor_of_nltk_matches_stems_and_counts_chunks() -> None:
    # 4 matches ("cups" by its stem) in 2 runs, 4 words for 6: F = 10 P R / (R + 9 P), less half of
    # the cube of runs per match.
    p, r = 4 / 4, 4 / 6
    f = 10 * p * r / (r + 9 * p)
    # "the" of "the red cups" may be either "the" of the reference; nltk takes the later one, so
    # that "the", "red cups" and "left" are three runs.
    expected = f * (1 - 0.5 * (3 / 4) ** 3)
    assert found(("the red cups left", "the red cup on the left"))["meteor"] == pytest.approx(
        100 * expected
    )
    # One run of 5 matches: almost no penalty.
    assert found(("a blue one is it", "a blue one is it?"))["meteor"] == pytest.approx(
        100 * (1 - 0.5 / 5**3)
    )
    assert found(("a", "b"))["meteor"] == 0


def test_meteor_is_javas_where_there_is_java() -> None:
    pytest.importorskip("pycocoevalcap.meteor.meteor", reason=NEEDS)
    if shutil.which("java") is None:
        pytest.skip("needs Java")
    pairs = [("a blue one is it", "a blue one is it?"), ("left", "the red cup"), ("", "?")]
    scores = text_scores(pairs)
    assert scores["meteor_version"] == METEOR_JAVA
    assert isinstance(scores["meteor"], float)
    assert 0 < scores["meteor"] < 100


@pytest.mark.usefixtures("no_java")
def test_scores_are_numbers_for_any_sentences() -> None:
    rng = random.Random(0)
    words = ["the", "red", "cup's", "isn't", "2", "?", "!", "…", "|||", "öl", "杯子"]
    pairs = [
        tuple(" ".join(rng.choices(words, k=rng.randrange(6))) for _ in range(2)) for _ in range(60)
    ]
    for score in found(*[(a, b) for a, b in pairs]).values():
        assert 0 <= score <= 1000
    assert found(("red", "?"), ("", "!"))["cider"] == 0, "no reference has a word"


def test_without_the_packages_scores_are_left_out_and_the_remedy_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("pycocoevalcap.bleu.bleu", "pycocoevalcap.meteor.meteor"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "nltk.translate.meteor_score", None)
    scores = text_scores([("a", "a")])
    assert set(scores.values()) == {None}
    assert problems_of(scores) == [NOT_INSTALLED]
    assert '".[scores]"' in NOT_INSTALLED


def test_words_are_split_as_the_penn_treebank_does() -> None:
    assert tokenize("I don't know.") == ["i", "do", "n't", "know"]
    assert tokenize("it's the dog's bowl") == ["it", "'s", "the", "dog", "'s", "bowl"]


def test_no_sentences_are_no_score() -> None:
    with pytest.raises(ValueError, match="no sentences"):
        text_scores([])
