"""Where InViG rows and pictures come from: JSON files, parquet files and the hub.

JSON needs nothing beside this package. Parquet files, folders that `save_to_disk` wrote and hub ids
need Hugging Face `datasets`, which is imported only then. Nothing is unpickled and no code of a
data set is run.
"""

from __future__ import annotations

import importlib
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.dialogue.types import Dialogue, Turn, clean_text
from clue_ros.errors import ClueError
from clue_ros.images import decode_image, image_size, load_image

# -------------------------------------------------------------------------------------------------
# How an InViG file writes its boxes, told from all of them together and checked on each.

Fractions = tuple[float, float, float, float]
Size = tuple[int, int]
"""Width and height in pixels."""

OUTSIDE = 0.02
"""A box may reach beyond the image by this share of its side (annotators' hands); it is clipped."""
_HUGE = 1e300
_STRAY = 0.1  # at most this share of the boxes, or a single one, may be of the other kind


class InvigError(ClueError):
    """There is no such data, or it cannot be used as a whole; the message says which and why."""

    code = "BAD_DATA"


@dataclass(frozen=True)
class BoxForm:
    """How a file writes boxes. pixels: else fractions. corners: x y x y, else x y width height.

    ``told``: False where every box fits both as corners and as width and height.
    """

    pixels: bool
    corners: bool
    told: bool = True

    def fractions(self, box: Sequence[float], size: Size) -> Fractions:
        """The box as (x_min, y_min, x_max, y_max) in 0..1 of an image.

        Raises ValueError with the reason where it is no box in this image.
        """
        if self.pixels == is_fractions(box):
            want = "pixels" if self.pixels else "fractions of the image"
            raise ValueError(f"box {_show(box)} is not in {want} as the others are")
        found = _corners(box, size, pixels=self.pixels, corners=self.corners)
        x_min, y_min, x_max, y_max = found
        if x_min >= x_max or y_min >= y_max:
            raise ValueError(f"box {_show(box)} encloses no area")
        if min(found) < -OUTSIDE or max(found) > 1 + OUTSIDE:
            raise ValueError(f"box {_show(box)} lies outside the {size[0]}x{size[1]} image")
        left, top, right, bottom = (min(max(value, 0.0), 1.0) for value in found)
        if left >= right or top >= bottom:
            raise ValueError(f"box {_show(box)} lies outside the {size[0]}x{size[1]} image")
        return left, top, right, bottom


def four_numbers(value: object) -> tuple[float, float, float, float]:
    """The four finite numbers of a box as a file holds it. Raises ValueError."""
    if not isinstance(value, (list, tuple)) or len(value) != 4:
        raise ValueError(f"bbox is {_kind(value)}, want four numbers")
    if any(isinstance(item, bool) or not isinstance(item, (int, float)) for item in value):
        raise ValueError(f"bbox {list(value)!r:.60} holds something that is no number")
    # Whole numbers in JSON may be too large for a float.
    numbers = tuple(float(item) if abs(item) < _HUGE else math.inf for item in value)
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError(f"bbox {list(value)!r:.60} is not finite")
    return numbers[0], numbers[1], numbers[2], numbers[3]


def box_form(boxes: Sequence[tuple[Sequence[float], Size]], source: str) -> BoxForm:
    """How these boxes are written: of each, its four numbers and its image's size.

    Raises InvigError where they contradict each other. No boxes: as the newer files have them.
    """
    fractions = [is_fractions(box) for box, _ in boxes]
    pixels = _decide(
        fractions.count(False),
        fractions.count(True),
        lambda a, b: (
            f"{source}: {a} boxes are in pixels and {b} in fractions of the image;"
            " one file must use one of them"
        ),
    )
    same = [
        item for item, is_fraction in zip(boxes, fractions, strict=True) if is_fraction != pixels
    ]
    only = {True: 0, False: 0}
    for box, size in same:
        fits = {
            corners: _fits(_corners(box, size, pixels=pixels, corners=corners))
            for corners in (True, False)
        }
        if fits[True] != fits[False]:
            only[fits[True]] += 1
    corners = _decide(
        only[True],
        only[False],
        lambda a, b: (
            f"{source}: {a} boxes fit their image only as two corners (xyxy) and {b} only as a"
            " corner, width and height (xywh); one file must use one of them"
        ),
    )
    return BoxForm(pixels, corners or only[False] == 0, told=any(only.values()) or not same)


