"""Measure on held-out simulated scenes, with exact boxes.

A box is right ("accuracy") when its IoU with the target's box is at least 0.5; "center" counts the
boxes whose centre lies in the target's box. The scenes are new to the model, and the requests are
drawn by the grammar of its training data. In a dialogue a simulated user who sees the target
answers the question that was asked.

``--world rich-unseen`` measures out of domain, with tables, light and a lens that training never
had. The results are broken down by the kind of request, the number of look-alikes, size and
visibility, and the worst slices are listed.
"""

from __future__ import annotations

import argparse
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueError
from clue_ros.lab.evaluation.options import RequestOptions
from clue_ros.lab.evaluation.protocol import (
    ClearRequest,
    DialogueOptions,
    DialogueRequest,
    EvalSample,
    EvaluationReport,
    Grade,
    Record,
)
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.object_grammar import ObjectGrammar
from clue_ros.lab.language.requests import SceneRequest, requests_about
from clue_ros.lab.language.rich_grammar import RichGrammar
from clue_ros.lab.language.simulated_user import RichUser
from clue_ros.lab.metrics import MIN_IOU, ratio, wilson
from clue_ros.lab.options import add_options, at_least, option, output_file, read_options
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.object_catalogue import OBJECTS
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.simulator.shards import SPLITS, how_to_make, list_shards, read_scenes
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS


def load_scenes(
    folder: Path, split: str, limit: int | None, world: str = DEFAULT_WORLD
) -> list[Scene]:
    """The first `limit` scenes of a world's split, or all if there are fewer.

    Raises ClueError when there are none, with the command that makes them, or one is damaged.
    """
    if not list_shards(folder, split, world):
        raise ClueError(how_to_make(folder, split, limit or 1000, world))
    try:
        return list(read_scenes(folder, split, limit, world))
    except ValueError as error:
        raise ClueError(str(error)) from error


def pixel_box(scene: Scene, target: int) -> Box:
    """The box of an object in pixels of the scene's image."""
    height, width = scene.image.shape[:2]
    return Box(*scene.objects[target].box).in_pixels(width, height)


def grades_of(scene: Scene, target: int) -> dict[str, Grade]:
    """The tests of a box for this target."""
    truth = pixel_box(scene, target)
    return {
        "accuracy": lambda box: box.iou(truth) >= MIN_IOU,
        "center": lambda box: truth.contains(box.center),
    }


# -------------------------------------------------------------------------------------------------
# Requests in the grammar of the world, each with the slices that it belongs to.

SIZES = ((0.1, "small"), (0.18, "medium"), (2.0, "large"))  # of the root of the box's area
LIGHT = ((70.0, "dark"), (150.0, "medium"), (256.0, "bright"))  # mean of the picture, 0..255
VISIBLE = ((0.7, "much hidden"), (0.95, "partly hidden"), (2.0, "in full view"))  # share in sight


def tabletop_samples(
    scenes: Iterable[Scene], world: str = DEFAULT_WORLD, *, per_image: int = 2, seed: int = 0
) -> list[EvalSample]:
    """Clear and ambiguous requests about each scene, and requests for absent objects.

    ``per_image`` of each where the scene allows so many; of scanned objects one more, with a noun
    that training never had (`HELD_OUT_NOUNS`).
    """
    grammar = grammar_of(world)
    return [_sample(scene, n, grammar, per_image, seed) for n, scene in enumerate(scenes)]


def _sample(
    scene: Scene, number: int, grammar: RichGrammar, per_image: int, seed: int
) -> EvalSample:
    rng = np.random.default_rng([seed, number])
    clear, ambiguous, absent = (
        requests_about(scene, grammar, want, per_image, rng)
        for want in ("clear", "ambiguous", "absent")
    )
    about = {r.text: _about(scene, r) for r in (*clear, *ambiguous, *absent)}
    dialogues = []
    for r in ambiguous:
        target = int(rng.choice(r.candidates))
        user = RichUser(grammar, scene.objects, target, r.candidates, int(rng.integers(2**31)))
        truth = {"truth": [_rounded_box(scene, target)]}
        meant = partial(_boxes_of, scene, user)
        height, width = scene.image.shape[:2]
        confirms = partial(user.confirms, width=width, height=height)
        grades = grades_of(scene, target)
        dialogues.append(DialogueRequest(r.text, grades, user, truth, meant, confirms))
    return EvalSample(
        name=f"scene {number}",
        load=lambda: scene.image,
        clear=tuple(ClearRequest(r.text, grades_of(scene, r.candidates[0])) for r in clear),
        # As many as there are clear ones, so that neither answer is the safe one.
        ambiguous=tuple(r.text for r in ambiguous)[: len(clear)],
        interactive=tuple(dialogues),
        about=lambda text: about.get(text, {}),
        absent=tuple(r.text for r in absent),
        held_out=_held_out(grammar, [seed, number]),
    )


