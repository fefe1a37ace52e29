"""The demo as a person runs it.

Real processes, one picture a scene, and an exit status that means something.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cv2
import pytest
import ros_helpers
import yaml
from ros_helpers import ROOT, isolate, picture

ros_helpers.need_ros()

from clue_ros.dialogue.types import Box  # noqa: E402
from clue_ros.images import image_size  # noqa: E402
from demo.play import choose_scenes, parse  # noqa: E402
from demo.scenes import (  # noqa: E402
    EXPECTATIONS,
    SCENES,
    DemoScene,
    Played,
    SceneError,
    read_scenes,
)


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo to its end, on the domain of this test process."""
    command = [sys.executable, "-m", "demo.play", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=ROOT, env=isolate()
    )


def model(folder: Path, threshold: float) -> Path:
    from tiny_model import write_random_model

    return write_random_model(folder, threshold=threshold)


def test_a_model_that_always_asks_plays_and_failed_expectations_show_in_the_exit_status(
    tmp_path: Path,
) -> None:
    cv2.imwrite(str(tmp_path / "table.png"), picture())
    first = {"image": "table.png", "say": "pick up the block", "answers": ["the left one"]}
    scenes = [
        {**first, "expects": "asked"},
        {"image": "table.png", "say": "pick up the ball", "expects": "grounding"},
    ]
    (tmp_path / "scenes.yaml").write_text(yaml.safe_dump(scenes))
    out = tmp_path / "out"
    asks = model(tmp_path / "asks", threshold=0.0)
    done = demo("--scenes", str(tmp_path / "scenes.yaml"), "--out", str(out), "--model", str(asks))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "scene 2 should end in a grounding, but did not" in done.stderr
    assert "scene 1 should" not in done.stderr
    assert "person: the left one" in done.stdout
    assert done.stdout.count("robot:") == 3  # two questions, then one
    assert len(list(out.glob("scene_*.png"))) == 2


def test_a_wrong_reply_is_printed_and_counted_and_leaves_the_exit_status(tmp_path: Path) -> None:
    cv2.imwrite(str(tmp_path / "table.png"), picture())
    table = {"image": "table.png", "say": "pick up the block"}
    scenes = [
        {**table, "truth": "absent"},
        {**table, "truth": "ambiguous"},
        table,
        {**table, "truth": "clear", "box": [600, 440, 601, 441]},
    ]
    (tmp_path / "scenes.yaml").write_text(yaml.safe_dump(scenes))
    points = model(tmp_path / "points", threshold=1.0)
    arguments = ["--scenes", str(tmp_path / "scenes.yaml"), "--out", str(tmp_path / "out")]
    done = demo(*arguments, "--model", str(points))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "  wrong: it points, but there is no such object\n" in done.stdout
    assert "  wrong: it points, but several objects fit\n" in done.stdout
    assert "  wrong: its box is not on the object (IoU 0.0" in done.stdout
    assert "  right\n" not in done.stdout
    assert "right: 0 of the 3 scenes with a truth; wrong: 1, 2, 4 (" in done.stdout
    assert "person: pick up the block" in done.stdout
    assert "box:" in done.stdout
    drawn = [cv2.imread(str(path)) for path in (tmp_path / "out").glob("scene_*.png")]
    assert len(drawn) == 4
    assert all(pixels is not None and pixels.shape[1] >= 640 for pixels in drawn)


def test_a_persons_own_picture_is_the_only_scene(tmp_path: Path) -> None:
    image = tmp_path / "mine.png"
    cv2.imwrite(str(image), picture())
    words = ["--image", str(image), "--say", "pick up the block", "--answer", "the left one"]
    assert choose_scenes(parse(words)) == [DemoScene(image, "pick up the block", ("the left one",))]


def test_what_cannot_begin_is_one_line_and_exit_2(tmp_path: Path) -> None:
    missing = demo("--image", str(tmp_path / "none.png"), "--say", "pick up the block")
    assert missing.returncode == 2
    assert "none.png" in missing.stderr
    assert "Traceback" not in missing.stderr
    image = tmp_path / "mine.png"
    cv2.imwrite(str(image), picture())
    unwritable = demo("--image", str(image), "--say", "go", "--out", str(image / "out"))
    assert unwritable.returncode == 2
    assert str(image / "out") in unwritable.stderr
    assert "Traceback" not in unwritable.stderr


