"""Textured meshes: several materials joined in one texture, colours seen on the surface."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import trimesh

Texture = npt.NDArray[np.uint8]
Rgb = tuple[float, float, float]

MOST_PIXELS = 512  # a side of a material's texture
ATLAS_WIDTH, PADDING, SOLID = 1024, 2, 8  # pixels
MOST_REPEATS = 4  # of a texture along a side, in an atlas
LEAST_SHARE = 0.2  # of the surface, for a second colour


@dataclass(frozen=True)
class TexturedMesh:
    """A mesh with one texture or one colour.

    vertices: float32 (n, 3), metres, z up, standing on z = 0, centred in x and y. A vertex at a
    seam of the texture exists twice.
    faces: int32 (m, 3). normals: float32 (n, 3), unit length.
    uv: float32 (n, 2), MuJoCo's convention: u to the right, v downwards, (0, 0) the corner of the
    texture's first pixel (an OBJ file's v is 1 minus this one).
    texture: uint8 RGB (h, w, 3), or None where `color` (RGB, 0..1) holds for all of it.
    """

    vertices: npt.NDArray[np.float32]
    faces: npt.NDArray[np.int32]
    uv: npt.NDArray[np.float32]
    normals: npt.NDArray[np.float32]
    texture: Texture | None
    color: Rgb = (0.7, 0.7, 0.7)

    @property
    def size(self) -> tuple[float, float, float]:
        """Extent along x, y and z, metres."""
        x, y, z = (float(v) for v in np.ptp(self.vertices, axis=0))
        return x, y, z


def decode_texture(data: bytes) -> Texture:
    """The RGB image of a file's content, at most MOST_PIXELS a side. ValueError if it has none."""
    image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB) if data else None
    if image is None:
        raise ValueError("its texture is no image that can be read")
    return _shrunk(np.asarray(image, np.uint8))


def _shrunk(image: Texture) -> Texture:
    factor = MOST_PIXELS / max(image.shape[:2])
    if factor >= 1:
        return image
    height, width = (max(1, round(side * factor)) for side in image.shape[:2])
    return np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


def texture_coordinates(mesh: trimesh.Trimesh) -> npt.NDArray[np.float64] | None:
    """The mesh's (n, 2) coordinates in MuJoCo's convention; None when it has none."""
    uv = getattr(mesh.visual, "uv", None)
    if uv is None or len(uv) != len(mesh.vertices) or not np.isfinite(uv).all():
        return None
    return np.asarray(np.asarray(uv, np.float64) * (1, -1) + (0, 1))


def join_materials(
    meshes: Sequence[trimesh.Trimesh],
) -> tuple[npt.NDArray[np.float64], Texture | None, Rgb]:
    """The texture coordinates of all meshes' vertices in one common texture, and that texture.

    Meshes that all have one colour need no texture: None, and the colour.
    """
    looks = [_look(mesh) for mesh in meshes]
    total = sum(len(mesh.vertices) for mesh in meshes)
    colors = {tile.reshape(-1, 3)[0].tobytes() for tile, _ in looks if tile.shape[0] == SOLID}
    if len(colors) == 1 and all(uv is None for _, uv in looks):
        red, green, blue = (float(v) / 255 for v in looks[0][0][0, 0])
        return np.zeros((total, 2)), None, (red, green, blue)
    atlas, corners = _shelves([tile for tile, _ in looks])
    height, width = atlas.shape[:2]
    joined = []
    for mesh, (tile, uv), (x, y) in zip(meshes, looks, corners, strict=True):
        inside = np.full((len(mesh.vertices), 2), 0.5) if uv is None else uv
        side = np.array([tile.shape[1], tile.shape[0]])
        pixels = np.clip(inside * side, 0.5, side - 0.5) + np.array([x, y])
        joined.append(pixels / (width, height))
    return np.concatenate(joined), atlas, (0.7, 0.7, 0.7)


def _look(mesh: trimesh.Trimesh) -> tuple[Texture, npt.NDArray[np.float64] | None]:
    """A material's tile, and its mesh's coordinates in it, 0..1; None for one plain colour.

    A repeated texture becomes a tile of the repetitions.
    """
    material: Any = getattr(mesh.visual, "material", None)
    image = getattr(material, "image", None)
    uv = texture_coordinates(mesh)
    if image is None or uv is None or not len(uv):
        color = np.asarray(getattr(material, "diffuse", (178, 178, 178, 255)), np.uint8)[:3]
        return np.tile(color, (SOLID, SOLID, 1)), None
    tile = _shrunk(np.asarray(image.convert("RGB"), np.uint8))
    low = np.floor(uv.min(axis=0) + 1e-3)
    repeats = np.maximum(np.ceil(uv.max(axis=0) - low - 1e-3), 1).astype(int)
    if repeats.max() > MOST_REPEATS:  # too fine to show at this size: its mean colour
        return np.tile(tile.mean(axis=(0, 1)).astype(np.uint8), (SOLID, SOLID, 1)), None
    return _shrunk(np.tile(tile, (repeats[1], repeats[0], 1))), (uv - low) / repeats


