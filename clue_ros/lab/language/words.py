"""Word tables of the grammars, and texts about a mirrored picture."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from clue_ros.dialogue import noun_phrases, places

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

RELATIONS: dict[str, tuple[str, ...]] = {
    "left": ("left of {}", "to the left of {}", "on the left of {}"),
    "right": ("right of {}", "to the right of {}", "on the right of {}"),
    "behind": ("behind {}", "above {}", "at the back of {}"),
    "front": ("in front of {}", "below {}", "before {}"),
    "next": ("next to {}", "beside {}", "near {}", "close to {}", "by {}"),
}

ORDINALS: tuple[str, ...] = noun_phrases.ORDINALS[:5]
ORDER_SIDES: dict[str, tuple[str, ...]] = {
    "left": ("from the left",), "right": ("from the right",),
    "top": ("from the top", "from the back"), "bottom": ("from the bottom", "from the front"),
}  # fmt: skip
NUMBERS: dict[int, str] = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}

PLACE_BEFORE_NOUN, PLACE_AFTER_NOUN = places.BEFORE_NOUN, places.AFTER_NOUN

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
