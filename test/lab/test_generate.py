"""`clue data generate`: which dialogues are kept, why others are not, and what a crash costs."""

from __future__ import annotations

import importlib.util
import json
import math
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from drawn_scenes import random_scenes
from PIL import Image
from tiny_language_model import write_random_language_model
from tiny_model import write_random_model

from clue_ros.cli import main
from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.types import Box, Dialogue, Grounding, NotFound, Question
from clue_ros.errors import ClueError
from clue_ros.lab.data.invig import load_invig
from clue_ros.lab.data.picture_selection import write_selection
from clue_ros.lab.evaluation.options import RobotOptions
from clue_ros.lab.generation.command import (
    GenerateOptions,
    GrammarDescriber,
    OraclePerson,
    RulesOfPerson,
    describe_by_words,
    generate,
    true_objects,
)
from clue_ros.lab.generation.journal import Journal, write_report
from clue_ros.lab.generation.machine import (
    Case,
    DialogueMachine,
    MachineParts,
    MachineSettings,
    Outcome,
    Picture,
)
from clue_ros.lab.generation.rephrase import (
    DEFAULT_PERSONAS,
    Personas,
    Rephraser,
    is_same,
    read_personas,
)
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator import shards
from clue_ros.model.location_tokens import Codes, encode_box

IMAGE = np.zeros((100, 200, 3), np.uint8)
LEFT, RIGHT = Box(10, 10, 60, 60), Box(120, 10, 180, 90)


