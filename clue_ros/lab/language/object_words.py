"""Word tables of the object grammar: uses, materials, corrections, nouns that no scene has."""

from __future__ import annotations

from dataclasses import dataclass

from clue_ros.dialogue.object_names import comma_separated


@dataclass(frozen=True)
class Use:
    """A use of things. phrases: its wordings. kinds: those that serve it.

    perhaps: kinds that some people would use for it; a scene with one gives no such request.
    """

    phrases: tuple[str, ...]
    kinds: frozenset[str]
    perhaps: frozenset[str] = frozenset()


def _use(phrases: str, kinds: str, perhaps: str = "") -> Use:
    split = comma_separated
    return Use(split(phrases), frozenset(split(kinds)), frozenset(split(perhaps)))


_FRUIT = "apple, banana, lemon, orange, peach, pear, plum, strawberry"
_BALLS = "tennis ball, golf ball, baseball, softball, soccer ball, racquetball, basketball, ball"
USES: dict[str, Use] = {
    "cut": _use(
        "something to cut with, a thing to cut with, something that cuts, something sharp",
        "knife, scissors", "knife block, pliers",
    ),
    "drink from": _use(
        "something to drink from, a thing to drink from, something to drink out of",
        "mug, cup, coffee cup, paper cup, glass",
        "bottle, baby bottle, beer bottle, bowl, pitcher, wine bottle, yogurt bottle, milk carton,"
        " ketchup",
    ),
    "eat": _use(
        "something to eat, a snack, something edible",
        f"{_FRUIT}, hamburger, hot dog, bread, cupcake, cake, roast chicken, steak, salad bowl,"
        " carrot, egg, donut",
        "cracker box, sugar box, pudding box, gelatin box, soup can, tuna can, meat can, butter,"
        " yogurt bottle, mustard bottle, milk carton, ketchup",
    ),
    "eat from": _use(
        "something to eat from, something to put food on", "bowl, plate", "salad bowl, pan, jar"
    ),
    "write": _use(
        "something to write with, a thing to write with, something for writing",
        "marker, pen, pencil, highlighter", "crayon box, pen holder, pencil case",
    ),
    "hammer": _use(
        "something to hit a nail with, something to hammer with", "hammer",
        "wrench, wood block, pliers",
    ),
    "screw": _use("something to turn a screw with, something for screws", "screwdriver",
                  "drill, pliers"),
    "drill": _use("something to drill a hole with, something for drilling", "drill"),
    "wipe": _use(
        "something to wipe the table with, something to clean with",
        "sponge, towel, paper towel roll",
        "bleach bottle, spray bottle, soap dispenser, sock, toothbrush, eraser",
    ),
    "throw": _use("something to throw and catch, something that bounces", _BALLS, "marble, dice"),
    "time": _use("something that tells the time", "watch, alarm clock", "phone, tablet, radio"),
    "wear": _use(
        "something to wear, a piece of clothing", "shoe, boot, sneaker, glove, cap, sock",
        "watch, sunglasses, glasses, ring, headphones, handbag",
    ),
    "measure": _use(
        "something to measure with, something for measuring", "ruler, tape measure",
        "kitchen scale, thermometer",
    ),
    "photograph": _use(
        "something to take a picture with, something to take photos with", "camera",
        "phone, tablet, security camera",
    ),
    "call": _use("something to call someone with", "phone, desk phone", "tablet"),
    "read": _use("something to read", "book, newspaper",
                 "calendar, tablet, banknote, notebook, envelope"),
    "comb": _use("something for my hair, something to comb my hair with", "comb, hairbrush",
                 "shampoo bottle, cap, toothbrush"),
    "flowers": _use("something to put flowers in", "vase",
                    "pitcher, clay jug, jar, ceramic jar, glass, bottle, wine bottle, beer bottle"),
    "boil": _use("something to boil water in", "kettle", "cooking pot, moka pot, teapot, pan"),
    "light": _use("something that gives light, a light for the dark", "flashlight",
                  "candle, phone, tablet, lighter"),
    "music": _use("something to listen to music with", "headphones, radio", "phone, tablet"),
    "wash": _use("something to wash my hands with", "soap dispenser", "sponge, shampoo bottle"),
    "pay": _use("something to pay with", "banknote", "phone, handbag, watch, wallet"),
    "channel": _use("something to change the channel with", "remote", "phone, game controller"),
    "pens": _use("something to keep pens in", "pen holder, pencil case", "cup, mug, glass, jar"),
    "scoop": _use("something to stir with, something to eat soup with", "spoon",
                  "fork, knife, spatula, pencil, pen"),
}  # fmt: skip
"""The uses that `Reference.use` names."""

