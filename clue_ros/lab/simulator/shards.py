"""Scenes on disk: numbered .npz shards (plain arrays, JPEG pictures); any process can remake one.

A shard's content follows from (world, split, seed, index) alone, a finished shard is renamed into
place and kept, so that an interrupted run goes on where it stopped. Each shard carries the SHA-256
of its arrays, checked when read.

A shard of the default world is named `SPLIT-SEED-INDEX.npz`, one of another world
`WORLD-SPLIT-SEED-INDEX.npz`, and the latter also holds its world's name, kinds and colours: worlds
can share a folder and a renamed file is still found out.
"""

from __future__ import annotations

import hashlib
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.simulator.spec import WorldSpec
from clue_ros.lab.simulator.worlds import DEFAULT_WORLD, WORLDS, world_spec
from clue_ros.model.loading import replacing

SPLITS: tuple[str, ...] = ("train", "val", "test")
JPEG_QUALITY = 95
Arrays = dict[str, npt.NDArray[Any]]

# What zipfile, zlib and numpy raise on a file that was cut short or written over.
_DAMAGE = (
    ValueError,
    KeyError,
    EOFError,
    NotImplementedError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


def _prefix(world: str, split: str) -> str:
    """How the names of a world's shards begin; the default world is not spelled out."""
    return split if world == DEFAULT_WORLD else f"{world}-{split}"


def shard_seed(split: str, seed: int, index: int, world: str = DEFAULT_WORLD) -> int:
    """The generator seed of one shard; different for every world, split, seed and index."""
    text = f"{_prefix(world, split)}/{seed}/{index}".encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:8], "little")


def shard_path(folder: Path, split: str, seed: int, index: int, world: str = DEFAULT_WORLD) -> Path:
    """Where a shard lies below `folder`."""
    return folder / f"{_prefix(world, split)}-{seed}-{index:04d}.npz"


def pack(
    scenes: list[Scene],
    world: str = DEFAULT_WORLD,
    *,
    spec: WorldSpec | None = None,
    meshes: str = "",
) -> Arrays:
    """Scenes of a world as flat arrays.

    spec: the world with the user's own kinds; meshes: their digest.
    """
    spec = world_spec(world) if spec is None else spec
    kinds, colors = list(spec.kinds), list(spec.colors)
    jpegs: list[npt.NDArray[np.uint8]] = []
    for scene in scenes:
        done, jpeg = cv2.imencode(
            ".jpg", scene.image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY]
        )
        if not done:
            raise ValueError("OpenCV could not encode a scene as JPEG")
        jpegs.append(np.asarray(jpeg, dtype=np.uint8))
    objects = [o for scene in scenes for o in scene.objects]
    own = {} if world == DEFAULT_WORLD else _names(world, spec)
    if spec.settling is not None:
        own |= _settled(scenes, objects) | ({"meshes": np.array(meshes)} if meshes else {})
    return own | {
        "jpeg": np.concatenate(jpegs),
        "jpeg_sizes": np.array([len(j) for j in jpegs], dtype=np.int64),
        "counts": np.array([len(s.objects) for s in scenes], dtype=np.int64),
        "kinds": np.array([kinds.index(o.kind) for o in objects], dtype=np.uint8),
        "colors": np.array([colors.index(o.color) for o in objects], dtype=np.uint8),
        "boxes": np.array([o.box for o in objects], dtype=np.float32).reshape(-1, 4),
        "instances": np.stack([s.instances for s in scenes]),
    }


def _settled(scenes: list[Scene], objects: list[SceneObject]) -> Arrays:
    """What settled worlds know besides: sizes, hidden shares, masks of every pixel (as PNG)."""
    pngs = [_png(s.masks) for s in scenes if s.masks is not None]
    return {
        "extents": np.array([o.extent for o in objects], dtype=np.float32),
        "visible": np.array([o.visible for o in objects], dtype=np.float32),
        "masks": np.concatenate([*pngs, np.zeros(0, np.uint8)]),
        "mask_sizes": np.array([len(p) for p in pngs], dtype=np.int64),
    }


