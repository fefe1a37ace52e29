# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The picture of what the robot saw, attended to and chose: one function for everyone who draws it.

Used by the command line, the demo, the documentation and the perception node's ``~/debug_image``.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw, ImageFilter, ImageFont

from clue_ros.dialogue.types import Box, Peak

MIN_SIDE, MAX_SIDE = 640, 1600
"""Longer side of the drawn picture, in pixels: small ones are enlarged, large ones reduced."""

_MAX_LINES = 6
_GREEN, _DARK, _PEAK = (57, 255, 136), (12, 14, 18), (255, 255, 255)
# Heat from transparent dark violet over magenta and orange to pale yellow.
_HEAT = np.array(
    [[20, 11, 53], [84, 15, 109], [158, 42, 99], [219, 80, 59], [251, 155, 6], [252, 243, 160]],
    dtype=np.float64,
)
_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def draw(
    image: npt.NDArray[np.uint8],
    *,
    attention: npt.NDArray[np.floating] | None = None,
    masks: Iterable[npt.NDArray[np.bool_]] = (),
    peaks: Iterable[Peak] = (),
    via: Iterable[Box] = (),
    box: Box | None = None,
    caption: str = "",
) -> npt.NDArray[np.uint8]:
    """Draw the attention map, masks, peaks, the chosen box and a caption on a picture.

    Args:
        image: uint8 RGB (H, W, 3).
        attention: (rows, columns) of values in 0..1, spread over the whole image; None for none.
        masks: bool (H, W) each, tinted and outlined.
        peaks: numbered in the order given; boxes in pixels of ``image``.
        via: the intermediate boxes before ``box``, numbered as given, in pixels of ``image``.
        box: the grounding, in pixels of ``image``.
        caption: any text, line breaks kept; under the picture, at most six lines, then cut.

    Returns:
        uint8 RGB, its longer side brought to 640..1600 px; the caption adds height.

    Raises:
        ValueError: ``image`` or ``attention`` has another shape or type.
    """
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or image.size == 0:
        raise ValueError(f"expected a uint8 RGB image (H, W, 3), got {image.dtype} {image.shape}")
    height, width = image.shape[:2]
    longest = max(height, width)
    scale = min(max(longest, MIN_SIDE), MAX_SIDE) / longest
    size = max(1, round(width * scale)), max(1, round(height * scale))
    picture = Image.fromarray(np.ascontiguousarray(image))
    if size != picture.size:
        picture = picture.resize(size, Image.Resampling.LANCZOS)
    if attention is not None:
        picture = _heated(picture, attention)
    for mask in masks:
        picture = _tinted(picture, mask)
    line = max(2, round(max(size) / 240))
    pen = ImageDraw.Draw(picture)
    for number, peak in enumerate(peaks, start=1):
        _draw_numbered(pen, _scaled(peak.box, scale), str(number), line, _PEAK)
    for number, passed in enumerate(via, start=1):
        _draw_numbered(pen, _scaled(passed, scale), str(number), line, _GREEN)
    if box is not None:
        _outline(pen, _scaled(box, scale), _GREEN, 2 * line)
    if caption.strip():
        picture = _with_caption(picture, caption)
    return np.array(picture, dtype=np.uint8)


def _heated(picture: Image.Image, attention: npt.NDArray[np.floating]) -> Image.Image:
    """The picture under the map: colour and opacity both follow the attention."""
    if attention.ndim != 2 or attention.size == 0:
        raise ValueError(f"expected an attention map (rows, columns), got {attention.shape}")
    values = np.clip(np.nan_to_num(attention.astype(np.float32)), 0.0, 1.0)
    smooth = Image.fromarray(values).resize(picture.size, Image.Resampling.BICUBIC)
    heat = np.clip(np.asarray(smooth, dtype=np.float64), 0.0, 1.0)
    stops = np.linspace(0.0, 1.0, len(_HEAT))
    color = np.stack([np.interp(heat, stops, channel) for channel in _HEAT.T], axis=-1)
    opacity = (0.1 + 0.55 * heat)[..., None]
    mixed = np.asarray(picture, dtype=np.float64) * (1 - opacity) + color * opacity
    return Image.fromarray(mixed.round().astype(np.uint8))


