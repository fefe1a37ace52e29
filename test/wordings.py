"""What people say to a robot that has asked which one: wordings, and how each is read."""

from __future__ import annotations

from clue_ros.dialogue.reading import Kind

STOPS = (
    "stop", "Stop!", "STOP IT", "stop that", "stop now please", "robot, stop!", "please stop",
    "no, stop", "oh no stop", "uh, stop please", "would you please stop", "halt", "quit", "cancel",
    "cancel that", "cancel the request", "abort", "forget it", "never mind", "nevermind",
    "that's enough", "thats enough", "I changed my mind", "you should stop", "I said stop",
    "stoppp", "wait, stop", "the left one, no stop", "stop what you are doing, stop", "arrête",
    "arrete", "Arrête-toi !", "arrêtez s'il vous plaît", "annule", "laisse tomber", "ça suffit",
    "non, arrête", "stop s'il te plaît",
)  # fmt: skip
REFUSALS = (
    "don't pick it up", "dont pick it up", "do n't pick it up", "don’t pick it up",
    "do not touch it", "do not pick up anything", "no, don't", "don't", "please don't do that",
    "don't take any of them", "don't you dare", "robot, don't grab anything", "never touch that",
    "you must not touch it", "you shouldn't take it", "you are not allowed to touch it",
    "I don't want it", "I do not want you to touch it", "it's hot don't touch it",
    "don't pick it up, it's hot", "don't touch the mug, the mug is mine", "the mug, don't touch it",
    "leave it", "leave it alone", "hands off", "no thanks", "no touching", "stop picking it up",
    "nothing", "not now", "stay away from it", "pick it up, no don't", "ne le prends pas",
    "n'y touche pas", "ne touche à rien", "ne prenez rien", "prends pas ça", "touche pas",
    "il ne faut pas le prendre", "je n'en veux pas", "je ne veux pas que tu le prennes",
    "laisse-le", "laisse ça", "non merci", "surtout pas",
)  # fmt: skip
NONE_OF_THEM = (
    "no", "No.", "nope", "no no", "oh no", "none of them", "none of them, please", "none",
    "neither", "neither of them", "no, neither", "not that", "not that one", "no, not that one",
    "not these", "that's not it", "that is not what I want", "they are both wrong", "wrong",
    "not any of them", "non", "aucun des deux", "aucun", "ni l'un ni l'autre", "pas celui-là",
    "pas ça", "ce n'est pas ça",
)  # fmt: skip
WAITS = (
    "wait", "Wait!", "wait a moment", "please wait", "no wait", "hold on", "hang on a second",
    "one moment", "just a second", "let me think", "not yet", "wait until I am ready", "hmm", "uh",
    "attends", "attendez", "un instant", "une seconde", "attends un peu", "pas encore",
)  # fmt: skip
READINGS = {
    **dict.fromkeys(STOPS, Kind.STOP),
    **dict.fromkeys(REFUSALS, Kind.REFUSAL),
    **dict.fromkeys(WAITS, Kind.WAIT),
}
# To "the red one or the green one?". None of these asks to stop or refuses.
ANSWERS = (
    "red", "the red", "the red one please", "it's the red one", "take the red one",
    "no, the red one", "no not the red one the green one", "no, not the red one, the green one",
    "not the red one", "not red", "not the left one", "the other one", "no, the other one",
    "wait, the red one", "wait no the red one", "uh, the red one", "ok, the red one",
    "sorry, I mean the red one", "yes, the left one", "the one that is not on the plate",
    "the one that isn't broken", "the one without a handle", "the one with no handle",
    "the one you don't like", "the one I did not ask for", "neither red nor blue one",
    "the stop sign", "stop sign", "the one next to the stop button", "the one at the bus stop",
    "the minute hand", "a second apple", "the second one", "anything but the red one",
    "take the mug, not the bowl", "any of them", "either one", "whatever", "you choose",
    "I do not care", "it does not matter", "I don't know", "no idea", "no preference", "that one",
    "the back one", "no, front", "the red mug instead", "then the red one", "le rouge",
    "pas le rouge", "pas celui de gauche", "non, le vert", "celui qui n'est pas rouge",
    "attends, le vert", "je ne sais pas", "n'importe lequel", "peu importe", "l'autre",
)  # fmt: skip
REQUESTS = (
    "pick up the mug that is not red", "take the apple, not the pear",
    "take the apple not the pear", "don't forget to give me the mug",
    "please do not forget the mug", "pick up the stop sign", "give me the mug without a handle",
    "can't you pick up the mug", "won't you give me the mug", "why don't you take the mug",
    "if you don't mind, pick up the mug", "find the exit sign",
    "I can't reach the mug, hand it to me please", "get me a second mug", "hold the mug",
    "hold on to the mug", "the mug", "mug", "hey robot, could you please hand me the red mug",
    "I said pick up the mug", "prends la tasse qui n'est pas rouge",
    "prends la pomme, pas la poire", "n'oublie pas de prendre la tasse",
    "donne-moi la tasse sans anse",
)  # fmt: skip
# What refuses one thing and asks for another, and what the model reads of it.
WANTED = {
    "don't take the red one, take the green one": "take the green one",
    "dont take the red one take the green one": "take the green one",
    "I don't want the red one, the green one please": "the green one",
    "leave the red one, take the green one": "take the green one",
    "stop, the green one": "the green one",
    "never mind, the green one": "the green one",
    "take the green one but don't touch the red one": "take the green one",
    "ne prends pas le rouge, prends le vert": "prends le vert",
}
