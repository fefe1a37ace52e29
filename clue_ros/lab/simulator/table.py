"""The world `table`: scanned objects on a real-looking table, drawn by Filament or by OpenGL.

A picture is an arrangement of objects (`arrangement`), a table, floor and walls with textures, the
light of a panorama with its brightest lamp, which casts shadows, and a camera of a robot or a
phone. Each arrangement gives a few pictures. A picture is refused if the edge cuts a named object,
or if one is too small or too hidden. Things without a name may be cut or hidden.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.lab.simulator import textures
from clue_ros.lab.simulator.arrangement import Arranger, Piece, Resting, about_z
from clue_ros.lab.simulator.assets import Assets, read_texture
from clue_ros.lab.simulator.classic import ClassicRenderer
from clue_ros.lab.simulator.desk_meshes import arm
from clue_ros.lab.simulator.filament import Eye, FilamentRenderer, Lamp, Look, Thing
from clue_ros.lab.simulator.meshes import Mesh, cuboid, lathe
from clue_ros.lab.simulator.optics import (
    Masks,
    Size,
    bounding_box,
    distort,
    faulty_sensor,
    full_instance_grid,
)
from clue_ros.lab.simulator.panoramas import (
    ImageLight,
    Panorama,
    light_from,
    read_panorama,
    studio,
)
from clue_ros.lab.simulator.scene import Image, Scene, SceneObject
from clue_ros.lab.simulator.spec import WorldSpec, pick
from clue_ros.lab.simulator.textures import Texture

Floats = npt.NDArray[Any]

RENDERERS: dict[str, type[FilamentRenderer] | type[ClassicRenderer]] = {
    "filament": FilamentRenderer, "classic": ClassicRenderer,
}  # fmt: skip
VIEWS = 2  # pictures of an arrangement
CAMERAS = 12  # tries for one picture
CLOSER = (0.45, 0.55, 0.65, 0.75, 0.85)  # shares of the distance that are tried for a close view
LEAST_PIXELS = 70
# Height and width of the pictures as fractions of the world's width, and how often.
SHAPES: tuple[tuple[tuple[float, float], float], ...] = (
    ((0.75, 1.0), 0.45), ((0.5625, 1.0), 0.25), ((0.6667, 1.0), 0.15), ((0.9, 0.9), 0.15),
)  # fmt: skip
ELEVATION, FOVY, DISTANCE = (28.0, 76.0), (36.0, 62.0), (0.34, 0.95)  # degrees, degrees, metres
TOPS = (
    "Wood", "Wood", "Wood", "Wood", "Wood", "Marble", "WoodFloor", "Planks", "Bamboo", "Marble",
    "Granite", "Terrazzo",
    "Plastic", "Concrete", "Cork", "Chipboard", "Porcelain", "Paint", "Plaster", "Travertine",
    "Onyx", "Fabric", "Tiles", "Metal", "Rubber", "Paper",
)  # fmt: skip
CLOTHS = ("Fabric", "Fabric", "Carpet", "Paper", "Cork", "Rubber", "Tatami", "Cardboard")
FLOORS = ("WoodFloor", "WoodFloor", "Tiles", "Carpet", "Concrete", "Planks", "PavingStones",
          "Terrazzo", "Marble", "Rubber")  # fmt: skip
WALLS = ("Plaster", "Paint", "Wallpaper", "Bricks", "WoodSiding", "Tiles", "Concrete", "Fabric",
         "Planks")  # fmt: skip
PROCEDURAL = (
    textures.wood, textures.marble, textures.checks, textures.dots, textures.bands,
    textures.tiles, textures.terrazzo, textures.herringbone,
)  # fmt: skip


@dataclass(frozen=True)
class Surface:
    """A texture as it is laid. picture: uint8 RGB. side: metres of one tile. roughness: 0..1."""

    picture: Texture
    side: float
    roughness: float

    @property
    def albedo(self) -> float:
        """Mean reflectance, linear 0..1."""
        return float(np.mean((self.picture / 255.0) ** 2.2))


@lru_cache(maxsize=24)
def _panorama(path: Path | None, number: int) -> Panorama:
    return studio(number) if path is None else light_from(read_panorama(path))


class TableWorld:
    """Draws random scenes of a world; the same seed and renderer give the same scenes.

    width: pixels of the longest side; None is the world's own. renderer: a key of RENDERERS. Raises
    RuntimeError with the packages to install when it cannot be used.
    """

    def __init__(
        self, spec: WorldSpec, seed: int, width: int | None = None, renderer: str = "filament"
    ) -> None:
        self.spec = spec
        self.rng = np.random.default_rng(seed)
        self.width = spec.width if width is None else width
        self._renderer = RENDERERS[renderer]()
        assets = (spec.assets or Assets()).half(unseen=spec.unseen)
        self._assets = assets
        self._arranger = Arranger(spec, assets, self.rng)
        self._textures: dict[str, list[tuple[Path, int]]] = {}
        for name, path, number in assets.textures:
            self._textures.setdefault(name, []).append((path, number))
        self._views = 0
        self._resting: list[Resting] = []
        self._meshes: dict[str, tuple[Any, Any]] = {}  # of scanned pieces: mesh and texture
        self._lights: dict[tuple[Path | None, int], ImageLight] = {}

    def scene(self) -> Scene:
        """The next random scene."""
        while True:
            if self._views == 0:
                self._resting = self._arranger.arrange()
                self._views = VIEWS if sum(bool(r.model.kind) for r in self._resting) > 1 else 0
                if self._views == 0:
                    continue
            self._views -= 1
            scene = self._view()
            if scene is not None:
                return scene

    def close(self) -> None:
        """Free the renderer."""
        self._meshes.clear()
        self._lights.clear()
        self._renderer.close()

    # --- a picture

    def _view(self) -> Scene | None:
        """One picture of the arrangement; None when it is refused."""
        rng = self.rng
        resting = self._arranger.repainted(self._resting)
        named = [r for r in resting if r.model.kind]
        number = int(rng.choice(len(SHAPES), p=[share for _, share in SHAPES]))
        (high, wide), _ = SHAPES[number]
        if self.spec.portrait and rng.uniform() < self.spec.portrait:
            high, wide = wide, high
        size = (round(high * self.width), round(wide * self.width))
        eye = self._aim(named, size)
        if eye is None:
            return None
        if self.spec.close and rng.uniform() < self.spec.close:
            eye = self._closer(eye, named, size)
        things = self._objects(resting, named)
        if self.spec.arms and rng.uniform() < self.spec.arms:
            things += self._arm(named, eye)
        top = self._table(eye)
        surroundings = self._surroundings(eye)
        everything = [*things, *top[0], *surroundings]
        light, sky, lamp = self._light()
        masks = self._renderer.numbers(everything, light, eye, size)
        shares = [visible_share(masks, k, r, eye) for k, r in enumerate(named, 1)]
        if min(shares) < self.spec.min_visible:
            return None
        albedo = 0.35 * 0.2 + 0.65 * top[1]
        gain = float(rng.uniform(0.17, 0.3) / max(albedo, 0.03) ** 0.75 * 0.95)
        mix = float(rng.uniform(0.08, 0.55))
        lamps = [replace(lamp, rgb=lamp.rgb * mix)]
        image = self._renderer.picture(
            everything, light, gain * (1 - 0.6 * mix), lamps, gain, eye, size
        )
        image = exposed(image, sky, rng)
        image, masks = distort(image, masks, rng.uniform(-0.06, 0.04))
        objects = self._truth(masks, named, shares)
        if objects is None:
            return None
        instances = full_instance_grid(masks, len(objects))
        return Scene(jpeg(faulty_sensor(image, rng), rng), objects, instances, masks)

    def _aim(self, named: list[Resting], size: Size) -> Eye | None:
        """Draw cameras until one sees every named object whole; None when none of CAMERAS does."""
        rng = self.rng
        points = [r.resting_points for r in named]
        middle = _middle(points)
        for _ in range(CAMERAS):
            elevation = np.deg2rad(rng.uniform(*ELEVATION))
            azimuth, fovy = rng.uniform(0, 2 * np.pi), rng.uniform(*FOVY)
            distance = float(np.exp(rng.uniform(*np.log(DISTANCE))))
            target = middle + np.array([*rng.normal(0, 0.035 + 0.04 * distance, 2), 0.0])
            away = np.array(
                [
                    np.cos(elevation) * np.cos(azimuth),
                    np.cos(elevation) * np.sin(azimuth),
                    np.sin(elevation),
                ]
            )
            right = np.array([-np.sin(azimuth), np.cos(azimuth), 0.0])
            up = np.cross(away, right)
            roll = np.deg2rad(rng.normal(0, 2.0))
            x = np.cos(roll) * right + np.sin(roll) * up
            y = -np.sin(roll) * right + np.cos(roll) * up
            if size[0] > size[1]:  # the same lens, turned
                half = np.tan(np.deg2rad(fovy) / 2) * size[0] / size[1]
                fovy = float(np.rad2deg(2 * np.arctan(half)))
            eye = Eye(target + distance * away, np.stack([x, y, away], axis=1), fovy)
            if self._shows(eye, points, size):
                return eye
        return None

    def _closer(self, eye: Eye, named: list[Resting], size: Size) -> Eye:
        """The camera moved toward the objects, as near as it still sees each of them whole."""
        points = [r.resting_points for r in named]
        middle = _middle(points)
        offset = eye.rotation[:, 2] * np.linalg.norm(eye.position - middle)
        for share in CLOSER:
            nearer = replace(eye, position=middle + share * offset)
            if self._shows(nearer, points, size):
                return nearer
        return eye

    def _shows(self, eye: Eye, points: list[Floats], size: Size) -> bool:
        """Whether every object, given by its points in the world, is whole and large enough."""
        boxes = [eye.project(p, size) / size[::-1] for p in points]
        low, high = np.min([b.min(0) for b in boxes]), np.max([b.max(0) for b in boxes])
        least = min(float(np.ptp(b, axis=0).max()) for b in boxes)
        return bool(low > 0.012 and high < 0.988 and least > 1.1 * self.spec.min_side)

    # --- things

    def _piece(self, piece: Piece, *, keep: bool) -> tuple[Any, Any]:
        """Mesh and texture of a piece on the renderer. keep: for the next pictures too."""
        if piece.key not in self._meshes:
            made = self._renderer.mesh(piece.vertices, piece.faces, piece.uv, piece.normals)
            texture = None if piece.texture is None else self._renderer.texture(piece.texture)
            if not keep:
                return made, texture
            self._meshes[piece.key] = made, texture
        return self._meshes[piece.key]

    def _objects(self, resting: list[Resting], named: list[Resting]) -> list[Thing]:
        """Return the things on the table. Named objects have their number, others 255."""
        numbers = {id(r): k for k, r in enumerate(named, 1)}
        out = []
        for r in resting:
            for piece in r.model.pieces:
                mesh, texture = self._piece(piece, keep=not r.model.generated)
                look = Look(piece.color or r.rgb, texture, piece.roughness, piece.metallic)
                out.append(Thing(mesh, look, r.position, r.rotation, numbers.get(id(r), UNNAMED)))
        return out

    def _arm(self, named: list[Resting], eye: Eye) -> list[Thing]:
        """An arm that reaches over a named object; nothing where it would touch the camera."""
        rng, made = self.rng, arm(self.rng)
        r = pick(rng, named)
        points = r.resting_points
        tip = _middle([points])
        tip[:2] += rng.normal(0, 0.04, 2)
        tip[2] = points[:, 2].max() + rng.uniform(0.01, 0.05)
        turn, rise = rng.uniform(0, 2 * np.pi), rng.uniform(0.05, 0.35)
        c, s = np.cos(rise), np.sin(rise)
        rotation = about_z(turn) @ np.array([[c, 0, -s], [0, 1.0, 0], [s, 0, c]])
        at = made.points @ rotation.T + tip
        if np.linalg.norm(at - eye.position, axis=1).min() < 0.2:
            return []
        out = []
        for part in made.parts:
            mesh = self._renderer.mesh(part.mesh.vertices, part.mesh.faces)
            look = Look(part.accent or (1.0, 1.0, 1.0), None, 0.8)
            out.append(Thing(mesh, look, tip, rotation, UNNAMED))
        return out

    def _laid(self, classes: tuple[str, ...], plain: float) -> Surface:
        """A surface of one of these classes of textures, or in one colour (share `plain`)."""
        rng = self.rng
        known = [c for c in classes if c in self._textures]
        way = rng.uniform()
        if way < plain:
            base = rng.uniform(0.06, 0.97) ** 0.9
            tint = (
                1
                + rng.uniform(-0.08, 0.08, 3)
                + (rng.uniform(-0.25, 0.25, 3) * (way < 0.2 * plain))
            )
            color = (255 * (base * tint).clip(0.02, 1)).astype(np.float32)
            grain = rng.normal(0, rng.uniform(0.5, 5), (128, 128, 1)).astype(np.float32)
            picture = (color + cv2.GaussianBlur(grain, (0, 0), 1.2)[..., None]).clip(0, 255)
            return Surface(picture.astype(np.uint8), 0.4, float(rng.uniform(0.25, 0.9)))
        if not known or way > 0.88:
            make = pick(rng, PROCEDURAL[-2:] if self.spec.unseen else PROCEDURAL[:-2])
            picture = _faded(make(rng), rng.uniform(0, 0.6))
            return Surface(picture, float(rng.uniform(0.35, 1.0)), float(rng.uniform(0.3, 0.9)))
        path, number = pick(rng, self._textures[pick(rng, known)])
        tile = read_texture(path, number)
        tile = _faded(np.rot90(tile, int(rng.integers(0, 2))), rng.uniform(0, 0.6))
        # Cubic interpolation blurs: a little noise of one pixel stands for what is lost.
        picture = cv2.resize(tile, (512, 512), interpolation=cv2.INTER_CUBIC).astype(np.float32)
        spread = float(tile.std()) * rng.uniform(0.05, 0.2)
        fine = rng.normal(0, spread, (512, 512, 1)).astype(np.float32)
        picture = (picture * rng.uniform(0.85, 1.12) + fine).clip(0, 255).astype(np.uint8)
        return Surface(picture, float(rng.uniform(0.3, 0.8)), float(rng.uniform(0.3, 0.9)))

    def _slab(
        self, mesh: Mesh, surface: Surface, position: Floats, turn: float, flat: bool = True
    ) -> Thing:
        """A mesh covered by a surface. flat: seen from above, else from the side."""
        across = mesh.vertices[:, [0, 1]] if flat else mesh.vertices[:, [0, 2]]
        made = self._renderer.mesh(mesh.vertices, mesh.faces, across / surface.side)
        look = Look((1.0, 1.0, 1.0), self._renderer.texture(surface.picture), surface.roughness)
        c, s = np.cos(turn), np.sin(turn)
        return Thing(made, look, position, np.array([[c, -s, 0], [s, c, 0], [0, 0, 1.0]]))

    def _table(self, eye: Eye) -> tuple[list[Thing], float]:
        """A table with its covering, and the reflectance of the larger visible surface."""
        rng = self.rng
        surface = self._laid(TOPS, 0.28)
        turn = rng.uniform(0, 2 * np.pi)
        thick = rng.uniform(0.012, 0.05)
        if rng.uniform() < 0.15:
            radius = rng.uniform(0.42, 0.7)
            mesh = lathe([(0, -thick), (radius, -thick), (radius, 0), (0, 0)], 48)
            reach = (radius, radius)
        else:
            reach = (rng.uniform(0.4, 1.1), rng.uniform(0.36, 0.7))
            mesh = cuboid(2 * reach[0], 2 * reach[1], thick)
            mesh = Mesh(mesh.vertices - [0, 0, mesh.vertices[:, 2].max()], mesh.faces)
        away = np.array([*((np.array(reach) - 0.36).clip(0) * rng.uniform(-1, 1, 2)), 0.0])
        out = [self._slab(mesh, surface, _turned(away, turn), turn)]
        albedo = surface.albedo
        if rng.uniform() < 0.2:  # a cloth or a mat
            cloth = self._laid(CLOTHS, 0.3)
            half = rng.uniform(0.16, 0.42, 2)
            mesh = cuboid(2 * half[0], 2 * half[1], 0.0012)
            mesh = Mesh(mesh.vertices - [0, 0, mesh.vertices[:, 2].max() - 0.0006], mesh.faces)
            at = np.array([*rng.normal(0, 0.05, 2), 0.0])
            out.append(self._slab(mesh, cloth, at, turn + rng.normal(0, 0.4)))
            albedo = 0.5 * albedo + 0.5 * cloth.albedo
        for k in range(int(rng.integers(0, 3)) if rng.uniform() < 0.3 else 0):  # sheets of paper
            mesh = cuboid(0.21, 0.297, 0.0003 * (k + 1))
            mesh = Mesh(mesh.vertices - [0, 0, mesh.vertices[:, 2].min()], mesh.faces)
            paper = Surface(_print(rng), 0.3, 0.85)
            at = np.array([*rng.uniform(-0.4, 0.4, 2), 0.0008])
            out.append(self._slab(mesh, paper, at, rng.uniform(0, 6.28)))
        return out, albedo

    def _surroundings(self, eye: Eye) -> list[Thing]:
        """Floor, walls, and things that stand about behind the table; often none of them."""
        rng = self.rng
        out = []
        floor = -float(rng.uniform(0.45, 0.95))
        if rng.uniform() < 0.65:
            mesh = cuboid(9, 9, 0.02)
            laid = self._laid(FLOORS, 0.2)
            laid = replace(laid, side=laid.side * float(rng.uniform(1.5, 3)))
            at = np.array([0, 0, floor - 0.02 - mesh.vertices[:, 2].min()])
            out.append(self._slab(mesh, laid, at, rng.uniform(0, 6.28)))
        ahead = np.arctan2(-eye.rotation[1, 2], -eye.rotation[0, 2])
        if rng.uniform() < 0.5:
            for side in (0, 1)[: int(rng.integers(1, 3))]:
                way = ahead + rng.normal(0, 0.35) + side * np.pi / 2
                away = rng.uniform(0.7, 2.4)
                mesh = cuboid(7, 0.06, 4)
                laid = self._laid(WALLS, 0.45)
                laid = replace(laid, side=laid.side * float(rng.uniform(1.5, 3)))
                at = np.array([away * np.cos(way), away * np.sin(way), floor - 0.01])
                out.append(self._slab(mesh, laid, at, way + np.pi / 2, flat=False))
        for _ in range(int(rng.integers(1, 5)) if rng.uniform() < 0.5 else 0):
            way, away = ahead + rng.normal(0, 0.6), rng.uniform(0.6, 1.6)
            x, y, z = rng.uniform(0.1, 0.6, 3)
            laid = self._laid((*WALLS, "Cardboard", "Plastic", "Fabric"), 0.5)
            base = floor if away > 1.0 else rng.uniform(floor, -0.1)
            at = np.array([away * np.cos(way), away * np.sin(way), base])
            out.append(self._slab(cuboid(x, y, z), laid, at, rng.uniform(0, 6.28), flat=False))
        return out

    def _light(self) -> tuple[ImageLight, Panorama, Lamp]:
        """The light of a panorama, and the lamp whose light equals it on a table."""
        rng = self.rng
        paths: list[Path | None] = list(self._assets.panoramas) or [None]
        path = pick(rng, paths)
        number = 0 if path is not None else int(rng.integers(8)) + 8 * self.spec.unseen
        key = (path, number)
        sky = _panorama(path, number)
        if key not in self._lights:
            cube = self._renderer.cube
            self._lights[key] = ImageLight(
                cube([sky.sky], sky.harmonics), cube(sky.levels, sky.harmonics)
            )
        toward = sky.lamp + rng.normal(0, 0.12, 3)
        toward[2] = max(toward[2], 0.3)
        toward /= np.linalg.norm(toward)
        rgb = sky.lamp_rgb / toward[2]
        return self._lights[key], sky, Lamp(toward, rgb, float(rng.uniform(0.05, 0.5)))

    # --- ground truth

    def _truth(
        self, masks: Masks, named: list[Resting], shares: list[float]
    ) -> tuple[SceneObject, ...] | None:
        """The ground truth of a picture; None when an object is cut by its edge or too small."""
        masks[masks == UNNAMED] = 0
        out = []
        for k, r in enumerate(named, 1):
            mask = masks == k
            box = bounding_box(mask)
            if box is None or np.count_nonzero(mask) < LEAST_PIXELS:
                return None
            if max(box[2] - box[0], box[3] - box[1]) < self.spec.min_side:
                return None
            m = r.model
            out.append(
                SceneObject(
                    m.kind,
                    r.color,
                    box,
                    round(m.extent, 4),
                    round(shares[k - 1], 3),
                    m.names,
                    m.colors,
                    m.material,
                    m.parts,
                )
            )
        return tuple(out)


UNNAMED = 255  # in masks: a thing without a name


def visible_share(masks: Masks, number: int, r: Resting, eye: Eye) -> float:
    """Fraction of the object, as the camera sees it, that no other one hides, 0..1."""
    points, normal = (p @ r.rotation.T for p in r.model.probes)
    points = points + r.position
    toward = eye.position - points
    toward /= np.linalg.norm(toward, axis=1, keepdims=True)
    facing = np.einsum("ij,ij->i", normal, toward).clip(0)
    height, width = masks.shape
    x, y = eye.project(points, (height, width)).T
    inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
    seen = masks[y.clip(0, height - 1).astype(int), x.clip(0, width - 1).astype(int)]
    own = facing[inside & (seen == number)].sum()
    hidden = facing[~inside | ((seen != number) & (seen != 0))].sum()
    return float(own / max(own + hidden, 1e-9))


def exposed(image: Image, sky: Panorama, rng: np.random.Generator) -> Image:
    """A picture as a camera's automatic exposure and white balance leave it, not quite right."""
    linear = (image.astype(np.float32) / 255.0) ** 2.2
    color = np.maximum(sky.color, 0.05)
    linear *= (color.mean() / color) ** float(rng.uniform(0.6, 1.0))
    mean = float(linear.mean())
    wanted = float(np.exp(rng.normal(np.log(0.25), 0.33)))
    most = 1.25 / max(float(np.percentile(linear, 98.5)), 1e-3)  # little of it may be white
    linear *= np.clip(min(wanted / max(mean, 1e-3), most), 0.4, 3.0)
    gray = linear.mean(axis=2, keepdims=True)
    linear = (gray + (linear - gray) * float(rng.uniform(0.65, 1.05))).clip(0)
    # A soft shoulder instead of a hard edge to white.
    over = linear > 0.8
    linear[over] = 0.8 + 0.2 * (1 - np.exp(-(linear[over] - 0.8) / 0.2))
    contrast = float(rng.uniform(0.9, 1.18))
    out = 255 * linear ** (1 / 2.2)
    return np.asarray((128 + (out - 128) * contrast).clip(0, 255), np.uint8)


