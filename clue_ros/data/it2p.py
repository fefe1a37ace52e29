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
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from clue_ros.data.it2p_targets import (
    COLORS,
    MERGE_PX,
    Block,
    Point,
    answer_words,
    candidate_points,
    head_color,
    nearest,
    place_words,
)
from clue_ros.data.it2p_words import It2pError, read_question_words


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
            color = parts[3] if parts[3] in COLORS else None
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
