#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Measure whole spoken dialogues on the ROS 2 graph: recognition, outcome, and times.

    scripts/run python benchmarks/voice_dialogues.py [--voices V ...] [--every N] [--records FILE]
        [--skip-dialogues] [--skip-echo] [--questions N] [--model M]

Dialogues: espeak-ng says each request and answer of a fixed list in four voices, in a room that the
speech node hears through one microphone together with the robot's own voice. A dialogue is right if
the centre of its box is on the object that the person means. The person says yes or no to "Did you
say ...?" and repeats a phrase that was not understood, three times at most. The robot's questions
are recognized, too. Echo: the robot says 50 questions in the same room, and none of them may be
heard. Nothing is judged here.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from clue_msgs.msg import GroundingResult, Speaking, Transcript
from std_msgs.msg import String

from benchmarks.voice_roundtrip import VOICES, questions, say
from benchmarks.word_error_rate import word_error_rate
from clue_ros.dialogue.types import Box
from clue_ros.dialogue.words import plain
from clue_ros.model.loading import add_model_argument
from clue_ros.nodes import messages
from clue_ros.nodes.topics import LATEST
from clue_ros.nodes.tts_node import LEAD
from clue_ros.voice.audio import join, read_audio, resample, silence, write_wav
from clue_ros.voice.endpointing import PhraseLimits
from clue_ros.voice.grammar import Expecting, Hints
from clue_ros.voice.sphinx import Sphinx
from demo.graph import Processes, Watcher, stay_on_this_machine
from demo.scenes import FOLDER
from demo.spoken import Room

ATTEMPTS = 3  # at each phrase
PATIENCE = 6.0  # seconds of silence until the person repeats the last phrase
LIMIT = 180.0  # seconds a dialogue may last
STAGES = ("end of speech noticed", "recognition", "reply", "synthesis", "all")


@dataclass(frozen=True)
class Script:
    """A dialogue to play: `target` is the box of the object in pixels, annotated by hand."""

    image: str
    request: str
    answers: tuple[str, ...]
    target: tuple[int, int, int, int]


SCRIPTS = (
    Script(
        "yellow_blocks.png", "pick up the yellow block", ("the left one",), (175, 260, 293, 397)
    ),
    Script("yellow_blocks.png", "hand me the green block", (), (390, 178, 503, 312)),
    Script("ball_block_can.png", "give me the ball", (), (303, 342, 413, 455)),
    Script("ball_block_can.png", "take the red block", (), (105, 246, 228, 375)),
    Script("ball_block_can.png", "can you pick up the blue can", (), (415, 61, 505, 183)),
    Script("five_blocks.png", "pick up the block", ("the green one",), (350, 135, 467, 252)),
    Script("five_blocks.png", "bring me the green cube", (), (350, 135, 467, 252)),
)


@dataclass
class Run:
    """The record of one dialogue."""

    voice: str
    request: str
    heard: str = ""  # the request, at the first attempt
    status: int = -1  # of clue_msgs/Transcript
    said: int = 0  # times the person spoke, "yes" and repetitions included
    extra: list[str] = field(default_factory=list)  # transcripts when nothing was to be heard
    asked: list[tuple[str, str]] = field(default_factory=list)  # question, and it recognized back
    box: tuple[float, ...] = ()
    right: bool = False
    ended: str = ""  # the robot's last words where there is no box
    seconds: list[dict[str, float]] = field(default_factory=list)  # of each reply to a phrase


