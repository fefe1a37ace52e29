"""`clue train full` (scripts/train_full): from the licence to the robot in one resumable command.

Checks the machine, fetches model and data, trains adapters A and B, fits the fusion, measures, and
writes the model card and the line that launches the robot. Each step is a `clue` command that can
be run alone; `--plan` prints them with memory and time and runs nothing. Run the same command again
after a kill: finished steps are skipped, and training goes on from its last saved state.

The recipe is the paper's; steps and batch sizes, which it does not give, are ours.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from clue_ros.cli import COMMANDS
from clue_ros.errors import ClueError
from clue_ros.lab.data.invig import index_invig
from clue_ros.lab.data.it2p import find_it2p
from clue_ros.lab.options import add_options, at_least, option, read_options
from clue_ros.lab.published import TABLE_1, TABLE_3
from clue_ros.lab.report import table
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.worlds import WORLDS
from clue_ros.lab.steps import Step, run_steps
from clue_ros.lab.training.parallel import pick_device
from clue_ros.lab.training.plan import (
    FULL_MODEL,
    GB,
    PlannedOptions,
    Workload,
    sizes_of,
    table_of,
)
from clue_ros.model.backbone import DETECTOR, IVG
from clue_ros.model.detector_variants import PAPER, VARIANTS
from clue_ros.model.loading import find_base, find_model, read_json

INVIG_HUB = "jxu124/invig"
DATA_GB = 10  # on the disk: InViG's photographs, simulated scenes, states of the runs
LARGE = 10**9  # weights from which a CPU is refused
_GETS_IT2P = "git clone https://github.com/hiddenmaze/InteractivePickup"


@dataclass(frozen=True, kw_only=True)
class FullOptions(PlannedOptions):
    """The options of `clue train full`."""

    model: str = option(FULL_MODEL, "base: a hub id or a folder")
    out: Path = option(Path("models/full"), "folder of the adapters, to launch the robot with")
    run: Path | None = option(None, "folder of states and logs; default: runs/ and the out name")
    invig: str = option(INVIG_HUB, "InViG: a hub id, a folder or a file")
    it2p: Path | None = option(None, "IT2P folder; default: $CLUE_IT2P, or none")
    rows: Path | None = option(None, "labelled photographs for adapter A too (docs/rows.md)")
    tabletop: Path = option(DEFAULT_FOLDER, "folder of the simulated scenes")
    world: str = option("rich", "world of the simulated scenes", choices=tuple(WORLDS))
    scenes: int = option(2000, "number of simulated training scenes", type=at_least(1))
    test_scenes: int = option(300, "of validation and of test scenes", type=at_least(1))
    variant: str = option(PAPER, "detector to train (Table I)", choices=tuple(VARIANTS))
    processes: int = option(1, "number of GPUs for both adapters", type=at_least(1))
    save_every: int = option(100, "steps between two saved states", type=at_least(1))
    seed: int = option(0, "seed of the training")

    @property
    def runs(self) -> Path:
        """The folder of states and logs."""
        return self.run if self.run is not None else Path("runs") / self.out.name

    @property
    def photos(self) -> Path | None:
        """IT2P's folder, if there is one."""
        return self.it2p if self.it2p is not None else find_it2p()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_options(parser, FullOptions)


def run(args: argparse.Namespace) -> int:
    """Run every step that is not finished; 0 when the model can be launched."""
    options = read_options(FullOptions, args)
    if options.plan:
        print(plan_text(options))
        return 0
    train_full(options)
    return 0


def train_full(options: FullOptions) -> None:
    """Run every step that is not finished."""
    run_steps(steps_of(options, parts=options.parts), options.runs / "steps.json")
    print(launch_line(options))


# -------------------------------------------------------------------------------------------------
# The steps.

Parts = Callable[[Workload], int]


def steps_of(options: FullOptions, parts: Parts) -> list[Step]:
    """All steps in their order. parts: of a training step, so that it fits the card."""
    make = ("data", "tabletop", "--world", options.world, "--out", str(options.tabletop))
    counts = {"train": options.scenes, "val": options.test_scenes, "test": options.test_scenes}
    scenes = [(*make, "--split", split, "--scenes", str(n)) for split, n in counts.items()]
    check = ("check", "--model", options.model)
    return [
        Step(
            "check",
            "check access, disk and GPU memory",
            (check,) if "check" in COMMANDS else (),
            work=partial(check_machine, options),
            every_time=True,
        ),
        Step("fetch", "fetch model and InViG", work=partial(fetch, options)),
        Step("scenes", "render simulated scenes", tuple(scenes)),
        Step(
            "detector",
            "train adapter A",
            (_train_detector(options, parts),),
            processes=options.processes,
        ),
        Step("ivg", "train adapter B", (_train_ivg(options, parts),), processes=options.processes),
        Step("policy", "fit policy both", (_train_policy(options),)),
        *(
            Step(f"evaluate {name}", f"measure {what}", (words,), saved=_result(options, name))
            for name, (words, what) in evaluations(options).items()
        ),
        Step("card", "write the model card", work=partial(write_card, options)),
    ]


