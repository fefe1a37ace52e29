"""Physically based pictures by Filament, the renderer in MuJoCo's wheel, without a GPU.

`FilamentRenderer` draws meshes under the light of a panorama and a lamp with soft shadows, and the
number of the thing that each pixel shows, from the same camera. It needs Vulkan in software (Mesa's
lavapipe); `missing` says what to install.
"""

from __future__ import annotations

import collections.abc
import contextlib
import ctypes
import ctypes.util
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from clue_ros import requirements
from clue_ros.lab.simulator.optics import Masks, Size
from clue_ros.lab.simulator.panoramas import ImageLight
from clue_ros.lab.simulator.scene import Image

Floats = npt.NDArray[Any]

INTENSITY = 18_700.0  # of an image light whose white Filament shows as white
NEAR, FAR = 0.05, 30.0  # metres
CREASE = 0.77  # cosine of the angle between two faces above which an edge looks sharp
_PACKAGES = "libvulkan1 mesa-vulkan-drivers"
_OPTIONS = {
    "filament.shadows.type": "pcss",
    "filament.cg.tone_mapping": "pbr_neutral",
    "filament.ao.enabled": "1",
}


def missing() -> str:
    """Return the reason why Filament cannot run here, with the remedy; "" if it can.

    Filament ends the whole process where Vulkan is missing, so ask this first.
    """
    if ctypes.util.find_library("vulkan") is None:
        return f"Filament needs Vulkan in software: apt-get install {_PACKAGES}"
    folders = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES") or ""
    names = [name for name in folders.split(os.pathsep) if name]
    for folder in ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"):
        names += os.listdir(folder) if os.path.isdir(folder) else []
    if not any(name.endswith(".json") for name in names):
        return f"Filament found no Vulkan driver: apt-get install {_PACKAGES}"
    try:
        _modules()
    except (ImportError, AttributeError) as error:  # PyOpenGL raises the latter without EGL
        if isinstance(error, ModuleNotFoundError) and error.name == "mujoco":
            return requirements.missing("mujoco", "Filament")
        return f"this MuJoCo has no Filament renderer: pip install 'mujoco>=4' ({error})"
    return ""


def _modules() -> tuple[Any, Any]:
    """Mujoco and its Filament bindings. ImportError where the wheel has none."""
    import mujoco
    import mujoco.studio  # registers the materials' files; without them the first picture fails
    from mujoco import mjrf

    return mujoco, mjrf


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Send the output of compiled code to stderr: stdout may be JSON."""
    sys.stdout.flush()
    library = ctypes.CDLL(None)
    try:
        kept = os.dup(1)
    except OSError:  # stdout is closed
        yield
        return
    try:
        os.dup2(2, 1)
        yield
    finally:
        library.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


@dataclass(frozen=True)
class Look:
    """A thing's surface. rgb: factor of the texture, sRGB 0..1. texture: of the renderer."""

    rgb: tuple[float, float, float] = (1.0, 1.0, 1.0)
    texture: Any = None
    roughness: float = 0.6
    metallic: float = 0.0


@dataclass(frozen=True)
class Thing:
    """A mesh in the world.

    mesh: of the renderer. position: metres. rotation: row-major (3, 3). number: the value of its
    pixels in the picture of numbers, 0..255.
    """

    mesh: Any
    look: Look
    position: Floats
    rotation: Floats
    number: int = 0


@dataclass(frozen=True)
class Lamp:
    """Light from one direction. direction: to the lamp, unit length. rgb: times `INTENSITY`."""

    direction: Floats
    rgb: Floats
    radius: float = 0.1


@dataclass(frozen=True)
class Eye:
    """A pinhole camera. rotation: columns are right, up and backward. fovy: degrees, vertical."""

    position: Floats
    rotation: Floats
    fovy: float

    def project(self, points: Floats, size: Size) -> Floats:
        """World points (n, 3) in a picture, pixels (x, y), (n, 2); those behind are far outside."""
        height, width = size
        seen = (points - self.position) @ self.rotation
        scale = height / 2 / np.tan(np.deg2rad(self.fovy) / 2)
        depth = np.maximum(-seen[:, 2], 1e-3)
        return np.stack(
            [width / 2 + seen[:, 0] / depth * scale, height / 2 - seen[:, 1] / depth * scale],
            axis=1,
        )


