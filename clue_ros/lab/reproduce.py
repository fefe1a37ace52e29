"""`clue reproduce PAPER`: a paper's tables and figures, one after the other, resumable.

    clue reproduce clue --data DIR --model google/paligemma2-3b-mix-448 --plan
    clue reproduce clue --data DIR --model google/paligemma2-3b-mix-448 --out runs/clue
    clue reproduce invig --data DIR --model google/paligemma2-3b-mix-448 --ray auto --ray-workers 8

Each step is a `clue` command, printed before it runs; finished ones are skipped when the same line
is given again. Steps whose data are missing in DIR (docs/papers.md lists its folders) are left out
with a message on how to get them. Results lie in OUT/results as JSON, with commit and model.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from clue_ros.errors import ClueError
from clue_ros.lab.data.it2p import find_it2p
from clue_ros.lab.evaluation.table1_detectors import TABLE_2_VARIANT
from clue_ros.lab.options import add_options, at_least, option, read_options, required
from clue_ros.lab.published import TABLE_1
from clue_ros.lab.ray_cluster import RaySettings
from clue_ros.lab.report import table
from clue_ros.lab.simulator.shards import SHARES, list_shards
from clue_ros.lab.simulator.worlds import PAPER, RICH_UNSEEN
from clue_ros.lab.steps import Step, run_on_ray, run_steps
from clue_ros.lab.training.plan import PlannedOptions, Workload, sizes_of, table_of
from clue_ros.model.detector_variants import VARIANTS
from clue_ros.model.loading import demo_folder

Words = tuple[str, ...]
# Table III: rank and alpha of adapter B, and whether the base is the mixed one.
GUESSERS = {"mix-r16": (16, 32, True), "mix-r8": (8, 16, True), "pt-r16": (16, 8, False)}


@dataclass(frozen=True, kw_only=True)
class ReproduceOptions(PlannedOptions):
    """The options of `clue reproduce`."""

    data: Path = required("folder of the data sets", metavar="DIR")
    out: Path | None = option(
        None, "folder of adapters and results, resumed; default: runs/PAPER", metavar="DIR"
    )
    invig: str | None = option(None, "InViG: a hub id, a folder or a file; default: DIR/invig")
    chat: tuple[str, ...] = option((), "chat models beside Table I's detectors", nargs="+")
    scenes: int = option(2000, "simulated scenes in all splits", type=at_least(3))
    seeds: int = option(3, "seeds of each detector", type=at_least(1))
    candidates: str = option(
        "grounding-dino:IDEA-Research/grounding-dino-tiny",
        "of wrapper: source of boxes",
        metavar="KIND:ARGUMENT",
    )
    ray: str | None = option(
        None,
        "run steps that do not wait for one another on a Ray cluster: its address, auto for the one"
        " of this machine, local to start one; needs the extra ray",
        metavar="ADDRESS",
    )
    ray_workers: int = option(2, "with --ray, number of steps at once", type=at_least(1))
    ray_gpus: float = option(0.0, "with --ray, GPUs of a step")


@dataclass(frozen=True)
class Item:
    """A step of a paper. needs: a file or folder that must exist; closes: the way to get it."""

    step: Step
    needs: Path | None = None
    closes: str = ""

    @property
    def missing(self) -> str:
        """The reason to leave the step out, or ""."""
        if self.needs is None or self.needs.exists():
            return ""
        return f"left out: {self.step.title}: there is no {self.needs} ({self.closes})"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("paper", choices=tuple(PAPERS), help="whose tables")
    add_options(parser, ReproduceOptions)


def run(args: argparse.Namespace) -> int:
    """Run the steps that are not finished; the exit status."""
    options = read_options(ReproduceOptions, args)
    out = options.out if options.out is not None else Path("runs") / args.paper
    items = list(PAPERS[args.paper](options, out))
    steps = [item.step for item in items if not item.missing]
    for item in items:
        if item.missing:
            print(item.missing, file=sys.stderr)
    if not steps:
        raise ClueError(f"{options.data} has no data of {args.paper} (docs/papers.md)")
    if options.plan:
        print(plan_text(args.paper, options, steps))
        return 0
    if options.ray is None:
        run_steps(steps, out / "steps.json")
    else:
        cluster = RaySettings(options.ray, options.ray_workers, options.ray_gpus)
        run_on_ray(steps, out / "steps.json", cluster)
    for step in steps:
        if step.saved is not None:
            print(f"{step.saved}: {step.title}")
    return 0


def plan_text(paper: str, options: ReproduceOptions, steps: list[Step]) -> str:
    """The steps with their commands; of the trainings memory and time, by arithmetic."""
    lines = []
    for number, step in enumerate(steps, start=1):
        lines += [f"{number}. {step.title}", *(f"   {line}" for line in step.lines)]
    works = workloads(paper, options)
    if works:
        header, *rows = table_of(sizes_of(options.model), works)
        lines += ["", "Estimates by arithmetic, not measured, for the trainings:", ""]
        lines += [table(header, rows)]
    return "\n".join(lines)


def workloads(paper: str, options: ReproduceOptions) -> dict[str, Workload]:
    """Return the workloads of a paper's trainings, all seeds of a variant together."""
    if paper == "wrapper":
        return {}
    works: dict[str, Workload] = {}
    if paper == "clue":
        names = (name for name in TABLE_1 if name in VARIANTS)
        works = {name: options.detector_workload(name, options.seeds) for name in names}
    if paper in ("clue", "invig"):
        works["adapter B"] = options.ivg_workload
    return works


