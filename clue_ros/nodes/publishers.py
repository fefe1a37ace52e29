"""What the perception node publishes, and the action's feedback."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

from clue_msgs.action import GroundWithDialogue
from clue_msgs.msg import ClarificationQuestion, GroundingResult
from rclpy.action.server import ServerGoalHandle
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import Image
from std_msgs.msg import String

from clue_ros.dialogue.sayings import in_other_words
from clue_ros.dialogue.types import Grounding, Question
from clue_ros.drawing import draw
from clue_ros.nodes import messages
from clue_ros.nodes.diagnostics import Health
from clue_ros.nodes.dialogue_session import Listener, Session
from clue_ros.nodes.image_conversion import fill_image
from clue_ros.nodes.inference_worker import Worker

EVENTS = QoSProfile(depth=10)  # reliable, volatile: nobody should act on an old grounding
LATEST = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)  # pictures to look at


class Outputs:
    """The node's publishers; lifecycle ones, so nothing leaves while the node is not active."""

    def __init__(self, node: LifecycleNode, worker: Worker) -> None:
        self._node = node
        self._worker = worker
        create = node.create_lifecycle_publisher
        self._question = create(ClarificationQuestion, "question", EVENTS)
        self._say = create(String, "say", EVENTS)
        self._grounding = create(GroundingResult, "grounding", EVENTS)
        self._attention = create(Image, "~/attention_map", LATEST)
        self._debug = create(Image, "~/debug_image", LATEST)

    def say(self, text: str) -> None:
        """Have it spoken."""
        self._say.publish(String(data=text))

    def ask(self, session: Session, question: Question) -> ClarificationQuestion:
        """Publish and say the question, and return its message."""
        message = messages.question_msg(
            session.source,
            question,
            session.found,
            session.id,
            session.conversation.dialogue.questions,
            session.limits.answer_timeout,
        )
        self._question.publish(message)
        self.say(question.text)
        return message

    def point(self, session: Session, grounding: Grounding) -> None:
        """Publish where the object is."""
        message = session.grounding_msg(grounding)
        depth, target = session.frame.depth, message.target
        if not target.has_pose and depth is not None and depth.expected:
            self._node.get_logger().warning(f"no pose: {target.no_pose_reason}")
        self._grounding.publish(message)

    def estimate(self, session: Session, reply: Question | Grounding) -> None:
        """Publish the attention map of a reply and, while somebody looks, its picture."""
        self._attention.publish(messages.attention_msg(session.source, reply.ambiguity))
        wanted = self._node.get_parameter("debug_image").value
        if wanted and self._debug.get_subscription_count() > 0:
            # Behind the reply in the worker's queue: drawing never delays what is being waited for.
            self._worker.submit(lambda: _picture(session, reply), self._publish_picture)

    def _publish_picture(self, image: Image | None, error: BaseException | None) -> None:
        if error is not None:
            self._node.get_logger().warning(f"no debug image: {error}")
        elif image is not None:
            self._debug.publish(image)


def _picture(session: Session, reply: Question | Grounding) -> Image:
    estimate = reply.ambiguity
    if isinstance(reply, Grounding):
        via, box, caption = (
            reply.intermediate_boxes,
            reply.box,
            f"{reply.label or session.conversation.request}",
        )
    else:
        via, box, caption = (), None, reply.text
    pixels = draw(
        session.view.image,
        attention=estimate.attention,
        peaks=() if via else estimate.peaks,  # two sets of numbers would be one too many
        via=via,
        box=box,
        caption=f"{caption} (ambiguity {estimate.probability:.2f})",
    )
    message: Image = fill_image(Image(), pixels, "rgb8")
    message.header = session.source.header
    return message


class Feedback:
    """The action's feedback: one message, updated and sent again at each step."""

    def __init__(self, goal: ServerGoalHandle, session: Session) -> None:
        self._goal = goal
        self._session = session
        self._message = GroundWithDialogue.Feedback()

    def looking(self) -> None:
        """The image is being taken in."""
        self._send(GroundWithDialogue.Feedback.LOOKING)

    def thinking(self) -> None:
        """The request, with the answers so far, is being judged."""
        self._send(GroundWithDialogue.Feedback.THINKING)

    def replied(self, session: Session, reply: Question | Grounding) -> None:
        """The model replied; a question follows with `asked`."""
        self._message.ambiguity = messages.estimate_msg(
            session.source, session.context, reply.ambiguity
        )
        if isinstance(reply, Grounding):
            self._send(GroundWithDialogue.Feedback.GROUNDING)

    def asked(self, question: ClarificationQuestion) -> None:
        """The question is out and the robot waits."""
        self._message.question = question
        self._send(GroundWithDialogue.Feedback.WAITING_FOR_ANSWER)

    def _send(self, state: int) -> None:
        self._message.state = state
        if self._goal.is_active:  # a goal that was just canceled takes no feedback
            self._goal.publish_feedback(self._message)


# -------------------------------------------------------------------------------------------------
# What happens as a dialogue of perception goes on: outputs, feedback, counters, a log of turns.


def together(*listeners: Listener) -> Listener:
    """Return one listener that calls each of these, in order."""

    def each(name: str) -> Callable[..., None]:
        def call(*args: Any) -> None:
            for listener in listeners:
                getattr(listener, name)(*args)

        return call

    return Listener(**{field.name: each(field.name) for field in fields(Listener)})


def log_turns(
    session: Session, write: Callable[[str], object], *, one_shot: bool = False
) -> Listener:
    """Return a listener that writes one line for each turn. Texts are cleaned: one line each.

    one_shot: nobody is asked, the question is the answer.
    """
    name = f"{'request' if one_shot else 'dialogue'} {session.id[:8]}"
    asks = "would ask" if one_shot else "asks"

    def thinking() -> None:
        turns = session.conversation.dialogue.turns
        said = "asks for" if len(turns) == 1 else "answers"
        write(f'{name}: the person {said} "{turns[-1].text}"')

    def replied(reply: Question | Grounding) -> None:
        sure = f"ambiguity {reply.ambiguity.probability:.2f}, {session.latency:.2f} s"
        if isinstance(reply, Question):
            write(f'{name}: the robot {asks} "{reply.text}" ({sure})')
        else:
            corners = ", ".join(f"{side:.0f}" for side in reply.box.as_list())
            write(f"{name}: the robot points at {corners} px ({sure}, score {reply.score:.2f})")

    return Listener(thinking=thinking, replied=replied)


def tell_all(
    session: Session,
    outputs: Outputs,
    health: Health,
    language: Callable[[], str],
    feedback: Feedback | None = None,
) -> Listener:
    """Return a listener that publishes what the robot sees and asks, and counts it.

    `feedback`: of the action, where there is a goal.
    """

    def replied(reply: Question | Grounding) -> None:
        health.replied(session.latency, session.stages)
        outputs.estimate(session, reply)
        if feedback:
            feedback.replied(session, reply)

    def asked(question: Question) -> None:
        health.questions += 1
        message = outputs.ask(session, question)
        if feedback:
            feedback.asked(message)

    def asked_again(question: Question, heard: bool) -> None:
        outputs.say(in_other_words(question.text, language(), heard=heard))

    return Listener(
        looking=feedback.looking if feedback else lambda: None,
        thinking=feedback.thinking if feedback else lambda: None,
        replied=replied,
        asked=asked,
        asked_again=asked_again,
    )
