"""Steps of a long run: commands of `clue`, one after the other, finished ones skipped.

`clue train full` and `clue reproduce` are such runs. Each step can be run alone as it is printed.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from clue_ros import memory
from clue_ros.cli import main
from clue_ros.errors import ClueError
from clue_ros.model.loading import read_json, replacing, write_json


@dataclass(frozen=True)
class Step:
    """A step: `clue` commands, or a function for what is no command of its own.

    words: of each command. saved: the file that takes what the command prints; None: the terminal.
    """

    name: str
    title: str
    words: tuple[tuple[str, ...], ...] = ()
    saved: Path | None = None
    work: Callable[[], None] | None = None
    processes: int = 1
    every_time: bool = False  # cheap, and true of this machine and this moment only

    @property
    def lines(self) -> list[str]:
        """The commands as they can be typed."""
        return [shlex.join(["clue", *words]) for words in self.words]

    def run(self) -> None:
        """Do it. Raises ClueError; a command has then said why on stderr."""
        if self.work is not None:
            self.work()
        for words in self.words:
            self._command(words)

    def _command(self, words: tuple[str, ...]) -> None:
        print(f"$ {shlex.join(['clue', *words])}", file=sys.stderr)
        said = io.StringIO()
        if self.processes > 1:
            status = subprocess.run([*_launcher(self.processes), *words], check=False).returncode
        else:
            with contextlib.redirect_stdout(said):
                status = main(words)
        _free_memory()
        if status != 0:
            raise ClueError(f"step {self.name} ended with status {status}; run it again to go on")
        if self.saved is None:
            print(said.getvalue(), end="")
        else:
            self.saved.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self.saved) as partial_file:
                partial_file.write_text(said.getvalue(), encoding="utf-8")


def _launcher(processes: int) -> list[str]:
    start = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu"]
    start += ["--num_processes", str(processes), "--num_machines", "1", "--dynamo_backend", "no"]
    return [*start, "--mixed_precision", "bf16", "-m", "clue_ros.cli"]


def _free_memory() -> None:
    memory.trim(everything=True)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class Done:
    """The finished steps, in RUN/steps.json.

    A step counts as finished if it and all steps before it had the same commands then.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._chain = ""
        self._digests: dict[str, str] = read_json(path) if path.is_file() else {}

    def has(self, step: Step) -> bool:
        """Whether this step is finished; asked of all steps, in their order."""
        if step.every_time:
            return False
        commands = re.sub(r" --accumulate \d+", "", " ".join(step.lines))  # another card's parts
        self._chain = hashlib.sha256(f"{self._chain} {step.name} {commands}".encode()).hexdigest()
        return self._digests.get(step.name) == self._chain

    def add(self, step: Step) -> None:
        """Note the step that was asked for last."""
        if not step.every_time:
            self._digests[step.name] = self._chain
            self._path.parent.mkdir(parents=True, exist_ok=True)
            write_json(self._path, self._digests)


def run_steps(steps: Iterable[Step], path: Path) -> None:
    """Run every step that is not finished by the file `path`, and note it there."""
    done = Done(path)
    for step in steps:
        if done.has(step):
            print(f"done before: {step.title}", file=sys.stderr)
            continue
        print(f"== {step.title}", file=sys.stderr)
        step.run()
        done.add(step)
