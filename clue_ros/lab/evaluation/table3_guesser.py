"""Table III, the guesser: point at the end of a whole dialogue, on InViG, IT2P or simulated scenes.

The prefix is the dialogue with its true questions and answers, and the model must point. Measured
are the share of boxes with an IoU of at least 0.5 (Acc@0.5, the paper's figure), the same at
0.1 .. 1.0, the mean IoU, and the share of boxes whose centre lies in the true box. IT2P annotates
points, not boxes: its true boxes are estimated from the photograph, and the share of centres within
20 px of the point is reported too. --asker also scores the true questions (section IV-B): how
likely they are to adapter B.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from clue_ros.dialogue.grounder import Grounder
from clue_ros.dialogue.types import Box, Fractions, Grounding
from clue_ros.engine import Clue
from clue_ros.errors import BadImageError, ClueError
from clue_ros.images import load_image
from clue_ros.lab.data.export_invig import sample_dialogues
from clue_ros.lab.data.invig import InvigIndex, InvigSample, index_invig, reveal_pairs, usable
from clue_ros.lab.data.it2p import It2pImage, Point, load_it2p, nearest
from clue_ros.lab.data.it2p_boxes import block_boxes
from clue_ros.lab.evaluation.dialogue_curves import curve
from clue_ros.lab.evaluation.it2p import NEAR_PX, choose, require_it2p
from clue_ros.lab.evaluation.options import (
    RecordsOptions,
    RequestOptions,
    WeightsOptions,
    measured,
    note,
)
from clue_ros.lab.evaluation.tabletop import load_scenes
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.questions import ask
from clue_ros.lab.language.simulated_user import question_axis
from clue_ros.lab.metrics import (
    MIN_IOU,
    center_near,
    mean,
    ratio,
    rounded,
    wilson,
)
from clue_ros.lab.options import add_options, at_least, option, read_options, required
from clue_ros.lab.published import TABLE_3
from clue_ros.lab.report import Cell, table, with_progress
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.scene import SceneObject
from clue_ros.lab.simulator.shards import SPLITS
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS

DATA = ("invig", "it2p", "tabletop")


@dataclass(frozen=True)
class TargetDialogue:
    """A whole dialogue and its target.

    point: the annotated point as fractions of the image, where the data set has points instead of
    boxes. The sample's box is then an estimate; `estimated` is False where a fixed square stands
    in for it.
    """

    sample: InvigSample
    point: Point | None = None
    estimated: bool = True


@dataclass(frozen=True, kw_only=True)
class GuesserModelOptions(WeightsOptions):
    """A model with an adapter B; a detector is not needed."""

    ivg: str | None = option(None, "folder of another adapter B", metavar="DIR")

    def load(self) -> Clue:
        """Load the model. Raises ModelError, for a model without adapter B too."""
        return Clue.load(**vars(self), policy="decoder")


@dataclass(frozen=True, kw_only=True)
class GuesserOptions(RequestOptions):
    """The options of `clue eval ivg`."""

    data: str = required("the data set", choices=DATA)
    source: str | None = option(
        None,
        "folder of the data; for invig also a file or a hub id; default for tabletop:"
        f" {DEFAULT_FOLDER}, for it2p: $CLUE_IT2P",
        metavar="PATH",
    )
    split: str = option("test", "split of the images", choices=("train", "val", "test", "all"))
    language: str = option("en", "language of InViG's dialogues", choices=("en", "cn"))
    world: str = option(DEFAULT_WORLD, "simulated world", choices=tuple(WORLDS))
    limit: int | None = option(None, "use the first N images only", type=at_least(1), metavar="N")
    asker: bool = option(False, "also score the true questions")
    model: GuesserModelOptions
    output: RecordsOptions


# -------------------------------------------------------------------------------------------------
# The dialogues of each data set.


def load_dialogues(options: GuesserOptions) -> tuple[list[TargetDialogue], list[str]]:
    """Return the dialogues, image by image, and the problems. Raises ClueError."""
    load = {"invig": _invig, "it2p": _it2p, "tabletop": _tabletop}[options.data]
    dialogues, problems = load(options)
    order = {name: i for i, name in enumerate(dict.fromkeys(d.sample.image_id for d in dialogues))}
    if options.limit is not None:
        dialogues = [d for d in dialogues if order[d.sample.image_id] < options.limit]
    return sorted(dialogues, key=lambda d: order[d.sample.image_id]), problems


def _invig(options: GuesserOptions) -> tuple[list[TargetDialogue], list[str]]:
    if options.source is None:
        raise ClueError("give InViG's folder, file or hub id with --source")
    split = None if options.split == "all" else options.split
    found = index_invig(options.source, split=split, language=options.language)
    samples, problems = found.samples, list(found.problems)
    if options.limit is not None and isinstance(samples, InvigIndex):
        samples = samples.of_first_images(options.limit)
    dialogues = [TargetDialogue(sample) for sample in usable(samples, problems.append)]
    return dialogues, problems


def _it2p(options: GuesserOptions) -> tuple[list[TargetDialogue], list[str]]:
    data = load_it2p(require_it2p(Path(options.source) if options.source else None, "--source"))
    images = data.select(options.split)[: options.limit]
    dialogues, problems = it2p_dialogues(images, per_image=options.per_image, seed=options.seed)
    return dialogues, [str(problem) for problem in data.problems] + problems


def _tabletop(options: GuesserOptions) -> tuple[list[TargetDialogue], list[str]]:
    folder = Path(options.source) if options.source is not None else DEFAULT_FOLDER
    scenes = [
        scene
        for split in (SPLITS if options.split == "all" else (options.split,))
        for scene in load_scenes(folder, split, options.limit, options.world)
    ]
    told = sample_dialogues(
        scenes,
        grammar_of(options.world),
        name="scene",
        per_image=2 * options.per_image,  # as many as clear and asked ones about a photograph
        seed=options.seed,
    )
    return [TargetDialogue(sample) for sample, _ in told], []


def it2p_dialogues(
    images: Iterable[It2pImage], *, per_image: int, seed: int
) -> tuple[list[TargetDialogue], list[str]]:
    """Up to `per_image` clear commands about each photograph, and as many with one answer (0: all).

    The commands are those of `clue eval it2p`. A command that the data set contradicts is left out,
    because it has no single target.
    """
    dialogues: list[TargetDialogue] = []
    problems: list[str] = []
    for image in images:
        try:
            photo = _Photograph(image)
        except BadImageError as error:
            problems.append(str(error))
            continue
        clear = choose(image.commands, per_image, f"{seed}:{image.id}:clear")
        for number, command in enumerate(clear):
            if command.text not in image.contradictory:
                dialogues.append(photo.dialogue(f"clear {number}", command.text, (), command.point))
        asked = choose(image.interactive, per_image, f"{seed}:{image.id}:interactive")
        for number, row in enumerate(asked):
            question = photo.question(row.text, row.point)
            if question is None:
                problems.append(f"{image.id}: {row.text!r} leaves its candidates open, left out")
                continue
            exchanges = ((question, row.answer),)
            dialogues.append(photo.dialogue(f"asked {number}", row.text, exchanges, row.point))
    return dialogues, problems


class _Photograph:
    """A photograph and the estimated boxes of its blocks, in the order of `image.blocks`."""

    def __init__(self, image: It2pImage) -> None:
        self._image = image
        self._regions = block_boxes(load_image(image.path), [b.point for b in image.blocks])
        self._height, self._width = self._regions[0].mask.shape if self._regions else (1, 1)

    def dialogue(
        self, name: str, text: str, exchanges: tuple[tuple[str, str], ...], point: Point
    ) -> TargetDialogue:
        """A dialogue about the block at a point."""
        block = self._block(point)
        sample = InvigSample(
            id=f"{self._image.id} {name}",
            image_id=self._image.id,
            load=partial(load_image, self._image.path),
            request=text,
            exchanges=exchanges,
            box=self._box(block),
            category="block",
        )
        at = (point[0] / self._width, point[1] / self._height)
        return TargetDialogue(sample, at, self._regions[block].estimated)

    def question(self, text: str, point: Point) -> str | None:
        """The grammar's question about the blocks that a command can mean.

        None where they are not known. The target is always one of them.
        """
        points = next((a.candidates for a in self._image.ambiguous if a.text == text), ())
        candidates = sorted({self._block(p) for p in (*points, point)})
        blocks = self._image.blocks
        if len(candidates) < 2 or any(blocks[i].color is None for i in candidates):
            return None
        objects = [
            SceneObject("block", block.color or "", self._box(i)) for i, block in enumerate(blocks)
        ]
        return ask(candidates, objects, {}).text

    def _block(self, point: Point) -> int:
        return self._image.blocks.index(nearest(self._image.blocks, point))

    def _box(self, block: int) -> Fractions:
        """The box of a block as fractions of the image."""
        found = Box(*self._regions[block].box).clipped(self._width, self._height)
        return found.in_fractions(self._width, self._height).as_tuple()


# -------------------------------------------------------------------------------------------------
# The guesses and their scores.


@dataclass(frozen=True)
class Guess:
    """The box at the end of one dialogue. box, truth: x_min, y_min, x_max, y_max in pixels.

    questions: their number in the dialogue. center: whether the centre is in the true box. near:
    whether it is within 20 px of the point; None without a point. estimated: False where a fixed
    square stands in for the true box.
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
    clue: Grounder[Any],
    dialogues: Iterable[TargetDialogue],
    *,
    problem: Callable[[str], None] = lambda reason: None,
) -> list[Guess]:
    """Point at the end of each dialogue. `problem` is called for an image that cannot be read."""
    guesses: list[Guess] = []

    def look(item: TargetDialogue) -> tuple[Any, int, int]:
        image = item.sample.load()
        return clue.look(image), image.shape[1], image.shape[0]

    for item, (view, width, height) in _looked_at(dialogues, look, problem):
        dialogue = item.sample.dialogue()
        reply = clue.reply(view, dialogue, force_grounding=True)
        if not isinstance(reply, Grounding):
            raise ClueError("the model asked although it had to point")
        targets = (target.in_pixels(width, height) for target in item.sample.targets)
        truth = max(targets, key=reply.box.iou)
        near = None
        if item.point is not None:
            near = center_near(reply.box, (item.point[0] * width, item.point[1] * height), NEAR_PX)
        guesses.append(
            Guess(
                id=item.sample.id,
                image=item.sample.image_id,
                questions=len(item.sample.exchanges),
                context=dialogue.context(),
                box=reply.box.as_list(),
                truth=truth.as_list(),
                iou=reply.box.iou(truth),
                center=truth.contains(reply.box.center),
                near=near,
                estimated=item.estimated,
            )
        )
    return guesses


