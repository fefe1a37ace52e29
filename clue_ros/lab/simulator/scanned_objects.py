"""Scanned and modelled objects with textures: YCB, Google Scanned Objects, .sh3f, own folders.

`find_objects` lists what folders hold, in the layouts that the collections are published in;
`load_object` reads one. `clue data objects` prints the list.
"""

from __future__ import annotations

import posixpath
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import trimesh

from clue_ros.dialogue.object_names import KIND_NAMES
from clue_ros.errors import ClueError, ClueWarning
from clue_ros.lab.simulator.object_catalogue import OBJECTS, Entry
from clue_ros.lab.simulator.textured_meshes import (
    TexturedMesh,
    decode_texture,
    join_materials,
    smooth_normals,
    surface_colors,
    texture_coordinates,
)
from clue_ros.lab.simulator.user_meshes import DEPTH, MOST_BYTES, UNITS, kind_name, parse_mesh

MOST_FACES = 100_000
MOST_OBJECTS = 5_000
SIDES = (0.008, 0.5)  # metres, range of the longest side
CC_BY_4 = "CC BY 4.0"
YCB_AUTHOR = "Calli and others, YCB Object and Model Set"
GSO_AUTHOR = "Google Research, Google Scanned Objects"
CATALOGUE = "PluginFurnitureCatalog.properties"
_COVERED = {name.split("/")[1] for name in OBJECTS if name.startswith("sh3f/")} | {"Reallusion"}
# Published variants of one YCB object, the preferred one first.
YCB_VARIANTS = ("", "google_16k", "google_64k", "google_512k", "poisson", "tsdf")


@dataclass(frozen=True)
class ScannedObject:
    """One object of a collection, before its mesh is read.

    name: unique, "ycb/025_mug". source: "ycb", "gso", "sh3f" or "folder".
    model: its OBJ file, or the .sh3f file that holds it as `member` ("" outside of one).
    texture: the image of its only material; None where the OBJ's own materials hold.
    kind: the noun that people call it by; "" for clutter. names: other nouns for it, hypernyms
    and brands too, without `kind`.
    colors: words, the dominant one first, at most two. material: "ceramic", ...; "" if unknown.
    parts: noun phrases, ("red lid",).
    size: width, depth, height in metres where its catalogue gives them. rotation: 3 x 3 by rows,
    in the OBJ's frame; () for none.
    """

    name: str
    source: str
    model: Path
    texture: Path | None
    member: str
    kind: str
    names: tuple[str, ...]
    colors: tuple[str, ...]
    material: str
    parts: tuple[str, ...]
    license: str
    author: str
    size: tuple[float, float, float] | None = None
    rotation: tuple[float, ...] = ()


# -------------------------------------------------------------------------------------------------
# Finding.


def find_objects(folders: Sequence[Path]) -> list[ScannedObject]:
    """All objects of these folders (or .sh3f files), sorted by name.

    A file that is missing, empty or no OBJ is skipped with a ClueWarning that names it; the
    geometry is read by `load_object` only. ClueError for a folder that does not exist.
    """
    found: dict[str, ScannedObject] = {}
    for folder in folders:
        for made in _objects_in(folder):
            if isinstance(made, str):
                warnings.warn(made, ClueWarning, stacklevel=2)
            elif made.name in found:
                note = f"{made.model}: skipped, {made.name} is also {found[made.name].model}"
                warnings.warn(note, ClueWarning, stacklevel=2)
            else:
                found[made.name] = made
    return [found[name] for name in sorted(found)]


def _objects_in(folder: Path) -> Iterator[ScannedObject | str]:
    """The objects of a folder, and a line for each file that cannot be used."""
    if folder.suffix.lower() == ".sh3f" and folder.is_file():
        yield from _sh3f_objects(folder)
        return
    if not folder.is_dir():
        raise ClueError(f"{folder}: no folder of objects and no .sh3f file")
    root = folder.resolve()
    files = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix.lower() in (".obj", ".sh3f")
        and len(path.relative_to(folder).parts) <= DEPTH + 2
    ]
    if len(files) > MOST_OBJECTS:
        raise ClueError(f"{folder}: {len(files)} models, at most {MOST_OBJECTS} can be used")
    for path in _without_variants(files):
        if root not in path.resolve().parents:
            yield f"{path}: skipped, it leads out of the folder"
        elif path.suffix.lower() == ".sh3f":
            yield from _sh3f_objects(path)
        else:
            try:
                _check_obj(path)
                yield _from_file(path, folder)
            except (OSError, ValueError, ClueError) as error:
                yield f"{path}: skipped, {error}"


def _without_variants(files: list[Path]) -> list[Path]:
    """The files with one variant of each YCB object."""
    best: dict[Path, Path] = {}
    others = []
    for path in files:
        variant = path.parent.name if path.parent.name in YCB_VARIANTS else ""
        if path.name != "textured.obj":
            if not variant:  # nontextured.obj beside textured.obj
                others += [] if path.with_name("textured.obj") in files else [path]
            continue
        owner = path.parent.parent if variant else path.parent
        if owner not in best or YCB_VARIANTS.index(variant) < YCB_VARIANTS.index(
            best[owner].parent.name if best[owner].parent != owner else ""
        ):
            best[owner] = path
    return sorted([*best.values(), *others])


