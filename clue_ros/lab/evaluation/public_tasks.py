"""``clue eval tasks``: measure a base without adapters on PaliGemma's public tasks.

clue eval tasks --model models/mine --world rich --scenes 100      simulated validation scenes
clue eval tasks --model google/paligemma2-3b-mix-448               any PaliGemma, as published

"detect": precision and recall of all listed boxes at an IoU of 0.5, by the form of the prompt and
by the number of objects; absent things should have an empty answer. "answer en": answers right
by sort of question, about whole pictures and about crops of one object. "caption en": share of the
objects that a caption names, and of its parts that name an object. The prompts are the same for
every model; decoding is greedy and free.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.inflection import plural
from clue_ros.dialogue.types import Box
from clue_ros.lab.evaluation.in_domain import require_scenes
from clue_ros.lab.evaluation.options import ModelOptions, RecordsOptions
from clue_ros.lab.evaluation.tabletop import pixel_box
from clue_ros.lab.language.public_tasks import (
    CROP_QUESTIONS,
    DETECTIONS,
    LISTED,
    QUESTIONS,
    PublicTasks,
    public_tasks,
)
from clue_ros.lab.language.words import NUMBERS
from clue_ros.lab.metrics import MIN_IOU, ratio, rounded
from clue_ros.lab.options import add_options, at_least, option, read_options
from clue_ros.lab.report import Cell, table, with_progress
from clue_ros.lab.simulator.command import DEFAULT_FOLDER
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.simulator.shards import SPLITS
from clue_ros.lab.simulator.worlds import WORLDS
from clue_ros.model.backbone import Array
from clue_ros.model.checkpoint import look_at, open_backbone
from clue_ros.model.decoding import Vocabulary, read_prompts, reply_to
from clue_ros.model.load_options import LoadOptions
from clue_ros.model.loading import find_base, find_model, fingerprint
from clue_ros.model.location_tokens import decode_box, nearest_valid
from clue_ros.model.prompts import encode_prompts, open_processor
from clue_ros.model.tasks import ANSWER, DETECT

CROPS = 2  # objects of a scene that are asked about in crops
MARGIN = 0.15  # of a box's sides, around a crop
MOST_COUNTED = 5  # objects from which "detect" results are put together
# New tokens at most: of a list (four locations, three words and ";" a box), a caption, an answer.
DETECT_TOKENS, CAPTION_TOKENS, ANSWER_TOKENS = 8 * LISTED, 48, 24
TRIES = 8  # draws of a form or sort until a scene counts as giving none
_LISTED_BOX = re.compile(r"((?:<loc\d{4}>\s*){4})([^<;]*)")
_DIGITS = {word: str(number) for number, word in NUMBERS.items()} | {"one": "1", "zero": "0"}

Rgb = npt.NDArray[np.uint8]


@dataclass(frozen=True, kw_only=True)
class TasksOptions:
    """The options of ``clue eval tasks``."""

    world: str = option("rich", "simulated world", choices=tuple(WORLDS))
    tabletop: Path = option(DEFAULT_FOLDER, "folder of simulated scenes", metavar="DIR")
    split: str = option("val", "split of the scenes", choices=SPLITS)
    scenes: int = option(100, "number of scenes", type=at_least(1), metavar="N")
    seed: int = option(0, "seed of the prompts")
    model: ModelOptions
    output: RecordsOptions


class BaseModel:
    """A base without adapters that answers prompts in its own words."""

    def __init__(self, model: ModelOptions) -> None:
        folder = find_base(find_model(model.model))
        self.digest = fingerprint(folder)
        options = LoadOptions(folder, device=model.device, dtype=model.dtype)
        self.backbone = open_backbone(folder, options)
        self.processor: Any = open_processor(folder)
        size = self.backbone.config.text_config.vocab_size
        self.vocabulary = Vocabulary(self.processor.tokenizer, size)

    def look(self, image: Rgb) -> Array:
        """An image, uint8 RGB (H, W, 3) -> features (1, N, D)."""
        return look_at(self.backbone, self.processor, [image])

    def answers(
        self, features: Array, instruction: str, contexts: Sequence[str], most: int
    ) -> list[str]:
        """The answer to each prompt about one image, in lower case, with location tokens."""
        prompts = encode_prompts(self.processor, instruction, contexts)
        prefill = read_prompts(self.backbone, features, prompts, None)
        said = reply_to(
            self.backbone, self.vocabulary, prefill, "unconstrained", max_new_tokens=most
        )
        tokenizer = self.processor.tokenizer
        return [
            tokenizer.decode(list(s.tokens), skip_special_tokens=True).strip().lower() for s in said
        ]


Record = dict[str, Any]
"""A prompt, its answer, and the answer's scores."""


