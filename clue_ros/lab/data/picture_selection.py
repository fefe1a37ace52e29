"""`clue data select`: choose pictures for dialogues from OpenImages' lists, as InViG did.

    clue data select --boxes train-annotations-bbox.csv --classes class-descriptions-boxable.csv
        --positive good.txt --negative bad.txt --out selected.csv

First the rules: classes that nobody talks about, the number of objects, their sizes, and the
ambiguity, which is the largest number of objects of one class. Then, with --positive and --negative
(files of image ids, one a line, that a person sorted), the Bayesian filter over the classes c_i of
an image:

    p(positive | c_1 .. c_n) ∝ p(positive) Π_i p(c_i | positive)

p(c | positive) = (k + 1) / (n + 2) where k of n positive images have the class. Images with a
probability above --probability are kept, the surest first.

OUT is a CSV of image ids, ambiguity and probability, or with the suffix .txt image ids alone. The
command prints the number of rejected images for each reason. One image is in memory at a time, and
id, ambiguity and probability of those kept.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from clue_ros.errors import ClueError
from clue_ros.lab.data.openimages import (
    OpenImagesBox,
    OpenImagesPicture,
    read_classes,
    read_pictures,
)
from clue_ros.lab.options import add_options, at_least, option, output_file, read_options, required

EXCLUDED = (
    "Insect", "Spider", "Ladybug", "Scorpion", "Tick", "Centipede", "Ant", "Bee", "Beetle",
    "Butterfly", "Moths and butterflies", "Caterpillar", "Dragonfly", "Worm", "Snail",
    "Invertebrate", "Marine invertebrates", "Jellyfish", "Sea urchin", "Starfish", "Isopod",
)  # fmt: skip
"""Classes whose images are left out: dense insects, and animals that nobody wants to see."""
PARTS = (
    "Human body", "Human head", "Human face", "Human eye", "Human ear", "Human nose", "Human mouth",
    "Human hair", "Human arm", "Human hand", "Human leg", "Human foot", "Human beard",
    "Human tooth", "Human teeth",
)  # fmt: skip
"""Classes whose boxes are not counted, as they are parts of another object."""


class BayesianFilter:
    """Naive Bayes over the classes that an image has.

    positive, negative: for each class the number of images that have it. positives, negatives:
    numbers of images.
    """

    def __init__(
        self,
        positive: Mapping[str, int],
        positives: int,
        negative: Mapping[str, int],
        negatives: int,
    ) -> None:
        if positives < 1 or negatives < 1:
            raise ClueError(
                f"the Bayesian filter has {positives} positive and {negatives} negative images"
                " with boxes: it needs both"
            )
        self._prior = math.log(positives / negatives)
        self._odds = {
            name: math.log((positive.get(name, 0) + 1) / (positives + 2))
            - math.log((negative.get(name, 0) + 1) / (negatives + 2))
            for name in {*positive, *negative}
        }
        self._unknown = math.log(1 / (positives + 2)) - math.log(1 / (negatives + 2))

    def log_odds(self, classes: Collection[str]) -> float:
        """Log odds that an image with these classes is positive."""
        return self._prior + sum(self._odds.get(name, self._unknown) for name in set(classes))

    def probability(self, classes: Collection[str]) -> float:
        """Probability that an image with these classes is positive, 0..1."""
        odds = self.log_odds(classes)
        return 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0


def count_classes(
    pictures: Iterable[OpenImagesPicture],
    positive: Collection[str],
    negative: Collection[str],
    ignored: Collection[str],
) -> BayesianFilter:
    """The filter of two sets of image ids. Raises ClueError if one of them has no boxes."""
    counts: tuple[Counter[str], Counter[str]] = Counter(), Counter()
    images = [0, 0]
    for picture in pictures:
        for side, names in enumerate((positive, negative)):
            if picture.id in names:
                images[side] += 1
                counts[side].update({b.label for b in picture.boxes if b.label not in ignored})
    return BayesianFilter(counts[0], images[0], counts[1], images[1])


@dataclass(frozen=True, kw_only=True)
class SelectionOptions:
    """The options of `clue data select`."""

    boxes: Path = required("OpenImages' boxes (*-annotations-bbox.csv)", metavar="CSV")
    classes: Path = required("OpenImages' classes (class-descriptions-boxable.csv)", metavar="CSV")
    images: Path | None = option(
        None,
        "OpenImages' list of images (ImageID, OriginalSize, Rotation, ...), for --min-bytes and"
        " --upright",
        metavar="CSV",
    )
    out: Path = required(
        "file to write: .csv (id, ambiguity, probability) or .txt (ids)",
        metavar="FILE",
        type=output_file(".csv", ".txt"),
    )
    exclude: tuple[str, ...] = option(
        EXCLUDED,
        "classes whose images are left out; default: insects and invertebrates",
        nargs="*",
        metavar="CLASS",
    )
    ignore: tuple[str, ...] = option(
        PARTS,
        "classes whose boxes are not counted; default: parts of the human body",
        nargs="*",
        metavar="CLASS",
    )
    min_objects: int = option(2, "smallest number of objects", type=at_least(0))
    max_objects: int = option(60, "largest number of objects", type=at_least(1))
    min_ambiguity: int = option(
        2, "smallest ambiguity: largest number of objects of one class", type=at_least(0)
    )
    max_ambiguity: int = option(30, "largest ambiguity", type=at_least(1))
    min_area: float = option(
        0.001, "smallest area of a box that counts, share of the image", type=float
    )
    max_area: float = option(
        0.9, "largest area of a box that counts, share of the image", type=float
    )
    min_bytes: int = option(0, "smallest file in bytes (OriginalSize)", type=at_least(0))
    upright: bool = option(False, "leave out images with a rotation")
    groups: bool = option(
        False, "count a box around a group or around a depiction as an object too"
    )
    positive: Path | None = option(
        None, "image ids that a person found good, one a line", metavar="FILE"
    )
    negative: Path | None = option(
        None, "image ids that a person found bad, one a line", metavar="FILE"
    )
    probability: float = option(0.5, "smallest probability of the Bayesian filter", type=float)

    def __post_init__(self) -> None:
        """Raises ClueError for contradicting options."""
        if (self.positive is None) != (self.negative is None):
            raise ClueError("give --positive and --negative, or neither")
        if self.images is None and (self.min_bytes or self.upright):
            raise ClueError("--min-bytes and --upright need --images")


def counted_boxes(picture: OpenImagesPicture, options: SelectionOptions) -> list[OpenImagesBox]:
    """The boxes of an image that count as objects."""
    return [
        box
        for box in picture.boxes
        if box.label not in options.ignore
        and options.min_area <= box.area <= options.max_area
        and (options.groups or not (box.group or box.depiction))
    ]


def ambiguity(boxes: Iterable[OpenImagesBox]) -> int:
    """The largest number of objects of one class."""
    return max(Counter(box.label for box in boxes).values(), default=0)


def rejection(
    picture: OpenImagesPicture, options: SelectionOptions, bayes: BayesianFilter | None = None
) -> str | None:
    """Return the first reason to leave an image out; None if it is kept."""
    if any(box.label in options.exclude for box in picture.boxes):
        return "excluded class"
    if options.images is not None:
        if picture.info is None:
            return "not in the list of images"
        size, rotation = (picture.info.get(k) or "" for k in ("OriginalSize", "Rotation"))
        if options.min_bytes and (not size.isdigit() or int(size) < options.min_bytes):
            return "file too small"
        if options.upright and rotation not in ("", "0", "0.0"):
            return "rotated"
    boxes = counted_boxes(picture, options)
    if len(boxes) < options.min_objects:
        return "too few objects"
    if len(boxes) > options.max_objects:
        return "too many objects"
    alike = ambiguity(boxes)
    if alike < options.min_ambiguity:
        return "not ambiguous"
    if alike > options.max_ambiguity:
        return "too ambiguous"
    if bayes is not None and bayes.probability(_classes(picture, options)) <= options.probability:
        return "Bayesian filter"
    return None


def _classes(picture: OpenImagesPicture, options: SelectionOptions) -> set[str]:
    return {box.label for box in picture.boxes if box.label not in options.ignore}


def select_pictures(options: SelectionOptions) -> tuple[list[tuple[str, int, float]], Counter[str]]:
    """Return id, ambiguity and probability (NaN: no filter) of kept images, and the rejections.

    Sorted by probability, else by ambiguity, the highest first. Raises ClueError.
    """
    classes = read_classes(options.classes)
    for name in (*options.exclude, *options.ignore):
        if name not in classes.values() and name not in (*EXCLUDED, *PARTS):
            raise ClueError(f"{options.classes} has no class {name!r}")
    bayes = None
    if options.positive is not None and options.negative is not None:
        bayes = count_classes(
            read_pictures(options.boxes, classes),
            read_ids(options.positive),
            read_ids(options.negative),
            options.ignore,
        )
    kept, rejected = list[tuple[str, int, float]](), Counter[str]()
    pictures = read_pictures(options.boxes, classes, options.images)
    for picture in tqdm(pictures, unit="image", disable=not sys.stderr.isatty()):
        reason = rejection(picture, options, bayes)
        if reason is not None:
            rejected[reason] += 1
            continue
        p = math.nan if bayes is None else bayes.probability(_classes(picture, options))
        kept.append((picture.id, ambiguity(counted_boxes(picture, options)), p))
    kept.sort(key=lambda row: (0.0 if math.isnan(row[2]) else -row[2], -row[1], row[0]))
    return kept, rejected


def read_ids(path: Path) -> frozenset[str]:
    """The image ids of a file, one a line, or of a CSV with a column ImageID. Raises ClueError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        if path.suffix.lower() == ".csv":
            rows = csv.DictReader(text.splitlines())
            if "ImageID" not in (rows.fieldnames or ()):
                raise ClueError(f"{path}: no column ImageID")
            found = frozenset(row["ImageID"] for row in rows if row["ImageID"])
        else:
            found = frozenset(text.split())
    except (OSError, UnicodeDecodeError) as error:
        raise ClueError(f"{path} cannot be read: {error}") from None
    if not found:
        raise ClueError(f"{path}: no image id in it")
    return found


def write_selection(path: Path, kept: Iterable[tuple[str, int, float]]) -> None:
    """Write the kept images; a failure leaves no partial file."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("w", encoding="utf-8", newline="") as file:
        if path.suffix.lower() == ".txt":
            file.writelines(f"{name}\n" for name, *_ in kept)
        else:
            writer = csv.writer(file)
            writer.writerow(("ImageID", "ambiguity", "probability"))
            for name, alike, p in kept:
                writer.writerow((name, alike, "" if math.isnan(p) else f"{p:.6f}"))
    partial.replace(path)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `clue data select`."""
    add_options(parser, SelectionOptions)


def run(args: argparse.Namespace) -> int:
    """Run `clue data select`; the exit status."""
    options = read_options(SelectionOptions, args)
    kept, rejected = select_pictures(options)
    write_selection(options.out, kept)
    print(
        json.dumps(
            {"out": str(options.out), "kept": len(kept), "rejected": dict(rejected.most_common())}
        )
    )
    return 0
