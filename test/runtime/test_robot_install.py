"""A robot has what `pip install .` brings, and ROS: perception and `clue ground` need no more.

The environment of these tests is made of links to the packages that ROBOT and requirements-ros.txt
name, and to what those need, as the packages themselves say.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import numpy as np
import pytest
import ros_helpers
from packaging.requirements import Requirement
from PIL import Image

ros_helpers.need_ros()

import clue_msgs.msg  # noqa: E402

from clue_ros import requirements  # noqa: E402

ROOT = ros_helpers.ROOT
MUGS = ROOT / "demo" / "mugs.png"
HAS_WHEELS = any(Path(sys.prefix).glob("lib/python3*/site-packages/rclpy"))
PACKAGES = {"torch", "transformers", "peft"}
TORCH = {
    *("torch_backbone", "heads", "attention", "adapters", "conv_stem", "paligemma", "mask_decoder"),
    *("sam2_tracker", "detectors"),
}
pytestmark = pytest.mark.skipif(
    not HAS_WHEELS, reason="pip does not know which packages a sourced ROS consists of"
)


def needed(lines: Iterable[str]) -> dict[str, Distribution]:
    """Return the installed packages that requirements name, and all that these need, by name."""
    found: dict[str, Distribution] = {}
    left = [(Requirement(line), "") for line in lines]
    while left:
        requirement, extra = left.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        for wanted in ("", *requirement.extras):
            name = re.sub(r"[-_.]+", "-", requirement.name).lower()
            key = f"{name}[{wanted}]" if wanted else name
            if key in found:
                continue
            found[key] = distribution(name)
            left += [(Requirement(line), wanted) for line in found[key].requires or ()]
    return found


@pytest.fixture(scope="module")
def robot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the packages of a robot, and no others."""
    folder = tmp_path_factory.mktemp("robot")
    venv.create(folder, symlinks=True, with_pip=False)
    packages = next(folder.glob("lib/python3*/site-packages"))
    ros = (ROOT / "requirements-ros.txt").read_text("utf-8").splitlines()
    lines = [*requirements.ROBOT, *(line for line in ros if re.match(r"\w", line))]
    for found in needed(lines).values():
        for name in {path.parts[0] for path in found.files or ()} - {"..", "__pycache__"}:
            link = packages / name
            if not link.is_symlink():
                link.symlink_to(str(found.locate_file(name)))
    return folder / "bin" / "python"


@pytest.fixture(autouse=True)
def on_the_robot(robot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that a test starts run on the robot."""
    messages = Path(clue_msgs.msg.__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{messages}")
    monkeypatch.setattr(sys, "executable", str(robot))


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python on the robot."""
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)


def installed(name: str) -> bool:
    try:
        return distribution(name) is not None
    except PackageNotFoundError:
        return False


def test_no_extra_is_there() -> None:
    names = {Requirement(line).name for lines in requirements.EXTRAS.values() for line in lines}
    code = "import sys; from importlib.metadata import distributions as all\n"
    code += "print(*(found.name for found in all()))"
    there = run("-c", code).stdout.lower().split()
    assert {"openvino", "tokenizers", "rclpy"} <= {*there}
    assert not {name.lower() for name in names} & {*there}
    assert installed("mujoco"), "the test would prove nothing: scripts/test installs the extras"


def test_every_module_but_those_of_an_extra_can_be_imported() -> None:
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "clue_ros").rglob("*.py")
        if path.parts[len(ROOT.parts) + 1] not in ("lab", "console") and path.stem != "__main__"
    ]
    code = f"""
import importlib, json
failed = {{}}
for name in {names}:
    try:
        importlib.import_module(name)
    except ImportError as error:
        failed[name] = error.name
print(json.dumps(failed))
"""
    done = run("-c", code)
    failed = json.loads(done.stdout or "null")
    of_torch = {name for name, module in failed.items() if module in PACKAGES}
    assert {name.rpartition(".")[2] for name in of_torch} == TORCH, done.stderr
    assert {name: failed[name] for name in {*failed} - of_torch} == {
        "clue_ros.behaviours": "py_trees",
        "clue_ros.nodes.console_node": "starlette",
        "clue_ros.voice.sphinx": "pocketsphinx",
    }


def test_perception_grounds_over_dds(
    tmp_path: Path, asked_by_openvino: Callable[[], list[str]]
) -> None:
    perception = ros_helpers.Process("perception", tmp_path / "log", parameters={"autostart": True})
    try:
        ros_helpers.wait_until(lambda: "active, looking" in perception.text(), "perception")
        with ros_helpers.ros_client() as client:
            pixels = np.asarray(Image.open(MUGS).convert("RGB"))
            reply = client.ground("pick up the mug on the right", client.image(pixels), force=True)
        assert reply.error_code == reply.NONE, reply.error_msg
        assert reply.grounding.target.box.x_min > pixels.shape[1] / 2
    finally:
        assert perception.stop() == 0
    assert asked_by_openvino() == []


def test_clue_ground_points() -> None:
    done = run("-m", "clue_ros.cli", "ground", str(MUGS), "pick up the mug on the right", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["type"] == "grounding"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "cli data tabletop --scenes 1 --out OUT",
            "`clue data tabletop` needs trimesh, of the extra lab",
        ),
        ("cli demo-page", "`clue demo-page` needs starlette, of the extra console"),
        (
            "cli ground demo/mugs.png mug --backend torch",
            "`clue ground` needs torch, of the extra torch",
        ),
        ("nodes.executables console", "console needs starlette, of the extra console"),
    ],
)
def test_a_missing_extra_is_named_in_one_line(tmp_path: Path, command: str, said: str) -> None:
    module, *words = command.replace("OUT", str(tmp_path / "out")).split()
    done = run("-m", f"clue_ros.{module}", *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
