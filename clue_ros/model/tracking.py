# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Follows an object from frame to frame, once it was found.

A `Tracker` follows one object (`trackers` makes one by its name). `FlowTracker` needs no weights.
Dense optical flow (DIS; Kroeger and others, 2016) tells how the object moved since the last frame;
the object's pixels are then aligned with those of an earlier frame (ECC; Evangelidis and Psarakis,
2008), so that small errors do not add up; GrabCut (`clue_ros.model.masks`) fits the mask's edge.
The object's colours tell how sure it is, and its picture where it is again after it was lost. All
three are OpenCV's implementations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box
from clue_ros.errors import BadBoxError, BadImageError
from clue_ros.images import check_image
from clue_ros.model.masks import Mask, grabcut_mask

Image = npt.NDArray[np.uint8]
Array = npt.NDArray[np.float32]
Matrix = npt.NDArray[np.float64]

# Chosen on objects of demo/photos, cut out and moved over other photographs (test_tracking.py).
WINDOW = 288  # pixels of the square around the object in which it is looked for
REACH = 0.5  # of the mask's sides, around it: how far an object may move between two frames
POINTS = 400  # of the object, whose flow gives its motion
RIM = 9  # pixels of the square by which a mask grows to show the object's edge
LEAST_TEXTURE = 3.0  # change of lightness a pixel below which an object is plain
ALIGNED = 0.9  # correlation with the earlier frame, below which the last frame takes its place
LEAST_ALIGNED = 0.5  # and below which the alignment failed: the flow alone counts
LEAST_SCORE = 0.6  # similarity of colours below which the object is lost
LEAST_AREA = 0.3  # of the mask's pixels have its colours; fewer: something covers it
FOUND_SCORE = 0.75  # similarity of colours from which a lost object is found again
FOUND_MATCH = 0.75  # and correlation with its last picture
SEARCH = 320  # pixels of a frame's longer side when a lost object is looked for
SHAPE = 0.75  # IoU of GrabCut's mask and the carried one, below which the carried one stays
MEMORY = 0.05  # share of a new frame's colours in the object's


class Step(NamedTuple):
    """An object in one frame.

    mask: bool (H, W); where it is lost, that of the frame in which it was seen last. score: 0..1,
    how alike its colours are to those that it had. lost: it is not seen in this frame.
    """

    mask: Mask
    score: float
    lost: bool


class Tracker(Protocol):
    """Follows one object. Not thread-safe."""

    def start(
        self,
        frame: Image,
        box: Box,
        points: Sequence[tuple[float, float]] = (),
        mask: Mask | None = None,
    ) -> Mask:
        """Begin with the object in a box, and return its mask, bool (H, W).

        frame: uint8 RGB (H, W, 3). points: (x, y) pixels that belong to it. mask: its pixels, where
        they are known. Raises BadImageError for a frame that is no image and a mask that has no
        pixel in it, BadBoxError for such a box.
        """

    def step(self, frame: Image) -> Step:
        """Find it in the next frame. Raises BadImageError for one of another size."""


def check_start(frame: Image, box: Box, mask: Mask | None) -> Box:
    """Check what `Tracker.start` is given; returns the part of the box that lies in the frame.

    Raises BadImageError and BadBoxError as `Tracker.start` does.
    """
    check_image(frame)
    height, width = frame.shape[:2]
    inside = box.clipped(float(width), float(height))
    if inside.area < 1:
        raise BadBoxError(f"box {box.as_list()} is outside of this {width}x{height} frame")
    if mask is not None and (mask.shape != (height, width) or not mask.any()):
        raise BadImageError(f"the mask has no pixel of this {width}x{height} frame")
    return inside


def check_step(frame: Image, shape: tuple[int, ...]) -> None:
    """Check a further frame. shape: of the first one, () before `Tracker.start`.

    Raises BadImageError for a frame of another size, RuntimeError before `Tracker.start`.
    """
    check_image(frame)
    if not shape:
        raise RuntimeError("start comes before step")
    if frame.shape != shape:
        was = f"{shape[1]}x{shape[0]}"
        raise BadImageError(f"a frame of {frame.shape[1]}x{frame.shape[0]} after some of {was}")


