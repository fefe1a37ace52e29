"""From clue_ros's dataclasses to clue_msgs.

Every message gets the header of the image it was computed from; boxes stay in pixels of that image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from builtin_interfaces.msg import Duration, Time
from clue_msgs.msg import (
    AmbiguityEstimate,
    BoundingBox,
    ClarificationQuestion,
    DialogueTurn,
    GroundedObject,
    GroundingResult,
)
from clue_msgs.srv import AnswerClarification
from geometry_msgs.msg import Point, Quaternion, Vector3
from sensor_msgs.msg import Image, RegionOfInterest
from std_msgs.msg import Header

from clue_ros.dialogue import types as dlg
from clue_ros.dialogue.types import Box, Grounding, Question
from clue_ros.errors import NoPoseError
from clue_ros.nodes.image_conversion import fill_image
from clue_ros.nodes.pose_from_depth import Place

# -------------------------------------------------------------------------------------------------
# What is known of each box of a reply: how sure, which pixels, and where it is in space.

# Pixels of all masks of one message together. More would not fit into the shared memory of
# config/fastdds.xml beside the images, and a question must not be late for its masks.
MAX_MASK_PIXELS = 16_000_000

Mask = npt.NDArray[np.bool_]
Locate = Callable[[Box], Place]  # raises NoPoseError


@dataclass(frozen=True)
class Found:
    """One object of a reply.

    Attributes:
        box: pixels of the original image.
        label: what it is called, may be empty.
        score: of a grounding, how sure the decoder is of the box; of a candidate, how strongly the
            words attend to it, 1 at the strongest. NaN where there is none.
        mask: its pixels, bool (height, width) of the original image, or None.
        place: where it is in the camera's optical frame, or None.
        no_place: why `place` is None, for a person; empty where it is not.
    """

    box: Box
    label: str = ""
    score: float = math.nan
    mask: Mask | None = None
    place: Place | None = None
    no_place: str = ""


def no_depth(_box: Box | None = None) -> NoReturn:
    """Say that no depth is used."""
    raise NoPoseError("no depth image is used (use_depth is false)")


def locator(depth: Any, width: int, height: int) -> Locate:
    """Return what places a box of an image, given the image's `Wanted` depth (or None).

    Where there is no depth that fits, it raises NoPoseError for each box.
    """
    if depth is None:
        return no_depth
    try:
        found: Locate = depth.locator(width, height)
    except Exception as error:  # noqa: BLE001 - whatever is wrong with depth, the box is right
        kind = "" if isinstance(error, NoPoseError) else f"{type(error).__name__}: "
        reason = f"{kind}{error}"

        def fail(_box: Box) -> NoReturn:
            raise NoPoseError(reason)

        return fail
    return found


def find(
    clue: Any,
    view: Any,
    reply: Question | Grounding,
    locate: Locate = no_depth,
    *,
    masks: bool = True,
) -> tuple[Found, ...]:
    """Return every object of a reply: a question's candidates, strongest first, or the grounding.

    Runs in the worker's thread: the attention's masks come from torch. `masks`: whether to give
    them.
    """
    pixels = view.width * view.height
    if isinstance(reply, Grounding):
        masks = masks and pixels <= MAX_MASK_PIXELS
        return (_placed(reply.box, reply.label, reply.score, None, locate, masks),)
    peaks, boxes = reply.ambiguity.peaks, reply.candidates
    known = len(peaks) == len(boxes)
    wanted = masks and known and 0 < len(boxes) * pixels <= MAX_MASK_PIXELS
    regions = clue.peak_masks(view, reply.ambiguity) if wanted else [None] * len(boxes)
    scores = [peak.score for peak in peaks] if known else [math.nan] * len(boxes)
    return tuple(
        _placed(box, "", score, region, locate, masks=False)
        for box, score, region in zip(boxes, scores, regions, strict=True)
    )


def _placed(
    box: Box, label: str, score: float, mask: Mask | None, locate: Locate, masks: bool
) -> Found:
    """Return the object with its place, and with the place's own mask where `masks` asks for it."""
    try:
        place = locate(box)
    except NoPoseError as error:
        return Found(box, label, score, mask, no_place=str(error))
    except Exception as error:  # noqa: BLE001 - a grounding without a pose is better than none
        return Found(box, label, score, mask, no_place=f"{type(error).__name__}: {error}")
    return Found(box, label, score, place.mask() if masks else mask, place)


@dataclass(frozen=True)
class Source:
    """The image that an answer is about: its header, and its size in pixels."""

    header: Header
    width: int
    height: int


def error_value(code: str) -> int:
    """Return the number of an error's name; the three interfaces share one list.

    A name that they do not have (CLUE_ERROR) counts as MODEL_ERROR.
    """
    value = getattr(AnswerClarification.Response, code, None)
    return AnswerClarification.Response.MODEL_ERROR if value is None else int(value)


