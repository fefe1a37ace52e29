# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The position, size and orientation of the object in a box of the image, from a depth image.

A box also holds background: the table at its corners, objects behind. The supporting surface is
estimated first, as a plane in the ring of pixels around the box. The object is the connected region
that rises above this plane and lies nearest to the middle of the box. Its outline on the plane and
its height give an oriented box. Without such a plane (the object fills the image, is held in a
hand, or the depth around it is missing) the object is the most central connected region, and its
box is parallel to the camera's axes and as deep as its visible surface.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box
from clue_ros.errors import NoPoseError
from clue_ros.nodes.pinhole import Array, Pinhole

Mask = npt.NDArray[np.bool_]
FOUR = cv2.getStructuringElement(cv2.MORPH_CROSS, (3, 3))
EIGHT = np.ones((3, 3), np.uint8)

TRIES = 128  # triples of points; a plane with half of them is missed with probability 1e-8
SAMPLE = 600  # points that judge the triples
LEAST_SHARE = 0.2  # of the points around an object that its support must hold
MOST_PLANES = 3


def noise_at(z: Array) -> Array:
    """Return how far a depth camera's reading may be off at depth z, metres (stereo: grows as z²).

    About twice the 1 sigma that makers of stereo and time-of-flight cameras give for 0.3 to 3 m.
    """
    return 0.004 + 0.004 * z * z


@dataclass(frozen=True)
class Plane:
    """normal . p + offset is a point's height in metres; the camera's own is positive.

    Attributes:
        normal: unit vector (3,), from the surface to the camera's side.
        noise: standard deviation of the points on it, metres (from their median distance).
    """

    normal: Array
    offset: float
    noise: float

    def heights(self, points: Array) -> Array:
        """Return heights (...) of points (..., 3) over the plane; NaN stays NaN."""
        return np.asarray(points @ self.normal + self.offset)


def planes(points: Array) -> list[Plane]:
    """Return planes of points (n, 3), the largest first: each with LEAST_SHARE of them or more.

    RANSAC with a fixed seed: the same points give the same planes.
    """
    rng = np.random.default_rng(0)
    if len(points) > SAMPLE:
        points = points[rng.choice(len(points), SAMPLE, replace=False)]
    found: list[Plane] = []
    rest = points
    while len(found) < MOST_PLANES and len(rest) >= max(12, LEAST_SHARE * len(points)):
        guess = _best_triple(rest, rng)
        if guess is None:
            break
        normal, offset = guess
        for _ in range(3):
            on = np.abs(rest @ normal + offset) < noise_at(rest[:, 2])
            if np.count_nonzero(on) < 3:
                break
            normal, offset = _fit(rest[on])
        if np.count_nonzero(on) < LEAST_SHARE * len(points):
            break
        noise = 1.4826 * float(np.median(np.abs(rest[on] @ normal + offset)))
        found.append(Plane(normal, offset, noise))
        rest = rest[~on]
    return found


def _best_triple(points: Array, rng: np.random.Generator) -> tuple[Array, float] | None:
    corners = points[rng.integers(0, len(points), (TRIES, 3))]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    lengths = np.linalg.norm(normals, axis=1)
    good = lengths > 1e-9
    if not good.any():
        return None
    normals, corners = normals[good] / lengths[good, None], corners[good]
    offsets = -np.einsum("ij,ij->i", normals, corners[:, 0])
    near = np.abs(points @ normals.T + offsets) < noise_at(points[:, 2])[:, None]
    best = int(near.sum(0).argmax())
    return _towards_camera(normals[best], float(offsets[best]))


def _fit(points: Array) -> tuple[Array, float]:
    """Return the least-squares plane of points (n, 3)."""
    middle = points.mean(0)
    _, _, axes = np.linalg.svd(points - middle, full_matrices=False)
    return _towards_camera(axes[2], float(-axes[2] @ middle))


