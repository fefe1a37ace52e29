# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Sources of candidates: any detector that gives boxes, labels and scores.

A source is named by one line of text, `KIND:ARGUMENT`:

    base:MODEL                 "detect NOUN" of a PaliGemma 2, such as base:household
    grounding-dino:NAME        Grounding DINO by transformers: a hub id or a folder
    owlv2:NAME                 OWLv2, likewise
    florence2:NAME             Florence-2, likewise
    json:FILE                  a JSON file that lists the boxes of the image
    python:MODULE:FUNCTION     a function of (image, nouns) that returns candidates
    topic:NAME                 a ROS topic of detections (the perception node alone)
    clue:MODEL                 CLUE itself beside them, which hears the whole dialogue and lists
                               nothing (`clue_ros.wrapper.clue_source`)

Several sources make an ensemble; each candidate names its source. A detector's output is data:
`gather` leaves out invalid boxes, reads fractions of the image, and cuts labels to a line of
MAX_LABEL characters.
"""

from __future__ import annotations

import json
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.candidates import Candidate, merge, with_label_attributes
from clue_ros.dialogue.object_names import KNOWN_NAMES
from clue_ros.dialogue.types import Box, one_line
from clue_ros.errors import ClueWarning, ModelError
from clue_ros.images import image_digest
from clue_ros.model.loading import imported_function
from clue_ros.wrapper.clue_source import ClueSource
from clue_ros.wrapper.detector_kinds import DETECTORS
from clue_ros.wrapper.prompt import MAX_LABEL

if TYPE_CHECKING:
    from clue_ros.engine import Clue

Image = npt.NDArray[np.uint8]
Memory = dict[tuple[bytes, tuple[str, ...]], tuple[tuple[Candidate, ...], float]]
"""An image's digest and the nouns -> a detector's boxes, and the seconds that it took."""
MAX_CANDIDATES = 50  # of a source, the surest
KINDS = ("base", *DETECTORS, "json", "python", "topic", "clue")
TOPIC, CLUE = "topic", "clue"


class Source(Protocol):
    """A detector as a black box.

    open_vocabulary: whether what it finds depends on the nouns; else it is asked once an image.
    """

    name: str
    open_vocabulary: bool

    def find(self, image: Image, nouns: Sequence[str]) -> Sequence[Candidate]:
        """Candidates in an image, uint8 RGB (H, W, 3), boxes in its pixels. Raises ClueError."""


class CallableSource:
    """A Python function as a source.

    function(image, nouns): returns candidates, or (box, label, score) with box [x_min, y_min,
    x_max, y_max].
    """

    def __init__(
        self,
        function: Callable[[Image, Sequence[str]], Iterable[Any]],
        name: str = "python",
        *,
        open_vocabulary: bool = True,
    ) -> None:
        self._function, self.name, self.open_vocabulary = function, name, open_vocabulary

    def find(self, image: Image, nouns: Sequence[str]) -> Sequence[Candidate]:
        """See `Source.find`."""
        return [_candidate(entry, self.name) for entry in self._function(image, tuple(nouns))]


class JsonSource:
    """A JSON file about one image: a list of {"box", "label", "score"}, read at each look.

    Boxes are [x_min, y_min, x_max, y_max] in pixels; an object with the list under "detections" is
    read too.
    """

    open_vocabulary = False

    def __init__(self, path: str | Path, name: str = "json") -> None:
        self._path, self.name = Path(path).expanduser(), name

    def find(self, image: Image, nouns: Sequence[str]) -> Sequence[Candidate]:
        """See `Source.find`."""
        try:
            content = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ModelError(f"cannot read the candidates in {self._path}: {error}") from error
        if isinstance(content, dict):
            content = content.get("detections")
        if not isinstance(content, list):
            raise ModelError(f"{self._path} holds no list of detections")
        try:
            return [_candidate(entry, self.name) for entry in content]
        except ModelError as error:
            raise ModelError(f"{self._path}: {error}") from error


class BaseSource:
    """A PaliGemma 2 model without its adapters, asked to "detect NOUN"."""

    open_vocabulary = True

    def __init__(self, clue: Clue, name: str = "base") -> None:
        self._clue, self.name = clue, name
        self._last: tuple[Image, Any] | None = None

    @property
    def device(self) -> str:
        """The model's device."""
        return self._clue.device

    def memory_bytes(self) -> int:
        """Bytes of its weights."""
        return self._clue.memory_bytes()

    def find(self, image: Image, nouns: Sequence[str]) -> Sequence[Candidate]:
        """See `Source.find`."""
        from clue_ros.model.base_tasks import BaseTasks

        if self._last is None or self._last[0] is not image:
            checkpoint = self._clue.checkpoint
            self._last = image, BaseTasks(checkpoint, image, checkpoint.look(image))
        found = self._last[1].detect(list(nouns)) if nouns else []
        return merge([replace(c, source=self.name) for d in found for c in d.candidates])


