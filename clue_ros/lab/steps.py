"""Steps of a long run: commands of `clue`, finished ones skipped.

`clue train full` and `clue reproduce` are such runs. Each step can be run alone as it is printed.
They run one after the other, or on a Ray cluster, where independent steps run at the same time. Ray
restarts a dead worker, and its step resumes from the last saved state. Every machine of the cluster
must see the folders of the run and the data at the same paths.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from clue_ros import memory
from clue_ros.cli import main
from clue_ros.errors import ClueError
from clue_ros.lab.ray_cluster import RaySettings, ray_at
from clue_ros.model.loading import read_json, replacing, write_json

_RETRIES = 2  # of a step whose worker died


@dataclass(frozen=True)
class Step:
    """A step: `clue` commands, or a function without a command.

    words: of each command. saved: the file that takes what the command prints; None: the terminal.
    after: the steps that must be finished before it; None: all that stand before it.
    """

    name: str
    title: str
    words: tuple[tuple[str, ...], ...] = ()
    saved: Path | None = None
    work: Callable[[], None] | None = None
    after: tuple[str, ...] | None = None
    processes: int = 1
    every_time: bool = False  # cheap, and true of this machine and this moment only

    @property
    def lines(self) -> list[str]:
        """The commands as they can be typed."""
        return [shlex.join(["clue", *words]) for words in self.words]

    def run(self) -> None:
        """Run the step. Raises ClueError; a failed command has printed its reason on stderr."""
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

    A step counts as finished if it and all steps that it comes after had the same commands then.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last, self._asked = "", dict[str, str]()
        self._digests: dict[str, str] = read_json(path) if path.is_file() else {}

    def has(self, step: Step) -> bool:
        """Return whether this step is finished; call it for all steps, in their order."""
        if step.every_time:
            return False
        commands = re.sub(r" --accumulate \d+", "", " ".join(step.lines))  # another card's parts
        before = self._last
        if step.after is not None:
            before = " ".join(self._asked.get(name, "") for name in step.after)
        self._last = hashlib.sha256(f"{before} {step.name} {commands}".encode()).hexdigest()
        self._asked[step.name] = self._last
        return self._digests.get(step.name) == self._last

    def add(self, step: Step) -> None:
        """Note a step that was asked for."""
        if not step.every_time:
            self._digests[step.name] = self._asked[step.name]
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


def run_on_ray(steps: Sequence[Step], path: Path, cluster: RaySettings) -> None:
    """Run every step that is not finished by the file `path`, and note it there.

    The folder logs beside it has the steps' output. A failed step leaves out those after it; the
    others go on. Raises ClueError.
    """
    done = Done(path)
    left = [step for step in steps if not done.has(step)]
    for step in steps:
        if step not in left:
            print(f"done before: {step.title}", file=sys.stderr)
    if not left:
        return
    logs = path.parent.resolve() / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    running: dict[Any, Step] = {}
    failed: dict[str, str] = {}
    with ray_at(cluster.address) as ray:
        settings = {"max_retries": _RETRIES, "num_cpus": 1, "num_gpus": cluster.gpus}
        task = ray.remote(_on_worker).options(**settings)
        while True:
            busy = {step.name for step in running.values()} | failed.keys()
            wait_for = {step.name for step in left}
            ready = (s for s in left if s.name not in busy and not wait_for & {*(s.after or ())})
            for step in islice(ready, cluster.workers - len(running)):
                print(f"== {step.title}", file=sys.stderr)
                running[task.remote(step, Path.cwd(), _log(logs, step))] = step
            if not running:
                break
            (finished,), _ = ray.wait(list(running))
            step = running.pop(finished)
            try:
                reason = ray.get(finished)
            except ray.exceptions.RayError as error:  # its worker died each time
                reason = str(error).strip().splitlines()[-1]
            if reason:
                failed[step.name] = reason
                print(f"{step.title}: {reason} ({_log(logs, step)})", file=sys.stderr)
            else:
                left.remove(step)
                done.add(step)
    if failed:
        more = len(left) - len(failed)
        raise ClueError(
            f"no result of {', '.join(failed)}, and {more} steps wait for them: {logs} has the"
            " reasons; run it again to go on"
        )


def _log(logs: Path, step: Step) -> Path:
    return logs / f"{step.name.replace(' ', '-')}.log"


def _on_worker(step: Step, folder: Path, log: Path) -> str:
    """Run a step in `folder`; return the reason of its failure, or ""."""
    os.chdir(folder)
    with contextlib.ExitStack() as stack:
        said = stack.enter_context(log.open("a", buffering=1))
        stack.enter_context(contextlib.redirect_stdout(said))
        stack.enter_context(contextlib.redirect_stderr(said))
        print(f"process {os.getpid()} on {platform.node()}")
        try:
            step.run()
        except ClueError as error:
            return str(error)
    return ""