def ask_scene(
    base: BaseModel, scene: Scene, public: PublicTasks, rng: np.random.Generator
) -> list[Record]:
    """The answers of a base about a scene: one prompt of each form and sort that it allows."""
    features = base.look(scene.image)
    return [
        *_detections(base, features, scene, public, rng),
        *_answers(base, features, scene, public, rng),
        *_crop_answers(base, scene, public, rng),
        _caption(base, features, scene.objects, public),
    ]


def _detections(
    base: BaseModel,
    features: Array,
    scene: Scene,
    public: PublicTasks,
    rng: np.random.Generator,
) -> Iterator[Record]:
    drawn = [(form, _first(lambda f=form: public.detection(scene.objects, rng, f)))
             for form in DETECTIONS]  # fmt: skip
    asked = [(form, entries) for form, entries in drawn if entries is not None]
    prompts = [" ; ".join(text for text, _ in entries) for _, entries in asked]
    said = base.answers(features, DETECT, prompts, DETECT_TOKENS)
    height, width = scene.image.shape[:2]
    for (form, entries), prompt, text in zip(asked, prompts, said, strict=True):
        wanted = [pixel_box(scene, i) for _, found in entries for i in found]
        if len(wanted) > LISTED:
            continue
        boxes = [box for box, _ in listed_boxes(text, width, height)]
        hits = matched(boxes, wanted)
        yield {"task": "detect", "sort": form, "prompt": prompt, "answer": text,
               "objects": len(wanted), "boxes": len(boxes), "hits": hits}  # fmt: skip


def _answers(
    base: BaseModel,
    features: Array,
    scene: Scene,
    public: PublicTasks,
    rng: np.random.Generator,
) -> Iterator[Record]:
    drawn = [_first(lambda s=sort: public.question(scene.objects, rng, s)) for sort in QUESTIONS]
    questions = [question for question in drawn if question is not None]
    texts = [question.text for question in questions]
    said = base.answers(features, ANSWER, texts, ANSWER_TOKENS)
    for question, text in zip(questions, said, strict=True):
        right = same_answer(text, question.answer, public)
        yield {"task": "answer", "sort": question.sort, "prompt": question.text,
               "answer": text, "wanted": question.answer, "right": right}  # fmt: skip


def _crop_answers(
    base: BaseModel, scene: Scene, public: PublicTasks, rng: np.random.Generator
) -> Iterator[Record]:
    for i in rng.permutation(len(scene.objects))[:CROPS]:
        questions = [public.question_about(int(i), scene.objects, rng, s) for s in CROP_QUESTIONS]
        features = base.look(crop(scene.image, pixel_box(scene, int(i))))
        said = base.answers(features, ANSWER, [q.text for q in questions], ANSWER_TOKENS)
        for question, text in zip(questions, said, strict=True):
            right = same_answer(text, question.answer, public)
            yield {"task": "crop", "sort": question.sort, "prompt": question.text,
                   "answer": text, "wanted": question.answer, "right": right}  # fmt: skip