def _candidate(entry: Any, source: str) -> Candidate:
    """A candidate from a mapping, from (box, label, score), or from a candidate. ModelError."""
    if isinstance(entry, Candidate):
        return entry if entry.source else replace(entry, source=source)
    if isinstance(entry, Mapping):
        box, label, score = entry.get("box"), entry.get("label", ""), entry.get("score", 1.0)
    elif isinstance(entry, (list, tuple)) and len(entry) == 3:
        box, label, score = entry
    else:
        raise ModelError(f"a candidate must have box, label and score, not {entry!r:.80}")
    corners: Any = box.as_list() if isinstance(box, Box) else box
    try:
        values = [float(v) for v in corners]
        number = float(score)
    except (TypeError, ValueError) as error:
        raise ModelError(f"box {box!r:.60} and score {score!r:.20} must be numbers") from error
    if len(values) != 4:
        raise ModelError(f"box {box!r:.60}: want four numbers, [x_min, y_min, x_max, y_max]")
    return Candidate(Box(*values), str(label), number, source)


def open_sources(
    specs: Sequence[str | Source], device: str = "auto", dtype: str = "auto"
) -> list[Source]:
    """The sources that lines name; a source stays as it is. Raises ModelError.

    A source is called by its kind, and by its whole line where another one has that name.
    """
    if not specs:
        raise ModelError(f"no candidates: name a source ({', '.join(KINDS)})")
    for spec in specs:  # all lines before a model is loaded
        if isinstance(spec, str):
            check_source(spec)
    sources = [open_source(s, device, dtype) if isinstance(s, str) else s for s in specs]
    tell_apart(sources, specs)
    return sources


def tell_apart(sources: Sequence[Source], specs: Sequence[str | Source]) -> None:
    """Call sources of one name by their lines, in the prompt and where boxes are merged."""
    names = Counter(source.name for source in sources)
    for spec, source in zip(specs, sources, strict=True):
        if isinstance(spec, str) and names[source.name] > 1:
            source.name = spec


class OnceAsked:
    """A source that is asked once about an image and its nouns, and remembers the boxes.

    Two of them may share a detector and its boxes, each with a name of its own.
    """

    def __init__(self, source: Source, found: Memory | None = None) -> None:
        self._source, self.name = source, source.name
        self.open_vocabulary = source.open_vocabulary
        self.found: Memory = {} if found is None else found

    def find(self, image: Image, nouns: Sequence[str]) -> Sequence[Candidate]:
        """See `Source.find`."""
        own, (found, _) = self._source.name, self._asked(image, nouns)
        return [replace(c, source=self.name) if c.source == own else c for c in found]

    def seconds(self, image: Image, nouns: Sequence[str]) -> float:
        """Return the detector's seconds for this image and these nouns."""
        return self._asked(image, nouns)[1]

    def _asked(self, image: Image, nouns: Sequence[str]) -> tuple[tuple[Candidate, ...], float]:
        key = image_digest(image), tuple(nouns) if self.open_vocabulary else ()
        if key not in self.found:
            begin = time.perf_counter()
            found = tuple(self._source.find(image, nouns))
            self.found[key] = found, time.perf_counter() - begin
        return self.found[key]

    def again(self) -> OnceAsked:
        """The same detector for another ensemble."""
        return OnceAsked(self._source, self.found)


def check_source(spec: str) -> tuple[str, str]:
    """Kind and argument of a source's line. Raises ModelError that says what is wrong."""
    kind, _, argument = spec.partition(":")
    if kind not in KINDS or not argument:
        raise ModelError(f"candidates {spec!r}: want KIND:ARGUMENT with {', '.join(KINDS)}")
    return kind, argument


def open_source(spec: str, device: str = "auto", dtype: str = "auto") -> Source:
    """The source that a line names. Raises ModelError."""
    kind, argument = check_source(spec)
    if kind == "base":
        from clue_ros.engine import Clue

        clue = Clue.load(argument, device=device, dtype=dtype, policy="zero-shot")
        return BaseSource(clue, spec)
    if kind == CLUE:
        from clue_ros.engine import Clue

        return ClueSource(Clue.load(argument, device=device, dtype=dtype), spec)
    if kind in DETECTORS:
        from clue_ros.wrapper.detectors import load_detector

        return load_detector(argument, kind, device=device)
    if kind == "json":
        return JsonSource(argument)
    if kind == "python":
        return CallableSource(imported_function(argument), spec)
    raise ModelError(f"candidates {spec!r}: a topic is read by the perception node alone")


