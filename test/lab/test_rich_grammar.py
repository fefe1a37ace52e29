"""The rich language: what references mean, what is asked and answered, whole dialogues."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from scene_helpers import random_objects, thing

from clue_ros.dialogue.inflection import plural
from clue_ros.dialogue.types import Box
from clue_ros.dialogue.words import offered_answers
from clue_ros.lab.language.dialogues import MAX_ASKED, DialogueState
from clue_ros.lab.language.grammars import grammar_of
from clue_ros.lab.language.object_grammar import ObjectGrammar
from clue_ros.lab.language.phrases import Phrasing, misspelling_table, misspellings_of
from clue_ros.lab.language.questions import ask, partitions
from clue_ros.lab.language.references import (
    MAX_BOXES,
    Landmark,
    Reference,
    counted_before,
    referents,
)
from clue_ros.lab.language.rich_grammar import BALANCED_SORTS, BALANCED_WANTS, SORTS, WANTS
from clue_ros.lab.language.simulated_user import RichUser, read_question
from clue_ros.lab.language.vocabulary import vocabulary
from clue_ros.lab.language.words import REQUESTS
from clue_ros.lab.simulator.scene import SceneObject
from clue_ros.lab.simulator.worlds import BLOCKS, RICH

GRAMMAR = grammar_of()
NOUNS = GRAMMAR.nouns
Objects = list[SceneObject]


@pytest.fixture(scope="module")
def many() -> list[tuple[Objects, list[DialogueState]]]:
    rng = np.random.default_rng(0)
    tables = [random_objects(rng) for _ in range(700)]
    return [(objects, GRAMMAR.dialogue(objects, rng)) for objects in tables]


# --- what is meant

ROW = [
    thing(0.1, 0.5, "mug", "red", 0.08),
    thing(0.3, 0.5, "bowl", "blue"),
    thing(0.5, 0.5, "mug", "blue", 0.12),
    thing(0.7, 0.5, "mug", "red", 0.08),
    thing(0.9, 0.5, "plate", "red"),
]


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        (Reference("mug"), (0, 2, 3)),
        (Reference("bowl"), (1,)),
        (Reference("mug", "blue"), (2,)),
        (Reference("banana"), ()),
        (Reference("bowl", "red"), ()),
        (Reference("mug", not_color="red"), (2,)),
        (Reference("mug", not_color="blue"), (0, 3)),
        (Reference("mug", not_color="green"), None),
        (Reference("mug", size="big"), (2,)),
        (Reference("mug", size="small"), (0, 3)),
        (Reference("bowl", size="big"), None),
        (Reference("mug", relation=("left", Landmark("bowl"))), (0,)),
        (Reference("mug", relation=("right", Landmark("bowl"))), (2, 3)),
        (Reference("mug", relation=("left", Landmark("mug"))), None),  # which mug?
        (Reference("mug", relation=("left", Landmark("mug", "blue"))), (0,)),
        (Reference("mug", relation=("right", Landmark("plate"))), ()),
        (Reference("mug", relation=("behind", Landmark("plate"))), ()),
        (Reference("mug", order=(1, "left")), (0,)),
        (Reference("mug", order=(2, "left")), (2,)),
        (Reference("mug", order=(2, "right")), (2,)),
        (Reference("mug", order=(3, "right")), (0,)),
        (Reference("mug", order=(4, "right")), None),
        (Reference("mug", order=(2, "top")), None),  # they stand side by side
        (Reference("mug", place="leftmost"), (0,)),
        (Reference("mug", plural=0), (0, 2, 3)),
        (Reference("mug", plural=3), (0, 2, 3)),
        (Reference("mug", plural=2), None),
        (Reference("bowl", plural=0), None),
        (Reference("bowl", plural=1), None),
    ],
)
def test_a_reference_means(reference: Reference, found: tuple[int, ...] | None) -> None:
    assert referents(reference, ROW) == found


@pytest.mark.parametrize(("x", "found"), [(0.58, (0,)), (0.64, None), (0.9, ())])
def test_next_to_has_a_region_where_people_differ(x: float, found: tuple[int, ...] | None) -> None:
    objects = [thing(x, 0.5), thing(0.45, 0.5, "bowl")]
    assert referents(Reference("mug", relation=("next", Landmark("bowl"))), objects) == found


@pytest.mark.parametrize(
    ("reference", "past"),
    [
        (Reference("mug", "blue"), ()),
        (Reference("mug", place="left"), ()),
        (Reference("mug", order=(1, "left")), ()),
        (Reference("mug", order=(2, "left")), (0,)),
        (Reference("mug", order=(3, "right")), (3, 2)),
        (Reference("mug", "red", order=(2, "right")), (3,)),
        (Reference(order=(4, "left")), (0, 1, 2)),
        (Reference("mug", size="big"), ()),  # seen at once
        (Reference("mug", relation=("left", Landmark("bowl"))), ()),
    ],
)
def test_what_is_counted_on_the_way_is_counted_before(
    reference: Reference, past: tuple[int, ...]
) -> None:
    assert counted_before(reference, ROW) == past


def test_a_clear_request_leads_past_what_it_counts_and_dialogues_stay_as_they_are() -> None:
    """`via` adds to the first state of a clear request, and changes nothing that is said."""
    plain, told = grammar_of(), grammar_of("rich", via=True)
    passed = 0
    assert (plain.via, told.via) == (False, True)
    for seed in range(300):
        objects = random_objects(np.random.default_rng(seed))
        a, b = (one.dialogue(objects, np.random.default_rng(seed)) for one in (plain, told))
        assert [replace(state, via=()) for state in b] == a
        assert not any(state.via for state in b[1:]), "an answer to a question is short"
        for state in b[:1]:
            assert len(state.via) < MAX_BOXES
            assert not (state.via and state.ambiguous)
            passed += bool(state.via)
    assert passed > 8


def test_counting_is_drawn_by_itself() -> None:
    objects = random_objects(np.random.default_rng(3))
    aloud = grammar_of("rich", via=True)
    numbers = Counter[int]()
    for seed in range(100):
        for state in aloud.dialogue_of_sort(objects, np.random.default_rng(seed), "order"):
            assert state.question is None
            assert len({*state.via, *state.candidates}) == len(state.via) + 1
            numbers[len(state.via) + 1] += 1
    assert len(numbers) > 1
    assert aloud.dialogue_of_sort([], np.random.default_rng(0), "order") == []


def test_sizes_are_drawn_by_themselves_clear_and_ambiguous() -> None:
    """A size may mean several: "the small mug" of two small ones is asked about."""
    first = Counter[str]()
    for seed in range(200):
        objects = random_objects(np.random.default_rng(seed))
        states = GRAMMAR.dialogue_of_sort(objects, np.random.default_rng(seed), "size")
        for state in states[:1]:
            assert state.via == (), "a size means one thing at once"
            assert state.ambiguous == (len(state.candidates) > 1) == (state.question is not None)
            first["ambiguous" if state.ambiguous else "clear"] += 1
    assert first["clear"] > 30
    assert first["ambiguous"] > 10


def test_big_must_look_big() -> None:
    """A large mug far away can look smaller than a small one near by: nobody says "the big mug"."""
    far = SceneObject("mug", "red", (0.1, 0.1, 0.15, 0.15), extent=0.12)
    near = SceneObject("mug", "red", (0.6, 0.6, 0.8, 0.8), extent=0.09)
    assert referents(Reference("mug", size="big"), [far, near]) is None


def test_a_breakdown_names_the_rarest_part() -> None:
    assert Reference("mug").sort == "kind"
    assert Reference("mug", "red").sort == "kind and color"
    assert Reference("mug", "red", relation=("left", Landmark("bowl"))).sort == "relation"
    assert Reference("mug", "red", place="left").names == ("kind", "color", "place")


# --- how it is said


def test_there_are_thirty_forms_of_request_and_more() -> None:
    assert len(set(REQUESTS)) >= 30
    assert all(form.count("{}") == 1 for form in REQUESTS)


def test_every_word_is_in_the_vocabulary(many: list[tuple[Objects, list[DialogueState]]]) -> None:
    known = set(vocabulary("rich"))
    said = [s.context + " " + (s.question or "") for _, states in many for s in states]
    assert {w for text in said for w in re.findall(r"[a-z]+", text)} <= known
    for nouns in RICH.nouns.values():
        assert {w for n in nouns for w in (n, plural(n))} <= known


def test_every_sort_of_reference_occurs() -> None:
    rng = np.random.default_rng(1)
    sorts: Counter[str] = Counter()
    for want in ("clear", "ambiguous", "absent"):
        for _ in range(300):
            found = GRAMMAR.reference(random_objects(rng), rng, want)
            if found is not None:
                sorts[found[0].sort] += 1
    wanted = {"kind", "color", "kind and color", "place", "relation", "order", "size", "negation",
              "plural"}  # fmt: skip
    assert set(sorts) == wanted
    assert min(sorts.values()) > 5


def test_slips_are_few_and_no_words() -> None:
    assert "banna" in misspellings_of("banana")
    assert misspellings_of("mug") == ()
    table = misspelling_table(RICH.kinds)
    assert all(1 <= len(made) <= 4 for made in table.values())
    assert not {s for made in table.values() for s in made} & set(RICH.kinds)
    rng = np.random.default_rng(0)
    typed = [Phrasing({}, table, rate=0.5).typed("the banana", rng) for _ in range(200)]
    assert 60 < sum(t != "the banana" for t in typed) < 140
    assert {t.split()[1] for t in typed} == {"banana", *table["banana"]}


def test_some_people_mistype(many: list[tuple[Objects, list[DialogueState]]]) -> None:
    slipped = {s for made in GRAMMAR.phrasing.misspellings.values() for s in made}
    first = [set(states[0].context.split()) & slipped for _, states in many if states]
    assert 0.01 < np.mean([bool(found) for found in first]) < 0.1


# --- what is asked


@pytest.mark.parametrize(
    ("objects", "text"),
    [
        ([thing(0.2, 0.5), thing(0.8, 0.5, color="blue")], "the red one or the blue one ?"),
        ([thing(0.2, 0.5), thing(0.8, 0.5, "bowl")], "the mug or the bowl ?"),
        ([thing(0.2, 0.5), thing(0.8, 0.5)], "the left one or the right one ?"),
        ([thing(0.5, 0.2), thing(0.5, 0.8)], "the upper one or the lower one ?"),
        ([thing(0.2, 0.5), thing(0.8, 0.5, extent=0.14)], "the big one or the small one ?"),
        (
            [thing(0.2, 0.5), thing(0.5, 0.5), thing(0.8, 0.5, color="blue")],
            "the left one , the middle one or the right one ?",  # colour leaves two
        ),
        ([thing(x, 0.5, color=c) for x, c in ((0.1, "red"), (0.3, "blue"), (0.6, "green"),
          (0.9, "white"))], "which color ?"),
        ([thing(x, 0.5) for x in (0.1, 0.3, 0.6, 0.9)], "where is it ?"),
    ],
)  # fmt: skip
def test_the_question_tells_the_candidates_apart(objects: Objects, text: str) -> None:
    assert ask(range(len(objects)), objects, NOUNS).text == text


def test_a_later_question_proposes_one_of_two() -> None:
    pair = [thing(0.2, 0.5), thing(0.8, 0.5, color="blue")]
    assert ask((0, 1), pair, NOUNS, asked=1).text == "is it the red one ?"
    assert offered_answers("is it the red one ?") == ("yes", "no")


def test_no_axis_would_have_left_fewer(many: list[tuple[Objects, list[DialogueState]]]) -> None:
    checked = 0
    for objects, states in many:
        for state in states:
            if len(state.candidates) < 2:
                continue
            question = ask(state.candidates, objects, NOUNS)
            if not question.groups:
                continue
            left = max(map(len, question.groups.values()))
            splits = partitions(state.candidates, objects, NOUNS).values()
            assert left == min(max(map(len, g.values())) for g in splits if len(g) <= 3)
            checked += 1
    assert checked > 100


def test_options_are_where_the_question_says_them(
    many: list[tuple[Objects, list[DialogueState]]],
) -> None:
    for objects, states in many:
        for state in states:
            for at, i in state.options:
                assert state.question is not None
                word = state.question.split()[at]
                o = objects[i]
                places = ("left", "right", "upper", "lower", "middle", "big", "small")
                assert word in (o.color, NOUNS[o.kind], *places)
                assert i in state.candidates


def test_a_listed_question_offers_its_answers() -> None:
    pair = [thing(0.2, 0.5), thing(0.8, 0.5, color="blue")]
    assert offered_answers(ask((0, 1), pair, NOUNS).text) == ("the red one", "the blue one")


# --- whole dialogues


def test_dialogues_narrow_down_to_one(many: list[tuple[Objects, list[DialogueState]]]) -> None:
    lengths: Counter[int] = Counter()
    for _, states in many:
        for before, after in pairwise(states):
            assert after.context.startswith(f"{before.context} assistant: {before.question} user: ")
        for state in states:
            assert state.ambiguous == (state.question is not None)
        asked = sum(s.question is not None for s in states)
        assert asked <= MAX_ASKED
        lengths[asked] += 1
    ended = [states[-1].question is None for _, states in many if states]
    assert np.mean(ended) > 0.75  # the others end with what is not there
    assert min(lengths[n] for n in (0, 1, 2)) > 20


def test_what_is_not_there_is_said_and_never_pointed_at(
    many: list[tuple[Objects, list[DialogueState]]],
) -> None:
    absent = 0
    for objects, states in many:
        for state in states:
            if state.candidates:
                assert "don ' t see" not in (state.question or "")
                continue
            absent += 1
            assert state.question is not None
            found = re.fullmatch(r"i don ' t see (?:an? |anything )(.*) \.", state.question)
            assert found is not None, state.question
            named = found[1].split()
            for o in objects:
                said = {o.color, NOUNS[o.kind]}
                assert not set(named) <= said, (state.question, o)
    assert absent > 50


def test_nothing_on_the_table_gives_no_dialogue() -> None:
    assert GRAMMAR.dialogue([], np.random.default_rng(0)) == []


def test_the_seed_decides() -> None:
    tables = [random_objects(np.random.default_rng(i)) for i in range(20)]
    first, again = (
        [GRAMMAR.dialogue(t, np.random.default_rng(5)) for t in tables] for _ in range(2)
    )
    assert first == again


def test_the_random_stream_is_that_of_the_shipped_models_training() -> None:
    """A change of wording must not draw another dialogue: this number follows 200 of them."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        GRAMMAR.dialogue(random_objects(rng), rng)
    assert int(rng.integers(2**31)) == 8520140


