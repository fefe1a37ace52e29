"""Dialogues about the ambiguous requests of `clue eval rec`, with a simulated user.

All objects of the pictures must be known (simulated scenes, IT2P). The user has one of the objects
in mind that the request can mean, drawn from the seed, and answers the robot's questions truthfully
(`clue_ros.lab.language.simulated_user`). The robot asks at most three questions, then must point. A
dialogue succeeds if its box has an IoU of at least 0.5 with that object's box.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from clue_ros.dialogue.types import MAX_QUESTIONS, Box
from clue_ros.lab.data.referring import ReferringItem
from clue_ros.lab.evaluation.protocol import DialogueRequest, EvalSample, Record, evaluate
from clue_ros.lab.language.rich_grammar import RichGrammar
from clue_ros.lab.language.simulated_user import RichUser
from clue_ros.lab.metrics import MIN_IOU, mean, ratio, rounded, wilson
from clue_ros.lab.report import with_progress


def dialogue_samples(
    items: Sequence[ReferringItem],
    grammar: RichGrammar,
    seed: int,
    limit: int | None = None,
) -> list[EvalSample]:
    """A sample for each picture with ambiguous requests, the same for the same seed.

    Its users answer once: make samples anew for each model that is measured. grammar: of the users'
    words. limit: largest number of dialogues.
    """
    by_picture: dict[str, list[DialogueRequest]] = {}
    load: dict[str, Any] = {}
    said: set[tuple[str, str]] = set()
    for number, item in enumerate(items):
        scene, text = item.picture.scene, item.turns[0].text
        key = item.picture.name, text
        if scene is None or len(item.turns) > 1 or len(item.meant) < 2 or key in said:
            continue
        if limit is not None and len(said) >= limit:
            break
        said.add(key)
        boxes = [Box(*o.box) for o in scene.objects]
        meant = tuple(i for i, box in enumerate(boxes) if box in item.meant)
        rng = np.random.default_rng([seed, number])
        target = int(rng.choice(meant))
        words = int(rng.integers(2**31))
        user = RichUser(grammar, scene.objects, target, meant, words)
        height, width = scene.image.shape[:2]
        (truth,) = ReferringItem(item.picture, item.turns, (boxes[target],)).boxes((width, height))
        grades = {"accuracy": lambda box, truth=truth: box.iou(truth) >= MIN_IOU}
        about = {"truth": [truth.as_list()]}
        confirms = partial(user.confirms, width=width, height=height)
        load[item.picture.name] = item.picture.load
        requests = by_picture.setdefault(item.picture.name, [])
        requests.append(DialogueRequest(text, grades, user, about, confirms=confirms))
    return [
        EvalSample(name, load[name], interactive=tuple(requests))
        for name, requests in by_picture.items()
    ]


def converse_all(grounder: Any, samples: Sequence[EvalSample]) -> list[Record]:
    """A record for each dialogue (`EvaluationReport`), with "success" and the box at its end."""
    report = evaluate(grounder, with_progress(samples), max_questions=MAX_QUESTIONS)
    return [{**r, "success": r["grades_forced"]["accuracy"]} for r in report.records]


def summary_of(records: Sequence[Record]) -> dict[str, Any]:
    """Share of successes with its 95 % interval, questions a dialogue, and their number."""
    right = sum(r["success"] for r in records)
    return {
        "dialogues": rounded(ratio(right, len(records))),
        "dialogues interval": [rounded(v) for v in wilson(right, len(records))],
        "questions": rounded(mean([r["questions"] for r in records])),
        "n dialogues": len(records),
    }
