"""PaliGemma's public tasks in the base's training: true answers, boxes, crops of an object."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from drawn_scenes import random_scenes

from clue_ros.lab.language.public_tasks import (
    CROP_QUESTIONS,
    DETECTIONS,
    LISTED,
    NO,
    QUESTIONS,
    YES,
    PublicTasks,
    public_tasks,
)
from clue_ros.lab.language.references import Candidates
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator.scene import Scene, SceneObject
from clue_ros.lab.training.augment import ScenePool, cropped
from clue_ros.lab.training.base import new_model
from clue_ros.lab.training.datasets import TrainingData
from clue_ros.lab.training.loop import TrainingSettings
from clue_ros.lab.training.packing import pack
from clue_ros.lab.training.samples import (
    PUBLIC_TASKS,
    Query,
    base_samples,
    box_suffix,
    caption_query,
    crop_queries,
    detection_query,
    held_out_base_samples,
    question_query,
    scene_queries,
)
from clue_ros.model.prompts import PUNCTUATION, split_words

SIZE = 64
TABLE = tuple(
    SceneObject(kind, color, (x, 0.4, x + 0.08, 0.5), extent=extent)
    for kind, color, x, extent in (
        ("mug", "red", 0.1, 0.1), ("mug", "blue", 0.3, 0.1), ("bowl", "red", 0.5, 0.2),
        ("fork", "gray", 0.7, 0.1), ("mug", "red", 0.85, 0.1),
    )
)  # fmt: skip


@pytest.fixture(scope="module")
def public() -> PublicTasks:
    return public_tasks("rich")


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    """Scenes with household kinds, three to seven objects each."""
    rng = np.random.default_rng(3)
    out = []
    for scene in random_scenes(30, 5, size=SIZE):
        objects = tuple(
            replace(
                o,
                kind=str(rng.choice(["mug", "fork", "banana"])),
                color=str(rng.choice(["pink", "red", "white"])),
                extent=float(rng.choice([0.05, 0.1])),
            )
            for o in scene.objects
        )
        out.append(replace(scene, objects=objects))
    return out


def data_of(scenes: list[Scene], *, public: bool) -> TrainingData:
    pool, none = ScenePool(scenes, SIZE), ScenePool((), SIZE)
    return TrainingData(pool, none, pool, none, "rich", ("mug",), via=True, public=public)


def noun_of(public: PublicTasks, text: str) -> str | None:
    """The kind whose noun, or plural, ends a noun phrase."""
    for kind, nouns in public.nouns.items():
        for noun in nouns:
            if re.search(rf"\b{noun}(s|es)?$", text.replace("knives", "knifes")):
                return kind
    return None


def test_detect_lists_every_object_of_a_noun_from_left_to_right(public: PublicTasks) -> None:
    query = detection_query([("mug", (4, 0, 1)), ("gray fork", (3,))], TABLE)
    assert query.instruction == "detect"
    assert query.context == "mug ; gray fork"
    labels = ("mug", "mug", "gray fork", "mug")
    parts = [f"{box_suffix(TABLE[i])} {n}" for i, n in zip((0, 1, 3, 4), labels, strict=True)]
    assert query.suffix == " ; ".join(parts)
    assert set(query.meant) == {0, 1, 3, 4}


def test_detect_of_what_is_not_there_has_an_empty_answer(public: PublicTasks) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        entries = public.detection(TABLE, rng, "absent")
        assert entries is not None
        assert entries[0][1] == ()
        assert noun_of(public, entries[0][0]) is not None
        assert detection_query(entries, TABLE).suffix == ""


def test_detect_lists_eight_objects_at_most(public: PublicTasks) -> None:
    many = tuple(replace(TABLE[0], box=(x, 0.1, x + 0.05, 0.2)) for x in np.linspace(0, 0.9, 11))
    query = detection_query([("mug", tuple(range(11)))], many)
    assert query.suffix is not None
    assert query.suffix.count("<loc") == 4 * LISTED


@pytest.mark.parametrize("form", ["noun", "several", "absent"])
def test_the_entries_of_detect_mean_the_objects_they_name(public: PublicTasks, form: str) -> None:
    rng = np.random.default_rng(1)
    made = [entries for _ in range(80) if (entries := public.detection(TABLE, rng, form))]
    assert len(made) > 20
    for text, found in (entry for entries in made for entry in entries):
        color = text.split()[0] if text.split()[0] in public.colors else None
        kind = noun_of(public, text)
        assert found == tuple(
            i for i, o in enumerate(TABLE) if o.kind == kind and color in (None, o.color)
        )


def test_questions_have_true_answers(public: PublicTasks, scenes: list[Scene]) -> None:
    rng = np.random.default_rng(2)
    seen: Counter[str] = Counter()
    answers: dict[str, Counter[str]] = {sort: Counter() for sort in QUESTIONS}
    for scene in scenes:
        for sort in QUESTIONS:
            for _ in range(6):
                question = public.question(scene.objects, rng, sort)
                if question is None:
                    continue
                seen[sort] += 1
                answers[sort][question.answer] += 1
                check_answer(public, scene.objects, sort, question.answer, question.meant)
                if sort in ("number", "presence"):
                    said = named_in(public, scene.objects, question.text)
                    assert question.meant == said, question.text
    assert set(seen) == set(QUESTIONS)
    for sort in ("presence", "check"):
        yes = answers[sort][YES] / (answers[sort][YES] + answers[sort][NO])
        assert 0.35 < yes < 0.65


def named_in(public: PublicTasks, objects: tuple[SceneObject, ...], text: str) -> Candidates:
    """The objects that a question names by a noun and perhaps a colour, read from its words."""
    words = split_words(text.replace("can you", ""))
    (kind,) = {k for word in words if (k := noun_of(public, word)) is not None}
    colors = [word for word in words if word in public.colors]
    return tuple(
        i for i, o in enumerate(objects) if o.kind == kind and (not colors or o.color == colors[0])
    )


def check_answer(
    public: PublicTasks, objects: tuple[SceneObject, ...], sort: str, answer: str, meant: Candidates
) -> None:
    """The answer follows from the objects that the question is about."""
    chosen = [objects[i] for i in meant]
    if sort == "color":
        assert {o.color for o in chosen} == {answer}
    elif sort == "kind":
        assert [public.name(o.kind) for o in chosen] == [answer]
    elif sort == "number":
        assert answer == str(len(chosen))
    elif sort == "presence":
        assert (answer == YES) == bool(chosen)
    elif sort == "listing":
        assert set(answer.split(" , ")) == {public.name(o.kind) for o in objects}
    else:
        assert answer in (YES, NO, "big", "small")


def test_yes_or_no_about_a_colour_follows_the_object(public: PublicTasks) -> None:
    rng = np.random.default_rng(4)
    for _ in range(60):
        question = public.question(TABLE, rng, "check")
        if question is None:
            continue
        (target,) = question.meant
        asked = [word for word in split_words(question.text) if word in public.colors]
        assert (question.answer == YES) == (TABLE[target].color == asked[-1])


def test_questions_about_a_crop_are_about_its_object(public: PublicTasks) -> None:
    rng = np.random.default_rng(5)
    told: Counter[str] = Counter()
    for sort in CROP_QUESTIONS:
        for _ in range(60):
            question = public.question_about(2, TABLE, rng, sort)
            assert question.meant == (2,)
            assert question.named == 2
            if sort == "color":
                assert question.answer == "red"
            elif sort == "kind":
                assert question.answer == "bowl"
            else:
                words = split_words(question.text)
                said = [word for word in words if word in public.colors]
                kind = noun_of(public, question.text.removesuffix(" ?"))
                true = said in ([], ["red"]) and kind in (None, "bowl")
                assert (question.answer == YES) == true
                told[question.answer] += 1
    assert 0.3 < told[YES] / told.total() < 0.7


def test_a_caption_names_every_object_once(public: PublicTasks) -> None:
    query = caption_query(public.caption(TABLE))
    assert (query.instruction, query.context) == ("caption", "en")
    assert query.suffix == "two red mugs , a blue mug , a red bowl and a gray fork"
    words = split_words(query.suffix)
    for at, i in query.pointers:
        assert words[at] in ("a", TABLE[i].color, TABLE[i].kind)


def test_pointers_are_at_words_of_the_suffix(scenes: list[Scene]) -> None:
    tokenizer = new_model(0, "rich", public=True)[1]
    rng, data = np.random.default_rng(7), data_of(scenes, public=True)
    drawn = [
        (scene, scene_queries(scene, 12, rng, data.language, data.public_tasks)) for scene in scenes
    ]
    kinds = {query.instruction for _, queries in drawn for query in queries}
    assert kinds == {"clarify", "detect", "answer en", "caption"}
    for scene, queries in drawn:
        for query in queries:
            length = len(tokenizer(query.suffix or "", add_special_tokens=False)["input_ids"])
            assert all(at < length for at, _ in query.pointers)
        packed = pack([(scene, queries)], tokenizer, 4)
        assert bool((packed.labels[packed.labels >= 0] != tokenizer.unk_token_id).all())
        empty = pack([(scene, [q])], tokenizer, 4) if (q := first_empty(queries)) else None
        if empty is not None:
            assert empty.labels[empty.labels >= 0].tolist() == [tokenizer.eos_token_id]


def first_empty(queries: list[Query]) -> Query | None:
    """The first query with an empty answer."""
    return next((query for query in queries if query.suffix == ""), None)


def test_every_word_of_the_tasks_is_in_the_vocabulary(
    public: PublicTasks, scenes: list[Scene]
) -> None:
    known = {*vocabulary("rich", public=True), *PUNCTUATION}
    rng, data = np.random.default_rng(6), data_of(scenes, public=True)
    for scene in scenes:
        for query in scene_queries(scene, 12, rng, data.language, data.public_tasks):
            suffix = re.sub(r"<loc\d{4}>", " ", query.suffix or "")
            words = split_words(f"{query.instruction} {query.context} {suffix}")
            assert set(words) <= known, set(words) - known


def test_a_crop_shows_its_object_with_a_margin(scenes: list[Scene]) -> None:
    rng, pool = np.random.default_rng(8), ScenePool(scenes, SIZE)
    for i in range(len(pool)):
        target = int(rng.integers(len(pool[i].objects)))
        found = cropped(pool[i], target, rng)
        assert found is not None
        scene, at = found
        assert scene.image.shape == pool[i].image.shape
        assert scene.instances.shape == pool[i].instances.shape
        o, before = scene.objects[at], pool[i].objects[target]
        assert (o.kind, o.color) == (before.kind, before.color)
        x0, y0, x1, y1 = o.box
        assert 0 <= x0 < x1 <= 1
        assert 0 <= y0 < y1 <= 1
        assert max(x1 - x0, y1 - y0) > 0.4  # a margin of two fifths a side at most
        ys, xs = np.nonzero(scene.instances == at + 1)
        side = len(scene.instances)
        shown = [xs.min() / side, ys.min() / side, (xs.max() + 1) / side, (ys.max() + 1) / side]
        tolerance = 2 / (max(before.box[2] - before.box[0], before.box[3] - before.box[1]) * side)
        assert np.all(np.abs(np.array(shown) - o.box) <= max(tolerance, 0.1))


def test_the_base_learns_all_public_tasks_and_crops(scenes: list[Scene]) -> None:
    settings = TrainingSettings(steps=1, batch=40, lr=1.0)
    batch = base_samples(data_of(scenes, public=True), settings, 0, 12)
    queries = [query for _, some in batch for query in some]
    count = Counter(query.instruction for query in queries)
    assert min(count[name] for name in ("detect", "answer en", "caption", "clarify")) > 0
    crops = [some for _, some in batch if all(q.instruction == "answer en" for q in some)]
    assert 2 <= len(crops) <= 16
    assert sum(share for _, share in PUBLIC_TASKS) == pytest.approx(1)
    assert sum(DETECTIONS.values()) == sum(QUESTIONS.values()) == pytest.approx(1)
    held_out = held_out_base_samples(data_of(scenes, public=True), 3)
    assert any(q.instruction == "answer en" for _, some in held_out["val"] for q in some)


def test_without_the_option_the_base_learns_what_it_did(scenes: list[Scene]) -> None:
    settings = TrainingSettings(steps=1, batch=20, lr=1.0)
    batch = base_samples(data_of(scenes, public=False), settings, 0, 6)
    assert {q.instruction for _, some in batch for q in some} == {"clarify", "detect"}
    assert set(vocabulary("rich")) < set(vocabulary("rich", public=True))
    assert not any(word.isdigit() for word in vocabulary("rich"))


def test_crop_queries_are_questions(public: PublicTasks, scenes: list[Scene]) -> None:
    queries = crop_queries(scenes[0], 0, 5, np.random.default_rng(9), public)
    assert [q.instruction for q in queries] == ["answer en"] * 5
    question = public.question_about(0, scenes[0].objects, np.random.default_rng(9))
    assert question_query(question).meant == (0,)
