"""`clue data objects`: the scanned objects of folders, with kinds, sizes, colours and licences.

clue data objects data/objects                             YCB, Google Scanned Objects, own folders
clue data objects /usr/share/sweethome3d/furniture --json  Sweet Home 3D's catalogues, one JSON list
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clue_ros.errors import ClueError, ClueWarning
from clue_ros.lab.report import table
from clue_ros.lab.simulator.scanned_objects import ScannedObject, find_objects, load_object

HEAVY = 20_000
"""Triangles above which a mesh is marked: it slows every picture down."""


@dataclass(frozen=True)
class ListedObject:
    """An object that could be read. size: metres. faces: triangles."""

    found: ScannedObject
    size: tuple[float, float, float]
    faces: int

    def record(self) -> dict[str, Any]:
        """The object as JSON: size in metres."""
        o = self.found
        return {
            "name": o.name, "source": o.source, "kind": o.kind, "names": list(o.names),
            "colors": list(o.colors), "material": o.material, "parts": list(o.parts),
            "size": [round(side, 4) for side in self.size], "faces": self.faces,
            "license": o.license, "author": o.author, "model": str(o.model), "member": o.member,
        }  # fmt: skip


def list_objects(folders: Sequence[Path]) -> tuple[list[ListedObject], list[str]]:
    """Read every object of these folders; and a line for each file that cannot be used."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ClueWarning)
        found = find_objects(folders)
    broken = [str(w.message) for w in caught if issubclass(w.category, ClueWarning)]
    listed = []
    for o in found:
        try:
            mesh = load_object(o)
        except ClueError as error:
            broken.append(str(error))
            continue
        listed.append(ListedObject(o, mesh.size, len(mesh.faces)))
    return listed, broken


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `clue data objects`."""
    parser.add_argument(
        "folders", metavar="DIR", nargs="+", type=Path, help="folder of objects, or .sh3f file"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def run(args: argparse.Namespace) -> int:
    """List the objects; the exit status. ClueError for a folder that does not exist."""
    listed, broken = list_objects(args.folders)
    if args.json:
        records = [one.record() for one in listed]
        print(json.dumps({"objects": records, "broken": broken}, indent=1))
        return 0
    rows = [
        (
            one.found.name,
            one.found.kind or "(clutter)",
            " x ".join(f"{100 * side:.1f}" for side in one.size),
            ", ".join(one.found.colors),
            one.faces,
            one.found.license[:32],
        )
        for one in listed
    ]
    print(table(("object", "kind", "size (cm)", "colours", "triangles", "licence"), rows))
    kinds = Counter(one.found.kind for one in listed if one.found.kind)
    heavy = sum(one.faces > HEAVY for one in listed)
    print(f"\n{len(listed)} objects of {len(kinds)} kinds; {heavy} with over {HEAVY} triangles")
    for line in broken:
        print(f"cannot be used: {line}")
    return 0