def _check_obj(path: Path) -> None:
    """ValueError when the file cannot be a whole OBJ, without reading its geometry."""
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise ValueError(f"{size / 1e6:.0f} MB, at most {MOST_BYTES // 1_000_000} MB")
    data = b"\n" + path.read_bytes()
    if data.count(b"\nv ") < 4 or data.count(b"\nf ") < 4:
        raise ValueError("no whole OBJ file: it has no surface")


def _from_file(path: Path, folder: Path) -> ScannedObject:
    """The object of an OBJ file."""
    if path.name == "textured.obj":
        owner = path.parent.parent if path.parent.name in YCB_VARIANTS[1:] else path.parent
        texture = path.with_name("texture_map.png")
        return _described("ycb", owner.name, path, texture, CC_BY_4, YCB_AUTHOR)
    if path.name == "model.obj":
        for owner, texture in (
            (path.parent, path.with_name("texture.png")),
            (path.parent.parent, path.parent.parent / "materials/textures/texture.png"),
        ):
            if texture.is_file():
                return _described("gso", owner.name, path, texture, CC_BY_4, GSO_AUTHOR)
    relative = path.relative_to(folder)
    made = ScannedObject(
        f"folder/{relative.with_suffix('').as_posix()}", "folder", path, None, "",
        kind_name(relative.parts[0]), (), (), "", (), "", "",
    )  # fmt: skip
    return replace(made, colors=surface_colors(load_object(made)))


def _described(
    source: str, own: str, model: Path, texture: Path, license: str, author: str
) -> ScannedObject:
    """An object of a collection, as the catalogue describes it. ValueError: no such texture."""
    if not texture.is_file() or not texture.stat().st_size:
        raise ValueError(f"its texture {texture.name} is missing or empty")
    known = OBJECTS.get(f"{source}/{re.sub(r'^[0-9]{3}[-_]', '', own)}", Entry(""))
    return ScannedObject(
        f"{source}/{own}", source, model, texture, "", known.kind, _other_names(known),
        known.colors, known.material, known.parts, license, author,
    )  # fmt: skip


def _other_names(entry: Entry) -> tuple[str, ...]:
    """All nouns for an object but its kind: its own, then its kind's."""
    return tuple(dict.fromkeys([*entry.names, *KIND_NAMES.get(entry.kind, ())]))


# -------------------------------------------------------------------------------------------------
# Sweet Home 3D's catalogues.


def _sh3f_objects(path: Path) -> Iterator[ScannedObject | str]:
    """The small, movable models of a catalogue, and a line for each that cannot be used."""
    try:
        with zipfile.ZipFile(path) as archive:
            listed = _properties(_read_member(archive, CATALOGUE).decode("latin-1"))
            members = set(archive.namelist())
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        yield f"{path}: skipped, no Sweet Home 3D catalogue ({error})"
        return
    for number in sorted({int(key[3:]) for key in listed if re.fullmatch(r"id#\d+", key)}):
        values = {k.partition("#")[0]: v for k, v in listed.items() if k.endswith(f"#{number}")}
        try:
            made = _from_catalogue(path, values, listed.get("license", ""), members)
        except (ValueError, zipfile.BadZipFile) as error:
            yield f"{path}: {values['id']} skipped, {error}"
            continue
        if made is not None:
            yield made


def _from_catalogue(
    path: Path, values: Mapping[str, str], license: str, members: set[str]
) -> ScannedObject | None:
    """One entry; None for furniture and other things that stand on no table.

    A catalogue that `OBJECTS` covers gives only the models in it; another one gives its own names.
    """
    try:
        width, depth, height = (float(values[k]) / 100 for k in ("width", "depth", "height"))
        rotation = tuple(float(v) for v in values.get("modelRotation", "").split())
    except (KeyError, ValueError) as error:
        raise ValueError(f"its size or rotation is no number ({error})") from error
    size = (width, depth, height)
    away = values.get("doorOrWindow") == "true" or values.get("movable") == "false"
    if away or not (SIDES[0] <= max(size) <= SIDES[1] and min(size) > 0):
        return None
    if len(rotation) not in (0, 9):
        raise ValueError("its rotation has not nine numbers")
    member = values.get("model", "").lstrip("/")
    if member not in members or posixpath.normpath(member) != member:
        raise ValueError(f"its model {member!r} is not in the file")
    if not member.lower().endswith(".obj"):
        raise ValueError(f"its model {member!r} is no OBJ")
    own = f"sh3f/{path.stem}/{values['id'].rpartition('#')[2]}"
    known = OBJECTS.get(own)
    if known is None:
        if path.stem in _COVERED:
            return None
        known = Entry(kind_name(values.get("name", "")))
    made = ScannedObject(
        own, "sh3f", path, None, member, known.kind, _other_names(known), known.colors,
        known.material, known.parts, license, values.get("creator", ""), size, rotation,
    )  # fmt: skip
    return made if known.colors else replace(made, colors=surface_colors(_load(made)))


