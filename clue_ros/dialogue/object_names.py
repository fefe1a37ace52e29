# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""What people call things, and whether a person's noun names what a detector's label says.

`KIND_NAMES` has the kinds of scanned objects with each one's other nouns, which the simulator's
requests are made of: "pick up the can" means a soup can too. `LABEL_NAMES` adds the labels of
COCO's 80 classes and the household's of OpenImages. `name_match` compares a noun with a label,
`best_named` keeps the labels that fit a noun best.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache

from clue_ros.dialogue.inflection import singulars


def comma_separated(text: str) -> tuple[str, ...]:
    """The words between the commas of a text."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


KIND_NAMES: dict[str, tuple[str, ...]] = {
    kind: comma_separated(names)
    for kind, names in {
        # Dishes and cutlery.
        "mug": "coffee mug, cup, coffee cup, tea cup",
        "cup": "stacking cup, plastic cup",
        "bowl": "dish",
        "plate": "dish",
        "pitcher": "jug, water jug",
        "fork": "cutlery",
        "knife": "cutlery",
        "spoon": "cutlery",
        "spatula": "turner",
        "lid": "pan lid, skillet lid, cover",
        # Packed food and household goods.
        "soup can": "tomato soup, soup, tin, can",
        "coffee can": "coffee tin, coffee, tin, can",
        "tuna can": "tuna, tuna tin, tin, can",
        "meat can": "canned meat, meat tin, tin, can",
        "cracker box": "crackers, box of crackers, box",
        "sugar box": "sugar, box of sugar, box",
        "pudding box": "pudding, box of pudding, box",
        "gelatin box": "gelatin, jelly box, box of gelatin, box",
        "coffee box": "box of coffee, coffee, box",
        "crayon box": "crayons, box of crayons, box",
        "mustard bottle": "mustard, bottle of mustard, bottle",
        "bleach bottle": "bleach, cleanser, bleach cleanser, cleaner, bottle",
        "spray bottle": "spray, bottle",
        "pill bottle": "vitamins, vitamin bottle, pills, bottle",
        # Fruit.
        "apple": "fruit",
        "banana": "fruit",
        "lemon": "fruit",
        "orange": "fruit",
        "peach": "fruit",
        "pear": "fruit",
        "plum": "fruit",
        "strawberry": "berry, fruit",
        # Tools.
        "hammer": "tool",
        "screwdriver": "tool",
        "wrench": "spanner, adjustable wrench, tool",
        "drill": "power drill, electric drill, tool",
        "clamp": "spring clamp, clip, tool",
        "scissors": "pair of scissors, tool",
        "padlock": "lock",
        "chain": "plastic chain",
        "sponge": "cleaning sponge",
        "marker": "felt pen, marker pen, whiteboard marker, pen",
        "bell": "hand bell, school bell",
        "pencil case": "pencil pouch, case, bag",
        "lunch box": "lunch bag, bag",
        # Balls and games.
        "tennis ball": "ball",
        "golf ball": "ball",
        "baseball": "ball",
        "softball": "ball",
        "soccer ball": "football, ball",
        "racquetball": "rubber ball, ball",
        "marble": "glass marble, ball",
        "marbles": "bag of marbles, glass marbles",
        "dice": "die, cube",
        "puzzle cube": "rubik's cube, magic cube, puzzle, cube, toy",
        "toy brick": "building brick, lego brick, lego, brick, block, toy",
        "toy block": "wooden block, building block, cube, block, toy",
        "toy blocks": "pile of blocks, wooden blocks, toy",
        "wood block": "wooden block, piece of wood, block",
        "foam brick": "brick, block",
        "peg board": "wooden board, peg test, board",
        "toy airplane": "toy plane, airplane, plane, toy",
        "toy car": "race car, car, toy",
        "toy bus": "school bus, bus, toy",
        "toy train": "engine, locomotive, train, toy",
        "train track": "track, wooden track, toy",
        "toy robot": "robot figure, android, android figure, figure, figurine, toy",
        "action figure": "figure, figurine, doll, toy",
        "toy dinosaur": "dinosaur, dino, figurine, toy animal, animal, toy",
        "toy horse": "horse, pony, figurine, toy animal, animal, toy",
        "toy unicorn": "unicorn, horse, figurine, toy animal, animal, toy",
        "toy lion": "lion, figurine, toy animal, animal, toy",
        "toy rhino": "rhino, rhinoceros, figurine, toy animal, animal, toy",
        "toy eagle": "eagle, bird, figurine, toy animal, animal, toy",
        "toy bull": "bull, cow, figurine, toy animal, animal, toy",
        "toy dragon": "dragon, figurine, toy",
        "plush whale": "orca, whale, stuffed animal, plush, toy animal, animal, toy",
        "dog toy": "chew toy, rubber toy, toy",
        # Drinking, cooking and eating.
        "coffee cup": "espresso cup, tea cup, cup",
        "paper cup": "coffee cup, to go cup, takeaway cup, cup",
        "teapot": "tea pot, pot",
        "kettle": "tea kettle, pot",
        "moka pot": "coffee pot, espresso maker, coffee maker, pot",
        "cooking pot": "pan, saucepan, pot",
        "creamer": "milk jug, jug, pitcher",
        "sugar bowl": "sugar pot, pot",
        "clay jug": "clay pot, jug, pitcher, pot",
        "ceramic jar": "pot, jar",
        "salad bowl": "salad, bowl of salad, bowl",
        "salt shaker": "salt, shaker",
        "lemon squeezer": "juicer, squeezer",
        "knife block": "knife stand, knife holder",
        "kitchen scale": "scale",
        "toaster": "bread toaster",
        "beer bottle": "beer, bottle of beer, bottle",
        "wine bottle": "wine, bottle of wine, bottle",
        "baby bottle": "bottle",
        "yogurt bottle": "yogurt, yogurt drink, bottle",
        "milk carton": "milk, carton of milk, carton",
        "butter": "butter dish",
        "bread": "loaf, loaf of bread",
        "hamburger": "burger, sandwich",
        "hot dog": "sandwich",
        "cupcake": "muffin, cake",
        "cake": "birthday cake",
        "roast chicken": "chicken, meat",
        "steak": "meat",
        # Bath and medicine.
        "comb": "hair comb",
        "hairbrush": "brush, hair brush",
        "cream jar": "cream, jar",
        "perfume bottle": "perfume, bottle",
        "shampoo bottle": "shampoo, bottle",
        "soap dispenser": "soap, soap bottle, dispenser, bottle",
        "medicine bottle": "medicine, bottle",
        "medicine box": "medicine, pill box, box",
        "lipstick": "makeup",
        "towel": "cloth",
        "paper towel roll": "paper towels, kitchen roll, roll",
        # Office and electronics.
        "book": "cookbook",
        "newspaper": "paper",
        "calendar": "desk calendar",
        "ruler": "measuring stick",
        "highlighter": "text marker, marker, pen",
        "pen": "ballpoint pen, ballpoint",
        "pencil": "lead pencil",
        "pen holder": "pencil holder, pen cup, holder",
        "tape": "roll of tape, adhesive tape, sticky tape, roll",
        "tape measure": "measuring tape, tool",
        "phone": "smartphone, mobile phone, cell phone, mobile",
        "desk phone": "telephone, office phone, phone",
        "tablet": "tablet computer",
        "remote": "remote control, tv remote",
        "game controller": "controller, gamepad, joystick",
        "game console": "console",
        "headphones": "headset, pair of headphones",
        "camera": "digital camera, photo camera",
        "security camera": "surveillance camera, camera",
        "radio": "old radio",
        "alarm clock": "clock",
        "thermometer": "weather station",
        "smoke detector": "smoke alarm",
        "flashlight": "torch, light",
        # Things that people wear or own.
        "sunglasses": "shades, pair of sunglasses, glasses",
        "glasses": "eyeglasses, reading glasses, pair of glasses",
        "watch": "wristwatch, wrist watch",
        "ring": "finger ring",
        "keys": "key, key ring, bunch of keys",
        "banknote": "bill, note, money",
        "cap": "baseball cap, hat",
        "glove": "leather glove",
        "sock": "stocking",
        "handbag": "purse, bag",
        "ashtray": "ash tray",
        "gift": "present, gift box, box",
        "picture frame": "photo frame, frame, picture, photo",
        "vase": "flower vase",
        "potted plant": "plant, flower pot",
        "cactus": "potted plant, plant",
        "deer statue": "deer, statue, figurine, animal",
        "basketball": "ball",
        "ping pong paddle": "table tennis bat, paddle, bat, racket",
        "puzzle": "jigsaw puzzle, jigsaw, toy",
        "doll": "baby doll, toy",
        "wooden doll": "doll, wooden figure, figure, figurine, toy",
        "teddy bear": "teddy, bear, stuffed animal, plush, toy",
        # Shoes.
        "shoe": "footwear",
        "boot": "ankle boot, shoe, footwear",
        "sneaker": "running shoe, trainer, shoe, footwear",
    }.items()
}
"""Kinds of public scan collections, and other nouns of each; its hypernyms last."""


LABEL_NAMES: dict[str, tuple[str, ...]] = {
    kind: comma_separated(names)
    for kind, names in {
        # Dishes, cutlery, cooking.
        "cup": "drinking cup",
        "bowl": "mixing bowl",
        "plate": "platter, saucer, dinner plate",
        "fork": "silverware",
        "knife": "silverware",
        "spoon": "silverware",
        "glass": "drinking glass, tumbler, cup",
        "wine glass": "wineglass, goblet",
        "pan": "frying pan, skillet, wok",
        "bottle": "flask",
        "can": "tin, tin can, soda can, beverage can",
        "box": "carton, package, packet, cardboard box, container",
        "jar": "canister, container",
        "pitcher": "measuring jug",
        "straw": "drinking straw",
        "cutting board": "chopping board, board",
        "salt shaker": "salt and pepper shakers, pepper shaker",
        "candle": "tea light",
        # Food.
        "egg": "food",
        "donut": "doughnut, food",
        "pizza": "slice of pizza, food",
        "sandwich": "toast, food",
        "hamburger": "food",
        "hot dog": "hotdog, frankfurter, sausage, food",
        "cake": "piece of cake, slice of cake, food",
        "bread": "toast, food",
        "cookie": "biscuit, food",
        "apple": "food",
        "banana": "food",
        "orange": "food",
        "broccoli": "vegetable, food",
        "carrot": "vegetable, food",
        "tomato": "vegetable, food",
        "potato": "vegetable, food",
        "cucumber": "vegetable, food",
        "bell pepper": "paprika, capsicum, vegetable, food",
        # Balls, sport, toys.
        "sports ball": "ball",
        "ball": "sphere",
        "tennis ball": "sports ball",
        "golf ball": "sports ball",
        "baseball": "sports ball",
        "softball": "sports ball",
        "soccer ball": "sports ball",
        "basketball": "sports ball",
        "volleyball": "sports ball, ball",
        "rugby ball": "american football, football, sports ball, ball",
        "block": "cube, brick",
        "frisbee": "flying disc, disc",
        "tennis racket": "tennis racquet, racquet, racket",
        "baseball glove": "catcher's mitt, mitt, glove",
        "skateboard": "board",
        "snowboard": "board",
        "surfboard": "board",
        "skis": "ski, pair of skis",
        # Office, electronics, household.
        "pen": "marker",
        "phone": "cellphone, cellular phone, telephone, iphone",
        "remote": "tv remote control, controller, clicker",
        "mouse": "computer mouse",
        "keyboard": "computer keyboard",
        "laptop": "laptop computer, notebook computer, computer",
        "tv": "television, tv set, television set, telly, monitor, screen",
        "monitor": "computer monitor, display, screen",
        "tablet": "ipad, computer",
        "clock": "wall clock",
        "stapler": "office stapler",
        "eraser": "rubber",
        "tape": "sellotape, scotch tape",
        "light bulb": "lightbulb, bulb",
        "lamp": "table lamp, desk lamp, light",
        "hair drier": "hair dryer, hairdryer, blow dryer, hand dryer, dryer",
        "toilet paper": "roll of toilet paper, roll",
        "paper towel roll": "paper towel",
        "plastic bag": "shopping bag, bag",
        "backpack": "rucksack, knapsack, school bag, bag",
        "suitcase": "trolley case, case, bag",
        "umbrella": "parasol",
        "tie": "necktie",
        "potted plant": "houseplant, pot plant, flowers",
        # Furniture and the kitchen's machines.
        "chair": "seat, furniture",
        "bench": "seat, furniture",
        "couch": "sofa, settee, furniture",
        "bed": "furniture",
        "dining table": "kitchen table, furniture",
        "desk": "table, furniture",
        "toilet": "loo, wc",
        "sink": "basin, washbasin",
        "refrigerator": "fridge, freezer",
        "microwave": "microwave oven",
        "oven": "stove, cooker",
        # People, animals, the street.
        "person": "human, somebody, someone",
        "man": "guy, person",
        "woman": "lady, person",
        "boy": "child, kid, person",
        "girl": "child, kid, person",
        "bird": "animal",
        "cat": "kitty, kitten, animal",
        "dog": "puppy, doggy, animal",
        "horse": "pony, animal",
        "sheep": "lamb, animal",
        "cow": "bull, cattle, animal",
        "elephant": "animal",
        "bear": "animal",
        "zebra": "animal",
        "giraffe": "animal",
        "bicycle": "bike, push bike, vehicle",
        "motorcycle": "motorbike, bike, vehicle",
        "car": "automobile, auto, vehicle",
        "truck": "lorry, pickup truck, vehicle",
        "bus": "coach, vehicle",
        "train": "vehicle",
        "airplane": "aeroplane, plane, jet, aircraft",
        "boat": "ship",
        "traffic light": "traffic signal, stoplight, stop light",
        "fire hydrant": "hydrant",
        "stop sign": "sign",
        "parking meter": "meter",
    }.items()
}
"""Detectors' labels, and other nouns of each; of kinds in `KIND_NAMES`, further ones."""

