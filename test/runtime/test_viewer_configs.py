"""The RViz configuration, the Foxglove layout and the CI matrix: they parse, and name what is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

from clue_ros.nodes.viewer_layouts import (
    FRAME,
    LAYOUTS,
    RENAMED,
    fill_in,
    full_name,
    write_layouts,
)

ROOT = Path(__file__).parents[2]


def topics() -> set[str]:
    """Return perception's topics as docs/ros.md has them, which a test compares with the node."""
    rows = re.findall(r"^\| (?:in|out) \| (.+?) \|", (ROOT / "docs" / "ros.md").read_text(), re.M)
    names = {name for row in rows for name in re.findall("`(.+?)`", row)}
    return {f"/{name}".replace("/~", "/perception").replace("//", "/") for name in names}


SHOWN = {"/image", "/perception/debug_image", "/perception/attention_map", "/perception/markers"}


def test_rviz_shows_camera_box_and_map() -> None:
    data = yaml.safe_load((ROOT / "config" / "rviz" / "clue.rviz").read_text())
    displays = data["Visualization Manager"]["Displays"]
    assert {display["Topic"]["Value"] for display in displays} == SHOWN
    assert topics() >= SHOWN


def test_foxglove_shows_camera_box_map_and_dialogue() -> None:
    data: dict[str, Any] = json.loads((ROOT / "config" / "foxglove" / "clue.json").read_text())
    panels = data["configById"]
    placed = set(re.findall(r'"(?:first|second)": "(.+?)"', json.dumps(data["layout"])))
    assert placed == set(panels)
    text = json.dumps(panels)
    named = {name.split(".")[0] for name in re.findall(r'"(/[a-z_/.]+)"', text)}
    assert named - {"/rosout"} <= topics()
    assert {*SHOWN, "/question", "/grounding", "/rosout", "/speech"} <= named


ARGUMENTS = {"namespace": "", "image_transport": "", "frame": FRAME} | {n: n for n in RENAMED}


def shown(**given: str) -> tuple[set[str], set[str]]:
    """Return the topics of RViz and of Foxglove with these launch arguments."""
    paths = write_layouts(ROOT / "config", ARGUMENTS | given)
    displays = yaml.safe_load(Path(paths["rviz"]).read_text())["Visualization Manager"]["Displays"]
    panels = json.loads(Path(paths["foxglove"]).read_text())["configById"]
    named = re.findall(r'"(/[a-z_/.]+)"', json.dumps(panels))
    return {d["Topic"]["Value"] for d in displays}, {name.split(".")[0] for name in named}


def test_without_arguments_a_layout_stays_as_it_is() -> None:
    for file in LAYOUTS.values():
        text = (ROOT / "config" / file).read_text()
        assert fill_in(text, ARGUMENTS) == text


def test_layouts_follow_the_launch_arguments() -> None:
    rviz, foxglove = shown(
        namespace="arm", image="/eye/image_raw", speech="heard", image_transport="raw"
    )
    own = {"debug_image", "attention_map", "markers"}
    assert rviz == {"/eye/image_raw", *(f"/arm/perception/{name}" for name in own)}
    assert foxglove >= rviz | {"/arm/question", "/arm/grounding", "/arm/heard"}
    assert foxglove - rviz == {
        "/arm/perception/annotations",
        "/arm/question",
        "/arm/grounding",
        "/arm/heard",
    } | {
        "/rosout",
        "/diagnostics",
    }


def test_layouts_follow_a_relative_name_a_compressed_image_and_a_frame() -> None:
    text = (ROOT / "config" / LAYOUTS["rviz"]).read_text()
    changed = {"namespace": "/robot/arm/", "image": "eye/image_raw", "frame": "wrist_eye"}
    filled = fill_in(text, ARGUMENTS | changed | {"image_transport": "compressed"})
    data = yaml.safe_load(filled)["Visualization Manager"]
    assert data["Global Options"]["Fixed Frame"] == "wrist_eye"
    assert data["Displays"][0]["Topic"]["Value"] == "/robot/arm/eye/image_raw/compressed"
    assert data["Displays"][0]["Class"] == "rviz_default_plugins/Image"
    assert full_name("~/depth", "arm") == "/arm/perception/depth"


def test_ci_runs_every_supported_distribution() -> None:
    data = yaml.safe_load((ROOT / ".github" / "workflows" / "ros.yml").read_text())
    distribution = data["jobs"]["distribution"]
    readme = (ROOT / "README.md").read_text()
    supported = re.search(r"\(([A-Z][a-z]+(?:, [A-Z][a-z]+)+)\) is sourced", readme)
    assert supported is not None
    wanted = [name.lower() for name in supported[1].split(", ")]
    assert distribution["strategy"]["matrix"]["distro"] == wanted
    commands = [step.get("run", "") for step in distribution["steps"]]
    assert any(".ci/run" in command for command in commands)
