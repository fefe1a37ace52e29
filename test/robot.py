"""A whole robot in processes of its own, each started again when it dies, as the launch file does.

`ros2 launch` itself is not on every machine that runs the tests; test_nodes_launch kills under it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import cv2
from ros_helpers import TIMEOUT, Client, Process, picture, wait_until

from clue_ros.nodes.supervisor import supervised

RESPAWN_DELAY = 0.2  # seconds
SUPERVISED = "perception"  # its process is a supervisor, which forks the node


class Robot:
    """Perception, a camera of files, typed speech and a printing voice."""

    def __init__(self, folder: Path, model: Path | str, **perception: Any) -> None:
        self.image = folder / "table.png"
        cv2.imwrite(str(self.image), picture())
        self._folder = folder
        self._parameters: dict[str, dict[str, Any]] = {
            "perception": {"model": model, "autostart": True, **perception},
            "image_source": {"source": self.image, "rate": 20.0},
            "speech": {},
            "tts": {"engine": "print"},
        }
        self._lock = threading.Lock()
        self._kept_down: set[str] = set()
        self.nodes: dict[str, Process] = {}
        for name in self._parameters:
            self._start(name)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._respawn, daemon=True)
        self._thread.start()

    def _start(self, name: str) -> None:
        self.nodes[name] = Process(
            name,
            self._folder / f"{name}.log",
            *(["--keep"] if name == SUPERVISED else []),
            parameters=self._parameters[name],
            stdin=subprocess.PIPE if name == "speech" else subprocess.DEVNULL,
            killed=True,
        )

    def _respawn(self) -> None:
        while not self._stop.wait(RESPAWN_DELAY):
            with self._lock:
                for name, process in list(self.nodes.items()):
                    if process.popen.poll() is not None and name not in self._kept_down:
                        # A machine short of processes or memory: it is tried again.
                        with contextlib.suppress(OSError):
                            self._start(name)

    def pid(self, name: str) -> int:
        """Return the process id of a node, as long as it lives."""
        pid = self.nodes[name].popen.pid
        return (
            wait_until(lambda: supervised(pid), "the supervised node")
            if name == SUPERVISED
            else pid
        )

    def kill(self, name: str, *, for_good: bool = False, supervisor: bool = False) -> int:
        """End a node with SIGKILL and return what its process id was.

        for_good: until `start`. supervisor: by killing the one that would start it again at once.
        """
        with self._lock:
            if for_good:
                self._kept_down.add(name)
            process, pid = self.nodes[name], self.pid(name)
            if for_good or supervisor or name != SUPERVISED:
                process.kill()
            else:
                os.kill(pid, signal.SIGKILL)
            return pid

    def start(self, name: str) -> None:
        """Let a node that was killed for good start again."""
        self._kept_down.discard(name)

    def text(self, name: str) -> str:
        """Return what a node has printed, in all its lives."""
        return self.nodes[name].text()

    def type_line(self, text: str) -> None:
        """Say something by the keyboard."""
        pipe = self.nodes["speech"].popen.stdin
        assert pipe is not None
        pipe.write(f"{text}\n".encode())
        pipe.flush()

    def stop(self) -> dict[str, int]:
        """End everything in order and return the exit statuses."""
        self._stop.set()
        self._thread.join()
        return {name: process.stop() for name, process in self.nodes.items()}


def ask(client: Client, text: str, **fields: Any) -> Any:
    """Call `ground` until somebody answers.

    For some seconds a caller's DDS may still know the process that died, and send it the request.
    """
    from clue_msgs.srv import Ground

    def once() -> Any:
        future = client.ground_service.call_async(Ground.Request(expression=text, **fields))
        end = time.monotonic() + 5.0
        while time.monotonic() < end and not future.done():
            time.sleep(0.01)
        return future.result() if future.done() else None

    return wait_until(once, "an answer of the service ground")


def recovered(client: Client, text: str = "pick up the block") -> None:
    """Wait until a request about the camera's picture ends in a box."""

    def works() -> bool:
        if ask(client, text, force_grounding=True).error_code == 0:
            return True
        time.sleep(0.2)
        return False

    wait_until(works, "a request that works", 2 * TIMEOUT)
