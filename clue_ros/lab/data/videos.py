"""Videos with requests and the masks of the requested objects, in IC-Seg's layout.

The layout of IC-Seg's published files (its names; the types are our reading of them):

DIR/NAME-train.parquet, DIR/NAME-test.parquet   one row a request: COLUMNS
DIR/RVOS_Train/, DIR/RVOS_Test/                 one folder a split, which holds:
    JPEGImages/VIDEO/FRAME.jpg
    Annotations/VIDEO/OID/FRAME.png             255 is the object
    description_oid/VIDEO/OID.json              of one object
    description_id/AID.json                     of all that a request means

What `clue data clips` writes also has each object's kind, colour and box in its description, and a
request's candidates, so that a simulated person can answer questions.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.dialogue.types import clean_text
from clue_ros.errors import ClueError
from clue_ros.images import load_image
from clue_ros.lab.simulator.scene import SceneObject
from clue_ros.requirements import missing

Mask = npt.NDArray[np.bool_]
Problem = Callable[[str], None]
COLUMNS = (
    "question", "images", "ability", "video", "id", "oid", "aid", "initial_count", "max_count",
    "object",
)  # fmt: skip
FOLDERS = {"train": "RVOS_Train", "val": "RVOS_Val", "test": "RVOS_Test"}
OTHER = "other"
ABILITIES = {2: "simple", 3: "medium"}
"""Difficulty by the number of candidates; more than 3 are "difficult", one is "other"."""


class VideosError(ClueError):
    """A data set of videos cannot be read; the message names the file."""

    code = "BAD_ROWS"


@dataclass(frozen=True)
class Known:
    """A simulator's facts about a video. target, candidates: indices of objects."""

    objects: tuple[SceneObject, ...]
    target: int
    candidates: tuple[int, ...]


@dataclass(frozen=True)
class VideoRequest:
    """A request about a video, and the masks of the objects that it means.

    name: unique in its data set. target: the same for all requests that mean the same of a video.
    frames: of the video, in order. truth: the mask of a frame by its number, bool (H, W); it
    raises VideosError. count: candidates of the request, 1: it is clear. known: None where the
    objects are not known.
    """

    name: str
    target: str
    frames: tuple[Path, ...]
    text: str
    truth: Callable[[int], Mask]
    ability: str = OTHER
    count: int = 1
    known: Known | None = None

    def load(self, number: int) -> npt.NDArray[np.uint8]:
        """A frame, uint8 RGB (H, W, 3). Raises BadImageError."""
        return load_image(self.frames[number])


@dataclass
class Video:
    """A request's video with its true masks, in memory."""

    request: VideoRequest
    frames: list[npt.NDArray[np.uint8]]
    truth: list[Mask]
    begin: int  # the first frame that shows the object

    @classmethod
    def read(cls, request: VideoRequest) -> Video:
        """Read a video. Raises VideosError, BadImageError.

        Refused: frames or masks of several sizes, and an object that is in no frame.
        """
        frames = [request.load(n) for n in range(len(request.frames))]
        truth = [request.truth(n) for n in range(len(frames))]
        shapes = {frame.shape[:2] for frame in frames} | {mask.shape for mask in truth}
        if len(shapes) != 1:
            raise VideosError(f"its frames and masks are of several sizes, {sorted(shapes)}")
        begin = next((n for n, mask in enumerate(truth) if mask.any()), None)
        if begin is None:
            raise VideosError("the object is in no frame")
        return cls(request, frames, truth, begin)


def ability_of(count: int) -> str:
    """The difficulty of a request that means `count` objects.

    >>> [ability_of(n) for n in (1, 2, 3, 4, 7)]
    ['other', 'simple', 'medium', 'difficult', 'difficult']
    """
    return OTHER if count < 2 else ABILITIES.get(count, "difficult")


def parquet(what: str) -> Any:
    """Pyarrow with its parquet. ClueError says how to install it."""
    try:
        importlib.import_module("pyarrow.parquet")
        return importlib.import_module("pyarrow")
    except ModuleNotFoundError as error:
        raise ClueError(missing(str(error.name), what)) from error


