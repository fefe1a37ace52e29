# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The spoken demo: `scripts/demo --voice` plays dialogues from sound files, without a sound device.

The person's sound files and the robot's own voice reach the speech node through one microphone, a
ROS topic. As in a real room, the robot must not hear itself, and reads back an unsure phrase.
"""

from __future__ import annotations

import array
import json
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from clue_msgs.msg import AudioChunk, Speaking, Transcript
from rclpy.node import Node

from clue_ros.dialogue.words import plain
from clue_ros.nodes.topics import LATEST
from clue_ros.voice.audio import (
    RATE,
    Audio,
    Samples,
    StreamResampler,
    read_audio,
    resample,
    to_int16,
    write_wav,
)
from demo.graph import GraphError, Processes, Watcher, start_nodes
from demo.scenes import DemoScene, Played

# -------------------------------------------------------------------------------------------------
# The demo's room: a microphone that hears the person's sound files, and the robot's own voice.

BLOCK = 480  # samples: 30 ms
ECHO = -12.0  # dB: gain of the robot's voice at its microphone
LONGEST = 1800 * RATE  # samples; the recording stops there


class Room:
    """Publishes sound on `audio` without a pause, as a microphone does, and records it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._person: deque[Samples] = deque()  # blocks still to be said
        self._robot: Samples = np.zeros(0, np.int16)
        self._resampler = StreamResampler(RATE)
        self._lock = threading.Lock()
        self._record: dict[str, list[Samples]] = {"room": [], "person": [], "robot": []}
        self._robot_speaks = False
        self._noise = np.random.default_rng(0)
        self._audio = node.create_publisher(AudioChunk, "audio", 500)
        node.create_subscription(AudioChunk, "spoken_audio", self._on_robot, 500)
        node.create_subscription(Speaking, "speaking", self._on_speaking, LATEST)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="room", daemon=True)
        self._thread.start()

    @property
    def robot_speaks(self) -> bool:
        """Whether the robot reports that it speaks, or its voice is still being played."""
        with self._lock:
            return self._robot_speaks or len(self._robot) > 0

    @property
    def person_speaks(self) -> bool:
        """Whether a file is being played."""
        with self._lock:
            return bool(self._person)

    def play(self, path: Path) -> None:
        """Have the person say a file. Raises BadAudioError."""
        samples = resample(read_audio(path)).samples
        with self._lock:
            for i in range(0, len(samples), BLOCK):
                self._person.append(samples[i : i + BLOCK])

    def save(self, folder: Path) -> list[Path]:
        """Stop, and write three WAV files of equal length: the microphone and each side alone."""
        self.close()
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, blocks in self._record.items():
            path = folder / f"{name}.wav"
            write_wav(path, Audio(np.concatenate(blocks or [np.zeros(BLOCK, np.int16)])))
            paths.append(path)
        return paths

    def close(self) -> None:
        """Stop publishing; call this before the node is destroyed."""
        self._stopping.set()
        self._thread.join(2.0)

    def _on_robot(self, message: AudioChunk) -> None:
        with self._lock:
            if message.sample_rate != self._resampler.source:
                self._resampler = StreamResampler(int(message.sample_rate))
            new = self._resampler.feed(np.array(message.data, np.int16))
            self._robot = np.concatenate([self._robot, new])

    def _on_speaking(self, message: Speaking) -> None:
        with self._lock:
            self._robot_speaks = bool(message.is_speaking)

    def _run(self) -> None:
        begin, count = time.monotonic(), 0
        while not self._stopping.is_set():
            self._send(*self._next())
            count += 1
            self._stopping.wait(max(0.0, begin + count * BLOCK / RATE - time.monotonic()))

    def _next(self) -> tuple[Samples, Samples, Samples]:
        with self._lock:
            person = _filled(self._person.popleft() if self._person else self._robot[:0])
            robot = _filled(self._robot[:BLOCK])
            self._robot = self._robot[BLOCK:]
        echo = np.rint(robot * 10.0 ** (ECHO / 20.0))
        noise = self._noise.normal(0.0, 8.0, BLOCK)
        return to_int16(person + echo + noise), person, robot

    def _send(self, heard: Samples, person: Samples, robot: Samples) -> None:
        message: Any = AudioChunk(sample_rate=RATE, channels=1)
        message.header.stamp = self._node.get_clock().now().to_msg()
        message.header.frame_id = "microphone"
        message.data = array.array("h", heard.tobytes())
        self._audio.publish(message)
        for name, samples in (("room", heard), ("person", person), ("robot", robot)):
            if len(self._record[name]) * BLOCK < LONGEST:
                self._record[name].append(samples)


def _filled(samples: Samples) -> Samples:
    """The samples, filled up with silence to a whole block."""
    return np.concatenate([samples, np.zeros(BLOCK - len(samples), np.int16)])


REPLY_TIMEOUT = 300.0  # seconds
ATTEMPTS = 3  # at a phrase that is not understood
STATUS = {
    Transcript.ACCEPTED: "accepted",
    Transcript.UNCONFIRMED: "asked back",
    Transcript.NOT_UNDERSTOOD: "not understood",
    Transcript.DENIED: "denied",
}


