"""A progress bar, without the imports of the commands that have one."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

ItemT = TypeVar("ItemT")


def with_progress(
    items: Iterable[ItemT], unit: str = "image", total: int | None = None
) -> Iterator[ItemT]:
    """The items, with a progress bar on stderr if that is a terminal."""
    from tqdm import tqdm

    return iter(tqdm(items, None, total, False, unit=unit, disable=not sys.stderr.isatty()))