def duration(seconds: float) -> Duration:
    """Return seconds (>= 0) as a Duration."""
    whole = math.floor(seconds)
    nanoseconds = min(round((seconds - whole) * 1e9), 999_999_999)
    return Duration(sec=int(whole), nanosec=nanoseconds)


def seconds(value: Duration | Time) -> float:
    """Return a Duration, or a Time since the epoch, in seconds."""
    return float(value.sec) + float(value.nanosec) * 1e-9


def box_msg(box: dlg.Box) -> BoundingBox:
    """Return a Box as the message."""
    return BoundingBox(
        x_min=float(box.x_min),
        y_min=float(box.y_min),
        x_max=float(box.x_max),
        y_max=float(box.y_max),
    )


def roi(box: dlg.Box, width: int, height: int) -> RegionOfInterest:
    """Return the smallest whole-pixel region that holds `box`, cut to the image."""
    left, top = max(0, math.floor(box.x_min)), max(0, math.floor(box.y_min))
    right, bottom = min(width, math.ceil(box.x_max)), min(height, math.ceil(box.y_max))
    return RegionOfInterest(
        x_offset=left, y_offset=top, width=max(0, right - left), height=max(0, bottom - top)
    )


def object_msg(source: Source, found: Found) -> GroundedObject:
    """Return one object found in the image, with its mask and its pose where they are known."""
    message = GroundedObject(
        header=source.header,
        image_width=source.width,
        image_height=source.height,
        label=found.label,
        score=float(found.score),
        box=box_msg(found.box),
        roi=roi(found.box, source.width, source.height),
        has_pose=found.place is not None,
        no_pose_reason=found.no_place,
    )
    if found.mask is not None:
        fill_image(message.mask, found.mask.astype(np.uint8) * np.uint8(255), "mono8")
        message.mask.header = source.header
    message.pose.header = source.header
    unknown = (math.nan,) * 3  # not 0 0 0, where the camera itself is
    place = found.place
    x, y, z = map(float, place.position if place else unknown)
    message.pose.pose.position = Point(x=x, y=y, z=z)
    if place:
        x, y, z, w = place.orientation
        message.pose.pose.orientation = Quaternion(x=x, y=y, z=z, w=w)
    x, y, z = map(float, place.size if place else unknown)
    message.size = Vector3(x=x, y=y, z=z)
    return message


def attention_msg(source: Source, estimate: dlg.AmbiguityEstimate) -> Image:
    """Return the attention map (grid, grid) as a 32FC1 image with the source image's header."""
    image: Image = fill_image(Image(), estimate.attention, "32FC1")
    image.header = source.header
    return image


def estimate_msg(
    source: Source, expression: str, estimate: dlg.AmbiguityEstimate
) -> AmbiguityEstimate:
    """Return the detector's estimate for `expression`, the context that was judged."""
    return AmbiguityEstimate(
        header=source.header,
        expression=expression,
        probability=float(estimate.probability),
        threshold=float(estimate.threshold),
        is_ambiguous=bool(estimate.is_ambiguous),
        attention_map=attention_msg(source, estimate),
        peaks=[box_msg(peak.box) for peak in estimate.peaks],
        inference_time=duration(estimate.seconds),
    )


def question_msg(
    source: Source,
    question: dlg.Question,
    found: Sequence[Found],
    dialogue_id: str,
    turn: int,
    timeout: float,
) -> ClarificationQuestion:
    """Return a question; `found` are its candidates.

    `turn` counts from 1, `timeout` is in seconds (0: nobody waits for an answer).
    """
    return ClarificationQuestion(
        header=source.header,
        dialogue_id=dialogue_id,
        turn=turn,
        text=question.text,
        candidates=[object_msg(source, candidate) for candidate in found],
        suggested_answers=list(question.suggested_answers),
        answer_timeout=duration(timeout),
    )


def turn_msgs(turns: Sequence[tuple[dlg.Turn, float]]) -> list[DialogueTurn]:
    """Return (turn, seconds since the epoch) pairs as messages."""
    speakers = {"user": DialogueTurn.USER, "robot": DialogueTurn.ROBOT}
    made = []
    for turn, stamp in turns:
        time = Time(sec=int(stamp), nanosec=int((stamp - int(stamp)) * 1e9))
        made.append(DialogueTurn(speaker=speakers[turn.speaker], text=turn.text, stamp=time))
    return made


def grounding_msg(
    source: Source,
    grounding: dlg.Grounding,
    found: Found,
    *,
    request: str,
    context: str,
    dialogue_id: str = "",
    turns: Sequence[tuple[dlg.Turn, float]] = (),
) -> GroundingResult:
    """Return a grounding with how it came about; `found` is its object."""
    return GroundingResult(
        header=source.header,
        dialogue_id=dialogue_id,
        expression=request,
        target=object_msg(source, found),
        ambiguity=estimate_msg(source, context, grounding.ambiguity),
        dialogue=turn_msgs(turns),
    )


def fail(response: Any, code: str, message: str) -> Any:
    """Write an error into any response or result, and return it."""
    response.error_code = error_value(code)
    response.error_msg = message
    return response
