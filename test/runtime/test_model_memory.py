"""Out of memory on the device: it falls back or says so. The lack of memory is faked: no GPU here.

What torch raises is its own class; that it is raised is made up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

from clue_ros.dialogue.types import Dialogue, Grounding
from clue_ros.engine import Clue
from clue_ros.errors import ModelError
from clue_ros.model import torch_backbone
from clue_ros.model.backbone import Backbone
from clue_ros.model.checkpoint import open_backbone
from clue_ros.model.load_options import LoadOptions
from clue_ros.model.quantization import is_out_of_memory
from clue_ros.model.torch_backbone import TorchModel, load_model


def no_memory() -> torch.OutOfMemoryError:
    return torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


class Full:
    """In the place of a function: has no memory the first `times`."""

    def __init__(self, real: Any, times: int) -> None:
        self.real, self.times, self.calls = real, times, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Fail, or do it."""
        self.calls += 1
        if self.calls <= self.times:
            raise no_memory()
        return self.real(*args, **kwargs)


@pytest.fixture(scope="module")
def clue(random_model: Path) -> Clue:
    return Clue.load(random_model, backend="torch", device="cpu", policy="detector", threshold=1.0)


@pytest.mark.parametrize(
    ("stage", "times", "recovers"),
    [
        ("look", 1, True), ("look", 2, False),
        ("attention_at", 1, True), ("attention_at", 2, False),
        ("forward", 1, True), ("forward", 2, False),
        ("step", 1, False),  # its cache was written to: it cannot be repeated
    ],
)  # fmt: skip
def test_fake_out_of_memory_is_tried_once_more_if_it_can_and_then_said(
    clue: Clue,
    picture: npt.NDArray[np.uint8],
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    times: int,
    recovers: bool,
) -> None:
    picture = np.roll(picture, times, 0)  # not the one that was seen last
    real = getattr(TorchModel, stage)
    full = Full(real, times)
    monkeypatch.setattr(TorchModel, stage, lambda *args, **named: full(*args, **named))

    def reply() -> Any:
        return clue.reply(clue.look(picture), Dialogue("pick up the block"))

    if recovers:
        assert isinstance(reply(), Grounding)
        assert full.calls >= 2
        return
    with pytest.raises(ModelError, match=r"cpu has run out of memory.*quantization.*device to"):
        reply()
    assert full.calls == times
    assert isinstance(reply(), Grounding), "the next request works"


def load_on_full_gpu(model: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> Backbone:
    """Load where a GPU is there and full."""

    def load(base: Path, *, device: torch.device, **options: Any) -> Any:
        if device.type == "cuda":
            raise no_memory()
        return load_model(base, device=device, **options)

    monkeypatch.setattr(torch_backbone, "load_model", load)
    monkeypatch.setattr(torch_backbone, "choose_device", lambda _name: torch.device("cuda"))
    return open_backbone(model, LoadOptions(model, backend="torch", device=device))


def test_fake_full_gpu_means_the_cpu_where_any_device_will_do(
    random_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(UserWarning, match="cuda has run out of memory.*runs on the CPU"):
        loaded = load_on_full_gpu(random_model, "auto", monkeypatch)
    assert loaded.device == "cpu"


def test_fake_full_gpu_is_said_where_it_was_asked_for(
    random_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ModelError, match="cuda has run out of memory"):
        load_on_full_gpu(random_model, "cuda", monkeypatch)


def test_what_counts_as_out_of_memory() -> None:
    assert is_out_of_memory(no_memory())
    assert is_out_of_memory(MemoryError())
    cpu = "[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory"
    assert is_out_of_memory(RuntimeError(cpu))
    assert not is_out_of_memory(RuntimeError("shapes do not match"))
    assert not is_out_of_memory(ValueError("not enough memory"))


def test_a_real_allocation_that_is_far_too_large_counts() -> None:
    with pytest.raises(RuntimeError) as refusal:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(refusal.value), str(refusal.value)