def normals(vertices: Floats, faces: npt.NDArray[Any]) -> Floats:
    """Normals of every corner of every face, (F, 3, 3): smooth except at sharp edges."""
    _, place = np.unique(np.round(vertices, 6), axis=0, return_inverse=True)
    corners = place.reshape(-1)[faces]  # (F, 3), the same number for the same place
    a, b, c = (vertices[faces[:, k]] for k in range(3))
    across = np.cross(b - a, c - a)  # its length weights a face by its area
    unit = across / np.maximum(np.linalg.norm(across, axis=1, keepdims=True), 1e-20)
    order = np.argsort(corners.reshape(-1), kind="stable")
    owner = order // 3
    starts = np.flatnonzero(np.r_[True, np.diff(corners.reshape(-1)[order]) > 0])
    counts = np.diff(np.r_[starts, len(order)])
    out = np.zeros((faces.size, 3))
    # Every pair of corners at one place: shift by 0 .. the greatest count, wrapping in its group.
    first, size = np.repeat(starts, counts), np.repeat(counts, counts)
    rank = np.arange(len(order)) - first
    for shift in range(int(counts.max()) if len(counts) else 0):
        used = shift < size
        other = owner[first[used] + (rank[used] + shift) % size[used]]
        own = owner[used]
        near = np.einsum("ij,ij->i", unit[own], unit[other]) > CREASE
        out[order[used]] += across[other] * near[:, None]
    lengths = np.linalg.norm(out, axis=1, keepdims=True)
    own_faces = np.repeat(unit, 3, axis=0)
    return np.where(lengths > 1e-20, out / np.maximum(lengths, 1e-20), own_faces).reshape(-1, 3, 3)


def with_normals(
    vertices: Floats, faces: npt.NDArray[Any], uv: Floats | None, normal: Floats | None
) -> tuple[Floats, npt.NDArray[Any], Floats, Floats]:
    """Vertices, faces, texture coordinates and normals of a mesh: see `FilamentRenderer.mesh`.

    Without normals every corner of every face becomes a vertex of its own.
    """
    across = np.zeros((len(vertices), 2)) if uv is None else uv
    if normal is not None:
        return vertices, faces, across, normal
    flat = faces.reshape(-1)
    corners = np.arange(len(flat)).reshape(-1, 3)
    return vertices[flat], corners, across[flat], normals(vertices, faces).reshape(-1, 3)


def tangents(normal: Floats) -> Floats:
    """Unit quaternions (x, y, z, w) that turn the z axis to normals (n, 3), as in Filament."""
    x, y, z = normal.T
    out = np.stack([-y, x, np.zeros_like(x), 1 + z], axis=1)
    out[z < -0.9999] = (1.0, 0.0, 0.0, 1e-4)
    return np.asarray(out / np.linalg.norm(out, axis=1, keepdims=True))


