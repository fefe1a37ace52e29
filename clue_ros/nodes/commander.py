"""A client for other nodes and scripts, as nav2_simple_commander is for navigation.

    from clue_ros.nodes.commander import CommandGrounder, GroundingError

    with CommandGrounder() as grounder:
        grounder.wait_until_active(timeout=60.0)
        try:
            result = grounder.ground("the red mug", on_question=lambda asked: input(asked.text))
        except GroundingError as error:
            print(error)
        else:
            print(result.target.box, result.target.pose)

It has a node and a thread of its own, so its calls may block anywhere: in a script, or in a
callback of a node that another executor spins. `on_question` runs in the caller's thread.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

from clue_msgs.action import GroundWithDialogue
from clue_msgs.msg import ClarificationQuestion, GroundingResult
from clue_msgs.srv import AnswerClarification, Ground
from lifecycle_msgs.msg import State
from lifecycle_msgs.srv import GetState
from rclpy.action import ActionClient
from sensor_msgs.msg import CameraInfo, Image

from clue_ros.nodes.commander_node import TICK, BackgroundNode, GroundingError, error_name
from clue_ros.nodes.commander_task import GroundingTask, OnQuestion
from clue_ros.nodes.messages import duration

__all__ = ["CommandGrounder", "GroundingError", "GroundingTask", "OnQuestion"]


class CommandGrounder:
    """Asks perception what words mean in the camera's image, and holds the dialogue it may take.

    name, namespace: of its node; the names of topics, services and the action are relative, as
    those of perception are. perception: perception's node name, for `wait_until_active`. context:
    None is the default one, which is initialised (and shut down by `close`) if nobody has; where
    somebody has called rclpy.init, Ctrl-C shuts ROS down before a dialogue can be canceled.
    """

    def __init__(
        self,
        name: str = "command_grounder",
        *,
        namespace: str = "",
        perception: str = "perception",
        context: Any = None,
    ) -> None:
        self._background = BackgroundNode(name, namespace, context)
        self.node = self._background.node
        self._client = ActionClient(self.node, GroundWithDialogue, "ground_with_dialogue")
        self._ground = self.node.create_client(Ground, "ground")
        self._answer = self.node.create_client(AnswerClarification, "answer")
        self._state = self.node.create_client(GetState, f"{perception}/get_state")
        self._background.start()

    def __enter__(self) -> CommandGrounder:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def close(self) -> None:
        """Leave the graph. Open tasks get no result any more."""
        self._background.close()

    def wait_until_active(self, timeout: float | None = None) -> None:
        """Wait until perception is there and active (it has loaded its model).

        timeout: seconds, None: as long as it takes. Raises GroundingError: NO_SERVER, or INACTIVE
        when it is there and not active.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        seen = "nobody offers the action"
        while True:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                code = "INACTIVE" if seen.startswith("perception is") else "NO_SERVER"
                topic = self.node.resolve_topic_name("ground_with_dialogue")
                raise GroundingError(code, f"{topic}: {seen}, after {timeout:g} s")
            if self._client.server_is_ready() and self._state.service_is_ready():
                seen = "it is there and does not say its state"
                with contextlib.suppress(GroundingError):
                    state = self._background.call(
                        self._state, GetState.Request(), min(left or 5.0, 5.0)
                    )
                    if state.current_state.id == State.PRIMARY_STATE_ACTIVE:
                        return
                    seen = f"perception is {state.current_state.label}"
            self._background.check()
            time.sleep(TICK)

    def ground(
        self,
        expression: str,
        *,
        on_question: OnQuestion | None = None,
        timeout: float | None = None,
        image: Image | None = None,
        depth: Image | None = None,
        camera_info: CameraInfo | None = None,
        max_turns: int = 0,
        answer_timeout: float = 0.0,
    ) -> GroundingResult:
        """Hold the whole dialogue and return what the words mean.

        on_question: called with each ClarificationQuestion; the text it returns is the answer, and
        None leaves the answer to the topic `speech`. timeout: seconds for everything, None: as long
        as it takes; then the dialogue is canceled. image, depth, camera_info: instead of the
        camera's. max_turns, answer_timeout (seconds): 0 means perception's parameters.

        Raises GroundingError. An error in on_question or a KeyboardInterrupt cancels the dialogue.
        """
        begun = time.monotonic()
        task = self.start(
            expression,
            timeout=timeout,
            image=image,
            depth=depth,
            camera_info=camera_info,
            max_turns=max_turns,
            answer_timeout=answer_timeout,
        )
        left = None if timeout is None else max(0.0, timeout - (time.monotonic() - begun))
        try:
            return task.result(left, on_question)
        except BaseException:
            task.leave()
            raise

    def start(
        self,
        expression: str,
        *,
        timeout: float | None = 10.0,
        image: Image | None = None,
        depth: Image | None = None,
        camera_info: CameraInfo | None = None,
        max_turns: int = 0,
        answer_timeout: float = 0.0,
    ) -> GroundingTask:
        """Begin a dialogue and return at once; arguments as of `ground`.

        timeout: seconds to wait for perception to be there. Raises GroundingError: NO_SERVER.
        """
        self._background.wait_for(self._client.server_is_ready, timeout, "ground_with_dialogue")
        goal = GroundWithDialogue.Goal(
            expression=expression, max_turns=max_turns, answer_timeout=duration(answer_timeout)
        )
        _fill(goal, image, depth, camera_info)
        return GroundingTask(self._background, self._client, self.answer, goal)

    def ground_once(
        self,
        expression: str,
        *,
        force: bool = False,
        timeout: float = 30.0,
        image: Image | None = None,
        depth: Image | None = None,
        camera_info: CameraInfo | None = None,
    ) -> GroundingResult | ClarificationQuestion:
        """Look once: return the grounding, or the question that would have to be asked.

        force: point at the best match instead of asking. timeout: seconds. Raises GroundingError.
        """
        request = Ground.Request(expression=expression, force_grounding=force)
        _fill(request, image, depth, camera_info)
        response = self._background.call(self._ground, request, timeout)
        if response.error_code != response.NONE:
            raise GroundingError(error_name(response.error_code), response.error_msg)
        return response.question if response.is_question else response.grounding

    def answer(self, text: str, dialogue_id: str = "", timeout: float = 10.0) -> bool:
        """Answer an open question, of whoever's dialogue; False if none is open.

        dialogue_id: "" is the one that waits. Raises GroundingError.
        """
        request = AnswerClarification.Request(dialogue_id=dialogue_id, text=text)
        response = self._background.call(self._answer, request, timeout)
        if error_name(response.error_code) == "UNKNOWN_DIALOGUE":
            return False
        if response.error_code != response.NONE:
            raise GroundingError(error_name(response.error_code), response.error_msg)
        return bool(response.accepted)


def _fill(
    request: Any, image: Image | None, depth: Image | None, camera_info: CameraInfo | None
) -> None:
    """Put what is given into a goal or a request."""
    given = {"image": image, "depth": depth, "camera_info": camera_info}
    for name, value in given.items():
        if value is not None:
            setattr(request, name, value)
