"""The world `table`: what it is made of, its arrangements, light, pictures and shards."""

from __future__ import annotations

import ctypes.util
import json
import multiprocessing
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import numpy.typing as npt
import pytest
from drawn_scenes import random_scenes

from clue_ros import cli
from clue_ros.errors import ClueError
from clue_ros.lab.simulator import filament, shards
from clue_ros.lab.simulator.arrangement import Arranger
from clue_ros.lab.simulator.assets import Assets, read_assets
from clue_ros.lab.simulator.classic import ClassicRenderer
from clue_ros.lab.simulator.meshes import cuboid
from clue_ros.lab.simulator.optics import bounding_box
from clue_ros.lab.simulator.panoramas import (
    ImageLight,
    directions,
    light_from,
    read_panorama,
    sample,
)
from clue_ros.lab.simulator.scanned_objects import ScannedObject, find_objects, load_object
from clue_ros.lab.simulator.table import RENDERERS, TableWorld
from clue_ros.lab.simulator.worlds import HEAPS, RICH, TABLE, TABLE_UNSEEN, with_assets

DRAWS = pytest.mark.skipif(bool(filament.missing()), reason=filament.missing())
QUADS = [(1, 2, 4, 3), (5, 7, 8, 6), (1, 5, 6, 2), (3, 4, 8, 7), (1, 3, 7, 5), (2, 6, 8, 4)]


def write_box(folder: Path, name: str) -> None:
    """A box of 6 x 8 x 10 cm with a green texture, as NAME/box.obj."""
    own = folder / name
    own.mkdir(parents=True)
    cv2.imwrite(str(own / "green.png"), np.full((16, 16, 3), (20, 200, 20), np.uint8))
    (own / "box.mtl").write_text("newmtl paint\nmap_Kd green.png\n")
    lines = ["mtllib box.mtl", "usemtl paint"]
    lines += [f"v {x} {y} {z}" for x in (0, 0.06) for y in (0, 0.08) for z in (0, 0.1)]
    lines += ["vt 0 1", "vt 1 1", "vt 1 0", "vt 0 0"]
    for quad in QUADS:
        a, b, c, d = (f"{corner}/{k + 1}" for k, corner in enumerate(quad))
        lines += [f"f {a} {b} {c}", f"f {a} {c} {d}"]
    (own / "box.obj").write_text("\n".join(lines) + "\n")


