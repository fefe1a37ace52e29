"""`clue eval ivg`: the guesser setting of Table III, on InViG, IT2P or simulated scenes.

The whole dialogue, with the true questions and answers, is the prefix, and the model must point
(`Clue.reply(..., force_grounding=True)`). Counted: the share of boxes with an IoU of at least 0.5
with the truth (Acc@0.5, the paper's figure), the same at 0.1 .. 0.9, the mean IoU and the share of
boxes whose centre lies in the true box. IT2P annotates points, not boxes: its true boxes are
estimated from the photograph, and the share of centres within 20 px of the point is told as well.
With --asker also the other half of the adapter: how likely the true questions are to it.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box, Grounding
from clue_ros.engine import Clue
from clue_ros.errors import BadImageError, ClueError
from clue_ros.images import load_image
from clue_ros.lab.data.invig import InvigSample, load_invig, reveal_pairs
from clue_ros.lab.data.it2p import (
    It2pImage,
    Point,
    find_it2p,
    load_it2p,
    nearest,
)
from clue_ros.lab.data.it2p_boxes import BlockRegion, block_boxes
from clue_ros.lab.evaluation.it2p import NEAR_PX, choose
from clue_ros.lab.evaluation.metrics import center_inside, center_near, iou, ratio, rounded, wilson
from clue_ros.lab.evaluation.protocol import (
    Grounder,
    note,
    require_folder,
    with_progress,
    write_records,
)
from clue_ros.lab.evaluation.report import table
from clue_ros.lab.evaluation.simulated_user import question_axis
from clue_ros.lab.evaluation.tabletop import requests_about
from clue_ros.lab.language.export_invig import sample_dialogues
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.plain_grammar import plain_answer, plain_question
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.simulator.shards import SPLITS, read_scenes
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS, world_spec
from clue_ros.model.loading import add_model_argument

# -------------------------------------------------------------------------------------------------
# Whole dialogues with a known target, from every data set, for the guesser setting (Table III).

DATA = ("invig", "it2p", "tabletop")
_MAX_TURNS = 6  # a person who has not said which one by then is left out


@dataclass(frozen=True)
class Told:
    """A whole dialogue and its target.

    point: the annotated point as fractions, where the data set has points instead of boxes. The
    sample's box is then an estimate; `estimated` is False where a square stands in for it.
    """

    sample: InvigSample
    point: Point | None = None
    estimated: bool = True


@dataclass(frozen=True)
class Wanted:
    """Which dialogues: what the options of `clue eval ivg` say.

    data: one of DATA. source: a folder (for invig also a file or a hub id); None for the usual
    place. split: train, val, test or all. per_image: of each kind, not for invig. limit: the first
    pictures only. language: of InViG. world: of the simulator.
    """

    data: str
    source: str | None = None
    split: str = "test"
    per_image: int = 2
    limit: int | None = None
    seed: int = 0
    language: str = "en"
    world: str = DEFAULT_WORLD


def load_told(wanted: Wanted) -> tuple[list[Told], list[str]]:
    """The dialogues, picture by picture, and what could not be used. Raises ClueError."""
    load = {"invig": _invig, "it2p": _it2p, "tabletop": _tabletop}[wanted.data]
    told, problems = load(wanted)
    order = {name: i for i, name in enumerate(dict.fromkeys(t.sample.image_id for t in told))}
    if wanted.limit is not None:
        told = [item for item in told if order[item.sample.image_id] < wanted.limit]
    return sorted(told, key=lambda item: order[item.sample.image_id]), problems


def _invig(wanted: Wanted) -> tuple[list[Told], list[str]]:
    if wanted.source is None:
        raise ClueError("give InViG's folder, file or hub id with --source")
    split = None if wanted.split == "all" else wanted.split
    found = load_invig(wanted.source, split=split, language=wanted.language)
    return [Told(sample) for sample in found.samples], list(found.problems)


def _it2p(wanted: Wanted) -> tuple[list[Told], list[str]]:
    folder = Path(wanted.source) if wanted.source is not None else find_it2p()
    if folder is None:
        raise ClueError("no IT2P found: give its folder with --source DIR or set CLUE_IT2P")
    data = load_it2p(folder)
    images = data.select(wanted.split)[: wanted.limit]
    told, problems = it2p_told(images, per_image=wanted.per_image, seed=wanted.seed)
    return told, [str(problem) for problem in data.problems] + problems


def _tabletop(wanted: Wanted) -> tuple[list[Told], list[str]]:
    folder = Path(wanted.source) if wanted.source is not None else DEFAULT_FOLDER
    try:
        scenes = [
            scene
            for split in (SPLITS if wanted.split == "all" else (wanted.split,))
            for scene in read_scenes(folder, split, wanted.limit, wanted.world)
        ]
    except (FileNotFoundError, ValueError) as error:
        raise ClueError(str(error)) from error
    if world_spec(wanted.world).language == "rich":
        return _rich(scenes, wanted), []
    samples = tabletop_told(scenes, per_image=wanted.per_image, seed=wanted.seed)
    return [Told(sample) for sample in samples], []


def _rich(scenes: Sequence[Scene], wanted: Wanted) -> list[Told]:
    """Dialogues in the rich worlds' language, as it tells them; as many as of the plain ones."""
    told = sample_dialogues(
        scenes,
        grammar_of(wanted.world),
        name="scene",
        per_image=2 * wanted.per_image,
        seed=wanted.seed,
    )
    return [Told(sample) for sample, _ in told]


