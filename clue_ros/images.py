# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Pictures from files, as the model wants them: uint8 RGB, upright, whatever the file held.

A picture is converted tile by tile into the array that is returned, so that there is no second copy
of it beside the decoder's own.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import (  # the plugins register themselves when imported
    ExifTags,
    Image,
    TiffImagePlugin,  # noqa: F401
    UnidentifiedImageError,
    WebPImagePlugin,  # noqa: F401
)

from clue_ros.dialogue.types import MAX_PIXELS
from clue_ros.errors import BadImageError

# Only plain raster formats: Pillow would also hand some files to other programs (PostScript).
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_SIDEWAYS = (5, 6, 7, 8)  # EXIF orientations that swap width and height
_FLIPPED = {2: (1, -1), 3: (-1, -1), 4: (-1, 1), 6: (1, -1), 7: (-1, -1), 8: (-1, 1)}
"""Steps along rows and columns, by EXIF orientation, from the upright picture to the stored one."""
_TILE = 512  # pixels along a side of a tile
_SCALES = (1, 2, 4, 8)  # factors by which a JPEG can be reduced while it is decoded
_MOST_REDUCED = 8  # and any picture after that
_BYTES = {"1": 1, "L": 1, "P": 1, "I;16": 2, "I;16B": 2, "I;16L": 2}
"""Bytes of a pixel in Pillow's memory; 4 in other modes."""
_WEBP, _PROGRESSIVE = 12, 6
"""Bytes of a pixel that the decoder holds besides: of WebP, and of a progressive JPEG."""
_TILES = 8_000_000  # most bytes of a tile


def load_image(path: str | Path) -> npt.NDArray[np.uint8]:
    """Read a picture file as uint8 RGB (H, W, 3), upright as its EXIF orientation says.

    Grey and palette pictures become RGB, 16 bits become 8, transparency shows white, and of an
    animation the first frame is taken.

    Raises:
        BadImageError: missing, empty, truncated, not a picture, or over 64 megapixels.
    """
    path = Path(path)
    with _reasons(path):
        if path.is_dir():
            raise BadImageError(f"{path} is a folder: give a picture file")
        if not path.exists():
            raise BadImageError(f"{path} does not exist: give a picture file")
        if not path.is_file():
            raise BadImageError(f"{path} is not a regular file: give a picture file")
        if path.stat().st_size == 0:
            raise BadImageError(f"{path} is empty (0 bytes): give a picture file")
        return _decode(path, path)


def decode_image(
    content: bytes, name: str, *, most_bytes: int | None = None
) -> npt.NDArray[np.uint8]:
    """The same from a file's bytes; a BadImageError calls it ``name``.

    most_bytes: of memory, beside the file's, while it is decoded and in the result. A picture that
    would take more is reduced by a whole number, a JPEG while it is decoded; BadImageError if that
    is not enough.
    """
    with _reasons(name):
        return _decode(io.BytesIO(content), name, most_bytes)


def image_size(source: Path | bytes, name: str) -> tuple[int, int]:
    """Width and height that `load_image` would give, from the file's header alone.

    Raises BadImageError.
    """
    with _reasons(name):
        opened = io.BytesIO(source) if isinstance(source, bytes) else source
        with _opened(opened) as picture:
            width, height = _checked_size(picture, name)
            turned = picture.getexif().get(ExifTags.Base.Orientation) in _SIDEWAYS
            return (height, width) if turned else (width, height)


@contextmanager
def _reasons(name: str | Path) -> Iterator[None]:
    """Turn whatever Pillow raises into a BadImageError about ``name``."""
    try:
        yield
    except BadImageError:
        raise
    except UnidentifiedImageError:
        known = ", ".join(FORMATS)
        raise BadImageError(f"{name} is not a picture that can be read ({known})") from None
    except Image.DecompressionBombError:
        raise _too_large(name) from None
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        # Pillow reports a broken file as any of these, depending on the format.
        raise BadImageError(f"{name} cannot be read as a picture: {error}") from None


def _opened(source: Path | io.BytesIO) -> Image.Image:
    Image.preinit()  # or Pillow loads the plugins of all formats for the first picture
    return Image.open(source, formats=FORMATS)


