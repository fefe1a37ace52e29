"""InViG: dialogues in which a robot finds out which object in a photograph a person means.

The data set of the paper's question adapter (section III-A, Table III), published in three layouts
(docs/invig.md): as `jxu124/invig` on the hub in an older and a newer one, and as JSON lines by its
authors. What a layout says of its boxes is believed, and checked against each image.

    data = load_invig("jxu124/invig", split="test")   # or a folder, a .json, .jsonl, .parquet file
    for sample in data.samples:
        image = sample.load()
        pairs = reveal_pairs(sample)

Nothing is dropped in silence: `Invig.problems` names each row that could not be used, and why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.dialogue.types import Box, Dialogue, Turn, clean_text
from clue_ros.errors import ClueError
from clue_ros.lab.data.invig_sources import (
    BadRow,
    InvigError,
    Picture,
    Row,
    Size,
    find_picture,
    read_rows,
    split_name,
)
from clue_ros.model.location_tokens import encode_box, to_text

__all__ = [
    "Invig",
    "InvigError",
    "InvigSample",
    "invig_samples",
    "load_invig",
    "reveal_pairs",
    "write_invig",
]

Fractions = tuple[float, float, float, float]
Exchanges = tuple[tuple[str, str], ...]
_DIALOG_FIELDS = {"en": "dialog", "cn": "dialog_cn"}
_PICTURE_FIELDS = ("image", "image_path", "file_name", "filename")
_OUTSIDE = 0.02  # share of the image's side by which an annotator's box may reach beyond it
_SAME_SHAPE = 0.02  # widths to heights that agree this well are one picture in two sizes
_MAX_SIDE = 1 << 24
# Text that a tokenizer could take for one of its own tokens, such as <loc0001> or <bos>.
_TOKEN_LIKE = re.compile(r"<(?=[^<>\s]+>)")


@dataclass(frozen=True)
class InvigSample:
    """One dialogue about one object of one photograph.

    load: the photograph, uint8 RGB (H, W, 3); raises BadImageError. request: the person's first
    words. exchanges: (question of the robot, answer of the person), in order. box: the object,
    (x_min, y_min, x_max, y_max) as fractions 0..1 of the image. category: "" where unknown. All
    texts are cleaned (`clue_ros.dialogue.types.clean_text`); special tokens in them are data.
    """

    id: str
    image_id: str
    load: Callable[[], npt.NDArray[np.uint8]]
    request: str
    exchanges: Exchanges
    box: Fractions
    category: str = ""

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

    samples: tuple[InvigSample, ...]
    problems: tuple[str, ...]


def load_invig(source: str | Path, *, split: str | None = None, language: str = "en") -> Invig:
    """Read InViG from a folder, a .json, .jsonl or .parquet file, or a hub id.

    Pictures are found and measured, not decoded. Parquet files and the hub need the package
    `datasets`.

    Args:
        source: a folder holds such files and the pictures (beside them or in `images`). A hub id
            such as "jxu124/invig".
        split: train, validation or test; None for all. Files that name no split are in any.
        language: "en", or "cn" for the Chinese original.

    Raises:
        InvigError: nothing there, not readable, or no usable row; with the reason.
    """
    if language not in _DIALOG_FIELDS:
        raise InvigError(f"unknown language {language!r}: use {' or '.join(_DIALOG_FIELDS)}")
    return invig_samples(read_rows(source, split), str(source), language=language)


def invig_samples(rows: Iterable[Row | str], source: str, *, language: str = "en") -> Invig:
    """The samples of rows in any of the layouts; a string is a line that is no row.

    source: for messages. Raises InvigError for no usable row.
    """
    problems: list[str] = []
    found: list[tuple[InvigSample, _Spoken]] = []
    for row in rows:
        if isinstance(row, str):
            problems.append(row)
            continue
        pictures: dict[int, Picture] = {}
        for entry in _entries(row, problems):
            try:
                spoken = _spoken(entry.dialogs.get(_DIALOG_FIELDS[language]), language)
                if id(entry.picture) not in pictures:
                    pictures[id(entry.picture)] = find_picture(entry.picture, row.folder)
                found.append((_sample(entry, spoken, pictures[id(entry.picture)]), spoken))
            except (BadRow, ClueError) as error:
                problems.append(f"{entry.id}: {error}")
    found = _with_requests(found, problems)
    if not found:
        first = f", the first: {problems[0]}" if problems else ""
        raise InvigError(f"{source}: no usable row ({len(problems)} cannot be used{first})")
    ends = [(sample.id, spoken.unanswered) for sample, spoken in found if spoken.unanswered]
    if ends:
        more = f" (and so in {len(ends) - 1} other dialogues)" if len(ends) > 1 else ""
        name, text = ends[0]
        problems.append(f"{name}: {text!r:.60} was said last and nobody answered, not used{more}")
    samples = _with_own_ids([sample for sample, _ in found], problems)
    return Invig(samples, tuple(problems))


def _with_requests(
    found: list[tuple[InvigSample, _Spoken]], problems: list[str]
) -> list[tuple[InvigSample, _Spoken]]:
    """Leave out dialogues without a request, in a source whose dialogues begin with the robot."""
    orders = [spoken.robot_first for _, spoken in found]
    if orders.count(True) <= orders.count(False):
        return found
    without = [sample.id for sample, spoken in found if spoken.robot_first is None]
    problems += [f"{name}: a question comes before any request" for name in without]
    return [item for item in found if item[1].robot_first is not None]


def _with_own_ids(samples: list[InvigSample], problems: list[str]) -> tuple[InvigSample, ...]:
    """Make ids unique: splits number their dialogues separately, so the second 7 becomes 7~2."""
    seen: dict[str, int] = {}
    named, doubles = [], []
    for sample in samples:
        seen[sample.id] = seen.get(sample.id, 0) + 1
        if seen[sample.id] > 1:
            doubles.append(sample.id)
            sample = replace(sample, id=f"{sample.id}~{seen[sample.id]}")
        named.append(sample)
    if doubles:
        more = f" (and so for {len(doubles) - 1} other ids)" if len(doubles) > 1 else ""
        problems.append(f"{doubles[0]}: a second row with this id is called {doubles[0]}~2{more}")
    return tuple(named)


# -------------------------------------------------------------------------------------------------
# The three layouts, each row as one entry per dialogue.


@dataclass(frozen=True)
class _Entry:
    """One dialogue as its row has it, not yet checked.

    where: file and row. picture: a name, bytes, a PIL picture, or a mapping of these. size: (width,
    height) as the row gives it, None where only the picture tells. pixels: whether the layout has
    boxes in pixels; else in fractions of the image. dialogs: holds `dialog` and `dialog_cn`.
    """

    id: str
    where: str
    image_id: str
    picture: Any
    size: tuple[Any, Any] | None
    pixels: bool
    bbox: Any
    category: Any
    dialogs: Mapping[str, Any]


def _entries(row: Row, problems: list[str]) -> list[_Entry]:
    """The dialogues of a row; [] and a problem when the row is in no known layout."""
    values = row.values
    if not isinstance(values, Mapping):
        problems.append(f"{row.where}: the row is of type {type(values).__name__}, want an object")
        return []
    try:
        if "ref_list" in values:
            return list(_newer(values, row.where))
        if "ann" in values:
            return [_json_line(values, row.where)]
        if "dialog" in values or "dialog_cn" in values:
            return [_older(values, row.where)]
        fields = ", ".join(sorted(map(str, values))) or "none"
        raise BadRow(f"unknown kind of row (it has the fields {fields:.80})")
    except BadRow as error:
        problems.append(f"{_row_id(values, row.where)}: {error}")
        return []


def _newer(row: Mapping[str, Any], where: str) -> Iterator[_Entry]:
    """A row is an image; boxes are fractions."""
    info, refs = row.get("image_info"), row["ref_list"]
    if not isinstance(info, Mapping):
        raise BadRow("image_info is missing or no object")
    if isinstance(refs, Mapping):  # older `datasets` turn a list of objects into columns
        columns = [c if isinstance(c, (list, tuple)) else () for c in refs.values()]
        if len({len(column) for column in columns}) != 1:
            raise BadRow("ref_list's columns differ in length")
        refs = [dict(zip(refs, cells, strict=True)) for cells in zip(*columns, strict=True)]
    if not isinstance(refs, (list, tuple)) or not refs:
        raise BadRow("ref_list is empty or no list")
    picture = row.get("image")
    image_id = _name(info.get("id")) or _stem(info.get("file_name")) or where
    for number, ref in enumerate(refs):
        if not isinstance(ref, Mapping):
            raise BadRow(f"ref_list holds type {type(ref).__name__}, want objects")
        yield _Entry(
            id=_name(ref.get("id")) or f"{image_id}#{number}",
            where=where,
            image_id=image_id,
            picture=info.get("file_name") if picture is None else picture,
            size=(info.get("width"), info.get("height")),
            pixels=False,
            bbox=ref.get("bbox"),
            category=ref.get("category"),
            dialogs=ref,
        )


def _older(row: Mapping[str, Any], where: str) -> _Entry:
    """A row is a dialogue; boxes are in pixels."""
    picture = next((row[name] for name in _PICTURE_FIELDS if row.get(name) is not None), None)
    own = _name(row.get("image_id")) or _name(row.get("global_image_id"))
    image_id = own or _stem(picture) or where
    numbered = where if image_id == where else f"{image_id}#{where.rsplit(':', 1)[-1]}"
    return _Entry(
        id=_name(row.get("id")) or numbered,
        where=where,
        image_id=image_id,
        picture=_name(row.get("image_id")) if picture is None else picture,
        size=None,
        pixels=True,
        bbox=row.get("bbox"),
        category=row.get("category"),
        dialogs=row,
    )


def _json_line(row: Mapping[str, Any], where: str) -> _Entry:
    """A row of the authors' JSON lines is a dialogue; boxes are in pixels of the size given."""
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
    return _Entry(
        id=_row_id(row, where),
        where=where,
        image_id=_stem(name) or where,
        picture=name,
        size=(row.get("width"), row.get("height")),
        pixels=True,
        bbox=boxes[0],
        category=row.get("label"),
        dialogs={"dialog": [["", request], *zip(asked, said, strict=True)]},
    )


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


