"""Table I (section IV-A.3): every ambiguity detector, in domain and out of domain.

In domain: held-out simulated scenes and IT2P photographs, at most two clear and two ambiguous
requests for an image. Out of domain: a simulated world (of --world rich "rich-unseen", of table
"table-unseen") with tables, light and a lens that training never had. With --rows instead: labelled
photographs from anywhere (docs/rows.md). Each trained variant has one folder for each seed,
DETECTORS/VARIANT/seedN, and is trained first if that is missing; its threshold was chosen on
validation data. "own" is the detector in the model's own folder, or the one that --detector names.
The baselines need no training and decide at 0.5; so do the chat models of --chat, each asked in two
ways (`chat_baselines`).

Probabilities are kept in DETECTORS/predictions: a second run computes only those that have changed.
With --markdown the published figures of the paper stand beside ours.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import multiprocessing
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from clue_ros.errors import ClueError
from clue_ros.lab.data.rows import load_rows
from clue_ros.lab.evaluation.chat_baselines import QUESTION, ChatBaseline
from clue_ros.lab.evaluation.in_domain import (
    LabelledImage,
    digest,
    labelled_images,
    optional_it2p,
    require_scenes,
)
from clue_ros.lab.evaluation.it2p import it2p_samples
from clue_ros.lab.evaluation.options import DataOptions, RecordsOptions, WeightsOptions, note
from clue_ros.lab.evaluation.tabletop import tabletop_samples
from clue_ros.lab.metrics import (
    DECISION_METRICS,
    Calibration,
    Counts,
    auroc,
    calibration,
    count,
    rounded,
)
from clue_ros.lab.options import FIGURE, add_options, add_recipe, at_least, option, read_options
from clue_ros.lab.published import TABLE_1, TABLE_2
from clue_ros.lab.report import plot_reliability, spread, table, with_progress
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, RICH_UNSEEN, WORLDS
from clue_ros.lab.training.detector import (
    EMBEDDED,
    DetectorOptions,
    DetectorRecipe,
    train_detector,
)
from clue_ros.lab.training.parallel import Processes
from clue_ros.model.backbone import DETECTOR, IVG
from clue_ros.model.checkpoint import existing_folder, load_checkpoint, open_detector
from clue_ros.model.detector import Detector
from clue_ros.model.detector_baselines import BASELINES, FIRST_TOKEN
from clue_ros.model.detector_variants import VARIANTS
from clue_ros.model.loading import find_base, find_model, fingerprint, read_json, replacing

OWN = "own"  # the detector in the model's own folder
CHAT = "chat"  # the models of --chat
BASE_ONLY = "candidate-count"  # a detector without weights of its own
ROWS = "rows"  # the domain of --rows
TABLE_2_VARIANT = "half-full-disambig-ar"
TABLE_2_METRICS = ("acc.", "prec.", "rec.", "F1")
SHORT_NAMES = {"in_domain": "in", "out_of_domain": "out", ROWS: "rows"}

PUBLISHED_NOTE = (
    "Lines with (paper) are the published figures, on other data: Dataset 1 (in) has Isaac Sim"
    " scenes and IT2P, Dataset 2 (out, and beside --rows) has 100 photographs of InViG."
)


@dataclass(frozen=True)
class DetectorEntry:
    """One detector: the folder of a variant and seed, or a baseline (no seed, no folder)."""

    name: str
    seed: int | None = None
    folder: Path | None = None

    @property
    def label(self) -> str:
        """A unique name, fit for files and adapters."""
        name = re.sub(r"[^\w.-]+", "-", self.name)
        return name if self.seed is None else f"{name}-seed{self.seed}"


@dataclass(frozen=True)
class Domain:
    """The test images of one domain, flattened to sentences."""

    images: Sequence[LabelledImage]

    @classmethod
    def of_rows(cls, path: Path, split: str) -> Domain:
        """The photographs of a split of a file of rows; prints the rows left out on stderr."""
        rows = load_rows(path)
        note(rows.problems)
        images = [
            LabelledImage(
                f"{ROWS} {image.split} {image.path.name} {image.id[:12]}",
                ROWS,
                image.split,
                image.load,
                tuple((s.text, s.ambiguous) for s in image.sentences),
            )
            for image in rows.select(split)
        ]
        if not images:
            raise ClueError(f"{path} has no photograph of the split {split}: give --rows-split")
        return cls(images)

    @cached_property
    def labels(self) -> list[bool]:
        """The label of each sentence: True if it is ambiguous."""
        return [label for image in self.images for _, label in image.sentences]

    @cached_property
    def sources(self) -> list[str]:
        """The source of each sentence's image."""
        return [image.source for image in self.images for _ in image.sentences]


