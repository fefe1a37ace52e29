"""The world that training never had: true to its name, apart from the default one, measurable."""

from __future__ import annotations

import colorsys
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import scene_helpers
from drawn_scenes import draw_scene, random_scenes

from clue_ros import cli
from clue_ros.dialogue.types import AmbiguityEstimate, Box, Grounding
from clue_ros.errors import ClueError
from clue_ros.lab.evaluation.protocol import evaluate
from clue_ros.lab.evaluation.tabletop import GROUPS, load_samples, tabletop_samples
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator import shards
from clue_ros.lab.simulator.physics import open_world
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.simulator.spec import Camera, Range
from clue_ros.lab.simulator.worlds import BLOCKS, NOVEL, world_spec

TOKENIZER = Path(__file__).parents[2] / "models" / "tabletop" / "tokenizer.json"
SEED = 5
CLEAR = AmbiguityEstimate(0.0, 0.5, np.zeros((1, 1), np.float32), (), 0.0)


def draw(count: int) -> list[Scene]:
    """Scenes of the novel world; skips the test where nothing renders."""
    return scene_helpers.draw(lambda: open_world(NOVEL, SEED), count)


@pytest.fixture(scope="module")
def rendered() -> list[Scene]:
    return draw(8)


# --- apart from the default world


def apart(these: list[Range], those: list[Range]) -> bool:
    return all(a[1] < b[0] or b[1] < a[0] for a in these for b in those)


def elevations(camera: Camera) -> list[Range]:
    return [camera.elevation, *([camera.overhead] if camera.overhead else [])]


def test_the_default_worlds_camera_cannot_take_its_pictures() -> None:
    seen, new = BLOCKS.camera, NOVEL.camera
    assert apart(elevations(seen), elevations(new))
    assert apart(list(seen.azimuth), list(new.azimuth))
    assert apart([seen.fovy], [new.fovy])
    assert apart([seen.distance], [new.distance])
    assert not set(seen.shapes) & set(new.shapes)
    assert seen.distance == pytest.approx((0.343, 0.866), abs=0.001)


def test_its_objects_and_tables_are_others() -> None:
    assert len(NOVEL.kinds) >= 8
    assert not set(NOVEL.kinds) & set(BLOCKS.kinds)
    nouns, known = ({n for v in s.nouns.values() for n in v} for s in (NOVEL, BLOCKS))
    assert not nouns & known
    assert len(set(NOVEL.colors) - set(BLOCKS.colors)) >= 4
    for color in BLOCKS.colors:  # a name means one colour, whatever the world
        assert NOVEL.colors[color] == BLOCKS.colors[color]
    assert len(NOVEL.tables) > 1
    assert NOVEL.surfaces.size != BLOCKS.surfaces.size


def test_the_models_tokenizer_has_the_words_of_every_world() -> None:
    words = {w for w in json.loads(TOKENIZER.read_text())["model"]["vocab"] if w.isalpha()}
    assert words == set(vocabulary())
    for spec in (BLOCKS, NOVEL):  # the others need a base of their own (`clue train base --world`)
        assert {n for nouns in spec.nouns.values() for n in nouns} | set(spec.colors) <= words


def test_an_unknown_world_is_named_with_those_there_are() -> None:
    assert world_spec("novel") is NOVEL
    with pytest.raises(ValueError, match=r"'moon'.*blocks, novel"):
        world_spec("moon")


# --- pictures


def test_the_same_seed_gives_the_same_scenes(rendered: list[Scene]) -> None:
    for a, b in zip(draw(2), rendered, strict=False):
        assert np.array_equal(a.image, b.image)
        assert a.objects == b.objects
        assert np.array_equal(a.instances, b.instances)
    assert not any(np.array_equal(a.image, b.image) for a, b in pairwise(rendered))


