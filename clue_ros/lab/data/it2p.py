"""IT2P: photographs of coloured blocks on a black table, with commands and clarifying words.

One of the data sets that the paper trains and tests on, in the layout its authors published::

    ROOT/data/train_img/0000.jpg            250 x 250 photographs
    ROOT/data/train_script/0000.txt         clear commands:      "x y command"
    ROOT/data/script_ambiguous/0000.txt     ambiguous commands:  "command"
    ROOT/data/question_ambiguous/0000.npz   {command: words that would settle it}
    ROOT/data/question_certain/0000.npz     {command: ["this"]}
    ROOT/data/test_simulator/0000.txt       dialogues: "x,y,command,colour,position words"

Nothing is dropped in silence: a row that cannot be read becomes a :class:`Problem` with its file
and line, and so does a command that the data set calls both clear and ambiguous (both are kept).
Points are (x, y) in pixels of the photograph, x to the right, y down.
"""

from __future__ import annotations

import hashlib
import math
import os
import pickletools
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from clue_ros.errors import ClueError
from clue_ros.images import load_image
from clue_ros.lab.simulator.optics import INSTANCE_GRID
from clue_ros.lab.simulator.scene import COLORS, Scene, SceneObject

# -------------------------------------------------------------------------------------------------
# The words of IT2P's question files, read without unpickling anything.

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


# -------------------------------------------------------------------------------------------------
# Which blocks an IT2P command can mean, and which words tell one from the others.

Point = tuple[float, float]
"""(x, y) in pixels of the photograph, x to the right, y down."""

BLOCK_COLORS = ("red", "green", "blue", "yellow", "purple")
MERGE_PX = 12.0
"""Annotated points nearer to one another than this are one block (blocks are 32 px or wider)."""

_SIMPLE = ("left", "right", "upper", "lower", "middle")
_AXES: dict[str, Point] = {
    "left": (-1, 0), "leftmost": (-1, 0), "right": (1, 0), "rightmost": (1, 0),
    "upper": (0, -1), "top": (0, -1), "lower": (0, 1), "bottom": (0, 1),
}  # fmt: skip
_COMPOUND = {
    "upperleft": ("upper", "left"), "upperright": ("upper", "right"),
    "lowerleft": ("lower", "left"), "lowerright": ("lower", "right"),
}  # fmt: skip
_HEAD = re.compile(r"^(.*?\bblocks?\b)(.*)$")
_COLOR_CLAUSE = re.compile(r"\bwhich (?:color|colour) is (\w+)")


@dataclass(frozen=True)
class Block:
    """One annotated block: the mean of its points, and its colour where a command tells it."""

    point: Point
    color: str | None


def head_color(text: str) -> str | None:
    """The colour a command gives the block it is about, not one that it is compared with.

    >>> head_color("pick up the blue block between the red block and the green block")
    'blue'
    """
    match = _HEAD.match(text)
    if match is None:
        return None
    named = [word for word in match[1].split() if word in BLOCK_COLORS]
    clause = _COLOR_CLAUSE.search(match[2])
    if clause and clause[1] in BLOCK_COLORS:
        named.append(clause[1])
    return named[0] if len(set(named)) == 1 else None


def nearest(blocks: tuple[Block, ...], point: Point) -> Block:
    """The annotated block nearest to ``point``; a new one there if none is within 20 px."""
    best = min(blocks, key=lambda block: math.dist(block.point, point), default=None)
    if best is None or math.dist(best.point, point) > 20.0:
        return Block(point, None)
    return best


def _place_score(text: str, block: Block, blocks: tuple[Block, ...]) -> float:
    """How well a block's place fits the place words of a command, in px; larger is better."""
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
    """The blocks an ambiguous command could mean, from the words that would settle it.

    Colours among the words pick blocks of those colours; where a colour has several blocks, those
    whose place fits the command as well as the others chosen. Position words alone leave the blocks
    of the command's own colour, the best placed of them if there are more than words. "this" (the
    annotators' last resort) stands for one more. Fewer than two blocks found means that the words
    do not tell: the answer is then empty.
    """
    words = ["yellow" if word == "yelow" else word for word in words]
    named = head_color(text)
    pool = [block for block in blocks if named in (None, block.color)]
    pool.sort(key=lambda block: -_place_score(text, block, blocks))
    colors = [word for word in dict.fromkeys(words) if word in BLOCK_COLORS and word != named]
    places = [word for word in dict.fromkeys(words) if word in _SIMPLE or word in _COMPOUND]
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
    """Those of the position words that are true of ``point`` and of none of the others."""
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


