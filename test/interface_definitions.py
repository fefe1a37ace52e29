"""Python classes of message packages that are not installed, generated from test/definitions.

ROS's own generators make them, with their checks of each field's type. They cannot be published:
that needs compiled type support (scripts/extra_ros builds it).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import io
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from ament_index_python.packages import get_package_share_directory

DEFINITIONS = Path(__file__).parent / "definitions"


@contextlib.contextmanager
def message_packages() -> Iterator[Callable[[str], Any]]:
    """Give a function that returns a package's module of messages: installed, or generated.

    Afterwards the generated ones are gone, so that no node takes them for installed.
    """
    folder = generated_packages()
    sys.path.append(folder)
    importlib.invalidate_caches()
    try:
        with mock.patch.dict(os.environ, ROS_PYTHON_CHECK_FIELDS="1"):  # read at the import
            yield lambda package: importlib.import_module(f"{package}.msg")
    finally:
        sys.path.remove(folder)
        for name, module in list(sys.modules.items()):
            if (getattr(module, "__file__", "") or "").startswith(folder):
                del sys.modules[name]


@functools.cache
def generated_packages() -> str:
    """Generate every package of test/definitions once a process; return where to import from."""
    folder = Path(tempfile.mkdtemp(prefix="clue_ros_definitions_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for package in sorted(path for path in DEFINITIONS.iterdir() if path.is_dir()):
        with contextlib.redirect_stdout(io.StringIO()):  # a line for each file that is read
            _generate(package, folder)
    return str(folder)


def _generate(package: Path, folder: Path) -> None:
    """Write folder/PACKAGE/msg from the .msg files of a package."""
    convert = importlib.import_module("rosidl_adapter.msg").convert_msg_to_idl
    generate = importlib.import_module("rosidl_generator_py").generate_py
    into, relative = folder / package.name, [p.relative_to(package) for p in package.glob("msg/*")]
    (into / "msg").mkdir(parents=True)
    (into / "__init__.py").touch()
    for path in relative:
        convert(package, package.name, path, into / "msg")
    resources = Path(get_package_share_directory("rosidl_generator_py")) / "resource"
    arguments = {
        "package_name": package.name,
        "output_dir": str(into),
        "template_dir": str(resources),
        "idl_tuples": [f"{into}:msg/{path.stem}.idl" for path in relative],
        "target_dependencies": [],
    }
    (into / "arguments.json").write_text(json.dumps(arguments), encoding="utf-8")
    generate(str(into / "arguments.json"), [])