@dataclass(frozen=True)
class DetectorResult:
    """A detector's probabilities for the sentences of each domain."""

    detector: DetectorEntry
    threshold: float
    probabilities: Mapping[str, Sequence[float]]


class Table1:
    """All results, grouped by detector in the order they came; several seeds form one row."""

    def __init__(self, results: Sequence[DetectorResult], domains: Mapping[str, Domain]) -> None:
        self.domains = domains
        self._rows: dict[str, list[DetectorResult]] = {}
        for result in results:
            self._rows.setdefault(result.detector.name, []).append(result)

    def counts(self, result: DetectorResult, domain: str, source: str | None = None) -> Counts:
        """Truth against decision, for a domain or one of its sources."""
        data = self.domains[domain]
        rows = zip(data.labels, result.probabilities[domain], data.sources, strict=True)
        return count((label, p >= result.threshold) for label, p, s in rows if source in (None, s))

    def calibration(self, result: DetectorResult, domain: str) -> Calibration:
        """Calibration of the probabilities in a domain."""
        return calibration(result.probabilities[domain], self.domains[domain].labels)

    def auroc(self, result: DetectorResult, domain: str) -> float:
        """Area under the ROC curve of the probabilities in a domain."""
        return auroc(result.probabilities[domain], self.domains[domain].labels)

    def calibrations(self, domain: str) -> dict[str, Calibration]:
        """The calibration of each detector's first seed, by title."""
        return {title(name): self.calibration(r[0], domain) for name, r in self._rows.items()}

    def summary(self) -> dict[str, Any]:
        """As ``clue eval detectors --json`` prints it."""
        return {
            "n": {name: len(domain.labels) for name, domain in self.domains.items()},
            "detectors": [
                {"name": name, "title": title(name), "seeds": [self._seed(r) for r in results]}
                for name, results in self._rows.items()
            ],
        }

    def _seed(self, result: DetectorResult) -> dict[str, Any]:
        out: dict[str, Any] = {"seed": result.detector.seed, "threshold": result.threshold}
        for name, domain in self.domains.items():
            out[name] = {
                **self.counts(result, name).summary(),
                "n": len(domain.labels),
                "by_source": {
                    source: self.counts(result, name, source).summary()
                    for source in sorted(set(domain.sources))
                },
                "auroc": rounded(self.auroc(result, name)),
                "calibration": self.calibration(result, name).summary(),
            }
        return out

    def text(self, *, markdown: bool = False) -> str:
        """Table I's layout: mean and standard deviation over seeds; in Markdown the paper's too."""
        header = ["detector"]
        for domain in self.domains:
            names = ("acc.", "prec.", "rec.", "F1", "AUROC", "ECE")
            header += [f"{SHORT_NAMES[domain]} {name}" for name in names]
        lines: list[list[str]] = []
        for name, results in self._rows.items():
            cells = [title(name)]
            for domain in self.domains:
                columns = [
                    [float(getattr(self.counts(r, domain), metric)) for r in results]
                    for metric in DECISION_METRICS
                ]
                columns.append([self.auroc(r, domain) for r in results])
                columns.append([self.calibration(r, domain).ece for r in results])
                cells += [spread(values, markdown=markdown) for values in columns]
            lines.append(cells)
            if markdown and name in TABLE_1:
                lines.append(self._published(name))
        if not markdown:
            return table(header, lines)
        lines += [self._published(name) for name in TABLE_1 if name not in VARIANTS]
        known: list[list[Any]] = [
            [f"{name} (paper)", *simulated, *real] for name, (simulated, real) in TABLE_2.items()
        ]
        if ROWS in self.domains and TABLE_2_VARIANT in self._rows:
            measured = [self.counts(r, ROWS) for r in self._rows[TABLE_2_VARIANT]]
            ours = [
                spread([float(getattr(c, metric)) for c in measured], markdown=True)
                for metric in DECISION_METRICS
            ]
            known.append([f"{title(TABLE_2_VARIANT)}, on --rows", *[None] * len(ours), *ours])
        titles = [f"{place} {name}" for place in ("sim", "real") for name in TABLE_2_METRICS]
        second = table(["Table II", *titles], known, markdown=True)
        return "\n\n".join([table(header, lines, markdown=True), PUBLISHED_NOTE, second])

    def _published(self, name: str) -> list[str]:
        in_domain, out_of_domain = TABLE_1[name]
        # rows may be anything; the paper's nearest is its set of real photographs
        by_domain = {"in_domain": in_domain, "out_of_domain": out_of_domain, ROWS: out_of_domain}
        figures = [[f"{v:.3f}" for v in by_domain[domain]] + ["-", "-"] for domain in self.domains]
        return [f"{title(name)} (paper)", *(cell for cells in figures for cell in cells)]

    def records(self) -> Iterator[dict[str, Any]]:
        """One record for each detector and sentence."""
        for result in (result for results in self._rows.values() for result in results):
            for name, domain in self.domains.items():
                asked = [(i, text, label) for i in domain.images for text, label in i.sentences]
                for (image, text, label), p in zip(asked, result.probabilities[name], strict=True):
                    yield {
                        "detector": result.detector.label,
                        "domain": name,
                        "image": image.name,
                        "text": text,
                        "ambiguous": label,
                        "probability": p,
                        "right": (p >= result.threshold) == label,
                    }


