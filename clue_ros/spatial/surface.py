"""The plane that an object stands on, and the pixels that hang together in depth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

TRIES = 128  # triples of points; with half of them on a plane, missing it has odds of 1e-8
SAMPLE = 600  # points that judge the triples
LEAST_SHARE = 0.2  # of the points around an object that its support must hold


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


def planes(points: Array, most: int = 3) -> list[Plane]:
    """Return the planes of points (n, 3), the largest first, each with LEAST_SHARE of them or more.

    RANSAC with a fixed seed: the same points give the same planes.
    """
    rng = np.random.default_rng(0)
    if len(points) > SAMPLE:
        points = points[rng.choice(len(points), SAMPLE, replace=False)]
    found: list[Plane] = []
    rest = points
    while len(found) < most and len(rest) >= max(12, LEAST_SHARE * len(points)):
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
    """Label what hangs together: neighbours (4) of the mask whose depths differ by less than step.

    mask, depth, step (H, W), the last two in metres. Returns (H, W): the smallest flat index of the
    pixel's piece, H * W outside the mask.
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
        new = goal[goal[new]]  # labels are pixels: following theirs takes long ways in leaps
        if np.array_equal(new, label):
            return label
        label = new


def bridged(depth: Array, rounds: int) -> Array:
    """Fill holes (NaN) of depth (H, W) from their neighbours, `rounds` pixels deep.

    Only to see what hangs together across a hole: no filled value is measured.
    """
    filled = depth
    for _ in range(rounds):
        holes = np.isnan(filled)
        if not holes.any():
            break
        padded = np.pad(filled, 1, constant_values=np.nan)
        upright, across = (
            (padded[:-2, 1:-1], padded[2:, 1:-1]),
            (padded[1:-1, :-2], padded[1:-1, 2:]),
        )
        around = np.stack([*upright, *across])
        known = np.isfinite(around)
        count = known.sum(0)
        # The nearest one, not the mean: a mean of two surfaces lies on neither.
        nearest = np.where(known, around, np.inf).min(0)
        filled = np.where(holes & (count > 0), nearest, filled)
    return filled