def panorama() -> npt.NDArray[np.float32]:
    """Gray everywhere, with a bright spot in the upper half towards +y."""
    rgb = np.full((64, 128, 3), 0.5, np.float32)
    rgb[12:18, 93:99] = 40.0  # 3/4 of the way around is +y
    return rgb


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three boxes of two kinds, a panorama and a texture."""
    root = tmp_path_factory.mktemp("assets")
    for name in ("crate", "carton", "carton2"):
        write_box(root / "own", name)
    (root / "hdri").mkdir()
    cv2.imwrite(str(root / "hdri" / "room.hdr"), panorama())
    (root / "textures").mkdir()
    cv2.imwrite(str(root / "textures" / "Wood.png"), np.full((64, 64, 3), 90, np.uint8))
    return root


@pytest.fixture(scope="module")
def assets(folder: Path) -> Assets:
    found = read_assets(folder)
    return replace(found, objects=tuple(find_objects([folder / "own"])))


# --- assets


def scanned(name: str, kind: str) -> ScannedObject:
    return ScannedObject(name, "folder", Path(name), None, "", kind, (), (), "", (), "", "")


def test_a_folder_gives_its_objects_panoramas_and_textures(folder: Path) -> None:
    found = read_assets(folder)
    assert len(found.objects) == 3
    assert [path.name for path in found.panoramas] == ["room.hdr"]
    assert [(name, number) for name, _, number in found.textures] == [("Wood", 0)]
    assert found.digest


def test_no_object_is_in_both_worlds_but_a_kinds_only_one() -> None:
    objects = [scanned(f"mug{k}", "mug") for k in range(11)]
    objects += [scanned(f"can{k}", "can") for k in range(2)] + [scanned("drill", "drill")]
    everything = Assets(tuple(objects))
    seen = {o.name for o in everything.half(unseen=False).objects}
    unseen = {o.name for o in everything.half(unseen=True).objects}
    assert seen & unseen == {"drill"}
    assert seen | unseen == {o.name for o in objects}
    assert sum(name.startswith("mug") for name in unseen) == 2
    assert sum(name.startswith("can") for name in unseen) == 1


def test_no_panorama_or_texture_is_in_both_worlds() -> None:
    panoramas = tuple(Path(f"{k}.hdr") for k in range(40))
    textures = tuple(("Wood", Path("Wood.webp"), k) for k in range(40))
    everything = Assets((), panoramas, textures)
    seen, unseen = everything.half(unseen=False), everything.half(unseen=True)
    assert not set(seen.panoramas) & set(unseen.panoramas)
    assert not set(seen.textures) & set(unseen.textures)
    assert len(seen.panoramas) + len(unseen.panoramas) == 40
    assert len(seen.textures) + len(unseen.textures) == 40
    assert unseen.panoramas
    assert unseen.textures


def test_an_object_stays_in_its_world_when_other_kinds_are_added() -> None:
    mugs = tuple(scanned(f"mug{k}", "mug") for k in range(6))
    more = Assets((*mugs, *(scanned(f"can{k}", "can") for k in range(6))))
    before = set(Assets(mugs).half(unseen=True).objects)
    assert before == {o for o in more.half(unseen=True).objects if o.kind == "mug"}


def test_assets_for_another_world_are_refused(assets: Assets) -> None:
    with pytest.raises(ClueError, match="rich"):
        with_assets(RICH, assets)


def test_a_folder_with_nothing_of_use_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClueError, match="no object"):
        read_assets(tmp_path)


# --- arrangements


@pytest.mark.parametrize("scans", [True, False])
def test_an_arrangement_has_two_to_eight_named_objects(assets: Assets, scans: bool) -> None:
    made = assets if scans else Assets()
    spec = with_assets(TABLE, made)
    arranger = Arranger(spec, made, np.random.default_rng(1))
    counts = set()
    for _ in range(40):
        drawn = arranger.draw()
        counts.add(len(drawn))
        assert {model.kind for model, _, _ in drawn} <= set(spec.kinds)
        assert any(model.generated for model, _, _ in drawn) or scans
    assert min(counts) >= 2
    assert max(counts) <= 8
    assert len(counts) > 3


def test_the_same_seed_gives_the_same_arrangement(assets: Assets) -> None:
    spec = with_assets(TABLE, assets)

    def arrangement(seed: int) -> list[tuple[str, str, list[float]]]:
        resting = Arranger(spec, assets, np.random.default_rng(seed)).arrange()
        return [(r.model.name, r.color, [*r.position, *r.rotation.flat]) for r in resting]

    assert arrangement(3) == arrangement(3)
    assert arrangement(3) != arrangement(4)


def test_objects_come_to_rest_on_the_table(assets: Assets) -> None:
    arranger = Arranger(with_assets(TABLE, assets), assets, np.random.default_rng(5))
    for _ in range(3):
        for r in arranger.arrange():
            lowest = r.resting_points[:, 2].min()
            assert -0.02 < lowest < 0.2


def spread(arranger: Arranger) -> float:
    """Mean over arrangements of the largest distance of an object from their middle, metres."""
    found = []
    for _ in range(12):
        places = np.array([r.position[:2] for r in arranger.arrange()])
        found.append(np.linalg.norm(places - places.mean(axis=0), axis=1).max())
    return float(np.mean(found))


def test_crowded_objects_lie_closer_together(assets: Assets) -> None:
    wide, close = (
        spread(Arranger(replace(with_assets(TABLE, assets), crowded=share), assets,
                        np.random.default_rng(3)))
        for share in (0.0, 1.0)
    )  # fmt: skip
    assert close < 0.8 * wide


def test_heaped_objects_lie_on_each_other(assets: Assets) -> None:
    def above_the_table(share: float) -> float:
        spec = replace(with_assets(TABLE, assets), heaped=share)
        arranger = Arranger(spec, assets, np.random.default_rng(3))
        lowest = [r.resting_points[:, 2].min() for _ in range(12) for r in arranger.arrange()]
        return float(np.mean(np.array(lowest) > 0.004))

    assert above_the_table(1.0) > 1.5 * above_the_table(0.0)
    assert HEAPS.heaped > 0
    assert TABLE.heaped == TABLE_UNSEEN.heaped == 0


@DRAWS
def test_close_views_show_larger_objects_and_all_of_them(assets: Assets) -> None:
    def sizes(share: float) -> float:
        spec = replace(with_assets(TABLE, assets), close=share, crowded=0.0, arms=0.0)
        world = TableWorld(spec, 4, width=96)
        boxes = [o.box for _ in range(6) for o in world.scene().objects]
        world.close()
        assert min(min(b) for b in boxes) > 0
        assert max(max(b) for b in boxes) < 1
        return float(np.mean([(b[2] - b[0]) * (b[3] - b[1]) for b in boxes]))

    assert sizes(1.0) > 1.3 * sizes(0.0)


def test_only_the_training_world_has_desk_things_arms_and_portraits() -> None:
    desk = set(TABLE.objects) - set(TABLE_UNSEEN.objects)
    assert {"notebook", "toothbrush", "keyboard"} <= desk
    assert desk == set(TABLE.nouns) - set(TABLE_UNSEEN.nouns)
    for name in ("arms", "portrait", "close", "crowded"):
        assert getattr(TABLE_UNSEEN, name) == 0
        assert getattr(TABLE, name) > 0
    rng = np.random.default_rng(0)
    for kind in sorted(desk):
        made = TABLE.objects[kind].build(rng)
        assert any(part.accent is None for part in made.parts), kind
        assert any(part.accent is not None for part in made.parts), kind
        assert made.points[:, 2].min() > -0.002, kind
        assert 0.04 < made.extent < 0.35, kind


# --- light


def test_the_faces_of_a_cube_show_what_lies_in_their_directions() -> None:
    toward = directions(4)
    assert toward.shape == (6, 4, 4, 3)
    assert np.allclose(np.linalg.norm(toward, axis=-1), 1)
    # Each face looks along its axis; the cube's y is the world's z.
    middles = toward.mean(axis=(1, 2))
    axes = [(1, 0, 0), (-1, 0, 0), (0, 0, 1), (0, 0, -1), (0, -1, 0), (0, 1, 0)]
    for middle, axis in zip(middles, axes, strict=True):
        assert np.allclose(middle / np.linalg.norm(middle), axis, atol=1e-6)


def test_a_panorama_is_sampled_up_down_and_around() -> None:
    rgb = np.zeros((64, 128, 3), np.float32)
    rgb[:32, :, 0] = 1  # red above
    rgb[32:, :, 2] = 1  # blue below
    up, down = sample(rgb, np.array([[0.0, 0.1, 0.99], [0.0, 0.1, -0.99]]))
    assert up.tolist() == [1, 0, 0]
    assert down.tolist() == [0, 0, 1]
    bright, dark = sample(panorama(), np.array([[0.0, 0.75, 0.66], [0.0, -0.75, 0.66]]))
    assert bright.mean() > 10 * dark.mean()


def test_the_lamp_is_where_the_panorama_is_brightest() -> None:
    light = light_from(panorama())
    assert light.lamp[1] > 0.6
    assert light.lamp[2] > 0.6
    assert abs(light.lamp[0]) < 0.15
    assert light.color.mean() == pytest.approx(1, abs=1e-3)
    assert light.lamp_rgb.mean() == pytest.approx(1, abs=1e-3)
    assert light.sky.shape[0] == 6


def test_a_picture_of_another_shape_is_no_panorama(tmp_path: Path) -> None:
    path = tmp_path / "square.png"
    cv2.imwrite(str(path), np.zeros((8, 8, 3), np.uint8))
    with pytest.raises(ValueError, match="twice as wide"):
        read_panorama(path)


# --- shards


def test_a_shard_keeps_names_colors_material_and_parts(tmp_path: Path) -> None:
    scene = random_scenes(1, 1)[0]
    described = replace(
        scene.objects[0], kind="mug", color="silver", names=("cup", "dish"),
        colors=("silver", "red"), material="metal", parts=("red handle",),
    )  # fmt: skip
    plain = [replace(o, kind="can", color="red") for o in scene.objects[1:]]
    written = replace(scene, objects=(described, *plain))
    path = shards.shard_path(tmp_path, "train", 0, 0, "table")
    shards.write_shard(path, [written], "table", spec=TABLE, meshes="abc")
    (read,) = shards.read_shard(path, "table")
    assert [replace(o, box=(0, 0, 0, 0)) for o in read.objects] == [
        replace(o, box=(0, 0, 0, 0)) for o in written.objects
    ]
    assert shards.meshes_of(path) == "abc"


def test_a_shard_without_these_words_is_read(tmp_path: Path) -> None:
    path = shards.shard_path(tmp_path, "train", 0, 0)
    shards.write_shard(path, random_scenes(2, 1))
    with np.load(path, allow_pickle=False) as file:
        assert not {"names", "all_colors", "materials", "parts"} & set(file.files)
    for scene in shards.read_shard(path):
        for o in scene.objects:
            assert (o.names, o.colors, o.material, o.parts) == ((), (), "", ())


# --- pictures


PACKAGES = "apt-get install libvulkan1 mesa-vulkan-drivers"
PNG = ("data", "tabletop", "--png", "--scenes", "1", "--world")


@pytest.fixture
def no_vulkan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without Vulkan."""
    find = ctypes.util.find_library
    monkeypatch.setattr(
        "ctypes.util.find_library", lambda name: None if name == "vulkan" else find(name)
    )


