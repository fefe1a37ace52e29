"""`clue data generate IMAGES... --out DIR`: dialogues about pictures, talked by models.

    clue data generate photos --oracle ORACLE --objects owlv2:google/owlv2-base-patch16 --out DIR
    clue data generate tabletop:data/tabletop --world rich --out DIR

For each picture: a detector proposes objects, one is drawn with a weight that grows with its area,
the person describes it, the robot's questioner (adapter B) and the person (the oracle adapter, or
rules in simulated scenes) talk until the questioner points. The dialogue is kept if the box agrees
with the object; turns that repeat a question or change nothing are taken out. With --rephrase, a
sentence is rephrased if its names, colours, places and polarity stay.

OUT has InViG's newer layout (train-*.jsonl, images/), which `clue train ivg --data invig` reads,
and report.json, which counts every rejected object and turn with its reason. Run the same command
again to go on after an interruption. --shards N --shard I does every N-th part of the pictures, for
several processes or machines with one OUT.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image as PilImage
from tqdm import tqdm

from clue_ros.dialogue.candidates import COLOR, Candidate
from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueError, ModelError
from clue_ros.grounders import has_checkpoint
from clue_ros.images import load_image
from clue_ros.lab.data.picture_selection import read_ids
from clue_ros.lab.evaluation.options import RobotOptions, nouns_option, objects_option
from clue_ros.lab.evaluation.oracle_user import RATIONALITY, OracleUser
from clue_ros.lab.generation.journal import Journal, write_report
from clue_ros.lab.generation.machine import (
    Case,
    DialogueMachine,
    Image,
    MachineParts,
    MachineSettings,
    Outcome,
    Picture,
    Request,
    User,
    talk,
)
from clue_ros.lab.generation.ray_workers import ray_outcomes
from clue_ros.lab.generation.rephrase import DEFAULT_PERSONAS, Rephraser, read_personas
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.simulated_user import RichUser
from clue_ros.lab.language.words import REQUESTS, pick
from clue_ros.lab.options import add_options, at_least, not_negative, option, read_options, required
from clue_ros.lab.ray_cluster import RaySettings
from clue_ros.lab.simulator.shards import SPLITS, list_shards, read_shard
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS
from clue_ros.model.colors import with_measured_colors
from clue_ros.model.loading import fingerprint, local_or_hub
from clue_ros.model.location_tokens import encode_box
from clue_ros.wrapper.sources import BaseSource, DetectedObjects

if TYPE_CHECKING:
    from clue_ros.model.oracle import Oracle

SIMULATED = "tabletop:"
DEFAULT = "default"
DESCRIBERS = ("oracle", "words", "grammar")
_SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
_TRIES = 40  # references drawn until one can mean the target
_WITH_COLOR = 0.3  # share of the requests by words that say the colour


@dataclass(frozen=True, kw_only=True)
class GenerateOptions:
    """The options of `clue data generate`."""

    images: tuple[str, ...] = ()
    out: Path = required("folder to write, or to go on with", metavar="DIR")
    ids: Path | None = option(
        None,
        "use only pictures with these names without suffix: the CSV of `clue data select`, or one"
        " a line",
        metavar="FILE",
    )  # fmt: skip
    objects: tuple[str, ...] = objects_option(
        "where objects come from, a detector",
        "the model's own task `detect`, in simulated scenes the true objects",
    )
    nouns: tuple[str, ...] = nouns_option()
    oracle: str | None = option(
        None,
        "folder of `clue train oracle`, who answers; default in simulated scenes: by rules",
        metavar="DIR",
    )
    rationality: float = option(
        RATIONALITY,
        "how much an answer of the oracle should fit its box better than the other objects; 0: the"
        " likeliest answer",
        type=not_negative,
    )
    describe: str | None = option(
        None,
        "who says the request: the oracle adapter, words (label and colour of the proposed"
        " object), or the grammar of a simulated world; default: grammar in simulated scenes, else"
        " words",
        choices=DESCRIBERS,
    )
    rephrase: str | None = option(
        None,
        "language model that rephrases sentences: any chat model by hub id, a folder, a .gguf file"
        " or a server's address; default: none",
        metavar="NAME",
    )
    personas: Path | None = option(
        None,
        "with --rephrase, a JSON file with lists personality, vocation and proficiency, of which"
        f" the person of a dialogue is made; {DEFAULT}: those of this package",
        metavar="FILE",
    )
    per_image: int = option(1, "objects drawn of a picture", type=at_least(1))
    min_rounds: int = option(0, "smallest number of questions of a dialogue", type=at_least(0))
    max_rounds: int = option(6, "largest number of questions of a dialogue", type=at_least(1))
    min_iou: float = option(0.5, "smallest IoU of the grounder's box with the object's")
    min_area: float = option(0.001, "smallest area of an object, share of the picture")
    world: str = option(DEFAULT_WORLD, "world of simulated scenes", choices=tuple(WORLDS))
    split: str = option("train", "split of simulated scenes", choices=SPLITS)
    limit: int | None = option(None, "stop after N further pictures of the shard", type=at_least(1))
    shards: int = option(1, "number of parts that the pictures are divided into", type=at_least(1))
    shard: int = option(0, "part to do, from 0", type=at_least(0))
    seed: int = option(0, "seed of every draw; each picture has its own")
    ray: str | None = option(
        None,
        "talk on a Ray cluster, photographs only: its address, auto for the one of this machine,"
        " local to start one; needs the extra ray",
        metavar="ADDRESS",
    )
    ray_workers: int = option(1, "with --ray, number of workers", type=at_least(1))
    ray_gpus: float = option(0.0, "with --ray, GPUs of a worker")
    model: RobotOptions

    def __post_init__(self) -> None:
        """Raises ClueError for options that do not fit together."""
        if self.shard >= self.shards:
            raise ClueError(f"--shard {self.shard} of --shards {self.shards}: they begin at 0")
        simulated = {source.startswith(SIMULATED) for source in self.images}
        if len(simulated) > 1:
            raise ClueError("give photographs or simulated scenes, one command for each")
        if not self.simulated and self.oracle is None:
            raise ClueError("photographs need --oracle DIR (`clue train oracle`): who answers?")
        if self.simulated and self.ray is not None:
            raise ClueError("--ray is for photographs alone: use --shards for simulated scenes")
        if self.describe == "oracle" and self.oracle is None:
            raise ClueError("--describe oracle needs --oracle DIR (`clue train oracle`)")
        if self.describe == "grammar" and not self.simulated:
            raise ClueError("--describe grammar is for simulated scenes alone")
        if self.simulated and self.objects and self.oracle is None:
            raise ClueError("--objects needs --oracle DIR: the rules know the true objects only")
        if self.describe == "grammar" and self.objects:
            raise ClueError("--describe grammar knows the true objects only: leave --objects out")
        if self.personas is not None and self.rephrase is None:
            raise ClueError("--personas needs --rephrase NAME: who talks like them?")

    @property
    def simulated(self) -> bool:
        """Whether the pictures are simulated scenes."""
        return bool(self.images) and self.images[0].startswith(SIMULATED)

    @property
    def describer(self) -> str:
        """The source of the request."""
        return self.describe or ("grammar" if self.simulated and not self.objects else "words")

    def settings(self) -> dict[str, Any]:
        """The settings that must not change between the runs of an output folder."""
        names = (
            "objects", "nouns", "oracle", "rationality", "rephrase", "per_image", "min_rounds",
            "max_rounds", "min_iou", "min_area", "seed", "shards",
        )  # fmt: skip
        simulated = {"world": self.world, "split": self.split} if self.simulated else {}
        if self.personas is not None:
            simulated["personas"] = str(self.personas)
        model = {k: v for k, v in vars(self.model).items() if k != "device"}
        return (
            {n: getattr(self, n) for n in names}
            | simulated
            | model
            | {"weights": self._weights(), "describe": self.describer}
        )

    def _weights(self) -> dict[str, str]:
        """Fingerprints of the model and of the adapters that are folders here."""
        found: dict[str, str] = {}
        for part in (self.model.model, self.model.ivg, self.model.detector, self.oracle):
            with suppress(ModelError):
                whole = local_or_hub(part) if part else None
                if isinstance(whole, Path):
                    folders = (whole, whole / "ivg", whole / "detector")
                    found |= {f"{part} {f.name}": fingerprint(f) for f in folders if f.is_dir()}
        return found


# -------------------------------------------------------------------------------------------------
# The pictures.


@dataclass(frozen=True)
class Item:
    """A picture, and its file if it has one."""

    picture: Picture
    path: Path | None = None


def list_pictures(options: GenerateOptions) -> Iterator[Item]:
    """The pictures of the shard, always in the same order. Raises ClueError."""
    wanted = None if options.ids is None else read_ids(options.ids)
    for source in options.images:
        found = _scenes if source.startswith(SIMULATED) else _files
        for item in found(source, options):
            name = item.picture.name
            if wanted is not None and Path(name).stem not in wanted:
                continue
            if zlib.crc32(name.encode()) % options.shards == options.shard:
                yield item


def _files(source: str, options: GenerateOptions) -> Iterator[Item]:
    root = Path(source).expanduser()
    if root.is_file():
        yield _photograph(root.as_posix(), root)
        return
    if not root.is_dir():
        raise ClueError(f"{source}: no such file or folder")
    for folder, subfolders, names in os.walk(root):
        subfolders.sort()
        for file in sorted(names):
            path = Path(folder) / file
            if path.suffix.lower() in _SUFFIXES:
                inside = path.relative_to(root).as_posix()
                name = inside if len(options.images) == 1 else f"{root.as_posix()}/{inside}"
                yield _photograph(name, path)


def _photograph(name: str, path: Path) -> Item:
    return Item(Picture(name, partial(load_image, path)), path)


def _scenes(source: str, options: GenerateOptions) -> Iterator[Item]:
    folder = Path(source.removeprefix(SIMULATED))
    paths = list_shards(folder, options.split, options.world)
    if not paths:
        raise ClueError(f"{folder}: no scenes of world {options.world} (`clue data tabletop`)")
    for path in paths:
        try:
            for number, scene in enumerate(read_shard(path, options.world)):
                load = partial(getattr, scene, "image")
                yield Item(Picture(f"{path.stem}-{number}", load, scene.objects))
        except ValueError as error:
            raise ClueError(str(error)) from error


# -------------------------------------------------------------------------------------------------
# The parts of the machine.


def true_objects(picture: Picture, image: Image, view: Any) -> list[Candidate]:
    """The objects of a simulated scene."""
    height, width = image.shape[:2]
    out = []
    for o in picture.objects or ():
        box = Box(*o.box).in_pixels(width, height)
        out.append(Candidate(box, o.kind).known(**{COLOR: o.color}))
    return out


class Proposer:
    """Objects by detectors, with colours measured."""

    def __init__(self, grounder: Any, options: GenerateOptions) -> None:
        if not options.objects and not has_checkpoint(grounder):
            raise ClueError("--model wrapper needs --objects KIND:ARGUMENT")
        self._detect = DetectedObjects(options.objects or [BaseSource(grounder)], options.nouns)

    def __call__(self, picture: Picture, image: Image, view: Any) -> Sequence[Candidate]:
        """See `MachineParts.propose`."""
        return with_measured_colors(self._detect(image), image)


def describe_by_words(case: Case) -> Request | None:
    """A request by the object's label, sometimes with its colour; None without a label."""
    target = case.candidates[case.target]
    if not target.label:
        return None
    color = target.attributes.get(COLOR, "")
    said = f"{color} {target.label}" if case.rng.random() < _WITH_COLOR else target.label
    phrase = "the " + " ".join(said.split())
    return pick(case.rng, REQUESTS).format(phrase), ()