def jpeg(image: Image, rng: np.random.Generator) -> Image:
    """The picture as a camera or a network stream compresses it, half of the time."""
    if rng.uniform() < 0.5:
        return image
    quality = int(rng.integers(45, 96))
    _, data = cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
    decoded = np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR), np.uint8)
    return np.ascontiguousarray(decoded[..., ::-1])


def _faded(picture: Texture, share: float) -> Texture:
    """A picture with a share of its colour gone."""
    gray = picture.mean(axis=2, keepdims=True)
    return np.asarray(picture + (gray - picture) * share, np.uint8)


def _middle(points: list[Floats]) -> Floats:
    """The middle of the box around all points, (3,)."""
    everything = np.concatenate(points)
    return np.asarray((everything.min(axis=0) + everything.max(axis=0)) / 2)


def _turned(at: Floats, turn: float) -> Floats:
    c, s = np.cos(turn), np.sin(turn)
    return np.array([c * at[0] - s * at[1], s * at[0] + c * at[1], at[2]])


def _print(rng: np.random.Generator) -> Texture:
    """A sheet of paper with lines of print."""
    page = np.full((128, 96, 3), rng.uniform(215, 250), np.float32)
    for row in range(12, 118, int(rng.integers(4, 9))):
        if rng.uniform() < 0.8:
            page[row : row + 2, 10 : int(rng.integers(40, 88))] *= rng.uniform(0.3, 0.8)
    return page.clip(0, 255).astype(np.uint8)
