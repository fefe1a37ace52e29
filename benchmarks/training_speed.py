#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Time the steps of every training stage beside a plain loop with transformers and peft.

    scripts/run python benchmarks/training_speed.py --tabletop DIR [--world rich] [--model M]
        [--stages detector ivg] [--pictures 4] [--steps 5] [--threads 2] [--json] [--out FILE]

Each repetition draws pictures and queries as the stage does, untimed, and gives them to each
contender in turn: "ours" (the step of `clue train`, with the losses of the embedded models' recipe
and in the precision that it chooses), "plain" (`plain_training.py`, float32) and "plain, bfloat16"
(the same under autocast, on a device that has bfloat16). A step is all from a drawn picture to
updated weights: preparing pixels and tokens, forward, backward, optimizer. Memory is what a step of
the warm-up takes at most beside what the process has before it. Queries without a suffix, which
teach attention alone, are left out of stage 2.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from benchmarks.common import parse
from benchmarks.plain_training import (
    PlainModel,
    PlainTraining,
    detector_training,
    suffix_training,
    tower_training,
)
from clue_ros import memory
from clue_ros.errors import ClueError
from clue_ros.lab.evaluation.speed import quarters
from clue_ros.lab.options import at_least, option, output_file
from clue_ros.lab.report import Cell, table
from clue_ros.lab.training import detector, ivg
from clue_ros.lab.training.adapters import frozen_base
from clue_ros.lab.training.base import BaseOptions
from clue_ros.lab.training.datasets import SIMULATED, load_training_data
from clue_ros.lab.training.decoder import (
    QUERIES,
    QUERIES_ALONE,
    Replicas,
    decoder_groups,
    location_table,
)
from clue_ros.lab.training.detector import DetectorOptions, DetectorTrainer
from clue_ros.lab.training.ivg import IvgOptions, IvgTrainer, Teaching
from clue_ros.lab.training.ivg_data import CLARIFY
from clue_ros.lab.training.loop import (
    Group,
    Optimization,
    Parts,
    TrainingSettings,
    scratch_groups,
)
from clue_ros.lab.training.options import SourceOptions
from clue_ros.lab.training.packing import PackedDecoder
from clue_ros.lab.training.parallel import Processes, has_bfloat16
from clue_ros.lab.training.samples import Sample, adapter_samples, base_samples
from clue_ros.lab.training.vision import SIGMA_BINS, VisionTeacher, vision_scenes
from clue_ros.model.adapters import Adapters, lora_config
from clue_ros.model.backbone import DETECTOR, IVG
from clue_ros.model.detector import DetectorSettings
from clue_ros.model.detector_variants import PAPER, VARIANTS
from clue_ros.model.loading import DEFAULT_MODEL, find_base, find_model
from clue_ros.model.prompts import load_processor
from clue_ros.model.torch_backbone import load_model

if TYPE_CHECKING:
    from peft import LoraConfig

OURS, PLAIN, PLAIN_16 = "ours", "plain", "plain, bfloat16"
STAGES = ("tower", "decoder-packed", "decoder-alone", "detector", "ivg")
Step = Callable[[int, Sequence[Sample]], float]  # the step's number, its samples -> its loss


@dataclass(frozen=True, kw_only=True)
class TrainingSpeedOptions(SourceOptions):
    """The options of this benchmark."""

    model: str = option(DEFAULT_MODEL, "base model: a name, a folder or a hub id")
    scenes: int = option(200, "largest number of simulated scenes", type=at_least(1))
    stages: tuple[str, ...] = option(STAGES, "stages to time", nargs="+", choices=STAGES)
    pictures: int = option(4, "pictures a step", type=at_least(1))
    steps: int = option(5, "number of timed steps of each contender", type=at_least(1))
    warmup: int = option(2, "number of steps before them", type=at_least(1))
    clock: str = option(
        "wall",
        "cpu: CPU seconds of this process, where other work runs beside",
        choices=("wall", "cpu"),
    )
    json: bool = option(False, "print JSON instead of a table")
    out: Path | None = option(None, "write all figures as JSON", type=output_file(".json"))


@dataclass(frozen=True)
class Stage:
    """A stage of training. draw: samples of a step, a function of its number alone."""

    draw: Callable[[int], list[Sample]]
    contenders: Mapping[str, Step]


