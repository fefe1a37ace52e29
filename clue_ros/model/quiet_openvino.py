# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Import OpenVINO here, before anything else does: without its telemetry and its converter.

Its import would write an identifier into the home folder and send an event over the network. The
converter of other formats is 100 modules that nothing here needs; OpenVINO does without both.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from clue_ros.errors import ModelError
from clue_ros.model.loading import first_line

NOT_NEEDED = ("openvino_telemetry", "openvino.tools.ovc")


@contextmanager
def _without(*names: str) -> Iterator[None]:
    known = {name: sys.modules.get(name) for name in names}
    for name in known:
        sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        for name, module in known.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def import_openvino() -> Any:
    """The package. Raises ModelError."""
    try:
        with _without(*NOT_NEEDED):
            import openvino
    except ImportError as error:
        raise ModelError(
            f"OpenVINO is missing ({first_line(error)}): pip install openvino"
        ) from error
    return openvino