def answer_words(
    color: str | None, rival_colors: list[str | None], places: tuple[str, ...]
) -> tuple[str, ...]:
    """The words that tell a target apart: its colour if no rival has it, then its place words."""
    told = (color,) if color and color not in rival_colors else ()
    return tuple(dict.fromkeys((*told, *places)))


@dataclass(frozen=True)
class Problem:
    """A row or file that is not as the layout says. ``line`` counts from 1; 0 is the whole file."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


@dataclass(frozen=True)
class Command:
    """A clear command and the point of the one block it means."""

    image_id: str
    text: str
    point: Point


@dataclass(frozen=True)
class Ambiguous:
    """An ambiguous command, the words that would settle it, and the blocks it could mean.

    ``candidates`` are worked out from the words and are empty where the words do not tell.
    """

    image_id: str
    text: str
    words: tuple[str, ...]
    candidates: tuple[Point, ...]


@dataclass(frozen=True)
class Interactive:
    """An ambiguous command meant for one target, with the data set's words that tell it apart.

    ``answers`` are the words that tell the target from the other candidates: its colour first where
    that does, then the position words. ``source``: "test_simulator" or "question_ambiguous".
    """

    image_id: str
    text: str
    point: Point
    color: str | None
    position: tuple[str, ...]
    answers: tuple[str, ...]
    source: str

    @property
    def answer(self) -> str:
        """The word to say to whatever is asked."""
        return self.answers[0]


@dataclass(frozen=True)
class It2pImage:
    """One photograph with everything the data set says about it."""

    id: str
    path: Path
    blocks: tuple[Block, ...]
    commands: tuple[Command, ...]
    ambiguous: tuple[Ambiguous, ...]
    interactive: tuple[Interactive, ...]
    contradictory: frozenset[str]
    """Commands listed both as clear and as ambiguous, or as clear for two blocks."""


@dataclass(frozen=True)
class It2p:
    """The whole data set, by image id in order, and every row that could not be used as it is."""

    root: Path
    images: tuple[It2pImage, ...]
    problems: tuple[Problem, ...]

    def ids(self) -> tuple[str, ...]:
        """Image ids in order."""
        return tuple(image.id for image in self.images)

    def select(self, name: str, seed: int = 0) -> tuple[It2pImage, ...]:
        """Images of the split ``train``, ``val``, ``test`` or ``all``."""
        if name == "all":
            return self.images
        if name not in SPLITS:
            raise ValueError(f"unknown split {name!r}: use {', '.join(SPLITS)} or all")
        return tuple(image for image in self.images if split_of(image.id, seed) == name)


SPLITS = ("train", "val", "test")


def split_of(image_id: str, seed: int = 0) -> str:
    """``train``, ``val`` or ``test`` (70, 15, 15 %).

    It follows from the id and the seed alone, so that a smaller copy splits the same way.
    """
    digest = hashlib.sha256(f"it2p:{seed}:{image_id}".encode()).digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    return "train" if share < 0.70 else "val" if share < 0.85 else "test"


def split(ids: Iterable[str], seed: int = 0) -> dict[str, list[str]]:
    """Image ids of each split, in the order given."""
    parts: dict[str, list[str]] = {name: [] for name in SPLITS}
    for image_id in ids:
        parts[split_of(image_id, seed)].append(image_id)
    return parts


def find_it2p() -> Path | None:
    """The data set's folder: ``$CLUE_IT2P``, else ``../shared/data/it2p`` beside the repository.

    None where there is none.
    """
    given = os.environ.get("CLUE_IT2P")
    if given:
        return Path(given) if _data_folder(Path(given)) else None
    beside = Path(__file__).resolve().parents[3] / "shared" / "data" / "it2p"
    return beside if _data_folder(beside) else None


def _data_folder(root: Path) -> Path | None:
    for folder in (root / "data", root):
        if (folder / "train_img").is_dir() and (folder / "train_script").is_dir():
            return folder
    return None


def load_it2p(root: str | Path) -> It2p:
    """Read the data set under ``root`` (the folder that holds ``data/``, or ``data`` itself).

    The photographs are listed, not decoded.

    Raises:
        It2pError: there is no such data set here, or a ``question_*.npz`` file is malformed.
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
    return It2p(root, images, tuple(reader.problems))