def _shared(options: FullOptions) -> list[str]:
    words = ["--device", options.device, "--tabletop", str(options.tabletop)]
    words += ["--world", options.world]
    photos = options.photos
    return words if photos is None else [*words, "--it2p", str(photos)]


def _trained(options: FullOptions, part: str) -> list[str]:
    words = ["train", part, "--model", options.model, "--out", str(options.out / part)]
    words += ["--run", str(options.runs), "--base-dtype", options.base_dtype]
    words += ["--save-every", str(options.save_every), "--seed", str(options.seed)]
    return [*words, "--gradient-checkpointing", *_shared(options)]


def _train_detector(options: FullOptions, parts: Parts) -> tuple[str, ...]:
    batch, steps = options.detector_batch, options.detector_steps
    words = _trained(options, "detector")
    words += ["--variant", options.variant, "--lr", "5e-6", "--head-lr", "1e-4"]
    words += ["--steps", str(steps), "--batch", str(batch)]
    words += ["--accumulate", _divided(options, parts, "adapter A")]
    if options.rows is not None:
        words += ["--data", "tabletop", "it2p", "rows", "--rows", str(options.rows)]
    return tuple(words)


def _train_ivg(options: FullOptions, parts: Parts) -> tuple[str, ...]:
    words = _trained(options, "ivg")
    words += ["--data", "invig", "--invig", options.invig, "--lr", "1e-4"]
    words += ["--steps", str(options.ivg_steps), "--batch", str(options.ivg_batch)]
    return (*words, "--accumulate", _divided(options, parts, "adapter B"))


