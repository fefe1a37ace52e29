"""A managed (lifecycle) node that can start itself, and says why a transition failed."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import rclpy
from rclpy.exceptions import InvalidHandle
from rclpy.executors import (
    Executor,
    ExternalShutdownException,
    MultiThreadedExecutor,
    SingleThreadedExecutor,
)
from rclpy.impl.implementation_singleton import rclpy_implementation
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn
from rclpy.node import Node
from rclpy.signals import uninstall_signal_handlers

from clue_ros.errors import ClueError
from clue_ros.nodes.parameters import BadParameterError

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


class Managed(LifecycleNode):
    """Subclasses fill in `open` (unconfigured to inactive), `begin`, `end`, and `free`.

    `open` and `begin` raise ClueError for what a person can mend; it is logged, the transition
    fails and the node stays where it was.
    """

    def __init__(self, name: str, executor: Executor, **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self.spinner = executor
        self.state = "unconfigured"

    def autostart(self) -> None:
        """Configure and activate as soon as the executor spins."""
        self.spinner.create_task(self._start)

    def value(self, name: str) -> Any:
        """Return a parameter's value."""
        return self.get_parameter(name).value

    def _start(self) -> None:
        name = self.get_fully_qualified_name()
        if self.trigger_configure() != SUCCESS:
            self.get_logger().error(f"mend this, then: ros2 lifecycle set {name} configure")
        elif self.trigger_activate() != SUCCESS:
            self.get_logger().error(f"mend this, then: ros2 lifecycle set {name} activate")

    def open(self) -> None:
        """Get what the node needs. Raises ClueError."""

    def begin(self) -> None:
        """Start to work. Raises ClueError."""

    def end(self) -> None:
        """Stop working."""

    def free(self) -> None:
        """Give back what `open` got."""

    def close(self) -> None:
        """Stop before the process ends."""
        self.state = "finalized"
        self.end()
        self.free()

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Check and get what the node needs; FAILURE, with the reason logged, without it."""
        self.state = "configuring"  # what is being read must not change now
        if not self._tried(self.open):
            self.free()
            self.state = "unconfigured"
            return FAILURE
        self.state = "inactive"
        return super().on_configure(state)

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Start to work."""
        result = super().on_activate(state)
        if result != SUCCESS:
            return FAILURE
        if not self._tried(self.begin):
            self.end()  # what it had begun
            return FAILURE
        self.state = "active"
        return SUCCESS

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop working."""
        self.state = "inactive"
        self.end()
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Give everything back."""
        self.state = "unconfigured"
        self.free()
        return super().on_cleanup(state)

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Stop everything, from whatever state."""
        self.close()
        return super().on_shutdown(state)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Return to unconfigured after an error in a transition."""
        self.get_logger().error(f"a transition from {state.label} failed; back to unconfigured")
        self.state = "unconfigured"
        self.end()
        self.free()
        return SUCCESS

    def _tried(self, step: Any) -> bool:
        # rclpy swallows what a transition raises, so it is logged here.
        try:
            step()
        except ClueError as error:
            self.get_logger().error(str(error))
        except Exception as error:  # noqa: BLE001 - any failure is this transition's FAILURE
            self.get_logger().error(f"{type(error).__name__}: {error}")
        else:
            return True
        return False


# -------------------------------------------------------------------------------------------------
# A node as a process.

RCLError = rclpy_implementation.RCLError
LOOK_UP = 1.0  # seconds
# What a person gave at start and can mend: one line, exit status 2, no traceback.
MISTAKES = (ClueError, BadParameterError)


def spin(executor: Executor) -> None:
    """Execute callbacks until shutdown, whatever is destroyed meanwhile.

    A subscription may be destroyed by a callback (deactivate) while the spinning thread builds what
    it waits for. rclpy leaves out such a subscription, but raises for its events, which would end
    the node: what is destroyed is gone at the next turn. A signal that shuts the context down at
    that moment raises too, and is an end like any other. It looks up now and then because rclpy
    loses a wake-up, of a signal too, once in some hundred times.
    """
    while executor.context.ok():
        try:
            executor.spin_once(timeout_sec=LOOK_UP)
        except (InvalidHandle, RCLError) as error:
            if isinstance(error, RCLError) and executor.context.ok():
                raise


def run_node(
    name: str, make: Callable[[Executor], Any], args: list[str] | None, threads: int = 1
) -> int:
    """Make the node and spin it until SIGINT, SIGTERM or a shutdown.

    Call its `close()` if it has one; False of that says that a thread of its own still computes,
    and the process ends here and now.

    Returns 0, or 2 when a parameter or what it names cannot be used.
    """
    rclpy.init(args=args)
    node: Any = None
    busy = False
    executor = MultiThreadedExecutor(threads) if threads > 1 else SingleThreadedExecutor()
    try:
        node = make(executor)
        executor.add_node(node)
        spin(executor)
    except MISTAKES as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        # ros2 launch passes on a Ctrl-C that the terminal has sent here already: the second one
        # must not tear the shutdown apart.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # rclpy shuts the context down in a thread of its own when a signal comes: wait for its end,
        # destroying the node at the same time crashes or hangs now and then.
        uninstall_signal_handlers()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if node is not None and hasattr(node, "close"):
            busy = node.close() is False
        if busy:
            # A callback may wait for the model that is loading: rclpy would join its thread.
            Executor.shutdown(executor, 1.0)
        else:
            executor.shutdown(timeout_sec=1.0)
        if node is not None:
            _destroy(node)
        rclpy.try_shutdown()
        # The interpreter ends with full collections: over all that torch and transformers made they
        # take over a second of CPU, and on a busy robot ros2 launch would lose its patience
        # (SIGTERM, SIGKILL). Nothing here needs them; atexit handlers still run.
        gc.freeze()
    if busy:
        # The interpreter would take the thread down in the middle of torch's C++, which aborts.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)
    return 0


def _destroy(node: Node) -> None:
    """End all of a node, and with it the process's DDS participant.

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
