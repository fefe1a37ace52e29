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
from clue_ros.model import checkpoint as module
from clue_ros.model.backbone import load_backbone
from clue_ros.model.checkpoint import load_checkpoint
from clue_ros.model.lean import open_lean
from clue_ros.model.quantization import is_out_of_memory


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


STAGES = ("look", "judge", "read", "speak")


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("times", [1, 2])
def test_fake_out_of_memory_is_tried_once_more_and_then_said(
    clue: Clue,
    picture: npt.NDArray[np.uint8],
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    times: int,
) -> None:
    clue.threshold = 1.0
    parts, picture = clue.checkpoint, np.roll(picture, times, 0)  # not the one that was seen last
    places: dict[str, tuple[Any, str]] = {
        "look": (parts.backbone, "look"),
        "judge": (parts, "detector_or_none"),
        "read": (module, "read_prompts"),
        "speak": (module, "reply_to"),
    }
    where, name = places[stage]
    settings = parts.detector.settings
    full: Any = Full(getattr(where, name), times)
    full.settings, full.prompts = settings, parts.detector.prompts
    monkeypatch.setattr(where, name, full)

    def reply() -> Any:
        return clue.reply(clue.look(picture), Dialogue("pick up the block"))

    if times == 1:
        assert isinstance(reply(), Grounding)
        assert full.calls >= 2
        return
    with pytest.raises(ModelError, match=r"cpu has run out of memory.*quantization.*device to"):
        reply()
    monkeypatch.undo()
    assert isinstance(reply(), Grounding), "the next request works"


def load_on_full_gpu(
    model: Path, device: str, monkeypatch: pytest.MonkeyPatch
) -> module.Checkpoint:
    """Load where a GPU is there and full."""
    real = load_backbone

    def load(base: Path, *, device: torch.device, **options: Any) -> Any:
        if device.type == "cuda":
            raise no_memory()
        return real(base, device=device, **options)

    def lean(base: Path, device: torch.device, dtype: torch.dtype, **options: Any) -> Any:
        if device.type == "cuda":
            raise no_memory()
        return open_lean(base, device, dtype, **options)

    monkeypatch.setattr(module, "load_backbone", load)
    monkeypatch.setattr(module, "open_lean", lean)
    monkeypatch.setattr(module, "choose_device", lambda _name: torch.device("cuda"))
    return load_checkpoint(model, device=device, dtype="float32")


def test_fake_full_gpu_means_the_cpu_where_any_device_will_do(
    random_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.warns(UserWarning, match="cuda has run out of memory.*runs on the CPU"):
        loaded = load_on_full_gpu(random_model, "auto", monkeypatch)
    assert loaded.backbone.device.type == "cpu"


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
