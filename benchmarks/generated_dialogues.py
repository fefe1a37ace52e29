#!/usr/bin/env python3
# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Train adapter B on clean dialogues, on generated ones, and on both, and compare the three.

    scripts/run python benchmarks/generated_dialogues.py --model household --world rich \
        --tabletop data/tabletop --out runs/generated [--oracle ORACLE]

InViG's finding: generated dialogues alone are worse than clean ones, and generated, then clean is
best. Clean dialogues are the grammar's, about the first training scenes. Generated ones are talked
about other training scenes (`clue data generate`) by the adapter that the first seed learned from
the clean ones, and by the rules or an oracle as the person. Each arm begins with a new adapter and
has the same number of steps; "generated, then clean" has half of them on each. Measured are InViG's
tasks vg, vqg and ivg on held-out scenes; of a new adapter without any step too ("nothing"): where
that is as good, the base knew the dialogues before, and the arms say little.

With --rounds N, dialogues about the same scenes are generated again by the adapter that the first
seed learned in the round before, and "generated, then clean" is trained on them, from a new adapter
and with as many steps.

Every command's result is in OUT/steps, so that the same command goes on after an interruption. At
the end, OUT has results.json and results.md.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.common import ModelOptions, parse
from clue_ros.cli import main as clue
from clue_ros.errors import ClueError
from clue_ros.lab.options import at_least, option, required
from clue_ros.lab.report import Cell, table
from clue_ros.lab.simulator.shards import list_shards, read_shard
from clue_ros.lab.simulator.worlds import WORLDS
from clue_ros.model.load_options import POLICIES

CLEAN, GENERATED, BOTH = "clean", "generated", "generated, then clean"
ARMS = (CLEAN, GENERATED, BOTH)
UNTRAINED = "nothing"


def arm_of(number: int) -> str:
    """The arm of a round, from 1."""
    return BOTH if number == 1 else f"{BOTH}, round {number}"


def dialogues_of(number: int) -> str:
    """The folder of the dialogues that are generated in a round, from 1."""
    return GENERATED if number == 1 else f"{GENERATED}-{number}"


TASKS = ("vg", "vqg", "ivg")
BEST = {
    "vg": "share of boxes at IoU 0.5",
    "vg, chosen": "the same, chosen among the objects",
    "vqg R@1": "the true question is ranked first, %",
    "ivg": "success of self-play",
}
"""The figures of which more is better."""
QUESTIONS = "ivg, questions"


@dataclass(frozen=True, kw_only=True)
class ExperimentOptions(ModelOptions):
    """The options of this experiment."""

    out: Path = required("folder to write, or to go on with")
    tabletop: Path = required("folder of simulated scenes, with the splits train and test")
    world: str = option("rich", "world of the scenes", choices=tuple(WORLDS))
    seeds: tuple[int, ...] = option((0, 1, 2), "seeds of the trainings", nargs="+", type=int)
    rounds: int = option(
        1, "rounds of generating and training; more of them can be added", type=at_least(1)
    )
    clean_scenes: int = option(200, "training scenes of the clean dialogues", type=at_least(1))
    generated_scenes: int = option(400, "further training scenes, of the generated dialogues")
    test_scenes: int = option(100, "held-out scenes to measure on", type=at_least(1))
    per_image: int = option(2, "dialogues about a scene", type=at_least(1))
    steps: int = option(240, "steps of an arm, an even number", type=at_least(2))
    batch: int = option(6, "pictures a step", type=at_least(1))
    recipe: str = option(
        "embedded", "recipe of the training: the embedded models', or the paper's",
        choices=("embedded", "paper"),
    )  # fmt: skip
    policy: str = option("decoder", "decides between a question and a box", choices=POLICIES)
    oracle: str | None = option(
        None, "adapter of `clue train oracle` that answers while dialogues are generated; default:"
        " the rules",
    )  # fmt: skip
    min_iou: float = option(0.5, "smallest IoU of a generated dialogue's box with its object")

    def __post_init__(self) -> None:
        """Raises ClueError for options that do not fit together."""
        if self.steps % 2:
            raise ClueError(f"--steps {self.steps}: want an even number, half for each data set")
        if len(set(self.seeds)) < len(self.seeds):
            raise ClueError("--seeds: one of them stands there twice")

    def settings(self) -> dict[str, Any]:
        """What must not change between two runs of an output folder.

        Seeds and rounds may be added.
        """
        left_out = ("out", "device", "seeds", "rounds")
        kept = {k: v for k, v in vars(self).items() if k not in left_out}
        return {**json.loads(json.dumps(kept, default=str)), "first_seed": self.seeds[0]}


