"""Random tabletop scenes, drawn by MuJoCo with no GPU (EGL or OSMesa software rendering).

One MuJoCo model is kept for many pictures, because making a model and a renderer costs more than
a dozen pictures: objects, colours, lights and camera are changed in place, textures when the
model is made anew (every `SCENES_PER_MODEL` scenes).
"""

from __future__ import annotations

import colorsys
import os
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.data.tabletop.scene import COLORS, KINDS, Scene, SceneObject

os.environ.setdefault("MUJOCO_GL", "egl")  # read by mujoco when it is imported

MAX_OBJECTS = 7
SCENES_PER_MODEL = 150
TEXTURES = 4
INSTANCE_GRID = 56
MIN_FILL = 0.42  # share of its box that an object shows; less, and another one hides most of it
MIN_SIDE = 0.08  # smallest visible box side, as a fraction of the image

# Hue, saturation and value ranges of each colour name (fractions). Dark greens, blues and purples
# are wide on purpose: real cameras under-expose them.
HSV: dict[str, tuple[tuple[float, float], tuple[float, float], tuple[float, float]]] = {
    "red": ((-0.02, 0.02), (0.75, 1.0), (0.55, 1.0)),
    "green": ((0.33, 0.44), (0.5, 1.0), (0.28, 0.85)),
    "blue": ((0.57, 0.64), (0.7, 1.0), (0.4, 1.0)),
    "yellow": ((0.135, 0.17), (0.55, 1.0), (0.8, 1.0)),
    "purple": ((0.72, 0.82), (0.4, 0.9), (0.25, 0.7)),
    "orange": ((0.065, 0.095), (0.85, 1.0), (0.8, 1.0)),
    "white": ((0.0, 1.0), (0.0, 0.05), (0.85, 1.0)),
}
WIDTH = 320  # pixels of a 4:3 picture; square ones have 0.7 of it


@dataclass(frozen=True)
class Placed:
    """An object before rendering: metres in the table's frame, radians."""

    kind: str
    color: str
    rgb: tuple[float, float, float]
    x: float
    y: float
    radius: float
    height: float
    yaw: float
    lying: bool


def _noise(rng: np.random.Generator, size: int = 128) -> npt.NDArray[np.uint8]:
    """A table or floor texture, uint8 RGB (size, size, 3): noise of three scales or stripes."""
    hue, saturation = rng.uniform(), rng.choice([0.05, 0.25, 0.5]) * rng.uniform()
    base = np.array(colorsys.hsv_to_rgb(hue, saturation, rng.uniform(0.08, 0.85)))
    out = np.tile(base, (size, size, 1))
    for cells in (4, 16, 64):
        shape = (cells, 2) if rng.uniform() < 0.3 else (cells, cells)  # long cells look like wood
        field = cv2.resize(rng.standard_normal(shape), (size, size), interpolation=cv2.INTER_CUBIC)
        out += rng.uniform(0, 0.06) * field[..., None]
    return (out.clip(0, 1) * 255).astype(np.uint8)


def _model_xml(width: int) -> str:
    """The MuJoCo model: a table, a floor, two lights, a camera and MAX_OBJECTS movable geoms."""
    assets = "".join(
        f'<texture name="t{i}" type="2d" builtin="flat" width="128" height="128"/>'
        f'<material name="m{i}" texture="t{i}" texrepeat="1 1" reflectance="0"/>'
        for i in range(TEXTURES)
    )
    geoms = "".join(
        f'<body name="o{i}" pos="0 0 -9"><geom name="o{i}" type="box" size=".03 .03 .03"/></body>'
        for i in range(MAX_OBJECTS)
    )
    return (
        '<mujoco><visual><quality shadowsize="1024" offsamples="4"/>'
        f'<global offwidth="{width}" offheight="{width * 3 // 4}"/><headlight active="0"/></visual>'
        f"<asset>{assets}</asset><worldbody>"
        '<light name="key" pos="0 0 2" dir="0 0 -1" diffuse=".6 .6 .6"/>'
        '<light name="fill" pos="1 1 2" dir="-1 -1 -2" diffuse=".2 .2 .2" castshadow="false"/>'
        '<camera name="eye" pos="0 0 1"/>'
        '<geom name="floor" type="plane" pos="0 0 -.5" size="4 4 .1" material="m0"/>'
        '<geom name="table" type="box" pos="0 0 -.02" size=".6 .5 .02" material="m1"/>'
        f"{geoms}</worldbody></mujoco>"
    )


def _no_renderer(error: Exception) -> RuntimeError:
    return RuntimeError(
        "MuJoCo found no OpenGL renderer: apt-get install libegl1 libgl1-mesa-dri libosmesa6,"
        f" or set MUJOCO_GL=osmesa ({error})"
    )


