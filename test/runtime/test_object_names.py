"""A person's noun finds a detector's label: synonyms, hypernyms, plurals, and which comes first."""

from __future__ import annotations

import pytest

from clue_ros.dialogue import Box, Dialogue, Turn
from clue_ros.dialogue.candidates import Candidate
from clue_ros.dialogue.chooser import LabelledObjects, follow, question_for
from clue_ros.dialogue.noun_phrases import read_phrase
from clue_ros.dialogue.object_names import (
    HYPERNYMS,
    KIND_NAMES,
    KNOWN_NAMES,
    LABEL_NAMES,
    NameMatch,
    best_named,
    name_match,
)

COCO = (
    "person bicycle car motorcycle airplane bus train truck boat traffic_light fire_hydrant"
    " stop_sign parking_meter bench bird cat dog horse sheep cow elephant bear zebra giraffe"
    " backpack umbrella handbag tie suitcase frisbee skis snowboard sports_ball kite baseball_bat"
    " baseball_glove skateboard surfboard tennis_racket bottle wine_glass cup fork knife spoon bowl"
    " banana apple sandwich orange broccoli carrot hot_dog pizza donut cake chair couch"
    " potted_plant bed dining_table toilet tv laptop mouse remote keyboard cell_phone microwave"
    " oven toaster sink refrigerator book clock vase scissors teddy_bear hair_drier toothbrush"
)
COCO_LABELS = tuple(name.replace("_", " ") for name in COCO.split())
OPEN_IMAGES_LABELS = (
    "Mug", "Coffee cup", "Wine glass", "Tin can", "Bottle", "Box", "Mobile phone",
    "Remote control", "Computer mouse", "Computer keyboard", "Tennis ball", "Doughnut",
    "Kitchen knife", "Frying pan", "Flashlight", "Adhesive tape", "Can opener", "Teddy bear",
    "Orange", "Apple", "Sunglasses", "Plastic bag", "Salt and pepper shakers", "Drinking straw",
)  # fmt: skip


def row_of(*labels: str) -> LabelledObjects:
    """One thing for each label, from left to right."""
    boxes = [Box(20 * n, 40, 20 * n + 10, 50) for n in range(len(labels))]
    pairs = zip(boxes, labels, strict=True)
    return LabelledObjects([Candidate(box, label) for box, label in pairs], (20 * len(labels), 90))


def left(finder: LabelledObjects, *said: str) -> list[str]:
    """The labels that a dialogue leaves; the robot asks its own questions."""
    dialogue = Dialogue(said[0])
    for answer in said[1:]:
        dialogue.add_question(question_for(follow(dialogue, finder), finder).text)
        dialogue.add_answer(answer)
    return [c.label for c in follow(dialogue, finder).candidates]


def test_every_label_of_coco_is_its_own_name() -> None:
    assert len(COCO_LABELS) == 80
    finder = row_of(*COCO_LABELS)
    for label in COCO_LABELS:
        assert left(finder, f"pick up the {label}") == [label]


def test_every_label_of_open_images_is_its_own_name() -> None:
    finder = row_of(*OPEN_IMAGES_LABELS)
    for label in OPEN_IMAGES_LABELS:
        assert left(finder, f"give me the {label.lower()} please") == [label]


@pytest.mark.parametrize(
    ("said", "labels"),
    [
        ("mug", ["cup"]),
        ("glass", ["wine glass"]),  # not the cup, which is another name of a glass
        ("phone", ["cell phone"]),
        ("mobile phone", ["cell phone"]),
        ("smartphone", ["cell phone"]),
        ("tv remote", ["remote"]),
        ("remote control", ["remote"]),
        ("television", ["tv"]),
        ("computer", ["laptop"]),
        ("ball", ["sports ball"]),
        ("tennis ball", ["sports ball"]),
        ("football", ["sports ball"]),
        ("doughnut", ["donut"]),
        ("sofa", ["couch"]),
        ("fridge", ["refrigerator"]),
        ("plant", ["potted plant"]),
        ("teddy", ["teddy bear"]),
        ("dog", ["dog"]),  # no hot dog
        ("purse", ["handbag"]),
        ("bag", ["backpack", "handbag", "suitcase"]),
        ("fruit", ["banana", "apple", "orange"]),
        ("cutlery", ["fork", "knife", "spoon"]),
        ("bottle of wine", ["bottle"]),
        ("water bottle", ["bottle"]),
        ("forks", ["fork"]),
        ("stapler", []),
        ("plate", []),
    ],
)
def test_people_s_words_find_labels_of_coco(said: str, labels: list[str]) -> None:
    assert left(row_of(*COCO_LABELS), f"pick up the {said}") == labels


