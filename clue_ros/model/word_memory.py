# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The word memory: objects that a person showed and named, one file each in a folder.

A file `stapler.safetensors` holds a word's names, and of each example the box, the frozen features
of the object's patches and of some around it, a thumbnail, the date and who showed it. The names
stand in the file's header as JSON. Files can be copied from one folder to another, and two folders
merged. `clue_ros.model.taught` finds the words in pictures.

Features are those of one vision tower: a memory says which, and another tower's is refused. What
another process writes into the folder is read at the next use.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.candidates import SAME_OBJECT
from clue_ros.dialogue.object_names import best_named
from clue_ros.dialogue.types import Box, clean_text
from clue_ros.dialogue.words import DETERMINERS, plain
from clue_ros.errors import (
    BadBoxError,
    BadNameError,
    ClueError,
    ClueWarning,
    UnknownNameError,
    WordMemoryError,
)
from clue_ros.files import replace_file
from clue_ros.model.config import read_config
from clue_ros.model.details import fine_side
from clue_ros.model.loading import find_base, read_weights
from clue_ros.model.tensors import Mapped, read_metadata, read_tensors, tensor_bytes

FORMAT, VERSION = "clue_word", 1
SUFFIX = ".safetensors"
MOST_NAME = 100  # characters
MOST_EXAMPLES = 12  # of a word; a further one takes the place of the oldest
WORDS = "words"  # in a model's folder: what it was taught (`clue adapt`)
_TOWER = "vision_tower."
_STEM = (
    f"{_TOWER}embeddings.patch_embedding.first.",
    f"{_TOWER}embeddings.patch_embedding.stages.",
)
Rows = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Example:
    """An object as it was shown once.

    box: in fractions of the picture. aspect: the picture's width over its height. inside (n, C) and
    around (m, C): directions of patch features in the box and outside of it, int8 (`packed`).
    picture: the start of the pixels' SHA-256. date: ISO 8601. who: showed it, may be empty.
    thumbnail: the object as a JPEG.
    """

    box: Box
    aspect: float
    inside: Rows
    around: Rows
    picture: str
    date: str
    who: str
    thumbnail: bytes

    def is_of(self, other: Example) -> bool:
        """Whether both have the same box in the same picture."""
        return self.picture == other.picture and self.box.iou(other.box) >= SAME_OBJECT


