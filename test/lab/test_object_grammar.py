"""The object grammar: names, hypernyms, uses, materials, parts; what is clear and what is asked."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from object_scenes import random_table, real_thing
from scene_helpers import random_objects, thing

from clue_ros.dialogue.inflection import indefinite, plural
from clue_ros.dialogue.object_names import KIND_NAMES
from clue_ros.lab.language.dialogues import MAX_ASKED, DialogueState
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.object_grammar import ObjectGrammar
from clue_ros.lab.language.object_words import ABSENT_NOUNS, HELD_OUT_NOUNS, MATERIALS, USES
from clue_ros.lab.language.public_tasks import QUESTIONS, public_tasks, tasks_of
from clue_ros.lab.language.questions import ask, partitions
from clue_ros.lab.language.references import Landmark, Reference, has_color, is_called, referents
from clue_ros.lab.language.simulated_user import RichUser
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.simulator.object_catalogue import COLORS, OBJECTS
from clue_ros.lab.simulator.scene import SceneObject
from clue_ros.lab.simulator.worlds import RICH, WORLDS
from clue_ros.model.prompts import build_tokenizer

SPEC = replace(RICH, name="things", language="objects")
GRAMMAR = ObjectGrammar(SPEC)
Objects = list[SceneObject]

TABLE = [
    real_thing("ycb/tomato_soup_can", 0.1, 0.5),
    real_thing("ycb/tuna_fish_can", 0.3, 0.5, 0.06),
    real_thing("ycb/mug", 0.5, 0.2),
    real_thing("ycb/knife", 0.5, 0.8),
    real_thing("ycb/mustard_bottle", 0.7, 0.5),
    real_thing("ycb/scissors", 0.9, 0.2),
    real_thing("ycb/wood_block", 0.9, 0.8),
]


@pytest.fixture(scope="module")
def many() -> list[tuple[Objects, list[DialogueState]]]:
    rng = np.random.default_rng(0)
    tables = [random_table(rng) for _ in range(500)]
    return [(objects, GRAMMAR.dialogue(objects, rng)) for objects in tables]


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        (Reference("soup can"), (0,)),
        (Reference("can"), (0, 1)),  # by a hypernym
        (Reference("tin", "red"), (0,)),
        (Reference("campbell's"), (0,)),  # by a brand
        (Reference("cup"), (2,)),  # by a synonym
        (Reference("cup", "blue"), ()),
        (Reference("stapler"), ()),
        (Reference("bottle"), (4,)),
        (Reference("can", "white"), (0,)),  # its second colour
        (Reference("block", material="wood"), (6,)),
        (Reference("block", material="metal"), ()),
        (Reference("knife", part="red handle"), (3,)),
        (Reference(use="cut"), (3, 5)),
        (Reference(use="drink from"), (2,)),
        (Reference(use="hammer"), None),  # some people would take the wood block
        (Reference(use="measure"), ()),
        (Reference("can", size="big"), (0,)),
    ],
)
def test_a_noun_means_all_that_are_called_so(
    reference: Reference, found: tuple[int, ...] | None
) -> None:
    assert referents(reference, TABLE, vague=True) == found


def test_a_colour_that_some_have_beside_another_one_is_avoided() -> None:
    cans = [real_thing("ycb/tomato_soup_can", 0.2, 0.5), real_thing("ycb/mug", 0.8, 0.5)]
    white = [cans[0], replace(cans[1], color="white", colors=("white",), names=("can",))]
    assert referents(Reference("can", "white"), white) is None
    assert "color" not in partitions((0, 1), white, GRAMMAR.nouns)


def test_the_big_one_of_several_as_big_is_asked_about() -> None:
    mugs = [thing(0.2, 0.5), thing(0.8, 0.5, color="blue")]
    assert referents(Reference("mug", size="big"), mugs, vague=True) == (0, 1)
    assert referents(Reference("mug", size="big"), mugs) is None, "as the rich grammar was"
    alike = [mugs[0], thing(0.8, 0.5, extent=0.09)]
    assert referents(Reference("mug", size="big"), alike, vague=True) == (0, 1)
    near = replace(mugs[1], box=(0.6, 0.3, 1.0, 0.7))
    assert referents(Reference("mug", size="big"), [mugs[0], near], vague=True) is None


def test_a_relation_to_one_of_several_is_asked_about() -> None:
    table = [thing(0.1, 0.5), thing(0.2, 0.5, "bowl"), thing(0.7, 0.5), thing(0.8, 0.5, "bowl")]
    beside = Reference("mug", relation=("next", Landmark("bowl")))
    assert referents(beside, table, vague=True) == (0, 2)
    assert referents(beside, table) is None, "as the rich grammar was"
    assert referents(beside, [*table[:2], thing(0.8, 0.1)], vague=True) == (0,)


def test_sizes_and_relations_are_a_third_of_what_is_asked_about() -> None:
    sorts, total = Counter[str](), 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        found = GRAMMAR.reference(random_table(rng), rng, "ambiguous", balanced=True)
        if found is not None:
            assert len(found[1]) > 1
            sorts[found[0].sort] += 1
            total += 1
    assert sorts["size"] > 0.13 * total
    assert sorts["relation"] > 0.13 * total
    assert {"kind", "kind and color", "place", "plural", "material", "use"} <= set(sorts)


def test_clear_requests_mean_one_object_by_any_of_its_names() -> None:
    sorts = Counter[str]()
    hypernyms = 0
    for seed in range(400):
        rng = np.random.default_rng(seed)
        table = random_table(rng)
        found = GRAMMAR.reference(table, rng, "clear", balanced=True)
        if found is None:
            continue
        reference, (target,) = found
        sorts[reference.sort] += 1
        assert is_called(table[target], reference.kind)
        hypernyms += reference.kind not in (None, table[target].kind)
        if reference.sort == "kind":
            assert sum(is_called(o, reference.kind) for o in table) == 1
    assert hypernyms > 80
    assert {"order", "part", "material", "use", "size", "relation"} <= set(sorts)


def test_an_object_without_names_has_those_of_its_kind() -> None:
    """Scenes of older worlds give none: "the cup" is there all the same."""
    cup = Reference("cup")
    table = [thing(0.2, 0.5), thing(0.8, 0.5, "bowl")]
    assert referents(cup, table) == ()
    assert referents(cup, GRAMMAR.known(table)) == (0,)
    rng = np.random.default_rng(0)
    for _ in range(300):
        found = GRAMMAR.reference(random_objects(rng), rng, "absent")
        assert found is None or found[0].kind not in ("mug", "cup") or found[0].color


# --- how it is said


def test_a_world_with_the_object_grammar_has_its_words_and_colours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(WORLDS, "things", SPEC)
    assert isinstance(grammar_of("things"), ObjectGrammar)
    assert grammar_of("things").nouns["soup can"] == "soup can"
    known = set(vocabulary("things", public=True))
    assert set(vocabulary("rich", public=True)) < known, "a base of rich loses no token"
    assert {"toothbrush", "wooden", "windex", "beige"} <= known
    assert set(GRAMMAR.colors) == {*RICH.colors, *COLORS}


def test_every_word_is_in_the_vocabulary(many: list[tuple[Objects, list[DialogueState]]]) -> None:
    tokenizer = build_tokenizer([*GRAMMAR.words(), "assistant user"])
    unknown = tokenizer.unk_token_id
    for _, states in many:
        for state in states:
            text = f"{state.context} {state.question or ''}"
            assert unknown not in tokenizer(text)["input_ids"], text
    for noun in (*ABSENT_NOUNS, *GRAMMAR.all_nouns):
        assert unknown not in tokenizer(noun)["input_ids"], noun
    for noun in HELD_OUT_NOUNS:  # the robot says that it does not know them
        assert unknown in tokenizer(noun)["input_ids"], noun


def test_a_generated_kind_is_absent_only_where_it_is_not() -> None:
    grammar = grammar_of("table")
    assert isinstance(grammar, ObjectGrammar)
    assert {"notebook", "toothbrush"} <= grammar.single
    assert "bottle" not in grammar.single
    assert grammar.referents(Reference("notebook"), [thing(0.2, 0.5, "notebook")]) == (0,)
    assert grammar.referents(Reference("notebook"), [thing(0.2, 0.5, "mug")]) == ()
    tokenizer = build_tokenizer(vocabulary("table", public=True))
    scene = [thing(x, 0.5, "notebook") for x in (0.2, 0.5, 0.8)]
    rng = np.random.default_rng(0)
    texts = [s.context for _ in range(200) for s in grammar.dialogue(scene, rng)]
    texts += [text for text, _ in public_tasks("table").caption(scene)]
    assert any("notebook" in text for text in texts)
    for text in texts:
        assert tokenizer.unk_token_id not in tokenizer(text)["input_ids"], text


def test_what_only_training_has_changes_no_measurement() -> None:
    assert vocabulary("table", public=True) == vocabulary("table-unseen", public=True)
    assert "notebook" not in grammar_of("table-unseen").nouns


def test_people_type_without_articles_politely_in_capitals_and_correct_themselves() -> None:
    rng = np.random.default_rng(0)
    said = [GRAMMAR.phrasing.request(Reference("mug", "blue"), rng) for _ in range(2000)]
    assert 0.08 < np.mean([not re.search(r"\bthe\b", text.lower()) for text in said]) < 0.2
    assert 0.01 < np.mean([text.isupper() for text in said]) < 0.05
    assert 0.05 < np.mean([text[0].isupper() and not text.isupper() for text in said]) < 0.2
    assert sum("would you mind" in text.lower() for text in said) > 5
    corrected = [t for t in said if re.search(r"no|sorry|mean|rather", t.lower()) and "," in t]
    assert len(corrected) > 30
    assert all("mug" in text.lower() for text in corrected)


def test_the_last_word_of_a_correction_holds() -> None:
    rng = np.random.default_rng(1)
    phrase = "the blue mug"
    for _ in range(300):
        text = GRAMMAR.phrasing.request(Reference("mug", "blue"), rng).lower()
        if " no " in text and phrase in text:
            assert text.index(phrase) > text.index(" no ")


@pytest.mark.parametrize(
    ("noun", "many_of_it", "one_of_it"),
    [
        ("strawberry", "strawberries", "a strawberry"),
        ("box of crackers", "boxes of crackers", "a box of crackers"),
        ("scissors", "scissors", "some scissors"),
        ("knife", "knives", "a knife"),
        ("toy", "toys", "a toy"),
        ("orange", "oranges", "an orange"),
    ],
)
def test_nouns_have_their_plural_and_article(noun: str, many_of_it: str, one_of_it: str) -> None:
    assert plural(noun) == many_of_it
    assert indefinite(noun) == one_of_it


# --- what is answered and asked


def test_what_is_not_there_is_said(many: list[tuple[Objects, list[DialogueState]]]) -> None:
    absent = 0
    for objects, states in many:
        for state in states:
            assert state.ambiguous == (state.question is not None)
            if state.candidates:
                continue
            absent += 1
            assert state.question is not None
            said = re.fullmatch(r"i don ' t see (?:an?|any|anything) ?(.*) \.", state.question)
            assert said is not None, state.question
            assert not any(said[1] == o.kind or said[1] in o.names for o in objects)
    assert absent > 40


def test_training_never_names_what_is_held_out(
    many: list[tuple[Objects, list[DialogueState]]],
) -> None:
    held_out = re.compile(rf"\b({'|'.join(HELD_OUT_NOUNS)})s?\b")
    assert not any(held_out.search(s.context.lower()) for _, states in many for s in states)
    assert not set(HELD_OUT_NOUNS) & {*ABSENT_NOUNS, *GRAMMAR.all_nouns}
    assert not set(ABSENT_NOUNS) & set(GRAMMAR.all_nouns)
    text, reply = GRAMMAR.held_out_request(np.random.default_rng(0))
    assert held_out.search(text.lower())
    assert reply.startswith("i don ' t see a")


def test_the_question_asks_for_what_tells_them_apart() -> None:
    drills = [real_thing("ycb/power_drill", 0.2, 0.5), real_thing("ycb/hammer", 0.8, 0.5)]
    assert ask((0, 1), drills, GRAMMAR.nouns).text == "the drill or the hammer ?"
    spoons = [thing(0.2, 0.5, "spoon"), thing(0.8, 0.5, "spoon")]
    spoons = [replace(o, material=m) for o, m in zip(spoons, ("wood", "metal"), strict=True)]
    assert ask((0, 1), spoons, GRAMMAR.nouns).text == "the wooden one or the metal one ?"
    camera = [thing(0.2, 0.5, "camera"), replace(thing(0.8, 0.5, "security camera"))]
    camera[1] = replace(camera[1], names=("camera",))
    assert "place" in partitions((0, 1), camera, GRAMMAR.nouns)
    assert "kind" not in partitions((0, 1), camera, GRAMMAR.nouns), "both are cameras"


def test_a_persons_answers_lead_to_the_target() -> None:
    rng = np.random.default_rng(2)
    right: list[bool] = []
    while len(right) < 150:
        objects = random_table(rng)
        found = GRAMMAR.reference(objects, rng, "ambiguous")
        if found is None:
            continue
        target = int(rng.choice(found[1]))
        person = RichUser(GRAMMAR, objects, target, found[1], int(rng.integers(2**31)))
        for turn in range(MAX_ASKED):
            if len(person.candidates) == 1:
                break
            person(ask(person.candidates, objects, GRAMMAR.nouns, asked=turn).text)
            assert target in person.candidates
        right.append(person.candidates == (target,))
    assert np.mean(right) > 0.95


def test_the_seed_decides() -> None:
    tables = [random_table(np.random.default_rng(i)) for i in range(20)]
    first, again = (
        [GRAMMAR.dialogue(t, np.random.default_rng(5)) for t in tables] for _ in range(2)
    )
    assert first == again


# --- tables of words


def test_uses_and_materials_name_what_there_is() -> None:
    grammar = grammar_of("table")
    assert isinstance(grammar, ObjectGrammar)
    kinds = {*grammar.names}
    for name, use in USES.items():
        assert use.kinds <= kinds, (name, use.kinds - kinds)
        assert use.perhaps <= kinds, (name, use.perhaps - kinds)
        assert not use.kinds & use.perhaps, name
    assert {entry.material for entry in OBJECTS.values()} - {""} <= set(MATERIALS)
    assert len(KIND_NAMES) >= 60


# --- PaliGemma's public tasks


@pytest.mark.parametrize("sort", sorted(QUESTIONS))
def test_questions_about_real_things_are_answered_by_any_name(sort: str) -> None:
    tasks, rng = tasks_of(SPEC, GRAMMAR), np.random.default_rng(3)
    asked = 0
    for _ in range(60):
        objects = random_table(rng)
        question = tasks.question(objects, rng, sort)
        if question is None:
            continue
        asked += 1
        if sort == "number":
            assert int(question.answer) == len(question.meant)
        if sort == "color" and question.named is not None:
            assert question.answer == objects[question.named].color
        if sort == "check" and question.answer == "no":
            assert question.named is not None
            said = [c for c in COLORS if re.search(rf"\b{c} \?$", question.text)]
            assert said
            assert not has_color(objects[question.named], said[0])
    assert asked > 3


def test_detection_finds_all_that_a_noun_means() -> None:
    tasks, rng = tasks_of(SPEC, GRAMMAR), np.random.default_rng(4)
    other_names = 0
    for _ in range(200):
        objects = random_table(rng)
        for text, found in tasks.detection(objects, rng, "noun") or []:
            meant = [i for i, o in enumerate(objects) if is_called(o, text)]
            if meant:
                assert tuple(meant) == found
                other_names += text not in {o.kind for o in objects}
    assert other_names > 20
