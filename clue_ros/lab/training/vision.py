"""Stage 1 of the base: the vision tower alone, on dense targets for every patch.

Full-size SigLIP comes pretrained. A tower from scratch needs a target for every patch: object or
not, kind, colour, and the four sides of its box. Sides are absolute positions, as distributions
over 1024 bins through a table that becomes the embeddings of the `<locDDDD>` tokens: features
trained on relative sides hold no absolute position, and no decoder can read a box out of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.models.siglip.configuration_siglip import SiglipVisionConfig
from transformers.models.siglip.modeling_siglip import SiglipVisionModel

from clue_ros.errors import ClueError
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.training.datasets import TrainingData
from clue_ros.lab.training.loop import (
    Group,
    RunFolder,
    TrainingSettings,
    mean_figures,
    prefetch,
    scratch_groups,
    train,
)
from clue_ros.lab.training.parallel import autocast
from clue_ros.lab.training.stored import stem_features
from clue_ros.model.conv_stem import holding
from clue_ros.model.loading import replacing
from clue_ros.model.paligemma import vision_tower

LOC_BINS = 1024
POSITION_AMPLITUDE = 0.5
TABLE_AMPLITUDE = 0.2
OBJECT_COVERAGE = 0.3  # a patch belongs to an object that covers this share of it
EMPTY_COVERAGE = 0.08  # below this it is background; between the two it has no target
SIGMA_BINS = (16.0, 2.0)  # width of the side targets at the first and at the last step
TRAINED_SIGMA = 4.0  # their width at the first step of a tower that is trained already
HEADS_ALONE = 300
"""Steps in which the new heads of a trained tower learn alone. Then they stay and the tower learns,
so that its features keep the code that the decoder reads."""
HEADS_RATE = 6.0  # their rate, as a share of that of a trained tower
PHOTO_SHARE = 0.1  # share of a batch that comes from IT2P


def sincos(length: int, width: int, longest: float, amplitude: float) -> Tensor:
    """Smooth table (length, width): sine and cosine of waves from `longest` to 16, geometric."""
    waves = torch.logspace(0, 1, width // 2, base=16.0 / longest) * longest
    angle = 2 * torch.pi * torch.arange(length)[:, None] / waves[None]
    return amplitude * torch.cat([angle.sin(), angle.cos()], dim=1)


def init_positions(tower: SiglipVisionModel) -> None:
    """Start the position embeddings as a strong 2D sine-cosine.

    The default start is too faint to learn from.
    """
    table = tower.get_parameter("embeddings.position_embedding.weight")
    grid = round(table.shape[0] ** 0.5)
    half = table.shape[1] // 2
    axis = sincos(grid, half, 2.0 * grid, POSITION_AMPLITUDE)
    rows = axis[:, None].expand(grid, grid, half)
    columns = axis[None].expand(grid, grid, half)
    with torch.no_grad():
        table.copy_(torch.cat([rows, columns], dim=-1).reshape(grid * grid, -1))


class DenseHeads(nn.Module):
    """Reads dense targets off every patch feature (B, P, width)."""

    def __init__(self, width: int, kinds: Sequence[str], colors: Sequence[str]) -> None:
        super().__init__()
        self.kinds, self.colors = tuple(kinds), tuple(colors)
        self.object = nn.Linear(width, 1)
        self.kind = nn.Linear(width, len(kinds))
        self.color = nn.Linear(width, len(colors))
        self.sides = nn.Linear(width, 4 * width)
        self.table = nn.Parameter(sincos(LOC_BINS, width, 2.0 * LOC_BINS, TABLE_AMPLITUDE))

    def side_logits(self, features: Tensor) -> Tensor:
        """Features (n, width) to logits over the bins, (n, 4, 1024), sides in `<loc>` order."""
        n, width = features.shape
        sides = F.layer_norm(self.sides(features).view(n, 4, width), (width,))
        return sides @ self.table.T


@dataclass(frozen=True)
class DenseTargets:
    """For every patch of a batch, flattened (B * P): -1 is background, -2 has no target.

    owner: which object row of `kinds`, `colors` (n,) and `sides` (n, 4) the patch belongs to.
    """

    owner: Tensor
    kinds: Tensor
    colors: Tensor
    sides: Tensor


def side_bins(box: tuple[float, float, float, float]) -> list[float]:
    """A box in fractions to its four `<loc>` bins, order y1 x1 y2 x2, as real numbers 0..1023."""
    x0, y0, x1, y1 = box
    return [v * (LOC_BINS - 1) for v in (y0, x0, y1, x1)]


def dense_targets(
    scenes: Sequence[Scene],
    grid: int,
    known_kinds: Sequence[str],
    known_colors: Sequence[str],
) -> DenseTargets:
    """The object that owns each patch (none where a patch shows little of one, or several)."""
    owner = np.full((len(scenes), grid * grid), -1, dtype=np.int64)
    before = 0
    for b, scene in enumerate(scenes):
        if not scene.objects:
            continue
        cover = scene.coverage(grid).reshape(len(scene.objects), -1)
        best, total = cover.argmax(axis=0), cover.sum(axis=0)
        owner[b] = np.where(cover.max(axis=0) >= OBJECT_COVERAGE, best + before, -2)
        owner[b][total < EMPTY_COVERAGE] = -1
        before += len(scene.objects)
    objects = [o for scene in scenes for o in scene.objects]
    return DenseTargets(
        torch.from_numpy(owner).flatten(),
        torch.tensor([known_kinds.index(o.kind) for o in objects]),
        torch.tensor([known_colors.index(o.color) for o in objects]),
        torch.tensor([side_bins(o.box) for o in objects]),
    )


def soft_bins(values: Tensor, sigma: float) -> Tensor:
    """Gaussian targets over the bins around real-valued bins (...,): (..., 1024), sums to 1."""
    bins = torch.arange(LOC_BINS, device=values.device)
    return torch.softmax(-0.5 * ((bins - values[..., None]) / sigma) ** 2, dim=-1)


def dense_loss(
    features: Tensor, heads: DenseHeads, targets: DenseTargets, sigma: float
) -> dict[str, Tensor]:
    """Losses and figures of a batch. features: (B, P, width). sigma: bins, of the side targets.

    A patch weighs one over the square root of its object's patches: a fork of two patches is asked
    for as often as a plate of twenty, and says less in all.
    """
    flat = features.flatten(0, 1)
    owner = targets.owner.to(flat.device)
    known = owner != -2
    objectness = F.binary_cross_entropy_with_logits(
        heads.object(flat[known])[:, 0], (owner[known] >= 0).float()
    )
    mine = owner >= 0
    chosen, row = flat[mine], owner[mine]
    kinds, colors = targets.kinds.to(flat.device)[row], targets.colors.to(flat.device)[row]
    sides = targets.sides.to(flat.device)[row]
    kind_logits, color_logits = heads.kind(chosen), heads.color(chosen)
    side_logits = heads.side_logits(chosen)
    share = row.bincount()[row].rsqrt()
    share = share / share.sum()
    sides_wrong = -(soft_bins(sides, sigma) * side_logits.log_softmax(-1)).sum(-1).mean(-1)
    side = share @ sides_wrong
    kind = share @ F.cross_entropy(kind_logits, kinds, reduction="none")
    color = share @ F.cross_entropy(color_logits, colors, reduction="none")
    with torch.no_grad():
        error = (side_logits.argmax(-1) - sides).abs().mean()
    return {
        "loss": objectness + 2 * kind + color + 0.5 * side,
        "kind_right": (kind_logits.argmax(-1) == kinds).float().mean(),
        "color_right": (color_logits.argmax(-1) == colors).float().mean(),
        "side_error": error / LOC_BINS,
        "object": objectness,
    }


def stacked(scenes: Sequence[Scene]) -> Tensor:
    """Pictures of scenes, uint8 (B, 3, S, S)."""
    return torch.from_numpy(np.stack([s.image.transpose(2, 0, 1) for s in scenes]))


def pixel_values(pictures: Tensor) -> Tensor:
    """Normalise pictures of the model's size as the processor does, uint8 to float32 in -1..1."""
    return pictures.float() / 127.5 - 1


