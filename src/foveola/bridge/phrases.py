"""Finding the words of an intent in a text: exactly, by shape (OCR), by sound (voice)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from foveola.bridge.payload import SourceKind
from foveola.bridge.text import is_chinese, near, shape_of, sounds_of

GAP_TOKENS = 4
_TOKEN = re.compile(r"[a-z0-9€$@']+(?:-[a-z0-9]+)*|[\u4e00-\u9fff]")
_WORD = re.compile(r"\{[a-z]+\}|_|[a-z0-9']+(?:-[a-z0-9]+)*\*?|[\u4e00-\u9fff]")


@dataclass(frozen=True, slots=True)
class Token:
    """A word, a number or one Chinese character, at ``start`` of the text; ``name`` is the kind of identifier it is."""

    text: str
    start: int
    name: str | None


@dataclass(frozen=True, slots=True)
class Hit:
    """Where words of an intent stand: characters [start, end) of the text; ``exact`` False when they were repaired."""

    intent: str
    start: int
    end: int
    exact: bool


@dataclass(frozen=True, slots=True)
class Keyword:
    """A keyword of the intents file, as words to be found one after the other."""

    intent: str
    words: tuple[str, ...]

    @classmethod
    def of(cls, intent: str, text: str) -> Keyword:
        """Take the text of the intents file apart."""
        return cls(intent, tuple(_WORD.findall(text.lower())))


def tokens_of(text: str, names: dict[str, re.Pattern[str]]) -> tuple[Token, ...]:
    """The tokens of lower-case ``text``."""
    found = []
    for match in _TOKEN.finditer(text):
        word = match[0]
        name = None if is_chinese(word) else next((n for n, p in names.items() if p.fullmatch(word)), None)
        found.append(Token(word, match.start(), name))
    return tuple(found)


def find(keyword: Keyword, tokens: tuple[Token, ...], kind: SourceKind) -> Iterator[Hit]:
    """Every place where the keyword begins; a clause's tokens should be passed, so that gaps stay inside it."""
    for begin in range(len(tokens)):
        met = _follow(keyword.words, tokens, begin, kind)
        if met is not None:
            last, exact = met
            yield Hit(keyword.intent, tokens[begin].start, tokens[last].start + len(tokens[last].text), exact)


def _follow(words: tuple[str, ...], tokens: tuple[Token, ...], at: int, kind: SourceKind) -> tuple[int, bool] | None:
    """Index of the last token, and whether all were exact; None where the words do not follow from ``at``."""
    exact, last, index = True, at - 1, 0
    while index < len(words):
        word = words[index]
        if word == "_":
            index += 1
            reach = range(last + 1, min(last + 2 + GAP_TOKENS, len(tokens)))
            here = next((i for i in reach if _is(words[index], tokens[i], kind) is not None), None)
            if here is None:
                return None
            last = here
        else:
            last += 1
            if last >= len(tokens):
                return None
        same = _is(words[index], tokens[last], kind)
        if same is None:
            return None
        exact, index = exact and same, index + 1
    # One character matched by its sound alone says nothing: a syllable has dozens of characters.
    return None if not exact and len(words) == 1 and is_chinese(words[0]) else (last, exact)


def _is(word: str, token: Token, kind: SourceKind) -> bool | None:
    return _same(word, token.text, token.name, kind)


@lru_cache(maxsize=1 << 17)  # the words of a plant are few, and each is compared with every keyword
def _same(word: str, token: str, name: str | None, kind: SourceKind) -> bool | None:
    """True: the very word; False: the word after repair; None: another word."""
    if word.startswith("{"):
        return True if name == word[1:-1] else None
    if word == token or (word.endswith("*") and token.startswith(word[:-1])):
        return True
    if is_chinese(word):
        return False if kind == "voice" and is_chinese(token) and sounds_of(word) & sounds_of(token) else None
    if kind == "voice" or name or is_chinese(token):
        return None
    wanted, got = shape_of(word.rstrip("*")), shape_of(token)
    if wanted == got or (word.endswith("*") and got.startswith(wanted)) or near(got, wanted):
        return False
    return None
