"""Rows of the published InViG files, in each of their forms, as one kind of record.

    older   {dialog, dialog_cn, bbox, image, image_id}: a row is one dialogue
    newer   {ref_list: [{bbox, category, dialog, dialog_cn, id}], image_info: {file_name, height,
            id, width}, image}: a row is one image with all its dialogues
    jsonl   {filename, width, height, id, label, ann: {ref_exp, questions, answers, ref_bboxes}}:
            the authors' annotation files, in English only

A dialogue in `dialog` is a list of pairs of strings. The authors' own files put the robot first,
[["", request], [question, answer], ...]; copies with the person first are [[request, question],
[answer, question], ..., [answer, ""]]. Read in order without the empty ends both are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from clue_ros.data.invig_boxes import Size, four_numbers
from clue_ros.dialogue import Dialogue, Turn, clean_text
from clue_ros.errors import ClueError

LANGUAGES = {"en": "dialog", "cn": "dialog_cn"}
Exchanges = tuple[tuple[str, str], ...]
_MAX_SIDE = 1 << 24
_NAMES = ("image", "image_path", "file_name", "filename")


class BadRow(Exception):
    """Why a row cannot be used."""


@dataclass(frozen=True)
class Record:
    """One dialogue about one object, not yet checked against its picture.

    picture: what the file says of the image: a name, bytes, a PIL picture, or a mapping of these.
    size: (width, height) that the box is measured in, None where only the picture tells.
    numbers: the box as the file has it. remark: the robot's last words, which nobody answered.
    robot_first: see there.
    """

    id: str
    image_id: str
    picture: Any
    size: Size | None
    request: str
    exchanges: Exchanges
    numbers: tuple[float, float, float, float]
    category: str
    remark: str | None = None
    robot_first: bool | None = None


def records(row: Any, where: str, language: str) -> Iterator[Record | str]:
    """The dialogues of one row; for each that cannot be used, its id and the reason instead."""
    if not isinstance(row, Mapping):
        yield f"{where}: the row is of type {type(row).__name__}, want an object"
        return
    try:
        if "ref_list" in row:
            parts = list(_grouped(row, where))
        elif "ann" in row:
            parts = [_annotated(row, where)]
        elif "dialog" in row or "dialog_cn" in row:
            parts = [_flat(row, where)]
        else:
            fields = ", ".join(sorted(map(str, row))) or "none"
            raise BadRow(f"unknown kind of row (it has the fields {fields:.80})")
    except BadRow as error:
        yield f"{_row_id(row, where)}: {error}"
        return
    for part in parts:
        try:
            yield _record(part, language)
        except (BadRow, ClueError, ValueError) as error:
            yield f"{part['id']}: {error}"


def _grouped(row: Mapping[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """The newer form: a row an image."""
    info, refs = row.get("image_info"), row["ref_list"]
    if not isinstance(info, Mapping):
        raise BadRow("image_info is missing or no object")
    if isinstance(refs, Mapping):  # what older `datasets` make of a list of objects
        refs = _transposed(refs)
    if not isinstance(refs, (list, tuple)) or not refs:
        raise BadRow("ref_list is empty or no list")
    picture = row.get("image")
    if picture is None:
        picture = info.get("file_name")
    image_id = _name(info.get("id")) or _stem(info.get("file_name")) or where
    for number, ref in enumerate(refs):
        fallback = f"{image_id}#{number}"
        if not isinstance(ref, Mapping):
            raise BadRow(f"ref_list holds type {type(ref).__name__}, want objects")
        yield {
            "id": _name(ref.get("id")) or fallback,
            "image_id": image_id,
            "picture": picture,
            "size": (info.get("width"), info.get("height")),
            "bbox": ref.get("bbox"),
            "category": ref.get("category"),
            "dialog": ref.get("dialog"),
            "dialog_cn": ref.get("dialog_cn"),
        }


def _transposed(columns: Mapping[str, Any]) -> list[dict[str, Any]]:
    """{"id": [...], "bbox": [...]} as a list of objects."""
    lengths = {len(column) for column in columns.values() if isinstance(column, (list, tuple))}
    if len(lengths) != 1 or any(not isinstance(c, (list, tuple)) for c in columns.values()):
        raise BadRow("ref_list's columns differ in length")
    return [{name: columns[name][i] for name in columns} for i in range(lengths.pop())]


def _flat(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The older form: a row a dialogue."""
    picture = next((row[name] for name in _NAMES if row.get(name) is not None), None)
    image_id = _name(row.get("image_id")) or _name(row.get("global_image_id"))
    image_id = image_id or _stem(picture) or where
    if picture is None:
        picture = _name(row.get("image_id"))
    kept = {name: row.get(name) for name in ("bbox", "category", "dialog", "dialog_cn")}
    number = where.rsplit(":", 1)[-1]
    row_id = _name(row.get("id")) or (where if image_id == where else f"{image_id}#{number}")
    return {"id": row_id, "image_id": image_id, "picture": picture, "size": None, **kept}


