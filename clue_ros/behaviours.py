# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Leaves for py_trees: hold a dialogue, answer its questions, follow the object.

    root = py_trees.composites.Sequence("fetch", memory=True)
    root.add_children([dialogue("the red mug", grounder, answer), Track(grounder), grasp])

`dialogue` is a Ground and an Ask side by side. Each leaf returns at once; a tree is ticked from any
thread. The leaves write to the blackboard: the grounding under GROUNDING, the newest message about
the followed object under TRACKED. py_trees is the extra `behaviours`.
"""

from __future__ import annotations

import py_trees
from py_trees.common import Access, ParallelPolicy, Status

from clue_ros.nodes.client import CommandGrounder, GroundingError, GroundingTask, OnQuestion

GROUNDING, TRACKED = "clue/grounding", "clue/tracked"  # keys of the blackboard


class Ground(py_trees.behaviour.Behaviour):
    """Finds the object of a request: RUNNING while the dialogue is held, then writes GROUNDING.

    expression: the request. FAILURE: `feedback_message` has the error's code and the reason.
    """

    def __init__(self, expression: str, grounder: CommandGrounder, name: str = "ground") -> None:
        super().__init__(name)
        self.expression = expression
        self.task: GroundingTask | None = None
        self._grounder = grounder
        self._board = self.attach_blackboard_client()
        self._board.register_key(GROUNDING, Access.WRITE)

    def initialise(self) -> None:
        """Send the request."""
        self.feedback_message = ""
        try:
            self.task = self._grounder.start(self.expression, timeout=0.0)
        except GroundingError as error:
            self.task, self.feedback_message = None, str(error)

    def update(self) -> Status:
        """Look whether it has ended."""
        if self.task is None:
            return Status.FAILURE
        if not self.task.done():
            asked = self.task.question
            self.feedback_message = "" if asked is None else asked.text
            return Status.RUNNING
        try:
            found = self.task.result()
        except GroundingError as error:
            self.feedback_message = str(error)
            return Status.FAILURE
        self._board.set(GROUNDING, found)
        self.feedback_message = found.target.label
        return Status.SUCCESS

    def terminate(self, new_status: Status) -> None:
        """End the dialogue if the tree turns elsewhere before it has ended."""
        if new_status is Status.INVALID:  # py_trees also calls it for an ended leaf, at a restart
            self.shutdown()

    def shutdown(self) -> None:
        """End the dialogue: `BehaviourTree.shutdown` terminates no leaf that runs."""
        if self.task is not None and not self.task.done():
            self.task.cancel()
        self.task = None


class Ask(py_trees.behaviour.Behaviour):
    """Answers the questions of a Ground beside it; RUNNING until that one has ended.

    answer: called at each tick with the open question until it returns a text or a
    candidate's index; None: not yet.
    """

    def __init__(self, ground: Ground, answer: OnQuestion, name: str = "ask") -> None:
        super().__init__(name)
        self._ground, self._answer = ground, answer
        self._answered = 0  # the last question, by its number in the dialogue

    def initialise(self) -> None:
        """Begin with no question answered."""
        self._answered = 0

    def update(self) -> Status:
        """Answer the open question if there is an answer."""
        task = self._ground.task
        if task is None or task.done():
            return Status.SUCCESS
        question = task.question
        if question is None or question.turn <= self._answered:
            return Status.RUNNING
        answer = self._answer(question)
        if answer is not None:
            try:
                task.answer(answer)
                self._answered, self.feedback_message = question.turn, str(answer)
            except GroundingError as error:  # it cannot be used: the question stays open
                self.feedback_message = str(error)
        return Status.RUNNING


class Track(py_trees.behaviour.Behaviour):
    """Follows the object of the last grounding, and writes TRACKED.

    RUNNING until its first frame; SUCCESS while it is seen; FAILURE where it is lost, or cannot be
    followed. It is followed until the leaf is interrupted, or its tree shut down.
    """

    def __init__(self, grounder: CommandGrounder, name: str = "track") -> None:
        super().__init__(name)
        self._grounder = grounder
        self._number: int | None = None
        self._board = self.attach_blackboard_client()
        self._board.register_key(TRACKED, Access.WRITE)

    def initialise(self) -> None:
        """Begin to follow, unless it is followed already."""
        self.feedback_message = ""
        if self._number is not None:
            return
        _ = self._grounder.tracked  # subscribes
        try:
            self._number = self._grounder.follow()
        except GroundingError as error:
            self.feedback_message = str(error)

    def update(self) -> Status:
        """Look where it is."""
        if self._number is None:
            return Status.FAILURE
        seen = self._grounder.tracked.get(self._number)
        if seen is None:
            return Status.RUNNING
        self._board.set(TRACKED, seen)
        self.feedback_message = "lost" if seen.lost else seen.object.label
        return Status.FAILURE if seen.lost else Status.SUCCESS

    def terminate(self, new_status: Status) -> None:
        """Follow it no longer if the tree turns elsewhere."""
        if new_status is Status.INVALID:
            self.shutdown()

    def shutdown(self) -> None:
        """Follow it no longer."""
        number, self._number = self._number, None
        if number is not None:
            try:
                self._grounder.unfollow(number)
            except GroundingError as error:  # perception has stopped it by itself, or is gone
                self.feedback_message = str(error)


def dialogue(
    expression: str, grounder: CommandGrounder, answer: OnQuestion, name: str = "dialogue"
) -> py_trees.composites.Parallel:
    """A Ground whose questions an Ask answers: SUCCESS with GROUNDING written, or FAILURE."""
    ground = Ground(expression, grounder)
    both = py_trees.composites.Parallel(name, ParallelPolicy.SuccessOnSelected([ground]))
    both.add_children([ground, Ask(ground, answer)])
    return both
