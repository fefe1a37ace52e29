"""The four tasks of InViG (Zhang and others, 2023): `clue eval dialogue --task vqa|vqg|vg|ivg`.

vqa   M-VQA: answer a question, with the box in mind (the oracle, `clue train oracle`)
vqg   M-VQG: ask the next question (adapter B)
vg    M-VG: point at the end of a dialogue, whole or without its last 1, 2 or 3 turns; by the
      decoded box, and by the best of the proposals: the log-probability of the four location
      tokens of each, and of the end after them (`choose_box`)
ivg   I-VG: the robot asks, the oracle answers, the robot points; by the box, and by the best of the
      proposals at the end of the dialogue

With `--multi-turn` the robot reads the request and the newest exchange alone, as InViG-Base-MT, and
carries a belief about the proposals from turn to turn (`belief`).

`sentence_tasks` has the first two: text scores and retrieval. Proposals are a detector's
(`--objects`); by default the targets of all dialogues about an image, in simulated scenes and in
GuessWhat?! all objects. The oracle's answers tell its object from the other proposals
(`--rationality`).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import (
    MAX_QUESTIONS,
    SAME_BOX,
    Box,
    Dialogue,
    Grounding,
)
from clue_ros.errors import ClueError
from clue_ros.grounders import has_checkpoint
from clue_ros.lab.data.episodes import load_episodes
from clue_ros.lab.data.export_invig import sample_dialogues
from clue_ros.lab.data.invig import (
    InvigIndex,
    InvigSample,
    index_invig,
    numbered,
    usable,
)
from clue_ros.lab.data.invig_layouts import STATUSES
from clue_ros.lab.data.referring import turns_of
from clue_ros.lab.evaluation.belief import (
    Belief,
    Evidence,
    NewestTurn,
    current_texts,
    evidence_of,
    fit_belief,
    targets_among,
)
from clue_ros.lab.evaluation.dialogue_curves import HOWS, LEVELS, curve, draw_curves, task_table
from clue_ros.lab.evaluation.options import (
    PolicyOptions,
    RecordsOptions,
    measured,
    note,
    nouns_option,
    objects_option,
)
from clue_ros.lab.evaluation.oracle_user import RATIONALITY, OracleUser
from clue_ros.lab.evaluation.protocol import (
    DialogueRequest,
    EvalSample,
    EvaluationReport,
    Grade,
    evaluate,
)
from clue_ros.lab.evaluation.sentence_tasks import (
    LastImage,
    measure_sentences,
)
from clue_ros.lab.evaluation.tabletop import load_scenes, tabletop_samples
from clue_ros.lab.evaluation.text_scores import problems_of
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.metrics import ratio, rounded
from clue_ros.lab.options import (
    add_options,
    at_least,
    not_negative,
    option,
    read_options,
    required,
)
from clue_ros.lab.published import INVIG_TEXT
from clue_ros.lab.report import with_progress
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.shards import SPLITS
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS
from clue_ros.model.location_tokens import BETWEEN, encode_box, to_text
from clue_ros.wrapper.sources import DetectedObjects

if TYPE_CHECKING:
    from clue_ros.engine import Clue
    from clue_ros.model.oracle import Oracle

TASKS = ("vqa", "vqg", "vg", "ivg")
DATA = ("invig", "guesswhat", "tabletop", "episodes")


@dataclass(frozen=True, kw_only=True)
class TaskOptions:
    """The options of `clue eval dialogue`."""

    task: str = required("the task", choices=TASKS)
    data: str = required("the data set", choices=DATA)
    source: str | None = option(
        None,
        f"folder of the data; for invig also a file or a hub id, for guesswhat a file;"
        f" default for tabletop: {DEFAULT_FOLDER}, for episodes: episodes",
        metavar="PATH",
    )
    unreviewed: bool = option(False, "measure on unreviewed episodes too, by the robot's own boxes")
    split: str = option("test", "split of the data", choices=SPLITS)
    games: str = option(
        "success",
        "games of GuessWhat?!: those that ended in success, or all",
        choices=("success", "all"),
    )
    world: str = option(DEFAULT_WORLD, "simulated world", choices=tuple(WORLDS))
    limit: int | None = option(None, "use the first N images only", type=at_least(1))
    per_image: int = option(2, "simulated dialogues about an image", type=at_least(1))
    seed: int = option(0, "seed of simulated dialogues and of the candidates")
    oracle: str | None = option(
        None,
        "folder of the oracle; for ivg on simulated scenes default: the rule-based person",
        metavar="DIR",
    )
    rationality: float = option(
        RATIONALITY,
        "with ivg, how much an answer of the oracle should fit its box better than the other"
        " proposals; 0: the likeliest answer",
        type=not_negative,
    )
    ranked_among: int = option(30, "sentences to rank the true one among; 0: none")
    clip: str | None = option(
        None,
        "with vqa and vqg, CLIP whose features say which images are similar, a folder or a hub id;"
        " default: the model's own features",
        metavar="NAME",
    )
    objects: tuple[str, ...] = objects_option(
        "with vg and ivg, detectors that propose the objects to choose among", "the true objects"
    )
    nouns: tuple[str, ...] = nouns_option()
    max_turns: int = option(MAX_QUESTIONS, "largest number of questions in ivg", type=at_least(0))
    multi_turn: bool = option(
        False,
        "with vqg, vg and ivg, read the request and the newest exchange alone (InViG-Base-MT);"
        " with vg and ivg, carry a belief about the proposals from turn to turn",
    )
    belief_images: int = option(
        100,
        "with --multi-turn, images of the validation split whose dialogues the belief's two numbers"
        " are fitted on; 0: both are 1",
        type=at_least(0),
        metavar="N",
    )
    figure: Path | None = option(
        None,
        "with vg and ivg, file to draw the curves over the IoU into (.png, .svg, .pdf)",
        metavar="FILE",
    )
    model: PolicyOptions
    output: RecordsOptions

    @cached_property
    def scenes(self) -> list[Scene]:
        """The simulated scenes, read once."""
        folder = DEFAULT_FOLDER if self.source is None else Path(self.source)
        return load_scenes(folder, self.split, self.limit, self.world)


# -------------------------------------------------------------------------------------------------
# The dialogues.


def load_task_samples(options: TaskOptions) -> tuple[Sequence[InvigSample], list[str]]:
    """Return the dialogues of a data set, and its problems. Raises ClueError.

    Dialogues and pictures of InViG and GuessWhat?! stay on disk.
    """
    if options.data == "tabletop":
        told = sample_dialogues(
            options.scenes,
            grammar_of(options.world),
            name="scene",
            per_image=options.per_image,
            seed=options.seed,
        )
        return [sample for sample, _ in told], []
    if options.data == "episodes":
        read = load_episodes(options.source or "episodes", unreviewed=options.unreviewed)
        names = list(dict.fromkeys(sample.image_id for sample in read.samples))
        kept = set(names[: options.limit])
        return [sample for sample in read.samples if sample.image_id in kept], list(read.problems)
    if options.source is None:
        raise ClueError(f"give the folder or file of {options.data} with --source")
    games = STATUSES if options.games == "all" else STATUSES[:1]
    index = index_invig(options.source, split=options.split, games=games)
    samples = index.samples
    assert isinstance(samples, InvigIndex)
    if options.limit is not None:
        samples = samples.of_first_images(options.limit)
    return samples, list(index.problems)


# -------------------------------------------------------------------------------------------------
# The tasks.


def measure_grounding(
    clue: Clue,
    samples: Sequence[InvigSample],
    proposals: Proposals,
    belief: Belief | None = None,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """M-VG, whole (Turn-0) and without the last 1, 2, 3 turns, by box and by choice.

    proposals: the boxes to choose among. Where there are none, the choice has an IoU of 0. belief:
    that of the multi-turn guesser, which chooses too.
    """
    records, lost = list[dict[str, Any]](), list[str]()
    for position in with_progress(range(len(samples)), "dialogue"):
        try:
            sample = samples[position]
            view = clue.look(sample.load())
        except ClueError as error:
            lost.append(str(error))
            continue
        boxes = proposals(position, sample, view.image)
        believed = None
        if belief is not None and boxes:
            believed = belief.after(_evidence(clue, view.features, sample.dialogue(), boxes))
        for dropped in range(min(3, len(sample.exchanges)) + 1):
            kept = sample.exchanges[: len(sample.exchanges) - dropped]
            dialogue = replace(sample, exchanges=kept).dialogue()
            reply = clue.reply(view, dialogue, force_grounding=True)
            assert isinstance(reply, Grounding)
            box = reply.box.in_fractions(view.width, view.height)
            chosen = 0.0
            if boxes:
                chosen = sample.iou(choose_box(clue, view.features, dialogue.context(), boxes))
            record = {"id": sample.id, "context": dialogue.context(), "dropped": dropped}
            record |= {"turns": len(sample.exchanges), "iou": sample.iou(box)}
            record |= {"iou_chosen": chosen, "proposals": len(boxes)}
            if belief is not None:
                record["iou_believed"] = 0.0
            if believed is not None:
                best = boxes[int(believed[len(kept)].argmax())]
                record["iou_believed"] = sample.iou(best)
            records.append(record)
    note(lost)
    if not records:
        raise ClueError(f"none of the {len(samples)} dialogues has a picture that can be read")
    return grounding_summary(records), records


def _evidence(clue: Clue, features: Any, dialogue: Dialogue, boxes: Sequence[Box]) -> Evidence:
    """Return the evidence of each turn alone about the proposals."""
    texts = current_texts(dialogue)
    return evidence_of([box_scores(clue, features, text, boxes) for text in texts])


def fitted_belief(clue: Clue, options: TaskOptions) -> tuple[Belief, int]:
    """Fit the multi-turn guesser's belief; return it and the number of validation dialogues.

    Raises ClueError if the data has no validation split.
    """
    if not options.belief_images:
        return Belief(), 0
    other = replace(options, split="val", limit=options.belief_images)
    if options.split == "val":
        raise ClueError(
            "--multi-turn fits on the validation split: measure another one, or give"
            " --belief-images 0"
        )
    samples, _ = load_task_samples(other)
    proposals, told = _proposals(samples, other), list[tuple[Evidence, npt.NDArray[np.bool_]]]()
    images = LastImage(clue)
    for position, sample in with_progress(numbered(samples, _known), "dialogue", len(samples)):
        boxes = proposals(position, sample, sample.load())
        if boxes:
            features = images.look(sample.image_id, sample.load)
            evidence = _evidence(clue, features, sample.dialogue(), boxes)
            told.append((evidence, targets_among(sample, boxes)))
    return fit_belief(told), len(told)


def choose_box(clue: Clue, features: Any, context: str, boxes: Sequence[Box]) -> Box:
    """Return adapter B's likeliest box at the end of a dialogue, in fractions."""
    return boxes[int(box_scores(clue, features, context, boxes).argmax())]


