"""Episodes: what a robot keeps of its dialogues, and what can be learned from it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clue_ros.dialogue.episodes import GROUNDED, NAME, Episode, episode_files
from clue_ros.dialogue.types import AmbiguityEstimate, Box, Grounding, Question, Turn
from clue_ros.lab.data.episodes import load_episodes
from clue_ros.lab.data.invig import InvigError, load_invig, reveal_pairs
from clue_ros.nodes.recorder import RESERVE, Recorder, RecordError

MAP = np.linspace(0, 1, 16, dtype=np.float32).reshape(4, 4)
ESTIMATE = AmbiguityEstimate(0.9, 0.5, MAP, (), 0.1)
ASKED = Question("which block?", (Box(1, 2, 3, 4),), ("the red one",), ESTIMATE)
FOUND = Grounding(Box(-1.0, 6.0, 40.0, 30.0), "the red block", 0.8, ESTIMATE)
TURNS = (
    (Turn("user", "pick up the block"), 10.0),
    (Turn("robot", "which block?"), 11.5),
    (Turn("user", "the <loc0001> red one"), 14.0),
)


def pixels(seed: int = 0, side: int = 60) -> Any:
    return np.random.default_rng(seed).integers(0, 256, (side, 80, 3), dtype=np.uint8)


def episode(name: str = "3f2a9c01deadbeef", turns: int = 3, **fields: Any) -> Episode:
    return Episode(name, pixels(), TURNS[:turns], (ASKED,), frame_id="camera", stamp=9.5, **fields)


def grounded(name: str) -> Episode:
    return episode(name, outcome=GROUNDED, grounding=FOUND)


class Warnings(list[str]):
    """What the recorder told."""


@pytest.fixture
def told() -> Warnings:
    return Warnings()


Make = Callable[..., Recorder]


@pytest.fixture
def make(tmp_path: Path, told: Warnings) -> Iterator[Make]:
    made: list[Recorder] = []

    def start(folder: Path | None = None, limit: int = 10_000_000) -> Recorder:
        made.append(Recorder(folder or tmp_path / "episodes", limit, told.append))
        return made[-1]

    yield start
    for recorder in made:
        recorder.close()


def save(recorder: Recorder, *episodes: Episode) -> None:
    for one in episodes:
        recorder.save(one)
    assert recorder.flush(60.0)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_an_episode_is_an_invig_sample_with_how_it_came_about(make: Make) -> None:
    recorder = make()
    save(recorder, grounded("3f2a9c01deadbeef"))
    (path,) = episode_files(recorder.folder)
    assert path.name == "episode-000001-3f2a9c01.json"
    assert names(recorder.folder) == [path.name, path.with_suffix(".png").name]
    assert {file.stat().st_mode & 0o777 for file in recorder.folder.iterdir()} == {0o600}
    (sample,) = load_invig(recorder.folder).samples
    assert (sample.id, sample.category) == ("3f2a9c01deadbeef", "the red block")
    assert sample.request == "pick up the block"
    assert sample.exchanges == (("which block?", "the <loc0001> red one"),)
    assert sample.box == pytest.approx((0, 0.1, 0.5, 0.5)), "cut to the image"
    np.testing.assert_array_equal(sample.load(), pixels())
    kept = json.loads(path.read_text())[0]["clue"]
    assert (kept["outcome"], kept["score"], kept["frame_id"]) == (GROUNDED, 0.8, "camera")
    assert [turn["stamp"] for turn in kept["turns"]] == [10.0, 11.5, 14.0]
    assert kept["replies"][0]["probability"] == 0.9
    np.testing.assert_allclose(kept["replies"][0]["attention"], MAP, atol=1e-4)
    assert kept["replies"][0]["candidates"] == [[1, 2, 3, 4]]


def test_every_turn_is_on_disk_before_the_next_one(make: Make) -> None:
    recorder = make()
    for turns in (1, 2, 3):
        recorder.save(episode(turns=turns))
        recorder.save(episode(turns=turns))  # returns when the first of the two is written
        (path,) = episode_files(recorder.folder)
        row = json.loads(path.read_text())[0]
        assert len(row["clue"]["turns"]) == turns
        assert row["ref_list"][0]["bbox"] is None
    assert row["clue"]["outcome"] == "OPEN"


def test_a_dialogue_may_begin_before_the_end_of_another_is_saved(make: Make) -> None:
    recorder = make()
    save(recorder, episode("first", turns=2), episode("second", turns=1), grounded("first"))
    ends = [json.loads(p.read_text())[0]["clue"] for p in episode_files(recorder.folder)]
    assert [(end["outcome"], len(end["turns"])) for end in ends] == [(GROUNDED, 3), ("OPEN", 1)]
    for number in range(20):
        save(recorder, episode(f"{number:08d}"))
    assert len(episode_files(recorder.folder)) == 22


KILLED = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from test_episodes import episode
from clue_ros.nodes.recorder import Recorder
recorder = Recorder(Path(sys.argv[1]), 10**9, print)
for number in range(10**6):
    recorder.save(episode(f"{number:08d}", turns=1 + number % 3))
    print(number, flush=True)
"""


def test_a_process_killed_at_any_moment_leaves_whole_files(tmp_path: Path, make: Make) -> None:
    folder = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, str(folder)]
    command += [str(Path(__file__).parents[n]) for n in (0, 1)]
    for wanted in (1, 4, 9):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(wanted):
            assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        done = process.stdout.read().split()
        process.wait()
        process.stdout.close()
        last = int(done[-1]) if done else wanted - 1
        files = episode_files(folder)
        assert len(files) >= last, "at most the one under way is lost"
        for path in files:
            assert json.loads(path.read_text())[0]["clue"]["outcome"] == "OPEN"
            assert path.with_suffix(".png").stat().st_size > 0
        (folder / ".episode-000099-ab.json.tmp").write_text("[{")  # as from a killed write
        assert make(folder).folder == folder.resolve()
        assert not [name for name in names(folder) if name.startswith(".")]
        shutil.rmtree(folder)