class Faults:
    """Counts the faults of sources and servers, and reports each kind once.

    say: takes the sentence; by default it is a ClueWarning. counts: boxes, by what was wrong.
    """

    def __init__(self, say: Callable[[str], object] | None = None) -> None:
        self.say = say or (lambda text: warnings.warn(text, ClueWarning, stacklevel=4))
        self.counts: Counter[str] = Counter()
        self._said: set[tuple[str, str]] = set()

    def add(self, source: str, fault: str, number: int, about: str) -> None:
        """Count boxes with a fault. source: the sentence's subject, about: its end."""
        if number:
            self.counts[fault] += number
        if (source, fault) not in self._said:
            self._said.add((source, fault))
            self.say(f"{source}: {about}")


EMPTY, BROKEN, OUTSIDE = "empty", "no boxes", "outside the image"
FRACTIONS, CLASS_IDS = "in fractions", "class ids instead of names"


def gather(
    sources: Sequence[Source], image: Image, nouns: Sequence[str], faults: Faults | None = None
) -> tuple[Candidate, ...]:
    """The candidates of all sources in their order, cut to the image, with what labels say.

    faults: gets each fault of a source. Raises ModelError if all boxes of a source are invalid.
    """
    height, width = image.shape[:2]
    told = faults or Faults()
    out: list[Candidate] = []
    for source in sources:
        found = source.find(image, nouns)
        found = _usable(found, f"candidates {source.name}", (width, height), told)
        for candidate in sorted(found, key=lambda c: -c.score)[:MAX_CANDIDATES]:
            out.append(with_label_attributes(candidate))
    return tuple(out)


def _usable(
    candidates: Sequence[Candidate], source: str, size: tuple[int, int], faults: Faults
) -> list[Candidate]:
    """The candidates that can be used, in pixels of an image of this size (width, height)."""
    kept, broken, empty = [], [], 0
    for candidate in candidates:
        box = candidate.box
        turned = box.x_max < box.x_min or box.y_max < box.y_min
        if turned or not all(map(math.isfinite, [*box.as_tuple(), candidate.score])):
            broken.append(candidate)
        elif box.area > 0:
            kept.append(candidate)
        else:
            empty += 1
    count = len(candidates)
    if broken:
        form = "[x_min, y_min, x_max, y_max] with finite numbers"
        text = f"{len(broken)} of {count} boxes are none ({broken[0].box.as_list()}): want {form}"
        if not kept:
            raise ModelError(f"{source}: {text}")
        faults.add(source, BROKEN, len(broken), f"{text}; they are left out")
    if empty:
        faults.add(source, EMPTY, empty, f"{empty} of {count} boxes left out: no area")
    # A box of a pixel is no object: numbers up to 1 are parts of the image's width and height.
    if kept and max(size) > 2 and all(max(map(abs, c.box.as_tuple())) <= 1 for c in kept):
        kept = [replace(c, box=c.box.in_pixels(*size)) for c in kept]
        faults.add(source, FRACTIONS, len(kept), "boxes are taken for fractions of the image")
    inside = [replace(c, box=c.box.clipped(*size)) for c in kept]
    inside = [replace(c, label=one_line(c.label)[:MAX_LABEL].strip()) for c in inside if c.box.area]
    if len(inside) < len(kept):
        left = len(kept) - len(inside)
        text = f"{left} of {count} boxes lie outside the image of {size[0]}x{size[1]}"
        faults.add(source, OUTSIDE, left, f"{text}: is it the same camera?")
    named = [c.label for c in inside if c.label]
    if named and all(label.isdecimal() for label in named):
        text = f"labels are class ids ({named[0]}), not names, and tell nothing: let it give names"
        faults.add(source, CLASS_IDS, len(named), text)
        inside = [replace(c, label="") for c in inside]
    return inside


class DetectedObjects:
    """The sources' boxes in an image before any dialogue."""

    def __init__(
        self, sources: Sequence[str | Source], nouns: Sequence[str] = (), device: str = "auto"
    ) -> None:
        """nouns: those an open-vocabulary detector is asked for; none: the household's."""
        for line in sources:
            if isinstance(line, str) and check_source(line)[0] == CLUE:
                raise ModelError(f"{line} lists no objects: name a detector, such as base:MODEL")
        self._sources = open_sources(sources, device)
        self._nouns = tuple(nouns) or tuple(sorted(KNOWN_NAMES))

    def __call__(self, image: Image) -> tuple[Candidate, ...]:
        """The candidates in an image, RGB (H, W, 3). Raises ClueError."""
        return gather(self._sources, image, self._nouns)
