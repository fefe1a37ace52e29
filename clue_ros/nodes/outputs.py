"""What the perception node publishes, and the action's feedback."""

from __future__ import annotations

from clue_msgs.action import GroundWithDialogue
from clue_msgs.msg import ClarificationQuestion, GroundingResult
from rclpy.action.server import ServerGoalHandle
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import DurabilityPolicy, QoSProfile
from sensor_msgs.msg import Image
from std_msgs.msg import String

from clue_ros.dialogue import Grounding, Question
from clue_ros.drawing import draw
from clue_ros.nodes import messages
from clue_ros.nodes.convert import fill_image
from clue_ros.nodes.session import Session
from clue_ros.nodes.worker import Worker

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
        via, box, caption = reply.via, reply.box, f"{reply.label or session.conversation.request}"
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