def _png(mask: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    done, png = cv2.imencode(".png", mask)
    if not done:
        raise ValueError("OpenCV could not encode a mask as PNG")
    return np.asarray(png, dtype=np.uint8).reshape(-1)


def meshes_of(path: Path) -> str:
    """The digest of the user's meshes that a shard was made with; "" for none."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return str(file["meshes"]) if "meshes" in file.files else ""
    except _DAMAGE:
        return ""


def _names(world: str, spec: WorldSpec) -> Arrays:
    """What a shard of another than the default world says of its world."""
    return {
        "world": np.array(world),
        "kind_names": np.array(spec.kinds),
        "color_names": np.array(list(spec.colors)),
    }


def _world_of(arrays: Arrays) -> tuple[str, list[str], list[str]]:
    """A shard's world, and its names of kinds and colours in the shard's numbering."""
    if "world" in arrays:
        kinds, colors = ([str(v) for v in arrays[n]] for n in ("kind_names", "color_names"))
        return str(arrays["world"]), kinds, colors
    spec = WORLDS[DEFAULT_WORLD]
    return spec.name, list(spec.kinds), list(spec.colors)


def unpack(arrays: Arrays) -> Iterator[Scene]:
    """The scenes of `pack`. ValueError when a picture cannot be decoded."""
    _, kinds, colors = _world_of(arrays)
    ends = np.cumsum(arrays["jpeg_sizes"])
    whole = _whole_masks(arrays)
    extents, visible = (arrays.get(name) for name in ("extents", "visible"))
    first = 0
    for i, count in enumerate(arrays["counts"]):
        jpeg = arrays["jpeg"][ends[i] - arrays["jpeg_sizes"][i] : ends[i]]
        image = cv2.imdecode(jpeg, cv2.IMREAD_COLOR)
        if image is None:
            raise ValueError(f"picture {i} of the shard is no JPEG")
        objects = []
        for k in range(first, first + int(count)):
            x0, y0, x1, y1 = (float(v) for v in arrays["boxes"][k])
            kind, color = kinds[int(arrays["kinds"][k])], colors[int(arrays["colors"][k])]
            more = (
                (round(float(extents[k]), 4), round(float(visible[k]), 3))
                if extents is not None and visible is not None
                else ()
            )
            objects.append(SceneObject(kind, color, (x0, y0, x1, y1), *more))
        first += int(count)
        instances = np.asarray(arrays["instances"][i], dtype=np.uint8)
        rgb = np.ascontiguousarray(image[..., ::-1], dtype=np.uint8)
        yield Scene(rgb, tuple(objects), instances, whole[i] if whole else None)


def _whole_masks(arrays: Arrays) -> list[npt.NDArray[np.uint8]]:
    """The masks of every picture, or none at all. ValueError when one cannot be decoded."""
    sizes = arrays.get("mask_sizes")
    if sizes is None or len(sizes) != len(arrays["counts"]):
        return []
    ends = np.cumsum(sizes)
    out = []
    for end, size in zip(ends, sizes, strict=True):
        mask = cv2.imdecode(arrays["masks"][end - size : end], cv2.IMREAD_GRAYSCALE)
        if mask is None:
            raise ValueError("a mask of the shard is no PNG")
        out.append(np.asarray(mask, dtype=np.uint8))
    return out


def _digest(arrays: Arrays) -> npt.NDArray[np.uint8]:
    sha = hashlib.sha256()
    for name in sorted(arrays):
        sha.update(name.encode())
        sha.update(np.ascontiguousarray(arrays[name]).tobytes())
    return np.frombuffer(sha.digest(), dtype=np.uint8)


def write_shard(
    path: Path,
    scenes: list[Scene],
    world: str = DEFAULT_WORLD,
    *,
    spec: WorldSpec | None = None,
    meshes: str = "",
) -> None:
    """Write atomically: a reader sees the whole shard or none. spec, meshes: as in `pack`."""
    arrays = pack(scenes, world, spec=spec, meshes=meshes)
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as partial, open(partial, "wb") as file:
        content: Any = {"sha256": _digest(arrays), **arrays}
        np.savez(file, **content)


def read_shard(path: Path, world: str | None = None) -> Iterator[Scene]:
    """Scenes of one shard, of any world, or of the one that must be its.

    ValueError naming the file, and what to do, when its content is not what was written
    or is another world's.
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
    found = _world_of(arrays)[0]
    if world not in (None, found):
        raise ValueError(
            f"{path}: holds scenes of the world {found!r}, not {world!r}, whatever its name says;"
            " delete it and make it again"
        )
    yield from unpack(arrays)


def list_shards(folder: Path, split: str, world: str = DEFAULT_WORLD) -> list[Path]:
    """The finished shards of a world's split, in order."""
    return sorted(folder.glob(f"{_prefix(world, split)}-*.npz"))


def kinds_in(folder: Path, split: str, world: str = DEFAULT_WORLD) -> tuple[str, ...]:
    """The kinds that a world's shards can hold: the world's, then the user's own meshes'."""
    for path in list_shards(folder, split, world)[:1]:
        try:
            with np.load(path, allow_pickle=False) as file:
                if "kind_names" in file.files:
                    return tuple(str(kind) for kind in file["kind_names"])
        except _DAMAGE:
            break
    return world_spec(world).kinds


def how_to_make(folder: Path, split: str, scenes: int, world: str = DEFAULT_WORLD) -> str:
    """What to say where a world's split has no shards."""
    option = "" if world == DEFAULT_WORLD else f" --world {world}"
    which = "" if world == DEFAULT_WORLD else f" of the world {world!r}"
    return (
        f"no {split} scenes{which} in {folder}: make them with"
        f" `clue data tabletop{option} --out {folder} --split {split} --scenes {scenes}`"
    )


def read_scenes(
    folder: Path, split: str, limit: int | None = None, world: str = DEFAULT_WORLD
) -> Iterator[Scene]:
    """All scenes of a world's split, at most `limit`.

    FileNotFoundError says how to make them, ValueError names a damaged shard.
    """
    paths = list_shards(folder, split, world)
    if not paths:
        raise FileNotFoundError(how_to_make(folder, split, 1000, world))
    made = 0
    for path in paths:
        for scene in read_shard(path, world):
            if limit is not None and made >= limit:
                return
            made += 1
            yield scene