@pytest.mark.parametrize("even", [True, False])
def test_a_dialogue_opens_in_the_forms_that_were_asked_for(even: bool) -> None:
    """Evenly, a clear request says the kind alone more often than people do."""
    alone = {True: 0, False: 0}
    for seed in range(300):
        table = random_objects(np.random.default_rng(seed))
        for other in (True, False):
            rng = np.random.default_rng(seed)
            drawn = GRAMMAR.reference(table, rng, "clear", balanced=other)
            if drawn is None:
                continue
            alone[other] += drawn[0].sort == "kind"
            if other == even:
                states = GRAMMAR.dialogue(
                    table, np.random.default_rng(seed), "clear", balanced=even
                )
                assert states[0].context == GRAMMAR.phrasing.request(drawn[0], rng)
    assert alone[True] > alone[False] > 0


def test_what_is_not_there_is_taught_more_often_than_it_is_asked_for() -> None:
    absent = {True: 0, False: 0}
    for seed in range(600):
        table = random_objects(np.random.default_rng(seed))
        for even in (True, False):
            states = GRAMMAR.dialogue(table, np.random.default_rng(seed), balanced=even)
            absent[even] += bool(states) and not states[0].candidates
    assert absent[True] > absent[False] > 0
    for wants in (WANTS, BALANCED_WANTS):
        assert sum(wants.values()) == pytest.approx(1)