@pytest.fixture
def classic() -> Iterator[ClassicRenderer]:
    """OpenGL's renderer; skips where there is none."""
    pytest.importorskip("mujoco")
    try:
        renderer = ClassicRenderer()
    except RuntimeError as error:
        pytest.skip(str(error))
    yield renderer
    renderer.close()


@pytest.mark.usefixtures("no_vulkan", "classic")
def test_without_vulkan_opengl_draws_and_one_warning_names_the_packages(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*PNG, "table", "--assets", str(folder), "--out", str(tmp_path)]) == 0
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("warning: the classic renderer draws")
    assert PACKAGES in line
    check_picture(tmp_path)


@pytest.mark.usefixtures("no_vulkan")
def test_who_asks_for_filament_without_vulkan_is_told_the_packages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*PNG, "table", "--renderer", "filament", "--out", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert PACKAGES in line


def test_another_world_has_no_renderers_to_choose_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*PNG, "rich", "--renderer", "classic", "--out", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "heaps, not rich" in line


def drawn_by(folder: Path, renderer: str, index: int = 0) -> Path:
    """A shard of the world `table` that this renderer is said to have drawn."""
    scene = random_scenes(1, 1)[0]
    named = [replace(o, kind="can", color="red") for o in scene.objects]
    path = shards.shard_path(folder, "train", 0, index, "table")
    scenes = [replace(scene, objects=tuple(named))]
    shards.write_shard(path, scenes, "table", spec=TABLE, renderer=renderer)
    return path