def tabletop_told(scenes: Iterable[Scene], *, per_image: int, seed: int) -> list[InvigSample]:
    """Of each scene up to `per_image` clear requests and as many dialogues that need a question.

    The requests are those of `clue eval tabletop`; one that no answers settle is left out.
    """
    samples = []
    for index, scene in enumerate(scenes):
        rng = np.random.default_rng([seed, index])
        for kind, ambiguous in (("clear", False), ("asked", True)):
            requests = requests_about(scene.objects, rng, per_image, ambiguous=ambiguous)
            for number, (text, candidates) in enumerate(requests):
                target = int(rng.choice(candidates)) if ambiguous else candidates[0]
                exchanges = _settle(candidates, target, scene.objects, rng)
                if exchanges is not None:
                    sample = InvigSample(
                        id=f"scene {index} {kind} {number}",
                        image_id=f"scene {index}",
                        load=partial(_pixels, scene),
                        request=text,
                        exchanges=exchanges,
                        box=scene.objects[target].box,
                        category=scene.objects[target].kind,
                    )
                    samples.append(sample)
    return samples


def _settle(
    candidates: tuple[int, ...],
    target: int,
    objects: Sequence[SceneObject],
    rng: np.random.Generator,
) -> tuple[tuple[str, str], ...] | None:
    """Questions and answers until only the target is meant; None where words do not get there."""
    exchanges: list[tuple[str, str]] = []
    while len(candidates) > 1 and len(exchanges) < _MAX_TURNS:
        question = plain_question(candidates, objects)
        said = plain_answer(question, target, candidates, objects, rng)
        if said is None:
            return None
        exchanges.append((question.text, said[0]))
        candidates = said[1]
    return tuple(exchanges) if candidates == (target,) else None


