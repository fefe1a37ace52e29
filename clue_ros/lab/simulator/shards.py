"""Scenes on disk: numbered .npz shards (plain arrays, JPEG pictures) that can be rendered again.

A shard's content follows from (world, split, seed, index) alone. A finished shard is renamed into
place and kept, so that an interrupted run continues where it stopped. Each shard carries the
SHA-256 of its arrays, checked when it is read.

A shard is named `WORLD-SPLIT-SEED-INDEX.npz` and holds the names of its world, kinds and colours:
worlds can share a folder, and a renamed file is detected. A shard of the world `table` also holds
each object's other names, colours, material and parts, the digest of its assets, and the renderer
that drew it. A shard of another width than its world's holds that width.
"""

from __future__ import annotations

import hashlib
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.simulator.spec import WorldSpec
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS, world_spec
from clue_ros.model.loading import replacing

SHARES = {"train": 0.70, "val": 0.15, "test": 0.15}  # of a data set (section IV-A)
SPLITS: tuple[str, ...] = tuple(SHARES)
FIRST_RENDERER = "filament"  # of the world `table`
JPEG_QUALITY = 95
Arrays = dict[str, npt.NDArray[Any]]
_LIST = "\x1f"  # between the words of a list (ASCII's unit separator)

# The exceptions of zipfile, zlib and numpy for a truncated or overwritten file.
_DAMAGE = (
    ValueError,
    KeyError,
    EOFError,
    NotImplementedError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def shard_seed(split: str, seed: int, index: int, world: str = DEFAULT_WORLD) -> int:
    """The generator seed of one shard; different for every world, split, seed and index."""
    text = f"{world}-{split}/{seed}/{index}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")


def shard_path(folder: Path, split: str, seed: int, index: int, world: str = DEFAULT_WORLD) -> Path:
    """The file of one shard."""
    return folder / f"{world}-{split}-{seed}-{index:04d}.npz"


def list_shards(folder: Path, split: str, world: str = DEFAULT_WORLD) -> list[Path]:
    """The finished shards of a world's split, in order."""
    return sorted(folder.glob(f"{world}-{split}-*.npz"))


# -------------------------------------------------------------------------------------------------
# Scenes as arrays.


def _encode(suffix: str, images: Iterable[npt.NDArray[np.uint8]]) -> tuple[Any, Any]:
    """The images as one stream of bytes, uint8, and the number of bytes of each, int64."""
    options = [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY] if suffix == ".jpg" else []
    files = []
    for image in images:
        done, file = cv2.imencode(suffix, image, options)
        if not done:
            raise ValueError(f"OpenCV could not encode a scene as {suffix}")
        files.append(np.asarray(file, dtype=np.uint8).reshape(-1))
    sizes = np.array([len(file) for file in files], dtype=np.int64)
    return np.concatenate([*files, np.zeros(0, np.uint8)]), sizes


def _decode(data: Any, sizes: Any, flag: int) -> Iterator[npt.NDArray[np.uint8]]:
    """The images of `_encode`, decoded by threads. ValueError for one that is damaged."""
    files = [data[end - size : end] for end, size in zip(np.cumsum(sizes), sizes, strict=True)]
    with ThreadPoolExecutor() as threads:
        for i, image in enumerate(threads.map(lambda file: cv2.imdecode(file, flag), files)):
            if image is None:
                raise ValueError(f"image {i} of the shard cannot be decoded")
            yield np.asarray(image, dtype=np.uint8)


