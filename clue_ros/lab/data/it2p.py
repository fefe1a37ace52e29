"""IT2P: photographs of coloured blocks on a black table, with commands and clarifying words.

One of the data sets that the paper trains and tests on, in the layout its authors published::

    ROOT/data/train_img/0000.jpg            250 x 250 photographs
    ROOT/data/train_script/0000.txt         clear commands:      "x y command"
    ROOT/data/script_ambiguous/0000.txt     ambiguous commands:  "command"
    ROOT/data/question_ambiguous/0000.npz   {command: words that would settle it}
    ROOT/data/question_certain/0000.npz     {command: ["this"]}
    ROOT/data/test_simulator/0000.txt       dialogues: "x,y,command,colour,position words"

Nothing is dropped in silence: an unreadable row becomes a :class:`Problem` with its file and line,
and so does a command that the data set calls both clear and ambiguous (both are kept).
Points are (x, y) in pixels of the photograph, x to the right, y down. The data set has no boxes:
`it2p_boxes` estimates them.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import pickle
import pickletools
import re
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from clue_ros.errors import ClueError

Point = tuple[float, float]
"""(x, y) in pixels of the photograph, x to the right, y down."""
SPLITS = ("train", "val", "test")
VARIABLE = "CLUE_IT2P"
"""Environment variable that names the data set's folder."""
BLOCK_COLORS = ("red", "green", "blue", "yellow", "purple")
MERGE_PX = 12.0
"""Annotated points nearer to one another than this are one block (blocks are 32 px or wider)."""
_SUFFIXES = {".jpg", ".jpeg", ".png"}


class It2pError(ClueError):
    """A file of the data set is missing or malformed; the message names it."""

    code = "BAD_DATA"


