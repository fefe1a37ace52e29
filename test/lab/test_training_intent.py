"""`clue train intent`: a few steps, the file that they write, and a user's own lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from clue_ros.cli import main
from clue_ros.dialogue.intent import CLASSES, IntentModel, load_intent
from clue_ros.lab.language.utterances import (
    LANGUAGES,
    MODIFIER,
    NOUN,
    draw,
    pool,
    templates,
    unmarked,
)
from clue_ros.lab.training.intent import SHARES, marked_words

DEMO = Path(__file__).resolve().parents[2] / "demo"
SMALL = ["--utterances", "1500", "--epochs", "2", "--models", "1"]
SLOTS = {"np", "n", "ns", "one", "pron", "color", "place", "person", "time"}
SLOTS |= {"verb", "verbing", "verbed", "which", "adjective", "relation", "ing"}


@pytest.mark.parametrize("language", [language.name for language in LANGUAGES])
@pytest.mark.parametrize("kind", [*SHARES, "description"])
def test_templates_have_known_slots_and_no_duplicates(language: str, kind: str) -> None:
    lines = templates(f"{language}/{kind}")
    assert len(lines) >= 10
    assert {slot for line in lines for slot in re.findall(r"\{(\w*)\}", line)} <= SLOTS
    if kind == "mixed":
        assert all(line.count("\t") == 1 for line in lines)


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_kind_is_drawn_with_its_question(language: object) -> None:
    rng = np.random.default_rng(0)
    for kind in SHARES:
        made = [draw(kind, rng, language) for _ in range(60)]  # type: ignore[arg-type]
        assert {u.kind for u in made} <= set(CLASSES)
        assert all(u.text.strip() and u.text == unmarked(u.text) for u in made)
        assert all("{" not in u.text for u in made)
        assert any(u.asked.is_open for u in made)
        if kind == "answer":
            assert all(u.asked.is_open for u in made)
    assert pool("en/color")


def test_the_words_of_things_are_marked() -> None:
    said, tags = marked_words(f"take the {MODIFIER}red {NOUN}mug off the pot")
    assert said == ["take", "the", "red", "mug", "off", "the", "pot"]
    assert tags == [0, 0, 2, 1, 0, 0, None]  # "pot" is the template's own: not known


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> IntentModel:
    """A model of two short epochs."""
    out = tmp_path_factory.mktemp("intent") / "small.safetensors"
    assert main(["train", "intent", "--out", str(out), *SMALL]) == 0
    return load_intent(out)


def test_a_short_training_learns_something(small: IntentModel) -> None:
    for text, kind in (("pick up the mug", "request"), ("don't touch the mug", "refusal")):
        shares = small.probabilities(text)
        assert max(shares, key=lambda k: shares[k]) == kind, shares


def test_own_lines_are_learned(tmp_path: Path) -> None:
    own = tmp_path / "own.jsonl"
    lines = [{"text": "zorp the glibber", "kind": "refusal"}] * 3
    own.write_text("\n".join(map(json.dumps, lines)))
    out = tmp_path / "own.safetensors"
    assert main(["train", "intent", "--out", str(out), "--also", str(own), *SMALL]) == 0
    shares = load_intent(out).probabilities("zorp the glibber")
    assert max(shares, key=lambda kind: shares[kind]) == "refusal"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 1"),
        ('{"text": "x"}', "line 1"),
        ('{"text": "x", "kind": "bad"}', "kind must be one of"),
        ('{"text": "", "kind": "yes"}', "text a sentence"),
    ],
)
def test_bad_lines_are_named(
    line: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text(line)
    assert main(["train", "intent", "--also", str(own), *SMALL]) == 2
    assert reason in capsys.readouterr().err


def test_eval_intent_counts_what_is_acted_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "list.jsonl"
    rows = [
        {"text": "hand me the mug", "kind": "request"},
        {"text": "stop", "kind": "stop"},
        {"text": "don't take the mug, take the bowl", "kind": "request", "wanted": "take the bowl"},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert main(["eval", "intent", "--lists", str(path), "--json"]) == 0
    kinds = json.loads(capsys.readouterr().out)["kinds"]
    assert kinds["request"] == {"n": 1, "acted": 1, "confirmed": 0, "right": 1}
    assert kinds["stop"]["acted"] == 0
    assert kinds["mixed"]["part"] == 1
    words = ["eval", "intent", "--lists", str(path), "--picture", str(DEMO / "mugs.png"), "--json"]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["boxes"] == {"count": 0, "n": 1}
    assert main(["eval", "intent", "--lists", str(tmp_path / "none.jsonl")]) == 2