def _pack(
    scenes: list[Scene],
    world: str,
    spec: WorldSpec,
    meshes: str,
    renderer: str,
    width: int | None,
) -> Arrays:
    """Scenes as flat arrays; `write_shard` describes the arguments."""
    objects = [o for scene in scenes for o in scene.objects]
    kinds = list(spec.kinds)
    # Scanned objects have colours of their own, "silver".
    colors = [*spec.colors, *sorted({o.color for o in objects} - set(spec.colors))]
    names = {"world": world, "kind_names": kinds, "color_names": colors}
    arrays: Arrays = {name: np.array(value) for name, value in names.items()}
    if any(o.names or o.colors or o.material or o.parts for o in objects):
        arrays["names"] = np.array([_LIST.join(o.names) for o in objects])
        arrays["all_colors"] = np.array([_LIST.join(o.colors) for o in objects])
        arrays["materials"] = np.array([o.material for o in objects])
        arrays["parts"] = np.array([_LIST.join(o.parts) for o in objects])
    if spec.settling is not None or spec.assets is not None:
        arrays["extents"] = np.array([o.extent for o in objects], dtype=np.float32)
        arrays["visible"] = np.array([o.visible for o in objects], dtype=np.float32)
        masks = [scene.masks for scene in scenes if scene.masks is not None]
        arrays["masks"], arrays["mask_sizes"] = _encode(".png", masks)
        if meshes:
            arrays["meshes"] = np.array(meshes)
    if renderer:
        arrays["renderer"] = np.array(renderer)
    if width is not None:
        arrays["width"] = np.array(width)
    bgr = (scene.image[..., ::-1] for scene in scenes)
    arrays["jpeg"], arrays["jpeg_sizes"] = _encode(".jpg", bgr)
    return arrays | {
        "counts": np.array([len(s.objects) for s in scenes], dtype=np.int64),
        "kinds": np.array(
            [kinds.index(o.kind) for o in objects],
            dtype=np.uint8 if len(kinds) < 256 else np.uint16,
        ),
        "colors": np.array([colors.index(o.color) for o in objects], dtype=np.uint8),
        "boxes": np.array([o.box for o in objects], dtype=np.float32).reshape(-1, 4),
        "instances": np.stack([s.instances for s in scenes]),
    }


def _listed(words: str) -> tuple[str, ...]:
    return tuple(words.split(_LIST)) if words else ()


def _unpack(arrays: Arrays) -> Iterator[Scene]:
    """The scenes of `_pack`. ValueError when an image cannot be decoded."""
    kinds = [str(v) for v in arrays["kind_names"]]
    colors = [str(v) for v in arrays["color_names"]]
    total = len(arrays["boxes"])
    extents, visible = arrays.get("extents", np.zeros(total)), arrays.get("visible", np.ones(total))
    words = [arrays.get(name) for name in ("names", "all_colors", "materials", "parts")]
    objects = []
    for k in range(total):
        x0, y0, x1, y1 = (float(v) for v in arrays["boxes"][k])
        kind, color = kinds[int(arrays["kinds"][k])], colors[int(arrays["colors"][k])]
        extent, share = round(float(extents[k]), 4), round(float(visible[k]), 3)
        names, all_colors, material, parts = ("" if w is None else str(w[k]) for w in words)
        objects.append(
            SceneObject(
                kind,
                color,
                (x0, y0, x1, y1),
                extent,
                share,
                _listed(names),
                _listed(all_colors),
                material,
                _listed(parts),
            )
        )
    images = _decode(arrays["jpeg"], arrays["jpeg_sizes"], cv2.IMREAD_COLOR)
    masks: Iterable[Any] = repeat(None)
    if len(arrays.get("mask_sizes", ())) == len(arrays["counts"]):
        masks = _decode(arrays["masks"], arrays["mask_sizes"], cv2.IMREAD_GRAYSCALE)
    ends = np.cumsum(arrays["counts"])
    starts = ends - arrays["counts"]
    rows = zip(images, starts, ends, arrays["instances"], masks, strict=False)
    for image, start, end, instances, mask in rows:
        rgb = np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), dtype=np.uint8)
        yield Scene(rgb, tuple(objects[start:end]), instances, mask)


def _digest(arrays: Arrays) -> npt.NDArray[np.uint8]:
    sha = hashlib.sha256()
    for name in sorted(arrays):
        sha.update(name.encode())
        sha.update(np.ascontiguousarray(arrays[name]).tobytes())
    return np.frombuffer(sha.digest(), dtype=np.uint8)


# -------------------------------------------------------------------------------------------------
# Writing and reading.


