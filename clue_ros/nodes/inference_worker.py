# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""One thread that runs the model, and futures that an rclpy coroutine can await.

A callback that ran the model itself would block the executor for as long as the model takes; here
every callback returns at once and the answer wakes the coroutine that waits for it.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from rclpy.exceptions import InvalidHandle
from rclpy.executors import Executor
from rclpy.task import Future

T = TypeVar("T")

MAX_NUDGE = 2.0  # seconds; a value that nobody takes (its dialogue was ended) is let go after this


class _Awaited(Future):
    """A future that knows whether its value has reached the coroutine that awaits it."""

    taken = False

    def __await__(self) -> Generator[None, None, Any]:
        """Wait for the value, as every future does."""
        value = yield from super().__await__()
        self.taken = True
        return value


def new_future(executor: Executor) -> Future:
    """Return a future whose completion, from any thread, wakes `executor` and the coroutine.

    rclpy loses a wake-up now and then: a coroutine that is just suspending itself counts as running
    when the executor looks, and nothing makes it look again (18 of 20,000 under adverse scheduling;
    Humble to Kilted). So the executor is woken until the value has been taken.
    """
    future = _Awaited(executor=executor)

    def wake(delay: float = 0.01) -> None:
        with contextlib.suppress(InvalidHandle):  # the executor has been shut down
            executor.wake()
        if not future.taken and delay < MAX_NUDGE:
            timer = threading.Timer(delay, wake, (2 * delay,))
            timer.daemon = True
            timer.start()

    future.add_done_callback(lambda _future: wake())
    return future


async def until(condition: Callable[[], bool], executor: Executor, seconds: float = 1.0) -> bool:
    """Wait, without holding a thread, until `condition` is true; False if it is not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        await pause(executor, 0.005)
    return True


async def pause(executor: Executor, seconds: float) -> None:
    """Wait for `seconds` without holding a thread."""
    over = new_future(executor)
    timer = threading.Timer(seconds, over.set_result, (None,))
    timer.daemon = True
    timer.start()
    await over


class Pacer:
    """Lets a few requests through at once, and the rest of a burst one after the other.

    rclpy's clients keep 10 replies by default, with Fast DDS those to other clients too, and drop
    the oldest without a word: of 50 goals sent at once up to half got no answer.
    """

    AT_ONCE, PERIOD = 5, 0.05  # requests, seconds between further ones

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._due = 0.0  # when the next one would be due, at one a period

    async def turn(self) -> None:
        """Wait for one's turn. In the executor's thread."""
        now = time.monotonic()
        self._due = max(self._due, now) + self.PERIOD
        early = self._due - now - self.AT_ONCE * self.PERIOD
        if early > 0:
            await pause(self._executor, early)


async def in_thread(executor: Executor, job: Callable[[], T]) -> T:
    """Run `job` in a daemon thread of its own; return its result or raise its error."""
    ended = new_future(executor)

    def run() -> None:
        try:
            ended.set_result((job(), None))
        except Exception as error:  # noqa: BLE001 - handed to the one who waits
            ended.set_result((None, error))

    threading.Thread(target=run, name="slow callback", daemon=True).start()
    result, error = await ended
    if error is not None:
        raise error
    return result  # type: ignore[no-any-return]


class Worker:
    """Runs functions one after another in one daemon thread.

    All of torch runs here, loading the model too. Each thread that has run a parallel operation
    keeps an OpenMP pool of its own. From the second pool on, and with too few cores, libgomp puts
    every thread to sleep at every barrier (6 context switches an operation instead of 0.1).

    A daemon, so that Ctrl-C does not wait for a forward pass that may take minutes on a CPU.
    """

    def __init__(self, name: str = "inference") -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any, Any], object]] | None]
        self._jobs = queue.SimpleQueue()
        self._waits = threading.Lock()  # held while a job of `later` waits for its time
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(
        self, job: Callable[[], Any], done: Callable[[Any, BaseException | None], object]
    ) -> None:
        """Run `job` when its turn comes, then call `done(result, error)` in the worker's thread."""
        self._jobs.put((job, done))

    def later(self, seconds: float, job: Callable[[], Any]) -> None:
        """Run `job` when its turn comes after `seconds`; nothing if such a job waits already."""
        if not self._waits.acquire(blocking=False):
            return

        def due() -> None:
            self._waits.release()  # release first: later calls schedule a job of their own
            self.submit(job, lambda _result, _error: None)

        timer = threading.Timer(seconds, due)
        timer.daemon = True
        timer.start()

    def call(self, job: Callable[[], Any]) -> Any:
        """Run `job` when its turn comes, wait for it, and return its result or raise its error."""
        ended = threading.Event()
        results: list[Any] = []

        def done(result: Any, error: BaseException | None) -> None:
            results.extend((result, error))
            ended.set()

        self.submit(job, done)
        while not ended.wait(0.5):
            if not self._thread.is_alive() and not ended.is_set():
                raise RuntimeError("the worker has been stopped")
        result, error = results
        if error is not None:
            raise error
        return result

    def stop(self, seconds: float = 0.0) -> bool:
        """End the thread after the queued jobs; return whether it has ended within `seconds`."""
        self._jobs.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done = item
            result: Any = None
            error: BaseException | None = None
            try:
                result = job()
            except Exception as raised:  # noqa: BLE001 - handed to the one who waits
                error = raised
            done(result, error)
            del item, job, done, result, error  # keep no image or view alive while idle