# -------------------------------------------------------------------------------------------------
# The papers.


def _made(name: str, title: str, words: Words) -> Item:
    """Return a step that makes missing data; a later run finds them and has no such step."""
    return Item(Step(name, title, (words,), after=(), every_time=True))


def _scenes(options: ReproduceOptions) -> Iterator[Item]:
    """Dataset 1's scenes, and those of another world to measure on."""
    folder = options.data / "tabletop"
    made = ("data", "tabletop", "--out", str(folder))
    count = round(options.scenes * SHARES["test"])
    wanted: dict[str, tuple[str, Words]] = {
        PAPER.name: ("render Dataset 1's scenes", ("--preset", "paper")),
        RICH_UNSEEN.name: (
            "render scenes of another world",
            ("--world", RICH_UNSEEN.name, "--split", "test"),
        ),
    }
    for world, (title, more) in wanted.items():
        if not list_shards(folder, "test", world):
            number = options.scenes if world == PAPER.name else count
            yield _made(f"scenes {world}", title, (*made, *more, "--scenes", str(number)))


def _few(options: ReproduceOptions) -> Words:
    return () if options.limit is None else ("--limit", str(options.limit))


def _trained(options: ReproduceOptions, work: Workload) -> Words:
    """Options of a training so that a step fits this machine."""
    words = ("--base-dtype", options.base_dtype, "--gradient-checkpointing")
    return (*words, "--accumulate", str(options.parts(work)), "--device", options.device)