def _caption(
    base: BaseModel, features: Array, objects: Sequence[SceneObject], public: PublicTasks
) -> Record:
    (text,) = base.answers(features, "caption en", [""], CAPTION_TOKENS)
    parts = [part for part in re.split(r"\s*,\s*|\band\b", text) if part.strip()]
    true = [part for part in parts if any(is_named(o, part, public) for o in objects)]
    named = sum(is_named(o, text, public) for o in objects)
    return {"task": "caption", "sort": "caption", "prompt": "en", "answer": text,
            "objects": len(objects), "named": named, "parts": len(parts),
            "true": len(true)}  # fmt: skip


def _first(draw: Any) -> Any:
    """The first draw that is not None, of TRIES."""
    return next((found for _ in range(TRIES) if (found := draw()) is not None), None)


# --- scores of answers


def listed_boxes(text: str, width: int, height: int) -> list[tuple[Box, str]]:
    """The boxes of an answer to "detect", in pixels, each with its label.

    >>> [label for _, label in listed_boxes("<loc0000><loc0000><loc0009><loc0009> red mug ;", 9, 9)]
    ['red mug']
    """
    found = []
    for codes, label in _LISTED_BOX.findall(text):
        steps = nearest_valid([int(code) for code in re.findall(r"\d{4}", codes)])
        found.append((decode_box(steps, width, height), label.strip()))
    return found


def matched(boxes: Sequence[Box], wanted: Sequence[Box]) -> int:
    """Count the wanted boxes found; each box finds one at most, the best pairs first."""
    pairs = sorted(
        ((a.iou(b), i, j) for i, a in enumerate(boxes) for j, b in enumerate(wanted)), reverse=True
    )
    used: set[tuple[str, int]] = set()
    hits = 0
    for overlap, i, j in pairs:
        if overlap >= MIN_IOU and ("box", i) not in used and ("wanted", j) not in used:
            used |= {("box", i), ("wanted", j)}
            hits += 1
    return hits


def same_answer(text: str, wanted: str, public: PublicTasks) -> bool:
    """Return whether an answer is the wanted one, in any nouns for a kind, numbers as words too.

    Several nouns may come in any order.
    """
    canonical = {noun: names[0] for names in public.nouns.values() for noun in names}

    def parts(answer: str) -> list[str]:
        words = [part.strip(" .") for part in answer.lower().split(",")]
        return sorted(canonical.get(w, _DIGITS.get(w, w)) for w in words)

    return parts(text) == parts(wanted)


def is_named(o: SceneObject, text: str, public: PublicTasks) -> bool:
    """Return whether a caption names an object by its colour and a noun of its kind."""
    nouns = public.nouns.get(o.kind, (o.kind,))
    forms = "|".join(re.escape(form) for noun in nouns for form in (noun, plural(noun)))
    return re.search(rf"\b{o.color} ({forms})\b", text) is not None


def crop(image: Rgb, box: Box, margin: float = MARGIN) -> Rgb:
    """The pixels around a box, with a margin of its sides, within the image."""
    height, width = image.shape[:2]
    (x, y), half_w, half_h = box.center, box.width * (0.5 + margin), box.height * (0.5 + margin)
    left, right = max(0, int(x - half_w)), min(width, int(np.ceil(x + half_w)))
    top, bottom = max(0, int(y - half_h)), min(height, int(np.ceil(y + half_h)))
    return np.ascontiguousarray(image[top : max(bottom, top + 1), left : max(right, left + 1)])


# --- results


def summary_of(records: Sequence[Record]) -> dict[str, Any]:
    """Figures of all answers, as JSON."""
    by_task: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_task[record["task"]].append(record)
    captions = by_task["caption"]
    return {
        "detect": _detect_figures(by_task["detect"]),
        "answer": _answer_figures(by_task["answer"]),
        "crop": _answer_figures(by_task["crop"]),
        "caption": {
            "n": len(captions),
            "objects_named": _share(captions, "named", "objects"),
            "parts_true": _share(captions, "true", "parts"),
        },
    }