class FilamentRenderer:
    """Draws pictures of things. RuntimeError says what to install where it cannot.

    Meshes, textures and light stay with the renderer until they are dropped; each picture gets its
    own list of things.
    """

    def __init__(self) -> None:
        problem = missing()
        if problem:
            raise RuntimeError(problem)
        vars(collections.abc).setdefault("Buffer", object)  # MuJoCo names it; new in Python 3.12
        self._mujoco, self._mjrf = _modules()
        config = self._mjrf.ContextConfig()
        config.software_rendering = True
        with _stdout_to_stderr():  # Filament prints its version and driver
            self._context = self._mjrf.Context(config)
        texts = "".join(f'<text name="{k}" data="{v}"/>' for k, v in _OPTIONS.items())
        self._options = self._mujoco.MjModel.from_xml_string(
            f"<mujoco><custom>{texts}</custom><worldbody/></mujoco>"
        )
        self._targets: dict[Size, Any] = {}
        self._uploads: list[Any] = []  # Filament reads them until the next frame is done

    def mesh(
        self,
        vertices: Floats,
        faces: npt.NDArray[Any],
        uv: Floats | None = None,
        normal: Floats | None = None,
    ) -> Any:
        """A mesh of vertices (V, 3), faces (F, 3), texture coordinates (V, 2) and normals (V, 3).

        uv: v goes downwards from the texture's first row. normal: None for smooth ones with sharp
        edges.
        """
        mjrf = self._mjrf
        use, form = mjrf.VertexAttributeUsage, mjrf.VertexAttributeType
        attributes = [
            (use.VERTEX_ATTRIBUTE_USAGE_POSITION, form.VERTEX_ATTRIBUTE_TYPE_FLOAT3),
            (use.VERTEX_ATTRIBUTE_USAGE_TANGENTS, form.VERTEX_ATTRIBUTE_TYPE_FLOAT4),
            (use.VERTEX_ATTRIBUTE_USAGE_UV, form.VERTEX_ATTRIBUTE_TYPE_FLOAT2),
        ]
        points, triangles, across, upright = with_normals(vertices, faces, uv, normal)
        rows = np.concatenate([points, tangents(upright), across], axis=1).astype(np.float32)
        index = triangles.reshape(-1).astype(np.uint32)
        config = mjrf.MeshConfig(
            max_vertices=len(rows),
            max_indices=len(index),
            attributes=[mjrf.VertexAttribute(u, f) for u, f in attributes],
            interleaved=True,
            index_type=mjrf.IndexType.INDEX_TYPE_U32,
            primitive_type=mjrf.MeshPrimitiveType.MESH_PRIMITIVE_TYPE_TRIANGLES,
        )
        made = self._context.create_mesh(config)
        low, high = vertices.min(axis=0), vertices.max(axis=0)
        data = mjrf.MeshData(True, np.float32(low), np.float32(high))
        content = rows.tobytes(), index.tobytes()
        data.set_vertices(config, content[0])
        data.set_indices(config, content[1])
        made.upload(data)
        self._uploads += [data, content]
        return made

    def texture(self, rgb: Image) -> Any:
        """A texture from uint8 sRGB (H, W, 3); v = 0 is its first row."""
        mjrf = self._mjrf
        config = mjrf.TextureConfig(
            width=rgb.shape[1],
            height=rgb.shape[0],
            format=mjrf.PixelFormat.PIXEL_FORMAT_RGB8,
            color_space=mjrf.ColorSpace.COLORSPACE_SRGB,
            sampler_type=mjrf.SamplerType.TEXTURE_2D,
        )
        return self._upload(config, np.ascontiguousarray(rgb).tobytes())

    def cube(self, faces: Sequence[Floats], harmonics: Floats) -> Any:
        """A cube map from levels of linear RGB (6, N, N, 3), for the sky and its light."""
        content = ktx(faces, harmonics)
        mjrf = self._mjrf
        config = mjrf.TextureConfig(
            width=len(content),
            height=0,
            format=mjrf.PixelFormat.PIXEL_FORMAT_KTX,
            color_space=mjrf.ColorSpace.COLORSPACE_LINEAR,
            sampler_type=mjrf.SamplerType.TEXTURE_CUBE,
        )
        return self._upload(config, content)

    def _upload(self, config: Any, content: bytes) -> Any:
        made = self._context.create_texture(config)
        data = self._mjrf.TextureData()
        data.set_image(content)
        made.upload(data)
        self._uploads += [data, content]
        return made

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
        """A picture, uint8 sRGB (H, W, 3).

        light: made with `cube` textures of this renderer. gain, lamp_gain: of the light and of the
        lamps; with 1, a perfect reflector is white.
        """
        return self._frame(things, light, gain, lamps, lamp_gain, eye, size, numbers=False)

    def numbers(self, things: Sequence[Thing], light: ImageLight, eye: Eye, size: Size) -> Masks:
        """The number of the thing that each pixel shows, uint8 (H, W); 0 for the background."""
        return self._frame(things, light, 1.0, (), 1.0, eye, size, numbers=True)[..., 0]

    def close(self) -> None:
        """Free all resources. Meshes, textures and lights made here must not be used again."""
        self._targets.clear()
        self._uploads.clear()
        self._context = None

    def _frame(
        self,
        things: Sequence[Thing],
        light: ImageLight,
        gain: float,
        lamps: Sequence[Lamp],
        lamp_gain: float,
        eye: Eye,
        size: Size,
        *,
        numbers: bool,
    ) -> Image:
        mjrf, context = self._mjrf, self._context
        scene = context.create_scene(mjrf.SceneParams())
        scene.configure_from_model(self._options)
        scene.set_skybox(light.sky)
        kinds = mjrf.LightType
        lights = [
            context.create_light(
                mjrf.LightParams(
                    type=kinds.LIGHT_IMAGE, texture=light.map, intensity=INTENSITY * gain
                )
            )
        ]
        for lamp in lamps:
            made = context.create_light(
                mjrf.LightParams(
                    type=kinds.LIGHT_DIRECTIONAL,
                    color=np.float32(lamp.rgb / lamp.rgb.max()),
                    intensity=float(lamp.rgb.max()) * np.pi * INTENSITY * lamp_gain,
                    cast_shadow=True,
                    bulb_radius=lamp.radius,
                    shadow_map_size=1024,
                )
            )
            made.set_pose(np.float32(lamp.direction * 3), np.float32(-lamp.direction))
            lights.append(made)
        for made in lights:
            scene.add_light(made)
        shown = [self._renderable(thing) for thing in things]
        for made in shown:
            scene.add_renderable(made)
        image = self._draw(scene, eye, size, numbers=numbers)
        # Filament shares material instances between renderables, and drops those that a picture
        # does not use: a renderable that outlived its picture would keep the next from being drawn.
        for made in shown:
            scene.remove_renderable(made)
        for made in lights:
            scene.remove_light(made)
        return image

    def _renderable(self, thing: Thing) -> Any:
        mjrf, look = self._mjrf, thing.look
        made = self._context.create_renderable(mjrf.RenderableParams())
        made.set_mesh(thing.mesh, 0, 0)
        more = {} if look.texture is None else {"color_texture": look.texture}
        made.set_material(
            mjrf.Material(
                color=np.array([*look.rgb, 1.0], np.float32),
                segmentation_id=thing.number,
                roughness=look.roughness,
                metallic=look.metallic,
                **more,
            )
        )
        made.set_pose(np.float32(thing.position), np.float32(thing.rotation).reshape(-1))
        made.set_size(np.ones(3, np.float32))
        return made

    def _draw(self, scene: Any, eye: Eye, size: Size, *, numbers: bool) -> Image:
        mjrf = self._mjrf
        height, width = size
        if size not in self._targets:
            self._targets[size] = self._context.create_render_target(
                mjrf.RenderTargetConfig(
                    width=width, height=height, color_format=mjrf.PixelFormat.PIXEL_FORMAT_RGB8
                )
            )
        top = NEAR * float(np.tan(np.deg2rad(eye.fovy) / 2))
        out = np.zeros((height, width, 3), np.uint8)
        read = mjrf.ReadRequest(target=self._targets[size])
        read.set_buffer(out)
        request = mjrf.RenderRequest()
        request.scene, request.target = scene, self._targets[size]
        request.camera = mjrf.Camera(
            pos=np.float32(eye.position),
            forward=np.float32(-eye.rotation[:, 2]),
            up=np.float32(eye.rotation[:, 1]),
            frustum_bottom=-top,
            frustum_top=top,
            frustum_width=top * width / height,
            frustum_near=NEAR,
            frustum_far=FAR,
        )
        request.viewport.width, request.viewport.height = width, height
        request.reflections = request.haze = False
        if numbers:
            request.draw_mode = mjrf.DrawMode.DRAW_MODE_SEGMENTATION_BY_ID
            request.post_processing = request.shadows = request.skybox = False
        self._context.wait_for_frame(self._context.render([request], [read]))
        self._uploads.clear()
        return out


