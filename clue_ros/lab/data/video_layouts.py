"""Ref-YouTube-VOS, MeViS, ReVOS and IC-Seg in their published layouts, request by request.

MeViS and ReVOS keep the masks of all videos in one mask_dict.json of up to gigabytes: it is read
once for the place of each mask, and a mask when it is wanted.

    refytvos    DIR/meta_expressions/SPLIT/meta_expressions.json, DIR/SPLIT/JPEGImages/VIDEO/,
                DIR/SPLIT/Annotations/VIDEO/FRAME.png (palette pictures, a colour's index an object)
    mevis       DIR/SPLIT/meta_expressions.json, mask_dict.json, JPEGImages/VIDEO/
    revos       DIR/meta_expressions_SPLIT_.json, DIR/mask_dict.json, DIR/JPEGImages/VIDEO/
    icseg       `clue_ros.lab.data.videos`
    clips       the same, as `clue data clips` writes it
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.dialogue.types import clean_text
from clue_ros.errors import ClueError
from clue_ros.images import image_size
from clue_ros.lab.data.json_stream import read_at, stream_rows
from clue_ros.lab.data.videos import (
    Mask,
    Problem,
    VideoRequest,
    VideosError,
    frames_of,
    icseg_requests,
    inside,
)


def video_requests(
    layout: str, folder: str | Path, split: str, problem: Problem
) -> Iterator[VideoRequest]:
    """The requests of a split, in a layout of LAYOUTS; problem: told why a request is left out.

    Raises VideosError.
    """
    return LAYOUTS[layout](Path(folder), split, problem)


def decoded(rle: Mapping[str, Any]) -> Mask:
    """A mask in COCO's run-length code, bool (H, W); counts: a list, or COCO's text of it.

    Runs go down the columns and begin with background. Raises ValueError.

    >>> decoded({"size": [2, 3], "counts": [1, 2, 3]}).astype(int).tolist()
    [[0, 1, 0], [1, 0, 0]]
    >>> decoded({"size": [2, 3], "counts": "123"}).astype(int).tolist()
    [[0, 1, 0], [1, 0, 0]]
    """
    size, counts = rle.get("size"), rle.get("counts")
    runs = _runs(counts) if isinstance(counts, str) else counts
    if not isinstance(runs, Sequence) or not isinstance(size, Sequence) or len(size) != 2:
        raise ValueError("a mask has no size and counts")
    height, width = (int(v) for v in size)
    if min(height, width) < 1 or min(runs, default=0) < 0 or sum(runs) != height * width:
        raise ValueError(f"a mask's runs do not fill {width}x{height} pixels")
    values = np.arange(len(runs)) % 2 == 1
    return np.asarray(np.repeat(values, runs).reshape(width, height).T, np.bool_)


def _runs(text: str) -> list[int]:
    """COCO's text as numbers: five bits a character, from the third on the change by two runs."""
    found: list[int] = []
    value = shift = 0
    for character in text:
        code = ord(character) - 48
        value |= (code & 31) << shift
        shift += 5
        if code & 32:
            continue
        if code & 16:
            value -= 1 << shift
        found.append(value + found[-2] if len(found) > 2 else value)
        value = shift = 0
    return found


class MaskFile:
    """The masks of a mask_dict.json: a list of run-length codes, one a frame, for each object.

    Raises VideosError for a file that cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._places: dict[str, array[int]] = {}
        try:
            self._file = path.open("rb")
            for row in stream_rows(self._file):
                places = self._places.setdefault(row.part, array("q"))
                places.extend((row.start, row.length))
        except (OSError, ValueError) as error:
            raise VideosError(f"cannot read {path}: {error}") from error

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def mask(self, name: str, number: int) -> Mask | None:
        """Return an object's mask in a frame; None if it is not visible. Raises VideosError."""
        places = self._places[name]
        if 2 * number >= len(places):
            raise VideosError(f"annotation {name} has no frame {number}")
        start, length = places[2 * number : 2 * number + 2]
        try:
            rle = read_at(self._file.fileno(), start, length)
            return None if rle is None else decoded(rle)
        except (ValueError, TypeError, AttributeError) as error:
            raise VideosError(f"annotation {name}, frame {number}: {error}") from error