def _properties(text: str) -> dict[str, str]:
    r"""A Java properties file; \uXXXX are characters."""
    lines = re.findall(r"^([\w#]+)\s*=[ \t]*(.*?)\s*$", text, re.MULTILINE)
    return {k: re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), v) for k, v in lines}


def _read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """A member's content. ValueError when it is absent, too large or damaged."""
    try:
        size = archive.getinfo(name).file_size
        if size > MOST_BYTES:
            raise ValueError(f"{name} has {size / 1e6:.0f} MB")
        return archive.read(name)
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{name} cannot be read ({error})") from error


# -------------------------------------------------------------------------------------------------
# Loading.


class _Materials(trimesh.resolvers.Resolver):
    """Gives trimesh the files beside an OBJ, from its folder or its archive, and no other ones."""

    def __init__(self, folder: Path | str, archive: zipfile.ZipFile | None = None) -> None:
        self._folder, self._archive = folder, archive

    def get(self, name: str) -> bytes:
        """A file's content. ValueError when the name leads elsewhere."""
        name = posixpath.normpath(name.strip().replace("\\", "/"))
        if name.startswith(("/", "..")):
            raise ValueError(f"{name!r} leads out of the model's folder")
        if self._archive is not None:
            return _read_member(self._archive, posixpath.join(str(self._folder), name))
        path = (Path(self._folder) / name).resolve()
        if Path(self._folder).resolve() not in path.parents:
            raise ValueError(f"{name!r} leads out of the model's folder")
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"{name!r} is too large")
        return path.read_bytes()

    def keys(self) -> list[str]:
        """Nothing: names come from the files."""
        return []

    def namespaced(self, namespace: str) -> _Materials:
        """Itself: an OBJ has no folders of its own."""
        return self

    def write(self, name: str, data: Any) -> None:
        """Refuse: the collections are read only."""
        raise ValueError("read only")


def load_object(o: ScannedObject) -> TexturedMesh:
    """Read a mesh and its texture. ClueError names a file that cannot be used, and says why."""
    where = f"{o.model}{': ' + o.member if o.member else ''}"
    try:
        return _load(o)
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ClueError(f"{where}: {error}") from error


def _load(o: ScannedObject) -> TexturedMesh:
    if o.member:
        with zipfile.ZipFile(o.model) as archive:
            data = _read_member(archive, o.member)
            files = _Materials(posixpath.dirname(o.member), archive)
            meshes = parse_mesh(data, ".obj", files, MOST_FACES)
            uv, texture, color = join_materials(meshes)
    else:
        _check_obj(o.model)
        data = o.model.read_bytes()
        if o.texture is not None:
            meshes = parse_mesh(data, ".obj", None, MOST_FACES)
            found = texture_coordinates(meshes[0])
            if found is None:
                raise ValueError("it has no texture coordinates")
            uv, color = found, (0.7, 0.7, 0.7)
            texture = decode_texture(o.texture.read_bytes())
        else:
            meshes = parse_mesh(data, ".obj", _Materials(o.model.parent), MOST_FACES)
            uv, texture, color = join_materials(meshes)
    starts = np.cumsum([0, *(len(mesh.vertices) for mesh in meshes)])
    faces = np.concatenate([m.faces + s for m, s in zip(meshes, starts, strict=False)])
    vertices = np.concatenate([np.asarray(mesh.vertices, np.float64) for mesh in meshes])
    vertices = _standing(vertices, o)
    normals = smooth_normals(vertices, faces)
    return TexturedMesh(
        vertices.astype(np.float32), faces.astype(np.int32), uv.astype(np.float32),
        normals.astype(np.float32), texture, color,
    )  # fmt: skip


def _standing(vertices: npt.NDArray[np.float64], o: ScannedObject) -> npt.NDArray[np.float64]:
    """The vertices in metres, z up, on z = 0, centred. ValueError for an absurd size."""
    if o.rotation:
        vertices = vertices @ np.array(o.rotation).reshape(3, 3).T
    if o.member:  # y is up in a catalogue's models
        vertices = np.stack([vertices[:, 0], -vertices[:, 2], vertices[:, 1]], axis=1)
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    sides = high - low
    if o.size is not None:
        scale = np.array(o.size) / np.maximum(sides, 1e-9)
    else:
        units = UNITS if o.source == "folder" else UNITS[:1]
        longest = float(sides.max())
        unit = next((u for u in units if SIDES[0] <= longest * u <= SIDES[1]), None)
        if unit is None:
            raise ValueError(
                f"its longest side is {longest:.4g}, want {SIDES[0]} to {SIDES[1]} m"
                f"{' (or in mm, cm)' if len(units) > 1 else ''}"
            )
        scale = np.full(3, unit)
    if (sides * scale).min() < 1e-4:
        raise ValueError("it is flat")
    return np.asarray((vertices - np.array([*(low + high)[:2] / 2, low[2]])) * scale)
