"""Requests about clips for `clue train grpo --clips`, and the masks that a box leads to.

The clips are those of `clue data clips`: their descriptions say which objects a request can mean,
so a simulated person can answer, and masks are exact in every frame. Masks are tracked by `flow`
over at most `--track-frames` frames, from the key frame to both ends. Sampled boxes often differ by
a pixel or two: a box is rounded to SHARE of the frame's side first, and equal ones share a track.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from clue_ros.dialogue.types import Box
from clue_ros.errors import ClueError
from clue_ros.lab.data.video_layouts import video_requests
from clue_ros.lab.data.videos import Video, VideoRequest
from clue_ros.lab.language.video_agent import seen_frames
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.tracks import Mask, tracked
from clue_ros.lab.training.grpo_rewards import track_reward
from clue_ros.lab.training.grpo_rollouts import AMBIGUOUS, CLEAR, Prompt
from clue_ros.model.trackers import FLOW, make_tracker

SHARE = 160  # the longer side's pixels over this: a box is rounded to them before it is followed
KEPT = 4  # videos in memory, of about 25 MB at 640x480

read_video = lru_cache(KEPT)(Video.read)
Tracks = dict[tuple[str, int, Box], float]


@dataclass(frozen=True, eq=False)
class ClipFootage:
    """The footage of a request. most: frames that a track visits. tracks: J&F of earlier ones."""

    request: VideoRequest
    most: int
    tracks: Tracks

    @property
    def _seen(self) -> list[int]:
        return seen_frames(len(self.request.frames))

    @property
    def count(self) -> int:
        """See `Footage`."""
        return len(self._seen)

    @property
    def frames(self) -> list[npt.NDArray[np.uint8]]:
        """See `Footage`."""
        return [read_video(self.request).frames[n] for n in self._seen]

    def truth(self, frame: int) -> Mask:
        """See `Footage`."""
        return read_video(self.request).truth[self._seen[frame]]

    def track(self, frame: int, box: Box) -> float:
        """See `Footage`; over frames from the first true mask on."""
        number = self._seen[frame]
        video = read_video(self.request)
        near = rounded_box(box, *video.frames[0].shape[1::-1])
        key = self.request.target, number, near
        if key not in self.tracks:
            order = sorted({number, *seen_frames(len(video.frames), self.most)})
            at = order.index(number)
            before, after = order[at::-1], order[at:]
            masks: dict[int, Mask] = {}
            for numbers in (before, after):
                frames = [video.frames[n] for n in numbers]
                masks |= zip(numbers, tracked(make_tracker(FLOW), frames, near), strict=True)
            counted = [n for n in order if n >= video.begin]
            self.tracks[key] = track_reward(
                [masks[n] for n in counted], [video.truth[n] for n in counted]
            )
        return self.tracks[key]


def rounded_box(box: Box, width: int, height: int) -> Box:
    """A box of a (height, width) frame with sides at multiples of 1 / SHARE of its longer side.

    It lies in the frame and is not empty.

    >>> rounded_box(Box(9.9, 2.1, 10.1, 13.9), 640, 480).as_list()
    [8.0, 4.0, 12.0, 12.0]
    >>> rounded_box(Box(639, 400, 640, 411), 640, 480).as_list()
    [636.0, 400.0, 640.0, 412.0]
    """
    step = max(1, round(max(width, height) / SHARE))
    x, y, right, down = (step * round(v / step) for v in box.as_list())
    x, y = min(x, width - step), min(y, height - step)
    return Box(*map(float, (x, y, max(right, x + step), max(down, y + step))))


class Clips:
    """The requests of a split that a simulated person can speak about.

    The others are printed on stderr, each with its reason. most: as in `ClipFootage`.
    """

    def __init__(self, folder: Path, split: str, most: int, limit: int | None = None) -> None:
        problems: list[str] = []
        self._most, self._tracks = most, Tracks()
        self.requests = list(_usable(folder, split, limit, problems))
        for problem in problems:
            print(f"note: left out: {problem}", file=sys.stderr)
        if problems:
            print(f"note: {len(problems)} requests of {folder} left out", file=sys.stderr)
        if not self.requests:
            raise ClueError(
                f"no {split} request of {folder} can be used: make clips with"
                f" `clue data clips --out {folder} --split {split}`"
            )

    def prompt(self, request: VideoRequest, seed: int) -> Prompt:
        """A request as a prompt. seed: of the person who says it."""
        known = request.known
        assert known is not None
        footage = ClipFootage(request, self._most, self._tracks)
        scene = Scene(footage.frames[0], known.objects, np.zeros((0, 0), np.uint8))
        return Prompt(scene, request.text, known.candidates, known.target, seed, footage)

    def draw(self, count: int, rng: np.random.Generator, *, clear: float) -> list[Prompt]:
        """Random requests. clear: the share of clear ones, where there are both kinds."""
        kinds: dict[str, list[VideoRequest]] = {CLEAR: [], AMBIGUOUS: []}
        for request in self.requests:
            kinds[CLEAR if request.count < 2 else AMBIGUOUS].append(request)
        prompts = []
        for _ in range(count):
            wanted = kinds[CLEAR if rng.uniform() < clear else AMBIGUOUS] or self.requests
            chosen = wanted[int(rng.integers(len(wanted)))]
            prompts.append(self.prompt(chosen, int(rng.integers(2**31))))
        return prompts

    def all(self) -> list[Prompt]:
        """Every request once, always by the same person."""
        return [self.prompt(r, zlib.crc32(r.name.encode()) // 2) for r in self.requests]


def _usable(
    folder: Path, split: str, limit: int | None, problems: list[str]
) -> Iterator[VideoRequest]:
    """The requests of a split's first `limit` videos whose frames, masks and objects are known."""
    seen: dict[str, str] = {}  # what is wrong with a target's frames or masks; "": nothing
    videos: set[Path] = set()
    for request in video_requests("clips", folder, split, problems.append):
        videos.add(request.frames[0].parent)
        if limit is not None and len(videos) > limit:
            return
        if request.known is None:
            problems.append(f"{request.name}: no description says which objects it can mean")
            continue
        if request.target not in seen:
            try:
                read_video(request)
                seen[request.target] = ""
            except ClueError as error:
                seen[request.target] = str(error)
        if wrong := seen[request.target]:
            problems.append(f"{request.name}: {wrong}")
        else:
            yield request
