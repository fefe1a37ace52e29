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

from demo.scenes import EXPECTATIONS, SCENES, Played, SceneError, read_scenes  # noqa: E402


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


def test_a_persons_own_picture_is_grounded_and_drawn(tmp_path: Path) -> None:
    image = tmp_path / "mine.png"
    cv2.imwrite(str(image), picture())
    points = model(tmp_path / "points", threshold=1.0)
    out = tmp_path / "out"
    arguments = ["--image", str(image), "--say", "pick up the block", "--out", str(out)]
    done = demo(*arguments, "--model", str(points))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "person: pick up the block" in done.stdout
    assert "box:" in done.stdout
    (drawn,) = out.glob("scene_*.png")
    pixels = cv2.imread(str(drawn))
    assert pixels is not None
    assert pixels.shape[1] >= 640


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


def test_the_scenes_that_come_with_clue_ros_can_be_played() -> None:
    scenes = read_scenes(SCENES)
    assert len(scenes) >= 3
    assert {"question", "questions", "asked"} & {scene.expects for scene in scenes}
