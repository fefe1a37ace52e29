"""`clue train joint`: one adapter that judges and replies (the paper's future work).

The attention of its middle block feeds the CNN of the detector, its top block writes the question
or the box, on one prompt ("clarify") and in one pass. The loss is that of adapter B plus the
detector's:

    L = L_IVG + w L_amb (+ the attention losses of adapter B)

L_amb is the binary cross-entropy of whether the dialogue so far names exactly one thing. Afterwards
the CNN is trained on alone (`--head-batches`), and temperature and threshold are chosen on
validation data, as for a detector of its own. The folder `joint` has the files of both: the adapter
once, head.safetensors, detector.json and ivg.json. Where a model has it, it is used for both.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clue_ros.errors import ClueError
from clue_ros.lab.language.references import MAX_BOXES
from clue_ros.lab.options import add_options, add_recipe, at_least, option
from clue_ros.lab.training import detector, ivg
from clue_ros.lab.training.detector import DetectorOptions, DetectorTrainer, calibrate, train_head
from clue_ros.lab.training.detector_data import DetectorData
from clue_ros.lab.training.ivg import DialogueAdapter, IvgOptions, IvgTrainer, Teaching
from clue_ros.lab.training.ivg_data import CLARIFY, MASKED, IvgData
from clue_ros.lab.training.loop import Group
from clue_ros.lab.training.packing import Packed
from clue_ros.lab.training.samples import Sample, one_query_each
from clue_ros.model.attention import image_attention, min_max
from clue_ros.model.backbone import JOINT
from clue_ros.model.checkpoint import IvgSettings, save_ivg_settings
from clue_ros.model.detector import DetectorSettings
from clue_ros.model.heads import CnnHead, detector_loss, save_head
from clue_ros.model.torch_backbone import TorchModel

EMBEDDED = {
    **ivg.EMBEDDED,
    "head_lr": detector.EMBEDDED["head_lr"],
    "head_batches": detector.EMBEDDED["head_batches"],
}


@dataclass(frozen=True, kw_only=True)
class JointOptions(IvgOptions):
    """The options of `clue train joint`."""

    detector_weight: float = option(1.0, "weight w of the detector's loss")
    head_lr: float = option(1e-4, "learning rate of the CNN")
    head_batches: int = option(
        0, "batches of maps that the CNN alone is trained on afterwards; 0 for none"
    )
    head_steps: int = option(detector.HEAD_STEPS, "steps of the CNN alone", type=at_least(1))

    def __post_init__(self) -> None:
        """Raises ClueError for invalid options."""
        super().__post_init__()
        if self.together:
            raise ClueError("--together: the detector reads one training pair a sequence")
        if not MASKED & set(self.data):
            raise ClueError("--data: want simulated scenes or IT2P, to choose the threshold on")

    @property
    def teaching(self) -> Teaching:
        """The losses and their weights."""
        return replace(super().teaching, decide=self.detector_weight)


class JointTrainer(IvgTrainer):
    """Steps of the joint adapter and the CNN."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.head = CnnHead().to(self.decoder.device)

    def groups(self, adapter: Sequence[torch.nn.Parameter], options: IvgOptions) -> list[Group]:
        """Adapter and head, each with its own rate."""
        assert isinstance(options, JointOptions)
        head = Group(list(self.head.parameters()), lr_scale=options.head_lr / options.lr)
        return [*super().groups(adapter, options), head]

    def training_mode(self) -> None:
        """Dropout on, except in the frozen tower."""
        super().training_mode()
        self.head.train()

    @torch.no_grad()
    def evaluate(self, held_out: Mapping[str, Any], size: int) -> dict[str, float]:
        """Means over held-out pictures."""
        self.head.eval()
        return super().evaluate(held_out, size)

    def _sums(self, samples: Sequence[Sample], packed: Packed, together: bool) -> dict[str, Tensor]:
        single, rows = one_query_each(samples)
        truth = torch.tensor([float(query.ambiguous) for _, (query,) in single])

        def judge(attention: Tensor, packed: Packed) -> dict[str, Tensor]:
            """Equations 1 and 2 for each sequence's words, the CNN, and its loss."""
            maps = image_attention(attention, packed.queries, self.decoder.grid)
            logits, labels = self.head(min_max(maps)).float(), truth.to(maps.device)
            right = ((logits.detach() > 0).float() == labels).float().sum()
            return {"decide": detector_loss(logits, labels) * len(labels), "decided": right}

        features = self.decoder.features([scene for scene, _ in samples])[rows]
        return ivg.summed_losses(
            self.decoder, features, packed, self.teaching, image_sees_prefix=True, judge=judge
        )

    def _counts(self, packed: Sequence[Packed]) -> dict[str, float]:
        count = float(sum(len(part.ids) for part in packed))
        return {**super()._counts(packed), "decide": count, "decided": count}


def _finish(
    options: JointOptions,
    backbone: TorchModel,
    processor: Any,
    trainer: JointTrainer,
    data: IvgData,
    notes: Mapping[str, Any],
    folder: Path,
) -> dict[str, Any]:
    """Train the CNN further alone; choose temperature and threshold; return notes."""
    settings = DetectorSettings(trainer.decoder.block, CLARIFY)
    other = {"variant", "head", "loss", "init", "data"}
    shared = {field.name for field in fields(DetectorOptions)} - other
    given = {name: getattr(options, name) for name in shared if hasattr(options, name)}
    judge = DetectorTrainer(
        backbone, processor, settings, trainer.decoder.device, DetectorOptions(**given)
    )
    judge.head = trainer.head
    scenes = DetectorData(CLARIFY, data.scenes)
    if options.head_batches:
        train_head(judge, scenes, {**notes, "head_batches": options.head_batches}, folder / "head")
    seen = {name: judge.predict(samples) for name, samples in scenes.held_out().items()}
    figures = calibrate(settings, seen)
    return {"head": trainer.head, "detector": settings, "judging": figures["validation"]}


def _save(
    options: JointOptions,
    folder: Path,
    *,
    head: CnnHead,
    detector: DetectorSettings,
    judging: Mapping[str, Any],
    **notes: Any,
) -> None:
    reply = IvgSettings(CLARIFY, options.max_new_tokens, MAX_BOXES if options.via else 1)
    save_ivg_settings(replace(reply, num_views=options.views), folder, **notes)
    save_head(head, detector, folder, training=notes["training"], validation=dict(judging))


def _notes(options: JointOptions) -> dict[str, Any]:
    return {"detector_weight": options.detector_weight, "head_lr": options.head_lr}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_options(parser, JointOptions)
    add_recipe(parser, embedded=EMBEDDED)


def run(args: argparse.Namespace) -> int:
    """Train the joint adapter and its CNN and write their folder."""
    learner = DialogueAdapter(
        JOINT, CLARIFY, _save, trainer=JointTrainer, finish=_finish, notes=_notes
    )
    return ivg.run_training(args, learner, JointOptions)