def icseg_requests(folder: str | Path, split: str, problem: Problem) -> Iterator[VideoRequest]:
    """The requests of a split of FOLDERS, one row after the other.

    problem: is called with the reason for each row that is left out. Raises VideosError, ClueError.
    """
    folder = Path(folder)
    files = sorted(p for p in folder.glob("*.parquet") if split in p.stem)
    if not files:
        raise VideosError(f"{folder} has no .parquet file with {split} in its name")
    arrow = parquet(f"{files[0]}: this")
    base = folder / FOLDERS.get(split, f"RVOS_{split.capitalize()}")
    for path in files:
        try:
            table = arrow.parquet.ParquetFile(path)
            names = [name for name in COLUMNS if name in table.schema_arrow.names]
            lacks = {"question", "video", "oid"} - set(names)
            if lacks:
                raise VideosError(f"{path} has no column {', '.join(sorted(lacks))}")
            wanted = [name for name in names if name not in ("images", "object")]
            for batch in table.iter_batches(64, columns=wanted):
                for row in batch.to_pylist():
                    try:
                        yield _icseg_request(base, row)
                    except (ClueError, ValueError, KeyError, TypeError, OSError) as error:
                        problem(f"{path.name}, request {row.get('id')}: {error}")
        except (OSError, arrow.lib.ArrowException) as error:
            raise VideosError(f"cannot read {path}: {' '.join(str(error).split())}") from error


def _icseg_request(base: Path, row: Mapping[str, Any]) -> VideoRequest:
    video, oid = str(row["video"]), str(row["oid"])
    masks = inside(base / "Annotations", f"{video}/{oid}")
    frames = frames_of(base / "JPEGImages", video)
    about = _json(base / "description_id" / f"{row.get('aid')}.json")
    known = _known(base / "description_oid" / video, oid, about)
    count = int(row.get("initial_count") or 1)
    return VideoRequest(
        name=f"{video}/{row.get('id')}",
        target=f"{video}/{oid}",
        frames=frames,
        text=clean_text(row["question"]),
        truth=lambda n: _read_mask(masks / f"{frames[n].stem}.png"),
        ability=str(row.get("ability") or OTHER),
        count=count,
        known=known,
    )


def _known(folder: Path, oid: str, about: Mapping[str, Any]) -> Known | None:
    """The objects of a video, where their descriptions have kinds and boxes."""
    names = {f.name for f in fields(SceneObject)}
    oids, objects = [], []
    for path in sorted(folder.glob("*.json"), key=lambda p: (len(p.stem), p.stem)):
        values = _json(path)
        if not {"kind", "color", "box"} <= set(values):
            return None
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in values.items() if k in names
        }
        objects.append(SceneObject(**given))
        oids.append(path.stem)
    if oid not in oids or "candidates" not in about:
        return None
    candidates = tuple(oids.index(str(c)) for c in about["candidates"])
    return Known(tuple(objects), oids.index(oid), candidates)


def frames_of(images: Path, video: str, names: list[str] | None = None) -> tuple[Path, ...]:
    """The pictures of a video, in order. names: those that count, without their ending.

    Raises ValueError where there are none.
    """
    folder = inside(images, video)
    found = sorted(p for p in folder.iterdir() if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if names is not None:
        by_name = {p.stem: p for p in found}
        found = [by_name[name] for name in names]
    if not found:
        raise ValueError(f"video {video} has no picture")
    return tuple(found)


def inside(folder: Path, name: str) -> Path:
    """Return a folder below another one. Raises ValueError for any other, or a missing one."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()) or not path.is_dir():
        raise ValueError(f"there is no folder {name!r:.80} in {folder}")
    return path


def _read_mask(path: Path) -> Mask:
    if not path.is_file():  # the object is not in this frame
        raise VideosError(f"there is no mask {path}")
    with Image.open(path) as picture:
        return np.asarray(np.asarray(picture.convert("L")) > 127, np.bool_)


def _json(path: Path) -> dict[str, Any]:
    """Read a description; a text alone is its "description". {} without one."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise VideosError(f"cannot read {path}: {error}") from error
    return content if isinstance(content, dict) else {"description": content}


# -------------------------------------------------------------------------------------------------
# Writing.


def write_masks(folder: Path, video: str, masks: npt.NDArray[np.uint8], count: int) -> None:
    """Write each object's masks: Annotations/VIDEO/OID/FRAME.png, OID from 1.

    masks: uint8 (N, H, W), k is object k.
    """
    for oid in range(1, count + 1):
        place = folder / "Annotations" / video / str(oid)
        place.mkdir(parents=True, exist_ok=True)
        for number, mask in enumerate(masks):
            pixels = np.where(mask == oid, 255, 0).astype(np.uint8)
            Image.fromarray(pixels).save(place / f"{number:05d}.png")


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows of COLUMNS as parquet. ClueError where pyarrow is missing."""
    arrow = parquet(f"{path}: this")
    arrow.parquet.write_table(arrow.Table.from_pylist(rows), path)