class Bench:
    """The stages of one base model, each made when it is asked for."""

    def __init__(self, options: TrainingSpeedOptions) -> None:
        self.device, self._batch = options.start_device(), options.pictures
        self._folder = find_base(find_model(options.model))
        self._processor: Any = load_processor(self._folder)
        shared: dict[str, Any] = {
            name: getattr(options, name) for name in ("model", "tabletop", "world", "scenes")
        }
        shared |= {"batch": options.pictures, "data": (SIMULATED,)}
        self._base = BaseOptions(out=Path())
        self._detect = DetectorOptions(**(shared | detector.EMBEDDED))
        self._ground = IvgOptions(**(shared | ivg.EMBEDDED))
        size = self._processor.image_processor.size["height"]
        self._data = load_training_data(self._ground, size, sources={SIMULATED})

    def stage(self, name: str, teaching: Teaching | None = None) -> Stage:
        """A stage of STAGES. teaching: its losses, where not those of the embedded models."""
        if name == "tower":
            return self._tower()
        if name == DETECTOR:
            return self._detector(self._detect.look_weight if teaching is None else teaching.look)
        if name == IVG:
            return self._ivg(teaching or self._ground.teaching)
        return self._decoder(teaching or self._base.teaching, is_alone=name == "decoder-alone")

    def _tower(self) -> Stage:
        settings = TrainingSettings(self._base.vision_steps, self._batch, self._base.vision_lr)
        plain, model = self._plain(), load_model(self._folder, device=self.device).model
        table = location_table(model, self._processor.tokenizer)
        teacher = VisionTeacher(model.config.vision_config, self._data.kinds, self._data.colors)
        teacher.tower.load_state_dict(model.model.vision_tower.state_dict())
        teacher.heads.table.data.copy_(table)
        teacher.to(self.device).train()
        optimization = Optimization(scratch_groups(teacher.named_parameters()), settings)

        def loss(samples: Sequence[Sample]) -> dict[str, Tensor]:
            batch = teacher.prepared([scene for scene, _ in samples])
            return teacher.loss(batch, SIGMA_BINS[1], self.device)

        def draw(step: int) -> list[Sample]:
            return [(scene, []) for scene in vision_scenes(self._data, settings, step)]

        trained = tower_training(plain, teacher.heads, settings.lr)
        return Stage(draw, _contenders(optimization, loss, trained))

    def _decoder(self, teaching: Teaching, *, is_alone: bool) -> Stage:
        settings = TrainingSettings(self._base.decoder_steps, self._batch, self._base.decoder_lr)
        plain, model = self._plain(), load_model(self._folder, device=self.device).model
        plain.base.vision_tower.requires_grad_(False)
        decoder = PackedDecoder(model, self._processor.tokenizer, self.device)
        optimization = Optimization(decoder_groups(model), settings)
        model.train().model.vision_tower.eval()
        count = 1 if self.device.type == "cuda" else torch.get_num_threads()
        replicas = Replicas(decoder, count)

        def loss(samples: Sequence[Sample]) -> Parts:
            shares = replicas.shares(samples, is_alone=is_alone)
            return replicas.step(shares, teaching, is_alone=is_alone)

        def draw(step: int) -> list[Sample]:
            count = QUERIES_ALONE if is_alone else QUERIES
            samples = base_samples(self._data, settings, step, count)
            return [(scene, [q for q in asked if q.suffix is not None]) for scene, asked in samples]

        trained = suffix_training(plain, settings.lr)
        return Stage(draw, _contenders(optimization, loss, trained, count))

    def _detector(self, look_weight: float) -> Stage:
        options, settings = replace(self._detect, look_weight=look_weight), self._detect.settings
        backbone, processor = frozen_base(options, self._folder, self.device, options.data)
        variant = VARIANTS[options.variant or PAPER]
        block, blocks = variant.block(backbone.blocks), variant.adapted(backbone.blocks)
        adapters = Adapters(backbone)
        adapters.add(DETECTOR, lora_config(blocks))
        adapters.use(DETECTOR, train=True)
        read = DetectorSettings(block, variant.instruction, variant.head)
        trainer = DetectorTrainer(backbone, processor, read, self.device, options)
        trainer.training_mode()
        optimization = Optimization(trainer.groups(adapters), settings)
        plain = self._plain(lora_config(blocks))
        trained = detector_training(plain, trainer.head, block, settings.lr)
        return Stage(
            partial(adapter_samples, self._data, settings, instruction=variant.instruction),
            _contenders(optimization, trainer.step, trained),
        )

    def _ivg(self, teaching: Teaching) -> Stage:
        options, settings = self._ground, self._ground.settings
        backbone, processor = frozen_base(options, self._folder, self.device, options.data)
        adapters, config = Adapters(backbone), partial(lora_config, range(backbone.blocks))
        adapters.add(IVG, config())
        adapters.use(IVG, train=True)
        decoder = PackedDecoder(backbone.model, processor.tokenizer, self.device)
        trainer = IvgTrainer(decoder, teaching, Processes(self.device))
        trainer.training_mode()
        optimization = Optimization([Group(adapters.parameters(IVG))], settings)
        trained = suffix_training(self._plain(config()), settings.lr)
        return Stage(
            partial(adapter_samples, self._data, settings, instruction=CLARIFY),
            _contenders(optimization, lambda samples: trainer.step([samples]), trained),
        )

    def _plain(self, config: LoraConfig | None = None) -> PlainModel:
        """A model of transformers, with an adapter of peft if `config` is given."""
        torch.manual_seed(0)
        plain = PlainModel(self._folder, self.device)
        if config is not None:
            plain.add_lora(config)
        return plain


