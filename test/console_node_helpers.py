"""The console node in a thread of the test's process, and a page that keeps what it is shown."""

# ruff: noqa: D102  (the methods of LivePage have their docstrings there)

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from ros_helpers import TIMEOUT, isolate, wait_until

from clue_ros.console.live import LivePage


class FakePage(LivePage):
    """Keeps each thing that is shown, the newest last; a browser is not needed to look at it."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.statuses: list[Any] = []
        self.turns: list[tuple[str, str]] = []
        self.questions: list[Any] = []
        self.groundings: list[Any] = []
        self.maps: list[Any] = []
        self.options: dict[str, Any] = {}
        self.health: list[Any] = []
        self.notices: list[str] = []
        self.ready = True
        super().__init__()

    def show_frame(self, image: Any, size: Any = None) -> None:
        self.frames.append((image, size))

    def wants_frame(self) -> bool:
        return self.ready

    def show_status(self, status: Any) -> None:
        self.statuses.append(status)

    def show_turn(self, speaker: Any, text: str, stamp: float) -> None:
        self.turns.append((speaker, text))

    def show_question(self, question: Any) -> None:
        self.questions.append(question)

    def show_grounding(self, found: Any) -> None:
        self.groundings.append(found)

    def show_attention(self, attention: Any) -> None:
        self.maps.append(attention)

    def show_options(self, options: Any) -> None:
        self.options = {option.name: option for option in options}

    def show_diagnostics(self, diagnostics: Any) -> None:
        self.health.append(diagnostics)

    def show_notice(self, text: str) -> None:
        self.notices.append(text)

    # What a test waits for.

    def state(self) -> str:
        """The newest state."""
        return str(self.statuses[-1].state)

    def comes_to(self, *states: str) -> Any:
        """Wait for one of the states and return its status."""
        wait_until(lambda: self.state() in states, f"the state {' or '.join(states)}")
        return self.statuses[-1]

    def notices_of(self, words: str) -> str:
        """Wait for a notice with these words and return it."""
        found: str = wait_until(
            lambda: next((n for n in self.notices if words in n), ""), f"a notice: {words}"
        )
        return found


@contextlib.contextmanager
def console(
    page: LivePage | None = None, *, namespace: str = "", **parameters: Any
) -> Iterator[Any]:
    """Spin a console node, on any free port unless one is given."""
    isolate()
    import rclpy
    from rclpy.executors import SingleThreadedExecutor
    from rclpy.parameter import Parameter

    from clue_ros.nodes.console_node import ConsoleNode

    given = [Parameter(name, value=value) for name, value in ({"port": 0} | parameters).items()]
    context = rclpy.Context()
    rclpy.init(context=context)
    executor = SingleThreadedExecutor(context=context)
    try:
        node = ConsoleNode(
            executor, page, namespace=namespace, context=context, parameter_overrides=given
        )
        executor.add_node(node)
        stop = threading.Event()

        def spin() -> None:
            while not stop.is_set():
                executor.spin_once(timeout_sec=1.0)

        thread = threading.Thread(target=spin, daemon=True)
        thread.start()
        try:
            yield node
        finally:
            node.close()
            stop.set()
            executor.wake()
            thread.join(TIMEOUT)
            executor.shutdown(timeout_sec=2.0)
            node.destroy_node()
    finally:
        context.try_shutdown()
