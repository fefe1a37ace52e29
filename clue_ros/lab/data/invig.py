"""InViG: dialogues that find the object in a photograph that a person means.

The data set of the paper's question adapter (section III-A, Table III), published in three layouts
(docs/invig.md): as `jxu124/invig` on the hub in an older and a newer one, and as JSON lines by its
authors. Games of GuessWhat?! are read too.

    data = index_invig("jxu124/invig", split="test")   # or a folder, a .json, .jsonl, .parquet file
    for sample in usable(data.samples, print):
        image = sample.load()
        pairs = reveal_pairs(sample)

`index_invig` reads the rows once, one after the other, and keeps their places; `load_invig` holds
all samples and has checked their pictures. Nothing is dropped in silence: `Invig.problems` names
each unusable row and the reason.
"""

from __future__ import annotations

import json
import re
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.dialogue.types import Box, Dialogue, Fractions
from clue_ros.errors import ClueError
from clue_ros.lab.data.invig_layouts import (
    DIALOG_FIELDS,
    STATUSES,
    Entry,
    Exchanges,
    LayoutReader,
    Spoken,
    entry_boxes,
    entry_objects,
    entry_size,
    name_of,
    read_dialog,
)
from clue_ros.lab.data.invig_sources import (
    BadRow,
    InvigError,
    Picture,
    Row,
    RowFile,
    find_picture,
    read_rows,
    split_name,
)
from clue_ros.model.location_tokens import encode_box, to_text

__all__ = [
    "Invig",
    "InvigError",
    "InvigIndex",
    "InvigSample",
    "index_invig",
    "index_rows",
    "load_invig",
    "reveal_pairs",
    "usable",
    "write_invig",
]

# Text that a tokenizer could take for one of its own tokens, such as <loc0001> or <bos>.
_TOKEN_LIKE = re.compile(r"<(?=[^<>\s]+>)")


@dataclass(frozen=True)
class InvigSample:
    """A dialogue about one object of a photograph, or about several equally good ones.

    load: the photograph, uint8 RGB (H, W, 3); raises BadImageError. request: the person's first
    words. exchanges: (question of the robot, answer of the person), in order. box: the object,
    (x_min, y_min, x_max, y_max) as fractions 0..1 of the image. category: "" where unknown.
    objects: boxes of all objects, in GuessWhat?! alone. others: further targets beside `box`. All
    texts are cleaned
    (`clue_ros.dialogue.types.clean_text`); special tokens in them are data.
    """

    id: str
    image_id: str
    load: Callable[[], npt.NDArray[np.uint8]]
    request: str
    exchanges: Exchanges
    box: Fractions
    category: str = ""
    objects: tuple[Fractions, ...] = ()
    others: tuple[Fractions, ...] = ()

    @property
    def targets(self) -> tuple[Box, ...]:
        """The boxes that are right, in fractions."""
        return tuple(Box(*box) for box in (self.box, *self.others))

    def iou(self, box: Box) -> float:
        """Return the highest IoU of a box in fractions with a target."""
        return max(box.iou(target) for target in self.targets)

    def dialogue(self) -> Dialogue:
        """The whole dialogue as it was spoken."""
        dialogue = Dialogue(self.request)
        for question, answer in self.exchanges:
            dialogue.add_question(question)
            dialogue.add_answer(answer)
        return dialogue


@dataclass(frozen=True)
class Invig:
    """The samples of a source. problems: rows left out or changed, each beginning with its id."""

    samples: Sequence[InvigSample]
    problems: tuple[str, ...]


def load_invig(
    source: str | Path,
    *,
    split: str | None = None,
    language: str = "en",
    games: tuple[str, ...] = STATUSES[:1],
) -> Invig:
    """Read all of InViG from a folder, a .json, .jsonl or .parquet file, or a hub id.

    Pictures are found and measured, not decoded. Parquet files and the hub need the package
    `datasets`. See `index_invig` for the arguments and for large sources.

    Raises:
        InvigError: nothing there, not readable, or no usable row; with the reason.
    """
    index = index_invig(source, split=split, language=language, games=games)
    problems = list(index.problems)
    samples = tuple(usable(index.samples, problems.append))
    if not samples:
        raise _no_usable_row(source, problems)
    return Invig(samples, tuple(problems))


def _no_usable_row(source: str | Path, problems: Sequence[str]) -> InvigError:
    first = f", the first: {problems[0]}" if problems else ""
    return InvigError(f"{source}: no usable row ({len(problems)} cannot be used{first})")


