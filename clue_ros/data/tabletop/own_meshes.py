"""The user's own meshes as wares of a settled world: a folder of mesh files, such as YCB.

    meshes/025_mug/google_16k/nontextured.stl      -> a mug more, beside those made by code
    meshes/cracker_box.obj                         -> a new kind, the "cracker box"

The name is that of the file, or of the first folder below, without numbers. trimesh reads the file;
it is handed the bytes alone, so that no material or other file that is named there is opened, and
only vertices and faces are kept. A file that is too large, broken, or leads out of the folder is
left out and named.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import trimesh

from clue_ros.data.tabletop.household import Ware
from clue_ros.data.tabletop.meshes import Builder, Mesh, Part, Shape, shape
from clue_ros.data.tabletop.pantry import FINISHES, Pantry
from clue_ros.data.tabletop.spec import WorldSpec
from clue_ros.errors import ClueError

SUFFIXES = (".obj", ".stl", ".ply", ".off")
MOST_FILES, MOST_BYTES, MOST_FACES = 400, 30_000_000, 20_000
SIDES = (0.02, 0.35)  # metres, of the longest side
UNITS = (1.0, 0.01, 0.001)  # metres, centimetres, millimetres
DEPTH = 4  # folders


@dataclass(frozen=True)
class OwnMeshes:
    """shapes: of each kind. digest: of all the geometry. problems: a line for each left out."""

    shapes: Mapping[str, tuple[Shape, ...]]
    digest: str
    problems: tuple[str, ...]


def read_meshes(folder: Path) -> OwnMeshes:
    """Every mesh of a folder. ClueError when it is none or no mesh in it can be used."""
    if not folder.is_dir():
        raise ClueError(f"{folder}: no folder of meshes")
    root = folder.resolve()
    files = [
        p
        for p in sorted(folder.rglob("*"))
        if p.suffix.lower() in SUFFIXES and len(p.relative_to(folder).parts) <= DEPTH
    ]
    if len(files) > MOST_FILES:
        raise ClueError(f"{folder}: {len(files)} meshes, at most {MOST_FILES} can be used")
    problems: list[str] = []
    shapes: dict[str, list[Shape]] = {}
    sha = hashlib.sha256()
    for path in files:
        try:
            if root not in path.resolve().parents:
                raise ValueError("it leads out of the folder")
            kind = kind_name(path.relative_to(folder).parts[0])
            made = shape(Part(upright(read_mesh(path))))
        except (OSError, ValueError) as error:
            problems.append(f"{path}: left out, {error}")
            continue
        shapes.setdefault(kind, []).append(made)
        sha.update(kind.encode() + made.parts[0].mesh.vertices.tobytes())
    if not shapes:
        first = f", the first: {problems[0]}" if problems else f" ({', '.join(SUFFIXES)})"
        raise ClueError(f"{folder}: no mesh that can be used{first}")
    kept = {kind: tuple(found) for kind, found in shapes.items()}
    return OwnMeshes(kept, sha.hexdigest()[:16], tuple(problems))


def kind_name(name: str) -> str:
    """What a file or folder is called by: "025_mug" -> "mug". ValueError without a letter."""
    words = re.findall(r"[a-z]+", re.sub(r"\.(obj|stl|ply|off)$", "", name.lower()))
    if not words:
        raise ValueError(f"no word in its name {name!r} to call it by")
    return " ".join(words)


def read_mesh(path: Path) -> Mesh:
    """Vertices and faces of an OBJ, STL, PLY or OFF file. ValueError says what is wrong with it."""
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"{size / 1e6:.0f} MB, at most {MOST_BYTES // 1_000_000} MB")
    suffix = path.suffix.lower()
    try:
        read = trimesh.load_mesh(io.BytesIO(path.read_bytes()), suffix[1:], process=False)
        faces = np.asarray(read.faces)
    except Exception as error:
        raise ValueError(f"no whole {suffix} file ({type(error).__name__}: {error})") from error
    if not 4 <= len(faces) <= MOST_FACES:
        raise ValueError(f"{len(faces)} triangles, want 4 to {MOST_FACES}: make it coarser")
    if faces.min() < 0 or faces.max() >= len(read.vertices):
        raise ValueError("a face names a vertex that is not there")
    if not np.isfinite(read.vertices).all():
        raise ValueError("a coordinate is no finite number")
    read.merge_vertices(merge_tex=True, merge_norm=True)
    vertices, faces = np.asarray(read.vertices, np.float64), np.asarray(read.faces, np.int64)
    return Mesh(vertices, faces)


def upright(mesh: Mesh) -> Mesh:
    """The mesh in metres, on z = 0, centred about the z axis. ValueError for an odd size."""
    low, high = mesh.vertices.min(axis=0), mesh.vertices.max(axis=0)
    longest = float((high - low).max())
    unit = next((u for u in UNITS if SIDES[0] <= longest * u <= SIDES[1]), None)
    if unit is None:
        raise ValueError(
            f"its longest side is {longest:.4g}, want {SIDES[0]} to {SIDES[1]} m (or in mm, cm)"
        )
    if float((high - low).min()) * unit < 1e-4:
        raise ValueError("it is flat")
    away = np.array([*(low + high)[:2] / 2, low[2]])
    return Mesh((mesh.vertices - away) * unit, mesh.faces)


def with_meshes(spec: WorldSpec, own: OwnMeshes) -> WorldSpec:
    """The world with these kinds besides its own. ValueError where nothing can fall in it."""
    settling = spec.settling
    if settling is None:
        raise ValueError(f"the world {spec.name!r} takes no meshes; --world rich does")
    stock = spec.stock()
    assert isinstance(stock, Pantry)
    wares = dict(stock.wares)
    for kind, shapes in own.shapes.items():
        there = wares.get(kind)
        if there is None:
            wares[kind] = Ware(_one_of(shapes), None, FINISHES)
        else:
            wares[kind] = replace(there, build=_either(there.build, _one_of(shapes)))
    nouns = {**spec.nouns, **{kind: (kind,) for kind in own.shapes if kind not in spec.nouns}}
    colors = spec.colors
    return replace(spec, nouns=nouns, stock=lambda: Pantry(wares, colors, settling))


def _one_of(shapes: tuple[Shape, ...]) -> Builder:
    return lambda rng: shapes[int(rng.integers(len(shapes)))]


def _either(first: Builder, second: Builder) -> Builder:
    return lambda rng: (first if rng.uniform() < 0.5 else second)(rng)
