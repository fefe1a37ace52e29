"""What the adapters and the decoder are taught: samples, photographs' dialogues, calibration."""

import re
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from drawn_scenes import draw_scene, random_scenes
from it2p_files import write_it2p
from tiny_model import write_random_model

from clue_ros.lab.data.it2p import It2pImage, load_it2p
from clue_ros.lab.data.it2p_boxes import it2p_scene
from clue_ros.lab.language.dialogues import DialogueState
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.language.words import UNSURE, mirrored_text
from clue_ros.lab.simulator.scene import Scene
from clue_ros.lab.training import detector, samples
from clue_ros.lab.training.augment import ScenePool, mirrored
from clue_ros.lab.training.datasets import TrainingData, load_photos
from clue_ros.lab.training.detector import (
    calibrate,
    collate,
    f1,
    fit_temperature,
    fit_threshold,
)
from clue_ros.lab.training.loop import TrainingSettings
from clue_ros.lab.training.packing import patch_shares
from clue_ros.lab.training.samples import (
    adapter_samples,
    box_suffix,
    detect_query,
    dialogue_query,
    held_out_adapter_samples,
    oracle_query,
    photo_queries,
    photo_states,
    scene_queries,
)
from clue_ros.lab.training.vision import batch_tensor, dense_targets
from clue_ros.model.detector import DetectorSettings
from clue_ros.model.heads import detector_loss
from clue_ros.model.oracle import ANSWER, DESCRIBE
from clue_ros.model.prompts import load_processor
from clue_ros.model.torch_backbone import load_model

