"""Boxes of an image in space: drawn and simulated scenes, whose truth is known, and worse ones."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from solids import (
    CAMERA,
    FAR,
    Ball,
    Block,
    Depth,
    Scene,
    Sheet,
    on_table,
    scene,
    table_axes,
    turned,
)

from clue_ros.dialogue.types import Box
from clue_ros.errors import NoPoseError
from clue_ros.nodes.grasp_example_node import grasp_from_above
from clue_ros.nodes.pinhole import Array, Pinhole
from clue_ros.nodes.pose_from_depth import Place, locate, quaternion, rotation

SIZE = (640, 480)
BRICK = (0.12, 0.05, 0.06)


def place(picture: Scene, depth: Depth | None = None, box: Box | None = None) -> Place:
    """Solid 0 of a scene."""
    return locate(picture.depth if depth is None else depth, CAMERA, box or picture.box(0), SIZE)


def near(found: Place, block: Block, millimetres: float) -> None:
    off = np.linalg.norm(found.position - block.middle) * 1000
    assert off < millimetres, f"the middle is {off:.1f} mm off"
    assert found.size == pytest.approx(block.size, abs=millimetres / 1000)


def angle(a: Array, b: Array) -> float:
    return float(np.rad2deg(np.arccos(np.clip(abs(a @ b), 0, 1))))


# What is seen well.


@pytest.mark.parametrize("elevation", [20, 45, 75, 90])
@pytest.mark.parametrize("turn", [0, 30, -70])
def test_a_block_on_a_table_has_its_middle_size_and_orientation(
    elevation: float, turn: float
) -> None:
    block, table = on_table(elevation, BRICK, turn, x=0.1, y=-0.03)
    found = place(scene(block, table))
    near(found, block, 3.0)
    axes = rotation(found.orientation)
    assert np.linalg.det(axes) == pytest.approx(1)
    assert axes[:, 2] @ block.axes[:, 2] > 0.9999, "z is the table's normal, upwards"
    assert angle(axes[:, 0], block.axes[:, 0]) < 1.5, "x is along the longer side"
    assert axes[0, 0] > 0, "to the right in the image"


def test_a_balls_hidden_half_shortens_it_and_no_more() -> None:
    axes, radius = table_axes(45), 0.04
    at = np.array([0.05, 0.0, 0.8]) + axes[:, 2] * radius
    found = place(scene(Ball(at, radius), Sheet(np.array([0, 0, 0.8]), axes[:, 2])))
    assert np.linalg.norm(found.position - at) < 0.012
    assert found.size[0] == pytest.approx(2 * radius, abs=0.01)
    assert found.size[2] == pytest.approx(2 * radius, abs=0.004)


def test_a_sheet_of_paper_lies_on_the_table_and_has_no_height() -> None:
    block, table = on_table(50, (0.15, 0.1, 0.0005), 0)
    found = place(scene(block, table))
    assert np.linalg.norm(found.position - block.middle) < 0.004
    assert found.size[:2] == pytest.approx([0.15, 0.1], rel=0.12)  # the box's, in perspective
    assert found.size[2] < 0.004


def test_the_mask_is_the_objects() -> None:
    block, table = on_table(45, BRICK, 30)
    picture = scene(block, table)
    mask, truth = place(picture).mask(), picture.shown == 0
    assert mask.shape == (480, 640)
    assert (mask & truth).sum() / (mask | truth).sum() > 0.85
    assert not mask[picture.shown != 0][::7].all()


@pytest.mark.parametrize("scale", [0.5, 0.8, 2.0])
def test_depth_and_colour_may_differ_in_resolution(scale: float) -> None:
    block, table = on_table(45, BRICK, 20)
    camera = CAMERA.resized(int(640 * scale), int(480 * scale))
    other = scene(block, table, camera=camera)
    box = scene(block, table).box(0)  # in pixels of the colour image
    found = locate(other.depth, camera, box, SIZE)
    near(found, block, 4.0)
    assert found.mask().shape == (480, 640)


def test_the_same_depth_gives_the_same_place() -> None:
    picture = scene(*on_table(40, BRICK, 10))
    one, two = place(picture), place(picture)
    assert np.array_equal(one.position, two.position)
    assert one.orientation == two.orientation


# Holes, noise, and boxes that hold more than their object.


def speckled(depth: Depth) -> Depth:
    holes = np.random.default_rng(1).random(depth.shape) < 0.6
    return np.where(holes, np.float32(np.nan), depth)


def striped(depth: Depth) -> Depth:
    torn: Depth = depth.copy()
    torn[:, 316:324] = np.nan
    torn[236:243] = np.nan
    return torn


def shadowed(depth: Depth) -> Depth:
    """As stereo leaves it: nothing to the left of every edge, and nothing on the table far off."""
    torn: Depth = depth.copy()
    edge = np.zeros(depth.shape, bool)
    edge[:, :-1] = np.abs(np.diff(depth, axis=1)) > 0.01
    torn[cv2.dilate(edge.astype(np.uint8), np.ones((3, 15), np.uint8)) > 0] = np.nan
    torn[:120] = np.nan
    return torn


def noisy(depth: Depth) -> Depth:
    noise = np.random.default_rng(2).normal(0, 0.002, depth.shape).astype(np.float32)
    return np.asarray(np.round((depth + noise) * 1000) / 1000, dtype=np.float32)


def bleeding(depth: Depth) -> Depth:
    """As a lens leaves it: pixels at edges lie between the object and what is behind."""
    return np.asarray(cv2.GaussianBlur(depth, (7, 7), 1.5), dtype=np.float32)


@pytest.mark.parametrize(
    ("harm", "millimetres"),
    [(speckled, 4), (striped, 4), (shadowed, 18), (noisy, 8), (bleeding, 8)],
    ids=lambda v: getattr(v, "__name__", ""),
)
@pytest.mark.parametrize("elevation", [30, 60])
def test_poor_depth_moves_the_object_a_little(
    harm: object, millimetres: float, elevation: float
) -> None:
    block, table = on_table(elevation, BRICK, 20)
    picture = scene(block, table)
    near(place(picture, harm(picture.depth)), block, millimetres)  # type: ignore[operator]


@pytest.mark.parametrize("grow", [0.15, 0.4])
def test_a_box_too_large_by_far_finds_the_same_object(grow: float) -> None:
    block, table = on_table(45, BRICK, 20)
    picture = scene(block, table)
    near(place(picture, box=picture.box(0, grow)), block, 4.0)


def test_a_box_too_small_finds_its_part_of_the_object() -> None:
    block, table = on_table(45, BRICK, 0)
    picture = scene(block, table)
    found = place(picture, box=picture.box(0, -0.15))
    assert np.linalg.norm(found.position - block.middle) < 0.02
    assert (found.size < block.size + 0.002).all()


def test_what_stands_behind_and_beside_in_the_box_is_left_out() -> None:
    block, table = on_table(30, BRICK, 0)
    axes = table_axes(30)
    behind = Block(
        block.middle + axes @ np.array([0.05, 0.12, 0.05]), axes, np.array([0.1, 0.04, 0.16])
    )
    beside = Block(block.middle + axes @ np.array([-0.1, 0, 0]), axes, np.array([0.04, 0.04, 0.06]))
    picture = scene(block, table, behind, beside)
    near(place(picture, box=picture.box(0, 0.2)), block, 4.0)


def test_the_table_is_its_support_and_neither_floor_nor_wall() -> None:
    axes = table_axes(30)
    top = Block(np.array([0, 0, 0.8]) - axes[:, 2] * 0.02, axes, np.array([0.5, 0.3, 0.04]))
    block, _ = on_table(30, BRICK, 0, y=0.1)  # near the far edge: floor and wall are seen around it
    floor = Sheet(np.array([0, 0, 0.8]) - axes[:, 2] * 0.7, axes[:, 2])
    wall = Sheet(np.array([0, 0, 0.8]) + axes[:, 1] * 0.6, axes[:, 1])
    found = place(scene(block, top, floor, wall))
    near(found, block, 4.0)


def test_what_is_held_up_is_as_deep_as_what_is_seen_of_it() -> None:
    held = Block(np.array([0.05, 0.02, 0.6]), np.eye(3), np.array([0.1, 0.06, 0.08]))
    wall = Sheet(np.array([0, 0, 2.0]), np.array([0, 0, -1.0]))
    found = place(scene(held, wall))
    assert found.support is None
    assert found.position[:2] == pytest.approx(held.middle[:2], abs=0.004)
    assert found.position[2] == pytest.approx(0.56, abs=0.004), "its front"
    assert found.size[:2] == pytest.approx([0.1, 0.06], abs=0.004)
    assert rotation(found.orientation) == pytest.approx(np.diag([1, -1, -1]))


def test_an_object_that_fills_the_image_is_placed_too() -> None:
    block = Block(np.array([0, 0, 0.4]), np.eye(3), np.array([0.8, 0.6, 0.1]))
    found = locate(scene(block).depth, CAMERA, Box(0, 0, 640, 480), SIZE)
    assert found.support is None
    assert found.position == pytest.approx([0, 0, 0.35], abs=0.003)


# Uncertainty, and other frames.


def test_a_pose_is_least_sure_along_the_line_of_sight_and_about_a_square_objects_normal() -> None:
    long, near_by = place(scene(*on_table(45, BRICK, 30))), on_table(45, (0.05, 0.05, 0.05), 0)
    square = place(scene(*near_by))
    sight = long.position / np.linalg.norm(long.position)
    spread = long.covariance[:3, :3]
    assert sight @ spread @ sight == pytest.approx(np.linalg.eigvalsh(spread)[-1])
    assert np.sqrt(sight @ spread @ sight) == pytest.approx(0.003, abs=0.002)
    assert np.allclose(long.covariance, long.covariance.T)
    assert (np.linalg.eigvalsh(long.covariance) > 0).all()
    normal = rotation(long.orientation)[:, 2]
    turn = [np.sqrt(normal @ one.covariance[3:, 3:] @ normal) for one in (long, square)]
    assert turn[0] < np.deg2rad(3)
    assert turn[1] > np.deg2rad(15)
    held = Block(np.array([0.05, 0.02, 0.6]), np.eye(3), np.array([0.1, 0.06, 0.08]))
    alone = place(scene(held))
    assert np.sqrt(np.diag(alone.covariance)[3:]) == pytest.approx(np.pi / np.sqrt(12), rel=0.01)


def test_a_place_moves_into_another_frame_as_a_whole() -> None:
    found = place(scene(*on_table(45, BRICK, 30)))
    turn, shift = table_axes(30).T, np.array([0.5, -0.2, 1.0])
    moved = found.moved(turn, shift, "base_link")
    assert (moved.frame, found.frame) == ("base_link", "")
    assert moved.position == pytest.approx(turn @ found.position + shift)
    assert rotation(moved.orientation) == pytest.approx(turn @ rotation(found.orientation))
    assert moved.points == pytest.approx((turn @ found.points.T).T + shift)
    assert moved.size == pytest.approx(found.size)
    sight, there = found.position / np.linalg.norm(found.position), moved.covariance[:3, :3]
    assert (turn @ sight) @ there @ (turn @ sight) == pytest.approx(
        sight @ found.covariance[:3, :3] @ sight
    )
    assert moved.mask().sum() == found.mask().sum() > 0


# What has no place.


def test_no_depth_on_the_object_is_said() -> None:
    picture = scene(*on_table(45, BRICK))
    with pytest.raises(NoPoseError, match="hold a reading"):
        place(picture, np.full_like(picture.depth, np.nan))
    hole = picture.depth.copy()
    hole[picture.shown == 0] = np.nan  # a black object: its box still holds a little of the table
    with pytest.raises(NoPoseError):
        place(picture, hole)


def test_any_box_on_any_depth_is_placed_or_refused_in_words() -> None:
    rng = np.random.default_rng(3)
    placed, refusals = 0, []
    for _ in range(150):
        wide, high = rng.integers(1, 90, 2)
        kind = rng.integers(4)
        depth = (
            rng.uniform(0.1, 5, (high, wide)),
            np.full((high, wide), 0.7),
            np.cumsum(rng.normal(0, 0.01, (high, wide)), 0) + 1,
            np.where(rng.random((high, wide)) < 0.5, np.nan, 0.5),
        )[kind].astype(np.float32)
        size = (int(rng.integers(1, 2000)), int(rng.integers(1, 2000)))
        x, y = (
            np.sort(rng.uniform(-50, size[0] + 50, 2)),
            np.sort(rng.uniform(-50, size[1] + 50, 2)),
        )
        camera = Pinhole(int(wide), int(high), 80.0, 80.0, wide / 2, high / 2)
        try:
            found = locate(depth, camera, Box(x[0], y[0], x[1], y[1]), size)
        except NoPoseError as error:
            refusals.append(str(error))
            continue
        placed += 1
        assert np.isfinite([*found.position, *found.orientation, *found.size]).all()
        assert (found.size >= 0).all()
        assert found.mask().shape == (size[1], size[0])
    assert placed > 30
    assert refusals
    assert all(refusals)


# The camera.

NO_PRISM, PRISM = (0.0, 0.0, 0.0, 0.0), (0.002, -0.001, 0.003, 0.001)
TILT = (0.0002, -0.0005)
LENSES = [
    ("plumb_bob", (-0.28, 0.07, 0.001, -0.002, 0.01)),
    ("rational_polynomial", (0.4, -0.2, 0.0005, -0.0003, -0.1, 0.7, -0.25, -0.12)),
    ("equidistant", (-0.02, 0.01, -0.003, 0.0005)),
    # A wide camera's calibration with prism terms of zero and a sensor that is not parallel.
    (
        "rational_polynomial",
        (*(0.334, -0.0391, -7e-05, -2e-05, -0.0015, 0.665, -0.0098, -0.0093), *NO_PRISM, *TILT),
    ),
    (
        "rational_polynomial",
        (*(0.2, -0.05, 0.001, -0.0005, 0.004, 0.5, -0.02, 0.003), *PRISM, 0.03, -0.05),
    ),
]


@pytest.mark.parametrize(("model", "d"), LENSES, ids=lambda v: v if isinstance(v, str) else "")
def test_a_distorted_lens_is_undone(model: str, d: tuple[float, ...]) -> None:
    camera = Pinhole(640, 480, 500.0, 510.0, 322.0, 236.0, d, model)
    x, y = np.meshgrid(np.linspace(0, 639, 17), np.linspace(0, 479, 13))
    rays = camera.rays(x, y).reshape(-1, 3)
    k = np.array([[500.0, 0, 322], [0, 510, 236], [0, 0, 1]])
    project = cv2.fisheye.projectPoints if model == "equidistant" else cv2.projectPoints
    if model == "equidistant":
        back = project(rays[:, None], np.zeros(3), np.zeros(3), k, np.array(d))[0]
    else:
        back = project(rays, np.zeros(3), np.zeros(3), k, np.array(d))[0]
    assert back.reshape(-1, 2) == pytest.approx(np.stack([x.ravel(), y.ravel()], axis=1), abs=0.02)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"fx": 0.0}, "focal length"),
        ({"fy": float("nan")}, "focal length"),
        ({"width": 0}, "image size"),
        ({"distortion": (0.1,), "model": "omnidirectional"}, "omnidirectional"),
        ({"distortion": (0.1,) * 12, "model": "thin_prism"}, "rectified"),
        # A driver that wrote one number into K, and nothing else.
        ({"fx": 772.8685}, "772.9 and 1 pixels"),
        ({"fx": 500.0, "fy": 500.0, "distortion": (-1200.0, 3400.0, 150.0, -80.0, 900.0)}, "D"),
        ({"distortion": (0.1, float("nan"))}, "D is not a number"),
        ({"fx": 300.0, "fy": 300.0, "distortion": (-2.0,), "model": "equidistant"}, "undone"),
    ],
)
def test_what_is_no_calibration_is_refused(change: dict[str, object], words: str) -> None:
    fields = {"width": 640, "height": 480, "fx": 1.0, "fy": 1.0, "cx": 0.0, "cy": 0.0} | change
    with pytest.raises(NoPoseError, match=words):
        Pinhole(**fields)  # type: ignore[arg-type]


def test_a_pixel_whose_distortion_cannot_be_undone_has_no_ray() -> None:
    # This barrel distortion turns back 0.6 from the axis: no point is seen beyond 0.4, 240 px.
    camera = Pinhole(1000, 480, 600.0, 600.0, 499.5, 239.5, (-0.9,))
    far = camera.rays(np.array([499.5, 700.0, 760.0, 990.0]), np.full(4, 239.5))
    assert np.isfinite(far[:2]).all()
    assert np.isnan(far[2:]).all()
    # The same place in a lens whose polynomial comes back later: another angle, and a wrong one.
    again = Pinhole(1000, 480, 600.0, 600.0, 499.5, 239.5, (-0.9, 0.0, 0.0, 0.0, 0.2))
    assert np.isnan(again.rays(np.array([760.0]), np.array([239.5]))).all()


def test_an_object_at_which_the_distortion_cannot_be_undone_has_no_place() -> None:
    picture = scene(*on_table(45, BRICK, 10))
    camera = Pinhole(640, 480, 600.0, 600.0, 319.5, 239.5, (-3.0,))
    there = locate(picture.depth, camera, Box(270, 190, 370, 290), SIZE)
    assert np.isfinite(there.position).all()
    with pytest.raises(NoPoseError, match="distortion"):
        locate(picture.depth, camera, Box(480, 190, 630, 290), SIZE)


def test_a_size_that_no_gripper_meets_is_refused() -> None:
    picture = scene(*on_table(45, BRICK, 10))
    camera = Pinhole(640, 480, 20.0, 20.0, 319.5, 239.5)
    with pytest.raises(NoPoseError, match="m long"):
        locate(picture.depth, camera, picture.box(0), SIZE)


def test_another_resolution_looks_along_the_same_rays_and_another_shape_is_refused() -> None:
    half = CAMERA.resized(320, 240)
    # A pixel of the small image is the middle of four of the large one.
    assert half.rays(np.array(10.0), np.array(20.0)) == pytest.approx(
        CAMERA.rays(np.array(20.5), np.array(40.5))
    )
    CAMERA.resized(424, 318)
    with pytest.raises(NoPoseError, match="640x480"):
        CAMERA.resized(640, 360)


def test_quaternions_are_the_rotations() -> None:
    for degrees in range(0, 360, 15):
        for axes in (table_axes(30), table_axes(90), np.diag([1.0, -1.0, -1.0])):
            turn = turned(axes, degrees)
            turn = turn if np.linalg.det(turn) > 0 else turn @ np.diag([1.0, 1.0, -1.0])
            assert rotation(quaternion(turn)) == pytest.approx(turn, abs=1e-9)
    assert FAR > 100


# Grasps.

GRIPPER = {"max_opening": 0.085, "finger_length": 0.02, "standoff": 0.1}


def test_a_grasp_comes_from_above_and_closes_over_the_shorter_side() -> None:
    block, table = on_table(45, BRICK, 30)
    found = place(scene(block, table))
    grasp = grasp_from_above(found.position, found.orientation, found.size, **GRIPPER)
    gripper, up = rotation(grasp.orientation), block.axes[:, 2]
    assert np.linalg.det(gripper) == pytest.approx(1)
    assert gripper[:, 2] @ up < -0.999, "into the object"
    assert angle(gripper[:, 1], block.axes[:, 1]) < 2, "the fingers close over its shorter side"
    assert grasp.width == pytest.approx(0.05, abs=0.004)
    # 6 cm high and fingers of 2 cm: 1 cm above the middle.
    assert (grasp.position - block.middle) @ up == pytest.approx(0.01, abs=0.003)
    assert grasp.standoff - grasp.position == pytest.approx(0.1 * up, abs=0.003)


def test_what_is_wider_than_the_gripper_is_not_grasped() -> None:
    with pytest.raises(NoPoseError, match="90 mm wide"):
        grasp_from_above(np.zeros(3), (0, 0, 0, 1), np.array([0.2, 0.09, 0.1]), **GRIPPER)