# -------------------------------------------------------------------------------------------------
# Checks of one dialogue.


@dataclass(frozen=True)
class _Spoken:
    """A dialogue's texts.

    unanswered: the robot's last words, None where the person had the last word. robot_first:
    whether its pairs are [robot, person]; None where neither end of the dialogue tells.
    """

    request: str
    exchanges: Exchanges
    unanswered: str | None
    robot_first: bool | None


def _spoken(pairs: Any, language: str) -> _Spoken:
    """Read [["", U], [R1, H1], ...] or [[U, R1], [H1, R2], ...]. Raises BadRow or ClueError."""
    field = _DIALOG_FIELDS[language]
    if pairs is None:
        raise BadRow(f"no {field}")
    if not isinstance(pairs, (list, tuple)):
        kind = type(pairs).__name__
        raise BadRow(f"{field} is of type {kind}, want a list of [text, text] pairs")
    texts: list[str] = []
    for number, pair in enumerate(pairs):
        size = len(pair) if isinstance(pair, (list, tuple)) else 0
        if size != 2 and not (size == 1 and number == len(pairs) - 1):
            raise BadRow(f"{field}[{number}] is {pair!r:.40}, want a [text, text] pair")
        for text in pair:
            if text is not None and not isinstance(text, str):
                raise BadRow(f"{field}[{number}] holds type {type(text).__name__}, want text")
            texts.append((text or "").strip())
    robot_first = True if texts and not texts[0] else None
    if robot_first is None and texts and (len(texts) % 2 or not texts[-1]):
        robot_first = False
    if robot_first:
        texts = texts[1:]
    if texts and not texts[-1]:
        texts = texts[:-1]
    if not texts:
        raise BadRow(f"{field} is empty")
    if "" in texts:
        raise BadRow(f"{field}: turn {texts.index('') + 1} is empty")
    unanswered = clean_text(texts.pop()) if len(texts) % 2 == 0 else None
    turns = [Turn("user" if i % 2 else "robot", clean_text(t)) for i, t in enumerate(texts[1:])]
    said = [turn.text for turn in Dialogue(texts[0], turns).turns]
    exchanges = tuple(zip(said[1::2], said[2::2], strict=True))
    return _Spoken(said[0], exchanges, unanswered, robot_first)