def it2p_told(
    images: Iterable[It2pImage], *, per_image: int, seed: int
) -> tuple[list[Told], list[str]]:
    """Of each photograph up to `per_image` clear commands and as many with one answer (0: all).

    The choice of commands is that of `clue eval it2p`. Commands that the data set contradicts are
    left out: there is no one target.
    """
    told: list[Told] = []
    problems: list[str] = []
    for image in images:
        try:
            regions = block_boxes(load_image(image.path), [b.point for b in image.blocks])
        except BadImageError as error:
            problems.append(str(error))
            continue
        photo = _Photo(image, regions)
        clear = choose(image.commands, per_image, f"{seed}:{image.id}:clear")
        for number, command in enumerate(clear):
            if command.text not in image.contradictory:
                told.append(photo.told(f"clear {number}", command.text, (), command.point))
        asked = choose(image.interactive, per_image, f"{seed}:{image.id}:interactive")
        for number, row in enumerate(asked):
            question = photo.question(row.text, row.point)
            if question is None:
                problems.append(f"{image.id}: {row.text!r} leaves its candidates open, left out")
                continue
            exchange = (question, row.answer)
            told.append(photo.told(f"asked {number}", row.text, (exchange,), row.point))
    return told, problems


class _Photo:
    """A photograph and its blocks' estimated boxes, in the order of `image.blocks`."""

    def __init__(self, image: It2pImage, regions: Sequence[BlockRegion]) -> None:
        self._image, self._regions = image, regions
        self._height, self._width = regions[0].mask.shape if regions else (1, 1)

    def told(
        self, name: str, text: str, exchanges: tuple[tuple[str, str], ...], point: Point
    ) -> Told:
        """A dialogue about the block at a point."""
        region = self._regions[self._block(point)]
        sample = InvigSample(
            id=f"{self._image.id} {name}",
            image_id=self._image.id,
            load=partial(load_image, self._image.path),
            request=text,
            exchanges=exchanges,
            box=self._fractions(region),
            category="block",
        )
        at = (point[0] / self._width, point[1] / self._height)
        return Told(sample, at, region.estimated)

    def question(self, text: str, point: Point) -> str | None:
        """What the oracle asks about the blocks a command can mean; None where that is not known.

        The target is among them, whatever the words say of it.
        """
        points = next((a.candidates for a in self._image.ambiguous if a.text == text), ())
        candidates = sorted({self._block(p) for p in (*points, point)})
        blocks = self._image.blocks
        if len(candidates) < 2 or any(blocks[i].color is None for i in candidates):
            return None
        objects = [
            SceneObject("block", block.color or "", self._fractions(region))
            for block, region in zip(blocks, self._regions, strict=True)
        ]
        return plain_question(candidates, objects).text

    def _block(self, point: Point) -> int:
        return self._image.blocks.index(nearest(self._image.blocks, point))

    def _fractions(self, region: BlockRegion) -> tuple[float, float, float, float]:
        x_min, y_min, x_max, y_max = region.box
        return (
            max(x_min, 0.0) / self._width,
            max(y_min, 0.0) / self._height,
            min(x_max, self._width) / self._width,
            min(y_max, self._height) / self._height,
        )


def _pixels(scene: Scene) -> npt.NDArray[np.uint8]:
    return scene.image


MIN_IOU = 0.5
CURVE = tuple(round(0.1 * step, 1) for step in range(1, 10))


@dataclass(frozen=True)
class Guess:
    """One dialogue that was pointed at. box, truth: x_min, y_min, x_max, y_max in pixels.

    questions: asked in the dialogue. near: centre within 20 px of the point; None without a point.
    estimated: False where the true box is a stand-in.
    """

    id: str
    image: str
    questions: int
    context: str
    box: list[float]
    truth: list[float]
    iou: float
    center: bool
    near: bool | None
    estimated: bool


def guess_all(
    clue: Grounder[Any], told: Iterable[Told], *, problem: Callable[[str], None]
) -> list[Guess]:
    """Point at the end of each dialogue; pictures that cannot be read are told to `problem`.

    A picture is looked at once for all of its dialogues that follow each other.
    """
    guesses: list[Guess] = []
    seen: tuple[str, Any, tuple[int, int]] | None = None
    for item in told:
        sample = item.sample
        if seen is None or seen[0] != sample.image_id:
            try:
                image = sample.load()
            except BadImageError as error:
                problem(f"{sample.id}: left out, {error}")
                continue
            seen = sample.image_id, clue.look(image), (image.shape[1], image.shape[0])
        dialogue = sample.dialogue()
        reply = clue.reply(seen[1], dialogue, force_grounding=True)
        if not isinstance(reply, Grounding):
            raise ClueError("the model asked although it had to point")
        guesses.append(_guess(item, dialogue.context(), reply.box, seen[2]))
    return guesses


