"""Images of every encoding become the right colours, with padded rows, in both byte orders.

The rest is refused.
"""

from __future__ import annotations

import array
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
import pytest
from test_images import bomb

from clue_ros.errors import BadImageError
from clue_ros.nodes import image_conversion
from clue_ros.nodes.image_conversion import (
    ENCODINGS,
    fill_image,
    read_rows,
    real_cv_bridge,
    to_rgb,
)

WIDTH, HEIGHT = 12, 8
# Left half red-ish, right half blue-ish: tells red from blue and rows from columns.
LEFT, RIGHT = (200, 60, 30), (20, 80, 220)


@dataclass
class Message:
    """The fields of sensor_msgs/Image, without ROS."""

    height: int = HEIGHT
    width: int = WIDTH
    encoding: str = "rgb8"
    is_bigendian: int = 0
    step: int = 0
    data: Any = field(default_factory=lambda: array.array("B"))


@pytest.fixture
def no_cv_bridge(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_conversion, "real_cv_bridge", lambda: None)


def colours() -> np.ndarray[Any, Any]:
    image = np.empty((HEIGHT, WIDTH, 3), np.uint8)
    image[:, : WIDTH // 2], image[:, WIDTH // 2 :] = LEFT, RIGHT
    return image


def encode(rgb: np.ndarray[Any, Any], encoding: str) -> np.ndarray[Any, Any]:
    """Write `rgb` in an encoding, by formulas of this test's own.

    (rows, values) of uint8 or uint16.
    """
    name = {"8UC1": "mono8", "8UC3": "bgr8", "8UC4": "bgra8"}.get(encoding, encoding)
    wide = name.endswith("16")
    base = name[:-2] if wide else name[:-1] if name.endswith("8") else name
    values = rgb.astype(np.uint16) * 257 if wide else rgb
    alpha = np.full((HEIGHT, WIDTH, 1), values.max(), values.dtype)
    if base in ("rgb", "bgr", "rgba", "bgra"):
        colour = values if base.startswith("rgb") else values[..., ::-1]
        if base.endswith("a"):
            colour = np.concatenate([colour, alpha], axis=2)
        return colour.reshape(HEIGHT, -1)
    if base == "mono":
        grey: np.ndarray[Any, Any] = (values @ np.array([0.299, 0.587, 0.114])).round()
        return grey.astype(values.dtype)
    if base.startswith("bayer_"):
        return bayer(values, base.removeprefix("bayer_"))
    return yuv(rgb, name)


def bayer(values: np.ndarray[Any, Any], pattern: str) -> np.ndarray[Any, Any]:
    """Keep at each pixel the channel that the pattern (rows of two) names there."""
    mosaic = np.empty(values.shape[:2], values.dtype)
    for place, letter in enumerate(pattern):
        row, column = divmod(place, 2)
        mosaic[row::2, column::2] = values[row::2, column::2, "rgb".index(letter)]
    return mosaic


def yuv(rgb: np.ndarray[Any, Any], name: str) -> np.ndarray[Any, Any]:
    """Write 4:2:2 or 4:2:0 with BT.601's studio range."""
    red, green, blue = (rgb[..., i].astype(float) for i in range(3))
    y = 16 + 0.257 * red + 0.504 * green + 0.098 * blue
    u = 128 - 0.148 * red - 0.291 * green + 0.439 * blue
    v = 128 + 0.439 * red - 0.368 * green - 0.071 * blue
    y8, u8, v8 = (plane.round().astype(np.uint8) for plane in (y, u, v))
    if name in ("nv12", "nv21"):
        first, second = (u8, v8) if name == "nv12" else (v8, u8)
        chroma = np.stack([first[::2, ::2], second[::2, ::2]], axis=2).reshape(HEIGHT // 2, WIDTH)
        return np.concatenate([y8, chroma])
    packed = np.empty((HEIGHT, WIDTH, 2), np.uint8)
    luma = 1 if name in ("yuv422", "uyvy") else 0
    packed[..., luma] = y8
    packed[:, ::2, 1 - luma], packed[:, 1::2, 1 - luma] = u8[:, ::2], v8[:, ::2]
    return packed.reshape(HEIGHT, -1)


def message(encoding: str, *, padding: int = 0, big: bool = False) -> Message:
    rows = encode(colours(), encoding)
    if rows.dtype == np.uint16:
        rows = rows.astype(">u2" if big else "<u2")
    rows = np.ascontiguousarray(rows).view(np.uint8).reshape(len(rows), -1)
    padded = np.full((len(rows), rows.shape[1] + padding), 0xAB, np.uint8)
    padded[:, : rows.shape[1]] = rows
    data = array.array("B", padded.tobytes())
    return Message(encoding=encoding, is_bigendian=int(big), step=padded.shape[1], data=data)


def check(rgb: np.ndarray[Any, Any], encoding: str) -> None:
    assert rgb.dtype == np.uint8
    assert rgb.shape == (HEIGHT, WIDTH, 3)
    assert rgb.flags["C_CONTIGUOUS"]
    want = np.array([LEFT, RIGHT], float)
    if "mono" in encoding or encoding == "8UC1":
        want = np.repeat((want @ np.array([0.299, 0.587, 0.114]))[:, None], 3, axis=1)
    inner = slice(2, HEIGHT - 2)  # away from edges, where a Bayer mosaic has to guess
    got = np.array([rgb[inner, 2:4].mean((0, 1)), rgb[inner, -4:-2].mean((0, 1))])
    assert np.abs(got - want).max() <= (4 if encoding[:2] in ("yu", "uy", "nv") else 1), got


@pytest.mark.usefixtures("no_cv_bridge")
@pytest.mark.parametrize("padding", [0, 10], ids=["tight", "padded"])
@pytest.mark.parametrize("big", [False, True], ids=["little", "big"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_encoding_gives_the_right_colours(encoding: str, big: bool, padding: int) -> None:
    check(to_rgb(message(encoding, padding=padding, big=big)), encoding)


def test_the_robots_cv_bridge_agrees_with_the_same_table() -> None:
    if real_cv_bridge() is None:
        pytest.skip(
            "no compiled cv_bridge here (apt's ros-*-cv-bridge): our own conversion is used"
        )
    for encoding in ENCODINGS:
        for padding in (0, 10):
            check(to_rgb(message(encoding, padding=padding)), encoding)


def test_the_robots_cv_bridge_is_used_and_ours_where_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    marked = np.full((HEIGHT, WIDTH, 3), 7, np.uint8)
    monkeypatch.setattr(image_conversion, "real_cv_bridge", lambda: lambda _message: marked)
    assert (to_rgb(message("rgb8")) == 7).all()

    def fails(_message: object) -> None:
        raise KeyError("8UC3")

    monkeypatch.setattr(image_conversion, "real_cv_bridge", lambda: fails)
    check(to_rgb(message("8UC3")), "8UC3")


@pytest.mark.usefixtures("no_cv_bridge")
def test_the_last_row_may_come_without_its_padding() -> None:
    whole = message("rgb8", padding=10)
    whole.data = whole.data[:-10]
    check(to_rgb(whole), "rgb8")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"encoding": "16UC1"}, "depth"),
        ({"encoding": "32FC1"}, "depth"),
        ({"encoding": "jpeg"}, "unknown image encoding"),
        ({"encoding": ""}, "unknown image encoding"),
        ({"height": 0}, "empty"),
        ({"width": 0}, "empty"),
        ({"step": 3}, "step"),
        ({"height": HEIGHT + 1}, "bytes"),
        ({"height": 70_000, "width": 70_000}, "64 megapixels"),
        ({"encoding": "yuv422", "width": WIDTH - 1}, "even size"),
        ({"encoding": "nv12", "height": HEIGHT - 1}, "even size"),
    ],
    ids=str,
)
def test_what_is_no_whole_picture_is_refused_in_one_line(
    change: dict[str, Any], words: str
) -> None:
    broken = message("rgb8")
    for name, value in change.items():
        setattr(broken, name, value)
    with pytest.raises(BadImageError, match=words) as refusal:
        to_rgb(broken)
    assert "\n" not in str(refusal.value)


