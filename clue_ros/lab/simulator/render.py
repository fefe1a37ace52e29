"""Random tabletop scenes, rendered by MuJoCo without a GPU (EGL or OSMesa software rendering).

A `WorldSpec` says what is drawn. One MuJoCo model serves many pictures, because compiling a model
and opening a renderer cost more than a dozen pictures: objects, colours, lights and camera change
in place, textures and meshes change when the model is built anew.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from clue_ros.lab.simulator.optics import Masks, Size, bounding_box, instance_grid, simple_sensor
from clue_ros.lab.simulator.scene import Image, Scene, SceneObject
from clue_ros.lab.simulator.spec import MARGIN, ObjectLibrary, PlacedObject, WorldSpec, pick
from clue_ros.lab.simulator.textures import Texture

os.environ.setdefault("MUJOCO_GL", "egl")  # mujoco reads it when it is imported


def model_xml(spec: WorldSpec, size: Size, assets: str, bodies: str) -> str:
    """The MuJoCo model: floor, table, two lights, a camera and the world's bodies.

    size: the largest height and width of a picture.
    """
    side, surfaces = spec.surfaces.size, spec.surfaces
    count = surfaces.count * (2 if surfaces.own_floor else 1)
    coverings = "".join(
        f'<texture name="t{i}" type="2d" builtin="flat" width="{side}" height="{side}"/>'
        f'<material name="m{i}" texture="t{i}" reflectance="0"'
        f' texrepeat="{" ".join([str(surfaces.repeat if i >= surfaces.count else 1)] * 2)}"/>'
        for i in range(count)
    )
    half_floor = "4 4 .1" if spec.settling is None else "6 6 .1"
    return (
        '<mujoco><option timestep="0.004"/><size memory="64M"/>'
        f'<visual><quality shadowsize="{spec.light.shadows}" offsamples="4"/>'
        f'<global offwidth="{size[1]}" offheight="{size[0]}"/><headlight active="0"/></visual>'
        f"<asset>{coverings}{assets}</asset><worldbody>"
        '<light name="key" pos="0 0 2" dir="0 0 -1" diffuse=".6 .6 .6"'
        f' exponent="{spec.light.exponent}"/>'
        '<light name="fill" pos="1 1 2" dir="-1 -1 -2" diffuse=".2 .2 .2" castshadow="false"/>'
        '<camera name="eye" pos="0 0 1"/>'
        f'<geom name="floor" type="plane" pos="0 0 -.5" size="{half_floor}" material="m0"'
        ' contype="0" conaffinity="0"/>'
        '<geom name="table" type="box" pos="0 0 -.02" size=".6 .5 .02" material="m0"'
        ' condim="6" friction="0.9 0.02 0.01"/>'
        f"{bodies}</worldbody></mujoco>"
    )


def no_renderer(error: Exception) -> RuntimeError:
    """The error where OpenGL cannot be opened, with the packages to install."""
    return RuntimeError(
        "MuJoCo found no OpenGL renderer: apt-get install libegl1 libgl1-mesa-dri libosmesa6,"
        f" or set MUJOCO_GL=osmesa ({error})"
    )


class TabletopWorld:
    """Draws random scenes of a world whose objects are placed, not dropped.

    The same seed gives the same scenes on the same renderer. width: pixels of the widest picture;
    None is the world's own. placed: the objects of the last scene. Raises RuntimeError with the
    packages to install when no OpenGL renderer can be opened.
    """

    library: ObjectLibrary

    def __init__(self, spec: WorldSpec, seed: int, width: int | None = None) -> None:
        self.spec = spec
        self.rng = np.random.default_rng(seed)
        width = spec.width if width is None else width
        self.sizes: list[Size] = [
            (round(h * width), round(w * width)) for h, w in spec.camera.shapes
        ]
        self.model: Any = None
        self.data: Any = None
        self.renderers: list[Any] = []
        self.placed: list[PlacedObject] = []
        self._pictures = 0

    def scene(self) -> Scene:
        """The next random scene; every object in it is visible enough to be named."""
        while True:
            if self._pictures % self.spec.scenes_per_model == 0:
                self._rebuild()
            self._pictures += 1
            scene = self._try_scene()
            if scene is not None:
                return scene

    def close(self) -> None:
        """Free the renderers."""
        for renderer in self.renderers:
            renderer.close()
        self.renderers = []

    # --- the model

    def _rebuild(self) -> None:
        """Build a new model with new meshes and textures."""
        try:
            import mujoco
        except AttributeError as error:  # PyOpenGL raises it where the library is missing
            raise no_renderer(error) from error
        self.close()
        self.library = self.spec.library(self.spec)
        self.model = mujoco.MjModel.from_xml_string(self._xml(*self.library.xml(self.rng)))
        self.data = mujoco.MjData(self.model)
        for i, texture in enumerate(self.spec.surfaces.make(self.rng)):
            self._set_texture(f"t{i}", texture)
        try:
            self.renderers = [mujoco.Renderer(self.model, *s) for s in self._renderer_sizes()]
        except Exception as error:
            raise no_renderer(error) from error

    def _xml(self, assets: str, bodies: str) -> str:
        largest = max(h for h, _ in self.sizes), max(w for _, w in self.sizes)
        return model_xml(self.spec, largest, assets, bodies)

    def _renderer_sizes(self) -> list[Size]:
        return self.sizes

    def _set_texture(self, name: str, texture: Texture) -> None:
        start = int(self.model.tex_adr[self.model.texture(name).id])
        self.model.tex_data[start : start + texture.size] = texture.reshape(-1)

    # --- a scene

    def _try_scene(self) -> Scene | None:
        """One scene; None when an object in it can hardly be seen."""
        import mujoco

        rng = self.rng
        self.placed = placed = self.library.place(rng)
        self.library.show(self.model, placed)
        self._draw_lights()
        self._draw_surfaces()
        self._draw_camera({o.kind for o in placed})
        mujoco.mj_forward(self.model, self.data)
        renderer = self.renderers[0 if rng.uniform() < 0.5 else -1]
        # Segmentation is the cheap rendering; it refuses most of the scenes that are refused.
        masks = self._masks(renderer, {o.body: k for k, o in enumerate(placed, 1)})
        objects = self._objects(masks)
        if objects is None:
            return None
        image = simple_sensor(self._picture(renderer, shadows=0.8), rng)
        return Scene(image, objects, instance_grid(masks))

    def _draw_lights(self) -> None:
        rng, model, light = self.rng, self.model, self.spec.light
        bright = rng.uniform(*light.key)
        tint = 1 + rng.uniform(-light.tint, light.tint, 3)
        model.light_diffuse[0] = bright * tint
        model.light_pos[0] = (*rng.uniform(-1, 1, 2), rng.uniform(*light.height))
        model.light_dir[0] = -model.light_pos[0] / np.linalg.norm(model.light_pos[0])
        model.light_diffuse[1] = rng.uniform(*light.fill)
        model.light_specular[:] = rng.uniform(*light.specular)
        model.light_ambient[:] = rng.uniform(*light.ambient)

    def _draw_surfaces(self) -> None:
        """The table's form and covering, and the floor's."""
        import mujoco

        rng, model, surfaces = self.rng, self.model, self.spec.surfaces
        table, floor = model.geom("table").id, model.geom("floor").id
        picks = rng.integers(0, surfaces.count, 2)
        if surfaces.own_floor:
            picks[1] += surfaces.count
        model.geom_matid[table], model.geom_matid[floor] = picks
        # The material's colour multiplies its texture: dark tables are as common as light ones.
        for material in {int(p) for p in picks}:
            dark = rng.uniform() < surfaces.dark
            model.mat_rgba[material, :3] = rng.uniform(*(surfaces.dim if dark else surfaces.lit))
        kind = pick(rng, self.spec.tables)
        x, y = rng.uniform(*kind.x), rng.uniform(*kind.y)
        if kind.kind == "cylinder":
            model.geom_type[table] = mujoco.mjtGeom.mjGEOM_CYLINDER
            model.geom_size[table] = (x, 0.02, 0)
        else:
            model.geom_type[table] = mujoco.mjtGeom.mjGEOM_BOX
            # A flaw that recorded scenes depend on: after a round table the box has no height, so
            # its top lies 2 cm low.
            model.geom_size[table, :2] = (x, y)

    def _draw_camera(self, kinds: set[str]) -> None:
        import mujoco

        rng, model, camera = self.rng, self.model, self.spec.camera
        above = camera.overhead if kinds <= camera.flat else None
        top = above is not None and rng.uniform() < 0.5
        elevation = np.deg2rad(rng.uniform(*(above if above and top else camera.elevation)))
        azimuth = np.deg2rad(rng.uniform(*pick(rng, camera.azimuth))) - np.pi / 2
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

    # --- pictures and ground truth

    def _picture(self, renderer: Any, shadows: float) -> Image:
        """The rendered colours, uint8 RGB (H, W, 3). shadows: probability that lights cast any."""
        import mujoco

        renderer.disable_segmentation_rendering()
        renderer.update_scene(self.data, "eye")
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = int(self.rng.uniform() < shadows)
        return np.asarray(renderer.render(), dtype=np.uint8)

    def _masks(self, renderer: Any, numbers: dict[str, int]) -> Masks:
        """The number of the body that each pixel shows, uint8 (H, W); 0 for all other bodies."""
        renderer.enable_segmentation_rendering()
        renderer.update_scene(self.data, "eye")
        ids = renderer.render()[..., 0]
        bodies = np.where(ids < 0, 0, self.model.geom_bodyid[ids])
        number_of = np.zeros(self.model.nbody, dtype=np.uint8)
        for name, number in numbers.items():
            number_of[self.model.body(name).id] = number
        return np.asarray(number_of[bodies], dtype=np.uint8)

    def _objects(self, masks: Masks) -> tuple[SceneObject, ...] | None:
        """The ground truth of a picture; None when an object is cut, too small or too hidden."""
        out = []
        for k, o in enumerate(self.placed):
            mask = masks == k + 1
            box = bounding_box(mask)
            if box is None:
                return None
            w, h = box[2] - box[0], box[3] - box[1]
            filled = np.count_nonzero(mask) / (w * mask.shape[1] * (h * mask.shape[0]))
            if min(w, h) < self.spec.min_side or filled < self.spec.min_fill:
                return None
            out.append(SceneObject(o.kind, o.color, box))
        return tuple(out)
