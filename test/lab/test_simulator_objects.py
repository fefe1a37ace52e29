"""Objects of the simulator: generated and user meshes, where they are placed, textures."""

from __future__ import annotations

import colorsys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trimesh

from clue_ros.errors import ClueError
from clue_ros.lab.simulator import meshes, textures
from clue_ros.lab.simulator.meshes import Mesh, Shape
from clue_ros.lab.simulator.objects import (
    FallingObjects,
    segment_distance,
    turned,
)
from clue_ros.lab.simulator.spec import PlacedObject, Settling
from clue_ros.lab.simulator.user_meshes import kind_name, read_meshes
from clue_ros.lab.simulator.worlds import BLOCKS, RICH, with_meshes


def volume(mesh: Mesh) -> float:
    """Signed volume; positive where all faces look outwards."""
    a, b, c = (mesh.vertices[mesh.faces[:, i]] for i in range(3))
    return float(np.einsum("ij,ij->i", a, np.cross(b, c)).sum() / 6)


def edges(mesh: Mesh) -> list[tuple[int, int]]:
    return [(int(f[i]), int(f[(i + 1) % 3])) for f in mesh.faces for i in range(3)]


@pytest.mark.parametrize("kind", RICH.kinds)  # the other worlds' meshes are among these
def test_every_shape_is_closed_rests_on_the_table_and_keeps_to_its_footprint(kind: str) -> None:
    rng = np.random.default_rng(0)
    for _ in range(6):
        made = RICH.objects[kind].build(rng)
        points = made.points
        assert points[:, 2].min() == pytest.approx(0, abs=0.004)
        assert 0.01 < points[:, 2].max() < 0.21
        assert 0.04 < made.extent < 0.27
        beside = np.hypot(np.maximum(np.abs(points[:, 0]) - made.half_length, 0), points[:, 1])
        assert beside.max() <= made.radius + 1e-9
        assert any(p.accent is None for p in made.parts)
        for part in made.parts:
            assert volume(part.mesh) > 0, "a face looks inwards"
            once = edges(part.mesh)
            assert len(set(once)) == len(once)
            assert {(b, a) for a, b in once} == set(once), "there is a hole"


def test_a_mug_and_a_bowl_are_hollow() -> None:
    rng = np.random.default_rng(1)
    for build in (meshes.mug, meshes.bowl):
        vertices = build(rng).parts[0].mesh.vertices
        middle = vertices[np.hypot(vertices[:, 0], vertices[:, 1]) < 1e-6]
        assert middle[:, 2].max() < 0.2 * vertices[:, 2].max(), "the inside's floor is low"


def test_the_distance_of_two_segments() -> None:
    def of(*numbers: float) -> Any:
        return np.array(numbers).reshape(2, 2)

    flat = of(0, 0, 2, 0)
    assert segment_distance(flat, of(1, -1, 1, 1)) == 0
    assert segment_distance(flat, of(0, 1, 2, 1)) == 1
    assert segment_distance(flat, of(3, 0, 5, 0)) == 1
    assert segment_distance(flat, of(1, 0.5, 1, 3)) == 0.5
    point = of(5, 4, 5, 4)
    assert segment_distance(flat, point) == segment_distance(point, flat) == 5


UPRIGHT = {
    kind: how
    for kind, how in RICH.objects.items()
    if kind not in FallingObjects.FLAT_TOPS | FallingObjects.CAN_LIE
}
SIDE_BY_SIDE = Settling(kinds=len(UPRIGHT), piled=0.0)


@pytest.fixture(scope="module")
def arranged() -> tuple[FallingObjects, list[list[PlacedObject]]]:
    """The objects of a model and a few hundred arrangements of them, side by side."""
    rng = np.random.default_rng(2)
    library = FallingObjects(replace(RICH, objects=UPRIGHT, settling=SIDE_BY_SIDE))
    library.xml(rng)
    return library, [library.place(rng) for _ in range(300)]


def along_x(o: PlacedObject) -> Any:
    """The direction of an object's x axis on the table, (2,)."""
    yaw = 2 * np.arctan2(o.quaternion[3], o.quaternion[0])
    return np.array([np.cos(yaw), np.sin(yaw)])


def world_points(made: Shape, o: PlacedObject) -> Any:
    """An object's vertices seen from above, in the table's frame: (V, 2)."""
    c, s = along_x(o)
    return made.points[:, :2] @ np.array([[c, s], [-s, c]]) + o.position[:2]


def test_no_two_objects_touch(arranged: tuple[FallingObjects, list[list[PlacedObject]]]) -> None:
    library, tables = arranged
    for placed in tables[:80]:
        for o in placed:
            made = library.shapes[o.body]
            along = made.half_length * along_x(o)
            for other in placed:
                if other is o:
                    continue
                # every vertex of another object is off this one's footprint
                points = world_points(library.shapes[other.body], other) - o.position[:2]
                share = np.clip(points @ along / max(float(along @ along), 1e-12), -1, 1)
                off = np.linalg.norm(points - share[:, None] * along, axis=1)
                assert off.min() >= made.radius + FallingObjects.GAP[0] - 1e-9


def test_every_table_has_look_alikes(
    arranged: tuple[FallingObjects, list[list[PlacedObject]]],
) -> None:
    _, tables = arranged
    for placed in tables:
        kinds = [o.kind for o in placed]
        assert 2 <= len(placed) <= SIDE_BY_SIDE.objects[1]
        assert len(set(kinds)) < len(kinds)
        assert len({o.body for o in placed}) == len(placed)
        assert all(kinds.count(k) <= SIDE_BY_SIDE.variants for k in kinds)
    everything = [o for placed in tables for o in placed]
    assert {o.kind for o in everything} == set(UPRIGHT)
    assert {o.color for o in everything} == set(RICH.colors)


def test_a_kind_has_the_colors_it_comes_in(
    arranged: tuple[FallingObjects, list[list[PlacedObject]]],
) -> None:
    for o in (o for placed in arranged[1] for o in placed):
        own = RICH.objects[o.kind].colors
        assert own is None or o.color in own
        (h0, h1), (s0, s1), (v0, v1) = RICH.colors[o.color]
        hue, saturation, value = colorsys.rgb_to_hsv(*o.rgb)
        assert s0 - 1e-6 <= saturation <= s1 + 1e-6
        assert v0 - 1e-6 <= value <= v1 + 1e-6
        if s0 > 0.2:
            assert (
                min(abs(hue + turn - (h0 + h1) / 2) for turn in (-1, 0, 1)) <= (h1 - h0) / 2 + 1e-6
            )


@pytest.mark.parametrize("name", ["wood", "checks", "marble", "dots", "bands", "tiles"])
def test_textures(name: str) -> None:
    make = getattr(textures, name)
    first, again, other = (make(np.random.default_rng(seed), 64) for seed in (0, 0, 1))
    assert first.shape == (64, 64, 3)
    assert first.dtype == np.uint8
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert first.std(axis=(0, 1)).max() > 8, "it has a pattern"


def test_a_cloth_lies_on_the_middle_of_a_table() -> None:
    under = np.full((64, 64, 3), 200, np.uint8)
    cloth = np.full((64, 64, 3), (10, 90, 10), np.uint8)
    out = textures.laid(np.random.default_rng(0), under, cloth)
    assert out[32, 32].tolist() == [10, 90, 10]
    assert out[0, 0].tolist() == out[-1, -1].tolist() == [200, 200, 200]
    assert 0.2 < (out[..., 0] == 10).mean() < 0.55


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


def test_every_pile_has_look_alikes() -> None:
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