def box_of(mask: Mask) -> Box:
    """The box around a mask's pixels, max exclusive. Raises ValueError for an empty mask."""
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    if not len(rows):
        raise ValueError("an empty mask has no box")
    return Box(*map(float, (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)))


@dataclass(frozen=True)
class _Window:
    """A square of a frame, from (x, y) on, that is seen at WINDOW x WINDOW pixels."""

    x: int
    y: int
    side: int

    @property
    def matrix(self) -> Matrix:
        """3 x 3, from the frame's pixels to the window's."""
        scale = WINDOW / self.side
        return np.array([[scale, 0, -scale * self.x], [0, scale, -scale * self.y], [0, 0, 1]])

    def cut(self, frame: Image) -> Image:
        """Its pixels, (WINDOW, WINDOW, 3); outside the frame, those of the frame's edge."""
        method = cv2.INTER_AREA if self.side > WINDOW else cv2.INTER_LINEAR
        part = self._part(frame, cv2.BORDER_REPLICATE)
        return np.asarray(cv2.resize(part, (WINDOW, WINDOW), interpolation=method), np.uint8)

    def cut_mask(self, mask: Mask) -> Array:
        """A mask's pixels, (WINDOW, WINDOW) in 0..1."""
        part = self._part(mask.astype(np.uint8) * np.uint8(255), cv2.BORDER_CONSTANT)
        small = cv2.resize(part, (WINDOW, WINDOW), interpolation=cv2.INTER_AREA)
        most = max(1, int(small.max()))  # a thin thing in a large window has no full pixel
        return np.asarray(small / most, np.float32)

    def _part(self, picture: Image, border: int) -> Image:
        height, width = picture.shape[:2]
        x0, y0, x1, y1 = self.x, self.y, self.x + self.side, self.y + self.side
        part = picture[max(0, y0) : max(0, y1), max(0, x0) : max(0, x1)]
        beyond = max(0, -y0), max(0, y1 - height), max(0, -x0), max(0, x1 - width)
        return np.asarray(cv2.copyMakeBorder(part, *beyond, border) if any(beyond) else part)

    def whole(self, mask: Mask, shape: Sequence[int]) -> Mask:
        """A mask (WINDOW, WINDOW) of the window as one of the frame, bool (H, W)."""
        seen = cv2.resize(mask.astype(np.float32), (self.side, self.side)) >= 0.5
        found = np.zeros(shape[:2], np.bool_)
        x0, y0 = max(0, self.x), max(0, self.y)
        x1, y1 = min(shape[1], self.x + self.side), min(shape[0], self.y + self.side)
        found[y0:y1, x0:x1] = seen[y0 - self.y : y1 - self.y, x0 - self.x : x1 - self.x]
        return found


def _window_around(box: Box, shape: Sequence[int]) -> _Window:
    """The window of a frame around a box; its middle lies in the frame."""
    side = max(24, int(np.ceil((1 + 2 * REACH) * max(box.width, box.height))))
    limits = shape[1], shape[0]
    x, y = (
        round(min(max(middle, 0.0), limit) - side / 2)
        for middle, limit in zip(box.center, limits, strict=True)
    )
    return _Window(x, y, side)


class _Seen(NamedTuple):
    """The object as a window of one frame shows it: colours, lightness, and its mask in 0..1."""

    window: _Window
    picture: Image
    gray: Image
    mask: Array


def _seen(frame: Image, mask: Mask) -> _Seen:
    window = _window_around(box_of(mask), frame.shape)
    picture = window.cut(frame)
    return _Seen(window, picture, _gray(picture), window.cut_mask(mask))