def test_compressed_images_decode_and_broken_ones_are_refused() -> None:
    bgr = np.ascontiguousarray(colours()[..., ::-1])
    png = cv2.imencode(".png", bgr)[1].tobytes()
    check(image_conversion.compressed_to_rgb(array.array("B", png), "png"), "rgb8")
    for data, fmt in ((b"", "jpeg"), (b"\xff\xd8nothing", "jpeg"), (png, "16UC1; compressedDepth")):
        with pytest.raises(BadImageError):
            image_conversion.compressed_to_rgb(array.array("B", data), fmt)


@pytest.mark.parametrize("fmt", ["16UC1; jpeg compressed mono8", "32FC1; png compressed", "16UC1"])
def test_a_depth_image_that_was_compressed_as_a_picture_is_refused(fmt: str) -> None:
    grey = cv2.imencode(".jpg", np.full((8, 8), 128, np.uint8))[1].tobytes()
    with pytest.raises(BadImageError, match="remap `image`"):
        image_conversion.compressed_to_rgb(array.array("B", grey), fmt)
    assert image_conversion.jpeg_size(grey, fmt) is None, "a browser would show it"
    assert image_conversion.jpeg_size(grey, "mono8; jpeg compressed") == (8, 8)


@pytest.mark.parametrize("bits", [10, 12, 14, 16])
@pytest.mark.parametrize("kind", ["raw", "png"])
def test_sixteen_bits_are_scaled_by_what_the_picture_holds(
    kind: str, bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Even where the robot's cv_bridge is: it takes every picture for one of 16 bits.
    monkeypatch.setattr(image_conversion, "real_cv_bridge", lambda: pytest.fail)
    white = 2**bits - 1
    values = np.array([[0, white // 2], [white - white // 8, white]], np.uint16)
    if kind == "raw":
        rgb = to_rgb(Message(2, 2, "mono16", 0, 4, array.array("B", values.tobytes())))
    else:
        png = cv2.imencode(".png", values)[1].tobytes()
        rgb = image_conversion.compressed_to_rgb(array.array("B", png), "mono16; png compressed")
    assert rgb[..., 0] == pytest.approx(np.array([[0, 127], [223, 255]]), abs=1)
    assert (rgb == rgb[..., :1]).all()


def test_a_small_message_that_unpacks_to_gigabytes_is_refused_before_decoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cv2, "imdecode", lambda *_: pytest.fail("it was decoded"))
    for side in (8001, 30_000):
        with pytest.raises(BadImageError, match="64 megapixels") as refusal:
            image_conversion.compressed_to_rgb(array.array("B", bomb(side, side)), "png")
        assert "\n" not in str(refusal.value)


@pytest.mark.usefixtures("no_cv_bridge")
def test_what_is_published_reads_back_the_same() -> None:
    rgb = colours()
    assert (to_rgb(fill_image(Message(), rgb, "rgb8")) == rgb).all()
    attention = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    filled = fill_image(Message(), attention, "32FC1")
    assert isinstance(filled.data, array.array)
    assert (read_rows(filled, np.float32) == attention).all()
    with pytest.raises(ValueError, match="does not fit"):
        fill_image(Message(), attention, "rgb8")
