"""Assets of the world `table`: scanned objects, panoramas and textures of a folder.

DIR/hdri/*.hdr       panoramas (Radiance, OpenEXR or others), twice as wide as high
DIR/textures/*.webp  contact sheets of textures in tiles of 128 pixels, named after their class, or
                     one texture a file (PNG, JPEG, WebP) of another size
DIR/**               objects, in the layouts that `scanned_objects.find_objects` reads

Everything is optional. Missing parts are generated: plain shapes, procedural textures, a studio.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np

from clue_ros.errors import ClueError
from clue_ros.lab.simulator.scanned_objects import ScannedObject, find_objects
from clue_ros.lab.simulator.textures import Texture

TILE, PITCH_X, PITCH_Y, FIRST = 128, 144, 176, 16  # pixels, of a contact sheet
PICTURES = (".webp", ".png", ".jpg", ".jpeg")
PANORAMAS = (".hdr", ".exr", *PICTURES)
HELD_OUT = 5  # one in so many is kept for the unseen world


@dataclass(frozen=True)
class Assets:
    """objects: all of them. panoramas: files. textures: (class, file, number of its tile).

    digest: of the names of all of it and the sizes of the files; "" for nothing.
    """

    objects: tuple[ScannedObject, ...] = ()
    panoramas: tuple[Path, ...] = ()
    textures: tuple[tuple[str, Path, int], ...] = ()
    digest: str = ""

    def half(self, *, unseen: bool) -> Assets:
        """The part that training sees, or the part that it never sees.

        A name's hash decides, so that the parts stay the same when others are added. Of the objects
        of a kind both parts have one at least; a kind's only object is in both.
        """
        groups: dict[str, list[ScannedObject]] = defaultdict(list)
        for o in self.objects:
            groups[o.kind].append(o)
        objects: list[ScannedObject] = []
        for members in groups.values():
            ranked = sorted(members, key=lambda o: _rank(o.name))
            count = max(1, round(len(ranked) / HELD_OUT)) if len(ranked) > 1 else 0
            apart, rest = ranked[:count], ranked[count:]
            objects += (apart or rest) if unseen else rest
        return Assets(
            tuple(sorted(objects, key=lambda o: o.name)),
            tuple(p for p in self.panoramas if _held_out(p.stem) == unseen) or self.panoramas,
            tuple(t for t in self.textures if _held_out(f"{t[0]}/{t[2]}") == unseen),
            self.digest,
        )


def _rank(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")


def _held_out(name: str) -> bool:
    return _rank(name) % HELD_OUT == 0


def read_assets(folder: Path | None, objects: Sequence[Path] = ()) -> Assets:
    """List what a folder and further folders (or .sh3f files) of objects hold.

    ClueError if one of them does not exist or nothing of use is there.
    """
    folders = [p for p in (folder, *objects) if p is not None]
    if not folders:
        return Assets()
    for each in folders:
        if not each.exists():
            raise ClueError(f"{each}: no folder of objects, panoramas or textures")
    found = find_objects(folders)
    panoramas: list[Path] = []
    textures: list[tuple[str, Path, int]] = []
    if folder is not None:
        panoramas = _files(folder / "hdri", PANORAMAS)
        for path in _files(folder / "textures", PICTURES):
            textures += [(path.stem, path, number) for number in range(_tile_count(path))]
    if not (found or panoramas or textures):
        raise ClueError(f"{folders[0]}: no object, hdri/*.hdr or textures/*.webp in it")
    sha = hashlib.sha256()
    for o in found:
        sha.update(f"{o.name} {o.model.stat().st_size}\n".encode())
    for path in (*panoramas, *(p for _, p, n in textures if n == 0)):
        sha.update(f"{path.name} {path.stat().st_size}\n".encode())
    return Assets(tuple(found), tuple(panoramas), tuple(textures), sha.hexdigest()[:16])


def _files(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    if not folder.is_dir():
        return []
    return [p for p in sorted(folder.iterdir()) if p.suffix.lower() in suffixes and p.is_file()]


def _is_sheet(picture: Texture) -> bool:
    """Whether a picture is a contact sheet: seven tiles wide, between white margins."""
    height, width = picture.shape[:2]
    wide = width % PITCH_X == FIRST and height % PITCH_Y in (FIRST, 32)
    return bool(wide and picture[:8].min() > 250 and picture[:, :8].min() > 250)


@lru_cache(maxsize=24)
def _picture(path: Path) -> Texture:
    read = cv2.imread(str(path), cv2.IMREAD_COLOR)
    if read is None:
        raise ClueError(f"{path}: no picture that can be read")
    return np.asarray(read[..., ::-1], np.uint8)


@lru_cache(maxsize=512)
def _tile_count(path: Path) -> int:
    """The number of textures of a file."""
    picture = _picture(path)
    if not _is_sheet(picture):
        return 1
    rows, columns = picture.shape[0] // PITCH_Y, picture.shape[1] // PITCH_X
    return sum(1 for n in range(rows * columns) if _tile(picture, n, columns).min() < 235)


def _tile(picture: Texture, number: int, columns: int) -> Texture:
    y, x = FIRST + number // columns * PITCH_Y, FIRST + number % columns * PITCH_X
    return picture[y : y + TILE, x : x + TILE]


def read_texture(path: Path, number: int) -> Texture:
    """One texture, uint8 RGB, at most 512 pixels a side."""
    picture = _picture(path)
    if not _is_sheet(picture):
        factor = 512 / max(picture.shape[:2])
        if factor < 1:
            area = cv2.INTER_AREA
            smaller = cv2.resize(picture, None, fx=factor, fy=factor, interpolation=area)
            picture = np.asarray(smaller, np.uint8)
        return picture
    tile = _tile(picture, number, picture.shape[1] // PITCH_X)
    inked = tile.min(axis=2) < 250  # a tile that is no square has a white rest
    rows, columns = inked.mean(axis=1) > 0.02, inked.mean(axis=0) > 0.02
    if rows.any() and columns.any():
        tile = tile[: int(np.flatnonzero(rows)[-1]) + 1, : int(np.flatnonzero(columns)[-1]) + 1]
    return np.ascontiguousarray(tile[1:-1, 1:-1]) if min(tile.shape[:2]) > 8 else tile