class FlowTracker:
    """Optical flow, alignment and GrabCut; see the module's first lines."""

    def __init__(self) -> None:
        self._flow = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_FAST)
        self._shape: tuple[int, ...] = ()  # of all frames; () before the first
        self._anchor: _Seen  # the frame that the object is aligned with
        self._last: _Seen
        self._mask: Mask  # in the last frame in which it was seen
        self._to_anchor: Matrix  # 3 x 3, from that frame's pixels to the anchor's
        self._velocity: Matrix  # (x, y), pixels a frame
        self._colours: Array

    def start(
        self,
        frame: Image,
        box: Box,
        points: Sequence[tuple[float, float]] = (),
        mask: Mask | None = None,
    ) -> Mask:
        """See `Tracker`."""
        inside = check_start(frame, box, mask)
        if mask is None:
            height, width = frame.shape[:2]
            mask = grabcut_mask(frame, inside, _heat(points, inside, width, height))
        self._shape = frame.shape
        self._begin(_seen(frame, mask), mask)
        self._colours = _histogram(_codes(self._last.picture), self._last.mask)
        return mask

    def step(self, frame: Image) -> Step:
        """See `Tracker`."""
        check_step(frame, self._shape)
        window = _window_around(_shifted(box_of(self._mask), self._velocity), frame.shape)
        picture = window.cut(frame)
        to_anchor, correlation = self._align(window, _gray(picture))
        relative = window.matrix @ np.linalg.inv(self._anchor.window.matrix @ to_anchor)
        carried = _warped(self._anchor.mask, relative)
        mask, score = self._fit(picture, window, carried, LEAST_SCORE)
        if mask is None:
            return self._search(frame, score)
        self._velocity = _middle(mask) - _middle(self._mask)
        colours = _histogram(_codes(picture), window.cut_mask(mask))
        self._colours += MEMORY * (colours - self._colours)
        if correlation < ALIGNED:
            self._begin(_seen(frame, mask), mask, self._velocity)
        else:
            self._last, self._mask, self._to_anchor = _seen(frame, mask), mask, to_anchor
        return Step(mask, score, False)

    def _begin(self, seen: _Seen, mask: Mask, velocity: Matrix | None = None) -> None:
        """Take a frame as the one to align with."""
        self._anchor = self._last = seen
        self._mask, self._to_anchor = mask, np.eye(3)
        self._velocity = np.zeros(2) if velocity is None else velocity

    def _align(self, window: _Window, gray: Image) -> tuple[Matrix, float]:
        """From this frame's pixels to the anchor's, 3 x 3, and the correlation of the object.

        window: where the object is looked for; gray: its pixels.
        """
        starts = [self._by_flow(window, gray), self._by_match(window, gray)]
        out, back = self._anchor.window.matrix, np.linalg.inv(window.matrix)
        inside = (self._anchor.mask >= 0.5).astype(np.uint8)
        if _texture(self._anchor.gray, inside) < LEAST_TEXTURE:  # its edge is all there is
            inside = np.asarray(cv2.dilate(inside, np.ones((RIM, RIM), np.uint8)), np.uint8)

        def alike(to_anchor: Matrix) -> float:
            placed = _warped(gray, out @ to_anchor @ back)
            return _correlation(placed, self._anchor.gray, inside)

        best = max(starts, key=alike)
        start = (out @ best @ back)[:2].astype(np.float32)
        ends = cv2.TERM_CRITERIA_EPS | cv2.TERM_CRITERIA_COUNT, 30, 1e-4
        try:
            correlation, found = cv2.findTransformECC(
                gray, self._anchor.gray, start, cv2.MOTION_AFFINE, ends, inside, 5
            )
        except cv2.error:  # it does not converge
            return best, 0.0
        if correlation < LEAST_ALIGNED:
            return best, 0.0
        whole = np.vstack([found, [0, 0, 1]]).astype(np.float64)
        return np.linalg.inv(out) @ whole @ window.matrix, correlation

    def _by_flow(self, window: _Window, gray: Image) -> Matrix:
        """The alignment that the flow since the last frame gives."""
        then = self._last
        none: Any = None  # OpenCV makes the array
        flow = self._flow.calc(then.gray, gray, none)
        rows, columns = np.nonzero(then.mask >= 0.5)
        chosen = np.linspace(0, len(rows) - 1, min(POINTS, len(rows))).astype(int)
        rows, columns = rows[chosen], columns[chosen]
        places = np.stack([columns, rows], 1).astype(np.float32)
        moved = places + flow[rows, columns]
        found, _ = cv2.estimateAffinePartial2D(places, moved, ransacReprojThreshold=1.5)
        motion = np.eye(3)
        if found is not None and 0.8 < np.hypot(found[0, 0], found[1, 0]) < 1.25:
            motion[:2] = found
        moved_by = np.linalg.inv(window.matrix) @ motion @ then.window.matrix
        return np.asarray(self._to_anchor @ np.linalg.inv(moved_by))

    def _by_match(self, window: _Window, gray: Image) -> Matrix:
        """The alignment that the place of the object's last picture in the window gives."""
        then = self._last
        box = box_of(then.mask >= 0.5)
        part = _slices(box)
        shown, inside = then.gray[part], (then.mask[part] >= 0.5).astype(np.uint8)
        match = cv2.matchTemplate(gray, shown, cv2.TM_CCOEFF_NORMED, mask=inside)
        match[~np.isfinite(match)] = -1
        _, _, _, (x, y) = cv2.minMaxLoc(match)
        moved = np.array([[1, 0, x - box.x_min], [0, 1, y - box.y_min], [0, 0, 1]])
        moved_by = np.linalg.inv(window.matrix) @ moved @ then.window.matrix
        return np.asarray(self._to_anchor @ np.linalg.inv(moved_by))

    def _fit(
        self, picture: Image, window: _Window, carried: Array, at_least: float
    ) -> tuple[Mask | None, float]:
        """Fit a mask of the window to its colours: the frame's mask, None if lost, its score."""
        codes = _codes(picture)
        own, around = self._colours, _histogram(codes, 1 - carried)
        likely = carried * (own / (own + around + 1e-6))[codes]
        score = _similarity(own, _histogram(codes, carried))
        whole = carried >= 0.5
        if score < at_least or likely.sum() < LEAST_AREA * carried.sum() or not whole.any():
            return None, score
        box = box_of(whole)
        around_it = box.grown(0.08 * box.width, 0.08 * box.height)
        fitted = grabcut_mask(picture, around_it.clipped(WINDOW, WINDOW), carried)
        union = np.count_nonzero(fitted | whole)
        keeps = np.count_nonzero(fitted & whole) >= SHAPE * union
        mask = window.whole(fitted if keeps else whole, self._shape)
        return (mask if mask.any() else None), score

    def _search(self, frame: Image, score: float) -> Step:
        """Look for the object's last picture in the whole frame."""
        self._velocity[:] = 0
        lost = Step(self._mask, score, True)
        found = self._match(frame)
        if found is None:
            return lost
        window = _window_around(found, frame.shape)
        moved = _fitting(box_of(self._mask), found)
        out = np.linalg.inv(self._last.window.matrix)
        carried = _warped(self._last.mask, window.matrix @ moved @ out)
        mask, score = self._fit(window.cut(frame), window, carried, FOUND_SCORE)
        if mask is None:
            return lost
        self._begin(_seen(frame, mask), mask)
        return Step(mask, score, False)

    def _match(self, frame: Image) -> Box | None:
        """Return the place of the object's last picture in a frame; None if it is not there."""
        scale = min(1.0, SEARCH / max(frame.shape[:2]))
        small = cv2.resize(frame, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
        shown = self._last.picture[_slices(box_of(self._last.mask >= 0.5))]
        size = scale * self._last.window.side / WINDOW
        best, place = FOUND_MATCH, None
        for larger in (0.8, 1.0, 1.25):
            width, height = (max(4, round(v * size * larger)) for v in shown.shape[1::-1])
            if width > small.shape[1] or height > small.shape[0]:
                continue
            picture = cv2.resize(shown, (width, height), interpolation=cv2.INTER_AREA)
            match = cv2.matchTemplate(small, picture, cv2.TM_CCOEFF_NORMED)
            _, value, _, (x, y) = cv2.minMaxLoc(match)
            if value > best:
                best = value
                place = Box(x / scale, y / scale, (x + width) / scale, (y + height) / scale)
        return place


def _heat(points: Sequence[tuple[float, float]], box: Box, width: int, height: int) -> Array | None:
    """A prior (h, w) in 0..1 for GrabCut, 1 at points of the object; None without points."""
    if not points:
        return None
    rows, columns = np.mgrid[:height, :width].astype(np.float32)
    reach = max(1.0, min(box.width, box.height) / 3)
    near = [np.hypot(columns - x, rows - y) for x, y in points]
    return np.asarray(np.exp(-((np.min(near, axis=0) / reach) ** 2) / 2), np.float32)


def _shifted(box: Box, by: Matrix) -> Box:
    x, y = map(float, by)
    return Box(box.x_min + x, box.y_min + y, box.x_max + x, box.y_max + y)


def _slices(box: Box) -> tuple[slice, slice]:
    return slice(int(box.y_min), int(box.y_max)), slice(int(box.x_min), int(box.x_max))


def _correlation(a: npt.NDArray[Any], b: npt.NDArray[Any], inside: Image) -> float:
    """Pearson's correlation of two pictures among the pixels of a mask, -1..1."""
    x, y = (part[inside > 0].astype(np.float32) for part in (a, b))
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / max(1e-6, float(np.sqrt((x * x).sum() * (y * y).sum()))))


