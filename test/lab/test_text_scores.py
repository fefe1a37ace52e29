"""Scores of sentences, by cases that are worked out by hand."""

from __future__ import annotations

import math

import pytest

from clue_ros.lab.evaluation.text_scores import bleu, cider, rouge_l, text_scores, tokenize


def test_equal_sentences_score_the_most() -> None:
    pairs = [
        ("the red mug on the left", "The red mug on the left."),
        ("a blue one is it", "a blue one is it?"),
    ]
    scores = text_scores(pairs)
    for name in ("bleu_1", "bleu_4", "rouge_l"):
        assert scores[name] == pytest.approx(100)
    assert scores["cider"] == pytest.approx(1000), "coco-caption's scale is 0 to 10"


def test_bleu_clips_repeated_words_and_penalises_brevity() -> None:
    # "the the" against "the mug on a tray": 1 of 2 words counts, and 2 words stand for 5.
    found = bleu([(["the", "the"], tokenize("the mug on a tray"))])
    assert found[0] == pytest.approx(0.5 * math.exp(1 - 5 / 2))
    assert found[1] == 0


def test_bleu_counts_over_the_whole_corpus() -> None:
    # Words: 2 of 2 and 1 of 2. Pairs of words: 1 of 1 and 0 of 1.
    found = bleu([(["a", "b"], ["a", "b"]), (["a", "x"], ["a", "b"])])
    assert found[0] == pytest.approx(3 / 4)
    assert found[1] == pytest.approx(math.sqrt(3 / 4 * 1 / 2))


def test_rouge_l_is_the_f_of_the_longest_common_subsequence() -> None:
    # "the one" is common: precision 2/3, recall 2/4.
    p, r, b = 2 / 3, 2 / 4, 1.2**2
    expected = (1 + b) * p * r / (r + b * p)
    assert rouge_l(["the", "red", "one"], ["the", "big", "blue", "one"]) == pytest.approx(expected)
    assert rouge_l(["a"], ["b"]) == rouge_l([], ["b"]) == 0


def test_cider_ignores_words_that_every_reference_has() -> None:
    # "one" is in both references and weighs log(2/2) = 0, so that "red" alone counts. "red one" and
    # "red" are in one reference each; longer n-grams are in none: 2 of 4 orders are right.
    pairs = [(["red", "one"], ["red", "one"]), (["one"], ["blue", "one"])]
    assert cider(pairs) == pytest.approx(10 * (2 / 4) / 2)


def test_no_sentences_are_no_score() -> None:
    with pytest.raises(ValueError, match="no sentences"):
        text_scores([])
