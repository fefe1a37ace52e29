"""Short videos of objects that fell onto a table, and in which something happens.

An arrangement of `physics.SettledWorld` is filmed while an object is pushed, a hand pushes one, a
hand drops one, or the camera alone moves. Physics moves the objects; each keeps its number in every
frame. A clip is refused when an object is hard to see in its first frame, or what was to happen did
not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from clue_ros.lab.simulator.objects import HIDDEN
from clue_ros.lab.simulator.optics import Masks, Size, center_crop, visible_share
from clue_ros.lab.simulator.physics import UNNAMED, SettledWorld
from clue_ros.lab.simulator.scene import Image, SceneObject
from clue_ros.lab.simulator.spec import PlacedObject, WorldSpec

PUSH, HAND, FALL, CAMERA = EVENTS = ("push", "hand", "fall", "camera")
FRAMES = (12, 24)  # fewest and most of a clip
STEPS = 15  # of physics between two frames, 4 ms each: about 17 frames a second
CLIPS_PER_MODEL = 6
MOVED, STILL = 0.03, 0.008  # metres: farther has moved, less has not; none may lie between
SPEED = (0.12, 0.3)  # of a push, metres a second
HEIGHT = (0.1, 0.18)  # from which an object falls, metres
DRIFT = 0.004  # of a moving camera, metres a frame
FINGERS = (-0.016, 0.0, 0.016)  # of the hand, metres across it

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Clip:
    """A video with its ground truth.

    frames: uint8 RGB (N, H, W, 3). masks: uint8 (N, H, W); 0 is background, k is objects[k - 1],
    in every frame. objects: as the first frame shows them. event: one of EVENTS. camera: whether
    the camera moves. moved, fell: indices of objects that did.
    """

    frames: npt.NDArray[np.uint8]
    masks: npt.NDArray[np.uint8]
    objects: tuple[SceneObject, ...]
    event: str
    camera: bool
    moved: tuple[int, ...]
    fell: tuple[int, ...]


def hand_xml() -> str:
    """A body that moves on rails: three fingers that point down, a palm and an arm; hidden."""
    look = f'rgba=".78 .58 .46 1" group="{HIDDEN}" contype="0" conaffinity="0" friction="0.6"'
    fingers = "".join(
        f'<geom type="capsule" size=".009" fromto="0 {y} .008 0 {y} .06" {look}/>' for y in FINGERS
    )
    return (
        f'<body name="hand" mocap="true" pos="0 0 -9">{fingers}'
        f'<geom type="box" size=".016 .03 .03" pos="0 0 .09" {look}/>'
        f'<geom type="capsule" size=".026" fromto="0 0 .12 -.12 0 .34" {look}/></body>'
    )


class ClipWorld(SettledWorld):
    """Films random clips; the same seed gives the same clips."""

    def __init__(self, spec: WorldSpec, seed: int, width: int | None = None) -> None:
        super().__init__(spec, seed, width)
        self._filmed = 0

    def _xml(self, assets: str, bodies: str) -> str:
        return super()._xml(assets, bodies + hand_xml())

    def clip(self, event: str | None = None) -> Clip:
        """The next random clip. event: one of EVENTS; None draws one."""
        while True:
            if self._filmed % CLIPS_PER_MODEL == 0:
                self._rebuild()
            self._filmed += 1
            made = self._film(event or str(self.rng.choice(EVENTS, p=(0.25, 0.35, 0.25, 0.15))))
            if made is not None:
                return made

    def _film(self, event: str) -> Clip | None:
        """One clip; None when it is refused."""
        import mujoco

        rng, data = self.rng, self.data
        self._show_hand(False)
        lying = self.settle()
        if len(lying) < 2:
            return None
        self.placed = placed = self.library.recolored(lying, rng)
        self.library.show(self.model, placed)
        self._draw_lights()
        self._draw_surfaces()
        size = self.sizes[-1]
        if not self._aim(size):
            return None
        self._draw_unnamed_things()
        actor = int(rng.integers(len(placed)))
        target = placed[actor]
        begin = self._places()
        top = 0.0
        if event == FALL:
            if not self._lift(target, float(rng.uniform(*HEIGHT))):
                return None
            top = float(self.points(target)[:, 2].max())
        self._show_hand(event in (HAND, FALL))
        direction = self._direction(target)
        mujoco.mj_forward(self.model, data)
        camera = event == CAMERA or rng.uniform() < 0.4
        drift = rng.normal(0, DRIFT, 3) if camera else np.zeros(3)
        speed, first = float(rng.uniform(*SPEED)), int(rng.integers(2, 5))
        exposure = rng.uniform(0.85, 1.1) * (1 + rng.uniform(-0.05, 0.05, 3))
        noise, shadows = float(rng.uniform(1.0, 4.0)), float(rng.uniform() < 0.85)
        heights = begin[:, 2] if event != FALL else self._places()[:, 2]
        frames: list[Image] = []
        masks: list[Masks] = []
        objects = None
        for number in range(int(rng.integers(FRAMES[0], FRAMES[1] + 1))):
            seen = self._numbers(size)
            if objects is None:
                shares = [
                    visible_share(seen, k, self._alone(o, size)) for k, o in enumerate(placed, 1)
                ]
                objects = self._settled_objects(seen, shares)
                if objects is None or min(shares) < self.spec.min_visible:
                    return None
            picture = center_crop(self._picture(self.renderers[0], shadows=shadows), size)
            noisy = picture * exposure + rng.normal(0, noise, picture.shape)
            frames.append(noisy.clip(0, 255).astype(np.uint8))
            masks.append(seen)
            self._advance(event, target, direction, speed, number - first, top)
            self.model.cam_pos[0] += drift
            mujoco.mj_forward(self.model, data)
        if event == FALL:
            begin[actor] += 1.0  # it fell, wherever it lies now
        far = np.linalg.norm(self._places() - begin, axis=1)
        moved = tuple(int(i) for i in np.flatnonzero(far > MOVED))
        unsure = ((far > STILL) & (far <= MOVED)).any()
        if unsure or (event == CAMERA and moved) or (event != CAMERA and actor not in moved):
            return None
        fell = tuple(i for i in moved if heights[i] - self._places()[i, 2] > 0.06)
        assert objects is not None
        return Clip(np.stack(frames), np.stack(masks), objects, event, camera, moved, fell)

    # --- what happens

    def _places(self) -> Floats:
        """The positions of the objects, (n, 3) metres."""
        return np.array([self.data.body(o.body).xpos for o in self.placed])

    def _joint(self, o: PlacedObject) -> tuple[int, int]:
        """The places of an object's pose and velocity in the model's state."""
        joint = self.model.body(o.body).jntadr[0]
        return int(self.model.jnt_qposadr[joint]), int(self.model.jnt_dofadr[joint])

    def _lift(self, o: PlacedObject, height: float) -> bool:
        """Hold an object over its place; False where another one lies on it or beside it."""
        import mujoco

        points = self.points(o)
        middle, reach = points[:, :2].mean(axis=0), np.ptp(points[:, :2], axis=0).max() / 2
        others = [self.points(other) for other in self.placed if other is not o]
        if any(np.hypot(*(p[:, :2] - middle).T).min() < 0.6 * reach for p in others):
            return False
        pose, _ = self._joint(o)
        self.data.qpos[pose + 2] += height
        mujoco.mj_forward(self.model, self.data)
        return True

    def _direction(self, o: PlacedObject) -> Floats:
        """A unit vector (x, y) in which an object is pushed: mostly toward the middle."""
        at = self.data.body(o.body).xpos[:2]
        turn = np.arctan2(-at[1], -at[0]) + self.rng.normal(0, 0.7)
        return np.array([np.cos(turn), np.sin(turn)])

    def _show_hand(self, shown: bool) -> None:
        body = self.model.body("hand")
        first, end = int(body.geomadr[0]), int(body.geomadr[0] + body.geomnum[0])
        self.model.geom_group[first:end] = 0 if shown else HIDDEN
        self._touch(False)
        self.data.mocap_pos[0] = (0, 0, -9)

    def _touch(self, touches: bool) -> None:
        """Let the hand push objects, or pass through them."""
        body = self.model.body("hand")
        first, end = int(body.geomadr[0]), int(body.geomadr[0] + body.geomnum[0])
        self.model.geom_contype[first:end] = self.model.geom_conaffinity[first:end] = int(touches)
        self.model.body_contype[body.id] = self.model.body_conaffinity[body.id] = int(touches)

    def _hand_to(self, x: float, y: float, z: float, direction: Floats) -> None:
        half = np.arctan2(direction[1], direction[0]) / 2
        self.data.mocap_pos[0] = (x, y, z)
        self.data.mocap_quat[0] = (np.cos(half), 0, 0, np.sin(half))

    def _advance(
        self, event: str, o: PlacedObject, direction: Floats, speed: float, late: int, top: float
    ) -> None:
        """Let the time of one frame pass. late: frames since the event began, negative before."""
        import mujoco

        data, model = self.data, self.model
        pose, velocity = self._joint(o)
        held = data.qpos[pose : pose + 7].copy()
        pushing = 0 <= late < 8
        if event == HAND and late == 0:
            along = (self.points(o)[:, :2] - data.body(o.body).xpos[:2]) @ direction
            behind = data.body(o.body).xpos[:2] + direction * (float(along.min()) - 0.02)
            self._hand_to(float(behind[0]), float(behind[1]), 0.0, direction)
            self._touch(True)
        for _ in range(STEPS):
            if event == PUSH and pushing:
                data.qvel[velocity : velocity + 2] = speed * direction
            if event == HAND and pushing:
                data.mocap_pos[0, :2] += direction * speed * model.opt.timestep
            if event == HAND and late >= 8:
                self._touch(False)
                data.mocap_pos[0, 2] += 0.3 * model.opt.timestep
            if event == FALL:
                at = data.body(o.body).xpos
                if late < 0:
                    data.qpos[pose : pose + 7], data.qvel[velocity : velocity + 6] = held, 0
                    self._hand_to(float(at[0]), float(at[1]), top - 0.02, direction)
                else:
                    data.mocap_pos[0, 2] += 0.3 * model.opt.timestep
            mujoco.mj_step(model, data)

    def _numbers(self, size: Size) -> Masks:
        """The number of the object that each pixel shows, uint8 (H, W)."""
        named = {o.body: k for k, o in enumerate(self.placed, 1)}
        seen = center_crop(self._masks(self.renderers[0], named | {"unnamed": UNNAMED}), size)
        return np.where(seen == UNNAMED, 0, seen).astype(np.uint8)