SIZE = 64
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def it2p(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_it2p(tmp_path_factory.mktemp("it2p"))


@pytest.fixture(scope="module")
def data(it2p: Path) -> TrainingData:
    photos = load_photos(it2p, "all", SIZE)
    train, val = (ScenePool(random_scenes(6, seed, size=SIZE), SIZE) for seed in (0, 1))
    return TrainingData(train, photos, val, photos)


# --- colours


def test_a_scanned_object_has_any_colour_of_its_surface_as_a_dense_target() -> None:
    none = ScenePool([], SIZE)
    table = TrainingData(none, none, none, none, "table")
    scene = draw_scene(SIZE, [("block", "gray", (0, 0, 32, 32))])
    scene = replace(scene, objects=(replace(scene.objects[0], color="silver"),))
    targets = dense_targets([scene], SIZE // 16, ("block",), table.colors)
    assert table.colors[int(targets.colors[0])] == "silver"
    assert "silver" not in TrainingData(none, none, none, none, "rich").colors


# --- queries


def test_a_question_or_a_box_is_taught_as_the_dialogue_says() -> None:
    scene = draw_scene(64, [("block", "red", (0, 0, 16, 16)), ("block", "red", (32, 32, 48, 64))])
    rng = np.random.default_rng(0)
    first, second = grammar_of().dialogue_from("the red block", (0, 1), scene.objects, rng)
    asks, points = (dialogue_query(s, scene.objects) for s in (first, second))
    assert (asks.instruction, asks.context, asks.suffix) == (
        "clarify",
        "the red block",
        first.question,
    )
    assert (asks.meant, asks.ambiguous) == ((0, 1), True)
    target = second.candidates[0]
    assert (points.context, points.meant, points.ambiguous) == (second.context, (target,), False)
    boxes = ["<loc0000><loc0000><loc0256><loc0256>", "<loc0512><loc0512><loc1023><loc0767>"]
    assert points.suffix == boxes[target]
    assert points.pointers == tuple((k, target) for k in range(4))


def test_the_oracle_learns_answers_and_requests_but_none_that_leaves_the_choice_open() -> None:
    """`UNSURE` answers say nothing of the box, which the oracle has in mind."""
    rng, rich, heard, learned = np.random.default_rng(0), grammar_of("rich"), 0, []
    for scene in random_scenes(40, 3):
        for _ in range(40):
            if states := rich.dialogue(scene.objects, rng):
                heard += any(state.context.endswith(UNSURE) for state in states)
                if query := oracle_query(states, scene.objects, rng, rich):
                    learned.append(query)
    assert heard > 3, "some leave the choice to the robot, or the test says nothing"
    assert not any(query.suffix in UNSURE for query in learned)
    begins = {query.instruction.split()[0] for query in learned}
    assert begins == {ANSWER, DESCRIBE}


def ask_only(monkeypatch: pytest.MonkeyPatch, share: str) -> None:
    """Let every question of the oracle's training be of one sort."""
    for name in ("STRAY", "BIG_OR_SMALL", "ANY_PLACE", "DRAWN"):
        monkeypatch.setattr(samples, name, float(name == share))


def test_the_oracle_takes_no_option_of_a_question_that_does_not_fit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask_only(monkeypatch, "STRAY")
    blocks = [("block", "red", (0, 0, 16, 16)), ("block", "red", (40, 0, 56, 16))]
    balls = [("ball", "green", (0, 40, 16, 56)), ("ball", "blue", (40, 40, 56, 56))]
    scene, rng = draw_scene(64, [*blocks, *balls]), np.random.default_rng(0)
    rich = grammar_of("rich")
    states = rich.dialogue_from("the red block", (0, 1), scene.objects, rng)
    drawn = [oracle_query(states, scene.objects, rng, rich) for _ in range(300)]
    answers = [query for query in drawn if query and query.context]
    assert {query.meant for query in answers} == {(0, 1)}, "its words look at both blocks"
    told = [(query.context, str(query.suffix)) for query in answers]
    stray = [said for asked, said in told if re.search("green.* or |blue.* or ", asked)]
    assert len(stray) > 20, "questions about the balls, or the test says nothing"
    assert not any(re.search("green|blue", said) for said in stray)
    assert any(re.search("left|right", said) for said in stray)


@pytest.mark.parametrize(("axis", "words"), [("size", "big|small"), ("place", "left|right")])
def test_the_oracle_is_asked_for_the_properties_that_its_weights_name(
    monkeypatch: pytest.MonkeyPatch, axis: str, words: str
) -> None:
    """The dialogue's own question about these blocks is about their colour."""
    ask_only(monkeypatch, "DRAWN")
    weights = {name: float(name == axis) for name in samples.DRAWN_AXES}
    monkeypatch.setattr(samples, "DRAWN_AXES", weights)
    blocks = [("block", "red", (0, 0, 8, 8)), ("block", "blue", (32, 0, 60, 28))]
    scene, rng = draw_scene(64, blocks), np.random.default_rng(0)
    rich = grammar_of("rich")
    objects = [replace(o, extent=e) for o, e in zip(scene.objects, (0.03, 0.1), strict=True)]
    states = rich.dialogue_from("the block", (0, 1), objects, rng)
    assert "blue" in str(states[0].question)
    drawn = [oracle_query(states, objects, rng, rich) for _ in range(100)]
    answers = [query for query in drawn if query and query.context]
    assert len(answers) > 50
    assert all(re.search(f"({words}).* or ", query.context) for query in answers)
    assert sum(bool(re.search(words, str(query.suffix))) for query in answers) > 25


@pytest.mark.parametrize("upright", [False, True])
def test_the_oracle_is_asked_for_places_where_the_candidates_do_not_stand(
    monkeypatch: pytest.MonkeyPatch, upright: bool
) -> None:
    """Three blocks in a row or in a column, and every question that lists places."""
    ask_only(monkeypatch, "ANY_PLACE")
    boxes = [(at, 20, at + 10, 30) for at in (0, 25, 50)]
    if upright:
        boxes = [(x0, y0, x1, y1) for y0, x0, y1, x1 in boxes]
    scene, rng = draw_scene(64, [("block", "red", box) for box in boxes]), np.random.default_rng(0)
    rich = grammar_of("rich")
    states = rich.dialogue_from("the block", (0, 1, 2), scene.objects, rng)
    drawn = [oracle_query(states, scene.objects, rng, rich) for _ in range(300)]
    told = [(query.context, str(query.suffix)) for query in drawn if query and query.context]
    asked = {context.split("assistant: ")[-1] for context, _ in told}
    assert len(asked) == len(samples.PLACE_LISTS)
    other = ("left|right", "upper|lower")[not upright]
    misfits = [said for context, said in told if re.search(other, context)]
    assert len(misfits) > 50
    assert not any(re.search(other, said) for said in misfits)


def test_a_drawn_question_leaves_out_options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Five blocks of five colours: more than a question can list."""
    ask_only(monkeypatch, "DRAWN")
    colors = ("red", "blue", "green", "yellow", "purple")
    blocks = [("block", c, (12 * i, 0, 12 * i + 10, 10)) for i, c in enumerate(colors)]
    scene, rng = draw_scene(64, blocks), np.random.default_rng(0)
    rich = grammar_of("rich")
    states = rich.dialogue_from("the block", tuple(range(5)), scene.objects, rng)
    drawn = [oracle_query(states, scene.objects, rng, rich) for _ in range(200)]
    answers = [query for query in drawn if query and query.context]
    lists = [re.findall("|".join(colors), query.context) for query in answers]
    (target,) = states[-1].candidates
    assert {len(listed) for listed in lists} == {2, 3}
    assert {colors[target] in listed for listed in lists} == {True, False}
    assert all(query.meant == (0, 1, 2, 3, 4) for query in answers)


@pytest.mark.parametrize(
    ("box", "place"),
    [((0, 0, 10, 10), "upper"), ((0, 30, 10, 34), "middle"), ((0, 54, 10, 64), "lower")],
)
def test_the_place_in_the_picture_is_a_third_of_it(
    box: tuple[int, int, int, int], place: str
) -> None:
    (block,) = draw_scene(64, [("block", "red", box)]).objects
    assert samples.place_in_picture(block, ("upper", "middle", "lower")) == place
    assert samples.place_in_picture(block, ("left", "right")) == "left"


def test_the_oracle_says_no_size_of_what_is_as_large(monkeypatch: pytest.MonkeyPatch) -> None:
    ask_only(monkeypatch, "BIG_OR_SMALL")
    blocks = [("block", "red", (0, 0, 16, 16)), ("block", "red", (40, 0, 56, 16))]
    scene, rng = draw_scene(64, blocks), np.random.default_rng(0)
    rich = grammar_of("rich")
    states = rich.dialogue_from("the block", (0, 1), scene.objects, rng)
    drawn = [oracle_query(states, scene.objects, rng, rich) for _ in range(100)]
    answers = [query for query in drawn if query and query.context]
    assert len(answers) > 50
    assert all(query.context.endswith("the big one or the small one ?") for query in answers)
    assert not any(re.search("big|small|large", str(query.suffix)) for query in answers)
    assert sum(bool(re.search("left|right", str(query.suffix))) for query in answers) > 50


def test_the_oracle_is_asked_for_places_that_the_others_alone_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both blocks are in the left half: "the right one" is right of the other alone."""
    ask_only(monkeypatch, "DRAWN")
    monkeypatch.setattr(samples, "FAR_PLACE", 1e9)
    blocks = [("block", "red", (0, 0, 8, 8)), ("block", "blue", (20, 0, 28, 8))]
    scene, rng = draw_scene(64, blocks), np.random.default_rng(0)
    rich = grammar_of("rich")
    asked: dict[int, list[bool]] = {0: [], 1: []}
    for _ in range(200):
        states = rich.dialogue_from("the block", (0, 1), scene.objects, rng)
        query = oracle_query(states, scene.objects, rng, rich)
        if query and query.context and states[-1].candidates:
            asked[states[-1].candidates[0]].append("left" in query.context)
    assert min(map(len, asked.values())) > 30
    assert all(asked[1])
    assert 0 < sum(asked[0]) < len(asked[0])


def test_the_tasks_of_a_picture_come_in_their_shares() -> None:
    rng = np.random.default_rng(0)
    queries = [
        q for scene in random_scenes(40, 3) for q in scene_queries(scene, 10, rng, grammar_of())
    ]
    assert len(queries) > 300
    shares = {
        "clarify": np.mean([q.instruction == "clarify" for q in queries]),
        "look": np.mean([q.suffix is None for q in queries]),
        "list": np.mean([q.instruction == "detect" and q.suffix is not None for q in queries]),
    }
    assert shares == pytest.approx({"clarify": 0.62, "look": 0.15, "list": 0.23}, abs=0.08)
    assert all(0 <= i < 7 for q in queries for i in q.meant)


# --- photographs


def record_of(it2p: Path, image_id: str) -> tuple[It2pImage, Scene]:
    (record,) = (r for r in load_it2p(it2p).images if r.id == image_id)
    return record, it2p_scene(record)


def test_a_photograph_becomes_a_scene_in_the_order_of_its_blocks(it2p: Path) -> None:
    for image_id in ("0001", "0002"):
        record, scene = record_of(it2p, image_id)
        assert [o.color for o in scene.objects] == [b.color for b in record.blocks]
        for o, b in zip(scene.objects, record.blocks, strict=True):
            # squares of 36 pixels around their points
            x, y = b.point
            expected = np.array([x - 18, y - 18, x + 18, y + 18]) / 250
            np.testing.assert_allclose(o.box, expected, atol=4 / 250)
        assert set(np.unique(scene.instances)) == set(range(len(record.blocks) + 1))


@pytest.mark.parametrize("mirror", list(product((False, True), repeat=2)))
def test_dialogues_about_photographs_speak_of_what_is_seen(
    it2p: Path, mirror: tuple[bool, bool]
) -> None:
    record, scene = record_of(it2p, "0002")
    seen = mirrored(scene, mirror)
    place = {p: mirrored_text(p, mirror) for p in ("upper", "lower")}
    rng = np.random.default_rng(0)
    first: dict[str, tuple[int, ...]] = {}
    for _ in range(60):
        states = photo_states(record, seen, mirror, rng, grammar_of())
        if not states:
            continue
        first[states[0].context] = states[0].candidates
        if len(states) > 1:
            assert_answer_is_true(states[1], seen)
    at = {b.point: i for i, b in enumerate(record.blocks)}
    upper, lower, blue = (
        next(i for p, i in at.items() if np.hypot(p[0] - x, p[1] - y) < 12)
        for x, y in ((60, 50), (190, 200), (60, 200))
    )
    assert first == {
        "pick up the green block": tuple(sorted((upper, lower))),
        f"pick up the {place['upper']} green block": (upper,),
        f"pick up the {place['lower']} green block": (lower,),
        "pick up the blue block": (blue,),
    }


def test_half_of_the_ambiguous_commands_are_answered_in_the_data_sets_own_words(
    it2p: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, scene = record_of(it2p, "0002")
    assert record.interactive
    allowed = {
        (m, mirrored_text(d.text, m), mirrored_text(word, m)): d.point
        for m in ((False, False), (False, True))
        for d in record.interactive
        for word in d.answers
    }
    monkeypatch.setattr("clue_ros.lab.training.samples.OWN_WORDS", 1.0)
    seen: set[tuple[tuple[bool, bool], str, str]] = set()
    for i in range(80):
        mirror = (False, i % 2 == 1)
        turned = mirrored(scene, mirror)
        states = photo_states(record, turned, mirror, np.random.default_rng(i), grammar_of())
        if len(states) != 2:
            continue
        assert states[0].question is not None
        assert states[1].context.startswith(
            f"{states[0].context} assistant: {states[0].question} user: "
        )
        said = (mirror, states[0].context, states[1].context.rsplit("user: ", 1)[1])
        point = allowed[said]
        assert states[1].question is None
        (target,) = states[1].candidates
        assert record.blocks[target].point == pytest.approx(point, abs=12)
        seen.add(said)
    assert len(seen) > 2


def assert_answer_is_true(state: DialogueState, seen: Scene) -> None:
    """A place in the answer is where the object now lies among the two green blocks."""
    (target,) = state.candidates
    said = set(re.findall(r"[a-z]+", state.context.rsplit("user:", 1)[1]))
    x, y = seen.objects[target].center
    for words, holds in (
        ({"left", "leftmost", "upperleft", "lowerleft"}, x < 0.5),
        ({"right", "rightmost", "upperright", "lowerright"}, x > 0.5),
        ({"upper", "top", "upperleft", "upperright"}, y < 0.5),
        ({"lower", "bottom", "lowerleft", "lowerright"}, y > 0.5),
    ):
        assert not said & words or holds, (state.context, seen.objects[target])


def test_queries_about_photographs(it2p: Path) -> None:
    rng = np.random.default_rng(2)
    for image_id in ("0001", "0002"):
        record, scene = record_of(it2p, image_id)
        queries = photo_queries(record, scene, (False, False), 30, rng, grammar_of())
        assert len(queries) == 30
        for q in queries:
            assert bool(q.meant) == ("don ' t see" not in (q.suffix or ""))
            if q.suffix is not None and q.suffix.startswith("<loc") and q.instruction == "clarify":
                assert q.suffix == box_suffix(scene.objects[q.meant[0]])


# --- batches for the adapters


@pytest.mark.parametrize("instruction", ["detect", "clarify"])
def test_samples_follow_from_seed_and_step_and_are_balanced(
    data: TrainingData, instruction: str
) -> None:
    settings = TrainingSettings(steps=100, batch=4, lr=1.0, seed=1)
    batches = [adapter_samples(data, settings, step, instruction) for step in range(100)]
    queries = [q for samples in batches for _, queries in samples for q in queries]
    assert {len(samples) for samples in batches} == {4}
    assert {q.instruction for q in queries} == {instruction}
    assert 0.35 < np.mean([q.ambiguous for q in queries]) < 0.65
    again = adapter_samples(data, settings, 3, instruction)
    assert [q for _, q in again] == [q for _, q in batches[3]]


def test_held_out_samples_are_the_same_each_time(data: TrainingData) -> None:
    one, two = (held_out_adapter_samples(data, "detect", per_picture=2) for _ in range(2))
    assert set(one) == {"val", "photo"}
    assert [q for _, q in one["val"]] == [q for _, q in two["val"]]
    none = ScenePool([], SIZE)
    data_without = TrainingData(data.scenes, none, data.held_out, none)
    assert set(held_out_adapter_samples(data_without, "detect")) == {"val"}


def test_collate_keeps_sentences_with_their_pictures(
    data: TrainingData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        detector, "autocast", lambda device, _: torch.autocast(device.type, enabled=False)
    )
    folder = write_random_model(tmp_path, vocabulary())
    backbone, processor = load_model(folder), load_processor(folder)
    scenes = [data.scenes[0], data.scenes[1]]
    pictures = [
        (scenes[0], [detect_query("the red block", (0,)), detect_query("it", (0, 1))]),
        (scenes[1], [detect_query("the ball", (1,))]),
    ]
    batch = collate(pictures, backbone, processor, CPU)
    with torch.no_grad():
        features = backbone.look(batch_tensor(scenes, CPU))
    torch.testing.assert_close(batch.features, features[[0, 0, 1]])
    assert batch.ambiguous.tolist() == [0, 1, 0]
    assert batch.prompts.query_mask.sum(1).tolist() == [3, 1, 2]
    first, second = (torch.from_numpy(patch_shares(s, backbone.grid)) for s in scenes)
    expected = torch.stack([first[0], first[:2].mean(0), second[1]])
    torch.testing.assert_close(batch.maps, expected)


# --- threshold and temperature


def test_f1_by_hand() -> None:
    labels = torch.tensor([1.0, 1, 1, 0, 0, 0])
    predicted = torch.tensor([True, True, False, True, False, False])
    # two right of three said and three there: precision 2/3, recall 2/3
    assert f1(predicted, labels) == pytest.approx(2 / 3)
    assert f1(labels > 0.5, labels) == 1
    assert f1(torch.zeros(6, dtype=torch.bool), labels) == 0
    assert f1(torch.ones(6, dtype=torch.bool), labels) == pytest.approx(2 * 0.5 / 1.5)
    assert f1(torch.zeros(2, dtype=torch.bool), torch.zeros(2)) == 0


@pytest.mark.parametrize("true", [0.5, 1.0, 2.0, 3.0])
def test_temperature_undoes_a_wrong_scale(true: float) -> None:
    chance = torch.linspace(0.02, 0.98, 49)
    logits = torch.logit(chance)
    # soft labels: the chance itself, whose best fit is exactly the scale they were made with
    assert fit_temperature(logits * true, chance) == pytest.approx(true, rel=0.02)
    assert fit_temperature(logits * 100, chance) == pytest.approx(4)


def test_threshold_is_the_middle_of_the_best_plateau() -> None:
    labels = torch.tensor([0.0] * 10 + [1.0] * 10)
    apart = torch.tensor([0.1] * 10 + [0.7] * 10)
    assert fit_threshold(apart, labels) == pytest.approx(0.4, abs=0.02)
    wide = torch.tensor([0.01] * 10 + [0.99] * 10)
    assert fit_threshold(wide, labels) == pytest.approx(0.5)
    near = torch.tensor([0.02] * 10 + [0.4] * 10)
    assert fit_threshold(near, labels) == pytest.approx(0.2, abs=0.03)
    ends = torch.tensor([0.9] * 10 + [0.99] * 10)
    assert fit_threshold(ends, labels) == pytest.approx(0.93, abs=0.02)
    assert f1(apart >= fit_threshold(apart, labels), labels) == 1
    # one narrow spike of F1 at 0.6 loses against the plateau below it
    low = torch.tensor([0.2] * 10 + [0.5] * 10)
    assert 0.25 <= fit_threshold(low, labels) <= 0.45
    high = torch.tensor([0.6] * 10 + [0.9] * 10)
    assert 0.65 <= fit_threshold(high, labels) <= 0.85


def test_calibration_sets_both_and_measures_with_them() -> None:
    """Logits three times as sure as they should be, every fifth of them wrong."""
    labels = torch.arange(500) % 2.0
    sure = torch.where(torch.arange(500) % 5 == 0, -1.0, 1.0)
    logits = 3 * sure * (2 * labels - 1)
    settings = DetectorSettings(block=1)
    figures = calibrate(
        settings, {"val": (logits[:300], labels[:300]), "photo": (logits[300:], labels[300:])}
    )["validation"]
    scaled = detector_loss(logits / settings.temperature, labels)
    for other in (0.5, 1.0, 3.5):
        assert scaled <= detector_loss(logits / other, labels) + 1e-3
    decided = torch.sigmoid(logits / settings.temperature) >= settings.threshold
    assert f1(decided, labels) == pytest.approx(0.8, abs=0.02)
    assert figures["val_f1"] == pytest.approx(0.8, abs=0.02)
    assert figures["photo_f1"] == pytest.approx(0.8, abs=0.02)
    assert figures["ece"] < 0.02 < 0.1 < figures["ece_before"]
    assert figures["n"] == 500