def _boxes_of(scene: Scene, user: RichUser) -> list[Box]:
    """Return the boxes of the objects that the user's words so far can mean."""
    return [pixel_box(scene, i) for i in user.candidates]


def _held_out(grammar: RichGrammar, seed: Sequence[int]) -> tuple[str, ...]:
    """Draw a request for a thing that training never named, if the grammar knows one.

    Drawn apart, so that a scene's other requests do not depend on it.
    """
    if not isinstance(grammar, ObjectGrammar):
        return ()
    return (grammar.held_out_request(np.random.default_rng([*seed, 1]))[0],)


CATALOGUED = Counter(entry.kind for entry in OBJECTS.values())  # objects of each kind


def _about(scene: Scene, request: SceneRequest) -> dict[str, Any]:
    """The slices that a request belongs to, and its true boxes in pixels."""
    light = _bucket(float(scene.image.mean()), LIGHT)
    slices = {"reference": request.reference.sort, "light": light}
    meant = [scene.objects[i] for i in request.candidates]
    if meant:
        alike = max(sum(other.kind == o.kind for other in scene.objects) - 1 for o in meant)
        slices |= {
            "object": meant[0].kind,
            "origin": _origin(meant[0]),
            "look-alikes": str(alike) if alike < 4 else "4 or more",
            "size": _bucket(min(_side(o) for o in meant), SIZES),
            "seen": _bucket(min(o.visible for o in meant), VISIBLE),
        }
    return {"slices": slices, "truth": [_rounded_box(scene, i) for i in request.candidates]}


def _origin(o: SceneObject) -> str:
    """Return an object's source, and whether it can be one of training's.

    Of scanned objects `table-unseen` has others than `table`, except where a kind has only one.
    """
    if not o.names:  # all scanned objects have names
        return "generated"
    return "scanned, one of several" if CATALOGUED[o.kind] > 1 else "scanned, the only one"


def _rounded_box(scene: Scene, target: int) -> list[float]:
    return [round(v, 1) for v in pixel_box(scene, target).as_list()]


def _side(o: SceneObject) -> float:
    return math.sqrt(Box(*o.box).area)


def _bucket(value: float, limits: Iterable[tuple[float, str]]) -> str:
    return next(name for limit, name in limits if value < limit)


# -------------------------------------------------------------------------------------------------
# The report by slice, and pictures of the worst slices.

LEAST = 8  # requests that a slice needs to be among the worst
WORST = 3  # slices that are named
SHOWN = 4  # failures that are drawn of each
TILE = 300  # pixels


@dataclass(frozen=True)
class Slice:
    """The requests of one part (clear, ambiguous, interactive, absent) with one property.

    by: "reference", "light", "object" (its kind), "origin", "look-alikes", "size" or "seen".
    right, n: correct results, and all.
    """

    by: str
    value: str
    part: str
    right: int
    n: int

    @property
    def share(self) -> float:
        """Share of correct results, 0..1."""
        return ratio(self.right, self.n)


def all_slices(report: EvaluationReport) -> list[Slice]:
    """Every slice of every part, the worst first: by the upper end of its 95 % interval."""
    counts: dict[tuple[str, str, str], list[bool]] = {}
    for record in report.records:
        for by, value in record.get("slices", {}).items():
            counts.setdefault((by, value, record["part"]), []).append(bool(record["right"]))
    found = [Slice(*key, sum(right), len(right)) for key, right in counts.items()]
    return sorted(found, key=lambda s: (wilson(s.right, s.n)[1], s.share))