def box_scores(clue: Clue, features: Any, context: str, boxes: Sequence[Box]) -> Any:
    """Log-probabilities (n,) of boxes in fractions at the end of a dialogue, to adapter B.

    features: of the image, (1, N, D). For a decoder that counts, the boxes that it would name first
    stand before each box.
    """
    from clue_ros.model.backbone import IVG
    from clue_ros.model.oracle import suffix_log_probs

    parts = clue.checkpoint
    via = parts.speak(features, context, "grounding").via
    lead = "".join(to_text(codes) + BETWEEN for codes in via)
    suffixes = [lead + to_text(encode_box(box, 1, 1)) for box in boxes]
    sums, _ = suffix_log_probs(parts, IVG, features, parts.ivg.instruction, context, suffixes)
    return sums


def grounding_summary(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The share of boxes at each IoU of LEVELS, by the number of turns left out.

    A dialogue counts for Turn-m if it has m turns; `same_whole` is the share at 0.5 of the same
    dialogues with all turns.
    """
    out: dict[str, Any] = {}
    whole = {record["id"]: record for record in records if record["dropped"] == 0}
    for dropped in sorted({record["dropped"] for record in records}):
        part = [record for record in records if record["dropped"] == dropped]
        scores: dict[str, Any] = {
            name: curve([r[key] for r in part])
            for name, key in zip(HOWS, ("iou", "iou_chosen", "iou_believed"), strict=True)
            if key in part[0]
        }
        same = [whole[record["id"]] for record in part]
        right = sum(record["iou"] >= 0.5 for record in same)
        out[f"turn-{dropped}"] = scores | {
            "same_whole": rounded(ratio(right, len(same))),
            "n": len(part),
        }
    return out


def play_samples(
    clue: Clue, oracle: Oracle | None, samples: Sequence[InvigSample], options: TaskOptions
) -> Iterable[EvalSample]:
    """The games of I-VG: for simulated scenes those of `clue eval tabletop`, by either person."""
    images, proposals = LastImage(clue), _proposals(samples, options)
    if options.data != "tabletop":
        if oracle is None:
            raise ClueError("--task ivg on this data needs --oracle DIR (`clue train oracle`)")
        known = numbered(samples, lambda text: note([text]))
        return (
            _game(oracle, images, s, position, proposals, options.rationality)
            for position, s in known
        )
    games = tabletop_samples(
        options.scenes, options.world, per_image=options.per_image, seed=options.seed
    )
    out = []
    for position, (scene, game) in enumerate(zip(options.scenes, games, strict=True)):
        requests = tuple(
            replace(
                r,
                about={**r.about, "position": position},
                grades={**r.grades, **_levels(Box(*r.about["truth"][0]).iou)},
            )
            for r in game.interactive
        )
        if oracle is not None:
            features = cache(partial(clue.checkpoint.look, scene.image))
            told = [_in_scene(scene, position, r.about["truth"][0], r.text) for r in requests]
            requests = tuple(
                replace(
                    r,
                    answer=OracleUser(
                        oracle,
                        features,
                        r.text,
                        Box(*sample.box),
                        partial(proposals, position, sample, scene.image),
                        options.rationality,
                    ),
                )
                for r, sample in zip(requests, told, strict=True)
            )
        out.append(replace(game, clear=(), ambiguous=(), absent=(), interactive=requests))
    return out


def _levels(iou: Callable[[Box], float]) -> dict[str, Grade]:
    """Tests of a box at each IoU of LEVELS."""
    return {str(level): partial(_reaches, iou, level) for level in LEVELS}


def _reaches(iou: Callable[[Box], float], level: float, box: Box) -> bool:
    return iou(box) >= level


def _game(
    oracle: Oracle,
    images: LastImage,
    sample: InvigSample,
    position: int,
    proposals: Proposals,
    rationality: float,
) -> EvalSample:
    shape = list[int]()

    def load() -> npt.NDArray[np.uint8]:
        image = sample.load()
        shape[:] = image.shape[:2]
        return image

    def iou(box: Box) -> float:
        height, width = shape
        return sample.iou(box.in_fractions(width, height))

    def others() -> list[Box]:
        found = proposals(position, sample, sample.load())
        return [box for box in found if sample.iou(box) < SAME_BOX]

    user = OracleUser(
        oracle,
        lambda: images.look(sample.image_id, sample.load),
        sample.request,
        Box(*sample.box),
        others,
        rationality,
    )
    grades: dict[str, Grade] = {"accuracy": partial(_reaches, iou, 0.5), **_levels(iou)}
    about = {"position": position}
    request = DialogueRequest(sample.request, grades, user, about)
    return EvalSample(sample.id, load, interactive=(request,))


def play_summary(
    clue: Clue,
    report: EvaluationReport,
    samples: Sequence[InvigSample],
    options: TaskOptions,
    belief: Belief | None = None,
) -> dict[str, Any]:
    """Success and questions of games, and the share at each IoU, by box and by choice.

    A game without a box has an IoU of 0. The choice needs adapter B, also the multi-turn guesser's,
    which replaces it where there is one.
    """
    out: dict[str, Any] = dict(report.summary()["interactive"])
    out["box"] = {str(level): out.pop(str(level), None) for level in LEVELS}
    if not has_checkpoint(clue):
        return out
    images, proposals = LastImage(clue), _proposals(samples, options)
    for record in report.records:
        record["iou_chosen"] = 0.0
        if record["outcome"] != "NONE" or record["box"] is None:
            continue
        position, sample = record["position"], _played(record, samples, options)
        boxes = proposals(position, sample, sample.load())
        if not boxes:
            continue
        features, said = images.look(sample.image_id, sample.load), record["dialogue"]
        if belief is None:
            best = choose_box(clue, features, said, boxes)
        else:
            request, *later = turns_of(said)
            evidence = _evidence(clue, features, Dialogue(request.text, later), boxes)
            best = boxes[int(belief.after(evidence)[-1].argmax())]
        record["iou_chosen"] = sample.iou(best)
    how = HOWS[1 if belief is None else 2]
    return out | {how: curve([record["iou_chosen"] for record in report.records])}


def _played(
    record: Mapping[str, Any], samples: Sequence[InvigSample], options: TaskOptions
) -> InvigSample:
    """Return the sample of a game; for a simulated scene without the true dialogue."""
    position: int = record["position"]
    if options.data != "tabletop":
        return samples[position]
    return _in_scene(options.scenes[position], position, record["truth"][0], record["text"])


def _in_scene(scene: Scene, position: int, truth: Sequence[float], request: str) -> InvigSample:
    """A request about a simulated scene, without its dialogue. truth: the target's box, pixels."""
    image = scene.image
    height, width = image.shape[:2]
    corners = Box(*truth).in_fractions(width, height).as_tuple()
    name = f"scene {position}"
    return InvigSample(name, name, lambda: image, request, (), corners)


Proposals = Callable[[int, InvigSample, npt.NDArray[np.uint8]], Sequence[Box]]
"""The boxes to choose among, in fractions: of a dialogue's position, the dialogue, its image."""


def _proposals(samples: Sequence[InvigSample], options: TaskOptions) -> Proposals:
    """By detectors; else all objects of a scene or game, or the targets of its dialogues."""
    if options.objects:
        detect = DetectedObjects(options.objects, options.nouns, options.model.device)

        def detected(_: int, __: InvigSample, image: npt.NDArray[np.uint8]) -> list[Box]:
            height, width = image.shape[:2]
            return [c.box.in_fractions(width, height) for c in detect(image)]

        return detected

    def objects(position: int, sample: InvigSample, _: npt.NDArray[np.uint8]) -> list[Box]:
        if options.data == "tabletop":
            number = int(sample.image_id.replace("-", " ").split()[-1])
            return [Box(*o.box) for o in options.scenes[number].objects]
        if sample.objects:
            return list(dict.fromkeys(Box(*box) for box in sample.objects))
        others: Iterable[InvigSample]
        if isinstance(samples, InvigIndex):
            others = usable(samples.about_image_of(position), _known)
        else:
            others = [other for other in samples if other.image_id == sample.image_id]
        return list(dict.fromkeys(Box(*other.box) for other in others))

    return objects


def _known(problem: str) -> None:
    """Problems of other dialogues about an image are named when their turn comes."""


# -------------------------------------------------------------------------------------------------
# The command.


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `clue eval dialogue`."""
    add_options(parser, TaskOptions)


def run(args: argparse.Namespace) -> int:
    """Run `clue eval dialogue`; the exit status."""
    options = read_options(TaskOptions, args)
    if options.task == "vqa" and options.oracle is None:
        raise ClueError("--task vqa needs --oracle DIR (`clue train oracle`)")
    if options.figure is not None and options.task in INVIG_TEXT:
        raise ClueError("--figure draws the curves of --task vg and ivg")
    samples, problems = load_task_samples(options)
    if not samples:
        raise ClueError("no dialogues to evaluate: check the source and the split")
    note(problems)
    clue = options.model.load()
    if not has_checkpoint(clue) and (options.task != "ivg" or options.oracle is not None):
        raise ClueError(
            "--model wrapper plays --task ivg with the rule-based person; the other tasks and the"
            " oracle need a PaliGemma 2"
        )
    oracle = None
    if options.oracle is not None:
        from clue_ros.model.oracle import Oracle

        oracle = Oracle(clue.checkpoint, options.oracle)
        if options.task != "vqa":
            oracle.require_box()
    belief, fitted = None, 0
    if options.multi_turn and options.task not in INVIG_TEXT:
        belief, fitted = fitted_belief(clue, options)
    records: Iterable[Mapping[str, Any]]
    if options.task in INVIG_TEXT:
        clip = None
        if options.clip is not None:
            from clue_ros.lab.evaluation.clip_features import ClipFeatures

            clip = ClipFeatures.load(options.clip, options.model.device)
        player = oracle if options.task == "vqa" else None
        result, records = measure_sentences(
            clue,
            player,
            samples,
            options.task,
            ranked_among=options.ranked_among,
            seed=options.seed,
            plain=options.data == "guesswhat" and options.task == "vqa",
            clip=clip,
            newest=options.multi_turn and options.task == "vqg",
        )
        note(problems_of(result))
    elif options.task == "vg":
        result, records = measure_grounding(clue, samples, _proposals(samples, options), belief)
    else:
        games, lost = play_samples(clue, oracle, samples, options), list[str]()
        report = evaluate(
            clue if belief is None else NewestTurn(clue),
            with_progress(games, "game"),
            max_questions=options.max_turns,
            problem=lost.append,
        )
        note(lost)
        result = play_summary(clue, report, samples, options, belief)
        records = report.records
    options.output.write_records(records)
    head: dict[str, Any] = {"task": options.task, "data": options.data, "split": options.split}
    if options.multi_turn:
        head["multi_turn"] = {} if belief is None else {**vars(belief), "fitted_on": fitted}
    if options.figure is not None:
        draw_curves(options.task, result, options.figure)
    options.output.show(
        {**head, **result},
        lambda markdown: task_table(options.task, result, markdown=markdown),
        measured(clue),
        options.seed,
    )
    return 0
