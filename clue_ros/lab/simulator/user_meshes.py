"""The user's own meshes as kinds of a falling world: a folder of mesh files, such as YCB's."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import trimesh

from clue_ros.errors import ClueError
from clue_ros.lab.simulator.meshes import Builder, Mesh, Shape, shape
from clue_ros.lab.simulator.spec import ObjectKind, WorldSpec, pick

SUFFIXES = (".obj", ".stl", ".ply", ".off")
MOST_FILES, MOST_BYTES, MOST_FACES = 400, 30_000_000, 20_000
SIDES = (0.02, 0.35)  # metres, range of the longest side
UNITS = (1.0, 0.01, 0.001)  # metres, centimetres, millimetres
DEPTH = 4  # folders


@dataclass(frozen=True)
class UserMeshes:
    """shapes: of each kind. digest: of the geometry. problems: one line for each file left out."""

    shapes: Mapping[str, tuple[Shape, ...]]
    digest: str
    problems: tuple[str, ...]


def read_meshes(folder: Path) -> UserMeshes:
    """Read every mesh of a folder. ClueError if there is no such folder or no usable mesh."""
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
    shapes: dict[str, tuple[Shape, ...]] = {}
    sha = hashlib.sha256()
    for path in files:
        try:
            if root not in path.resolve().parents:
                raise ValueError("it leads out of the folder")
            kind = kind_name(path.relative_to(folder).parts[0])
            made = shape(upright(read_mesh(path)))
        except (OSError, ValueError) as error:
            problems.append(f"{path}: left out, {error}")
            continue
        shapes[kind] = (*shapes.get(kind, ()), made)
        sha.update(kind.encode() + made.points.tobytes())
    if not shapes:
        first = f", the first: {problems[0]}" if problems else f" ({', '.join(SUFFIXES)})"
        raise ClueError(f"{folder}: no mesh that can be used{first}")
    return UserMeshes(shapes, sha.hexdigest()[:16], tuple(problems))


def kind_name(name: str) -> str:
    """The kind that a file or folder is named after: "025_mug" -> "mug". ValueError if none."""
    words = re.findall(r"[a-z]+", re.sub(r"\.(obj|stl|ply|off)$", "", name.lower()))
    if not words:
        raise ValueError(f"no word in its name {name!r} to call it by")
    return " ".join(words)


def read_mesh(path: Path) -> Mesh:
    """Read an OBJ, STL, PLY or OFF file. ValueError says why it cannot be used."""
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"{size / 1e6:.0f} MB, at most {MOST_BYTES // 1_000_000} MB")
    (read,) = parse_mesh(path.read_bytes(), path.suffix)
    read.merge_vertices(merge_tex=True, merge_norm=True)
    return Mesh(np.asarray(read.vertices, np.float64), np.asarray(read.faces, np.int64))


def parse_mesh(
    data: bytes,
    suffix: str,
    resolver: trimesh.resolvers.Resolver | None = None,
    most_faces: int = MOST_FACES,
) -> list[trimesh.Trimesh]:
    """The meshes of a file's content: one, or with a resolver of its materials one a material.

    suffix: ".obj", ... ValueError says why the content cannot be used.
    """
    suffix = suffix.lower()
    try:
        file = io.BytesIO(data)
        if resolver is None:
            meshes = [trimesh.load_mesh(file, suffix[1:], process=False)]
        else:
            scene = trimesh.load_scene(file, suffix[1:], resolver=resolver, process=False)
            meshes = [m for m in scene.geometry.values() if isinstance(m, trimesh.Trimesh)]
        sizes = [len(np.asarray(mesh.faces)) for mesh in meshes]
    except Exception as error:
        raise ValueError(f"no whole {suffix} file ({type(error).__name__}: {error})") from error
    if not 4 <= sum(sizes) <= most_faces:
        raise ValueError(f"{sum(sizes)} triangles, want 4 to {most_faces}: make it coarser")
    for mesh in meshes:
        if len(mesh.faces) and not 0 <= mesh.faces.min() <= mesh.faces.max() < len(mesh.vertices):
            raise ValueError("a face names a vertex that is not there")
        if not np.isfinite(mesh.vertices).all():
            raise ValueError("a coordinate is no finite number")
    return meshes


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


def with_meshes(spec: WorldSpec, own: UserMeshes) -> WorldSpec:
    """The world with these meshes added. ClueError for a world whose objects do not fall."""
    if spec.settling is None:
        raise ClueError(f"the world {spec.name!r} takes no meshes; --world rich does")
    objects = dict(spec.objects)
    for kind, shapes in own.shapes.items():
        known = objects.get(kind)
        build = _builder(shapes, known.build if known else None)
        objects[kind] = replace(known, build=build) if known else ObjectKind(build)
    nouns = {kind: (kind,) for kind in objects} | dict(spec.nouns)
    return replace(spec, nouns=nouns, objects=objects)


def _builder(shapes: tuple[Shape, ...], other: Builder | None) -> Builder:
    """A builder of one of the shapes, or half of the time by another builder."""

    def build(rng: np.random.Generator) -> Shape:
        if other is not None and rng.uniform() < 0.5:
            return other(rng)
        return pick(rng, shapes)

    return build
