"""A really tiny decoder and drawn pictures with queries, for tests of what teaches the decoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from drawn_scenes import random_scenes

from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.training.packing import PackedDecoder
from clue_ros.lab.training.samples import Query, scene_queries
from clue_ros.model.prompts import load_processor
from clue_ros.model.torch_backbone import load_model

Batch = list[tuple[Scene, list[Query]]]


def new_batch() -> Batch:
    """Five pictures with three queries each, always the same."""
    rng = np.random.default_rng(0)
    return [(scene, scene_queries(scene, 3, rng, grammar_of())) for scene in random_scenes(5, 7)]


def new_decoder(folder: Path) -> PackedDecoder:
    """The model of a folder on the CPU in float32, everything of it to be learned."""
    model = load_model(folder).model.requires_grad_(True)
    tokenizer = load_processor(folder).tokenizer
    return PackedDecoder(model, tokenizer, torch.device("cpu"), "float32")
