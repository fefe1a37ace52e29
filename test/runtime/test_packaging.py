"""The repository as packages: found and built by colcon, installed whole, versions in step."""

import ast
import importlib
import os
import re
import runpy
import shutil
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import setuptools
from catkin_pkg.package import Package, parse_package
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from clue_ros import requirements
from clue_ros.nodes.programs import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {"clue_ros": "ros.ament_python", "clue_msgs": "ros.ament_cmake"}


def colcon(cwd: Path, home: Path, *arguments: str) -> str:
    """Run colcon in cwd without the user's own defaults; return what it printed."""
    environment = os.environ | {"COLCON_HOME": str(home)}
    environment.pop("COLCON_DEFAULTS_FILE", None)
    command = [sys.executable, "-m", "colcon", "--log-base", "/dev/null", *arguments]
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def listed(output: str) -> dict[str, str]:
    """Map package names to types, from the lines of `colcon list`."""
    return dict(re.findall(r"^(\S+)\t.*\((\S+)\)$", output, re.MULTILINE))


def test_colcon_finds_both_packages_from_the_repository_root(tmp_path: Path) -> None:
    assert listed(colcon(ROOT, tmp_path, "list")) == PACKAGES


def test_colcon_finds_both_packages_in_a_workspace(tmp_path: Path) -> None:
    source = tmp_path / "src"
    source.mkdir()
    (source / "clue_ros").symlink_to(ROOT)
    (source / "clue_msgs").symlink_to("clue_ros/clue_msgs")
    assert listed(colcon(tmp_path, tmp_path / "home", "list")) == PACKAGES


@pytest.mark.parametrize("name", PACKAGES)
def test_package_xml_is_valid(name: str) -> None:
    warnings: list[str] = []
    package = manifest(name, warnings)
    package.validate(warnings=warnings)
    assert warnings == []
    assert package.package_format == 3
    assert package.name == name


def manifest(name: str, warnings: list[str] | None = None) -> Package:
    path = ROOT if name == "clue_ros" else ROOT / name
    return parse_package(path / "package.xml", warnings=warnings)


def setup_arguments() -> dict[str, Any]:
    """Return what setup.py hands to setuptools."""
    seen: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setattr(setuptools, "setup", lambda **arguments: seen.update(arguments))
        runpy.run_path(str(ROOT / "setup.py"))
    return seen


def test_versions_agree() -> None:
    changelog = (ROOT / "CHANGELOG.rst").read_text(encoding="utf-8")
    newest = re.search(r"^(\d+\.\d+\.\d+) \(\d{4}-\d\d-\d\d\)\n-+$", changelog, re.MULTILINE)
    assert newest is not None
    assert {manifest(name).version for name in PACKAGES} == {newest[1]}
    assert setup_arguments()["version"] == newest[1]


def test_licence_and_maintainer_agree() -> None:
    for package in map(manifest, PACKAGES):
        assert list(package.licenses) == [setup_arguments()["license"]] == ["Apache-2.0"]
        assert package.maintainers[0].email == setup_arguments()["maintainer_email"]


def wanted_share_files() -> set[str]:
    """List the files of launch, config, models and demo that belong to the package."""
    return {
        path.relative_to(ROOT).as_posix()
        for top in ("launch", "config", "models", "demo")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and path.suffix != ".pyc" and not path.name.startswith(".")
    }


def test_launch_config_models_and_demo_are_installed() -> None:
    sources = {
        f"{target}/{Path(source).name}": source
        for target, files in setup_arguments()["data_files"]
        for source in files
    }
    share = "share/clue_ros/"
    wanted = wanted_share_files()
    assert "config/fastdds.xml" in wanted
    for path in wanted:
        assert sources.get(share + path) == path
    for name in ("package.xml", "LICENSE", "LICENSES.md"):
        assert sources[share + name] == name
    assert "share/ament_index/resource_index/packages/clue_ros" in sources


def console_scripts() -> dict[str, str]:
    entries = setup_arguments()["entry_points"]["console_scripts"]
    return dict(entry.split(" = ") for entry in entries)


def test_every_program_is_a_console_script_of_its_name() -> None:
    wanted = {f"{name}_node": f"clue_ros.nodes.executables:{name}" for name in PROGRAMS}
    assert console_scripts() == wanted | {"clue": "clue_ros.cli:main"}


@pytest.mark.parametrize("name", console_scripts())
def test_console_script_can_be_started(name: str) -> None:
    module, function = console_scripts()[name].split(":")
    assert callable(getattr(importlib.import_module(module), function))
    assert shutil.which(name), f"{name} is not on PATH: run the tests with scripts/test"


