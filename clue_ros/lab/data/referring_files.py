"""RefCOCO, RefCOCO+, RefCOCOg, Talk2Car and HC-RefLoCo in their published layouts.

RefCOCO's expressions are a pickle, refs(unc).p. The reader runs none of it: it refuses every name.
Unusable rows are left out, each with its reason.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import pickletools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from clue_ros.dialogue.types import Box, clean_text
from clue_ros.errors import ClueError
from clue_ros.images import image_size, load_image
from clue_ros.lab.data.referring import (
    ReferringData,
    ReferringItem,
    ReferringPicture,
    user_says,
)

MAX_PICKLE = 1 << 29  # bytes; the published files have up to 20 MB
REFS = ("refs(unc).p", "refs(umd).p", "refs(google).p", "refs.json")


class ReferringError(ClueError):
    """A data set cannot be read; the message names the file."""

    code = "BAD_ROWS"


def refcoco_items(folder: str | Path, pictures: str | Path | None, split: str) -> ReferringData:
    """RefCOCO, RefCOCO+ or RefCOCOg: one item for each sentence.

    folder: holds instances.json (COCO's annotations) and a file of REFS. pictures: folder of
    COCO's train2014; None: `images` in the folder. split: train, val or test; test is testA and
    testB where the data set has these. Raises ReferringError.
    """
    folder = Path(folder)
    images = Path(pictures) if pictures is not None else folder / "images"
    found = [folder / name for name in REFS if (folder / name).is_file()]
    if not found:
        raise ReferringError(f"{folder} has none of {', '.join(REFS)}")
    refs = _json(found[0]) if found[0].suffix == ".json" else read_plain_pickle(found[0])
    instances = _json(folder / "instances.json")
    if not isinstance(refs, list) or not isinstance(instances, Mapping):
        raise ReferringError(f"{found[0]} and instances.json do not have RefCOCO's layout")
    boxes = {a.get("id"): a.get("bbox") for a in _rows(instances.get("annotations"))}
    about = {i.get("id"): i for i in _rows(instances.get("images"))}
    out = ReferringData()
    for ref in _rows(refs):
        if not str(ref.get("split", "")).startswith(split):
            continue
        image, box = about.get(ref.get("image_id"), {}), boxes.get(ref.get("ann_id"))
        size = image.get("width"), image.get("height")
        for sentence in _rows(ref.get("sentences")):
            text = sentence.get("raw") or sentence.get("sent")
            name = f"ref {ref.get('ref_id')}"
            _add(out, name, images, image.get("file_name"), text, box, size)
    return out


def talk2car_items(folder: str | Path, split: str) -> ReferringData:
    """Talk2Car: commands/SPLIT_commands.json and the pictures in `imgs` or `images`.

    Raises ReferringError.
    """
    folder = Path(folder)
    content = _json(folder / "commands" / f"{split}_commands.json")
    images = folder / "imgs" if (folder / "imgs").is_dir() else folder / "images"
    out = ReferringData()
    for row in _rows(content.get("commands") if isinstance(content, Mapping) else None):
        name = f"command {row.get('command_token')}"
        _add(out, name, images, row.get("t2c_img"), row.get("command"), row.get("2d_box"), None)
    return out


def hcrefloco_items(folder: str | Path, split: str) -> ReferringData:
    """HC-RefLoCo: hc_refloco_SPLIT.json or hc_refloco.json, and the folder `images`.

    It has val and test alone. Raises ReferringError.
    """
    folder = Path(folder)
    path = folder / f"hc_refloco_{split}.json"
    content = _json(path if path.is_file() else folder / "hc_refloco.json")
    rows = content.get("annotations") if isinstance(content, Mapping) else content
    out = ReferringData()
    for row in _rows(rows):
        if row.get("split", split) != split:
            continue
        size = row.get("width"), row.get("height")
        name, text = f"caption {row.get('id')}", row.get("caption")
        _add(out, name, folder / "images", row.get("file_name"), text, row.get("bbox"), size)
    return out


def _add(
    out: ReferringData,
    name: str,
    images: Path,
    file: Any,
    text: Any,
    box: Any,
    size: tuple[Any, Any] | None,
) -> None:
    """Add an item, or a problem. box: [x, y, width, height] in pixels."""
    try:
        path = _inside(images, file)
        width, height = size or image_size(path, path.name)
        out.items.append(
            ReferringItem(
                ReferringPicture(str(file), partial(load_image, path)),
                user_says(clean_text(text)),
                (_fractions(box, width, height),),
            )
        )
    except (ClueError, ValueError, OSError) as error:
        out.problems.append(f"{name}: {error}")


def _fractions(box: Any, width: Any, height: Any) -> Box:
    values = [*box, width, height] if isinstance(box, Sequence) and len(box) == 4 else []
    numbers = [float(v) for v in values if isinstance(v, (int, float)) and math.isfinite(v)]
    if len(numbers) != 6 or min(numbers[2:]) <= 0:
        raise ValueError(f"box {box!r:.40} of a {width}x{height} picture: want [x, y, w, h]")
    x, y, w, h, across, down = numbers
    return Box(x, y, x + w, y + h).in_fractions(across, down).clipped()


def _inside(folder: Path, name: Any) -> Path:
    """The path of a file in the folder; ValueError for one outside or none."""
    path = (folder / name).resolve() if isinstance(name, str) and name else folder
    if not path.is_relative_to(folder.resolve()) or not path.is_file():
        raise ValueError(f"there is no picture {name!r:.80} in {folder}")
    return path


def _rows(content: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(content, (list, tuple)):
        yield from (row for row in content if isinstance(row, Mapping))


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ReferringError(f"cannot read {path}: {error}") from error


class _PlainUnpickler(pickle.Unpickler):
    """Makes numbers, texts, lists and dictionaries, and calls nothing."""

    def find_class(self, module: str, name: str) -> Any:
        """Refuse every name."""
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is refused")


def read_plain_pickle(path: Path) -> Any:
    """A pickle of numbers, texts, lists and dictionaries. Raises ReferringError for others."""
    try:
        if path.stat().st_size > MAX_PICKLE:
            raise ReferringError(f"{path} is too large")
        data = path.read_bytes()
        for opcode, argument, _ in pickletools.genops(data):
            # The C implementation allocates a table as large as the highest index.
            if opcode.name in ("PUT", "LONG_BINPUT") and int(str(argument)) > len(data):
                raise pickle.UnpicklingError(f"memo index {argument} in {len(data)} bytes")
        return _PlainUnpickler(io.BytesIO(data), encoding="latin1").load()
    except ClueError:
        raise
    except Exception as error:  # a broken pickle can raise anything
        raise ReferringError(f"cannot read {path}: {error}") from error
