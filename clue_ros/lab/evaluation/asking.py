"""Measure dialogues of adapter B alone, as in `clue train grpo`: its likeliest words, one view.

`clue eval tabletop` measures the robot, which replaces useless questions and looks again at
doubtful boxes. Here adapter B alone decides, asks and points; all dialogues of a batch are
held together, on the torch backbone. Measure an adapter before and after with the same options:

    clue eval asking --world rich-unseen --json
    clue eval asking --world rich-unseen --json --ivg my-grpo
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clue_ros.dialogue.types import MAX_QUESTIONS
from clue_ros.errors import ClueError
from clue_ros.lab.evaluation.options import (
    ModelOptions,
    RecordsOptions,
    RequestOptions,
    measured_checkpoint,
)
from clue_ros.lab.evaluation.tabletop import load_scenes
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.metrics import rounded
from clue_ros.lab.options import add_options, at_least, option, read_options
from clue_ros.lab.report import table, with_progress
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.shards import SPLITS
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS
from clue_ros.lab.training.grpo_rewards import RewardOptions
from clue_ros.lab.training.grpo_rollouts import KINDS, Agent, Rollout, figures, play, prompts_about
from clue_ros.model.checkpoint import load_checkpoint
from clue_ros.model.decoding import Mode
from clue_ros.model.load_options import TORCH, LoadOptions
from clue_ros.model.torch_backbone import TorchBackbone

BATCH = 8  # scenes whose dialogues run together


@dataclass(frozen=True, kw_only=True)
class AskingOptions(RequestOptions):
    """The options of ``clue eval asking``."""

    world: str = option(DEFAULT_WORLD, "simulated world", choices=tuple(WORLDS))
    data: Path = option(DEFAULT_FOLDER, "folder of simulated scenes", metavar="DIR")
    split: str = option("test", "split of the scenes", choices=SPLITS)
    scenes: int = option(200, "largest number of scenes", type=at_least(1))
    ivg: str | None = option(None, "folder of another adapter B", metavar="DIR")
    max_turns: int = option(MAX_QUESTIONS, "largest number of questions", type=at_least(1))
    never_ask: bool = option(False, "point at once")
    model: ModelOptions
    output: RecordsOptions


def measure(agent: Agent, options: AskingOptions) -> list[Rollout]:
    """The dialogues of an agent about a world's scenes, `per_image` of each kind of request."""
    scenes = load_scenes(options.data, options.split, options.scenes, options.world)
    grammar, weights = grammar_of(options.world), RewardOptions(step_weight=0.0)
    found: list[Rollout] = []
    for first in with_progress(range(0, len(scenes), BATCH)):
        prompts = [
            prompt
            for number, scene in enumerate(scenes[first : first + BATCH], first)
            for kind in KINDS
            for prompt in prompts_about(
                scene,
                grammar,
                kind,
                options.per_image,
                np.random.default_rng([options.seed, number, KINDS.index(kind)]),
            )
        ]
        groups = play(
            agent,
            grammar,
            prompts,
            agent.look(prompts),
            weights,
            each=1,
            max_questions=options.max_turns,
            rng=None,
        )
        found += [rollout for group in groups for rollout in group]
    return found


def summary(rollouts: Sequence[Rollout]) -> dict[str, Any]:
    """The figures of `grpo_rollouts.figures` as means, and the number of requests of each kind."""
    means = {
        name: rounded(total / n) if n else None for name, (total, n) in figures(rollouts).items()
    }
    return means | {"n": {k: sum(r.prompt.kind == k for r in rollouts) for k in KINDS}}


def record(rollout: Rollout) -> dict[str, Any]:
    """One dialogue, for comparing two adapters request by request."""
    return {
        "kind": rollout.prompt.kind,
        "text": rollout.prompt.text,
        "right": rollout.right,
        "questions": rollout.questions,
        "useless": rollout.useless,
        "reward": round(rollout.reward, 4),
        "dialogue": rollout.dialogue.context(),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval asking``."""
    add_options(parser, AskingOptions)


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval asking``; the exit status."""
    options = read_options(AskingOptions, args)
    loading = LoadOptions(
        options.model.model, device=options.model.device, ivg=options.ivg, backend=TORCH
    )
    parts = load_checkpoint(loading)
    if not parts.dialogue.is_dir() or parts.is_joint:
        raise ClueError(f"{options.model.model} has no adapter B (folder ivg) of its own")
    assert isinstance(parts.backbone, TorchBackbone)
    mode: Mode = "grounding" if options.never_ask else "free"
    agent = Agent(parts.backbone, parts.processor, parts.vocabulary, parts.ivg, mode)
    rollouts = measure(agent, options)
    options.output.write_records(map(record, rollouts))
    found = summary(rollouts)

    def text(markdown: bool) -> str:
        cells = {k: v for k, v in found.items() if k != "n"} | found["n"]
        return table(["", *cells], [["", *cells.values()]], markdown=markdown)

    made = measured_checkpoint(options.model.model, parts)
    options.output.show(found, text, made, options.seed)
    return 0
