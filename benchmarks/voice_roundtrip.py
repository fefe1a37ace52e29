#!/usr/bin/env python3
"""How well the voice works: words in, words out, and the time in between.

    scripts/run python benchmarks/voice_roundtrip.py [--voices V ...] [--every N] [--json]
        [--skip-words] [--skip-dialogues] [--skip-echo] [--questions N]

Words: espeak-ng says each command and answer of a fixed list in four voices; the recognizer hears
them with and without the grammar. Dialogues: the whole ROS 2 graph hears a request in each voice,
the robot asks, the person answers; its question is recognized back. Echo: the robot asks 50
questions and its own voice comes back to its microphone; nothing of it may be heard. It measures
and judges nothing; test/test_voice_roundtrip.py is a short version that does.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from clue_ros.voice.audio import Audio, join, read_audio, resample, silence
from clue_ros.voice.error_rate import word_error_rate
from clue_ros.voice.grammar import Expecting, Hints
from clue_ros.voice.hearing import Listener
from clue_ros.voice.own_voice import OwnVoice
from clue_ros.voice.phrases import Phrase, PhraseLimits
from clue_ros.voice.sphinx import Sphinx
from clue_ros.voice.words import plain

VOICES = ("en-us", "en-gb", "en-us+f3", "en-gb-scotland")
COMMANDS = (
    "pick up the red block", "pick up the block", "give me the ball on the left",
    "take the yellow cylinder", "hand me the green block", "where is the blue ball",
    "can you pick up the can", "grab the upper left cube", "please pick up the purple ball",
    "bring me the orange cube", "show me the block in the middle", "i need the white cylinder",
    "find the lower right ball", "get the red sphere", "pick up the can on the right",
)  # fmt: skip
ANSWERS = (
    "the left one", "the red one", "the one on the right", "the yellow one please",
    "i mean the blue one", "the middle one", "yes", "no", "stop", "never mind",
)  # fmt: skip
ASKED = ("the left one", "the right one", "the red one", "the blue one", "the yellow one")
OBJECTS = ("block", "ball", "can", "cube", "cylinder")
COLORS = ("red", "green", "blue", "yellow", "purple", "orange")
ECHO_GAIN = 0.5  # of the robot's voice at its own microphone
ECHO_DELAY = 0.06  # seconds
REVERBERATION = 0.25  # seconds until the room has swallowed it


def say(text: str, voice: str, folder: Path) -> Audio:
    """Have espeak-ng say it at 16 kHz, in a quiet room."""
    wav = folder / "said.wav"
    command = ["espeak-ng", "-v", voice, "-s", "150", "-w", str(wav), text]
    subprocess.run(command, check=True)
    whole = join([silence(0.5), resample(read_audio(wav)), silence(1.0)])
    noise = np.random.default_rng(0).normal(0, 8, len(whole.samples))
    loud = np.clip(np.rint(whole.samples + noise), -32_768, 32_767)
    return Audio(loud.astype(np.int16))


def listen(audio: Audio, own: OwnVoice | None = None, start: float = 0.0) -> list[Phrase]:
    """The phrases that the speech node would find, in chunks of 30 ms."""
    listener = Listener(PhraseLimits(), own or OwnVoice(0.4))
    found = []
    for i in range(0, len(audio.samples), 480):
        piece = Audio(audio.samples[i : i + 480])
        events = listener.feed(piece, start + i / audio.rate)
        found += [event for event in events if isinstance(event, Phrase)]
    return found


# Words.


def measure_words(voices: Iterable[str], every: int) -> dict[str, Any]:
    """Word error and sentence rates of each voice, with and without the grammar."""
    engine, report = Sphinx(), {}
    with tempfile.TemporaryDirectory() as folder:
        for voice in voices:
            pairs: list[tuple[str, str, str, float]] = []
            for sentences, hints in (
                (COMMANDS, Hints()),
                (ANSWERS, Hints.make(Expecting.ANSWER, ASKED, "en-US")),
            ):
                for sentence in sentences[::every]:
                    phrases = listen(say(sentence, voice, Path(folder)))
                    heard = [engine.hear(phrase.audio, hints) for phrase in phrases]
                    pairs.append(
                        (
                            sentence,
                            " ".join(h.text for h in heard),
                            " ".join(h.unaided for h in heard),
                            min((h.confidence for h in heard), default=0.0),
                        )
                    )
            report[voice] = _rates(pairs)
    return report


def _rates(pairs: list[tuple[str, str, str, float]]) -> dict[str, Any]:
    return {
        "sentences": len(pairs),
        "word error rate, grammar": round(word_error_rate((a, b) for a, b, _, _ in pairs), 3),
        "word error rate, plain": round(word_error_rate((a, c) for a, _, c, _ in pairs), 3),
        "whole sentence right, grammar": _share(a == plain(b) for a, b, _, _ in pairs),
        "whole sentence right, plain": _share(a == plain(c) for a, _, c, _ in pairs),
        "acted on at once": _share(sure >= 0.6 for *_, sure in pairs),
        "acted on at once, wrongly": _share(
            sure >= 0.6 and a != plain(b) for a, b, _, sure in pairs
        ),
        "asked back": _share(0.25 <= sure < 0.6 for *_, sure in pairs),
    }


def _share(values: Iterable[bool]) -> float:
    kept = list(values)
    return round(sum(kept) / len(kept), 3) if kept else math.nan


# The robot's own voice.


def questions(count: int) -> list[str]:
    """Questions as the robot asks them, all different as long as there are enough."""
    made = [
        f"Do you mean the {one} {thing} or the {other} {thing}?"
        for thing in OBJECTS
        for i, one in enumerate(COLORS)
        for other in COLORS[i + 1 :]
    ]
    step = max(1, len(made) // count)
    return (made[::step] * (1 + count // len(made)))[:count]


def echoed(said: Audio) -> Audio:
    """What comes back to the microphone: later, softer, with the room's reverberation."""
    length = round(REVERBERATION * said.rate)
    decay = np.exp(-6.9 * np.arange(length) / length)  # to a thousandth
    rng = np.random.default_rng(1)
    room = rng.normal(0, 1, len(decay)) * decay
    room = 0.3 * room / np.linalg.norm(room)
    room[0] += 1.0
    before, after = np.zeros(round(ECHO_DELAY * said.rate)), np.zeros(said.rate)
    direct = np.concatenate([before, said.samples, after])
    loud = ECHO_GAIN * np.convolve(direct, room)[: len(direct)]
    loud += np.random.default_rng(0).normal(0, 8, len(loud))
    return Audio(np.clip(np.rint(loud), -32_768, 32_767).astype(np.int16))