def title(name: str) -> str:
    """The paper's name of a variant; other names as they are."""
    return VARIANTS[name].title if name in VARIANTS else name


# -------------------------------------------------------------------------------------------------
# The detectors' probabilities, computed on one backbone and kept on disk.


def kept(folder: Path, label: str, made_from: str, ask: Callable[[], list[float]]) -> list[float]:
    """Probabilities from the folder, or asked for now and kept there. made_from: hex SHA-256."""
    path = folder / f"{label}-{made_from[:16]}.json"
    if not path.is_file():
        chances = [round(chance, 6) for chance in ask()]
        folder.mkdir(parents=True, exist_ok=True)
        content = {"detector": label, "made_from": made_from, "probabilities": chances}
        with replacing(path) as partial:
            partial.write_text(json.dumps(content), encoding="utf-8")
    return [float(chance) for chance in read_json(path)["probabilities"]]


def ask_chat(
    chat: ChatBaseline, domains: Mapping[str, Domain], folder: Path, dtype: str
) -> Iterator[DetectorResult]:
    """Return a chat model's generated answers and their likelihoods, for every domain."""
    for way in ("generated", "likelihood"):
        entry = DetectorEntry(f"{chat.name} ({way})")

        def ask(domain: Domain, way: str = way) -> list[float]:
            answer = getattr(chat.model, way)
            images = with_progress(domain.images)
            asked = ((image.load(), [text for text, _ in image.sentences]) for image in images)
            return [chance for picture, texts in asked for chance in answer(picture, texts)]

        found = {}
        for name, domain in domains.items():
            known = f"{entry.label} {digest(domain.images)} {chat.digest} {dtype} {QUESTION}"
            made_from = hashlib.sha256(known.encode()).hexdigest()
            found[name] = kept(folder, entry.label, made_from, partial(ask, domain))
        yield DetectorResult(entry, 0.5, found)