def _towards_camera(normal: Array, offset: float) -> tuple[Array, float]:
    return (normal, offset) if offset >= 0 else (-normal, -offset)


def pieces(mask: Mask, depth: Array, step: Array) -> npt.NDArray[np.int64]:
    """Label the regions of the mask; neighbours (4) in a region differ in depth by less than step.

    mask, depth, step (H, W), the last two in metres. Returns (H, W): the smallest flat index of the
    pixel's region, H * W outside the mask.
    """
    shape, none = mask.shape, mask.size
    right = mask[:, :-1] & mask[:, 1:] & (np.abs(np.diff(depth, axis=1)) < step[:, :-1])
    down = mask[:-1] & mask[1:] & (np.abs(np.diff(depth, axis=0)) < step[:-1])
    label = np.where(mask, np.arange(none).reshape(shape), none)
    while True:
        new = label.copy()
        for link, here, there in (
            (right, np.s_[:, :-1], np.s_[:, 1:]),
            (down, np.s_[:-1], np.s_[1:]),
        ):
            least = np.minimum(new[here], new[there])
            new[here] = np.where(link, least, new[here])
            new[there] = np.where(link, np.minimum(least, new[there]), new[there])
        goal = np.append(new.ravel(), none)
        new = goal[goal[new]]  # a label is a pixel: its own label is nearer to the end
        if np.array_equal(new, label):
            return label
        label = new


def bridged(depth: Array, rounds: int) -> Array:
    """Fill holes (NaN) of depth (H, W) from their neighbours, `rounds` pixels deep.

    They only connect regions across a hole: no filled value is measured.
    """
    filled = np.where(np.isnan(depth), np.inf, depth)
    for _ in range(rounds):
        # The nearest one, not the mean: a mean of two surfaces lies on neither.
        nearest = cv2.erode(filled, FOUR, borderValue=np.inf)
        filled = np.where(np.isinf(filled), nearest, filled)
    return np.where(np.isinf(filled), np.nan, filled)


SIDE = 160  # largest side of the window, pixels; larger ones are subsampled
RING = 0.5  # width of the ring around the box, as a fraction of the box's sides
LEAST_PIXELS = 12  # of an object; fewer give no outline
LEAST_FILLED = 0.1  # fraction of the box's pixels that must have a reading
LEAST_COVERED = 0.04  # smallest fraction of the box that an object covers (a diagonal pen)
LEAST_RISE = 0.004  # smallest height of an object's pixel above the support, metres
TAIL = 0.005  # fraction of the points at each end of an extent that are dropped as outliers
HOLE = 8  # subsampled pixels by which holes in the depth are filled from each side
MOST_LOST = 0.1  # of the box's pixels at which the lens's distortion may not be undone
MOST_SIZE = 3.0  # metres, longest side of what a gripper's world holds
ANY_ANGLE = np.pi / np.sqrt(12)  # radians, standard deviation of an orientation that is unknown


@dataclass(frozen=True)
class Window:
    """The subsampled part of a depth image around a box.

    Attributes:
        rows, columns: of the depth image, int (h,) and (w,).
        stride: pixels from one to the next.
        known: bool (h, w), where there is a reading.
        depth: (h, w) metres, holes filled up to HOLE pixels deep, NaN beyond.
        points: (h, w, 3) metres in the optical frame at that depth.
        rays: (h, w, 3) metres at depth 1, NaN where the lens's distortion cannot be undone; there,
            nothing is known.
        inside: bool (h, w), the pixels in the box.
        pitch: (h, w) metres from one subsampled pixel to the next, at its depth.
    """

    rows: npt.NDArray[np.int64]
    columns: npt.NDArray[np.int64]
    stride: int
    known: Mask
    depth: Array
    points: Array
    rays: Array
    inside: Mask
    pitch: Array


