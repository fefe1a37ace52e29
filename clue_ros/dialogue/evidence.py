# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""Whether an utterance names something, in a form that an answer or a request has.

`is_explained` accepts a text only where every word has a place in one of a few patterns: a noun
phrase ("the red one", "mug", "celle de gauche"), a place ("next to the bowl"), words that lead to
one ("it's", "I mean", "je voudrais"), an order ("take", "could you give me"), an exclusion ("not
the red one"), and fillers. An unknown word may stand only where a name or its description stands:
after an article, after a verb of the robot, in "with ..." and in a relative clause. So a sentence
about anything else is not accepted, in whatever words: "there's a child near the table", "keep your
gripper off the mug", "the mug stays where it is".

`speaks_against` tells which of the others ask not to act: a negation ("nobody touches the mug"),
a removal ("hands off the mug", "put it back"), or a state that is a reason ("it's broken").

Words are in the spelling of reading.py: lower case, no accents, "," for a pause, "dont".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

from clue_ros.dialogue.inflection import is_plural, plural
from clue_ros.dialogue.noun_phrases import ENGLISH as PHRASES
from clue_ros.dialogue.noun_phrases import is_one_slip
from clue_ros.dialogue.object_names import KNOWN_NAMES, PERSONS
from clue_ros.dialogue.utterances import (
    DESCRIBING,
    FRENCH_PLACING,
    FUNCTION,
    NO_THING,
    PLACING,
    REQUEST_VERBS,
    SIGNS,
    word_set,
)
from clue_ros.dialogue.words import LANGUAGES, THANKS, VOCATIVES, unaccented

MAX_WORDS = 60  # a longer utterance is no answer


# Nouns of things on a table, beside those that the recognizer's grammar has. A bare noun ("mug")
# is known only by a table; after an article ("the stapler") any word is one.
NOUNS = word_set(
    "apple ball banana bar basket bean block book bottle bowl box brick brush bucket bulb "
    "calculator can candle candy carafe card carrot carton case cereal charger cheese chip chips "
    "chocolate clock cloth coffee coin coke cookie cord cracker cube cup cupcake cutter cylinder "
    "dish donut doughnut drill duck egg eraser flashlight flower folder fork fruit funnel "
    "glass glasses glove glue grape hammer hat headphones jar jug kettle key keyboard keys knife "
    "knives ladle laptop lemon lid lighter lime lipstick marker mouse mug mustard napkin notebook "
    "object onion orange pan paper peach pear pen pencil pepper phone pill pitcher plate pliers "
    "plum pot potato puck racket remote ring ruler salt sandwich sauce saucer scissors screw "
    "screwdriver shape shoe skillet soap sock soup spatula sphere sponge spoon spray stapler star "
    "stick strawberry sugar tape tea teapot tin tissue tomato toothbrush toothpaste towel toy "
    "tray triangle tube tumbler tuna umbrella vase wallet watch wrench package packet bread cake "
    "pair piece kind handle cone square circle rectangle disk clothing clothes "
    "euro euros dollar dollars "
    "tasse tasses verre verres assiette assiettes bol bols pomme pommes banane bananes fourchette "
    "fourchettes couteau couteaux cuillere cuilleres boite boites bouteille bouteilles livre "
    "stylo crayon poire citron oeuf carotte tomate vase lampe cle cles ciseaux marteau eponge "
    "bougie brique bloc balle boule cylindre sphere objet objets chose choses pot casserole poele "
    "telephone serviette jouet orange gobelet"
)
# Adjectives that tell things apart, beside colours, places, sizes and orders.
ADJECTIVES = word_set(
    "dark darker darkest light lighter lightest pale bright brighter striped dotted spotted plain "
    "checkered patterned wooden plastic metal metallic ceramic paper steel glass leather rubber "
    "golden silver shiny matt transparent clear round rounded square flat long longer longest "
    "short shorter shortest tall taller tallest thin thinner thick thicker wide wider narrow "
    "heavy heavier empty full half open closed new old same different single left hand side part "
    "upperleft upperright lowerleft lowerright corner end edge row center centre number only "
    "very most more least rather kind "
    "clair fonce rayee raye bois plastique metal verre rond ronde carre carree plat plate long "
    "longue court courte vide plein pleine ouvert fermee neuf vieux vieille meme seul seule plus "
    "moins tres cote coin bout bord partie fond autre autres extremite etroit large"
)
# States that are a reason to leave a thing alone; in a name ("the broken mug") they are none.
STATES = word_set(
    "clean mine yours his hers theirs ours taken broken cracked chipped glued stuck hot wet "
    "dirty filthy "
    "dusty sticky sharp fragile delicate dangerous unsafe poisonous toxic burning boiling "
    "scalding fresh expensive precious heavy loose full evidence reserved limits "
    "casse cassee casses cassees fele felee fragile sale sales chaud chaude brulant brulante "
    "dangereux dangereuse mouille mouillee mien mienne tien tienne sien sienne notre votre prive "
    "interdit coupant collee colle moi toi"
)
_NUMBERS = word_set(
    "one two three four five six seven eight nine ten un deux trois quatre cinq six 1 2 3 4 5 6"
)
_NEGATORS = word_set(
    "nobody noone nothing never none neither nor without unnecessary needless pointless forbidden "
    "prohibited useless dont mustnt shouldnt neednt cant wont inutile personne jamais rien "
    "interdit interdite defense aucun aucune ni sans pas not no"
)
_BODY = word_set(
    "hand hands paw paws claw claws gripper grippers arm arms finger fingers fist mitts mother "
    "pince pinces main mains patte pattes bras doigt doigts griffes"
)
_AWAY = word_set("off away back down clear out alone")
_PUTTING = word_set(
    "put set place keep stay steer stand step get move back go pull push hold turn leave let drop "
    "release remove withdraw retract range remets remettez repose reposez pose posez recule "
    "reculez retire retirez enleve enlevez ote otez ecarte ecartez eloigne eloignez lache lachez "
    "laisse laissez laisses"
)

# Words that are no name: an unknown word is any word but these.
_SPEECH = word_set(
    "yes no nope yeah yep hello hi hey bye goodbye ouch ow wow oops help thanks thank morning "
    "night evening tomorrow yesterday tonight today god heaven mum mom dad sir okay ok right "
    "oui non salut bonjour bonsoir merci aie demain hier nuit quoi comment pourquoi what why who "
    "when how where ou quand huh eh stop halt danger"
)
_STOPWORDS = word_set(
    "some someone somebody something everybody everyone everything any anyone anybody anything "
    "there here where it i you we they he she me us him them her who what when why how if because "
    "since until while although though however while already still yet only ever always often "
    "maybe perhaps about after again against all alone along among around as at away back be been "
    "being before behind below beside between both but by close come comes coming could down each "
    "either else enough fall for from front goes going gone got had has have having hurt in "
    "inside instead into is isnt keep keeps leave leaves let lets like made make makes many may "
    "might must near need next now of off on onto or ought our out outside over own past please "
    "put puts said same say says should show since so soon stay stays such take takes than that "
    "their themselves then these this those through till to too toward towards turn under unless "
    "until up upon very was watch wasnt were what whatever where which while will with within "
    "would your yourself go does do did done are am and an a the get gets give gives belongs looks "
    "je tu il elle on nous vous ils elles me te se lui leur y en et mais ou donc car ni que qui "
    "quoi dont ou est sont etait suis es ai as a avons avez ont va vais vas allez vont fait fais "
    "faut peux peut veux veut voudrais sais suis dans sur sous avec sans pour par chez vers entre "
    "contre depuis pendant avant apres deja encore toujours jamais bien mal trop tres peu plus "
    "moins aussi alors ici voila voici ca cela ce c s l d j m t n qu laisse laissez touche pose "
    "remets range lache enleve retire arrete"
)
NO_NAME = (
    FUNCTION
    | _NEGATORS
    | _SPEECH
    | _STOPWORDS
    | _PUTTING
    | _BODY
    | NO_THING
    | REQUEST_VERBS
    | (_AWAY)
) | word_set("mine yours hers theirs ours mien mienne tien tienne sien sienne cut code")


def _tokens_of(phrases: Iterable[str]) -> frozenset[str]:
    return frozenset(unaccented(" ".join(phrases)).split())


_KINDS = _tokens_of(kind for words in LANGUAGES.values() for kind in words.kinds) | word_set(
    "apple bowl fork knife mug knives"
)
_GENERIC = word_set("one ones celui celle ceux celles thing things object objects item items")
_KNOWN_NOUNS = NOUNS | _KINDS | {unaccented(name) for name in KNOWN_NAMES - PERSONS}
_NAME_WORDS = _tokens_of(_KNOWN_NOUNS)
_LONGEST_NAME = max(noun.count(" ") + 1 for noun in _KNOWN_NOUNS)
THINGS = _NAME_WORDS - NO_NAME
_LONG_NOUNS = frozenset(word for word in _KNOWN_NOUNS if len(word) > 5 and " " not in word)
_DESCRIPTIONS = (
    ADJECTIVES
    | _NUMBERS
    | _tokens_of(PHRASES.colors)
    | _tokens_of(PHRASES.sizes)
    | _tokens_of(PHRASES.numbers)
    | _tokens_of((DESCRIBING,))
    | _tokens_of(
        phrase
        for words in LANGUAGES.values()
        for phrase in (*words.colors, *words.places, *words.sizes)
    )
    | _tokens_of(PHRASES.extremes)
    | word_set("violet gris grise marron rose brun brune dore argente argentee bleus verts rouges")
) - FUNCTION - {"away", "to"} | _NUMBERS


def _any(words: Iterable[str]) -> str:
    return f"(?:{'|'.join(sorted(words, key=lambda word: (-len(word), word)))}) "


def _word_class(tagged: str, spelled: Iterable[str]) -> str:
    """The pattern of a word class: a tagged word, or one of `spelled`."""
    return f"(?:{'|'.join((tagged, *sorted(spelled)))}) "


def _spelled_out(*patterns: str) -> frozenset[str]:
    """The words in patterns; "thing" and "things" for "things?"."""
    text = " ".join(re.sub(r"\\.", " ", pattern) for pattern in patterns)
    found = re.findall(r"([a-z0-9]+)(\??)", text)
    return frozenset(word for word, _ in found) | {word[:-1] for word, maybe in found if maybe}


_DET = (
    "(?:the|my|your|our|his|her|their|this|that|these|those|le|la|les|l|mon|ma|mes|ton|ta|tes"
    "|ce|cet|cette|ces) "
)
# Articles of a name that no table has: "take the stapler", and not "show some respect".
_NAMES_NEW = "(?:the|a|an|my|this|that|these|those|le|la|les|l|un|une|mon|ma|mes|ce|cet|cette|ces) "
_INDEF = (
    "(?:a|an|any|some|another|one|two|three|all|both|each|either|of|un|une|des|du|de|d"
    "|toutes?|tous) "
)
_PREP = _any(
    PLACING
    | FRENCH_PLACING
    | word_set(
        "of amongst front opposite right left top back just far further furthest farthest counting "
        "starting counted d cote haut bas milieu fond gauche droite partant partir bout"
    )
)
_LANDMARK_WORD = "(?:me|you|us|it|that|this|others?|moi|toi|nous|vous|lui|elle) "
_FILLER = (
    "(?:no|nope|non|nah|yes|yeah|yep|oui|ouais|si|uh|um|uhm|er|erm|hmm|hm|euh|heu|ben|bah|oh|ah"
    "|ok|okay|well|bon|alors|so|then|now|and|et|or|but|mais|rather|instead|plutot|actually|sorry"
    f"|pardon|please|pls|{THANKS}"
    f"|merci|robot|{'|'.join(VOCATIVES)}|hey|maybe|probably|perhaps|definitely|obviously"
    "|certainly|clearly|just|only|also|too|wait|attends|attendez|really|sure|exactly|of course"
    "|en fait|finalement|peut etre|surement|s il te plait|s il vous plait|te plait|vous plait"
    "|svp|stp"
    "|excuse me|i think|i guess|i believe|i suppose|i mean|i said|i meant|i would say|you know"
    "|je crois|je pense|je dirais|je veux dire|bien sur|d accord|there|over there|here|la bas|ci"
    "|if you (?:dont mind|can|could|like|want|please|would)|if possible|to be precise"
    "|a la place|for me|to me|pour moi|next|first|again|carefully|gently|slowly|quickly"
    "|my mistake|hold on|one moment|a moment|let me (?:see|think)|hang on|voila|tiens"
    "|i changed my mind|never mind|correction|precisely|desole|desolee|it is|c est) "
)
# "it's": what follows must be known, or have a definite article: "it's the stapler", and not
# "it's a trap", "it's hot".
_IDENTITY = (
    "(?:(?:it|that|this|those|they|he|she)(?: one)? (?:is|are|was|would be) |c est |c etait "
    "|ce sont |ce serait |(?:its|thats) )"
)
_WANT_WORDS = (
    "(?:would|could|can|will|d|want|need|like|love|mean|meant|think|guess|say|said|believe|suppose"
    "|prefer|choose|pick|take|(?:am|was|were)(?: only| just| really)?(?= (?:thinking|looking"
    "|talking|referring|asking|speaking|after))|thinking|looking|talking|referring|asking"
    "|asked|for|about"
    "|of|to have|to|rather|be|really|just|actually|only|wanted|needed|liked|speaking"
    "|have been|go|going"
    "|with|veux|voudrais|voulais|aimerais|prefere|prefererais|pense|parlais?(?= d)"
    "|parle(?= d)|disais|dis|dit"
    "|cherche|demande|ai|besoin|de|d|choisis|prends|vois|dire|bien|plutot|utiliser|avoir) "
)
_WANT = f"(?:i|we|je|j|you mean|you want|tu veux dire|on) (?:{_WANT_WORDS})+"
_OFFER = (
    "(?:let ?(?:s|is|us) (?:take|go with|go for|use|say|try)|go (?:for|with)|make it"
    "|how about|what about"
    "|let me have|let us have|(?:can|could|may|might) (?:i|we) (?:please )?(?:have|get|see|take)"
    "|where (?:is|are|s)|dont forget|n oublie pas|ou (?:est|sont|se trouve)"
    "|i would like to have|i would appreciate|do you see|can you see"
    "|(?:is there|do you have)(?= (?:some|any)thing )"
    "|(?:can|could|may|might) (?:i|we) (?:please )?ask you (?:for|to)|it would be (?:great|nice"
    "|lovely|good|kind) (?:to have|if you could|to get)"
    "|(?:would|do) you mind (?:passing|handing|giving|bringing|getting|fetching|showing|grabbing"
    "|taking|picking up|pointing (?:at|to))(?: (?:me|us|over))?"
    "|you see|et|and|it has to be|pour) "
)
_VERBS = _any((REQUEST_VERBS - {"meant", "mean", "need", "want", "prefer", "lift"}) | word_set(
    "lift touch push look go reach collect retrieve deliver spot identify detect move locate "
    "reveal see pick-up apporter prendre donner passer montrer attraper passer donner saisir "
    "soulever ramasser trouver chercher cherche cherchez va souleve soulevez leve pointe tends "
    "amene ramene"
))  # fmt: skip
_ASKING = (
    "(?:(?:please|could|can|would|will|may|might|should|you|we|i|now|just|to|want you to"
    "|need you to"
    "|would like you to|kindly|robot|hey|then|and|also|go and|go|wont|cant|dont forget to|why dont"
    "|was wondering if|wonder if|asked for|asked you to|told you to|said|am asking you to|be so"
    "|kind|as|rather|instead|first|next|try to|help me|let me|do|me"
    "|peux|pourrais|pouvez|pourriez|tu|vous|veux|voudrais|que|est ce|s il te plait|il faut|je|j"
    "|n oublie pas de|n oubliez pas de|aimerais|va|vas|et|alors|maintenant|y|mind|if|dont) )*"
)
_PARTICLE = (
    "(?:(?:up|to|at|for|out|over|me|us|moi|nous|hold of|hold|en|y|a|vers|du|des|de|with"
    "|towards?|plutot|again|just|only|and|then) )*"
)
_VERDICT = (
    "(?:(?:is|are|would be|will be|est|serait) (?:just |very |really )?(?:fine|ok|okay|good|great"
    "|perfect|right|correct|better|best|enough|parfait|bien|bon|bonne|la bonne|le bon|it|"
    "the one|what i (?:want|need|mean|meant|wanted|said|asked for|am looking for)) "
    "|(?:will|would) (?:do|work) |it is |works |s il te plait |fera l affaire |ira )"
)
# Leaves the choice to the robot.
_INDIFFERENT = (
    "(?:(?:any|either|all|both|whichever|whatever|anything)(?: one| of (?:them|these|those)"
    "(?: two)?)? (?:is (?:fine|ok|okay|good|closer|closest|easier|nearest) |are (?:fine|ok|okay) "
    "|will do |works |would do |you (?:like|want|prefer|choose|see) )?"
    "|you (?:choose|decide|pick) (?:one |it )?|(?:it |that )?(?:doesnt"
    "|does not) (?:really )?matter "
    "|i dont (?:really )?(?:care|mind|know) (?:which(?: one)? )?|no idea "
    "|je (?:ne )?sais pas |no preference |i have no preference "
    "|(?:pick |take |just )+(?:any|one|either)(?: one| of them)? |peu importe "
    "|n importe (?:lequel|laquelle|quoi) "
    "|(?:comme|celui que|celle que) (?:tu|vous) (?:veux|voulez|preferes) |a toi de choisir "
    "|ca m est egal |up to you |your choice |choisis |choose )"
)
_EXCLUDING = (
    "(?:(?:but |and |mais |et )?(?:not|pas|except|other than|rather than|instead of"
    "|plutot que|sauf|nor|neither|ni|(?:it|that) isnt|(?:it|that) is not|c est pas"
    "|anything but|everything but|all but|not even|non) )"
)
# A relative clause may say anything but what the robot must not do.
_FORBIDDING = re.compile(
    r"\b(?:mustnt|shouldnt|must not|should not|allowed|supposed|forbidden|dois pas|faut pas"
    r"|interdit"
    r"|(?:nobody|no one|never|personne|jamais|pas) (?:\w+ ){0,3}?(?:touch|take|move|pick|touche"
    r"|prend|bouge)\w*|stop|leave|off limits)\b"
)


def _plurals(noun: str) -> frozenset[str]:
    """The plurals of a noun, also as they are often misspelt; none of a noun that is one.

    >>> sorted(_plurals("lunch box")), sorted(_plurals("strawberry")), sorted(_plurals("loaf"))
    (['lunch boxes'], ['strawberries', 'strawberrys'], ['loafs', 'loaves'])
    >>> sorted(_plurals("pair of glasses")), sorted(_plurals("keys")), sorted(_plurals("ciseaux"))
    (['pairs of glasses'], [], [])
    """
    thing = noun.partition(" of ")[0]
    if is_plural(thing) or thing.endswith("aux"):
        return frozenset()
    many = plural(noun, of_sorts=True)
    return frozenset((many, many if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"))


class _Patterns:
    """The pieces of an answer, or of a request: patterns of " "-ended words.

    `_accepts` puts them together. A word that no pattern spells out is matched by its word class,
    which `tagged` appends: a noun is "mug_n", a description "shiny_d", a word of no table
    "stapler_". Patterns that spell out all two thousand words take half a second to compile.

    spelled: the words that the patterns spell out.
    """

    def __init__(self, is_answer: bool, spelled: frozenset[str] = frozenset()) -> None:
        self.nouns = _KNOWN_NOUNS
        self.nouns |= {many for word in self.nouns for many in _plurals(word)}
        self.words = self.nouns | _DESCRIPTIONS | _GENERIC
        self.spelled = spelled
        known = _word_class(r"\w+_[nd]", spelled & self.words)
        described = _word_class(r"\w+_d", spelled & _DESCRIPTIONS)
        unknown = _word_class(r"[^\W_]+_", spelled - self.words - NO_NAME)
        article = f"(?:{_INDEF}|{_DET})"
        own_body = rf"(?!(?:your|ta|tes|ton|vos|votre) (?:\w+ )?{_any(_BODY)})"
        # A thing of known words with articles or none; then one whose description no table has
        # ("the striped one"), or whose name ("the stapler").
        plain = f"(?:{article})*(?:{known})+"
        striped = f"{_DET}(?:{known})*(?:{unknown}){{1,3}}(?:{known})+"
        new = rf"{_DET}(?:{described})*(?:{unknown}){{1,{1 if is_answer else 3}}}"
        pointing = (
            r"(?:this|that|these|those) (?!is |are |was |will |\w+ )|(?:this|that) (?=, |please )"
        )
        pointing += r"|(?:celui|celle|ceux|celles) (?:ci |la )?"
        self.name = re.compile(f"{own_body}(?:{striped}|{plain}|{pointing}|{new})")
        self.bare = re.compile(rf"(?:{unknown}){{1,3}}")
        self.identified = re.compile(
            f"(?:{striped}|{plain}|{pointing}|(?:the|le|la|l) (?:{unknown}){{1,2}})(?!{unknown})"
        )
        needs = "+" if is_answer else "*"
        mixed = "" if is_answer else f"|{_NAMES_NEW}(?:{known}|{unknown}){{2,6}}"
        self.ordered = re.compile(
            f"{own_body}(?:{plain}(?!{unknown}){mixed}|(?:{_NAMES_NEW}){needs}(?:{described})*"
            f"(?:{unknown}){{1,4}}(?:{known})*|{plain}|{pointing}"
            "|(?:it|that|them|this|le|la|les|en|one) )"
        )
        beside = f"(?:{article})*(?:{known})+|(?:{article})+(?:{unknown}){{1,2}}|{_LANDMARK_WORD}"
        beside = f"{own_body}(?:{beside})"
        self.place = re.compile(f"(?:{_PREP})+(?:{beside})?(?:(?:and|or|et) (?:{beside}))?")
        self.detail = re.compile(
            "(?:with|without|having|holding|containing|for|avec|sans|en|made of|marked|labeled"
            f"|standing|lying|sitting|placed) (?:{article}|no )*(?:{known}|{unknown}){{1,4}}"
        )
        self.relative = re.compile(
            r"(?:(?:that|which|who|whose|where|qui|que|qu|duquel) [^,]+?"
            r"|(?<=\bone )(?:i|you|we|he|she|they) [^,]+?|(?<=\bones )(?:i|you|we|they) [^,]+?"
            r"|(?:i|you|we) (?:just |always )?(?:mean|meant|want|wanted|asked for|need|use|said)"
            r" )(?=, |$|please |thanks )"
        )
        # "something to write with"; after a verb or a wish also "something sharp"
        end = "(?=, |$|please |thanks |instead )"
        self.use = re.compile(f"something (?:to|for) [^,]*?{end}")
        self.purpose = re.compile(
            "(?:something|anything|(?:(?:a|any|some|the) )?things?|(?:an? )?(?:object|item)) "
            rf"(?:(?:to|for|that|which|i can) [^,]*?|\w+ ){end}"
        )
        self.mine = re.compile(
            f"(?:mine |(?:my|our) {known}|the one i (?:want|need|mean|meant) )(?:is|est) "
        )

    def tagged(self, words: Sequence[str]) -> str:
        """A text of words and their tags, with a " " after each word.

        Words that patterns spell out have no tag. In a name of several words, a word that no table
        knows by itself is a noun.
        """
        tags = [self._tag(word) for word in words]
        for begin, end in _names_in(words, self.nouns):
            for at in range(begin, end):
                if words[at] not in self.words:
                    tags[at] = "_n"
        return "".join(f"{word}{tag} " for word, tag in zip(words, tags, strict=True))

    def _tag(self, word: str) -> str:
        if word in self.spelled or not word.isalnum():
            return ""
        if word in _DESCRIPTIONS:
            return "_d"
        if word in self.words:
            return "_n"
        return "" if word in NO_NAME else "_"


def _names_in(words: Sequence[str], nouns: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Begin and end of each name of several words, the longest at its place."""
    begin = 0
    while begin < len(words):
        ends = range(min(len(words), begin + _LONGEST_NAME), begin + 1, -1)
        end = next((end for end in ends if " ".join(words[begin:end]) in nouns), begin + 1)
        if end > begin + 1:
            yield begin, end
        begin = end


_TAG = re.compile(r"_[nd]?\b")
_WANTING = re.compile(f"(?:{_WANT}|{_OFFER})+")
_IDENTIFYING = re.compile(_IDENTITY)
_NOT = re.compile(_EXCLUDING)
_ORDER = re.compile(rf"{_ASKING}(?!hold (?:it|that|them|on|your|still)\b){_VERBS}{_PARTICLE}")
_FILLING = re.compile(_FILLER)
_ANY_ONE = re.compile(_INDIFFERENT)
_JUDGED = re.compile(_VERDICT)
_ENDING = re.compile("(?:up|to me|for me|here|there|over there|now|together|de la|la|ci|away) ")
_PAUSE = re.compile(", ")
# Words of these patterns are spelled right.
_OWN_WORDS = _spelled_out(
    _FILLER, _OFFER, _VERDICT, _INDIFFERENT, _EXCLUDING, _IDENTITY, _ASKING, _VERBS
) - {"let"}  # "the let one" is the left one


@lru_cache(maxsize=2)
def _patterns(is_answer: bool) -> _Patterns:
    shared = (_WANTING, _IDENTIFYING, _NOT, _ORDER, _FILLING, _ANY_ONE, _JUDGED, _ENDING)
    own = (p for p in vars(_Patterns(is_answer)).values() if isinstance(p, re.Pattern))
    patterns = (*shared, _FORBIDDING, *own)
    return _Patterns(is_answer, _spelled_out(*(p.pattern for p in patterns)))


def is_explained(words: Sequence[str], named: Iterable[str] = (), *, is_answer: bool) -> bool:
    """Whether every word has a place in an answer or a request, and one of them names something.

    words: of the utterance. named: words of the open question and request. is_answer: a question
    is open; else it is a first request, which may name things that no table has.
    """
    if len(words) > 1 and words[-1].isdigit():  # "block 7"
        words = words[:-1]
    if not words or len(words) > MAX_WORDS:
        return False
    patterns = _patterns(is_answer)
    nouns = set(named) - NO_NAME - patterns.words
    said = _known_spelling(["thing" if word in nouns else word for word in words])
    if _denies_a_thing(said, patterns):
        return False
    text = patterns.tagged(said)
    if not is_answer and _NOT.match(text):  # "not the mug", and nothing else was named
        return False
    if _accepts(text, 0, patterns):
        return True
    if not is_answer and patterns.bare.fullmatch(text):
        return True
    # A reason before an order: "I'm thirsty, bring me the mug".
    return any(
        _accepts(text, begin, patterns, "ordering")
        for begin in (match.start() for match in re.finditer(r"\b\w", text))
        if begin > 0 and _is_reason(_TAG.sub("", text[:begin])) and _ORDER.match(text, begin)
    )


def _accepts(text: str, begin: int, p: _Patterns, start: str = "free") -> bool:
    """Whether the pieces of an answer make up the text from `begin`, one of them a name."""
    states = ("free", "named", "wanting", "identifying", "ordering", "excluding")
    # For each place in the text: the states in which the pieces before it can leave it.
    steps: dict[str, tuple[tuple[re.Pattern[str], str], ...]] = {
        "free": (
            (_PAUSE, "free"), (_FILLING, "free"), (p.use, "named"), (p.name, "named"),
            (p.place, "named"), (_WANTING, "wanting"), (_IDENTIFYING, "identifying"),
            (p.mine, "identifying"), (_ORDER, "ordering"), (_NOT, "excluding"), (_ANY_ONE, "named"),
        ),
        "wanting": (
            (_PAUSE, "wanting"), (_FILLING, "wanting"), (p.purpose, "named"), (p.ordered, "named"),
            (p.place, "named"), (p.name, "named"), (_IDENTIFYING, "identifying"),
            (_NOT, "excluding"), (_ORDER, "ordering"),
        ),
        "identifying": (
            (_FILLING, "identifying"), (p.identified, "named"), (p.place, "named"),
            (_NOT, "excluding"),
        ),
        "ordering": (
            (p.purpose, "named"), (p.ordered, "named"), (p.name, "named"), (_FILLING, "ordering"),
        ),
        "excluding": ((p.name, "named"), (p.place, "named")),
    }  # fmt: skip
    steps["named"] = (
        (_PAUSE, "named"), (_FILLING, "named"), (p.place, "named"), (p.detail, "named"),
        (p.relative, "named"), (_ENDING, "named"), (_JUDGED, "named"), (p.name, "named"),
        (_NOT, "excluding"), (_WANTING, "wanting"), (_IDENTIFYING, "identifying"),
        (_ORDER, "ordering"), (_ANY_ONE, "named"),
    )  # fmt: skip
    reached: set[tuple[int, str]] = set()
    left = [(begin, start)]
    if start == "ordering":
        match = _ORDER.match(text, begin)
        left = [(match.end(), start)] if match else []
    assert start in states
    while left:
        at, state = left.pop()
        if at == len(text) and state == "named":
            return True
        for pattern, after in steps[state]:
            match = pattern.match(text, at)
            if match is None or match.end() == at:
                continue
            if pattern in (p.relative, p.use, p.purpose) and _FORBIDDING.search(match[0]):
                continue
            step = (match.end(), after)
            if step not in reached:
                reached.add(step)
                left.append(step)
    return False


# "don't let it touch the mug", "la prendre moi-même".
_DENIED = frozenset((("moi", "meme"), ("dont", "let"), ("think", "about")))


def _denies_a_thing(words: Sequence[str], patterns: _Patterns) -> bool:
    """Whether it says "no mug", which is no "no, the mug"."""
    things = patterns.nouns - _DESCRIPTIONS - _GENERIC
    if not {"myself", "yourself", "himself", "herself"}.isdisjoint(words):
        return True
    if tuple(words[:2]) == ("back", "up") or not _DENIED.isdisjoint(pairwise(words)):
        return True
    return any(
        word == "no"
        and (after in things or after == "one")
        and before not in ("with", "has", "had", "have", "is")
        for before, word, after in zip(("", *words), words, words[1:], strict=False)
    )


_SEEING = re.compile(
    r"\b(?:cant|couldnt|dont) (?:see|find|reach|get|have)\b|\bdont (?:mind|know|forget)\b"
)
_NO_REASON = word_set(
    "who why what if how stop leave keep let put drop off away back down you they he she touch "
    "qui pourquoi quoi si tu forbid refuse hate "
    "wouldnt didnt doesnt isnt arent wasnt werent interdis refuse"
)


def _is_reason(before: str) -> bool:
    """Whether words may stand before an order: none of them speaks against it."""
    words = _SEEING.sub(" ", before).replace(",", " ").split()
    return not (_NEGATORS | STATES | _NO_REASON | _PUTTING).intersection(words)


_AFTER_FRENCH_S = frozenset(("il", "y", "est", "en"))
_SHOWN = frozenset(("stop", "exit", "wait"))  # by a sign


def _known_spelling(words: Sequence[str]) -> list[str]:
    """The words with the misspelt ones corrected, and "stop" of "stop sign" as a thing."""
    found: list[str] = []
    for before, word, after in zip(("", *words), words, (*words[1:], ""), strict=False):
        if word == "s" and before and before not in NO_NAME and after not in _AFTER_FRENCH_S:
            continue  # "the baby's bottle"
        if word in SIGNS or (word in _SHOWN and (after in SIGNS or before == "bus")):
            word = "thing"
        described = before in ("the", "le", "la", "not") or before in _DESCRIPTIONS
        found.append(_spelled(word, described))
    return found


@lru_cache(maxsize=4096)
def _spelled(word: str, described: bool) -> str:
    """A description or kind for a misspelt one: "bleu" is "blue", "leeft" is "left".

    described: it stands where a description can stand: "the let one".
    """
    known = _DESCRIPTIONS if described else _DESCRIPTIONS | _KINDS
    other = (
        _OWN_WORDS
        | STATES
        | _KNOWN_NOUNS
        | _NAME_WORDS
        | _GENERIC
        | known
        | (frozenset() if described else NO_NAME)
    )
    if len(word) < 3 or word in other or word in ("put", "not", "now", "one", "hot"):
        return word
    kinds = {many for kind in _KINDS for many in _plurals(kind)} | _KINDS | _LONG_NOUNS
    near = (k for k in sorted(known | kinds) if len(k) > 2 and k[0] == word[0])
    fits = (k for k in near if is_one_slip(word, k) and (len(word) > 3 or len(k) > 3))
    return next(fits, word)


_NEGATING = re.compile(
    r"\b(?:nobody|no one|noone|nothing|never|neither|nor|no (?:need|point|use|picking"
    r"|touching|more)"
    r"|needless|unnecessary|forbid|forbidden|prohibited|not necessary|isnt necessary|dont|mustnt"
    r"|shouldnt|neednt|without|inutile|personne|jamais|rien|interdite?|defense|pas besoin|sans"
    r"|pas necessaire|off limits)\b"
)
_REMOVING = re.compile(
    rf"\b(?:{_any(_BODY)[:-1]})(?: \w+){{0,2}}? (?:off|away|back|down|out|from|clear)\b"
    r"|\b(?:keep|stay|steer|stand|step|get|move|back|pull|go|take)(?: \w+){0,4}? "
    r"(?:off|clear|away from|out of|back)\b"
    r"|\b(?:put|set|leave|let|keep|drop|release|remove)(?: \w+){1,5}$"
    rf"|\b(?:your|ta|tes|ton|vos|votre) (?:\w+ )?(?:{_any(_BODY)[:-1]})\b"
    r"|\b(?:remets|remettez|repose|reposez|recule|reculez|ecarte|eloigne|enleve|retire|ote|lache"
    r"|laisse|laisses|laissez|range|arrete|arretes)\b"
)
_IS_STATE = re.compile(
    rf"\b(?:is|are|s|am|est|sont)(?: \w+){{0,3}}? (?:{_any(STATES)[:-1]})\b"
    r"|\bbelongs? to\b|\b(?:stays?|stay there|where it is)\b"
)


def speaks_against(words: Sequence[str]) -> bool:
    """Whether an utterance that is no answer asks not to act, or gives a reason not to."""
    text = " ".join(words)
    return any(p.search(text) is not None for p in (_NEGATING, _REMOVING, _IS_STATE))