def _guess(item: Told, context: str, box: Box, size: tuple[int, int]) -> Guess:
    width, height = size
    x_min, y_min, x_max, y_max = item.sample.box
    truth = Box(x_min * width, y_min * height, x_max * width, y_max * height)
    near = None
    if item.point is not None:
        near = center_near(box, (item.point[0] * width, item.point[1] * height), NEAR_PX)
    return Guess(
        id=item.sample.id,
        image=item.sample.image_id,
        questions=len(item.sample.exchanges),
        context=context,
        box=box.as_list(),
        truth=truth.as_list(),
        iou=iou(box, truth),
        center=center_inside(box, truth),
        near=near,
        estimated=item.estimated,
    )


def summary(guesses: Sequence[Guess]) -> dict[str, Any]:
    """All of them, and by the number of questions in the dialogue; None of nothing."""
    groups = sorted({guess.questions for guess in guesses})
    by_questions = {
        str(count): _scores([guess for guess in guesses if guess.questions == count])
        for count in groups
    }
    whole = _scores(guesses)
    whole["curve"] = {
        str(level): rounded(ratio(sum(g.iou >= level for g in guesses), len(guesses)))
        for level in CURVE
    }
    return {"guesser": whole, "by_questions": by_questions}


def _scores(guesses: Sequence[Guess]) -> dict[str, Any]:
    right, n = sum(guess.iou >= MIN_IOU for guess in guesses), len(guesses)
    low, high = wilson(right, n)
    scores: dict[str, Any] = {
        "accuracy": rounded(ratio(right, n)),
        "low": rounded(low),
        "high": rounded(high),
        "mean_iou": rounded(sum(g.iou for g in guesses) / n if n else math.nan),
        "center": rounded(ratio(sum(g.center for g in guesses), n)),
    }
    points = [guess.near for guess in guesses if guess.near is not None]
    if points:
        scores["near_20px"] = rounded(ratio(sum(points), len(points)))
        scores["stand_in_boxes"] = sum(not guess.estimated for guess in guesses)
    return scores | {"n": n}


_COLUMNS = {
    "n": "n",
    "accuracy": "Acc@0.5",
    "low": "from",
    "high": "to (95 %)",
    "mean_iou": "mean IoU",
    "center": "centre in box",
    "near_20px": "within 20 px",
}


