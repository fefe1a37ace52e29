# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""From clue_ros's dataclasses to clue_msgs, and the objects of a reply with their masks and poses.

Every message gets the header of the image it was computed from; boxes are in pixels of that image.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
from builtin_interfaces.msg import Duration, Time
from clue_msgs.msg import (
    AmbiguityEstimate,
    BoundingBox,
    CandidateIndices,
    ClarificationQuestion,
    DialogueTurn,
    GroundedObject,
    GroundingResult,
)
from clue_msgs.srv import Ground
from geometry_msgs.msg import Point, Quaternion, Vector3
from sensor_msgs.msg import Image, RegionOfInterest
from std_msgs.msg import Header

from clue_ros.dialogue import types as dlg
from clue_ros.dialogue.types import Box, Grounding, Question
from clue_ros.errors import NoPoseError
from clue_ros.nodes.image_conversion import fill_image
from clue_ros.nodes.pose_from_depth import Place

# Pixels of all masks of one message together. More would not fit into the shared memory of
# config/fastdds.xml beside the images, and the message would be late.
MAX_MASK_PIXELS = 16_000_000

Mask = npt.NDArray[np.bool_]
Locate = Callable[[Box], Place]  # raises NoPoseError


@dataclass(frozen=True)
class LocatedObject:
    """One object of a reply.

    Attributes:
        box: pixels of the original image.
        label: its name, may be empty.
        score: of a grounding, the decoder's confidence in the box; of a candidate, its attention
            relative to the strongest candidate's. NaN where there is none.
        mask: its pixels, bool (height, width) of the original image, or None.
        place: its pose and size, in the image's frame or in `place.frame`, or None.
        no_place: why `place` is None, for a person.
    """

    box: Box
    label: str = ""
    score: float = math.nan
    mask: Mask | None = None
    place: Place | None = None
    no_place: str = ""


def no_depth(_box: Box | None = None) -> NoReturn:
    """Raise NoPoseError: no depth is used."""
    raise NoPoseError("no depth image is used (use_depth is false)")


def locator(depth: Any, width: int, height: int) -> Locate:
    """Return a function that locates a box of an image, given the image's FrameDepth or None.

    Without a matching depth image the function raises NoPoseError for each box.
    """
    if depth is None:
        return no_depth
    try:
        locate: Locate = depth.locator(width, height)
    except Exception as error:  # noqa: BLE001 - a depth error must not cost the box
        reason = _reason(error)

        def fail(_box: Box) -> NoReturn:
            raise NoPoseError(reason)

        return fail
    return locate


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, NoPoseError) else f"{type(error).__name__}: {error}"


def find_objects(
    clue: Any,
    view: Any,
    reply: Question | Grounding,
    locate: Locate = no_depth,
    *,
    masks: bool = False,
) -> tuple[LocatedObject, ...]:
    """Return the objects of a reply: a question's candidates in its order, or the grounding.

    Runs in the worker's thread, because masks take milliseconds.
    """
    pixels = view.width * view.height
    if isinstance(reply, Grounding):
        found = located(reply.box, reply.label, reply.score, None, locate)
        if masks and pixels <= MAX_MASK_PIXELS:
            found = replace(found, mask=_grounding_mask(clue, view, reply, found.place))
        return (found,)
    peaks, boxes = reply.ambiguity.peaks, reply.candidates
    known = len(peaks) == len(boxes)
    wanted = masks and known and 0 < len(boxes) * pixels <= MAX_MASK_PIXELS
    regions = clue.peak_masks(view, reply.ambiguity) if wanted else [None] * len(boxes)
    labels = reply.labels or ("",) * len(boxes)
    scores = [peak.score for peak in peaks] if known else [math.nan] * len(boxes)
    return tuple(
        located(box, label, score, region, locate)
        for box, label, score, region in zip(boxes, labels, scores, regions, strict=True)
    )


def _grounding_mask(clue: Any, view: Any, reply: Grounding, place: Place | None) -> Mask | None:
    """Return the object's pixels: from the depth image where it has a place, else from colours."""
    if place is not None:
        return place.mask()
    try:
        mask: Mask = clue.mask(view, reply)
    except Exception:  # noqa: BLE001 - a grounding without a mask is better than none
        return None
    return mask


def located(box: Box, label: str, score: float, mask: Mask | None, locate: Locate) -> LocatedObject:
    """Return an object with its place, or the reason why it has none."""
    try:
        place = locate(box)
    except Exception as error:  # noqa: BLE001 - a grounding without a pose is better than none
        return LocatedObject(box, label, score, mask, no_place=_reason(error))
    return LocatedObject(box, label, score, mask, place)


def placed_again(objects: Sequence[LocatedObject], locate: Locate) -> tuple[LocatedObject, ...]:
    """Return the objects where `locate`, of a newer image, finds them at the same boxes."""
    return tuple(located(o.box, o.label, o.score, o.mask, locate) for o in objects)


