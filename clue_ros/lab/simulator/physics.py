"""Draws worlds whose objects fall onto the table: clutter, leaning, one thing on another.

A table is laid (`pantry`), physics lets it come to rest, and a few pictures are taken of it, each
in other colours and light, on another covering, from elsewhere. An object that another hides too
much, that is cut by the edge or too small refuses the picture, so that all that is named is seen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt

from clue_ros.lab.simulator.meshes import lathe
from clue_ros.lab.simulator.objects import HIDDEN, Dropped, Pantry, mesh_xml, numbers
from clue_ros.lab.simulator.render import (
    INSTANCE_GRID,
    TabletopWorld,
    bent,
    faulty,
    pixels_of,
    silhouette,
    visible_share,
)
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.simulator.spec import Settling, WorldSpec

STEP = 0.004  # seconds
LONGEST = 450  # steps
CHECK = 25  # steps between two looks at the speed
AT_REST = 0.03  # metres and radians a second
RESTLESS = 0.5  # what is faster than this in the end lies nowhere
REACH = 0.31  # metres from the middle; what rolled further is put away
TALLEST = 0.12  # metres, of what something may lie on
CAMERAS = 24  # tries for one picture
UNNAMED = 255  # in masks: a thing without a name
SHEETS, PEBBLES = 3, 5
LEAST_PIXELS = 60
OCTAGON = 0.62  # metres from the middle to a corner


def settled_xml(spec: WorldSpec, size: tuple[int, int], assets: str, bodies: str) -> str:
    """The MuJoCo model; see `world._model_xml`. Objects touch the table and each other."""
    side, surfaces = spec.surfaces.size, spec.surfaces
    count = surfaces.count * 2
    coverings = "".join(
        f'<texture name="t{i}" type="2d" builtin="flat" width="{side}" height="{side}"/>'
        f'<material name="m{i}" texture="t{i}" reflectance="0"'
        f' texrepeat="{" ".join([str(surfaces.repeat if i >= surfaces.count else 1)] * 2)}"/>'
        for i in range(count)
    )
    top = lathe([(0, -0.04), (OCTAGON, -0.04), (OCTAGON, 0), (0, 0)], 8)
    across = numbers(top.vertices[:, :2] / (2 * OCTAGON) + 0.5)  # as a covering lies on a box
    eight = mesh_xml("octagon", top, f' texcoord="{across}"')
    plain = 'contype="0" conaffinity="0"'
    # A place of its own, or MuJoCo takes its body's for good.
    aside = f'pos="0 0 -9" quat=".8 .1 .2 .3" {plain}'
    rims = "".join(f'<geom name="rim{i}" type="box" size=".1 .1 .1" {aside}/>' for i in range(4))
    sheets = "".join(
        f'<geom name="x{i}" type="box" size=".1 .1 .1" {aside}/>' for i in range(SHEETS)
    )
    pebbles = "".join(
        f'<geom name="x{SHEETS + i}" type="ellipsoid" size=".01 .01 .01" {aside}/>'
        for i in range(PEBBLES)
    )
    return (
        f'<mujoco><option timestep="{STEP}"/><size memory="64M"/>'
        f'<visual><quality shadowsize="{spec.light.shadows}" offsamples="4"/>'
        f'<global offwidth="{size[1]}" offheight="{size[0]}"/><headlight active="0"/></visual>'
        '<asset><texture name="sky" type="skybox" builtin="gradient" rgb1=".55 .56 .58"'
        ' rgb2=".25 .25 .26" width="64" height="64"/>'
        f"{coverings}{eight}{assets}</asset><worldbody>"
        '<light name="key" pos="0 0 2" dir="0 0 -1" diffuse=".6 .6 .6"'
        f' exponent="{spec.light.exponent}"/>'
        '<light name="fill" pos="1 1 2" dir="-1 -1 -2" diffuse=".2 .2 .2" castshadow="false"/>'
        '<camera name="eye" pos="0 0 1"/>'
        f'<geom name="floor" type="plane" pos="0 0 -.5" size="6 6 .1" material="m0" {plain}/>'
        f'<geom name="wall" type="box" size="3 .05 3" {aside}/>'
        '<geom name="table" type="box" pos="0 0 -.02" size=".6 .5 .02" material="m0"'
        ' condim="6" friction="0.9 0.02 0.01"/>'
        f'<geom name="eight" type="mesh" mesh="octagon" material="m0" group="{HIDDEN}" {plain}/>'
        f'{rims}<body name="unnamed">{sheets}{pebbles}</body>{bodies}</worldbody></mujoco>'
    )


class SettledWorld(TabletopWorld):
    """Draws random settled scenes; the same seed gives the same scenes on the same machine."""

    _stock: Pantry

    def __init__(self, seed: int, width: int | None = None, *, spec: WorldSpec) -> None:
        super().__init__(seed, width=width, spec=spec)
        assert spec.settling is not None
        self._how: Settling = spec.settling
        self._views = 0
        self._lying: list[Dropped] = []

    def _picture_sizes(self) -> list[tuple[int, int]]:
        return [max(self._sizes, key=lambda size: size[1])]

    def _xml(self, largest: tuple[int, int], assets: str, bodies: str) -> str:
        return settled_xml(self.spec, largest, assets, bodies)

    def _rebuild(self) -> None:
        super()._rebuild()
        self._views = 0
        for name, texture in self._stock.skins(self._rng).items():
            start = int(self._model.tex_adr[self._model.texture(name).id])
            self._model.tex_data[start : start + texture.size] = texture.reshape(-1)

    def _try_scene(self) -> Scene | None:
        if self._views == 0:
            self._lying = self._settle(self._stock.lay(self._rng))
            self._views = self._how.views
        self._views -= 1
        kinds = [o.kind for o in self._lying]
        if len(set(kinds)) == len(kinds):  # what made look-alikes rolled away
            self._views = 0
            return None
        return self._view()

    # --- physics

    def _settle(self, dropped: list[Dropped]) -> list[Dropped]:
        """Let go, wait until they rest; those that stayed on the table's middle."""
        import mujoco

        model, data = self._model, self._data
        self._touch(dropped)
        self._form(0, 0.6, 0.6)
        mujoco.mj_resetData(model, data)
        for o in dropped:
            at = int(model.jnt_qposadr[model.body(o.body).jntadr[0]])
            data.qpos[at : at + 7] = (*o.position, *o.quaternion)
        speeds = np.concatenate([np.arange(6) + int(model.body(o.body).dofadr[0]) for o in dropped])
        for step in range(1, LONGEST + 1):
            mujoco.mj_step(model, data)
            if step % CHECK == 0 and np.abs(data.qvel[speeds]).max() < AT_REST:
                break
        if np.abs(data.qvel[speeds]).max() > RESTLESS:
            return []
        kept = [o for o in dropped if self._on_table(o)]
        self._touch(kept)
        data.qvel[:] = 0
        return kept

    def _on_table(self, o: Dropped) -> bool:
        """Whether it neither fell nor rolled away, nor stands on top of a tower."""
        low = float(self._points(o)[:, 2].min())
        return -0.02 < low < TALLEST and bool(np.hypot(*self._data.body(o.body).xpos[:2]) < REACH)

    def _touch(self, dropped: list[Dropped]) -> None:
        """These bodies are seen and touch; no other does."""
        model = self._model
        names = {o.body for o in dropped}
        for name in self._stock.bodies:
            body = model.body(name)
            first, count = int(body.geomadr[0]), int(body.geomnum[0])
            on = int(name in names)
            model.geom_contype[first] = model.geom_conaffinity[first] = on
            model.body_contype[body.id] = model.body_conaffinity[body.id] = on
            model.geom_group[first + 1 : first + count] = 0 if on else HIDDEN

    # --- a picture

    def _view(self) -> Scene | None:
        import mujoco

        rng, model, data = self._rng, self._model, self._data
        shown = self._colored()
        self._light()
        self._surfaces()
        # One renderer for all shapes, cropped: each costs seconds to make.
        renderer = self._renderers[0]
        size = self._sizes[0 if rng.uniform() < 0.5 else -1]
        if not self._aim(shown, size):
            return None
        self._clutter(shown)
        mujoco.mj_forward(model, data)
        renderer.enable_segmentation_rendering()
        masks = cropped(self._numbers(renderer, shown), size)
        shares = [visible_share(masks, k + 1, self._alone(o, size)) for k, o in enumerate(shown)]
        if min(shares) < (self.spec.min_visible or 0.0):
            return None
        renderer.disable_segmentation_rendering()
        renderer.update_scene(data, "eye")
        renderer.scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = int(rng.uniform() < 0.85)
        image = cropped(renderer.render(), size)
        image, masks = bent(image, masks, rng.uniform(*self._how.lens))
        masks = np.where(masks == UNNAMED, 0, masks).astype(np.uint8)
        objects = self._objects(masks, shown, shares)
        if objects is None:
            return None
        return Scene(faulty(image, rng), objects, small_masks(masks, len(objects)), masks)

    def _colored(self) -> list[Dropped]:
        """The objects in new colours."""
        rng, model = self._rng, self._model
        palette = self._stock.palette(rng)
        out = []
        for o in self._lying:
            color = self._stock.color(o.kind, palette, rng)
            rgb = self._stock.rgb(color, rng)
            out.append(replace(o, color=color, rgb=rgb))
            first = int(model.body(o.body).geomadr[0]) + 1
            for k, part in enumerate(self._stock.bodies[o.body].made.parts):
                if part.accent is None:
                    model.geom_rgba[first + k] = (*rgb, 1)
        return out

    def _points(self, o: Dropped) -> npt.NDArray[np.float64]:
        """An object's vertices in the world, (n, 3) metres."""
        body = self._data.body(o.body)
        return np.asarray(self._stock.bodies[o.body].points @ body.xmat.reshape(3, 3).T + body.xpos)

    def _aim(self, shown: list[Dropped], size: tuple[int, int]) -> bool:
        """Find a camera that has every object in its picture; before anything is drawn."""
        import mujoco

        model, data = self._model, self._data
        points = [self._points(o) for o in shown]
        edge = np.array([size[1], size[0]])
        for _ in range(CAMERAS):
            self._camera(set())
            mujoco.mj_camlight(model, data)
            boxes = [pixels_of(model, data, p, size) / edge for p in points]
            low, high = np.min([b.min(0) for b in boxes]), np.max([b.max(0) for b in boxes])
            least = min(float(np.ptp(b, axis=0).max()) for b in boxes)
            if low > 0.015 and high < 0.985 and least > 1.1 * self.spec.min_side:
                return True
        return False

    def _form(self, kind: int, x: float, y: float) -> None:
        """The table's form: the number of its kind and half sides, metres."""
        import mujoco

        model = self._model
        table = model.geom("table").id
        round_top = self.spec.tables[kind].kind == "cylinder"
        types = mujoco.mjtGeom
        model.geom_type[table] = types.mjGEOM_CYLINDER if round_top else types.mjGEOM_BOX
        model.geom_size[table] = (x, 0.02, 0) if round_top else (x, y, 0.02)
        model.geom_rbound[table] = x + y

    def _surfaces(self) -> None:
        """Table, covering, floor, wall and rim."""
        rng, model = self._rng, self._model
        super()._surfaces()
        table = model.geom("table").id
        round_top = int(model.geom_type[table]) == 5  # mjGEOM_CYLINDER
        model.geom_group[table] = HIDDEN if self._how.octagon else 0
        eight = model.geom("eight").id
        model.geom_group[eight] = 0 if self._how.octagon else HIDDEN
        model.geom_matid[eight] = model.geom_matid[table]
        rimmed = not round_top and not self._how.octagon and rng.uniform() < self._how.rims
        x, y = float(model.geom_size[table][0]), float(model.geom_size[table][1])
        tall, tone = rng.uniform(0.006, 0.02), rng.uniform(0.1, 0.7)
        for i, (sx, sy) in enumerate(((1, 0), (-1, 0), (0, 1), (0, -1))):
            rim = model.geom(f"rim{i}").id
            model.geom_group[rim] = 0 if rimmed else HIDDEN
            model.geom_pos[rim] = (sx * x, sy * y, 0)
            model.geom_quat[rim] = (1, 0, 0, 0)
            model.geom_size[rim] = (0.012 if sx else x, 0.012 if sy else y, tall)
            model.geom_rbound[rim] = x + y
            model.geom_rgba[rim] = (tone, 0.9 * tone, 0.8 * tone, 1)
        wall = model.geom("wall").id
        away, turn = rng.uniform(1.3, 2.5), rng.uniform(0, 2 * np.pi)
        model.geom_pos[wall] = (away * np.cos(turn), away * np.sin(turn), 0)
        half = (turn + np.pi / 2) / 2
        model.geom_quat[wall] = (np.cos(half), 0, 0, np.sin(half))
        model.geom_rgba[wall] = (*(rng.uniform(0.25, 0.9) * (1 + rng.uniform(-0.1, 0.1, 3))), 1)

    def _clutter(self, shown: list[Dropped]) -> None:
        """Things without a name: sheets of paper under the objects, pebbles beside them."""
        rng, model = self._rng, self._model
        count = int(rng.integers(0, self._how.distractors + 1))
        sheets = min(SHEETS, int(rng.integers(0, count + 1)))
        for i in range(SHEETS + PEBBLES):
            geom = model.geom(f"x{i}").id
            is_sheet = i < SHEETS
            wanted = i < sheets if is_sheet else i - SHEETS < count - sheets
            distance, angle = 0.36 * np.sqrt(rng.uniform()), rng.uniform(0, 2 * np.pi)
            x, y = distance * np.cos(angle), distance * np.sin(angle)
            yaw = rng.uniform(0, np.pi)
            gray = rng.uniform(0.15, 0.95) * (1 + rng.uniform(-0.08, 0.08, 3))
            if is_sheet:
                half = (rng.uniform(0.02, 0.09), rng.uniform(0.02, 0.07), 0.0004 + 0.0003 * i)
            else:
                half = tuple(rng.uniform(0.003, 0.008, 3))
                gray = 0.6 * gray
                near = min(np.hypot(*(self._data.body(o.body).xpos[:2] - (x, y))) for o in shown)
                wanted = wanted and near > 0.1
            model.geom_group[geom] = 0 if wanted else HIDDEN
            model.geom_pos[geom] = (x, y, half[2])
            model.geom_size[geom] = half
            model.geom_quat[geom] = (np.cos(yaw / 2), 0, 0, np.sin(yaw / 2))
            model.geom_rgba[geom] = (*gray.clip(0, 1), 1)
            model.geom_rbound[geom] = max(half) * 2

    # --- truth

    def _numbers(self, renderer: Any, shown: list[Dropped]) -> npt.NDArray[np.uint8]:
        """Which object each pixel shows, uint8 (H, W): 0 none, k is shown[k - 1], or UNNAMED."""
        renderer.update_scene(self._data, "eye")
        ids = renderer.render()[..., 0]
        bodies = np.where(ids < 0, 0, self._model.geom_bodyid[ids])
        numbers = np.zeros(self._model.nbody, dtype=np.uint8)
        numbers[self._model.body("unnamed").id] = UNNAMED
        for k, o in enumerate(shown):
            numbers[self._model.body(o.body).id] = k + 1
        return np.asarray(numbers[bodies], dtype=np.uint8)

    def _alone(self, o: Dropped, size: tuple[int, int]) -> npt.NDArray[np.bool_]:
        """The pixels that an object would cover if it were alone."""
        corners = pixels_of(self._model, self._data, self._points(o), size)
        out = np.zeros(size, dtype=bool)
        first = 0
        for part in self._stock.bodies[o.body].made.parts:
            count = len(part.mesh.vertices)
            out |= silhouette(corners[first : first + count], part.mesh.faces, size)
            first += count
        return out

    def _objects(
        self, masks: npt.NDArray[np.uint8], shown: list[Dropped], shares: list[float]
    ) -> tuple[SceneObject, ...] | None:
        """The truth of a picture; None where something is cut by its edge or too small."""
        height, width = masks.shape
        out = []
        for k, o in enumerate(shown):
            ys, xs = np.nonzero(masks == k + 1)
            if len(xs) < LEAST_PIXELS:
                return None
            box = (
                float(xs.min() / width),
                float(ys.min() / height),
                float((xs.max() + 1) / width),
                float((ys.max() + 1) / height),
            )
            sides = box[2] - box[0], box[3] - box[1]
            if min(box) <= 0 or max(box) >= 1 or max(sides) < self.spec.min_side:
                return None
            extent = round(self._stock.bodies[o.body].extent, 4)
            out.append(SceneObject(o.kind, o.color, box, extent, round(shares[k], 3)))
        return tuple(out)


