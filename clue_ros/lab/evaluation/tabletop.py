"""Held-out simulated scenes: the same three measurements, with boxes known exactly.

Right ("accuracy") means an IoU of at least 0.5 with the target's box; "center" counts the boxes
whose centre lies in the target's. Scenes are new to the model, and requests are drawn by
the same grammar as its training data. In the interactive part a person who sees the target answers
what was asked, by the words of the question.

``--world novel`` measures the same out of domain: objects, tables and camera that training never
had. Requests of words that training used are then told apart from those that name a kind or a
colour by a word that it never did.
"""

from __future__ import annotations

import argparse
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueError
from clue_ros.lab.evaluation.metrics import center_inside, iou, ratio, wilson
from clue_ros.lab.evaluation.protocol import (
    Exchange,
    Grade,
    Report,
    Request,
    Sample,
    add_shared_arguments,
    run_evaluation,
)
from clue_ros.lab.evaluation.simulated_user import PlainUser, RichUser
from clue_ros.lab.language.grammars import rich_grammar
from clue_ros.lab.language.plain_grammar import (
    named_by,
    plain_reference,
    plain_request,
    unseen_words,
)
from clue_ros.lab.language.references import Reference, referents
from clue_ros.lab.language.rich_grammar import RichGrammar
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.simulator.shards import SPLITS, how_to_make, list_shards, read_shard
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS, world_spec

# -------------------------------------------------------------------------------------------------
# The rich world's measurements, and where they fail.

MIN_IOU = 0.5
LEAST = 8  # requests that a slice needs to be called the worst
WORST = 3  # slices that are named
SHOWN = 4  # pictures of each
TILE = 300  # pixels
SIZES = ((0.1, "small"), (0.18, "medium"), (2.0, "large"))  # of the root of the box's area
SHARES = ((0.7, "much hidden"), (0.95, "partly hidden"), (2.0, "in full view"))

Breakdown = Callable[[Report, list[Sample]], tuple[dict[str, Any], str]]


def grades_of(scene: Scene, target: int) -> dict[str, Grade]:
    """What makes a box right: an IoU of MIN_IOU with the target's, its centre in it."""
    truth = Box(*_pixels(scene, target))
    return {
        "accuracy": lambda box: iou(box, truth) >= MIN_IOU,
        "center": lambda box: center_inside(box, truth),
    }


def loader(image: npt.NDArray[np.uint8]) -> Callable[[], npt.NDArray[np.uint8]]:
    """Gives the picture when asked."""
    return lambda: image


def _pixels(scene: Scene, target: int) -> tuple[float, float, float, float]:
    height, width = scene.image.shape[:2]
    x0, y0, x1, y1 = scene.objects[target].box
    return x0 * width, y0 * height, x1 * width, y1 * height


def rich_samples(
    scenes: Iterable[Scene], world: str = "rich", *, per_image: int = 2, seed: int = 0
) -> list[Sample]:
    """What to ask about each scene: requests that are clear, ambiguous, and for what is absent.

    ``per_image`` of each where there are so many.
    """
    grammar = rich_grammar(world)
    return [_slice_sample(scene, n, grammar, per_image, seed) for n, scene in enumerate(scenes)]


@dataclass(frozen=True)
class _Asked:
    text: str
    reference: Reference
    candidates: tuple[int, ...]


def _slice_sample(
    scene: Scene, number: int, grammar: RichGrammar, per_image: int, seed: int
) -> Sample:
    rng = np.random.default_rng([seed, number])
    asked = {
        want: _requests(scene, grammar, want, per_image, rng)
        for want in ("clear", "ambiguous", "absent")
    }
    exchanges = []
    about = {a.text: _about(scene, a) for group in asked.values() for a in group}
    for a in asked["ambiguous"]:
        target = int(rng.choice(a.candidates))
        person = RichUser(grammar, scene.objects, target, a.candidates, int(rng.integers(2**31)))
        truth = {"truth": [[round(v, 1) for v in _pixels(scene, target)]]}
        exchanges.append(Exchange(a.text, grades_of(scene, target), person, truth))
    return Sample(
        name=f"scene {number}",
        load=loader(scene.image),
        clear=tuple(Request(a.text, grades_of(scene, a.candidates[0])) for a in asked["clear"]),
        # As many as are clear, so that neither answer is the safe one.
        ambiguous=tuple(a.text for a in asked["ambiguous"])[: len(asked["clear"])],
        interactive=tuple(exchanges),
        about=lambda text: about.get(text, {}),
        absent=tuple(a.text for a in asked["absent"]),
    )