def _clue(options: ReproduceOptions, out: Path) -> Iterator[Item]:
    """CLUE: Tables I to III, Figures 5, 7 and 8."""
    results, scenes = out / "results", str(options.data / "tabletop")
    detectors, base = str(out / "detectors"), ("--model", options.model)
    photos = find_it2p() or options.data / "it2p"
    it2p = ("--it2p", str(photos)) if photos.exists() else ()
    work = workloads("clue", options)["full-full-disambig-ar"]
    test = options.limit or round(options.scenes * SHARES["test"])
    variants = tuple(name for name in TABLE_1 if name in VARIANTS)
    trained: Words = (
        "eval",
        "detectors",
        *base,
        "--detectors",
        detectors,
        *_trained(options, work),
    )
    trained += ("--world", PAPER.name, "--tabletop", scenes, *it2p)
    trained += ("--steps", str(options.detector_steps), "--batch", str(options.detector_batch))
    trained += ("--seeds", str(options.seeds), "--json")
    chat = (("chat",), ("--chat", *options.chat)) if options.chat else ((), ())
    yield from _scenes(options)
    yield Item(
        Step(
            "table 1",
            "Table I: train the detectors and measure them",
            ((*trained, "--test-scenes", str(test), "--only", *variants, *chat[0], *chat[1]),),
            saved=results / "table-1.json",
            after=(f"scenes {PAPER.name}", f"scenes {RICH_UNSEEN.name}"),
        )
    )
    for name, title, folder, closes in (
        ("dataset 2", "Table I on Dataset 2", "dataset2", "`clue label PHOTOS --preset paper`"),
        ("table 2", "Table II", "ambresvlm", "AmbResVLM's pictures as rows, docs/rows.md"),
    ):
        rows = options.data / folder / "rows.jsonl"
        only = variants if folder == "dataset2" else (TABLE_2_VARIANT,)
        words = (*trained, "--rows", str(rows), "--rows-split", "all", "--only", *only)
        saved = results / f"{name.replace(' ', '-')}.json"
        step = Step(name, title, (words,), saved=saved, after=("table 1",))  # it trains them
        yield Item(step, rows, closes)
    layers: Words = ("eval", "layers", *base, "--tabletop", scenes, *it2p, "--world", PAPER.name)
    layers += ("--scenes", str(options.scenes), "--run", str(out / "layers"), "--json")
    layers += ("--device", options.device, "--plot", str(out / "figure-7.png"))
    saved, after = results / "figure-7.json", (f"scenes {PAPER.name}",)
    yield Item(Step("figure 7", "Figure 7", (layers,), saved=saved, after=after))
    shown: Words = (
        "eval",
        "maps",
        str(demo_folder() / "yellow_blocks.png"),
        "get the yellow block",
    )
    shown += (*base, "--device", options.device)
    of_word = {v: f"{detectors}/half-last-{v}-ar/seed0" for v in ("detect", "disambig")}
    pictures = (
        (*shown, "--base", "--blocks", "all", "--out", str(out / "figure-5.png")),
        (*shown, "--detector", of_word["detect"], "--beside", of_word["disambig"],
         "--out", str(out / "figure-8.png")),
    )  # fmt: skip
    yield Item(Step("figures 5 8", "Figures 5 and 8", pictures, after=("table 1",)))
    yield from _guessers(options, out)


def _guessers(options: ReproduceOptions, out: Path) -> Iterator[Item]:
    """Table III: adapter B in three sizes, the last one on the base that was not mixed."""
    needs, source, closes = _invig(options)
    for name, (rank, alpha, mixed) in GUESSERS.items():
        base = options.model if mixed else options.model.replace("-mix-", "-pt-")
        if not mixed and base == options.model:
            continue  # there is no such base of it
        folder = out / f"ivg-{name}"
        words: Words = ("train", "ivg", "--model", base, "--rank", str(rank), "--alpha", str(alpha))
        words += _dialogues(options, folder / "ivg", out / "runs" / f"ivg-{name}")
        measure: Words = (
            "eval",
            "ivg",
            "--model",
            str(folder),
            "--data",
            "invig",
            "--source",
            source,
        )
        measure += ("--device", options.device, "--json", *_few(options))
        title = f"Table III: adapter B, {name}"
        train = Step(f"train {name}", f"{title}, train", (words,), after=())
        yield Item(train, needs, closes)
        saved = out / "results" / f"table-3-{name}.json"
        step = Step(f"table 3 {name}", title, (measure,), saved=saved, after=(train.name,))
        yield Item(step, needs, closes)


def _invig(options: ReproduceOptions) -> tuple[Path | None, str, str]:
    """Return the folder that InViG needs, its source, and the way to get it."""
    folder = options.data / "invig"
    needs = folder if options.invig is None else None
    return needs, options.invig or str(folder), "or --invig jxu124/invig"


def _dialogues(options: ReproduceOptions, out: Path, run: Path) -> Words:
    """Options of a training on InViG's dialogues; none where these are not there."""
    needs, source, _ = _invig(options)
    if needs is not None and not needs.exists():
        return ()
    words: Words = ("--data", "invig", "--invig", source, "--out", str(out), "--run", str(run))
    words += ("--steps", str(options.ivg_steps), "--batch", str(options.ivg_batch))
    return (*words, *_trained(options, options.ivg_workload))