_SUFFIXES = {".jpg", ".jpeg", ".png"}


class _Reader:
    """Reads one image's files at a time and collects what is wrong with them."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.problems: list[Problem] = []

    def problem(self, path: Path, line: int, reason: str) -> None:
        self.problems.append(Problem(str(path), line, reason))

    def image(self, image_id: str, photograph: Path) -> It2pImage:
        rows = self._clear(image_id)
        simulator = self._simulator(image_id)
        blocks = _blocks(rows, simulator)
        commands = tuple(Command(image_id, text, point) for text, point in rows)
        ambiguous = self._ambiguous(image_id, blocks, simulator)
        return It2pImage(
            id=image_id,
            path=photograph,
            blocks=blocks,
            commands=commands,
            ambiguous=ambiguous,
            interactive=_interactive(image_id, blocks, ambiguous, simulator),
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

    def _clear(self, image_id: str) -> list[tuple[str, Point]]:
        rows = []
        for path, number, line in self._lines("train_script", image_id):
            parts = line.split(maxsplit=2)
            point = _point(parts[:2])
            if point is None or len(parts) < 3:
                self.problem(path, number, f"expected 'x y command', found {line[:60]!r}")
            else:
                rows.append((parts[2], point))
        return rows

    def _simulator(self, image_id: str) -> list[Interactive]:
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
            words = tuple(parts[4].split())
            rows.append(Interactive(image_id, parts[2], point, color, words, (), "test_simulator"))
        return rows

    def _ambiguous(
        self, image_id: str, blocks: tuple[Block, ...], simulator: list[Interactive]
    ) -> tuple[Ambiguous, ...]:
        path = self.data / "question_ambiguous" / f"{image_id}.npz"
        words = read_question_words(path) if path.is_file() else {}
        found = []
        for _, _, text in self._lines("script_ambiguous", image_id):
            answers = words.get(text, ())
            targets = [row.point for row in simulator if row.text == text]
            if len(targets) > 1:
                candidates = tuple(nearest(blocks, point).point for point in targets)
            else:
                candidates = candidate_points(text, answers, blocks)
            found.append(Ambiguous(image_id, text, answers, tuple(dict.fromkeys(candidates))))
        return tuple(found)

    def _contradictions(
        self, image_id: str, commands: tuple[Command, ...], ambiguous: tuple[Ambiguous, ...]
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


def _blocks(rows: list[tuple[str, Point]], simulator: list[Interactive]) -> tuple[Block, ...]:
    """Merge near points into blocks, with the colour where the commands that name one agree."""
    named = [(point, head_color(text)) for text, point in rows]
    named += [(row.point, row.color) for row in simulator]
    groups: list[list[tuple[Point, str | None]]] = []
    for point, color in named:
        close = [group for group in groups if math.dist(group[0][0], point) <= MERGE_PX]
        if not close:
            groups.append([])
            close = groups[-1:]
        close[0].append((point, color))
    blocks = []
    for group in groups:
        x = sum(point[0] for point, _ in group) / len(group)
        y = sum(point[1] for point, _ in group) / len(group)
        colors = {color for _, color in group if color}
        blocks.append(Block((x, y), colors.pop() if len(colors) == 1 else None))
    return tuple(sorted(blocks, key=lambda block: block.point))


def _interactive(
    image_id: str,
    blocks: tuple[Block, ...],
    ambiguous: tuple[Ambiguous, ...],
    simulator: list[Interactive],
) -> tuple[Interactive, ...]:
    """One sample a target: from test_simulator where it has the command, else from the words."""
    samples = []
    simulated = {row.text for row in simulator}
    for row in simulator:
        same = [other for other in simulator if other.text == row.text]
        rivals = [other.color for other in same if math.dist(other.point, row.point) > MERGE_PX]
        answers = answer_words(row.color, rivals, row.position)
        if answers:
            samples.append(replace(row, answers=answers))
    for item in ambiguous:
        for point in () if item.text in simulated else item.candidates:
            others = [other for other in item.candidates if other != point]
            rivals = [nearest(blocks, other).color for other in others]
            color = nearest(blocks, point).color
            places = place_words(point, others, item.words)
            answers = answer_words(color if color in item.words else None, rivals, places)
            if answers:
                source = "question_ambiguous"
                samples.append(
                    Interactive(image_id, item.text, point, color, places, answers, source)
                )
    return tuple(samples)


# -------------------------------------------------------------------------------------------------
# Boxes and masks of IT2P's blocks, estimated from the photograph around each annotated point.

REACH = 30
"""A block reaches at most this many pixels from its point along x and y (widest seen: 55 px)."""
FALLBACK = 36.0
"""Side of the box used where no plausible region is found, in pixels."""

_SEED = 6  # half side of the square around the point whose colours are the block's
_MIN_SIDE, _MAX_SIDE, _MIN_AREA = 22, 60, 450
_NEAR = 0.38  # share of the way from the table's colour to the block's at which the block begins


@dataclass(frozen=True)
class BlockRegion:
    """One block: box (x_min, y_min, x_max, y_max) in pixels, max exclusive; mask bool (H, W).

    ``estimated`` is False where the region was implausible and a fixed square stands in.
    """

    box: tuple[float, float, float, float]
    mask: NDArray[np.bool_]
    estimated: bool


def block_boxes(image: NDArray[np.uint8], points: Sequence[Point]) -> list[BlockRegion]:
    """Box and mask of the block at each point, in the order of ``points``.

    Args:
        image: uint8 RGB (H, W, 3), an IT2P photograph (250 x 250).
        points: (x, y) in pixels.
    """
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8:
        raise ValueError(f"expected a uint8 RGB image (H, W, 3), got {image.dtype} {image.shape}")
    smooth = cv2.medianBlur(np.ascontiguousarray(image), 3)
    scaled = smooth.astype(np.float32) / 255.0
    lab = np.asarray(cv2.cvtColor(scaled, cv2.COLOR_RGB2LAB), np.float32)
    owner = _nearest_point(image.shape[:2], points)
    return [_region(lab, owner == index, point) for index, point in enumerate(points)]


def _nearest_point(shape: tuple[int, ...], points: Sequence[Point]) -> NDArray[np.int64]:
    """Index of the nearest point for every pixel, (H, W)."""
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    gaps = [(columns - x) ** 2 + (rows - y) ** 2 for x, y in points]
    return np.argmin(np.stack(gaps), axis=0) if gaps else np.zeros(shape, np.int64)


def _region(lab: NDArray[np.float32], mine: NDArray[np.bool_], point: Point) -> BlockRegion:
    height, width = lab.shape[:2]
    x, y = round(point[0]), round(point[1])
    window = np.zeros((height, width), bool)
    window[max(0, y - REACH) : y + REACH + 1, max(0, x - REACH) : x + REACH + 1] = True
    seed = lab[max(0, y - _SEED) : y + _SEED + 1, max(0, x - _SEED) : x + _SEED + 1].reshape(-1, 3)
    if len(seed) == 0:
        return _fallback(point, height, width)
    # The blocks carry a dark cross in the middle: the brighter half of the seed is the face.
    face = np.median(seed[seed[:, 0] >= np.median(seed[:, 0])], axis=0)
    near = _like(lab, face, _table(lab)) & window & mine
    hull = _hull_around(near, x, y)
    if hull is None:
        return _fallback(point, height, width)
    mask = np.zeros((height, width), np.uint8)
    cv2.fillConvexPoly(mask, hull, 1)
    left, top, wide, high = cv2.boundingRect(hull)
    plausible = (
        min(wide, high) >= _MIN_SIDE and max(wide, high) <= _MAX_SIDE and mask.sum() >= _MIN_AREA
    )
    if not plausible:
        return _fallback(point, height, width)
    return BlockRegion((left, top, left + wide, top + high), mask.astype(bool), True)


def _table(lab: NDArray[np.float32]) -> NDArray[np.float32]:
    """Lab colour of the table: the median of the darkest half of the picture."""
    pixels = lab.reshape(-1, 3)
    dark = pixels[pixels[:, 0] <= np.median(pixels[:, 0])]
    return np.asarray(np.median(dark, axis=0), np.float32)


def _like(
    lab: NDArray[np.float32], face: NDArray[np.float32], table: NDArray[np.float32]
) -> NDArray[np.bool_]:
    """Pixels on the way from the table's colour to the block's: lit faces and shaded ones."""
    # Hue tells a dark block from the table better than lightness does.
    weight = np.array([1.0, 2.0, 2.0], np.float32)
    axis = (face - table) * weight
    offset = (lab - table) * weight
    length = float(np.linalg.norm(axis)) + 1e-6
    along = offset @ (axis / length)
    across = np.linalg.norm(offset - along[..., None] * (axis / length), axis=-1)
    return np.asarray((along > _NEAR * length) & (across < 0.55 * np.maximum(along, length * 0.6)))


def _hull_around(near: NDArray[np.bool_], x: int, y: int) -> NDArray[np.int32] | None:
    """Convex hull of the connected region at (x, y), thin whiskers removed, or None."""
    kernel = np.ones((5, 5), np.uint8)
    closed = cv2.morphologyEx(near.astype(np.uint8), cv2.MORPH_CLOSE, kernel)
    solid = cv2.morphologyEx(closed, cv2.MORPH_OPEN, kernel)
    _, labels = cv2.connectedComponents(solid, connectivity=4)
    here = labels[max(0, y - 5) : y + 6, max(0, x - 5) : x + 6]
    here = here[here > 0]
    if here.size == 0:
        return None
    rows, columns = np.nonzero(labels == np.bincount(here).argmax())
    points = np.stack([columns, rows], axis=1).astype(np.int32)
    return np.asarray(cv2.convexHull(points), np.int32)


def _fallback(point: Point, height: int, width: int) -> BlockRegion:
    half = FALLBACK / 2
    box = (
        max(0.0, point[0] - half),
        max(0.0, point[1] - half),
        min(float(width), point[0] + half),
        min(float(height), point[1] + half),
    )
    mask = np.zeros((height, width), bool)
    mask[int(box[1]) : int(box[3]), int(box[0]) : int(box[2])] = True
    return BlockRegion(box, mask, False)


# -------------------------------------------------------------------------------------------------
# IT2P photographs as scenes: the simulator's records, so that every stage takes both.


def it2p_scene(record: It2pImage) -> Scene:
    """The photograph with one object a block, in the order of `record.blocks`.

    Boxes and masks are estimated from the colour around each annotated point, as the data set
    has points only. ValueError when a block's colour is unknown (no command names it).
    """
    image = load_image(record.path)
    height, width = image.shape[:2]
    full = np.zeros((height, width), dtype=np.uint8)
    objects: list[SceneObject] = []
    for block, region in zip(
        record.blocks, block_boxes(image, [b.point for b in record.blocks]), strict=True
    ):
        if block.color not in COLORS:
            raise ValueError(f"{record.path}: the block at {block.point} has no known colour")
        full[region.mask] = len(objects) + 1
        x0, y0, x1, y1 = region.box
        box = (x0 / width, y0 / height, x1 / width, y1 / height)
        objects.append(SceneObject("block", block.color, box))
    instances = cv2.resize(full, (INSTANCE_GRID, INSTANCE_GRID), interpolation=cv2.INTER_NEAREST)
    return Scene(image, tuple(objects), np.asarray(instances, dtype=np.uint8))
