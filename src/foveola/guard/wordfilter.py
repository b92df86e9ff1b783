"""Banned words never leave, whatever the chunks in which a text comes.

A stream holds back exactly the longest suffix that may still become a banned word, and lets the rest go. What happens
is a function of the characters alone: any cut of the same text into chunks gives the same output. What is covered by
any occurrence of any word is removed whole, overlaps included.

``mask`` puts ``█`` for every character covered. ``drop`` leaves them out; where that brings the rest of two words
together into a new one, the new one is masked. ``stop`` ends the text before the first word.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

from foveola.guard.fold import BARRIER, BARRIER_SEEN, joins_words
from foveola.guard.words import Words

Action = Literal["mask", "drop", "stop"]
ACTIONS: tuple[Action, ...] = ("mask", "drop", "stop")


class WordStream:
    """Filters one text. ``hits`` counts the removals so far, ``stopped`` says that nothing more will leave."""

    def __init__(self, words: Words, action: Action) -> None:
        self.words = words
        self.action = action
        self._removing = _Removing(words, action)
        self._joining = _Removing(words, "mask") if action == "drop" else None

    @property
    def hits(self) -> int:
        """How many times a banned word was completed."""
        return self._removing.hits + (self._joining.hits if self._joining is not None else 0)

    @property
    def stopped(self) -> bool:
        """Whether a banned word has ended the text (action ``stop``)."""
        return self._removing.stopped

    @property
    def held(self) -> int:
        """Characters that are held back at the moment."""
        return len(self._removing.held) + (len(self._joining.held) if self._joining is not None else 0)

    def feed(self, text: str) -> str:
        """Take the next chunk; return what may leave now."""
        out = self._removing.feed(text)
        return out if self._joining is None else self._joining.feed(out)

    def end(self) -> str:
        """The text is over; return the rest of what may leave."""
        out = self._removing.end()
        return out if self._joining is None else self._joining.feed(out) + self._joining.end()


def scrub(words: Words, text: str, action: Action = "mask") -> str:
    """``text`` without banned words, in one go: for cached answers, logs, span attributes and messages."""
    stream = WordStream(words, action)
    return stream.feed(text) + stream.end()


class _Held:
    """A character that has not left, and the part of the normal form, ``begin`` to ``end``, that it stands for."""

    __slots__ = ("before", "begin", "covered", "end", "text")

    def __init__(self, text: str, before: str, begin: int, end: int) -> None:
        self.text = text
        self.before = before  # the character before it, for whole words
        self.begin = begin
        self.end = end
        self.covered = False


class _Removing:
    """One pass over a text: every character covered by an occurrence is removed, in the way of ``action``."""

    def __init__(self, words: Words, action: Action) -> None:
        self.held: deque[_Held] = deque()
        self.hits = 0
        self.stopped = False
        self._fold = words.table.get
        self._walker = words.walker
        self._root = words.walker.root
        self._action = action
        self._state = 0
        self._length = 0  # of the normal form so far
        self._last = ""
        self._whole: list[int] = []  # where whole words begin that end here, if no letter follows

    def feed(self, text: str) -> str:
        if self.stopped:
            return ""
        out: list[str] = []
        for character in text:
            if character == BARRIER:
                character = BARRIER_SEEN
            folded = self._fold(character, character)
            if not self.held and not self._state and (not folded or (len(folded) == 1 and folded not in self._root)):
                self._length += len(folded)  # begins no word: most characters
                self._last = character
                out.append(character)
                continue
            self._take(character, folded)
            if self.stopped:
                break
            self._release(out)
        return "".join(out)

    def end(self) -> str:
        out: list[str] = []
        self._settle(joined=False)
        self._state = 0
        self._release(out)
        return "".join(out)

    def _take(self, character: str, folded: str) -> None:
        """Hold one more character and mark what it completes."""
        self._settle(joined=joins_words(character))
        if self.stopped:
            return
        begin = self._length
        self.held.append(_Held(character, self._last, begin, begin + len(folded)))
        self._last = character
        walker = self._walker
        for part in folded:
            self._state = walker.step(self._state, part)
            self._length += 1
            if longest := walker.cover[self._state]:
                self._cover(self._length - longest)
        node = walker.whole[self._state] if folded else 0
        while node:
            start = self._length - walker.depth[node]
            if self._begins_word(start):
                self._whole.append(start)
            node = walker.whole[walker.fail[node]]

    def _settle(self, *, joined: bool) -> None:
        """It is known now whether a letter follows the whole words that may have ended."""
        if self._whole and not joined:
            self._cover(min(self._whole))
        self._whole.clear()

    def _begins_word(self, start: int) -> bool:
        for one in self.held:
            if one.end > start:
                return one.begin == start and not (one.before and joins_words(one.before))
        return False

    def _cover(self, start: int) -> None:
        self.hits += 1
        if self._action == "stop":
            self.stopped = True
            self.held.clear()
            return
        for one in reversed(self.held):
            if one.end <= start:
                break
            one.covered = True

    def _release(self, out: list[str]) -> None:
        """Let go of what can no longer become part of a word."""
        kept_from = self._length - self._walker.hold[self._state]
        if self._whole:
            kept_from = min(kept_from, *self._whole)
        held = self.held
        while held and held[0].end <= kept_from:
            one = held.popleft()
            if not one.covered:
                out.append(one.text)
            elif self._action == "mask":
                out.append(BARRIER)
