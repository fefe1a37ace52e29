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
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from clue_ros.data.it2p import find_it2p, load_it2p
from clue_ros.data.tabletop.command import DEFAULT_FOLDER
from clue_ros.errors import ClueError
from clue_ros.evaluation.calibration import plot_reliability
from clue_ros.evaluation.command import require_folder, write_records
from clue_ros.evaluation.in_domain import Picture, as_pictures, read_split
from clue_ros.evaluation.it2p import it2p_samples
from clue_ros.evaluation.plots import figure_path
from clue_ros.evaluation.table_one import Judged, TableOne, Trained
from clue_ros.evaluation.tabletop import tabletop_samples
from clue_ros.model.hub import add_model_argument

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
    from clue_ros.model.baselines import BASELINES
    from clue_ros.model.variants import VARIANTS

    known = [*VARIANTS, OWN, *BASELINES]
    unknown = [name for name in args.only or () if name not in known]
    if unknown:
        raise ClueError(f"no detector {unknown[0]!r}: choose of {', '.join(known)}")
    return args.only or known


def _rows(args: argparse.Namespace, names: Sequence[str]) -> list[Trained]:
    """The detectors of these names, trained ones by seed."""
    from clue_ros.model.adapters import DETECTOR
    from clue_ros.model.baselines import BASELINES
    from clue_ros.model.hub import find_base, find_model
    from clue_ros.model.weights import fingerprint

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
        from clue_ros.training import detector

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
    from clue_ros.model.files import read_json

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
    from clue_ros.evaluation.predictions import Predictor

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
