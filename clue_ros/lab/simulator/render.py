"""Random tabletop scenes, drawn by MuJoCo with no GPU (EGL or OSMesa software rendering).

What is drawn is a `WorldSpec`'s matter. One MuJoCo model is kept for many pictures, because making
a model and a renderer costs more than a dozen pictures: objects, colours, lights and camera are
changed in place, textures and meshes when the model is made anew.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.simulator.spec import MARGIN, Placed, WorldSpec
from clue_ros.lab.simulator.worlds import BLOCKS

os.environ.setdefault("MUJOCO_GL", "egl")  # read by mujoco when it is imported

INSTANCE_GRID = 56


def _model_xml(spec: WorldSpec, size: tuple[int, int], assets: str, bodies: str) -> str:
    """The MuJoCo model: table, floor, two lights, a camera and the world's bodies.

    size: height and width of the largest picture.
    """
    side, surfaces = spec.surfaces.size, spec.surfaces
    count = surfaces.count * (2 if surfaces.own_floor else 1)
    coverings = "".join(
        f'<texture name="t{i}" type="2d" builtin="flat" width="{side}" height="{side}"/>'
        f'<material name="m{i}" texture="t{i}" reflectance="0"'
        f' texrepeat="{" ".join([str(surfaces.repeat if i >= surfaces.count else 1)] * 2)}"/>'
        for i in range(count)
    )
    return (
        f'<mujoco><visual><quality shadowsize="{spec.light.shadows}" offsamples="4"/>'
        f'<global offwidth="{size[1]}" offheight="{size[0]}"/><headlight active="0"/></visual>'
        f"<asset>{coverings}{assets}</asset><worldbody>"
        '<light name="key" pos="0 0 2" dir="0 0 -1" diffuse=".6 .6 .6"'
        f' exponent="{spec.light.exponent}"/>'
        '<light name="fill" pos="1 1 2" dir="-1 -1 -2" diffuse=".2 .2 .2" castshadow="false"/>'
        '<camera name="eye" pos="0 0 1"/>'
        '<geom name="floor" type="plane" pos="0 0 -.5" size="4 4 .1" material="m0"/>'
        '<geom name="table" type="box" pos="0 0 -.02" size=".6 .5 .02" material="m0"/>'
        f"{bodies}</worldbody></mujoco>"
    )


def _no_renderer(error: Exception) -> RuntimeError:
    return RuntimeError(
        "MuJoCo found no OpenGL renderer: apt-get install libegl1 libgl1-mesa-dri libosmesa6,"
        f" or set MUJOCO_GL=osmesa ({error})"
    )


class TabletopWorld:
    """Draws random scenes; the same seed gives the same scenes on the same renderer.

    seed: of numpy's generator. max_objects: at most so many in a picture, and at most what the
    world's stock can hold. width: pixels of its widest picture; None is the world's own.
    Raises RuntimeError with the packages to install when no OpenGL renderer can be made.
    """

    def __init__(
        self,
        seed: int,
        max_objects: int = 6,
        width: int | None = None,
        *,
        spec: WorldSpec = BLOCKS,
    ) -> None:
        self.spec = spec
        self._rng = np.random.default_rng(seed)
        self._max_objects = max_objects
        width = spec.width if width is None else width
        self._sizes = [(round(h * width), round(w * width)) for h, w in spec.camera.shapes]
        self._made = 0
        self._renderers: list[Any] = []

    def _rebuild(self) -> None:
        try:
            import mujoco
        except AttributeError as error:  # so PyOpenGL fails where the library is missing
            raise _no_renderer(error) from error
        self.close()
        self._stock = self.spec.stock()
        assets, bodies = self._stock.xml(self._rng)
        largest = max(h for h, _ in self._sizes), max(w for _, w in self._sizes)
        model = mujoco.MjModel.from_xml_string(self._xml(largest, assets, bodies))
        for i, texture in enumerate(self.spec.surfaces.make(self._rng)):
            start = int(model.tex_adr[model.texture(f"t{i}").id])
            model.tex_data[start : start + texture.size] = texture.reshape(-1)
        self._model, self._data = model, mujoco.MjData(model)
        try:
            self._renderers = [mujoco.Renderer(model, h, w) for h, w in self._picture_sizes()]
        except Exception as error:
            raise _no_renderer(error) from error

    def _picture_sizes(self) -> list[tuple[int, int]]:
        """What a renderer is needed for, (height, width)."""
        return self._sizes

    def _xml(self, largest: tuple[int, int], assets: str, bodies: str) -> str:
        return _model_xml(self.spec, largest, assets, bodies)

    def close(self) -> None:
        """Free the renderers."""
        for renderer in self._renderers:
            renderer.close()
        self._renderers = []

    def scene(self) -> Scene:
        """The next random scene; every object in it is visible enough to be named."""
        while True:
            if self._made % self.spec.scenes_per_model == 0:
                self._rebuild()
            self._made += 1
            scene = self._try_scene()
            if scene is not None:
                return scene

    def _try_scene(self) -> Scene | None:
        import mujoco

        rng = self._rng
        placed = self._stock.arrange(rng, self._max_objects)
        self._stock.show(self._model, placed)
        self._light()
        self._surfaces()
        self._camera({o.kind for o in placed})
        mujoco.mj_forward(self._model, self._data)
        renderer = self._renderers[0 if rng.uniform() < 0.5 else -1]
        # The segmentation is the cheap one: most scenes that are refused are refused by it.
        renderer.enable_segmentation_rendering()
        masks = self._masks(renderer, placed)
        truth = self._read(masks, placed)
        if truth is None or not self._visible(renderer, masks, placed):
            return None
        renderer.disable_segmentation_rendering()
        renderer.update_scene(self._data, "eye")
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = int(rng.uniform() < 0.8)
        return Scene(self._sensor(renderer.render()), *truth)

    def _light(self) -> None:
        rng, model, light = self._rng, self._model, self.spec.light
        bright = rng.uniform(*light.key)
        tint = 1 + rng.uniform(-light.tint, light.tint, 3)
        model.light_diffuse[0] = bright * tint
        model.light_pos[0] = (*rng.uniform(-1, 1, 2), rng.uniform(*light.height))
        model.light_dir[0] = -model.light_pos[0] / np.linalg.norm(model.light_pos[0])
        model.light_diffuse[1] = rng.uniform(*light.fill)
        model.light_specular[:] = rng.uniform(*light.specular)
        model.light_ambient[:] = rng.uniform(*light.ambient)

    def _surfaces(self) -> None:
        """The table's form and covering, and the floor's."""
        import mujoco

        rng, model, surfaces = self._rng, self._model, self.spec.surfaces
        table, floor = model.geom("table").id, model.geom("floor").id
        picks = rng.integers(0, surfaces.count, 2)
        if surfaces.own_floor:
            picks[1] += surfaces.count
        model.geom_matid[table], model.geom_matid[floor] = picks
        # The material's colour multiplies its texture: dark tables are as common as light ones.
        for material in {int(p) for p in picks}:
            dark = rng.uniform() < surfaces.dark
            model.mat_rgba[material, :3] = rng.uniform(*(surfaces.dim if dark else surfaces.lit))
        kinds = self.spec.tables
        kind = kinds[0] if len(kinds) == 1 else kinds[int(rng.integers(len(kinds)))]
        x, y = rng.uniform(*kind.x), rng.uniform(*kind.y)
        if kind.kind == "cylinder":
            model.geom_type[table] = mujoco.mjtGeom.mjGEOM_CYLINDER
            model.geom_size[table] = (x, 0.02, 0)
        else:
            model.geom_type[table] = mujoco.mjtGeom.mjGEOM_BOX
            model.geom_size[table, :2] = (x, y)

    def _camera(self, kinds: set[str]) -> None:
        import mujoco

        rng, model, camera = self._rng, self._model, self.spec.camera
        above = camera.overhead if kinds <= camera.flat else None
        top = above is not None and rng.uniform() < 0.5
        elevation = np.deg2rad(rng.uniform(*(above if above and top else camera.elevation)))
        sides = camera.azimuth
        side = sides[0] if len(sides) == 1 else sides[int(rng.integers(len(sides)))]
        azimuth = np.deg2rad(rng.uniform(*side)) - np.pi / 2
        fovy = rng.uniform(*camera.fovy)
        distance = rng.uniform(*camera.half_height) / np.tan(np.deg2rad(fovy / 2)) * MARGIN
        eye = distance * np.array(
            [
                np.cos(elevation) * np.cos(azimuth),
                np.cos(elevation) * np.sin(azimuth),
                np.sin(elevation),
            ]
        )
        target = np.array([*rng.uniform(-camera.target, camera.target, 2), camera.aim])
        z = eye / np.linalg.norm(eye)
        right = np.array([-np.sin(azimuth), np.cos(azimuth), 0.0])
        up = np.cross(z, right)
        roll = np.deg2rad(rng.normal(0, camera.roll))
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

    def _masks(self, renderer: Any, placed: Sequence[Placed]) -> npt.NDArray[np.uint8]:
        """Which object each pixel shows, uint8 (H, W): 0 none, k is placed[k - 1].

        The renderer is in segmentation mode.
        """
        renderer.update_scene(self._data, "eye")
        ids = renderer.render()[..., 0]
        bodies = np.where(ids < 0, 0, self._model.geom_bodyid[ids])
        numbers = np.zeros(self._model.nbody, dtype=np.uint8)
        for k, o in enumerate(placed):
            numbers[self._model.body(o.body).id] = k + 1
        return np.asarray(numbers[bodies], dtype=np.uint8)

    def _visible(self, renderer: Any, masks: npt.NDArray[np.uint8], placed: list[Placed]) -> bool:
        """Whether enough of every object is seen; each is drawn alone to know how much there is."""
        least = self.spec.min_visible
        if least is None:
            return True
        enough = True
        for k, o in enumerate(placed):
            self._show([o])
            alone = np.count_nonzero(self._masks(renderer, [o]))
            enough &= bool(np.count_nonzero(masks == k + 1) >= least * alone)
        self._show(placed)
        return enough

    def _show(self, placed: list[Placed]) -> None:
        import mujoco

        self._stock.show(self._model, placed)
        mujoco.mj_forward(self._model, self._data)

    def _read(
        self, masks: npt.NDArray[np.uint8], placed: Sequence[Placed]
    ) -> tuple[tuple[SceneObject, ...], npt.NDArray[np.uint8]] | None:
        """Objects and instances from the segmentation; None when one can hardly be seen."""
        height, width = masks.shape
        least = self.spec.min_fill or 0.0
        objects: list[SceneObject] = []
        for i, o in enumerate(placed):
            ys, xs = np.nonzero(masks == i + 1)
            if len(xs) == 0:
                return None
            left, top = float(xs.min() / width), float(ys.min() / height)
            right, bottom = float((xs.max() + 1) / width), float((ys.max() + 1) / height)
            w, h = right - left, bottom - top
            filled = len(xs) / ((w * width) * (h * height))
            at_edge = left <= 0 or top <= 0 or right >= 1 or bottom >= 1
            if at_edge or min(w, h) < self.spec.min_side or filled < least:
                return None
            objects.append(SceneObject(o.kind, o.color, (left, top, right, bottom)))
        small = (INSTANCE_GRID, INSTANCE_GRID)
        instances = cv2.resize(masks, small, interpolation=cv2.INTER_NEAREST)
        return tuple(objects), np.asarray(instances, dtype=np.uint8)


# -------------------------------------------------------------------------------------------------
# What lies between a scene and its picture: where points fall, the lens, a camera's faults.

Points = npt.NDArray[np.float64]
_SHIFT = 4  # of OpenCV's fixed-point coordinates


def pixels_of(model: Any, data: Any, points: Points, size: tuple[int, int]) -> Points:
    """World points (n, 3) in a picture of (height, width) pixels of camera 0, (n, 2).

    Every point must lie in front of the camera.
    """
    height, width = size
    seen = (points - data.cam_xpos[0]) @ data.cam_xmat[0].reshape(3, 3)
    scale = height / 2 / np.tan(np.deg2rad(model.cam_fovy[0]) / 2)
    depth = np.maximum(-seen[:, 2], 1e-3)
    x, y = seen[:, 0] / depth * scale, seen[:, 1] / depth * scale
    return np.stack([width / 2 + x, height / 2 - y], axis=1)


def silhouette(
    corners: Points, faces: npt.NDArray[np.int64], size: tuple[int, int]
) -> npt.NDArray[np.bool_]:
    """The pixels (H, W) that a mesh covers. corners: its vertices in pixels, (n, 2)."""
    out = np.zeros(size, dtype=np.uint8)
    fixed = np.round((corners - 0.5) * (1 << _SHIFT)).astype(np.int32)
    triangles = fixed[faces]
    a, b = triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    for triangle in triangles[a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0] < 0]:  # those that face us
        cv2.fillConvexPoly(out, triangle, 1, shift=_SHIFT)
    return out > 0


def visible_share(masks: npt.NDArray[np.uint8], number: int, alone: npt.NDArray[Any]) -> float:
    """How much of an object is not hidden by another one, 0..1.

    masks: which object each pixel shows. alone: where it would be seen if it were alone.
    """
    shown = int(np.count_nonzero(masks == number))
    hidden = int(np.count_nonzero(alone & (masks != 0) & (masks != number)))
    return shown / max(shown + hidden, 1)


def bent(
    image: npt.NDArray[np.uint8], masks: npt.NDArray[np.uint8], k: float
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    """Picture (H, W, 3) and masks (H, W) through a lens with radial distortion.

    k: of the corners, barrel below 0 and pincushion above. No pixel comes from outside.
    """
    height, width = masks.shape
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    half = np.hypot(width, height) / 2
    u, v = (x - (width - 1) / 2) / half, (y - (height - 1) / 2) / half
    factor = 1 - k * (u * u + v * v)
    # The edges' middles bulge least with a barrel, the corners reach furthest with a pincushion.
    factor = factor / max(1.0, float(factor.max())) if k < 0 else factor
    at = (u * factor * half + (width - 1) / 2, v * factor * half + (height - 1) / 2)
    ax, ay = (np.asarray(a, dtype=np.float32) for a in at)
    out = cv2.remap(image, ax, ay, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    numbers = cv2.remap(masks, ax, ay, cv2.INTER_NEAREST, borderMode=cv2.BORDER_REPLICATE)
    return np.asarray(out, dtype=np.uint8), np.asarray(numbers, dtype=np.uint8)


def faulty(image: npt.NDArray[np.uint8], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """A camera's exposure, white balance, vignette, blur and noise on uint8 RGB (H, W, 3)."""
    height, width = image.shape[:2]
    out: npt.NDArray[Any] = (
        image.astype(np.float32) * rng.uniform(0.8, 1.12) * (1 + rng.uniform(-0.05, 0.05, 3))
    )
    y, x = np.mgrid[0:height, 0:width]
    square = ((x / width - 0.5) ** 2 + (y / height - 0.5) ** 2) * 2
    out *= (1 - rng.uniform(0, 0.3) * square)[..., None]
    fault = rng.uniform()
    if fault < 0.35:
        out = cv2.GaussianBlur(out, (0, 0), float(rng.uniform(0.3, 1.1)))
    elif fault < 0.5:
        length = int(rng.integers(2, 5))
        kernel = np.zeros((length, length), dtype=np.float32)
        ends = ((0, int(rng.integers(length))), (length - 1, int(rng.integers(length))))
        cv2.line(kernel, *ends, 1.0)
        out = cv2.filter2D(out, -1, kernel / kernel.sum())
    # Sensor noise grows with the light; it is not the same in every picture.
    level = rng.uniform(0.5, 6) * (0.6 + 0.4 * np.sqrt(np.clip(out, 0, 255) / 255))
    out = out + level * rng.standard_normal(out.shape)
    return np.asarray(out.clip(0, 255), dtype=np.uint8)