def _annotated(row: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The authors' JSON lines."""
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
    return {
        "id": _row_id(row, where),
        "image_id": _stem(name) or where,
        "picture": name,
        "size": (row.get("width"), row.get("height")),
        "bbox": boxes[0],
        "category": row.get("label"),
        "dialog": [["", request], *zip(asked, said, strict=True)],
        "dialog_cn": None,
    }


def _record(part: Mapping[str, Any], language: str) -> Record:
    request, exchanges, remark = read_dialogue(part[LANGUAGES[language]], LANGUAGES[language])
    if part["picture"] is None:
        raise BadRow("no image")
    category = part["category"]
    return Record(
        id=part["id"],
        image_id=part["image_id"],
        picture=part["picture"],
        size=None if part["size"] is None else _size(part["size"]),
        request=request,
        exchanges=exchanges,
        numbers=four_numbers(part["bbox"]),
        category=_name(category) or "",
        remark=remark,
        robot_first=robot_first(part[LANGUAGES[language]]),
    )


def read_dialogue(pairs: Any, name: str = "dialog") -> tuple[str, Exchanges, str | None]:
    """Request, (question, answer) pairs, and the robot's last words if nobody answered them.

    Raises BadRow where it is no list of pairs of strings or something inside it is empty.
    """
    if pairs is None:
        raise BadRow(f"no {name}")
    if not isinstance(pairs, (list, tuple)):
        raise BadRow(f"{name} is of type {type(pairs).__name__}, want a list of [text, text] pairs")
    spoken: list[str] = []
    for number, pair in enumerate(pairs):
        size = len(pair) if isinstance(pair, (list, tuple)) else 0
        if size != 2 and not (size == 1 and number == len(pairs) - 1):
            raise BadRow(f"{name}[{number}] is {pair!r:.40}, want a [text, text] pair")
        for text in pair:
            if text is not None and not isinstance(text, str):
                raise BadRow(f"{name}[{number}] holds type {type(text).__name__}, want text")
            spoken.append((text or "").strip())
    spoken = _without_empty_ends(spoken)
    if not spoken:
        raise BadRow(f"{name} is empty")
    if "" in spoken:
        raise BadRow(f"{name}: turn {spoken.index('') + 1} is empty")
    remark = clean_text(spoken.pop()) if len(spoken) % 2 == 0 else None
    turns = [Turn("user" if i % 2 else "robot", clean_text(t)) for i, t in enumerate(spoken[1:])]
    said = [turn.text for turn in Dialogue(spoken[0], turns).turns]
    return said[0], tuple(zip(said[1::2], said[2::2], strict=True)), remark


def robot_first(pairs: Any) -> bool | None:
    """Whether a dialogue's pairs are [robot, person]; None where its ends do not tell."""
    if not isinstance(pairs, (list, tuple)) or not pairs or not isinstance(pairs[0], (list, tuple)):
        return None
    if pairs[0] and not pairs[0][0]:
        return True
    last = pairs[-1]
    told = isinstance(last, (list, tuple)) and (len(last) == 1 or (len(last) == 2 and not last[1]))
    return False if told else None


def _without_empty_ends(spoken: Sequence[str]) -> list[str]:
    """The first place is empty where the robot comes first, the last where the person does."""
    kept = list(spoken[1:] if spoken and not spoken[0] else spoken)
    return kept[:-1] if kept and not kept[-1] else kept


def _size(given: tuple[Any, Any]) -> Size:
    width, height = given
    for side in (width, height):
        if isinstance(side, bool) or not isinstance(side, int) or not 0 < side < _MAX_SIDE:
            raise BadRow(f"image size {width!r:.20} x {height!r:.20}, want two sizes in pixels")
    return width, height


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