def _decode(
    source: Path | io.BytesIO, name: str | Path, most_bytes: int | None = None
) -> npt.NDArray[np.uint8]:
    with _opened(source) as picture:
        _checked_size(picture, name)
        by = 1 if most_bytes is None else _shrink(picture, name, most_bytes)
        picture.load()
        turned = picture.getexif().get(ExifTags.Base.Orientation)
        width, height = (-(-side // by) for side in picture.size)
        shape = (width, height) if turned in _SIDEWAYS else (height, width)
        upright = np.empty((*shape, 3), np.uint8)
        down, across = _FLIPPED.get(turned, (1, 1))
        stored = upright[::down, ::across]
        _fill(stored.swapaxes(0, 1) if turned in _SIDEWAYS else stored, picture, by)
        return upright


def _shrink(picture: Image.Image, name: str | Path, most: int) -> int:
    """Return the factor that reduces a picture to at most `most` bytes; a JPEG gets a draft size.

    Raises BadImageError.
    """
    width, height = picture.size
    pixels, each = width * height, _BYTES.get(picture.mode, 4)
    beside = pixels * (_WEBP if picture.format == "WEBP" else 0) + _TILES
    if picture.info.get("progressive"):
        beside += pixels * _PROGRESSIVE
    scales = _SCALES if picture.format == "JPEG" else _SCALES[:1]
    ways = [(scale * by, by) for scale in scales for by in range(1, _MOST_REDUCED + 1)]
    for less, by in sorted(ways):
        decoded = each * pixels // (less // by) ** 2
        if beside + decoded + 3 * pixels // less**2 <= most:
            if less > by:
                picture.draft(None, (width * by // less, height * by // less))
            return by
    needed = (beside + each * pixels // scales[-1] ** 2) // 1_000_000
    raise BadImageError(
        f"{name} takes {needed} MB to be decoded ({width} x {height}, {picture.mode}), over"
        f" {most // 1_000_000} MB: scale it down"
    )


def _fill(stored: npt.NDArray[np.uint8], picture: Image.Image, by: int) -> None:
    """Write a picture, reduced by a whole number, into (H, W, 3) as it is stored."""
    side = _TILE // by * by
    tiles = [
        (x, y, min(x + side, picture.width), min(y + side, picture.height))
        for y in range(0, picture.height, side)
        for x in range(0, picture.width, side)
    ]
    deep = picture.mode in ("I", "F")
    full = _full_scale(max(_highest(picture.crop(tile)) for tile in tiles)) if deep else 0.0
    for tile in tiles:
        piece = _to_rgb(picture.crop(tile), full)
        piece = piece.reduce(by) if by > 1 else piece
        x, y = tile[0] // by, tile[1] // by
        stored[y : y + piece.height, x : x + piece.width] = np.asarray(piece)


def _checked_size(picture: Image.Image, name: str | Path) -> tuple[int, int]:
    """Width and height as stored, looked at before decoding: a small file can hold gigabytes."""
    width, height = picture.size
    if width * height > MAX_PIXELS:
        raise _too_large(name, f" ({width} x {height})")
    if width == 0 or height == 0:
        raise BadImageError(f"{name} has no pixels ({width} x {height})")
    return width, height


def _too_large(name: str | Path, size: str = "") -> BadImageError:
    limit = MAX_PIXELS // 1_000_000
    return BadImageError(f"{name} is larger than {limit} megapixels{size}: scale it down")


def _to_rgb(picture: Image.Image, full: float) -> Image.Image:
    """In 8 bits. full: the value of white, of a picture of 32 bits."""
    if picture.mode.startswith("I;16"):  # by the upper byte
        upper = (np.asarray(picture).astype(np.uint16) >> 8).astype(np.uint8)
        return Image.fromarray(upper).convert("RGB")
    if picture.mode in ("I", "F"):
        levels = np.clip(_numbers(picture) / full * 255.0, 0, 255).astype(np.uint8)
        return Image.fromarray(levels).convert("RGB")
    if picture.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in picture.info:
        solid = picture.convert("RGBA")
        white = Image.new("RGBA", solid.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, solid).convert("RGB")
    return picture.convert("RGB")


def _numbers(picture: Image.Image) -> npt.NDArray[np.float64]:
    """The values of a picture of 32 bits; 0 where there is none."""
    values: npt.NDArray[np.float64] = np.asarray(picture, np.float64)
    return np.nan_to_num(values, posinf=0.0, neginf=0.0)


def _highest(picture: Image.Image) -> float:
    return float(_numbers(picture).max(initial=0.0))


def _full_scale(top: float) -> float:
    """The range that 32-bit and float pictures use, by their highest value."""
    return next((limit for limit in (1.0, 255.0, 65535.0) if top <= limit), top)


def image_digest(image: npt.NDArray[np.uint8]) -> bytes:
    """SHA-256 of an image's pixels and shape, uint8 (H, W, 3)."""
    digest = hashlib.sha256(np.ascontiguousarray(image).data)
    digest.update(repr(image.shape).encode())
    return digest.digest()


def check_image(image: npt.NDArray[np.uint8]) -> None:
    """Raises BadImageError unless this is uint8 RGB (H, W, 3), not empty, at most MAX_PIXELS."""
    if not isinstance(image, np.ndarray):
        raise BadImageError(f"the image must be a numpy array, not {type(image).__name__}")
    if image.dtype != np.uint8:
        raise BadImageError(f"the image must be uint8, not {image.dtype}")
    if image.ndim != 3 or image.shape[2] != 3:
        raise BadImageError(f"the image must be RGB (H, W, 3), not {tuple(image.shape)}")
    height, width = image.shape[:2]
    if height == 0 or width == 0:
        raise BadImageError(f"the image is empty: {width}x{height}")
    if height * width > MAX_PIXELS:
        raise BadImageError(
            f"the image has {width}x{height} pixels, over {MAX_PIXELS // 1_000_000} megapixels: "
            "make it smaller"
        )
