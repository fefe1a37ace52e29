"""Speaking: order, stopping at once, an engine that hangs; children; engines that are not there."""

from __future__ import annotations

import os
import stat
import sys
import textwrap
import threading
import time
import wave
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from clue_ros.errors import VoiceError
from clue_ros.voice.audio import Audio, read_audio
from clue_ros.voice.grammar import Expecting, Hints
from clue_ros.voice.player import DevicePlayer, SilentPlayer, StreamPlayer
from clue_ros.voice.recognizers import ENGINES, EngineSettings, open_engine, problem
from clue_ros.voice.speaker import HIGH, LOW, NORMAL, URGENT, End, Speaker, Told, Utterance
from clue_ros.voice.subprocess_service import Child, ChildError, Service
from clue_ros.voice.synthesis import Synthesis, Synthesizer, VoiceSettings, choose_voice

ECHO = """
import json, sys, time, os
from clue_ros.voice.subprocess_service import serve
from clue_ros.errors import VoiceError
def start():
    print("a library prints")
    if sys.argv[1] == "broken":
        raise VoiceError("no model here")
    if sys.argv[1] == "slow":
        time.sleep(600)
    def handle(request, payload):
        print("and prints")
        if request["do"] == "hang":
            time.sleep(60)
        if request["do"] == "die":
            os._exit(7)
        if request["do"] == "refuse":
            raise VoiceError("not that")
        return {"pid": os.getpid(), "got": len(payload)}
    return {"ready": 1}, handle
sys.exit(serve(start))
"""
# A speech engine that writes tones: a tenth of a second a character. "hang" hangs, once.
TONES = """
import sys, time, wave, pathlib
from clue_ros.voice.subprocess_service import serve
def start():
    def handle(request, _payload):
        text, wav = request["text"], request["wav"]
        mark = pathlib.Path(__file__).with_name("hung")
        if "hang" in text and not mark.exists():
            mark.touch()
            time.sleep(60)
        with wave.open(wav, "wb") as file:
            file.setparams((1, 2, 16000, 0, "NONE", ""))
            file.writeframes(b"\\x01\\x10" * 1600 * len(text))
        return {"done": True}
    return {"ready": "tones"}, handle
sys.exit(serve(start))
"""


@pytest.fixture
def children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "echo_child.py").write_text(textwrap.dedent(ECHO))
    (tmp_path / "tone_child.py").write_text(textwrap.dedent(TONES))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


@pytest.mark.usefixtures("children")
def test_a_child_answers_refuses_hangs_dies_and_is_started_again() -> None:
    service = Service(lambda: Child("echo_child", ["fine"], 60.0))
    try:
        first = service.ask({"do": "echo"}, b"x" * 300_000, timeout=60.0)
        assert first["got"] == 300_000
        with pytest.raises(VoiceError, match="not that"):
            service.ask({"do": "refuse"}, timeout=60.0)
        assert service.ask({"do": "echo"}, timeout=60.0)["pid"] == first["pid"]
        with pytest.raises(ChildError, match=r"said nothing for 0\.2 s"):
            service.ask({"do": "hang"}, timeout=0.2)
        second = service.ask({"do": "echo"}, timeout=60.0)
        assert second["pid"] != first["pid"]
        with pytest.raises(ChildError, match="exit status 7"):
            service.ask({"do": "die"}, timeout=60.0)
        assert service.ask({"do": "echo"}, timeout=60.0)["got"] == 0
        assert service.restarts == 2
    finally:
        service.close()


@pytest.mark.usefixtures("children")
def test_a_child_that_cannot_start_gives_its_reason() -> None:
    with pytest.raises(ChildError, match=r"^no model here$"):
        Child("echo_child", ["broken"], 60.0).get_ready()
    with pytest.raises(ChildError, match="has stopped"):
        Child("no_such_module_at_all", [], 60.0).get_ready()


@pytest.mark.usefixtures("children")
def test_a_child_that_is_still_getting_ready_can_be_ended() -> None:
    """A node that is told to end while its recognizer loads does not wait for it."""
    started: list[Child] = []

    def start() -> Child:
        started.append(Child("echo_child", ["slow"], 600.0))
        return started[0]

    service = Service(start)
    refused: list[ChildError] = []

    def load() -> None:
        try:
            service.open()
        except ChildError as error:
            refused.append(error)

    loading = threading.Thread(target=load)
    loading.start()
    until(lambda: started, "the child")
    service.close()
    loading.join(60.0)
    assert not loading.is_alive()
    assert "has stopped" in str(refused[0])


