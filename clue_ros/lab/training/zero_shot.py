"""`clue train policy --policy zero-shot`: calibrate the base's own confidence, without adapters.

A logistic regression on the evidence in the base's answers (`clue_ros.model.zero_shot.Evidence`) at
the moments of validation dialogues, and the threshold with the best F1 there. Six numbers in
zero_shot.json beside the base's config.json; no weight of the model changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from clue_ros.dialogue.chooser import follow
from clue_ros.dialogue.types import Box, Dialogue, Turn
from clue_ros.lab.metrics import MIN_IOU
from clue_ros.lab.training.datasets import load_validation_data
from clue_ros.lab.training.detector import f1, fit_threshold
from clue_ros.lab.training.options import SourceOptions
from clue_ros.lab.training.samples import Sample, held_out_adapter_samples
from clue_ros.model.base_tasks import BaseTasks
from clue_ros.model.checkpoint import Checkpoint, load_checkpoint
from clue_ros.model.zero_shot import BaseFinder, Evidence, ZeroShotSettings, save_zero_shot

RIDGE = 1e-2  # on the weights: requests that are separated perfectly would let them grow

_TURN = re.compile(r" (assistant|user): ")


def train_zero_shot(options: SourceOptions, model: str, out: Path, limit: int | None) -> None:
    """Fit on at most `limit` pictures of each validation set, and write `out`."""
    options.start_device()
    checkpoint = load_checkpoint(model, device=options.device)
    data = load_validation_data(options, checkpoint.backbone.config.vision_config)
    samples = held_out_adapter_samples(data, "detect")
    bases = {name: look_at(checkpoint, found[:limit]) for name, found in samples.items()}
    figures: dict[str, Any] = {}
    fits = []
    for knows in (False, True):  # by rules, and by the base's own boxes
        assumed = ZeroShotSettings(knows_places=knows)
        seen = {name: judge(pairs, assumed, name) for name, pairs in bases.items()}
        right = torch.cat([found.right for found in seen.values()]).float().mean()
        figures["right_own_places" if knows else "right_rules"] = round(float(right), 4)
        fits.append((float(right), knows, seen))
    _, knows, seen = max(fits, key=lambda found: found[0])
    evidence = torch.cat([found.evidence for found in seen.values()])
    labels = torch.cat([found.labels for found in seen.values()])
    settings = replace(fit(evidence, labels), knows_places=knows)
    for name, found in seen.items():
        asks = chances(settings, found.evidence) >= settings.threshold
        figures[f"{name}_f1"] = round(f1(asks, found.labels), 4)
    notes = {"validation": {**figures, "n": len(labels)}, "world": options.world}
    save_zero_shot(settings, out, **notes)
    print(json.dumps({"out": str(out), **asdict(settings), **notes}))


def dialogue_of(context: str) -> Dialogue:
    """The dialogue whose context C(k) this is.

    >>> [turn.text for turn in dialogue_of("the mug assistant: which one? user: red").turns]
    ['the mug', 'which one?', 'red']
    """
    request, *later = _TURN.split(context)
    turns = [
        Turn("robot" if role == "assistant" else "user", text)
        for role, text in zip(later[::2], later[1::2], strict=True)
    ]
    return Dialogue(request, turns)


@dataclass(frozen=True)
class Judged:
    """The evidence about n requests (n, 5), their labels (n,), and which clear ones are right."""

    evidence: Tensor
    labels: Tensor
    right: Tensor


def look_at(checkpoint: Checkpoint, samples: Sequence[Sample]) -> list[tuple[BaseTasks, Sample]]:
    """Each picture with the base that looks at it; answers are kept for the second reading."""
    return [
        (BaseTasks(checkpoint, scene.image, checkpoint.look(scene.image)), (scene, queries))
        for scene, queries in samples
    ]


def judge(
    pairs: Sequence[tuple[BaseTasks, Sample]], settings: ZeroShotSettings, name: str
) -> Judged:
    """Read each moment of a dialogue by the base. A clear one is right at an IoU of `MIN_IOU`."""
    rows: list[Evidence] = []
    labels: list[float] = []
    right: list[bool] = []
    for base, (scene, queries) in tqdm(pairs, desc=name):
        finder = BaseFinder(base, settings)
        width, height = base.size
        for query in queries:
            standing = follow(dialogue_of(query.context), finder)
            if not query.ambiguous:
                truth = Box(*scene.objects[query.meant[0]].box).in_pixels(width, height)
                best = max(standing.candidates, key=lambda c: c.score, default=None)
                right.append(best is not None and best.box.iou(truth) >= MIN_IOU)
            if not standing.confirmed:
                rows.append(finder.evidence(standing))
                labels.append(float(query.ambiguous))
    return Judged(torch.tensor(rows), torch.tensor(labels), torch.tensor(right))


def fit(evidence: Tensor, labels: Tensor) -> ZeroShotSettings:
    """Weights, bias and threshold for evidence (n, 5) and labels (n,), ambiguous being 1."""
    weights = torch.zeros(evidence.shape[1] + 1, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=500, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        wrong = F.binary_cross_entropy_with_logits(evidence @ weights[1:] + weights[0], labels)
        total = wrong + RIDGE * weights[1:].square().mean()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimizer.step(loss)  # type: ignore[no-untyped-call]
    bias, going_on, second, doubt, nothing, by_rules = (
        round(float(w), 4) for w in weights.detach()
    )
    settings = ZeroShotSettings(bias, going_on, second, doubt, nothing, by_rules)
    return replace(settings, threshold=fit_threshold(chances(settings, evidence), labels))


def chances(settings: ZeroShotSettings, evidence: Tensor) -> Tensor:
    """Probabilities of ambiguity (n,)."""
    return torch.tensor([settings.probability(Evidence(*row)) for row in evidence.tolist()])