class TabletopWorld:
    """Draws random scenes; the same seed gives the same scenes on the same renderer.

    seed: of numpy's generator. max_objects: at most MAX_OBJECTS in a picture. width: pixels of a
    4:3 picture.
    Raises RuntimeError with the packages to install when no OpenGL renderer can be made.
    """

    def __init__(self, seed: int, max_objects: int = 6, width: int = WIDTH) -> None:
        self._rng = np.random.default_rng(seed)
        self._max_objects = min(max_objects, MAX_OBJECTS)
        self._width = width
        self._made = 0
        self._square: Any = None
        self._wide: Any = None

    def _rebuild(self) -> None:
        try:
            import mujoco
        except AttributeError as error:  # so PyOpenGL fails where the library is missing
            raise _no_renderer(error) from error
        self.close()
        model = mujoco.MjModel.from_xml_string(_model_xml(self._width))
        for i in range(TEXTURES):
            texture = _noise(self._rng).reshape(-1)
            start = int(model.tex_adr[i])
            model.tex_data[start : start + texture.size] = texture
        self._model, self._data = model, mujoco.MjData(model)
        try:
            side = self._width * 7 // 10
            self._square = mujoco.Renderer(model, side, side)
            self._wide = mujoco.Renderer(model, self._width * 3 // 4, self._width)
        except Exception as error:
            raise _no_renderer(error) from error

    def close(self) -> None:
        """Free the renderers."""
        for renderer in (self._square, self._wide):
            if renderer is not None:
                renderer.close()
        self._square = self._wide = None

    def scene(self) -> Scene:
        """The next random scene; every object in it is visible enough to be named."""
        while True:
            if self._made % SCENES_PER_MODEL == 0:
                self._rebuild()
            self._made += 1
            scene = self._try_scene()
            if scene is not None:
                return scene

    def _try_scene(self) -> Scene | None:
        import mujoco

        rng = self._rng
        placed = self._place()
        for i in range(MAX_OBJECTS):
            self._put(i, placed[i] if i < len(placed) else None)
        self._light()
        self._camera(only_blocks=all(o.kind == "block" for o in placed))
        mujoco.mj_forward(self._model, self._data)
        renderer = self._square if rng.uniform() < 0.5 else self._wide
        # The segmentation is the cheap one: most scenes that are refused are refused by it.
        renderer.enable_segmentation_rendering()
        renderer.update_scene(self._data, "eye")
        truth = self._read(renderer.render(), placed)
        if truth is None:
            return None
        renderer.disable_segmentation_rendering()
        renderer.update_scene(self._data, "eye")
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = int(rng.uniform() < 0.8)
        return Scene(self._sensor(renderer.render()), *truth)

    def _place(self) -> list[Placed]:
        rng = self._rng
        count = 2 if rng.uniform() < 0.1 else int(rng.integers(3, self._max_objects + 1))
        one_kind = rng.uniform() < 0.5
        kinds = [str(rng.choice(KINDS))] if one_kind else list(KINDS)
        # A small palette makes look-alikes, which is what asking is about.
        palette = rng.permutation(COLORS)[: int(rng.integers(2, 6))]
        spread = rng.uniform(0.11, 0.16)
        size = rng.uniform(0.027, 0.043)
        out: list[Placed] = []
        for _ in range(40 * count):
            if len(out) == count:
                break
            x, y = rng.uniform(-spread, spread, 2)
            radius = size * rng.uniform(0.85, 1.2)
            if any(np.hypot(x - o.x, y - o.y) < 1.3 * (radius + o.radius) for o in out):
                continue
            kind, color = str(rng.choice(kinds)), str(rng.choice(palette))
            (h0, h1), (s0, s1), (v0, v1) = HSV[color]
            rgb = colorsys.hsv_to_rgb(
                rng.uniform(h0, h1) % 1.0, rng.uniform(s0, s1), rng.uniform(v0, v1)
            )
            height = radius * (1.0 if kind == "block" else float(rng.uniform(1.2, 1.9)))
            lying = kind == "cylinder" and rng.uniform() < 0.25
            out.append(
                Placed(
                    kind,
                    color,
                    rgb,
                    float(x),
                    float(y),
                    radius,
                    height,
                    rng.uniform(0, 2 * np.pi),
                    lying,
                )
            )
        return out

    def _put(self, index: int, o: Placed | None) -> None:
        import mujoco

        model = self._model
        geom, body = model.geom(f"o{index}").id, model.body(f"o{index}").id
        if o is None:
            model.body_pos[body] = (0, 0, -9)
            return
        types = {
            "block": mujoco.mjtGeom.mjGEOM_BOX,
            "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER,
            "ball": mujoco.mjtGeom.mjGEOM_SPHERE,
        }
        model.geom_type[geom] = int(types[o.kind])
        r = o.radius * (0.82 if o.kind != "ball" else 1.0)
        model.geom_size[geom] = (r, r, r) if o.kind == "block" else (r, o.height * 0.82, 0)
        model.geom_rgba[geom] = (*o.rgb, 1)
        half = {"block": r, "ball": r, "cylinder": r if o.lying else o.height * 0.82}[o.kind]
        model.body_pos[body] = (o.x, o.y, half)
        c, s = np.cos(o.yaw / 2), np.sin(o.yaw / 2)
        tilt = np.sqrt(0.5)  # a quarter turn about y lays a cylinder on its side
        model.body_quat[body] = (
            (c * tilt, -s * tilt, c * tilt, s * tilt) if o.lying else (c, 0, 0, s)
        )
        # The renderer culls by this, normally derived from type and size when compiled.
        model.geom_rbound[geom] = 3 * o.radius + o.height
        model.geom_matid[geom] = -1

    def _light(self) -> None:
        rng, model = self._rng, self._model
        bright = rng.uniform(0.55, 1.0)
        tint = 1 + rng.uniform(-0.08, 0.08, 3)
        model.light_diffuse[0] = bright * tint
        model.light_pos[0] = (*rng.uniform(-1, 1, 2), rng.uniform(1.2, 2.2))
        model.light_dir[0] = -model.light_pos[0] / np.linalg.norm(model.light_pos[0])
        model.light_diffuse[1] = rng.uniform(0.1, 0.35)
        model.light_specular[:] = rng.uniform(0, 0.4)
        model.light_ambient[:] = rng.uniform(0.08, 0.25)
        table, floor = model.geom("table").id, model.geom("floor").id
        picks = rng.integers(0, TEXTURES, 2)
        model.geom_matid[table], model.geom_matid[floor] = picks
        # The material's colour multiplies its texture: dark tables are as common as light ones.
        for material in {int(p) for p in picks}:
            shade = rng.uniform(0.12, 0.5) if rng.uniform() < 0.45 else rng.uniform(0.5, 1.1)
            model.mat_rgba[material, :3] = shade
        model.geom_size[table, :2] = (rng.uniform(0.35, 0.7), rng.uniform(0.32, 0.6))

    def _camera(self, only_blocks: bool) -> None:
        import mujoco

        rng, model = self._rng, self._model
        # From straight above a ball and an upright cylinder are both discs: keep the view oblique.
        top = only_blocks and rng.uniform() < 0.5
        elevation = np.deg2rad(rng.uniform(78, 90) if top else rng.uniform(35, 72))
        azimuth = np.deg2rad(rng.uniform(-25, 25)) - np.pi / 2
        fovy = rng.uniform(35, 55)
        distance = rng.uniform(0.17, 0.26) / np.tan(np.deg2rad(fovy / 2)) * 1.05
        eye = distance * np.array(
            [
                np.cos(elevation) * np.cos(azimuth),
                np.cos(elevation) * np.sin(azimuth),
                np.sin(elevation),
            ]
        )
        target = np.array([*rng.uniform(-0.03, 0.03, 2), 0.0])
        z = eye / np.linalg.norm(eye)
        right = np.array([-np.sin(azimuth), np.cos(azimuth), 0.0])
        up = np.cross(z, right)
        roll = np.deg2rad(rng.normal(0, 2))
        x, y = np.cos(roll) * right + np.sin(roll) * up, -np.sin(roll) * right + np.cos(roll) * up
        mujoco.mju_mat2Quat(model.cam_quat[0], np.stack([x, y, z], axis=1).reshape(-1))
        model.cam_pos[0] = target + eye
        model.cam_fovy[0] = fovy

    def _sensor(self, image: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
        """A camera's white balance, exposure, blur and noise on a render, uint8 RGB (H, W, 3)."""
        rng = self._rng
        out: npt.NDArray[Any] = (
            image.astype(np.float32) * rng.uniform(0.75, 1.3) * (1 + rng.uniform(-0.06, 0.06, 3))
        )
        if rng.uniform() < 0.4:
            out = cv2.GaussianBlur(out, (0, 0), float(rng.uniform(0.3, 0.9)))
        out += rng.normal(0, rng.uniform(0.5, 6), out.shape)
        return np.asarray(out.clip(0, 255), dtype=np.uint8)

    def _read(
        self, segmentation: npt.NDArray[np.int32], placed: list[Placed]
    ) -> tuple[tuple[SceneObject, ...], npt.NDArray[np.uint8]] | None:
        """Objects and instances from the segmentation render; None when one can hardly be seen."""
        ids = segmentation[..., 0]
        height, width = ids.shape
        full = np.zeros((height, width), dtype=np.uint8)
        objects: list[SceneObject] = []
        for i, o in enumerate(placed):
            mask = ids == self._model.geom(f"o{i}").id
            ys, xs = np.nonzero(mask)
            if len(xs) == 0:
                return None
            left, top = float(xs.min() / width), float(ys.min() / height)
            right, bottom = float((xs.max() + 1) / width), float((ys.max() + 1) / height)
            w, h = right - left, bottom - top
            filled = len(xs) / ((w * width) * (h * height))
            at_edge = left <= 0 or top <= 0 or right >= 1 or bottom >= 1
            if at_edge or min(w, h) < MIN_SIDE or filled < MIN_FILL:
                return None
            full[mask] = len(objects) + 1
            objects.append(SceneObject(o.kind, o.color, (left, top, right, bottom)))
        small = (INSTANCE_GRID, INSTANCE_GRID)
        instances = cv2.resize(full, small, interpolation=cv2.INTER_NEAREST)
        return tuple(objects), np.asarray(instances, dtype=np.uint8)