class Predictor:
    """One model in memory; each detector is opened as one more adapter of it."""

    def __init__(self, model: WeightsOptions, folder: Path) -> None:
        self._name, self._head, self._folder = model.model, model.head, folder
        # A baseline as its detector: the folder may be a bare base, with no adapter at all.
        # torch runs every variant, the autoregressive ones too.
        given = {**vars(model), "detector": BASE_ONLY, "backend": "torch"}
        self._checkpoint = load_checkpoint(**given)
        self._open: dict[DetectorEntry, Detector] = {}

    def measured(self) -> dict[str, Any]:
        """The model, as `clue_ros.lab.evaluation.options.measured` describes it."""
        found = self._checkpoint
        about = {"dtype": found.backbone.dtype, "device": found.backbone.device}
        return {"model": self._name, "sha256": found.digest, **about}

    def result(self, entry: DetectorEntry, domains: Mapping[str, Domain]) -> DetectorResult:
        """The detector's probabilities for every domain, from the folder or computed now."""
        probabilities = {
            name: self._probabilities(entry, domain.images) for name, domain in domains.items()
        }
        threshold = float(self._detector(entry).settings.threshold)
        return DetectorResult(entry, threshold, probabilities)

    def _probabilities(self, entry: DetectorEntry, images: Sequence[LabelledImage]) -> list[float]:
        def ask() -> list[float]:
            detector = self._detector(entry)
            asked = ((i, [text for text, _ in i.sentences]) for i in with_progress(images))
            judged = (self._checkpoint.chances(detector, i.load(), texts) for i, texts in asked)
            return [chance for chances in judged for chance in chances]

        return kept(self._folder, entry.label, self._made_from(entry, images), ask)

    def _detector(self, entry: DetectorEntry) -> Detector:
        if entry not in self._open:
            parts = self._checkpoint
            self._open[entry] = open_detector(
                parts.backbone,
                parts.processor,
                entry.folder or entry.name,
                adapter=entry.label,
                head=self._head,
            )
        return self._open[entry]

    def _made_from(self, entry: DetectorEntry, images: Sequence[LabelledImage]) -> str:
        """Return the hex SHA-256 of all inputs of the probabilities."""
        parts = self._checkpoint
        known = f"{entry.label} {digest(images)} {parts.fingerprint()} {parts.backbone.dtype}"
        sha = hashlib.sha256(known.encode())
        for path in sorted(entry.folder.iterdir()) if entry.folder is not None else []:
            if path.suffix in (".json", ".safetensors"):
                sha.update(path.name.encode() + path.read_bytes())
        return sha.hexdigest()


# -------------------------------------------------------------------------------------------------
# The command.


@dataclass(frozen=True, kw_only=True)
class MissingOptions(DetectorRecipe):
    """Options: the training of missing detectors, as by `clue train detector`."""

    no_train: bool = option(False, "leave missing detectors out instead of training them")
    jobs: int = option(
        1, "missing detectors that are trained at once, each on a GPU of its own", type=at_least(1)
    )
    steps: int = option(200, "training steps of a missing detector")
    scenes: int | None = option(None, "number of training scenes; default: all")
    threads: int = option(0, "number of CPU threads for training; 0: PyTorch's own choice")


