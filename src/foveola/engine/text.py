"""From tokens to text that may be shown: whole characters only, and nothing that could still become a stop string.

Two small automata in a row, each of which gives the same output however its input is cut into chunks:

    token ids --Detokeniser--> whole characters --StopStrings--> text to show
               (holds back an                   (holds back the longest suffix
                incomplete character)            that may become a stop string)
"""

from __future__ import annotations

import codecs
import json
import re
from collections import deque
from collections.abc import Sequence

from foveola.exchange import Damaged


class TokenBytes:
    """The bytes that each token stands for; special tokens stand for none.

    Byte-level vocabularies (GPT-2, Qwen2) spell bytes as printable characters; those of SentencePiece (Llama, Phi-3)
    spell blanks as ``▁`` and some bytes as ``<0x0A>``. Either way decoding is a table look-up per token and one UTF-8
    decoder per answer; the tokenizer itself is not asked again for every token. ``strips`` is
    how many blanks at the beginning of an answer's first token, where SentencePiece puts them, are not part of it.
    """

    def __init__(self, tokenizer_json: str) -> None:
        """Read the table from the text of a ``tokenizer.json``. Raises ``Damaged`` for other kinds of decoder."""
        data = json.loads(tokenizer_json)
        kinds = [part.get("type") for part in _parts(data.get("decoder"))]
        byte_level = kinds == ["ByteLevel"]
        if not byte_level and kinds not in (["Replace", "ByteFallback", "Fuse"], [*_SENTENCE_PIECE], ["Metaspace"]):
            raise Damaged(
                f"tokenizer.json has a decoder of type {', '.join(map(str, kinds)) or 'none'}; expected ByteLevel, or "
                "that of a SentencePiece vocabulary. Compile the bundle again from a checkpoint with such a tokenizer."
            )
        self.strips = {_SENTENCE_PIECE: 1, ("Metaspace",): _ALL}.get(tuple(map(str, kinds)), 0)
        added = {entry["id"]: entry for entry in data.get("added_tokens", [])}
        spelling: dict[int, str] = {number: text for text, number in data["model"]["vocab"].items()}
        spelling |= {number: entry["content"] for number, entry in added.items()}
        self._table: list[bytes] = [b""] * (max(spelling, default=-1) + 1)
        unspell = {char: byte for byte, char in enumerate(_byte_spelling())}
        for number, text in spelling.items():
            if not (number in added and added[number]["special"]):
                self._table[number] = _unspelt(text, unspell) if byte_level else _unpieced(text)

    def __getitem__(self, token: int) -> bytes:
        """The bytes of ``token``; empty for special tokens and for padding of the vocabulary beyond the tokenizer."""
        return self._table[token] if token < len(self._table) else b""


class Detokeniser:
    """Token ids in, whole characters out; the pieces add up to what the tokenizer would decode at once."""

    def __init__(self, table: TokenBytes) -> None:
        self._table = table
        self._strips = table.strips
        # Malformed bytes become U+FFFD by the rule of the Unicode standard (maximal subparts), as in the tokenizer.
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The characters that ``token`` completes; empty while a character is incomplete."""
        data = self._table[token]
        if self._strips and data:
            data = data[min(self._strips, len(data) - len(data.lstrip(b" "))) :]
            self._strips = 0
        return self._utf8.decode(data)

    def flush(self) -> str:
        """What an unfinished character at the end of the answer becomes: one U+FFFD, or nothing."""
        return self._utf8.decode(b"", final=True)


class StopStrings:
    """Passes text on until a stop string is complete; the stop string itself and all after it are dropped.

    An Aho-Corasick automaton (Aho and Corasick 1975): the depth of its state is the length of the longest suffix of
    the text that begins some stop string, which is exactly what has to be held back. The stop that is completed
    first wins; of several that end at the same character, the longest.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._next, self._fail, self._depth, self._match = _automaton(stops)
        self._state = 0
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The text that may be shown now. After a stop, always empty."""
        if self.stopped:
            return ""
        if len(self._next) == 1:  # no stop strings
            return text
        state = self._state
        text = self._held + text
        for at in range(len(self._held), len(text)):
            char = text[at]
            while state and char not in self._next[state]:
                state = self._fail[state]
            state = self._next[state].get(char, 0)
            if self._match[state]:
                self.stopped = True
                self._held = ""
                return text[: at + 1 - self._match[state]]
        self._state = state
        shown = len(text) - self._depth[state]
        self._held = text[shown:]
        return text[:shown]

    def flush(self) -> str:
        """What was held back, once it is known that nothing follows."""
        held, self._held, self._state = self._held, "", 0
        return held


def _automaton(stops: Sequence[str]) -> tuple[list[dict[str, int]], list[int], list[int], list[int]]:
    """Per state: transitions, failure state, depth, and the length of the longest stop that ends there (0: none)."""
    following: list[dict[str, int]] = [{}]
    depth, match = [0], [0]
    for stop in stops:
        state = 0
        for char in stop:
            if char not in following[state]:
                following[state][char] = len(following)
                following.append({})
                depth.append(depth[state] + 1)
                match.append(0)
            state = following[state][char]
        match[state] = len(stop)
    fail = [0] * len(following)
    waiting = deque(following[0].values())
    while waiting:
        state = waiting.popleft()
        for char, child in following[state].items():
            back = fail[state]
            while back and char not in following[back]:
                back = fail[back]
            fail[child] = following[back].get(char, 0)
            match[child] = match[child] or match[fail[child]]
            waiting.append(child)
    return following, fail, depth, match


_SENTENCE_PIECE = ("Replace", "ByteFallback", "Fuse", "Strip")
_ALL = 1 << 16
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def _parts(decoder: object) -> list[dict[str, object]]:
    if not isinstance(decoder, dict):
        return []
    parts: list[dict[str, object]] = decoder.get("decoders", []) if decoder.get("type") == "Sequence" else [decoder]
    return parts


def _unpieced(text: str) -> bytes:
    """The bytes of a piece of SentencePiece's."""
    byte = _BYTE.fullmatch(text)
    return bytes([int(byte[1], 16)]) if byte else text.replace("▁", " ").encode()


def _byte_spelling() -> list[str]:
    """The printable character that stands for each byte in byte-level vocabularies (GPT-2, ``bytes_to_unicode``)."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    spare = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(spare)) for byte in range(256)]


def _unspelt(text: str, unspell: dict[str, int]) -> bytes:
    """The bytes of a spelling; a token with any character that spells no byte stands for its own UTF-8."""
    if all(char in unspell for char in text):
        return bytes(unspell[char] for char in text)
    return text.encode()