def _requests(
    scene: Scene, grammar: RichGrammar, want: str, count: int, rng: np.random.Generator
) -> list[_Asked]:
    found: dict[str, _Asked] = {}
    for _ in range(4 * count):
        if len(found) == count:
            break
        drawn = grammar.reference(scene.objects, rng, want)
        if drawn is not None:
            text = grammar.phrasing.request(drawn[0], rng)
            found[text] = _Asked(text, *drawn)
    return list(found.values())


def _about(scene: Scene, asked: _Asked) -> dict[str, Any]:
    """The slices that a request falls into, and its true boxes in pixels."""
    slices = {"reference": asked.reference.sort}
    meant = [scene.objects[i] for i in asked.candidates]
    if meant:
        alike = max(_look_alikes(o, scene.objects) for o in meant)
        slices |= {
            "look-alikes": str(alike) if alike < 4 else "4 or more",
            "size": _bucket(min(_side(o) for o in meant), SIZES),
            "seen": _bucket(min(o.visible for o in meant), SHARES),
        }
    boxes = [[round(v, 1) for v in _pixels(scene, i)] for i in asked.candidates]
    return {"slices": slices, "truth": boxes}


def _look_alikes(o: SceneObject, objects: Iterable[SceneObject]) -> int:
    """Others of its kind."""
    return sum(other.kind == o.kind for other in objects) - 1


def _side(o: SceneObject) -> float:
    x0, y0, x1, y1 = o.box
    return float(np.sqrt((x1 - x0) * (y1 - y0)))


def _bucket(value: float, limits: Iterable[tuple[float, str]]) -> str:
    return next(name for limit, name in limits if value < limit)


def slices_of(report: Report) -> dict[str, dict[str, Report]]:
    """The parts of a report: what is broken down by -> the slice -> its report."""
    values: dict[str, set[str]] = {}
    for record in report.records:
        for by, value in record.get("slices", {}).items():
            values.setdefault(by, set()).add(value)
    return {
        by: {value: report.part(_belongs(by, value)) for value in sorted(found)}
        for by, found in values.items()
    }