PERSONS = frozenset(
    comma_separated(
        "person, human, somebody, someone, man, guy, woman, lady, boy, girl, child, kid"
    )
)
"""Names of people, whom nobody asks a robot to fetch."""

HYPERNYMS = frozenset(
    comma_separated(
        "fruit, vegetable, food, meat, tool, cutlery, silverware, toy, toy animal, stuffed animal,"
        " animal, plush, figure, figurine, footwear, shoe, glasses, hat, vehicle, furniture,"
        " person, sports ball, ball, bag, pot, jar, box, bottle, can, container, dish, pen, phone,"
        " plant, light"
    )
)
"""Names of a kind that name its class: every apple is a fruit, but not every cup a mug."""

NOT_OF_ITS_LAST_WORD = frozenset(
    ("hot dog", "teddy bear", "knife block", "ice cream", "guinea pig")
)
"""Names that a longer name's rule does not hold for: a hot dog is no dog."""


def _all_names() -> Iterator[tuple[str, str]]:
    """Each kind with each of its names, itself among them."""
    for table in (KIND_NAMES, LABEL_NAMES):
        for kind, names in table.items():
            yield from ((kind, name) for name in (kind, *names))


def _sets(pairs: Iterable[tuple[str, str]]) -> Mapping[str, frozenset[str]]:
    """The second words of each first word."""
    found: dict[str, set[str]] = {}
    for key, value in pairs:
        found.setdefault(key, set()).add(value)
    return {key: frozenset(values) for key, values in found.items()}