def measure_echo(count: int) -> dict[str, Any]:
    """Phrases found in the robot's own voice, with and without muting."""
    from clue_ros.voice.synthesis import Synthesizer, VoiceSettings

    own, now, heard, unmuted = OwnVoice(0.4), 0.0, 0, 0
    engine = Synthesizer(VoiceSettings(timeout=60.0))
    with tempfile.TemporaryDirectory() as folder:
        wav = Path(folder) / "question.wav"
        for text in questions(count):
            engine.write(text, wav)
            said = resample(read_audio(wav))
            back = echoed(said)
            own.began(now, said.seconds + 0.1, text)
            heard += len(listen(back, own, now))
            own.ended(now + said.seconds + 0.1)
            unmuted += len(listen(back, None, now))
            now += back.seconds + 1.0
    engine.close()
    return {"questions": count, "phrases heard": heard, "phrases heard without muting": unmuted}


# Dialogues.


def measure_dialogues(voices: Iterable[str]) -> dict[str, Any]:
    """One spoken dialogue in each voice on the real graph: success, and time by stage."""
    from clue_ros.nodes.demo_graph import Processes, Watcher, stay_on_this_machine
    from clue_ros.nodes.demo_scenes import find_scenes

    stay_on_this_machine()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        processes = Processes(folder / "logs")
        watcher = Watcher(processes)
        try:
            image = find_scenes().parent / "yellow_blocks.png"
            graph = Graph(processes, watcher, image, folder)
            runs = [graph.dialogue(voice) for voice in voices]
        finally:
            processes.stop()
            watcher.close()
    stages = {
        stage: round(statistics.median(run["seconds"][stage] for run in runs if run["seconds"]), 2)
        for stage in ("end of speech noticed", "recognition", "question", "synthesis", "all")
        if any(run["seconds"] for run in runs)
    }
    return {
        "dialogues": len(runs),
        "command success rate": _share(run["request heard"] for run in runs),
        "asked": _share(bool(run["seconds"]) for run in runs),
        "grounded": _share(run["grounded"] for run in runs),
        "question recognized back, word error rate": round(
            word_error_rate(run["question"] for run in runs if run["question"]), 3
        ),
        "median seconds from end of speech to the spoken question": stages,
        "runs": runs,
    }