SeenT = TypeVar("SeenT")


def _looked_at(
    dialogues: Iterable[TargetDialogue],
    look: Callable[[TargetDialogue], SeenT],
    problem: Callable[[str], None],
) -> Iterator[tuple[TargetDialogue, SeenT]]:
    """Each dialogue with its image looked at, once for all dialogues that follow each other."""
    last: tuple[str, SeenT] | None = None
    for item in dialogues:
        if last is None or last[0] != item.sample.image_id:
            try:
                last = item.sample.image_id, look(item)
            except BadImageError as error:
                problem(f"{item.sample.id}: left out, {error}")
                continue
        yield item, last[1]


def score_questions(
    clue: Clue, dialogues: Sequence[TargetDialogue], *, axes: bool
) -> dict[str, float | int | None]:
    """Token accuracy and perplexity of the true questions to adapter B.

    With `axes` also the share of its own questions that ask for the same property as the true one.
    An image that cannot be read is left out. None where there is no question.
    """
    checkpoint = clue.checkpoint
    loss, right, tokens, questions, same_axis = 0.0, 0, 0, 0, 0
    asked = [item for item in dialogues if item.sample.exchanges]
    looked_at = _looked_at(asked, lambda i: checkpoint.look(i.sample.load()), lambda reason: None)
    for item, features in looked_at:
        for context, question in reveal_pairs(item.sample)[: len(item.sample.exchanges)]:
            one_loss, one_right, length = checkpoint.forced(features, context, question)
            loss, right, tokens = loss + one_loss, right + one_right, tokens + length
            questions += 1
            if axes:
                said = checkpoint.words(checkpoint.speak(features, context, "question"))
                same_axis += question_axis(said) == question_axis(question)
    shares: dict[str, float | int | None] = {
        "token_accuracy": rounded(ratio(right, tokens)),
        "perplexity": rounded(math.exp(loss / tokens) if tokens else math.nan),
    }
    if axes:
        shares["right_axis"] = rounded(ratio(same_axis, questions))
    return shares | {"n": questions}


