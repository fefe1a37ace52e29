"""``clue eval detectors``: Table I (section IV-A.3), every detector in domain and out of domain.

In domain: held-out simulated scenes and IT2P photographs, at most two clear and two ambiguous
commands an image. Out of domain: a simulated world with objects, table and camera that training
never had. Each trained variant is one folder a seed, DETECTORS/VARIANT/seedN, trained first if it
is missing; its threshold is the one that was chosen on validation data when it was trained. "own"
is the detector in the model's own folder. The baselines, which need no training, decide at 0.5.

Probabilities are kept in DETECTORS/predictions: a second run measures only what has changed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from clue_ros.dialogue.types import clean_text
from clue_ros.errors import ClueError
from clue_ros.lab.data.it2p import find_it2p, load_it2p
from clue_ros.lab.evaluation.it2p import it2p_samples
from clue_ros.lab.evaluation.metrics import (
    Calibration,
    Counts,
    calibration,
    count,
    plot_reliability,
)
from clue_ros.lab.evaluation.protocol import Sample, require_folder, write_records
from clue_ros.lab.evaluation.report import figure_path, spread, table
from clue_ros.lab.evaluation.tabletop import tabletop_samples
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.shards import SPLITS, how_to_make, read_scenes
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD
from clue_ros.model.checkpoint import load_checkpoint, open_detector
from clue_ros.model.detector import Detector
from clue_ros.model.loading import add_model_argument, replacing

# -------------------------------------------------------------------------------------------------
# The in-domain data of section IV-A (the paper's Dataset 1): simulated scenes and IT2P together.

SHARES = {"train": 0.70, "val": 0.15, "test": 0.15}
SOURCES = ("tabletop", "it2p")


@dataclass(frozen=True)
class Picture:
    """One image and its sentences, each with whether it is ambiguous.

    source: one of SOURCES; split: train, val or test; load: gives uint8 RGB (H, W, 3).
    """

    name: str
    source: str
    split: str
    load: Callable[[], npt.NDArray[np.uint8]]
    sentences: tuple[tuple[str, bool], ...]


def add_in_domain_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where the data is and how much of it is used."""
    parser.add_argument(
        "--tabletop", type=Path, default=DEFAULT_FOLDER, metavar="DIR", help="simulator shards"
    )
    parser.add_argument(
        "--it2p", type=Path, metavar="DIR", help="IT2P; default: where CLUE_IT2P says, else none"
    )
    parser.add_argument(
        "--scenes", type=int, default=1000, metavar="N", help="simulated scenes, all splits (1000)"
    )
    parser.add_argument(
        "--per-image", type=int, default=2, metavar="N", help="sentences of each kind an image (2)"
    )


def load_in_domain(args: argparse.Namespace) -> list[Picture]:
    """Every picture of the data that `args` names, train, then val, then test.

    Raises ClueError (no scenes, a damaged shard, no data at all) and says on stderr when there is
    no IT2P.
    """
    if args.scenes < 0 or args.per_image < 1:
        raise ClueError("--scenes must be 0 or more and --per-image 1 or more")
    root = args.it2p if args.it2p is not None else find_it2p()
    if root is None:
        print("IT2P not found (set CLUE_IT2P): simulated scenes alone", file=sys.stderr)
    photos = load_it2p(root) if root is not None else None
    pictures: list[Picture] = []
    for split in SPLITS:
        scenes = read_split(args.tabletop, split, round(args.scenes * SHARES[split]))
        samples = tabletop_samples(scenes, per_image=args.per_image)
        pictures += as_pictures(samples, "tabletop", split)
        if photos is not None:
            samples = it2p_samples(photos, split=split, per_image=args.per_image)
            pictures += as_pictures(samples, "it2p", split)
    if not pictures:
        raise ClueError("nothing to learn from: give --scenes above 0 or an IT2P folder")
    return pictures


