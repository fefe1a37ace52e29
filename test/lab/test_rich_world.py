"""The rich world: many kinds that fell onto a table, hidden in part, true to the bit."""

from __future__ import annotations

import colorsys
import json
from pathlib import Path

import cv2
import numpy as np
import pytest
import scene_helpers
import trimesh
from test_household import volume

from clue_ros import cli
from clue_ros.errors import ClueError
from clue_ros.lab.simulator import meshes, shards
from clue_ros.lab.simulator.objects import FallingObjects, turned
from clue_ros.lab.simulator.optics import (
    distort,
    full_instance_grid,
    silhouette,
    visible_share,
)
from clue_ros.lab.simulator.physics import TALLEST, SettledWorld, open_world
from clue_ros.lab.simulator.render import TabletopWorld
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.simulator.spec import WorldSpec
from clue_ros.lab.simulator.user_meshes import kind_name, read_meshes, with_meshes
from clue_ros.lab.simulator.worlds import BLOCKS, RICH, RICH_UNSEEN

SEED = 4


def draw(count: int, spec: WorldSpec = RICH) -> list[Scene]:
    """Scenes of a world; skips the test where nothing renders."""
    return scene_helpers.draw(lambda: open_world(spec, SEED), count)


@pytest.fixture(scope="module")
def rendered() -> list[Scene]:
    return draw(10)


# --- what it has


def test_it_has_what_the_issue_asks_for() -> None:
    assert len(RICH.kinds) >= 20
    assert RICH.kinds == tuple(RICH.objects)
    asked = "mug bottle can bowl plate ball block box banana apple fork spoon"
    assert set(asked.split()) <= set(RICH.kinds)
    assert len(RICH.colors) >= 10
    assert all(BLOCKS.colors[c] == RICH.colors[c] for c in BLOCKS.colors), "a name means one colour"


def test_the_unseen_twin_differs_in_table_light_and_lens_alone() -> None:
    assert RICH_UNSEEN.nouns == RICH.nouns
    assert RICH_UNSEEN.colors == RICH.colors
    assert RICH_UNSEEN.camera == RICH.camera
    assert RICH.settling is not None
    assert RICH_UNSEEN.settling is not None
    assert RICH_UNSEEN.settling.octagon
    assert not RICH.settling.octagon
    assert RICH_UNSEEN.settling.lens[0] > RICH.settling.lens[1]
    for name in ("key", "fill", "ambient", "height"):
        (a, b), (c, d) = (getattr(s.light, name) for s in (RICH, RICH_UNSEEN))
        assert b < c or d < a, name
    assert RICH_UNSEEN.surfaces.make is not RICH.surfaces.make


def test_an_extrusion_has_the_volume_of_its_outline() -> None:
    square = np.array([[1.0, 1], [-1, 1], [-1, -1], [1, -1]])
    assert volume(meshes.extruded(square, 3.0)) == pytest.approx(12)
    assert 11 < volume(meshes.extruded(square, 3.0, 0.1)) < 12
    assert volume(meshes.ring(2.0, 0.5, 90, 40)) == pytest.approx(2 * np.pi**2 * 2 * 0.25, rel=0.02)


def test_an_object_lies_along_its_yaw() -> None:
    mujoco = pytest.importorskip("mujoco")
    up = np.zeros(3)
    mujoco.mju_rotVecQuat(up, np.array([0.0, 0, 1]), np.array(turned(0.7, lying=True)))
    assert up == pytest.approx((np.cos(0.7), np.sin(0.7), 0))
    mujoco.mju_rotVecQuat(up, np.array([1.0, 0, 0]), np.array(turned(0.7)))
    assert up == pytest.approx((np.cos(0.7), np.sin(0.7), 0))


def test_every_table_has_look_alikes() -> None:
    rng = np.random.default_rng(3)
    library = FallingObjects(RICH)
    library.xml(rng)
    for _ in range(60):
        placed = library.place(rng)
        kinds = [o.kind for o in placed]
        assert len(set(kinds)) < len(kinds)
        assert len({o.body for o in placed}) == len(placed)
        for o in placed:
            own = RICH.objects[o.kind].colors
            assert own is None or o.color in own
            assert np.linalg.norm(o.quaternion) == pytest.approx(1)