def summary(guesses: Sequence[Guess]) -> dict[str, Any]:
    """The scores of all guesses, and by the number of questions; None where there is nothing."""
    groups = sorted({guess.questions for guess in guesses})
    whole = _scores(guesses)
    whole["curve"] = curve([guess.iou for guess in guesses])
    return {
        "guesser": whole,
        "by_questions": {
            str(number): _scores([g for g in guesses if g.questions == number]) for number in groups
        },
    }


def _scores(guesses: Sequence[Guess]) -> dict[str, Any]:
    right, n = sum(guess.iou >= MIN_IOU for guess in guesses), len(guesses)
    low, high = wilson(right, n)
    scores: dict[str, Any] = {
        "accuracy": rounded(ratio(right, n)),
        "low": rounded(low),
        "high": rounded(high),
        "mean_iou": rounded(mean([g.iou for g in guesses])),
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
    """The summary as tables; in Markdown with the paper's figures."""
    names = [name for name in _COLUMNS if name in result["guesser"]]
    header = ["guesser", *(_COLUMNS[name] for name in names)]
    rows: list[list[Cell]] = [["all", *(result["guesser"][name] for name in names)]]
    for number, scores in result["by_questions"].items():
        label = "no question" if number == "0" else f"{number} question{'s' * (number != '1')}"
        rows.append([label, *(scores[name] for name in names)])
    if markdown:
        published = [{"accuracy": accuracy} for accuracy in TABLE_3.values()]
        rows += [
            [f"{name} (paper, InViG)", *(scores.get(column) for column in names)]
            for name, scores in zip(TABLE_3, published, strict=True)
        ]
    shares = result["guesser"]["curve"]
    parts = [
        table(header, rows, markdown=markdown),
        table(["IoU of at least", *shares], [["share", *shares.values()]], markdown=markdown),
    ]
    if "asker" in result:
        names = [name.replace("_", " ") for name in result["asker"]]
        row = ["true questions", *result["asker"].values()]
        parts.append(table(["asker", *names], [row], markdown=markdown))
    if "near_20px" in result["guesser"]:
        parts.append(
            "IT2P annotates points: the true boxes are estimated from the photograph"
            f" ({result['guesser']['stand_in_boxes']} of them are a fixed square)."
        )
    return "\n\n".join(parts)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `clue eval ivg`."""
    add_options(parser, GuesserOptions)


def run(args: argparse.Namespace) -> int:
    """Run `clue eval ivg`; the exit status."""
    options = read_options(GuesserOptions, args)
    dialogues, problems = load_dialogues(options)
    if not dialogues:
        raise ClueError("no dialogues to evaluate: check the source and the split")
    note(problems)
    clue = options.model.load()
    lost: list[str] = []
    guesses = guess_all(clue, with_progress(dialogues, "dialogue"), problem=lost.append)
    note(lost)
    if not guesses:
        raise ClueError("none of the images can be read")
    result: dict[str, Any] = {"data": options.data, "split": options.split} | summary(guesses)
    if options.asker:
        result["asker"] = score_questions(clue, dialogues, axes=options.data != "invig")
    options.output.write_records(map(asdict, guesses))
    options.output.show(
        result,
        lambda markdown: as_table(result, markdown=markdown),
        measured(clue),
        options.seed,
    )
    return 0
