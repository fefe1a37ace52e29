"""The layouts of InViG and of GuessWhat?!: each row as one entry per dialogue, and its checks.

The layout decides the units of boxes (pixels or fractions); they are checked against each image
(docs/invig.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from clue_ros.dialogue.types import Box, Dialogue, Fractions, Turn, clean_text
from clue_ros.lab.data.invig_sources import BadRow, Picture, Row, Size

Exchanges = tuple[tuple[str, str], ...]
DIALOG_FIELDS = {"en": "dialog", "cn": "dialog_cn"}
GUESSWHAT_REQUEST = "guess the object that i have in mind"
"""The request of every dialogue of GuessWhat?!: its games begin with a question."""
STATUSES = ("success", "failure", "incomplete")
"""The ends of a game of GuessWhat?!."""
_PICTURE_FIELDS = ("image", "image_path", "file_name", "filename")
_OUTSIDE = 0.02  # largest overhang of an annotator's box, as a share of the image's side
_SAME_SHAPE = 0.02  # widths to heights that agree this well are one picture in two sizes
_MAX_SIDE = 1 << 24


@dataclass(frozen=True)
class Entry:
    """One dialogue as its row has it, not yet checked.

    where: file and row. picture: a name, bytes, a PIL picture, or a mapping of these. size: (width,
    height) as the row gives it, None where only the picture tells. pixels: whether the layout has
    boxes in pixels; else in fractions of the image. bbox: of the target, or a list of several.
    dialogs: holds `dialog` and `dialog_cn`.
    objects: category and box of every object, where the layout lists them.
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
    objects: tuple[tuple[str, Any], ...] = ()


class LayoutReader:
    """Detects a row's layout. Unreadable rows go to `problem`, one line each.

    games: the ends of GuessWhat?! games to read; the others are counted in `left_out`.
    """

    def __init__(
        self, problem: Callable[[str], None], games: tuple[str, ...] = STATUSES[:1]
    ) -> None:
        self._problem, self._games = problem, games
        self.left_out: Counter[str] = Counter()

    def entries(self, row: Row) -> list[Entry]:
        """The dialogues of a row; [] when the row is in no known layout."""
        values = row.values
        if not isinstance(values, Mapping):
            kind = type(values).__name__
            self._problem(f"{row.where}: the row is of type {kind}, want an object")
            return []
        try:
            if "ref_list" in values:
                return list(_newer(values, row.where))
            if "ann" in values:
                return [_json_line(values, row.where)]
            if "dialog" in values or "dialog_cn" in values:
                return [_older(values, row.where)]
            if "qas" in values and "object_id" in values:
                status = values.get("status")
                if status in STATUSES and status not in self._games:
                    self.left_out[str(status)] += 1
                    return []
                return [_game(values, row.where)]
            fields = ", ".join(sorted(map(str, values))) or "none"
            raise BadRow(f"unknown kind of row (it has the fields {fields:.80})")
        except BadRow as error:
            self._problem(f"{_row_id(values, row.where)}: {error}")
            return []


def _newer(row: Mapping[str, Any], where: str) -> Iterator[Entry]:
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
    image_id = name_of(info.get("id")) or _stem(info.get("file_name")) or where
    for number, ref in enumerate(refs):
        if not isinstance(ref, Mapping):
            raise BadRow(f"ref_list holds type {type(ref).__name__}, want objects")
        yield Entry(
            id=name_of(ref.get("id")) or f"{image_id}#{number}",
            where=where,
            image_id=image_id,
            picture=info.get("file_name") if picture is None else picture,
            size=(info.get("width"), info.get("height")),
            pixels=False,
            bbox=ref.get("bbox"),
            category=ref.get("category"),
            dialogs=ref,
        )


def _older(row: Mapping[str, Any], where: str) -> Entry:
    """A row is a dialogue; boxes are in pixels."""
    picture = next((row[name] for name in _PICTURE_FIELDS if row.get(name) is not None), None)
    own = name_of(row.get("image_id")) or name_of(row.get("global_image_id"))
    image_id = own or _stem(picture) or where
    numbered = where if image_id == where else f"{image_id}#{where.rsplit(':', 1)[-1]}"
    return Entry(
        id=name_of(row.get("id")) or numbered,
        where=where,
        image_id=image_id,
        picture=name_of(row.get("image_id")) if picture is None else picture,
        size=None,
        pixels=True,
        bbox=row.get("bbox"),
        category=row.get("category"),
        dialogs=row,
    )


def _json_line(row: Mapping[str, Any], where: str) -> Entry:
    """A row of the authors' JSON lines is a dialogue; boxes are in pixels of the size given."""
    ann = row["ann"]
    if not isinstance(ann, Mapping):
        raise BadRow(f"ann is of type {type(ann).__name__}, want an object")
    request, asked, said = (ann.get(name) for name in ("ref_exp", "questions", "answers"))
    if not isinstance(asked, list) or not isinstance(said, list) or len(asked) != len(said):
        raise BadRow("questions and answers are no lists of the same length")
    boxes = ann.get("ref_bboxes")
    if not isinstance(boxes, list) or not boxes:
        raise BadRow(f"ref_bboxes is {boxes!r:.20}, want a list of boxes")
    name = row.get("filename")
    return Entry(
        id=_row_id(row, where),
        where=where,
        image_id=_stem(name) or where,
        picture=name,
        size=(row.get("width"), row.get("height")),
        pixels=True,
        bbox=boxes,
        category=row.get("label"),
        dialogs={"dialog": [["", request], *zip(asked, said, strict=True)]},
    )


