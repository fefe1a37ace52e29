"""The perception node: a managed node that looks, asks and points.

States: unconfigured (no model), inactive (model loaded, no camera), active. The services and the
action exist in every state and answer INACTIVE until the node is active, so that a caller is told
and does not wait in vain.
"""

from __future__ import annotations

import dataclasses
import uuid
from typing import Any

from clue_msgs.action import GroundWithDialogue
from clue_msgs.msg import Transcript
from clue_msgs.srv import AnswerClarification, Ground
from rclpy.action import ActionServer, CancelResponse
from rclpy.action.server import ServerGoalHandle
from rclpy.callback_groups import MutuallyExclusiveCallbackGroup, ReentrantCallbackGroup
from rclpy.executors import Executor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image
from std_msgs.msg import String

from clue_ros import memory
from clue_ros.dialogue.conversation import Outcome, in_words
from clue_ros.dialogue.types import NotFound, Question
from clue_ros.errors import ClueError
from clue_ros.nodes import diagnostics, dialogue_session, messages
from clue_ros.nodes.camera import Camera, Frame
from clue_ros.nodes.depth import Depths, Settings
from clue_ros.nodes.dialogue_session import Gate, Limits, Listener, Session, stopped
from clue_ros.nodes.inference_worker import Worker
from clue_ros.nodes.parameter_tables import PERCEPTION
from clue_ros.nodes.parameters import declare, guard
from clue_ros.nodes.publishers import Feedback, Outputs, log_turns, tell_all, together
from clue_ros.nodes.recorder import Recording

