"""`clue adapt PHOTOS [EPISODES] --out MODEL`: fit a model to one table from a few photographs.

    clue label photos/ --open
    clue adapt photos/ --out models/mytable
    clue ground table.jpg "the stapler" --model models/mytable --max-risk 0.05

Teaches the words of the labels, tries to teach the adapters on (`clue_ros.lab.adapt_trial`), fits
how detector and decoder decide together, calibrates, and writes a report. Everything is measured by
leaving one photograph out (half of them for adapters): the model learns from the others and answers
its requests. The calibration uses these answers; adapters and fit are kept only if the answers
improve. Run the same command again to resume.

The folder has the model's adapters, which name their base, the taught words (folder words),
calibration.json and report.md with pictures of the mistakes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from clue_ros.dialogue.types import Box
from clue_ros.drawing import draw
from clue_ros.engine import Clue
from clue_ros.errors import BadImageError, ClueError
from clue_ros.images import load_image
from clue_ros.lab.adapt_trial import (
    ALWAYS,
    AUTO,
    HALVES,
    NEVER,
    Trial,
    half_of,
    try_adapters,
    with_adapters,
)
from clue_ros.lab.data.photographs import Photograph, load_requests
from clue_ros.lab.data.shown import Shown, examples_of, know
from clue_ros.lab.evaluation.calibrate import calibrated, outcomes
from clue_ros.lab.evaluation.photos import PhotoReply, measure, reply_to_photographs
from clue_ros.lab.options import add_options, option, read_options, required
from clue_ros.lab.report import Cell, table, with_progress
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.shards import how_to_make, list_shards
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS
from clue_ros.lab.training.adapt import SCENES, Recipe
from clue_ros.lab.training.fusion import fit
from clue_ros.lab.training.views import SceneViews
from clue_ros.model.backbone import DETECTOR, IVG, JOINT
from clue_ros.model.details import details_in
from clue_ros.model.fusion import Fusion, log_odds, save_fusion
from clue_ros.model.load_options import check_max_risk
from clue_ros.model.loading import CALIBRATION, DEFAULT_MODEL, find_model, read_json, write_json
from clue_ros.model.risk import DELTA, Calibration, Promise, save_calibration
from clue_ros.model.word_memory import WORDS, WordMemory

JOURNAL = ".adapt.jsonl"
"""In the model's folder while a run goes on: a line for each photograph that was answered."""
MISTAKES = 12  # pictures of the report
TRAINED = ".adapters"
"""In the model's folder while a run goes on: a folder of the adapters that it trains."""
_PARTS = (DETECTOR, IVG, JOINT)