def worst_slices(report: EvaluationReport) -> list[Slice]:
    """The worst slices (up to WORST) with at least LEAST requests and a failure."""
    return [s for s in all_slices(report) if s.n >= LEAST and s.right < s.n][:WORST]


def slices_of(report: EvaluationReport) -> dict[str, dict[str, EvaluationReport]]:
    """The report of each slice, by property and value."""
    found = sorted({item for r in report.records for item in r.get("slices", {}).items()})
    parts: dict[str, dict[str, EvaluationReport]] = {}
    for by, value in found:
        parts.setdefault(by, {})[value] = report.where(partial(_in, by=by, value=value))
    return parts


def _in(record: Record, by: str, value: str) -> bool:
    return bool(record.get("slices", {}).get(by) == value)


def break_down(
    report: EvaluationReport, samples: list[EvalSample], picture: Path | None = None
) -> tuple[dict[str, Any], str]:
    """The slices as JSON and as text; the worst ones are drawn into `picture`."""
    worst = worst_slices(report)
    if picture is not None and worst:
        draw_worst(picture, report, samples, worst)
    summary = {
        "slices": {
            by: {value: part.summary() for value, part in parts.items()}
            for by, parts in slices_of(report).items()
        },
        "worst": [
            {"by": s.by, "slice": s.value, "part": s.part, "accuracy": round(s.share, 4), "n": s.n}
            for s in worst
        ],
    }
    lines = ["by slice (right / asked):"]
    for s in sorted(all_slices(report), key=lambda s: (s.by, s.part, s.value)):
        lines.append(f"  {s.by:<12}{s.value:<20}{s.part:<13}{s.share:.3f}  ({s.right}/{s.n})")
    lines.append(
        "worst:" if worst else f"worst: no slice of {LEAST} or more requests has a failure"
    )
    lines += [f"  {s.part} with {s.by} {s.value}: {s.share:.3f} of {s.n}" for s in worst]
    return summary, "\n".join(lines)


def draw_worst(
    path: Path, report: EvaluationReport, samples: list[EvalSample], worst: list[Slice]
) -> None:
    """A picture with a row of failures for each slice: the true box green, the robot's red."""
    by_name = {sample.name: sample for sample in samples}
    rows = []
    for s in worst:
        failed = [r for r in report.of(s.part) if not r["right"] and _in(r, s.by, s.value)]
        tiles = [_tile(by_name[r["image"]].load(), r) for r in failed[:SHOWN]]
        blank = np.full((TILE + 40, TILE, 3), 255, np.uint8)
        row = np.hstack([*tiles, *[blank] * (SHOWN - len(tiles))])
        title = np.full((26, row.shape[1], 3), 255, np.uint8)
        text = f"{s.part}, {s.by}: {s.value}  {s.right}/{s.n} right"
        cv2.putText(title, text, (6, 19), cv2.FONT_HERSHEY_SIMPLEX, 0.55, (0, 0, 0), 1, cv2.LINE_AA)
        rows += [title, row]
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


@dataclass(frozen=True, kw_only=True)
class TabletopOptions(RequestOptions):
    """The options of ``clue eval tabletop``."""

    world: str = option(DEFAULT_WORLD, "simulated world", choices=tuple(WORLDS))
    tabletop: Path = option(DEFAULT_FOLDER, "folder of simulated scenes", metavar="DIR")
    split: str = option("test", "split of the scenes", choices=SPLITS)
    scenes: int = option(400, "largest number of scenes", type=at_least(1))
    worst: Path | None = option(
        None,
        "draw failures of the three worst slices into FILE",
        type=output_file(".png", ".jpg", ".jpeg"),
        metavar="FILE",
    )
    dialogues: DialogueOptions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval tabletop``."""
    add_options(parser, TabletopOptions)


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval tabletop``; the exit status."""
    options = read_options(TabletopOptions, args)
    scenes = load_scenes(options.tabletop, options.split, options.scenes, options.world)
    amount = {"per_image": options.per_image, "seed": options.seed}
    options.dialogues.evaluate(
        tabletop_samples(scenes, options.world, **amount),
        breakdown=lambda report, samples: break_down(report, samples, options.worst),
        seed=options.seed,
    )
    return 0