@dataclass(frozen=True)
class Problem:
    """A row or file that breaks the layout. line: from 1; 0 is the whole file."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass(frozen=True)
class Block:
    """One annotated block: the mean of its points, and its colour where a command names it."""

    point: Point
    color: str | None


@dataclass(frozen=True)
class ClearCommand:
    """A clear command and the point of the one block it means."""

    text: str
    point: Point


@dataclass(frozen=True)
class AmbiguousCommand:
    """An ambiguous command, the words that would settle it, and the blocks it could mean.

    candidates: inferred from the words; empty where the words do not tell.
    """

    text: str
    words: tuple[str, ...]
    candidates: tuple[Point, ...]


@dataclass(frozen=True)
class InteractiveCommand:
    """An ambiguous command meant for one target, with the data set's words that tell it apart.

    answers: the words that tell the target from the other candidates: its colour first where that
    does, then the position words. source: "test_simulator" or "question_ambiguous".
    """

    text: str
    point: Point
    answers: tuple[str, ...]
    source: str

    @property
    def answer(self) -> str:
        """The answer to any question."""
        return self.answers[0]


@dataclass(frozen=True)
class It2pImage:
    """One photograph with all its data."""

    id: str
    path: Path
    blocks: tuple[Block, ...]
    commands: tuple[ClearCommand, ...]
    ambiguous: tuple[AmbiguousCommand, ...]
    interactive: tuple[InteractiveCommand, ...]
    contradictory: frozenset[str]
    """Commands listed both as clear and as ambiguous, or as clear for two blocks."""


@dataclass(frozen=True)
class It2p:
    """The whole data set in the order of the image ids, and every row that had a problem."""

    images: tuple[It2pImage, ...]
    problems: tuple[Problem, ...]

    def select(self, name: str) -> tuple[It2pImage, ...]:
        """Images of the split "train", "val" or "test", or "all"."""
        if name == "all":
            return self.images
        if name not in SPLITS:
            raise ValueError(f"unknown split {name!r}: use {', '.join(SPLITS)} or all")
        return tuple(image for image in self.images if split_of(image.id) == name)


def split_of(image_id: str) -> str:
    """The split of an image: "train", "val" or "test" (70, 15, 15 %).

    It depends on the id alone, so that a smaller copy of the data set splits the same way.
    """
    digest = hashlib.sha256(f"it2p:0:{image_id}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return "train" if share < 0.70 else "val" if share < 0.85 else "test"


def find_it2p() -> Path | None:
    """The folder that $CLUE_IT2P names; None when the variable is unset or empty.

    Raises:
        It2pError: the variable names a folder without the data set.
    """
    given = os.environ.get(VARIABLE)
    if not given:
        return None
    if _data_folder(Path(given)) is None:
        raise It2pError(
            f"${VARIABLE} is {given}: no IT2P there (data/train_img and data/train_script are"
            f" missing): correct {VARIABLE}, or unset it to go on without the photographs"
        )
    return Path(given)


def _data_folder(root: Path) -> Path | None:
    for folder in (root / "data", root):
        if (folder / "train_img").is_dir() and (folder / "train_script").is_dir():
            return folder
    return None


def load_it2p(root: str | Path) -> It2p:
    """Read the data set under `root` (the folder that holds `data/`, or `data` itself).

    The photographs are listed, not decoded.

    Raises:
        It2pError: there is no such data set here, or a `question_*.npz` file is malformed.
    """
    root = Path(root)
    data = _data_folder(root)
    if data is None:
        raise It2pError(f"{root}: no IT2P here (data/train_img and data/train_script are missing)")
    reader = _Reader(data)
    files = sorted((data / "train_img").iterdir())
    photographs = {path.stem: path for path in files if path.suffix in _SUFFIXES}
    images = tuple(reader.image(image_id, path) for image_id, path in photographs.items())
    if not images:
        raise It2pError(f"{data / 'train_img'}: no photographs (.jpg or .png)")
    for folder in ("train_script", "script_ambiguous", "test_simulator"):
        for path in sorted((data / folder).glob("*.txt")):
            if path.stem not in photographs:
                reader.problem(path, 0, f"no photograph train_img/{path.stem}.jpg for it")
    return It2p(images, tuple(reader.problems))


class _SimulatorRow(NamedTuple):
    text: str
    point: Point
    color: str | None
    words: tuple[str, ...]


class _Reader:
    """Reads the files of one image after another and collects their problems."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.problems: list[Problem] = []

    def problem(self, path: Path, line: int, reason: str) -> None:
        self.problems.append(Problem(str(path), line, reason))

    def image(self, image_id: str, photograph: Path) -> It2pImage:
        commands = self._clear(image_id)
        simulator = self._simulator(image_id)
        blocks = _blocks(commands, simulator)
        ambiguous = self._ambiguous(image_id, blocks, simulator)
        return It2pImage(
            id=image_id,
            path=photograph,
            blocks=blocks,
            commands=commands,
            ambiguous=ambiguous,
            interactive=_interactive(blocks, ambiguous, simulator),
            contradictory=self._contradictions(image_id, commands, ambiguous),
        )

    def _lines(self, folder: str, image_id: str) -> list[tuple[Path, int, str]]:
        path = self.data / folder / f"{image_id}.txt"
        if not path.is_file():
            return []
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self.problem(path, 0, f"cannot be read ({error})")
            return []
        lines = enumerate(text.splitlines(), start=1)
        return [(path, number, line.strip()) for number, line in lines if line.strip()]

    def _clear(self, image_id: str) -> tuple[ClearCommand, ...]:
        rows = []
        for path, number, line in self._lines("train_script", image_id):
            parts = line.split(maxsplit=2)
            point = _point(parts[:2])
            if point is None or len(parts) < 3:
                self.problem(path, number, f"expected 'x y command', found {line[:60]!r}")
            else:
                rows.append(ClearCommand(parts[2], point))
        return tuple(rows)

    def _simulator(self, image_id: str) -> list[_SimulatorRow]:
        rows = []
        for path, number, line in self._lines("test_simulator", image_id):
            parts = [part.strip() for part in line.split(",")]
            point = _point(parts[:2])
            if point is None or len(parts) != 5 or not parts[2]:
                expected = "expected 'x,y,command,colour,words'"
                self.problem(path, number, f"{expected}, found {line[:60]!r}")
                continue
            color = parts[3] if parts[3] in BLOCK_COLORS else None
            if color is None:
                self.problem(path, number, f"{parts[3]!r} is not a colour of the data set")
            rows.append(_SimulatorRow(parts[2], point, color, tuple(parts[4].split())))
        return rows

    def _ambiguous(
        self, image_id: str, blocks: tuple[Block, ...], simulator: list[_SimulatorRow]
    ) -> tuple[AmbiguousCommand, ...]:
        path = self.data / "question_ambiguous" / f"{image_id}.npz"
        words_of = read_question_words(path) if path.is_file() else {}
        found = []
        for _, _, text in self._lines("script_ambiguous", image_id):
            words = words_of.get(text, ())
            targets = [row.point for row in simulator if row.text == text]
            if len(targets) > 1:
                candidates = tuple(nearest(blocks, point).point for point in targets)
            else:
                candidates = candidate_points(text, words, blocks)
            unique = tuple(dict.fromkeys(candidates))
            found.append(AmbiguousCommand(text, words, unique))
        return tuple(found)

    def _contradictions(
        self,
        image_id: str,
        commands: tuple[ClearCommand, ...],
        ambiguous: tuple[AmbiguousCommand, ...],
    ) -> frozenset[str]:
        path = self.data / "train_script" / f"{image_id}.txt"
        unsure = {item.text for item in ambiguous}
        first: dict[str, Point] = {}
        wrong = set()
        for command in commands:
            if command.text in unsure and command.text not in wrong:
                self.problem(path, 0, f"{command.text!r} is also listed as ambiguous")
                wrong.add(command.text)
            if math.dist(first.setdefault(command.text, command.point), command.point) > MERGE_PX:
                self.problem(path, 0, f"{command.text!r} is listed for two blocks")
                wrong.add(command.text)
        return frozenset(wrong)