def is_fractions(box: Sequence[float]) -> bool:
    """Whether no number is too large for a fraction; a box within the first pixel is none."""
    return max(abs(number) for number in box) <= 1 + OUTSIDE


def _decide(first: int, second: int, conflict: Callable[[int, int], str]) -> bool:
    """Whether the first kind is the file's. Raises InvigError where both are, in number."""
    fewer, total = min(first, second), first + second
    if fewer > max(_STRAY * total, 1 if total > 3 else 0):
        raise InvigError(conflict(first, second))
    return first > second


def _corners(box: Sequence[float], size: Size, *, pixels: bool, corners: bool) -> Fractions:
    x, y, third, fourth = box
    right, bottom = (third, fourth) if corners else (x + third, y + fourth)
    width, height = size if pixels else (1, 1)
    return x / width, y / height, right / width, bottom / height


def _fits(box: Fractions) -> bool:
    inside = min(box) >= -OUTSIDE and max(box) <= 1 + OUTSIDE
    return inside and box[0] < box[2] and box[1] < box[3]


def _show(box: Sequence[float]) -> str:
    return "[" + ", ".join(f"{number:g}" for number in box) + "]"


def _kind(value: object) -> str:
    length = f" with {len(value)} items" if isinstance(value, (list, tuple)) else ""
    return "missing" if value is None else f"of type {type(value).__name__}{length}"


# -------------------------------------------------------------------------------------------------
# Rows of the published InViG files, in each of their forms, as one kind of record.

LANGUAGES = {"en": "dialog", "cn": "dialog_cn"}
Exchanges = tuple[tuple[str, str], ...]
_MAX_SIDE = 1 << 24
_NAMES = ("image", "image_path", "file_name", "filename")


class BadRow(Exception):
    """Why a row cannot be used."""


@dataclass(frozen=True)
class Record:
    """One dialogue about one object, not yet checked against its picture.

    picture: what the file says of the image: a name, bytes, a PIL picture, or a mapping of these.
    size: (width, height) that the box is measured in, None where only the picture tells.
    numbers: the box as the file has it. remark: the robot's last words, which nobody answered.
    robot_first: see there.
    """

    id: str
    image_id: str
    picture: Any
    size: Size | None
    request: str
    exchanges: Exchanges
    numbers: tuple[float, float, float, float]
    category: str
    remark: str | None = None
    robot_first: bool | None = None


def records(row: Any, where: str, language: str) -> Iterator[Record | str]:
    """The dialogues of one row; for each that cannot be used, its id and the reason instead."""
    if not isinstance(row, Mapping):
        yield f"{where}: the row is of type {type(row).__name__}, want an object"
        return
    try:
        if "ref_list" in row:
            parts = list(_grouped(row, where))
        elif "ann" in row:
            parts = [_annotated(row, where)]
        elif "dialog" in row or "dialog_cn" in row:
            parts = [_flat(row, where)]
        else:
            fields = ", ".join(sorted(map(str, row))) or "none"
            raise BadRow(f"unknown kind of row (it has the fields {fields:.80})")
    except BadRow as error:
        yield f"{_row_id(row, where)}: {error}"
        return
    for part in parts:
        try:
            yield _record(part, language)
        except (BadRow, ClueError, ValueError) as error:
            yield f"{part['id']}: {error}"