class Graph:
    """The nodes, the room, and a person who speaks with espeak-ng."""

    def __init__(self, processes: Any, watcher: Any, image: Path, folder: Path) -> None:
        from clue_msgs.msg import Speaking, Transcript

        from clue_ros.nodes.demo_room import Room
        from clue_ros.nodes.tts_node import LATEST

        self._watcher, self._folder = watcher, folder
        self._times: list[tuple[str, Any, float]] = []
        listen_ = watcher.node.create_subscription
        listen_(Transcript, "transcript", lambda m: self._note("transcript", m), 10)
        listen_(Speaking, "speaking", lambda m: self._note("speaking", m), LATEST)
        self._room = Room(watcher.node)
        processes.start("image_source", source=image, rate=15.0)
        processes.start("tts", engine="pyttsx3", output="topic", wav_folder=folder / "said")
        processes.start("speech", source="topic")
        processes.start("perception", answer_timeout=300.0, max_image_age=30.0)
        watcher.transition("configure", 600.0)
        watcher.transition("activate")
        watcher.wait(lambda: watcher.perception_sees > 0, "a picture", 60.0)
        for node, words in (("speech", "listens to"), ("tts", "speaking through")):
            watcher.wait(lambda n=node, w=words: w in processes.tail(n, 50), node, 300.0)
        self._engine = Sphinx()

    def dialogue(self, voice: str) -> dict[str, Any]:
        """Ask for a yellow block of two, answer, and return what happened."""
        request, answer = "pick up the yellow block", "the left one"
        self._times.clear()
        self._empty()
        self._speak(request, voice)
        heard = self._wait("transcript")
        seconds: dict[str, float] = {}
        question: tuple[str, str] | None = None
        grounded = False
        if heard is not None and heard[0].status == heard[0].ACCEPTED:
            asked = self._next_of("question", 120.0)
            if asked is not None:
                spoken = self._wait("speaking")
                seconds = _stages(heard, asked[1], spoken)
                self._wait_for_silence()
                question = (asked[0].text, self._recognize_question())
                self._speak(answer, voice)
                grounded = self._next_of("grounding", 120.0) is not None
            else:
                grounded = True  # it pointed without asking
        self._wait_for_silence()
        self._watcher.transition("deactivate")  # ends what is still open
        self._watcher.transition("activate")
        time.sleep(1.0)
        return {
            "voice": voice,
            "heard": heard[0].text if heard else "",
            "request heard": heard is not None and plain(heard[0].text) == request,
            "question": question,
            "grounded": grounded,
            "seconds": seconds,
        }

    def _note(self, kind: str, message: Any) -> None:
        self._times.append((kind, message, time.time()))

    def _empty(self) -> None:
        while not self._watcher.events.empty():
            self._watcher.events.get()

    def _speak(self, text: str, voice: str) -> None:
        from clue_ros.voice.audio import write_wav

        path = self._folder / "person.wav"
        write_wav(path, say(text, voice, self._folder))
        self._room.play(path)

    def _wait(self, kind: str, seconds: float = 120.0) -> tuple[Any, float] | None:
        """The first message of a kind since the dialogue began, and when it came."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for found, message, at in list(self._times):
                if found == kind and (kind != "speaking" or message.is_speaking):
                    return message, at
            time.sleep(0.005)
        return None

    def _next_of(self, kind: str, seconds: float) -> tuple[Any, float] | None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self._watcher.events.empty():
                time.sleep(0.005)
                continue
            found, message = self._watcher.events.get()
            if found == kind:
                return message, time.time()
            if found == "grounding":
                return None
        return None

    def _wait_for_silence(self) -> None:
        quiet = 0
        while quiet < 20:
            time.sleep(0.05)
            quiet = 0 if self._room.robot_speaks else quiet + 1

    def _recognize_question(self) -> str:
        """Recognize the newest WAV of the robot, without any help."""
        newest = max((self._folder / "said").glob("*.wav"))
        audio = join([silence(0.3), resample(read_audio(newest)), silence(0.5)])
        return self._engine.hear(audio, Hints(Expecting.ANYTHING)).text


def _stages(
    heard: tuple[Any, float], asked: float, spoken: tuple[Any, float] | None
) -> dict[str, float]:
    transcript, arrived = heard
    latency = transcript.latency.sec + transcript.latency.nanosec * 1e-9
    end_silence = PhraseLimits().end_silence
    sounding = (spoken[1] if spoken else math.nan) + 0.1  # tts tells it so much earlier
    return {
        "end of speech noticed": end_silence,
        "recognition": latency - end_silence,
        "question": asked - arrived,
        "synthesis": sounding - asked,
        "all": latency + sounding - arrived,
    }


def main() -> None:
    """Measure and print."""
    summary = (__doc__ or "").splitlines()[0]
    parser = argparse.ArgumentParser(description=summary)
    parser.add_argument("--voices", nargs="+", default=list(VOICES), help="of espeak-ng")
    parser.add_argument("--every", type=int, default=1, help="only every Nth sentence")
    parser.add_argument("--questions", type=int, default=50, help="for the echo")
    parser.add_argument("--skip-words", action="store_true")
    parser.add_argument("--skip-dialogues", action="store_true")
    parser.add_argument("--skip-echo", action="store_true")
    options = parser.parse_args()
    report: dict[str, Any] = {}
    if not options.skip_echo:
        report["echo"] = measure_echo(options.questions)
    if not options.skip_words:
        report["words"] = measure_words(options.voices, options.every)
    if not options.skip_dialogues:
        report["dialogues"] = measure_dialogues(options.voices)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