def _point(parts: list[str]) -> Point | None:
    try:
        x, y = (float(part) for part in parts)
    except ValueError:
        return None
    return (x, y) if math.isfinite(x) and math.isfinite(y) and x >= 0 and y >= 0 else None


# -------------------------------------------------------------------------------------------------
# Question files: an .npz with one pickled NumPy array of one dictionary, as Python 2 wrote it.

_MAX_BYTES = 1 << 20  # the real files hold a few hundred bytes


class _Array:
    """Replaces NumPy's array and dtype; keeps an array's state."""

    def __init__(self, *args: object) -> None:
        self.items: object = None

    def __setstate__(self, state: tuple[object, ...]) -> None:
        self.items = state[-1]


class _Unpickler(pickle.Unpickler):
    """Makes texts, lists, tuples and dictionaries, and calls nothing but `_Array`."""

    _ALLOWED = frozenset({
        ("numpy.core.multiarray", "_reconstruct"),
        ("numpy._core.multiarray", "_reconstruct"),
        ("numpy", "ndarray"),
        ("numpy", "dtype"),
    })  # fmt: skip

    def find_class(self, module: str, name: str) -> Any:
        """Resolve a name in the file; raises UnpicklingError for all but a NumPy array's."""
        if (module, name) not in self._ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is refused")
        return _Array