def _share(records: Sequence[Record], part: str, whole: str) -> float | None:
    return rounded(ratio(sum(r[part] for r in records), sum(r[whole] for r in records)))


def _detect_figures(records: Sequence[Record]) -> dict[str, Any]:
    def figures(chosen: Sequence[Record]) -> dict[str, Any]:
        exact = sum(r["hits"] == r["boxes"] == r["objects"] for r in chosen)
        return {"n": len(chosen), "precision": _share(chosen, "hits", "boxes"),
                "recall": _share(chosen, "hits", "objects"),
                "all_right": rounded(ratio(exact, len(chosen)))}  # fmt: skip

    present = [r for r in records if r["objects"]]
    absent = [r for r in records if not r["objects"]]
    empty = sum(not r["boxes"] for r in absent)
    numbers = sorted({min(r["objects"], MOST_COUNTED) for r in present})
    return {
        "all": figures(present),
        "by_form": {form: figures([r for r in present if r["sort"] == form])
                    for form in DETECTIONS if form != "absent"},
        "by_number": {
            f"{n}{'+' if n == MOST_COUNTED else ''}":
                figures([r for r in present if min(r["objects"], MOST_COUNTED) == n])
            for n in numbers
        },
        "absent": {"n": len(absent), "empty": rounded(ratio(empty, len(absent)))},
    }  # fmt: skip


def _answer_figures(records: Sequence[Record]) -> dict[str, Any]:
    sorts: dict[str, list[bool]] = defaultdict(list)
    for record in records:
        for name in ("all", record["sort"]):
            sorts[name].append(record["right"])
    return {
        name: {"n": len(right), "right": rounded(ratio(sum(right), len(right)))}
        for name, right in sorts.items()
    }


def as_text(summary: dict[str, Any], *, markdown: bool = False) -> str:
    """The figures as three tables."""
    detect, caption = summary["detect"], summary["caption"]
    rows: list[list[Cell]] = []
    groups = {"all": detect["all"], **detect["by_form"],
              **{f"{n} objects": f for n, f in detect["by_number"].items()}}  # fmt: skip
    for name, f in groups.items():
        rows.append([name, f["precision"], f["recall"], f["all_right"], f["n"]])
    absent = detect["absent"]
    rows.append(["absent: empty answer", None, None, absent["empty"], absent["n"]])
    answers: list[list[Cell]] = [
        [f"{sort}{suffix}", f["right"], f["n"]]
        for task, suffix in (("answer", ""), ("crop", ", crop"))
        for sort, f in summary[task].items()
    ]
    captions: list[list[Cell]] = [[caption["objects_named"], caption["parts_true"], caption["n"]]]
    return "\n\n".join(
        (
            table(["detect", "precision", "recall", "all right", "n"], rows, markdown=markdown),
            table(["answer en", "right", "n"], answers, markdown=markdown),
            table(["objects named", "parts true", "captions"], captions, markdown=markdown),
        )
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``clue eval tasks``."""
    add_options(parser, TasksOptions)


def run(args: argparse.Namespace) -> int:
    """Run ``clue eval tasks``; the exit status."""
    options = read_options(TasksOptions, args)
    scenes = require_scenes(options.tabletop, options.split, options.scenes, options.world)
    base = BaseModel(options.model)
    public = public_tasks(options.world)
    records: list[Record] = []
    for index, scene in enumerate(with_progress(scenes, "scene")):
        rng = np.random.default_rng([options.seed, index])
        records += [{"scene": index, **r} for r in ask_scene(base, scene, public, rng)]
    options.output.write_records(records)
    summary = {"world": options.world, "split": options.split, "scenes": len(scenes),
               **summary_of(records)}  # fmt: skip
    options.output.show(
        summary,
        lambda markdown: as_text(summary, markdown=markdown),
        {
            "model": options.model.model,
            "sha256": base.digest,
            "dtype": base.backbone.dtype,
            "device": base.backbone.device,
        },
        options.seed,
    )
    return 0