def _in_mask_file(
    meta: Path, masks: Path, images: Path, problem: Problem
) -> Iterator[VideoRequest]:
    """The requests of MeViS and ReVOS."""
    file = MaskFile(masks)
    for video, about, name, row in _expressions(meta):
        try:
            frames = frames_of(images, video, about.get("frames"))
            annotations = [str(a) for a in row.get("anno_id") or ()]
            lacking = [a for a in annotations if a not in file]
            if not annotations or lacking:
                raise ValueError(f"no mask of {', '.join(lacking) or 'any object'}")
            yield VideoRequest(
                name=f"{video}/{name}",
                target=f"{video}/{'+'.join(annotations)}",
                frames=frames,
                text=clean_text(row.get("exp", "")),
                truth=partial(_united, file, annotations, frames),
            )
        except (ClueError, ValueError, KeyError, TypeError, OSError) as error:
            problem(f"video {video}, expression {name}: {error}")


def _united(
    file: MaskFile, annotations: Sequence[str], frames: Sequence[Path], number: int
) -> Mask:
    """The pixels of several objects in a frame."""
    found = [m for a in annotations if (m := file.mask(a, number)) is not None]
    if not found:
        width, height = image_size(frames[number], frames[number].name)
        return np.zeros((height, width), np.bool_)
    if len({mask.shape for mask in found}) > 1:
        raise VideosError(f"frame {number} has masks of several sizes")
    return np.asarray(np.any(found, axis=0), np.bool_)


def _mevis(folder: Path, split: str, problem: Problem) -> Iterator[VideoRequest]:
    part = folder / split
    return _in_mask_file(
        part / "meta_expressions.json", part / "mask_dict.json", part / "JPEGImages", problem
    )


def _revos(folder: Path, split: str, problem: Problem) -> Iterator[VideoRequest]:
    meta = folder / f"meta_expressions_{split}_.json"
    return _in_mask_file(meta, folder / "mask_dict.json", folder / "JPEGImages", problem)


def _refytvos(folder: Path, split: str, problem: Problem) -> Iterator[VideoRequest]:
    part = folder / split
    meta = folder / "meta_expressions" / split / "meta_expressions.json"
    for video, about, name, row in _expressions(meta):
        try:
            frames = frames_of(part / "JPEGImages", video, about.get("frames"))
            masks, number = inside(part / "Annotations", video), int(row["obj_id"])
            yield VideoRequest(
                name=f"{video}/{name}",
                target=f"{video}/{number}",
                frames=frames,
                text=clean_text(row.get("exp", "")),
                truth=partial(_palette, masks, frames, number),
            )
        except KeyError as error:
            problem(f"video {video}, expression {name}: there is no {error}")
        except (ClueError, ValueError, TypeError, OSError) as error:
            problem(f"video {video}, expression {name}: {error}")


def _palette(masks: Path, frames: Sequence[Path], number: int, frame: int) -> Mask:
    path = masks / f"{frames[frame].stem}.png"
    try:
        with Image.open(path) as picture:
            indices: npt.NDArray[Any] = np.asarray(picture)
    except OSError as error:
        raise VideosError(f"cannot read {path}: {error}") from error
    if indices.ndim != 2:
        raise VideosError(f"{path} is no picture with a palette")
    return np.asarray(indices == number, np.bool_)


def _expressions(path: Path) -> Iterator[tuple[str, Mapping[str, Any], str, Mapping[str, Any]]]:
    """Yield a meta_expressions.json's rows: video, its entry, expression's name, expression."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        videos = content["videos"].items()
    except (OSError, ValueError, RecursionError, LookupError, TypeError, AttributeError) as error:
        raise VideosError(f"cannot read {path}: {error!r:.200}") from error
    for video, about in videos:
        rows = about.get("expressions") if isinstance(about, Mapping) else None
        for name, row in (rows or {}).items():
            yield str(video), about, str(name), row if isinstance(row, Mapping) else {}


LAYOUTS: dict[str, Callable[[Path, str, Problem], Iterator[VideoRequest]]] = {
    "clips": icseg_requests,
    "icseg": icseg_requests,
    "mevis": _mevis,
    "revos": _revos,
    "refytvos": _refytvos,
}
