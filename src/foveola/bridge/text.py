"""Text as devices deliver it, made comparable: width, case, spacing, OCR confusions, sound of Chinese words."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

MAX_CHARS = 400
"""An instruction is a sentence; longer text is a document and is cut for understanding, and said to be."""

_SHAPES = str.maketrans({"0": "o", "q": "o", "1": "i", "l": "i", "|": "i", "!": "i", "5": "s", "$": "s", "8": "b",
                         "6": "g", "€": "e", "@": "a", "2": "z"})  # fmt: skip
_DIGITS = str.maketrans({"O": "0", "o": "0", "I": "1", "l": "1", "i": "1", "|": "1", "S": "5", "s": "5", "B": "8"})
_CLAUSE = re.compile(r"[,，。;；!！?？、|\n]+|\.(?=\s|$)|\s(?:but|and let|while)\s|而是")


def clean(text: str) -> str:
    """NFKC (full width becomes plain), control and zero-width characters gone, white space single."""
    text = unicodedata.normalize("NFKC", text)
    kept = "".join(ch if unicodedata.category(ch)[0] != "C" else " " if ch in "\n\r\t" else "" for ch in text)
    return re.sub(r"\s+", " ", kept).strip()


def replace_words(text: str, table: dict[str, str]) -> str:
    """Every key of ``table``, longest first, by its value; keys of Latin letters only where whole words stand."""
    for key in sorted(table, key=len, reverse=True):
        edge = r"\b" if key.isascii() else ""
        text = re.sub(f"{edge}{re.escape(key)}{edge}", table[key], text)
    return text


def digits_of(text: str) -> str:
    """An identifier's tail in which OCR put letters for digits: ``24I7`` → ``2417``."""
    return text.translate(_DIGITS)


def shape_of(text: str) -> str:
    """What is left of lower-case Latin text when characters that look alike are the same character."""
    return text.translate(_SHAPES).replace("rn", "m").replace("vv", "w")


def clauses(text: str) -> list[tuple[int, str]]:
    """(start, clause) of ``text``; a point inside a number separates nothing."""
    found, start = [], 0
    for match in _CLAUSE.finditer(text):
        found.append((start, text[start : match.start()]))
        start = match.end()
    found.append((start, text[start:]))
    return [(begin, clause) for begin, clause in found if clause.strip()]


def is_chinese(text: str) -> bool:
    """Whether a Chinese character stands in it."""
    return any("\u4e00" <= ch <= "\u9fff" for ch in text)


@lru_cache(maxsize=8192)
def sounds_of(character: str) -> frozenset[str]:
    """The syllables that a Chinese character may stand for, without tone, with the pairs merged that speakers of
    southern dialects and recognisers confuse (zh/z, ch/c, sh/s, n/l, -ng/-n); other characters are themselves."""
    if not is_chinese(character):
        return frozenset((character,))
    from pypinyin import Style, pinyin  # 4 MB of tables, needed by voice stations only

    (readings,) = pinyin(character, style=Style.NORMAL, heteronym=True)
    merged = set()
    for one in readings:
        one = re.sub(r"^(z|c|s)h", r"\1", one)
        one = re.sub(r"^n(?=[aeiou])", "l", one)
        merged.add(re.sub(r"(?<=[aei])ng$", "n", one))
    return frozenset(merged)


def near(word: str, wanted: str) -> bool:
    """Whether two words of five letters and more differ by at most one letter put in, left out or changed."""
    if word == wanted:
        return True
    if min(len(word), len(wanted)) < 5 or abs(len(word) - len(wanted)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(word, wanted, strict=False)) if a != b), min(len(word), len(wanted)))
    a, b = word[start:], wanted[start:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:]