def _divided(options: FullOptions, parts: Parts, adapter: str) -> str:
    """`--accumulate`, which divides each process's share."""
    return str(-(-parts(workloads(options)[adapter]) // options.processes))


def _train_policy(options: FullOptions) -> tuple[str, ...]:
    return ("train", "policy", "--model", str(options.out), *_shared(options))


def evaluations(options: FullOptions) -> dict[str, tuple[tuple[str, ...], str]]:
    """The measurements by name: the command and its description."""
    few = [] if options.limit is None else ["--limit", str(options.limit)]
    model = ["--model", str(options.out), "--device", options.device, "--json"]
    found: dict[str, tuple[list[str], str]] = {}
    photos = options.photos
    if photos is not None:
        words = ["eval", "it2p", "--data", str(photos), "--split", "test"]
        found["it2p"] = words, "IT2P's test photographs"
        alone = [*words, "--policy", "detector"]
        found["it2p-detector"] = alone, "IT2P's test photographs, detector alone"
    words = ["eval", "tabletop", "--world", options.world]
    words += ["--tabletop", str(options.tabletop)]
    words += ["--scenes", str(options.test_scenes)]
    found["tabletop"] = words, f"simulated test scenes ({options.world})"
    words = ["eval", "ivg", "--data", "invig", "--source", options.invig]
    found["ivg"] = words, "InViG's test dialogues (Table III)"
    out = {name: ((*words, *model, *few), what) for name, (words, what) in found.items()}
    if options.rows is not None:
        words = ["eval", "detectors", "--rows", str(options.rows), "--only", "own"]
        words += ["--detectors", str(options.runs / "detectors"), *model]
        out["rows"] = tuple(words), "labelled photographs (test split)"
    return out


def _result(options: FullOptions, name: str) -> Path:
    return options.out / "evaluation" / f"{name}.json"


def check_machine(options: FullOptions) -> None:
    """Raises ClueError for a missing GPU, and for too little memory or disk."""
    sizes = sizes_of(options.model)
    device = pick_device(options.device)
    if device.type != "cuda" and sizes.parameters > LARGE:
        raise ClueError(
            f"{options.model} has {sizes.parameters / GB:.1f} billion weights: training needs a"
            " CUDA GPU"
        )
    for work in workloads(options).values():
        options.parts(work)
    need = DATA_GB + sizes.parameters * 2 / GB if sizes.parameters > LARGE else 1.0
    place = options.out.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free / GB
    if free < need:
        raise ClueError(f"{place} has {free:.1f} GB free, model and data want {need:.0f} GB")
    if options.photos is None:
        print(f"note: no IT2P (set CLUE_IT2P or --it2p; {_GETS_IT2P})", file=sys.stderr)
    print(f"device {device}, {free:.0f} GB free on the disk", file=sys.stderr)


def fetch(options: FullOptions) -> None:
    """Download model and InViG into the hub's cache. Raises ClueError with the way to access."""
    find_base(find_model(options.model))
    found = index_invig(options.invig, split="train")
    print(f"{len(found.samples)} training dialogues of InViG", file=sys.stderr)


def workloads(options: FullOptions) -> dict[str, Workload]:
    """Return the workloads of both adapters' steps."""
    return {
        "adapter A": options.detector_workload(options.variant),
        "adapter B": options.ivg_workload,
    }


# -------------------------------------------------------------------------------------------------
# Plan and model card.


def plan_text(options: FullOptions) -> str:
    """Steps with their commands, memory and time of the trainings; nothing is run."""
    lines = [f"Plan for {options.model} -> {options.out} (states in {options.runs})", ""]
    for number, step in enumerate(steps_of(options, parts=lambda _work: 1), start=1):
        lines.append(f"{number}. {step.title}")
        lines += [f"   {line}" for line in step.lines]
    sizes = sizes_of(options.model)
    header, *rows = table_of(sizes, workloads(options))
    lines += [
        "",
        f"{sizes.parameters / GB:.2f} billion weights. Estimates by arithmetic (docs/full-size.md),"
        " not measured:",
        "",
        table(header, rows),
        "",
        "--accumulate is set to the parts that fit the GPU. Rendering and measuring come on top:",
        "about a minute for a thousand scenes on four cores, about half a second a reply.",
        "",
        launch_line(options),
    ]
    return "\n".join(lines)


def launch_line(options: FullOptions) -> str:
    """The command that starts the robot with this model."""
    model = shlex.quote(str(options.out.absolute()))
    device = "cpu" if options.device == "cpu" else "cuda"
    return (
        f"ros2 launch clue_ros clue.launch.py model:={model} device:={device}"
        " image:=/camera/image_raw"
    )


def write_card(options: FullOptions) -> None:
    """Write README.md: recipe, figures with their commands, the published ones beside them."""
    detector = read_json(options.out / DETECTOR / "detector.json")
    ivg = read_json(options.out / IVG / "ivg.json")
    parts: list[str] = [
        "---\nlibrary_name: peft\npipeline_tag: image-text-to-text\n"
        f"base_model: {options.model}\ntags: [clue, ambiguity-detection, visual-grounding]\n---",
        f"# CLUE adapters for {options.model}",
        "Adapter A (`detector/`) judges whether a request is ambiguous in a picture, adapter B"
        " (`ivg/`) asks and points. Made by `clue train full` of clue_ros.",
        f"    {launch_line(options)}",
        "## Training",
        _settings("adapter A", detector["training"]),
        _settings("adapter B", ivg["training"]),
        "Validation: " + _words({**detector["validation"], **ivg["validation"]}),
        "## Measured",
    ]
    for name, (words, what) in evaluations(options).items():
        figures = read_json(_result(options, name))
        parts += [f"**{what}**", f"    {shlex.join(['clue', *words])}", _figures(figures)]
    published: list[Sequence[str | float]] = [
        [VARIANTS[name].title, *in_domain, *out]
        for name, (in_domain, out) in TABLE_1.items()
        if name == options.variant
    ]
    names = ("accuracy", "precision", "recall", "F1")
    header = ["Table I (paper)", *(f"{d} {n}" for d in ("in", "out") for n in names)]
    parts += ["## Published, on the paper's data", table(header, published, markdown=True)]
    guesser: list[Sequence[str | float]] = [[name, acc] for name, acc in TABLE_3.items()]
    parts.append(table(["Table III (paper, InViG)", "Acc@0.5"], guesser, markdown=True))
    (options.out / "README.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _settings(name: str, training: Mapping[str, Any]) -> str:
    return f"{name}: " + _words(training)


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in values.items())


def _figures(result: Mapping[str, Any]) -> str:
    """The plain numbers of a result, group by group."""
    if "detectors" in result:  # Table I's shape: the first detector's first seed
        result = result["detectors"][0]["seeds"][0]
    rows: list[list[str]] = []
    for group, figures in result.items():
        if isinstance(figures, Mapping) and group != "made_by":
            plain = {k: v for k, v in figures.items() if isinstance(v, int | float)}
            if plain:
                rows.append([group, _words(plain)])
    return table(["", "figures"], rows, markdown=True)
