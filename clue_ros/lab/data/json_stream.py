"""JSON files of any size, row by row, with the place of each row so that it can be read again.

`JsonSpool` keeps a command's values on disk.

A file is a list of rows, or an object with a list of rows for each split. One chunk and one row are
in memory at a time. A row's place is its offset and length in bytes, for `read_at`. Streaming
parsers give no offsets, so this runs `json.JSONDecoder.raw_decode` over chunks.
"""

from __future__ import annotations

import codecs
import json
import os
import tempfile
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

CHUNK = 1 << 20
"""Bytes read at a time."""
MAX_ROW = 1 << 26
"""Characters of a row at most."""
_SPACE = " \t\r\n"
_AFTER = frozenset(f"{_SPACE},]}}:")
_MARGIN = 16  # characters; an error this near to the end may be a value that is cut off


@dataclass(frozen=True)
class JsonRow:
    """A row. part: the key of its list, "" for a file that is one list. start, length: bytes."""

    part: str
    number: int
    values: Any
    start: int
    length: int


def read_at(descriptor: int, start: int, length: int) -> Any:
    """The JSON value at a place of an open file; safe in threads. Raises OSError, ValueError."""
    return json.loads(os.pread(descriptor, length, start))


def stream_rows(file: BinaryIO) -> Iterator[JsonRow]:
    """The rows of a file that is open for reading bytes, at its start.

    Raises ValueError: no JSON in UTF-8, or neither a list nor an object of lists. The rows before
    the place of the error have been yielded.
    """
    text = _Text(file)
    first = text.peek()
    if first == "[":
        yield from _list(text, "")
    elif first == "{":
        yield from _lists(text)
    else:
        text.value()  # an error of syntax, if it is one
        raise NoRows("")
    if text.peek():
        raise ValueError(f"something follows the rows at byte {text.position}")


class NoRows(ValueError):
    """The file, or its part with this key, is no list of rows."""


def _lists(text: _Text) -> Iterator[JsonRow]:
    text.take("{")
    while True:
        key, _, _ = text.value()
        if not isinstance(key, str):
            raise ValueError(f"an object's key is no text at byte {text.position}")
        text.take(":")
        if text.peek() != "[":
            raise NoRows(key)
        yield from _list(text, key)
        if text.take(",", "}") == "}":
            return


def _list(text: _Text, part: str) -> Iterator[JsonRow]:
    text.take("[")
    if text.peek() == "]":
        text.take("]")
        return
    number = 0
    while True:
        value, start, length = text.value()
        yield JsonRow(part, number, value, start, length)
        number += 1
        if text.take(",", "]") == "]":
            return


class JsonSpool:
    """JSON values in a nameless temporary file, with 8 bytes each in memory for their places.

    Not safe in threads.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the spool
        self._ends = array("q", [0])

    def append(self, value: Any) -> None:
        """Add a value at the end."""
        size = self._file.write(json.dumps(value).encode())
        self._ends.append(self._ends[-1] + size)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[Any]:
        return (self[position] for position in range(len(self)))

    def __getitem__(self, position: int) -> Any:
        """A value, read again."""
        number = range(len(self))[position]
        self._file.flush()
        start = self._ends[number]
        return read_at(self._file.fileno(), start, self._ends[number + 1] - start)


class _Text:
    """The text of a file from the position on; the part before it is dropped."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._decode = codecs.getincrementaldecoder("utf-8")().decode
        self._json = json.JSONDecoder()
        self._held, self._at, self._ended = "", 0, False
        self.position = 0  # in bytes
        while not self._held and self._more():
            pass
        if self._held.startswith("\ufeff"):
            self._advance(1)

    def _more(self, size: int = CHUNK) -> bool:
        """Read on; False at the end of the file."""
        if self._ended:
            return False
        data = self._file.read(size)
        self._ended = not data
        self._held = self._held[self._at :] + self._decode(data, self._ended)
        self._at = 0
        return not self._ended

    def _advance(self, count: int) -> int:
        """Go on by some characters; the number of their bytes."""
        passed = self._held[self._at : self._at + count]
        size = len(passed) if passed.isascii() else len(passed.encode())
        self._at += count
        self.position += size
        return size

    def peek(self) -> str:
        """The next character that is no space; "" at the end."""
        while True:
            count = 0
            while self._at + count < len(self._held) and self._held[self._at + count] in _SPACE:
                count += 1
            self._advance(count)
            if self._at < len(self._held):
                return self._held[self._at]
            if not self._more():
                return ""

    def take(self, *wanted: str) -> str:
        """Pass over one of the wanted characters."""
        found = self.peek()
        if found not in wanted:
            what = f"{found!r}" if found else "the end"
            raise ValueError(f"want {' or '.join(wanted)} at byte {self.position}, found {what}")
        self._advance(1)
        return found

    def value(self) -> tuple[Any, int, int]:
        """The next value, with its offset and length in bytes."""
        self.peek()
        size = CHUNK
        while True:
            try:
                value, end = self._json.raw_decode(self._held, self._at)
            except json.JSONDecodeError as error:
                cut = error.msg.startswith("Unterminated") or error.pos > len(self._held) - _MARGIN
                if len(self._held) - self._at > MAX_ROW:
                    raise ValueError(f"a row is too long at byte {self.position}") from None
                if not cut or not self._more(size):
                    reason = f"{error.msg} in the row at byte {self.position}"
                    raise ValueError(reason) from None
            else:
                count, after = end - self._at, self._held[end : end + _MARGIN]
                # A number may go on in the next chunk.
                if after[:1] in _AFTER or len(after) == _MARGIN or not self._more(size):
                    start = self.position
                    return value, start, self._advance(count)
            size *= 2