class GrammarDescriber:
    """An ambiguous request of the world's grammar that can mean the target."""

    def __init__(self, world: str) -> None:
        self._grammar = grammar_of(world)

    def __call__(self, case: Case) -> Request | None:
        """See `MachineParts.describe`."""
        for _ in range(_TRIES):
            drawn = self._grammar.reference(case.picture.objects or (), case.rng, "ambiguous")
            if drawn is None:
                continue
            reference, meant = drawn
            text = self._grammar.phrasing.request(reference, case.rng)
            if case.target in meant:
                return text, meant
        return None


class RulesOfPerson:
    """The simulated users of `clue eval tabletop`."""

    def __init__(self, world: str) -> None:
        self._grammar = grammar_of(world)

    def __call__(self, case: Case, request: Request) -> User:
        """See `MachineParts.person`."""
        objects, seed = case.picture.objects or (), int(case.rng.integers(2**31))
        meant = request[1] or tuple(range(len(objects)))
        return RichUser(self._grammar, objects, case.target, meant, seed)


class OraclePerson:
    """The oracle adapter. rationality: of its answers, see `Oracle.answer`."""

    def __init__(self, oracle: Oracle, rationality: float) -> None:
        oracle.require_box()
        self._oracle, self._rationality = oracle, rationality

    def describe(self, case: Case) -> Request | None:
        """See `MachineParts.describe`."""
        said = self._oracle.describe(
            case.view.features, encode_box(case.boxes_in_fractions[case.target], 1, 1)
        )
        return (said, ()) if any(c.isalnum() for c in said) else None

    def answer(self, case: Case, request: Request) -> User:
        """See `MachineParts.person`."""
        features, boxes = case.view.features, case.boxes_in_fractions
        return OracleUser(
            self._oracle,
            lambda: features,
            request[0],
            boxes[case.target],
            lambda: boxes,
            self._rationality,
        )