def _belongs(by: str, value: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda record: record.get("slices", {}).get(by) == value


@dataclass(frozen=True)
class Slice:
    """A slice of one measurement. part: of "clear", "ambiguous", "interactive", "absent"."""

    by: str
    value: str
    part: str
    right: int
    n: int

    @property
    def share(self) -> float:
        """Right, 0..1."""
        return ratio(self.right, self.n)


def all_slices(report: Report) -> list[Slice]:
    """Every slice of every measurement, the worst first: by the upper end of its interval."""
    counts: dict[tuple[str, str, str], list[bool]] = {}
    for record in report.records:
        for by, value in record.get("slices", {}).items():
            counts.setdefault((by, value, record["part"]), []).append(bool(record["right"]))
    found = [Slice(*key, sum(right), len(right)) for key, right in counts.items()]
    return sorted(found, key=lambda s: (wilson(s.right, s.n)[1], s.share))


def worst_slices(report: Report, count: int = WORST) -> list[Slice]:
    """The worst that are large enough to tell, and that fail at all."""
    return [s for s in all_slices(report) if s.n >= LEAST and s.right < s.n][:count]


def breakdown_of(picture: Path | None) -> Breakdown:
    """The breakdown for `run_evaluation`; picture: where to draw the worst slices."""

    def breakdown(report: Report, samples: list[Sample]) -> tuple[dict[str, Any], str]:
        worst = worst_slices(report)
        if picture is not None and worst:
            draw_worst(picture, report, samples, worst)
        rows = {
            by: {value: part.summary() for value, part in parts.items()}
            for by, parts in slices_of(report).items()
        }
        named = [{"by": s.by, "slice": s.value, "part": s.part, "accuracy": round(s.share, 4),
                  "n": s.n} for s in worst]  # fmt: skip
        return {"slices": rows, "worst": named}, _told(report, worst)

    return breakdown


def _told(report: Report, worst: list[Slice]) -> str:
    lines = ["by slice (right / asked):"]
    for s in sorted(all_slices(report), key=lambda s: (s.by, s.part, s.value)):
        lines.append(f"  {s.by:<12}{s.value:<16}{s.part:<13}{s.share:.3f}  ({s.right}/{s.n})")
    lines.append("worst:" if worst else "worst: none of " + str(LEAST) + " or more failed")
    lines += [f"  {s.part} with {s.by} {s.value}: {s.share:.3f} of {s.n}" for s in worst]
    return "\n".join(lines)


PICTURES = (".png", ".jpg", ".jpeg")


def require_picture(path: Path | None) -> None:
    """Refuse a file that is no picture's, before what takes long. Raises ClueError."""
    if path is not None and path.suffix.lower() not in PICTURES:
        raise ClueError(f"{path} is no picture's name: it must end in {', '.join(PICTURES)}")


def draw_worst(path: Path, report: Report, samples: list[Sample], worst: list[Slice]) -> None:
    """A picture: a row of failures of each slice, the truth green, what was pointed at red."""
    by_name = {sample.name: sample for sample in samples}
    rows = []
    for s in worst:
        failed = [
            r
            for r in report.records
            if r["part"] == s.part and not r["right"] and _belongs(s.by, s.value)(r)
        ]
        tiles = [_tile(by_name[r["image"]].load(), r) for r in failed[:SHOWN]]
        blank = np.full((TILE + 40, TILE, 3), 255, np.uint8)
        row = np.hstack([*tiles, *[blank] * (SHOWN - len(tiles))])
        title = np.full((26, row.shape[1], 3), 255, np.uint8)
        text = f"{s.part}, {s.by}: {s.value}  {s.right}/{s.n} right"
        cv2.putText(title, text, (6, 19), cv2.FONT_HERSHEY_SIMPLEX, 0.55, (0, 0, 0), 1, cv2.LINE_AA)
        rows += [title, row]
    path.parent.mkdir(parents=True, exist_ok=True)
    if not cv2.imwrite(str(path), np.vstack(rows)[..., ::-1]):
        raise OSError(f"{path}: the picture could not be written")


def _tile(image: npt.NDArray[np.uint8], record: Mapping[str, Any]) -> npt.NDArray[np.uint8]:
    height, width = image.shape[:2]
    scale = TILE / max(height, width)
    small = cv2.resize(image, (round(width * scale), round(height * scale)))
    out = np.full((TILE + 40, TILE, 3), 255, np.uint8)
    out[: small.shape[0], : small.shape[1]] = small
    drawn = [(box, (40, 220, 60)) for box in record["truth"]]
    drawn += [(record["box"], (240, 40, 40))] if record["box"] is not None else []
    for box, ink in drawn:
        x0, y0, x1, y1 = (round(v * scale) for v in box)
        cv2.rectangle(out, (x0, y0), (x1, y1), ink, 2)
    said = record.get("dialogue", record["text"])
    for k, line in enumerate((said[:44], said[44:88])):
        at = (4, TILE + 15 + 17 * k)
        cv2.putText(out, line, at, cv2.FONT_HERSHEY_SIMPLEX, 0.4, (0, 0, 0), 1, cv2.LINE_AA)
    return out


GROUPS: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "only words of blocks": lambda record: not record["unseen"],
    "a word that blocks lacks": lambda record: bool(record["unseen"]),
}
_TRIES = 60  # draws for one request; a scene that has none of the kind goes without


def tabletop_samples(scenes: Iterable[Scene], *, per_image: int = 2, seed: int = 0) -> list[Sample]:
    """What to ask about each scene: ``per_image`` requests of each kind where it has them."""
    return [_sample(scene, index, per_image, seed) for index, scene in enumerate(scenes)]


