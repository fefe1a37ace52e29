"""The words of IT2P's question files, read without unpickling anything.

``question_ambiguous/0000.npz`` holds one NumPy object array, which NumPy can only load by
unpickling, and unpickling runs whatever the file says. The array is a plain ``{command: [words]}``,
so the pickle's instructions are listed with :func:`pickletools.genops`, which executes nothing, and
only those that build strings, lists and dictionaries are followed. Anything else is carried along
as an inert placeholder.
"""

from __future__ import annotations

import pickletools
import zipfile
from pathlib import Path
from typing import Any, cast

from clue_ros.errors import ClueError

_MAX_BYTES = 1 << 20  # the real files hold a few hundred bytes
_STRINGS = {
    "STRING", "BINSTRING", "SHORT_BINSTRING",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
}  # fmt: skip


class It2pError(ClueError):
    """A file of the data set is missing or is not what its name says; the message names it."""

    code = "BAD_DATA"


class _Mark:
    """Where the items of a list, tuple or dictionary begin on the stack."""


class _Inert:
    """Something the pickle would have constructed: it is never made, its place is kept."""

    def __init__(self, parts: tuple[Any, ...] = ()) -> None:
        self.parts = parts


def read_question_words(path: Path) -> dict[str, tuple[str, ...]]:
    """Read ``{command: words}`` from a ``question_*.npz`` file of IT2P.

    Commands and words are stripped of surrounding blanks.

    Raises:
        It2pError: the file cannot be read, or does not hold exactly one such dictionary.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if len(names) != 1 or not names[0].endswith(".npy"):
                raise It2pError(f"{path}: expected one .npy array inside, found {names}")
            if archive.getinfo(names[0]).file_size > _MAX_BYTES:
                raise It2pError(f"{path}: the array inside is larger than {_MAX_BYTES} bytes")
            payload = _pickle_part(archive.read(names[0]))
        value = _follow(payload)
    except It2pError:
        raise
    except (OSError, zipfile.BadZipFile) as error:
        raise It2pError(f"{path}: not a readable .npz file ({error})") from error
    except (ValueError, IndexError, KeyError, TypeError, AttributeError, UnicodeError) as error:
        raise It2pError(f"{path}: not an array of command and words ({error})") from error
    return _one_dictionary(value, path)


def _pickle_part(data: bytes) -> bytes:
    """Bytes after the header of a version 1 to 3 .npy file of one object."""
    if data[:6] != b"\x93NUMPY":
        raise ValueError("no .npy header")
    width = 2 if data[6] == 1 else 4
    start = 8 + width + int.from_bytes(data[8 : 8 + width], "little")
    if b"'|O'" not in data[8:start]:
        raise ValueError("not an object array")
    return data[start:]


def _follow(payload: bytes) -> Any:
    """Rebuild the strings, lists, tuples and dictionaries of a pickle, executing nothing."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}
    for opcode, value, _ in pickletools.genops(payload):
        name, argument = opcode.name, cast(Any, value)
        if name in _STRINGS:
            stack.append(argument)
        elif name in ("EMPTY_LIST", "LIST"):
            stack.append([] if name == "EMPTY_LIST" else _since_mark(stack))
        elif name == "EMPTY_DICT":
            stack.append({})
        elif name == "MARK":
            stack.append(_Mark())
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            memo[int(argument)] = stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            stack.append(memo[int(argument)])
        elif name == "APPEND":
            item = stack.pop()
            stack[-1].append(item)
        elif name == "APPENDS":
            items = _since_mark(stack)
            stack[-1].extend(items)
        elif name == "SETITEM":
            item, key = stack.pop(), stack.pop()
            stack[-1][key] = item
        elif name in ("SETITEMS", "DICT"):
            items = _since_mark(stack)
            if name == "DICT":
                stack.append({})
            stack[-1].update(zip(items[::2], items[1::2], strict=True))
        elif name == "TUPLE":
            stack.append(tuple(_since_mark(stack)))
        elif name == "EMPTY_TUPLE":
            stack.append(())
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            stack.append(tuple(_pop(stack, int(name[-1]))))
        elif name in ("REDUCE", "NEWOBJ", "BUILD", "STACK_GLOBAL"):
            stack.append(_Inert(tuple(_pop(stack, 2))))
        elif name == "POP":
            stack.pop()
        elif name not in ("PROTO", "FRAME", "STOP"):
            stack.append(_Inert())
    if len(stack) != 1:
        raise ValueError(f"{len(stack)} values are left where one was expected")
    return stack[0]


def _pop(stack: list[Any], count: int) -> list[Any]:
    if len(stack) < count:
        raise ValueError("an instruction lacks its arguments")
    items = stack[-count:]
    del stack[-count:]
    return items


def _since_mark(stack: list[Any]) -> list[Any]:
    for index in range(len(stack) - 1, -1, -1):
        if isinstance(stack[index], _Mark):
            items = stack[index + 1 :]
            del stack[index:]
            return items
    raise ValueError("an instruction lacks its mark")


def _dictionaries(value: Any) -> list[dict[Any, Any]]:
    if isinstance(value, dict):
        return [value]
    parts = value.parts if isinstance(value, _Inert) else value
    if isinstance(parts, list | tuple):
        return [found for part in parts for found in _dictionaries(part)]
    return []


def _one_dictionary(value: Any, path: Path) -> dict[str, tuple[str, ...]]:
    found = _dictionaries(value)
    if len(found) != 1:
        raise It2pError(f"{path}: expected one dictionary of commands, found {len(found)}")
    words: dict[str, tuple[str, ...]] = {}
    for command, entry in found[0].items():
        if not isinstance(command, str) or not isinstance(entry, list):
            raise It2pError(f"{path}: an entry is not a command with a list of words")
        if not all(isinstance(word, str) for word in entry):
            raise It2pError(f"{path}: the words of {command.strip()!r} are not all text")
        words[command.strip()] = tuple(word.strip() for word in entry)
    return words