def load_parts(options: GenerateOptions) -> MachineParts:
    """Load the models. Raises ClueError."""
    grammar_of(options.world)
    grounder = options.model.load()
    person: OraclePerson | None = None
    if options.oracle is not None:
        from clue_ros.model.oracle import Oracle

        if not has_checkpoint(grounder):
            raise ClueError("the oracle is an adapter of a PaliGemma 2: --model wrapper has none")
        person = OraclePerson(Oracle(grounder.checkpoint, options.oracle), options.rationality)
    describe: Any = describe_by_words
    if options.describer == "grammar":
        describe = GrammarDescriber(options.world)
    elif options.describer == "oracle" and person is not None:
        describe = person.describe
    rephraser, personas = None, None
    if options.personas is not None:
        named = DEFAULT_PERSONAS if str(options.personas) == DEFAULT else options.personas
        personas = read_personas(named)
    if options.rephrase is not None:
        from clue_ros.wrapper.served_model import open_language_model

        rephraser = Rephraser(open_language_model(options.rephrase).say)
    true = options.simulated and not options.objects
    return MachineParts(
        grounder,
        true_objects if true else Proposer(grounder, options),
        describe,
        RulesOfPerson(options.world) if person is None else person.answer,
        rephraser,
        personas,
    )


# -------------------------------------------------------------------------------------------------
# The command.


