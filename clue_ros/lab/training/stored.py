"""`clue data features`: pictures with a stem's frozen features, computed once and kept on disk.

A stem with details reads 640 pixels and takes longer than a step of the rest of the tower. Its
network is frozen, so its features of a picture never change: this command draws a few versions of
each scene (mirrored, moved, cropped, relit, exposed, developed as by a cheaper camera), computes
their features, and writes one file for each shard and version. `clue train ... --features DIR`
draws its pictures from there. A finished file is kept: run the command again after a kill.

    clue data features --model models/mine --world table --versions 3 --out data/features
    clue data features --model models/mine --world table --split val --out data/features

A file is named WORLD-SPLIT-SEED-INDEX-vVERSION.safetensors, of IT2P it2p-SPLIT-vVERSION: `pictures`
uint8 (n, S, S, 3), `features` int8 (n, C, g, g) in sixteenths, `instances` uint8 (n, M, M), and
objects, mirror and subject of each picture as JSON in the metadata.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from tqdm import tqdm

from clue_ros.errors import ClueError
from clue_ros.lab.data.it2p import It2pImage, find_it2p
from clue_ros.lab.data.it2p_boxes import it2p_scenes
from clue_ros.lab.options import add_options, at_least, option, read_options, required
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.simulator.shards import how_to_make, list_shards, read_shard
from clue_ros.lab.training.augment import Picture, cropped, mirrored, photographed, shifted, zoomed
from clue_ros.lab.training.options import SourceOptions
from clue_ros.model.checkpoint import open_backbone
from clue_ros.model.details import detailed_pictures, details_in
from clue_ros.model.load_options import LoadOptions
from clue_ros.model.loading import find_base, find_model, replacing

STEPS = 16  # of a feature's int8 for 1; features have unit size, so that 8 is never reached
ZOOMED, ZOOM_TRIES = 0.4, 8  # share of the versions that are zoomed at objects, where possible
CROPPED = 0.12  # share of the versions of simulated scenes that are cropped around an object
BATCH = 20  # pictures in memory at a time
IT2P = "it2p"
SPLITS = ("train", "val")


@dataclass(frozen=True, kw_only=True)
class FeaturesOptions(SourceOptions):
    """The options of `clue data features`."""

    model: str = required("model whose stem reads the pictures: a folder or a name")
    out: Path = required("folder for the files")
    split: str = option("train", "part of the data set", choices=SPLITS)
    photos: bool = option(False, "IT2P's photographs instead of simulated scenes")
    scenes: int | None = option(None, "largest number of scenes; default: all", type=at_least(1))
    versions: int = option(
        1, "versions of each training picture; validation has one, unchanged", type=at_least(1)
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's options."""
    add_options(parser, FeaturesOptions)


def run(args: argparse.Namespace) -> int:
    """Write the missing files; 0 when all are there."""
    options = read_options(FeaturesOptions, args)
    options.start_device()
    write_features(options)
    return 0


def write_features(options: FeaturesOptions) -> None:
    """Write the missing files. Raises ClueError where the model's stem reads no details."""
    folder = find_base(find_model(options.model))
    backbone: Any = open_backbone(folder, LoadOptions(folder, device=options.device))
    if details_in(backbone.config.vision_config) is None:
        raise ClueError(f"{folder}: this model's stem reads no details; nothing to compute ahead")
    options.out.mkdir(parents=True, exist_ok=True)
    versions = options.versions if options.split == "train" else 1
    for version in range(versions):
        for name, scenes in _sources(options):
            path = options.out / f"{name}-v{version}.safetensors"
            if not path.exists():
                _write(path, backbone, _versions(scenes, name, version, options))


def _sources(options: FeaturesOptions) -> Iterator[tuple[str, Iterator[Scene]]]:
    """The name and the scenes of each file, read when they are asked for."""
    if options.photos:
        scenes, _ = it2p_scenes(options.it2p or find_it2p(), options.split)
        if not scenes:
            raise ClueError("IT2P not found: set CLUE_IT2P or give --it2p DIR (it holds data/)")
        yield f"{IT2P}-{options.split}", iter(scenes)
        return
    paths = list_shards(options.tabletop, options.split, options.world)
    if not paths:
        raise FileNotFoundError(how_to_make(options.tabletop, options.split, 1000, options.world))
    left = options.scenes
    for path in paths:
        if left is not None and left <= 0:
            return
        scenes = list(read_shard(path, options.world))[:left]
        left = None if left is None else left - len(scenes)
        yield path.stem, iter(scenes)


def _versions(
    scenes: Iterator[Scene], name: str, version: int, options: FeaturesOptions
) -> Iterator[Picture]:
    """A version of each scene, at its own aspect; a function of the file's name alone."""
    seed = int.from_bytes(hashlib.sha256(f"{name}/{version}".encode()).digest()[:8], "little")
    rng = np.random.default_rng(seed)
    for scene in scenes:
        if options.split == "train":
            yield drawn(scene, rng, is_photo=options.photos)
        else:
            yield Picture(scene)