def test_colcon_build_gives_what_ros2_run_and_launch_need(tmp_path: Path) -> None:
    colcon(
        tmp_path,
        tmp_path / "home",
        *("build", "--base-paths", str(ROOT), "--merge-install", "--install-base", "install"),
    )
    install = tmp_path / "install"
    for name in console_scripts():
        executable = install / "lib" / "clue_ros" / name
        assert os.access(executable, os.X_OK)
        # the python3 on PATH, so that an activated environment with torch in it is used
        assert executable.read_text(encoding="utf-8").startswith("#!/usr/bin/env python3\n")
    for path in wanted_share_files():
        assert (install / "share" / "clue_ros" / path).is_file()
    index = install / "share" / "ament_index" / "resource_index" / "packages"
    assert (index / "clue_ros").is_file()


def imported_modules(path: Path) -> set[str]:
    """Return the top-level names of everything that a file imports, at any depth."""
    modules = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules.add(node.module)
    return {module.split(".")[0] for module in modules}


def modules_of(*patterns: str) -> dict[str, set[str]]:
    """Map each file that matches to what it imports."""
    paths = [path for pattern in patterns for path in ROOT.glob(pattern)]
    return {path.relative_to(ROOT).as_posix(): imported_modules(path) for path in paths}


def test_package_xml_names_every_ros_package_that_is_imported() -> None:
    declared = {dependency.name for dependency in manifest("clue_ros").exec_depends}
    ros = re.compile(r"rclpy|launch(_ros)?|cv_bridge|ament_index_python|\w+_(msgs|interfaces)")
    used = set().union(*modules_of("clue_ros/**/*.py", "launch/*.py").values())
    assert {"rclpy", "clue_msgs", "launch_ros"} <= used
    assert {module for module in used if ros.fullmatch(module)} <= declared


def test_package_xml_has_what_an_extra_needs_of_the_system_where_it_is_asked_for() -> None:
    robot = manifest("clue_ros")
    robot.evaluate_conditions({})
    voice = manifest("clue_ros")
    voice.evaluate_conditions({"CLUE_VOICE": "1"})  # as rosdep does, with its environment
    names = [
        {depend.name for depend in package.exec_depends if depend.evaluated_condition}
        for package in (robot, voice)
    ]
    assert {"rclpy", "python3-numpy", "python3-opencv"} <= names[0]
    assert names[1] - names[0] == {"alsa-utils", "libespeak-ng1"}


def test_every_python_package_has_one_pin() -> None:
    lines = [*requirements.ROBOT]
    for extra in {*requirements.EXTRAS} - {"all"}:
        lines += requirements.EXTRAS[extra]
    for name in ("build", "ros", "constraints"):
        lines += (ROOT / f"requirements-{name}.txt").read_text("utf-8").splitlines()
    for python in ("3.10", "3.11", "3.13"):
        pins = [
            canonicalize_name(wanted.name)
            for wanted in map(Requirement, {line for line in lines if re.match(r"\w", line)})
            if wanted.specifier
            and (not wanted.marker or wanted.marker.evaluate({"python_version": python}))
        ]
        assert {name for name in pins if pins.count(name) > 1} == set()
    assert "numpy" in requirements.ROBOT, "a robot's own numpy stays"


ROS = {"rclpy", "clue_msgs", "sensor_msgs", "std_msgs"}
TORCH = {"torch", "transformers", "peft", "accelerate", "bitsandbytes"}
ENGINES = {"openvino", "huggingface_hub"} | TORCH
TORCH_MODULES = {
    *(f"model/{name}.py" for name in (
        "torch_backbone", "heads", "attention", "adapters", "conv_stem", "paligemma",
        "mask_decoder", "sam2_tracker",
    )),
    "wrapper/detectors.py",
}  # fmt: skip
"""What imports torch as soon as it is imported, outside lab/. The rest does so where it is used."""


def clue_imports(path: Path) -> set[str]:
    """Return the modules of this repository that a file imports, at any depth."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {module for module in found if module.startswith(("clue_ros.", "demo.", "benchmarks."))}


def test_the_wings_import_what_they_may() -> None:
    for path, modules in modules_of("clue_ros/**/*.py").items():
        part = path.split("/")[1]
        if part != "nodes":
            assert not modules & ROS, path
        if part not in ("model", "wrapper", "lab"):
            assert not modules & ENGINES, path


def imported_at_once(path: Path) -> set[str]:
    """Return the top-level names of what a file imports when it is imported itself."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    body = [node for node in body if "TYPE_CHECKING" not in ast.unparse(node).split("\n")[0]]
    names = {alias.name for node in body if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in body if isinstance(node, ast.ImportFrom)}
    return {name.split(".")[0] for name in names}


def test_torch_is_imported_by_few_modules() -> None:
    package = ROOT / "clue_ros"
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if imported_at_once(path) & TORCH
    }
    assert {name for name in found if not name.startswith("lab/")} == TORCH_MODULES


