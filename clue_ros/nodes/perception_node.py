# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The perception node: a managed node that looks, asks and points.

States: unconfigured (no model), inactive (model loaded, no camera), active. The services and the
action exist in every state and answer INACTIVE until the node is active, so that no caller waits in
vain. Topics and parameters: topics.Perception, parameter_tables.PERCEPTION, docs/ros.md.
"""

from __future__ import annotations

import dataclasses
import math
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from clue_msgs.action import GroundWithDialogue
from clue_msgs.msg import Transcript
from clue_msgs.srv import AnswerClarification, Ground, Track
from rclpy.action import CancelResponse, GoalResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup, ReentrantCallbackGroup
from rclpy.clock import Clock, ClockType
from rclpy.executors import Executor
from sensor_msgs.msg import Image
from std_msgs.msg import String

from clue_ros import memory
from clue_ros.dialogue.conversation import Ask, Ignored, Outcome, Step, in_words
from clue_ros.dialogue.inflection import with_article
from clue_ros.dialogue.intent import load_intent
from clue_ros.dialogue.reading import Reading, add_stops
from clue_ros.dialogue.sayings import Saying, say
from clue_ros.dialogue.types import Box, Dialogue, Grounding, NotFound, Question
from clue_ros.errors import ClueError, ModelError
from clue_ros.grounders import load_grounder
from clue_ros.model.load_options import LoadOptions
from clue_ros.model.trackers import make_tracker
from clue_ros.model.tracking import Tracker
from clue_ros.nodes import messages
from clue_ros.nodes.camera import Camera, Frame
from clue_ros.nodes.candidate_topic import CandidateTopic
from clue_ros.nodes.depth import DepthSettings, DepthSubscriber
from clue_ros.nodes.diagnostics import Health, Reporter
from clue_ros.nodes.dialogue_session import ADVICE, DialogueSlot, Limits, Listener, Session
from clue_ros.nodes.follower import Follower
from clue_ros.nodes.inference_worker import Pacer, Worker
from clue_ros.nodes.lifecycle import ManagedNode
from clue_ros.nodes.parameter_tables import PERCEPTION
from clue_ros.nodes.parameters import declare, guard
from clue_ros.nodes.publishers import Feedback, Publishers, StatePublisher, TurnLog
from clue_ros.nodes.recorder import DialogueRecorder, Recorder
from clue_ros.nodes.teaching import Teaching
from clue_ros.nodes.topics import Perception
from clue_ros.wrapper import WRAPPER

DEPTH = tuple(field.name for field in dataclasses.fields(DepthSettings))  # parameters
LAST_REPLY = 1.0  # seconds at the end for what the model is computing
# Seconds that a result is kept for clients that ask late; Humble's default, 900, fills the memory.
RESULT_TIMEOUT = 60
# Seconds from a request's end until its memory is given back: a request that follows at once would
# take it again page by page, which costs about a tenth of a reply's time.
TRIM_AFTER = 5.0
NO_CANDIDATE = AnswerClarification.Request().candidate  # the text is read
MEGABYTE = 1_000_000
_CANCELED = Outcome("CANCELED", "canceled by the caller")
_PREEMPTED = Outcome("CANCELED", "another request took its place (preempt)")


class PerceptionNode(ManagedNode):
    """The node; see the module's first lines.

    Raises (on construction): BadParameterError for an override that the parameter table refuses.
    """

    def __init__(self, executor: Executor, **kwargs: Any) -> None:
        super().__init__("perception", executor, **kwargs)
        self._clue: Any = None
        self._candidates: list[Any] = []  # sources, with model "wrapper"
        self._candidate_topics: list[CandidateTopic] = []
        self._canceled: set[str] = set()  # goals that are being canceled
        self._depths = DepthSubscriber(lambda: DepthSettings(*map(self.value, DEPTH)))
        self._camera = Camera(depths=self._depths)
        self._worker = Worker()
        self._pacer = Pacer(executor)
        self._told_busy = ""  # the dialogue during which the robot has said that it is busy
        self._health = Health()
        declare(self, PERCEPTION)
        folder, limit = self.value("record"), int(self.value("record_limit") * MEGABYTE)
        warn = self.get_logger().warning
        self._recorder = Recorder(folder, limit, warn) if folder else None
        self._slot = DialogueSlot(self._newest, self._make_session)
        guard(self, PERCEPTION, state=lambda: self.state)
        self._outputs = Publishers(self, self._worker)
        self._follower = Follower(
            Perception.TRACKED.publisher(self).publish,
            self._look_again,
            warn,
            patience=lambda: float(self.value("look_again_after")),
            masks=lambda: bool(self.value("masks")),
            make_tracker=self._make_tracker,
        )
        self._found: tuple[Session, Grounding] | None = None  # the last grounding
        self._follow_timer: Any = None
        state = Perception.DIALOGUE_STATE.publisher(self)
        self._states = StatePublisher(self, state)
        self._one_shot_states = StatePublisher(self, state, one_shot=True)
        self._publish_state()
        self._image_group = MutuallyExclusiveCallbackGroup()
        # Reentrant: an answer or a cancel must be heard while a dialogue's coroutine is open.
        group = {"callback_group": ReentrantCallbackGroup()}
        Perception.SPEECH.subscribe(self, self._on_speech, **group)
        Perception.TRANSCRIPT.subscribe(self, self._on_transcript, **group)
        Perception.GROUND.serve(self, self._on_ground, **group)
        Perception.ANSWER.serve(self, self._on_answer, **group)
        Perception.TRACK.serve(self, self._on_track, **group)
        self._action = Perception.GROUND_WITH_DIALOGUE.serve(
            self,
            self._on_goal,
            self._on_cancel,
            goal_callback=self._accept,
            result_timeout=RESULT_TIMEOUT,
            **group,
        )
        self._teaching = Teaching(
            self,
            self._worker,
            executor,
            clue=lambda: self._clue,
            newest=lambda: self._camera.newest(self.value("max_image_age")),
            refusal=self._slot.refusal,
            **group,
        )
        Reporter(self, self._slot, self._camera, self._health, self._recorder, lambda: self._clue)
        if self.value("autostart"):
            self.autostart()

    # The lifecycle.

    def enter(self, state: str) -> None:
        """Note the lifecycle state; leaving "active" ends an open dialogue with INACTIVE."""
        super().enter(state)
        self._slot.move(state)
        if self._slot.session is None:  # otherwise at its end
            self._publish_state()
        if state == "active":
            self.get_logger().info(f"active, looking at {self._camera.topic}")

    def _publish_state(self) -> None:
        """Publish that no dialogue is open."""
        reason = self._slot.refusal()
        if reason is None:
            self._states.idle()
        else:
            self._states.inactive(reason.message)

    def open(self) -> None:
        """Load the model, and find out which outputs there are. Raises ModelError."""
        self._outputs.objects.configure()
        model = self.value("model")
        try:
            self._candidates = self._sources() if model == WRAPPER else []
            add_stops(self.value("stop_words").split(","))
            load_intent()  # now, and not with the first request
            self._clue = self._worker.call(self.load)
        except Exception as error:
            kind = "" if isinstance(error, ClueError) else f"{type(error).__name__}: "
            self._health.load_error = f"model {model!r} cannot be loaded: {kind}{error}"
            raise ModelError(self._health.load_error) from error
        self._health.load_error = ""
        self.get_logger().info(
            f"model {self._clue.model_name} is ready on {self._clue.device} ({self._clue.dtype})"
        )

    def load(self) -> Any:
        """Return the model that the parameters name. In the worker's thread."""
        wraps = self.value("model") == WRAPPER
        clue: Any = load_grounder(
            LoadOptions(
                self.value("model"),
                device=self.value("device"),
                backend=self.value("backend"),
                dtype=self.value("dtype"),
                quantization=self.value("quantization"),
                detector=self.value("detector") or None,
                ivg=self.value("ivg") or None,
                mask_decoder=self.value("mask_decoder") or None,
                policy=self.value("policy"),
                calibration=self.value("calibration") or None,
                memory=self.value("memory") or None,
                candidates=self._candidates,
                language_model=self.value("language_model") or None if wraps else None,
            )
        )
        if not wraps and clue.policy != self.value("policy"):
            self.get_logger().warning(
                f"this model's adapters have no policy {self.value('policy')!r} (clue train policy"
                f" fits it to both): {clue.policy!r} decides"
            )
        if wraps:
            clue.faults.say = self.get_logger().warning
        self._make_tracker()  # loaded now, and not with the first object
        clue.warm_up()  # so that the first request is as quick as the second
        memory.freeze_garbage()
        memory.trim()  # the warm-up's memory
        return clue

    def _sources(self) -> list[Any]:
        """Return the sources of candidates that the parameter names, and subscribe to topics."""
        self._unsubscribe()
        lines = [line.strip() for line in self.value("candidates").split(",") if line.strip()]
        sources: list[Any] = []
        for line in lines:
            if line.startswith("topic:"):
                topic = CandidateTopic(self, line.removeprefix("topic:"))
                self._candidate_topics.append(topic)
                sources.append(topic)
            else:
                sources.append(line)
        return sources

    def _unsubscribe(self) -> None:
        while self._candidate_topics:
            self._candidate_topics.pop().close()

    def begin(self) -> None:
        """Subscribe to the camera."""
        self._camera.open(
            self,
            self.value("image_transport"),
            self._image_group,
            self.value("image_reliability"),
            self.value("image_rate"),
        )
        self._follow_timer = self.create_timer(
            1 / self.value("track_rate"),
            self._offer,
            callback_group=self._image_group,
            clock=Clock(clock_type=ClockType.STEADY_TIME),
        )
        self._follow_timer.cancel()  # until something is followed

    def end(self) -> None:
        """Leave the camera."""
        self._outputs.objects.clear()
        self._follower.stop()
        self._found = None
        self.destroy_timer(self._follow_timer)
        self._teaching.clear()
        self._camera.close()

    def free(self) -> None:
        """Drop the model and free its memory."""
        self._unsubscribe()
        if self._clue is not None:
            self._clue = None
            memory.trim(everything=True)

    def close(self) -> bool:
        """Stop before the process ends; False if the model still computes."""
        self.enter("finalized")
        ended = self._worker.stop(LAST_REPLY)
        if self._recorder is not None:
            self._recorder.close()
        return ended

    # A dialogue.

    def _make_session(
        self, dialogue_id: str, text: str, frame: Frame, limits: Limits, reading: Reading
    ) -> Session:
        return Session(
            dialogue_id,
            text,
            frame,
            limits,
            self._clue,
            self._worker,
            self.spinner,
            clock=lambda: float(self.get_clock().now().nanoseconds) * 1e-9,  # may be simulated
            language=self._language(),
            masks=self.value("masks"),
            prepare=self._prepare_reply,
            reading=reading,
            newest=self._newest,
        )

    def _newest(self) -> Frame | tuple[str, str]:
        return self._camera.newest(self.value("max_image_age"))

    def _prepare_reply(self, header: Any) -> None:
        """Tell the sources of candidates whose image it is, and the model the parameters now."""
        for topic in self._candidate_topics:
            topic.expect(header)
        threshold, clue = self.value("threshold"), self._clue
        if clue is None:
            return
        clue.threshold = None if threshold < 0 else threshold
        if self.value("model") != WRAPPER:  # which decides for itself
            clue.policy = self.value("policy")
            clue.num_views = self.value("num_views") or None
            max_risk = self.value("max_risk") or None
            if max_risk != clue.max_risk:
                clue.max_risk = max_risk
                if clue.not_promised:
                    self.get_logger().warning(clue.not_promised)

    def _limits(self, max_turns: int = 0, timeout: float = 0.0) -> Limits:
        return Limits(
            max_turns or self.value("max_questions"),
            timeout if timeout > 0 else self.value("answer_timeout"),
            self.value("ask_again_after"),
            self.value("force_grounding"),
            self.value("max_age_at_result"),
        )

    def _given(self, request: Any) -> Frame | None:
        """Return the image that a request brought, with its depth; None where it brought none."""
        image = request.image
        if not (image.width or image.height or len(image.data)):
            return None
        depth = self._depths.given(image.header, request.depth, request.camera_info)
        return Frame(image, math.inf, depth)

    def _language(self) -> str:
        return str(self.value("language"))

    async def _open(
        self, dialogue_id: str, text: str, given: Frame | None, limits: Limits
    ) -> Session | Outcome:
        """Open a session, or return the reason not to; with `preempt`, end the open one first."""
        opened = self._slot.open(dialogue_id, text, given, limits)
        while isinstance(opened, Outcome) and opened.code == "BUSY" and self.value("preempt"):
            await self._slot.preempt(_PREEMPTED)
            opened = self._slot.open(dialogue_id, text, given, limits)
        return opened

    async def _converse(self, session: Session, *listeners: Listener) -> Outcome:
        """Run the dialogue to its end, close it, publish and say the outcome."""
        recorded = DialogueRecorder(
            self._recorder, lambda save: self._worker.submit(save, lambda _result, _error: None)
        )
        log = TurnLog(self.get_logger().info)
        publishers: list[Listener] = [self._states, self._outputs, *listeners]
        session.listeners = [self._health, *publishers, log, recorded]
        self._health.dialogues += 1
        try:
            outcome = await session.run()
        finally:
            self._close(session)
        if outcome.grounding is not None:
            self._health.groundings += 1
            self._found = session, outcome.grounding
            self._teaching.pointed(session.frame, outcome.grounding)
            self._outputs.point(session, outcome.grounding)
        else:
            self._note(outcome)
            self._outputs.objects.clear()
        self._outputs.say(in_words(outcome, self._language()))
        self._ended(self._states, session, outcome)
        self._health.ended["GROUNDED" if outcome.grounding is not None else outcome.code] += 1
        recorded.ended(session, outcome)
        await self._learn(self._teaching.jobs(session.view, session.conversation.named))
        return outcome

    def _ended(self, states: StatePublisher, session: Session, outcome: Outcome) -> None:
        states.ended(session, outcome)
        if self.state != "active":  # the state of a node that was deactivated meanwhile
            self._publish_state()

    def _close(self, session: Session) -> None:
        """Let the next request in, and free the memory of this one a while later."""
        self._slot.close(session)
        self._worker.later(TRIM_AFTER, memory.trim)

    # Following.

    def _make_tracker(self) -> Tracker:
        """Make the tracker that the parameters name. Raises ModelError."""
        return make_tracker(self.value("tracker"), self.value("device"))

    def _follow(self, session: Session, grounding: Grounding) -> int:
        """Follow a dialogue's object; returns its id. Raises ClueError."""
        first, *further = session.conversation.dialogue.turns
        dialogue = Dialogue(first.text, further)  # a copy
        number = self._follower.start(
            session.frame, grounding.box, grounding.label, session.id, dialogue
        )
        self._follow_timer.reset()
        return number

    def _offer(self) -> None:
        """Hand the newest frame to the follower, as long as there is something to follow."""
        if not self._follower.numbers:
            self._follow_timer.cancel()
            return
        frame = self._camera.newest(self.value("max_image_age"))
        if isinstance(frame, Frame):
            self._follower.offer(frame)

    def _look_again(self, frame: Frame, dialogue: Dialogue, replied: Callable[[Any], None]) -> None:
        """Run the model for an object that was lost."""
        clue = self._clue
        self._worker.submit(
            lambda: clue.reply(clue.look(frame.pixels()), dialogue),
            lambda reply, _error: replied(reply),
        )

    def _on_track(self, request: Track.Request, response: Track.Response) -> Track.Response:
        """Start or stop following an object."""
        if self.state != "active":
            return messages.fail(response, "INACTIVE", f"perception is {self.state}: {ADVICE}")
        if request.command == Track.Request.STOP:
            if not self._follower.stop(request.track_id):
                followed = ", ".join(map(str, self._follower.numbers)) or "nothing"
                reason = f"track {request.track_id} is not followed ({followed} is)"
                return messages.fail(response, "UNKNOWN_TRACK", reason)
            response.track_id = request.track_id
            return response
        try:
            return self._start_track(request, response)
        except ClueError as error:
            return messages.fail(response, error.code, str(error))

    def _start_track(self, request: Track.Request, response: Track.Response) -> Track.Response:
        box = messages.box_of(request.box)
        if box == Box(0.0, 0.0, 0.0, 0.0):
            found, wanted = self._found, request.dialogue_id
            if found is None or (wanted and wanted != found[0].id):
                about = f"dialogue {wanted} is not the last one that" if wanted else "no dialogue"
                return messages.fail(response, "UNKNOWN_DIALOGUE", f"{about} found an object")
            response.track_id = self._follow(*found)
            return response
        frame = self._camera.newest(self.value("max_image_age"))
        if not isinstance(frame, Frame):
            return messages.fail(response, *frame)
        response.track_id = self._follower.start(frame, box)
        self._follow_timer.reset()
        return response

    def _note(self, outcome: Outcome) -> None:
        self._health.failed(outcome.code, outcome.message)
        self.get_logger().warning(f"{outcome.code}: {outcome.message}")

    # Callbacks.

    def _on_speech(self, message: String) -> None:
        """Take speech as the answer if a question is open, else as a new request."""
        self._outputs.heard(message.data)
        session = self._slot.session
        try:
            if session is not None and session.answer(message.data) is not None:
                return
        except ClueError as error:
            self._refuse(Outcome(error.code, str(error)))
            return
        job = self._teaching.hear(message.data) if session is None else None
        if job is not None:
            self.spinner.create_task(self._learn([job]))
            return
        opened = self._slot.open(uuid.uuid4().hex, message.data, None, self._limits())
        if isinstance(opened, Outcome):
            self._refuse(opened)
        else:
            self.spinner.create_task(self._converse_alone(opened))

    def _on_transcript(self, message: Transcript) -> None:
        """Ask again when an answer was not understood; understood text comes on `speech`."""
        session = self._slot.session
        if message.status == Transcript.NOT_UNDERSTOOD and message.is_final and session is not None:
            session.ask_again(heard=True)

    async def _converse_alone(self, session: Session) -> None:
        """Hold a dialogue that speech began.

        It is awaited nowhere, so an error would end the executor.
        """
        try:
            await self._converse(session)
        except Exception as error:  # noqa: BLE001 - logged; the next request finds the node up
            self.get_logger().error(f"dialogue {session.id}: {type(error).__name__}: {error}")

    async def _learn(self, jobs: Sequence[Callable[[], str]]) -> None:
        """Learn what a person called things, and say so."""
        for job in jobs:
            name = await self._teaching.learned(job)
            if name:
                self._outputs.say(say(Saying.LEARNED, self._language(), label=with_article(name)))

    def _refuse(self, outcome: Outcome) -> None:
        if outcome.quiet:
            self.get_logger().debug(f"ignored: {outcome.message}")
            return
        if outcome.code == "CANCELED":  # the person wants nothing, and nothing is open
            self._outputs.say(say(Saying.NOTHING_TO_STOP, self._language()))
            return
        session = self._slot.session
        if outcome.code == "BUSY" and session is not None:
            if self._told_busy == session.id:  # once until it is free, whoever goes on talking
                self._health.failed(outcome.code, outcome.message)
                return
            self._told_busy = session.id
        self._note(outcome)
        self._outputs.say(in_words(outcome, self._language()))

    def _on_answer(
        self, request: AnswerClarification.Request, response: AnswerClarification.Response
    ) -> AnswerClarification.Response:
        """Give the answer to the open question."""
        step: Step | None
        session, text = self._slot.session, request.text
        if self.state != "active":
            return messages.fail(
                response, "INACTIVE", f"perception is {self.state}: no dialogue can be open"
            )
        if session is None or (request.dialogue_id and request.dialogue_id != session.id):
            wanted = f"dialogue {request.dialogue_id}" if request.dialogue_id else "a dialogue"
            return messages.fail(response, "UNKNOWN_DIALOGUE", f"{wanted} is not open")
        try:
            if request.candidate != NO_CANDIDATE:
                step = session.choose(request.candidate)
                text = session.conversation.heard[-1].text
            else:
                step = session.answer(text)
        except ClueError as error:
            return messages.fail(response, error.code, str(error))
        if step is None:
            return messages.fail(
                response, "UNKNOWN_DIALOGUE", f"dialogue {session.id} waits for no answer right now"
            )
        self._outputs.heard(text)
        if isinstance(step, Ignored) or (isinstance(step, Ask) and step.unanswered):
            return messages.fail(
                response,
                "BAD_EXPRESSION",
                f"{text!r} does not answer {step.question.text!r}: the question stays open",
            )
        response.accepted = True
        return response

    async def _on_ground(
        self, request: Ground.Request, response: Ground.Response
    ) -> Ground.Response:
        """Reply to one request; an error of this node's is a reply too."""
        await self._pacer.turn()
        try:
            return await self._ground_once(request, response)
        except Exception as error:  # noqa: BLE001 - rclpy would send no reply, and end the node
            return self._failed(Ground.Response(), error)

    def _failed(self, response: Any, error: Exception) -> Any:
        """Write an unforeseen error into a response or result: an empty one would read as NONE."""
        outcome = Outcome("MODEL_ERROR", f"{type(error).__name__}: {error}")
        self._note(outcome)
        return messages.fail(response, outcome.code, outcome.message)

    async def _ground_once(
        self, request: Ground.Request, response: Ground.Response
    ) -> Ground.Response:
        """One shot: the object, or the question that would be asked."""
        session = await self._open(
            uuid.uuid4().hex, request.expression, self._given(request), self._limits()
        )
        if isinstance(session, Outcome):
            self._note(session)
            return messages.fail(response, session.code, session.message)
        log = TurnLog(self.get_logger().info, one_shot=True)
        session.listeners = [self._health, self._one_shot_states, self._outputs, log]
        try:
            result = await session.one_shot(force=request.force_grounding)
        finally:
            self._close(session)
        if isinstance(result, NotFound):
            result = Outcome("NOT_FOUND", result.text)
        outcome = result if isinstance(result, Outcome) else Outcome("NONE")
        self._ended(self._one_shot_states, session, outcome)
        if isinstance(result, Question):
            response.is_question = True
            question = response.question = session.question_msg(result, one_shot=True)
            self._outputs.objects.show(question.header, question.candidates, candidates=True)
        elif result.grounding is not None:
            self._teaching.pointed(session.frame, result.grounding)
            grounding = response.grounding = session.grounding_msg(result.grounding, dialogue_id="")
            place = session.objects[0].place if session.objects else None
            self._outputs.objects.point(grounding.header, grounding.target, place)
        else:
            self._note(result)
            return messages.fail(response, result.code, result.message)
        return response

    async def _accept(self, _goal: GroundWithDialogue.Goal) -> GoalResponse:
        await self._pacer.turn()
        return GoalResponse.ACCEPT

    async def _on_goal(self, goal: ServerGoalHandle) -> GroundWithDialogue.Result:
        """Hold the whole dialogue; an error of this node's is a result too."""
        try:
            return await self._hold_dialogue(goal)
        except Exception as error:  # noqa: BLE001 - rclpy would send an empty result
            if goal.is_active and self.context.ok():
                goal.abort()
            return self._failed(GroundWithDialogue.Result(), error)

    async def _hold_dialogue(self, goal: ServerGoalHandle) -> GroundWithDialogue.Result:
        """The whole dialogue."""
        request, result = goal.request, GroundWithDialogue.Result()
        limits = self._limits(request.max_turns, messages.seconds(request.answer_timeout))
        dialogue_id = bytes(goal.goal_id.uuid).hex()
        session = await self._open(dialogue_id, request.expression, self._given(request), limits)
        # rclpy keeps the request for a while after its end.
        request.image, request.depth = Image(), Image()
        if isinstance(session, Outcome):
            self._canceled.discard(dialogue_id)
            self._note(session)
            goal.abort()
            return messages.fail(result, session.code, session.message)
        if dialogue_id in self._canceled:  # before its session was there to be stopped
            session.stop(_CANCELED)
        outcome = await self._converse(session, Feedback(goal))
        canceled = dialogue_id in self._canceled
        self._canceled.discard(dialogue_id)
        result.num_questions = session.conversation.questions
        if outcome.grounding is not None:
            result.grounding = session.grounding_msg(outcome.grounding)
            if request.track:
                self._follow(session, outcome.grounding)
            goal.succeed()
            return result
        # rclpy marks the goal only after the cancel callback has returned.
        if canceled and await session.until(lambda: goal.is_cancel_requested):
            goal.canceled()
        else:
            goal.abort()
        return messages.fail(result, outcome.code, outcome.message)

    def _on_cancel(self, goal: ServerGoalHandle) -> CancelResponse:
        dialogue_id = bytes(goal.goal_id.uuid).hex()
        self._canceled.add(dialogue_id)
        session = self._slot.session
        if session is not None and session.id == dialogue_id:
            session.stop(_CANCELED)
        return CancelResponse.ACCEPT
