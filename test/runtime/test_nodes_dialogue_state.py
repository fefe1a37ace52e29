"""What the topic dialogue_state says, who may take the place of a dialogue, and many at once.

The node is real and spins in one thread; its model is `ScriptedClue`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import ros_helpers

ros_helpers.need_ros()

from action_msgs.msg import GoalStatus  # noqa: E402
from clue_msgs.msg import DialogueState  # noqa: E402
from rclpy.executors import SingleThreadedExecutor  # noqa: E402
from rclpy.qos import DurabilityPolicy, QoSProfile  # noqa: E402
from ros_helpers import TIMEOUT, Client, isolate, ros_client, wait_until  # noqa: E402
from scripted_perception import ScriptedClue, scripted  # noqa: E402

from clue_ros.nodes.client import CommandGrounder, GroundingError, read_result  # noqa: E402

REQUEST = "pick up the mug"
STATES = {n: getattr(DialogueState, n) for n in dir(DialogueState) if n.startswith("STATE_")}
NAMES = {value: name.removeprefix("STATE_") for name, value in STATES.items()}


@pytest.fixture(scope="module")
def node() -> Iterator[Any]:
    with scripted(SingleThreadedExecutor, answer_timeout=100.0) as node:
        yield node


@pytest.fixture(scope="module")
def shared(node: Any) -> Iterator[Client]:
    with ros_client() as client:
        deep = QoSProfile(depth=50, durability=DurabilityPolicy.TRANSIENT_LOCAL)
        client.listen(DialogueState, "dialogue_state", deep)
        yield client


@pytest.fixture
def client(shared: Client, node: Any) -> Client:
    """Give the client with the node active, no dialogue open, and nothing heard yet."""
    node.may_load.set()
    if shared.state() == "unconfigured":
        assert shared.transition("configure")
    if shared.state() == "inactive":
        assert shared.transition("activate")
    assert shared.set(preempt=False) == ""
    node.script.score = 0.5
    shared.clear()
    return shared


def states(client: Client) -> list[str]:
    return [NAMES[message.state] for message in client.heard["dialogue_state"]]


def heard_states(client: Client, *wanted: str) -> DialogueState:
    """Wait for the last of these states, the only ones since `clear`; return its message.

    A publisher of depth 1 may replace a state before a busy reader has got it, so that some may be
    missing, in between.
    """
    wait_until(lambda: states(client)[-1:] == [wanted[-1]], f"the state {wanted[-1]}", 30.0)
    left = iter(wanted)
    assert all(state in left for state in states(client)), states(client)
    return client.heard["dialogue_state"][-1]


def asking(client: Client, text: str = REQUEST) -> Any:
    """Start a dialogue; return its goal's handle when its question is open, and its state heard."""
    count = len(client.heard["question"])
    handle = client.goal(text, image=client.image())
    client.next("question", count + 1)
    wait_until(lambda: states(client)[-1:] == ["WAITING_FOR_ANSWER"], "the open question's state")
    return handle


# Before it is active. The order of these first two tests matters: the node starts unconfigured.


def test_speech_to_an_unconfigured_node_is_answered_and_the_state_is_inactive(
    shared: Client,
) -> None:
    first = shared.next("dialogue_state")
    assert NAMES[first.state] == "INACTIVE"
    assert first.error_code == DialogueState.INACTIVE
    assert "unconfigured" in first.error_msg
    shared.clear()
    shared.speak(REQUEST)
    assert shared.next("say").data == "I am not active right now."
    assert states(shared) == []


def test_while_the_model_loads_the_node_answers_and_refuses_other_transitions(
    shared: Client, node: Any
) -> None:
    from lifecycle_msgs.msg import Transition
    from lifecycle_msgs.srv import ChangeState

    shared.clear()
    request = ChangeState.Request(transition=Transition(id=Transition.TRANSITION_CONFIGURE))
    change = shared.node.create_client(ChangeState, "perception/change_state")
    assert change.wait_for_service(TIMEOUT)
    configured = change.call_async(request)
    wait_until(lambda: node.state == "configuring", "the transition")
    assert shared.state() == "configuring"
    assert "it loads the model" in shared.next("dialogue_state").error_msg
    response = shared.ground(REQUEST)
    assert response.error_code == response.INACTIVE
    assert shared.set(answer_timeout=90.0) == ""
    assert "deactivate" in shared.set(model="other")
    assert not shared.transition("activate")
    assert not configured.done()
    shared.clear()
    shared.speak(REQUEST)
    assert shared.next("say").data == "I am not active right now."
    node.may_load.set()
    wait_until(configured.done, "the model")
    assert configured.result().success
    assert shared.state() == "inactive"
    assert shared.transition("activate")
    wait_until(lambda: states(shared)[-1:] == ["IDLE"], "the state IDLE")
    shared.node.destroy_client(change)