def open_world(spec: WorldSpec, seed: int, width: int | None = None) -> TabletopWorld:
    """Whatever draws that world; close it in the end. width: pixels of its widest picture."""
    if spec.settling is not None:
        return SettledWorld(seed, width, spec=spec)
    return TabletopWorld(seed, width=width, spec=spec)


def cropped(picture: npt.NDArray[np.uint8], size: tuple[int, int]) -> npt.NDArray[np.uint8]:
    """The middle (height, width) of a picture of that height."""
    left = (picture.shape[1] - size[1]) // 2
    return np.ascontiguousarray(picture[:, left : left + size[1]])


def small_masks(masks: npt.NDArray[np.uint8], count: int) -> npt.NDArray[np.uint8]:
    """Masks on the instance grid; a thin object that falls between its cells gets one."""
    side = (INSTANCE_GRID, INSTANCE_GRID)
    out = np.asarray(cv2.resize(masks, side, interpolation=cv2.INTER_NEAREST), dtype=np.uint8)
    for k in range(1, count + 1):
        if not np.any(out == k):
            ys, xs = np.nonzero(masks == k)
            middle = np.argmin((ys - ys.mean()) ** 2 + (xs - xs.mean()) ** 2)
            height, width = masks.shape
            at = ys[middle] * INSTANCE_GRID // height, xs[middle] * INSTANCE_GRID // width
            out[at] = k
    return out