@dataclass(frozen=True, kw_only=True)
class Table1Options(DataOptions):
    """The options of ``clue eval detectors``."""

    unseen: Path | None = option(
        None,
        "folder of the test scenes out of domain; default: that of --tabletop",
        metavar="DIR",
    )
    world: str = option(
        DEFAULT_WORLD, "simulated world of training and in domain", choices=tuple(WORLDS)
    )
    test_scenes: int = option(300, "number of test scenes of each world", type=at_least(1))
    rows: Path | None = option(
        None, "measure on a file of labelled photographs instead (docs/rows.md)", metavar="FILE"
    )
    rows_split: str = option("test", "split of --rows", choices=("train", "val", "test", "all"))
    model: WeightsOptions
    detectors: Path = option(
        Path("runs/detectors"), "folder of the trained detectors", metavar="DIR"
    )
    only: tuple[str, ...] | None = option(
        None, "variants, baselines, own or chat; default: all", type=str, nargs="+", metavar="NAME"
    )
    chat: tuple[str, ...] = option(
        (),
        "chat models to ask without training: hub ids or folders of image-text-to-text models,"
        " such as google/gemma-3-4b-it",
        nargs="+",
        metavar="HUB-ID",
    )
    seeds: int = option(3, "number of seeds of each variant", type=at_least(1))
    missing: MissingOptions
    output: RecordsOptions
    calibration: Path | None = option(
        None, "draw reliability diagrams", type=FIGURE, metavar="FILE.png"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval detectors``."""
    add_options(parser, Table1Options)
    recipe = {name: EMBEDDED[name] for name in ("lr", "head_lr", "final_rate", "loss")}
    add_recipe(parser, embedded={**recipe, "head_batches": 120})


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval detectors``; the exit status."""
    options = read_options(Table1Options, args)
    known = [*VARIANTS, OWN, *BASELINES, CHAT]
    unknown = [name for name in options.only or () if name not in known]
    if unknown:
        raise ClueError(f"no detector {unknown[0]!r}: choose of {', '.join(known)}")
    domains = load_domains(options)
    names = options.only or known
    entries = find_detectors(options, [name for name in names if name != CHAT])
    if not entries and not (options.chat and CHAT in names):
        raise ClueError(f"no detector in {options.detectors}: leave out --no-train")
    folder, about = options.detectors / "predictions", dict[str, Any]()
    results: list[DetectorResult] = []
    if entries:
        predictor = Predictor(options.model, folder)
        results, about = [predictor.result(e, domains) for e in entries], predictor.measured()
        del predictor  # its memory is the chat models'
    model = options.model
    settings = {"device": model.device, "dtype": model.dtype, "quantization": model.quantization}
    for name in options.chat if CHAT in names else ():
        chat = ChatBaseline(name, **settings)
        results += ask_chat(chat, domains, folder, f"{model.dtype} {model.quantization}")
        about.setdefault("chat", {})[name] = chat.digest
    about.setdefault("dtype", model.dtype)
    table1 = Table1(results, domains)
    if options.calibration is not None:
        first = next(iter(domains))
        drawn = table1.calibrations(first)
        plot_reliability(options.calibration, drawn, first.replace("_", " "))
    options.output.write_records(table1.records())
    options.output.show(table1.summary(), lambda markdown: table1.text(markdown=markdown), about)
    return 0


def load_domains(options: Table1Options) -> dict[str, Domain]:
    """The test images of both domains, or of `--rows`.

    Without IT2P, in domain has simulated scenes alone.
    """
    if options.rows is not None:
        return {ROWS: Domain.of_rows(options.rows, options.rows_split)}
    count, per_image = options.test_scenes, options.per_image
    scenes = require_scenes(options.tabletop, "test", count, options.world)
    photos = optional_it2p(options.it2p)
    samples = tabletop_samples(scenes, options.world, per_image=per_image)
    known = labelled_images(samples, "tabletop", "test")
    if photos is not None:
        samples = it2p_samples(photos, split="test", per_image=per_image)
        known += labelled_images(samples, "it2p", "test")
    world = unseen_world(options.world)
    scenes = require_scenes(options.unseen or options.tabletop, "test", count, world)
    samples = tabletop_samples(scenes, world, per_image=per_image)
    unseen = labelled_images(samples, world, "test")
    return {"in_domain": Domain(known), "out_of_domain": Domain(unseen)}


def unseen_world(world: str) -> str:
    """The world out of domain for detectors of a world."""
    return f"{world}-unseen" if f"{world}-unseen" in WORLDS else RICH_UNSEEN.name


def find_detectors(options: Table1Options, names: Sequence[str]) -> list[DetectorEntry]:
    """The detectors of these names; missing ones are trained, or left out with --no-train."""
    folder = find_model(options.model.model)
    base = find_base(folder)
    own = options.model.detector
    if own in BASELINES:
        raise ClueError(f"--detector {own} is a baseline: name it with --only")
    own_folder = folder / DETECTOR if own is None else existing_folder(own, "a detector")
    variants = {*names} - {*BASELINES, OWN}
    base_digest = fingerprint(base) if variants else ""  # reads gigabytes
    entries: list[DetectorEntry] = []
    seeds = {
        name: [
            DetectorEntry(name, seed, options.detectors / name / f"seed{seed}")
            for seed in range(options.seeds)
        ]
        for name in names
        if name in variants
    }
    missing = [e for found in seeds.values() for e in found if not _is_there(e)]
    if not options.missing.no_train:
        trainings = [_training(options, entry, base) for entry in missing]
        train_all(trainings, options.missing.jobs)
    for name in names:
        if name == FIRST_TOKEN and not (folder / IVG).is_dir():
            print(f"left out: {FIRST_TOKEN} needs adapter B", file=sys.stderr)
        elif name in BASELINES:
            entries.append(DetectorEntry(name))
        elif name == OWN and own_folder.is_dir():
            entries.append(DetectorEntry(OWN, folder=own_folder))
        for entry in seeds.get(name, ()):
            if _is_there(entry):
                _check_origin(options, entry, base_digest)
                entries.append(entry)
            else:
                print(f"left out: {entry.folder} is not trained", file=sys.stderr)
    return entries


def _is_there(entry: DetectorEntry) -> bool:
    assert entry.folder is not None
    return (entry.folder / "detector.json").is_file()


def _training(options: Table1Options, entry: DetectorEntry, base: Path) -> DetectorOptions:
    """Return the training options of a missing detector."""
    assert entry.folder is not None
    left_out = ("no_train", "jobs")
    recipe = {name: value for name, value in vars(options.missing).items() if name not in left_out}
    return DetectorOptions(
        variant=entry.name,
        seed=entry.seed or 0,
        model=str(base),
        out=entry.folder,
        run=options.detectors / "runs" / entry.label,
        tabletop=options.tabletop,
        world=options.world,
        it2p=options.it2p,
        device=options.model.device,
        **recipe,
    )


def train_all(trainings: Sequence[DetectorOptions], jobs: int) -> None:
    """Train detectors, `jobs` at a time in separate processes, each with a GPU if there is one."""
    if jobs == 1 or len(trainings) < 2:
        for training in trainings:
            _train(training)
        return
    context = multiprocessing.get_context("spawn")
    places = context.Queue()
    for number in range(jobs):
        places.put(number)
    # Only the processes touch CUDA: the parent counts its devices.
    given = (places, gpu_names())
    with ProcessPoolExecutor(jobs, context, initializer=_take_gpu, initargs=given) as pool:
        for _ in pool.map(_train, trainings):
            pass


def gpu_names() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name]
    return [str(number) for number in range(torch.cuda.device_count())]


def _take_gpu(places: Any, gpus: Sequence[str]) -> None:
    number = places.get()
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)]


def _train(training: DetectorOptions) -> None:
    with contextlib.redirect_stdout(sys.stderr):  # the table alone goes to stdout
        train_detector(training, Processes(training.start_device(), training.precision))


def _check_origin(options: Table1Options, entry: DetectorEntry, base_digest: str) -> None:
    """Refuse a detector of another base or, unless --no-train is given, of another recipe.

    Settings that an older detector does not record are not compared.
    """
    assert entry.folder is not None
    recorded = read_json(entry.folder / "detector.json").get("training", {})
    wanted: dict[str, object] = {"fingerprint": base_digest}
    if not options.missing.no_train:
        keys = ("steps", "batch", "lr", "head_lr", "final_rate", "loss", "look_weight")
        wanted |= {key: getattr(options.missing, key) for key in (*keys, "base_dtype")}
        wanted["world"] = options.world
    other = [key for key, value in wanted.items() if key in recorded and recorded[key] != value]
    if other:
        names = ", ".join(other).replace("fingerprint", "base")
        raise ClueError(
            f"{entry.folder} was trained with another {names}: give another --detectors folder"
        )