_KINDS_OF = _sets((n, k) for k, n in _all_names() if n == k or n not in HYPERNYMS)
_CLASSES_OF = _sets((k, n) for k, n in _all_names() if n != k and n in HYPERNYMS)
KNOWN_NAMES = frozenset(name for _, name in _all_names())
"""Every kind and every other name."""


class NameMatch(IntEnum):
    """How well a noun fits a label, the best first.

    SAME: the label says the noun, or a kind of it ("can": "soup can"; "fruit": "apple"). KIND: it
    is the noun's kind ("fridge": "refrigerator"; "coffee mug": "mug"). OTHER_NAME: both name one
    kind ("mug": "cup"). CLASS: the label is a hypernym ("apple": "fruit"). ALIKE: only the last
    word agrees ("water bottle": "wine bottle"), and no table knows better.
    """

    SAME = 0
    KIND = 1
    OTHER_NAME = 2
    CLASS = 3
    ALIKE = 4


@lru_cache(maxsize=8192)
def name_match(said: str, label: str) -> NameMatch | None:
    """How well a person's noun fits a detector's label, both in lower case; None: not at all.

    >>> [name_match("mug", label).name for label in ("mugs", "cup")], name_match("mug", "plate")
    (['SAME', 'OTHER_NAME'], None)
    """
    kinds, label_kinds = _kinds_of(said), _kinds_of(label)
    if _says(label, said) or _is_of_class(label_kinds, said):
        return NameMatch.SAME
    if _says(said, label) or _forms(label) & kinds:
        return NameMatch.KIND
    if kinds & label_kinds:
        return NameMatch.OTHER_NAME
    if _is_of_class(kinds, label):
        return NameMatch.CLASS
    told_apart = kinds and label_kinds and " " in said and " " in label
    return NameMatch.ALIKE if same_noun(said, label) and not told_apart else None


