# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The pictures of `clue pair` and the rows that it writes, in InViG's newer layout (docs/invig.md).

    OUT/images/3f2a9c01e5d74b68.png       rows that the user called right: an InViG source
    OUT/rows/pair-9b1c....json
    OUT/rejected/images, rejected/rows    rows that the user called wrong, with the reason
    OUT/skipped.csv                       date, picture, role, reason
    OUT/consent/VERSION.txt               the text that both people agreed to

A reader of `OUT` finds the accepted rows alone. No name, address or browser of a person is written.
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import io
import json
import logging
import os
import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from PIL import Image

from clue_ros.console import SENT_SIDE
from clue_ros.console.pairs import PairError, PairSession, Role, Verdict
from clue_ros.errors import BadImageError, ClueError
from clue_ros.files import open_private, replace_file
from clue_ros.images import decode_image

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
MAX_FILE = 64_000_000  # bytes of a picture file
_LOG = logging.getLogger(__name__)
_SKIP_FIELDS = ("date", "picture", "role", "reason")
_DEFAULT_CONSENT = """\
You are asked to hold short written dialogues with another person about photographs. The dialogues \
are used to teach a robot to ask which object a person means, and may be published as a data set.

Stored of each dialogue: the photograph, what you both wrote, the boxes that you both drew, your \
verdict on the last box, the date, and for each of you a random id, the date on which you agreed, \
and which version of this text you agreed to.

Not stored: your name, your address, your browser. The other person sees what you write and \
nothing else of you. Please write nothing about yourself or about other people.

Taking part is voluntary, and you can stop at any time. To have your dialogues deleted later, note \
the id that this page shows you and send it to whoever invited you.\
"""


@dataclass(frozen=True)
class Consent:
    """The text that each person agrees to before the first picture, and its version."""

    version: str
    text: str


def default_consent() -> Consent:
    """The text of this package."""
    return Consent("clue-1", _DEFAULT_CONSENT)


def read_consent(path: Path) -> Consent:
    """A text of your own; its version is the file's name and the beginning of its SHA-256.

    Raises ClueError.
    """
    try:
        content = path.read_bytes()
        text = content.decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ClueError(f"{path}: the consent text cannot be read: {error}") from None
    if not text or len(text) > 20_000:
        raise ClueError(f"{path}: a consent text has 1 to 20000 characters, this has {len(text)}")
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", path.stem)[:40]
    return Consent(f"{name}-{hashlib.sha256(content).hexdigest()[:8]}", text)


# -------------------------------------------------------------------------------------------------
# Pictures.


@dataclass(frozen=True)
class Picture:
    """A picture in use. name: of its file, below its folder. size: width and height, upright.

    content: the file's bytes. shown: a JPEG for the page, without the file's metadata.
    """

    name: str
    size: tuple[int, int]
    content: bytes
    shown: bytes

    @cached_property
    def stored(self) -> bytes:
        """The PNG that a row refers to: every pixel, upright, without the file's metadata."""
        png = io.BytesIO()
        Image.fromarray(decode_image(self.content, self.name)).save(png, "PNG", compress_level=1)
        return png.getvalue()

    @property
    def stored_name(self) -> str:
        """The name of its copy: by content, so rows about one picture share a file."""
        return f"{hashlib.sha256(self.content).hexdigest()[:16]}.png"


class PictureQueue:
    """Draws pictures at random, none a second time until all were drawn.

    sources: picture files, and folders that are searched at any depth. used: how often each name
    was used before. Raises ClueError where there is no picture or a name stands for two.
    """

    def __init__(
        self, sources: Sequence[Path], used: Mapping[str, int], rng: random.Random | None = None
    ) -> None:
        self._files = _picture_files(sources)
        self._used = Counter({name: used.get(name, 0) for name in self._files})
        self._rng = rng or random.Random()

    def __len__(self) -> int:
        return len(self._files)

    @property
    def unused(self) -> int:
        """The number of pictures that were not drawn yet."""
        return sum(not count for count in self._used.values())

    def draw(self) -> Picture:
        """One of the pictures that were used least, counted as used. Raises PairError."""
        while self._used:
            least = min(self._used.values())
            name = self._rng.choice([n for n, count in self._used.items() if count == least])
            try:
                picture = _read_picture(self._files[name], name)
            except BadImageError as error:
                _LOG.warning("picture left out: %s", error)
                del self._used[name]
                continue
            self._used[name] += 1
            return picture
        raise PairError("none of the pictures can be read: tell whoever invited you")

    def give_back(self, picture: Picture) -> None:
        """Count a drawn picture as not used, as its dialogue was broken off."""
        if self._used[picture.name] > 0:
            self._used[picture.name] -= 1