def as_table(result: dict[str, Any], *, markdown: bool) -> str:
    """The summary for people."""
    names = [name for name in _COLUMNS if name in result["guesser"]]
    rows = [["all", *(result["guesser"][name] for name in names)]]
    for count, scores in result["by_questions"].items():
        label = "no question" if count == "0" else f"{count} question{'s' * (count != '1')}"
        rows.append([label, *(scores[name] for name in names)])
    parts = [table(["guesser", *(_COLUMNS[name] for name in names)], rows, markdown=markdown)]
    curve = result["guesser"]["curve"]
    parts.append(
        table(["IoU of at least", *curve], [["share", *curve.values()]], markdown=markdown)
    )
    if "asker" in result:
        names = [name.replace("_", " ") for name in result["asker"]]
        row = ["true questions", *result["asker"].values()]
        parts.append(table(["asker", *names], [row], markdown=markdown))
    if "near_20px" in result["guesser"]:
        parts.append(
            "The true boxes are estimated from the photograph; IT2P has points"
            f" ({result['guesser']['stand_in_boxes']} of them are a fixed square)."
        )
    return "\n\n".join(parts)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `clue eval ivg`."""
    parser.add_argument("--data", choices=DATA, required=True)
    parser.add_argument(
        "--source", metavar="PATH", help="folder of the data; for invig also a file or hub id"
    )
    parser.add_argument("--split", choices=("train", "val", "test", "all"), default="test")
    parser.add_argument("--language", choices=("en", "cn"), default="en", help="of InViG (en)")
    parser.add_argument("--world", choices=tuple(WORLDS), default=DEFAULT_WORLD, help="of tabletop")
    parser.add_argument(
        "--per-image", type=int, default=2, metavar="N", help="of each kind, not for invig (2)"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="use the first N pictures only")
    parser.add_argument("--seed", type=int, default=0, help="fixes which requests are chosen (0)")
    add_model_argument(parser)
    parser.add_argument("--ivg", type=Path, metavar="DIR", help="another adapter B")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--asker", action="store_true", help="also score the true questions")
    parser.add_argument("--records", type=Path, metavar="FILE", help="write a JSON line an item")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print one JSON object")
    form.add_argument("--markdown", action="store_true", help="print Markdown tables")


def run(args: argparse.Namespace) -> int:
    """Run `clue eval ivg`; the exit status."""
    if args.per_image < 1:
        raise ClueError(f"--per-image must be 1 or more, not {args.per_image}")
    if args.limit is not None and args.limit < 1:
        raise ClueError(f"--limit must be 1 or more, not {args.limit}")
    require_folder(args.records)
    told, problems = load_told(
        Wanted(
            args.data,
            args.source,
            split=args.split,
            per_image=args.per_image,
            limit=args.limit,
            seed=args.seed,
            language=args.language,
            world=args.world,
        )
    )
    if not told:
        raise ClueError("no dialogues to evaluate: check the source and the split")
    note(problems)
    from clue_ros.engine import Clue

    clue = Clue.load(args.model, device=args.device, ivg=args.ivg)
    lost: list[str] = []
    guesses = guess_all(
        clue, with_progress(told, sys.stderr.isatty(), "dialogue"), problem=lost.append
    )
    note(lost)
    if not guesses:
        raise ClueError("none of the pictures can be read")
    result: dict[str, Any] = {"data": args.data, "split": args.split} | summary(guesses)
    if args.asker:
        result["asker"] = score_questions(clue, told, axes=args.data != "invig")
    write_records(args.records, map(asdict, guesses))
    print(json.dumps(result) if args.json else as_table(result, markdown=args.markdown))
    return 0


# -------------------------------------------------------------------------------------------------
# The asker's half of adapter B: how likely the dialogues' own questions are to it (section
# IV-B).


def score_questions(
    clue: Clue, told: Sequence[Told], *, axes: bool
) -> dict[str, float | int | None]:
    """Token accuracy, perplexity and, with `axes`, the share of the right axis of all questions.

    told: picture by picture. Pictures that cannot be read are left out. A share of nothing is None.
    """
    checkpoint = clue.checkpoint
    loss, right, tokens, questions, same_axis = 0.0, 0, 0, 0, 0
    seen: tuple[str, Any] | None = None
    for item in told:
        sample = item.sample
        if not sample.exchanges:
            continue
        if seen is None or seen[0] != sample.image_id:
            try:
                seen = sample.image_id, checkpoint.look(sample.load())
            except BadImageError:
                continue
        for context, question in reveal_pairs(sample)[:-1]:
            one_loss, one_right, length = checkpoint.forced(seen[1], context, question)
            loss, right, tokens = loss + one_loss, right + one_right, tokens + length
            questions += 1
            if axes:
                said = checkpoint.words(checkpoint.speak(seen[1], context, "question"))
                same_axis += question_axis(said) == question_axis(question)
    shares: dict[str, float | int | None] = {
        "token_accuracy": rounded(ratio(right, tokens)),
        "perplexity": rounded(math.exp(loss / tokens) if tokens else math.nan),
    }
    if axes:
        shares["right_axis"] = rounded(ratio(same_axis, questions))
    return shares | {"n": questions}