def test_what_is_learned_last_is_taught_more_often_than_it_is_said() -> None:
    opened = {True: Counter[str](), False: Counter[str]()}
    for seed in range(400):
        table = random_objects(np.random.default_rng(seed))
        for even in (True, False):
            rng = np.random.default_rng(seed)
            drawn = GRAMMAR.reference(table, rng, "ambiguous", balanced=even)
            if drawn is not None:
                opened[even][drawn[0].sort] += 1
    for sort in ("size", "relation"):  # no order is ambiguous
        assert opened[True][sort] > 2 * opened[False][sort]
    for sorts in (SORTS, *BALANCED_SORTS.values()):
        assert set(sorts) <= set(SORTS)
        assert sum(sorts.values()) == pytest.approx(1)


# --- the person


def test_a_person_is_understood_and_leads_to_the_target() -> None:
    """Our own questions, answered by the oracle from the truth, find the target in three turns."""
    rng = np.random.default_rng(2)
    right: list[bool] = []
    asked: list[int] = []
    useless = 0
    while len(right) < 250:
        objects = random_objects(rng)
        found = GRAMMAR.reference(objects, rng, "ambiguous")
        if found is None:
            continue
        target = int(rng.choice(found[1]))
        person = RichUser(GRAMMAR, objects, target, found[1], int(rng.integers(2**31)))
        for turn in range(MAX_ASKED):
            if len(person.candidates) == 1:
                break
            person(ask(person.candidates, objects, NOUNS, asked=turn).text)
            assert target in person.candidates
        right.append(person.candidates == (target,))
        asked.append(person.questions)
        useless += person.useless
    assert np.mean(right) > 0.95
    assert np.mean(asked) < 1.5
    assert useless == 0


