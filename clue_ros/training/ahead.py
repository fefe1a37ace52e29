"""Batches made ahead of the step that needs them, in threads (decoding pictures frees the GIL)."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Generic, TypeVar

T = TypeVar("T")


class Ahead(Generic[T]):
    """`make(step)` for one step after another, each begun while earlier ones are trained on.

    workers: threads; 0 makes each batch when it is asked for. last: no step from it on is made.
    `make` must depend on the step alone. What it raises is raised where the step is asked for.
    Leaving the context ends the threads, without waiting for batches that nobody asked for.
    """

    def __init__(self, make: Callable[[int], T], workers: int, last: int) -> None:
        self._make = make
        self._workers = workers
        self._last = last
        self._waiting: dict[int, Future[T]] = {}
        self._pool = ThreadPoolExecutor(workers, "batch") if workers else None

    def __call__(self, step: int) -> T:
        """The batch of `step`; the next ones are begun."""
        if self._pool is None:
            return self._make(step)
        for ahead in range(step, min(step + 1 + 2 * self._workers, self._last)):
            if ahead not in self._waiting:
                self._waiting[ahead] = self._pool.submit(self._make, ahead)
        return self._waiting.pop(step).result()

    def __enter__(self) -> Ahead[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