class Person:
    """Speaks with espeak-ng, and hears what the graph says."""

    def __init__(self, processes: Processes, watcher: Watcher, folder: Path, model: str) -> None:
        self._watcher, self._folder = watcher, folder
        self._events = watcher.events
        self.transcripts: list[Transcript] = []
        self._speaking: list[float] = []  # when the robot told that it begins
        watcher.node.create_subscription(Transcript, "transcript", self._on_transcript, 10)
        watcher.node.create_subscription(Speaking, "speaking", self._on_speaking, LATEST)
        self._say = watcher.node.create_publisher(String, "say", 10)
        self._room = Room(watcher.node)
        image = FOLDER / SCRIPTS[0].image
        processes.start("image_source", source=image, rate=15.0)
        processes.start("tts", engine="pyttsx3", output="topic", wav_folder=folder / "said")
        processes.start("speech", source="topic")
        processes.start("perception", model=model, answer_timeout=300.0, max_image_age=30.0)
        watcher.transition("configure", 600.0)
        watcher.transition("activate")
        watcher.wait(lambda: watcher.perception_sees > 0, "a picture", 60.0)
        for node, words in (("speech", "listens to"), ("tts", "speaking through")):
            watcher.wait(lambda n=node, w=words: w in processes.tail(n, 50), node, 300.0)
        self._engine = Sphinx()
        self._last = ""

    def close(self) -> None:
        """Fall silent."""
        self._room.close()

    def _on_transcript(self, message: Transcript) -> None:
        self.transcripts.append(message)
        self._events.put(("transcript", message))

    def _on_speaking(self, message: Speaking) -> None:
        if message.is_speaking:
            self._speaking.append(time.time())

    def dialogue(self, script: Script, voice: str) -> Run:
        """Play one dialogue to its end."""
        run, answers = Run(voice, script.request), list(script.answers)
        self._watcher.show((FOLDER / script.image).resolve())
        while not self._events.empty():
            self._events.get()
        heard, awaited, attempts = None, True, 1
        self._speak(script.request, voice, run)
        deadline = time.monotonic() + LIMIT
        while time.monotonic() < deadline and attempts <= ATTEMPTS:
            event = self._next(PATIENCE)
            if event is None:  # nothing happened: what was said last was not understood
                attempts, awaited = attempts + 1, True
                self._speak(self._last, voice, run)
                continue
            kind, message, at = event
            if kind == "transcript":
                run.extra += [] if awaited else [message.text]
                heard, awaited = (message, at), False
                if run.status < 0:
                    run.heard, run.status = message.text, int(message.status)
                continue
            if kind == "question":
                self._time(run, heard, at)
                run.asked.append((message.text, self._recognized()))
                if not answers:
                    run.ended = f"nobody answers {message.text!r}"
                    break
                attempts, awaited = 1, True
                self._speak(answers.pop(0), voice, run)
            elif kind == "grounding":
                self._time(run, heard, at)
                self._judge(run, script, message)
                break
            elif self._belongs_to_more(message, run):
                continue
            elif self._answers(message, run, voice):
                attempts, awaited = attempts + 1, True
            else:
                run.ended = message
                break
        self._leave()
        return run

    def echo(self, texts: list[str]) -> dict[str, int]:
        """Have the robot say the texts; count the phrases of its own that it heard."""
        self._leave()
        before, loud = len(self.transcripts), len(self._speaking)
        for text in texts:
            said = len(self._speaking)
            self._say.publish(String(data=text))
            self._watcher.wait(lambda n=said: len(self._speaking) > n, "the robot's voice", 60.0)
            self._wait_for_silence(1.5)  # the tail of the mute, and what would be recognized
        time.sleep(3.0)
        said = len(self._speaking) - loud
        return {"said": said, "heard itself": len(self.transcripts) - before}

    def _belongs_to_more(self, text: str, run: Run) -> bool:
        """Whether a text belongs to a question or grounding, which have topics of their own."""
        if any(text == question for question, _ in run.asked):
            return True
        time.sleep(0.5)  # topics overtake each other
        return any(kind in ("question", "grounding") for kind, _ in list(self._events.queue))

    def _answers(self, text: str, run: Run, voice: str) -> bool:
        """Answer the speech node's "Did you say ...?" and the like; False for any other text."""
        if text.startswith("Did you say"):
            meant = plain(self._last) == plain(text.partition(":")[2])
            last = self._last
            self._speak("yes" if meant else "no", voice, run)
            self._last = last
            return True
        if text.startswith(("Then please say", "I did not hear", "Sorry,")):
            self._speak(self._last, voice, run)
            return True
        return False

    def _next(self, seconds: float) -> tuple[str, Any, float] | None:
        """The next event; None if nothing happened during so many seconds of silence."""
        quiet = time.monotonic()
        while time.monotonic() - quiet < seconds:
            if self._room.robot_speaks or self._room.person_speaks:
                quiet = time.monotonic()
            if not self._events.empty():
                kind, message = self._events.get()
                return kind, message, time.time()
            time.sleep(0.005)
        return None

    def _speak(self, text: str, voice: str, run: Run) -> None:
        self._wait_for_silence(0.8)
        path = self._folder / "person.wav"
        write_wav(path, say(text, voice, self._folder))
        self._last = text
        run.said += 1
        self._room.play(path)

    def _wait_for_silence(self, seconds: float) -> None:
        time.sleep(0.5)  # what was just published as text has not begun to sound yet
        quiet = time.monotonic()
        while time.monotonic() - quiet < seconds:
            if self._room.robot_speaks:
                quiet = time.monotonic()
            time.sleep(0.02)

    def _recognized(self) -> str:
        """Recognize the robot's latest sentence, without hints."""
        self._wait_for_silence(0.8)
        newest = max((self._folder / "said").glob("*.wav"))
        audio = join([silence(0.3), resample(read_audio(newest)), silence(0.5)])
        return self._engine.recognize(audio, Hints(Expecting.ANYTHING)).text

    def _time(self, run: Run, heard: tuple[Transcript, float] | None, at: float) -> None:
        """Record the stages from the end of the person's speech to the robot's reply, if known."""
        if heard is None or heard[0].status != Transcript.ACCEPTED:
            return
        deadline = time.monotonic() + 20.0
        while not (later := [t for t in self._speaking if t > heard[1]]):
            if time.monotonic() > deadline:
                return
            time.sleep(0.005)
        transcript, arrived = heard
        latency = messages.seconds(transcript.latency)
        noticed = PhraseLimits().end_silence
        sounding = later[0] + LEAD
        times = (
            noticed,
            latency - noticed,
            at - arrived,
            sounding - at,
            latency + sounding - arrived,
        )
        run.seconds.append(dict(zip(STAGES, (round(t, 3) for t in times), strict=True)))

    def _judge(self, run: Run, script: Script, message: GroundingResult) -> None:
        box = messages.box_of(message.target.box)
        run.box = tuple(round(v, 1) for v in box.as_tuple())
        run.right = Box(*script.target).contains(box.center)

    def _leave(self) -> None:
        """End an open dialogue."""
        self._wait_for_silence(1.5)
        self._watcher.transition("deactivate")
        self._watcher.transition("activate")
        time.sleep(1.0)
        self._wait_for_silence(1.0)