def best_named(said: str, labels: Sequence[str]) -> tuple[int, ...]:
    """The places of the labels that fit a noun best; none if no label fits.

    >>> best_named("mug", ["cup", "mug", "plate"]), best_named("mug", ["cup", "plate"])
    ((1,), (0,))
    """
    found = [name_match(said, label) for label in labels]
    best = min((match for match in found if match is not None), default=None)
    return tuple(i for i, match in enumerate(found) if best is not None and match == best)


def same_noun(a: str, b: str) -> bool:
    """Whether two nouns are one, in singular or plural, with or without their modifiers."""
    return bool(singulars(_last_word(a)) & singulars(_last_word(b)))


def _says(noun: str, shorter: str) -> bool:
    """Whether a noun is another one, in singular or plural, or ends in it."""
    forms, ends = _forms(noun), _forms(shorter)
    if forms & ends:
        return True
    return not forms & NOT_OF_ITS_LAST_WORD and any(
        form.endswith(f" {end}") for form in forms for end in ends
    )


def _is_of_class(kinds: frozenset[str], general: str) -> bool:
    """Whether a noun is a hypernym of one of these kinds."""
    return any(_CLASSES_OF.get(kind, frozenset()) & _forms(general) for kind in kinds)


def _kinds_of(noun: str) -> frozenset[str]:
    return frozenset().union(*(_KINDS_OF.get(form, frozenset()) for form in _forms(noun)))


@lru_cache(maxsize=4096)
def _forms(noun: str) -> frozenset[str]:
    """A noun as tables have it: a known name alone, else in singular, and without "of"."""
    if noun in KNOWN_NAMES:
        return frozenset((noun,))
    *before, last = noun.split() or [""]
    forms = {" ".join((*before, one)) for one in singulars(last)}
    thing, _, content = noun.partition(" of ")
    if content:  # "a bottle of gin" is a gin bottle
        forms |= {f"{content} {one}" for one in singulars(thing)}
    return frozenset(forms)


def _last_word(noun: str) -> str:
    if _forms(noun) & NOT_OF_ITS_LAST_WORD:
        return noun
    return (noun.split() or [""])[-1]