class SpokenDialogue:
    """Plays the person of a spoken dialogue with the running nodes."""

    def __init__(self, processes: Processes, watcher: Watcher, out: Path) -> None:
        self._processes, self._watcher, self._out = processes, watcher, out
        self._lines: list[dict[str, Any]] = []
        self._begin = time.monotonic()
        watcher.node.create_subscription(
            Transcript, "transcript", lambda m: watcher.events.put(("transcript", m)), 10
        )
        self._room = Room(watcher.node)
        self._said = Path()  # the file that the person said last
        self._attempts = 0

    def start(self, image: Path, model: str, device: str) -> None:
        """Start the nodes, with a first image."""
        tts = {"engine": "pyttsx3", "output": "topic", "wav_folder": (self._out / "said").resolve()}
        start_nodes(
            self._processes, self._watcher, image, model, device, REPLY_TIMEOUT,
            speech={"source": "topic"}, tts=tts,
        )  # fmt: skip
        for node in ("speech", "tts"):
            self._watcher.wait(lambda n=node: self._is_active(n), f"{node} to be active", 120.0)

    def play(self, number: int, scene: DemoScene) -> str:
        """Play one scene; return "" or what went wrong."""
        _print(f"\nscene {number}: {scene.image.name}")
        self._watcher.show(scene.image.resolve())
        events = self._watcher.events
        while not events.empty():
            events.get()
        answers, questions, grounded = list(scene.answers), [], False
        self._person(scene.image.parent / scene.say)
        while True:
            kind, message = self._event()
            if kind == "transcript":
                if not self._hears(message):
                    return f"scene {number}: {self._said.name} was not understood {ATTEMPTS} times"
            elif kind == "question":
                questions.append(message.text)
                if not answers:
                    return f"scene {number}: nobody here can answer {message.text!r}"
                self._note("robot", message.text)
                self._person(scene.image.parent / answers.pop(0))
            elif kind == "grounding":
                grounded = True
                box = message.target.box
                _print(
                    f"  box:    x {box.x_min:.0f} to {box.x_max:.0f}, "
                    f"y {box.y_min:.0f} to {box.y_max:.0f}; {message.target.label!r}"
                )
            elif message not in questions and not self._asks_back(scene, message):
                self._note("robot", message)
                self._wait_for_silence()
                return scene.problem(number, Played(tuple(questions), grounded, message))

    def save(self) -> list[Path]:
        """Write the sound of both sides and the transcript."""
        paths = self._room.save(self._out)
        text = "".join(
            f"{line['seconds']:7.2f} s  {line['who']:<6}  {line['text']}\n" for line in self._lines
        )
        (self._out / "transcript.txt").write_text(text, encoding="utf-8")
        as_json = json.dumps(self._lines, indent=1, ensure_ascii=False)
        (self._out / "transcript.json").write_text(as_json + "\n", encoding="utf-8")
        return [*paths, self._out / "transcript.txt", self._out / "transcript.json"]

    def _is_active(self, node: str) -> bool:
        self._processes.check()
        words = {"speech": "listens to", "tts": "speaking through"}[node]
        return words in self._processes.tail(node, 50)

    def _event(self) -> tuple[str, Any]:
        events = self._watcher.events
        self._watcher.wait(lambda: not events.empty(), "the next word of the robot", REPLY_TIMEOUT)
        return events.get()

    def _hears(self, message: Transcript) -> bool:
        """Note a transcript; repeat a phrase that was not understood, or give up (False)."""
        heard = f'heard "{message.text}" ({message.confidence:.2f}, {STATUS[message.status]})'
        self._note("heard", heard)
        if message.status == Transcript.NOT_UNDERSTOOD:
            self._attempts += 1
            if self._attempts >= ATTEMPTS:
                return False
            self._person(self._said, again=True)
        return True

    def _asks_back(self, scene: DemoScene, text: str) -> bool:
        """Answer the speech node's own texts such as "Did you say ...?"; False for any other."""
        folder = scene.image.parent / "voice"
        if text.startswith("Did you say"):
            self._note("robot", text)
            meant = plain(self._said.stem.replace("_", " "))
            right = meant == plain(text.partition(":")[2])
            self._say_file(folder / ("yes.wav" if right else "no.wav"))
            return True
        if text.startswith(("Then please say", "I did not hear", "Sorry,")):
            self._note("robot", text)
            self._person(self._said, again=True)
            return True
        return False

    def _person(self, path: Path, *, again: bool = False) -> None:
        self._attempts = self._attempts if again else 0
        self._said = path
        self._say_file(path)

    def _say_file(self, path: Path) -> None:
        """Play a file of the person when the robot is silent."""
        self._wait_for_silence()
        self._note("person", f"{path.stem.replace('_', ' ')}  [{path.name}]")
        self._room.play(path)
        self._watcher.wait(lambda: not self._room.person_speaks, "the person to finish", 60.0)

    def _wait_for_silence(self) -> None:
        # Text that was just published has not begun to sound yet.
        time.sleep(0.5)
        quiet_since = time.monotonic()

        def quiet() -> bool:
            nonlocal quiet_since
            if self._room.robot_speaks:
                quiet_since = time.monotonic()
            return time.monotonic() - quiet_since > 0.8

        self._watcher.wait(quiet, "the robot to finish speaking", 60.0)

    def _note(self, who: str, text: str) -> None:
        seconds = round(time.monotonic() - self._begin, 2)
        self._lines.append({"seconds": seconds, "who": who, "text": text})
        _print(f"  {who + ':':<7} {text}")


def play_voice(
    processes: Processes,
    watcher: Watcher,
    scenes: list[DemoScene],
    out: Path,
    *,
    model: str,
    device: str,
) -> list[str]:
    """Play every spoken scene, and write the sound and the transcript; return what went wrong."""
    dialogue = SpokenDialogue(processes, watcher, out)
    failures = []
    try:
        dialogue.start(scenes[0].image, model, device)
        for number, scene in enumerate(scenes, start=1):
            problem = dialogue.play(number, scene)
            if problem:
                failures.append(problem)
                watcher.transition("deactivate")  # ends an open dialogue
                watcher.transition("activate")
    except GraphError as error:
        failures.append(str(error))
    finally:
        for path in dialogue.save():
            _print(f"left: {path}")
    return failures


def _print(text: str) -> None:
    print(text, flush=True)
