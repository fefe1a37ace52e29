"""InViG: dialogues in which a robot finds out which object in a photograph a person means.

The data set of the paper's question adapter (section III-A, Table III), published as
`jxu124/invig` on the hub in an older and a newer form, and as JSON lines by its authors. See
docs/invig.md and `invig_rows` for the forms.

    data = load_invig("jxu124/invig", split="test")   # or a folder, a .json, .jsonl, .parquet file
    for sample in data.samples:
        image = sample.load()
        pairs = reveal_pairs(sample)

Nothing is dropped in silence: `Invig.problems` names each row that could not be used, and why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.dialogue.types import Box, Dialogue
from clue_ros.errors import BadImageError
from clue_ros.lab.data.invig_layouts import (
    LANGUAGES,
    BadRow,
    BoxForm,
    Exchanges,
    Fractions,
    InvigError,
    Picture,
    Record,
    Size,
    box_form,
    find_picture,
    read_rows,
    records,
    split_name,
)
from clue_ros.model.location_tokens import encode_box, to_text

__all__ = ["Invig", "InvigError", "InvigSample", "load_invig", "reveal_pairs", "write_invig"]

_SAME_SHAPE = 0.02  # widths to heights that agree this well are one picture in two sizes
# What a tokenizer could take for one of its own tokens, such as <loc0001> or <bos>.
_TOKEN_LIKE = re.compile(r"<(?=[^<>\s]+>)")


@dataclass(frozen=True)
class InvigSample:
    """One dialogue about one object of one photograph.

    load: the photograph, uint8 RGB (H, W, 3); raises BadImageError. request: what the person said
    first. exchanges: (question of the robot, answer of the person), in order. box: the object,
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
    """What a source holds. problems: rows left out or changed; each begins with the row's id."""

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
        InvigError: nothing there, not readable, contradictory, or no usable row; with the reason.
    """
    if language not in LANGUAGES:
        raise InvigError(f"unknown language {language!r}: use {' or '.join(LANGUAGES)}")
    problems: list[str] = []
    found = _found(source, split, language, problems)
    found = _in_order(found, problems)
    form = box_form([(record.numbers, size) for record, _, size in found], str(source))
    samples = []
    for record, picture, size in found:
        try:
            samples.append(_sample(record, picture, form.fractions(record.numbers, size)))
        except ValueError as error:
            problems.append(f"{record.id}: {error}")
    if not samples:
        first = f", the first: {problems[0]}" if problems else ""
        raise InvigError(f"{source}: no usable row ({len(problems)} cannot be used{first})")
    problems += _remarks(found, form)
    return Invig(_with_own_ids(samples, problems), tuple(problems))


def _found(
    source: str | Path, split: str | None, language: str, problems: list[str]
) -> list[tuple[Record, Picture, Size]]:
    """Rows with a dialogue, a box and a picture; the size is the one the box is measured in."""
    found = []
    for row in read_rows(source, split):
        if isinstance(row, str):
            problems.append(row)
            continue
        pictures: dict[int, Picture] = {}
        for record in records(row.values, row.where, language):
            if isinstance(record, str):
                problems.append(record)
                continue
            try:
                key = id(record.picture)
                if key not in pictures:
                    pictures[key] = find_picture(record.picture, row.folder)
                found.append((record, pictures[key], _measured(record, pictures[key])))
            except (BadRow, BadImageError) as error:
                problems.append(f"{record.id}: {error}")
    return found


def _measured(record: Record, picture: Picture) -> Size:
    """The size the box refers to: the file's own word for it, if the picture has that shape."""
    if record.size is None:
        return picture.size
    (width, height), (real_width, real_height) = record.size, picture.size
    if abs(width * real_height / (height * real_width) - 1) > _SAME_SHAPE:
        raise BadRow(
            f"the file says {width}x{height} pixels, the picture has {real_width}x{real_height}"
        )
    return record.size


