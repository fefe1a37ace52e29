# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""SAM 2 and EdgeTAM as trackers: transformers' video models, frame by frame.

SAM 2 (Ravi and others, 2024) and EdgeTAM (Zhou and others, 2025) segment an object from a box,
points or a mask, and follow it by a memory of earlier frames. Each object has a session of its own;
all of them share one network, which looks at each frame once.

transformers keeps every picture and every output of a session. Here each session keeps what the
next frame reads: what the prompt gave, and as many earlier frames as the memory holds. After
RENEWED frames a session begins anew from its own last mask.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from clue_ros.dialogue.types import Box
from clue_ros.errors import ModelError
from clue_ros.model.devices import OnDevice, choose_device
from clue_ros.model.loading import first_line, name_and_revision
from clue_ros.model.masks import Mask
from clue_ros.model.tracking import Image, Step, check_start, check_step
from clue_ros.requirements import missing

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of both networks' pictures
CORNERS, INSIDE = (2, 3), 1  # labels of a box's corners and of a point in the object
RENEWED = 500  # frames of a session; the networks learned from clips of seconds
OBJECT = 1  # the number of a session's only object
KINDS = {"sam2_video": "Sam2VideoModel", "edgetam_video": "EdgeTamVideoModel"}


class VideoNetwork(OnDevice):
    """One network that any number of `Sam2Tracker` share. Thread-safe.

    model: transformers' Sam2VideoModel or EdgeTamVideoModel.
    """

    def __init__(self, model: Any) -> None:
        self.model = model.eval()
        self.lock = threading.Lock()
        self.side = int(model.image_size)
        config = model.config
        self.remembered = max(int(config.num_maskmem), int(config.max_object_pointers_in_encoder))
        name = type(model).__name__.replace("Model", "InferenceSession")
        self._session = getattr(sys.modules[type(model).__module__], name)
        self._frame: Image | None = None  # the last one, with its picture and features
        self._picture: Any = None
        self._features: dict[str, Any] | None = None

    @classmethod
    def load(cls, name: str, device: str = "auto") -> VideoNetwork:
        """Load a hub id (owner/name@revision) or a folder. Raises ModelError.

        It refuses a checkpoint that lacks weights of the network that its configuration describes:
        transformers would fill them at random. (A default EdgeTAM configuration has SAM 2's vision
        tower, not EdgeTAM's.)
        """
        import transformers

        from clue_ros.model.torch_backbone import quietly

        place, revision = name_and_revision(name)
        pinned: dict[str, Any] = {"revision": revision} if revision else {}
        try:
            kind = transformers.AutoConfig.from_pretrained(place, **pinned).model_type
            if kind not in KINDS:
                raise ModelError(f"{name} is a model of type {kind}, want {' or '.join(KINDS)}")
            with quietly():
                model, report = getattr(transformers, KINDS[kind]).from_pretrained(
                    place,
                    use_safetensors=True,
                    dtype=torch.float32,
                    output_loading_info=True,
                    **pinned,
                )
        except ModelError:
            raise
        except ImportError as error:  # EdgeTAM's vision tower is timm's
            module = "timm" if "timm" in str(error) else str(error.name)
            raise ModelError(missing(module, f"the tracker {name}")) from error
        except Exception as error:  # whatever the hub's client and the libraries raise
            raise ModelError(f"cannot load the tracker {name}: {first_line(error)}") from error
        if lacking := sorted(report["missing_keys"]):
            count, first = len(lacking), lacking[0]
            raise ModelError(f"the tracker {name} lacks {count} weights, such as {first}")
        return cls(model.to(choose_device(device)))

    def session(self) -> Any:
        """A new session without objects."""
        return self._session(
            inference_device=self.device,
            inference_state_device=self.device,
            video_storage_device=self.device,
            dtype=next(self.model.parameters()).dtype,
        )

    @torch.inference_mode()
    def run(self, session: Any, number: int, frame: Image) -> tuple[Mask, float]:
        """The mask, bool (H, W), and score 0..1 of a session's object in a frame.

        number: the frame's, from 0, one more each time. frame: uint8 RGB (H, W, 3).
        """
        with self.lock:
            if frame is not self._frame:
                self._frame, self._picture, self._features = frame, self._pixels(frame), None
            if self._features is not None:
                session.cache.cache_vision_features(number, self._features)
            # Its number is given: transformers would count the pictures that are still kept.
            found = self.model(session, frame=self._picture, frame_idx=number)
            self._features = session.cache.get_vision_features(number)
            self._prune(session, number)
        logits = found.pred_masks.reshape(1, 1, *found.pred_masks.shape[-2:]).float()
        whole = functional.interpolate(logits, frame.shape[:2], mode="bilinear")[0, 0] > 0
        score = torch.sigmoid(found.object_score_logits.float()).item()
        return np.asarray(whole.cpu().numpy(), np.bool_), float(score)

    def _pixels(self, frame: Image) -> torch.Tensor:
        """A frame as the network reads it, float (3, side, side)."""
        pixels = torch.from_numpy(np.ascontiguousarray(frame)).to(self.device)
        pixels = pixels.permute(2, 0, 1)[None].float() / 255
        size = (self.side, self.side)
        small = functional.interpolate(pixels, size, mode="bilinear", antialias=True)[0]
        mean, std = (torch.tensor(v, device=self.device)[:, None, None] for v in (MEAN, STD))
        return (small - mean) / std

    def _prune(self, session: Any, number: int) -> None:
        """Forget what no later frame reads."""
        session.processed_frames.clear()
        session.cache.clear_all()
        session.point_inputs_per_obj[0].clear()
        session.mask_inputs_per_obj[0].clear()
        outputs = session.output_dict_per_obj[0]
        for kept in outputs.values():
            if number in kept:
                kept[number].pop("high_res_masks", None)  # of use for this frame's memory alone
        for kept in (outputs["non_cond_frame_outputs"], session.frames_tracked_per_obj[0]):
            for old in [n for n in kept if n <= number - self.remembered]:
                del kept[old]