def share(values: list[bool]) -> float | None:
    """The fraction of values that are true; None if there are none."""
    return round(sum(values) / len(values), 3) if values else None


def summary(runs: list[Run]) -> dict[str, Any]:
    """Rates over all dialogues, and medians of the times."""
    replies = [seconds for run in runs for seconds in run.seconds]
    asked = [pair for run in runs for pair in run.asked]
    return {
        "dialogues": len(runs),
        "request heard at once, every word": share([plain(r.heard) == r.request for r in runs]),
        "acted on at once": share([r.status == Transcript.ACCEPTED for r in runs]),
        "right object at the end": share([r.right for r in runs]),
        "a box at the end": share([bool(r.box) for r in runs]),
        "times the person spoke, mean": round(statistics.fmean(r.said for r in runs), 2),
        "transcripts when nothing was to be heard": [text for r in runs for text in r.extra],
        "questions": len(asked),
        "questions recognized back, word error rate": round(word_error_rate(asked), 3),
        "replies timed": len(replies),
        "median seconds from end of speech to the robot's": {
            stage: round(statistics.median(r[stage] for r in replies), 2) if replies else None
            for stage in STAGES
        },
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--voices", nargs="+", default=list(VOICES), help="voices of espeak-ng")
    parser.add_argument("--every", type=int, default=1, help="play every Nth dialogue only")
    parser.add_argument(
        "--questions", type=int, default=50, help="number of questions for the echo"
    )
    parser.add_argument(
        "--records", type=Path, metavar="FILE", help="write a line of JSON for each dialogue"
    )
    parser.add_argument("--skip-dialogues", action="store_true", help="play no dialogues")
    add_model_argument(parser)
    parser.add_argument("--skip-echo", action="store_true", help="do not measure echoes")
    options = parser.parse_args()
    stay_on_this_machine()
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        processes = Processes(Path(name) / "logs")
        watcher = Watcher(processes)
        try:
            person = Person(processes, watcher, Path(name), options.model)
            if not options.skip_echo:
                report["echo"] = person.echo(questions(options.questions))
            if not options.skip_dialogues:
                chosen = SCRIPTS[:: options.every]
                runs = [person.dialogue(s, voice) for voice in options.voices for s in chosen]
                report["dialogues"] = summary(runs)
                if options.records is not None:
                    lines = [json.dumps(asdict(run)) for run in runs]
                    options.records.write_text("\n".join(lines) + "\n", encoding="utf-8")
            person.close()
        finally:
            processes.stop()
            watcher.close()
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