def test_the_oldest_make_room_and_others_files_stay(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "episodes"
    folder.mkdir()
    (folder / "notes.txt").write_text("x" * 100_000)
    recorder = make(limit=60_000)  # a picture of noise has 15 kB
    save(recorder, *(episode(f"{i:08d}") for i in range(10)))
    numbers = [int(NAME.fullmatch(p.stem)[1]) for p in episode_files(folder)]  # type: ignore[index]
    assert numbers[-1] == 10
    assert numbers == list(range(numbers[0], 11))
    assert 2 <= len(numbers) < 5
    assert (folder / "notes.txt").exists()
    pictures = {p.stem for p in folder.glob("*.png")}
    assert pictures == {p.stem for p in folder.glob("*.json")}


def test_a_picture_over_the_limit_is_told_once_and_the_next_one_works(
    make: Make, told: Warnings
) -> None:
    recorder = make(limit=20_000)
    big = Episode("big", pixels(side=600), TURNS[:1])
    save(recorder, big, big)
    assert len(told) == 1
    assert "record_limit" in told[0]
    assert "record_limit" in recorder.trouble
    save(recorder, episode())
    assert recorder.trouble == ""
    assert len(episode_files(recorder.folder)) == 1


def test_a_full_or_missing_disk_is_told_and_the_robot_goes_on(
    make: Make, told: Warnings, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = make()
    save(recorder, episode("before"))
    usage = shutil.disk_usage(recorder.folder)._replace(free=RESERVE - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)
    save(recorder, episode("full"))
    assert "are free on its disk" in told[-1]
    monkeypatch.undo()
    shutil.rmtree(recorder.folder)
    save(recorder, episode("gone"))
    assert len(told) == 1, "once, until writing works again"
    recorder.folder.mkdir()
    save(recorder, episode("again"))
    assert len(episode_files(recorder.folder)) == 1


def test_numbers_go_on_whatever_the_clock_says(make: Make) -> None:
    for new in ((episode("first"), episode("second")), (episode("third"),)):
        recorder = make()
        save(recorder, *new)
        recorder.close()
    (newest,) = episode_files(recorder.folder)[-1:]
    assert newest.name == "episode-000003-third.json"


# Folders and paths.


@pytest.mark.parametrize("name", ["../../evil", "/etc/passwd", "..", "a/b", "\0", "é" * 300])
def test_an_id_never_leaves_the_folder(make: Make, tmp_path: Path, name: str) -> None:
    before = names(tmp_path)
    recorder = make()
    save(recorder, episode(name))
    assert set(names(tmp_path)) == {*before, "episodes"}
    assert all(NAME.fullmatch(path.stem) for path in recorder.folder.iterdir())


def test_links_in_the_folder_are_not_followed(make: Make, tmp_path: Path) -> None:
    recorder = make()
    outside = tmp_path / "outside.txt"
    outside.write_text("mine")
    (recorder.folder / "episode-000001-linked.json").symlink_to(outside)
    (recorder.folder / "episode-000001-linked.png").symlink_to(outside)
    (recorder.folder / ".episode-000002-3f2a9c01.png.tmp").symlink_to(outside)
    save(recorder, episode())
    recorder.close()
    save(make(recorder.folder, limit=16_000), episode("next"))
    assert outside.read_text() == "mine"


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path, told: Warnings) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for bad in (file, file / "below", "/proc/episodes", "no\0name"):
        with pytest.raises(RecordError, match="nothing can be written"):
            Recorder(bad, 1, told.append)


def test_two_processes_do_not_record_in_one_folder(make: Make) -> None:
    first = make()
    with pytest.raises(RecordError, match=r"another process records in .* folder of its own"):
        make(first.folder)
    first.close()
    save(make(first.folder), episode())


# Learning from them.


def test_only_dialogues_that_ended_in_a_box_are_learned_from(make: Make) -> None:
    recorder = make()
    save(recorder, grounded("good"), episode("open", turns=2))
    save(recorder, episode("stopped", outcome="CANCELED", message="the person asked to stop"))
    wrong = grounded("wrong")
    save(recorder, wrong)
    path = episode_files(recorder.folder)[-1]  # a person marks it
    path.write_text(path.read_text().replace('"GROUNDED"', '"WRONG"'))
    (recorder.folder / "episode-000009-torn.json").write_text("[{")
    found = load_episodes(recorder.folder, unreviewed=True)
    assert [sample.id for sample in found.samples] == ["good"]
    assert len(reveal_pairs(found.samples[0])) == 2
    torn, counted = found.problems
    assert "episode-000009-torn" in torn
    assert "1 ended with OPEN, 1 ended with CANCELED, 1 ended with WRONG, 1 unreadable" in counted


def test_an_episode_without_its_picture_is_named(make: Make) -> None:
    recorder = make()
    save(recorder, grounded("one"), grounded("two"))
    os.unlink(episode_files(recorder.folder)[0].with_suffix(".png"))
    found = load_episodes(recorder.folder, unreviewed=True)
    assert [sample.id for sample in found.samples] == ["two"]
    assert "episode-000001-one" in found.problems[0]


def test_a_folder_without_any_says_so(make: Make, tmp_path: Path) -> None:
    with pytest.raises(InvigError, match="no episodes there"):
        load_episodes(tmp_path / "nowhere")
    recorder = make()
    save(recorder, episode())
    with pytest.raises(InvigError, match=r"none of 1 dialogues .*: 1 ended with OPEN"):
        load_episodes(recorder.folder, unreviewed=True)