def _invig_tasks(options: ReproduceOptions, out: Path) -> Iterator[Item]:
    """InViG: statistics, then its four tasks by adapter B and the oracle."""
    needs, source, closes = _invig(options)
    results, model = out / "results", ("--model", options.model)
    ivg, oracle = out / "ivg", out / "oracle"
    trained = {"ivg": ivg / "ivg", "oracle": oracle}
    counted: Words = ("data", "stats", source, "--json")
    yield Item(Step("statistics", "its Table I and Figures 4 to 7", (counted,),
                    saved=results / "statistics.json", after=()), needs, closes)  # fmt: skip
    for part, folder in trained.items():
        words = ("train", part, *model, *_dialogues(options, folder, out / "runs" / part))
        yield Item(Step(f"train {part}", f"train {part}", (words,), after=()), needs, closes)
    after = tuple(f"train {part}" for part in trained)
    for task in ("vqa", "vqg", "vg", "ivg"):
        asked: Words = ("eval", "dialogue", "--task", task, "--data", "invig", "--source", source)
        asked += ("--model", str(ivg), "--oracle", str(oracle), "--device", options.device)
        saved = results / f"{task}.json"
        words = (*asked, "--json", *_few(options))
        yield Item(Step(task, f"task {task}", (words,), saved=saved, after=after), needs, closes)


def _wrapper(options: ReproduceOptions, out: Path) -> Iterator[Item]:
    """LLM-wrapper: train on RefCOCOg, measure on every data set that is there."""
    pictures = ("--coco", str(options.data / "coco"))
    trained = out / "wrapper"
    sources: dict[str, Words] = {
        name: ("--refcoco", str(options.data / name), *pictures)
        for name in ("refcocog", "refcoco", "refcoco+")
    }
    sources |= {n: (f"--{n}", str(options.data / n)) for n in ("talk2car", "hcrefloco")}
    boxes: Words = ("--candidates", options.candidates, "--device", options.device)
    needs, closes = options.data / "refcocog", "RefCOCOg's refs, docs/wrapper.md"
    words = ("train", "wrapper", "--language-model", options.model, *sources["refcocog"], *boxes)
    step = Step("train", "train on RefCOCOg", ((*words, "--out", str(trained)),), after=())
    yield Item(step, needs, closes)
    for name, source in sources.items():
        words = ("eval", "rec", *source, *boxes, "--language-model", str(trained), "--json")
        saved = out / "results" / f"{name}.json"
        words = (*words, *_few(options))
        step = Step(name, f"table of {name}", (words,), saved=saved, after=("train",))
        lacks = options.data / name if needs.exists() else needs  # without training no chooser
        yield Item(step, lacks, closes)


def _icseg(options: ReproduceOptions, out: Path) -> Iterator[Item]:
    """IC-Seg: videos with ambiguous requests, simulated ones and those that are there."""
    clips = options.data / "clips"
    if not clips.exists():
        words = ("data", "clips", "--out", str(clips), "--split", "test")
        yield _made("film", "film simulated clips", words)
    layouts = {"clips": "clips", "ambi-rvos": "icseg", "mevis": "mevis", "revos": "revos"}
    for name, layout in layouts.items():
        folder = options.data / name
        asked: Words = ("eval", "rvos", "--data", str(folder), "--layout", layout, "--json")
        asked += ("--model", options.model, "--device", options.device, *_few(options))
        saved = out / "results" / f"{name}.json"
        after = ("film",) if name == "clips" else ()
        step = Step(name, f"videos of {name}", (asked,), saved=saved, after=after)
        yield Item(step, None if name == "clips" else folder, "its authors' files, docs/icseg.md")


PAPERS: dict[str, Callable[[ReproduceOptions, Path], Iterator[Item]]] = {
    "clue": _clue,
    "invig": _invig_tasks,
    "wrapper": _wrapper,
    "icseg": _icseg,
}