def generate(
    options: GenerateOptions, load: Callable[[GenerateOptions], MachineParts] = load_parts
) -> dict[str, Any]:
    """Do the shard's pictures that are not done yet; returns the report. Raises ClueError.

    load: makes the parts; called once in each process that talks.
    """
    start, count, kept = time.monotonic(), 0, 0
    with Journal(options.out, options.shard, options.shards, options.settings()) as journal:
        often = sys.stderr.isatty()  # in a log, a line every half minute
        bar = tqdm(unit="picture", delay=0 if often else 30, mininterval=0.1 if often else 30)
        items = (item for item in list_pictures(options) if item.picture.name not in journal.done)
        todo = islice(items, options.limit)
        try:
            for item, outcome, sums in _outcomes(todo, options, load):
                name = item.picture.name
                if name in journal.done:
                    continue
                row = _write_row(item, outcome, options.out) if outcome.refs else None
                journal.add(name, row, outcome.rejected, outcome.dropped, sums)
                count, kept = count + 1, kept + len(outcome.refs)
                bar.update()
                bar.set_postfix(kept=kept, refresh=False)
        finally:
            bar.close()
            journal.write_rows(options.split if options.simulated else "train")
            seconds = time.monotonic() - start
            last = {
                "pictures": count,
                "dialogues": kept,
                "wall_seconds": round(seconds, 1),
                "pictures_per_hour": round(3600 * count / seconds, 1),
                "workers": options.ray_workers if options.ray else 1,
            }
            report = write_report(options.out, last)
    if not report["pictures"]:
        raise ClueError(f"no picture in {', '.join(options.images)} for this shard")
    return report


