"""Train adapters A and B on, for some minutes, with a few labelled photographs of one table.

A step's pictures are half photographs (mirrored, shifted, zoomed, relit) and half the simulated
scenes that the adapters learned from, so that they forget nothing. Each request appears in many
forms, and is answered by the box, by a question that its answer ends, or by "i don't see it". Data,
losses and loop are those of `clue train ivg` and `clue train detector`. `clue_ros.lab.adapt_trial`
measures whether it helps.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from clue_ros.dialogue.inflection import article
from clue_ros.dialogue.noun_phrases import described_object
from clue_ros.dialogue.types import Dialogue
from clue_ros.errors import BadImageError
from clue_ros.images import load_image
from clue_ros.lab.data.photographs import Photograph
from clue_ros.lab.language.dialogues import DialogueState
from clue_ros.lab.language.questions import ask, nothing
from clue_ros.lab.language.words import REQUESTS, Rng, mirrored_text, pick
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.training import detector, ivg
from clue_ros.lab.training.augment import Mirror, ScenePool, mirrored, photographed, shifted, zoomed
from clue_ros.lab.training.datasets import SIMULATED, TrainingData, load_training_data
from clue_ros.lab.training.detector import DetectorOptions, train_detector
from clue_ros.lab.training.detector_data import DetectorData
from clue_ros.lab.training.ivg import IvgOptions, train_ivg
from clue_ros.lab.training.ivg_data import CLARIFY, IvgData
from clue_ros.lab.training.parallel import start_processes
from clue_ros.lab.training.photographs import Pixels, RandomPhotographs, fit_to
from clue_ros.lab.training.samples import PER_PICTURE, Query, Sample, detect_query, dialogue_query
from clue_ros.model.backbone import DETECTOR, IVG
from clue_ros.model.fusion import load_fusion, save_fusion, weights_digest
from clue_ros.model.loading import read_json, write_json

STEPS = {IVG: 24, DETECTOR: 12}  # with 8 pictures each: under a minute of two cores
BATCH = 8
RATE = 3e-4  # learning rate of the embedded adapters' last training steps
SHARE = 0.5  # share of a step's pictures that are photographs
SCENES, CHECKED = 300, 100  # numbers of simulated scenes: replayed, evaluated
ZOOMED = 0.3  # share of the photographs that show some of their objects larger
LONGER_SIDE = 640  # pixels at which a photograph is mirrored, shifted and zoomed
_RASTER = 128  # side of the instance map drawn from boxes
_SETTINGS = {IVG: "ivg.json", DETECTOR: "detector.json"}


@dataclass(frozen=True)
class Asked:
    """The phrase of a request, such as "red can", and the numbers of the boxes that it means."""

    phrase: str
    meant: tuple[int, ...]


@dataclass(frozen=True)
class Labelled:
    """A photograph whose objects are the boxes of its requests, named by number."""

    id: str
    shown: Scene
    asked: tuple[Asked, ...]

    def load(self) -> Pixels:
        """The picture, uint8 RGB (H, W, 3)."""
        return self.shown.image


def labelled(photographs: Sequence[Photograph]) -> list[Labelled]:
    """Return the photographs as scenes, without those that are unreadable or have no box."""
    rows = []
    for photograph in photographs:
        boxes = list(dict.fromkeys(box for r in photograph.requests for box in r.boxes))
        if not boxes:
            continue
        try:
            image = load_image(photograph.path)
        except BadImageError:
            continue
        height, width = image.shape[:2]
        found = [box.in_fractions(width, height) for box in boxes]
        instances = np.zeros((_RASTER, _RASTER), np.uint8)
        # Large boxes first, so that a small one before or in it is seen.
        for number in sorted(range(len(found)), key=lambda n: -found[n].area):
            x0, y0, x1, y1 = (round(side * _RASTER) for side in found[number].as_tuple())
            instances[y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)] = number + 1
        scale = min(1.0, LONGER_SIDE / max(width, height))
        size = round(width * scale), round(height * scale)
        small = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
        things = tuple(
            SceneObject("object", "", box.as_tuple(), names=(str(n),))
            for n, box in enumerate(found)
        )
        asked = (
            Asked(phrase, tuple(map(boxes.index, request.boxes)))
            for request in photograph.requests
            if (phrase := described_object(Dialogue(request.text).turns))
        )
        rows.append(Labelled(photograph.path.name, Scene(small, things, instances), tuple(asked)))
    return rows


def moments(
    phrase: str, candidates: tuple[int, ...], objects: Sequence[SceneObject], rng: Rng
) -> list[DialogueState]:
    """A dialogue that begins with a request for a phrase; the phrase means these objects."""
    text = pick(rng, REQUESTS).format(f"the {phrase}")
    if len(candidates) == 1:
        return [DialogueState(text, candidates, None)]
    if not candidates:
        return [DialogueState(text, (), nothing(f"{article(phrase)} {phrase}").text)]
    question = ask(candidates, objects, {})
    states = [DialogueState(text, candidates, question.text, question.options)]
    for word, meant in question.groups.items():
        if len(meant) == 1:
            said = f"{text} assistant: {question.text} user: the {word} one"
            states.append(DialogueState(said, meant, None))
    return states


class TablePhotographs(RandomPhotographs[Labelled]):
    """Photographs of one table with moments of dialogues about them, drawn anew each time.

    instruction: "clarify" for adapter B's replies, else the detector's samples. known: whether
    the tokenizer has a phrase's words.
    """

    def __init__(
        self,
        items: Sequence[Labelled],
        fit: Callable[[Pixels], Pixels],
        *,
        instruction: str,
        seed: int,
        known: Callable[[str], bool] = lambda phrase: True,
    ) -> None:
        able = [
            replace(item, asked=kept)
            for item in items
            if (kept := tuple(a for a in item.asked if known(a.phrase)))
        ]
        super().__init__(able, fit, most=PER_PICTURE, seed=seed, name="photographs")
        self._instruction = instruction

    def __call__(self, position: int) -> Sample:
        """The photograph of this position with its queries; a function of the seed and it alone."""
        rng = np.random.default_rng((self._seed, 23, position))
        item = self.items[self._shuffled(position)]
        mirror = bool(rng.uniform() < 0.5), False
        scene = mirrored(item.shown, mirror)
        scene = (zoomed(scene, rng) if rng.uniform() < ZOOMED else None) or shifted(scene, rng)
        scene = photographed(replace(scene, image=self._fit(scene.image)), rng, tables=False)
        return scene, [self._query(item, scene, mirror, rng) for _ in range(self._most)]

    def _query(
        self, item: Labelled, scene: Scene, mirror: Mirror, rng: np.random.Generator
    ) -> Query:
        """Draw a moment of a dialogue. Objects outside a zoomed part count as absent."""
        asked = item.asked[int(rng.integers(len(item.asked)))]
        shown = {int(o.names[0]): place for place, o in enumerate(scene.objects)}
        meant = tuple(shown[number] for number in asked.meant if number in shown)
        states = moments(mirrored_text(asked.phrase, mirror), meant, scene.objects, rng)
        state = states[0 if rng.uniform() < 0.5 else int(rng.integers(len(states)))]
        if self._instruction == CLARIFY:
            return dialogue_query(state, scene.objects)
        return detect_query(state.context, state.candidates, self._instruction)


@dataclass(frozen=True)
class Recipe:
    """The simulated scenes that are replayed, the device, and the steps of each adapter.

    threads: 0 for PyTorch's choice.
    """

    tabletop: Path
    world: str
    device: str = "auto"
    threads: int = 0
    steps: Mapping[str, int] = field(default_factory=lambda: STEPS)


def train_adapters(
    source: Path, photographs: Sequence[Photograph], out: Path, recipe: Recipe
) -> dict[str, float]:
    """Train a model's adapters on and write them with their fusion; resume an interrupted run.

    source: the model's folder. out: folder of the adapters and the runs' states. Returns figures on
    simulated scenes: box_right, the share of boxes with an IoU of at least 0.5 (teacher-forced),
    and f1 of the detector.

    Raises ClueError and FileNotFoundError for missing scenes.
    """
    done = out / "simulated.json"
    if done.is_file():
        return read_json(done)
    rows = labelled(photographs)

    @cache
    def scenes(size: int) -> TrainingData:
        data = load_training_data(shared, size, sources=(SIMULATED,), via=shared.via)
        held_out = [data.held_out[i] for i in range(min(CHECKED, len(data.held_out)))]
        data.held_out = ScenePool(held_out, size)
        return data

    def photos(processor: Any, instruction: str) -> tuple[TrainingData, TablePhotographs]:
        tokenizer = processor.tokenizer

        def known(phrase: str) -> bool:
            return tokenizer.unk_token_id not in tokenizer(phrase)["input_ids"]

        shown = TablePhotographs(
            rows, fit_to(processor), instruction=instruction, seed=shared.seed, known=known
        )
        return scenes(processor.image_processor.size["height"]), shown

    def dialogues(processor: Any) -> IvgData:
        data, shown = photos(processor, CLARIFY)
        return IvgData(data, shown, SHARE, {}, {"photographs": len(rows)})

    def judged(processor: Any, instruction: str) -> DetectorData:
        data, shown = photos(processor, instruction)
        return DetectorData(instruction, data, shown, None, SHARE)

    via = int(read_json(source / IVG / _SETTINGS[IVG]).get("max_boxes", 1)) > 1
    common: dict[str, Any] = {
        "model": str(source),
        "tabletop": recipe.tabletop,
        "world": recipe.world,
        "device": recipe.device,
        "threads": recipe.threads,
        "data": (SIMULATED,),
        "scenes": SCENES,
        "batch": BATCH,
        "save_every": 20,
        "run": out / "run",
    }
    shared = IvgOptions(
        **{**common, **ivg.EMBEDDED, "lr": RATE}, out=out / IVG, init=source / IVG, via=via,
        steps=recipe.steps[IVG],
    )  # fmt: skip
    rates = {key: value for key, value in detector.EMBEDDED.items() if key != "variant"}
    judge = DetectorOptions(
        **{**common, **rates, "lr": RATE, "head_batches": 0}, out=out / DETECTOR,
        init=source / DETECTOR, steps=recipe.steps[DETECTOR],
    )  # fmt: skip
    processes = start_processes(str(shared.start_device()), shared.precision)
    with contextlib.redirect_stdout(sys.stderr):
        train_ivg(shared, processes, load=dialogues)
        train_detector(judge, processes, load=judged)
    measured = {
        **read_json(out / IVG / _SETTINGS[IVG])["validation"],
        **read_json(out / DETECTOR / _SETTINGS[DETECTOR])["validation"],
    }
    for part, name in _SETTINGS.items():  # they decide as the model's own do
        shutil.copyfile(source / part / name, out / part / name)
    fusion = load_fusion(source / DETECTOR)
    if fusion is not None:
        digests = weights_digest(out / DETECTOR), weights_digest(out / IVG)
        own = replace(fusion, detector_sha256=digests[0], ivg_sha256=digests[1])
        save_fusion(own, out / DETECTOR)
    names = {"box_right": "val_box_right", "f1": "val_f1"}
    found = {name: measured[key] for name, key in names.items() if key in measured}
    write_json(done, found)
    return found
