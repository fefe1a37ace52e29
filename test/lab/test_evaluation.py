"""Metrics against values worked out by hand, and the protocol against a model that is a script."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from it2p_files import write_it2p

from clue_ros.cli import main
from clue_ros.dialogue.types import AmbiguityEstimate, Box, Dialogue, Grounding, Question
from clue_ros.lab.data.it2p import load_it2p
from clue_ros.lab.evaluation.it2p import it2p_samples
from clue_ros.lab.evaluation.protocol import ClearRequest, DialogueRequest, EvalSample, evaluate
from clue_ros.lab.evaluation.tabletop import tabletop_samples
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.simulated_user import RichUser, question_axis
from clue_ros.lab.metrics import center_near, count, ratio, wilson
from clue_ros.lab.simulator.scene import Scene, SceneObject

IMAGE = np.zeros((250, 250, 3), np.uint8)
RIGHT, WRONG = Box(90, 90, 110, 110), Box(0, 0, 10, 10)


def test_counts_by_hand() -> None:
    pairs = [(True, True)] * 6 + [(False, True)] * 2 + [(False, False)] * 8 + [(True, False)] * 4
    table = count(pairs)
    assert table.n == 20
    assert table.accuracy == pytest.approx(14 / 20)
    assert table.precision == pytest.approx(6 / 8)
    assert table.recall == pytest.approx(6 / 10)
    assert table.f1 == pytest.approx(2 * 0.75 * 0.6 / (0.75 + 0.6))


def test_counts_of_nothing_and_of_no_positive() -> None:
    assert math.isnan(count([]).accuracy)
    silent = count([(True, False), (False, False)])
    assert (silent.precision, silent.recall, silent.f1) == (0.0, 0.0, 0.0)
    assert silent.accuracy == 0.5


def test_iou_by_hand() -> None:
    assert Box(0, 0, 10, 10).iou(Box(5, 0, 15, 10)) == pytest.approx(50 / 150)
    assert RIGHT.iou(RIGHT) == 1.0
    assert Box(0, 0, 10, 10).iou(Box(10, 0, 20, 10)) == 0.0
    assert Box(5, 5, 5, 5).iou(Box(5, 5, 5, 5)) == 0.0
    assert Box(10, 10, 0, 0).iou(Box(0, 0, 10, 10)) == 0.0


def test_boxes_of_an_image_in_other_units_and_places() -> None:
    box = Box(-20, 10, 60, 30)
    assert (box.width, box.height, box.area) == (80, 20, 1600)
    assert box.in_fractions(200, 100) == Box(-0.1, 0.1, 0.3, 0.3)
    assert box.in_fractions(200, 100).in_pixels(200, 100) == box
    assert box.clipped(50, 25) == Box(0, 10, 50, 25)
    assert box.in_fractions(200, 100).clipped() == Box(0, 0.1, 0.3, 0.3)
    assert box.moved(20, -10) == Box(0, 0, 80, 20)
    assert box.grown(1, 2) == Box(-21, 8, 61, 32)
    assert box.shared(Box(50, 20, 90, 90)) == 100
    assert (box.gap(Box(63, 34, 70, 40)), box.gap(Box(60, 0, 70, 40))) == (5, 0)


def test_centres() -> None:
    assert center_near(RIGHT, (112, 116), 20.0)
    assert not center_near(RIGHT, (112, 117), 20.0)
    assert Box(100, 100, 101, 101).contains(RIGHT.center)
    assert not Box(80, 80, 100, 120).contains(RIGHT.center)


def test_wilson_interval_by_hand() -> None:
    low, high = wilson(8, 10)
    assert low == pytest.approx(0.4902, abs=1e-3)
    assert high == pytest.approx(0.9433, abs=1e-3)
    assert wilson(10, 10)[1] == 1.0
    assert all(math.isnan(bound) for bound in wilson(0, 0))
    assert math.isnan(ratio(0, 0))


class FakeClue:
    """Not a model: it asks about what is in ``unsure`` until it hears a word of ``settles``."""

    def __init__(self, unsure: set[str], settles: dict[str, Box], policy: str = "detector") -> None:
        self.unsure, self.settles, self.policy = unsure, settles, policy
        self.looked = 0
        self.heard: list[str] = []

    def look(self, image: npt.NDArray[np.uint8]) -> int:
        """Count the look."""
        self.looked += 1
        return self.looked

    def ambiguity(self, view: int, expression: str | Dialogue) -> AmbiguityEstimate:
        """Unsure of what it was told to be unsure of."""
        dialogue = Dialogue(expression) if isinstance(expression, str) else expression
        asks = dialogue.request in self.unsure and self._settled(dialogue) is None
        grid = np.zeros((4, 4), np.float32)
        return AmbiguityEstimate(0.9 if asks else 0.1, 0.5, grid, (), 0.0)

    def reply(
        self, view: int, dialogue: Dialogue, *, force_grounding: bool = False
    ) -> Question | Grounding:
        """Ask while unsure, else point where it was told to."""
        estimate = self.ambiguity(view, dialogue)
        self.heard.append(dialogue.context())
        if estimate.is_ambiguous and not force_grounding:
            return Question("which one ?", (), (), estimate)
        box = self._settled(dialogue) or self.settles.get(dialogue.request, WRONG)
        return Grounding(box, "it", 1.0, estimate)

    def _settled(self, dialogue: Dialogue) -> Box | None:
        return self.settles.get(dialogue.turns[-1].text) if dialogue.questions else None


def right(box: Box) -> bool:
    return center_near(box, (100, 100), 20)


def always(word: str) -> Callable[[str], str]:
    return lambda question: word


GRADES = {"accuracy": right}


def test_a_clear_request_is_right_only_when_it_points_there() -> None:
    sample = EvalSample(
        "one",
        lambda: IMAGE,
        clear=(
            ClearRequest("good", GRADES),
            ClearRequest("off", GRADES),
            ClearRequest("asked", GRADES),
        ),
    )
    clue = FakeClue({"asked"}, {"good": RIGHT, "asked": RIGHT})
    report = evaluate(clue, [sample])
    clear = report.of("clear")
    assert [record["right"] for record in clear] == [True, False, False]
    assert [record["asked"] for record in clear] == [False, False, True]
    assert [record["grades_forced"]["accuracy"] for record in clear] == [True, False, True]
    assert report.summary()["clear"] == {"accuracy": 0.3333, "n": 3}
    assert report.summary()["ambiguity"]["accuracy"] == 0.6667


def test_ambiguity_sets_clear_against_ambiguous_requests() -> None:
    sample = EvalSample(
        "one",
        lambda: IMAGE,
        clear=(ClearRequest("a", GRADES), ClearRequest("b", GRADES)),
        ambiguous=("x", "y"),
    )
    for policy in ("detector", "decoder"):
        report = evaluate(FakeClue({"x", "b"}, {}, policy), [sample])
        assert report.summary()["ambiguity"] == {
            "accuracy": 0.5,
            "precision": 0.5,
            "recall": 0.5,
            "f1": 0.5,
            "n": 4,
        }


def test_a_dialogue_ends_at_the_answer_that_settles_it() -> None:
    sample = EvalSample(
        "one", lambda: IMAGE, interactive=(DialogueRequest("the x", GRADES, always("red")),)
    )
    clue = FakeClue({"the x"}, {"red": RIGHT})
    report = evaluate(clue, [sample])
    assert clue.heard == ["the x", "the x assistant: which one ? user: red"]
    assert report.summary()["interactive"] == {
        "accuracy": 1.0,
        "accuracy_forced": 1.0,
        "questions": 1.0,
        "n": 1,
    }


def test_a_dialogue_whose_questions_are_used_up_is_wrong_unless_it_must_point() -> None:
    sample = EvalSample(
        "one", lambda: IMAGE, interactive=(DialogueRequest("the x", GRADES, always("that one")),)
    )
    clue = FakeClue({"the x"}, {"the x": RIGHT})
    for force, accuracy, outcome in ((False, 0.0, "MAX_TURNS"), (True, 1.0, "NONE")):
        report = evaluate(clue, [sample], max_questions=2, force_grounding=force)
        (record,) = report.of("interactive")
        assert (record["questions"], record["outcome"]) == (2, outcome)
        interactive = report.summary()["interactive"]
        assert (interactive["accuracy"], interactive["accuracy_forced"]) == (accuracy, 1.0)
    never = evaluate(clue, [sample], max_questions=0, force_grounding=True)
    assert never.summary()["interactive"]["questions"] == 0


@pytest.mark.parametrize("answer", ["don't pick it up", "stop", "no", "none of them"])
def test_a_dialogue_that_the_person_refuses_is_wrong_and_has_no_box(answer: str) -> None:
    texts = ("the x", "do not touch x")
    talks = tuple(DialogueRequest(text, GRADES, always(answer)) for text in texts)
    told: list[str] = []
    report = evaluate(
        FakeClue({"the x"}, {"the x": RIGHT}),
        [EvalSample("one", lambda: IMAGE, interactive=talks)],
        force_grounding=True,
        problem=told.append,
    )
    records = report.of("interactive")
    assert [record["outcome"] for record in records] == ["CANCELED", "CANCELED"]
    for record in records:
        assert (record["right"], record["box"]) == (False, None)
        assert record["grades_forced"] == {"accuracy": False}
    (problem,) = told
    assert problem.startswith("one: the person does not want it")


def test_a_request_that_the_conversation_refuses_is_a_wrong_dialogue() -> None:
    talk = DialogueRequest("yes", GRADES, always("the red one"))
    report = evaluate(
        FakeClue(set(), {"yes": RIGHT}), [EvalSample("one", lambda: IMAGE, interactive=(talk,))]
    )
    (record,) = report.of("interactive")
    assert (record["outcome"], record["right"]) == ("CANCELED", False)
    assert report.summary()["interactive"]["n"] == 1


def test_the_command_that_never_asks_points(
    tmp_path: Path, random_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", "it2p", "--data", str(write_it2p(tmp_path)), "--model", str(random_model)]
    records = tmp_path / "records.jsonl"
    words += ["--threshold", "0", "--policy", "detector", "--records", str(records), "--json"]
    for more, outcome in (([], "MAX_TURNS"), (["--force-grounding"], "NONE"), ([], "NONE")):
        turns = "0" if outcome == "NONE" and not more else "1"
        assert main([*words, "--max-turns", turns, *more]) == 0
        rows = [json.loads(line) for line in records.read_text().splitlines()]
        talks = [row for row in rows if row["part"] == "interactive"]
        assert {row["outcome"] for row in talks} == {outcome}
        assert {row["questions"] for row in talks} == {int(turns)}
        found = json.loads(capsys.readouterr().out)["interactive"]
        assert outcome == "NONE" or found["accuracy"] == 0


def test_each_picture_is_looked_at_once_and_a_broken_one_is_told() -> None:
    def broken() -> npt.NDArray[np.uint8]:
        raise OSError("disk on fire")

    requests = tuple(ClearRequest(text, GRADES) for text in "abc")
    samples = [
        EvalSample("bad.jpg", broken, clear=requests),
        EvalSample("x", lambda: IMAGE, clear=requests),
    ]
    clue, told = FakeClue(set(), {}), list[str]()
    report = evaluate(clue, samples, problem=told.append)
    assert clue.looked == 1
    assert len(report.of("clear")) == 3
    assert told == ["bad.jpg: left out, disk on fire"]


def test_nothing_asked_is_null_and_not_zero() -> None:
    summary = evaluate(FakeClue(set(), {}), [EvalSample("x", lambda: IMAGE)]).summary()
    assert summary["clear"] == {"accuracy": None, "n": 0}
    assert summary["interactive"] == {
        "accuracy": None,
        "accuracy_forced": None,
        "questions": None,
        "n": 0,
    }
    json.dumps(summary, allow_nan=False)


def test_the_report_reads_well() -> None:
    sample = EvalSample(
        "one", lambda: IMAGE, clear=(ClearRequest("good", GRADES),), ambiguous=("x",)
    )
    report = evaluate(FakeClue({"x"}, {"good": RIGHT}), [sample])
    assert "| clear | 1.000 | 0.207 | 1.000 | - | 1 |" in report.text(markdown=True)
    assert "| ambiguity | accuracy | precision | recall | f1 | n |" in report.text(markdown=True)


def test_it2p_samples_are_bounded_balanced_and_repeatable(tmp_path: Path) -> None:
    data = load_it2p(write_it2p(tmp_path))
    samples = it2p_samples(data, per_image=1, seed=3)
    assert [(len(s.clear), len(s.ambiguous), len(s.interactive)) for s in samples] == [
        (1, 1, 1)
    ] * 2
    again = it2p_samples(data, per_image=1, seed=3)
    assert [s.clear[0].text for s in samples] == [s.clear[0].text for s in again]
    seeds = [[s.clear[0].text for s in it2p_samples(data, per_image=1, seed=k)] for k in range(9)]
    assert len({tuple(texts) for texts in seeds}) > 1
    everything = it2p_samples(data, per_image=0)
    assert [len(s.clear) for s in everything] == [5, 3]
    assert [len(s.ambiguous) for s in everything] == [2, 1]
    assert samples[0].load().shape == (250, 250, 3)


def test_it2p_is_right_within_twenty_pixels_of_the_point(tmp_path: Path) -> None:
    data = load_it2p(write_it2p(tmp_path))
    sample = it2p_samples(data, per_image=0)[0]
    grade = next(r for r in sample.clear if r.text == "pick up the red block").grades["accuracy"]
    assert grade(Box(190, 90, 210, 110))
    assert grade(Box(210, 90, 230, 110))
    assert not grade(Box(211, 90, 231, 110))


def test_it2p_answers_whatever_is_asked_with_the_data_sets_word(tmp_path: Path) -> None:
    second = it2p_samples(load_it2p(write_it2p(tmp_path)), per_image=0)[1]
    answers = sorted(e.answer("who are you ?") for e in second.interactive)
    assert answers == ["lowerright", "upperleft"]


def scene(*objects: tuple[str, str, float]) -> Scene:
    """Objects of a kind and a colour, at places from left (0) to right (1)."""
    made = tuple(SceneObject(k, c, (x - 0.05, 0.4, x + 0.05, 0.6)) for k, c, x in objects)
    return Scene(np.zeros((200, 400, 3), np.uint8), made, np.zeros((8, 8), np.uint8))


def test_tabletop_requests_mean_what_their_kind_says() -> None:
    made = scene(("block", "red", 0.1), ("block", "blue", 0.9), ("ball", "red", 0.5))
    sample = tabletop_samples([made], per_image=3)[0]
    assert len(sample.clear) == 3
    assert len(sample.interactive) == len(sample.ambiguous) == 3
    assert not {r.text for r in sample.clear} & set(sample.ambiguous)
    for request in sample.clear:
        hits = [o for o in made.objects if request.grades["accuracy"](pixels(o))]
        assert len(hits) == 1
        if "blue" in request.text:
            assert hits[0].color == "blue"


def pixels(thing: SceneObject) -> Box:
    x_min, y_min, x_max, y_max = thing.box
    return Box(x_min * 400, y_min * 200, x_max * 400, y_max * 200)


def test_tabletop_grades_overlap_and_centre() -> None:
    made = scene(("block", "red", 0.5), ("ball", "green", 0.9))
    grades = next(
        r.grades
        for r in tabletop_samples([made], per_image=2)[0].clear
        if r.grades["accuracy"](pixels(made.objects[0]))
    )
    assert grades["accuracy"](Box(180, 80, 220, 101))
    assert not grades["accuracy"](Box(180, 80, 220, 99))
    assert grades["center"](Box(195, 95, 205, 105))
    assert not grades["center"](Box(0, 0, 20, 20))


@pytest.mark.parametrize(
    ("question", "axis"),
    [
        ("the red one or the silver one ?", "color"),
        ("which color ?", "color"),
        ("the big one or the small one ?", "size"),
        ("the ball or the cylinder ?", "kind"),
        ("the left one or the right one ?", "place"),
        ("where is it ?", "place"),
        ("is it the upper one ?", "place"),
        ("i don ' t see a red ball .", "nothing"),
        ("I do not see a red ball. Which one do you mean?", "nothing"),
    ],
)
def test_what_a_question_asks_for(question: str, axis: str) -> None:
    assert question_axis(question) == axis


def test_the_person_says_what_tells_the_target_apart_and_repeats_it() -> None:
    made = scene(("block", "red", 0.1), ("block", "red", 0.9), ("block", "blue", 0.5))
    for seed in range(20):
        person = RichUser(grammar_of(), made.objects, 1, (0, 1), seed)
        first = person("the left one or the right one ?")
        assert person.candidates == (1,)
        assert person("which color ?") == first
