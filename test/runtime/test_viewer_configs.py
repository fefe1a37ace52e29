"""The RViz configuration, the Foxglove layout and the CI matrix: they parse, and name what is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


def topics() -> set[str]:
    """Return perception's topics as docs/ros.md has them, which a test compares with the node."""
    rows = re.findall(r"^\| (?:in|out) \| (.+?) \|", (ROOT / "docs" / "ros.md").read_text(), re.M)
    names = {name for row in rows for name in re.findall("`(.+?)`", row)}
    return {f"/{name}".replace("/~", "/perception").replace("//", "/") for name in names}


SHOWN = {"/image", "/perception/debug_image", "/perception/attention_map"}


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