def _shelves(tiles: list[Texture]) -> tuple[Texture, list[tuple[int, int]]]:
    """The tiles in rows of one image, with a border of each; and their corners (x, y)."""
    corners = [(0, 0)] * len(tiles)
    x = y = row = 0
    for i in sorted(range(len(tiles)), key=lambda i: (-tiles[i].shape[0], i)):
        height, width = (side + 2 * PADDING for side in tiles[i].shape[:2])
        if x and x + width > ATLAS_WIDTH:
            x, y, row = 0, y + row, 0
        corners[i] = (x + PADDING, y + PADDING)
        x, row = x + width, max(row, height)
    right = max(x + t.shape[1] for t, (x, _) in zip(tiles, corners, strict=True)) + PADDING
    atlas = np.zeros((y + row, right, 3), np.uint8)
    for tile, (left, top) in zip(tiles, corners, strict=True):
        framed = np.pad(tile, ((PADDING, PADDING), (PADDING, PADDING), (0, 0)), "edge")
        height, width = framed.shape[:2]
        atlas[top - PADDING :, left - PADDING :][:height, :width] = framed
    return atlas, corners


def smooth_normals(
    vertices: npt.NDArray[np.float64], faces: npt.NDArray[np.int64]
) -> npt.NDArray[np.float64]:
    """Unit normals (n, 3), the same for all vertices at one place: no edge at a texture's seam."""
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    areas = np.cross(b - a, c - a)
    _, place = np.unique(np.round(vertices, 6), axis=0, return_inverse=True)
    place = place.reshape(-1)
    sums = np.zeros((int(place.max()) + 1, 3))
    for k in range(3):
        np.add.at(sums, place[faces[:, k]], areas)
    normals = sums[place]
    length = np.linalg.norm(normals, axis=1, keepdims=True)
    return np.where(length > 0, normals / np.maximum(length, 1e-20), (0.0, 0.0, 1.0))


def surface_colors(mesh: TexturedMesh) -> tuple[str, ...]:
    """Colour words of the surface, the dominant one first, at most two; "multicolored" for many."""
    a, b, c = (mesh.vertices[mesh.faces[:, k]] for k in range(3))
    areas = np.linalg.norm(np.cross(b - a, c - a), axis=1)
    if mesh.texture is None:
        rgb = np.full((len(areas), 3), mesh.color)
    else:
        middles = mesh.uv[mesh.faces].mean(axis=1) % 1.0
        side = np.array(mesh.texture.shape[1::-1])
        x, y = np.minimum((middles * side).astype(int), side - 1).T
        rgb = mesh.texture[y, x] / 255.0
    shares: dict[str, float] = defaultdict(float)
    for name, area in zip(_color_words(rgb), areas / max(float(areas.sum()), 1e-20), strict=True):
        shares[name] += float(area)
    ordered = sorted(shares, key=lambda name: (-shares[name], name))
    if shares[ordered[0]] < 0.4 and sum(share > 0.1 for share in shares.values()) > 3:
        return ("multicolored",)
    return tuple(n for i, n in enumerate(ordered[:2]) if not i or shares[n] >= LEAST_SHARE)


def _color_words(rgb: npt.NDArray[np.float64]) -> list[str]:
    """The word for each colour (n, 3), 0..1."""
    hsv = cv2.cvtColor(rgb.astype(np.float32)[None], cv2.COLOR_RGB2HSV)[0]
    hue, saturation, value = hsv.T
    warm = (hue < 50) | (hue > 345)
    rules = [
        (value < 0.16, "black"),
        ((saturation < 0.14) & (value > 0.75), "white"),
        ((saturation < 0.14) & (value < 0.25), "black"),
        (saturation < 0.14, "gray"),
        (warm & (saturation < 0.45) & (value > 0.6) & (hue > 15) & (hue < 50), "beige"),
        ((hue > 12) & (hue < 45) & (value < 0.62), "brown"),
        (((hue > 290) & (saturation < 0.75)) | ((warm) & (saturation < 0.5)), "pink"),
        ((hue <= 12) | (hue > 340), "red"),
        (hue <= 40, "orange"),
        (hue <= 72, "yellow"),
        (hue <= 170, "green"),
        (hue <= 255, "blue"),
        (hue <= 315, "purple"),
    ]
    words = np.select([rule for rule, _ in rules], [word for _, word in rules], default="pink")
    return [str(word) for word in words]