# The course of a dialogue.


def test_every_step_of_a_dialogue_is_a_state(client: Client) -> None:
    image = client.image()
    handle = client.goal(REQUEST, image=image)
    waiting = heard_states(client, "LOOKING", "THINKING", "WAITING_FOR_ANSWER")
    dialogue_id = bytes(handle.goal_id.uuid).hex()
    assert waiting.dialogue_id == dialogue_id == waiting.question.dialogue_id
    assert (waiting.expression, waiting.question.text) == (REQUEST, ScriptedClue.question)
    assert waiting.header.frame_id == "test_camera"
    assert client.answer("the red one").accepted
    assert client.result(handle).status == GoalStatus.STATUS_SUCCEEDED
    steps = ("LOOKING", "THINKING", "WAITING_FOR_ANSWER", "THINKING", "ENDED")
    ended = heard_states(client, *steps)
    assert (ended.grounded, ended.error_code, ended.error_msg) == (True, 0, "")
    assert (ended.dialogue_id, ended.question.text) == (dialogue_id, "")


def test_who_joins_late_knows_the_open_question_and_can_answer_it(client: Client) -> None:
    handle = asking(client)
    with CommandGrounder("late") as late:
        wait_until(lambda: late.dialogue_state is not None, "the latched state")
        state = late.dialogue_state
        assert state is not None
        assert NAMES[state.state] == "WAITING_FOR_ANSWER"
        assert state.question.text == ScriptedClue.question
        assert late.answer("the red one", state.dialogue_id)
        assert client.result(handle).status == GoalStatus.STATUS_SUCCEEDED
        wait_until(lambda: getattr(late.dialogue_state, "grounded", False), "the end")


@pytest.mark.parametrize(("force", "grounded"), [(True, True), (False, False)])
def test_a_one_shot_request_has_states_without_an_id(
    client: Client, force: bool, grounded: bool
) -> None:
    assert client.ground(REQUEST, image=client.image(), force=force).error_code == 0
    ended = heard_states(client, "LOOKING", "THINKING", "ENDED")
    assert (ended.grounded, ended.error_code, ended.dialogue_id) == (grounded, 0, "")


def test_a_canceled_dialogue_ends_with_its_code(client: Client) -> None:
    handle = asking(client)
    client.cancel(handle)
    assert client.result(handle).status == GoalStatus.STATUS_CANCELED
    ended = heard_states(client, "LOOKING", "THINKING", "WAITING_FOR_ANSWER", "ENDED")
    assert (ended.grounded, ended.error_code) == (False, DialogueState.CANCELED)
    assert ended.error_msg


def test_a_node_that_is_deactivated_in_a_dialogue_is_inactive_at_the_end(client: Client) -> None:
    handle = asking(client)
    client.clear()
    assert client.transition("deactivate")
    assert client.result(handle).result.error_code == DialogueState.INACTIVE
    last = heard_states(client, "ENDED", "INACTIVE")
    assert (last.error_code, last.dialogue_id) == (DialogueState.INACTIVE, "")


# A second request.


@pytest.mark.parametrize("by_service", [False, True])
def test_with_preempt_a_request_takes_the_place_of_the_open_dialogue(
    client: Client, by_service: bool
) -> None:
    assert client.set(preempt=True) == ""
    first = asking(client)
    if by_service:
        assert client.ground("another", image=client.image(), force=True).error_code == 0
    else:
        second = asking(client, "another")
        assert client.answer("the red one").accepted
        assert client.result(second).status == GoalStatus.STATUS_SUCCEEDED
    ended = client.result(first)
    assert ended.status == GoalStatus.STATUS_ABORTED
    assert ended.result.error_code == DialogueState.CANCELED
    assert "preempt" in ended.result.error_msg
    last = client.heard["dialogue_state"][-1]
    wait_until(lambda: last.grounded or client.heard["dialogue_state"][-1].grounded, "the end")


