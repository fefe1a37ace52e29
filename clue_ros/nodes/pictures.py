"""Where the image source's pictures come from: a file, a folder, a video, a webcam.

No ROS in it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from clue_ros.errors import BadImageError
from clue_ros.images import load_image
from clue_ros.nodes.convert import Rgb

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp", ".ppm", ".pgm", ".gif")
VIDEOS = (".mp4", ".avi", ".mkv", ".mov", ".webm", ".mpg", ".mpeg", ".m4v", ".wmv", ".ogv")


class Pictures(Protocol):
    """Something to take pictures from."""

    def next(self) -> Rgb | None:
        """Return uint8 RGB (H, W, 3), or None at the end. Raises BadImageError for a broken one."""
        ...

    def close(self) -> None:
        """Release files and devices."""
        ...


def open_source(source: str, loop: bool) -> Pictures:
    """Open what `source` names: a webcam's number, else a path to a folder, a video or a picture.

    Raises:
        BadImageError: nothing there, nothing readable in it, or no such webcam; the message says
        which.
    """
    if not source:
        raise BadImageError(
            "no source is given: set the parameter `source` to a picture, a folder, a video or "
            "a webcam's number"
        )
    if source.isdecimal():
        return Capture(int(source), f"webcam {source}", loop=False)
    try:
        path = Path(source).expanduser()
        if path.is_dir():
            return Folder(path, loop)
        if path.suffix.lower() in VIDEOS and path.is_file():
            return Capture(str(path), f"video {path}", loop)
        return Still(load_image(path))
    except (OSError, RuntimeError) as error:  # no permission; ~ of somebody unknown
        raise BadImageError(f"{source} cannot be opened: {error}") from error


def load_depth(path: str) -> NDArray[np.uint16]:
    """Return a depth picture, uint16 (H, W) in millimetres, 0 where there is no reading.

    Raises BadImageError: nothing there, or no 16-bit picture of one channel.
    """
    picture = None
    with contextlib.suppress(cv2.error, RuntimeError):  # the latter: ~ of somebody unknown
        picture = cv2.imread(str(Path(path).expanduser()), cv2.IMREAD_UNCHANGED)
    if picture is None:
        raise BadImageError(f"depth picture {path} cannot be read")
    if picture.dtype != np.uint16 or picture.ndim != 2:
        raise BadImageError(f"depth picture {path} is no 16-bit grey PNG (millimetres)")
    return np.asarray(picture, dtype=np.uint16)


class Still:
    """One picture, for ever."""

    def __init__(self, image: Rgb) -> None:
        self._image = image

    def next(self) -> Rgb:
        """Return the same array each time."""
        return self._image

    def close(self) -> None:
        """Nothing is held."""


class Folder:
    """The pictures of a folder in the order of their names.

    Broken ones raise when their turn comes.
    """

    def __init__(self, path: Path, loop: bool) -> None:
        self._files = sorted(p for p in path.iterdir() if p.suffix.lower() in PICTURES)
        if not self._files:
            raise BadImageError(f"folder {path} holds no picture ({', '.join(PICTURES)})")
        self._loop = loop
        self._turn: Iterator[Path] = iter(self._files)

    def next(self) -> Rgb | None:
        """Return the next picture, or None after the last one."""
        path = next(self._turn, None)
        if path is None and self._loop:
            self._turn = iter(self._files)
            path = next(self._turn)
        return None if path is None else load_image(path)

    def close(self) -> None:
        """Nothing is held."""


class Capture:
    """A video file or a webcam, through OpenCV."""

    def __init__(self, device: int | str, name: str, loop: bool) -> None:
        self._name = name
        self._loop = loop
        self._capture: Any = cv2.VideoCapture(device)
        if not self._capture.isOpened():
            self._capture.release()
            hint = (
                "is it plugged in, and free?" if isinstance(device, int) else "is the file whole?"
            )
            raise BadImageError(f"{name} cannot be opened: {hint}")
        self._first = self._read()
        if self._first is None:
            self._capture.release()
            raise BadImageError(f"{name} gives no picture")

    def next(self) -> Rgb | None:
        """Return the next frame, or None at the video's end (or when the webcam is unplugged)."""
        first, self._first = self._first, None
        if first is not None:
            return first
        frame = self._read()
        if frame is None and self._loop:
            self._capture.set(cv2.CAP_PROP_POS_FRAMES, 0)
            frame = self._read()
        return frame

    def close(self) -> None:
        """Release the device."""
        self._capture.release()

    def _read(self) -> Rgb | None:
        good, frame = self._capture.read()
        if not good or frame is None:
            return None
        return np.ascontiguousarray(cv2.cvtColor(frame, cv2.COLOR_BGR2RGB), dtype=np.uint8)
