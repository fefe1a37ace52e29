# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""The robot's own sentences in each language. The model writes its questions itself."""

from __future__ import annotations

import re
from enum import Enum

from clue_ros.dialogue.words import asks_yes_or_no, base_language, offered_answers


class Saying(Enum):
    """One thing to say. In braces: what is filled in."""

    DID_YOU_SAY = "did you say"
    SAY_AGAIN = "say again"
    NOT_UNDERSTOOD = "not understood"
    NOTHING_HEARD = "nothing heard"
    NOTHING_TO_STOP = "nothing to stop"
    WAITING = "waiting"
    WHAT_THEN = "what then"
    SHOULD_I = "should i"
    CHANGED = "changed"
    THIS_ONE = "this one"
    THIS = "this"
    LEARNED = "learned"


_SAYINGS: dict[str, dict[Saying, str]] = {
    "en": {
        Saying.DID_YOU_SAY: "Did you say: {text}?",
        Saying.SAY_AGAIN: "Then please say it again.",
        Saying.NOT_UNDERSTOOD: "Sorry, I did not understand.",
        Saying.NOTHING_HEARD: "I did not hear you.",
        Saying.NOTHING_TO_STOP: "All right.",
        Saying.WAITING: "All right, I wait.",
        Saying.WHAT_THEN: "Then please tell me what you mean.",
        Saying.SHOULD_I: "Should I take {label}?",
        Saying.CHANGED: "Something has moved, so I looked again.",
        Saying.THIS_ONE: "Do you mean this one, the {label}?",
        Saying.THIS: "Do you mean this one?",
        Saying.LEARNED: "All right, now I know what this is: {label}.",
    },
    "fr": {
        Saying.DID_YOU_SAY: "Avez-vous dit : {text} ?",
        Saying.SAY_AGAIN: "Alors répétez, s'il vous plaît.",
        Saying.NOT_UNDERSTOOD: "Pardon, je n'ai pas compris.",
        Saying.NOTHING_HEARD: "Je ne vous ai pas entendu.",
        Saying.NOTHING_TO_STOP: "D'accord.",
        Saying.WAITING: "D'accord, j'attends.",
        Saying.WHAT_THEN: "Alors dites-moi ce que vous voulez dire.",
        Saying.SHOULD_I: "Dois-je prendre ceci : {label} ?",
        Saying.CHANGED: "Quelque chose a bougé, j'ai regardé de nouveau.",
        Saying.THIS_ONE: "Voulez-vous dire celui-ci : {label} ?",
        Saying.THIS: "Voulez-vous dire celui-ci ?",
        Saying.LEARNED: "D'accord, je sais maintenant ce que c'est : {label}.",
    },
}
# The end of a dialogue, by its code; {label} is the object's.
_ENDS: dict[str, dict[str, str]] = {
    "en": {
        "NONE": "I see the {label}.",
        "NONE without label": "I see it.",
        "INACTIVE": "I am not active right now.",
        "NO_IMAGE": "I cannot see anything, the camera sends no image.",
        "STALE_IMAGE": "I cannot see anything new, the camera has stopped.",
        "BAD_IMAGE": "I cannot read the camera image.",
        "EMPTY_EXPRESSION": "I did not hear anything, please say it again.",
        "BAD_EXPRESSION": "I did not understand that, please say it in other words.",
        "BUSY": "One moment, I am still busy.",
        "MODEL_ERROR": "Something went wrong while I was looking, please try again.",
        "ANSWER_TIMEOUT": "I did not hear an answer, so I stop here.",
        "MAX_TURNS": "I still do not know which one you mean, please say it in other words.",
        "CANCELED": "All right, I stop.",
        "NOT_FOUND": "I do not see that, so I stop here.",
        "": "Something went wrong, please try again.",
    },
    "fr": {
        "NONE": "Je vois : {label}.",
        "NONE without label": "Je le vois.",
        "INACTIVE": "Je ne suis pas en marche.",
        "NO_IMAGE": "Je ne vois rien, la caméra n'envoie pas d'image.",
        "STALE_IMAGE": "Je ne vois rien de nouveau, la caméra s'est arrêtée.",
        "BAD_IMAGE": "Je ne peux pas lire l'image de la caméra.",
        "EMPTY_EXPRESSION": "Je n'ai rien entendu, répétez s'il vous plaît.",
        "BAD_EXPRESSION": "Je n'ai pas compris, dites-le autrement s'il vous plaît.",
        "BUSY": "Un instant, je suis encore occupé.",
        "MODEL_ERROR": "Une erreur s'est produite pendant que je regardais, réessayez.",
        "ANSWER_TIMEOUT": "Je n'ai pas entendu de réponse, j'arrête.",
        "MAX_TURNS": "Je ne sais toujours pas lequel, dites-le autrement s'il vous plaît.",
        "CANCELED": "D'accord, j'arrête.",
        "NOT_FOUND": "Je ne vois pas cela, j'arrête.",
        "": "Une erreur s'est produite, réessayez.",
    },
}


def language_of(tag: str) -> str:
    """The language of a tag that there are sayings for; English for any other."""
    short = base_language(tag)
    return short if short in _SAYINGS else "en"


def say(saying: Saying, language: str, **filled: str) -> str:
    """The saying in a language, with what its braces name filled in."""
    return _SAYINGS[language_of(language)][saying].format(**filled)


def this_one(label: str, language: str = "en") -> str:
    """The question that shows one candidate. label: what it is called; "": not known."""
    if not label:
        return say(Saying.THIS, language)
    return say(Saying.THIS_ONE, language, label=label.removeprefix("the "))


def ending(code: str, language: str, label: str = "") -> str:
    """The short sentence at the end of a dialogue."""
    table = _ENDS[language_of(language)]
    if code == "NONE":
        return table["NONE"].format(label=label) if label else table["NONE without label"]
    return table.get(code, table[""])


def in_other_words(question: str, language: str, *, heard: bool) -> str:
    """The question once more, differently: what was wrong, and the question's own choices.

    `heard`: something was said but not understood; otherwise nobody spoke.
    """
    why = say(Saying.NOT_UNDERSTOOD if heard else Saying.NOTHING_HEARD, language)
    return f"{why} {_rephrased(question.strip(), language_of(language))}"


def _rephrased(question: str, language: str) -> str:
    """Such as "do you mean this or that?" -> "Please tell me: this or that?"."""
    if language == "fr":
        return f"Dites-moi s'il vous plaît : {question}"
    match = re.match(
        r"(?:.*[.!] )?(?:do you mean|did you mean|is it|which one[ ,]*)\s*(?P<choices>.*\bor\b.*)",
        question,
        re.IGNORECASE,
    )
    if match:
        return f"Please tell me: {match['choices']}"
    if asks_yes_or_no(offered_answers(question)):
        return f"Please say yes or no. {question}"
    return f"Please say it in other words: {question}"
