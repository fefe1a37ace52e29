# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""An image that was looked at, and what the model has made of it so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box
from clue_ros.model.box_head import SIDE, BoxMap
from clue_ros.model.details import detailed_picture
from clue_ros.model.multi_view import FAR, Window, window_features, window_of

if TYPE_CHECKING:
    from clue_ros.model.backbone import Array
    from clue_ros.model.base_tasks import BaseTasks
    from clue_ros.model.checkpoint import Checkpoint
    from clue_ros.model.taught import Patches

Image = npt.NDArray[np.uint8]


@dataclass
class Encoded:
    """An image's features (1, N, D); those (N, D) of the windows onto it that were needed last.

    pixels: a copy, as a caller may write to the image later. base: the model without adapters,
    asked about this image. stages: of a stem's network, by the longer side at which it read the
    image and by their numbers; patches: for taught words; box_map: boxes of all objects; afar: it
    from farther off; all once they were needed.
    """

    pixels: Image
    features: Any
    base: BaseTasks | None = None
    further: dict[Window, Any] = field(default_factory=dict)
    stages: dict[tuple[int, tuple[int, ...]], list[Array]] = field(default_factory=dict)
    patches: Patches | None = None
    box_map: BoxMap | None = None
    afar: Encoded | None = None


class View:
    """An image that was looked at: its pixels, and the vision tower's features.

    checkpoint: the model that looked at it.
    """

    def __init__(self, image: Image, encoded: Encoded, checkpoint: Checkpoint) -> None:
        self._image, self._encoded, self.checkpoint = image, encoded, checkpoint

    @property
    def image(self) -> Image:
        """The original, uint8 RGB (H, W, 3), C-contiguous."""
        return self._image

    @property
    def features(self) -> Any:
        """The vision tower's, (1, N, D), on the model's device."""
        return self._encoded.features

    @property
    def width(self) -> int:
        """Width of the original in pixels."""
        return int(self._image.shape[1])

    @property
    def height(self) -> int:
        """Height of the original in pixels."""
        return int(self._image.shape[0])

    def through(self, windows: Sequence[Window]) -> Any:
        """Features (n, N, D) of windows onto the image; None for no window.

        Those of this call are kept for the next one, and no others.
        """
        if not windows:
            return None
        return window_features(self.image, windows, self._encoded.further, self.checkpoint.look)

    def stages(self, side: int, stages: tuple[int, ...]) -> list[Array]:
        """`Backbone.stages` of the image at its own aspect, with a longer side of `side` pixels.

        Computed once: taught words and the box head read the same.
        """
        known = self._encoded.stages
        if (side, stages) not in known:
            picture = detailed_picture(self.image, side)
            known[side, stages] = self.checkpoint.backbone.stages(picture, stages)
        return known[side, stages]

    @property
    def patches(self) -> Patches:
        """Frozen features at full resolution, for taught words (`clue_ros.model.taught`)."""
        from clue_ros.model.taught import patches_of

        if self._encoded.patches is None:
            vision = self.checkpoint.backbone.config.vision_config
            sizes = getattr(vision, "conv_stem", None)
            self._encoded.patches = patches_of(self.image, sizes, self.stages, self.features)
        return self._encoded.patches

    @property
    def box_map(self) -> BoxMap | None:
        """Boxes of all objects in the image (`clue_ros.model.box_head`); None without a head."""
        head = self.checkpoint.box_head
        if head is not None and self._encoded.box_map is None:
            self._encoded.box_map = head(self.stages(SIDE, head.stages))
        return self._encoded.box_map

    @property
    def afar(self) -> tuple[View, Window]:
        """The image from farther off (`multi_view.FAR`), and the window that it is seen through."""
        window = window_of(FAR, self.width, self.height)
        if self._encoded.afar is None:
            picture = window.onto(self.image)
            self._encoded.afar = Encoded(picture, self.checkpoint.look(picture))
        seen = self._encoded.afar
        return View(seen.pixels, seen, self.checkpoint), window

    def closer(self, box: Box, side: int) -> tuple[Box, BoxMap] | None:
        """What the head says about a part of the image, read with a longer side of `side` pixels.

        With the part in whole pixels, to which its boxes belong; None without a head. box: in
        pixels, inside the image.
        """
        head = self.checkpoint.box_head
        if head is None:
            return None
        x, y = min(int(box.x_min), self.width - 1), min(int(box.y_min), self.height - 1)
        part = self.image[y : max(y + 1, round(box.y_max)), x : max(x + 1, round(box.x_max))]
        picture = detailed_picture(np.ascontiguousarray(part), side)
        found = head(self.checkpoint.backbone.stages(picture, head.stages))
        return Box(x, y, x + part.shape[1], y + part.shape[0]), found

    @property
    def base(self) -> BaseTasks:
        """The model without adapters, asked about this image; it remembers its answers."""
        from clue_ros.model.base_tasks import BaseTasks

        seen = self._encoded
        if seen.base is None:
            seen.base = BaseTasks(self.checkpoint, seen.pixels, seen.features)
        return seen.base