def _picture_files(sources: Sequence[Path]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for source in sources:
        if source.is_dir():
            folder = source.resolve()
            found = [
                (f"{folder.name}/{path.relative_to(folder).as_posix()}", path)
                for path in sorted(folder.rglob("*"))
                if path.suffix.lower() in SUFFIXES and path.is_file()
            ]
        elif source.is_file():
            found = [(source.name, source)]
        else:
            raise ClueError(f"{source}: no such picture or folder")
        for name, path in found:
            if not name.isprintable():  # a line break, or no text in UTF-8
                _LOG.warning("picture left out, as its name is not printable: %r", name)
                continue
            if name in files:
                raise ClueError(f"two pictures are called {name}: rename one folder or file")
            files[name] = path
    if not files:
        raise ClueError(f"no picture in {', '.join(map(str, sources))}: want {', '.join(SUFFIXES)}")
    return files


def _read_picture(path: Path, name: str) -> Picture:
    """Raises BadImageError."""
    try:
        if path.stat().st_size > MAX_FILE:
            raise BadImageError(f"{name} is larger than {MAX_FILE // 1_000_000} MB")
        content = path.read_bytes()
    except OSError as error:
        raise BadImageError(f"{name} cannot be read: {error.strerror}") from None
    pixels = decode_image(content, name)
    image = Image.fromarray(pixels)
    size = image.size
    image.thumbnail((SENT_SIDE, SENT_SIDE))
    shown = io.BytesIO()
    image.save(shown, "JPEG", quality=90)
    return Picture(name, size, content, shown.getvalue())


# -------------------------------------------------------------------------------------------------
# Rows.


class RowStore:
    """Writes the rows of `clue pair` under `folder`, each file as a whole.

    Raises (on construction): ClueError where nothing can be written there.
    """

    def __init__(self, folder: Path, consent: Consent) -> None:
        self.folder, self.consent = folder, consent
        try:
            for part in ("", "images", "rows", "rejected/images", "rejected/rows", "consent"):
                (folder / part).mkdir(parents=True, exist_ok=True, mode=0o700)
            text = f"{consent.text}\n".encode()
            replace_file(folder / "consent" / f"{consent.version}.txt", text)
        except OSError as error:
            raise ClueError(f"{folder}: nothing can be written there: {error}") from None

    def used(self) -> Counter[str]:
        """Return each picture's number of rows and skips; a note names files that are no rows."""
        counts: Counter[str] = Counter()
        for part in ("rows", "rejected/rows"):
            for path in sorted((self.folder / part).glob("pair-*.json")):
                try:
                    (row,) = json.loads(path.read_text(encoding="utf-8"))
                    counts[str(row["image_info"]["id"])] += 1
                except (OSError, ValueError, TypeError, KeyError, RecursionError):
                    _LOG.warning("%s is no row of `clue pair`, not counted", path)
        try:
            with (self.folder / "skipped.csv").open(encoding="utf-8", newline="") as lines:
                counts.update(row["picture"] or "" for row in csv.DictReader(lines))
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, csv.Error):
            _LOG.warning("skipped.csv cannot be read: its pictures count as not used")
        return counts

    def write(
        self,
        session: PairSession,
        verdict: Verdict,
        picture: Picture,
        consented: Mapping[Role, str],
    ) -> Path:
        """Write the row of a finished dialogue; its file. Raises OSError, then there is no row.

        consented: the date on which each of the two agreed to the consent text.
        """
        folder = self.folder if verdict.right else self.folder / "rejected"
        image = folder / "images" / picture.stored_name
        if not image.exists():
            replace_file(image, picture.stored)
        row = self._row(session, verdict, picture, consented)
        path = folder / "rows" / f"pair-{session.id}.json"
        if path.exists():
            raise FileExistsError(f"{path.name} exists")
        replace_file(path, f"{json.dumps([row], ensure_ascii=False, allow_nan=False)}\n".encode())
        _LOG.info("%s: %s", row["clue"]["outcome"].lower(), path)
        return path

    def _row(
        self,
        session: PairSession,
        verdict: Verdict,
        picture: Picture,
        consented: Mapping[Role, str],
    ) -> dict[str, Any]:
        assert session.target is not None
        assert session.answer is not None
        texts = ["", *session.turns]
        ref = {
            "bbox": session.target.in_fractions(*picture.size).as_list(),
            "category": "",
            "dialog": [list(pair) for pair in zip(texts[::2], texts[1::2], strict=True)],
            "dialog_cn": [],
            "id": session.id,
        }
        width, height = picture.size
        info = {
            "file_name": picture.stored_name,
            "height": height,
            "id": picture.name,
            "width": width,
        }
        kept = {
            "outcome": "ACCEPTED" if verdict.right else "REJECTED",
            "reason": verdict.reason,
            "answer": session.answer.in_fractions(*picture.size).as_list(),
            "iou": round(verdict.iou, 4),
            "resets": session.resets,
            "date": today(),
            "people": dict(session.people),
            "consent": {"version": self.consent.version}
            | {str(k): v for k, v in consented.items()},
        }
        return {"ref_list": [ref], "image_info": info, "clue": kept}

    def skip(self, picture: Picture, role: Role, reason: str) -> None:
        """Count a picture that one of the two skipped. Raises OSError."""
        path, line = self.folder / "skipped.csv", io.StringIO()
        writer = csv.writer(line)
        with open(path, "ab+", opener=open_private) as file:
            if file.tell() == 0:
                writer.writerow(_SKIP_FIELDS)
            else:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # a crash cut the last line off
                    line.write("\r\n")
            writer.writerow((today(), picture.name, role, reason))
            file.write(line.getvalue().encode())  # in one piece: two of them never mix
            file.flush()
            os.fsync(file.fileno())


def today() -> str:
    """The date in UTC, such as 2026-11-24."""
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()
