"""Batches for the adapters: one query a sequence, prompts and features as at run time."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clue_ros.errors import ClueError
from clue_ros.lab.language.dialogues import Grammar
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, world_spec
from clue_ros.lab.training.datasets import TrainingData
from clue_ros.lab.training.loop import Settings
from clue_ros.lab.training.packing import patch_shares
from clue_ros.lab.training.parallel import autocast, pick_device
from clue_ros.lab.training.samples import Query, detect_query, dialogue_query, photo_states
from clue_ros.lab.training.vision import batch_tensor
from clue_ros.model.backbone import Backbone, load_backbone
from clue_ros.model.prompts import Prompts, encode_prompts, load_processor

PHOTO_SHARE = 0.35
PER_PICTURE = 3

Sample = tuple[Scene, Query]


@dataclass(frozen=True)
class AdapterBatch:
    """B sequences. features (B, N, D); maps (B, N), each summing to 1; ambiguous (B,) 0. or 1."""

    features: Tensor
    prompts: Prompts
    maps: Tensor
    ambiguous: Tensor
    samples: list[Sample]


def frozen_base(args: argparse.Namespace) -> tuple[Backbone, Any, torch.device]:
    """The base of `args.model` with no weight to learn, its processor and the device; seeded."""
    if args.threads:
        torch.set_num_threads(args.threads)
    device = pick_device(args.device)
    torch.manual_seed(args.seed)
    dtype = getattr(torch, getattr(args, "base_dtype", "float32"))
    backbone = load_backbone(args.model, device=device, dtype=dtype)
    processor = load_processor(args.model)
    check_words(processor.tokenizer, getattr(args, "world", DEFAULT_WORLD), args.model)
    for p in backbone.model.parameters():
        p.requires_grad_(False)
    return backbone, processor, device


def check_words(tokenizer: Any, world: str, model: str) -> None:
    """Whether a base of whole words has those of a world; any other splits what it lacks.

    Raises ClueError naming some of those that are missing.
    """
    if world == DEFAULT_WORLD:  # every base of ours has them
        return
    missing = [
        word
        for word in vocabulary(world)
        if tokenizer.unk_token_id in tokenizer(word, add_special_tokens=False)["input_ids"]
    ]
    if missing:
        nouns = {word for names in world_spec(world).nouns.values() for word in names}
        missing.sort(key=lambda word: word not in nouns)  # slips of the finger say little
        raise ClueError(
            f"{model} lacks {len(missing)} words of the world {world!r}"
            f" ({', '.join(missing[:4])} ...): train a base with `clue train base --world {world}`"
        )


def base_name(model: str, out: Path) -> str | None:
    """What an adapter that does not lie in its base's folder says its base is, as peft does."""
    if not Path(model).is_dir():
        return model
    folder = Path(model).resolve()
    return None if folder in out.resolve().parents else str(folder)


def draw_samples(
    data: TrainingData, settings: Settings, step: int, instruction: str
) -> list[list[Sample]]:
    """Augmented pictures with dialogue moments, a function of (seed, step) alone."""
    rng = np.random.default_rng((settings.seed, 11, step))
    pictures: list[list[Sample]] = []
    while len(pictures) < settings.batch:
        photo = len(data.photos) > 0 and (rng.uniform() < PHOTO_SHARE or not len(data.scenes))
        i = int(rng.integers(len(data.photos if photo else data.scenes)))
        pool = data.photos if photo else data.scenes
        seen = pool.augmented(i, rng, upside_down=photo, tables=not photo)
        record = data.records[i] if photo else None
        queries = [
            q
            for _ in range(PER_PICTURE)
            if (q := _query(seen.scene, seen.mirror, record, instruction, rng, data.language))
        ]
        if queries:
            pictures.append([(seen.scene, q) for q in queries])
    return pictures


def held_out_samples(
    data: TrainingData, instruction: str, *, per_picture: int = 4
) -> dict[str, list[list[Sample]]]:
    """Fixed validation samples: "val" from the simulator and, where at hand, "photo" from IT2P.

    In the forms that people use, which a threshold is for; training's are even.
    """
    rng = np.random.default_rng(2)
    out: dict[str, list[list[Sample]]] = {"val": [], "photo": []}
    for name, pool, records in (
        ("val", data.held_out, [None] * len(data.held_out)),
        ("photo", data.held_out_photos, data.held_out_records),
    ):
        for i, record in enumerate(records):
            scene = pool[i]
            queries = [
                _query(
                    scene, (False, False), record, instruction, rng, data.language, balanced=False
                )
                for _ in range(per_picture)
            ]
            found = [(scene, q) for q in queries if q is not None]
            if found:
                out[name].append(found)
    return {name: pictures for name, pictures in out.items() if pictures}


def _query(
    scene: Scene,
    mirror: tuple[bool, bool],
    record: Any,
    instruction: str,
    rng: np.random.Generator,
    language: Grammar,
    *,
    balanced: bool = True,
) -> Query | None:
    if record is not None and rng.uniform() < 0.85:
        states = photo_states(record, scene, mirror, rng, language)
    else:
        states = language.dialogue(scene.objects, rng, balanced=balanced)
    if not states:
        return None
    # The first moment is what is measured first: half of the samples.
    state = states[0] if rng.uniform() < 0.5 else states[int(rng.integers(len(states)))]
    if instruction == "clarify":
        return dialogue_query(state, scene.objects)
    return detect_query(state.context, state.candidates, instruction)


def collate(
    pictures: list[list[Sample]], backbone: Backbone, processor: Any, device: torch.device
) -> AdapterBatch:
    """Look at each picture once, and lay its queries out one a sequence."""
    with torch.no_grad(), autocast(device):
        features = backbone.look(batch_tensor([p[0][0] for p in pictures], device))
    rows = [i for i, picture in enumerate(pictures) for _ in picture]
    samples = [sample for picture in pictures for sample in picture]
    suffixes = [q.suffix for _, q in samples]
    prompts = encode_prompts(
        processor,
        samples[0][1].instruction,
        [q.context for _, q in samples],
        [s for s in suffixes if s is not None] if None not in suffixes else None,
    )
    maps = []
    for scene, query in samples:
        shares = patch_shares(scene, backbone.grid)
        maps.append(shares[list(query.looks or range(len(shares)))].mean(axis=0))
    return AdapterBatch(
        features[rows].float(),
        prompts.to(device),
        torch.from_numpy(np.stack(maps)).to(device),
        torch.tensor([float(q.ambiguous) for _, q in samples], device=device),
        samples,
    )