def _grouped(row: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """The newer form: a row an image."""
    info, refs = row.get("image_info"), row["ref_list"]
    if not isinstance(info, Mapping):
        raise BadRow("image_info is missing or no object")
    if isinstance(refs, Mapping):  # what older `datasets` make of a list of objects
        refs = _transposed(refs)
    if not isinstance(refs, (list, tuple)) or not refs:
        raise BadRow("ref_list is empty or no list")
    picture = row.get("image")
    if picture is None:
        picture = info.get("file_name")
    image_id = _name(info.get("id")) or _stem(info.get("file_name")) or where
    for number, ref in enumerate(refs):
        fallback = f"{image_id}#{number}"
        if not isinstance(ref, Mapping):
            raise BadRow(f"ref_list holds type {type(ref).__name__}, want objects")
        yield {
            "id": _name(ref.get("id")) or fallback,
            "image_id": image_id,
            "picture": picture,
            "size": (info.get("width"), info.get("height")),
            "bbox": ref.get("bbox"),
            "category": ref.get("category"),
            "dialog": ref.get("dialog"),
            "dialog_cn": ref.get("dialog_cn"),
        }


def _transposed(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """{"id": [...], "bbox": [...]} as a list of objects."""
    lengths = {len(column) for column in columns.values() if isinstance(column, (list, tuple))}
    if len(lengths) != 1 or any(not isinstance(c, (list, tuple)) for c in columns.values()):
        raise BadRow("ref_list's columns differ in length")
    return [{name: columns[name][i] for name in columns} for i in range(lengths.pop())]


def _flat(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The older form: a row a dialogue."""
    picture = next((row[name] for name in _NAMES if row.get(name) is not None), None)
    image_id = _name(row.get("image_id")) or _name(row.get("global_image_id"))
    image_id = image_id or _stem(picture) or where
    if picture is None:
        picture = _name(row.get("image_id"))
    kept = {name: row.get(name) for name in ("bbox", "category", "dialog", "dialog_cn")}
    number = where.rsplit(":", 1)[-1]
    row_id = _name(row.get("id")) or (where if image_id == where else f"{image_id}#{number}")
    return {"id": row_id, "image_id": image_id, "picture": picture, "size": None, **kept}


def _annotated(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The authors' JSON lines."""
    ann = row["ann"]
    if not isinstance(ann, Mapping):
        raise BadRow(f"ann is of type {type(ann).__name__}, want an object")
    request, asked, said = (ann.get(name) for name in ("ref_exp", "questions", "answers"))
    if not isinstance(asked, list) or not isinstance(said, list) or len(asked) != len(said):
        raise BadRow("questions and answers are no lists of the same length")
    boxes = ann.get("ref_bboxes")
    if not isinstance(boxes, list) or len(boxes) != 1:
        count = len(boxes) if isinstance(boxes, list) else "no list of"
        raise BadRow(f"ref_bboxes has {count} boxes, want exactly one")
    name = row.get("filename")
    return {
        "id": _row_id(row, where),
        "image_id": _stem(name) or where,
        "picture": name,
        "size": (row.get("width"), row.get("height")),
        "bbox": boxes[0],
        "category": row.get("label"),
        "dialog": [["", request], *zip(asked, said, strict=True)],
        "dialog_cn": None,
    }


def _record(part: Mapping[str, Any], language: str) -> Record:
    request, exchanges, remark = read_dialogue(part[LANGUAGES[language]], LANGUAGES[language])
    if part["picture"] is None:
        raise BadRow("no image")
    category = part["category"]
    return Record(
        id=part["id"],
        image_id=part["image_id"],
        picture=part["picture"],
        size=None if part["size"] is None else _size(part["size"]),
        request=request,
        exchanges=exchanges,
        numbers=four_numbers(part["bbox"]),
        category=_name(category) or "",
        remark=remark,
        robot_first=robot_first(part[LANGUAGES[language]]),
    )


def read_dialogue(pairs: Any, name: str = "dialog") -> tuple[str, Exchanges, str | None]:
    """Request, (question, answer) pairs, and the robot's last words if nobody answered them.

    Raises BadRow where it is no list of pairs of strings or something inside it is empty.
    """
    if pairs is None:
        raise BadRow(f"no {name}")
    if not isinstance(pairs, (list, tuple)):
        raise BadRow(f"{name} is of type {type(pairs).__name__}, want a list of [text, text] pairs")
    spoken: list[str] = []
    for number, pair in enumerate(pairs):
        size = len(pair) if isinstance(pair, (list, tuple)) else 0
        if size != 2 and not (size == 1 and number == len(pairs) - 1):
            raise BadRow(f"{name}[{number}] is {pair!r:.40}, want a [text, text] pair")
        for text in pair:
            if text is not None and not isinstance(text, str):
                raise BadRow(f"{name}[{number}] holds type {type(text).__name__}, want text")
            spoken.append((text or "").strip())
    spoken = _without_empty_ends(spoken)
    if not spoken:
        raise BadRow(f"{name} is empty")
    if "" in spoken:
        raise BadRow(f"{name}: turn {spoken.index('') + 1} is empty")
    remark = clean_text(spoken.pop()) if len(spoken) % 2 == 0 else None
    turns = [Turn("user" if i % 2 else "robot", clean_text(t)) for i, t in enumerate(spoken[1:])]
    said = [turn.text for turn in Dialogue(spoken[0], turns).turns]
    return said[0], tuple(zip(said[1::2], said[2::2], strict=True)), remark


def robot_first(pairs: Any) -> bool | None:
    """Whether a dialogue's pairs are [robot, person]; None where its ends do not tell."""
    if not isinstance(pairs, (list, tuple)) or not pairs or not isinstance(pairs[0], (list, tuple)):
        return None
    if pairs[0] and not pairs[0][0]:
        return True
    last = pairs[-1]
    told = isinstance(last, (list, tuple)) and (len(last) == 1 or (len(last) == 2 and not last[1]))
    return False if told else None


def _without_empty_ends(spoken: Sequence[str]) -> list[str]:
    """The first place is empty where the robot comes first, the last where the person does."""
    kept = list(spoken[1:] if spoken and not spoken[0] else spoken)
    return kept[:-1] if kept and not kept[-1] else kept


def _size(given: tuple[Any, Any]) -> Size:
    width, height = given
    for side in (width, height):
        if isinstance(side, bool) or not isinstance(side, int) or not 0 < side < _MAX_SIDE:
            raise BadRow(f"image size {width!r:.20} x {height!r:.20}, want two sizes in pixels")
    return width, height


def _row_id(row: Mapping[str, Any], where: str) -> str:
    info = row.get("image_info")
    own = row.get("id"), row.get("image_id"), info.get("id") if isinstance(info, Mapping) else None
    return next((name for name in map(_name, own) if name), where)


def _name(value: Any) -> str | None:
    """A string or whole number as a one-line name, None for anything else or nothing."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    line = " ".join(str(value).split())
    return "".join(c if c.isprintable() else "?" for c in line) or None


def _stem(value: Any) -> str | None:
    return _name(PurePosixPath(value).stem) if isinstance(value, str) else None


DATASETS = "datasets==5.2.0"
"""What `pip install` needs for parquet files and hub ids; setup.py's extra `invig` is the same."""

_SPLITS = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation",
           "dev": "validation", "test": "test"}  # fmt: skip
_SPLIT_WORD = re.compile(r"(?<![a-z])(train|validation|valid|val|dev|test)(?![a-z])")
_FOLDERS = ("", "images", "imgs", "image", "invig21k_imgs", "invig500k_imgs")
_SUFFIXES = (".jpg", ".jpeg", ".png")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Row:
    """One row as it was found. where: file and line for messages. folder: where pictures are."""

    where: str
    values: Any
    folder: Path | None


@dataclass(frozen=True)
class Picture:
    """An image that was found but not decoded. load: uint8 RGB (H, W, 3). Raises BadImageError."""

    size: Size
    load: Callable[[], npt.NDArray[np.uint8]]


def split_name(name: str) -> str:
    """train, validation or test, from any of the ways they are written. Raises InvigError."""
    if name.lower() not in _SPLITS:
        raise InvigError(f"unknown split {name!r}: use train, validation or test")
    return _SPLITS[name.lower()]


def read_rows(source: str | Path, split: str | None) -> Iterator[Row | str]:
    """All rows of a source, or of one split; a line that is no row comes as its reason.

    Raises InvigError.
    """
    wanted = None if split is None else split_name(split)
    path = Path(source)
    if not path.exists():
        return _hub_rows(str(source), wanted)
    if path.is_file():
        return _file_rows([path], path.parent, wanted, str(source))
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        return _saved_rows(path, wanted)
    return _file_rows(_data_files(path), path, wanted, str(source))


def _data_files(folder: Path) -> list[Path]:
    """JSON and parquet files in the folder, in its `data` and in folders named after splits."""
    suffixes = {".json", ".jsonl", ".parquet"}
    places = [folder, *(sub for sub in sorted(folder.iterdir()) if sub.is_dir())]
    files = [path for place in places for path in sorted(place.iterdir())]
    found = [path for path in files if path.suffix in suffixes and path.is_file()]
    if not found:
        raise InvigError(f"{folder}: no .json, .jsonl or .parquet file in it")
    return found


def _split_of(path: Path, root: Path) -> str | None:
    """The split that a file's name, or its folder's below `root`, tells."""
    for name in (path.stem, *(p.name for p in path.parents if p != root and root in p.parents)):
        word = _SPLIT_WORD.search(name.lower())
        if word:
            return _SPLITS[word[0]]
    return None


def _file_rows(
    files: list[Path], root: Path, wanted: str | None, source: str
) -> Iterator[Row | str]:
    """Files whose names tell no split are used for any."""
    splits = {path: _split_of(path, root) for path in files}
    chosen = [path for path in files if wanted is None or splits[path] in (wanted, None)]
    if not chosen:
        there = ", ".join(sorted({name for name in splits.values() if name}))
        raise InvigError(f"{source}: no split {wanted} in it; it has {there}")
    for path in chosen:
        if path.suffix == ".parquet":
            data = _load(str(path), "parquet", data_files=str(path), split="train")
            yield from _table_rows(data, path.name, root)
        elif path.suffix == ".jsonl":
            yield from _json_lines(path, root)
        elif path.suffix == ".json":
            yield from _json_rows(path, root, wanted)
        else:
            raise InvigError(f"{path}: want a .json, .jsonl or .parquet file")


def _json_rows(path: Path, root: Path, wanted: str | None) -> Iterator[Row | str]:
    try:
        content = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise InvigError(f"{path} cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise InvigError(f"{path} is not JSON: {error}") from None
    if isinstance(content, Mapping) and content and all(name in _SPLITS for name in content):
        parts = {name: part for name, part in content.items() if wanted in (None, _SPLITS[name])}
        if not parts:
            raise InvigError(f"{path}: no split {wanted} in it; it has {', '.join(content)}")
    else:
        parts = {"": content}
    for name, part in parts.items():
        if not isinstance(part, list):
            raise InvigError(f"{path}: want a list of rows, or a list for each split")
        for number, values in enumerate(part):
            yield Row(f"{path.name}:{name}{':' if name else ''}{number}", values, root)


def _json_lines(path: Path, root: Path) -> Iterator[Row | str]:
    try:
        with path.open(encoding="utf-8-sig") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.strip():
                    continue
                where = f"{path.name}:{number}"
                try:
                    yield Row(where, json.loads(line), root)
                except (ValueError, RecursionError) as error:
                    yield f"{where}: not JSON: {error}"
    except (OSError, UnicodeDecodeError) as error:
        raise InvigError(f"{path} cannot be read: {error}") from None


def _datasets(source: str) -> Any:
    try:
        return importlib.import_module("datasets")
    except ImportError as error:
        raise InvigError(
            f"{source}: this needs the Python package datasets, which cannot be imported here"
            f" ({error}): pip install {DATASETS}; JSON files need nothing"
        ) from None


def _load(source: str, *args: Any, **options: Any) -> Any:
    """`datasets.load_dataset`, with its refusals as one clear line."""
    datasets = _datasets(source)
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        return datasets.load_dataset(*args, **options)
    except Exception as error:  # noqa: BLE001 - any failure of the library means: no data
        raise InvigError(f"{source}: {_reason(source, error)}") from None


def _reason(source: str, error: Exception) -> str:
    """What went wrong in `datasets` and what to do."""
    chain: list[BaseException] = [error]
    while (cause := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(cause)
    names = {type(item).__name__ for item in chain}
    text = " ".join(" ".join(str(item) for item in chain).split())
    if "gated" in text.lower() or "GatedRepoError" in names:
        page = f"https://huggingface.co/datasets/{source}"
        return f"the data set is gated: ask for access at {page}, then `hf auth login`"
    if names & _UNREACHABLE or "Couldn't reach" in text or "offline mode" in text.lower():
        return (
            "the hub cannot be reached and nothing is in the cache: check the network (and"
            " HF_HUB_OFFLINE), or copy the data set into a folder and give that"
        )
    if "DatasetNotFoundError" in names or "RepositoryNotFoundError" in names:
        return "no such data set on the hub, or a private one: check the name, `hf auth login`"
    if "Unknown split" in text:
        return f"no such split ({text:.120})"
    return f"cannot be loaded, {type(error).__name__}: {' '.join(str(error).split()):.160}"


_UNREACHABLE = {
    "OfflineModeIsEnabled", "LocalEntryNotFoundError", "ConnectionError", "ConnectError",
    "ConnectTimeout", "ReadTimeout", "MaxRetryError", "ProxyError", "NameResolutionError",
}  # fmt: skip


def _hub_rows(source: str, wanted: str | None) -> Iterator[Row | str]:
    if not _HUB_ID.fullmatch(source):
        raise InvigError(f"{source}: no such file or folder, and no hub id such as jxu124/invig")
    found = _load(source, source, split=wanted)
    parts = {wanted: found} if wanted is not None else dict(found)
    for name, part in parts.items():
        yield from _table_rows(part, str(name), None)


def _saved_rows(path: Path, wanted: str | None) -> Iterator[Row | str]:
    """A folder that `save_to_disk` of `datasets` wrote."""
    try:
        found = _datasets(str(path)).load_from_disk(str(path))
    except InvigError:
        raise
    except Exception as error:  # noqa: BLE001 - any failure of the library means: no data
        raise InvigError(f"{path}: {_reason(str(path), error)}") from None
    if not isinstance(found, dict):
        yield from _table_rows(found, path.name, path)
        return
    parts = {_SPLITS.get(str(name), str(name)): part for name, part in found.items()}
    if wanted is not None and wanted not in parts:
        raise InvigError(f"{path}: no split {wanted} in it; it has {', '.join(parts)}")
    for name, part in parts.items():
        if wanted in (None, name):
            yield from _table_rows(part, name, path)


def _table_rows(data: Any, name: str, folder: Path | None) -> Iterator[Row]:
    """Rows of a `datasets.Dataset`; pictures stay in the file until they are read."""
    if "image" in data.column_names:
        if type(data.features["image"]).__name__ == "Image":
            data = data.cast_column("image", type(data.features["image"])(decode=False))
        pictures = data.select_columns(["image"])
        for number, values in enumerate(data.remove_columns(["image"])):
            lazy = values | {"image": partial(_cell, pictures, number)}
            yield Row(f"{name}:{number}", lazy, folder)
    else:
        for number, values in enumerate(data):
            yield Row(f"{name}:{number}", values, folder)


def _cell(pictures: Any, number: int) -> Any:
    return pictures[number]["image"]


def find_picture(held: Any, folder: Path | None) -> Picture:
    """The picture of a row: a name in the folder, bytes, a PIL picture, or a mapping of these.

    held: any of them, or a function that reads it from the file. Raises BadRow or BadImageError.
    """
    value = _value(held)
    if isinstance(value, bytes):
        return Picture(image_size(value, _UNNAMED), partial(_decode_held, held))
    if isinstance(value, str):
        path = _inside(value, folder)
        return Picture(image_size(path, path.name), partial(load_image, path))
    raise BadRow("no image" if value is None else f"image is of type {type(value).__name__}")


_UNNAMED = "the picture in the file"


def _value(held: Any) -> Any:
    """A name or the bytes of a picture file, whichever way the row holds it."""
    value = held() if callable(held) else held
    if isinstance(value, Mapping):
        value = value.get("bytes") or value.get("path")
    if isinstance(value, Image.Image):
        content = io.BytesIO()
        value.convert("RGB").save(content, "PNG")
        value = content.getvalue()
    return bytes(value) if isinstance(value, bytearray) else value


def _decode_held(held: Any) -> npt.NDArray[np.uint8]:
    """Read again, so that no more than one picture at a time is in memory."""
    return decode_image(_value(held), _UNNAMED)


def _inside(name: str, folder: Path | None) -> Path:
    """The file that a name means, never outside the data's folder. Raises BadRow."""
    if folder is None:
        raise BadRow(f"image {name!r:.60} is a name, and the data set has no folder of images")
    relative = PurePosixPath(name)
    if not name.strip() or "\0" in name or "\\" in name:
        raise BadRow(f"image {name!r:.60} is no file name")
    if relative.is_absolute() or ".." in relative.parts:
        raise BadRow(f"image {name!r:.60} leaves the data's folder")
    tails = [relative, PurePosixPath(relative.name)]
    if relative.suffix.lower() not in _SUFFIXES:
        tails += [PurePosixPath(f"{relative}{suffix}") for suffix in _SUFFIXES]
    try:
        for place in _FOLDERS:
            base = (folder / place).resolve()
            for path in ((base / tail).resolve() for tail in tails):
                if path.is_file():
                    if base not in path.parents:  # a link inside the folder that points out of it
                        raise BadRow(f"image {name!r:.60} leaves the data's folder")
                    return path
    except (OSError, RuntimeError, ValueError):  # too long, a loop of links, no text in UTF-8
        raise BadRow(f"image {name!r:.60} is no file name") from None
    raise BadRow(f"no image {name!r:.60} in {folder}")