def drawn(scene: Scene, rng: np.random.Generator, *, is_photo: bool) -> Picture:
    """A scene at its own aspect, augmented as `ScenePool.augmented` does.

    Shares of them are zoomed at some objects (ZOOMED) or cropped around one (CROPPED).
    """
    mirror = (bool(rng.uniform() < 0.5), bool(is_photo and rng.uniform() < 0.5))
    scene, subject = mirrored(scene, mirror), None
    way = rng.uniform()
    found = None
    if not is_photo and scene.objects and way < CROPPED:
        found = cropped(scene, int(rng.integers(len(scene.objects))), rng, keeps_aspect=True)
    if found is not None:
        scene, subject = found
    else:
        tries = ZOOM_TRIES if not is_photo and way >= 1 - ZOOMED else 0
        nearer = (part for _ in range(tries) if (part := zoomed(scene, rng)) is not None)
        scene = next(nearer, None) or shifted(scene, rng)
    scene = photographed(scene, rng, tables=not is_photo and subject is None)
    return Picture(scene, mirror, subject=subject)


def _write(path: Path, backbone: Any, pictures: Iterator[Picture]) -> None:
    vision = backbone.config.vision_config
    details = details_in(vision)
    assert details is not None
    side = vision.image_size
    small: list[npt.NDArray[np.uint8]] = []
    features: list[npt.NDArray[np.int8]] = []
    instances: list[npt.NDArray[np.uint8]] = []
    about: list[dict[str, Any]] = []
    waiting: list[Picture] = []

    def compute() -> None:
        images = [picture.scene.image for picture in waiting]
        squares = [
            np.asarray(cv2.resize(image, (side, side), interpolation=cv2.INTER_AREA), np.uint8)
            for image in images
        ]
        pixels = np.stack(squares).transpose(0, 3, 1, 2).astype(np.float32) / 127.5 - 1
        found = backbone.stem_features(pixels, detailed_pictures(images, details.side))
        features.append(np.rint(found * STEPS).clip(-127, 127).astype(np.int8))
        small.extend(squares)
        waiting.clear()

    for picture in tqdm(pictures, desc=path.stem, mininterval=5, file=sys.stderr):
        objects = [asdict(o) for o in picture.scene.objects]
        about.append({"objects": objects, "mirror": picture.mirror, "subject": picture.subject})
        instances.append(picture.scene.instances)
        waiting.append(picture)
        if len(waiting) == BATCH:
            compute()
    if waiting:
        compute()
    arrays = {
        "pictures": np.stack(small),
        "features": np.concatenate(features),
        "instances": np.stack(instances),
    }
    with replacing(path) as partial:
        save_file(arrays, str(partial), metadata={"pictures": json.dumps(about)})


class StoredPool:
    """Pictures of `clue data features`, in place of a `ScenePool`; read when they are asked for.

    records: IT2P's, of a pool of photographs, in the order of each file.
    """

    def __init__(self, paths: Sequence[Path], records: Sequence[It2pImage] | None = None) -> None:
        self.records = records
        self._files: list[Any] = []
        self._about: list[dict[str, Any]] = []
        self._places: list[tuple[int, int]] = []  # file, row
        for number, path in enumerate(paths):
            file: Any = safe_open(str(path), framework="np")
            about = json.loads(file.metadata()["pictures"])
            if records is not None and len(about) != len(records):
                raise ClueError(f"{path} has {len(about)} pictures, IT2P now {len(records)}")
            self._files.append({name: file.get_slice(name) for name in file.keys()})  # noqa: SIM118
            self._about += about
            self._places += [(number, row) for row in range(len(about))]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Scene:
        number, row = self._places[index]
        found = {name: part[row : row + 1][0] for name, part in self._files[number].items()}
        objects = tuple(_object(values) for values in self._about[index]["objects"])
        return Scene(
            found["pictures"], objects, found["instances"], None, features=found["features"]
        )

    def record(self, index: int) -> It2pImage | None:
        """IT2P's record of a photograph; None for a simulated scene."""
        return None if self.records is None else self.records[self._places[index][1]]

    def augmented(self, index: int, rng: np.random.Generator, *, turns: bool = False) -> Picture:
        """Picture `index` as it was stored: a version of its scene. rng, turns: unused."""
        about = self._about[index]
        mirror = bool(about["mirror"][0]), bool(about["mirror"][1])
        return Picture(self[index], mirror, self.record(index), about["subject"])


def _object(values: dict[str, Any]) -> SceneObject:
    listed = {name: tuple(values[name]) for name in ("box", "names", "colors", "parts")}
    return SceneObject(**{**values, **listed})


def stored_paths(folder: Path, name: str, split: str) -> list[Path]:
    """The files of a world, or of IT2P, and a split."""
    pattern = f"{name}-{split}-v*" if name == IT2P else f"{name}-{split}-*-v*"
    return sorted(folder.glob(f"{pattern}.safetensors"))


def stem_features(scenes: Sequence[Scene], device: torch.device) -> torch.Tensor | None:
    """The stored features of scenes (B, C, g, g); None where none has any."""
    found = [scene.features for scene in scenes if scene.features is not None]
    if not found:
        return None
    if len(found) < len(scenes):
        raise ValueError("some of these pictures have stored features, some have none")
    return torch.from_numpy(np.stack(found)).to(device).float() / STEPS