@dataclass(frozen=True)
class Place:
    """An object in the camera's optical frame, metres (REP 103: x right, y down, z forward).

    Attributes:
        position: (3,) the middle of the object's box.
        orientation: quaternion (x, y, z, w) of the box. z points from the surface that the object
            stands on (to the camera where there is none), x along the longer side, to the right.
        size: (3,) along these axes: the visible part, down to the surface where it is known.
        support: the surface, or None.
        window, region: the pixels it was measured from, region bool as window.inside.
        image_size, depth_size: width and height of the image and of the depth image.
        points: (n, 3) of these pixels.
        covariance: (6, 6) of position (m²) and of rotations about the fixed axes (rad²), as in
            geometry_msgs/PoseWithCovariance.
        frame: where `moved` has taken position, orientation, points and covariance; empty: the
            frame of the image.
    """

    position: Array
    orientation: tuple[float, float, float, float]
    size: Array
    support: Plane | None
    window: Window
    region: Mask
    image_size: tuple[int, int]
    depth_size: tuple[int, int]
    points: Array
    covariance: Array
    frame: str = ""

    def moved(self, turn: Array, shift: Array, frame: str) -> Place:
        """Return the place in another frame: there, a point p is at turn (3, 3) p + shift (3,)."""
        both = np.kron(np.eye(2), turn)
        return replace(
            self,
            position=turn @ self.position + shift,
            orientation=quaternion(turn @ rotation(self.orientation)),
            points=self.points @ turn.T + shift,
            covariance=both @ self.covariance @ both.T,
            frame=frame,
        )

    def mask(self) -> Mask:
        """Return the object's pixels, bool (height, width) of the image."""
        (width, height), (wide, high) = self.image_size, self.depth_size
        row = (np.arange(height) * high // height - self.window.rows[0]) // self.window.stride
        column = (np.arange(width) * wide // width - self.window.columns[0]) // self.window.stride
        rows, columns = self.region.shape
        ys = np.nonzero((row >= 0) & (row < rows))[0]
        xs = np.nonzero((column >= 0) & (column < columns))[0]
        mask = np.zeros((height, width), dtype=np.bool_)
        mask[np.ix_(ys, xs)] = self.region[np.ix_(row[ys], column[xs])]
        return mask


def locate(
    depth: npt.NDArray[np.float32], camera: Pinhole, box: Box, image_size: tuple[int, int]
) -> Place:
    """Find the object in a box.

    depth: (H, W) metres along the optical axis, NaN where there is no reading, of the image's
    camera, at any resolution; camera: for H x W. box: pixels of the image, whose width and height
    are image_size. Raises NoPoseError.
    """
    high, wide = depth.shape
    window = _window(depth, camera, box, (wide / image_size[0], high / image_size[1]))
    lost = np.isnan(window.rays[..., 2]) & window.inside
    if np.count_nonzero(lost) > MOST_LOST * np.count_nonzero(window.inside):
        raise NoPoseError(
            "the lens's distortion (D of camera_info) cannot be undone where the object is: "
            "calibrate the camera"
        )
    filled = np.count_nonzero(window.known & window.inside)
    if filled < max(LEAST_PIXELS, LEAST_FILLED * np.count_nonzero(window.inside)):
        raise NoPoseError(
            f"only {filled} of {np.count_nonzero(window.inside)} depth pixels in the box hold a "
            "reading: the object is too near, too far, too small, black, shiny or clear"
        )
    support = _support(window)
    region = _object(window, support)
    position, axes, size = _oriented(window, region, support)
    if size.max() > MOST_SIZE:
        raise NoPoseError(
            f"the object would be {size.max():.3g} m long: camera_info (K, D) or the unit of the "
            "depth image (depth_unit) is wrong"
        )
    pitch = float(np.median(window.pitch[region]))
    return Place(
        position,
        quaternion(axes),
        size,
        support,
        window,
        region,
        image_size,
        (wide, high),
        window.points[region],
        _covariance(position, axes, size, pitch, stands=support is not None),
    )


def _covariance(position: Array, axes: Array, size: Array, pitch: float, *, stands: bool) -> Array:
    """Return the covariance (6, 6) of a pose, from a depth camera's noise and the pixels' pitch.

    Along the line of sight a whole image may be off by a depth camera's 1 sigma, which no average
    over pixels removes; across it, by half a pixel. The same error over the object's length tilts
    it; half a pixel at the ends of its longer side, where that one is longer, turns it. Nothing is
    known of the orientation of an object that stands on no surface.
    """
    sight = position / np.linalg.norm(position)
    deep, wide = float(noise_at(position[2])) / 2, pitch / 2
    across = np.eye(3) - np.outer(sight, sight)
    tilt = min(ANY_ANGLE, float(np.arctan2(deep, size.max())))
    turn = min(ANY_ANGLE, float(np.arctan2(2 * wide, size[0] - size[1])))
    angles = np.array([tilt, tilt, turn]) if stands else np.full(3, ANY_ANGLE)
    covariance = np.zeros((6, 6))
    covariance[:3, :3] = wide**2 * across + max(deep, wide) ** 2 * np.outer(sight, sight)
    covariance[3:, 3:] = axes @ np.diag(angles**2) @ axes.T
    return covariance


def _window(
    depth: npt.NDArray[np.float32], camera: Pinhole, box: Box, scale: tuple[float, float]
) -> Window:
    high, wide = depth.shape
    left, right = _pixels(box.x_min * scale[0], box.x_max * scale[0], wide)
    top, bottom = _pixels(box.y_min * scale[1], box.y_max * scale[1], high)
    margin_x, margin_y = max(8, int(RING * (right - left))), max(8, int(RING * (bottom - top)))
    x0, x1 = max(0, left - margin_x), min(wide, right + margin_x)
    y0, y1 = max(0, top - margin_y), min(high, bottom + margin_y)
    stride = -(-max(x1 - x0, y1 - y0) // SIDE)
    rows, columns = np.arange(y0, y1, stride), np.arange(x0, x1, stride)
    z = depth[y0:y1:stride, x0:x1:stride].astype(np.float64)
    x, y = np.meshgrid(columns.astype(np.float64), rows.astype(np.float64))
    rays = camera.rays(x, y)
    z[np.isnan(rays[..., 2])] = np.nan
    in_x, in_y = (columns >= left) & (columns < right), (rows >= top) & (rows < bottom)
    whole = bridged(z, HOLE)
    return Window(
        rows,
        columns,
        stride,
        np.asarray(np.isfinite(z)),
        whole,
        rays * whole[..., None],
        rays,
        np.asarray(in_y[:, None] & in_x[None]),
        whole * (stride / camera.fx),
    )


def _pixels(low: float, high: float, count: int) -> tuple[int, int]:
    """Return the range of pixels whose middles lie between two edges, at least one, in 0..count."""
    first = min(max(round(low), 0), count - 1)
    return first, max(first + 1, min(round(high), count))


def _middle(inside: Mask) -> Array:
    """Return weights (h, w): 1 in the middle of the box, falling to 0 at its edges."""
    weights = np.zeros(inside.shape)
    ys, xs = np.nonzero(inside.any(1))[0], np.nonzero(inside.any(0))[0]
    v = 1 - np.abs(np.linspace(-1, 1, len(ys) + 2)[1:-1])
    u = 1 - np.abs(np.linspace(-1, 1, len(xs) + 2)[1:-1])
    weights[np.ix_(ys, xs)] = v[:, None] * u[None]
    return weights


def _support(window: Window) -> Plane | None:
    """Return the plane under the object: a plane around the box, just below the box's middle."""
    around = window.points[window.known & ~window.inside]
    core = window.known & (_middle(window.inside) > 0.25)
    if not core.any():
        core = window.known & window.inside
    middle = window.points[core]
    if len(around) < 4 * LEAST_PIXELS:
        return None
    depth = float(np.median(middle[:, 2]))
    rows, columns = window.inside.any(1).sum(), window.inside.any(0).sum()
    # An object is hardly twice as high as its box is large; a floor below the table is no support.
    limit = 2 * float(np.hypot(rows, columns)) * float(np.nanmedian(window.pitch[core]))
    for plane in planes(around):
        height = float(np.median(plane.heights(middle)))
        if -noise_at(np.asarray(depth)) <= height <= limit:
            return plane
    return None


def _object(window: Window, support: Plane | None) -> Mask:
    """Return the object's pixels, all with a reading. Raises NoPoseError where there are none."""
    solid = window.inside & np.isfinite(window.depth)
    flat = np.zeros_like(solid)
    if support is not None:
        height = support.heights(window.points)
        rise = max(LEAST_RISE, 3 * support.noise)
        flat = solid & window.known & (np.abs(height) <= rise)
        solid &= height > rise
    step = np.maximum(noise_at(window.depth), 6 * window.pitch)
    region = _most_central(_without_flying(solid, window, step), window, step)
    area = np.count_nonzero(window.inside)
    if np.count_nonzero(region) >= max(LEAST_PIXELS, LEAST_COVERED * area):
        return region
    if np.count_nonzero(flat) >= max(LEAST_PIXELS, 0.5 * area):
        return flat  # a sheet of paper: only the box bounds its outline
    raise NoPoseError("the depth in the box holds no connected region large enough for an object")


def _most_central(solid: Mask, window: Window, step: Array) -> Mask:
    """Return the region of `solid` nearest to the middle of the box, without stray pixels."""
    label = pieces(solid, window.depth, step)
    weight = np.where(window.known, _middle(window.inside), 0.0)
    total = np.bincount(label.ravel(), weights=weight.ravel(), minlength=solid.size + 1)
    total[solid.size] = 0.0
    piece = label == int(total.argmax())
    piece &= solid
    around = cv2.filter2D(piece.astype(np.uint8), -1, EIGHT, borderType=cv2.BORDER_CONSTANT)
    return np.asarray(piece & window.known & (around > 4))  # itself and half of its neighbours


def _without_flying(solid: Mask, window: Window, step: Array) -> Mask:
    """Return `solid` without the pixels at edges in which many cameras mix two surfaces.

    Such a pixel is nearer than one neighbour and farther than another.
    """
    hole = np.isnan(window.depth)
    farthest = cv2.dilate(np.where(hole, -np.inf, window.depth), EIGHT, borderValue=-np.inf)
    nearest = cv2.erode(np.where(hole, np.inf, window.depth), EIGHT, borderValue=np.inf)
    behind, before = farthest - window.depth > step, window.depth - nearest > step
    clean = solid & ~(behind & before)
    # Depth that is noise all over has no edges to clean.
    return clean if np.count_nonzero(clean) > np.count_nonzero(solid) / 2 else solid


def _oriented(window: Window, region: Mask, support: Plane | None) -> tuple[Array, Array, Array]:
    """Return middle (3,), axes (3, 3) in columns, and size (3,) of the box around the region."""
    points = window.points[region]
    pitch = float(np.median(window.pitch[region]))
    if support is None:
        axes = np.diag([1.0, -1.0, -1.0])  # z to the camera, x to the right
        low, high = _extent(points @ axes)
        return axes @ ((low + high) / 2), axes, high - low + np.array([pitch, pitch, 0.0])
    across = _on_plane(support.normal)
    turn = _least_area(points @ across)
    axes = _right_handed(across @ turn, support.normal, points)
    low, high = _extent(points @ axes)
    low[2], high[2] = -support.offset, max(high[2], -support.offset)
    return axes @ ((low + high) / 2), axes, high - low + np.array([pitch, pitch, 0.0])


def _extent(values: Array) -> tuple[Array, Array]:
    """Return the lowest and highest of values (n, k) along each of k, without stray ones."""
    cut = int(TAIL * len(values))
    ordered = np.partition(values, (cut, len(values) - 1 - cut), axis=0)
    return ordered[cut], ordered[len(values) - 1 - cut]


def _on_plane(normal: Array) -> Array:
    """Return two unit vectors (3, 2) across a normal, the first as far to the right as can be."""
    first = np.array([1.0, 0.0, 0.0]) - normal[0] * normal
    if np.linalg.norm(first) < 1e-3:  # the surface faces sideways
        first = np.array([0.0, 1.0, 0.0]) - normal[1] * normal
    first /= np.linalg.norm(first)
    return np.stack([first, np.cross(normal, first)], axis=1)


def _least_area(flat: Array) -> Array:
    """Return the rotation (2, 2) whose columns are the sides of (n, 2)'s least rectangle."""
    flat = flat[:: max(1, len(flat) // 700)]

    def area(angles: Array) -> Array:
        both = np.concatenate([angles, angles + np.pi / 2])
        low, high = _extent(flat @ np.stack([np.cos(both), np.sin(both)]))
        sides = high - low
        return np.asarray(sides[: len(angles)] * sides[len(angles) :])

    coarse = np.deg2rad(np.arange(0, 90, 3.0))
    best = float(coarse[area(coarse).argmin()])
    fine = best + np.deg2rad(np.arange(-2.5, 2.6, 0.5))
    angle = float(fine[area(fine).argmin()])
    c, s = np.cos(angle), np.sin(angle)
    return np.array([[c, -s], [s, c]])


def _right_handed(sides: Array, normal: Array, points: Array) -> Array:
    """Return axes (3, 3): x along the longer side (of like ones the one to the right), z normal."""
    low, high = _extent(points @ sides)
    first, second = high - low
    longer = 0 if first >= second else 1
    if abs(first - second) < 0.1 * max(first, second):
        longer = 0 if abs(sides[0, 0]) >= abs(sides[0, 1]) else 1
    x = sides[:, longer]
    lead = x[0] if abs(x[0]) > 1e-6 else x[1]
    x = x if lead > 0 else -x
    return np.stack([x, np.cross(normal, x), normal], axis=1)


def quaternion(axes: Array) -> tuple[float, float, float, float]:
    """Return (x, y, z, w), w >= 0, of a rotation matrix (3, 3)."""
    m = np.asarray(axes, dtype=np.float64)
    # 4 q q^T from the matrix; its largest diagonal entry keeps the division far from zero.
    k = np.empty((4, 4))
    k[0, 0] = 1 + m[0, 0] - m[1, 1] - m[2, 2]
    k[1, 1] = 1 - m[0, 0] + m[1, 1] - m[2, 2]
    k[2, 2] = 1 - m[0, 0] - m[1, 1] + m[2, 2]
    k[3, 3] = 1 + m[0, 0] + m[1, 1] + m[2, 2]
    k[0, 1] = k[1, 0] = m[0, 1] + m[1, 0]
    k[0, 2] = k[2, 0] = m[0, 2] + m[2, 0]
    k[1, 2] = k[2, 1] = m[1, 2] + m[2, 1]
    k[0, 3] = k[3, 0] = m[2, 1] - m[1, 2]
    k[1, 3] = k[3, 1] = m[0, 2] - m[2, 0]
    k[2, 3] = k[3, 2] = m[1, 0] - m[0, 1]
    q = k[int(np.diag(k).argmax())]
    q = q / np.linalg.norm(q)
    q = q if q[3] >= 0 else -q
    return float(q[0]), float(q[1]), float(q[2]), float(q[3])


def from_above(
    orientation: tuple[float, float, float, float],
) -> tuple[float, float, float, float]:
    """Return a gripper's orientation over an object: z into it, y along the object's y."""
    return quaternion(rotation(orientation) * np.array([-1.0, 1.0, -1.0]))


def rotation(q: tuple[float, float, float, float]) -> Array:
    """Return the rotation matrix (3, 3) of a unit quaternion (x, y, z, w)."""
    x, y, z, w = q
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
        ]
    )
