# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Publishers and log lines of perception for each step of a dialogue, and the action's feedback."""

from __future__ import annotations

from collections.abc import Callable

from clue_msgs.action import GroundWithDialogue
from clue_msgs.msg import ClarificationQuestion, DialogueState
from rclpy.action.server import ServerGoalHandle
from rclpy.lifecycle import LifecycleNode
from rclpy.publisher import Publisher
from sensor_msgs.msg import Image
from std_msgs.msg import String

from clue_ros.dialogue.conversation import Outcome
from clue_ros.dialogue.sayings import in_other_words
from clue_ros.dialogue.types import Grounding, Question
from clue_ros.drawing import draw
from clue_ros.nodes import messages
from clue_ros.nodes.detections import ObjectPublishers
from clue_ros.nodes.dialogue_session import Listener, Session
from clue_ros.nodes.image_conversion import fill_image
from clue_ros.nodes.inference_worker import Worker
from clue_ros.nodes.topics import Perception


class Publishers(Listener):
    """The node's publishers.

    Lifecycle publishers are silent unless the node is active. `say` and `~/heard` work in every
    state, so that an inactive robot answers too.
    """

    def __init__(self, node: LifecycleNode, worker: Worker) -> None:
        self._node = node
        self._worker = worker
        self._question = Perception.QUESTION.publisher(node)
        self._say = Perception.SAY.publisher(node)
        self._heard = Perception.HEARD.publisher(node)
        self._grounding = Perception.GROUNDING.publisher(node)
        self._attention = Perception.ATTENTION_MAP.publisher(node)
        self._debug = Perception.DEBUG_IMAGE.publisher(node)
        self.objects = ObjectPublishers(node)

    def say(self, text: str) -> None:
        """Publish a sentence to be spoken."""
        if self._node.context.ok():  # a dialogue may end after ROS has been shut down
            self._say.publish(String(data=text))

    def heard(self, text: str) -> None:
        """Publish a person's words, whichever way they came."""
        self._heard.publish(String(data=text))

    def looking(self, session: Session) -> None:
        """Delete the markers of the last dialogue."""
        self.objects.clear()

    def asked(self, session: Session, question: ClarificationQuestion) -> None:
        """Publish and say the question."""
        self._question.publish(question)
        self.objects.show(question.header, question.candidates, candidates=True)
        self.say(question.text)

    def asked_again(self, session: Session, question: Question, heard: bool) -> None:
        """Say the question in other words."""
        language = self._node.get_parameter("language").value
        self.say(in_other_words(question.text, language, heard=heard))

    def spoke(self, session: Session, text: str) -> None:
        """Say a sentence that keeps the question open."""
        self.say(text)

    def point(self, session: Session, grounding: Grounding) -> None:
        """Publish the grounding."""
        message = session.grounding_msg(grounding)
        depth, target = session.frame.depth, message.target
        if not target.has_pose and depth is not None and depth.expected:
            self._node.get_logger().warning(f"no pose: {target.no_pose_reason}")
        self._grounding.publish(message)
        place = session.objects[0].place if session.objects else None
        self.objects.point(message.header, message.target, place)

    def replied(self, session: Session, reply: Question | Grounding) -> None:
        """Publish the attention map of a reply and, while it has subscribers, the debug image."""
        self._attention.publish(messages.attention_msg(session.source, reply.ambiguity))
        wanted = self._node.get_parameter("debug_image").value
        if wanted and self._debug.get_subscription_count() > 0:
            # Behind the reply in the worker's queue: drawing never delays the dialogue.
            self._worker.submit(lambda: debug_image(session, reply), self._publish_debug_image)

    def _publish_debug_image(self, image: Image | None, error: BaseException | None) -> None:
        if error is not None:
            self._node.get_logger().warning(f"no debug image: {error}")
        elif image is not None:
            self._debug.publish(image)


def debug_image(session: Session, reply: Question | Grounding) -> Image:
    """Draw the attention, the boxes and the text of a reply."""
    estimate = reply.ambiguity
    if isinstance(reply, Grounding):
        via, box, caption = (
            reply.intermediate_boxes,
            reply.box,
            reply.label or session.conversation.request,
        )
    else:
        via, box, caption = (), None, reply.text
    pixels = draw(
        session.view.image,
        attention=estimate.attention,
        peaks=() if via else estimate.peaks,  # the numbers of both would be confusing
        via=via,
        box=box,
        caption=f"{caption} (ambiguity {estimate.probability:.2f})",
    )
    message: Image = fill_image(Image(), pixels, "rgb8")
    message.header = session.source.header
    return message


