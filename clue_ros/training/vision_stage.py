"""Runs stage 1 (see `vision`) on simulator scenes and, where they are at hand, IT2P photographs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.models.siglip.configuration_siglip import SiglipVisionConfig
from transformers.models.siglip.modeling_siglip import SiglipVisionModel

from clue_ros.data.tabletop.scene import COLORS, KINDS, Scene
from clue_ros.errors import ClueError
from clue_ros.model.files import replacing
from clue_ros.training.ahead import Ahead
from clue_ros.training.data import TrainingData
from clue_ros.training.loop import Settings, autocast, mean_figures, scratch_groups, train
from clue_ros.training.run_folder import RunState
from clue_ros.training.speed import PLAIN_SPEED, Speed
from clue_ros.training.vision import (
    SIGMA_BINS,
    DenseHeads,
    DenseTargets,
    batch_tensor,
    dense_loss,
    dense_targets,
    init_positions,
)

STARTED_SIGMA = 4.0  # bins, in place of the first of SIGMA_BINS where a trained tower goes on
PHOTO_SHARE = 0.1  # share of a batch that comes from IT2P


class VisionTeacher(nn.Module):
    """The tower and its dense heads, trained together; only the tower and the table are kept."""

    def __init__(
        self,
        config: SiglipVisionConfig,
        kinds: Sequence[str] = KINDS,
        colors: Sequence[str] = COLORS,
    ) -> None:
        super().__init__()
        self.tower = SiglipVisionModel(config)
        self.heads = DenseHeads(config.hidden_size, kinds, colors)
        self.grid = config.image_size // config.patch_size
        init_positions(self.tower)

    def features(self, pixel_values: Tensor) -> Tensor:
        """(B, 3, S, S) to patch features (B, P, width)."""
        features: Tensor = self.tower(pixel_values=pixel_values).last_hidden_state
        return features

    def prepared(self, scenes: list[Scene]) -> tuple[Tensor, DenseTargets]:
        """Pixel values (B, 3, S, S) and targets of scenes, on the CPU."""
        targets = dense_targets(scenes, self.grid, self.heads.kinds, self.heads.colors)
        return batch_tensor(scenes, torch.device("cpu")), targets

    def loss(
        self, batch: tuple[Tensor, DenseTargets], sigma: float, device: torch.device
    ) -> dict[str, Tensor]:
        """Dense losses of prepared scenes."""
        pixel_values, targets = batch
        with autocast(device):
            features = self.features(pixel_values.to(device))
        return dense_loss(features.float(), self.heads, targets, sigma)


def draw(data: TrainingData, settings: Settings, step: int) -> list[Scene]:
    """The augmented scenes of one step; a function of (seed, step) alone."""
    rng = np.random.default_rng((settings.seed, step))
    scenes = []
    for _ in range(settings.batch):
        photo = len(data.photos) > 0 and rng.uniform() < PHOTO_SHARE
        pool = data.photos if photo else data.scenes
        index = int(rng.integers(len(pool)))
        seen = pool.augmented(index, rng, upside_down=photo, turns=photo, tables=not photo)
        scenes.append(seen.scene)
    return scenes


def train_vision(
    config: SiglipVisionConfig,
    data: TrainingData,
    settings: Settings,
    folder: Path,
    device: torch.device,
    start: tuple[nn.Module, Tensor] | None = None,
    notes: Mapping[str, Any] | None = None,
    speed: Speed = PLAIN_SPEED,
) -> Path:
    """Train, and write `tower.safetensors` (with the table as `loc_table`); returns its path.

    start: a tower and a location table to go on from. notes: more of what decides the run.
    """
    out = folder / "tower.safetensors"
    state = RunState(folder, settings, notes)
    if out.exists():
        state.check()
        return out
    torch.manual_seed(settings.seed)
    teacher = VisionTeacher(config, data.kinds, data.colors)
    if start is not None:
        teacher.tower.load_state_dict(start[0].state_dict())
        teacher.heads.table.data.copy_(start[1])
    teacher.to(device)
    if speed.compiled:
        teacher.tower.compile()

    def sigma(step: int) -> float:
        first, last = SIGMA_BINS if start is None else (STARTED_SIGMA, SIGMA_BINS[1])
        return float(first * (last / first) ** min(1.0, step / (0.8 * settings.steps)))

    def held_out_loss(scenes: list[Scene]) -> dict[str, Tensor]:
        return teacher.loss(teacher.prepared(scenes), SIGMA_BINS[1], device)

    def evaluate() -> dict[str, float]:
        teacher.eval()
        figures: dict[str, float] = {}
        with torch.no_grad():
            for name, pool in (("val", data.held_out), ("photo", data.held_out_photos)):
                scenes = [pool[i] for i in range(len(pool))]
                parts = [scenes[i : i + 50] for i in range(0, len(scenes), 50)]
                figures.update(mean_figures(name, parts, held_out_loss))
        teacher.train()
        return figures

    with Ahead(
        lambda step: teacher.prepared(draw(data, settings, step)), speed.workers, settings.steps
    ) as batches:
        train(
            lambda step: teacher.loss(batches(step), sigma(step), device),
            scratch_groups(teacher.named_parameters()),
            settings,
            folder,
            evaluate=evaluate,
            notes=notes,
        )
    tensors = {
        f"tower.{k}": v.detach().cpu().contiguous() for k, v in teacher.tower.state_dict().items()
    }
    tensors["loc_table"] = teacher.heads.table.detach().cpu().contiguous()
    with replacing(out) as partial:
        save_file(tensors, str(partial))
    return out


def load_tower(path: Path, config: SiglipVisionConfig) -> tuple[SiglipVisionModel, Tensor]:
    """The trained tower and the (1024, width) location table; ClueError if its sizes are others."""
    tensors = load_file(str(path))
    tower = SiglipVisionModel(config)
    try:
        tower.load_state_dict({k[6:]: v for k, v in tensors.items() if k.startswith("tower.")})
    except RuntimeError as error:
        raise ClueError(
            f"{path} is a tower of other sizes; give another --run folder or delete it"
        ) from error
    return tower, tensors["loc_table"]
