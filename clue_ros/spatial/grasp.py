"""A two-finger grasp from above, from an object's pose and size: the example of a grasp planner."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from clue_ros.errors import NoPoseError
from clue_ros.spatial.place import quaternion, rotation

Array = npt.NDArray[np.float64]
Quaternion = tuple[float, float, float, float]


@dataclass(frozen=True)
class Grasp:
    """Where the gripper's fingertips go, in the frame of the object's pose, metres.

    Attributes:
        position, standoff: (3,) of the fingertips at the grasp, and where to come from.
        orientation: quaternion (x, y, z, w) of the gripper: z points from the gripper into the
            object, y is the way the fingers close.
        width: of the object between the fingers.
    """

    position: Array
    standoff: Array
    orientation: Quaternion
    width: float


def grasp_from_above(
    position: Array,
    orientation: Quaternion,
    size: Array,
    *,
    max_opening: float,
    finger_length: float,
    standoff: float,
) -> Grasp:
    """Close over the object's shorter side, along its z axis.

    position (3,), orientation, size (3,): as GroundedObject has them. max_opening: of the gripper.
    finger_length: how deep the object may reach between the fingers. standoff: how far above the
    grasp to come from. All in metres. Raises NoPoseError: the object is too wide.
    """
    width = float(size[1])
    if width > max_opening:
        raise NoPoseError(
            f"the object is {width * 1000:.0f} mm wide and the gripper opens to "
            f"{max_opening * 1000:.0f} mm"
        )
    axes = rotation(orientation)
    up = axes[:, 2]
    # At the middle, or less deep where the fingers are short.
    tips = position + up * max(0.0, float(size[2]) / 2 - finger_length)
    gripper = np.stack([-axes[:, 0], axes[:, 1], -up], axis=1)
    return Grasp(tips, tips + up * standoff, quaternion(gripper), width)
