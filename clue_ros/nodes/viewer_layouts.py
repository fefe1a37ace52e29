# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The layouts of RViz and Foxglove in config/, filled in with the topics of a launch.

The files in config/ name the topics of perception without arguments. The launch file opens copies
that name those of its arguments.
"""

from __future__ import annotations

import atexit
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

FRAME = "camera_color_optical_frame"  # the fixed frame of the files in config/
LAYOUTS = {"rviz": "rviz/clue.rviz", "foxglove": "foxglove/clue.json"}
NODE = "/perception"
RENAMED = ("image", "depth", "speech", "say")  # topics that have a launch argument
OTHERS = ("question", "grounding")


def full_name(name: str, namespace: str) -> str:
    """Return a topic's full name, as a node `perception` in the namespace resolves it."""
    inside = "/" + namespace.strip("/") if namespace.strip("/") else ""
    if name.startswith("/"):
        return name
    return f"{inside}{NODE}{name[1:]}" if name.startswith("~") else f"{inside}/{name}"


def fill_in(text: str, arguments: Mapping[str, str]) -> str:
    """Return a layout's text with the topics and the frame of the launch arguments.

    arguments: `namespace`, `image_transport`, `frame`, and the topics in RENAMED.
    """
    namespace = arguments["namespace"]
    names = {f"/{name}": full_name(arguments[name], namespace) for name in RENAMED}
    names |= {f"/{name}": full_name(name, namespace) for name in OTHERS}
    if arguments["image_transport"] == "compressed":
        names["/image"] += "/compressed"

    def renamed(match: re.Match[str]) -> str:
        name = match[0]
        if name.startswith(f"{NODE}/"):
            return full_name(f"~{name.removeprefix(NODE)}", namespace)
        return names.get(name, name)

    # A whole topic: a slash behind no letter, so that types such as std_msgs/msg/String stay.
    text = re.sub(r"(?<![\w.:/])/[A-Za-z_][\w/]*", renamed, text)
    return text.replace(FRAME, arguments["frame"])


def write_layouts(config: str | Path, arguments: Mapping[str, str]) -> dict[str, str]:
    """Write both layouts for the launch arguments and return their paths, by LAYOUTS.

    They lie in a temporary folder that is removed when this process ends.
    """
    folder = Path(tempfile.mkdtemp(prefix="clue_ros_layouts_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    paths = {}
    for viewer, file in LAYOUTS.items():
        path = folder / Path(file).name
        text = (Path(config) / file).read_text(encoding="utf-8")
        path.write_text(fill_in(text, arguments), encoding="utf-8")
        paths[viewer] = str(path)
    return paths