@dataclass(frozen=True)
class Source:
    """The image that an answer is about: its header, and its size in pixels."""

    header: Header
    width: int
    height: int


def duration(seconds: float) -> Duration:
    """Return seconds (>= 0) as a Duration."""
    whole = math.floor(seconds)
    nanoseconds = min(round((seconds - whole) * 1e9), 999_999_999)
    return Duration(sec=int(whole), nanosec=nanoseconds)


def seconds(value: Duration | Time) -> float:
    """Return a Duration, or a Time since the epoch, in seconds."""
    return float(value.sec) + float(value.nanosec) * 1e-9


def box_msg(box: Box) -> BoundingBox:
    """Return a Box as the message."""
    x_min, y_min, x_max, y_max = map(float, box.as_list())
    return BoundingBox(x_min=x_min, y_min=y_min, x_max=x_max, y_max=y_max)


def box_of(message: BoundingBox) -> Box:
    """Return a message as the Box."""
    return Box(message.x_min, message.y_min, message.x_max, message.y_max)


def object_msg(source: Source, found: LocatedObject) -> GroundedObject:
    """Return one object found in the image, with its mask and its pose where they are known."""
    box, place = found.box, found.place
    # The smallest region of whole pixels that holds the box, cut to the image.
    left, top = max(0, math.floor(box.x_min)), max(0, math.floor(box.y_min))
    right = min(source.width, math.ceil(box.x_max))
    bottom = min(source.height, math.ceil(box.y_max))
    message = GroundedObject(
        header=source.header,
        image_width=source.width,
        image_height=source.height,
        label=found.label,
        score=float(found.score),
        box=box_msg(box),
        roi=RegionOfInterest(
            x_offset=left, y_offset=top, width=max(0, right - left), height=max(0, bottom - top)
        ),
        has_pose=place is not None,
        no_pose_reason=found.no_place,
    )
    if found.mask is not None:
        fill_image(message.mask, found.mask.astype(np.uint8) * np.uint8(255), "mono8")
        message.mask.header = source.header
    message.pose.header = Header(
        stamp=source.header.stamp,
        frame_id=(place.frame if place else "") or source.header.frame_id,
    )
    unknown = (math.nan,) * 3  # not 0 0 0, which is the camera's own position
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
    """Return the detector's estimate for `expression`, the context it was computed for."""
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
    question: Question,
    candidates: Sequence[LocatedObject],
    dialogue_id: str,
    turn: int,
    timeout: float,
) -> ClarificationQuestion:
    """Return a question with its candidates.

    `turn` counts from 1, `timeout` is in seconds (0: no answer is awaited).
    """
    return ClarificationQuestion(
        header=source.header,
        dialogue_id=dialogue_id,
        turn=turn,
        text=question.text,
        candidates=[object_msg(source, candidate) for candidate in candidates],
        suggested_answers=list(question.suggested_answers),
        suggested_candidates=[CandidateIndices(indices=group) for group in _meant(question)],
        confirm=question.confirm,
        answer_timeout=duration(timeout),
    )


def _meant(question: Question) -> tuple[tuple[int, ...], ...]:
    """The candidates that each suggested answer means; none where that is not known."""
    return question.answer_candidates or ((),) * len(question.suggested_answers)


def grounding_msg(
    source: Source,
    grounding: Grounding,
    found: LocatedObject,
    *,
    judged: Source,
    request: str,
    context: str,
    dialogue_id: str = "",
    turns: Sequence[tuple[dlg.Turn, float]] = (),
) -> GroundingResult:
    """Return a grounding, its object `found`, and every turn with its seconds since the epoch.

    judged: the image of the estimate; the object may have been seen in a newer one.
    """
    speakers = {"user": DialogueTurn.USER, "robot": DialogueTurn.ROBOT}
    return GroundingResult(
        header=source.header,
        dialogue_id=dialogue_id,
        expression=request,
        target=object_msg(source, found),
        ambiguity=estimate_msg(judged, context, grounding.ambiguity),
        dialogue=[
            DialogueTurn(
                speaker=speakers[turn.speaker],
                text=turn.text,
                stamp=Time(sec=int(stamp), nanosec=int((stamp - int(stamp)) * 1e9)),
            )
            for turn, stamp in turns
        ],
        confirmed=grounding.confirmed,
        max_risk=grounding.max_risk,
        taught_names=list(grounding.taught),
    )


def fail(response: Any, code: str, message: str) -> Any:
    """Write an error into any response or result, and return it.

    The interfaces share one list of codes; any other (CLUE_ERROR) becomes MODEL_ERROR.
    """
    unforeseen = Ground.Response.MODEL_ERROR
    response.error_code = int(getattr(response, code, unforeseen))
    response.error_msg = message
    return response