def test_a_shard_says_which_renderer_drew_it(tmp_path: Path) -> None:
    assert shards.renderer_of(drawn_by(tmp_path, "classic")) == "classic"
    assert shards.renderer_of(drawn_by(tmp_path, "")) == "filament", "older than the other one"
    plain = shards.shard_path(tmp_path, "train", 0, 0)
    shards.write_shard(plain, random_scenes(2, 1))
    assert shards.renderer_of(plain) == ""


def test_scenes_of_two_renderers_are_not_mixed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn_by(tmp_path, "classic")
    assert len(list(shards.read_scenes(tmp_path, "train", world="table"))) == 1
    argv = ["data", "tabletop", "--world", "table", "--renderer", "filament", "--scenes", "101"]
    assert cli.main([*argv, "--out", str(tmp_path)]) == 2
    assert "give --renderer classic, or another folder" in capsys.readouterr().err
    drawn_by(tmp_path, "filament", index=1)
    with pytest.raises(ValueError, match="several renderers"):
        list(shards.read_scenes(tmp_path, "train", world="table"))


def test_opengl_shows_the_sky_where_it_is(classic: ClassicRenderer) -> None:
    toward = directions(64)
    cube = classic.cube([(0.4 + 0.3 * toward) ** 2.2], np.zeros((9, 3)))
    speck = classic.mesh(np.eye(4)[:, :3] / 100, np.array([[0, 1, 2], [0, 1, 3], [1, 2, 3]]))
    things = [filament.Thing(speck, filament.Look(), np.array([0, 0, -20.0]), np.eye(3))]
    for back in np.concatenate([np.eye(3), -np.eye(3)]):
        right = np.cross([0.0, 0.0, 1.0] if back[2] == 0 else [0.0, 1.0, 0.0], back)
        rotation = np.stack([right, np.cross(back, right), back], axis=1)
        eye = filament.Eye(np.zeros(3), rotation, 60.0)
        image = classic.picture(things, ImageLight(cube, cube), 1.0, [], 1.0, eye, (9, 9))
        y, x = np.mgrid[0:9, 0:9]
        ray = np.stack([x - 4, 4 - y, np.full_like(x, -4.5 / np.tan(np.pi / 6))], axis=-1)
        ray = (ray / np.linalg.norm(ray, axis=-1, keepdims=True)) @ rotation.T
        assert np.allclose(image / 255, 0.4 + 0.3 * ray, atol=0.02)


