"""A real perception node in a thread of the test's process, whose model plays a script."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.parameter import Parameter
from ros_helpers import TIMEOUT, isolate

from clue_ros.dialogue.types import AmbiguityEstimate, Box, Dialogue, Grounding, Question
from clue_ros.dialogue.words import offered_answers
from clue_ros.nodes.lifecycle import spin
from clue_ros.nodes.perception_node import PerceptionNode

BOXES = (Box(1, 2, 30, 40), Box(50, 2, 90, 40))
ESTIMATE = AmbiguityEstimate(0.9, 0.5, np.zeros((4, 4), np.float32), (), 0.0)


class ScriptedClue:
    """A model that asks `question` until `questions` are asked or it is forced, then points."""

    model_name, device, dtype = "scripted", "cpu", "float32"
    policy: str
    threshold: float | None
    num_views: int | None
    max_risk: float | None = None
    question = "the red one or the green one?"
    questions = 1
    asks_each = False  # about each request, until `questions` are asked about all of them
    score: Any = 0.5
    runs = False  # the model

    def __init__(self) -> None:
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def look(self, image: Any) -> Any:
        """Return a view of the image."""
        return SimpleNamespace(image=image, height=image.shape[0], width=image.shape[1])

    def reply(self, _view: Any, dialogue: Dialogue, *, force_grounding: bool) -> Any:
        """Ask, or point with the person's last words as the label."""
        self.runs = True
        assert self.may_go_on.wait(TIMEOUT)
        self.runs = False
        asked = bool(dialogue.questions) if self.asks_each else dialogue.questions >= self.questions
        if force_grounding or asked:
            return Grounding(BOXES[0], dialogue.turns[-1].text, self.score, ESTIMATE)
        answers = offered_answers(self.question)
        bound = tuple((number,) for number in range(2)) if len(answers) == 2 else ()
        return Question(
            self.question, BOXES, answers, ESTIMATE, answer_candidates=bound, labels=("mug", "bowl")
        )

    def memory_bytes(self) -> int:
        """Return nothing to speak of."""
        return 0


class Scripted(PerceptionNode):
    """The perception node with a ScriptedClue, which loads once `may_load` is set."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.may_load = threading.Event()
        self.speeches = 0  # for a test that counts them
        super().__init__(*arguments, **options)

    def load(self) -> Any:
        """Return the scripted model."""
        assert self.may_load.wait(TIMEOUT)
        self.script = ScriptedClue()
        return self.script


@contextlib.contextmanager
def scripted(executor_type: Any, *arguments: Any, **parameters: Any) -> Iterator[Scripted]:
    """Spin the node on an executor of this type, made with these arguments."""
    isolate()
    context = rclpy.Context()
    rclpy.init(context=context)
    executor = executor_type(*arguments, context=context)
    given = [Parameter(name, value=value) for name, value in parameters.items()]
    node = Scripted(executor, context=context, parameter_overrides=given)
    executor.add_node(node)

    def run() -> None:
        with contextlib.suppress(ExternalShutdownException):
            spin(executor)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield node
    finally:
        node.close()
        context.try_shutdown()
        thread.join(TIMEOUT)
        executor.shutdown(timeout_sec=2.0)
        node.destroy_node()