def _outcomes(
    items: Iterable[Item],
    options: GenerateOptions,
    load: Callable[[GenerateOptions], MachineParts],
) -> Iterator[tuple[Item, Outcome, dict[str, float]]]:
    settings = MachineSettings(
        options.per_image,
        options.max_rounds,
        options.min_rounds,
        options.min_iou,
        options.min_area,
    )
    if options.ray is not None:
        found = ray_outcomes(
            ((item.picture.name, item.path) for item in items if item.path is not None),
            partial(load, options),
            settings,
            options.seed,
            RaySettings(options.ray, options.ray_workers, options.ray_gpus),
        )
        yield from ((_photograph(*named), outcome, sums) for named, outcome, sums in found)
        return
    parts: MachineParts | None = None
    machine: DialogueMachine | None = None
    for item in items:
        if parts is None or machine is None:
            parts = load(options)
            machine = DialogueMachine(parts, settings)
        outcome, sums = talk(machine, parts, item.picture, options.seed)
        yield item, outcome, sums


def _write_row(item: Item, outcome: Outcome, folder: Path) -> dict[str, Any]:
    """Put the picture into the output folder; the row of its dialogues."""
    name = item.picture.name
    digest = blake2b(name.encode(), digest_size=5).hexdigest()
    stem = "".join(c if c.isalnum() or c in "-_" else "_" for c in Path(name).stem)[:80]
    suffix = ".png" if item.path is None else item.path.suffix.lower()
    image_id = f"{stem}-{digest}"
    target = folder / "images" / f"{image_id}{suffix}"
    target.parent.mkdir(exist_ok=True)
    partial_file = target.with_name(f".{target.name}.partial")
    partial_file.unlink(missing_ok=True)
    if item.path is None:
        PilImage.fromarray(item.picture.load()).save(partial_file, "PNG")
    else:
        try:
            os.link(item.path.resolve(), partial_file)
        except OSError:
            shutil.copyfile(item.path, partial_file)
    partial_file.replace(target)
    width, height = outcome.size
    refs = [ref | {"id": f"{image_id}#{n}"} for n, ref in enumerate(outcome.refs)]
    info = {"file_name": target.name, "height": height, "id": image_id, "width": width}
    return {"ref_list": refs, "image_info": info}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `clue data generate`."""
    parser.add_argument(
        "images",
        nargs="+",
        metavar="IMAGES",
        help="photographs: files and folders (with their subfolders); or tabletop:DIR, the"
        " simulated scenes of `clue data tabletop`",
    )
    add_options(parser, GenerateOptions)


def run(args: argparse.Namespace) -> int:
    """Run `clue data generate`; the exit status."""
    print(json.dumps(generate(read_options(GenerateOptions, args))))
    return 0