@dataclass(frozen=True, kw_only=True)
class AdaptOptions:
    """The options of ``clue adapt``."""

    out: Path = required("folder of the adapted model", type=Path)
    model: str = option(DEFAULT_MODEL, f"{DEFAULT_MODEL}, a folder or a hub id, with adapters")
    device: str = option("auto", "auto, cpu or cuda")
    max_risk: float = option(
        0.05, "of the report: share of wrong boxes without a confirmation", metavar="SHARE"
    )
    delta: float = option(
        DELTA, "probability that the calibration does not keep its promise", metavar="SHARE"
    )
    adapters: str = option(
        AUTO,
        "teach the adapters on too: auto keeps them where photographs that did not teach them get"
        " better, and tries them only where simulated scenes are there to be replayed",
        choices=(AUTO, ALWAYS, NEVER),
    )
    tabletop: Path = option(
        DEFAULT_FOLDER, "folder of simulated scenes that adapters replay (clue data tabletop)"
    )
    world: str = option(DEFAULT_WORLD, "world of these scenes", choices=tuple(WORLDS))
    threads: int = option(0, "number of CPU threads, 0 for PyTorch's own choice")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue adapt``."""
    parser.add_argument(
        "photographs", type=Path, metavar="PHOTOS", help="folder with photos.json (`clue label`)"
    )
    parser.add_argument(
        "episodes", type=Path, nargs="?", metavar="EPISODES", help="folder of reviewed episodes"
    )
    add_options(parser, AdaptOptions)


def run(args: argparse.Namespace) -> int:
    """Run ``clue adapt``; the exit status."""
    options = read_options(AdaptOptions, args)
    check_max_risk(options.max_risk)
    folder = find_model(options.model)
    parts = [part for part in _PARTS if (folder / part).is_dir()]
    if not parts:
        raise ClueError(
            f"{options.model} has no adapters to take along: teach it words with `clue teach`"
        )
    if options.out.resolve() == folder.resolve():
        raise ClueError(f"--out {options.out} is the model itself: name another folder")

    def problem(reason: str) -> None:
        print(f"note: {reason}", file=sys.stderr)

    folders = [given for given in (args.photographs, args.episodes) if given is not None]
    photographs = [found for given in folders for found in load_requests(given, problem)]
    clue = Clue.load(options.model, device=options.device, memory="")
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        journal = Journal(options.out, clue, photographs)
        adapted = adapt(clue, folder, photographs, options, journal, problem)
        write_model(options, clue, folder, parts, adapted)
        journal.end()
    except OSError as error:
        raise ClueError(f"{options.out} cannot be written: {error.strerror or error}") from error
    print(f"{options.out / 'report.md'}\n\n{adapted.text}")
    return 0


class Journal:
    """The replies of a run so far, to resume it.

    Another model or other photographs begin it anew.
    """

    def __init__(self, out: Path, clue: Clue, photographs: Sequence[Photograph]) -> None:
        self._path = out / JOURNAL
        whole = repr((clue.model_name, clue.decision(), photographs))
        self._key = hashlib.sha256(whole.encode()).hexdigest()
        self._replies: dict[tuple[str, int], list[PhotoReply]] = {}
        written = self._path.read_text(encoding="utf-8") if self._path.is_file() else ""
        for line in written.splitlines():
            try:
                row = json.loads(line)
            except ValueError:  # the run ended while it wrote this
                continue
            if row["key"] == self._key:
                names = {field.name for field in fields(PhotoReply)}
                found = [{k: v for k, v in r.items() if k in names} for r in row["replies"]]
                self._replies[row["part"], row["n"]] = [PhotoReply(**values) for values in found]

    def replies(
        self, part: str, n: int, answer: Callable[[], list[PhotoReply]]
    ) -> list[PhotoReply]:
        """The replies about the n-th photograph, by `answer` where they are not known yet."""
        found = self._replies.get((part, n))
        if found is None:
            found = self._replies[part, n] = answer()
            row = {"key": self._key, "part": part, "n": n, "replies": [asdict(r) for r in found]}
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
        return found

    @property
    def folder(self) -> Path:
        """The folder of adapters in training, for these photographs alone."""
        return self._path.with_name(f"{TRAINED}-{self._key[:12]}")

    def end(self) -> None:
        """Remove the journal and the adapters in training: the model is whole."""
        self._path.unlink(missing_ok=True)
        for folder in self._path.parent.glob(f"{TRAINED}-*"):
            shutil.rmtree(folder)


@dataclass(frozen=True)
class Adapted:
    """The result. text: the report. fusion: the fit that is kept; None: the model's own.

    adapters: the folder of those that were taught on; None: the model's own.
    """

    shown: tuple[Shown, ...]
    adapters: Path | None
    fusion: Fusion | None
    calibration: Calibration
    after: tuple[PhotoReply, ...]
    photographs: tuple[Photograph, ...]
    text: str


def adapt(
    clue: Clue,
    source: Path,
    photographs: Sequence[Photograph],
    options: AdaptOptions,
    journal: Journal,
    problem: Callable[[str], None],
) -> Adapted:
    """Teach, fit and calibrate, each measured by leaving a photograph out.

    clue: with no words taught, kept while the program runs. source: its folder. Raises ClueError.
    """
    shown = examples_of(clue, photographs, problem)
    if not shown:
        raise ClueError("no object has a name and a box: label them with `clue label`")
    trial = tried(clue, source, photographs, shown, options, journal, problem)
    kept = None if trial is None else trial.kept
    own = clue.checkpoint.fusion
    if trial is None or kept is None:
        models, final = [clue], clue
    else:  # each photograph is answered by adapters that it did not teach
        models = [with_adapters(clue, folder) for folder in trial.halves]
        final = with_adapters(clue, kept)
    fits = [models[half_of(n) % len(models)].checkpoint.fusion for n in range(len(photographs))]
    if own is not None and kept is None:
        fits = fitted_policies(clue, photographs, own)
    before, after = list[PhotoReply](), list[PhotoReply]()
    for n, photograph in enumerate(with_progress(photographs)):
        use(clue, own, ())
        before += journal.replies("before", n, partial(reply_to_photographs, clue, [photograph]))
        model = models[half_of(n) % len(models)]
        use(model, fits[n], [row for row in shown if row[0] != n])
        part = "after" if kept is None else "after adapters"
        after += journal.replies(part, n, partial(reply_to_photographs, model, [photograph]))
    fusion = None if kept is not None or fits[0] is own else fitted(clue, photographs)
    use(final, fusion or final.checkpoint.fusion, shown)
    calibration = calibrated(final, after, photographs, delta=options.delta, data="adapt")
    promise = Promise(options.max_risk, calibration)
    words = sorted({name for _, name, _ in shown})
    text = report(before, after, promise, words, len(photographs), fusion is not None)
    if trial is not None:
        text = f"{text}\n\n## Adapters\n\n{trial.text}"
    return Adapted(shown, kept, fusion, calibration, tuple(after), tuple(photographs), text)


def tried(
    clue: Clue,
    source: Path,
    photographs: Sequence[Photograph],
    shown: Sequence[Shown],
    options: AdaptOptions,
    journal: Journal,
    problem: Callable[[str], None],
) -> Trial | None:
    """Run the options' trial of adapters; None, with a problem, if it is impossible."""
    if options.adapters == NEVER:
        return None
    taught = {half_of(n) for n, p in enumerate(photographs) if any(r.boxes for r in p.requests)}
    why = ""
    if not {DETECTOR, IVG} <= {path.name for path in source.iterdir()}:
        why = "the model has not both adapters"
    elif len(taught) < HALVES:
        why = "each half of the photographs needs requests with boxes"
    elif details_in(clue.checkpoint.backbone.config.vision_config) is not None:
        why = "the model's stem reads details, which need stored features (clue data features)"
    elif not all(list_shards(options.tabletop, s, options.world) for s in ("train", "val")):
        why = how_to_make(options.tabletop, "train", SCENES, options.world)
    if not why:
        recipe = Recipe(options.tabletop, options.world, options.device, options.threads)
        always = options.adapters == ALWAYS
        return try_adapters(
            clue, source, photographs, shown, journal.folder, recipe, journal.replies, always=always
        )
    if options.adapters == ALWAYS:
        raise ClueError(f"--adapters {ALWAYS}: {why}")
    problem(f"adapters are not taught on: {why}")
    return None


