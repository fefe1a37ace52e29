"""The page's microphone, with a sound file in place of the device (a browser of its own)."""

import wave
from pathlib import Path

import numpy as np
from browser import chromium, watch_errors
from console_helpers import scripted, until

from clue_ros.console.ear import Action, Decision, Ear
from clue_ros.model.loading import demo_folder
from clue_ros.voice.audio import read_audio


def test_the_microphone_is_sent_as_16_khz_while_the_button_is_held(tmp_path: Path) -> None:
    rate, hertz = 44_100, 1000.0
    tone = 12_000 * np.sin(2 * np.pi * hertz * np.arange(2 * rate) / rate)
    path = tmp_path / "tone.wav"
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(tone.astype("<i2").tobytes())
    with (
        chromium(f"--use-file-for-fake-audio-capture={path}") as started,
        scripted() as (server, _, robot),
    ):
        page = started.new_context(permissions=["microphone"]).new_page()
        errors: list[str] = []
        watch_errors(page, errors)
        page.goto(server.url)
        page.locator("#connection", has_text="Connected").wait_for()
        button = page.locator("#microphone")
        button.hover()
        page.mouse.down()
        page.locator("#microphone", has_text="Speak now").wait_for()
        until(lambda: sum(map(len, robot.sound)) > 16_000)
        page.mouse.up()
        page.locator("#microphone", has_text="Hold to talk").wait_for()
        until(lambda: robot.sound and not any(part.any() for part in robot.sound[-10:]))
        held = np.concatenate([part for part in robot.sound if part.any()])
        count = len(robot.sound)
        button.focus()
        page.keyboard.down(" ")
        until(lambda: len(robot.sound) > count + 3)
        page.keyboard.up(" ")
        page.locator("#microphone", has_text="Hold to talk").wait_for()
        assert errors == []
    assert robot.rates == {16_000}
    assert held.dtype == np.int16
    part = held[4000:12_000].astype(np.float64)
    spectrum = np.abs(np.fft.rfft(part * np.hanning(len(part))))
    assert abs(spectrum.argmax() * 16_000 / len(part) - hertz) < 5.0


def test_what_is_said_into_the_microphone_is_recognized() -> None:
    decided: list[Decision] = []
    failed: list[str] = []
    offered: list[str] = []
    ear = Ear(decided.append, failed.append, lambda: offered)
    try:
        for name in ("pick_up_the_ball", "the_left_one"):
            audio = read_audio(demo_folder() / "voice" / f"{name}.wav")
            silence = np.zeros(int(1.5 * audio.rate), np.int16)
            sound = np.concatenate([audio.samples, silence])
            for begin in range(0, len(sound), audio.rate // 10):
                ear.hear(sound[begin : begin + audio.rate // 10], audio.rate)
            until(lambda: decided or failed, 60.0)
            assert failed == []
            decision = decided.pop()
            assert decision.action is Action.ACCEPT
            assert decision.text == name.replace("_", " ")
            offered[:] = ["the left one", "the right one"]
    finally:
        ear.close()