def read_question_words(path: Path) -> dict[str, tuple[str, ...]]:
    """Read `{command: words}` from a `question_*.npz` file of IT2P; nothing in it is executed.

    Commands and words are stripped of surrounding blanks.

    Raises:
        It2pError: the file cannot be read, or does not hold exactly one such dictionary.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = archive.namelist()
            if archive.getinfo(name).file_size > _MAX_BYTES:
                raise It2pError(f"{path}: the array inside is larger than {_MAX_BYTES} bytes")
            file = io.BytesIO(archive.read(name))
        np.lib.format.read_magic(file)
        np.lib.format.read_array_header_1_0(file)
        return _words(_unpickled(file.read()))
    except It2pError:
        raise
    except OSError as error:
        raise It2pError(f"{path}: cannot be read ({error})") from error
    except Exception as error:  # a broken pickle can raise anything
        raise It2pError(f"{path}: no .npz of one array of commands and words ({error})") from error


def _unpickled(data: bytes) -> object:
    for opcode, argument, _ in pickletools.genops(data):
        # The C implementation allocates a table as large as the highest index.
        if opcode.name in ("PUT", "LONG_BINPUT") and int(str(argument)) > len(data):
            raise pickle.UnpicklingError(f"memo index {argument} in {len(data)} bytes")
    return _Unpickler(io.BytesIO(data), encoding="latin1").load()


def _words(array: object) -> dict[str, tuple[str, ...]]:
    """The dictionary of an array that holds nothing else. Raises ValueError."""
    if not isinstance(array, _Array) or not isinstance(array.items, list):
        raise ValueError("no array of objects")
    if len(array.items) != 1 or not isinstance(array.items[0], dict):
        raise ValueError("not one dictionary of commands")
    out: dict[str, tuple[str, ...]] = {}
    for command, words in array.items[0].items():
        texts = [command, *words] if isinstance(words, list) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError(f"the entry {command!r:.60} is not a command with a list of words")
        out[command.strip()] = tuple(word.strip() for word in words)
    return out


# -------------------------------------------------------------------------------------------------
# The blocks that a command can mean, and the words that tell one from the others.

_AXES: dict[str, Point] = {
    "left": (-1, 0), "leftmost": (-1, 0), "right": (1, 0), "rightmost": (1, 0),
    "upper": (0, -1), "top": (0, -1), "lower": (0, 1), "bottom": (0, 1),
}  # fmt: skip
_COMPOUND = {
    "upperleft": ("upper", "left"), "upperright": ("upper", "right"),
    "lowerleft": ("lower", "left"), "lowerright": ("lower", "right"),
}  # fmt: skip
_PLACES = ("left", "right", "upper", "lower", "middle", *_COMPOUND)
_HEAD = re.compile(r"^(.*?\bblocks?\b)(.*)$")
_COLOR_CLAUSE = re.compile(r"\bwhich (?:color|colour) is (\w+)")


def _blocks(
    commands: Iterable[ClearCommand], simulator: Iterable[_SimulatorRow]
) -> tuple[Block, ...]:
    """Merge near points into blocks; a block has a colour if its commands agree on it."""
    named = [(command.point, head_color(command.text)) for command in commands]
    named += [(row.point, row.color) for row in simulator]
    groups: list[list[tuple[Point, str | None]]] = []
    for point, color in named:
        group = next((g for g in groups if math.dist(g[0][0], point) <= MERGE_PX), None)
        if group is None:
            groups.append(group := [])
        group.append((point, color))
    blocks = []
    for group in groups:
        x, y = (sum(point[axis] for point, _ in group) / len(group) for axis in (0, 1))
        colors = {color for _, color in group if color}
        blocks.append(Block((x, y), colors.pop() if len(colors) == 1 else None))
    return tuple(sorted(blocks, key=lambda block: block.point))


def head_color(text: str) -> str | None:
    """Return the colour of the block that a command asks for, not of a landmark.

    >>> head_color("pick up the blue block between the red block and the green block")
    'blue'
    """
    match = _HEAD.match(text)
    if match is None:
        return None
    named = {word for word in match[1].split() if word in BLOCK_COLORS}
    clause = _COLOR_CLAUSE.search(match[2])
    if clause and clause[1] in BLOCK_COLORS:
        named.add(clause[1])
    return named.pop() if len(named) == 1 else None


def nearest(blocks: tuple[Block, ...], point: Point) -> Block:
    """The annotated block nearest to `point`; a new one there if none is within 20 px."""
    best = min(blocks, key=lambda block: math.dist(block.point, point), default=None)
    if best is None or math.dist(best.point, point) > 20.0:
        return Block(point, None)
    return best


def _place_score(text: str, block: Block, blocks: tuple[Block, ...]) -> float:
    """Score a block's place against the place words of a command, in px; larger is better."""
    words = [part for word in text.split() for part in _COMPOUND.get(word, (word,))]
    x, y = block.point
    score = sum(_AXES[w][0] * x + _AXES[w][1] * y for w in words if w in _AXES)
    if "center" in words or "middle" in words:
        middle = [sum(b.point[axis] for b in blocks) / len(blocks) for axis in (0, 1)]
        score -= math.dist(block.point, middle)
    return score


