# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The words of commands and of answers that a recognizer's grammar is made of, by language.

A recognizer hears a grammar far more surely than free speech, at the price of a closed vocabulary.
`clue_ros.dialogue.reading` then reads what an utterance asks for, in any words.
"""

from __future__ import annotations

from dataclasses import dataclass

from clue_ros.dialogue import places
from clue_ros.dialogue.noun_phrases import COLORS
from clue_ros.dialogue.words import base_language


@dataclass(frozen=True)
class Words:
    """One language.

    `yes_to_read_back` and `no_to_read_back` mean yes and no only after "Did you say ...?".
    `do_not` comes before a command that is refused. `color_follows` says that colours stand after
    the noun. `pronunciations` has the words that the
    recognizer's dictionary lacks (ARPAbet, for English).
    """

    colors: tuple[str, ...]
    kinds: tuple[str, ...]
    sizes: tuple[str, ...]
    places: tuple[str, ...]
    behind: tuple[str, ...]
    verbs: tuple[str, ...]
    polite_before: tuple[str, ...]
    polite_after: tuple[str, ...]
    the: tuple[str, ...]
    answer_openings: tuple[str, ...]
    yes: tuple[str, ...]
    no: tuple[str, ...]
    stop: tuple[str, ...]
    refusals: tuple[str, ...]
    waits: tuple[str, ...]
    do_not: tuple[str, ...] = ()
    yes_to_read_back: tuple[str, ...] = ()
    no_to_read_back: tuple[str, ...] = ()
    color_follows: bool = False
    pronunciations: tuple[tuple[str, str], ...] = ()


ENGLISH = Words(
    colors=COLORS,
    kinds=(
        "block", "cube", "brick", "cylinder", "can", "tube", "ball", "sphere", "object", "thing",
        "item", "one", "cup", "mug", "bottle", "box", "bowl", "plate", "apple", "banana", "fork",
        "spoon",
    ),
    sizes=("big", "small", "large", "little"),
    places=tuple(form for forms in places.BEFORE_NOUN.values() for form in forms),
    behind=tuple(form for forms in places.AFTER_NOUN.values() for form in forms),
    verbs=(
        "pick up", "grab", "take", "get", "get me", "give me", "hand me", "pass me", "bring me",
        "fetch", "lift", "i want", "i need", "i would like", "find", "where is", "show me",
        "point to", "select", "move to",
    ),
    polite_before=(
        "please", "now", "can you", "could you", "can i have", "robot",
    ),
    polite_after=("please",),
    the=("the",),
    answer_openings=("i mean", "it is", "no"),
    yes=("yes", "yes please", "yeah", "yep", "sure", "correct", "that is right", "okay"),
    no=(
        "no", "nope", "that is wrong", "neither", "none of them", "neither of them", "not that one",
    ),
    stop=(
        "stop", "cancel", "never mind", "forget it", "abort", "stop it", "halt", "quit",
        "that's enough", "cancel that",
    ),
    refusals=(
        "don't", "don't pick it up", "don't touch it", "don't take it", "don't move",
        "don't do it", "do not pick it up", "do not touch it", "do not take it", "do not move",
        "leave it", "leave it alone", "no thanks", "hands off",
    ),
    waits=("wait", "wait a moment", "hold on", "one moment", "just a moment", "hang on"),
    do_not=("don't", "do not"),
    yes_to_read_back=("right",),
    no_to_read_back=("wrong",),
    pronunciations=(
        ("leftmost", "L EH F T M OW S T"),
        ("rightmost", "R AY T M OW S T"),
    ),
)  # fmt: skip

FRENCH = Words(
    colors=(
        "rouge", "vert", "verte", "bleu", "bleue", "jaune", "violet", "violette", "orange", "blanc",
        "blanche", "noir", "noire",
    ),
    kinds=(
        "bloc", "cube", "brique", "cylindre", "boîte", "tube", "balle", "boule", "sphère", "objet",
        "chose", "celui", "celle",
    ),
    sizes=("gros", "grosse", "petit", "petite", "grand", "grande"),
    places=("gauche", "droite", "haut", "bas", "milieu", "centre"),
    behind=(
        "à gauche", "à droite", "de gauche", "de droite", "en haut", "en bas", "au milieu",
        "du milieu", "en haut à gauche", "en haut à droite", "en bas à gauche", "en bas à droite",
    ),
    verbs=(
        "prends", "attrape", "donne-moi", "passe-moi", "apporte-moi", "saisis", "soulève",
        "je veux", "je voudrais", "trouve", "montre-moi", "où est",
    ),
    polite_before=("peux-tu prendre", "s'il te plaît"),
    polite_after=("s'il te plaît", "s'il vous plaît"),
    the=("le", "la", "l'"),
    answer_openings=("je veux dire", "c'est", "non"),
    yes=("oui", "d'accord", "c'est ça", "exact", "ouais"),
    no=("non", "pas du tout", "ni l'un ni l'autre", "aucun", "aucun des deux"),
    stop=("stop", "arrête", "annule", "laisse tomber", "tant pis", "ça suffit"),
    refusals=(
        "ne le prends pas", "ne la prends pas", "n'y touche pas", "ne fais rien", "laisse",
        "laisse ça", "non merci",
    ),
    waits=("attends", "un instant", "un moment", "une seconde"),
    color_follows=True,
)  # fmt: skip

LANGUAGES: dict[str, Words] = {"en": ENGLISH, "fr": FRENCH}


def words_of(language: str) -> Words:
    """The words of a language tag such as "en", "en-US" or "fr"; English for any other."""
    return LANGUAGES.get(base_language(language), ENGLISH)