def write_shard(
    path: Path,
    scenes: list[Scene],
    world: str = DEFAULT_WORLD,
    *,
    spec: WorldSpec | None = None,
    meshes: str = "",
    renderer: str = "",
    width: int | None = None,
) -> None:
    """Write a shard atomically: a reader sees the whole file or none.

    spec: the world with the user's own kinds; meshes: the digest of the user's meshes; renderer: of
    a world that has several; width: pixels of the widest picture, if it is not the world's own.
    """
    arrays = _pack(scenes, world, spec or world_spec(world), meshes, renderer, width)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, open(partial, "wb") as file:
        content: Any = {"sha256": _digest(arrays), **arrays}
        np.savez(file, **content)


def read_shard(path: Path, world: str | None = None) -> Iterator[Scene]:
    """Read the scenes of a shard of this world, or of any.

    ValueError with the file and the remedy when its content was changed, or when it belongs to
    another world.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: Arrays = {name: file[name] for name in file.files if name != "sha256"}
            expected = file["sha256"]
    except _DAMAGE as error:
        raise ValueError(
            f"{path}: not a whole shard ({type(error).__name__}); delete it and make it again"
        ) from error
    if not np.array_equal(_digest(arrays), expected):
        raise ValueError(f"{path}: checksum does not match; delete it and make it again")
    found = str(arrays.get("world", ""))
    if world not in (None, found):
        raise ValueError(
            f"{path}: holds scenes of the world {found!r}, not {world!r}, whatever its name says;"
            " delete it and make it again"
        )
    yield from _unpack(arrays)


def read_scenes(
    folder: Path, split: str, limit: int | None = None, world: str = DEFAULT_WORLD
) -> Iterator[Scene]:
    """Read all scenes of a world's split, at most `limit`.

    FileNotFoundError with the command that renders them, ValueError for a damaged shard, and where
    several renderers drew the split.
    """
    paths = list_shards(folder, split, world)
    if not paths:
        raise FileNotFoundError(how_to_make(folder, split, 1000, world))
    renderers = {renderer_of(path): path for path in paths}
    if len(renderers) > 1:
        found = ", ".join(f"{path.name} by {name}" for name, path in renderers.items())
        raise ValueError(f"{folder}: several renderers drew these scenes ({found}); keep one's")
    yield from islice(chain.from_iterable(read_shard(path, world) for path in paths), limit)


def how_to_make(folder: Path, split: str, scenes: int, world: str = DEFAULT_WORLD) -> str:
    """The error message for a world's split that has no shards."""
    option = "" if world == DEFAULT_WORLD else f" --world {world}"
    which = "" if world == DEFAULT_WORLD else f" of the world {world!r}"
    return (
        f"no {split} scenes{which} in {folder}: make them with"
        f" `clue data tabletop{option} --out {folder} --split {split} --scenes {scenes}`"
    )


def _read_array(path: Path, name: str) -> npt.NDArray[Any] | None:
    """One array of a shard, unchecked; None when it has none of that name or is damaged."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return np.asarray(file[name]) if name in file.files else None
    except _DAMAGE:
        return None


def kinds_in(folder: Path, split: str, world: str = DEFAULT_WORLD) -> tuple[str, ...]:
    """The kinds that a world's shards can hold: the world's own, then those of user meshes."""
    for path in list_shards(folder, split, world)[:1]:
        names = _read_array(path, "kind_names")
        if names is not None:
            return tuple(str(kind) for kind in names)
    return world_spec(world).kinds


def meshes_of(path: Path) -> str:
    """The digest of the user's meshes in a shard; "" for none."""
    digest = _read_array(path, "meshes")
    return "" if digest is None else str(digest)


def width_of(path: Path) -> int | None:
    """The width that a shard was drawn in, pixels; None for its world's own."""
    width = _read_array(path, "width")
    return None if width is None else int(width)


def renderer_of(path: Path) -> str:
    """The renderer that drew a shard; "" for a world that has only one.

    A shard of the world `table` that does not name it is from before there were two.
    """
    name = _read_array(path, "renderer")
    if name is not None:
        return str(name)
    world = _read_array(path, "world")
    has_two = world is not None and str(world) in WORLDS and WORLDS[str(world)].assets is not None
    return FIRST_RENDERER if has_two else ""
