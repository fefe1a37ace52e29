"""The attention maps of every decoder block for many sentences, from one full pass each, on disk.

What Figure 7 is made from: the frozen model, no adapter, equations 1 and 2 at every block. A
folder of chunks; a run that was killed goes on at the chunk it was at, and `cache.json` says what
the maps were made from, so that they are never taken for another model's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from clue_ros.errors import ClueError
from clue_ros.model.backbone import Backbone
from clue_ros.model.files import first_line, read_json, replacing, write_json
from clue_ros.model.hub import find_base, find_model
from clue_ros.model.map_reader import block_maps, load_base
from clue_ros.model.processor import encode_prompts
from clue_ros.model.weights import fingerprint

CHUNK = 32  # pictures a file
MANIFEST = "cache.json"


class Picture(Protocol):
    """What is read of a picture: its pixels, uint8 RGB (H, W, 3), and what is said of it."""

    @property
    def sentences(self) -> tuple[tuple[str, bool], ...]:
        """Sentences and their labels."""

    def load(self) -> npt.NDArray[np.uint8]:
        """The pixels."""


class MapCache:
    """Maps of every block for pictures' sentences, kept in `folder` in the pictures' order.

    made_from: what decides the maps (model, data, instruction, dtype), plain JSON values. Raises
    ClueError when the folder holds maps made from something else.
    """

    def __init__(
        self,
        folder: Path,
        backbone: Backbone,
        processor: Any,
        instruction: str,
        pictures: Sequence[Picture],
        made_from: dict[str, Any],
    ) -> None:
        self.folder, self.backbone, self.blocks = folder, backbone, backbone.blocks
        self._processor, self._instruction, self._pictures = processor, instruction, pictures
        dtype = str(backbone.dtype).removeprefix("torch.")
        wanted = {**made_from, "instruction": instruction, "dtype": dtype, "pictures a file": CHUNK}
        path = folder / MANIFEST
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            write_json(path, wanted)
        kept = read_json(path)
        other = [name for name in wanted if kept.get(name) != wanted[name]]
        if other:
            raise ClueError(
                f"{folder} holds maps made with another {', '.join(other)}: give another --run"
                " folder or delete it"
            )

    def fill(self) -> Iterator[int]:
        """Make the chunks that are missing; yields the number of pictures done, chunk by chunk."""
        for path, chunk in self._chunks():
            if not path.is_file():
                maps = torch.cat([self._picture_maps(picture) for picture in chunk])
                # Half precision: 0..1 in steps of at most 1/2048.
                with replacing(path) as partial:
                    save_file({"maps": maps.half()}, partial)
            yield len(chunk)

    def block(self, block: int) -> Tensor:
        """One block's maps, (n, g, g) float32, a row a sentence. ClueError names a bad chunk."""
        rows = []
        for path, chunk in self._chunks():
            try:
                with safe_open(path, framework="pt") as file:
                    part: Tensor = file.get_slice("maps")[:, block]
            except (OSError, SafetensorError) as error:
                raise ClueError(
                    f"{path} cannot be read ({first_line(error)}): delete it and run again"
                ) from error
            if len(part) != sum(len(picture.sentences) for picture in chunk):
                raise ClueError(f"{path} holds {len(part)} maps, not what is asked: delete it")
            rows.append(part.float())
        return torch.cat(rows)

    def _chunks(self) -> Iterator[tuple[Path, Sequence[Picture]]]:
        for first in range(0, len(self._pictures), CHUNK):
            name = f"maps-{first // CHUNK:04d}.safetensors"
            yield self.folder / name, self._pictures[first : first + CHUNK]

    @torch.inference_mode()
    def _picture_maps(self, picture: Picture) -> Tensor:
        image = Image.fromarray(picture.load())
        pixels = self._processor.image_processor(image, return_tensors="pt")["pixel_values"]
        texts = [text for text, _ in picture.sentences]
        prompts = encode_prompts(self._processor, self._instruction, texts)
        features = self.backbone.look(pixels)
        return block_maps(self.backbone, features, prompts.to(self.backbone.device)).cpu()


def open_cache(
    folder: Path,
    model: str,
    device: str,
    instruction: str,
    pictures: Sequence[Picture],
    data: str,
) -> MapCache:
    """The cache for a model's base (embedded name, folder or hub id) without any adapter.

    data: a digest of the pictures. Raises ModelError, ClueError.
    """
    backbone, processor = load_base(model, device)
    made_from = {"model": fingerprint(find_base(find_model(model))), "data": data}
    return MapCache(folder, backbone, processor, instruction, pictures, made_from)
