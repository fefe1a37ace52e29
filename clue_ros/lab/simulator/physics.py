"""Worlds whose objects fall onto the table: clutter, leaning objects, one on top of another.

Objects are dropped and come to rest. Each arrangement gives a few pictures, each in new colours and
light, on another covering, from another side. A picture is refused when an object in it is too
hidden, too small or cut by the edge, so that every object can be named.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from clue_ros.lab.simulator.meshes import lathe
from clue_ros.lab.simulator.objects import HIDDEN, FallingObjects, in_disc, mesh_xml, numbers
from clue_ros.lab.simulator.optics import (
    Masks,
    Points,
    Size,
    bounding_box,
    center_crop,
    distort,
    faulty_sensor,
    full_instance_grid,
    project,
    silhouette,
    visible_share,
)
from clue_ros.lab.simulator.render import TabletopWorld
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.simulator.spec import PlacedObject, Settling, WorldSpec, has_look_alikes
from clue_ros.lab.simulator.table import TableWorld

MOST_STEPS = 450  # of physics, 4 ms each
CHECK = 25  # steps between two checks of the speed
AT_REST = 0.03  # metres and radians a second
RESTLESS = 0.5  # an arrangement with something faster than this in the end is refused
REACH = 0.31  # metres from the middle; objects that rolled further are put away
TALLEST = 0.12  # metres; objects whose lowest point is higher are put away
CAMERAS = 24  # tries for one picture
UNNAMED = 255  # in masks: a thing without a name
SHEETS, PEBBLES = 3, 5
LEAST_PIXELS = 60
OCTAGON = 0.62  # metres from the middle to a corner
SIDES = ((1, 0), (-1, 0), (0, 1), (0, -1))  # of a table, x and y


def scenery_xml() -> tuple[str, str]:
    """The sky and the octagon's mesh, and bodies: wall, octagon, rims, unnamed things; all hidden.

    MJCF for <asset> and <worldbody>.
    """
    top = lathe([(0, -0.04), (OCTAGON, -0.04), (OCTAGON, 0), (0, 0)], 8)
    across = numbers(top.vertices[:, :2] / (2 * OCTAGON) + 0.5)  # as a covering lies on a box
    assets = (
        '<texture name="sky" type="skybox" builtin="gradient" rgb1=".55 .56 .58"'
        ' rgb2=".25 .25 .26" width="64" height="64"/>'
        + mesh_xml("octagon", top, f' texcoord="{across}"')
    )
    plain = 'contype="0" conaffinity="0"'
    # A pose of its own, or MuJoCo ties the geom's pose to its body's for good.
    aside = f'pos="0 0 -9" quat=".8 .1 .2 .3" {plain}'
    rims = (f'<geom name="rim{i}" type="box" size=".1 .1 .1" {aside}/>' for i in range(len(SIDES)))
    unnamed = (
        f'<geom name="x{i}" type="{"box" if i < SHEETS else "ellipsoid"}" size=".1 .1 .1" {aside}/>'
        for i in range(SHEETS + PEBBLES)
    )
    return assets, (
        f'<geom name="wall" type="box" size="3 .05 3" {aside}/>'
        f'<geom name="octagon" type="mesh" mesh="octagon" material="m0" group="{HIDDEN}" {plain}/>'
        f'{"".join(rims)}<body name="unnamed">{"".join(unnamed)}</body>'
    )


class SettledWorld(TabletopWorld):
    """Draws random scenes of objects that fell; the same seed gives the same scenes."""

    library: FallingObjects

    def __init__(self, spec: WorldSpec, seed: int, width: int | None = None) -> None:
        super().__init__(spec, seed, width)
        self._settling = spec.settling or Settling()
        self._views = 0  # pictures still to be taken of this arrangement
        self._lying: list[PlacedObject] = []

    def _renderer_sizes(self) -> list[Size]:
        """One renderer for all shapes, whose pictures are cropped: opening one costs seconds."""
        return [max(self.sizes, key=lambda size: size[1])]

    def _xml(self, assets: str, bodies: str) -> str:
        more_assets, scenery = scenery_xml()
        return super()._xml(more_assets + assets, scenery + bodies)

    def _rebuild(self) -> None:
        super()._rebuild()
        self._views = 0
        for name, texture in self.library.textures(self.rng).items():
            self._set_texture(name, texture)

    def _try_scene(self) -> Scene | None:
        if self._views == 0:
            self._lying = self.settle()
            self._views = self._settling.views
        self._views -= 1
        if not has_look_alikes(self._lying):  # they rolled away
            self._views = 0
            return None
        return self._view()

    # --- physics

    def settle(self) -> list[PlacedObject]:
        """Drop new objects, wait until they rest, and return those near the table's middle.

        Their poses are the bodies' in `data`. Empty if they do not come to rest.
        """
        import mujoco

        model, data = self.model, self.data
        dropped = self.library.place(self.rng)
        self.library.show(model, dropped)
        table = model.geom("table").id
        model.geom_type[table], model.geom_size[table] = mujoco.mjtGeom.mjGEOM_BOX, (0.6, 0.6, 0.02)
        model.geom_rbound[table] = 1.2
        mujoco.mj_resetData(model, data)
        for o in dropped:
            at = int(model.jnt_qposadr[model.body(o.body).jntadr[0]])
            data.qpos[at : at + 7] = (*o.position, *o.quaternion)
        speeds = np.concatenate([np.arange(6) + int(model.body(o.body).dofadr[0]) for o in dropped])
        for step in range(1, MOST_STEPS + 1):
            mujoco.mj_step(model, data)
            if step % CHECK == 0 and np.abs(data.qvel[speeds]).max() < AT_REST:
                break
        if np.abs(data.qvel[speeds]).max() > RESTLESS:
            return []
        kept = [
            o
            for o in dropped
            if -0.02 < float(self.points(o)[:, 2].min()) < TALLEST
            and np.hypot(*data.body(o.body).xpos[:2]) < REACH
        ]
        self.library.show(model, kept)
        data.qvel[:] = 0
        return kept

    def points(self, o: PlacedObject) -> Points:
        """An object's vertices in the world, (n, 3) metres."""
        body = self.data.body(o.body)
        return np.asarray(
            self.library.shapes[o.body].points @ body.xmat.reshape(3, 3).T + body.xpos
        )

    # --- a picture

    def _view(self) -> Scene | None:
        """One picture of the objects on the table; None when it is refused."""
        import mujoco

        rng = self.rng
        self.placed = placed = self.library.recolored(self._lying, rng)
        self.library.show(self.model, placed)
        self._draw_lights()
        self._draw_surfaces()
        renderer = self.renderers[0]
        size = self.sizes[0 if rng.uniform() < 0.5 else -1]
        if not self._aim(size):
            return None
        self._draw_unnamed_things()
        mujoco.mj_forward(self.model, self.data)
        named = {o.body: k for k, o in enumerate(placed, 1)}
        masks = center_crop(self._masks(renderer, named | {"unnamed": UNNAMED}), size)
        shares = [visible_share(masks, k, self._alone(o, size)) for k, o in enumerate(placed, 1)]
        if min(shares) < self.spec.min_visible:
            return None
        image = center_crop(self._picture(renderer, shadows=0.85), size)
        image, masks = distort(image, masks, rng.uniform(*self._settling.lens))
        masks = np.where(masks == UNNAMED, 0, masks).astype(np.uint8)
        objects = self._settled_objects(masks, shares)
        if objects is None:
            return None
        instances = full_instance_grid(masks, len(objects))
        return Scene(faulty_sensor(image, rng), objects, instances, masks)

    def _aim(self, size: Size) -> bool:
        """Draw cameras until one sees every object; False when none of CAMERAS does."""
        import mujoco

        points = [self.points(o) for o in self.placed]
        for _ in range(CAMERAS):
            self._draw_camera(set())
            mujoco.mj_camlight(self.model, self.data)
            boxes = [project(self.model, self.data, p, size) / size[::-1] for p in points]
            low, high = np.min([b.min(0) for b in boxes]), np.max([b.max(0) for b in boxes])
            least = min(float(np.ptp(b, axis=0).max()) for b in boxes)
            if low > 0.015 and high < 0.985 and least > 1.1 * self.spec.min_side:
                return True
        return False

    def _draw_surfaces(self) -> None:
        """Table, covering, floor, wall and rim."""
        import mujoco

        rng, model, octagon = self.rng, self.model, self._settling.octagon
        super()._draw_surfaces()
        table = model.geom("table").id
        model.geom_group[table] = HIDDEN if octagon else 0
        eight = model.geom("octagon").id
        model.geom_group[eight] = 0 if octagon else HIDDEN
        model.geom_matid[eight] = model.geom_matid[table]
        is_box = int(model.geom_type[table]) == mujoco.mjtGeom.mjGEOM_BOX
        rimmed = is_box and not octagon and rng.uniform() < self._settling.rims
        x, y = (float(half) for half in model.geom_size[table][:2])
        tall, tone = rng.uniform(0.006, 0.02), rng.uniform(0.1, 0.7)
        for i, (sx, sy) in enumerate(SIDES):
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

    def _draw_unnamed_things(self) -> None:
        """Sheets of paper under the objects and pebbles beside them."""
        rng, model = self.rng, self.model
        count = int(rng.integers(0, self._settling.distractors + 1))
        sheets = min(SHEETS, int(rng.integers(0, count + 1)))
        for i in range(SHEETS + PEBBLES):
            geom = model.geom(f"x{i}").id
            x, y = in_disc(rng, 0.36)
            yaw = rng.uniform(0, np.pi)
            gray = rng.uniform(0.15, 0.95) * (1 + rng.uniform(-0.08, 0.08, 3))
            if i < SHEETS:
                half = (rng.uniform(0.02, 0.09), rng.uniform(0.02, 0.07), 0.0004 + 0.0003 * i)
                wanted = i < sheets
            else:
                half = tuple(rng.uniform(0.003, 0.008, 3))
                gray = 0.6 * gray
                bodies = (self.data.body(o.body) for o in self.placed)
                near = min(np.hypot(*(body.xpos[:2] - (x, y))) for body in bodies)
                wanted = i - SHEETS < count - sheets and near > 0.1
            model.geom_group[geom] = 0 if wanted else HIDDEN
            model.geom_pos[geom] = (x, y, half[2])
            model.geom_size[geom] = half
            model.geom_quat[geom] = (np.cos(yaw / 2), 0, 0, np.sin(yaw / 2))
            model.geom_rgba[geom] = (*gray.clip(0, 1), 1)
            model.geom_rbound[geom] = max(half) * 2

    # --- ground truth

    def _alone(self, o: PlacedObject, size: Size) -> npt.NDArray[np.bool_]:
        """The pixels that an object would cover if it were alone."""
        corners = project(self.model, self.data, self.points(o), size)
        out = np.zeros(size, dtype=bool)
        first = 0
        for part in self.library.shapes[o.body].parts:
            count = len(part.mesh.vertices)
            out |= silhouette(corners[first : first + count], part.mesh.faces, size)
            first += count
        return out

    def _settled_objects(self, masks: Masks, shares: list[float]) -> tuple[SceneObject, ...] | None:
        """The ground truth of a picture; None when an object is cut by its edge or too small."""
        out = []
        for k, o in enumerate(self.placed):
            mask = masks == k + 1
            box = bounding_box(mask)
            if box is None or np.count_nonzero(mask) < LEAST_PIXELS:
                return None
            if max(box[2] - box[0], box[3] - box[1]) < self.spec.min_side:
                return None
            extent = round(self.library.shapes[o.body].extent, 4)
            out.append(SceneObject(o.kind, o.color, box, extent, round(shares[k], 3)))
        return tuple(out)


def open_world(
    spec: WorldSpec, seed: int, width: int | None = None, renderer: str = "filament"
) -> TabletopWorld | TableWorld:
    """Open the renderer of a world; close it after use.

    width: pixels of its widest picture. renderer: of a world with assets, a key of
    `table.RENDERERS`; the others have OpenGL's.
    """
    if spec.assets is not None:
        return TableWorld(spec, seed, width, renderer)
    return (SettledWorld if spec.settling else TabletopWorld)(spec, seed, width)
