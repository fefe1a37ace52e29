"""Sound: files, rates, where a phrase begins and ends, and what is the robot's own voice."""

from __future__ import annotations

import time
import wave
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import soundfile
from voice_helpers import need_espeak, spoken

from clue_ros.errors import BadAudioError, VoiceError
from clue_ros.voice.audio import (
    FULL_SCALE,
    Audio,
    Channels,
    StreamResampler,
    join,
    level,
    mono,
    read_audio,
    resample,
    silence,
    write_wav,
)
from clue_ros.voice.echo import OwnVoice
from clue_ros.voice.endpointing import (
    Begun,
    Dropped,
    Phrase,
    PhraseFinder,
    PhraseLimits,
    ambient_threshold,
)
from clue_ros.voice.listener import PhraseStream
from clue_ros.voice.sources import Files


def tone(frequency: float, seconds: float, rate: int) -> Audio:
    t = np.arange(round(seconds * rate)) / rate
    return Audio((8000 * np.sin(2 * np.pi * frequency * t)).astype(np.int16), rate)


def strength(audio: Audio, frequency: float) -> float:
    """Return the amplitude of a frequency."""
    t = np.arange(len(audio.samples)) / audio.rate
    wave_ = np.exp(-2j * np.pi * frequency * t)
    return float(2 * abs(np.mean(audio.samples * wave_)))


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_wav_files_of_every_width_are_read_as_the_mean_of_their_channels(
    width: int, tmp_path: Path
) -> None:
    left, right = tone(440, 0.2, 22_050).samples, np.zeros(4410, np.int16)
    frames = np.stack([left, right], axis=1)
    if width == 1:
        data = (frames // 256 + 128).astype(np.uint8).tobytes()
    else:
        shifted = frames.astype("<i4") << 16
        data = shifted.view(np.uint8).reshape(-1, 4)[:, 4 - width :].tobytes()
    with wave.open(str(tmp_path / "a.wav"), "wb") as file:
        file.setparams((2, width, 22_050, 0, "NONE", ""))
        file.writeframes(data)
    audio = read_audio(tmp_path / "a.wav")
    assert (audio.rate, len(audio.samples)) == (22_050, 4410)
    assert strength(audio, 440) == pytest.approx(4000, rel=0.05)


@pytest.mark.parametrize(
    "content", [None, b"", b"RIFF nothing", b"RIFF\x00\x00\x00\x00WAVEfmt "], ids=str
)
def test_a_file_that_is_no_sound_is_named(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "bad.wav"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BadAudioError, match=r"bad\.wav"):
        read_audio(path)
    with pytest.raises(BadAudioError, match=r"only \.wav"):
        read_audio(Path(__file__))


@pytest.mark.parametrize(
    ("suffix", "kind", "subtype"),
    [
        (".flac", "FLAC", "PCM_16"),
        (".aiff", "AIFF", "PCM_16"),
        (".wav", "WAV", "FLOAT"),
        (".wav", "WAV", "DOUBLE"),
        (".wav", "WAVEX", "PCM_24"),
        (".wav", "WAVEX", "FLOAT"),
    ],
)
def test_flac_aiff_float_and_extensible_files_are_read(
    suffix: str, kind: str, subtype: str, tmp_path: Path
) -> None:
    said = tone(440, 0.2, 16_000)
    path = tmp_path / f"a{suffix}"
    soundfile.write(path, said.samples / FULL_SCALE, 16_000, subtype, format=kind)
    read = read_audio(path)
    assert (read.rate, len(read.samples)) == (16_000, 3200)
    assert np.abs(read.samples.astype(int) - said.samples).max() <= 1


def test_what_is_no_number_in_a_float_file_is_silent(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.array([np.nan, np.inf, -2.0, 0.5]), 16_000, "FLOAT")
    assert list(read_audio(tmp_path / "a.wav").samples) == [0, 32_767, -32_768, 16_384]


def test_a_file_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    write_wav(tmp_path / "a.wav", tone(440, 0.2, 16_000))
    content = (tmp_path / "a.wav").read_bytes()
    (tmp_path / "a.wav").write_bytes(content[: len(content) // 2])
    assert read_audio(tmp_path / "a.wav").seconds == pytest.approx(0.1, abs=0.01)


def channels(*sounds: npt.NDArray[np.int16]) -> npt.NDArray[np.int16]:
    """Return channels as interleaved samples."""
    return np.stack(sounds, axis=1).reshape(-1)


def test_of_three_channels_or_more_one_is_heard_and_told() -> None:
    voice, playback = tone(440, 0.2, 16_000).samples, tone(1000, 0.2, 16_000).samples
    told: list[str] = []
    make = Channels(tell=told.append)
    for _ in range(3):
        heard = make(channels(voice, voice, playback), 16_000, 3)
        assert np.array_equal(heard.samples, voice)
    assert told == ["sound of 3 channels: channel 0, counted from 0, is heard (parameter channel)"]
    chosen = Channels(2)(channels(voice, voice, playback), 16_000, 3)
    assert np.array_equal(chosen.samples, playback)
    with pytest.raises(BadAudioError, match="no channel 2 in sound of 2"):
        Channels(2)(channels(voice, voice), 16_000, 2)


def test_two_channels_of_opposite_phases_are_told_once_and_others_are_not() -> None:
    voice = tone(440, 0.2, 16_000).samples
    noise = np.random.default_rng(0).normal(0, 3000, (2, 3200)).astype(np.int16)
    warnings: list[str] = []
    make = Channels(warn=warnings.append)
    for pair in ((voice, voice), (voice, 0 * voice), tuple(noise), (voice // 500, -voice // 500)):
        make(channels(*pair), 16_000, 2)
    assert warnings == []
    assert level(make(channels(voice, -voice), 16_000, 2).samples) < -90
    make(channels(voice, -voice), 16_000, 2)
    assert len(warnings) == 1
    assert "set channel to 0 or 1" in warnings[0]
    assert np.array_equal(Channels(1)(channels(voice, -voice), 16_000, 2).samples, -voice)


def test_chunks_that_no_microphone_sends_are_refused() -> None:
    for rate, channels, count in ((0, 1, 10), (10**6, 1, 10), (16_000, 0, 10), (16_000, 3, 10)):
        with pytest.raises(BadAudioError):
            mono(np.zeros(count, np.int16), rate, channels)


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_resampling_keeps_the_voice_and_adds_nothing(rate: int) -> None:
    low = resample(tone(440, 0.5, rate))
    assert low.rate == 16_000
    assert low.seconds == pytest.approx(0.5, abs=1e-3)
    assert strength(low, 440) == pytest.approx(8000, rel=0.03)
    if rate > 22_050:  # what lies above half the new rate must not come back as something else
        assert level(resample(tone(11_000, 0.5, rate)).samples) < -40


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000])
def test_a_stream_resampled_in_chunks_is_the_whole(rate: int) -> None:
    whole = tone(440, 0.5, rate)
    stream, parts, at = StreamResampler(rate), [], 0
    rng = np.random.default_rng(1)
    while at < len(whole.samples):
        size = int(rng.integers(1, 1200))
        parts.append(stream.feed(whole.samples[at : at + size]))
        at += size
    together = Audio(np.concatenate(parts))
    assert together.seconds == pytest.approx(0.5, abs=2e-3)
    assert strength(together, 440) == pytest.approx(8000, rel=0.03)
    # nothing between the harmonics: no clicks where the chunks meet
    rest = together.samples[400:-400].astype(float)
    t = np.arange(len(rest)) / 16_000
    basis = np.stack([np.sin(2 * np.pi * 440 * t), np.cos(2 * np.pi * 440 * t)], axis=1)
    fit = basis @ np.linalg.lstsq(basis, rest, rcond=None)[0]
    assert np.abs(rest - fit).max() < 120  # of 8000


def phrases(sound: Audio, limits: PhraseLimits | None = None, chunk: int = 700) -> list[object]:
    finder = PhraseFinder(limits or PhraseLimits())
    events: list[object] = []
    for i in range(0, len(sound.samples), chunk):
        events += finder.feed(sound.samples[i : i + chunk], i / sound.rate)
    return events


def test_phrases_are_found_with_their_times_even_a_short_no() -> None:
    need_espeak()
    sound = join([spoken("pick up the red block"), spoken("no"), silence(1.0)])
    first, second = spoken("pick up the red block").seconds, spoken("no").seconds
    events = phrases(sound)
    assert [type(e) for e in events] == [Begun, Phrase, Begun, Phrase]
    one, two = events[1], events[3]
    assert isinstance(one, Phrase)
    assert isinstance(two, Phrase)
    assert 0.1 < one.start <= 0.6
    assert one.speech_end == pytest.approx(first - 1.2, abs=0.3)
    assert one.end == pytest.approx(one.speech_end + 0.6, abs=0.04)
    assert one.audio.seconds == pytest.approx(one.end - one.start, abs=0.04)
    assert first + 0.1 < two.start <= first + 0.6
    assert two.speech_end == pytest.approx(first + second - 1.2, abs=0.3)


def test_silence_noise_and_clicks_are_no_phrases() -> None:
    rng = np.random.default_rng(0)
    hiss = Audio(rng.normal(0, 15, 48_000).astype(np.int16))
    assert phrases(hiss) == []
    assert phrases(silence(3.0)) == []
    clicks = silence(3.0)
    clicks.samples[16_000:16_400] = 20_000
    assert not any(isinstance(event, Phrase) for event in phrases(clicks))


def test_a_phrase_without_end_is_cut() -> None:
    need_espeak()
    events = phrases(
        spoken("one two three four five six seven eight nine ten eleven twelve thirteen"),
        PhraseLimits(max_phrase=1.5),
    )
    first = next(event for event in events if isinstance(event, Phrase))
    assert first.audio.seconds == pytest.approx(1.5, abs=0.04)
    assert first.end - first.speech_end < PhraseLimits().end_silence, "no silence closed it"


def test_the_room_sets_what_is_loud() -> None:
    rng = np.random.default_rng(0)
    loud = rng.normal(0, 600, 32_000).astype(np.int16)
    assert ambient_threshold(loud, 6.0) == pytest.approx(level(loud) + 6.0, abs=1.0)
    assert ambient_threshold(np.zeros(0, np.int16), 6.0) == PhraseLimits().threshold


def test_own_voice_mutes_while_it_speaks_and_for_the_tail() -> None:
    own = OwnVoice(tail=0.5)
    assert not own.muted(0.0, 1.0)
    own.began(10.0, 2.0, "the red one or the blue one")
    assert not own.muted(9.0, 10.0)
    assert own.muted(9.9, 10.1)
    assert own.muted(12.4, 12.5)
    assert not own.muted(12.6, 12.7)
    own.ended(11.0)  # broken off
    assert own.muted(11.4, 11.45)
    assert not own.muted(11.6, 11.7)
    own.began(20.0, 1e9)  # a speaker that died: not deaf for ever
    assert not own.muted(700.0, 701.0)


def test_its_own_words_are_an_echo_and_an_answer_is_not() -> None:
    own = OwnVoice(tail=0.5)
    own.began(10.0, 3.0, "Do you mean the red one, or the blue one?")
    assert own.is_echo("the red one or the blue one", 10.5, 13.0)
    assert not own.is_echo("stop please robot", 11.0, 12.0)
    assert not own.is_echo("the red one", 20.0, 21.0)


def test_a_stream_is_muted_while_the_robot_speaks_and_when_it_is_closed() -> None:
    need_espeak()
    sound, own = spoken("pick up the red block"), OwnVoice(0.3)

    def heard(stream: PhraseStream) -> list[object]:
        size = 480
        found: list[object] = []
        for i in range(0, len(sound.samples), size):
            found += stream.feed(Audio(sound.samples[i : i + size]), 100.0 + i / 16_000)
        return found

    assert any(isinstance(e, Phrase) for e in heard(PhraseStream(PhraseLimits(), own)))
    assert heard(PhraseStream(PhraseLimits(), own, is_open=lambda: False)) == []
    own.began(100.0, sound.seconds)
    assert heard(PhraseStream(PhraseLimits(), own)) == []
    overheard = heard(PhraseStream(PhraseLimits(), own, overhear=lambda: True))
    assert any(isinstance(e, Phrase) for e in overheard)
    late = OwnVoice(0.3)  # it begins to speak while somebody is speaking
    late.began(101.0, 5.0)
    assert [type(e) for e in heard(PhraseStream(PhraseLimits(), late))] == [Begun, Dropped]


def test_files_are_played_in_order_when_it_is_quiet(tmp_path: Path) -> None:
    write_wav(tmp_path / "2.wav", Audio(np.full(800, 2, np.int16)))
    write_wav(tmp_path / "1.wav", Audio(np.full(800, 1, np.int16)))
    (tmp_path / "notes.txt").write_text("not sound")
    got: list[int] = []
    files = Files(tmp_path, 0.06, quiet=lambda: True)
    files.start(lambda audio, _start: got.extend(np.unique(audio.samples).tolist()), lambda: 0.0)
    try:
        for _ in range(1000):
            if 2 in got:
                break
            time.sleep(0.01)
    finally:
        files.stop()
    assert [value for value in dict.fromkeys(got) if value] == [1, 2]


@pytest.mark.parametrize("name", ["missing", "empty", "broken"])
def test_files_that_cannot_be_played_are_told_at_once(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.wav").write_bytes(b"RIFF")
    with pytest.raises(VoiceError, match=name):
        Files(tmp_path / name, 0.1, quiet=lambda: True)
