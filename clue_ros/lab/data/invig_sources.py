"""Sources of InViG rows and pictures: JSON files, parquet files, saved data sets, and the hub.

JSON needs nothing beside this package. Parquet files, folders that `save_to_disk` wrote and hub ids
need Hugging Face `datasets`, which is imported only then. Nothing is unpickled and no code of a
data set is run.
"""

from __future__ import annotations

import codecs
import gzip
import importlib
import io
import json
import re
import shutil
import sys
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import IO, Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.dialogue.reviews import SUFFIX
from clue_ros.errors import ClueError
from clue_ros.images import decode_image, image_size, load_image
from clue_ros.lab.data.json_stream import NoRows, read_at, stream_rows
from clue_ros.requirements import missing

Size = tuple[int, int]
"""Width and height in pixels."""

_SPLITS = {"train": "train", "validation": "validation", "valid": "validation", "val": "validation",
           "dev": "validation", "test": "test"}  # fmt: skip
_SPLIT_WORD = re.compile(r"(?<![a-z])(train|validation|valid|val|dev|test)(?![a-z])")
_FOLDERS = ("", "images", "imgs", "image", "invig21k_imgs", "invig500k_imgs",
            "train2014", "val2014")  # fmt: skip
_REPORTS = ("report.json", "statistics.json")  # of `clue data generate` and `clue data stats`
_SUFFIXES = (".jpg", ".jpeg", ".png")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


class InvigError(ClueError):
    """The data are missing or unusable as a whole; the message has the reason."""

    code = "BAD_DATA"


class BadRow(Exception):
    """The reason why a row is unusable."""


@dataclass(frozen=True)
class Row:
    """A raw row.

    file: its source. part: its file, and the split within it, for messages. number: from
    0; in JSON lines the line's, from 1. start, length: its place for `RowFile.read`.
    """

    values: Any
    file: RowFile
    part: str
    number: int
    start: int = 0
    length: int = 0

    @property
    def where(self) -> str:
        """File and row, for messages."""
        return f"{self.part}:{self.number}"

    @property
    def folder(self) -> Path | None:
        """The folder of the pictures."""
        return self.file.folder


class RowFile(ABC):
    """A file or table of rows: read in order, one row in memory at a time, or one row again.

    folder: of the pictures; None where the rows hold them.
    """

    folder: Path | None

    @abstractmethod
    def rows(self) -> Iterator[Row | str]:
        """Yield all rows, and a problem for each other line. Raises InvigError."""

    @abstractmethod
    def read(self, number: int, start: int, length: int) -> Any:
        """The values of the row at this place. Raises InvigError. Safe in threads."""


@dataclass(frozen=True)
class RowInMemory(RowFile):
    """A row that was read already. part: its source, for messages."""

    values: Any
    folder: Path | None
    part: str

    def rows(self) -> Iterator[Row | str]:
        """The row."""
        yield Row(self.values, self, self.part, 0)

    def read(self, number: int, start: int, length: int) -> Any:
        """Its values."""
        return self.values


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
    """All rows of a source, or of one split, one after the other. See `row_files`."""
    for file in row_files(source, split):
        yield from file.rows()


def row_files(source: str | Path, split: str | None) -> Iterator[RowFile]:
    """Return the files and tables of a source, or of one split. Raises InvigError."""
    wanted = None if split is None else split_name(split)
    path = Path(source)
    if not path.exists():
        return _hub_tables(str(source), wanted)
    if path.is_file():
        return _chosen_files([path], path.parent, wanted, str(source))
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        return _saved_tables(path, wanted)
    return _chosen_files(_data_files(path), path, wanted, str(source))