def batch_tensor(scenes: Sequence[Scene], device: torch.device) -> Tensor:
    """Pictures of scenes as pixel values (B, 3, S, S)."""
    return pixel_values(stacked(scenes).to(device))


class Prepared(NamedTuple):
    """A batch: pictures, uint8 (B, 3, S, S), their `stem_features`, and targets."""

    pictures: Tensor
    stored: Tensor | None
    targets: DenseTargets


class VisionTeacher(nn.Module):
    """The tower and its dense heads, trained together.

    Of the heads, stage 2 keeps the table; the others go on there if the tower learns on.
    """

    def __init__(
        self,
        config: SiglipVisionConfig,
        kinds: Sequence[str],
        colors: Sequence[str],
    ) -> None:
        super().__init__()
        self.tower = vision_tower(config)
        self.heads = DenseHeads(config.hidden_size, kinds, colors)
        self.grid = config.image_size // config.patch_size
        init_positions(self.tower)

    def features(self, pixel_values: Tensor, stored: Tensor | None = None) -> Tensor:
        """(B, 3, S, S) to patch features (B, P, width). stored: see `stem_features`."""
        with holding(self.tower, stored):
            features: Tensor = self.tower(pixel_values=pixel_values).last_hidden_state
        return features

    def prepared(self, scenes: list[Scene]) -> Prepared:
        """Pictures, uint8 (B, 3, S, S), stored features and targets of scenes, on the CPU."""
        targets = dense_targets(scenes, self.grid, self.heads.kinds, self.heads.colors)
        return Prepared(stacked(scenes), stem_features(scenes, torch.device("cpu")), targets)

    def loss(
        self, batch: Prepared, sigma: float, device: torch.device, *, heads_alone: bool = False
    ) -> dict[str, Tensor]:
        """Dense losses of prepared scenes. heads_alone: the tower does not learn from them."""
        stored = None if batch.stored is None else batch.stored.to(device)
        with autocast(device), torch.set_grad_enabled(torch.is_grad_enabled() and not heads_alone):
            features = self.features(pixel_values(batch.pictures.to(device)), stored)
        return dense_loss(features.float(), self.heads, batch.targets, sigma)