# --- pictures


def test_the_same_seed_gives_the_same_scenes_bit_for_bit(rendered: list[Scene]) -> None:
    for a, b in zip(draw(3), rendered, strict=False):
        assert np.array_equal(a.image, b.image)
        assert a.objects == b.objects
        assert np.array_equal(a.instances, b.instances)
        assert a.masks is not None
        assert b.masks is not None
        assert np.array_equal(a.masks, b.masks)


def test_a_scene_is_what_its_world_says(rendered: list[Scene]) -> None:
    for scene in rendered:
        assert scene.image.shape in {(300, 300, 3), (300, 400, 3)}
        assert scene.image.dtype == np.uint8
        assert scene.image.std() > 5
        assert scene.masks is not None
        assert scene.masks.shape == scene.image.shape[:2]
        kinds = [o.kind for o in scene.objects]
        assert set(kinds) <= set(RICH.kinds)
        assert len(set(kinds)) < len(kinds), "no look-alikes"
        assert set(np.unique(scene.masks)) == set(range(len(kinds) + 1))
        height, width = scene.masks.shape
        for k, o in enumerate(scene.objects):
            assert 0.4 <= o.visible <= 1
            assert 0.03 < o.extent < 0.35
            ys, xs = np.nonzero(scene.masks == k + 1)
            tight = (xs.min(), ys.min(), xs.max() + 1, ys.max() + 1)
            assert o.box == pytest.approx(tuple(np.divide(tight, (width, height) * 2)))
            assert np.any(scene.instances == k + 1)


def test_objects_show_the_colors_they_are_called_by(rendered: list[Scene]) -> None:
    plain = {"mug", "bowl", "plate", "vase", "block", "star", "apple", "pear", "banana", "lemon",
             "candle", "sponge", "can", "ball", "bottle", "carrot", "hammer"}  # fmt: skip
    checked = 0
    for scene in rendered:
        assert scene.masks is not None
        for k, o in enumerate(scene.objects):
            red, green, blue = np.median(scene.image[scene.masks == k + 1], axis=0) / 255
            hue, _, value = colorsys.rgb_to_hsv(red, green, blue)
            (low, high), (least, _), _ = RICH.colors[o.color]
            if o.color == "black":
                assert value < 0.35, o
            elif least > 0.5 and o.kind in plain and value > 0.15:
                off = min(abs(hue + turn - (low + high) / 2) for turn in (-1, 0, 1))
                assert off < (high - low) / 2 + 0.06, (o, hue)
                checked += 1
    assert checked > 5


def test_objects_overlap_in_pictures_and_some_are_hidden_in_part(rendered: list[Scene]) -> None:
    shares = [o.visible for scene in rendered for o in scene.objects]
    assert min(shares) < 0.97
    assert np.mean(np.array(shares) > 0.98) > 0.3, "most can be seen well"


def test_what_fell_lies_still_on_the_table() -> None:
    draw(1)  # skips where nothing renders
    world = SettledWorld(RICH, SEED)
    world.scene()
    lowest = [float(world.points(o)[:, 2].min()) for _ in range(10) for o in world.settle()]
    world.close()
    assert len(lowest) > 20
    assert min(lowest) > -0.006, "a contact is a little soft"
    assert max(lowest) < TALLEST
    assert np.mean(np.array(lowest) < 0.004) > 0.8, "the others lie on something"


def test_the_unseen_twin_draws_too() -> None:
    scene = draw(1, RICH_UNSEEN)[0]
    assert {o.kind for o in scene.objects} <= set(RICH.kinds)


def test_each_world_has_its_own_drawer() -> None:
    assert type(open_world(BLOCKS, 0)) is TabletopWorld
    assert type(open_world(RICH, 0)) is SettledWorld


# --- optics