class Experiment:
    """The commands of the experiment, each of which is run once."""

    def __init__(self, options: ExperimentOptions) -> None:
        self.options = options
        self.folder = options.out
        (self.folder / "steps").mkdir(parents=True, exist_ok=True)
        path, wanted = self.folder / "settings.json", options.settings()
        if not path.exists():
            _write(path, wanted)
        found = json.loads(path.read_text(encoding="utf-8"))
        for name, value in wanted.items():
            if found.get(name) != value:
                raise ClueError(
                    f"{self.folder} was begun with {name} {found.get(name)!r}, not {value!r}: give"
                    " another --out"
                )

    def once(self, step: str, *words: object) -> dict[str, Any]:
        """What a command printed last, an object; from its file if it was run before."""
        path = self.folder / "steps" / f"{step}.json"
        if not path.exists():
            argv = [str(word) for word in words]
            print(f"{step}: clue {' '.join(argv)}", file=sys.stderr, flush=True)
            with contextlib.redirect_stdout(io.StringIO()) as said:
                status = clue(argv)
            if status:
                raise ClueError(f"{step} ended with status {status}; run this command again")
            _write(path, json.loads(said.getvalue().splitlines()[-1]))
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def make_clean(self) -> dict[str, Any]:
        """The clean dialogues."""
        o = self.options
        return self.once(
            "clean", "data", "invig", "--world", o.world, "--tabletop", o.tabletop, "--scenes",
            o.clean_scenes, "--per-image", o.per_image, "--out", self.folder / CLEAN,
        )  # fmt: skip

    def make_generated(self, number: int) -> dict[str, Any]:
        """A round's dialogues: counts and rejects of its report.

        The first seed's adapter of the round before asks; in round 1 that of the clean dialogues.
        """
        asker = CLEAN if number == 1 else arm_of(number - 1)
        name = dialogues_of(number)
        o, ids = self.options, self.folder / "generated_scenes.txt"
        if not ids.exists():
            ids.write_text("".join(f"{scene}\n" for scene in self._further_scenes()))
        person = [] if o.oracle is None else ["--oracle", o.oracle]
        report = self.once(
            name, "data", "generate", f"tabletop:{o.tabletop}", "--world", o.world, "--ids",
            ids, "--per-image", o.per_image, "--min-iou", o.min_iou, "--policy", o.policy,
            "--model", o.model, "--ivg", self.adapter(asker, o.seeds[0]), "--device", o.device,
            "--out", self.folder / name, *person,
        )  # fmt: skip
        return {k: report[k] for k in ("pictures", "dialogues", "rounds", "rejected")}

    def _further_scenes(self) -> list[str]:
        """The names of the training scenes after the clean ones."""
        o = self.options
        wanted, names = o.clean_scenes + o.generated_scenes, list[str]()
        for path in list_shards(o.tabletop, "train", o.world):
            if len(names) >= wanted:
                break
            names += [f"{path.stem}-{n}" for n, _ in enumerate(read_shard(path, o.world))]
        if len(names) <= o.clean_scenes:
            raise ClueError(
                f"{o.tabletop}: {len(names)} training scenes of {o.world}, want more than"
                f" {o.clean_scenes} (`clue data tabletop`)"
            )
        return names[o.clean_scenes : wanted]

    def adapter(self, arm: str, seed: int) -> Path:
        """The folder of an arm's adapter."""
        return self.folder / f"seed-{seed}" / _file_name(arm)

    def train(self, arm: str, seed: int, number: int = 1) -> None:
        """Train an arm; number: of the round whose generated dialogues it begins with."""
        steps = self.options.steps
        if arm == UNTRAINED:
            self._train(arm, seed, self.adapter(arm, seed), CLEAN, 0)
            return
        if arm in (CLEAN, GENERATED):
            self._train(arm, seed, self.adapter(arm, seed), arm, steps)
            return
        name = dialogues_of(number)
        first = self.folder / f"seed-{seed}" / f"{name}-half"
        self._train(f"{name} half", seed, first, name, steps // 2)
        self._train(arm, seed, self.adapter(arm, seed), CLEAN, steps // 2, "--init", first)

    def _train(self, name: str, seed: int, out: Path, data: str, steps: int, *more: object) -> None:
        o = self.options
        recipe = ["--recipe", "embedded"] if o.recipe == "embedded" else []
        self.once(
            f"train-{_file_name(name)}-{seed}", "train", "ivg", "--model", o.model, "--out", out,
            "--run", out.with_name(f"{out.name}-run"), "--data", "invig", "--invig",
            self.folder / data, "--steps", steps, "--batch", o.batch, "--seed", seed, "--device",
            o.device, *recipe, *more,
        )  # fmt: skip

    def measure(self, arm: str, seed: int) -> dict[str, float | None]:
        """The figures of an arm's adapter on held-out scenes."""
        o = self.options
        found = {
            task: self.once(
                f"{task}-{_file_name(arm)}-{seed}", "eval", "dialogue", "--task", task, "--data",
                "tabletop", "--source", o.tabletop, "--world", o.world, "--split", "test",
                "--limit", o.test_scenes, "--model", o.model, "--ivg", self.adapter(arm, seed),
                "--policy", o.policy, "--device", o.device, "--json",
            )
            for task in TASKS
        }  # fmt: skip
        whole = found["vg"]["turn-0"]
        return {
            "vg": whole["box"]["0.5"],
            "vg, chosen": whole["choice"]["0.5"],
            "vqg R@1": found["vqg"]["r@1"],
            "ivg": found["ivg"]["accuracy"],
            QUESTIONS: found["ivg"]["questions"],
        }

    def run(self) -> dict[str, Any]:
        """Everything; the results."""
        first = self.options.seeds[0]
        clean = self.make_clean()
        self.train(CLEAN, first)
        generated: list[dict[str, Any]] = []
        arms: dict[str, list[dict[str, float | None]]] = {}
        for number in range(1, self.options.rounds + 1):
            generated.append(self.make_generated(number))
            trained = ARMS if number == 1 else (arm_of(number),)
            arms |= {arm: [] for arm in trained}
            for seed in self.options.seeds:
                for arm in trained:
                    self.train(arm, seed, number)
                    arms[arm].append(self.measure(arm, seed))
        self.train(UNTRAINED, first)
        return {
            "settings": self.options.settings(),
            "seeds": list(self.options.seeds),
            "clean": {"dialogues": clean["dialogues"]},
            "generated": generated,
            "untrained": self.measure(UNTRAINED, first),
            "arms": arms,
            "order": {name: order_of(arms, name) for name in BEST},
        }


def results_text(results: Mapping[str, Any]) -> str:
    """A Markdown table, mean and standard deviation over the seeds, and each figure's order."""
    columns = [*BEST, QUESTIONS]
    rows: list[list[Cell]] = [
        [arm, *(_spread(figures[name] for figures in runs) for name in columns)]
        for arm, runs in {UNTRAINED: [results["untrained"]], **results["arms"]}.items()
    ]
    settings, kept = results["settings"], list[str]()
    for made in results["generated"]:
        tried = made["dialogues"] + sum(made["rejected"].values())
        kept.append(f"{made['dialogues']} kept of {tried}")
    lines = [
        f"Model {settings['model']}, world {settings['world']}, {settings['steps']} steps of"
        f" {settings['batch']} pictures, {len(results['seeds'])} seeds,"
        f" {settings['test_scenes']} held-out scenes. Clean: {results['clean']['dialogues']}"
        f" dialogues. Generated: {', then '.join(kept)}.",
        "",
        table(["trained on", *columns], rows, markdown=True),
        "",
        *(f"- {name} ({BEST[name]}): {order}" for name, order in results["order"].items()),
    ]
    return "\n".join(lines)


def order_of(arms: Mapping[str, Sequence[Mapping[str, float | None]]], name: str) -> str:
    """The arms by their means of a figure, the best first."""
    means = {
        arm: mean(values) if (values := _numbers(f[name] for f in runs)) else float("-inf")
        for arm, runs in arms.items()
    }
    ranked = sorted(means, key=lambda arm: -means[arm])
    text = ranked[0]
    for before, arm in pairwise(ranked):
        text += f" {'=' if means[arm] == means[before] else '>'} {arm}"
    return text


def _spread(values: Iterable[float | None]) -> str:
    found = _numbers(values)
    if not found:
        return "-"
    spread = f" ± {stdev(found):.3f}" if len(found) > 1 else ""
    return f"{mean(found):.3f}{spread}"


def _numbers(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _file_name(arm: str) -> str:
    return arm.replace(", ", "-").replace(" ", "-")


def _write(path: Path, content: Any) -> None:
    """Write a JSON file whole or not at all."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def main(argv: list[str] | None = None) -> int:
    """Run the experiment; the exit status."""
    try:
        options = parse(ExperimentOptions, __doc__, argv)
        results = Experiment(options).run()
    except ClueError as error:
        print(error, file=sys.stderr)
        return 2
    _write(options.out / "results.json", results)
    text = results_text(results)
    (options.out / "results.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