def teacher_groups(teacher: VisionTeacher, heads_rate: float) -> list[Group]:
    """All of its parameters. heads_rate: of the heads but the table, as a share of the tower's."""
    heads = [(f"heads.{name}", p) for name, p in teacher.heads.named_parameters()]
    table = [(name, p) for name, p in heads if name == "heads.table"]
    tower = [(f"tower.{name}", p) for name, p in teacher.tower.named_parameters()]
    rest = scratch_groups((name, p) for name, p in heads if name != "heads.table")
    return [*scratch_groups([*tower, *table]), *(replace(g, lr_scale=heads_rate) for g in rest)]


def vision_scenes(data: TrainingData, settings: TrainingSettings, step: int) -> list[Scene]:
    """The augmented scenes of one step; a function of (seed, step) alone."""
    rng = np.random.default_rng((settings.seed, step))
    return [data.draw(rng, PHOTO_SHARE, turns=True).scene for _ in range(settings.batch)]


def train_vision(
    config: SiglipVisionConfig,
    data: TrainingData,
    settings: TrainingSettings,
    folder: Path,
    device: torch.device,
    start: tuple[nn.Module, Tensor] | None = None,
    notes: Mapping[str, Any] | None = None,
    *,
    workers: int = 1,
    compiled: bool = False,
    stem: nn.Module | None = None,
) -> Path:
    """Train, and write `tower.safetensors`, a `VisionTeacher`; returns its path.

    start: a tower and a location table to go on from. notes: see `train`. workers: threads of
    `prefetch`. compiled: whether to torch.compile the tower. On a CPU that gains nothing (25
    against 26 pictures a second, two threads of an AMD EPYC) and costs half a minute. stem: the
    convolutional stem of a tower from scratch.
    """
    out = folder / "tower.safetensors"
    if out.exists():
        RunFolder(folder, settings, notes).check()
        return out
    torch.manual_seed(settings.seed)
    teacher = VisionTeacher(config, data.kinds, data.colors)
    if start is not None:
        teacher.tower.load_state_dict(start[0].state_dict())
        teacher.heads.table.data.copy_(start[1])
    elif stem is not None:
        teacher.tower.embeddings.patch_embedding.load_state_dict(stem.state_dict())
    heads_first = 0 if start is None else min(HEADS_ALONE, settings.steps // 4)
    teacher.to(device)
    if compiled:
        teacher.tower.compile()

    def sigma(step: int) -> float:
        first, last = SIGMA_BINS if start is None else (TRAINED_SIGMA, SIGMA_BINS[1])
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

    def prepare(step: int) -> Prepared:
        return teacher.prepared(vision_scenes(data, settings, step))

    def batch_loss(step: int) -> dict[str, Tensor]:
        alone = step < heads_first
        teacher.heads.requires_grad_(alone or start is None)
        return teacher.loss(batches(step), sigma(step), device, heads_alone=alone)

    with prefetch(prepare, workers, settings.steps, device) as batches:
        train(
            batch_loss,
            teacher_groups(teacher, 1.0 if start is None else HEADS_RATE),
            settings,
            folder,
            evaluate=evaluate,
            notes=notes,
        )
    weights = {k: v.detach().cpu().contiguous() for k, v in teacher.state_dict().items()}
    with replacing(out) as partial:
        save_file(weights, str(partial))
    return out


def load_teacher(path: Path, config: SiglipVisionConfig, data: TrainingData) -> VisionTeacher:
    """Load the file of `train_vision`. Raises ClueError for other sizes, kinds or colours."""
    teacher = VisionTeacher(config, data.kinds, data.colors)
    try:
        teacher.load_state_dict(load_file(str(path)))
    except RuntimeError as error:
        raise ClueError(
            f"{path} is a tower of other sizes; give another --run folder or delete it"
        ) from error
    return teacher
