"""Any text made safe to be spoken, and cut into sentences that a speech engine can swallow.

pyttsx3 crashes on 20,000 characters at once; control characters and broken surrogates confuse it.
"""

from __future__ import annotations

import re
import unicodedata

MAX_TEXT = 20_000  # characters; the rest is not said
LONGEST = 200  # characters given to the engine at once
_END = re.compile(r"(?<=[.!?;:…。！？])\s+")


def clean(text: str) -> str:
    """The text on one line, without what cannot be spoken: controls, private use, surrogates."""
    kept = (
        " " if unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") else c
        for c in text[:MAX_TEXT]
    )
    return " ".join(unicodedata.normalize("NFC", "".join(kept)).split())


def sentences(text: str) -> list[str]:
    """The cleaned text in pieces of at most 200 characters, cut where a speaker would pause.

    Pieces without a letter or a digit are left out; none is left of a text that says nothing.
    """
    pieces: list[str] = []
    for sentence in _END.split(clean(text)):
        pieces += _short(sentence)
    return [piece for piece in pieces if any(c.isalnum() for c in piece)]


def _short(sentence: str) -> list[str]:
    """Cut after a comma, else at a space, else anywhere."""
    pieces = []
    while len(sentence) > LONGEST:
        part = sentence[:LONGEST]
        cut = max(part.rfind(", "), part.rfind(") "), part.rfind(" - ")) + 1
        if cut < LONGEST // 3:
            cut = part.rfind(" ")
        if cut <= 0:
            cut = LONGEST
        pieces.append(sentence[:cut].strip())
        sentence = sentence[cut:].strip()
    return [*pieces, sentence] if sentence else pieces