DEPTH = tuple(field.name for field in dataclasses.fields(Settings))  # parameters
# rclpy's default, 10, loses in silence what comes at once beyond it; here every caller is answered.
REQUESTS = QoSProfile(depth=64)
LAST_REPLY = 1.0  # seconds at the end for what the model is computing
RESULT_TIMEOUT = 10  # seconds that a result is kept; Humble's default, 900, fills the memory
_CANCELED = Outcome("CANCELED", "canceled by the caller")
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class PerceptionNode(LifecycleNode):
    """See the module's first lines; topics and parameters are in docs/ros.md.

    Raises (on construction): BadParameterError for an override that the parameter table refuses.
    """

    def __init__(self, executor: Executor, **kwargs: Any) -> None:
        super().__init__("perception", **kwargs)
        self._spinner = executor
        self._clue: Any = None
        self._canceled: set[str] = set()  # goals that are being canceled
        self._depths = Depths(lambda: Settings(*map(self._value, DEPTH)))
        self._camera = Camera(depths=self._depths)
        self._worker = Worker()
        self._health = diagnostics.Health()
        declare(self, PERCEPTION)
        self._recording = Recording(
            self._value("record"), self._value("record_limit"), self.get_logger().warning
        )
        self._gate = Gate(
            lambda: self._camera.newest(self._value("max_image_age")), self._make_session
        )
        guard(self, PERCEPTION, state=lambda: self._gate.state)
        self._outputs = Outputs(self, self._worker)
        self._create_inputs()
        if self._value("autostart"):
            executor.create_task(self._start)

    def _create_inputs(self) -> None:
        # Reentrant: an answer or a cancel must be heard while the dialogue's coroutine is not
        # finished.
        self._group = ReentrantCallbackGroup()
        self._image_group = MutuallyExclusiveCallbackGroup()
        group = {"callback_group": self._group}
        self.create_subscription(String, "speech", self._on_speech, 10, **group)
        self.create_subscription(Transcript, "transcript", self._on_transcript, 10, **group)
        deep = {"qos_profile": REQUESTS, **group}
        self.create_service(Ground, "ground", self._on_ground, **deep)
        self.create_service(AnswerClarification, "answer", self._on_answer, **deep)
        self._action = ActionServer(
            self,
            GroundWithDialogue,
            "ground_with_dialogue",
            self._on_goal,
            cancel_callback=self._on_cancel,
            goal_service_qos_profile=REQUESTS,
            result_service_qos_profile=REQUESTS,
            cancel_service_qos_profile=REQUESTS,
            result_timeout=RESULT_TIMEOUT,
            **group,
        )
        diagnostics.Reporter(
            self, self._gate, self._camera, self._health, self._recording, lambda: self._clue
        )

    def _value(self, name: str) -> Any:
        return self.get_parameter(name).value

    def _language(self) -> str:
        return str(self._value("language"))

    def _start(self) -> None:
        """Configure and activate without a manager.

        A launch file's own transition request after a respawn would go to the process that died:
        DDS remembers its services for some 20 s.
        """
        if self.trigger_configure() != SUCCESS:
            name = self.get_fully_qualified_name()
            self.get_logger().error(f"mend this, then: ros2 lifecycle set {name} configure")
        elif self.trigger_activate() != SUCCESS:
            self.get_logger().error("could not be activated")

    # Lifecycle. rclpy swallows what these raise, so each failure is logged here.

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Load the model; FAILURE, with the reason logged, when it cannot be loaded."""
        self._gate.move("configuring")  # what is being read must not change now
        model = self._value("model")
        try:
            self._clue = self._worker.call(self._load)
        except Exception as error:  # noqa: BLE001 - any failure to load is this transition's FAILURE
            kind = "" if isinstance(error, ClueError) else f"{type(error).__name__}: "
            self._health.load_error = f"model {model!r} cannot be loaded: {kind}{error}"
            self.get_logger().error(self._health.load_error)
            self._gate.move("unconfigured")
            return FAILURE
        self._health.load_error = ""
        self._gate.move("inactive")
        self.get_logger().info(
            f"model {self._clue.model_name} is ready on {self._clue.device} ({self._clue.dtype})"
        )
        return super().on_configure(state)

    def _load(self) -> Any:
        from clue_ros.engine import Clue  # imports torch: seconds, and only needed here

        clue = Clue.load(
            self._value("model"),
            device=self._value("device"),
            dtype=self._value("dtype"),
            detector=self._value("detector") or None,
            ivg=self._value("ivg") or None,
            quantization=self._value("quantization"),
        )
        memory.freeze_garbage()
        return clue

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Subscribe to the camera and accept requests."""
        result = super().on_activate(state)
        if result == SUCCESS:
            self._camera.open(self, self._value("image_transport"), self._image_group)
            self._gate.move("active")
            self.get_logger().info(f"active, looking at {self._camera.topic}")
        return result

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End an open dialogue with INACTIVE and leave the camera."""
        self._gate.move("inactive")
        self._camera.close()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Forget the model and free its memory."""
        self._gate.move("unconfigured")
        self._free()
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop everything, from whatever state."""
        self._gate.move("finalized")
        self._camera.close()
        self._free()
        return super().on_shutdown(state)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Return to unconfigured after an error in a transition."""
        self.get_logger().error(f"a transition from {state.label} failed; back to unconfigured")
        self._camera.close()
        self._free()
        self._gate.move("unconfigured")
        return SUCCESS

    def close(self) -> bool:
        """Stop before the process ends; False if the model still computes."""
        self._gate.move("finalized")
        ended = self._worker.stop(LAST_REPLY)
        self._recording.close()
        return ended

    def _free(self) -> None:
        self._clue = None
        memory.trim(everything=True)

    def _make_session(self, dialogue_id: str, text: str, frame: Frame, limits: Limits) -> Session:
        model = (self._clue, self._worker, self._spinner)
        language = self._value("language")
        return Session(
            *(dialogue_id, text, frame, limits, *model, self._seconds, language),
            masks=self._value("masks"),
        )

    def _given(self, request: Any) -> Frame | None:
        """Return the image that a request brought, with its depth; None where it brought none."""
        image = request.image
        if not (image.width or image.height or len(image.data)):
            return None
        return Frame(
            image, 0.0, self._depths.given(image.header, request.depth, request.camera_info)
        )

    def _seconds(self) -> float:
        """Return the ROS time, simulated where use_sim_time says so."""
        return float(self.get_clock().now().nanoseconds) * 1e-9

    def _limits(self, max_turns: int = 0, timeout: float = 0.0) -> Limits:
        return Limits(
            max_turns or self._value("max_questions"),
            timeout if timeout > 0 else self._value("answer_timeout"),
            self._value("ask_again_after"),
        )

    def _apply_decision(self) -> None:
        """Hand the parameters that may change at any time to the model, before each reply."""
        threshold, clue = self._value("threshold"), self._clue
        if clue is not None:
            clue.policy = self._value("policy")
            clue.threshold = None if threshold < 0 else threshold
            clue.num_views = self._value("looks") or None

    async def _converse(self, session: Session, feedback: Feedback | None = None) -> Outcome:
        """Run the dialogue to its end, close it, publish and say the outcome."""
        kept = self._recording.dialogue(session)
        session.listener = together(
            Listener(thinking=self._apply_decision),
            tell_all(session, self._outputs, self._health, self._language, feedback),
            log_turns(session, self.get_logger().info),
            kept.listener,
        )
        self._health.dialogues += 1
        try:
            outcome = await session.run()
        finally:
            self._close(session)
        if outcome.grounding is not None:
            self._health.groundings += 1
            self._outputs.point(session, outcome.grounding)
        else:
            self._note(outcome)
        self._outputs.say(in_words(outcome, self._language()))
        self._health.end(outcome.code if outcome.grounding is None else "GROUNDED")
        kept.end(outcome)
        return outcome

    def _close(self, session: Session) -> None:
        """Let the next request in, and give back what those before this one held."""
        self._gate.close(session)
        self._worker.submit(memory.trim, lambda _result, _error: None)

    def _note(self, outcome: Outcome) -> None:
        self._health.failed(outcome.code, outcome.message)
        self.get_logger().warning(f"{outcome.code}: {outcome.message}")

    # Callbacks.

    def _on_speech(self, message: String) -> None:
        """Take what was said as the answer if a question is open, else as a new request."""
        session = self._gate.session
        if dialogue_session.settled(session, message.data, self._language(), self._outputs.say):
            return
        if session is not None and session.waiting:
            try:
                session.answer(message.data)
            except ClueError as error:
                self._refuse(Outcome(error.code, str(error)))
            return
        opened = self._gate.open(uuid.uuid4().hex, message.data, None, self._limits())
        if isinstance(opened, Outcome):
            self._refuse(opened)
            return
        self._spinner.create_task(self._converse_alone(opened))

    def _on_transcript(self, message: Transcript) -> None:
        """Ask again when an answer was not understood; what was is on `speech`."""
        session = self._gate.session
        if message.status == Transcript.NOT_UNDERSTOOD and message.is_final and session is not None:
            session.ask_again(heard=True)

    async def _converse_alone(self, session: Session) -> None:
        """Hold a dialogue that speech began.

        Nobody awaits it, so an error would end the executor.
        """
        try:
            await self._converse(session)
        except Exception as error:  # noqa: BLE001 - logged; the next request finds the node up
            self.get_logger().error(f"dialogue {session.id}: {type(error).__name__}: {error}")

    def _refuse(self, outcome: Outcome) -> None:
        self._note(outcome)
        self._outputs.say(in_words(outcome, self._language()))

    def _on_answer(
        self, request: AnswerClarification.Request, response: AnswerClarification.Response
    ) -> AnswerClarification.Response:
        """Give the answer to the open question."""
        session = self._gate.session
        if self._gate.state != "active":
            return messages.fail(
                response, "INACTIVE", f"perception is {self._gate.state}: no dialogue can be open"
            )
        if session is None or (request.dialogue_id and request.dialogue_id != session.id):
            wanted = f"dialogue {request.dialogue_id}" if request.dialogue_id else "a dialogue"
            return messages.fail(response, "UNKNOWN_DIALOGUE", f"{wanted} is not open")
        text = request.text
        try:
            response.accepted = stopped(session, text, self._language()) or session.answer(text)
        except ClueError as error:
            return messages.fail(response, error.code, str(error))
        if not response.accepted:
            return messages.fail(
                response, "UNKNOWN_DIALOGUE", f"dialogue {session.id} waits for no answer right now"
            )
        return response

    async def _on_ground(
        self, request: Ground.Request, response: Ground.Response
    ) -> Ground.Response:
        """One shot: the object, or the question that would be asked."""
        opened = self._gate.open(
            uuid.uuid4().hex, request.expression, self._given(request), self._limits()
        )
        if isinstance(opened, Outcome):
            self._note(opened)
            return messages.fail(response, opened.code, opened.message)
        opened.listener = together(
            Listener(thinking=self._apply_decision),
            tell_all(opened, self._outputs, self._health, self._language),
            log_turns(opened, self.get_logger().info, one_shot=True),
        )
        try:
            result = await opened.one_shot(force=request.force_grounding)
        finally:
            self._close(opened)
        if isinstance(result, NotFound):
            self._note(Outcome("NOT_FOUND", result.text))
            return messages.fail(response, "NOT_FOUND", result.text)
        if isinstance(result, Question):
            response.is_question = True
            response.question = messages.question_msg(
                opened.source, result, opened.found, "", 1, 0.0
            )
        elif result.grounding is not None:
            response.grounding = opened.grounding_msg(result.grounding, dialogue_id="")
        else:
            self._note(result)
            return messages.fail(response, result.code, result.message)
        return response

    async def _on_goal(self, goal: ServerGoalHandle) -> GroundWithDialogue.Result:
        """The whole dialogue."""
        request, result = goal.request, GroundWithDialogue.Result()
        limits = self._limits(request.max_turns, messages.seconds(request.answer_timeout))
        dialogue_id = bytes(goal.goal_id.uuid).hex()
        opened = self._gate.open(dialogue_id, request.expression, self._given(request), limits)
        # rclpy keeps the request for a while after its end.
        request.image, request.depth = Image(), Image()
        if isinstance(opened, Outcome):
            self._note(opened)
            goal.abort()
            return messages.fail(result, opened.code, opened.message)
        if dialogue_id in self._canceled:  # before its session was there to be stopped
            opened.stop(_CANCELED)
        outcome = await self._converse(opened, Feedback(goal, opened))
        self._canceled.discard(dialogue_id)
        result.num_questions = opened.conversation.dialogue.questions
        if outcome.grounding is not None:
            result.grounding = opened.grounding_msg(outcome.grounding)
            goal.succeed()
            return result
        if outcome.code == "CANCELED" and await opened.until(lambda: goal.is_cancel_requested):
            goal.canceled()
        else:
            goal.abort()
        return messages.fail(result, outcome.code, outcome.message)

    def _on_cancel(self, goal: ServerGoalHandle) -> CancelResponse:
        dialogue_id = bytes(goal.goal_id.uuid).hex()
        self._canceled.add(dialogue_id)
        session = self._gate.session
        if session is not None and session.id == dialogue_id:
            session.stop(_CANCELED)
        return CancelResponse.ACCEPT
