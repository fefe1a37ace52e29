"""Scanned objects: the layouts that are read, what is refused, what people call them."""

from __future__ import annotations

import json
import os
import re
import warnings
import zipfile
from pathlib import Path

import cv2
import numpy as np
import pytest

from clue_ros.cli import main
from clue_ros.dialogue.object_names import KIND_NAMES
from clue_ros.errors import ClueError, ClueWarning
from clue_ros.lab.simulator.object_catalogue import COLORS, OBJECTS
from clue_ros.lab.simulator.scanned_objects import ScannedObject, find_objects, load_object
from clue_ros.lab.simulator.textured_meshes import surface_colors

# A box of 4 x 6 x 10 cm, z up, with texture coordinates; the texture's upper half is red, the lower
# one blue; all coordinates lie in the upper half.
CORNERS = [(x, y, z) for x in (0.1, 0.14) for y in (0.2, 0.26) for z in (0.3, 0.4)]
QUADS = [(1, 2, 4, 3), (5, 7, 8, 6), (1, 5, 6, 2), (3, 4, 8, 7), (1, 3, 7, 5), (2, 6, 8, 4)]


def box(scale: float = 1.0, material: str = "", v: float = 0.9) -> str:
    lines = [f"mtllib {material}", "usemtl paint"] if material else []
    lines += [f"v {x * scale} {y * scale} {z * scale}" for x, y, z in CORNERS]
    lines += [f"vt 0.1 {v}", f"vt 0.9 {v}", f"vt 0.9 {v - 0.1}", f"vt 0.1 {v - 0.1}"]
    for quad in QUADS:
        a, b, c, d = (f"{corner}/{k + 1}" for k, corner in enumerate(quad))
        lines += [f"f {a} {b} {c}", f"f {a} {c} {d}"]
    return "\n".join(lines) + "\n"


def picture() -> bytes:
    rgb = np.zeros((16, 16, 3), np.uint8)
    rgb[:8], rgb[8:] = (220, 10, 10), (10, 10, 220)
    return cv2.imencode(".png", rgb[..., ::-1])[1].tobytes()


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def ycb(root: Path, own: str = "025_mug", variant: str = "") -> Path:
    folder = root / own / variant
    write(folder / "texture_map.png", picture())
    return write(folder / "textured.obj", box())


