"""The perception node keeps its dialogues: over DDS, killed in the middle, and learned from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ros_helpers

ros_helpers.need_ros()

from ros_fixtures import LONG, REQUEST, asking_goal  # noqa: E402
from ros_helpers import Client, Process, wait_until  # noqa: E402

from clue_ros.dialogue.episodes import episode_files  # noqa: E402
from clue_ros.lab.data.episodes import load_episodes  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("robot") / "episodes"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, model: Path, folder: Path) -> Iterator[Process]:
    process = Process(
        "perception",
        tmp_path_factory.mktemp("log") / "perception.log",
        parameters={"model": model, "answer_timeout": LONG, "record": folder},
    )
    yield process
    process.stop()


def kept(folder: Path) -> list[dict[str, Any]]:
    """Return what is on disk of each dialogue, in order."""
    return [json.loads(path.read_text())[0]["clue"] for path in episode_files(folder)]


def outcomes(folder: Path) -> list[str]:
    return [row["outcome"] for row in kept(folder)]


def test_a_dialogue_is_kept_as_it_happens_and_as_it_ended(client: Client, folder: Path) -> None:
    handle, question = asking_goal(client)
    wait_until(lambda: kept(folder) and len(kept(folder)[0]["turns"]) == 2, "the question on disk")
    assert outcomes(folder) == ["OPEN"]
    client.set(threshold=1.0)
    assert client.answer("the red one").accepted
    result = client.result(handle).result
    wait_until(lambda: outcomes(folder) == ["GROUNDED"], "the end on disk")
    (row,) = kept(folder)
    assert [turn["text"] for turn in row["turns"]] == [REQUEST, question.text, "the red one"]
    assert len(row["replies"]) == 2
    grid = result.grounding.ambiguity.attention_map.width
    assert len(row["replies"][1]["attention"]) == grid
    assert row["frame_id"] == "test_camera"
    (sample,) = load_episodes(folder, unreviewed=True).samples
    box, width, height = result.grounding.target.box, 160, 120
    wanted = [box.x_min / width, box.y_min / height, box.x_max / width, box.y_max / height]
    assert sample.box == pytest.approx(wanted, abs=1e-4)
    assert sample.load().shape == (height, width, 3)


def test_other_ends_are_kept_with_their_reason(client: Client, folder: Path) -> None:
    handle, _ = asking_goal(client)
    client.cancel(handle)
    client.result(handle)
    wait_until(lambda: outcomes(folder) == ["GROUNDED", "CANCELED"], "the canceled one on disk")
    assert len(load_episodes(folder, unreviewed=True).samples) == 1


def test_one_line_of_log_for_each_turn(client: Client, node: Process) -> None:
    handle, question = asking_goal(client)
    name = f"dialogue {question.dialogue_id[:8]}: "
    client.set(threshold=1.0)
    assert client.answer("the\nred\x1b[31m one").accepted
    client.result(handle)

    def lines() -> list[str]:
        return [line.split(name)[1] for line in node.text().splitlines() if name in line]

    wait_until(lambda: len(lines()) == 4, "four lines")
    asks, robot, answers, points = lines()
    assert asks == f'the person asks for "{REQUEST}"'
    assert robot.startswith(f'the robot asks "{question.text}" (ambiguity ')
    assert answers == 'the person answers "the red [31m one"'
    assert points.startswith("the robot points at ")


def test_diagnostics_tell_stages_ends_and_where_it_is_kept(client: Client, folder: Path) -> None:
    def values() -> dict[str, str]:
        messages = client.heard["/diagnostics"]
        return {v.key: v.value for v in messages[-1].status[0].values} if messages else {}

    client.result(client.goal(REQUEST))
    wait_until(lambda: "GROUNDED" in values().get("dialogues ended", ""), "the end in /diagnostics")
    for stage in ("image", "ambiguity", "decoding"):
        assert float(values()[f"last {stage} took (s)"]) >= 0
    assert values()["recording in"] == str(folder)


def test_where_it_is_kept_cannot_be_changed_from_outside(client: Client) -> None:
    assert client.set(record="/tmp") != ""
    assert client.set(record_limit=2.0) != ""


# Last, as it ends the process.


def test_a_kill_loses_at_most_the_turn_under_way(
    client: Client, node: Process, folder: Path
) -> None:
    asking_goal(client)
    assert client.answer("the left one").accepted
    client.next("question", 2)
    # The answer is written while the model replies, which on a busy disk takes longer.
    wait_until(lambda: len(kept(folder)[-1]["turns"]) >= 3, "the answer on disk")
    node.kill()
    row = kept(folder)[-1]
    assert row["outcome"] == "OPEN"
    assert [turn["text"] for turn in row["turns"]][2:3] == ["the left one"]
    for path in episode_files(folder):
        assert json.loads(path.read_text())[0]["image_info"]["width"] == 160
    load_episodes(folder, unreviewed=True)
