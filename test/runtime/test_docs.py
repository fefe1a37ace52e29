"""The documentation: its links, files, modules, commands and parameters exist."""

from __future__ import annotations

import argparse
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_lines import understand

from clue_ros.cli import COMMANDS, Command
from clue_ros.nodes.parameter_tables import NODES

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "models").glob("*/*.md")]
)
PARAMETERS = {parameter.name for table in NODES.values() for parameter in table}
# Names in other ROS packages, of a reader's files, and the beginning of names in a log.
NAMES_OF_OTHERS = (
    "audio_common_msgs",
    "AudioData",
    "cache_time",
    "common_interfaces",
    "table_depth",
    "RANDOM_TINY",
    # camera drivers and viewers
    "realsense2_camera",
    "orbbec_camera",
    "azure_kinect_ros_driver",
    "usb_cam",
    "align_depth",
    "enable_sync",
    "nav2_lifecycle_manager",
    "bond_timeout",
    "node_names",
    "color_qos",
    "depth_qos",
    "camera_namespace",
    "camera_name",
    "femto_bolt",
    "depth_registration",
    "depth_to_rgb",
    "image_proc",
    "image_rect",
    "val_",
)
# Options of programs that are not of this repository.
FOREIGN = {
    *("--ros-args", "--log-level", "--enclave", "--clock", "--verbose", "--once", "--login"),
    *("--config_file", "--num_processes", "--num_machines", "--main_process_ip"),
    *("--machine_rank", "--logdir", "--packages-select", "--from-paths", "--ignore-src"),
    *("--topics", "--check"),
}


# The checkout is src/clue_ros of a workspace.
IN_A_WORKSPACE = {"clue_ros/clue_msgs"}


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


each = pytest.mark.parametrize("page", PAGES, ids=name)


