# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A robot without a body and without ROS: it looks at picture files, asks and points.

One thread runs the model. It takes a person's words at once, and drops a reply that comes after a
stop.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.console.choosing import ShownQuestion
from clue_ros.console.ear import Action, Decision, Ear
from clue_ros.console.live import LivePage, answer
from clue_ros.console.robot import Diagnostics, Option, ShownObject, State, Status
from clue_ros.dialogue.conversation import (
    Ask,
    Conversation,
    Ignored,
    Outcome,
    Phase,
    Step,
    Think,
    called_off,
    in_words,
)
from clue_ros.dialogue.grounder import RobotGrounder
from clue_ros.dialogue.inflection import with_article
from clue_ros.dialogue.naming import Named
from clue_ros.dialogue.sayings import Saying, say
from clue_ros.dialogue.types import MAX_QUESTIONS, Box, Grounding, Question, clean_text
from clue_ros.engine import Clue
from clue_ros.errors import ClueError, NothingWantedError
from clue_ros.images import load_image

Image = npt.NDArray[np.uint8]
_NO_CAMERA = "pictures have no depth"


class PictureRobot:
    """A `clue_ros.console.robot.Robot` on picture files. Call `start`, and `close` at the end."""

    def __init__(
        self,
        page: LivePage,
        pictures: Mapping[str, Path],
        load: Callable[[str], RobotGrounder[Any]],
        models: Sequence[str],
    ) -> None:
        """Take the pictures by their names, at least one, and a function that loads a model.

        models: names to choose from; the first one is loaded by `start`.
        """
        self._page, self._pictures, self._load_model = page, dict(pictures), load
        self._models, self._model = tuple(dict.fromkeys(models)), models[0]
        self._lock = threading.RLock()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name="model", daemon=True)
        self._clue: RobotGrounder[Any] | None = None
        self._conversation: Conversation | None = None  # the open one
        self._question: Question | None = None  # the open one
        self._picture = next(iter(self._pictures))
        self._image: Image = np.zeros((3, 4, 3), np.uint8)
        self._view: Any = None  # of the image, once the model has looked at it
        self._dialogues = 0
        self._stages: dict[str, float] = {}  # seconds of each stage of the last reply
        self._first_load: queue.SimpleQueue[ClueError | None] = queue.SimpleQueue()
        self._ear = Ear(self._on_phrase, page.show_notice, self._offered)

    @property
    def threshold(self) -> float | None:
        """Probability from which the loaded model asks; None before one is loaded."""
        return None if self._clue is None else self._clue.threshold

    def start(self) -> None:
        """Show the first picture and begin to load the model. Raises BadImageError."""
        self._look_at(load_image(self._pictures[self._picture]))
        self._page.show_camera_name(self._picture)
        self._show_options()
        self._status("inactive", message=f"loading the model {self._model}")
        self._thread.start()
        self._jobs.put(lambda: self._load(self._model))

    def wait_until_loaded(self) -> None:
        """Wait for the first model. Raises the ClueError that says why it could not be loaded."""
        error = self._first_load.get()
        if error is not None:
            raise error

    def close(self) -> None:
        """End its threads, and drop a reply under way."""
        with self._lock:
            self._conversation = None
        self._jobs.put(None)
        self._ear.close()

    # Requests of the page (`clue_ros.console.robot.Robot`).

    def say(self, text: str) -> None:
        """Take a request, or the answer to the open question."""
        text = clean_text(text)
        with self._lock:
            if self._clue is None:
                raise ClueError(f"the model {self._model} is still being loaded: wait a moment")
            conversation = self._conversation
            if conversation is None:
                self._begin(text)
            elif conversation.phase is Phase.THINKING:
                outcome = called_off(text)
                if outcome is None:
                    raise ClueError("the robot still thinks about what you said: wait, or stop it")
                self._page.show_turn("user", text, time.time())
                self._finish(conversation.end(outcome))
            else:
                step = conversation.answer(text)
                self._page.show_turn("user", text, time.time())
                self._follow(conversation, step)

    def choose(self, candidate: int) -> None:
        """Take a candidate of the open question, counted from 0."""
        with self._lock:
            conversation = self._conversation
            if conversation is None or conversation.phase is not Phase.WAITING:
                raise ClueError("this question is no longer open")
            outcome = conversation.choose(candidate)
            self._page.show_turn("user", conversation.spoken[-1][0].text, time.time())
            self._finish(outcome)

    def stop(self) -> None:
        """End the dialogue."""
        with self._lock:
            conversation = self._conversation
            if conversation is not None:
                outcome = Outcome("CANCELED", "stopped on the page")
                self._finish(conversation.end(outcome))

    def use_photograph(self, image: Image | None, name: str = "") -> None:
        """Look at this picture, uint8 RGB (H, W, 3); None: at the picture of the settings again."""
        if image is None:
            self._look_at(load_image(self._pictures[self._picture]))
        else:
            self._look_at(image)
        self._page.show_photograph(name if image is not None else None)

    def set_option(self, name: str, value: str) -> None:
        """Change the picture, the model, the policy or the threshold."""
        with self._lock:
            clue = self._clue
            if name == "picture":
                path = self._pictures.get(value)
                if path is None:
                    raise ClueError(f"there is no picture {value!r}")
                image = load_image(path)
                self._picture = value
                self._look_at(image)
                self._page.show_photograph(None)
                self._page.show_camera_name(value)
            elif name == "model":
                self._change_model(value)
            elif clue is None:
                raise ClueError("the model is still being loaded: wait a moment")
            elif name == "policy" and isinstance(clue, Clue):
                clue.policy = value
            elif name == "threshold":
                clue.threshold = _share(name, value)
            elif name == "max_risk" and isinstance(clue, Clue):
                clue.max_risk = _share(name, value)
                if clue.not_promised:
                    self._page.show_notice(clue.not_promised)
            else:
                raise ClueError(f"there is no setting {name!r}")
        self._show_options()
        if clue is not None:
            self._show_diagnostics()

    def teach(self, image: Image, box: Box, name: str) -> None:
        """Refuse, because taught objects would be lost at the end. Raises ClueError."""
        raise ClueError("this page teaches nothing: use `clue teach`, or the page of a robot")

    def forget(self, name: str) -> None:
        """Refuse, as `teach` does."""
        raise ClueError(f"nothing was taught here: there is no {name!r} to forget")

    def list_taught(self) -> None:
        """Show that this robot cannot be taught."""
        self._page.show_taught(None)

    def hear(self, samples: npt.NDArray[np.int16], sample_rate: int) -> None:
        """Take sound from the page's microphone."""
        self._ear.hear(samples, sample_rate)

    # The dialogue. Under the lock.

    def _begin(self, text: str) -> None:
        self._question = None
        try:
            conversation = Conversation(text, MAX_QUESTIONS)
        except NothingWantedError as error:
            self._page.show_turn("user", text, time.time())
            if error.is_chat:
                return
            self._page.show_turn("robot", say(Saying.NOTHING_TO_STOP, "en"), time.time())
            return
        self._conversation = conversation
        self._dialogues += 1
        self._page.show_grounding(None)
        self._page.show_attention(None)
        self._status("looking")
        self._page.show_turn("user", text, time.time())
        self._follow(conversation, conversation.think())

    def _follow(self, conversation: Conversation, step: Step) -> None:
        """Carry out the conversation's step."""
        if isinstance(step, Outcome):
            self._finish(step)
        elif isinstance(step, Ignored):
            pass
        elif isinstance(step, Ask):
            self._question = step.question
            self._page.show_turn("robot", step.instead or step.question.text, time.time())
            self._status("waiting")
        else:
            self._status("thinking")
            self._jobs.put(lambda: self._think(conversation, step))

    def _finish(self, outcome: Outcome) -> None:
        conversation, view = self._conversation, self._view
        if conversation is not None and view is not None:
            for named in conversation.named:
                self._jobs.put(partial(self._learn, view, named))
        self._conversation = self._question = None
        self._status("ended", error="" if outcome.code == "NONE" else outcome.code,
                     message=outcome.message)  # fmt: skip
        self._page.show_turn("robot", in_words(outcome), time.time())
        if outcome.grounding is not None:
            found = outcome.grounding
            self._page.show_grounding(
                ShownObject(found.box, found.label, found.score, no_pose_reason=_NO_CAMERA)
            )

    def _learn(self, view: Any, named: Named) -> None:
        """Learn what the person called a thing in the picture. In the model's thread."""
        clue = self._clue
        if clue is None:
            return
        try:
            name = clue.teach(view, named.box, named.name, instead=True).name
        except ClueError as error:
            self._page.show_notice(f"{named.name!r} is not learned: {error}")
            return
        said = say(Saying.LEARNED, "en", label=with_article(name))
        self._page.show_turn("robot", said, time.time())

    def _look_at(self, image: Image) -> None:
        """Show a picture; an open dialogue was about another one and ends."""
        with self._lock:
            if self._conversation is not None:
                outcome = Outcome("CANCELED", "another picture was chosen")
                self._finish(self._conversation.end(outcome))
            self._image, self._view = image, None
            self._page.show_frame(image)
            self._page.show_grounding(None)
            self._page.show_attention(None)
            if self._clue is not None:
                self._status("idle")

    # The model, in its own thread.

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _load(self, model: str) -> None:
        error: ClueError | None = None
        try:
            clue = self._load_model(model)
        except ClueError as why:
            error = why
        with self._lock:
            if error is None:
                self._clue, self._model, self._view = clue, model, None
            if self._clue is not None:
                self._status("idle")
        if error is not None:
            self._page.show_notice(f"the model {model} cannot be loaded: {error}")
        self._show_options()
        self._show_diagnostics()
        self._first_load.put(error)

    def _think(self, conversation: Conversation, think: Think) -> None:
        with self._lock:
            clue, image, view = self._clue, self._image, self._view
            if clue is None or self._conversation is not conversation:
                return
        error: Exception | None = None
        stages: dict[str, float] = {}
        try:
            begin = time.monotonic()
            if view is None:
                view = clue.look(image)
                stages["image"] = time.monotonic() - begin
            begin = time.monotonic()
            reply = conversation.hold(
                clue.reply(view, conversation.dialogue, force_grounding=think.force)
            )
            seconds, judging = time.monotonic() - begin, reply.ambiguity.seconds
            stages.update(ambiguity=judging, decoding=max(0.0, seconds - judging))
        except Exception as why:  # noqa: BLE001 - it ends this dialogue, not the program
            error = why
        with self._lock:
            if self._conversation is not conversation:  # stopped meanwhile
                return
            if error is not None:
                self._finish(conversation.fail(error))
                return
            self._view, self._stages = view, stages
            self._show_reply(reply)
            self._follow(conversation, conversation.reply(reply))
        self._show_diagnostics()

    # The page.

    def _show_reply(self, reply: Question | Grounding) -> None:
        self._page.show_attention(reply.ambiguity.attention)
        if isinstance(reply, Question):
            labels = reply.labels or ("",) * len(reply.candidates)
            shown = tuple(
                ShownObject(box, label, score, no_pose_reason=_NO_CAMERA)
                for box, label, score in zip(reply.candidates, labels, _scores(reply), strict=True)
            )
            self._page.show_question(
                ShownQuestion(
                    reply.text,
                    shown,
                    reply.suggested_answers,
                    reply.answer_candidates,
                    reply.confirm,
                )
            )

    def _status(self, state: State, error: str = "", message: str = "") -> None:
        self._page.show_status(Status(state, str(self._dialogues or ""), error, message))

    def _show_options(self) -> None:
        clue = self._clue
        options = [
            Option("picture", self._picture, "What to look at.", tuple(self._pictures)),
            Option("model", self._model, "Which model to use; another takes seconds to load.",
                   self._models),
        ]  # fmt: skip
        if isinstance(clue, Clue):
            policies = tuple(clue.checkpoint.policies)
            about = "Who decides between asking and pointing."
            options.append(Option("policy", clue.policy, about, policies))
        if clue is not None:
            about = "Ask from this probability on; empty: the model's own."
            value = f"{clue.threshold:g}"
            options.append(Option("threshold", value, about, minimum=0.0, maximum=1.0))
        if isinstance(clue, Clue):
            about = "Share of wrong boxes without a confirmation that is allowed; empty: no bound."
            value = "" if clue.max_risk is None else f"{clue.max_risk:g}"
            options.append(Option("max_risk", value, about, minimum=0.0, maximum=0.99))
        self._page.show_options(options)

    def _show_diagnostics(self) -> None:
        clue = self._clue
        if clue is None:
            self._page.show_diagnostics(Diagnostics("error", "no model is loaded"))
            return
        height, width = self._image.shape[:2]
        rows = (
            ("model", clue.model_name),
            ("policy", clue.policy),
            ("device", f"{clue.device}, {clue.dtype}"),
            ("weights", f"{clue.memory_bytes() / 1e6:.0f} MB"),
            ("picture", f"{width} x {height} px"),
        )
        latency = tuple((name, 1000 * seconds) for name, seconds in self._stages.items())
        self._page.show_diagnostics(Diagnostics("ok", "", rows, latency))

    # Voice and settings.

    def _offered(self) -> tuple[str, ...]:
        question = self._question
        return () if question is None else question.suggested_answers

    def _on_phrase(self, decision: Decision) -> None:
        if decision.action is Action.REJECT:
            self._page.show_notice("I heard you, but did not understand: say it again, or type it")
            return
        if decision.say:
            self._page.show_turn("robot", decision.say, time.time())
        if decision.action is Action.ACCEPT:
            try:
                answer(self._page, self, decision.text)
            except ClueError as error:
                self._page.show_notice(str(error))

    def _change_model(self, name: str) -> None:
        if name not in self._models:
            raise ClueError(f"model {name!r} is not offered: choose {', '.join(self._models)}")
        if name == self._model:
            return
        if self._conversation is not None:
            outcome = Outcome("CANCELED", "another model was chosen")
            self._finish(self._conversation.end(outcome))
        self._status("looking", message=f"loading the model {name}")
        self._jobs.put(lambda: self._load(name))


def _scores(question: Question) -> tuple[float, ...]:
    """The scores of a question's candidates, which are its estimate's peaks; else NaN."""
    peaks = {peak.box: peak.score for peak in question.ambiguity.peaks}
    return tuple(float(peaks.get(box, np.nan)) for box in question.candidates)


def _share(name: str, value: str) -> float | None:
    try:
        return float(value) if value.strip() else None
    except ValueError as error:
        raise ClueError(f"the {name} must be a number from 0 to 1, not {value!r}") from error