def test_opengl_lights_a_table_as_brightly_as_the_panorama_does(classic: ClassicRenderer) -> None:
    sky = light_from(np.full((64, 128, 3), 0.5, np.float32))
    cube = classic.cube([sky.sky], sky.harmonics)
    plate = cuboid(2, 2, 0.02)
    mesh = classic.mesh(plate.vertices, plate.faces)
    things = [filament.Thing(mesh, filament.Look(roughness=1.0), np.zeros(3), np.eye(3), 7)]
    eye = filament.Eye(np.array([0.0, 0.0, 1.0]), np.eye(3), 45.0)
    lamp = filament.Lamp(np.array([0.6, 0.0, 0.8]), np.full(3, 0.25))
    for lamps, wanted in (([], 0.3), ([lamp], 0.3 + 0.8 * 0.25)):
        image = classic.picture(things, ImageLight(cube, cube), 0.3, lamps, 1.0, eye, (32, 32))
        assert np.allclose(image[8:24, 8:24] / 255, wanted ** (1 / 2.2), atol=0.03)


# Filament draws in processes of its own: the renderer of the other worlds, which uses EGL, aborts
# in a process that has used Filament.


@DRAWS
def test_filament_draws_a_box_where_its_corners_project(assets: Assets) -> None:
    draw_a_box_apart(assets, "filament")


@pytest.mark.usefixtures("classic")
def test_opengl_draws_a_box_where_its_corners_project(assets: Assets) -> None:
    draw_a_box_apart(assets, "classic")


def draw_a_box_apart(assets: Assets, name: str) -> None:
    """Run `draw_a_box` in a process of its own."""
    child = multiprocessing.get_context("spawn").Process(target=draw_a_box, args=(assets, name))
    child.start()
    child.join()
    assert child.exitcode == 0, "see the traceback on stderr"


def draw_a_box(assets: Assets, name: str) -> None:
    """Draw a box and compare its mask with where its corners project."""
    mesh = load_object(assets.objects[0])
    assert mesh.texture is not None
    renderer = RENDERERS[name]()
    try:
        sky = light_from(panorama())
        cube = renderer.cube([sky.sky], sky.harmonics)
        light = ImageLight(cube, renderer.cube(sky.levels, sky.harmonics))
        shape = renderer.mesh(mesh.vertices.astype(float), mesh.faces, mesh.uv, mesh.normals)
        look = filament.Look(texture=renderer.texture(mesh.texture))
        box = filament.Thing(shape, look, np.zeros(3), np.eye(3), 7)
        back = np.array([0.8, 0.0, 0.6])
        right = np.array([0.0, 1.0, 0.0])
        rotation = np.stack([right, np.cross(back, right), back], axis=1)
        eye, size = filament.Eye(0.4 * back, rotation, 45.0), (96, 128)
        masks = renderer.numbers([box], light, eye, size)
        lamp = filament.Lamp(np.array([0.6, 0.0, 0.8]), np.full(3, 0.3))
        image = renderer.picture([box], light, 0.6, [lamp], 0.6, eye, size)
    finally:
        renderer.close()
    assert set(np.unique(masks)) == {0, 7}
    assert image.shape == (96, 128, 3)
    red, green, blue = image[masks == 7].mean(axis=0)
    assert green > 1.5 * max(red, blue)
    found = bounding_box(masks == 7)
    assert found is not None
    corners = eye.project(mesh.vertices.astype(float), size) / (128, 96)
    wanted = [*corners.min(axis=0), *corners.max(axis=0)]
    assert np.allclose(found, wanted, atol=1.5 / 96)


@DRAWS
def test_the_command_writes_pictures_whose_boxes_lie_inside(folder: Path, tmp_path: Path) -> None:
    argv = ["data", "tabletop", "--world", "table", "--assets", str(folder), "--png"]
    argv += ["--scenes", "1", "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "clue_ros.cli", *argv], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""  # Filament prints its version and driver
    check_picture(tmp_path)


def check_picture(folder: Path) -> None:
    """Check the only picture of a folder, and the boxes beside it."""
    (path,) = folder.glob("*.png")
    height, width = np.asarray(cv2.imread(str(path))).shape[:2]
    objects = json.loads(path.with_suffix(".json").read_text())["objects"]
    assert len(objects) >= 2
    for o in objects:
        x0, y0, x1, y1 = o["box"]
        assert 0 <= x0 < x1 <= width
        assert 0 <= y0 < y1 <= height