def use(clue: Clue, fusion: Fusion | None, shown: Iterable[Shown]) -> None:
    """Give a model a fit, and these examples alone."""
    clue.checkpoint.fusion = fusion
    clue.policy = clue.policy
    know(clue.memory, shown)


# The joint decision of detector and decoder.


def opinions(clue: Clue, photograph: Photograph) -> tuple[list[Any], list[float]]:
    """Log odds of ambiguity by both, in each view, and the label, of a photograph's requests."""
    requests = [request for request in photograph.requests if request.truth != "absent"]
    checkpoint, odds = clue.checkpoint, []
    views = SceneViews(checkpoint, load_image(photograph.path))
    for request in requests:
        seen, _ = checkpoint.opinions(views.of(request.text)[0], request.text)
        odds.append([(log_odds(a), log_odds(b)) for a, b in seen])
    return odds, [float(request.truth == "ambiguous") for request in requests]


def fitted(clue: Clue, photographs: Iterable[Photograph]) -> Fusion | None:
    """The fit to the requests of photographs; None without both kinds of them."""
    odds, labels = [], []
    for photograph in photographs:
        try:
            found = opinions(clue, photograph)
        except BadImageError:
            continue
        odds += found[0]
        labels += found[1]
    return _fit(clue, odds, labels)


def _fit(clue: Clue, odds: Sequence[Any], labels: Sequence[float]) -> Fusion | None:
    own = clue.checkpoint.fusion
    if own is None or len({*labels}) < 2:
        return None
    made = fit(torch.tensor(odds), torch.tensor(labels))
    names = ("detector", "decoder", "bias", "threshold", "sure")
    return replace(own, **{name: getattr(made, name) for name in names})


def fitted_policies(
    clue: Clue, photographs: Sequence[Photograph], own: Fusion
) -> list[Fusion | None]:
    """Return each photograph's fit to the others; the model's own for all if it is as right.

    Right is a request that is clear and judged so, or ambiguous and judged so.
    """
    seen = []
    for photograph in photographs:
        try:
            seen.append(opinions(clue, photograph))
        except BadImageError:
            seen.append(([], []))
    fits: list[Fusion | None] = []
    right = {"own": 0, "fitted": 0}
    for n, (odds, labels) in enumerate(seen):
        others = [pair for m, pair in enumerate(seen) if m != n]
        known = [row for found, _ in others for row in found]
        made = _fit(clue, known, [label for _, found in others for label in found])
        fits.append(made or own)
        right["own"] += _right(own, odds, labels)
        right["fitted"] += _right(made or own, odds, labels)
    return fits if right["fitted"] > right["own"] else [own] * len(seen)