def _sample(scene: Scene, index: int, per_image: int, seed: int) -> Sample:
    rng = np.random.default_rng([seed, index])
    clear = requests_about(scene.objects, rng, per_image, ambiguous=False)
    ambiguous = requests_about(scene.objects, rng, per_image, ambiguous=True)
    return Sample(
        name=f"scene {index}",
        load=loader(scene.image),
        clear=tuple(Request(text, grades_of(scene, meant[0])) for text, meant in clear),
        ambiguous=tuple(text for text, _ in ambiguous)[: len(clear)],
        interactive=tuple(_exchange(scene, text, meant, rng) for text, meant in ambiguous),
        about=what_it_names,
    )


def what_it_names(text: str) -> dict[str, Any]:
    """What the records say of a request.

    names: which of "kind", "color" and "place"; unseen: its words that training never used.
    """
    return {"names": list(named_by(text)), "unseen": list(unseen_words(text))}


def requests_about(
    objects: Sequence[SceneObject], rng: np.random.Generator, wanted: int, *, ambiguous: bool
) -> list[tuple[str, tuple[int, ...]]]:
    """Different requests and the objects they can mean: one, or several."""
    found: dict[str, tuple[int, ...]] = {}
    for _ in range(_TRIES):
        if len(found) == wanted:
            break
        reference = plain_reference(objects, rng)
        candidates = referents(reference, objects)
        if candidates and (len(candidates) > 1) == ambiguous:
            found[plain_request(reference, rng)] = candidates
    return list(found.items())


def _exchange(
    scene: Scene, text: str, candidates: tuple[int, ...], rng: np.random.Generator
) -> Exchange:
    target = int(rng.choice(candidates))
    person = PlainUser(scene.objects, target, candidates, int(rng.integers(2**32)))
    return Exchange(text, grades_of(scene, target), person)


def load_samples(
    folder: Path,
    *,
    world: str = DEFAULT_WORLD,
    split: str = "test",
    scenes: int = 400,
    per_image: int = 2,
    seed: int = 0,
) -> list[Sample]:
    """Samples of at most ``scenes`` scenes of a world's shards in ``folder``.

    Raises ClueError when there are none or one cannot be read, with what to do.
    """
    found = _read(folder, split, scenes, world)
    if world_spec(world).language == "rich":
        return rich_samples(found, world, per_image=per_image, seed=seed)
    return tabletop_samples(found, per_image=per_image, seed=seed)


def _read(folder: Path, split: str, at_most: int, world: str = DEFAULT_WORLD) -> list[Scene]:
    """Scenes of a world's split; a shard that cannot be read is named."""
    paths = list_shards(folder, split, world)
    if not paths:
        raise ClueError(how_to_make(folder, split, at_most, world))
    scenes: list[Scene] = []
    for path in paths:
        if len(scenes) < at_most:
            try:
                scenes += read_shard(path, world)
            except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
                reason = "not a whole file of scenes: delete it and make it again"
                raise ClueError(f"{path}: {reason} ({type(error).__name__})") from error
    return scenes[:at_most]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval tabletop``."""
    parser.add_argument("--world", choices=tuple(WORLDS), default=DEFAULT_WORLD)
    parser.add_argument("--data", type=Path, default=DEFAULT_FOLDER, metavar="DIR")
    parser.add_argument("--split", choices=SPLITS, default="test")
    parser.add_argument("--scenes", type=int, default=400, metavar="N", help="at most (400)")
    parser.add_argument("--per-image", type=int, default=2, metavar="N", help="of each kind (2)")
    parser.add_argument(
        "--worst", type=Path, metavar="FILE", help="of a rich world: a picture of its worst slices"
    )
    add_shared_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval tabletop``; the exit status."""
    if args.per_image < 1 or args.scenes < 1:
        raise ClueError("--per-image and --scenes must be 1 or more")
    require_picture(args.worst)

    def load() -> tuple[list[Sample], list[str]]:
        samples = load_samples(
            args.data,
            world=args.world,
            split=args.split,
            scenes=args.scenes,
            per_image=args.per_image,
            seed=args.seed,
        )
        return samples, []

    if world_spec(args.world).language == "rich":
        return run_evaluation(args, load, breakdown=breakdown_of(args.worst))
    return run_evaluation(args, load, GROUPS)
