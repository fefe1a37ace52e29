"""Speaking in order, stopping at once, worker processes that hang, recognizers by name."""

from __future__ import annotations

import math
import os
import stat
import sys
import threading
import time
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import voice_workers

from clue_ros.errors import VoiceError
from clue_ros.voice.audio import Audio, level, read_audio
from clue_ros.voice.grammar import Expecting, Hints
from clue_ros.voice.player import DevicePlayer, SilentPlayer, StreamPlayer
from clue_ros.voice.recognizers import RecognizerSettings, open_recognizer, problem
from clue_ros.voice.speaker import (
    HIGH,
    LOW,
    NORMAL,
    URGENT,
    End,
    Speaker,
    SpeakerCallbacks,
    Utterance,
)
from clue_ros.voice.subprocess_service import WorkerError, WorkerProcess
from clue_ros.voice.synthesis import SentenceWriter, Synthesizer, VoiceSettings, choose_voice


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let worker processes import the start functions of voice_workers."""
    folder = str(Path(voice_workers.__file__).parent)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def echo_worker(how: str, start_timeout: float = 60.0) -> WorkerProcess:
    return WorkerProcess("echo", voice_workers.echo, how, start_timeout)


@pytest.mark.usefixtures("workers")
def test_a_worker_answers_refuses_hangs_dies_and_is_started_again() -> None:
    worker = echo_worker("fine")
    try:
        assert worker.open() == "ready"
        first = worker.ask(("echo", b"x" * 300_000), 60.0)
        assert first["got"] == 300_000
        with pytest.raises(VoiceError, match="not that"):
            worker.ask(("refuse", b""), 60.0)
        assert worker.ask(("echo", b""), 60.0)["pid"] == first["pid"]
        with pytest.raises(WorkerError, match=r"echo said nothing for 0\.2 s"):
            worker.ask(("hang", b""), 0.2)
        second = worker.ask(("echo", b""), 60.0)
        assert second["pid"] != first["pid"]
        with pytest.raises(WorkerError, match="exit status 7"):
            worker.ask(("die", b""), 60.0)
        third = worker.ask(("echo", b""), 60.0)
        assert third["pid"] not in (first["pid"], second["pid"])
    finally:
        worker.close()


@pytest.mark.usefixtures("workers")
def test_a_worker_that_cannot_start_gives_its_reason() -> None:
    with pytest.raises(WorkerError, match=r"^no model here$"):
        echo_worker("broken").open()


@pytest.mark.usefixtures("workers")
def test_a_worker_that_is_still_getting_ready_can_be_ended() -> None:
    """A node that is told to end while its recognizer loads does not wait for it."""
    worker = echo_worker("slow", 600.0)
    refused: list[WorkerError] = []

    def load() -> None:
        try:
            worker.open()
        except WorkerError as error:
            refused.append(error)

    loading = threading.Thread(target=load)
    loading.start()

    def ended() -> bool:
        worker.close()  # finds nothing to end until the thread has begun
        loading.join(0.05)
        return not loading.is_alive()

    until(ended, "the worker to end")
    assert "has stopped" in str(refused[0])


class Room:
    """Hears what a speaker says: chunks with their times."""

    def __init__(self) -> None:
        self.chunks = 0
        self.begun: list[str] = []
        self.warned: list[str] = []
        self.silent = 0

    def callbacks(self) -> SpeakerCallbacks:
        """Return what the speaker calls."""

        def quiet() -> None:
            self.silent += 1

        return SpeakerCallbacks(
            lambda text, _s: self.begun.append(text), quiet, warn=self.warned.append
        )

    def send(self, _audio: Audio) -> None:
        """Take a chunk."""
        self.chunks += 1


def until(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.005)


@pytest.fixture
def room() -> Room:
    return Room()


@pytest.fixture
def speaker(workers: None, room: Room, tmp_path: Path) -> Iterator[Speaker]:
    del workers
    tones = Synthesizer(VoiceSettings(timeout=1.0), voice_workers.tones)
    tones.open()
    made = Speaker(
        tones, StreamPlayer("chunks", room.send), room.callbacks(), keep=tmp_path / "kept"
    )
    yield made
    made.close(0.0)


class Ends:
    """Keeps how utterances ended."""

    def __init__(self) -> None:
        self.list: list[tuple[str, End]] = []

    def of(self, text: str, priority: int = NORMAL, source: str = "") -> Utterance:
        """Return an utterance whose end is kept here."""
        made = Utterance(text, priority, source)
        made.on_end = lambda end, _why: self.list.append((text, end))
        return made


def test_the_important_is_said_first_and_what_was_said_is_kept(
    speaker: Speaker, room: Room, tmp_path: Path
) -> None:
    ends = Ends()
    first = ends.of("begin")
    speaker.add(first)
    until(lambda: room.chunks, "the first sound")
    for text, priority in (("low", LOW), ("one", NORMAL), ("two", NORMAL), ("ask", HIGH)):
        speaker.add(ends.of(text, priority))
    until(lambda: len(ends.list) == 5, "all to be said")
    assert ends.list == [(t, End.DONE) for t in ("begin", "ask", "one", "two", "low")]
    assert first.wav == str(tmp_path / "kept" / "said_0001.wav")
    assert read_audio(Path(first.wav)).seconds == pytest.approx(0.25)
    kept = tmp_path / "kept"
    assert len(list(kept.iterdir())) == 5
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    assert stat.S_IMODE(Path(first.wav).stat().st_mode) == 0o600


def test_a_speaker_leaves_the_files_of_the_one_before(
    speaker: Speaker, room: Room, tmp_path: Path
) -> None:
    (tmp_path / "kept").mkdir()
    before = tmp_path / "kept" / "said_0001.wav"
    before.write_bytes(b"before")
    ends = Ends()
    said = ends.of("hello")
    speaker.add(said)
    until(lambda: ends.list, "it to be said")
    assert room.chunks
    assert said.wav == str(tmp_path / "kept" / "said_0002.wav")
    assert before.read_bytes() == b"before"


def test_stop_ends_the_sound_at_once_and_forgets_the_rest(speaker: Speaker, room: Room) -> None:
    ends = Ends()
    speaker.add(ends.of("a long text " * 10))  # six seconds
    speaker.add(ends.of("another"))
    until(lambda: room.chunks > 3, "sound")
    assert speaker.stop() == 2
    chunks = room.chunks  # stop() returns when the sound has ended
    until(lambda: len(ends.list) == 2, "both to end")
    assert room.chunks <= chunks + 1
    assert {end for _, end in ends.list} == {End.CANCELED}
    speaker.add(ends.of("next"))
    until(lambda: ends.list[-1] == ("next", End.DONE), "the next text")


def test_an_urgent_text_breaks_off_and_a_canceled_one_is_not_said(
    speaker: Speaker, room: Room
) -> None:
    ends = Ends()
    speaker.add(ends.of("a long text " * 10))
    never = ends.of("never")
    speaker.add(never)
    until(lambda: room.chunks > 3, "sound")
    speaker.cancel(never)
    speaker.add(ends.of("fire", URGENT))
    until(lambda: len(ends.list) == 3, "all to end")
    assert dict(ends.list) == {
        "never": End.CANCELED,
        "a long text " * 10: End.CANCELED,
        "fire": End.DONE,
    }


def test_one_question_on_two_topics_is_said_once(speaker: Speaker, room: Room) -> None:
    ends = Ends()
    assert speaker.add(ends.of("the left?", NORMAL, "say"))
    assert not speaker.add(ends.of("the left?", HIGH, "question"))
    assert speaker.add(ends.of("the left?", NORMAL, "say")), "who says it twice means it"
    until(lambda: len(ends.list) == 2, "both to be said")
    assert room.begun == ["the left?", "the left?"]


def test_a_hung_engine_is_started_again_and_the_text_is_said(speaker: Speaker, room: Room) -> None:
    ends = Ends()
    speaker.add(ends.of("hang"))
    speaker.add(ends.of("after"))
    until(lambda: len(ends.list) == 2, "both to be said")
    assert ends.list == [("hang", End.DONE), ("after", End.DONE)]
    assert any("said nothing" in reason for reason in room.warned)


def test_texts_without_a_word_end_and_a_flood_keeps_the_important(
    speaker: Speaker, room: Room
) -> None:
    ends = Ends()
    speaker.add(ends.of("..."))
    until(lambda: ends.list == [("...", End.DONE)], "nothing to be said")
    speaker.add(ends.of("a long text " * 10))
    until(lambda: room.chunks > 3, "sound")
    for i in range(120):
        speaker.add(ends.of(f"flood {i}", LOW))
    speaker.add(ends.of("important", HIGH))
    failed = [text for text, end in ends.list if end is End.FAILED]
    assert len(failed) == 21
    assert all(text.startswith("flood") for text in failed)


class CancellingEngine:
    """A fake pyttsx3 engine that cancels the first `cancelled` texts, as the real one may."""

    def __init__(self, cancelled: int) -> None:
        self.cancelled, self.wav = cancelled, ""
        self.finished: Callable[..., None] | None = None

    def connect(self, topic: str, callback: Callable[..., None]) -> None:
        """Keep the only listener."""
        assert topic == "finished-utterance"
        self.finished = callback

    def save_to_file(self, text: str, wav: str) -> None:
        """Remember where to."""
        self.wav = wav

    def runAndWait(self) -> None:
        """Write a WAV, with no frame in it while texts are to be cancelled."""
        with wave.open(self.wav, "wb") as file:
            file.setparams((1, 2, 22050, 0, "NONE", ""))
            file.writeframes(b"" if self.cancelled > 0 else bytes(2000))
        self.cancelled -= 1
        assert self.finished is not None
        self.finished(name=None, completed=self.cancelled < 0)


def test_a_text_that_the_engine_cancels_is_made_again(tmp_path: Path) -> None:
    wav = tmp_path / "text.wav"
    SentenceWriter(CancellingEngine(cancelled=2)).write("Yes.", wav)
    assert wav.stat().st_size > 2000
    with pytest.raises(VoiceError, match="no sound"):
        SentenceWriter(CancellingEngine(cancelled=3)).write("Yes.", wav)


class FakeVoice:
    """As pyttsx3 lists one."""

    def __init__(self, id_: str, name: str, language: str) -> None:
        self.id, self.name, self.languages = id_, name, [language]


def test_the_voice_is_the_one_named_or_one_of_the_language() -> None:
    voices = [
        FakeVoice("gmw/en", "English (Great Britain)", "en-gb"),
        FakeVoice("gmw/en-us", "English (America)", "en-us"),
        FakeVoice("roa/fr", "French (France)", "fr-fr"),
    ]

    def chosen(voice: str = "", language: str = "en-US") -> str:
        return choose_voice(VoiceSettings(voice, language), voices)

    assert chosen() == "en-us"
    assert chosen(language="en-AU") == "gmw/en"
    assert chosen(language="fr") == "roa/fr"
    assert chosen("gmw/en-US+f3") == "gmw/en-us+f3"
    assert chosen("English (Great Britain)") == "gmw/en"
    with pytest.raises(VoiceError, match="klingon"):
        chosen("klingon")
    with pytest.raises(VoiceError, match="tlh"):
        chosen(language="tlh")


def test_the_real_engine_writes_what_it_is_given(tmp_path: Path) -> None:
    made = Synthesizer(VoiceSettings(timeout=60.0))
    try:
        made.open()
    except VoiceError as error:
        pytest.skip(str(error))
    try:
        made.write("Yes.", tmp_path / "short.wav")
        made.write("The red block on the left, or the blue ball on the right?", tmp_path / "l.wav")
        short, long = read_audio(tmp_path / "short.wav"), read_audio(tmp_path / "l.wav")
        assert 0.2 < short.seconds < long.seconds
        assert level(long.samples) > -40
    finally:
        made.close()


def test_a_player_is_a_program_that_can_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from clue_ros.voice.audio import silence, write_wav

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(VoiceError, match="apt-get install alsa-utils"):
        DevicePlayer()
    player = tmp_path / "aplay"
    program = "import sys, time; time.sleep(0.1 if 'silence' in sys.argv[-1] else 60)"
    player.write_text(f"#!{sys.executable}\n{program}\n")
    player.chmod(0o755)
    write_wav(tmp_path / "long.wav", silence(1.0))
    device = DevicePlayer()
    playback = device.play(tmp_path / "long.wav")
    assert not playback.wait(0.05)
    playback.stop()
    assert playback.wait(0.0)
    assert playback.problem == ""
    player.write_text("#!/bin/sh\necho no device >&2\nexit 1\n")
    with pytest.raises(VoiceError, match="no sound device"):
        DevicePlayer()
    failing = device.play(tmp_path / "long.wav")
    until(lambda: failing.wait(0.1), "the program to fail")
    assert "no device" in failing.problem
    assert SilentPlayer().play(tmp_path / "long.wav").wait(0.0)


# Recognizers.


@pytest.mark.parametrize("engine", ["vosk", "faster_whisper"])
def test_an_engine_that_is_not_there_says_how_to_get_it(engine: str) -> None:
    assert "pip install" in problem(RecognizerSettings(engine))
    with pytest.raises(VoiceError, match=engine):
        open_recognizer(RecognizerSettings(engine))


def test_a_language_or_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert problem(RecognizerSettings("sphinx")) == ""
    assert "fr-FR" in problem(RecognizerSettings("sphinx", "fr-FR"))
    assert "/nowhere" in problem(RecognizerSettings("sphinx", "fr-FR", "/nowhere"))
    assert "sphinx, vosk, faster_whisper" in problem(RecognizerSettings("google"))
    with pytest.raises(VoiceError, match="acoustic model"):
        open_recognizer(RecognizerSettings("sphinx", "fr-FR", str(tmp_path)))


VOSK = """
import json
def SetLogLevel(level): pass
class Model:
    def __init__(self, path): self.path = path