def _right(fusion: Fusion, odds: Sequence[Any], labels: Sequence[float]) -> int:
    threshold = 0.5 if fusion.threshold is None else fusion.threshold
    weights = np.array([fusion.detector, fusion.decoder])
    count = 0
    for views, label in zip(odds, labels, strict=True):
        each = 1 / (1 + np.exp(-(np.array(views) @ weights + fusion.bias)))
        chance = each[0] if fusion.is_sure(float(each[0])) else each.mean()
        count += int((chance >= threshold) == bool(label))
    return count


# The files.


def report(
    before: Sequence[PhotoReply],
    after: Sequence[PhotoReply],
    promise: Promise,
    words: Sequence[str],
    photographs: int,
    refitted: bool,
) -> str:
    """The report as Markdown, without its pictures."""
    figures = measure(before), measure(after)
    lines: list[tuple[str, str, str]] = [
        ("clear requests, right at once", "clear", "right"),
        ("... or after one 'this one?'", "clear", "right_after_yes"),
        ("clear requests, right when it must point", "forced_score", "so"),
        ("ambiguous requests, asked which one", "ambiguous", "asks"),
        ("absent things, recognised", "absent", "right"),
        ("all, wrong box without a confirmation", "all", "unconfirmed"),
        ("all, questions a request", "all", "questions"),
    ]
    rows: list[list[Cell]] = [
        [name, *(float(found[part][key]) for found in figures)] for name, part, key in lines
    ]
    kept = outcomes(promise, after)
    shortage = promise.calibration.shortage(promise.max_risk) if promise.calibration else ""
    bound = shortage or (
        f"With max_risk {promise.max_risk:g}: {kept['pointed']:.3f} of the requests are pointed at,"
        f" {kept['confirmed']:.3f} shown first, {kept['wrong']:.3f} end in a wrong box without a"
        " confirmation."
    )
    fit_text = "The fit to these photographs" if refitted else "The model's own fit"
    heads = f"{len(after)} requests, a photograph left out each", "before", "after"
    return "\n\n".join(
        (
            f"# {photographs} photographs, {len(words)} words",
            table(heads, rows, markdown=True),
            bound,
            f"{fit_text} of detector and decoder is kept.",
            f"Words: {', '.join(words)}.",
        )
    )


def write_model(
    options: AdaptOptions, clue: Clue, source: Path, parts: Sequence[str], adapted: Adapted
) -> None:
    """Write the model's folder. Raises OSError."""
    out, base = options.out, options.model
    if base != DEFAULT_MODEL and Path(base).expanduser().is_dir():
        base = str(source.resolve())
    for part in parts:
        shutil.copytree((adapted.adapters or source) / part, out / part, dirs_exist_ok=True)
        config = read_json(out / part / "adapter_config.json")
        if not config.get("base_model_name_or_path"):
            name, _, revision = base.partition("@")
            config |= {"base_model_name_or_path": name, "revision": revision or None}
            write_json(out / part / "adapter_config.json", config)
    if adapted.fusion is not None:
        save_fusion(adapted.fusion, out / (JOINT if JOINT in parts else DETECTOR))
    shutil.rmtree(out / WORDS, ignore_errors=True)
    memory = WordMemory(out / WORDS, clue.memory.tower)
    for _, name, example in adapted.shown:
        memory.add(name, example)
    save_calibration(adapted.calibration, out / CALIBRATION)
    (out / "report.md").write_text(adapted.text + _pictures(out, adapted), encoding="utf-8")


def _pictures(out: Path, adapted: Adapted) -> str:
    """Pictures of mistakes, the surest wrong boxes first; the Markdown that shows them."""
    folder = out / "mistakes"
    shutil.rmtree(folder, ignore_errors=True)
    wrong = [reply for reply in adapted.after if not reply.right_after_yes]
    wrong.sort(key=lambda reply: -(reply.score or 0.0) if reply.box else 1.0)
    if not wrong:
        return "\n"
    folder.mkdir()
    paths = {photograph.path.name: photograph for photograph in adapted.photographs}
    lines = ["\n\n## Mistakes\n"]
    for n, reply in enumerate(wrong[:MISTAKES]):
        photograph = paths[reply.image]
        truth = next(r.boxes for r in photograph.requests if r.text == reply.text)
        said = reply.said or f"points, score {reply.score:.2f}"
        found = None if reply.box is None else Box(*reply.box)
        caption = f"{reply.text} ({reply.truth}): {said}"
        drawn = draw(load_image(photograph.path), via=truth, box=found, caption=caption)
        Image.fromarray(drawn).save(folder / f"{n}.jpg", quality=85)
        lines.append(f"![{reply.truth}: numbered is what was meant](mistakes/{n}.jpg)\n")
    return "\n".join(lines)