def _sample(entry: _Entry, spoken: _Spoken, picture: Picture) -> InvigSample:
    return InvigSample(
        id=entry.id,
        image_id=entry.image_id,
        load=picture.load,
        request=spoken.request,
        exchanges=spoken.exchanges,
        box=_box(entry, _size(entry, picture)),
        category=_name(entry.category) or "",
    )


def _size(entry: _Entry, picture: Picture) -> Size:
    """Width and height that the row gives, if the picture has that shape; else the picture's."""
    if entry.size is None:
        return picture.size
    width, height = entry.size
    for side in (width, height):
        if isinstance(side, bool) or not isinstance(side, int) or not 0 < side < _MAX_SIDE:
            raise BadRow(f"image size {width!r:.20} x {height!r:.20}, want two sizes in pixels")
    real_width, real_height = picture.size
    if abs(width * real_height / (height * real_width) - 1) > _SAME_SHAPE:
        raise BadRow(
            f"the file says {width}x{height} pixels, the picture has {real_width}x{real_height}"
        )
    return width, height


def _box(entry: _Entry, size: Size) -> Fractions:
    """The entry's box as fractions, clipped to the image. Raises BadRow where it is none in it."""
    value, (width, height) = entry.bbox, size if entry.pixels else (1, 1)
    if value is None:
        raise BadRow("bbox is missing")
    if not isinstance(value, (list, tuple)) or len(value) != 4:
        raise BadRow(f"bbox {value!r:.60}, want four numbers")
    if any(isinstance(item, bool) or not isinstance(item, (int, float)) for item in value):
        raise BadRow(f"bbox {list(value)!r:.60} holds something that is no number")
    if not all(abs(item) < 1e300 for item in value):
        raise BadRow(f"bbox {list(value)!r:.60} is not finite")
    x_min, y_min, x_max, y_max = value
    shown = "[" + ", ".join(f"{item:g}" for item in value) + f"] in {entry.where}"
    unit = "pixels" if entry.pixels else "fractions of the image"
    want = f"want x_min, y_min, x_max, y_max in {unit}"
    if x_min >= x_max or y_min >= y_max:
        raise BadRow(f"box {shown} encloses no area: {want}")
    if entry.pixels and max(value) <= 1:
        raise BadRow(f"box {shown} is smaller than a pixel: {want}")
    found = x_min / width, y_min / height, x_max / width, y_max / height
    left, top, right, bottom = (min(max(side, 0.0), 1.0) for side in found)
    inside = min(found) >= -_OUTSIDE and max(found) <= 1 + _OUTSIDE
    if not inside or left >= right or top >= bottom:
        raise BadRow(f"box {shown} lies outside the {size[0]}x{size[1]} image: {want}")
    return left, top, right, bottom