class KaldiRecognizer:
    def __init__(self, model, rate, words="[]"): self.words = json.loads(words)
    def SetWords(self, on): pass
    def AcceptWaveform(self, data): self.size = len(data)
    def FinalResult(self):
        assert "red" in self.words and self.size == 32000
        return json.dumps({"text": "the [unk] red one", "result": [{"conf": 0.5}, {"conf": 1.0}]})
"""


def fake_module(name: str, source: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a stand-in for a library that cannot be run here."""
    (folder / f"{name}.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setitem(sys.modules, name, ModuleType(name))  # restores what was there
    del sys.modules[name]


def test_vosk_gets_its_words_and_gives_its_confidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_module("vosk", VOSK, tmp_path, monkeypatch)
    assert "model_path" in problem(RecognizerSettings("vosk"))
    assert "/nowhere" in problem(RecognizerSettings("vosk", model_path="/nowhere"))
    engine = open_recognizer(RecognizerSettings("vosk", model_path=str(tmp_path)))
    heard = engine.recognize(Audio(np.zeros(16_000, np.int16)), Hints(Expecting.COMMAND))
    assert (heard.text, heard.confidence) == ("the red one", 0.75)


FASTER_WHISPER = """
from types import SimpleNamespace
class WhisperModel:
    def __init__(self, name): assert name == "base"
    def transcribe(self, audio, language, initial_prompt):
        assert (audio.dtype, len(audio), float(audio.max())) == ("float32", 1600, 0.5)
        texts = " The right one,", f" {language}: {initial_prompt}"
        return (SimpleNamespace(text=text) for text in texts), SimpleNamespace(language=language)
"""


def test_faster_whisper_gets_a_prompt_and_gives_no_confidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_module("faster_whisper", FASTER_WHISPER, tmp_path, monkeypatch)
    assert "model_path" in problem(RecognizerSettings("faster_whisper"))
    engine = open_recognizer(RecognizerSettings("faster_whisper", "fr-FR", "base"))
    sound = Audio(np.full(1600, 16_384, np.int16))
    heard = engine.recognize(sound, Hints.make(Expecting.ANSWER, ["zorgblat"], "en"))
    assert heard.text.startswith("the right one fr zorgblat red")
    assert math.isnan(heard.confidence)
    assert engine.recognize(sound, Hints(Expecting.ANYTHING)).text == "the right one fr"


@pytest.mark.usefixtures("workers")
def test_closing_a_speaker_ends_its_thread() -> None:
    tones = Synthesizer(VoiceSettings(), voice_workers.tones)
    made = Speaker(tones, SilentPlayer(), SpeakerCallbacks())
    made.add(Utterance("hello"))
    made.close(5.0)
    assert not any(thread.name == "voice" for thread in threading.enumerate())