def test_a_request_that_cannot_start_preempts_nothing(client: Client) -> None:
    assert client.set(preempt=True) == ""
    first = asking(client)
    refused = client.result(client.goal("  ", image=client.image()))
    assert refused.result.error_code == DialogueState.EMPTY_EXPRESSION
    no_image = client.ground(REQUEST)
    assert no_image.error_code == DialogueState.NO_IMAGE
    assert client.answer("the red one").accepted
    assert client.result(first).status == GoalStatus.STATUS_SUCCEEDED


# Results.


def test_an_unforeseen_error_is_a_result_and_not_an_empty_one(client: Client, node: Any) -> None:
    node.script.score = "not a number"  # no message can carry it
    handle = asking(client)
    assert client.answer("the red one").accepted
    ended = client.result(handle)
    assert ended.status == GoalStatus.STATUS_ABORTED
    assert ended.result.error_code == DialogueState.MODEL_ERROR
    response = client.ground(REQUEST, image=client.image(), force=True)
    assert response.error_code == DialogueState.MODEL_ERROR
    node.script.score = 0.5
    assert client.ground(REQUEST, image=client.image(), force=True).error_code == 0


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (GoalStatus.STATUS_UNKNOWN, "SERVER_LOST"),
        (GoalStatus.STATUS_CANCELED, "NO_RESULT"),
        (GoalStatus.STATUS_ABORTED, "NO_RESULT"),
        (GoalStatus.STATUS_EXECUTING, "NO_RESULT"),
    ],
)
def test_an_empty_result_is_no_success_to_the_client(status: int, code: str) -> None:
    from clue_msgs.action import GroundWithDialogue

    read = read_result(status, GroundWithDialogue.Result())
    assert isinstance(read, GroundingError)
    assert read.code == code


def test_the_result_of_an_unknown_goal_is_empty_and_has_the_status_unknown(client: Client) -> None:
    """What rclpy sends, so that a client must look at the status."""
    handle = client.goal(REQUEST, image=client.image())
    client.cancel(handle)
    client.result(handle)
    handle.goal_id.uuid = np.zeros(16, np.uint8)
    ended = client.result(handle)
    assert ended.status == GoalStatus.STATUS_UNKNOWN
    assert ended.result.error_code == ended.result.NONE


# Many at once.

CLIENT = """
import json, sys, time
import rclpy
from clue_msgs.srv import Ground
from rclpy.qos import QoSProfile

count = int(sys.argv[1])
rclpy.init()
node = rclpy.create_node(f"client_{sys.argv[2]}")
# Every client of a service receives the answers to all its clients: one queue holds them.
client = node.create_client(Ground, "ground", qos_profile=QoSProfile(depth=128))
assert client.wait_for_service(60.0)
request = Ground.Request(expression="pick up the mug")
# A server may find a client later than that one finds it, and rclpy loses its first answers then.
first = client.call_async(request)
while not first.done():
    rclpy.spin_until_future_complete(node, first, timeout_sec=5.0)
    first = first if first.done() else client.call_async(request)
print("ready", flush=True)
sys.stdin.readline()
futures = [client.call_async(request) for _ in range(count)]
deadline = time.monotonic() + 60.0
for future in futures:
    left = max(0.0, deadline - time.monotonic())
    rclpy.spin_until_future_complete(node, future, timeout_sec=left)
print(json.dumps([f.result().error_code if f.done() else -1 for f in futures]), flush=True)
"""


def test_of_64_requests_at_once_from_two_processes_all_are_answered(client: Client) -> None:
    command = [sys.executable, "-c", CLIENT, "32"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    others: list[Any] = [
        subprocess.Popen([*command, str(n)], env=isolate(), **pipes)  # type: ignore[call-overload]
        for n in range(2)
    ]
    client.start_camera()
    try:
        assert [other.stdout.readline() for other in others] == ["ready\n"] * 2
        for other in others:
            other.stdin.write("go\n")
            other.stdin.flush()
        codes = Counter(code for o in others for code in json.loads(o.stdout.readline() or "[]"))
    finally:
        client.stop_camera()
        for other in others:
            other.communicate(timeout=TIMEOUT)  # closes its stdin, so that it ends by itself
    assert sum(codes.values()) == 64
    assert set(codes) <= {DialogueState.NONE, DialogueState.BUSY, DialogueState.NO_IMAGE}
    assert codes[DialogueState.NONE] > 0