@pytest.mark.parametrize("room", ["engine", "cli", "ground", "check", "dialogue", "nodes"])
def test_importing_a_robots_code_imports_no_engine(room: str) -> None:
    """Neither torch nor OpenVINO, which a reply alone needs: a process starts at once."""
    place = ROOT / "clue_ros" / room
    files = place.glob("*.py") if place.is_dir() else [place.with_suffix(".py")]
    names = sorted(".".join(f.relative_to(ROOT).with_suffix("").parts) for f in files)
    code = f"import importlib, sys\nfor name in {names}: importlib.import_module(name)\n"
    code += f"print(sorted({ENGINES} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize(
    ("room", "forbidden"),
    [
        # The lab makes and measures models; a robot runs without it. cli.py names its modules.
        ("dialogue", ("lab", "nodes", "model", "wrapper", "engine", "voice")),
        ("model", ("lab", "nodes", "wrapper", "engine", "voice")),
        ("wrapper", ("lab", "nodes", "voice")),
        ("voice", ("lab", "nodes", "model", "wrapper", "engine")),
        ("console", ("lab", "nodes")),
        ("nodes", ("lab",)),
        ("lab", ("nodes", "voice")),
        # Within the lab, from the ground up.
        ("lab/simulator", ("lab/language", "lab/data", "lab/training", "lab/evaluation")),
        ("lab/language", ("lab/data", "lab/training", "lab/evaluation", "lab/generation")),
        ("lab/data", ("lab/training", "lab/evaluation", "lab/generation")),
        ("lab/training", ("lab/evaluation", "lab/generation")),
        ("lab/evaluation", ("lab/generation",)),
    ],
)
def test_a_room_imports_no_room_above_it(room: str, forbidden: tuple[str, ...]) -> None:
    for path in (ROOT / "clue_ros" / room).rglob("*.py"):
        parts = [module.split(".") for module in clue_imports(path)]
        rooms = {part[1] for part in parts} | {"/".join(part[1:3]) for part in parts}
        assert not rooms & set(forbidden), path


def test_the_web_page_needs_neither_ros_nor_torch_until_it_loads_a_model() -> None:
    names = sorted(path.stem for path in (ROOT / "clue_ros" / "console").glob("*.py"))
    code = "import importlib, sys\n"
    code += f"for name in {names}: importlib.import_module('clue_ros.console.' + name)\n"
    code += f"print(sorted({TORCH | ROS} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_the_files_of_the_web_pages_are_installed() -> None:
    patterns = setup_arguments()["package_data"]["clue_ros.console"]
    folder = ROOT / "clue_ros" / "console"
    installed = {path for pattern in patterns for path in folder.glob(pattern)}
    wanted = {path for path in folder.rglob("*") if path.is_file() and path.suffix != ".py"}
    assert {path for path in wanted if "__pycache__" not in path.parts} <= installed
    assert folder / "static" / "live.js" in installed


def test_nothing_in_the_package_imports_the_lab_by_itself() -> None:
    for path in (ROOT / "clue_ros").glob("*.py"):
        assert not {m for m in clue_imports(path) if m.startswith("clue_ros.lab")}, path


def test_modules_import_each_other_in_no_circle() -> None:
    files = [
        path for top in ("clue_ros", "demo", "benchmarks") for path in (ROOT / top).rglob("*.py")
    ]
    names = [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
    graph: TopologicalSorter[str] = TopologicalSorter()
    for name, path in zip(names, files, strict=True):
        found = clue_imports(path)  # "a.b" of `import a.b`, "a.b.c" of `from a.b import c`
        graph.add(name, *({*found, *(f.rpartition(".")[0] for f in found)} & {*names} - {name}))
    graph.prepare()  # raises CycleError, which names the circle


def test_no_test_uses_a_private_name_of_the_package() -> None:
    name = r"(_[a-zA-Z]\w*)"
    defined = re.compile(rf"(?:\b(?:def|class) |\bself\.|^){name}", re.MULTILINE)
    private = {
        found
        for path in (ROOT / "clue_ros").rglob("*.py")
        for found in defined.findall(path.read_text("utf-8"))
    }
    uses = [
        rf"(?!self\.|cls\.)(?<![\w.])[\w.]*[\w)\]]\.{name}",  # of anything but a test's own self
        rf"\bsuper\(\)\.{name}",
        rf"\bfrom clue_ros\S* import [^\n]*\b{name}",
        rf"attr\([^\n]*?\"(?:[\w.]*\.)?{name}\"",  # setattr and the like
    ]
    used = [
        f"{path.relative_to(ROOT)}: {found}"
        for path in (ROOT / "test").rglob("*.py")
        for use in uses
        for found in re.findall(use, path.read_text("utf-8"))
        if found in private
    ]
    assert used == []
