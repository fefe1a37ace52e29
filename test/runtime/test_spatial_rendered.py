"""Places from MuJoCo's depth images: solids on a table, whose poses the simulator knows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from clue_ros.dialogue.types import Box
from clue_ros.nodes.pinhole import Array, Pinhole
from clue_ros.nodes.pose_from_depth import Place, locate, rotation

os.environ.setdefault("MUJOCO_GL", "egl")  # read by mujoco when it is imported
WIDTH, HEIGHT, FOVY = 640, 480, 45.0
FOCAL = HEIGHT / 2 / np.tan(np.deg2rad(FOVY) / 2)
CAMERA = Pinhole(WIDTH, HEIGHT, FOCAL, FOCAL, WIDTH / 2 - 0.5, HEIGHT / 2 - 0.5)
# name: the geom, and its whole size (the longer side first, then the shorter, then the height)
SOLIDS = {
    "block": ('type="box" pos="-.15 0 .025" size=".04 .025 .025" euler="0 0 30"', (80, 50, 50)),
    "can": ('type="cylinder" pos=".1 .05 .05" size=".03 .05"', (60, 60, 100)),
    "ball": ('type="sphere" pos=".02 -.13 .035" size=".035"', (70, 70, 70)),
    "book": ('type="box" pos=".25 -.15 .01" size=".08 .05 .01" euler="0 0 -20"', (160, 100, 20)),
}
XML = f"""<mujoco><visual><global offwidth="{WIDTH}" offheight="{HEIGHT}"/></visual><worldbody>
<light pos="0 0 2" dir="0 0 -1"/><camera name="eye" pos="0 0 1" fovy="{FOVY}"/>
<geom type="plane" pos="0 0 -.7" size="4 4 .1"/>
<geom type="box" pos="0 0 -.02" size=".5 .4 .02"/>
{"".join(f'<geom name="{name}" {geom}/>' for name, (geom, _) in SOLIDS.items())}
</worldbody></mujoco>"""


class Table:
    """The simulated table and its camera."""

    def __init__(self) -> None:
        import mujoco

        self._mujoco = mujoco
        self._model = mujoco.MjModel.from_xml_string(XML)
        self._data = mujoco.MjData(self._model)
        self._renderer = mujoco.Renderer(self._model, HEIGHT, WIDTH)

    def look(self, elevation: float, azimuth: float, distance: float) -> None:
        """Put the camera there, in degrees and metres, looking at the table's middle, and draw."""
        e, a = np.deg2rad(elevation), np.deg2rad(azimuth)
        back = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
        right = np.array([-np.sin(a), np.cos(a), 0.0])
        axes = np.stack([right, np.cross(back, right), back], axis=1)
        self._model.cam_pos[0] = distance * back
        self._mujoco.mju_mat2Quat(self._model.cam_quat[0], axes.reshape(-1))
        self._mujoco.mj_forward(self._model, self._data)
        self._optical = axes @ np.diag([1.0, -1.0, -1.0])  # MuJoCo looks along -z, y up
        self._renderer.enable_depth_rendering()
        self._renderer.update_scene(self._data, "eye")
        self.depth = self._renderer.render().astype(np.float32)
        self._renderer.disable_depth_rendering()
        self._renderer.enable_segmentation_rendering()
        self._renderer.update_scene(self._data, "eye")
        self._shown = self._renderer.render()[..., 0].copy()
        self._renderer.disable_segmentation_rendering()

    def mask(self, name: str) -> Any:
        """The solid's pixels, bool (H, W)."""
        return self._shown == self._model.geom(name).id

    def place(self, name: str) -> Place:
        """Where the solid in its own box is found."""
        ys, xs = np.nonzero(self.mask(name))
        box = Box(xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
        return locate(self.depth, CAMERA, box, (WIDTH, HEIGHT))

    def truth(self, name: str) -> tuple[Array, Array]:
        """The solid's middle (3,) and axes (3, 3) in the camera's optical frame."""
        number = self._model.geom(name).id
        axes = self._data.geom_xmat[number].reshape(3, 3)
        middle = self._data.geom_xpos[number] - self._model.cam_pos[0]
        return self._optical.T @ middle, self._optical.T @ axes

    def close(self) -> None:
        """Free the renderer."""
        self._renderer.close()


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    pytest.importorskip("mujoco")
    try:
        made = Table()
    except Exception as error:  # noqa: BLE001 - it fails in many ways where there is no OpenGL
        pytest.skip(f"MuJoCo found no OpenGL renderer: {error}")
    yield made
    made.close()


@pytest.mark.parametrize("elevation", [25, 45, 70, 89])
@pytest.mark.parametrize("azimuth", [-90, -50])
def test_what_stands_on_the_table_is_where_the_simulator_has_it(
    table: Table, elevation: float, azimuth: float
) -> None:
    table.look(elevation, azimuth, 0.9)
    for name, (_, size) in SOLIDS.items():
        found = table.place(name)
        middle, axes = table.truth(name)
        # Of a round thing the far side is hidden; of a ball most of it from near the table.
        slack = {"ball": 14.0, "can": 5.0}.get(name, 2.0)
        off = float(np.linalg.norm(found.position - middle)) * 1000
        assert off < slack, f"{name}: {off:.1f} mm off"
        sides = found.size * 1000
        if name != "ball":
            assert sides == pytest.approx(size, abs=6.0), name
        assert sides[2] == pytest.approx(size[2], abs=2.0), name
        turned = rotation(found.orientation)
        assert turned[:, 2] @ axes[:, 2] > 0.9999, f"{name}: z is not up"
        if size[0] != size[1]:
            assert abs(turned[:, 0] @ axes[:, 0]) > 0.999, f"{name}: x is not along it"
        mask, shown = found.mask(), table.mask(name)
        overlap = (mask & shown).sum() / (mask | shown).sum()
        assert overlap > 0.85, f"{name}: mask {overlap:.2f}"