def test_a_hidden_share_is_that_of_the_objects_own_outline() -> None:
    corners = np.array([[10.0, 10], [30, 10], [30, 30], [10, 30]])
    faces = np.array([[0, 2, 1], [0, 3, 2]])  # clockwise on the screen: towards us
    alone = silhouette(corners, faces, (40, 40)) | silhouette(corners, faces[:, ::-1], (40, 40))
    assert alone.sum() == pytest.approx(400, rel=0.12)
    masks = np.zeros((40, 40), np.uint8)
    masks[10:30, 10:30] = 1
    assert visible_share(masks, 1, alone) == 1
    masks[10:30, 20:40] = 2
    assert visible_share(masks, 1, alone) == pytest.approx(0.5, abs=0.04)
    assert visible_share(masks, 3, alone & False) == 0


@pytest.mark.parametrize("k", [-0.12, 0.0, 0.1])
def test_a_lens_bends_picture_and_masks_alike(k: float) -> None:
    masks = np.zeros((60, 80), np.uint8)
    masks[10:20, 50:70] = 3
    image = np.repeat(masks[..., None] * 80, 3, axis=2).astype(np.uint8)
    out, numbers = distort(image, masks, k)
    assert out.shape == image.shape
    same = (out[..., 0] > 120) == (numbers == 3)
    assert same.mean() > 0.97
    assert np.array_equal(numbers, masks) == (k == 0)


def test_a_thin_object_keeps_a_cell_of_the_instance_grid() -> None:
    masks = np.zeros((400, 400), np.uint8)
    masks[100:300, 203:205] = 1
    assert not np.any(cv2.resize(masks, (56, 56), interpolation=cv2.INTER_NEAREST) == 1)
    assert np.count_nonzero(full_instance_grid(masks, 1) == 1) == 1


# --- on disk


def test_a_shard_keeps_sizes_shares_and_masks(tmp_path: Path, rendered: list[Scene]) -> None:
    path = shards.shard_path(tmp_path, "train", 0, 0, "rich")
    shards.write_shard(path, rendered[:3], "rich")
    assert path.name == "rich-train-0-0000.npz"
    for a, b in zip(shards.read_shard(path, "rich"), rendered, strict=False):
        assert b.masks is not None
        assert [(o.kind, o.color, o.extent, o.visible) for o in a.objects] == [
            (o.kind, o.color, o.extent, o.visible) for o in b.objects
        ]
        assert a.masks is not None
        assert np.array_equal(a.masks, b.masks)
    assert shards.list_shards(tmp_path, "train", "rich-unseen") == []


def test_scenes_without_masks_are_kept_too(tmp_path: Path) -> None:
    thing = SceneObject("mug", "red", (0.125, 0.125, 0.5, 0.5), 0.1, 0.8)
    scene = Scene(np.zeros((20, 20, 3), np.uint8), (thing, thing), np.zeros((56, 56), np.uint8))
    path = tmp_path / "rich-val-0-0000.npz"
    shards.write_shard(path, [scene], "rich")
    assert next(shards.read_shard(path)).objects == scene.objects
    assert next(shards.read_shard(path)).masks is None


# --- the user's own meshes

TETRA = "v 0 0 0\nv 60 0 0\nv 0 60 0\nv 0 0 60\nf 1 3 2\nf 1/1/1 2/2 4\nf 1 4 -2\nf 2 3 4\n"


def stl(side: float) -> bytes:
    corners = np.array([[0, 0, 0], [side, 0, 0], [0, side, 0], [0, 0, side]], dtype="<f4")
    out = bytes(80) + (4).to_bytes(4, "little")
    for face in ((0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3)):
        out += bytes(12) + corners[list(face)].tobytes() + bytes(2)
    return out


