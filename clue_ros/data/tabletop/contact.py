"""A contact sheet: scenes of a world side by side, each object with its box and its name."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
from PIL import Image

from clue_ros.data.tabletop import shards
from clue_ros.data.tabletop.scene import Scene
from clue_ros.data.tabletop.worlds import world_spec

SCENES = 12
COLUMNS = 3
TILE_WIDTH = 320  # pixels
COLORS = 200
INK = (255, 240, 60)


def labelled(scene: Scene) -> npt.NDArray[np.uint8]:
    """A copy of the picture, uint8 RGB (H, W, 3), with the truth drawn on it."""
    out: npt.NDArray[np.uint8] = scene.image.copy()
    height, width = out.shape[:2]
    for o in scene.objects:
        x0, y0, x1, y1 = (round(v * n) for v, n in zip(o.box, (width, height) * 2, strict=True))
        cv2.rectangle(out, (x0, y0), (x1 - 1, y1 - 1), INK, 1)
        text, at = f"{o.color} {o.kind}", (x0, max(9, y0 - 3))
        for ink, thick in (((0, 0, 0), 3), (INK, 1)):
            cv2.putText(out, text, at, cv2.FONT_HERSHEY_SIMPLEX, 0.36, ink, thick, cv2.LINE_AA)
    return out


def write_contact_sheet(path: Path, world: str, split: str, seed: int, count: int = SCENES) -> None:
    """Draw `count` scenes as one PNG, COLUMNS in a row, in few colours so that it stays small."""
    from clue_ros.data.tabletop.settled import open_world

    first = shards.shard_seed(split, seed, 0, world)
    drawn = open_world(world_spec(world), first, TILE_WIDTH)
    tiles = [labelled(drawn.scene()) for _ in range(count)]
    drawn.close()
    height = max(t.shape[0] for t in tiles)
    sheet = np.full((-(-count // COLUMNS) * height, COLUMNS * TILE_WIDTH, 3), 255, np.uint8)
    for i, tile in enumerate(tiles):
        y, x = i // COLUMNS * height, i % COLUMNS * TILE_WIDTH
        sheet[y : y + tile.shape[0], x : x + tile.shape[1]] = tile
    path.parent.mkdir(parents=True, exist_ok=True)
    _paletted(sheet).save(path, optimize=True)


def _paletted(image: npt.NDArray[np.uint8]) -> Image.Image:
    """The picture in the COLORS colours that fit it best: a third of the bytes of full colour."""
    pixels = image.reshape(-1, 3)
    some = pixels[:: max(1, len(pixels) // 20000)].astype(np.float32)
    stop = (cv2.TERM_CRITERIA_MAX_ITER, 10, 0.0)
    cv2.setRNGSeed(0)
    _, _, centers = cv2.kmeans(
        some, min(COLORS, len(some)), np.array([]), stop, 1, cv2.KMEANS_PP_CENTERS
    )
    palette = Image.new("P", (1, 1))
    palette.putpalette(centers.round().astype(np.uint8).tobytes())
    return Image.fromarray(image).quantize(palette=palette, dither=Image.Dither.NONE)