def _contenders(
    optimization: Optimization,
    loss: Callable[[Sequence[Sample]], dict[str, Tensor] | Parts],
    plain: PlainTraining,
    replicas: int = 1,
) -> dict[str, Step]:
    """All contenders of a stage. replicas: threads that share our step."""
    threads = torch.get_num_threads()

    def ours(step: int, samples: Sequence[Sample]) -> float:
        # The replicas' threads have set it for the whole process once.
        torch.set_num_threads(max(1, threads // replicas))
        return optimization.step(step, lambda _: loss(samples))["loss"]

    def theirs(dtype: torch.dtype, _step: int, samples: Sequence[Sample]) -> float:
        torch.set_num_threads(threads)
        return plain.step(samples, dtype)

    found: dict[str, Step] = {OURS: ours, PLAIN: partial(theirs, torch.float32)}
    if has_bfloat16(plain.device):
        found[PLAIN_16] = partial(theirs, torch.bfloat16)
    return found


# --- the clock


CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


def seconds_of(work: Callable[[], object], device: torch.device, clock: str = "wall") -> float:
    """Seconds that `work` takes by a clock of CLOCKS."""
    now = CLOCKS[clock]
    start = now()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return now() - start


def peak_of(work: Callable[[], object], device: torch.device) -> int:
    """The bytes that `work` takes at most beside those taken before."""
    memory.trim()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        return torch.cuda.max_memory_allocated(device) - before
    memory.forget_peak()
    before = memory.resident()
    work()
    return memory.peak() - before


def timed(stage: Stage, options: TrainingSpeedOptions, device: torch.device) -> dict[str, Any]:
    """Figures of one stage: memory of the last step of the warm-up, times of the steps after it."""
    seconds: dict[str, list[float]] = {name: [] for name in stage.contenders}
    most: dict[str, int] = {}
    pictures = queries = 0
    with memory.frozen_garbage():
        for number in range(options.warmup + options.steps):
            samples = stage.draw(number)
            steps = {
                name: partial(step, number, samples) for name, step in stage.contenders.items()
            }
            if number < options.warmup:
                most = {name: peak_of(step, device) for name, step in steps.items()}
                continue
            pictures += len(samples)
            queries += sum(len(asked) for _, asked in samples)
            for name, step in steps.items():
                seconds[name].append(seconds_of(step, device, options.clock))
    total = {name: sum(values) for name, values in seconds.items()}
    return {
        "pictures": pictures / options.steps,
        "queries": queries / options.steps,
        "seconds": {name: quarters(values) for name, values in seconds.items()},
        "pictures_per_second": {name: pictures / spent for name, spent in total.items()},
        "queries_per_second": {name: queries / spent for name, spent in total.items()},
        "step_mb": {name: round(needed / 1e6) for name, needed in most.items()},
        "ours_to": {
            name: quarters([a / b for a, b in zip(seconds[OURS], seconds[name], strict=True)])
            for name in total
            if name != OURS
        },
    }


def as_markdown(result: Mapping[str, Any]) -> str:
    """A table with a row for each stage."""

    def cells(figures: Mapping[str, float], digits: int) -> str:
        return " / ".join(f"{value:.{digits}f}" for value in figures.values())

    def ratio(values: Sequence[float] | None) -> str:
        if values is None:
            return "-"
        middle, low, high = values
        return f"{middle:.2f} ({low:.2f} to {high:.2f})"

    rows: list[list[Cell]] = [
        [
            name,
            f"{row['pictures']:.0f}, {row['queries']:.0f}",
            cells(row["pictures_per_second"], 2),
            cells(row["queries_per_second"], 1),
            ratio(row["ours_to"][PLAIN]),
            ratio(row["ours_to"].get(PLAIN_16)),
            cells(row["step_mb"], 0),
        ]
        for name, row in result["stages"].items()
    ]
    header = ["stage", "pictures, queries a step", "pictures/s", "queries/s"]
    header += ["ours / plain", "ours / plain in bfloat16", "MB a step"]
    return table(header, rows, markdown=True)


def measure(options: TrainingSpeedOptions) -> dict[str, Any]:
    """All figures."""
    bench = Bench(options)
    result: dict[str, Any] = {
        "model": options.model,
        "world": options.world,
        "device": str(bench.device),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "threads": torch.get_num_threads(),
        "steps": options.steps,
        "clock": options.clock,
        "load_before": os.getloadavg()[0],
        "stages": {},
    }
    for name in options.stages:
        print(name, file=sys.stderr)
        result["stages"][name] = timed(bench.stage(name), options, bench.device)
    return result | {"load_after": os.getloadavg()[0]}


def main(argv: list[str] | None = None) -> int:
    """Measure and print; the exit status."""
    options = parse(TrainingSpeedOptions, __doc__, argv)
    try:
        result = measure(options)
    except (ClueError, FileNotFoundError) as error:
        print(f"training_speed: {error}", file=sys.stderr)
        return 2
    text = json.dumps(result, indent=2)
    if options.out is not None:
        options.out.write_text(f"{text}\n", encoding="utf-8")
    print(text if options.json else as_markdown(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
