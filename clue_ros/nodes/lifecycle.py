# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""A managed (lifecycle) node, and a node as a process: how it spins and how it ends."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import rclpy
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.exceptions import InvalidHandle
from rclpy.executors import Executor, ExternalShutdownException, SingleThreadedExecutor
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.signals import uninstall_signal_handlers

from clue_ros.errors import ClueError
from clue_ros.interrupts import started
from clue_ros.nodes.inference_worker import in_thread
from clue_ros.nodes.parameters import BadParameterError

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE
# Transitions that may take seconds, by id and by label: `open` and `free` run in them.
SLOW_IDS = (Transition.TRANSITION_CONFIGURE, Transition.TRANSITION_CLEANUP)
SLOW_LABELS = ("configure", "cleanup")


class ManagedNode(LifecycleNode):
    """A lifecycle node that can start itself and logs why a transition failed.

    Subclasses implement `open` (unconfigured to inactive), `begin` (inactive to active), and their
    opposites `free` and `end`. `open` and `begin` raise ClueError for what a user can correct; it
    is logged, the transition fails and the node keeps its state.

    The executor has one thread, and rclpy runs a transition inside the callback that asks for it.
    So configure and cleanup, and with them `open` and `free`, run in a thread of their own, and the
    other services answer meanwhile; a second transition is refused. `begin` and `end`, which create
    and destroy subscriptions, run in the executor's thread.
    """

    def __init__(self, name: str, executor: Executor, **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self.spinner = executor
        self.state = "unconfigured"
        self._changing = threading.Lock()  # held while a slow transition runs in its thread
        for service in self.services:
            if service.srv_type is ChangeState:
                self._serve_off_thread(service)

    def _serve_off_thread(self, service: Any) -> None:
        """Run the slow transitions that this change_state service is asked for in a thread."""
        change = service.callback

        async def on_change_state(
            request: ChangeState.Request, response: ChangeState.Response
        ) -> ChangeState.Response:
            label = request.transition.label  # counts before the id, as in rclpy
            slow = label in SLOW_LABELS if label else request.transition.id in SLOW_IDS
            if slow:
                return await self._off_thread(lambda: change(request, response))
            return change(request, response)

        service.callback = on_change_state
        # Its default group is that of the other lifecycle and parameter services, and exclusive.
        service.callback_group = ReentrantCallbackGroup()
        service.callback_group.add_entity(service)

    def autostart(self) -> None:
        """Configure and activate as soon as the executor spins.

        Not from a launch file: after a respawn, DDS remembers the dead process's services for some
        20 s, and a transition request would go there.
        """
        self.spinner.create_task(self._start)

    def value(self, name: str) -> Any:
        """Return a parameter's value."""
        return self.get_parameter(name).value

    async def _start(self) -> None:
        name = self.get_fully_qualified_name()
        if await self._off_thread(self.trigger_configure) != SUCCESS:
            self.get_logger().error(f"mend this, then: ros2 lifecycle set {name} configure")
        elif self.trigger_activate() != SUCCESS:
            self.get_logger().error(f"mend this, then: ros2 lifecycle set {name} activate")

    async def _off_thread(self, transition: Callable[[], Any]) -> Any:
        def run() -> Any:
            with self._changing:
                return transition()

        return await in_thread(self.spinner, run)

    def settle(self) -> None:
        """Let no slow transition begin any more, and wait a moment for one that just began.

        rclpy crashes where a transition begins while its node is destroyed; one that is in `open`,
        which may load a model for minutes, does no harm.
        """
        self._changing.acquire(timeout=JUST_BEGUN)

    def open(self) -> None:
        """Acquire the node's resources. Raises ClueError."""

    def begin(self) -> None:
        """Start to work. Raises ClueError."""

    def end(self) -> None:
        """Stop working."""

    def free(self) -> None:
        """Release the node's resources."""

    def enter(self, state: str) -> None:
        """Note the lifecycle state; "configuring" and "finalized" begin before the transition."""
        self.state = state

    def close(self) -> bool:
        """Stop before the process ends; False when a thread of the node still computes."""
        self.enter("finalized")
        self.end()
        self.free()
        return True

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Acquire the node's resources; FAILURE, with the reason logged, without them."""
        self.enter("configuring")  # parameters that are being read must not change now
        if not self._tried(self.open):
            self.free()
            self.enter("unconfigured")
            return FAILURE
        self.enter("inactive")
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start to work."""
        result = super().on_activate(state)
        if result != SUCCESS:
            return FAILURE
        if not self._tried(self.begin):
            self.end()
            return FAILURE
        self.enter("active")
        return SUCCESS

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop working."""
        self.enter("inactive")
        self.end()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Release the node's resources."""
        self.enter("unconfigured")
        self.free()
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop everything, from any state."""
        ManagedNode.close(self)
        return super().on_shutdown(state)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Return to unconfigured after an error in a transition."""
        self.get_logger().error(f"a transition from {state.label} failed; back to unconfigured")
        self.enter("unconfigured")
        self.end()
        self.free()
        return SUCCESS

    def _tried(self, step: Callable[[], None]) -> bool:
        # rclpy ignores the errors of a transition, so they are logged here.
        try:
            step()
        except ClueError as error:
            self.get_logger().error(str(error))
        except Exception as error:  # noqa: BLE001 - any failure is this transition's FAILURE
            self.get_logger().error(f"{type(error).__name__}: {error}")
        else:
            return True
        return False


RCLError = rclpy_implementation.RCLError
LOOK_UP = 1.0  # seconds
JUST_BEGUN = 0.1  # seconds
STOPS = (signal.SIGINT, signal.SIGTERM)
# A user's mistakes at start: one line, exit status 2, no traceback.
MISTAKES = (ClueError, BadParameterError)


def spin(executor: Executor) -> None:
    """Execute callbacks until shutdown, whatever is destroyed meanwhile.

    A callback may destroy a subscription (deactivate) whose events the executor still holds: rclpy
    leaves out the subscription, but raises for its events, which would end the node. A signal that
    shuts the context down at that moment raises too. The timeout is needed because
    rclpy loses a wake-up, of a signal too, about once in some hundred times.
    """
    while executor.context.ok():
        try:
            executor.spin_once(timeout_sec=LOOK_UP)
        except (InvalidHandle, RCLError) as error:
            if isinstance(error, RCLError) and executor.context.ok():
                raise


def run_node(name: str, make: Callable[[Executor], Any], args: list[str] | None) -> int:
    """Make the node and spin it until SIGINT, SIGTERM or a shutdown; return the exit status.

    In one thread: the threads of rclpy's MultiThreadedExecutor wake each other all the time under a
    camera or a fast /clock, use a whole core and keep the model's thread from Python's lock. No
    callback may block.

    At the end the node's `close()`, if it has one, is called. If it returns False, a thread of the
    node still computes, and the process ends at once. Exit status: 0, or 2 when a parameter or a
    file that it names cannot be used.
    """
    # A signal while the node is made would leave its participant's shared memory behind: it waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    rclpy.init(args=args)
    node: Any = None
    busy = False
    started()
    executor = SingleThreadedExecutor()
    try:
        node = make(executor)
        executor.add_node(node)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        spin(executor)
    except MISTAKES as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    except Exception:
        if rclpy.ok():
            raise
        # A signal has shut ROS down while the node was made.
    finally:
        # After a Ctrl-C in a terminal, ros2 launch sends a second SIGINT: it must not interrupt the
        # shutdown.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # rclpy shuts the context down in a thread of its own when a signal comes: wait for its end,
        # destroying the node at the same time crashes or hangs now and then.
        uninstall_signal_handlers()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if node is not None and hasattr(node, "close"):
            busy = node.close() is False
        executor.shutdown(timeout_sec=1.0)
        if node is not None:
            if isinstance(node, ManagedNode):
                node.settle()
            _destroy(node)
        rclpy.try_shutdown()
        # The interpreter ends with full collections. Over the objects of torch and transformers
        # they take over a second of CPU, and on a busy robot ros2 launch would kill the process.
        # Nothing here needs them; atexit handlers still run.
        gc.freeze()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    if busy:
        # Torch aborts when the interpreter's end stops a thread in its C++ code.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0


def _destroy(node: Node) -> None:
    """Destroy the node with all its handles, and with them the process's DDS participant.

    Nothing else does, as the collector is stopped: the participant's shared memory (34 MB of RAM
    with config/fastdds.xml) would stay until the next boot. A participant lives as long as any
    handle of its node, and `destroy_node` leaves those of action servers and of the lifecycle.
    """
    for waitable in list(node.waitables):
        if hasattr(waitable, "destroy"):
            waitable.destroy()
    node.destroy_node()
    lifecycle = getattr(node, "_state_machine", None)
    if lifecycle is not None:
        lifecycle.destroy_when_not_in_use()