@pytest.mark.parametrize(
    ("text", "axis", "words"),
    [
        ("the red one or the blue one ?", "color", ("red", "blue")),
        ("do you mean the blue one, or the red one?", "color", ("blue", "red")),
        ("the red one ?", "yes", ("red",)),
        ("which color ?", "color", ()),
        ("where is it ?", "which", ()),
        ("I don't see a mug.", "nothing", ()),
        ("i do not see a mug . which one do you mean ?", "nothing", ()),
        ("the green one or the white one ?", "unclear", ()),
        ("left or right?", "place", ("left", "right")),
    ],
)
def test_a_question_is_understood(text: str, axis: str, words: tuple[str, ...]) -> None:
    pair = [thing(0.2, 0.5), thing(0.8, 0.5, color="blue")]
    found = read_question(text, (0, 1), pair, GRAMMAR)
    assert (found.axis, set(found.groups)) == (axis, set(words))


def test_a_useless_question_is_counted() -> None:
    pair = [thing(0.2, 0.5), thing(0.8, 0.5, color="blue")]
    person = RichUser(GRAMMAR, pair, 1, (0, 1), 0)
    person("the green one or the white one ?")  # neither: nothing to be learned from
    assert person.useless == 1
    person = RichUser(GRAMMAR, pair, 1, (1,), 0)
    person("the red one or the blue one ?")  # it was settled
    assert person.useless == 1


