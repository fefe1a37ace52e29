"""Pictures of the world `table` by MuJoCo's OpenGL renderer, where Filament cannot run.

`ClassicRenderer` has the methods of `filament.FilamentRenderer` and draws the same meshes and
textures from the same cameras. The light is simpler: a panorama's light along each axis, and its
brightest lamp with a hard shadow. Nothing reflects its surroundings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros.lab.simulator.filament import FAR, NEAR, Eye, Lamp, Thing, with_normals
from clue_ros.lab.simulator.optics import Masks, Size
from clue_ros.lab.simulator.panoramas import ImageLight, irradiance
from clue_ros.lab.simulator.render import no_renderer
from clue_ros.lab.simulator.scene import Image
from clue_ros.lab.simulator.textures import Texture

Floats = npt.NDArray[Any]

GAMMA = 2.2
HEADROOM = 0.6  # of white in OpenGL's picture: brighter light is compressed afterwards, not cut
SHOULDER = 0.75  # brightness from which it is compressed
EXTENT = 1.2  # metres from the middle of the table that shadows are computed for
SHADOWS, SAMPLES = 2048, 4  # pixels of the shadow map, samples of a pixel
AXES = np.concatenate([np.eye(3), -np.eye(3)])


@dataclass(frozen=True)
class _Mesh:
    vertices: Floats
    faces: npt.NDArray[Any]
    uv: Floats
    normals: Floats


@dataclass(frozen=True)
class _Cube:
    """The sharpest level of a cube map, linear RGB (6, N, N, 3), and its light, (9, 3)."""

    faces: Floats
    harmonics: Floats


class ClassicRenderer:
    """Draws pictures of things. RuntimeError says what to install where OpenGL cannot be opened.

    Each list of things is compiled into a MuJoCo model, which its picture and its numbers share.
    """

    def __init__(self) -> None:
        try:
            import mujoco
        except AttributeError as error:  # PyOpenGL raises it where the library is missing
            raise no_renderer(error) from error
        self._mujoco = mujoco
        self._things: Sequence[Thing] = ()
        self._size: Size = (0, 0)
        self._model: Any = None  # of these things, for pictures of this size
        try:
            self._context = mujoco.GLContext(8, 8)  # pictures have buffers of their own
            self._context.make_current()
        except Exception as error:
            raise no_renderer(error) from error

    def mesh(
        self,
        vertices: Floats,
        faces: npt.NDArray[Any],
        uv: Floats | None = None,
        normal: Floats | None = None,
    ) -> Any:
        """A mesh; the arguments are those of `filament.FilamentRenderer.mesh`."""
        return _Mesh(*with_normals(vertices, faces, uv, normal))

    def texture(self, rgb: Image) -> Any:
        """A texture from uint8 sRGB (H, W, 3); v = 0 is its first row."""
        return np.ascontiguousarray(rgb)

    def cube(self, faces: Sequence[Floats], harmonics: Floats) -> Any:
        """A cube map from levels of linear RGB (6, N, N, 3), for the sky and its light."""
        return _Cube(faces[0], harmonics)

    def numbers(self, things: Sequence[Thing], light: ImageLight, eye: Eye, size: Size) -> Masks:
        """The number of the thing that each pixel shows, uint8 (H, W); 0 for the background."""
        model = self._compiled(things, light, size)
        frame, geoms = self._draw(model, eye, size, numbers=True)
        shown = frame.astype(np.int32) @ (1, 1 << 8, 1 << 16)  # 0: background, else 1 + segid
        number_of = np.zeros(len(geoms) + 1, np.uint8)
        for geom in (g for g in geoms if g.segid >= 0):
            number_of[geom.segid + 1] = things[geom.objid].number
        return np.asarray(number_of[shown])

    def picture(
        self,
        things: Sequence[Thing],
        light: ImageLight,
        gain: float,
        lamps: Sequence[Lamp],
        lamp_gain: float,
        eye: Eye,
        size: Size,
    ) -> Image:
        """A picture, uint8 sRGB (H, W, 3); the arguments are those of Filament's `picture`."""
        model = self._compiled(things, light, size)
        self._light(model, light.map.harmonics, gain, lamps, lamp_gain)
        sky = 255 * HEADROOM * (light.sky.faces * gain).clip(0, 4) ** (1 / GAMMA)
        self._paint(model, "sky", sky.clip(0, 255).astype(np.uint8))
        frame, _ = self._draw(model, eye, size, numbers=False)
        return softened(frame / np.float32(255 * HEADROOM))

    def close(self) -> None:
        """Free all resources."""
        self._things, self._model = (), None
        self._context.free()

    def _draw(self, model: Any, eye: Eye, size: Size, *, numbers: bool) -> tuple[Image, list[Any]]:
        """Return OpenGL's picture, uint8 (H, W, 3), and its geoms."""
        mujoco = self._mujoco
        model.cam_pos[0], model.cam_fovy[0] = eye.position, eye.fovy
        rotation = np.ascontiguousarray(eye.rotation, np.float64).reshape(-1)
        mujoco.mju_mat2Quat(model.cam_quat[0], rotation)
        data = mujoco.MjData(model)
        mujoco.mj_forward(model, data)
        camera = mujoco.MjvCamera()
        camera.type, camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, 0
        scene = mujoco.MjvScene(model, maxgeom=model.ngeom + len(AXES) + 1)
        seen = mujoco.mjtCatBit.mjCAT_ALL
        mujoco.mjv_updateScene(model, data, mujoco.MjvOption(), None, camera, seen, scene)
        for flag in (mujoco.mjtRndFlag.mjRND_SEGMENT, mujoco.mjtRndFlag.mjRND_IDCOLOR):
            scene.flags[flag] = numbers
        out = np.zeros((*size, 3), np.uint8)
        area = mujoco.MjrRect(0, 0, size[1], size[0])
        self._context.make_current()
        drawer = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50)
        try:
            mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, drawer)
            mujoco.mjr_render(area, scene, drawer)
            mujoco.mjr_readPixels(out, None, area, drawer)
        finally:
            drawer.free()
        return out[::-1], list(scene.geoms[: scene.ngeom])

    # --- the model

    def _compiled(self, things: Sequence[Thing], light: ImageLight, size: Size) -> Any:
        """The model of these things, each a geom of its index, under lights that are still dark."""
        if things is self._things and size == self._size:
            return self._model
        mujoco = self._mujoco
        spec = mujoco.MjSpec()
        spec.stat.extent, spec.stat.center = EXTENT, [0, 0, 0]
        visual = spec.visual
        visual.map.znear, visual.map.zfar, visual.map.shadowclip = NEAR / EXTENT, FAR / EXTENT, 1.0
        visual.quality.shadowsize, visual.quality.offsamples = SHADOWS, SAMPLES
        visual.headlight.active = 0
        visual.global_.offheight, visual.global_.offwidth = size
        side = light.sky.faces.shape[1]
        # Their pictures are written into the compiled model: MjSpec takes them as slow lists.
        flat = mujoco.mjtBuiltin.mjBUILTIN_FLAT
        box = mujoco.mjtTexture.mjTEXTURE_SKYBOX
        spec.add_texture(name="sky", type=box, builtin=flat, width=side, height=6 * side)
        spec.worldbody.add_camera(name="eye")
        for _ in range(len(AXES) + 1):
            spec.worldbody.add_light(type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL)
        meshes: dict[int, str] = {}
        textures: dict[str, Texture] = {}
        for index, thing in enumerate(things):
            self._add(spec, index, thing, meshes, textures)
        self._model, self._things, self._size = spec.compile(), things, size
        for name, texture in textures.items():
            self._paint(self._model, name, texture)
        return self._model

    def _paint(self, model: Any, name: str, picture: npt.NDArray[np.uint8]) -> None:
        start = int(model.tex_adr[model.texture(name).id])
        model.tex_data[start : start + picture.size] = picture.reshape(-1)

    def _add(
        self,
        spec: Any,
        index: int,
        thing: Thing,
        meshes: dict[int, str],
        textures: dict[str, Texture],
    ) -> None:
        """Add a thing's geom, its mesh where it is not there yet, and its texture."""
        mujoco, look, mesh = self._mujoco, thing.look, thing.mesh
        if id(mesh) not in meshes:
            meshes[id(mesh)] = f"mesh{index}"
            spec.add_mesh(
                name=f"mesh{index}",
                uservert=mesh.vertices.reshape(-1),
                userface=mesh.faces.reshape(-1),
                usernormal=mesh.normals.reshape(-1),
                usertexcoord=mesh.uv.reshape(-1),
                inertia=mujoco.mjtMeshInertia.mjMESH_INERTIA_SHELL,  # sheets have no volume
            )
        material = spec.add_material(
            name=f"look{index}",
            rgba=[*look.rgb, 1.0],
            specular=0.6 * (1 - look.roughness),
            shininess=(1 - look.roughness) ** 2,
        )
        if look.texture is not None:
            textures[f"texture{index}"] = look.texture
            height, width = look.texture.shape[:2]
            spec.add_texture(
                name=f"texture{index}", type=mujoco.mjtTexture.mjTEXTURE_2D,
                builtin=mujoco.mjtBuiltin.mjBUILTIN_FLAT, width=width, height=height,
            )  # fmt: skip
            names = list(material.textures)
            names[mujoco.mjtTextureRole.mjTEXROLE_RGB] = f"texture{index}"
            material.textures = names
        quaternion = np.zeros(4)
        mujoco.mju_mat2Quat(quaternion, np.asarray(thing.rotation, np.float64).reshape(-1))
        spec.worldbody.add_geom(
            name=f"thing{index}", type=mujoco.mjtGeom.mjGEOM_MESH, meshname=meshes[id(mesh)],
            material=f"look{index}", pos=thing.position, quat=quaternion, contype=0, conaffinity=0,
        )  # fmt: skip

    def _light(
        self, model: Any, harmonics: Floats, gain: float, lamps: Sequence[Lamp], lamp_gain: float
    ) -> None:
        """Set the lights: one along each axis, and the lamp.

        OpenGL multiplies textures in sRGB, so the light's root stands for the light. Exact for
        surfaces that face along an axis; the lamp's share is right on a table.
        """
        on_axes = HEADROOM * (irradiance(harmonics, AXES) * gain).clip(0) ** (1 / GAMMA)
        ambient = on_axes.min(axis=0)
        model.light_castshadow[:] = model.light_ambient[:] = 0
        model.light_specular[:] = model.light_diffuse[:] = 0
        model.light_dir[: len(AXES)] = -AXES
        model.light_pos[: len(AXES)] = 3 * AXES
        model.light_diffuse[: len(AXES)] = on_axes - ambient
        model.light_ambient[0] = ambient
        for lamp in lamps[:1]:
            up = on_axes[2]
            cosine = max(float(lamp.direction[2]), 0.1)
            share = HEADROOM**GAMMA * lamp.rgb * lamp_gain * cosine
            both = (up**GAMMA + share) ** (1 / GAMMA)
            model.light_dir[-1], model.light_pos[-1] = -lamp.direction, 3 * lamp.direction
            model.light_diffuse[-1] = model.light_specular[-1] = (both - up) / cosine
            model.light_castshadow[-1] = 1


def softened(picture: Floats) -> Image:
    """A picture of brightness 0 to 1 / HEADROOM with its highlights below white, uint8."""
    over = np.maximum(picture - SHOULDER, 0) / (1 - SHOULDER)
    out = np.minimum(picture, SHOULDER) + (1 - SHOULDER) * (1 - np.exp(-over))
    return np.asarray(255 * out, np.uint8)