def read_split(folder: Path, split: str, count: int, world: str = DEFAULT_WORLD) -> list[Scene]:
    """The first `count` simulated scenes of a world's split.

    ClueError if there are fewer, or damaged.
    """
    if count == 0:
        return []
    try:
        scenes = list(read_scenes(folder, split, count, world))
    except (FileNotFoundError, ValueError) as error:
        raise ClueError(str(error)) from error
    if len(scenes) < count:
        raise ClueError(
            f"{folder} has {len(scenes)} {split} scenes, {count} are wanted:"
            f" {how_to_make(folder, split, count, world)}"
        )
    return scenes


def as_pictures(samples: Sequence[Sample], source: str, split: str) -> list[Picture]:
    """Samples as pictures with their sentences; one without any is left out."""
    found = []
    for sample in samples:
        sentences = [(clean_text(request.text), False) for request in sample.clear]
        sentences += [(clean_text(text), True) for text in sample.ambiguous]
        if sentences:
            name = f"{source} {split} {sample.name}"
            found.append(Picture(name, source, split, sample.load, tuple(sentences)))
    return found


def digest(pictures: Sequence[Picture]) -> str:
    """Hex SHA-256 of which sentences are asked of which picture, in which order.

    A simulated scene's sentences follow from all its objects, so another scene has another digest.
    """
    rows = [(p.name, p.source, p.split, p.sentences) for p in pictures]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


# -------------------------------------------------------------------------------------------------
# Table I from probabilities: accuracy, precision, recall, F1 of each detector in each domain.

METRICS = ("accuracy", "precision", "recall", "f1")


@dataclass(frozen=True)
class Trained:
    """One detector: a variant's folder of one seed, or a baseline (no seed, no folder)."""

    name: str
    seed: int | None
    folder: Path | None

    @property
    def label(self) -> str:
        """A name of its own, fit for files and adapters."""
        return self.name if self.seed is None else f"{self.name}-seed{self.seed}"


@dataclass(frozen=True)
class Judged:
    """A detector's probabilities per domain, beside the truth and where each picture is from."""

    detector: Trained
    threshold: float
    chances: Mapping[str, Sequence[float]]
    labels: Mapping[str, Sequence[bool]]
    sources: Mapping[str, Sequence[str]]

    def counts(self, domain: str, source: str | None = None) -> Counts:
        """Truth against decision, of all pictures of a domain or of one source."""
        rows = zip(self.labels[domain], self.chances[domain], self.sources[domain], strict=True)
        return count((label, p >= self.threshold) for label, p, s in rows if source in (None, s))

    def calibration(self, domain: str) -> Calibration:
        """How far its probabilities are off in a domain."""
        return calibration(self.chances[domain], self.labels[domain])


class TableOne:
    """All detectors, grouped by name in the order they came."""

    def __init__(self, judged: Sequence[Judged]) -> None:
        self._rows: dict[str, list[Judged]] = {}
        for row in judged:
            self._rows.setdefault(row.detector.name, []).append(row)

    @property
    def domains(self) -> list[str]:
        """Those that were measured."""
        return list(next(iter(self._rows.values()))[0].chances)

    def summary(self) -> dict[str, Any]:
        """As ``clue eval detectors --json`` prints it."""
        first = next(iter(self._rows.values()))[0]
        return {
            "n": {domain: len(labels) for domain, labels in first.labels.items()},
            "detectors": [
                {"name": name, "title": title(name), "seeds": [self._seed(r) for r in rows]}
                for name, rows in self._rows.items()
            ],
        }

    def _seed(self, row: Judged) -> dict[str, Any]:
        out: dict[str, Any] = {"seed": row.detector.seed, "threshold": row.threshold}
        for domain in row.chances:
            figures = _metrics(row.counts(domain)) | {"n": len(row.labels[domain])}
            by_source = {
                source: _metrics(row.counts(domain, source))
                for source in sorted(set(row.sources[domain]))
            }
            errors = row.calibration(domain).summary()
            out[domain] = figures | {"by_source": by_source, "calibration": errors}
        return out

    def text(self, *, markdown: bool = False) -> str:
        """Table I's layout: four figures a domain, mean and standard deviation over seeds."""
        short = {"in_domain": "in", "out_of_domain": "out"}
        names = {"accuracy": "acc.", "precision": "prec.", "recall": "rec.", "f1": "F1"}
        header = ["detector"]
        for domain in self.domains:
            header += [f"{short[domain]} {names[m]}" for m in METRICS] + [f"{short[domain]} ECE"]
        lines: list[list[str]] = []
        for name, rows in self._rows.items():
            cells = [title(name)]
            for domain in self.domains:
                counts = [row.counts(domain) for row in rows]
                cells += [
                    spread([float(getattr(c, m)) for c in counts], markdown=markdown)
                    for m in METRICS
                ]
                cells.append(
                    spread([row.calibration(domain).ece for row in rows], markdown=markdown)
                )
            lines.append(cells)
        return table(header, lines, markdown=markdown)

    def calibrations(self, domain: str) -> dict[str, Calibration]:
        """The first seed of each detector, by title."""
        return {title(name): rows[0].calibration(domain) for name, rows in self._rows.items()}

    def records(self, pictures: Mapping[str, Sequence[Picture]]) -> Iterator[dict[str, Any]]:
        """One row a detector and sentence."""
        for rows in self._rows.values():
            for row in rows:
                for domain, shown in pictures.items():
                    asked = [(p, text, label) for p in shown for text, label in p.sentences]
                    for (picture, text, label), chance in zip(
                        asked, row.chances[domain], strict=True
                    ):
                        yield {
                            "detector": row.detector.label,
                            "domain": domain,
                            "image": picture.name,
                            "text": text,
                            "ambiguous": label,
                            "probability": chance,
                            "right": (chance >= row.threshold) == label,
                        }