def _tinted(picture: Image.Image, mask: npt.NDArray[np.bool_]) -> Image.Image:
    """The picture with a mask in green: its edge opaque, its inside half."""
    shape = Image.fromarray(mask.astype(np.uint8) * 255).resize(picture.size)
    width = 2 * max(1, round(max(picture.size) / 400)) + 1
    core = np.asarray(shape.filter(ImageFilter.MinFilter(width))) > 0
    inside = np.asarray(shape) > 127
    opacity = np.where(inside & ~core, 0.9, np.where(inside, 0.35, 0.0))[..., None]
    mixed = np.asarray(picture, dtype=np.float64) * (1 - opacity) + np.array(_GREEN) * opacity
    return Image.fromarray(mixed.round().astype(np.uint8))


def _scaled(box: Box, scale: float) -> tuple[float, float, float, float]:
    """Corners in the drawn picture, in order, the far ones inclusive."""
    left, right = sorted((box.x_min * scale, box.x_max * scale))
    top, bottom = sorted((box.y_min * scale, box.y_max * scale))
    return left, top, max(left, right - 1), max(top, bottom - 1)


def _outline(
    pen: ImageDraw.ImageDraw,
    corners: tuple[float, float, float, float],
    color: tuple[int, int, int],
    line: int,
) -> None:
    """A rectangle with dark edges, so that it shows on bright and on dark."""
    left, top, right, bottom = corners
    edge = max(1, line // 3)
    grown = (left - edge, top - edge, right + edge, bottom + edge)
    pen.rectangle(grown, outline=_DARK, width=line + 2 * edge)
    pen.rectangle(corners, outline=color, width=line)


def _draw_numbered(
    pen: ImageDraw.ImageDraw,
    corners: tuple[float, float, float, float],
    number: str,
    line: int,
    color: tuple[int, int, int],
) -> None:
    _outline(pen, corners, color, line)
    font = _font(round(7.5 * line))
    left, top, right, bottom = pen.textbbox((0, 0), number, font=font)
    wide, high = right - left + 4 * line, bottom - top + 3 * line
    x, y = max(0.0, corners[0]), max(0.0, corners[1])
    pen.rectangle((x, y, x + wide, y + high), fill=color)
    pen.text((x + 2 * line - left, y + 1.5 * line - top), number, font=font, fill=_DARK)


def _with_caption(picture: Image.Image, caption: str) -> Image.Image:
    """The picture with a dark strip of text under it."""
    width, height = picture.size
    font = _font(max(14, round(max(width, height) / 32)))
    step = sum(_metrics(font)) + 4
    margin = step // 2
    lines = _wrapped(_printable(caption), font, width - 2 * margin)
    if not lines:
        return picture
    sheet = Image.new("RGB", (width, height + step * len(lines) + 2 * margin), _DARK)
    sheet.paste(picture, (0, 0))
    pen = ImageDraw.Draw(sheet)
    for row, text in enumerate(lines):
        pen.text((margin, height + margin + row * step), text, font=font, fill=(240, 240, 240))
    return sheet


def _wrapped(text: str, font: _Font, width: float) -> Sequence[str]:
    """At most six lines, none wider than ``width`` px; the last ends in "..." if text is left."""
    lines = [
        line for part in text.splitlines() if part.strip() for line in _fold(part, font, width)
    ]
    if len(lines) <= _MAX_LINES:
        return lines
    last = lines[_MAX_LINES - 1]
    while last and font.getlength(last + "...") > width:
        last = last[:-1]
    return [*lines[: _MAX_LINES - 1], last + "..."]


def _fold(text: str, font: _Font, width: float) -> list[str]:
    """Lines no wider than ``width`` px; words too long for a line are broken."""
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".strip()
        if font.getlength(joined) <= width:
            lines[-1] = joined
            continue
        if lines[-1]:
            lines.append("")
        for letter in word:
            if lines[-1] and font.getlength(lines[-1] + letter) > width:
                lines.append("")
            lines[-1] += letter
    return lines


def _printable(text: str) -> str:
    """Text with control characters and broken surrogates as blanks; a font can draw the rest."""
    bad = ("Cc", "Cs")
    return "".join(" " if unicodedata.category(c) in bad and c != "\n" else c for c in text[:2000])


@functools.lru_cache(maxsize=8)
def _font(size: int) -> _Font:
    """DejaVu Sans where the system has it (most alphabets), else the font that Pillow carries."""
    try:
        return ImageFont.truetype("DejaVuSans.ttf", size, layout_engine=ImageFont.Layout.BASIC)
    except OSError:
        return ImageFont.load_default(size)


def _metrics(font: _Font) -> tuple[int, int]:
    """Ascent and descent in pixels."""
    if isinstance(font, ImageFont.FreeTypeFont):
        return font.getmetrics()
    return 11, 3
