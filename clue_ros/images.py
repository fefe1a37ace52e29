# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Pictures from files, as the model wants them: uint8 RGB, upright, whatever the file held."""

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
    ImageOps,
    TiffImagePlugin,  # noqa: F401
    UnidentifiedImageError,
    WebPImagePlugin,  # noqa: F401
)

from clue_ros.dialogue.types import MAX_PIXELS
from clue_ros.errors import BadImageError

# Only plain raster formats: Pillow would also hand some files to other programs (PostScript).
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_SIDEWAYS = (5, 6, 7, 8)  # EXIF orientations that swap width and height


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


def decode_image(content: bytes, name: str) -> npt.NDArray[np.uint8]:
    """The same from a file's bytes; ``name`` is what a BadImageError calls it."""
    with _reasons(name):
        return _decode(io.BytesIO(content), name)


def image_size(source: Path | bytes, name: str) -> tuple[int, int]:
    """Width and height that `load_image` would give, from the file's header alone.

    Raises BadImageError.
    """
    with _reasons(name):
        opened = io.BytesIO(source) if isinstance(source, bytes) else source
        with Image.open(opened, formats=FORMATS) as picture:
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


def _decode(source: Path | io.BytesIO, name: str | Path) -> npt.NDArray[np.uint8]:
    with Image.open(source, formats=FORMATS) as picture:
        _checked_size(picture, name)
        picture.load()
        upright = ImageOps.exif_transpose(picture)
        return np.array(_to_rgb(upright), dtype=np.uint8, order="C")


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


def _to_rgb(picture: Image.Image) -> Image.Image:
    if picture.mode in ("I", "F") or picture.mode.startswith("I;16"):
        return Image.fromarray(_to_8_bits(np.asarray(picture))).convert("RGB")
    if picture.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in picture.info:
        solid = picture.convert("RGBA")
        white = Image.new("RGBA", solid.size, (255, 255, 255, 255))
        return Image.alpha_composite(white, solid).convert("RGB")
    return picture.convert("RGB")


def _to_8_bits(values: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    """Grey of 16 bits by its upper byte; 32-bit and float pictures by the range they use."""
    if values.dtype.itemsize == 2:
        return (values.astype(np.uint16) >> 8).astype(np.uint8)
    numbers = np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)
    top = float(numbers.max(initial=0.0))
    full = next((limit for limit in (1.0, 255.0, 65535.0) if top <= limit), top)
    return np.clip(numbers / full * 255.0, 0, 255).astype(np.uint8)


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