def title(name: str) -> str:
    """The paper's name of a variant; other names as they are."""
    from clue_ros.model.detector_variants import VARIANTS

    return VARIANTS[name].title if name in VARIANTS else name


def _metrics(counts: Counts) -> dict[str, float]:
    return {name: round(float(getattr(counts, name)), 4) for name in METRICS}


DOMAINS = ("in_domain", "out_of_domain")
NOVEL = "novel"  # the world that training never has
BASE = "fingerprint"  # of the base, in a detector's recipe
OWN = "own"  # the detector in the model's own folder


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval detectors``."""
    data = parser.add_argument_group("data")
    data.add_argument("--tabletop", type=Path, default=DEFAULT_FOLDER, metavar="DIR")
    data.add_argument("--it2p", type=Path, metavar="DIR", help="IT2P; default: $CLUE_IT2P")
    data.add_argument(
        "--novel",
        type=Path,
        metavar="DIR",
        help="folder of the novel world's test scenes; default: that of --tabletop",
    )
    data.add_argument("--test-scenes", type=int, default=300, metavar="N", help="of each world")
    data.add_argument("--per-image", type=int, default=2, metavar="N", help="of each kind (2)")
    what = parser.add_argument_group("detectors")
    add_model_argument(what)
    what.add_argument("--device", default="auto", help="auto, cpu or cuda")
    what.add_argument(
        "--detectors", type=Path, default=Path("runs/detectors"), metavar="DIR", help="their folder"
    )
    what.add_argument("--only", nargs="+", metavar="NAME", help="variants, baselines, own; all")
    what.add_argument("--seeds", type=int, default=3, metavar="N", help="of each variant (3)")
    training = parser.add_argument_group("training of what is missing (see clue train detector)")
    training.add_argument("--no-train", action="store_true", help="leave out what is missing")
    training.add_argument("--steps", type=int, default=200)
    training.add_argument("--batch", type=int, default=12)
    training.add_argument("--lr", type=float, default=7e-4)
    training.add_argument("--base-dtype", choices=("float32", "bfloat16"), default="float32")
    training.add_argument("--head-batches", type=int, default=120)
    training.add_argument("--scenes", type=int, default=None, help="training scenes; all")
    training.add_argument("--threads", type=int, default=0)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.add_argument(
        "--calibration", type=figure_path, metavar="FILE.png", help="draw reliability diagrams"
    )
    parser.add_argument("--records", type=Path, metavar="FILE", help="write a JSON line a decision")


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval detectors``; the exit status."""
    require_folder(args.records)
    if min(args.seeds, args.test_scenes, args.per_image) < 1:
        raise ClueError("--seeds, --test-scenes and --per-image must be 1 or more")
    names = _names(args)
    pictures = load_pictures(args)
    rows = _rows(args, names)
    if not rows:
        raise ClueError(f"no detector in {args.detectors}: leave out --no-train")
    table = TableOne(_judge(args, rows, pictures))
    if args.calibration is not None:
        plot_reliability(args.calibration, table.calibrations("in_domain"), "in domain")
    if args.records is not None:
        write_records(args.records, table.records(pictures))
    print(json.dumps(table.summary()) if args.json else table.text(markdown=args.markdown))
    return 0


