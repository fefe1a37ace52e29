"""Word tables of the grammars, and changes of words: plural, "a" and "an", mirrored."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

Rng = np.random.Generator
"""Source of every random choice."""

ANY_NOUNS: tuple[str, ...] = ("object", "thing", "item", "one")
ANY_PLURALS: tuple[str, ...] = ("objects", "things", "items", "ones")

REQUESTS: tuple[str, ...] = (
    "pick up {}", "pick {} up", "grab {}", "take {}", "get {}", "get me {}", "give me {}",
    "hand me {}", "pass me {}", "pass {}", "bring me {}", "bring {} here", "fetch {}",
    "fetch me {}", "lift {}", "hold {}", "i want {}", "i need {}", "i would like {}",
    "i would like to have {}", "please pick up {}", "please grab {}", "please give me {}",
    "could you hand me {} ?", "can you pick up {} ?", "could you grab {} ?", "would you get {} ?",
    "could you give me {} please", "can i have {} ?", "may i have {} ?", "pick up {} please",
    "now pick up {}", "robot , pick up {}", "hey , grab {}", "find {}", "where is {} ?",
    "show me {}", "point to {}", "point at {}", "select {}", "choose {}", "look for {}",
    "move to {}", "go to {}", "let me have {}", "i am looking for {}", "{}", "{} please",
)  # fmt: skip

SIZES: dict[str, tuple[str, ...]] = {
    "big": ("big", "large", "bigger", "larger", "biggest", "largest"),
    "small": ("small", "little", "smaller", "smallest", "tiny"),
}

# Directions (x, y) are those of the picture: x right, y down.
RELATIONS: dict[str, tuple[str, ...]] = {
    "left": ("left of {}", "to the left of {}", "on the left of {}"),
    "right": ("right of {}", "to the right of {}", "on the right of {}"),
    "behind": ("behind {}", "above {}", "at the back of {}"),
    "front": ("in front of {}", "below {}", "before {}"),
    "next": ("next to {}", "beside {}", "near {}", "close to {}", "by {}"),
}
DIRECTIONS: dict[str, tuple[float, float]] = {
    "left": (-1, 0), "right": (1, 0), "behind": (0, -1), "front": (0, 1),
}  # fmt: skip

ORDINALS: tuple[str, ...] = ("first", "second", "third", "fourth", "fifth")
ORDER_SIDES: dict[str, tuple[str, ...]] = {
    "left": ("from the left",), "right": ("from the right",),
    "top": ("from the top", "from the back"), "bottom": ("from the bottom", "from the front"),
}  # fmt: skip
NUMBERS: dict[int, str] = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}

IRREGULAR: dict[str, str] = {"knife": "knives", "tin": "tins", "sphere": "spheres"} | {
    "loaf": "loaves", "die": "dice", "shelf": "shelves",
}  # fmt: skip
# Nouns with neither "a" nor a plural of their own, told by their last word.
_NOT_COUNTED = (
    "scissors headphones sunglasses glasses eyeglasses shades keys crackers crayons pills vitamins "
    "marbles blocks towels dice cutlery footwear money makeup cleanser bleach sugar salt coffee "
    "soup tuna meat mustard gelatin pudding cream soap shampoo medicine perfume milk butter bread "
    "beer wine yogurt tape paper salad lego windex spam jello starkist pliers tweezers wood "
    "chicken chips grapes candy cheese ketchup honey rope glue chopsticks"
)
NOT_COUNTED = frozenset(_NOT_COUNTED.split())

# Place words before the noun and after it.
PLACE_BEFORE_NOUN: dict[str, tuple[str, ...]] = {
    "left": ("left",), "right": ("right",), "upper": ("upper",), "lower": ("lower",),
    "leftmost": ("leftmost",), "rightmost": ("rightmost",), "top": ("top",), "bottom": ("bottom",),
    "upper left": ("upper left", "top left", "left upper"),
    "upper right": ("upper right", "top right", "right upper"),
    "lower left": ("lower left", "bottom left", "left lower"),
    "lower right": ("lower right", "bottom right", "right lower"),
    "middle": ("middle", "center"),
}  # fmt: skip
PLACE_AFTER_NOUN: dict[str, tuple[str, ...]] = {
    "left": ("on the left", "to the left"), "right": ("on the right", "to the right"),
    "upper": ("in the upper part",), "lower": ("in the lower part",),
    "leftmost": ("furthest left",), "rightmost": ("furthest right",),
    "top": ("at the top",), "bottom": ("at the bottom",),
    "upper left": ("on the upper left", "at the top left", "at the upper left corner"),
    "upper right": ("on the upper right", "at the top right", "at the upper right corner"),
    "lower left": ("on the lower left", "at the bottom left", "at the lower left corner"),
    "lower right": ("on the lower right", "at the bottom right", "at the lower right corner"),
    "middle": ("in the middle", "in the center"),
}  # fmt: skip

# What the robot says.
NOTHING = "i don ' t see {} ."
WHICH_COLOR = "which color ?"
WHERE = "where is it ?"

# What the person answers.
YES: tuple[str, ...] = ("yes", "yes", "yes please", "yeah", "right", "exactly", "that one", "ok")
NO: tuple[str, ...] = ("no", "no", "nope", "no , not that one")
OTHER: tuple[str, ...] = ("no , the other one", "the other one", "the other one please")
UNSURE: tuple[str, ...] = (
    "i do not care", "any of them", "you choose", "it does not matter", "i do not know",
    "whatever", "either one",
)  # fmt: skip
INSTEAD: tuple[str, ...] = (
    "no , i mean {}", "sorry , i mean {}", "no , {}", "i meant {}", "{} instead",
    "wait , {}",
)  # fmt: skip
RENAMED: tuple[str, ...] = ("{}", "i mean {}", "then {}", "{} then", "sorry , {}", "ok , {}")

BY_COLOR: tuple[str, ...] = (
    "{c}", "{c}", "the {c} one", "the {c} one", "{c} please", "the {c} {n}", "i mean the {c} one",
    "it is {c}", "the {c}", "that {c} one", "the one that is {c}",
)  # fmt: skip
BY_NOT: tuple[str, ...] = ("not the {c} one", "not {c}", "the one that is not {c}")
BY_SIZE: tuple[str, ...] = ("{s}", "the {s} one", "the {s} one please", "the {s} {n}")
BY_KIND: tuple[str, ...] = ("{n}", "the {n}", "the {n} please", "i mean the {n}")
BY_PLACE: tuple[str, ...] = (
    "{p}", "{p}", "the {p} one", "the {p} one", "{p} please", "the one on the {p}", "the {p} {n}",
    "i mean the {p} one",
)  # fmt: skip
BY_ORDER: tuple[str, ...] = ("the {o} one", "the {o} one", "the {o}", "the {o} {n}")
BY_PHRASE: tuple[str, ...] = ("{}", "{}", "{} please", "i mean {}")
PLACES: dict[str, tuple[str, ...]] = {
    "upper left": ("upper left", "top left"), "upper right": ("upper right", "top right"),
    "lower left": ("lower left", "bottom left"), "lower right": ("lower right", "bottom right"),
    "upper": ("upper", "top", "back"), "lower": ("lower", "bottom", "front"),
    "left": ("left", "left", "leftmost"), "right": ("right", "right", "rightmost"),
    "middle": ("middle", "center"),
}  # fmt: skip

# Words of the templates in `phrases`, `questions` and `answers`.
OTHERS = (
    "the that is not non but which color anything any a an of both all in on at to from one other "
    "there those these last is it do you mean or what where it i don t see please and no yes with"
)


def adjective(material: str) -> str:
    """The adjective of a material: "wood" -> "wooden"; "" stays."""
    return {"wood": "wooden"}.get(material, material)


def pick(rng: Rng, options: Sequence[str]) -> str:
    """Draw one of the options, all equally likely."""
    return options[int(rng.integers(len(options)))]


def plural(noun: str) -> str:
    """Return the plural of a noun.

    >>> plural("mug"), plural("box"), plural("knife"), plural("cracker box")
    ('mugs', 'boxes', 'knives', 'cracker boxes')
    >>> plural("strawberry"), plural("box of crackers"), plural("scissors")
    ('strawberries', 'boxes of crackers', 'scissors')
    """
    if " of " in noun:
        head, of, rest = noun.partition(" of ")
        return plural(head) + of + rest
    head, _, last = noun.rpartition(" ")
    if last in IRREGULAR:
        many = IRREGULAR[last]
    elif last in NOT_COUNTED:
        many = last
    elif last.endswith("y") and last[-2:-1] not in "aeiou":
        many = f"{last[:-1]}ies"
    elif last.endswith(("s", "x", "ch", "sh", "z")):
        many = f"{last}es"
    else:
        many = f"{last}s"
    return f"{head} {many}".strip()


def indefinite(noun_phrase: str) -> str:
    """Replace the "the" of a noun phrase by "a" or "an".

    >>> indefinite("the orange ball"), indefinite("the one which color is red")
    ('an orange ball', 'a one which color is red')
    >>> indefinite("black scissors"), indefinite("the box of crackers")
    ('some black scissors', 'a box of crackers')
    """
    rest = noun_phrase.removeprefix("the ")
    if rest.partition(" of ")[0].split()[-1] in NOT_COUNTED:
        return f"some {rest}"
    article = "an" if rest[0] in "aeiou" and rest.split()[0] != "one" else "a"
    return f"{article} {rest}"


_LEFT_RIGHT = {
    "left": "right", "leftmost": "rightmost", "upperleft": "upperright", "lowerleft": "lowerright",
}  # fmt: skip
_TOP_BOTTOM = {
    "upper": "lower", "top": "bottom", "upperleft": "lowerleft", "upperright": "lowerright",
    "above": "below", "highest": "lowest",
}  # fmt: skip


def mirrored_text(text: str, mirror: tuple[bool, bool]) -> str:
    """Change the place words of a text to those of the mirrored picture (left-right, top-bottom).

    >>> mirrored_text("the upper left block", (True, False))
    'the upper right block'
    """
    for on, swaps in zip(mirror, (_LEFT_RIGHT, _TOP_BOTTOM), strict=True):
        if on:
            both = {**swaps, **{v: k for k, v in swaps.items()}}
            if "below" in both:
                both["beneath"] = both["below"]
            text = "".join(both.get(part, part) for part in re.split(r"([a-z]+)", text))
    return text