def candidate_points(
    text: str, words: Iterable[str], blocks: tuple[Block, ...]
) -> tuple[Point, ...]:
    """Infer the blocks that an ambiguous command could mean from the words that would settle it.

    Colours among the words select blocks of those colours; where a colour has several blocks, those
    whose place fits the command as well as the other selected ones. Position words alone leave the
    blocks of the command's own colour, the best placed of them if there are more than words. "this"
    (the annotators' last resort) stands for one more. Empty when fewer than two blocks are found:
    the words do not tell.
    """
    words = ["yellow" if word == "yelow" else word for word in dict.fromkeys(words)]
    named = head_color(text)
    pool = [block for block in blocks if named in (None, block.color)]
    pool.sort(key=lambda block: -_place_score(text, block, blocks))
    colors = [word for word in words if word in BLOCK_COLORS and word != named]
    places = [word for word in words if word in _PLACES]
    if colors:
        best = [block for color in colors for block in pool if block.color == color]
        firsts = {block.color: block for block in reversed(best)}.values()
        floor = min((_place_score(text, block, blocks) for block in firsts), default=0.0)
        chosen = [block for block in best if _place_score(text, block, blocks) >= floor]
        if "this" in words:
            chosen += [block for block in pool if block not in chosen][:1]
    elif places or named:
        placed = any(word in _AXES or word in _COMPOUND for word in text.split())
        chosen = pool[: max(2, len(places))] if placed else pool
    else:
        chosen = []
    return tuple(block.point for block in chosen) if len(chosen) > 1 else ()


def place_words(point: Point, others: list[Point], words: Iterable[str]) -> tuple[str, ...]:
    """The position words that are true of `point` and of none of the others."""
    fitting = []
    for word in words:
        axes = [_AXES[part] for part in _COMPOUND.get(word, (word,)) if part in _AXES]
        if axes:
            steps = [(point[0] - q[0], point[1] - q[1]) for q in others]
            gaps = [[a * dx + b * dy for a, b in axes] for dx, dy in steps]
            if all(sum(gap) > MERGE_PX / 2 and min(gap) > -MERGE_PX for gap in gaps):
                fitting.append(word)
        elif word == "middle" and len(others) >= 2:
            span = [max(abs(point[i] - q[i]) for q in others) for i in (0, 1)]
            reach = [max(math.dist(q, r) for r in [*others, point]) for q in others]
            if max(span) < 0.75 * min(reach):
                fitting.append(word)
    return tuple(fitting)


def _interactive(
    blocks: tuple[Block, ...],
    ambiguous: tuple[AmbiguousCommand, ...],
    simulator: list[_SimulatorRow],
) -> tuple[InteractiveCommand, ...]:
    """One sample a target: from test_simulator where it has the command, else from the words."""
    samples = []
    for row in simulator:
        same = [other for other in simulator if other.text == row.text]
        rivals = [other.color for other in same if math.dist(other.point, row.point) > MERGE_PX]
        answers = _answers(row.color, rivals, row.words)
        samples.append(InteractiveCommand(row.text, row.point, answers, "test_simulator"))
    simulated = {row.text for row in simulator}
    for item in ambiguous:
        for point in () if item.text in simulated else item.candidates:
            others = [other for other in item.candidates if other != point]
            rivals = [nearest(blocks, other).color for other in others]
            color = nearest(blocks, point).color
            places = place_words(point, others, item.words)
            answers = _answers(color if color in item.words else None, rivals, places)
            samples.append(InteractiveCommand(item.text, point, answers, "question_ambiguous"))
    return tuple(sample for sample in samples if sample.answers)


def _answers(
    color: str | None, rival_colors: list[str | None], places: tuple[str, ...]
) -> tuple[str, ...]:
    """The words that tell a target apart: its colour if no rival has it, then its place words."""
    by_color = (color,) if color and color not in rival_colors else ()
    return tuple(dict.fromkeys((*by_color, *places)))