def without_code(text: str) -> str:
    """Return the text without fenced and indented code."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"^    .*$", "", text, flags=re.MULTILINE)


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    found = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in found}


@each
def test_every_relative_link_resolves(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code(page.read_text(encoding="utf-8"))):
        if re.match(r"https?:|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{name(page)} links to {target}"
        if anchor and linked.suffix == ".md":
            assert anchor in headings(linked), f"{name(page)} links to {target}"


def test_the_index_lists_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    linked = {(ROOT / "docs" / target).resolve() for target in re.findall(r"\]\(([^)#]+)\)", index)}
    assert linked >= set(PAGES) - {ROOT / "docs" / "README.md", ROOT / "docs" / "index.md"}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 100


@each
def test_every_named_file_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    folders = r"(?:clue_ros|clue_msgs|scripts|benchmarks|docs|demo|test|config|launch|examples)"
    for found in re.findall(rf"(?<![\w/.~-])({folders}/[\w./-]*\w)", text):
        if found in IN_A_WORKSPACE:
            continue
        kinds = [ROOT / "clue_msgs" / kind for kind in ("msg", "srv", "action")]
        ends = (".msg", ".srv", ".action")
        types = [kind / (Path(found).name + end) for kind, end in zip(kinds, ends, strict=True)]
        assert (ROOT / found).exists() or any(map(Path.exists, types)), f"{name(page)}: {found}"


@each
def test_every_named_module_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    pattern = r"(?<![\w/.])((?:clue_ros|scripts|demo|benchmarks)(?:\.[A-Za-z_]\w*)+)(?![\w/])"
    for dotted in re.findall(pattern, text):
        if dotted.endswith((".md", ".py", ".png", ".webp", ".yaml")):
            continue
        parts = dotted.split(".")
        known = [n for n in range(len(parts), 1, -1) if source(parts[:n]) is not None]
        assert known, f"{name(page)} names {dotted}"
        module, rest = source(parts[: known[0]]), parts[known[0] :]
        assert module is not None
        if rest:
            content = module.read_text(encoding="utf-8")
            assert re.search(rf"\b{rest[0]}\b", content), f"{name(page)} names {dotted}"


@each
def test_every_name_that_an_example_imports_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for dotted, names in re.findall(
        r"^ *from (clue_ros[\w.]*) import ([\w, ]+)", text, re.MULTILINE
    ):
        module = source(dotted.split("."))
        assert module is not None, f"{name(page)} imports {dotted}"
        for wanted in names.replace(",", " ").split():
            found = re.search(rf"\b{wanted}\b", module.read_text(encoding="utf-8"))
            assert found or source([*dotted.split("."), wanted]), f"{dotted} has no {wanted}"


def source(parts: list[str]) -> Path | None:
    """Return the file of a module, or None."""
    path = ROOT.joinpath(*parts)
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None


@each
def test_every_identifier_exists(page: Path, sources: str) -> None:
    codes = re.findall(r"`([^`\n]+)`", without_code(page.read_text(encoding="utf-8")))
    for word in re.findall(r"(?<![\w.])[A-Za-z_]\w{3,}", "\n".join(codes)):
        if re.search(r"[a-z][A-Z]|_", word):
            assert re.search(rf"\b{word}\b", sources), f"{name(page)} names {word}"


@pytest.fixture(scope="module")
def sources() -> str:
    """Return everything that is no documentation and no weights, as one text."""
    folders = ("clue_ros", "clue_msgs", "scripts", "benchmarks", "demo", "launch", "config", "test")
    endings = (".py", ".msg", ".srv", ".action", ".yaml", ".xml", ".sh", ".json", "")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    paths.append(ROOT / "package.xml")
    texts = [p.read_text("utf-8") for p in paths if p.is_file() and p.suffix in endings]
    return "\n".join([*texts, *map(str, paths), *NAMES_OF_OTHERS])


def command_lines(text: str) -> Iterator[str]:
    """Yield the words after `clue` of every command line in code blocks and in inline code."""
    joined = re.sub(r"\s*\\\n\s*", " ", text)
    for line in joined.splitlines():
        if line.startswith("    "):
            yield from re.findall(r"(?:^\s+|scripts/run |\[)clue ([a-z].+)", line)
            yield from re.findall(r"-m clue_ros\.cli (.+)", line)
    prose = " ".join(without_code(text).split())
    yield from re.findall(r"`(?:scripts/run )?clue ([^`]+)`", prose)


@each
def test_every_command_line_is_understood(page: Path) -> None:
    for line in command_lines(page.read_text(encoding="utf-8")):
        if "--help" in line:
            continue
        try:
            understand(line)
        except ValueError as error:
            pytest.fail(f"{name(page)}: clue {line}: {error}")


def test_every_page_that_the_code_names_exists() -> None:
    for folder in ("clue_ros", "clue_msgs", "launch", "config", "scripts", "benchmarks", "demo"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".yaml", ".xml", ".sh", ".msg", ".srv", ".action", ""):
                text = path.read_text("utf-8") if path.is_file() else ""
                for page in re.findall(r"\b(?:docs|models)/[\w/-]+\.md\b", text):
                    assert (ROOT / page).is_file(), f"{path} names {page}"


def leaves(table: dict[str, Command | dict[str, Command]]) -> Iterator[Command]:
    for found in table.values():
        if isinstance(found, Command):
            yield found
        else:
            yield from found.values()


@pytest.fixture(scope="module")
def options() -> set[str]:
    """Return the options of every command, of the benchmarks, the demo and the scripts."""
    files = [
        *(ROOT / "benchmarks").glob("*.py"),
        *(ROOT / "demo").glob("*.py"),
        *(p for p in (ROOT / "scripts").iterdir() if p.is_file()),
        ROOT / "clue_ros" / "nodes" / "executables.py",
    ]
    text = "\n".join(path.read_text("utf-8") for path in files)
    known = set(re.findall(r"--[a-z][\w-]*", text))
    # A field of a dataclass of options: `per_image: int = option(...` is --per-image.
    fields = re.findall(r"^    (\w+): [^=\n]+ = (?:option|required)\(", text, re.MULTILINE)
    known |= {f"--{field.replace('_', '-')}" for field in fields}
    for command in leaves(COMMANDS):
        parser = argparse.ArgumentParser()
        importlib.import_module(command.module).add_arguments(parser)
        known |= set(re.findall(r"--[a-z][\w-]*", parser.format_help()))
    return known | FOREIGN


@each
def test_every_option_exists(page: Path, options: set[str]) -> None:
    codes = re.findall(r"`([^`\n]+)`", without_code(page.read_text(encoding="utf-8")))
    for option in re.findall(r"(?<![\w-])--[a-z][\w-]+", "\n".join(codes)):
        assert option in options, f"{name(page)} names {option}"


@each
def test_every_parameter_and_launch_argument_exists(page: Path) -> None:
    text = re.sub(r"\\\n\s*", " ", page.read_text(encoding="utf-8"))
    # Without the lines that start programs of others, such as a camera's driver.
    text = re.sub(r"^ +ros2 (launch|run) (?!clue_ros).*$", "", text, flags=re.MULTILINE)
    for parameter in re.findall(r"-p (\w+):=", text):
        assert parameter in PARAMETERS, f"{name(page)} sets {parameter}"
    launch = (ROOT / "launch" / "clue.launch.py").read_text(encoding="utf-8")
    arguments = set(re.findall(r'^    \(\s*"(\w+)",', launch, re.MULTILINE))
    for line in text.splitlines():
        given = re.findall(r"(?<!-p )\b(\w+):=", line)
        assert set(given) <= arguments | PARAMETERS, f"{name(page)}: {line}"
        if "clue.launch.py" in line:
            assert set(given) <= arguments, f"{name(page)}: {line}"
    if page.parent.name == "docs" and page.name != "photographs.md":
        for parameter in re.findall(r"`([a-z_]+): [^`{}/]+`", without_code(text)):
            assert parameter in PARAMETERS, f"{name(page)} names {parameter}"


def test_the_changelog_names_new_modules_that_exist() -> None:
    text = (ROOT / "CHANGELOG.rst").read_text(encoding="utf-8")
    moved = re.findall(r"``[\w./{},* ]+`` -> ``([\w./]+)``", text)
    assert moved
    for module in moved:
        assert source(module.split(".")) is not None or (ROOT / module).exists(), module


def diagrams() -> list[str]:
    pages = [
        (ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("ros.md", "dialogues.md")
    ]
    return re.findall(r"^```mermaid\n(.*?)^```", "\n".join(pages), re.MULTILINE | re.DOTALL)


def test_the_diagrams_have_the_topics_of_the_nodes() -> None:
    pytest.importorskip("rclpy")
    from clue_ros.nodes import topics

    def names(node: str, *directions: str) -> set[str]:
        return {i.name for i in topics.interfaces(node) if i.direction in directions}

    graph, sequence = diagrams()
    solid = re.findall(r'(\w+)(?:\(\["[^"]*"\]\))? -- "?([^"\n]+?)"? --> (\w+)', graph)
    dotted = re.findall(r'(\w+) -\. "?([^"\n]+?)"? \.-> (\w+)', graph)
    messages = re.findall(r"(\w+)->>(\w+): ([^\"\n]+)$", sequence, re.MULTILINE)
    arrows = [*solid, *((source, label, target) for source, target, label in messages)]
    assert len(arrows) >= 15
    for source_node, label, target in arrows:
        carried = set(label.split(", "))
        if source_node in topics.NODES:
            assert carried <= names(source_node, "out"), (source_node, label)
        if target in topics.NODES:
            assert carried <= names(target, "in"), (target, label)
        assert {source_node, target} & set(topics.NODES)
    assert {node for a, _, b in solid for node in (a, b)} >= set(topics.NODES) - {"image_source"}
    for _, label, target in dotted:
        assert set(label.split(", ")) <= names(target, "service", "action"), label