def _names(args: argparse.Namespace) -> list[str]:
    """Which detectors are asked for. Raises ClueError naming those there are."""
    from clue_ros.model.detector_baselines import BASELINES
    from clue_ros.model.detector_variants import VARIANTS

    known = [*VARIANTS, OWN, *BASELINES]
    unknown = [name for name in args.only or () if name not in known]
    if unknown:
        raise ClueError(f"no detector {unknown[0]!r}: choose of {', '.join(known)}")
    return args.only or known


def _rows(args: argparse.Namespace, names: Sequence[str]) -> list[Trained]:
    """The detectors of these names, trained ones by seed."""
    from clue_ros.model.adapters import DETECTOR
    from clue_ros.model.detector_baselines import BASELINES
    from clue_ros.model.loading import find_base, find_model, fingerprint

    folder = find_model(args.model)
    base = find_base(folder)
    made_of = fingerprint(base) if {*names} - {*BASELINES, OWN} else ""  # gigabytes, read once
    rows: list[Trained] = []
    for name in names:
        if name in BASELINES:
            rows.append(Trained(name, None, None))
        elif name != OWN:
            found = [_trained(args, name, n, base, made_of) for n in range(args.seeds)]
            rows += [row for row in found if row is not None]
        elif (folder / DETECTOR).is_dir():
            rows.append(Trained(OWN, None, folder / DETECTOR))
    return rows


def load_pictures(args: argparse.Namespace) -> dict[str, list[Picture]]:
    """Test pictures of both domains; a domain without data is left out, aloud."""
    root = args.it2p if args.it2p is not None else find_it2p()
    per_image, count = args.per_image, args.test_scenes
    scenes = read_split(args.tabletop, "test", count)
    known = as_pictures(tabletop_samples(scenes, per_image=per_image), "tabletop", "test")
    if root is None:
        print("IT2P not found (set CLUE_IT2P): simulated scenes alone", file=sys.stderr)
    else:
        samples = it2p_samples(load_it2p(root), split="test", per_image=per_image)
        known += as_pictures(samples, "it2p", "test")
    novel = read_split(args.novel or args.tabletop, "test", count, world=NOVEL)
    unseen = as_pictures(tabletop_samples(novel, per_image=per_image), NOVEL, "test")
    return {"in_domain": known, "out_of_domain": unseen}


def _trained(
    args: argparse.Namespace, name: str, seed: int, base: Path, made_of: str
) -> Trained | None:
    """The detector's folder, after training it if it is missing; None where it may not be."""
    folder = args.detectors / name / f"seed{seed}"
    if not (folder / "detector.json").is_file():
        if args.no_train:
            print(f"left out: {folder} is not trained", file=sys.stderr)
            return None
        from clue_ros.lab.training import detector

        parser = argparse.ArgumentParser()
        detector.add_arguments(parser)
        words = {
            "--variant": name,
            "--seed": seed,
            "--model": base,
            "--out": folder,
            "--run": args.detectors / "runs" / f"{name}-seed{seed}",
            **{f"--{key}": getattr(args, key) for key in ("tabletop", "device", "threads")},
            **{f"--{key}": getattr(args, key) for key in ("steps", "batch", "lr")},
            "--head-batches": args.head_batches,
            "--it2p": args.it2p,
            "--scenes": args.scenes,
            "--base-dtype": args.base_dtype,
        }
        given = [str(word) for key, v in words.items() if v is not None for word in (key, v)]
        with contextlib.redirect_stdout(sys.stderr):  # ours is the table
            detector.run(parser.parse_args(given))
    _check_origin(args, folder, made_of)
    return Trained(name, seed, folder)


