"""The ambiguity detector (section III-B): from a block of the decoder to a probability.

A detector is a folder: adapter A, the head's weights (head.safetensors; an AR detector has none)
and detector.json, which says at which block to read, with which conditioning word, with which head
(`heads`), and where the threshold lies. `variants` lists the paper's, `baselines` those that need
no training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from clue_ros.errors import ModelError
from clue_ros.model.adapters import DETECTOR, Adapters
from clue_ros.model.attention import min_max
from clue_ros.model.backbone import Backbone
from clue_ros.model.files import first_line, read_json, write_json
from clue_ros.model.heads import HEADS, Head
from clue_ros.model.processor import Prompts, encode_prompts

SETTINGS_FILE, HEAD_FILE = "detector.json", "head.safetensors"


@dataclass
class DetectorSettings:
    """detector.json: how this detector was trained, which is how it must be used."""

    block: int
    instruction: str = "detect"
    head: str = "cnn"
    threshold: float = 0.5
    temperature: float = 1.0

    def check(self, blocks: int, path: Path) -> None:
        """Raises ModelError if the settings make no sense for a decoder with `blocks` blocks."""
        if self.head not in HEADS:
            raise ModelError(f"{path}: unknown head {self.head!r}, want one of {', '.join(HEADS)}")
        if not _is_number(self.block) or not 0 <= self.block < blocks:
            raise ModelError(f"{path}: block {self.block!r} of a decoder with {blocks} blocks")
        if not _is_number(self.threshold) or not 0 <= self.threshold <= 1:
            raise ModelError(f"{path}: threshold {self.threshold!r}, want 0 to 1")
        if not _is_number(self.temperature) or not self.temperature > 0:
            raise ModelError(f"{path}: temperature {self.temperature!r}, want a number above 0")
        if not isinstance(self.instruction, str):
            raise ModelError(f"{path}: instruction {self.instruction!r}, want a word")


class Detector:
    """A backbone read at one block through an adapter, by a head."""

    def __init__(
        self,
        backbone: Backbone,
        adapters: Adapters,
        head: Head,
        settings: DetectorSettings,
        adapter: str | None = DETECTOR,
    ) -> None:
        """`adapter` None reads the base as it is."""
        self.backbone, self.adapters, self.head, self.settings = backbone, adapters, head, settings
        self.adapter = adapter

    def prompts(self, processor: Any, contexts: Sequence[str]) -> Prompts:
        """What the detector wants to be asked about people's words, on the backbone's device."""
        prompts = encode_prompts(processor, self.settings.instruction, contexts)
        return prompts.to(self.backbone.device)

    def maps(self, features: torch.Tensor, prompts: Prompts) -> torch.Tensor:
        """Features (B or 1, N, D) and prompts -> maps (B, g, g) in 0..1, by the active adapter."""
        reading = self.head.read(self.backbone, self.settings.block, features, prompts)
        return min_max(reading.looks)

    def __call__(
        self, features: torch.Tensor, prompts: Prompts
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Probability of ambiguity (B,) and maps (B, g, g) in 0..1, float32, by its adapter."""
        self.adapters.use(self.adapter)
        reading = self.head.read(self.backbone, self.settings.block, features, prompts)
        return probability(reading.logits, self.settings.temperature), min_max(reading.looks)


def probability(logits: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """sigmoid(logit / temperature); the temperature calibrates it on validation data."""
    return torch.sigmoid(logits.float() / temperature)


def save_head(head: Head, settings: DetectorSettings, folder: str | Path, **notes: Any) -> None:
    """Write head.safetensors and detector.json, with `notes` (data, scores) beside the settings."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: value.detach().cpu().contiguous() for name, value in head.state_dict().items()}
    if tensors:
        save_file(tensors, folder / HEAD_FILE, metadata={"format": "pt"})
    write_json(folder / SETTINGS_FILE, {**notes, **asdict(settings)})


def load_settings(folder: Path, blocks: int) -> DetectorSettings:
    """Read and check detector.json; fields it does not know are notes. Raises ModelError."""
    path = folder / SETTINGS_FILE
    content = read_json(path)
    if "block" not in content:
        raise ModelError(f"{path} does not say which block to read")
    known = DetectorSettings.__dataclass_fields__
    settings = DetectorSettings(**{key: content[key] for key in known if key in content})
    settings.check(blocks, path)
    return settings


def load_head(folder: Path, name: str, tokenizer: Any) -> Head:
    """Build the named head and fill it from head.safetensors, if it has weights.

    Raises ModelError naming file and shape.
    """
    head, path = HEADS[name](tokenizer), folder / HEAD_FILE
    wanted = head.state_dict()
    if not wanted:
        return head.eval()
    if not path.is_file():
        raise ModelError(f"{folder} has no {HEAD_FILE}: train it with `clue train detector`")
    try:
        state = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"cannot read {path}: {first_line(error)}") from error
    for key, weight in wanted.items():
        if key not in state:
            raise ModelError(f"{path} lacks {key}, which the {name} head needs")
        if state[key].shape != weight.shape:
            raise ModelError(
                f"{path}: {key} has shape {tuple(state[key].shape)}, want {tuple(weight.shape)}"
            )
    head.load_state_dict({key: state[key] for key in wanted})
    return head.eval()


def load_detector(
    backbone: Backbone,
    adapters: Adapters,
    folder: str | Path,
    tokenizer: Any,
    *,
    adapter: str = DETECTOR,
) -> Detector:
    """Adapter A, head and settings from a detector's folder. Raises ModelError.

    `adapter` names it among the adapters: several detectors can share one backbone.
    """
    folder = Path(folder)
    settings = load_settings(folder, backbone.blocks)
    head = load_head(folder, settings.head, tokenizer)
    adapters.load(adapter, folder)
    return Detector(backbone, adapters, head.to(backbone.device), settings, adapter)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