def sh3f(path: Path, model: str = "/a/cup.obj", more: str = "", **files: str | bytes) -> Path:
    catalogue = (
        "license=CC0\nid#1=Me#cup\nname#1=Tin cup\ncreator#1=Ann\n"
        f"model#1={model}\nwidth#1=8\ndepth#1=12\nheight#1=10\n{more}"
    )
    material = "newmtl paint\nKd 0 1 0\nnewmtl other\nKd 0.9 0.1 0.1\n"
    flat = "usemtl other\nv 0 0 0\nv .1 0 0\nv 0 .1 0\nf 9 10 11\n"
    members: dict[str, str | bytes] = {
        "PluginFurnitureCatalog.properties": catalogue,
        "a/cup.obj": box(material="cup.mtl") + flat,
        "a/cup.mtl": material,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in (members | files).items():
            archive.writestr(name, content)
    return path


def only(folder: Path) -> ScannedObject:
    (found,) = find_objects([folder])
    return found


@pytest.mark.parametrize("variant", ["", "google_16k"])
def test_ycb_is_read_in_both_published_layouts(tmp_path: Path, variant: str) -> None:
    ycb(tmp_path, variant=variant)
    found = only(tmp_path)
    assert (found.name, found.source, found.kind) == ("ycb/025_mug", "ycb", "mug")
    assert "cup" in found.names
    assert "mug" not in found.names
    assert (found.colors, found.license) == (("red",), "CC BY 4.0")


def test_one_variant_of_an_object_is_enough(tmp_path: Path) -> None:
    ycb(tmp_path, variant="tsdf")
    ycb(tmp_path, variant="google_16k")
    assert only(tmp_path).model.parent.name == "google_16k"


@pytest.mark.parametrize(
    ("model", "texture"),
    [("model.obj", "texture.png"), ("meshes/model.obj", "materials/textures/texture.png")],
)
def test_google_scanned_objects_are_read_in_both_layouts(
    tmp_path: Path, model: str, texture: str
) -> None:
    folder = tmp_path / "Room_Essentials_Mug_White_Yellow"
    write(folder / model, box())
    write(folder / texture, picture())
    found = only(tmp_path)
    assert (found.source, found.kind, found.material) == ("gso", "mug", "ceramic")
    assert load_object(found).texture is not None


def test_a_mesh_stands_centred_in_metres_with_mujocos_coordinates(tmp_path: Path) -> None:
    ycb(tmp_path)
    mesh = load_object(only(tmp_path))
    low, high = mesh.vertices.min(axis=0), mesh.vertices.max(axis=0)
    np.testing.assert_allclose(low, (-0.02, -0.03, 0), atol=1e-6)
    np.testing.assert_allclose(high, (0.02, 0.03, 0.1), atol=1e-6)
    assert mesh.faces.shape == (12, 3)
    assert mesh.faces.max() < len(mesh.vertices) == len(mesh.uv) == len(mesh.normals)
    assert mesh.uv[:, 1].max() < 0.25, "an OBJ's upper v is a texture's first row"
    np.testing.assert_allclose(np.linalg.norm(mesh.normals, axis=1), 1, atol=1e-5)
    outward = (mesh.normals * (mesh.vertices - (0, 0, 0.05))).sum(axis=1)
    assert outward.min() > 0
    assert surface_colors(mesh) == ("red",)


def test_a_folder_of_ones_own_names_kinds_and_colours_are_measured(tmp_path: Path) -> None:
    write(tmp_path / "tin_can" / "a.obj", box(100, "a.mtl", v=0.4))
    write(tmp_path / "tin_can" / "a.mtl", "newmtl paint\nmap_Kd skin.png\n")
    write(tmp_path / "tin_can" / "skin.png", picture())
    found = only(tmp_path)
    assert (found.source, found.kind, found.colors) == ("folder", "tin can", ("blue",))
    assert load_object(found).size == pytest.approx((0.04, 0.06, 0.1)), "it was in centimetres"


def test_materials_of_a_folder_stay_in_it(tmp_path: Path) -> None:
    write(tmp_path / "secret.png", picture())
    write(tmp_path / "mine" / "a.obj", box(1, "a.mtl"))
    write(tmp_path / "mine" / "a.mtl", "newmtl paint\nmap_Kd ../secret.png\n")
    mesh = load_object(only(tmp_path / "mine"))
    assert mesh.texture is None


def test_a_catalogue_of_sweet_home_3d_gives_sizes_and_authors(tmp_path: Path) -> None:
    found = only(sh3f(tmp_path / "mine.sh3f"))
    assert (found.name, found.kind, found.author) == ("sh3f/mine/cup", "tin cup", "Ann")
    assert (found.license, found.member) == ("CC0", "a/cup.obj")
    mesh = load_object(found)
    assert mesh.size == pytest.approx((0.08, 0.12, 0.10), rel=1e-4)
    assert mesh.texture is not None, "two materials share one texture"
    assert found.colors[0] == "green"


@pytest.mark.parametrize(
    ("more", "model", "reason"),
    [
        ("", "/../a/cup.obj", "not in the file"),
        ("", "/a/none.obj", "not in the file"),
        ("", "/a/cup.mtl", "is no OBJ"),
        ("height#1=tall\n", "/a/cup.obj", "no number"),
        ("modelRotation#1=1 0 0\n", "/a/cup.obj", "nine numbers"),
    ],
)
def test_a_broken_entry_of_a_catalogue_is_named(
    tmp_path: Path, more: str, model: str, reason: str
) -> None:
    path = sh3f(tmp_path / "mine.sh3f", model, more)
    with pytest.warns(ClueWarning, match=reason):
        assert find_objects([path]) == []


def test_furniture_of_a_catalogue_is_left_out(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert find_objects([sh3f(tmp_path / "a.sh3f", more="height#1=90\n")]) == []
        assert find_objects([sh3f(tmp_path / "b.sh3f", more="movable#1=false\n")]) == []


def test_broken_files_are_named_and_the_others_found(tmp_path: Path) -> None:
    ycb(tmp_path, "a_mug")
    write(tmp_path / "empty" / "textured.obj", "")
    write(tmp_path / "untextured" / "textured.obj", box())
    write(tmp_path / "none.sh3f", "no zip")
    with pytest.warns(ClueWarning) as caught:
        found = find_objects([tmp_path])
    assert [o.name for o in found] == ["ycb/a_mug"]
    told = " ".join(str(w.message) for w in caught)
    assert all(name in told for name in ("empty", "untextured", "none.sh3f"))
    with pytest.raises(ClueError, match="no folder of objects"):
        find_objects([tmp_path / "nowhere"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (box(30), "longest side"),
        (box().replace("f 1/1 2/2 4/3", "f 1/1 2/2 99/3"), "no whole"),
        (box().replace("v 0.1 0.2 0.3\n", "v nan 0.2 0.3\n"), "no finite"),
        (re.sub(r"/\d|vt.*\n", "", box()), "no texture coordinates"),
    ],
)
def test_a_mesh_that_cannot_be_used_says_why(tmp_path: Path, content: str, reason: str) -> None:
    ycb(tmp_path).write_text(content)
    with pytest.raises(ClueError, match=reason) as raised:
        load_object(only(tmp_path))
    assert "textured.obj" in str(raised.value)


def test_the_same_folders_give_the_same_objects(tmp_path: Path) -> None:
    for own in ("025_mug", "024_bowl", "011_banana"):
        ycb(tmp_path, own)
    found = find_objects([tmp_path])
    assert found == find_objects([tmp_path])
    assert [o.name for o in found] == sorted(o.name for o in found)
    with pytest.warns(ClueWarning, match="is also"):
        assert find_objects([tmp_path, tmp_path]) == found


def test_the_command_lists_objects_and_what_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ycb(tmp_path)
    ycb(tmp_path, "024_bowl").write_text(box(30))
    assert main(["data", "objects", str(tmp_path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "mug" in shown[1]
    assert "4.0 x 6.0 x 10.0" in shown[1]
    assert "024_bowl" in shown[-1]
    assert main(["data", "objects", str(tmp_path), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [o["kind"] for o in listed["objects"]] == ["mug"]
    assert len(listed["broken"]) == 1


def test_the_catalogue_uses_its_own_words() -> None:
    for name, entry in OBJECTS.items():
        assert not entry.kind or entry.kind in KIND_NAMES, name
        assert 1 <= len(entry.colors) <= 2, name
        assert set(entry.colors) <= set(COLORS), name
    for kind, names in KIND_NAMES.items():
        assert kind not in names
        assert len(set(names)) == len(names), kind
    assert len(KIND_NAMES) >= 60
    assert "can" in KIND_NAMES["soup can"]
    assert "bottle" in KIND_NAMES["mustard bottle"]
    assert "box" in KIND_NAMES["cracker box"]
    assert "ball" in KIND_NAMES["tennis ball"]


@pytest.mark.skipif("CLUE_OBJECTS" not in os.environ, reason="CLUE_OBJECTS names no folder")
def test_the_collections_are_known_and_whole() -> None:
    found = find_objects([Path(os.environ["CLUE_OBJECTS"])])
    assert found
    for o in found[::8]:
        mesh = load_object(o)
        assert 0.01 < max(mesh.size) < 0.5, o.name
        assert mesh.texture is not None
    named = [o for o in found if o.source in ("ycb", "gso") and o.kind]
    assert len({o.kind for o in named}) >= 60
