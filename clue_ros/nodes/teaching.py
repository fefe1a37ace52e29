# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Objects that a person shows to perception: the services `teach`, `forget` and `list_objects`.

Perception also learns the names that a person says in a dialogue. The model's thread does the work,
between two replies. Without an image an object is shown in the newest one of the camera; without a
box it is the one that the robot pointed at last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any

from builtin_interfaces.msg import Time
from clue_msgs.msg import TaughtObject
from clue_msgs.srv import ForgetObject, ListObjects, TeachObject
from rclpy.executors import Executor

from clue_ros.dialogue.conversation import Outcome
from clue_ros.dialogue.naming import Named, read_naming
from clue_ros.dialogue.types import Box, Grounding
from clue_ros.errors import ClueError
from clue_ros.nodes import messages
from clue_ros.nodes.camera import Frame
from clue_ros.nodes.inference_worker import Worker, new_future
from clue_ros.nodes.topics import Perception


class Teaching:
    """Serves the three services of a perception node.

    clue: the model; None while there is none. newest: the camera's newest frame, or why there is
    none. refusal: why nothing can be asked now, or None.
    """

    def __init__(
        self,
        node: Any,
        worker: Worker,
        executor: Executor,
        *,
        clue: Callable[[], Any],
        newest: Callable[[], Frame | tuple[str, str]],
        refusal: Callable[[], Outcome | None],
        **options: Any,
    ) -> None:
        self._node, self._worker, self._executor = node, worker, executor
        self._clue, self._newest, self._refusal = clue, newest, refusal
        self._pointed: tuple[Frame, Box] | None = None
        Perception.TEACH.serve(node, self._on_teach, **options)
        Perception.FORGET.serve(node, self._on_forget, **options)
        Perception.LIST_OBJECTS.serve(node, self._on_list, **options)

    def pointed(self, frame: Frame, grounding: Grounding) -> None:
        """Note what the robot points at: "that is a stapler" may follow."""
        self._pointed = frame, grounding.box

    def clear(self) -> None:
        """Forget what the robot pointed at."""
        self._pointed = None

    def hear(self, text: str) -> Callable[[], str] | None:
        """Read words said while no question is open: they may name the object pointed at.

        Returns the job that learns it (`learned`), None for anything else. "No, that is the tape"
        takes the box away from the word that it was found by.
        """
        naming = read_naming(text) if self._pointed is not None else None
        if naming is None or self._pointed is None:
            return None
        frame, box = self._pointed
        return lambda: self._teach(self._clue().look(frame.pixels()), Named(box, naming.name))

    def jobs(self, view: Any, named: Sequence[Named]) -> list[Callable[[], str]]:
        """The jobs that learn what a person called things in a view during a dialogue."""
        return [partial(self._teach, view, each) for each in named]

    def _teach(self, view: Any, named: Named) -> str:
        """Learn a name, and return it."""
        return str(self._clue().teach(view, named.box, named.name, instead=True).name)

    async def learned(self, job: Callable[[], str]) -> str:
        """Run one of the jobs in the model's thread; return the name, "" if it was not learned."""
        return str(await self._done(job, TeachObject.Response()) or "")

    async def _on_teach(
        self, request: TeachObject.Request, response: TeachObject.Response
    ) -> TeachObject.Response:
        shown = None if self._refusal() is not None else self._shown(request)
        if isinstance(shown, Outcome):
            return messages.fail(response, shown.code, shown.message)

        def teach() -> TaughtObject:
            assert shown is not None
            frame, box = shown
            clue = self._clue()
            view = clue.look(frame.pixels())
            return taught_msg(clue.teach(view, box, request.name, who=request.teacher))

        response.object = await self._done(teach, response) or response.object
        return response

    def _shown(self, request: TeachObject.Request) -> tuple[Frame, Box] | Outcome:
        """The image and the box that a request means."""
        box, image = messages.box_of(request.box), request.image
        given = bool(image.width or image.height or len(image.data))
        has_box = any(box.as_tuple())
        if given and has_box:
            return Frame(image, 0.0), box
        if given:
            return Outcome("BAD_BOX", "there is an image and no box: give the box in this image")
        if not has_box:
            nothing = "nothing has been pointed at yet: give a box"
            return self._pointed or Outcome("BAD_BOX", nothing)
        newest = self._newest()
        return (newest, box) if isinstance(newest, Frame) else Outcome(*newest)

    async def _on_forget(
        self, request: ForgetObject.Request, response: ForgetObject.Response
    ) -> ForgetObject.Response:
        await self._done(lambda: self._clue().memory.forget(request.name), response)
        return response

    async def _on_list(
        self, _request: ListObjects.Request, response: ListObjects.Response
    ) -> ListObjects.Response:
        def listed() -> list[TaughtObject]:
            memory = self._clue().memory
            memory.refresh()
            return [taught_msg(word) for word in memory.words.values()]

        response.objects = await self._done(listed, response) or []
        return response

    async def _done(self, job: Callable[[], Any], response: Any) -> Any:
        """Return a job's result from the model's thread; None, and fill `response`, on failure."""
        refusal = self._refusal()
        if refusal is not None:
            messages.fail(response, refusal.code, refusal.message)
            return None
        ended = new_future(self._executor)
        self._worker.submit(job, lambda result, error: ended.set_result((result, error)))
        result, error = await ended
        if error is None:
            return result
        known = isinstance(error, ClueError)
        reason = str(error) if known else f"{type(error).__name__}: {error}"
        self._node.get_logger().warning(reason)
        messages.fail(response, error.code if known else "MODEL_ERROR", reason)
        return None


def taught_msg(word: Any) -> TaughtObject:
    """A `clue_ros.model.word_memory.Word` as a message, with its last example's picture."""
    last = word.examples[-1]
    seconds = datetime.fromisoformat(last.date).timestamp()
    message = TaughtObject(
        name=word.name,
        other_names=list(word.other_names),
        num_examples=len(word.examples),
        last_taught=Time(sec=int(seconds)),
    )
    message.thumbnail.format = "jpeg"
    message.thumbnail.data = last.thumbnail
    return message