def _data_files(folder: Path) -> list[Path]:
    """JSON and parquet files in the folder, in its `data` and in folders named after splits.

    A person's reviews, in a folder of episodes, are none.
    """
    suffixes = (".json", ".jsonl", ".jsonl.gz", ".parquet")
    places = [folder, *(sub for sub in sorted(folder.iterdir()) if sub.is_dir())]
    files = [path for place in places for path in sorted(place.iterdir())]
    found = [
        path
        for path in files
        if path.name.endswith(suffixes)
        and path.name not in _REPORTS
        and not path.name.endswith(SUFFIX)
        and path.is_file()
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


def _chosen_files(
    files: list[Path], root: Path, wanted: str | None, source: str
) -> Iterator[RowFile]:
    """Return the wanted split's files, and files without a split in their names."""
    splits = {path: _split_of(path, root) for path in files}
    chosen = [path for path in files if wanted is None or splits[path] in (wanted, None)]
    if not chosen:
        there = ", ".join(sorted({name for name in splits.values() if name}))
        raise InvigError(f"{source}: no split {wanted} in it; it has {there}")
    for path in chosen:
        if path.suffix == ".parquet":
            name = str(path)
            data = _from_datasets(name, "load_dataset", "parquet", data_files=name, split="train")
            yield TableRows(data, path.name, root)
        elif path.name.endswith((".jsonl", ".jsonl.gz")):
            yield JsonLines(path, root)
        elif path.suffix == ".json":
            yield JsonLists(path, root, wanted)
        else:
            raise InvigError(f"{path}: want a .json, .jsonl, .jsonl.gz or .parquet file")


class _JsonFile(RowFile):
    """A file whose rows are read again by their offset in bytes.

    It stays open. A compressed file is unpacked into a nameless temporary file at the first `read`.
    """

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder = path, folder
        self._again: IO[bytes] | None = None
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Another process opens the file itself."""
        return type(self), (self.path, self.folder)

    def read(self, number: int, start: int, length: int) -> Any:
        """See `RowFile.read`."""
        try:
            with self._lock:
                if self._again is None:
                    self._again = self._open_again()
            return read_at(self._again.fileno(), start, length)
        except (OSError, EOFError, ValueError, RecursionError) as error:
            raise InvigError(f"{self.path}: row {number} cannot be read again: {error}") from None

    def _open_again(self) -> IO[bytes]:
        if self.path.suffix != ".gz":
            return self.path.open("rb")
        unpacked = tempfile.TemporaryFile()  # noqa: SIM115 - stays open
        with self._open() as packed:
            shutil.copyfileobj(packed, unpacked, 1 << 20)
        unpacked.flush()
        return unpacked

    def _open(self) -> IO[bytes]:
        if self.path.suffix == ".gz":
            return cast("IO[bytes]", gzip.open(self.path, "rb"))
        return self.path.open("rb")


class JsonLists(_JsonFile):
    """A list of rows, or an object with a list for each split. wanted: the split, None for all."""

    def __init__(self, path: Path, folder: Path, wanted: str | None = None) -> None:
        super().__init__(path, folder)
        self._wanted = wanted

    def __reduce__(self) -> tuple[Any, ...]:
        """See `_JsonFile`."""
        return type(self), (self.path, self.folder, self._wanted)

    def rows(self) -> Iterator[Row | str]:
        """See `RowFile.rows`."""
        parts: list[str] = []
        no_rows = InvigError(f"{self.path}: want a list of rows, or a list for each split")
        try:
            with self._open() as file:
                for row in stream_rows(cast("BinaryIO", file)):
                    if row.part not in parts:
                        parts.append(row.part)
                    if row.part and row.part not in _SPLITS:
                        raise no_rows
                    if row.part and self._wanted not in (None, _SPLITS[row.part]):
                        continue
                    part = f"{self.path.name}:{row.part}" if row.part else self.path.name
                    yield Row(row.values, self, part, row.number, row.start, row.length)
        except (OSError, UnicodeDecodeError) as error:
            raise InvigError(f"{self.path} cannot be read: {error}") from None
        except NoRows:
            raise no_rows from None
        except (ValueError, RecursionError) as error:
            raise InvigError(f"{self.path} is not JSON: {error}") from None
        named = {_SPLITS[part] for part in parts if part}
        if named and self._wanted is not None and self._wanted not in named:
            there = ", ".join(parts)
            raise InvigError(f"{self.path}: no split {self._wanted} in it; it has {there}")


class JsonLines(_JsonFile):
    """A row a line."""

    def rows(self) -> Iterator[Row | str]:
        """See `RowFile.rows`."""
        start = 0
        try:
            with self._open() as file:
                for number, line in enumerate(file, start=1):
                    begin, start = start, start + len(line)
                    if number == 1 and line.startswith(codecs.BOM_UTF8):
                        line, begin = line[len(codecs.BOM_UTF8) :], begin + len(codecs.BOM_UTF8)
                    if not line.strip():
                        continue
                    text = line.decode()
                    try:
                        values = json.loads(text)
                    except (ValueError, RecursionError) as error:
                        yield f"{self.path.name}:{number}: not JSON: {error}"
                    else:
                        yield Row(values, self, self.path.name, number, begin, len(line))
        except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
            raise InvigError(f"{self.path} cannot be read: {error}") from None


class TableRows(RowFile):
    """A `datasets.Dataset`; pictures stay in the file until they are read."""

    def __init__(self, data: Any, name: str, folder: Path | None) -> None:
        self.folder, self._name = folder, name
        self._pictures: Any = None
        if "image" in data.column_names:
            if type(data.features["image"]).__name__ == "Image":
                data = data.cast_column("image", type(data.features["image"])(decode=False))
            self._pictures, data = data.select_columns(["image"]), data.remove_columns(["image"])
        self._data = data

    def rows(self) -> Iterator[Row | str]:
        """See `RowFile.rows`."""
        for number, values in enumerate(self._data):
            yield Row(values | self._lazy(number), self, self._name, number)

    def read(self, number: int, start: int, length: int) -> Any:
        """See `RowFile.read`."""
        return self._data[number] | self._lazy(number)

    def _lazy(self, number: int) -> dict[str, Any]:
        return {} if self._pictures is None else {"image": partial(self._cell, number)}

    def _cell(self, number: int) -> Any:
        return self._pictures[number]["image"]


def _from_datasets(source: str, function: str, *args: Any, **options: Any) -> Any:
    """Call a function of the package `datasets`; its failures become InvigError of one line."""
    try:
        datasets = importlib.import_module("datasets")
    except ImportError as error:
        reason = missing("datasets", f"{source}: this (not a JSON file)")
        raise InvigError(f"{reason} ({error})") from None
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


def _hub_tables(source: str, wanted: str | None) -> Iterator[RowFile]:
    if not _HUB_ID.fullmatch(source):
        raise InvigError(f"{source}: no such file or folder, and no hub id such as jxu124/invig")
    found = _from_datasets(source, "load_dataset", source, split=wanted)
    parts = {wanted: found} if wanted is not None else dict(found)
    for name, part in parts.items():
        yield TableRows(part, str(name), None)


def _saved_tables(path: Path, wanted: str | None) -> Iterator[RowFile]:
    """A folder that `save_to_disk` of `datasets` wrote."""
    found = _from_datasets(str(path), "load_from_disk", str(path))
    if not isinstance(found, dict):
        yield TableRows(found, path.name, path)
        return
    parts = {_SPLITS.get(str(name), str(name)): part for name, part in found.items()}
    if wanted is not None and wanted not in parts:
        raise InvigError(f"{path}: no split {wanted} in it; it has {', '.join(parts)}")
    for name, part in parts.items():
        if wanted in (None, name):
            yield TableRows(part, name, path)


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
    """Decode the picture at each call, so that only one at a time is in memory."""
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