def test_a_scene_is_what_its_world_says(rendered: list[Scene]) -> None:
    for scene in rendered:
        assert scene.image.shape == (216, 384, 3)
        assert scene.image.dtype == np.uint8
        assert scene.image.std() > 5
        kinds = [o.kind for o in scene.objects]
        assert set(kinds) <= set(NOVEL.kinds)
        assert {o.color for o in scene.objects} <= set(NOVEL.colors)
        assert len(set(kinds)) < len(kinds)
        for k, o in enumerate(scene.objects):
            x0, y0, x1, y1 = o.box
            assert 0 < x0 < x1 < 1
            assert 0 < y0 < y1 < 1
            assert min(x1 - x0, y1 - y0) >= NOVEL.min_side
            assert np.any(scene.instances == k + 1)


def test_objects_show_the_colors_they_are_called_by(rendered: list[Scene]) -> None:
    checked = 0
    for scene in rendered:
        height, width = scene.image.shape[:2]
        masks = cv2.resize(scene.instances, (width, height), interpolation=cv2.INTER_NEAREST)
        for k, o in enumerate(scene.objects):
            red, green, blue = np.median(scene.image[masks == k + 1], axis=0) / 255
            hue, saturation, value = colorsys.rgb_to_hsv(red, green, blue)
            (low, high), (least, _), _ = NOVEL.colors[o.color]
            if o.color == "black":
                assert value < 0.3, o
            elif least > 0.5 and o.kind not in ("fork", "spoon"):  # these are thin and shine
                off = min(abs(hue + turn - (low + high) / 2) for turn in (-1, 0, 1))
                assert off < (high - low) / 2 + 0.06, (o, hue)
                assert saturation > 0.25, o
                checked += 1
    assert checked > 5


# --- on disk


@pytest.fixture
def novel_scenes() -> list[Scene]:
    """Flat pictures with the novel world's names."""
    return [
        draw_scene(64, [("mug", "pink", (4, 4, 20, 20)), ("fork", "gray", (40, 40, 60, 50))]),
        draw_scene(64, [("apple", "red", (4, 4, 20, 20)), ("apple", "green", (40, 4, 60, 20))]),
    ]


def test_worlds_share_a_folder_and_are_not_mixed_up(
    tmp_path: Path, novel_scenes: list[Scene]
) -> None:
    theirs = shards.shard_path(tmp_path, "test", 0, 0, "novel")
    ours = shards.shard_path(tmp_path, "test", 0, 0)
    shards.write_shard(theirs, novel_scenes, "novel")
    shards.write_shard(ours, random_scenes(3, 0))
    assert (theirs.name, ours.name) == ("novel-test-0-0000.npz", "test-0-0000.npz")
    assert shards.shard_seed("test", 0, 0, "novel") != shards.shard_seed("test", 0, 0)
    read = list(shards.read_scenes(tmp_path, "test", world="novel"))
    assert [[(o.kind, o.color) for o in s.objects] for s in read] == [
        [(o.kind, o.color) for o in s.objects] for s in novel_scenes
    ]
    assert len(list(shards.read_scenes(tmp_path, "test"))) == 3
    with np.load(ours) as file:
        assert "world" not in file.files, "a shard of the default world is what it always was"


def test_a_renamed_shard_is_found_out(tmp_path: Path, novel_scenes: list[Scene]) -> None:
    path = shards.shard_path(tmp_path, "train", 0, 0)  # as if it were for training
    shards.write_shard(path, novel_scenes, "novel")
    assert len(list(shards.read_shard(path))) == 2
    with pytest.raises(ValueError, match=r"train-0-0000.*'novel', not 'blocks'"):
        list(shards.read_scenes(tmp_path, "train"))
    with pytest.raises(ClueError, match="train-0-0000"):
        load_samples(tmp_path, split="train")


