# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Point the CMake files of the ROS wheels at this machine.

The wheels' exported CMake files name the Python and numpy include folders of the machine that
built them. Without this, building an interface package stops at a folder that does not exist.

Usage: python patch_ros_wheels.py PREFIX    (the environment that holds the wheels)
"""

import re
import sys
import sysconfig
from pathlib import Path

import numpy as np

PYTHON_INCLUDE = re.compile(r"/[^\s;\"<>]*?/include/python3\.\d+(?=[\s;\"<>])")
NUMPY_INCLUDE = re.compile(r"/[^\s;\"<>]*?/numpy/_?core/include(?=[\s;\"<>])")


def patch(text: str, python_include: str, numpy_include: str) -> str:
    """Return the text of a CMake file with both kinds of include folder replaced."""
    text = PYTHON_INCLUDE.sub(lambda _: python_include, text)
    return NUMPY_INCLUDE.sub(lambda _: numpy_include, text)


def main(prefix: Path) -> None:
    """Patch every CMake file below ``prefix/share``; a second run changes nothing."""
    changed = 0
    for path in sorted((prefix / "share").rglob("*.cmake")):
        before = path.read_text(encoding="utf-8")
        after = patch(before, sysconfig.get_path("include"), np.get_include())
        if after != before:
            path.write_text(after, encoding="utf-8")
            changed += 1
    print(f"{changed} CMake files changed in {prefix / 'share'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