@dataclass(frozen=True)
class Word:
    """A thing that was taught. other_names: what it is called besides."""

    name: str
    other_names: tuple[str, ...] = ()
    examples: tuple[Example, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All of its names, the first one first."""
        return (self.name, *self.other_names)


def packed(features: npt.NDArray[np.float32]) -> Rows:
    """Rows (n, C) as int8, each by its own largest value: the directions stay, lengths are lost."""
    most = np.abs(features).max(1, keepdims=True)
    return np.asarray(np.round(features * (127 / np.maximum(most, 1e-9))), np.int8)


def unpacked(rows: Rows) -> npt.NDArray[np.float32]:
    """Rows of `packed` as float32 of unit length."""
    found = rows.astype(np.float32)
    return np.asarray(found / np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-6))


def default_folder(tower: str) -> Path:
    """Where a model's words are kept: clue_ros/words in the user's data folder, by its tower."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "clue_ros" / "words" / tower[:12]


def clean_name(name: str) -> str:
    """A name in lower case, without an article and punctuation. Raises BadNameError.

    >>> clean_name("The red Stapler.")
    'red stapler'
    """
    try:
        said = plain(clean_text(name)).split()
    except ClueError as error:
        raise BadNameError(f"{error}; a name is what people call the thing: stapler") from error
    while said and said[0] in DETERMINERS:
        said.pop(0)
    found = " ".join(said)
    if not found:
        raise BadNameError(f"{name!r} names nothing: say what the thing is called, such as stapler")
    if len(found) > MOST_NAME:
        raise BadNameError(f"the name has {len(found)} characters, at most {MOST_NAME} are allowed")
    return found


class WordMemory:
    """The words in a folder; None: they are kept while the program runs.

    tower: names the vision tower that their features are of. words: by their first names, in the
    order of these. changes: how often they have changed. Not thread-safe: its owner calls it under
    one lock. A damaged file is left out with a warning, and left alone.

    It raises WordMemoryError for a folder that cannot be read or written, and for one of another
    tower.
    """

    def __init__(self, folder: str | Path | None, tower: str) -> None:
        self.folder = None if folder is None else Path(folder).expanduser()
        self.tower = tower
        self.words: dict[str, Word] = {}
        self.changes = 0
        self._files: dict[str, tuple[int, int, int]] = {}  # as they were read
        self.refresh()

    def word(self, name: str) -> Word:
        """The word of this name. Raises UnknownNameError, and BadNameError for several."""
        found = self._called(clean_name(name))
        if not found:
            known = ", ".join(self.words) or "nothing yet"
            raise UnknownNameError(f"no {clean_name(name)!r} was taught; known: {known}")
        if len(found) > 1:
            raise BadNameError(
                f"{clean_name(name)!r} means several: {', '.join(w.name for w in found)}; use these"
            )
        return found[0]

    def meant(self, noun: str) -> tuple[Word, ...]:
        """The words that a person's noun names best, in lower case; none where no name fits.

        All that have the noun as a name; else those whose names it fits by the rules for detectors'
        labels ("clamps", "black stapler").
        """
        exact = self._called(noun)
        if exact or not noun:
            return exact
        pairs = [(name, word) for word in self.words.values() for name in word.names]
        best = best_named(noun, [name for name, _ in pairs])
        return tuple({pairs[place][1].name: pairs[place][1] for place in best}.values())

    def _called(self, name: str) -> tuple[Word, ...]:
        first = self.words.get(name)
        if first is not None:
            return (first,)
        return tuple(word for word in self.words.values() if name in word.other_names)

    # Changes.

    def add(self, name: str, example: Example, *, instead: bool = False) -> Word:
        """Let an example be of this name; a new word, or one more example of a known one.

        instead: the same box is no longer an example of another word. Without it a box that has
        another name raises BadBoxError.
        """
        name = clean_name(name)
        word = self.word(name) if self._called(name) else Word(name)
        for other in [*self.words.values()]:
            same = [known for known in other.examples if known.is_of(example)]
            if other.name == word.name or not same:
                continue
            if not instead:
                raise BadBoxError(
                    f"this box was taught as {other.name!r}: it cannot be {name!r} too. Forget that"
                    f" first, or give {other.name!r} another name"
                )
            kept = tuple(known for known in other.examples if known not in same)
            self._write(replace(other, examples=kept)) if kept else self._remove(other)
        kept = tuple(known for known in word.examples if not known.is_of(example))
        word = replace(word, examples=(*kept, example)[-MOST_EXAMPLES:])
        self._write(word)
        return word

    def call(self, name: str, other: str) -> Word:
        """Give a word another name beside those that it has. Raises UnknownNameError."""
        word, other = self.word(name), clean_name(other)
        if other in self.words and other != word.name:
            raise BadNameError(
                f"{other!r} was taught as another thing: forget or rename that first"
            )
        if other not in word.names:
            word = replace(word, other_names=(*word.other_names, other))
            self._write(word)
        return word

    def rename(self, name: str, new: str) -> Word:
        """Let a word have another first name. Raises UnknownNameError, BadNameError."""
        word, new = self.word(name), clean_name(new)
        if new in self.words and new != word.name:
            raise BadNameError(f"{new!r} was taught as another thing: forget that first")
        others = tuple(other for other in word.other_names if other != new)
        renamed = replace(word, name=new, other_names=others)
        self._write(renamed)
        if new != word.name:
            self._remove(word)
        return renamed

    def forget(self, name: str) -> Word:
        """Remove a word with all of its examples, and return it. Raises UnknownNameError."""
        word = self.word(name)
        self._remove(word)
        return word

    def merge(self, folder: str | Path) -> tuple[Word, ...]:
        """Take the words of another folder in; those that were new or got examples.

        A word that is in both has the examples of both. A box that has another name here is left
        out with a warning.
        """
        place = Path(folder).expanduser()
        if not place.is_dir():
            raise WordMemoryError(f"there is no folder {place} of taught words")
        other = WordMemory(place, self.tower)
        if not other.words:
            raise WordMemoryError(f"{place} has no taught words (files NAME{SUFFIX})")
        changed = {}
        for word in other.words.values():
            for example in word.examples:
                known = self._called(word.name)
                if known and any(example.is_of(own) for own in known[0].examples):
                    continue
                try:
                    changed[word.name] = self.add(word.name, example)
                except ClueError as error:
                    _warn(f"{place}: an example of {word.name!r} is left out: {error}")
            for name in word.other_names:
                if self._called(word.name) and not self._called(name):
                    changed[word.name] = self.call(word.name, name)
        return tuple(changed.values())

    # Files.

    def refresh(self) -> bool:
        """Read what another process has changed in the folder; whether there is any word."""
        if self.folder is None:
            return bool(self.words)
        found = {}
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if entry.name.endswith(SUFFIX) and not entry.name.startswith("."):
                        state = entry.stat()
                        found[entry.name] = state.st_mtime_ns, state.st_size, state.st_ino
        except FileNotFoundError:
            pass
        except OSError as error:
            raise WordMemoryError(
                f"cannot read the taught words in {self.folder}: {error.strerror}"
            ) from error
        if found == self._files:
            return bool(self.words)
        words = [self._read(self.folder / name) for name in sorted(found)]
        kept = [word for word in words if word is not None]
        self.words = {word.name: word for word in sorted(kept, key=lambda word: word.name)}
        self._files = found
        self.changes += 1
        return bool(self.words)

    def _read(self, path: Path) -> Word | None:
        """The word in a file; None, with a warning, where it is damaged."""
        try:
            described = json.loads(read_metadata(path)[FORMAT])
            tower, version = described["tower"], described["version"]
            word = None
            if (tower, version) == (self.tower, VERSION):
                word = _word_of(described, {n: t.values for n, t in read_tensors(path).items()})
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            _warn(f"{path} is damaged ({type(error).__name__}: {error}): it is left out; teach it")
            return None
        if word is None:
            raise WordMemoryError(
                f"{path} was taught with another vision tower ({str(tower)[:12]}) than this model's"
                f" ({self.tower[:12]}): use another folder (memory), and teach it there"
            )
        return word

    def _write(self, word: Word) -> None:
        if self.folder is None:
            self.words = dict(sorted({**self.words, word.name: word}.items()))
            self.changes += 1
            return
        path = self.folder / file_name(word.name)
        if path.exists() and word.name not in self.words:
            raise WordMemoryError(f"{path} is there and cannot be read: move it away first")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            replace_file(path, b"".join(tensor_bytes(*_tensors_of(word, self.tower))))
        except OSError as error:
            raise WordMemoryError(
                f"cannot write {path}: {error.strerror}: choose another folder (memory)"
            ) from error
        self.refresh()

    def _remove(self, word: Word) -> None:
        if self.folder is None:
            self.words = {name: kept for name, kept in self.words.items() if name != word.name}
            self.changes += 1
            return
        try:
            (self.folder / file_name(word.name)).unlink(missing_ok=True)
        except OSError as error:
            raise WordMemoryError(f"cannot remove {word.name!r}: {error.strerror}") from error
        self.refresh()


def file_name(name: str) -> str:
    """The file of a name: its letters and digits, and a hash where these do not tell it apart."""
    simple = re.sub(r"[^\w-]", "_", name)
    if simple == name.replace(" ", "_") and "_" not in name and len(simple.encode()) < 200:
        return f"{simple}{SUFFIX}"
    return f"{simple[:40]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}{SUFFIX}"


def _warn(text: str) -> None:
    warnings.warn(text, ClueWarning, stacklevel=3)


def _tensors_of(word: Word, tower: str) -> tuple[dict[str, Mapped], dict[str, str]]:
    """A word as tensors, and the texts of the file's header."""
    tensors, rows = {}, []
    for place, example in enumerate(word.examples):
        tensors[f"{place}.inside"] = Mapped("I8", example.inside)
        tensors[f"{place}.around"] = Mapped("I8", example.around)
        thumbnail = np.frombuffer(example.thumbnail, np.int8)
        tensors[f"{place}.thumbnail"] = Mapped("I8", thumbnail)
        texts = {name: getattr(example, name) for name in ("aspect", "picture", "date", "who")}
        rows.append({"box": example.box.as_list(), **texts})
    described = {
        "version": VERSION,
        "tower": tower,
        "name": word.name,
        "other_names": list(word.other_names),
        "examples": rows,
    }
    return tensors, {FORMAT: json.dumps(described)}


def _word_of(described: dict[str, Any], tensors: dict[str, Rows]) -> Word:
    """The word of a file's header and tensors. Raises ValueError, KeyError and TypeError."""
    examples = tuple(
        _example_of(row, [tensors[f"{place}.{part}"] for part in ("inside", "around", "thumbnail")])
        for place, row in enumerate(described["examples"])
    )
    widths = {part.shape[1] for example in examples for part in (example.inside, example.around)}
    if len(widths) != 1:
        raise ValueError("its features do not fit one another")
    name, others = described["name"], described["other_names"]
    if clean_name(name) != name or any(clean_name(other) != other for other in others):
        raise ValueError("its names are no names")
    return Word(name, tuple(others), examples)


def _example_of(row: dict[str, Any], parts: Sequence[Rows]) -> Example:
    inside, around, thumbnail = (np.array(part) for part in parts)
    box, aspect = Box(*map(float, row["box"])), float(row["aspect"])
    if not (0 <= box.x_min < box.x_max <= 1 and 0 <= box.y_min < box.y_max <= 1 and aspect > 0):
        raise ValueError("an example's box is none")
    if inside.ndim != 2 or around.ndim != 2 or not len(inside) or inside.dtype != np.int8:
        raise ValueError("an example has no features")
    picture, date, who = (str(row[name]) for name in ("picture", "date", "who"))
    return Example(box, aspect, inside, around, picture, date, who, thumbnail.tobytes())


def all_examples(words: Sequence[Word]) -> Iterator[tuple[int, Example]]:
    """Every example with the place of its word."""
    for place, word in enumerate(words):
        for example in word.examples:
            yield place, example


def tower_of(base: Path) -> str:
    """Names the network whose features a memory holds: a hash of its weights in a base's folder.

    Raises ModelError.
    """
    vision = read_config(base).vision_config
    sizes = getattr(vision, "conv_stem", None)
    whole = hashlib.sha256(
        repr(fine_side(sizes) if sizes is not None else vision.image_size).encode()
    )
    for name, tensor in sorted(read_weights(base).items()):
        if name.startswith(_STEM if sizes is not None else _TOWER):
            # The first bytes tell one training from another; all of a large tower takes seconds.
            start = np.ascontiguousarray(tensor.values.reshape(-1)[:1024]).tobytes()
            whole.update(f"{name} {tensor.shape} {tensor.kind}".encode() + start)
    return whole.hexdigest()


def open_memory(folder: str | Path | None, model: Path) -> WordMemory:
    """The memory in a folder, for the model in another one.

    folder: None: that of the model (WORDS), if it has one, else the user's own; "": in none. Raises
    WordMemoryError and ModelError.
    """
    tower = tower_of(find_base(model))
    if folder is None:
        folder = model / WORDS if (model / WORDS).is_dir() else default_folder(tower)
    return WordMemory(folder or None, tower)