def _texture(gray: Image, inside: Image) -> float:
    """The mean change of lightness a pixel, 0..255, within a mask and away from its edge."""
    inner = cv2.erode(inside, np.ones((7, 7), np.uint8)) > 0
    if not inner.any():
        return 0.0
    smooth = cv2.GaussianBlur(gray, (0, 0), 2.0).astype(np.float32)
    across, down = (
        cv2.Sobel(smooth, cv2.CV_32F, *way, ksize=3, scale=1 / 8) for way in ((1, 0), (0, 1))
    )
    return float(np.hypot(across, down)[inner].mean())


def _fitting(box: Box, other: Box) -> Matrix:
    """The matrix that moves and scales one box onto another."""
    across, down = other.width / box.width, other.height / box.height
    left, top = other.x_min - across * box.x_min, other.y_min - down * box.y_min
    return np.array([[across, 0, left], [0, down, top], [0, 0, 1]])


def _warped(picture: npt.NDArray[Any], matrix: Matrix) -> Array:
    """A picture of a window as another one shows it, given the matrix from the one to the other."""
    whole = picture.astype(np.float32)
    return np.asarray(cv2.warpAffine(whole, matrix[:2], (WINDOW, WINDOW)), np.float32)


def _gray(picture: Image) -> Image:
    return np.asarray(cv2.cvtColor(picture, cv2.COLOR_RGB2GRAY), np.uint8)


def _codes(picture: Image) -> npt.NDArray[np.intp]:
    """Each pixel's bin in a histogram of Lab colours, (h, w): 8 of L, 16 each of a and b."""
    lab = cv2.cvtColor(picture, cv2.COLOR_RGB2LAB).astype(np.intp)
    return np.asarray((lab[..., 0] // 32 * 16 + lab[..., 1] // 16) * 16 + lab[..., 2] // 16)


def _histogram(codes: npt.NDArray[np.intp], weights: Array) -> Array:
    """The share of each colour among pixels of these weights, (2048,)."""
    counts = np.bincount(codes.ravel(), weights.ravel(), minlength=8 * 16 * 16)
    return (counts / max(1e-6, float(counts.sum()))).astype(np.float32)


def _similarity(a: Array, b: Array) -> float:
    """Bhattacharyya coefficient of two histograms, 0..1."""
    return float(np.sqrt(a * b).sum())


def _middle(mask: Mask) -> Matrix:
    """The centre (x, y) of a mask's pixels."""
    rows, columns = np.nonzero(mask)
    return np.array([columns.mean(), rows.mean()])