@pytest.mark.parametrize(
    ("said", "labels"),
    [
        ("cup", ["Coffee cup"]),  # it says so; the mug is a cup to some
        ("can", ["Tin can"]),
        ("coke can", ["Tin can"]),
        ("cell phone", ["Mobile phone"]),
        ("remote", ["Remote control"]),
        ("mouse", ["Computer mouse"]),
        ("knife", ["Kitchen knife"]),
        ("pan", ["Frying pan"]),
        ("torch", ["Flashlight"]),
        ("tape", ["Adhesive tape"]),
        ("glasses", ["Sunglasses"]),
        ("straw", ["Drinking straw"]),
        ("carton", ["Box"]),
        ("bag", ["Plastic bag"]),
        ("sports ball", ["Tennis ball"]),
    ],
)
def test_people_s_words_find_labels_of_open_images(said: str, labels: list[str]) -> None:
    assert left(row_of(*OPEN_IMAGES_LABELS), f"pick up the {said}") == labels


@pytest.mark.parametrize(
    ("said", "label", "match"),
    [
        ("mugs", "mug", NameMatch.SAME),
        ("can", "soup can", NameMatch.SAME),
        ("fruit", "apple", NameMatch.SAME),
        ("coffee mug", "mug", NameMatch.KIND),
        ("mug", "cup", NameMatch.OTHER_NAME),
        ("cup", "mug", NameMatch.KIND),
        ("fridge", "refrigerator", NameMatch.KIND),
        ("tin", "coffee can", NameMatch.KIND),
        ("sofa", "settee", NameMatch.OTHER_NAME),
        ("apple", "fruit", NameMatch.CLASS),
        ("soup", "can", NameMatch.CLASS),
        ("water bottle", "wine bottle", NameMatch.ALIKE),
        ("tennis ball", "soccer ball", None),  # two kinds that are known
        ("block", "knife block", None),
        ("hot dogs", "hot dog", NameMatch.SAME),
        ("hot dogs", "dog", None),
        ("mug", "plate", None),
        ("knives", "knife", NameMatch.SAME),
        ("plates", "plate", NameMatch.SAME),
        ("glasses", "glass", NameMatch.ALIKE),  # to see with, unless there is nothing else
        ("pears", "pear", NameMatch.SAME),
        ("strawberries", "strawberry", NameMatch.SAME),
    ],
)
def test_a_noun_fits_a_label(said: str, label: str, match: NameMatch | None) -> None:
    assert name_match(said, label) == match


def test_the_label_that_says_the_noun_comes_first() -> None:
    assert left(row_of("mug", "cup"), "the mug") == ["mug"]
    assert left(row_of("mug", "cup"), "the cup") == ["cup"]
    assert left(row_of("mug", "plate"), "the cup") == ["mug"]
    assert left(row_of("can", "soup can"), "the soup can") == ["soup can"]
    assert left(row_of("can", "box"), "the soup") == ["can"]
    assert best_named("banana", ["mug", "cup"]) == ()


def test_a_colour_decides_before_the_name() -> None:
    finder = row_of("blue mug", "red cup")
    assert left(finder, "the red mug") == ["red cup"]
    assert left(finder, "the mug") == ["blue mug"]


def test_two_cans_are_asked_about_by_kind_and_told_apart_by_the_answer() -> None:
    finder = row_of("soup can", "tuna can", "mug")
    assert left(finder, "pick up the can") == ["soup can", "tuna can"]
    asked = question_for(follow(Dialogue("the can"), finder), finder).text
    assert asked == "the soup can or the tuna can?"
    assert left(finder, "the can", "the tuna can") == ["tuna can"]
    assert left(finder, "the can", "the soup") == ["soup can"]
    assert left(finder, "the can", "not the tuna") == ["soup can"]
    assert left(finder, "the tin") == ["soup can", "tuna can"]


def test_an_answer_names_one_of_several_by_another_word() -> None:
    finder = row_of("box", "tin can", "mug")
    turns = [Turn("robot", "the box, the tin can or the mug?"), Turn("user", "the cup")]
    standing = follow(Dialogue("give me that thing", turns), finder)
    assert [c.label for c in standing.candidates] == ["mug"]


def test_a_landmark_is_found_by_another_name() -> None:
    finder = row_of("mug", "donut", "mug")
    found = follow(Dialogue("the mug right of the doughnut"), finder).candidates
    assert [c.box.x_min for c in found] == [40]


def test_the_orange_is_a_fruit_where_there_is_one() -> None:
    assert left(row_of("orange", "orange mug"), "pick up the orange") == ["orange"]
    assert left(row_of("orange mug", "red mug"), "pick up the orange") == ["orange mug"]
    assert left(row_of("orange", "orange mug"), "the orange mug") == ["orange mug"]


def test_a_known_name_is_read_as_it_is() -> None:
    """No letter of it is taken for a slip ("golf" for "gold"), no word of it for politeness."""
    for name in KNOWN_NAMES:
        phrase = read_phrase(f"pick up the {name}")
        assert name in (phrase.noun, *phrase.colors)


def test_the_tables_are_clean() -> None:
    for table in (KIND_NAMES, LABEL_NAMES):
        for kind, names in table.items():
            assert kind not in names
            assert len(set(names)) == len(names), kind
            assert all(name == name.lower().strip() and name for name in (kind, *names))
    for kind in KIND_NAMES.keys() & LABEL_NAMES.keys():
        assert not set(KIND_NAMES[kind]) & set(LABEL_NAMES[kind]), kind
    assert HYPERNYMS <= KNOWN_NAMES