def test_a_model_that_cannot_be_loaded_ends_the_demo_with_the_reason(tmp_path: Path) -> None:
    image = tmp_path / "mine.png"
    cv2.imwrite(str(image), picture())
    out = ("--out", str(tmp_path / "out"))
    done = demo("--image", str(image), "--say", "go", "--model", str(tmp_path / "no"), *out)
    assert done.returncode == 1
    assert str(tmp_path / "no") in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- 3", "expected image, say"),
        ("image: a", "expected a list"),
        ("[", "scenes.yaml"),
        ("- {image: a.png, say: x}", "does not exist"),
        ("- {image: a.png, say: x, answer: y}", "unknown key 'answer'"),
        ("- {image: a.png, say: yes}", "must be text"),
        ("- {image: a.png, say: x, expects: magic}", "expects must be"),
        ("- {image: scenes.yaml, say: x, truth: magic}", "truth must be"),
        ("- {image: scenes.yaml, say: x, box: [0, 0, 1, 1]}", "truth must be"),
        ("- {image: scenes.yaml, say: x, truth: clear}", "needs the box"),
        ("- {image: scenes.yaml, say: x, truth: clear, box: [0, 0, 1]}", "box must be"),
        ("- {image: scenes.yaml, say: x, truth: clear, box: [2, 0, 1, 1]}", "no area"),
        ("- {image: scenes.yaml, say: x, truth: ambiguous, answers: [y]}", "or neither"),
        ("- {image: scenes.yaml, say: x, truth: absent, box: [0, 0, 1, 1]}", "or neither"),
    ],
)
def test_a_scenes_file_that_is_wrong_says_where(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "scenes.yaml"
    path.write_text(text)
    with pytest.raises(SceneError, match=words):
        read_scenes(path)


def test_expectations_are_about_form() -> None:
    pointed, asked = Played((), True, "I see it."), Played(("which?",), True, "I see it.")
    gave_up = Played(("which?",), False, "I still do not know.")
    met = {
        name: [rule(p) for p in (pointed, asked, gave_up)]
        for name, (_, rule) in EXPECTATIONS.items()
    }
    assert met["grounding"] == [True, True, False]
    assert met["clear"] == [True, False, False]
    assert met["question"] == [False, True, False]
    assert met["questions"] == [False, False, False]
    assert met["asked"] == [False, True, True]
    assert met["any"] == [True, True, True]


NEAR, FAR = Box(11, 10, 50, 50), Box(60, 60, 90, 90)
NOT_KNOWN_BUT = "I don't know what a stapler is. I see a mug and a pen. Which one is it?"
NOT_KNOWN = "I don't know what a stapler is. Say its colour, or where it is."


@pytest.mark.parametrize(
    ("truth", "questions", "box", "mistake"),
    [
        ("clear", (), NEAR, ""),
        ("clear", (), FAR, "not on the object"),
        ("clear", ("the red one?",), NEAR, "it asks, but one object fits"),
        ("clear", (NOT_KNOWN,), None, "it says"),
        ("ambiguous", (NOT_KNOWN_BUT,), None, "it says"),
        ("ambiguous", ("the red one or the blue one?",), NEAR, ""),
        ("ambiguous", ("the red one or the blue one?",), FAR, "not on the object"),
        ("ambiguous", ("the red one or the blue one?",), None, "does not point"),
        ("ambiguous", (NOT_KNOWN,), NEAR, "it says"),
        ("ambiguous", (), NEAR, "it points, but several objects fit"),
        ("absent", ("I don't see a mug.",), NEAR, ""),
        ("absent", ("which mug?",), NEAR, "it asks, but there is no such object"),
        ("absent", (), NEAR, "it points, but there is no such object"),
    ],
)
def test_a_scene_is_compared_with_the_truth_about_its_picture(
    truth: str, questions: tuple[str, ...], box: Box | None, mistake: str
) -> None:
    scene = DemoScene(Path("table.png"), "pick it up", truth=truth, box=Box(10, 10, 50, 50))
    found = scene.mistake(Played(questions, box is not None, "I see it.", box))
    assert (mistake in found) if mistake else not found


def test_an_object_that_is_not_there_needs_no_answer() -> None:
    scene = DemoScene(Path("table.png"), "pick up the bowl", truth="absent")
    assert scene.mistake(Played(("I don't see a bowl.",), False, "")) == ""
    assert scene.mistake(Played((), False, "I don't see a bowl.")) == ""
    assert "says" in scene.mistake(Played((), False, "I am busy."))


def test_the_scenes_that_come_with_clue_ros_can_be_played() -> None:
    scenes = read_scenes(SCENES)
    assert len(scenes) >= 3
    assert {"question", "questions", "asked"} & {scene.expects for scene in scenes}


def test_the_photographs_have_a_truth_of_each_sort_and_boxes_inside() -> None:
    photographs = [scene for scene in read_scenes(SCENES) if scene.truth]
    assert {scene.truth for scene in photographs} == {"clear", "ambiguous", "absent"}
    for scene in photographs:
        assert scene.image.suffix == ".jpg"
        assert scene.image.stat().st_size < 200_000
        width, height = image_size(scene.image, scene.image.name)
        if scene.box is not None:
            assert scene.box.x_min >= 0 <= scene.box.y_min
            assert scene.box.x_max <= width
            assert scene.box.y_max <= height