def test_own_meshes_become_kinds(tmp_path: Path) -> None:
    (tmp_path / "025_mug" / "google_16k").mkdir(parents=True)
    (tmp_path / "025_mug" / "google_16k" / "a.stl").write_bytes(stl(0.08))
    (tmp_path / "cracker_box.obj").write_text("mtllib ../../etc/passwd\n" + TETRA)
    own = read_meshes(tmp_path)
    assert set(own.shapes) == {"mug", "cracker box"}
    assert own.problems == ()
    box = own.shapes["cracker box"][0].parts[0].mesh
    assert np.ptp(box.vertices, axis=0) == pytest.approx((0.06, 0.06, 0.06))  # it was in mm
    assert volume(box) > 0
    spec = with_meshes(RICH, own)
    assert spec.kinds == tuple(spec.objects) == (*RICH.kinds, "cracker box")
    build = spec.objects["mug"].build
    builds = {len(build(np.random.default_rng(i)).parts[0].mesh.faces) for i in range(12)}
    assert 4 in builds
    assert len(builds) > 1


@pytest.mark.parametrize("suffix", ["obj", "stl", "ply", "off"])
def test_each_format_gives_the_same_mesh(suffix: str, tmp_path: Path) -> None:
    solid = trimesh.creation.box((0.04, 0.06, 0.1))
    solid.export(tmp_path / f"brick.{suffix}")
    mesh = read_meshes(tmp_path).shapes["brick"][0].parts[0].mesh
    assert (len(mesh.vertices), len(mesh.faces)) == (8, 12)
    assert np.ptp(mesh.vertices, axis=0) == pytest.approx((0.04, 0.06, 0.1), abs=1e-6)
    assert volume(mesh) == pytest.approx(0.04 * 0.06 * 0.1, rel=1e-4)


def test_a_bad_mesh_is_named_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "good.obj").write_text(TETRA)
    bad: dict[str, str | bytes] = {
        "face.obj": "v 0 0 0\nv 1 0 0\nv 0 1 0\nv 0 0 1\nf 1 2 9\nf 1 2 3\nf 1 2 4\nf 2 3 4\n",
        "huge.obj": TETRA.replace("60", "6000000"),
        "text.obj": "v a b c\n",
        "nan.obj": TETRA.replace("60 0 0", "nan 0 0"),
        "cut.stl": stl(0.08)[:-9],
        "cut.ply": "ply\nformat ascii 1.0\nelement vertex 4\nproperty float x\nend_header\n0\n",
        "none.off": "OFF\n",
        "123.obj": TETRA,
    }
    for name, content in bad.items():
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(data)
    outside = tmp_path.parent / "outside.obj"
    outside.write_text(TETRA)
    (tmp_path / "link.obj").symlink_to(outside)
    own = read_meshes(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    assert set(own.shapes) == {"good"}
    for name in [*bad, "link.obj"]:
        assert sum(name in problem for problem in own.problems) == 1, name
    with pytest.raises(ClueError, match="no mesh that can be used"):
        read_meshes(empty)
    with pytest.raises(ClueError, match="no folder of meshes"):
        read_meshes(tmp_path / "nowhere")
    with pytest.raises(ClueError, match="'blocks' takes no meshes"):
        with_meshes(BLOCKS, own)


def test_a_name_is_without_numbers() -> None:
    assert kind_name("002_master_chef_can") == "master chef can"
    assert kind_name("Mug-a.OBJ") == "mug a"


def test_the_command_draws_own_meshes_and_does_not_mix_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    draw(1)  # skips where nothing renders
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "wedge.obj").write_text(TETRA)
    command = ["data", "tabletop", "--world", "rich", "--out", str(tmp_path), "--scenes", "1"]
    assert cli.main([*command, "--png", "--meshes", str(tmp_path / "own")]) == 0
    truth = json.loads((tmp_path / "rich-train-0-0000.json").read_text())["objects"]
    assert truth
    scene = Scene(np.zeros((20, 20, 3), np.uint8), (), np.zeros((56, 56), np.uint8))
    shards.write_shard(tmp_path / "rich-train-0-0000.npz", [scene], "rich")
    assert cli.main([*command, "--meshes", str(tmp_path / "own")]) == 2
    assert "made with other meshes" in capsys.readouterr().err
