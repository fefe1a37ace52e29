# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""English and French phrases and words that tell what an utterance asks for (reading.py).

Phrases are written as people write them; words as reading.py has them: in lower case, without
accents and apostrophes ("dont", "arrete").
"""

from __future__ import annotations

from clue_ros.dialogue.words import LANGUAGES


def word_set(words: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(words.split())


STOP = (
    "knock it off", "cut it out", "call it a day", "drop the whole thing", "give me a break",
    "laisse-moi tranquille", "laissez-moi tranquille", "it's over", "that will do", "shut down",
    "shutdown", "turn off", "switch off", "power off", "on arrête", "on arrête là", "stop",
    "stop it", "stop that", "stop this", "stop there", "stop here", "stop now", "stop right there",
    "stop moving", "stop everything", "stop the robot", "stop the arm", "emergency stop",
    "full stop", "halt", "freeze", "quit", "quit it", "exit", "cancel", "cancel it", "cancel that",
    "cancel this", "cancel everything", "cancel the request", "cancel the task",
    "cancel the command", "cancel the order", "abort", "abort it", "abort that", "abort the task",
    "abort the mission", "abort mission", "forget it", "forget that", "forget about it",
    "forget about that", "forget what I said", "never mind", "nevermind", "never mind that",
    "never mind it", "don't worry about it", "that's enough", "enough", "that's all",
    "that will be all", "end it", "end this", "give up", "give it up", "leave me alone", "shut up",
    "be quiet", "go away", "drop it", "drop that", "stand down", "back off", "I changed my mind",
    "I have changed my mind", "you can stop", "we are done", "I am done", "call it off",
    "back away", "back away from it", "back away from the table", "move away", "move back",
    "step back", "step away", "pull back", "pull away", "get back", "get away", "get off",
    "withdraw", "release it",
    "retract your arm", "bring your arm back", "return to your home position",
    "kill it", "éloigne-toi", "va-t'en", "recule", "enlève tes mains", "t'occupe",
    "hold still", "stay still", "stay put", "stay there", "stay where you are", "emergency",
    "it's an emergency", "go home", "go back", "go back home", "come back later", "refuse",
    "I refuse", "I take it back", "I take that back", "put your arm down", "put the arm down",
    "scratch that", "scrap that", "no more", "undo", "undo that", "disregard", "disregard that",
    "disregard it", "ignore me", "end", "end the dialogue", "end this dialogue", "finish",
    "finished", "get lost", "get away", "get out", "arrête", "arrête-toi", "arrête ça",
    "arrête tout", "arrêtez", "arrêtez-vous", "arrêtez ça", "arrêtez tout", "arrêter", "halte",
    "annule", "annule ça", "annule tout", "annulez", "annulez ça", "annulez tout", "annuler",
    "laisse tomber", "laissez tomber", "tant pis", "oublie", "oublie ça", "oubliez", "oubliez ça",
    "ça suffit", "c'est assez", "assez", "abandonne", "abandonnez", "quitte", "c'est fini",
    "j'ai changé d'avis", "plus rien",
)  # fmt: skip
REFUSAL = (
    "I'll do it", "I'll get it", "I got it", "I can get it myself", "I'd rather you didn't",
    "I would prefer you didn't", "keep your hands to yourself", "keep your hands off", "no thanks",
    "no thank you", "thanks but no thanks", "no way", "leave it", "leave it alone",
    "leave it there", "leave it be", "leave it here", "leave that", "leave that alone",
    "leave them", "leave them alone", "leave everything", "let it be", "let it go", "let go",
    "hands off", "nothing", "nothing at all", "do nothing", "not now", "not today", "not anymore",
    "absolutely not", "certainly not", "definitely not", "of course not", "I'd rather not",
    "rather not", "better not", "please refrain",
    "I can manage", "I can do that on my own", "I can do it on my own", "better leave it",
    "put it back where you found it", "put it back where it was", "would you mind not doing that",
    "get your hands off it", "get your hands off", "get your claws off it", "c'est pas la peine",
    "je m'en occupe", "interdit de toucher", "défense de toucher", "pose ça", "remets-le",
    "remets-la", "remets ça", "remets-le à sa place", "remets-la à sa place",
    "let me do it", "let me do that", "let me get it", "let me take it",
    "I would rather you left it",
    "I'd rather you left it", "put it back", "put it down", "put that back",
    "put that down", "put them back", "put them down", "I want nothing", "I need nothing",
    "I will do it myself", "I can do it myself", "I'll take it myself", "I'll get it myself",
    "not interested", "forbidden", "that's forbidden", "keep away", "stay away", "don't bother",
    "let it stay", "let it stand", "let it lie", "keep it", "keep it there", "keep off", "keep out",
    "not at the moment", "not right now", "maybe later", "later", "some other time", "watch out",
    "look out", "danger", "bad idea", "not a good idea", "I refuse", "I object", "I'm good",
    "I'm fine", "you must not", "you should not", "you may not", "rien", "rien du tout",
    "je ne veux rien", "non merci", "merci non", "laisse", "laisse-le", "laisse-la", "laisse-les",
    "laisse ça", "laisse-le là", "laissez", "laissez-le", "laissez-la", "laissez-les", "laissez ça",
    "laisse-le tranquille", "laisse-la tranquille", "laisse ça tranquille", "plus tard",
    "pas la peine", "ce n'est pas la peine", "attention", "je refuse", "pas maintenant",
    "pas aujourd'hui", "surtout pas", "pas question", "hors de question", "certainement pas",
    "absolument pas", "bien sûr que non", "pas touche", "bas les pattes", "repose-le", "repose-la",
    "repose ça", "lâche", "lâche-le", "lâche-la", "lâche ça", "touche à rien", "touche rien",
    "prends rien", "fais rien", "je le ferai moi-même",
)  # fmt: skip
WAIT = (
    "whoa", "woah", "bear with me", "hold your horses", "let me have a look", "wait",
    "wait a moment", "wait a minute", "wait a second", "wait a sec", "wait a bit", "wait a little",
    "wait for me", "wait here", "wait there", "wait up", "just wait", "hold on", "hold on a moment",
    "hold on a second", "hold on a sec", "hold on a minute", "hold it", "hang on", "hang on a sec",
    "wait for a moment", "careful", "be careful", "hang on a moment", "hang on a second",
    "hang on a minute", "one moment", "a moment", "just a moment", "one second", "one sec",
    "a second", "just a second", "just a sec", "one minute", "a minute", "just a minute",
    "just one moment", "just one second", "just one minute", "give me a moment", "give me a minute",
    "give me a second", "give me a sec", "give me some time", "give me time", "I need a moment",
    "I need a minute", "I need a second", "I need time", "let me think", "let me think about it",
    "let me see", "let me see first", "let me look", "let me check", "I am thinking",
    "I have to think", "I need to think", "to think", "not yet", "slow down", "pause", "stand by",
    "not so fast", "hmm", "hm", "uh", "uhm", "um", "er", "erm", "attends", "attendez",
    "attends un peu", "attends un moment", "attends une seconde", "attends une minute",
    "attendez un peu", "un instant", "un petit instant", "un petit moment", "un moment",
    "une seconde", "une petite seconde", "une minute", "deux secondes", "deux minutes", "minute",
    "patiente", "patientez", "pas encore", "pas tout de suite", "pas si vite", "doucement",
    "je réfléchis", "laisse-moi réfléchir", "laissez-moi réfléchir", "laisse-moi voir",
    "laisse-moi un moment", "donne-moi une seconde", "donne-moi deux secondes",
    "donne-moi une minute", "donne-moi un instant", "euh", "heu",
)  # fmt: skip
_SAID_NO = tuple(
    word for words in LANGUAGES.values() for word in (*words.no, *words.no_to_read_back)
)
NO = (
    *_SAID_NO, "nah", "negative", "the answer is no", "on second thought no",
    "under no circumstances", "that's not the one", "that isn't the one", "no no",
    "you misunderstood", "you misunderstood me", "you got it wrong", "you are wrong",
    "that's a mistake", "I disagree", "not really", "not at all", "I don't think so",
    "that's not right", "not that", "not that one", "not this", "not this one", "not it",
    "wrong one", "pas ça", "pas cela", "pas celui-là", "pas celui-ci", "pas celle-là",
    "pas celle-ci", "pas lui", "pas elle", "pas vraiment", "c'est faux", "nan",
)  # fmt: skip
NONE = (
    "neither", "both are wrong", "they are both wrong", "neither one", "neither of them",
    "neither of those", "neither of these", "neither of the two", "neither of both",
    "neither one nor the other", "neither the one nor the other", "none", "none of them",
    "none of those", "none of these", "none of the above", "none of the two", "not one of them",
    "not any of them", "not either", "not both", "not those", "not these", "not them", "aucun",
    "aucune", "aucun des deux", "aucune des deux", "aucun d'eux", "aucune d'elles",
    "aucun d'entre eux", "ni l'un ni l'autre", "ni l'une ni l'autre", "ni l'un", "ni l'une",
    "pas ceux-là", "pas celles-là",
)  # fmt: skip
YES = ("ok", *(word for words in LANGUAGES.values() for word in words.yes))
# Politeness, address and hesitation: they change nothing.
FILLERS = (
    "please", "robot", "hey", "hey robot", "hi", "hello", "oh", "ah", "well", "now", "right now",
    "right away", "immediately", "at once", "just", "actually", "sorry", "excuse me", "really",
    "thanks", "thank you", "sir", "would you", "could you", "can you", "will you", "I said",
    "I told you", "I told you to", "I asked you to", "to", "I say", "I mean", "god", "my god",
    "man", "dear", "so", "then", "and", "but", "for now", "you know", "look", "listen", "it's",
    "I want you to", "I would like you to", "I need you to", "I'd like to", "want to", "I want to",
    "let's", "s'il te plaît", "s'il vous plaît", "merci", "hé", "oh là", "bon", "ben", "alors",
    "donc", "veuillez", "maintenant", "tout de suite", "immédiatement", "pardon", "désolé",
    "désolée", "et", "mais", "c'est bon", "en fait", "finalement", "on", "je dis", "j'ai dit",
    "je t'ai dit", "peux-tu", "tu peux", "pouvez-vous",
)  # fmt: skip
# Verbs of "do not ..." that refuse nothing: "I don't know", "don't forget to", "it doesn't matter".
UNSURE = word_set(
    "know care mind matter remember idea preference difference sais sait importe egal"
)
HARMLESS = UNSURE | word_set(
    "think see understand forget hesitate worry believe have hear recall oublie oubliez "
    "hesite hesitez inquiete inquietez vois comprends connais est sont es etes suis pense "
    "crois souviens"
)
# Verbs of "don't drop it", which says how to act where something is wanted before.
CAREFUL = word_set(
    "drop break spill squeeze crush hurt damage tip knock lose shake tilt scratch rush hurry "
    "casse cassez renverse renversez lache lachez abime"
)
REQUEST_VERBS = word_set(
    "take pick grab grasp get fetch bring give hand pass show find point lift select choose "
    "use move want need prefer mean meant locate hold prends prenez prendre attrape attrapez "
    "donne donnez passe passez apporte apportez saisis souleve trouve montre montrez ramasse "
    "ramassez choisis veux voudrais prefere"
)
# What is called off follows these: "leave the mug", "stop at the block", "laisse la pomme".
LEAVING = (
    "leave", "avoid", "ignore", "skip", "forget", "forget about", "never mind", "stay away from",
    "keep away from", "get away from", "keep off", "hands off", "keep your hands off", "let go of",
    "exit", "terminate", "cease", "refrain from", "I forbid", "I refuse", "stop", "halt", "quit",
    "cancel", "abort", "laisse", "laissez", "évite", "évitez", "ignorez", "oublie", "oubliez",
    "annule", "annulez", "arrête", "arrêtez", "cesse", "cessez", "lâche", "lâchez",
)  # fmt: skip
SIGNS = frozenset(("sign", "signs", "light", "lights", "watch", "button", "lamp", "panel"))
FRENCH_IMPERATIVES = (
    "prends prenez prend prendre touche touchez toucher bouge bougez bouger attrape attrapez fais "
    "faites faire va vas allez ramasse ramassez saisis donne donnez souleve leve avance continue "
    "pose montre pointe"
)
PLACING = word_set(
    "on in at to by near nearest next beside besides behind under underneath beneath above below "
    "among between from inside into onto closest close against around before after over along"
)
"""English prepositions that lead to a place or a landmark."""
FRENCH_PLACING = word_set("de du des a au aux en dans sur sous pres derriere devant entre contre")
# Before these the object of "don't take ..." ends: "don't take the red one the green one",
DEFINITE = frozenset(("the", "le", "la", "les", "l"))
# but not after these: "don't take the one on the table".
LEADING_ON = (
    PLACING
    | FRENCH_PLACING
    | word_set(
        "up down of with left right front off for and or nor me us him her that which is are "
        "et ou ni moi que qui pas je tu il elle nous vous ne"
    )
)
ENDS_REFUSED = frozenset(("but", "just", "rather", "instead", "mais", "plutot"))
# After these a clause can begin.
BOUNDARIES = word_set(
    "and but then so because please robot no oh wait actually sorry et mais alors non attends"
)
# Words that name no object.
FUNCTION = word_set(
    "i you he she it we they me us them him her my your his its our their mine yours this "
    "that these those the a an some any all both one ones thing things what which who whom "
    "anything something everything nothing none neither nor either no not dont never is are "
    "was were am be been isnt arent wasnt werent aint do does did doesnt didnt has have had "
    "can could will would shall should must may might cant wont couldnt wouldnt shouldnt "
    "mustnt to of on in at for from with by up down out off away there here and or but so if "
    "because as than then just only wrong correct want wanted need meant mean said say asked "
    "ask told tell like please robot oh ok okay really well too also way means two moment "
    "answer good bad sorry now instead rather myself yourself itself even ever again anymore "
    "going lost je tu il elle nous vous ils elles le la les l un une des de du d ce c cet "
    "cette ca cela celui celle ceux celles ci en y n ne pas rien aucun aucune ni non est sont "
    "etait ai ont que qui quoi qu te se s m t moi toi lui veux voulu voulais dit demande faux "
    "bon mauvais bien plus plutot deux jamais et ou mais"
)
NEGATIONS = word_set(
    "no not dont never none neither nor isnt arent wasnt werent aint doesnt didnt cant wont "
    "couldnt wouldnt shouldnt mustnt wrong nothing nobody pas rien aucun aucune ni non faux "
    "jamais"
)
# Objects of a verb that name nothing on a table: "take your time".
NO_THING = frozenset(("time", "break", "care", "rest", "easy", "hand", "hands", "step"))
# What makes a sentence of words that begin as a name does: "the mug is hot".
FINITE = word_set(
    "is are was were am be has have had will can could would should might do does did dont "
    "isnt belongs looks seems hurts it because i you we they est sont etait ont va sera"
)
RELATIVES = frozenset(("that", "which", "who", "qui", "que"))
# Beside colours, places and sizes: these tell objects apart.
DESCRIBING = (
    "first second third fourth fifth last other one another front back near far closest nearest "
    "furthest farthest behind beside between above below under next bigger biggest smaller "
    "smallest larger largest tiny tall short premier deuxieme troisieme dernier autre devant "
    "derriere loin pres dessus dessous"
)


# Words that a name begins with.
NAMING = word_set(
    "a an my your that this these those one all both two three four five six un une celui "
    "celle ceux celles ce cet cette mon ma ton ta"
)
NONE_OF = word_set("none neither nothing nor both any either rien aucun aucune ni")
JOINING = word_set("and or nor not neither et ou ni pas")
NOT_RIGHT = word_set("is isnt are arent not quite looks")
# Before what is rejected: "not the red one", "neither ... nor".
REJECTING = word_set("not none aucun aucune neither isnt arent dont pas ni nor")
# With these an utterance that names nothing asks to stop, or to wait: "you should stop".
STOPPING = word_set(
    "stop stoppe stoppez halt quit cancel abort terminate cease desist arrete arretez arreter "
    "annule annulez annuler"
)
PAUSING = word_set(
    "wait think thinking reflechis moment minute sec attends attendez instant seconde patiente"
)
# Before "don't" and "ne" of a clause that refuses nothing: "the one that you don't like",
# "celui qui n'est pas rouge", "why don't you".
REFERRING = word_set(
    "i you we they people that which who why and or qui que je tu il elle on ce c nous vous "
    "ils elles pourquoi"
)
