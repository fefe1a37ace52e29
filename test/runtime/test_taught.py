"""Words that a person taught: kept in files, found by their looks, asked about like any other."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import numpy.typing as npt
import pytest

from clue_ros.cli import main
from clue_ros.dialogue.types import (
    AmbiguityEstimate,
    Box,
    Dialogue,
    Grounding,
    NotFound,
    Question,
)
from clue_ros.engine import Clue
from clue_ros.errors import (
    BadBoxError,
    BadNameError,
    ClueWarning,
    UnknownNameError,
    WordMemoryError,
)
from clue_ros.model.taught import Patches, Recogniser, make_example
from clue_ros.model.taught_boxes import closer
from clue_ros.model.taught_replies import Judged, Opinion, TaughtWords
from clue_ros.model.word_memory import Example, WordMemory, clean_name, packed, unpacked
from clue_ros.model.zero_shot import BaseFinder, ZeroShotSettings

Pixels = npt.NDArray[np.uint8]
SIDE, CHANNELS = 24, 48  # patches a side, numbers a patch
SIZE = 16 * SIDE  # pixels of a picture's side


def kind(number: int) -> npt.NDArray[np.float32]:
    """What patches of a kind look like; 0: the table."""
    return np.random.default_rng(number).normal(size=CHANNELS).astype(np.float32)


def scene(things: Sequence[tuple[int, int, int]], seed: int = 0) -> tuple[Patches, Pixels]:
    """Patches of a table with things (kind, column, row) of 4x4 patches, and a picture of it."""
    rng = np.random.default_rng(seed)
    values = kind(0) + rng.normal(size=(SIDE, SIDE, CHANNELS)).astype(np.float32) * 0.7
    image = np.full((SIZE, SIZE, 3), 120, np.uint8) + rng.integers(0, 9, (SIZE, SIZE, 3), np.uint8)
    for number, column, row in things:
        part = slice(row, row + 4), slice(column, column + 4)
        values[part] += kind(number) - kind(0)
        pixels = tuple(slice(16 * s.start, 16 * s.stop) for s in part)
        image[pixels] = cv2.applyColorMap(np.full((1, 1), 40 * number, np.uint8), 2)[0, 0]
    values /= np.linalg.norm(values, axis=-1, keepdims=True)
    return Patches(values, SIZE, SIZE), image


def box_of(column: int, row: int) -> Box:
    return Box(16.0 * column, 16.0 * row, 16.0 * column + 64, 16.0 * row + 64)


def shown(number: int, column: int, row: int, seed: int) -> Example:
    patches, image = scene([(number, column, row)], seed)
    return make_example(patches, image, box_of(column, row), "Ada")


@pytest.fixture
def memory(tmp_path: Path) -> WordMemory:
    """A memory of two words."""
    words = WordMemory(tmp_path / "words", "tower")
    words.add("stapler", shown(1, 3, 4, 1))
    words.add("the Tape!", shown(2, 12, 9, 2))
    return words


# ---------------------------------------------------------------------------------------- memory


def test_a_word_is_read_again_as_it_was_taught(memory: WordMemory) -> None:
    memory.add("stapler", shown(1, 9, 2, 5))
    memory.call("stapler", "paper stapler")
    assert memory.folder is not None
    again = WordMemory(memory.folder, "tower")
    assert list(again.words) == ["stapler", "tape"]
    word, kept = memory.words["stapler"], again.words["stapler"]
    assert (kept.names, len(kept.examples)) == (("stapler", "paper stapler"), 2)
    for before, after in zip(word.examples, kept.examples, strict=True):
        assert (before.box, before.who, before.date) == (after.box, after.who, after.date)
        assert np.array_equal(before.inside, after.inside)
        assert np.array_equal(before.around, after.around)
        thumbnail = cv2.imdecode(np.frombuffer(after.thumbnail, np.uint8), cv2.IMREAD_COLOR)
        assert thumbnail is not None
        assert max(thumbnail.shape) <= 96
    assert sorted(p.name for p in memory.folder.iterdir()) == [
        "stapler.safetensors", "tape.safetensors",
    ]  # fmt: skip


def test_directions_survive_eight_bits() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 472)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    assert (rows * unpacked(packed(rows))).sum(1).min() > 0.999


def test_what_another_process_teaches_is_known(memory: WordMemory) -> None:
    other = WordMemory(memory.folder, "tower")
    other.add("mug", shown(3, 1, 1, 3))
    before = memory.changes
    assert memory.refresh()
    assert "mug" in memory.words
    assert memory.changes > before
    assert memory.refresh()
    assert memory.changes == before + 1, "nothing is read twice"


def test_words_are_renamed_and_forgotten(memory: WordMemory) -> None:
    memory.rename("tape", "sticky tape")
    assert list(memory.words) == ["stapler", "sticky tape"]
    with pytest.raises(BadNameError, match="'stapler' was taught as another thing"):
        memory.rename("sticky tape", "stapler")
    assert memory.forget("the stapler").name == "stapler"
    with pytest.raises(UnknownNameError, match="no 'stapler' was taught; known: sticky tape"):
        memory.forget("stapler")
    assert list(WordMemory(memory.folder, "tower").words) == ["sticky tape"]


def test_a_thing_has_several_names_and_a_name_several_things(memory: WordMemory) -> None:
    memory.call("stapler", "office thing")
    memory.call("tape", "office thing")
    assert [word.name for word in memory.meant("office thing")] == ["stapler", "tape"]
    assert [word.name for word in memory.meant("staplers")] == ["stapler"]
    assert memory.meant("mug") == ()
    with pytest.raises(BadNameError, match="'office thing' means several: stapler, tape"):
        memory.add("office thing", shown(3, 1, 1, 3))


def test_a_box_has_one_name(memory: WordMemory) -> None:
    same = shown(1, 3, 4, 1)
    with pytest.raises(BadBoxError, match="this box was taught as 'stapler': it cannot be 'punch'"):
        memory.add("punch", same)
    assert [len(word.examples) for word in memory.words.values()] == [1, 1], "nothing is lost"
    memory.add("stapler", same)
    assert len(memory.words["stapler"].examples) == 1, "shown again, it is one example"
    memory.add("punch", same, instead=True)
    assert list(memory.words) == ["punch", "tape"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "the text is empty"),
        ("  \n", "the text is empty"),
        ("the", "names nothing: say what the thing is called"),
        ("x" * 200, "the name has 200 characters, at most 100"),
        ("!?", "no letter or digit"),
    ],
)
def test_a_name_that_is_none_is_refused(name: str, words: str, memory: WordMemory) -> None:
    with pytest.raises(BadNameError, match=words) as error:
        memory.add(name, shown(1, 3, 4, 1))
    assert "\n" not in str(error.value)
    assert list(memory.words) == ["stapler", "tape"]


@pytest.mark.parametrize(
    "name", ["a/b", "../../x", "naïve-ü", "a_b", "a b", "jack's", "." * 3 + "x"]
)
def test_any_name_has_a_file_of_its_own(name: str, tmp_path: Path) -> None:
    words = WordMemory(tmp_path / "words", "tower")
    names = (name, "q", "q-b")
    taught = [words.add(each, shown(1, 3, 4, n)).name for n, each in enumerate(names, start=1)]
    assert set(WordMemory(tmp_path / "words", "tower").words) == set(taught)
    assert [path.name for path in tmp_path.iterdir()] == ["words"]


@pytest.mark.parametrize(
    ("box", "words"),
    [
        (Box(10, 10, 10, 50), r"the box \[10, 10, 10, 50\] is empty"),
        (Box(50, 10, 10, 50), "is empty"),
        (Box(10, 10, float("nan"), 50), "is empty"),
        (Box(-20, 10, 60, 50), "is not inside the picture, which has 384x384 pixels"),
        (Box(300, 10, 500, 50), "is not inside the picture"),
        (Box(10, 10, 11, 50), "less than 2 pixels"),
    ],
)
def test_a_box_that_is_none_is_refused(box: Box, words: str) -> None:
    with pytest.raises(BadBoxError, match=words):
        make_example(*scene([]), box)


def test_a_damaged_file_is_left_out_and_left_alone(memory: WordMemory) -> None:
    assert memory.folder is not None
    path = memory.folder / "stapler.safetensors"
    content = path.read_bytes()
    for damaged in (b"", b"x" * 40, content[:200], content[: len(content) // 2]):
        path.write_bytes(damaged)
        with pytest.warns(ClueWarning, match=r"stapler\.safetensors is damaged"):
            words = WordMemory(memory.folder, "tower")
        assert list(words.words) == ["tape"]
        with pytest.raises(WordMemoryError, match="cannot be read: move it away first"):
            words.add("stapler", shown(1, 3, 4, 1))
        assert path.read_bytes() == damaged


def test_the_memory_of_another_tower_is_refused(memory: WordMemory) -> None:
    with pytest.raises(WordMemoryError, match=r"another vision tower \(tower\) than this model's"):
        WordMemory(memory.folder, "0123456789abcdef")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(WordMemoryError, match="file"):
        WordMemory(tmp_path / "file" / "words", "tower").add("stapler", shown(1, 3, 4, 1))


def test_folders_are_merged(memory: WordMemory, tmp_path: Path) -> None:
    other = WordMemory(tmp_path / "other", "tower")
    other.add("stapler", shown(1, 9, 2, 5))
    other.add("mug", shown(3, 1, 1, 3))
    other.call("mug", "cup")
    other.add("glue", shown(2, 12, 9, 2))  # the box of the tape
    with pytest.warns(ClueWarning, match="an example of 'glue' is left out: this box was taught"):
        changed = memory.merge(tmp_path / "other")
    assert [word.name for word in changed] == ["mug", "stapler"]
    assert len(memory.words["stapler"].examples) == 2
    assert memory.words["mug"].names == ("mug", "cup")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert memory.merge(tmp_path / "other") == (), "once is enough"
    with pytest.raises(WordMemoryError, match="there is no folder"):
        memory.merge(tmp_path / "nowhere")


# ----------------------------------------------------------------------------------- recognition


def test_a_taught_thing_is_found_where_it_lies_now(memory: WordMemory) -> None:
    patches, _ = scene([(1, 15, 3), (2, 5, 16), (3, 2, 2)], seed=9)
    recogniser = Recogniser(memory)
    for name, place in (("stapler", (15, 3)), ("tape", (5, 16))):
        best, *others = recogniser.find(patches, memory.meant(name))
        assert best.box.iou(box_of(*place)) > 0.5
        assert best.probability > 0.5
        assert all(other.score < best.score - 0.2 for other in others)


def test_two_hundred_words_fit_in_20_megabytes(tmp_path: Path) -> None:
    words = WordMemory(None, "tower")
    rng = np.random.default_rng(0)

    def rows(count: int) -> npt.NDArray[np.float32]:
        return rng.normal(size=(count, 472)).astype(np.float32)

    example = shown(1, 3, 4, 1)
    for number in range(200):
        features = {"inside": packed(rows(16)), "around": packed(rows(40))}
        words.words[f"word {number}"] = words.add(
            "word", Example(**{**vars(example), **features, "picture": str(number)})
        )
        words.forget("word")
    size = sum(e.inside.nbytes + e.around.nbytes for w in words.words.values() for e in w.examples)
    assert size < 20e6 / 3, "three examples of each fit in 20 MB"
    recogniser = Recogniser(words)
    patches = Patches(rows(1200).reshape(30, 40, 472), 640, 480)
    every = tuple(words.words.values())
    found = recogniser.scores_of(patches, every)
    assert found.shape == (200, 30, 40), "of one product of matrices"
    assert np.allclose(recogniser.scores_of(patches, every[7:9]), found[7:9], atol=1e-5)


# ---------------------------------------------------------------------------------------- replies


def picture(*things: tuple[tuple[int, int, int], int, int]) -> Pixels:
    """A grey table of 320x240 pixels with striped squares (colour, x, y) of 60 pixels."""
    rng = np.random.default_rng(len(things))
    image = np.full((240, 320, 3), 128, np.uint8) + rng.integers(0, 8, (240, 320, 3), np.uint8)
    for color, x, y in things:
        cv2.rectangle(image, (x, y), (x + 59, y + 59), color, -1)
        for stripe in range(4, 60, 12):
            cv2.rectangle(image, (x + stripe, y + 6), (x + stripe + 4, y + 53), (250, 250, 250), -1)
    return np.asarray(image, np.uint8)


RED, BLUE = (200, 30, 30), (30, 30, 200)


@pytest.fixture
def taught(household: Any, tmp_path: Path) -> Clue:
    """The embedded model, which was shown a red gadget twice and a blue widget."""
    clue = Clue(household.checkpoint, replace_memory(household, tmp_path / "words"))
    for x, y in ((40, 60), (200, 130)):
        view = clue.look(picture((RED, x, y), (BLUE, 320 - 60 - x, 20)))
        clue.teach(view, Box(x, y, x + 60, y + 60), "gadget")
        clue.teach(view, Box(260 - x, 20, 320 - x, 80), "widget")
    return clue


def replace_memory(clue: Any, folder: Path) -> Any:
    from clue_ros.model.load_options import LoadOptions

    return LoadOptions(clue.model_name, memory=folder, policy=clue.policy)


def test_an_unknown_word_is_known_once_it_was_taught(taught: Clue, household: Any) -> None:
    view = taught.look(picture((RED, 130, 150), (BLUE, 220, 40)))
    reply = taught.reply(view, Dialogue("pick up the gadget"))
    assert isinstance(reply, Grounding | Question)
    box = reply.box if isinstance(reply, Grounding) else reply.candidates[0]
    assert box.iou(Box(130, 150, 190, 210)) > 0.5
    assert reply.taught == ("gadget",)
    estimate = taught.ambiguity(view, "pick up the gadget")
    assert estimate.attention.shape == (taught.grid, taught.grid)
    untaught = household.reply(household.look(view.image), Dialogue("pick up the gadget"))
    assert isinstance(untaught, NotFound)
    assert "I don't know what a gadget is" in untaught.text


def test_two_taught_things_are_asked_about_and_an_absent_one_is_said(taught: Clue) -> None:
    view = taught.look(picture((RED, 40, 100), (RED, 220, 100)))
    dialogue = Dialogue("pick up the gadget")
    reply = taught.reply(view, dialogue)
    assert isinstance(reply, Question)
    assert not isinstance(reply, NotFound)
    assert len(reply.candidates) == 2
    dialogue.add_question(reply.text)
    dialogue.add_answer("the right one")
    found = taught.reply(view, dialogue)
    assert isinstance(found, Grounding)
    assert found.box.iou(Box(220, 100, 280, 160)) > 0.5
    absent = taught.reply(view, Dialogue("pick up the widget"))
    assert isinstance(absent, NotFound)
    assert absent.text == "I don't see a widget."
    forced = taught.reply(view, Dialogue("pick up the widget"), force_grounding=True)
    assert isinstance(forced, Grounding)


def pointed(view: Any, box: Box, score: float) -> Grounding:
    """What the model itself says, surely clear."""
    size = np.zeros((18, 18), np.float32)
    return Grounding(box, "gadget", score, AmbiguityEstimate(0.1, 0.5, size, (), 0.0))


def test_a_taught_things_box_may_have_the_models_own_sides(taught: Clue) -> None:
    """One that has its middle; another place in the picture is not the thing by the model alone."""
    view, words = taught.look(picture((RED, 40, 100))), TaughtWords(taught.memory)

    def judged(own: Opinion | None) -> Judged:
        found = words.judge(
            Dialogue("the gadget"), lambda: view, lambda: BaseFinder(view.base, ZeroShotSettings()),
            0.5, taught.grid, lambda: own,
        )  # fmt: skip
        assert found is not None
        return found

    (alone,) = judged(None).candidates
    near, wide, away = Box(38, 98, 104, 166), Box(20, 60, 160, 200), Box(200, 20, 260, 80)
    (moved,) = judged(Opinion(pointed(view, near, 0.1))).candidates
    assert moved.box == near, "the two are alike, and the model says this one"
    assert moved.score > alone.score, "two opinions"
    (kept,) = judged(Opinion(pointed(view, wide, 0.1))).candidates
    assert kept.box == alone.box, "the gadget does not fill the model's box"
    assert kept.score == pytest.approx(alone.score)
    (only,) = judged(Opinion(pointed(view, away, 0.6))).candidates
    assert only.box == alone.box, "no gadget was ever seen to look as it does there"
    (denied,) = judged(Opinion(pointed(view, near, 0.1), denied=True)).candidates
    assert 0 < denied.score < alone.score, "the model says that there is none"


def bar(degrees: float) -> tuple[Pixels, Box]:
    """A picture of a long striped bar that is turned, and its box."""
    image, tool = picture(), np.zeros((240, 320), np.uint8)
    cv2.rectangle(tool, (80, 108), (240, 131), 255, -1)
    turn = cv2.getRotationMatrix2D((160, 120), degrees, 1)
    mask = cv2.warpAffine(tool, turn, (320, 240)) > 127
    for stripe in range(84, 240, 16):
        cv2.rectangle(tool, (stripe, 112), (stripe + 5, 127), 128, -1)
    image[mask] = RED
    image[(cv2.warpAffine(tool, turn, (320, 240)) < 160) & mask] = 250
    rows, columns = mask.any(1).nonzero()[0], mask.any(0).nonzero()[0]
    return image, Box(float(columns[0]), float(rows[0]), columns[-1] + 1.0, rows[-1] + 1.0)


def test_a_turned_thing_has_the_box_of_a_closer_look(household: Any, tmp_path: Path) -> None:
    clue = Clue(household.checkpoint, replace_memory(household, tmp_path / "words"))
    image, box = bar(0)
    clue.teach(clue.look(image), box, "gadget")
    image, turned = bar(50)
    view = clue.look(image)
    recogniser = Recogniser(clue.memory)
    seen = recogniser.find(view.patches, clue.memory.meant("gadget"))[0]
    assert seen.box.iou(turned) < 0.5, "the taught sides do not fit"
    found = closer(view.closer, seen, recogniser.map_of(view.patches, seen.word))
    assert found.iou(turned) > 0.6


def test_beside_taught_words_a_doubtful_box_is_shown(taught: Clue) -> None:
    view, words = taught.look(picture((RED, 40, 100))), TaughtWords(taught.memory)
    empty = Box(200, 20, 260, 80)
    sure, unsure = (pointed(view, empty, score) for score in (0.9, 0.3))
    assert words.checked(sure, "plate", lambda: view.patches) is sure
    shown = words.checked(unsure, "plate", lambda: view.patches)
    assert isinstance(shown, Question)
    assert (shown.confirm, shown.candidates) == (True, (empty,))
    nothing = TaughtWords(WordMemory(None, taught.memory.tower))
    assert nothing.checked(unsure, "plate", lambda: view.patches) is unsure


def test_a_refused_box_is_not_shown_again(taught: Clue) -> None:
    view = taught.look(picture((RED, 40, 100), (RED, 220, 100)))
    dialogue = Dialogue("pick up the left gadget")
    reply = taught.reply(view, dialogue)
    box = reply.box if isinstance(reply, Grounding) else reply.candidates[0]
    dialogue.add_question("Do you mean this one?")
    dialogue.refuse(box, "no")
    again = taught.reply(view, dialogue)
    shown = [again.box] if isinstance(again, Grounding) else [*again.candidates]
    assert all(other.iou(box) < 0.5 for other in shown)


# ---------------------------------------------------------------------------------------- command


def test_the_command_teaches_and_ground_finds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from PIL import Image

    words = ["--memory", str(tmp_path / "words")]
    for name, x in (("a.png", 40), ("b.png", 200)):
        Image.fromarray(picture((RED, x, 60))).save(tmp_path / name)
        shown = [str(tmp_path / name), "--box", str(x), "60", str(x + 60), "120"]
        assert main(["teach", *shown, "--name", "the gadget", *words]) == 0
    assert main(["teach", "--also", "gadget", "gizmo", *words]) == 0
    capsys.readouterr()
    assert main(["teach", "--list", "--json", *words]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["name"], row["other_names"], len(row["examples"])) == ("gadget", ["gizmo"], 2)
    assert main(["teach", "--import", words[1], "--memory", str(tmp_path / "other")]) == 0
    assert capsys.readouterr().out.startswith("gadget (also gizmo): 2 examples, last ")
    Image.fromarray(picture((RED, 120, 140))).save(tmp_path / "c.png")
    found = main(["ground", str(tmp_path / "c.png"), "pick up the gizmo", "--json", *words])
    row = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (found, row["type"]) in ((0, "grounding"), (3, "question"))
    box = Box(*(row["box"] if found == 0 else row["candidates"][0]))
    assert box.iou(Box(120, 140, 180, 200)) > 0.5
    assert main(["teach", "--forget", "gadget", *words]) == 0
    assert list((tmp_path / "words").iterdir()) == []


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "give a picture with --box and --name, or one of --list"),
        (["a.png", "--list"], "give a picture with --box and --name, or one of --list"),
        (["a.png", "--name", "mug"], "to teach an object give a picture, --box"),
        (["a.png", "--box", "1", "2", "3", "4", "--name", "the"], "names nothing"),
        (["--forget", "mug"], "no 'mug' was taught; known: nothing yet"),
        (["--import", "/nowhere"], "there is no folder /nowhere"),
    ],
)
def test_the_command_refuses_in_one_line(
    words: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["teach", *words, "--memory", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert error.count("\n") == 1


def test_names_are_cleaned() -> None:
    assert clean_name("  My  RED stapler. ") == "red stapler"
    assert re.fullmatch(r"[a-z' -]+", clean_name("Jack's tape"))