def _game(row: Mapping[str, Any], where: str) -> Entry:
    """A row of GuessWhat?! is a game; boxes are x, y, width, height in pixels of the size given."""
    image, objects, qas = row.get("image"), row.get("objects"), row["qas"]
    if not isinstance(image, Mapping):
        raise BadRow("image is missing or no object")
    if not isinstance(objects, list) or not all(isinstance(o, Mapping) for o in objects):
        raise BadRow("objects is no list of objects")
    if not isinstance(qas, list) or not all(isinstance(qa, Mapping) for qa in qas):
        raise BadRow("qas is no list of objects")
    target = next((o for o in objects if o.get("id") == row["object_id"]), None)
    if target is None:
        raise BadRow(f"object_id {row['object_id']!r:.20} is none of its {len(objects)} objects")
    pairs = [[qa.get("question"), qa.get("answer")] for qa in qas]
    size = image.get("width"), image.get("height")
    return Entry(
        id=_row_id(row, where),
        where=where,
        image_id=name_of(image.get("id")) or _stem(image.get("file_name")) or where,
        picture=image.get("file_name"),
        size=size,
        pixels=True,
        bbox=_corners(target.get("bbox")),
        category=target.get("category"),
        dialogs={"dialog": [["", GUESSWHAT_REQUEST], *pairs]},
        objects=tuple((name_of(o.get("category")) or "", _corners(o.get("bbox"))) for o in objects),
    )


def _corners(bbox: Any) -> Any:
    """Convert x, y, width, height to x_min, y_min, x_max, y_max; return other values unchanged."""
    if not isinstance(bbox, list) or len(bbox) != 4:
        return bbox
    if any(isinstance(v, bool) or not isinstance(v, (int, float)) for v in bbox):
        return bbox
    x, y, width, height = bbox
    return [x, y, x + width, y + height]


def _row_id(row: Mapping[str, Any], where: str) -> str:
    info = row.get("image_info")
    own = row.get("id"), row.get("image_id"), info.get("id") if isinstance(info, Mapping) else None
    return next((name for name in map(name_of, own) if name), where)


def name_of(value: Any) -> str | None:
    """A string or whole number as a one-line name, None for anything else or nothing."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    line = " ".join(str(value).split())
    return "".join(c if c.isprintable() else "?" for c in line) or None


def _stem(value: Any) -> str | None:
    return name_of(PurePosixPath(value).stem) if isinstance(value, str) else None


# -------------------------------------------------------------------------------------------------
# Checks of one dialogue.


@dataclass(frozen=True)
class Spoken:
    """A dialogue's texts.

    unanswered: the robot's last words, None where the person had the last word. robot_first:
    whether its pairs are [robot, person]; None where neither end of the dialogue tells.
    """

    request: str
    exchanges: Exchanges
    unanswered: str | None
    robot_first: bool | None


def read_dialog(pairs: Any, language: str) -> Spoken:
    """Read [["", U], [R1, H1], ...] or [[U, R1], [H1, R2], ...]. Raises BadRow or ClueError."""
    field = DIALOG_FIELDS[language]
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
    return Spoken(said[0], exchanges, unanswered, robot_first)


def entry_size(entry: Entry, picture: Picture | None = None) -> Size | None:
    """Width and height that the row gives, if the picture has that shape; else the picture's.

    None if there is no picture and the row gives no size. Raises BadRow.
    """
    if entry.size is None:
        return None if picture is None else picture.size
    width, height = entry.size
    for side in (width, height):
        if isinstance(side, bool) or not isinstance(side, int) or not 0 < side < _MAX_SIDE:
            raise BadRow(f"image size {width!r:.20} x {height!r:.20}, want two sizes in pixels")
    if picture is None:
        return width, height
    real_width, real_height = picture.size
    if abs(width * real_height / (height * real_width) - 1) > _SAME_SHAPE:
        raise BadRow(
            f"the file says {width}x{height} pixels, the picture has {real_width}x{real_height}"
        )
    return width, height


def entry_boxes(entry: Entry, size: Size) -> tuple[Fractions, ...]:
    """The targets' boxes as fractions, clipped to the image, each once.

    Raises BadRow where one is no box in it.
    """
    value = entry.bbox
    several = isinstance(value, (list, tuple)) and value and isinstance(value[0], (list, tuple))
    boxes = [_fractions(entry, box, size) for box in (value if several else [value])]
    return tuple(dict.fromkeys(boxes))


def entry_objects(entry: Entry, size: Size) -> tuple[tuple[str, Fractions], ...]:
    """Category and box of the objects that the layout lists; those without a box are left out."""
    found = []
    for category, bbox in entry.objects:
        try:
            found.append((category, _fractions(entry, bbox, size)))
        except BadRow:
            continue
    return tuple(found)


def _fractions(entry: Entry, value: Any, size: Size) -> Fractions:
    width, height = size if entry.pixels else (1, 1)
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
    found = Box(*value).in_fractions(width, height)
    box = found.clipped()
    inside = min(found.as_tuple()) >= -_OUTSIDE and max(found.as_tuple()) <= 1 + _OUTSIDE
    if not inside or box.width <= 0 or box.height <= 0:
        raise BadRow(f"box {shown} lies outside the {size[0]}x{size[1]} image: {want}")
    return box.as_tuple()