# -------------------------------------------------------------------------------------------------
# Training pairs, and writing.


def reveal_pairs(sample: InvigSample) -> tuple[tuple[str, str], ...]:
    """The training pairs of section III-A, by cumulative reveal of the dialogue.

    (C(0), R1), (C(1), R2), ..., (C(K), "<locY1><locX1><locY2><locX2>"), the contexts as
    `Dialogue.context` writes them. Text that looks like a token in a question is taken apart, since
    a suffix is tokenised with its tokens: `<loc0001>` becomes `< loc0001>`, as in any prefix.
    """
    dialogue = Dialogue(sample.request)
    pairs = []
    for question, answer in sample.exchanges:
        pairs.append((dialogue.context(), without_tokens(question)))
        dialogue.add_question(question)
        dialogue.add_answer(answer)
    codes = encode_box(Box(*sample.box), 1, 1)
    return (*pairs, (dialogue.context(), to_text(codes)))


def without_tokens(text: str) -> str:
    """Text for a suffix, where what looks like a token is taken apart.

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
    """A dialogue as the authors' files have it: the robot first, no words before the request."""
    dialog = [["", sample.request], *map(list, sample.exchanges)]
    return {
        "bbox": list(sample.box),
        "category": sample.category,
        "dialog": dialog,
        "dialog_cn": [],
        "id": sample.id,
    }