def test_a_missing_world_is_said_with_the_command_that_makes_it(tmp_path: Path) -> None:
    wanted = r"world 'novel'.*clue data tabletop --world novel .*--split test --scenes 7"
    with pytest.raises(ClueError, match=wanted):
        load_samples(tmp_path, world="novel", scenes=7)
    with pytest.raises(FileNotFoundError, match="--world novel"):
        list(shards.read_scenes(tmp_path, "test", world="novel"))


def test_the_command_draws_the_world_and_its_contact_sheet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw(1)  # skips where nothing renders
    sheet = tmp_path / "sheets" / "novel.png"
    monkeypatch.setattr("clue_ros.lab.simulator.command.SCENES", 3)
    command = ["data", "tabletop", "--world", "novel", "--out", str(tmp_path)]
    assert cli.main([*command, "--contact-sheet", str(sheet)]) == 0
    image = cv2.imread(str(sheet))
    assert image is not None
    assert image.shape[1] == 960
    assert sheet.stat().st_size < 400_000
    assert cli.main([*command, "--png", "--split", "test", "--scenes", "1"]) == 0
    truth = json.loads((tmp_path / "novel-test-0-0000.json").read_text())["objects"]
    assert {o["kind"] for o in truth} <= set(NOVEL.kinds)


# --- requests about it


def test_requests_name_what_training_knew_and_what_it_did_not() -> None:
    rng = np.random.default_rng(4)
    scenes = []
    for _ in range(60):
        kinds = rng.choice(NOVEL.kinds, 2)
        spots = [(4, 4, 20, 20), (40, 6, 60, 22), (6, 40, 20, 60), (40, 40, 60, 60)]
        scenes.append(
            draw_scene(
                64,
                [
                    (str(rng.choice(kinds)), str(rng.choice(["red", "pink", "blue"])), box)
                    for box in spots[: int(rng.integers(2, 5))]
                ],
            )
        )
    samples = tabletop_samples(scenes)
    texts = [r.text for s in samples for r in s.clear] + [t for s in samples for t in s.ambiguous]
    said = [sample.about(text) for sample in samples for text in sample.ambiguous]
    assert all(set(row) == {"names", "unseen"} for row in said)
    unseen = [bool(samples[0].about(text)["unseen"]) for text in texts]
    assert 0.2 < np.mean(unseen) < 0.95
    words = {w for text in texts for w in text.split()}
    assert words & {"mug", "cup", "plate", "fork"}
    assert words & {"object", "thing", "item"}
    assert {w for w in words if w.isalpha()} <= set(vocabulary())


def test_the_breakdown_counts_every_record_once() -> None:
    class Pointing:
        """Points at the upper left corner, whatever is said, and never asks."""

        policy = "decoder"

        def look(self, image: Any) -> Any:
            return image

        def ambiguity(self, view: Any, expression: Any) -> Any:
            raise AssertionError("the decoder decides")

        def reply(self, view: Any, dialogue: Any, *, force_grounding: bool = False) -> Grounding:
            return Grounding(Box(4, 4, 20, 20), "it", 1.0, CLEAR)

    scene = draw_scene(
        64,
        [("mug", "red", (4, 4, 20, 20)), ("mug", "pink", (40, 4, 60, 20)),
         ("fork", "red", (4, 40, 20, 60))],
    )  # fmt: skip
    report = evaluate(Pointing(), tabletop_samples([scene] * 40, per_image=3))
    parts = [report.part(belongs) for belongs in GROUPS.values()]
    assert all(part.records for part in parts)
    for name in ("records", "clear", "pointed", "decisions", "interactive", "questions"):
        assert sum(len(getattr(p, name)) for p in parts) == len(getattr(report, name))
    for name in ("clear", "pointed", "interactive"):
        right = [sum(row["accuracy"] for row in getattr(r, name)) for r in (*parts, report)]
        assert right[0] + right[1] == right[2]
    summary = parts[0].summary()
    assert summary["clear"]["n"] == len(parts[0].clear)
    assert summary["ambiguity"]["n"] == len(parts[0].decisions)
