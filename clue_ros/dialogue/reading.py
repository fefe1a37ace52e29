# Copyright 2026 clue_ros contributors
# SPDX-License-Identifier: Apache-2.0
"""What a person asks for with an utterance: stop, refuse, wait, yes, no, an answer, a new request.

`read` is the one place that decides it, and `clue_ros.dialogue.conversation` acts on it, so that
every way in (topic, service, action, command line, voice) behaves the same. It comes before the
model, which makes a box of any words: a refusal must never reach it.

English and French are read side by side, whatever the robot's language is: "arrête" stops an
English robot too. Case, accents, punctuation and apostrophes do not count: a recognizer has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from clue_ros.dialogue.evidence import THINGS, is_explained, speaks_against
from clue_ros.dialogue.inflection import singulars
from clue_ros.dialogue.utterances import (
    BOUNDARIES,
    CAREFUL,
    DEFINITE,
    DESCRIBING,
    ENDS_REFUSED,
    FILLERS,
    FINITE,
    FRENCH_IMPERATIVES,
    FUNCTION,
    HARMLESS,
    JOINING,
    LEADING_ON,
    LEAVING,
    NAMING,
    NEGATIONS,
    NO,
    NO_THING,
    NONE,
    NONE_OF,
    NOT_RIGHT,
    PAUSING,
    REFERRING,
    REFUSAL,
    REJECTING,
    RELATIVES,
    REQUEST_VERBS,
    SIGNS,
    STOP,
    STOPPING,
    UNSURE,
    WAIT,
    YES,
)
from clue_ros.dialogue.words import LANGUAGES, asks_yes_or_no, is_offered, unaccented


class Kind(Enum):
    """What an utterance asks for."""

    STOP = "stop"  # end the dialogue
    REFUSAL = "refusal"  # do not act; nothing else is wanted
    WAIT = "wait"  # give me time
    NONE = "none of them"  # of what was offered
    NO = "no"
    YES = "yes"
    NOTHING = "nothing"  # politeness, an address
    OFFERED = "offered answer"
    REQUEST = "new request"  # for another object than the open request
    OTHER = "other answer"
    UNCLEAR = "unclear"  # it does not say in a known form what is wanted


@dataclass(frozen=True)
class Reading:
    """An utterance, as it was understood.

    text: the part of it that says what is wanted, for the model: the utterance itself, unless it
    refuses one thing and asks for another ("don't take the red one, take the green one").
    """

    kind: Kind
    text: str


@dataclass(frozen=True)
class _Token:
    """A word in lower case without accents, or "," for any punctuation; a span of the text."""

    word: str
    start: int
    end: int


# A negated auxiliary in any spelling ("do not", "don't", "dont", "don t"), a word, or a pause.
_TOKEN = re.compile(
    r"\b(?P<aux>does|do|did|is|are|was|were|has|have|had|can|could|will|would|shall|should|must|may"
    r"|might|need|ca|wo|ai)(?:\s*not\b|\s*n\s*['’‘ʼ`´]?\s*t\b)|(?P<word>[^\W_]+)|[.,;:!?()—–…]+",
    re.IGNORECASE,
)
_STEMS = {"can": "ca", "will": "wo"}  # "cannot" and "can't" are one word, "cant"
_SUBJECTS = frozenset(("it", "that", "this", "there", "i", "you", "we", "they", "he", "she", "let"))
_CLITICS = {"s": "is", "m": "am", "re": "are", "ve": "have", "ll": "will", "d": "would"}
_DRAWN_OUT = tuple(
    (word, re.compile("".join(f"{letter}+" for letter in word)))
    for word in ("stop", "no", "non", "wait", "halt")
)
_THOSE = frozenset(("celui", "celle", "ceux", "celles"))  # "celui-là"
_FRENCH_SUBJECTS = frozenset(("j", "je", "tu", "il", "elle", "nous", "vous", "ils", "elles"))
_JOINED = {"im": ("i", "am"), "thats": ("that", "is"), "ill": ("i", "will")}


def _tokens(text: str) -> list[_Token]:
    """The words and pauses of a text, in the spelling of the tables."""
    found: list[_Token] = []
    for match in _TOKEN.finditer(text):
        span = (match.start(), match.end())
        last = found[-1].word if found else ""
        if match["aux"]:
            stem = match["aux"].lower()
            words: tuple[str, ...] = (f"{_STEMS.get(stem, stem)}nt",)
        elif match["word"]:
            word = unaccented(match["word"])
            if word in ("la", "ci") and (last in _THOSE or "là" in match["word"].lower()):
                word = "ci"
            word = next((short for short, long in _DRAWN_OUT if long.fullmatch(word)), word)
            if last in _SUBJECTS:
                word = _CLITICS.get(word, word)
            words = _JOINED.get(word, (word,))
        else:
            words = (",",)
        found += [_Token(word, *span) for word in words]
    for at, token in enumerate(found):  # "celui dont j'ai besoin", which is no "don't"
        after = found[at + 1].word if at + 1 < len(found) else ""
        if token.word == "dont" and (after in _FRENCH_SUBJECTS or found[at - 1].word in _THOSE):
            found[at] = _Token("duquel", token.start, token.end)
    return found


def _words(text: str) -> tuple[str, ...]:
    return tuple(token.word for token in _tokens(text) if token.word != ",")


_PHRASES: dict[tuple[str, ...], Kind | None] = {
    _words(phrase): kind
    for phrases, kind in (
        (FILLERS, None), (YES, Kind.YES), (NO, Kind.NO), (NONE, Kind.NONE), (WAIT, Kind.WAIT),
        (REFUSAL, Kind.REFUSAL), (STOP, Kind.STOP),
    )
    for phrase in phrases
}  # fmt: skip
_LONGEST = max(map(len, _PHRASES))
_STARTS = frozenset(("dont", "mustnt", "ne", "n"))  # a refusing clause, but after REFERRING
# These begin the reason for what was said before: "no thanks, I am fine".
_REASONS = frozenset(("i", "you", "we", "he", "she", "because", "je", "tu", "il", "c", "car"))
_WAITING = {_words(phrase) for phrase in ("wait", "hold on", "hang on", "attends", "attendez")}
_LEAVE = {_words(phrase) for phrase in LEAVING}
_STRENGTH = (Kind.STOP, Kind.REFUSAL, Kind.WAIT, Kind.NONE, Kind.NO, Kind.YES)
_DESCRIPTIONS = frozenset(
    word
    for words in LANGUAGES.values()
    for phrase in (*words.colors, *words.places, *words.sizes, DESCRIBING)
    for word in _words(phrase)
)
_NEGATED = "dont|never|mustnt|shouldnt|cant|maynt|neednt|shant|wont"
_CLITIC = r"(?:le|la|les|l|y|en|me|m|lui|leur|te|t|se|s|ca|nous|vous) "
# The beginning of a clause that tells the robot what not to do, up to its verb.
_REFUSING = re.compile(
    # "don't", "you must not", "never", "I don't want you to", "you are not allowed to"
    r"(?:(?:you|it|that|this|nobody|no one|(?:i|we)(?! (?:\w+ )?(?:cant|neednt))) )?"
    r"(?:(?:must|really|just|also|even|better|had|would"
    rf"|rather|prefer|you|if) )*(?:{_NEGATED}|arent (?:allowed|supposed) to|better not|not to)"
    r"(?<!cant(?= you))(?<!wont(?= you))"
    r"(?: (?:you|the robot|ever|even|dare|try|start|begin|go|and|to|want|need|have|like|be|been"
    r"|allowed|supposed|think|please|now))*(?: |$)"
    # "the mug must not be moved"
    r"|(?:the|this|that|my)(?: \w+){1,4}? (?:mustnt|shouldnt|cant|isnt to) be "
    # "no touching", "stop picking it up"
    r"|(?:no|stop|quit|avoid) (?=\w{2,}ing\b)"
    # "ne le prends pas", "il ne faut pas", "n'y touche pas", "ne pas toucher"
    rf"|(?:(?:tu|vous|je|j|on|il|elle|nous) )?(?:ne|n) (?:{_CLITIC})*(?P<verb>\w+ )?"
    rf"(?:{_CLITIC})*(?:a )?(?:pas|rien|plus|jamais|ni|aucune?)(?: |$)"
    # "touche pas", "tu dois pas le prendre"
    rf"|(?:{_CLITIC})*(?:{FRENCH_IMPERATIVES.replace(' ', '|')}) (?:pas|rien|plus|jamais)(?: |$)"
    rf"|(?:tu|vous|je|on|il) (?:{_CLITIC})*(?P<spoken>\w+) (?:pas|rien|plus|jamais)(?: |$)"
)


@dataclass(frozen=True)
class _Refused:
    """A part of an utterance that calls something off.

    kind: STOP, REFUSAL, WAIT or NO. words: what it refuses; none: to act at all. careful: it says
    how to act ("don't drop it") where something is wanted before it.
    """

    kind: Kind
    start: int
    end: int
    words: frozenset[str] = frozenset()
    careful: bool = False


@dataclass
class _Parts:
    """An utterance taken apart; spans are of its tokens."""

    said: list[tuple[Kind | None, int, int]]  # phrases of the tables
    refused: list[_Refused]
    left: list[tuple[int, int]]  # everything else


def read(text: str, offered: Sequence[str] = (), about: str = "") -> Reading:
    """Say what an utterance asks for.

    Args:
        text: what was said.
        offered: the answers that the open question offers; () where none is open, or it offers
            none. An answer that is offered is that answer, whatever else its words mean.
        about: what the open request names, for telling a new request from an answer; "" where no
            request is open.

    >>> read("No, don't touch it!").kind, read("don't forget to give me the mug").kind
    (<Kind.REFUSAL: 'refusal'>, <Kind.OTHER: 'other answer'>)
    """
    if not asks_yes_or_no(offered) and is_offered(text, offered):
        return Reading(Kind.OFFERED, text)
    tokens = _tokens(text)
    words = [token.word for token in tokens]
    parts = _parts(words)
    refused = [_among(part, offered) for part in _refusals(parts, words, offered)]
    wanted = _wanted(parts, refused, words, offered)
    if refused and wanted is None:
        kinds = {part.kind for part in refused}
        return Reading(next(kind for kind in _STRENGTH if kind in kinds), text)
    if wanted is None:
        if not parts.left:
            said = {kind for kind, _, _ in parts.said}
            return Reading(next((k for k in _STRENGTH if k in said), Kind.NOTHING), text)
        kind = _unnamed(words, offered, about)
        if kind is not None:
            return Reading(kind, text)
    start, end = (parts.left[0][0], len(words)) if wanted is None else wanted
    kept_words = words[0 if wanted is None else start : end]
    named = _words(" ".join((about, *offered)))
    agrees = asks_yes_or_no(offered) and set(kept_words) <= {"exactly", "precisely"}
    if not agrees and not is_explained(kept_words, named, is_answer=bool(offered or about)):
        return Reading(Kind.REFUSAL if speaks_against(kept_words) else Kind.UNCLEAR, text)
    is_new = bool(about) and _is_new(words[start:end], offered, about)
    if wanted is None and not is_new:
        return Reading(Kind.OTHER, text)
    if is_new:
        end -= words[end - 1] == "instead"
    kept = text[tokens[start].start : tokens[end - 1].end]
    if is_new:
        return Reading(Kind.REQUEST, kept)
    return Reading(Kind.OFFERED if is_offered(kept, offered) else Kind.OTHER, kept)


def leaves_open(kind: Kind, offered: Sequence[str]) -> bool:
    """Whether a question is still open after this: "wait", or words that name nothing it asks for.

    offered: the answers that the question offers. "yes" and "no" answer one that offers them.
    """
    if kind in (Kind.YES, Kind.NO):
        return not asks_yes_or_no(offered)
    return kind in (Kind.WAIT, Kind.NONE, Kind.NOTHING, Kind.UNCLEAR)


def calls_off(kind: Kind) -> bool:
    """Whether it asks not to act, or not yet."""
    return kind in (Kind.STOP, Kind.REFUSAL, Kind.WAIT)


def _parts(words: Sequence[str]) -> _Parts:
    """Find the phrases of the tables and the refusing clauses where a clause can begin."""
    parts = _Parts([], [], [])
    at, free = 0, True  # free: a clause can begin here
    begin = -1  # of the words that are left
    while at < len(words):
        end = at
        if words[at] == ",":
            end, free = at + 1, True
        elif free or (words[at] in _STARTS and words[at - 1] not in REFERRING):
            phrase = _phrase_at(words, at)
            clause = None if phrase and _is_clause(words, phrase[1]) else _clause_at(words, at)
            if clause is not None:
                parts.refused.append(clause)
                end = clause.end
            elif phrase is not None and _stands(words, at, phrase):
                parts.said.append((phrase[0], at, phrase[1]))
                end = phrase[1]
        if end == at:
            begin = at if begin < 0 else begin
            free = words[at] in BOUNDARIES
            at += 1
            continue
        if begin >= 0:
            parts.left.append((begin, at))
        begin, at = -1, end
    if begin >= 0:
        parts.left.append((begin, len(words)))
    return parts


def _phrase_at(words: Sequence[str], at: int) -> tuple[Kind | None, int] | None:
    """The longest phrase of the tables that begins here, and its end."""
    for end in range(min(at + _LONGEST, len(words)), at, -1):
        if tuple(words[at:end]) in _PHRASES:
            return _PHRASES[tuple(words[at:end])], end
    return None


def _is_clause(words: Sequence[str], end: int) -> bool:
    """Whether a clause can end here: at the end, at a pause, or before another phrase."""
    if end == len(words) or words[end] == "," or words[end] in _REASONS:
        return True
    return _phrase_at(words, end) is not None


def _stands(words: Sequence[str], at: int, phrase: tuple[Kind | None, int]) -> bool:
    """Whether a phrase is one, and no part of a name: "stop sign", "a second apple"."""
    kind, end = phrase
    if end < len(words) and (words[end] in SIGNS or words[at : end + 1] == ["hold", "on", "to"]):
        return False
    waits = any(tuple(words[at : at + length]) in _WAITING for length in (1, 2))
    opens = kind in (None, Kind.YES, Kind.NO, Kind.NONE, Kind.STOP)
    return opens or waits or _is_clause(words, end)


def _clause_at(words: Sequence[str], at: int) -> _Refused | None:
    """The refusing clause that begins here: "don't touch the mug", "leave the mug"."""
    pause = next((i for i in range(at, len(words)) if words[i] == ","), len(words))
    match = _REFUSING.match(" ".join(words[at:pause]))
    if match is not None:
        verb = match["verb"] or match["spoken"] or ""
        start = at + len(match[0].split())
        if not verb and start < pause:
            verb = words[start]
            start += verb not in FUNCTION
        if verb.strip() in HARMLESS:
            return None
        lets = verb.strip() in ("let", "make")  # "don't let it touch the mug"
        end = pause if lets else _refused_end(words, start, pause)
        return _Refused(Kind.REFUSAL, at, end, _names(words[start:end]), verb.strip() in CAREFUL)
    for length in range(4, 0, -1):
        start = at + length
        if tuple(words[at:start]) in _LEAVE and start < pause:
            if words[start] in SIGNS or words[start] in ("me", "moi") or _is_led(words[start:]):
                return None
            end = _refused_end(words, start, pause)
            return _Refused(Kind.REFUSAL, at, end, _names(words[start:end]))
    return None


def _refused_end(words: Sequence[str], start: int, pause: int) -> int:
    """Where what is refused ends: at a pause, at "but", or where something else is named."""
    for at in range(start, pause):
        word, last = words[at], words[at - 1]
        if word in ENDS_REFUSED or word in _STARTS:
            return at
        if at > start and last not in ("to", "you") and _is_led(words[at:pause]):
            return at
        if at > start and word in DEFINITE and last not in LEADING_ON:
            return at
    return pause


def _is_led(words: Sequence[str]) -> bool:
    """Whether a request begins here: "take ...", "I want ...", "you can take ..."."""
    return _LED.match(" ".join(words)) is not None


_LED = re.compile(
    r"\b(?:(?:i|you|we|je|j|tu|can|could|may|should|would|will|have|to|like|please|rather|just|now"
    rf"|robot|then|instead|the robot) )*(?P<verb>{'|'.join(sorted(REQUEST_VERBS))})\b"
)


def _names(words: Iterable[str]) -> frozenset[str]:
    """The words that name something."""
    return frozenset(words) - FUNCTION - REQUEST_VERBS - {","}


def _among(part: _Refused, offered: Sequence[str]) -> _Refused:
    """Return the part; a refusal of some of the answers that are offered is a no to these."""
    hit = [bool(own & part.words) for own in _distinct(offered)]
    if part.kind is Kind.REFUSAL and any(hit) and not all(hit):
        return _Refused(Kind.NO, part.start, part.end, part.words)
    return part


def _distinct(offered: Sequence[str]) -> list[frozenset[str]]:
    """The words that tell each offered answer from the others."""
    names = [_names(_words(answer)) for answer in offered]
    common = frozenset.intersection(*names) if names else frozenset()
    return [name - common for name in names]


def _refusals(parts: _Parts, words: Sequence[str], offered: Sequence[str]) -> list[_Refused]:
    """The parts that call something off.

    "no" and "wait" do so only with nothing after them: "no, the red one" and "wait, the red one"
    are answers.
    """
    last = max((start for start, _ in parts.left), default=-1)
    found = list(parts.refused)
    for kind, start, end in parts.said:
        after = kind in (Kind.NO, Kind.NONE, Kind.WAIT) and parts.left and start > last
        alone = kind is Kind.WAIT and parts.left and not _wants_any(parts, words, offered)
        if kind in (Kind.STOP, Kind.REFUSAL) or after or alone:
            assert kind is not None
            found.append(_Refused(kind, start, end))
    return found


def _wants_any(parts: _Parts, words: Sequence[str], offered: Sequence[str]) -> bool:
    return any(_wants(words[slice(*span)], offered, frozenset()) for span in parts.left)


def _wanted(
    parts: _Parts, refused: Sequence[_Refused], words: Sequence[str], offered: Sequence[str]
) -> tuple[int, int] | None:
    """The span that says what is wanted beside what is refused; None where there is none."""
    names = frozenset[str]().union(*(part.words for part in refused))
    spans = [span for span in parts.left if _wants(words[slice(*span)], offered, names)]
    if not refused or not spans:
        return None
    # A stop, and "don't touch it", take back what was wanted before them.
    first = max((p.end for p in refused if not p.words and not p.careful), default=0)
    spans = [span for span in spans if span[0] >= first]
    if not spans:
        return None
    start, end = spans[0][0], spans[-1][1]
    if any(start < part.start < end for part in refused):
        start = spans[-1][0]
    while words[end - 1] in BOUNDARIES and end > start + 1:
        end -= 1
    return start, end


def _wants(words: Sequence[str], offered: Sequence[str], refused: frozenset[str]) -> bool:
    """Whether the words of a clause beside a refusal say what is wanted, and are no reason for it.

    "the green one", "take the pear", "the left"; not "it is hot", "the mug is mine".
    """
    words = [word for word in words if word not in ("but", "rather", "instead", "mais", "plutot")]
    names = _names(words)
    if is_offered(" ".join(words), offered):
        return True
    if not names - refused or names & NO_THING:
        return False
    match = _LED.match(" ".join(words))
    rest = " ".join(words)[match.end() :].split() if match else words
    if match is not None and rest[:1] and rest[0] in ("to", "it", "that", "this"):
        return False
    begins = rest[0] in DEFINITE | _DESCRIPTIONS | NAMING or match is not None
    relative = next((i for i, word in enumerate(rest) if word in RELATIVES), len(rest))
    return begins and not FINITE & set(rest[:relative])


def _unnamed(words: Sequence[str], offered: Sequence[str], about: str) -> Kind | None:
    """What is said with words that name nothing, or reject all that is offered or asked for.

    "you should stop", "that is not what I want", "neither the red one nor the green one".
    """
    said = [word for word in words if word != ","]
    kind = Kind.NO if NONE_OF.isdisjoint(said) else Kind.NONE
    if _RELATIVE.search(" ".join(said)) or not SIGNS.isdisjoint(said):
        return None
    if said[-1] == "right" and len(said) > 1 and said[-2] in NOT_RIGHT:  # "that's not right"
        said = said[:-1]
    names = _names(said)
    known = frozenset().union(_DESCRIPTIONS, UNSURE, *map(_words, (about, *offered)))
    if not names & known and DEFINITE.isdisjoint(said) and not _names_after_verb(said):
        if not STOPPING.isdisjoint(said):
            return Kind.STOP
        if not PAUSING.isdisjoint(said):
            return Kind.WAIT
        return None if NEGATIONS.isdisjoint(said) else kind
    if said[0] not in REJECTING:
        return None
    if all(_is_one_of(name, _words(about)) for name in names):  # "not the mug", of "take the mug"
        return kind
    places = sorted(
        next((i for i, word in enumerate(said) if word in own), -1) for own in _distinct(offered)
    )
    if not places or places[-1] < 0:  # another property: "neither the red one nor the blue one"
        described = said[-1] in ("one", "ones") and DEFINITE.isdisjoint(said)
        return Kind.NONE if sum(w in REJECTING for w in said) > 1 and not described else None
    joined = all(not JOINING.isdisjoint(said[a:b]) for a, b in pairwise(places))
    return Kind.NONE if joined and places[0] >= 0 else None


def _names_after_verb(words: Sequence[str]) -> bool:
    """Whether a request begins here and a thing follows at once: "hold cake no wait, bag"."""
    match = _LED.match(" ".join(words))
    rest = " ".join(words)[match.end() :].split() if match else []
    return bool(_names([word for word in rest[:2] if word != "me"]) & THINGS)


# "the one you don't like", and not "that is not the one".
_RELATIVE = re.compile(
    r"(?<!not )(?<!nt )(?<!pas )\b(?:the ones?|celui|celle|ceux|celles) (?!ci\b)\w"
)


def _is_new(words: Sequence[str], offered: Sequence[str], about: str) -> bool:
    """Whether this is a request for something that neither the request nor the question names."""
    phrases = [word for word in words if word != ","]
    match = _LED.search(" ".join(phrases))
    if match is None or match["verb"] in ("mean", "meant"):  # a correction, and no request
        return False
    before = " ".join(phrases)[: match.start()].split()
    if any(_names([word]) for word in before):
        return False
    noun = _head_noun(" ".join(phrases)[match.end() :].split())
    known = {*_words(about), *(word for answer in offered for word in _words(answer))}
    return bool(noun) and not _is_one_of(noun, known)


def _is_one_of(noun: str, words: Iterable[str]) -> bool:
    """Whether a noun is one of some words, in singular or plural."""
    return any(singulars(noun) & singulars(word) for word in words)


def _head_noun(words: Sequence[str]) -> str:
    """The noun of a noun phrase, "" where it is a colour, a place or a pronoun."""
    words = list(words)
    while words and words[0] in LEADING_ON and words[0] not in ("left", "right"):
        words.pop(0)
    for at, word in enumerate(words):
        stops = word in LEADING_ON | RELATIVES | BOUNDARIES | {"instead", "not", ","}
        if at > 0 and stops and word not in ("left", "right"):
            words = words[:at]
            break
    named = [w for w in words if w not in FUNCTION and w not in _DESCRIPTIONS and w != ","]
    return named[-1] if named else ""
