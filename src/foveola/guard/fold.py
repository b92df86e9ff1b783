"""The normal form in which words are compared: one character at a time, so that streams need no look-ahead.

``fold`` maps a character to nothing (it separates: blanks, punctuation, symbols, zero-width and control characters,
combining accents) or to one or more characters: NFKC's compatibility forms and width, case, accents removed,
look-alike letters of Cyrillic, Greek, Armenian and Cherokee to Latin, and traditional Chinese to simplified. A text's
normal form is the concatenation of its characters' folds, whatever the chunks in which it came.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Mapping

BARRIER = "█"
"""Stands for a masked character in what leaves. It folds to itself, so that no word is ever read across it."""
BARRIER_SEEN = "▇"
"""What a BARRIER in the text itself becomes, so that in what leaves a BARRIER always means a masked character."""

# Letters that look like the Latin ones beside them in common fonts (a choice from Unicode's confusables, UTS #39),
# after case folding. 0 and 1 are read as the letters they stand in for.
_LOOK_ALIKES = {
    "o": "0οоօഠ๐໐ჿᴏꬽⲟס",
    "l": "1ӏɩιℓⅼǀاߊⵏᛁꓲ",
    "a": "аɑα⍺ꭺᴀ",
    "b": "ьƄЬᏏ",
    "c": "сϲⲥᴄꮯ",
    "d": "ԁժꓒᏧⅾ",
    "e": "еҽєɛꬲ℮",
    "f": "ƒϝքꞙ",
    "g": "ɡցᶃɢ",
    "h": "һհᏂн",
    "i": "іıɪꭵ",
    "j": "јϳ",
    "k": "кκкⲕᴋ",
    "m": "мṃⅿ",
    "n": "ոпη",
    "p": "рρϱⲣ",
    "q": "ԛզգ",
    "r": "гᴦⲅꭇꮁ",
    "s": "ѕꜱꮪ",
    "t": "тτᴛ",
    "u": "υսᴜцʋ",
    "v": "ѵνᴠⅴ",
    "w": "ѡԝաᴡѡ",
    "x": "хχⅹ×",
    "y": "уүγყỿ",
    "z": "ᴢꮓʐ",
}
_LATIN = {strange: latin for latin, strangers in _LOOK_ALIKES.items() for strange in strangers}

_INVISIBLE_LETTERS = "\u115f\u1160\u3164\uffa0"
# Marks that decorate any script and can be strewn over any word; those of one script only (vowel signs, kana's voicing)
# are part of the spelling and stay.
_ACCENTS = ((0x300, 0x36F), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF), (0x20D0, 0x20FF), (0xFE00, 0xFE0F), (0xFE20, 0xFE2F),
            (0xE0100, 0xE01EF))  # fmt: skip

# Blocks of unified ideographs, which have no case, width or parts: two thirds of all characters.
_IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0x20000, 0x2F7FF), (0x30000, 0x3FFFF))


def separates(character: str) -> bool:
    """Whether ``character`` is nothing to the eye or only parts letters from each other."""
    code = ord(character)
    if character in _INVISIBLE_LETTERS or any(low <= code <= high for low, high in _ACCENTS):
        return True
    category = unicodedata.category(character)
    return category[0] in "ZPS" or category in ("Cc", "Cf")


def fold(character: str, simplified: Mapping[str, str]) -> str:
    """The normal form of one character; ``simplified`` maps traditional Chinese characters to simplified ones."""
    if character == BARRIER:
        return BARRIER
    if character in _LATIN:
        return _LATIN[character]
    parts = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold())
    kept = (part for part in parts if not separates(part))
    return "".join(simplified.get(part, _LATIN.get(part, part)) for part in kept)


def fold_table(simplified: Mapping[str, str]) -> dict[str, str]:
    """``fold`` of every character that it changes, about 40 000 of them (half a second)."""
    table = {}
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(character := chr(code)) in ("Cn", "Cs", "Co"):
            continue
        ideograph = any(low <= code <= high for low, high in _IDEOGRAPHS)
        folded = simplified.get(character, character) if ideograph else fold(character, simplified)
        if folded != character:
            table[character] = folded
    return table


def joins_words(character: str) -> bool:
    """Whether a word goes on across ``character``, for the ends of whole words.

    Chinese, kana and Hangul are written next to Latin words without a blank, so they end one.
    """
    if character == BARRIER:
        return True
    return character.isalnum() and not (
        "\u2e80" <= character <= "\ua4cf" or "\uac00" <= character <= "\ud7ff" or "\uf900" <= character <= "\ufaff"
        or character >= "\U00020000"
    )  # fmt: skip