class Room:
    """Hears what a speaker says: chunks with their times."""

    def __init__(self) -> None:
        self.chunks = 0
        self.begun: list[str] = []
        self.warned: list[str] = []
        self.silent = 0

    def told(self) -> Told:
        """Return what the speaker calls."""

        def quiet() -> None:
            self.silent += 1

        return Told(lambda text, _s: self.begun.append(text), quiet, warn=self.warned.append)

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
def speaker(children: None, room: Room, tmp_path: Path) -> Iterator[Speaker]:
    del children
    tones = Synthesizer(VoiceSettings(timeout=3.0), module="tone_child")
    tones.open()
    made = Speaker(tones, StreamPlayer("chunks", room.send), room.told(), keep=tmp_path / "kept")
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
    assert read_audio(Path(first.wav)).seconds == pytest.approx(0.5)
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
    speaker.add(ends.of("a long text " * 10))  # twelve seconds
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
    Synthesis(CancellingEngine(cancelled=2)).write("Yes.", wav)
    assert wav.stat().st_size > 2000
    with pytest.raises(VoiceError, match="no sound"):
        Synthesis(CancellingEngine(cancelled=3)).write("Yes.", wav)


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
        assert long.level > -40
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


@pytest.mark.parametrize("engine", [name for name in ENGINES if name not in ("sphinx", "google")])
def test_an_engine_that_is_not_there_says_how_to_get_it(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ENGINES[engine].keys:
        monkeypatch.delenv(key, raising=False)
    reason = problem(EngineSettings(engine))
    assert any(words in reason for words in ("pip install", "environment variable", "model_path"))
    with pytest.raises(VoiceError, match=engine):
        open_engine(EngineSettings(engine))


def test_a_language_or_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert problem(EngineSettings("sphinx")) == ""
    assert "fr-FR" in problem(EngineSettings("sphinx", "fr-FR"))
    assert "/nowhere" in problem(EngineSettings("sphinx", "fr-FR", "/nowhere"))
    assert "no engine" in problem(EngineSettings("ears"))
    with pytest.raises(VoiceError, match="acoustic model"):
        open_engine(EngineSettings("sphinx", "fr-FR", str(tmp_path)))


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


def test_vosk_gets_its_words_and_gives_its_confidence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a stand-in for the library, which needs a model that cannot be had here."""
    (tmp_path / "vosk.py").write_text(VOSK)
    (tmp_path / "model").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "vosk", raising=False)
    assert "model_path" in problem(EngineSettings("vosk"))
    engine = open_engine(EngineSettings("vosk", model_path=str(tmp_path / "model")))
    heard = engine.hear(Audio(np.zeros(16_000, np.int16)), Hints(Expecting.COMMAND))
    assert (heard.text, heard.confidence) == ("the red one", 0.75)
    monkeypatch.delitem(sys.modules, "vosk", raising=False)


def test_a_service_on_the_internet_that_fails_is_a_voice_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import speech_recognition as sr

    def fails(*_args: object, **_named: object) -> str:
        raise sr.RequestError("no network")

    monkeypatch.setattr(sr.Recognizer, "recognize_google", fails)
    engine = open_engine(EngineSettings("google"))
    with pytest.raises(VoiceError, match="no network"):
        engine.hear(Audio(np.zeros(1600, np.int16)), Hints())

    def unclear(*_args: object, **_named: object) -> str:
        raise sr.UnknownValueError

    monkeypatch.setattr(sr.Recognizer, "recognize_google", unclear)
    heard = open_engine(EngineSettings("google")).hear(Audio(np.zeros(1600, np.int16)), Hints())
    assert (heard.text, heard.confidence) == ("", 0.0)


def test_closing_a_speaker_ends_its_thread(children: None) -> None:
    del children
    made = Speaker(Synthesizer(VoiceSettings(), module="tone_child"), SilentPlayer(), Told())
    made.add(Utterance("hello"))
    made.close(5.0)
    assert not any(thread.name == "voice" for thread in threading.enumerate())
