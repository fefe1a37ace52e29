"""Any plain picture file becomes upright uint8 RGB; anything else is one line of reason."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageOps

from clue_ros.errors import BadImageError
from clue_ros.images import decode_image, load_image


def picture() -> Image.Image:
    """Left half red, right half blue, 40 wide and 30 high."""
    pixels = np.zeros((30, 40, 3), np.uint8)
    pixels[:, :20, 0] = 200
    pixels[:, 20:, 2] = 200
    return Image.fromarray(pixels)


def save(image: Image.Image, path: Path, **options: Any) -> Path:
    image.save(path, **options)
    return path


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.bmp", "a.webp", "a.tif", "a.gif", "a.ppm"])
def test_common_formats_are_read(tmp_path: Path, name: str) -> None:
    image = load_image(save(picture(), tmp_path / name))
    assert image.shape == (30, 40, 3)
    assert image.dtype == np.uint8
    assert image.flags.c_contiguous
    assert image[15, 5, 0] > 150 > 60 > image[15, 5, 2]
    assert image[15, 35, 2] > 150 > 60 > image[15, 35, 0]


def test_the_content_decides_and_not_the_name(tmp_path: Path) -> None:
    path = save(picture(), tmp_path / "a.png").rename(tmp_path / "a.jpg")
    assert load_image(str(path)).shape == (30, 40, 3)


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: show it a quarter turn clockwise
    image = load_image(save(picture(), tmp_path / "a.jpg", exif=exif, quality=95))
    assert image.shape == (40, 30, 3)
    assert image[5, 15, 0] > 150
    assert image[35, 15, 2] > 150


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("mode", ["RGB", "L", "I;16"])
def test_a_picture_of_several_tiles_is_upright_as_pillow_has_it(
    tmp_path: Path, mode: str, orientation: int
) -> None:
    values = np.random.default_rng(0).integers(0, 256, (530, 1030, 3), np.uint8)
    picture = Image.fromarray(values)
    if mode == "I;16":
        picture = Image.fromarray(values[..., 0].astype(np.uint16) << 8)
    elif mode == "L":
        picture = picture.convert("L")
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = save(picture, tmp_path / "a.png", exif=exif)
    with Image.open(path) as opened:
        expected = np.asarray(ImageOps.exif_transpose(opened))
    if mode == "I;16":
        expected = (expected >> 8).astype(np.uint8)
    found = load_image(path)
    assert np.array_equal(found, expected if mode == "RGB" else np.stack([expected] * 3, -1))
    assert found.flags.c_contiguous


def test_transparency_shows_white(tmp_path: Path) -> None:
    pixels = np.zeros((10, 10, 4), np.uint8)
    pixels[:, :5] = (10, 20, 30, 255)
    image = load_image(save(Image.fromarray(pixels), tmp_path / "a.png"))
    assert image[0, 0].tolist() == [10, 20, 30]
    assert image[0, 9].tolist() == [255, 255, 255]


def test_grey_and_palette_pictures_become_rgb(tmp_path: Path) -> None:
    grey = load_image(save(picture().convert("L"), tmp_path / "grey.png"))
    assert grey.shape == (30, 40, 3)
    assert (grey[..., 0] == grey[..., 1]).all()
    palette = load_image(save(picture().convert("P"), tmp_path / "palette.png"))
    assert palette[15, 35, 2] > 150
    one_bit = load_image(save(Image.new("1", (8, 8), 1), tmp_path / "bit.png"))
    assert (one_bit == 255).all()


def test_a_transparent_palette_entry_shows_white(tmp_path: Path) -> None:
    image = Image.new("P", (6, 6), 0)
    image.putpalette([200, 0, 0, 0, 200, 0])
    image.putpixel((0, 0), 1)
    found = load_image(save(image, tmp_path / "a.png", transparency=0))
    assert found[0, 0].tolist() == [0, 200, 0]
    assert found[5, 5].tolist() == [255, 255, 255]


def test_sixteen_bits_become_eight(tmp_path: Path) -> None:
    values = np.array([[0, 256, 32768, 65535]], np.uint16)
    image = load_image(save(Image.fromarray(values), tmp_path / "a.png"))
    assert image[0, :, 0].tolist() == [0, 1, 128, 255]


def test_float_pictures_use_their_range(tmp_path: Path) -> None:
    values = np.array([[0.0, 0.5, 1.0, np.nan]], np.float32)
    image = load_image(save(Image.fromarray(values), tmp_path / "a.tif"))
    assert image[0, :, 0].tolist() == [0, 127, 255, 0]


def test_twenty_megapixels_are_read(tmp_path: Path) -> None:
    image = load_image(save(Image.new("RGB", (5472, 3648), (9, 8, 7)), tmp_path / "a.jpg"))
    assert image.shape == (3648, 5472, 3)


PEAK = """
import sys
from clue_ros.images import decode_image
from pathlib import Path
def most():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1000
content = Path(sys.argv[1]).read_bytes()
Path("/proc/self/clear_refs").write_text("5")
before = most()
print(*decode_image(content, "it", most_bytes=200_000_000).shape, most() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize(("kind", "suffix"), [("RGB", "jpg"), ("I;16", "png"), ("L", "png")])
def test_a_large_picture_is_shrunk_to_the_memory_that_it_may_take(
    tmp_path: Path, kind: str, suffix: str
) -> None:
    path = save(Image.new(kind, (8000, 8000)), tmp_path / f"a.{suffix}")
    run = [sys.executable, "-c", PEAK, str(path)]
    *shape, peak = subprocess.run(run, check=True, capture_output=True, text=True).stdout.split()
    assert shape == ["4000", "4000", "3"]
    assert float(peak) < 200


def test_shrinking_keeps_what_is_where(tmp_path: Path) -> None:
    path = save(picture().resize((1400, 1050)), tmp_path / "a.png")
    found = decode_image(path.read_bytes(), "it", most_bytes=15_000_000)
    assert found.shape == (525, 700, 3)
    assert found[260, 100].tolist() == [200, 0, 0]
    assert found[260, 600].tolist() == [0, 0, 200]


@pytest.mark.parametrize(
    ("suffix", "options"),
    [("png", {}), ("webp", {}), ("jpg", {"progressive": True})],
)
def test_what_cannot_be_shrunk_enough_is_refused_before_it_is_decoded(
    tmp_path: Path, suffix: str, options: dict[str, Any]
) -> None:
    path = save(Image.new("RGB", (2000, 2000)), tmp_path / f"a.{suffix}", **options)
    with pytest.raises(BadImageError, match=r"MB to be decoded \(2000 x 2000, RGB\), over 22 MB"):
        decode_image(path.read_bytes(), "it", most_bytes=22_000_000)


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that says it is this large."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize("size", [(8001, 8001), (60000, 60000)])
def test_too_many_pixels_are_refused_before_decoding(tmp_path: Path, size: tuple[int, int]) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(bomb(*size))
    with pytest.raises(BadImageError, match="larger than 64 megapixels"):
        load_image(path)


def cut_jpeg() -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)).save(
        stream, "JPEG"
    )
    return stream.getvalue()[: len(stream.getvalue()) // 2]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is empty"),
        (b"hello, I am text\n" * 10, "not a picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "not a picture"),
        (cut_jpeg(), "cannot be read"),
        (bomb(10, 10), "cannot be read"),
        (bomb(0, 10), "cut|not a picture|cannot be read|no pixels"),
        (b"\x89PNG\r\n\x1a\n", "not a picture|cannot be read"),
    ],
    ids=["empty", "text", "postscript", "truncated", "too little data", "zero width", "header"],
)
def test_a_broken_file_is_one_line_that_names_it(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "broken.jpg"
    path.write_bytes(content)
    with pytest.raises(BadImageError, match=reason) as caught:
        load_image(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_a_folder_and_a_pipe_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadImageError, match="does not exist"):
        load_image(tmp_path / "nowhere.png")
    with pytest.raises(BadImageError, match="is a folder"):
        load_image(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadImageError, match="not a regular file"):
        load_image(tmp_path / "pipe")
    with pytest.raises(BadImageError):
        load_image("\0.png")
    with pytest.raises(BadImageError):
        load_image("a" * 5000)
