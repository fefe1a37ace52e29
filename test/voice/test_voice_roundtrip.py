"""From a spoken sentence to its text, and the robot's own voice, which must not be heard.

The short version of benchmarks/voice_roundtrip.py, which measures with more sentences and voices.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from voice_helpers import need_espeak, spoken

from benchmarks import voice_roundtrip as benchmark
from benchmarks.word_error_rate import word_error_rate
from clue_ros.dialogue.reading import calls_off, read
from clue_ros.errors import VoiceError
from clue_ros.voice.audio import join, read_audio, resample, silence
from clue_ros.voice.confirmation import Action, Confirmer, Thresholds
from clue_ros.voice.grammar import Expecting, Hints
from clue_ros.voice.recognizers import RecognizerProcess, RecognizerSettings
from clue_ros.voice.synthesis import Synthesizer, VoiceSettings

ROOT = Path(__file__).resolve().parents[2]
SPOKEN = ROOT / "demo" / "voice"


@pytest.fixture(scope="module")
def recognizer() -> Iterator[RecognizerProcess]:
    made = RecognizerProcess(RecognizerSettings())
    made.open()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("name", "hints"),
    [
        ("pick_up_the_yellow_block", Hints()),
        ("the_left_one", Hints.make(Expecting.ANSWER, ["left", "right"], "en-US")),
        ("yes", Hints(Expecting.CONFIRMATION)),
        ("no", Hints(Expecting.CONFIRMATION)),
    ],
)
def test_what_the_demos_person_says_is_heard_and_acted_on(
    name: str, hints: Hints, recognizer: RecognizerProcess
) -> None:
    said = resample(read_audio(SPOKEN / f"{name}.wav"))
    heard = recognizer.recognize(join([silence(0.3), said, silence(0.6)]), hints)
    decision = Confirmer(Thresholds()).decide(heard)
    assert (decision.action, decision.text) == (Action.ACCEPT, name.replace("_", " "))


def test_the_grammar_hears_what_the_language_model_does_not(
    recognizer: RecognizerProcess,
) -> None:
    """In a voice that no confidence was fitted on: over four commands, the grammar errs less."""
    need_espeak()
    pairs, plain = [], []
    for sentence in benchmark.COMMANDS[:4]:
        for phrase in benchmark.listen(spoken(sentence)):
            heard = recognizer.recognize(phrase.audio, Hints())
            pairs.append((sentence, heard.text))
            plain.append((sentence, heard.unaided))
    assert len(pairs) == 4, "each sentence is one phrase"
    rate, rate_plain = word_error_rate(pairs), word_error_rate(plain)
    assert rate < 0.25
    assert rate < rate_plain


@pytest.mark.parametrize("expecting", [Expecting.COMMAND, Expecting.ANSWER])
def test_a_refused_command_is_never_heard_as_the_command(
    recognizer: RecognizerProcess, expecting: Expecting
) -> None:
    need_espeak()
    hints = Hints.make(expecting, benchmark.ASKED, "en-US")
    for sentence in ("don't pick up the red block", "do not take the ball", "stop it", "wait"):
        (phrase,) = benchmark.listen(spoken(sentence))
        heard = recognizer.recognize(phrase.audio, hints)
        assert calls_off(read(heard.text).kind), heard
        assert Confirmer(Thresholds()).decide(heard).action is Action.ACCEPT


def test_speech_that_is_no_command_is_not_acted_on(
    recognizer: RecognizerProcess,
) -> None:
    need_espeak()
    for sentence in ("i went to the cinema with my aunt", "what is the weather like in spain"):
        (phrase,) = benchmark.listen(spoken(sentence))
        heard = recognizer.recognize(phrase.audio, Hints())
        decision = Confirmer(Thresholds()).decide(heard)
        assert decision.action is not Action.ACCEPT, heard


def test_of_twenty_questions_the_robot_hears_none_itself() -> None:
    engine = Synthesizer(VoiceSettings(timeout=60.0))
    try:
        engine.open()
    except VoiceError as error:
        pytest.skip(str(error))
    finally:
        engine.close()
    assert len(set(benchmark.questions(20))) == 20
    report = benchmark.measure_echo(20)
    assert report["questions"] == 20
    assert report["phrases heard"] == 0
    # the same sound is heard as speech when nothing is muted
    assert report["phrases heard without muting"] >= 20