def _in_order(
    found: list[tuple[Record, Picture, Size]], problems: list[str]
) -> list[tuple[Record, Picture, Size]]:
    """Leave out dialogues without a request, where the others show that it has its own place."""
    first = [record.robot_first for record, _, _ in found]
    if first.count(True) <= first.count(False):
        return found
    kept = []
    for item, order in zip(found, first, strict=True):
        if order is None:
            problems.append(f"{item[0].id}: a question comes before any request")
        else:
            kept.append(item)
    return kept


def _sample(record: Record, picture: Picture, box: Fractions) -> InvigSample:
    return InvigSample(
        id=record.id,
        image_id=record.image_id,
        load=picture.load,
        request=record.request,
        exchanges=record.exchanges,
        box=box,
        category=record.category,
    )


def _with_own_ids(samples: list[InvigSample], problems: list[str]) -> tuple[InvigSample, ...]:
    """Each id once: splits number their dialogues separately, so the second 7 becomes 7~2."""
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


def _remarks(found: Sequence[tuple[Record, Picture, Size]], form: BoxForm) -> list[str]:
    """What was changed or assumed without leaving a row out."""
    notes = []
    ends = [record for record, _, _ in found if record.remark is not None]
    if ends:
        notes.append(
            f"{ends[0].id}: {ends[0].remark!r:.60} was said last and nobody answered, not used"
            + (f" (and so in {len(ends) - 1} other dialogues)" if len(ends) > 1 else "")
        )
    if not form.told:
        first = found[0][0].id
        notes.append(f"{first}: every box may be xyxy or xywh, read as xyxy, as published")
    return notes


def reveal_pairs(sample: InvigSample) -> tuple[tuple[str, str], ...]:
    """The training pairs of section III-A, by cumulative reveal of the dialogue.

    (C(0), R1), (C(1), R2), ..., (C(K), "<locY1><locX1><locY2><locX2>"), the contexts as
    `Dialogue.context` writes them. What looks like a token in a question is taken apart, as a
    suffix is tokenised with its tokens: `<loc0001>` becomes `< loc0001>`, as in any prefix.
    """
    dialogue = Dialogue(sample.request)
    pairs = []
    for question, answer in sample.exchanges:
        pairs.append((dialogue.context(), _TOKEN_LIKE.sub("< ", question)))
        dialogue.add_question(question)
        dialogue.add_answer(answer)
    codes = encode_box(Box(*sample.box), 1, 1)
    return (*pairs, (dialogue.context(), to_text(codes)))


def write_invig(
    samples: Iterable[InvigSample],
    folder: str | Path,
    *,
    split: str = "train",
    form: str = "newer",
    part: str = "",
) -> Path:
    """Write samples as InViG: `split.json` and `images/*.png`; returns the JSON file's path.

    part: follows the split in the files' names, for data in several files.
    form: "newer" (a row an image, fractions) or "older" (a row a dialogue, pixels). Read back with
    `load_invig(folder)`; the older form has no ids and no categories. Samples of one image_id share
    a picture. Existing files of the same names are replaced.
    """
    if form not in ("newer", "older"):
        raise InvigError(f"unknown form {form!r}: use newer or older")
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
        if form == "newer":
            info = {"file_name": name, "height": height, "id": image_id, "width": width}
            rows.append({"ref_list": [_ref(sample) for sample in group], "image_info": info})
        else:
            rows += [_older(sample, name, (width, height)) for sample in group]
    path = folder / f"{split}.json"
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    return path


def _pairs(sample: InvigSample) -> list[list[str]]:
    """As the authors' files have them: the robot first, its place before the request empty."""
    return [["", sample.request], *([question, answer] for question, answer in sample.exchanges)]


def _ref(sample: InvigSample) -> dict[str, object]:
    return {
        "bbox": list(sample.box),
        "category": sample.category,
        "dialog": _pairs(sample),
        "dialog_cn": [],
        "id": sample.id,
    }


def _older(sample: InvigSample, name: str, size: Size) -> dict[str, object]:
    scale = (*size, *size)
    return {
        "dialog": _pairs(sample),
        "dialog_cn": [],
        "bbox": [share * side for share, side in zip(sample.box, scale, strict=True)],
        "image": name,
        "image_id": sample.image_id,
    }
