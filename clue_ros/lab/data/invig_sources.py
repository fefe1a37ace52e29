"""Sources of InViG rows and pictures: JSON files, parquet files, saved data sets, and the hub.

JSON needs nothing beside this package. Parquet files, folders that `save_to_disk` wrote and hub ids
need Hugging Face `datasets`, which is imported only then. Nothing is unpickled and no code of a
data set is run.
"""

from __future__ import annotations

import importlib
import io
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.dialogue.reviews import SUFFIX
from clue_ros.errors import ClueError
from clue_ros.images import decode_image, image_size, load_image

Size = tuple[int, int]
"""Width and height in pixels."""
DATASETS = "datasets==5.2.0"
"""What `pip install` needs for parquet files and hub ids; setup.py's extra `invig` is the same."""

_SPLITS = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation",
           "dev": "validation", "test": "test"}  # fmt: skip
_SPLIT_WORD = re.compile(r"(?<![a-z])(train|validation|valid|val|dev|test)(?![a-z])")
_FOLDERS = ("", "images", "imgs", "image", "invig21k_imgs", "invig500k_imgs")
_SUFFIXES = (".jpg", ".jpeg", ".png")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class InvigError(ClueError):
    """There is no such data, or it cannot be used as a whole; the message says which and why."""

    code = "BAD_DATA"


class BadRow(Exception):
    """Why a row cannot be used."""


@dataclass(frozen=True)
class Row:
    """One row as it was found. where: file and row for messages. folder: of the pictures."""

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
    """All rows of a source, or of one split. A line that is no row is yielded as a problem.

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
    """JSON and parquet files in the folder, in its `data` and in folders named after splits.

    A person's reviews, in a folder of episodes, are none.
    """
    suffixes = {".json", ".jsonl", ".parquet"}
    places = [folder, *(sub for sub in sorted(folder.iterdir()) if sub.is_dir())]
    files = [path for place in places for path in sorted(place.iterdir())]
    found = [
        path
        for path in files
        if path.suffix in suffixes and path.is_file() and not path.name.endswith(SUFFIX)
    ]
    if not found:
        raise InvigError(f"{folder}: no .json, .jsonl or .parquet file in it")
    return found


def _split_of(path: Path, root: Path) -> str | None:
    """The split named by a file, or by a folder that holds it below `root`."""
    for name in (path.stem, *(p.name for p in path.parents if p != root and root in p.parents)):
        word = _SPLIT_WORD.search(name.lower())
        if word:
            return _SPLITS[word[0]]
    return None


def _file_rows(
    files: list[Path], root: Path, wanted: str | None, source: str
) -> Iterator[Row | str]:
    """Rows of the wanted split's files, and of those that name no split."""
    splits = {path: _split_of(path, root) for path in files}
    chosen = [path for path in files if wanted is None or splits[path] in (wanted, None)]
    if not chosen:
        there = ", ".join(sorted({name for name in splits.values() if name}))
        raise InvigError(f"{source}: no split {wanted} in it; it has {there}")
    for path in chosen:
        if path.suffix == ".parquet":
            name = str(path)
            data = _from_datasets(name, "load_dataset", "parquet", data_files=name, split="train")
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


def _from_datasets(source: str, function: str, *args: Any, **options: Any) -> Any:
    """Call a function of the package `datasets`; its failures become InvigError of one line."""
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        raise InvigError(
            f"{source}: this needs the Python package datasets, which cannot be imported here"
            f" ({error}): pip install {DATASETS}; JSON files need nothing"
        ) from None
    if not sys.stderr.isatty():
        datasets.disable_progress_bars()
    try:
        return getattr(datasets, function)(*args, **options)
    except Exception as error:  # noqa: BLE001 - any failure of the library means: no data
        raise InvigError(f"{source}: {_reason(source, error)}") from None


def _reason(source: str, error: Exception) -> str:
    """The cause of a failure in `datasets`, and its remedy."""
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
    found = _from_datasets(source, "load_dataset", source, split=wanted)
    parts = {wanted: found} if wanted is not None else dict(found)
    for name, part in parts.items():
        yield from _table_rows(part, str(name), None)


def _saved_rows(path: Path, wanted: str | None) -> Iterator[Row | str]:
    """A folder that `save_to_disk` of `datasets` wrote."""
    found = _from_datasets(str(path), "load_from_disk", str(path))
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
    pictures: Any = None
    if "image" in data.column_names:
        if type(data.features["image"]).__name__ == "Image":
            data = data.cast_column("image", type(data.features["image"])(decode=False))
        pictures, data = data.select_columns(["image"]), data.remove_columns(["image"])
    for number, values in enumerate(data):
        lazy = {} if pictures is None else {"image": partial(_cell, pictures, number)}
        yield Row(f"{name}:{number}", values | lazy, folder)


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
    """The name or the bytes of a picture file."""
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
    """The file of a name, never outside the data's folder. Raises BadRow."""
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