class ScriptedGrounder:
    """Plays a script: at each turn a question, or where it points; None: it sees no such thing.

    box: where it points when it must, from the answers so far; with its score.
    """

    policy = "scripted"

    def __init__(
        self, script: Sequence[str | None], box: Callable[[list[str]], tuple[Box, float]]
    ) -> None:
        self._script, self._box = script, box

    def look(self, image: Any) -> Any:
        """See `Grounder`."""
        return image

    def ambiguity(self, view: Any, expression: Any) -> Any:
        """Nobody asks."""
        raise NotImplementedError

    def reply(
        self, view: Any, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """See `Grounder`."""
        said = [turn.text for turn in dialogue.turns if turn.speaker == "user"][1:]
        estimate = cast("Any", None)
        if len(said) < len(self._script) and not force_grounding:
            text = self._script[len(said)]
            if text is None:
                return NotFound("i do not see it", (), (), estimate)
            return Question(text, (), (), estimate)
        box, score = self._box(said)
        return Grounding(box, "", score, estimate)


def machine(
    script: Sequence[str | None],
    box: Callable[[list[str]], tuple[Box, float]],
    *,
    answers: Callable[[str], str] = lambda question: f"about {question}",
    rephrase: Rephraser | None = None,
    personas: Personas | None = None,
    **settings: Any,
) -> DialogueMachine:
    """A machine about a picture with a cup on the left and one on the right."""
    cups = [Candidate(LEFT, "cup"), Candidate(RIGHT, "cup")]
    parts = MachineParts(
        ScriptedGrounder(script, box),
        lambda picture, image, view: cups,
        lambda case: ("take the cup", ()),
        lambda case, request: answers,
        rephrase,
        personas,
    )
    return DialogueMachine(parts, MachineSettings(**{"per_image": 2, **settings}))


def talk(one: DialogueMachine) -> Outcome:
    """What the machine makes of the picture."""
    return one(Picture("p", lambda: IMAGE), np.random.default_rng(0))


def sure_with(word: str, box: Box = RIGHT) -> Callable[[list[str]], tuple[Box, float]]:
    """Points at the box, more sure once an answer has the word."""
    return lambda said: (box, 0.9 if any(word in text for text in said) else 0.5)


# --- one picture ---


def test_a_dialogue_that_finds_its_object_is_kept_with_the_objects_own_box() -> None:
    near = Box(122, 10, 180, 90)
    outcome = talk(machine(["which?"], sure_with("which", near)))
    (ref,) = outcome.refs
    assert ref["bbox"] == [0.6, 0.1, 0.9, 0.9]
    assert ref["dialog"] == [["", "take the cup"], ["which?", "about which?"]]
    assert ref["iou"] == pytest.approx(58 / 60, abs=1e-3)
    assert outcome.rejected == {"box disagrees with the object": 1}  # of the left cup
    assert not +outcome.dropped


def test_a_turn_without_which_the_box_is_as_sure_is_taken_out() -> None:
    outcome = talk(machine(["hm?", "which?", "sure?"], sure_with("which")))
    assert outcome.refs[0]["dialog"][1:] == [["which?", "about which?"]]
    assert outcome.dropped["useless turn"] == 2
    moved = machine(["which?"], lambda said: (RIGHT if said else LEFT, 0.5))
    assert [ref["dialog"][1:] for ref in talk(moved).refs] == [[["which?", "about which?"]]]


@pytest.mark.parametrize(("min_iou", "turns", "iou"), [(0.78, 1, 0.8), (0.7, 0, 0.75)])
def test_a_turn_stays_where_the_box_without_it_disagrees_with_the_object(
    min_iou: float, turns: int, iou: float
) -> None:
    def box(said: list[str]) -> tuple[Box, float]:  # 0.8 and 0.75 of the right cup's width
        return Box(120, 10, 168 if said else 165, 90), 0.5

    (ref,) = talk(machine(["which?"], box, min_iou=min_iou)).refs
    assert (len(ref["dialog"]) - 1, ref["iou"]) == (turns, pytest.approx(iou))


def test_a_repeated_question_ends_the_dialogue_and_is_taken_out() -> None:
    outcome = talk(machine(["which?", "Which ?", "left?"], sure_with("which")))
    assert outcome.refs[0]["dialog"][1:] == [["which?", "about which?"]]
    assert outcome.dropped["repeated question"] == 1


@pytest.mark.parametrize(
    ("script", "settings", "reason"),
    [
        ([f"q{n}?" for n in range(7)], {}, "still asks after 6 rounds"),
        ([None], {}, "questioner does not see the object"),
        (["!"], {}, "a sentence cannot be used"),
        ([], {"min_rounds": 1}, "too few rounds"),
        ([], {"min_area": 0.9}, "no object found"),
    ],
)
def test_each_rejected_object_has_its_reason(
    script: list[str | None], settings: dict[str, Any], reason: str
) -> None:
    outcome = talk(machine(script, sure_with("q"), **settings))
    assert not outcome.refs
    assert outcome.rejected[reason] >= 1
    six = talk(machine([f"q{n}?" for n in range(6)], lambda said: (RIGHT, len(said) / 10)))
    assert len(six.refs[0]["dialog"]) == 7


def test_objects_are_drawn_by_area() -> None:
    one = machine([], sure_with("x"), per_image=1)
    rng = np.random.default_rng(0)
    kept = sum(len(one(Picture("p", lambda: IMAGE), rng).refs) for _ in range(400))
    assert kept / 400 == pytest.approx(RIGHT.area / (LEFT.area + RIGHT.area), abs=0.08)


# --- other words ---


@pytest.mark.parametrize(
    ("original", "other", "same"),
    [
        ("take the red cup on the left", "grab the red cup that is left", True),
        ("take the red cup", "take the cup", False),
        ("take the red cup", "take the blue cup", False),
        ("the cup on the left", "the cup on the right", False),
        ("yes, that one", "yeah, this one", True),
        ("it is not the cup", "it is the cup", False),
        ("no", "yes", False),
        ("take the cup", "take the zebra", False),
        ("the second cup", "cup two", False),
        ("which cup?", "which cup", False),
        ("the cup", "well, if you ask me then i would really like the cup, if you please", False),
        ("the cup", "", False),
        ("that is correct", "that is incorrect", False),
        ("left of the giraffe?", "left of the zebra?", False),
        ("near the window", "near the door", False),
        ("the tan cup", "the teal cup", False),
        ("the dark mug", "the light mug", False),
        ("inside the box", "outside the box", False),
        ("red mug next to the blue cup", "blue mug next to the red cup", False),
        ("the red mug next to the blue cup", "the red cup next to the blue mug", False),
        ("left of the cup", "the left cup", False),
        ("the cup on the plate", "the cup in the plate", False),
        ("on my left", "on your left", False),
        ("which color is it?", "which one is it?", False),
        ("i can see it", "i cannot see it", False),
        ("the red or the blue one?", "the red and the blue one?", False),
        ("that is correct", "yes, that is it", True),
        ("no, it is wrong", "no, it's not", True),
        ("near the window", "near that window, please", True),
        ("is it the red mug next to the blue cup?", "do you mean the red mug beside the blue cup?",
         True),
        ("what color is it?", "which colour is that?", True),
        ("please give me the big tan mug at the top", "hand me the large tan mug, top", True),
        ("it isn't the second one", "not the 2nd one", True),
    ],
)  # fmt: skip
def test_a_rephrasing_keeps_what_was_said(original: str, other: str, same: bool) -> None:
    assert is_same(original, other, ["cup", "zebra"]) == same


def test_the_original_stays_where_the_language_model_changes_the_meaning() -> None:
    said = {"take the cup": '"Grab the cup"', "which?": "what?!", "about which?": "the blue one"}
    rephrase = Rephraser(lambda prompt: said[prompt.splitlines()[-1]])
    outcome = talk(machine(["which?"], sure_with("which"), rephrase=rephrase))
    assert outcome.refs[0]["dialog"] == [["", "Grab the cup"], ["what?!", "about which?"]]
    assert (rephrase.tried, rephrase.changed, rephrase.refused) == (3, 2, 1)


def test_the_person_of_a_dialogue_talks_as_a_persona(tmp_path: Path) -> None:
    personas = read_personas(DEFAULT_PERSONAS)
    drawn = {personas.draw(np.random.default_rng(seed)) for seed in range(40)}
    assert len(drawn) > 20, "any combination"
    prompts: list[str] = []

    def say(prompt: str) -> str:
        prompts.append(prompt)
        return prompt.splitlines()[-1].replace("take", "grab")

    made = machine(["which?"], sure_with("which"), rephrase=Rephraser(say), personas=personas)
    (ref, *_) = talk(made).refs
    request, question, answer, *_ = prompts
    assert request.startswith(ref["persona"])
    assert answer.startswith(ref["persona"])
    assert question.startswith("Write this sentence"), "the robot is nobody"
    assert "grab" in ref["dialog"][0][1]
    (tmp_path / "own.json").write_text('{"personality": ["calm"], "vocation": ["cook"]}')
    with pytest.raises(ClueError, match=r"own\.json must have a list of words for each of"):
        read_personas(tmp_path / "own.json")
    with pytest.raises(ClueError, match="cannot read the personas"):
        read_personas(tmp_path / "none.json")


def saying(said: str, _prompt: str) -> str:
    """A language model that always says the same."""
    return said


def test_a_rephrased_dialogue_is_grounded_again() -> None:
    other = Box(124, 10, 180, 90)
    moves = {"grab the cup": LEFT, "hand me the cup": other}

    class Reader(ScriptedGrounder):
        def reply(self, view: Any, dialogue: Dialogue, *, force_grounding: bool = False) -> Any:
            self._box = lambda said: (moves.get(dialogue.turns[0].text, RIGHT), 0.5)
            return super().reply(view, dialogue, force_grounding=force_grounding)

    cups = [Candidate(RIGHT, "cup")]
    for said, kept, iou in (
        ("hand me the cup", "hand me the cup", 56 / 60),
        ("grab the cup", "take the cup", 1),
    ):
        rephrase = Rephraser(partial(saying, said))
        made = MachineParts(
            Reader([], sure_with("x")), lambda p, i, v: cups, lambda case: ("take the cup", ()),
            lambda case, request: str, rephrase,
        )  # fmt: skip
        (ref,) = talk(DialogueMachine(made, MachineSettings())).refs
        assert ref["dialog"] == [["", kept]]
        assert ref["iou"] == pytest.approx(iou, abs=1e-3)
        assert (rephrase.changed, rephrase.taken_back) == ((1, 0) if kept == said else (0, 1))


def test_the_labels_of_all_candidates_are_names() -> None:
    cans = [Candidate(RIGHT, "cup"), Candidate(Box(0, 0, 5, 5), "can")]
    rephrase = Rephraser(lambda prompt: "it is by the it")
    made = MachineParts(
        ScriptedGrounder([], sure_with("x")), lambda p, i, v: cans,
        lambda case: ("it is by the can", ()), lambda case, request: str, rephrase,
    )  # fmt: skip
    assert talk(DialogueMachine(made, MachineSettings())).refs[0]["dialog"][0][1].endswith("can")
    assert rephrase.refused == 1


# --- a folder of pictures, killed and gone on with ---

COUNT = 24


@pytest.fixture(scope="module")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small pictures, one of them broken."""
    folder = tmp_path_factory.mktemp("photographs")
    (folder / "more").mkdir()
    for number in range(COUNT - 1):
        place = folder / "more" if number % 3 else folder
        Image.fromarray(IMAGE + np.uint8(number)).save(place / f"{number}.png")
    (folder / "broken.jpg").write_bytes(b"no picture")
    return folder


def options_for(photographs: Path, out: Path, **more: Any) -> GenerateOptions:
    """Options of a run with scripted parts."""
    model = RobotOptions()
    return GenerateOptions(
        images=(str(photographs),), out=out, oracle="scripted", model=model, **more
    )


def parts(options: GenerateOptions, delay: float = 0.0) -> MachineParts:
    """Whoever is asked for the right cup points there; what is said depends on the draw."""
    cups = [Candidate(LEFT, "cup"), Candidate(RIGHT, "cup")]

    def describe(case: Case) -> tuple[str, tuple[int, ...]]:
        time.sleep(delay)
        return f"take cup {int(case.rng.integers(1000))}", ()

    grounder = ScriptedGrounder(["which?"], sure_with("about"))
    return MachineParts(
        grounder, lambda p, i, v: cups, describe, lambda case, request: lambda q: f"about {q}"
    )


def rows_of(folder: Path) -> list[Any]:
    """All rows of a folder, sorted."""
    lines = [x for p in folder.glob("train-*.jsonl") for x in p.read_text().splitlines()]
    return sorted((json.loads(line) for line in lines), key=lambda r: str(r["image_info"]["id"]))


def test_killed_processes_lose_nothing_and_do_nothing_twice(
    photographs: Path, tmp_path: Path
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    expected = generate(options_for(photographs, whole), parts)
    assert expected["pictures"] == COUNT
    assert expected["rejected"]["picture cannot be read"] == 1
    assert 0 < expected["dialogues"] < COUNT
    options = options_for(photographs, killed)
    journal = killed / "journal-00000-of-00001.log"
    for lines in (3, 9, 15):
        process = multiprocessing.get_context("fork").Process(
            target=generate, args=(options, partial(parts, delay=0.02))
        )
        process.start()
        deadline = time.monotonic() + 20
        while not (journal.exists() and journal.read_bytes().count(b"\n") >= lines):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.kill()  # SIGKILL
        process.join()
        assert process.exitcode == -9
        with journal.open("ab") as file:  # as if it had been killed in the middle of a line
            file.write(b'{"picture": "hal')
    found = generate(options, parts)
    times = ("seconds", "seconds_per_picture", "last_run")
    assert {k: v for k, v in found.items() if k not in times} == {
        k: v for k, v in expected.items() if k not in times
    }
    assert 0 < found["last_run"]["pictures"] < COUNT
    assert rows_of(killed) == rows_of(whole)
    done = [json.loads(line).get("picture") for line in journal.read_text().splitlines()][1:]
    assert len(done) == len(set(done)) == COUNT
    data = load_invig(killed, split="train")
    assert (len(data.samples), data.problems) == (expected["dialogues"], ())
    assert {s.id for s in data.samples} == {r["ref_list"][0]["id"] for r in rows_of(whole)}


def test_shards_share_the_pictures(photographs: Path, tmp_path: Path) -> None:
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    expected = generate(options_for(photographs, whole), parts)
    counts = []
    for shard in range(3):
        found = generate(options_for(photographs, parted, shards=3, shard=shard), parts)
        counts.append(found["pictures"])
    assert counts[0] < counts[1] < counts[2] == COUNT
    assert [found[k] for k in ("dialogues", "rejected", "rounds")] == [
        expected[k] for k in ("dialogues", "rejected", "rounds")
    ]
    assert rows_of(parted) == rows_of(whole)
    assert json.loads((parted / "report.json").read_text())["shards"] == 3


def test_a_folder_is_for_one_process_and_one_setting(photographs: Path, tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "out", 0, 1, {"seed": 0}),
        pytest.raises(ClueError, match="another process"),
    ):
        Journal(tmp_path / "out", 0, 1, {"seed": 0})
    with pytest.raises(ClueError, match="other settings, seed 0 and not 1"):
        Journal(tmp_path / "out", 0, 1, {"seed": 1})
    assert write_report(tmp_path / "out")["dialogues"] == 0
    (tmp_path / "ids.txt").write_text("3\n4\nbroken\n")
    options = options_for(photographs, tmp_path / "few", ids=tmp_path / "ids.txt", limit=2)
    assert generate(options, parts)["pictures"] == 2
    assert generate(options, parts)["pictures"] == 3
    kept = [("3", 4, 0.9), ("5", 2, math.nan)]
    write_selection(tmp_path / "selected.csv", kept)
    options = options_for(photographs, tmp_path / "chosen", ids=tmp_path / "selected.csv")
    assert generate(options, parts)["pictures"] == 2


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"shards": 2}, "shards 1 and not 2"),
        ({"shards": 2, "shard": 1, "seed": 4}, "seed 0 and not 4"),
        ({"model": RobotOptions(views=1)}, "views None and not 1"),
        ({"model": RobotOptions(threshold=0.2)}, "threshold None and not 0.2"),
        ({"model": RobotOptions(doubtful_score=0.5)}, "doubtful_score None and not 0.5"),
        ({"model": RobotOptions(detector="cnn")}, "detector None and not 'cnn'"),
        ({"model": RobotOptions(language_model="llm")}, "language_model None and not 'llm'"),
        ({"model": RobotOptions(candidates=("base:x",))}, r"candidates \[\] and not \['base:x'\]"),
    ],
)
def test_a_folder_begun_with_other_options_is_refused(
    photographs: Path, tmp_path: Path, more: dict[str, Any], told: str
) -> None:
    begun = options_for(photographs, tmp_path, limit=1)
    generate(begun, parts)
    files = set(tmp_path.iterdir())
    with pytest.raises(ClueError, match=f"other settings, .*{told}"):
        generate(replace(begun, **more), parts)
    assert set(tmp_path.iterdir()) == files


@pytest.mark.parametrize("changed", ["model", "model/ivg"])
def test_a_folder_begun_with_other_weights_is_refused(
    photographs: Path, tmp_path: Path, changed: str
) -> None:
    (tmp_path / "model" / "ivg").mkdir(parents=True)
    model = RobotOptions(model=str(tmp_path / "model"))
    begun = replace(options_for(photographs, tmp_path / "out", limit=1), model=model)
    generate(begun, parts)
    generate(begun, parts)
    (tmp_path / changed / "adapter_config.json").write_text("{}")
    with pytest.raises(ClueError, match="other settings, weights"):
        generate(begun, parts)


def test_pictures_of_the_same_name_in_two_folders_are_two(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(IMAGE).save(tmp_path / name / "x.png")
    sources = (str(tmp_path / "a"), str(tmp_path / "b"))
    options = replace(options_for(tmp_path, tmp_path / "out"), images=sources)
    assert generate(options, parts)["pictures"] == 2


# --- simulated scenes and real parts ---


def test_the_grammar_and_the_rules_talk_about_the_target(tmp_path: Path) -> None:
    (scene,) = random_scenes(1, 3, size=64)
    picture = Picture("s", lambda: scene.image, scene.objects)
    found = true_objects(picture, scene.image, None)
    assert [c.label for c in found] == [o.kind for o in scene.objects]
    rng = np.random.default_rng(0)
    case = Case(picture, scene.image, None, found, 0, rng)
    request = GrammarDescriber("blocks")(case)
    assert request is not None
    assert 0 in request[1]
    answer = RulesOfPerson("blocks")(case, request)("which color?")
    assert answer
    words = describe_by_words(case)
    assert words is not None
    assert scene.objects[0].kind in words[0]


def test_the_oracle_is_told_the_other_proposals(tmp_path: Path, photographs: Path) -> None:
    asked: list[Any] = []

    class FakeOracle:
        """Remembers what it is asked with."""

        def answer(self, _features: object, codes: Codes, _context: str, *told: object) -> str:
            """Always the same words."""
            asked.append((codes, *told))
            return "the left one"

        def require_box(self) -> None:
            """It sees the box."""

    person = OraclePerson(FakeOracle(), 1.5)  # type: ignore[arg-type]
    image = np.zeros((100, 200, 3), np.uint8)
    boxes = [Box(0, 0, 50, 50), Box(100, 0, 150, 50), Box(20, 60, 90, 90)]
    case = Case(
        Picture("a", lambda: image),
        image,
        SimpleNamespace(features=None),
        [Candidate(box, "cup") for box in boxes],
        1,
        np.random.default_rng(0),
    )
    assert person.answer(case, ("take the cup", ()))("which one ?") == "the left one"
    ((codes, others, rationality),) = asked
    first, own, third = (encode_box(box, 200, 100) for box in boxes)
    assert (codes, sorted(others), rationality) == (own, sorted([first, third]), 1.5)


def test_the_command_with_a_model_an_oracle_and_a_language_model(
    tmp_path: Path, photographs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = write_random_model(tmp_path / "model", vocabulary(), threshold=1)
    path = shards.shard_path(tmp_path / "scenes", "train", 0, 0)
    shards.write_shard(path, random_scenes(3, 0, size=64))
    llm = write_random_language_model(tmp_path / "llm")
    words = ["data", "generate", f"tabletop:{tmp_path / 'scenes'}", "--out", str(tmp_path / "out")]
    words += ["--model", str(model), "--device", "cpu", "--min-iou", "0", "--rephrase", str(llm)]
    words += ["--personas", "default"]
    assert main(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["pictures"] == 3
    assert told["dialogues"] + sum(told["rejected"].values()) == 3
    assert told["dialogues"] > 0
    assert told["sentences"]["asked to rephrase"] >= told["dialogues"]
    assert len(load_invig(tmp_path / "out").samples) == told["dialogues"]
    (file,) = (tmp_path / "out").glob("train*.jsonl")
    rows = map(json.loads, file.read_text().splitlines())
    assert all("Talk as " in ref["persona"] for row in rows for ref in row["ref_list"])
    for more, reason in (
        ([str(photographs)], "photographs need --oracle"),
        ([str(photographs), f"tabletop:{tmp_path}"], "one command for each"),
        ([f"tabletop:{tmp_path}", "--describe", "oracle"], "needs --oracle"),
        ([f"tabletop:{tmp_path}", "--shard", "1"], "they begin at 0"),
        ([f"tabletop:{tmp_path}", "--personas", "default"], "--personas needs --rephrase"),
        ([f"tabletop:{tmp_path / 'nowhere'}"], "no scenes of world"),
    ):
        assert main(["data", "generate", *more, "--out", str(tmp_path / "other")]) == 2
        assert reason in capsys.readouterr().err


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs the extra ray")
def test_ray_workers_make_the_same_dialogues(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path(__file__).parent
    paths = (str(here), str(here.parent), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))  # the workers import this file
    monkeypatch.setenv("RAY_worker_niceness", "0")  # at Ray's 15 other tests hold them up
    whole = generate(options_for(photographs, tmp_path / "whole"), parts)
    options = options_for(photographs, tmp_path / "out", ray="local", ray_workers=2)
    found = generate(options, parts)
    assert (found["pictures"], found["rejected"]) == (COUNT, whole["rejected"])
    assert rows_of(tmp_path / "out") == rows_of(tmp_path / "whole")


def test_without_ray_the_message_names_what_to_install(
    photographs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ClueError, match="--ray needs ray, of the extra ray"):
        generate(options_for(photographs, tmp_path / "out", ray="local"), parts)
