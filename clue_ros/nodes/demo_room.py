"""The demo's room: a microphone that hears the person's sound files, and the robot's own voice."""

from __future__ import annotations

import array
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
from clue_msgs.msg import AudioChunk, Speaking
from rclpy.node import Node

from clue_ros.nodes.tts_node import LATEST
from clue_ros.voice.audio import RATE, Audio, Samples, gain, read_audio, resample, write_wav
from clue_ros.voice.hearing import Resampler

BLOCK = 480  # samples: 30 ms
ECHO = -12.0  # dB: how loud the robot's voice comes back to its microphone
LONGEST = 1800 * RATE  # samples of the recording that are kept


class Room:
    """Sends sound on `audio` without a pause, as a microphone does, and records it."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._person: deque[Samples] = deque()  # blocks still to be said
        self._robot: Samples = np.zeros(0, np.int16)
        self._resampler = Resampler(RATE)
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
        """Whether the robot says so, or is still to be heard."""
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
        """Stop, and write what the microphone heard and what each side said, of equal length."""
        self.close()
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for name, blocks in self._record.items():
            path = folder / f"{name}.wav"
            write_wav(path, Audio(np.concatenate(blocks or [np.zeros(BLOCK, np.int16)])))
            paths.append(path)
        return paths

    def close(self) -> None:
        """Be silent from now on; to be called before the node is destroyed."""
        self._stopping.set()
        self._thread.join(2.0)

    def _on_robot(self, message: AudioChunk) -> None:
        with self._lock:
            if message.sample_rate != self._resampler.source:
                self._resampler = Resampler(int(message.sample_rate))
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
        echo = gain(Audio(robot), ECHO).samples
        noise = self._noise.normal(0.0, 8.0, BLOCK)
        heard = person.astype(np.float64) + echo + noise
        return np.clip(np.rint(heard), -32_768, 32_767).astype(np.int16), person, robot

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
    """The samples and silence, a whole block."""
    return np.concatenate([samples, np.zeros(BLOCK - len(samples), np.int16)])