@lru_cache(maxsize=1)
def load_network(name: str, device: str = "auto") -> VideoNetwork:
    """The network of a hub id or folder, loaded once. Raises ModelError."""
    return VideoNetwork.load(name, device)


class Sam2Tracker:
    """Follows one object by a network's memory; see `clue_ros.model.tracking.Tracker`."""

    def __init__(self, network: VideoNetwork) -> None:
        self._network = network
        self._shape: tuple[int, ...] = ()  # of all frames; () before the first
        self._session: Any = None
        self._number = 0  # of the session's last frame
        self._mask: Mask  # in the last frame in which it was seen

    def start(
        self,
        frame: Image,
        box: Box,
        points: Sequence[tuple[float, float]] = (),
        mask: Mask | None = None,
    ) -> Mask:
        """See `Tracker`. A mask is taken as it is; else box and points are the prompt."""
        inside = check_start(frame, box, mask)
        height, width = frame.shape[:2]
        self._shape = frame.shape
        if mask is not None:
            self._begin(frame, mask=mask)
            self._mask = mask
            return mask
        corners = [(inside.x_min, inside.y_min), (inside.x_max, inside.y_max)]
        labels = [*CORNERS, *[INSIDE] * len(points)]
        scale = torch.tensor([self._network.side / width, self._network.side / height])
        coordinates = torch.tensor([*corners, *points], dtype=torch.float32) * scale
        found, _ = self._begin(
            frame,
            points={
                "point_coords": coordinates[None, None],
                "point_labels": torch.tensor(labels, dtype=torch.int32)[None, None],
            },
        )
        if not found.any():  # it sees nothing there: the box is all that is known
            rows, columns = (slice(int(a), int(np.ceil(b))) for a, b in (
                (inside.y_min, inside.y_max), (inside.x_min, inside.x_max)
            ))  # fmt: skip
            found[rows, columns] = True
        self._mask = found
        return found

    def step(self, frame: Image) -> Step:
        """See `Tracker`."""
        check_step(frame, self._shape)
        self._number += 1
        mask, score = self._network.run(self._session, self._number, frame)
        if score <= 0.5 or not mask.any():
            return Step(self._mask, score, True)
        self._mask = mask
        if self._number >= RENEWED:
            self._begin(frame, mask=mask)
        return Step(mask, score, False)

    def _begin(
        self, frame: Image, *, points: dict[str, Any] | None = None, mask: Mask | None = None
    ) -> tuple[Mask, float]:
        """A new session whose first frame has this prompt.

        The prompt is given before the frame runs: one for a frame that ran already would reach no
        frame, and the object would never be followed.
        """
        self._session, self._number = self._network.session(), 0
        index = self._session.obj_id_to_idx(OBJECT)
        if mask is not None:
            whole = torch.from_numpy(mask.astype(np.float32))[None, None]
            size = (self._network.side, self._network.side)
            small = functional.interpolate(whole, size, mode="bilinear", antialias=True)
            # A thing thinner than a pixel of the network would vanish.
            small = (small >= min(0.5, float(small.max()))).float()
            self._session.add_mask_inputs(index, 0, small)
        else:
            self._session.add_point_inputs(index, 0, points)
        self._session.obj_with_new_inputs = [OBJECT]  # forward empties this list: a new one
        return self._network.run(self._session, 0, frame)
