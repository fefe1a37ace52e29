"""IT2P photographs as scenes: the simulator's records, so that every stage takes both."""

from __future__ import annotations

import cv2
import numpy as np

from clue_ros.data.it2p import It2pImage
from clue_ros.data.it2p_boxes import block_boxes
from clue_ros.data.tabletop.scene import COLORS, Scene, SceneObject
from clue_ros.data.tabletop.world import INSTANCE_GRID
from clue_ros.images import load_image


def it2p_scene(record: It2pImage) -> Scene:
    """The photograph with one object a block, in the order of `record.blocks`.

    Boxes and masks are estimated from the colour around each annotated point, as the data set
    has points only. ValueError when a block's colour is unknown (no command names it).
    """
    image = load_image(record.path)
    height, width = image.shape[:2]
    full = np.zeros((height, width), dtype=np.uint8)
    objects: list[SceneObject] = []
    for block, region in zip(
        record.blocks, block_boxes(image, [b.point for b in record.blocks]), strict=True
    ):
        if block.color not in COLORS:
            raise ValueError(f"{record.path}: the block at {block.point} has no known colour")
        full[region.mask] = len(objects) + 1
        x0, y0, x1, y1 = region.box
        box = (x0 / width, y0 / height, x1 / width, y1 / height)
        objects.append(SceneObject("block", block.color, box))
    instances = cv2.resize(full, (INSTANCE_GRID, INSTANCE_GRID), interpolation=cv2.INTER_NEAREST)
    return Scene(image, tuple(objects), np.asarray(instances, dtype=np.uint8))
