"""Runs of `clue train grpo` that end in the middle."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from clue_ros.lab.training.grpo import GrpoTrainer


@contextlib.contextmanager
def killed_when_measured(monkeypatch: pytest.MonkeyPatch, time: int) -> Iterator[None]:
    """Let what runs inside end as if it were killed when it is measured for the `time`-th time."""
    measure, calls = GrpoTrainer.evaluate, list[int]()

    def killed(self: GrpoTrainer, *held_out: Any) -> dict[str, float]:
        calls.append(1)
        if len(calls) == time:
            raise RuntimeError("killed")
        return measure(self, *held_out)

    with monkeypatch.context() as patch:
        patch.setattr(GrpoTrainer, "evaluate", killed)
        with pytest.raises(RuntimeError, match="killed"):
            yield