def test_a_person_says_yes_to_the_box_of_the_target_alone() -> None:
    pair = [thing(0.2, 0.5), thing(0.8, 0.5, color="blue")]
    boxes = [Box(*o.box).in_pixels(200, 100) for o in pair]
    for seed in range(10):
        person = RichUser(GRAMMAR, pair, 1, (0, 1), seed)
        assert person.confirms(boxes[1].moved(1, 0), 200, 100) == "yes"
        person = RichUser(GRAMMAR, pair, 1, (0, 1), seed)
        assert person.confirms(boxes[0], 200, 100) != "yes"
        assert person.candidates == (1,)
        assert person.confirms(Box(90, 0, 100, 10), 200, 100) != "yes"  # shows nothing


def test_a_person_says_no_to_another_thing_that_nothing_tells_apart() -> None:
    for seed in range(30):
        person = RichUser(GRAMMAR, [thing(0.5, 0.5)] * 4, 1, (0, 1, 2, 3), seed)
        assert person.declines(0)
        assert 1 in person.candidates
        assert 0 not in person.candidates


# --- beside the default language


def test_each_world_has_its_language() -> None:
    assert grammar_of("rich") is GRAMMAR
    assert grammar_of("rich-unseen") is not GRAMMAR
    assert set(grammar_of("blocks").nouns) == set(BLOCKS.kinds)
    assert isinstance(grammar_of("table"), ObjectGrammar)
    with pytest.raises(ValueError, match="moon"):
        grammar_of("moon")


def test_the_papers_sentences_are_get_the_x_clear_or_ambiguous() -> None:
    paper, rng = grammar_of("paper"), np.random.default_rng(0)
    first = [paper.dialogue(random_objects(rng), rng) for _ in range(400)]
    states = [states for states in first if states]
    assert all(len(found) == 1 and found[0].context.startswith("get the ") for found in states)
    ambiguous = sum(len(found[0].candidates) > 1 for found in states)
    assert 0.4 < ambiguous / len(states) < 0.7, "wanted equally often; few scenes give clear ones"
    assert all(found[0].candidates for found in states), "nothing is absent"
    assert set(paper.words()) <= set(GRAMMAR.words())