def _check_origin(args: argparse.Namespace, folder: Path, made_of: str) -> None:
    """Refuse a detector that was trained for another base, or otherwise than is asked for.

    With --no-train how it was trained is not asked for. What an older one does not say is not
    compared.
    """
    from clue_ros.model.loading import read_json

    said = read_json(folder / "detector.json").get("training", {})
    asked: dict[str, object] = {BASE: made_of}
    if not args.no_train:
        asked |= {key: getattr(args, key) for key in ("steps", "batch", "lr", "base_dtype")}
    other = [key for key, value in asked.items() if key in said and said[key] != value]
    if other:
        raise ClueError(
            f"{folder} was trained with another {', '.join(other).replace(BASE, 'base')}: give"
            " another --detectors folder"
        )


def _judge(
    args: argparse.Namespace, rows: Sequence[Trained], pictures: dict[str, list[Picture]]
) -> list[Judged]:
    """Every detector's probabilities of every sentence, from the folder or measured now."""
    predictor = Predictor(args.model, args.device, args.detectors / "predictions")
    judged = []
    for row in rows:
        chances = {
            domain: predictor.probabilities(row, shown) for domain, shown in pictures.items()
        }
        labels = {
            domain: [label for p in shown for _, label in p.sentences]
            for domain, shown in pictures.items()
        }
        sources = {
            domain: [p.source for p in shown for _ in p.sentences]
            for domain, shown in pictures.items()
        }
        judged.append(Judged(row, predictor.threshold(row), chances, labels, sources))
    return judged


# -------------------------------------------------------------------------------------------------
# Probabilities of many sentences by many detectors on one backbone, kept on disk.


class Predictor:
    """One model in memory; detectors are opened beside each other as adapters of it."""

    def __init__(self, model: str | Path, device: str, folder: Path) -> None:
        self._model, self._device, self._folder = model, device, folder
        self._checkpoint = load_checkpoint(model, device)
        self._open: dict[Trained, Detector] = {}

    def threshold(self, row: Trained) -> float:
        """From which probability on the detector says ambiguous."""
        return float(self._detector(row).settings.threshold)

    def probabilities(self, row: Trained, pictures: Sequence[Picture]) -> list[float]:
        """One a sentence, in the pictures' order."""
        made_from = self._made_from(row, pictures)
        path = self._folder / f"{row.label}-{made_from[:16]}.json"
        if path.is_file():
            kept = json.loads(path.read_text(encoding="utf-8"))
            return [float(chance) for chance in kept["probabilities"]]
        chances = self._measure(self._detector(row), pictures, row.label)
        self._folder.mkdir(parents=True, exist_ok=True)
        content = {"detector": row.label, "made_from": made_from, "probabilities": chances}
        with replacing(path) as partial:
            partial.write_text(json.dumps(content), encoding="utf-8")
        return chances

    def _measure(self, detector: Detector, pictures: Sequence[Picture], label: str) -> list[float]:
        chances: list[float] = []
        for picture in tqdm(pictures, desc=label, disable=not sys.stderr.isatty()):
            texts = [text for text, _ in picture.sentences]
            found = self._checkpoint.chances(detector, picture.load(), texts)
            chances += [round(chance, 6) for chance in found]
        return chances

    def _detector(self, row: Trained) -> Detector:
        if row not in self._open:
            kept = self._checkpoint
            which = row.name if row.folder is None else row.folder
            self._open[row] = open_detector(
                kept.backbone, kept.adapters, kept.processor, which, adapter=row.label
            )
        return self._open[row]

    def _made_from(self, row: Trained, pictures: Sequence[Picture]) -> str:
        """Hex SHA-256 of all that the probabilities follow from."""
        sha = hashlib.sha256(
            f"{row.label} {digest(pictures)} {self._checkpoint.fingerprint()}".encode()
        )
        for path in sorted(row.folder.iterdir()) if row.folder is not None else []:
            if path.suffix in (".json", ".safetensors"):
                sha.update(path.name.encode() + path.read_bytes())
        return sha.hexdigest()