USE_REQUESTS: tuple[str, ...] = (
    "give me {}", "hand me {}", "pass me {}", "bring me {}", "get me {}", "fetch me {}",
    "i need {}", "i want {}", "i am looking for {}", "can i have {} ?", "find me {}",
    "could you hand me {} ?", "could you give me {} please", "please give me {}",
    "i would like {}", "do you see {} ?", "is there {} ?",
)  # fmt: skip

POLITE_REQUESTS: tuple[str, ...] = (
    "would you mind passing me {} ?", "would you be so kind as to hand me {} ?",
    "could you please pick up {} ?", "can you please get me {} ?", "i would appreciate {} please",
    "hello , could you give me {} ?", "excuse me , can i have {} ?", "hi robot , please take {}",
    "please be so kind and bring me {}", "if you can , hand me {} please", "thanks , now {}",
    "may i ask you for {} ?", "kindly pass {}", "it would be great to have {}",
)  # fmt: skip

# A correction in the middle of a request: the mistake, then the words meant.
CORRECTIONS: tuple[str, ...] = (
    "{w} , no , {p}", "{w} , no wait , {p}", "{w} , sorry , {p}", "{w} , i mean {p}",
    "{w} , no sorry , {p}", "{w} or rather {p}",
)  # fmt: skip

MATERIALS: dict[str, tuple[str, ...]] = {
    "wood": ("wooden", "wooden", "wood"), "metal": ("metal", "metal", "steel"),
    "plastic": ("plastic",), "ceramic": ("ceramic", "ceramic", "china"), "glass": ("glass",),
    "cardboard": ("cardboard", "paper"), "paper": ("paper",), "rubber": ("rubber",),
    "leather": ("leather",), "fabric": ("fabric", "cloth"), "foam": ("foam",),
}  # fmt: skip
"""Material -> its adjectives."""

# Things that no collection holds: requests for them are part of training, and answered as absent
# unless the world `table` has generated one of them in the scene.
ABSENT_NOUNS: tuple[str, ...] = (
    "toothbrush", "notebook", "hair dryer", "guitar", "umbrella", "wallet", "lighter", "candy",
    "cheese", "pizza", "tomato", "potato", "onion", "grapes", "cucumber", "pineapple",
    "watermelon", "saw", "pliers", "nail", "rope", "battery", "charger", "cable", "keyboard",
    "mouse", "usb stick", "envelope", "stamp", "eraser", "sharpener", "glue", "straw", "napkin",
    "chopsticks", "ladle", "whisk", "corkscrew", "bottle opener", "plunger", "toy boat", "kite",
    "yo yo", "drum", "violin", "bracelet", "necklace", "tie", "belt", "scarf", "mask", "thermos",
    "tea bag", "cereal box", "chips", "ketchup", "honey", "lamp", "microphone", "dustpan", "broom",
)  # fmt: skip
HELD_OUT_NOUNS: tuple[str, ...] = (
    "stapler", "whistle", "compass", "magnet", "hourglass", "telescope", "trumpet", "snow globe",
    "bandage", "tweezers", "calculator",
)  # fmt: skip
"""Things that neither scenes nor training requests nor the tokenizer name, for measurements."""
