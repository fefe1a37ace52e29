"""`clue train policy --policy zero-shot`: calibrate how surely the base alone finds one thing.

A logistic regression on what the base's answers say (`clue_ros.model.zero_shot.Evidence`), on the
moments of validation dialogues, and the threshold with the best F1 there. Six numbers in
zero_shot.json beside the base's config.json; no weight of the model changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from clue_ros.dialogue.chooser import follow
from clue_ros.dialogue.types import Dialogue, Turn
from clue_ros.lab.training.datasets import load_validation_data
from clue_ros.lab.training.detector import f1, fit_threshold
from clue_ros.lab.training.options import SourceOptions
from clue_ros.lab.training.samples import Sample, held_out_adapter_samples
from clue_ros.model.base_tasks import BaseTasks
from clue_ros.model.checkpoint import Checkpoint, load_checkpoint
from clue_ros.model.zero_shot import BaseFinder, Evidence, ZeroShotSettings, save_zero_shot

RIDGE = 1e-2  # on the weights: requests that are separated perfectly would let them grow
EvidenceAndLabels = tuple[Tensor, Tensor]  # evidence (n, 5), labels (n,)

_TURN = re.compile(r" (assistant|user): ")


def train_zero_shot(options: SourceOptions, model: str, out: Path, limit: int | None) -> None:
    """Fit on at most `limit` pictures of each validation set, and write `out`."""
    options.start_device()
    checkpoint = load_checkpoint(model, options.device)
    data = load_validation_data(options, checkpoint.backbone.config.vision_config.image_size)
    samples = held_out_adapter_samples(data, "detect")
    seen = {name: judge(checkpoint, found[:limit], name) for name, found in samples.items()}
    evidence, labels = (torch.cat(parts) for parts in zip(*seen.values(), strict=True))
    settings = fit(evidence, labels)
    figures: dict[str, Any] = {"n": len(labels)}
    for name, (rows, truth) in seen.items():
        chance = chances(settings, rows)
        figures[f"{name}_f1"] = round(f1(chance >= settings.threshold, truth), 4)
    notes = {"validation": figures, "world": options.world}
    save_zero_shot(settings, out, **notes)
    print(json.dumps({"out": str(out), "threshold": settings.threshold, **notes}))


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


def judge(checkpoint: Checkpoint, samples: Sequence[Sample], name: str) -> EvidenceAndLabels:
    """The evidence about each request of some pictures, and its label."""
    rows: list[Evidence] = []
    labels: list[float] = []
    for scene, queries in tqdm(samples, desc=name):
        base = BaseTasks(checkpoint, scene.image, checkpoint.look(scene.image))
        finder = BaseFinder(base)
        for query in queries:
            standing = follow(dialogue_of(query.context), finder)
            if not standing.confirmed:
                rows.append(finder.evidence(standing))
                labels.append(float(query.ambiguous))
    return torch.tensor(rows), torch.tensor(labels)


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
    bias, *rest = (round(float(w), 4) for w in weights.detach())
    settings = ZeroShotSettings(bias, **dict(zip(Evidence._fields, rest, strict=True)))
    return replace(settings, threshold=fit_threshold(chances(settings, evidence), labels))


def chances(settings: ZeroShotSettings, evidence: Tensor) -> Tensor:
    """Probabilities of ambiguity (n,)."""
    return torch.tensor([settings.probability(Evidence(*row)) for row in evidence.tolist()])