def usable(samples: Sequence[InvigSample], problem: Callable[[str], None]) -> Iterator[InvigSample]:
    """Yield the samples in order; report one with a wrong picture or box to `problem`."""
    return (sample for _, sample in numbered(samples, problem))


def numbered(
    samples: Sequence[InvigSample], problem: Callable[[str], None]
) -> Iterator[tuple[int, InvigSample]]:
    """The same with the position of each in `samples`."""
    for number in range(len(samples)):
        try:
            sample = samples[number]
        except InvigError as error:
            problem(str(error))
        else:
            yield number, sample


# -------------------------------------------------------------------------------------------------
# The index of a source.

_COLUMNS = ("origin", "number", "start", "length", "entry", "order", "image", "crc", "id", "repeat",
            "unanswered")  # fmt: skip
_Column = {name: place for place, name in enumerate(_COLUMNS)}


class InvigIndex(Sequence[InvigSample]):
    """The places of a source's dialogues, 88 bytes each; samples are read on demand.

    Texts have been checked. `index[i]` finds the sample's picture, and raises InvigError for a
    missing picture or an unfit box. Reading is safe in threads.
    """

    def __init__(
        self,
        origins: Sequence[tuple[RowFile, str]],
        rows: npt.NDArray[np.int64],
        language: str = "en",
    ) -> None:
        self._origins, self._rows, self._language = origins, rows, language
        self._last: tuple[tuple[int, int, int], list[Entry], dict[int, Picture]] | None = None

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, position: int) -> InvigSample: ...

    @overload
    def __getitem__(self, position: slice) -> InvigIndex: ...

    def __getitem__(self, position: int | slice) -> InvigSample | InvigIndex:
        if isinstance(position, slice):
            return self.select(np.arange(len(self))[position])
        entry, folder, pictures = self._entry(position)
        try:
            if id(entry.picture) not in pictures:
                pictures[id(entry.picture)] = find_picture(entry.picture, folder)
            picture = pictures[id(entry.picture)]
            size = entry_size(entry, picture)
            assert size is not None
            spoken = self._spoken(entry)
            target, *others = entry_boxes(entry, size)
            return InvigSample(
                id=entry.id,
                image_id=entry.image_id,
                load=picture.load,
                request=spoken.request,
                exchanges=spoken.exchanges,
                box=target,
                category=name_of(entry.category) or "",
                objects=tuple(box for _, box in entry_objects(entry, size)),
                others=tuple(others),
            )
        except (BadRow, ClueError) as error:
            raise InvigError(f"{entry.id}: {error}") from None

    def _entry(self, position: int) -> tuple[Entry, Path | None, dict[int, Picture]]:
        """Return the entry at a position; the entries of the last row are cached."""
        row = dict(zip(_COLUMNS, self._rows[position].tolist(), strict=True))
        file, part = self._origins[row["origin"]]
        key = row["origin"], row["number"], row["start"]
        last = self._last
        if last is None or last[0] != key:
            values = file.read(row["number"], row["start"], row["length"])
            read = LayoutReader(_ignore, STATUSES).entries(Row(values, file, part, row["number"]))
            last = self._last = key, read, {}
        _, entries, pictures = last
        if row["entry"] >= len(entries):
            raise InvigError(f"{part}:{row['number']}: the file has changed since it was read")
        entry = entries[row["entry"]]
        if row["repeat"] > 1:
            entry = replace(entry, id=f"{entry.id}~{row['repeat']}")
        return entry, file.folder, pictures

    @property
    def image_hashes(self) -> npt.NDArray[np.int64]:
        """(n,): equal where dialogues are about the same image."""
        return self._rows[:, _Column["image"]]

    @property
    def id_hashes(self) -> npt.NDArray[np.int64]:
        """(n,): equal where ids are equal, before they were made unique."""
        return self._rows[:, _Column["id"]]

    @property
    def image_checksums(self) -> npt.NDArray[np.int64]:
        """(n,): CRC-32 of each dialogue's image id."""
        return self._rows[:, _Column["crc"]]

    def select(self, positions: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> InvigIndex:
        """The samples at some positions, or where a mask is true."""
        return InvigIndex(self._origins, self._rows[positions], self._language)

    def of_first_images(self, count: int) -> InvigIndex:
        """All samples about the first `count` images."""
        hashes, first = np.unique(self.image_hashes, return_index=True)
        kept = hashes[np.argsort(first)][:count]
        return self.select(np.isin(self.image_hashes, kept))

    @property
    def unanswered(self) -> npt.NDArray[np.bool_]:
        """(n,): whether the robot's last words had no answer."""
        return self._rows[:, _Column["unanswered"]] > 0

    def spoken_at(self, position: int) -> Spoken:
        """Return the texts of a sample without its picture."""
        return self._spoken(self._entry(position)[0])

    def _spoken(self, entry: Entry) -> Spoken:
        return read_dialog(entry.dialogs.get(DIALOG_FIELDS[self._language]), self._language)

    def id_at(self, position: int) -> str:
        """The id of a sample."""
        return self._entry(position)[0].id

    def with_repeats(self, repeats: npt.NDArray[np.int64]) -> InvigIndex:
        """The same with `~k` after each id that stands here for the k-th time."""
        rows = self._rows.copy()
        rows[:, _Column["repeat"]] = repeats
        return InvigIndex(self._origins, rows, self._language)

    def about_image_of(self, position: int) -> InvigIndex:
        """All samples about the image of the sample at a position."""
        return self.select(self.image_hashes == self.image_hashes[position])


def _ignore(problem: str) -> None:
    """Ignore a row's problem: its first reading has named it."""


def index_invig(
    source: str | Path,
    *,
    split: str | None = None,
    language: str = "en",
    games: tuple[str, ...] = STATUSES[:1],
) -> Invig:
    """The samples of a source of any size, as an `InvigIndex`; no picture is opened.

    Args:
        source: a folder holds such files and the pictures (beside them or in `images`). A hub id
            such as "jxu124/invig".
        split: train, validation or test; None for all. Files that name no split are in any.
        language: "en", or "cn" for the Chinese original.
        games: the ends of GuessWhat?! games to read.

    Raises:
        InvigError: nothing there, not readable, or no usable row; with the reason.
    """
    rows = read_rows(source, split)
    return index_rows(rows, str(source), language=language, games=games)


def index_rows(
    rows: Iterable[Row | str],
    source: str,
    *,
    language: str = "en",
    games: tuple[str, ...] = STATUSES[:1],
) -> Invig:
    """The same of rows in any of the layouts; a string is a problem. source: for messages."""
    problems: list[str] = []
    origins: list[tuple[RowFile, str]] = []
    places = array("q")
    for row, number, entry, spoken in read_entries(
        rows, source, language, problems.append, games=games
    ):
        if not origins or origins[-1] != (row.file, row.part):
            origins.append((row.file, row.part))
        order = {None: -1, False: 0, True: 1}[spoken.robot_first]
        place = [len(origins) - 1, row.number, row.start, row.length, number, order]
        image = entry.image_id
        hashes = _hash(image), zlib.crc32(image.encode()), _hash(entry.id)
        places.extend([*place, *hashes, 1, spoken.unanswered is not None])
    table = np.array(places, dtype=np.int64).reshape(-1, len(_COLUMNS))
    index = _with_requests(InvigIndex(origins, table, language), table, problems)
    if not len(index):
        raise _no_usable_row(source, problems)
    if len(ends := np.flatnonzero(index.unanswered)):
        more = f" (and so in {len(ends) - 1} other dialogues)" if len(ends) > 1 else ""
        name, text = index.id_at(int(ends[0])), index.spoken_at(int(ends[0])).unanswered
        problems.append(f"{name}: {text!r:.60} was said last and nobody answered, not used{more}")
    return Invig(_with_own_ids(index, problems), tuple(problems))


def read_entries(
    rows: Iterable[Row | str],
    source: str,
    language: str,
    problem: Callable[[str], None],
    *,
    games: tuple[str, ...] = STATUSES[:1],
) -> Iterator[tuple[Row, int, Entry, Spoken]]:
    """The dialogues of rows with their texts, one row in memory at a time, without pictures.

    Yields the row, the dialogue's number in it, the dialogue, and its texts. Boxes are checked if
    the row has the picture's size. source: for messages. Raises InvigError.
    """
    if language not in DIALOG_FIELDS:
        raise InvigError(f"unknown language {language!r}: use {' or '.join(DIALOG_FIELDS)}")
    reader = LayoutReader(problem, games)
    for row in rows:
        if isinstance(row, str):
            problem(row)
            continue
        for number, entry in enumerate(reader.entries(row)):
            try:
                spoken = read_dialog(entry.dialogs.get(DIALOG_FIELDS[language]), language)
                size = entry_size(entry)
                if size is not None:
                    entry_boxes(entry, size)
            except (BadRow, ClueError) as error:
                problem(f"{entry.id}: {error}")
            else:
                yield row, number, entry, spoken
    if reader.left_out:
        ends = ", ".join(f"{count} {name}" for name, count in reader.left_out.items())
        problem(f"{source}: games left out by how they ended: {ends}")


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


def _with_requests(
    index: InvigIndex, rows: npt.NDArray[np.int64], problems: list[str]
) -> InvigIndex:
    """Leave out dialogues without a request, in a source whose dialogues begin with the robot."""
    orders = rows[:, _Column["order"]]
    if (orders == 1).sum() <= (orders == 0).sum():
        return index
    for position in np.flatnonzero(orders == -1):
        problems.append(f"{index.id_at(int(position))}: a question comes before any request")
    return index.select(orders != -1)


def _with_own_ids(index: InvigIndex, problems: list[str]) -> InvigIndex:
    """Make ids unique: splits number their dialogues separately, so the second 7 becomes 7~2."""
    ids = index.id_hashes
    order = np.argsort(ids, kind="stable")
    begins = np.r_[True, ids[order][1:] != ids[order][:-1]]
    first = np.maximum.accumulate(np.where(begins, np.arange(len(ids)), 0))
    repeats = np.empty(len(ids), dtype=np.int64)
    repeats[order] = np.arange(len(ids)) - first + 1
    doubles = np.flatnonzero(repeats > 1)
    if len(doubles):
        more = f" (and so for {len(doubles) - 1} other ids)" if len(doubles) > 1 else ""
        name = index.id_at(int(doubles[0]))
        problems.append(f"{name}: a second row with this id is called {name}~2{more}")
    return index.with_repeats(repeats)


# -------------------------------------------------------------------------------------------------
# Training pairs, and writing.


def reveal_pairs(sample: InvigSample) -> tuple[tuple[str, str], ...]:
    """The training pairs of section III-A, by cumulative reveal of the dialogue.

    (C(0), R1), (C(1), R2), ..., (C(K), "<locY1><locX1><locY2><locX2>"), the contexts as
    `Dialogue.context` writes them; the last one once for each target. Text that looks like a token
    in a question is taken apart, since a suffix is tokenised with its tokens: `<loc0001>` becomes
    `< loc0001>`, as in any prefix.
    """
    dialogue = Dialogue(sample.request)
    pairs = []
    for question, answer in sample.exchanges:
        pairs.append((dialogue.context(), without_tokens(question)))
        dialogue.add_question(question)
        dialogue.add_answer(answer)
    context = dialogue.context()
    return (*pairs, *((context, to_text(encode_box(box, 1, 1))) for box in sample.targets))


def without_tokens(text: str) -> str:
    """Return text for a suffix, with every look-alike of a token taken apart.

    >>> without_tokens("the <loc0001> one")
    'the < loc0001> one'
    """
    return _TOKEN_LIKE.sub("< ", text)


def write_invig(
    samples: Iterable[InvigSample], folder: str | Path, *, split: str = "train", part: str = ""
) -> Path:
    """Write samples in the newer layout: `split.json` and `images/*.png`; returns the JSON's path.

    Read back with `load_invig(folder)`. Samples of one image_id share a picture. Existing files of
    the same names are replaced.

    Args:
        samples: the dialogues.
        folder: folder to write, made if needed.
        split: train, validation or test.
        part: follows the split in the files' names, for data in several files.
    """
    folder, split = Path(folder), split_name(split) + part
    (folder / "images").mkdir(parents=True, exist_ok=True)
    images: dict[str, list[InvigSample]] = {}
    for sample in samples:
        images.setdefault(sample.image_id, []).append(sample)
    rows: list[dict[str, object]] = []
    for number, (image_id, group) in enumerate(images.items()):
        name = f"{split}-{number:06d}.png"
        pixels = group[0].load()
        height, width = pixels.shape[:2]
        Image.fromarray(pixels).save(folder / "images" / name)
        info = {"file_name": name, "height": height, "id": image_id, "width": width}
        rows.append({"ref_list": [_ref(sample) for sample in group], "image_info": info})
    path = folder / f"{split}.json"
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return path


def _ref(sample: InvigSample) -> dict[str, object]:
    """Return a dialogue as in the authors' files: the robot first, no words before the request."""
    dialog = [["", sample.request], *map(list, sample.exchanges)]
    boxes = (sample.box, *sample.others)
    return {
        "bbox": [*map(list, boxes)] if sample.others else list(sample.box),
        "category": sample.category,
        "dialog": dialog,
        "dialog_cn": [],
        "id": sample.id,
    }
