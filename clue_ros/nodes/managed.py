"""A managed (lifecycle) node that can start itself, and says why a transition failed."""

from __future__ import annotations

from typing import Any

from rclpy.executors import Executor
from rclpy.lifecycle import LifecycleNode, LifecycleState, TransitionCallbackReturn

from clue_ros.errors import ClueError

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