# -------------------------------------------------------------------------------------------------
# Khronos texture files (KTX 1) with R11F_G11F_B10F cube maps, which Filament reads as they are.

_KTX = b"\xabKTX 11\xbb\r\n\x1a\n"
_R11_G11_B10, _RGB = 0x8C3A, 0x1907  # OpenGL's numbers


def ktx(levels: Sequence[Floats], harmonics: Floats) -> bytes:
    """A cube map of linear RGB levels (6, N, N, 3), each half as wide as the one before.

    harmonics: (9, 3), the light that falls on a surface of each direction (Filament's "sh").
    """
    text = "".join("{:g} {:g} {:g}\n".format(*row) for row in harmonics)
    pair = b"sh\0" + text.encode() + b"\0"
    pairs = struct.pack("<I", len(pair)) + pair + b"\0" * (-len(pair) % 4)
    side = levels[0].shape[1]
    head = (0x04030201, _R11_G11_B10, 1, _RGB, _R11_G11_B10, _R11_G11_B10, side, side, 0, 0, 6)
    out = [_KTX, struct.pack("<13I", *head, len(levels), len(pairs)), pairs]
    for level in levels:
        half = level.clip(0, 6e4).astype(np.float16).view(np.uint16).astype(np.uint32)
        packed = half[..., 0] >> 4 | half[..., 1] >> 4 << 11 | half[..., 2] >> 5 << 22
        out += [struct.pack("<I", packed[0].nbytes), packed.tobytes()]
    return b"".join(out)