class StatePublisher(Listener):
    """The topic `dialogue_state`: one message at each change, in every lifecycle state.

    one_shot: for requests of `Ground`, which have no dialogue id.
    """

    def __init__(
        self, node: LifecycleNode, publisher: Publisher, *, one_shot: bool = False
    ) -> None:
        self._node, self._publisher, self._one_shot = node, publisher, one_shot

    def inactive(self, reason: str) -> None:
        """Publish INACTIVE, with the lifecycle state as the reason."""
        self._publish(
            DialogueState(
                state=DialogueState.STATE_INACTIVE,
                error_code=DialogueState.INACTIVE,
                error_msg=reason,
            )
        )

    def idle(self) -> None:
        """Publish that perception is active and nothing has been asked."""
        self._publish(DialogueState(state=DialogueState.STATE_IDLE))

    def looking(self, session: Session) -> None:
        """Publish LOOKING."""
        self._publish(self._of(session, DialogueState.STATE_LOOKING))

    def thinking(self, session: Session) -> None:
        """Publish THINKING."""
        self._publish(self._of(session, DialogueState.STATE_THINKING))

    def asked(self, session: Session, question: ClarificationQuestion) -> None:
        """Publish the open question."""
        message = self._of(session, DialogueState.STATE_WAITING_FOR_ANSWER)
        message.question = question
        self._publish(message)

    def ended(self, session: Session, outcome: Outcome) -> None:
        """Publish how the dialogue ended."""
        message = self._of(session, DialogueState.STATE_ENDED)
        message.grounded = outcome.grounding is not None
        messages.fail(message, outcome.code, outcome.message)
        self._publish(message)

    def _of(self, session: Session, state: int) -> DialogueState:
        message = DialogueState(
            state=state,
            dialogue_id="" if self._one_shot else session.id,
            expression=session.conversation.request,
        )
        message.header.frame_id = session.source.header.frame_id
        return message

    def _publish(self, message: DialogueState) -> None:
        if self._node.context.ok():  # the node is closed after ROS has been shut down
            message.header.stamp = self._node.get_clock().now().to_msg()
            self._publisher.publish(message)


class Feedback(Listener):
    """The action's feedback: one message, updated and sent again at each step."""

    def __init__(self, goal: ServerGoalHandle) -> None:
        self._goal = goal
        self._message = GroundWithDialogue.Feedback()

    def looking(self, session: Session) -> None:
        """Send LOOKING."""
        self._send(GroundWithDialogue.Feedback.LOOKING)

    def thinking(self, session: Session) -> None:
        """Send THINKING."""
        self._send(GroundWithDialogue.Feedback.THINKING)

    def replied(self, session: Session, reply: Question | Grounding) -> None:
        """Send GROUNDING; a question follows with `asked`."""
        self._message.ambiguity = messages.estimate_msg(
            session.source, session.context, reply.ambiguity
        )
        if isinstance(reply, Grounding):
            self._send(GroundWithDialogue.Feedback.GROUNDING)

    def asked(self, session: Session, question: ClarificationQuestion) -> None:
        """Send WAITING_FOR_ANSWER with the question."""
        self._message.question = question
        self._send(GroundWithDialogue.Feedback.WAITING_FOR_ANSWER)

    def _send(self, state: int) -> None:
        self._message.state = state
        if self._goal.is_active:  # a goal that was just canceled takes no feedback
            self._goal.publish_feedback(self._message)


class TurnLog(Listener):
    """Writes one line for each turn. Texts are cleaned: one line each.

    one_shot: no answer is awaited, the question is the result.
    """

    def __init__(self, write: Callable[[str], object], *, one_shot: bool = False) -> None:
        self._write = write
        self._turns = 0  # that were written
        self._name, self._asks = ("request", "would ask") if one_shot else ("dialogue", "asks")

    def thinking(self, session: Session) -> None:
        """Write the person's turn."""
        turns, count = session.conversation.dialogue.turns, len(session.conversation.spoken)
        if count == self._turns:  # the model looks again
            return
        self._turns = count
        said = "asks for" if len(turns) == 1 else "answers"
        self._write(f'{self._name} {session.id[:8]}: the person {said} "{turns[-1].text}"')

    def replied(self, session: Session, reply: Question | Grounding) -> None:
        """Write the robot's turn."""
        sure = f"ambiguity {reply.ambiguity.probability:.2f}, {session.latency:.2f} s"
        if isinstance(reply, Question):
            turn = f'{self._asks} "{reply.text}" ({sure})'
        else:
            corners = ", ".join(f"{side:.0f}" for side in reply.box.as_list())
            turn = f"points at {corners} px ({sure}, score {reply.score:.2f})"
        self._write(f"{self._name} {session.id[:8]}: the robot {turn}")

    def spoke(self, session: Session, text: str) -> None:
        """Write a sentence that keeps the question open."""
        self._write(f'{self._name} {session.id[:8]}: the robot says "{text}"')

    def ignored(self, session: Session, text: str) -> None:
        """Write words that were not for the robot."""
        self._write(f'{self._name} {session.id[:8]}: not for the robot: "{text}"')
