"""Banned words never leave, whatever the chunks in which a text comes.

A stream holds back exactly the longest suffix that may still become a banned word, and lets the rest go. What happens
is a function of the characters alone: any cut of the same text into chunks gives the same output. What is covered by
any occurrence of any word is removed whole, overlaps included.

Nearly everywhere a character has one letter of normal form, or none, and what is held back is one short string. There,
a chunk costs little more than a look-up or two for each of its characters. Where that does not hold, where whole words
end, and where a text is stopped, the length of the normal form is kept for each character instead.

``mask`` puts ``█`` for every character covered. ``drop`` leaves them out; where that brings the rest of two words
together into a new one, the new one is masked. ``stop`` ends the text before the first word.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Literal

from foveola.guard.fold import BARRIER, BARRIER_SEEN, joins_words
from foveola.guard.words import MANY, Words

Action = Literal["mask", "drop", "stop"]
ACTIONS: tuple[Action, ...] = ("mask", "drop", "stop")
LONG = 64
"""Characters held back from which on their places are kept, so that a chunk never costs more than its own length."""


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
        return self._removing.holding + (self._joining.holding if self._joining is not None else 0)

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


class _Removing:
    """One pass over a text: every character covered by an occurrence is removed, in the way of ``action``.

    ``tail``, while it is not None, is all that is held back: a short text whose characters have one letter of normal
    form or none. Otherwise characters are held in a list with, for each, the length of the normal form up to and with
    it. Those that can no longer become part of a word leave at the end of a chunk. A covered part is a span of places
    in what is held.
    """

    def __init__(self, words: Words, action: Action) -> None:
        self.tail: str | None = ""
        self.held: list[str] = []
        self.hits = 0
        self.stopped = False
        self._fold = words.table.get
        self._letter = words.letters.get
        self._walker = words.walker
        self._action = action
        self._state = 0
        self._parted = 0  # characters of the tail up to and with the last one that has no letter
        self._length = 0  # of the normal form since places and lengths are kept
        self._ends: list[int] = []
        self._spans: list[tuple[int, int]] = []
        self._before = ""  # the character that left last, and the length of the normal form then
        self._before_end = 0
        self._whole: list[int] = []  # where whole words begin that end here, if no letter follows

    @property
    def holding(self) -> int:
        """How many characters."""
        return len(self.held if self.tail is None else self.tail)

    def feed(self, text: str) -> str:
        tail = self.tail
        if tail is None:
            return "" if self.stopped else self._feed(text)
        letter, walker = self._letter, self._walker
        known, child, fail = walker.known, walker.child, walker.fail
        state, parted = self._state, self._parted
        spans: list[tuple[int, int]] = []
        for at, character in enumerate(text, len(tail) + 1):
            part = letter(character, character)
            if not part:
                parted = at
                continue
            while True:  # Walker.step, but for the call
                children = known.get(state)
                found = child(state, part) if children is None else children.get(part)
                if found is not None or not state:
                    break
                state = fail[state]
            if found is None:
                if part is MANY:
                    return self._careful(text)
            elif found >= 0:
                state = found
            else:
                state = -found
                if walker.whole[state] or self._action == "stop":
                    return self._careful(text)
                first = at - walker.cover[state]
                spans.append((first if first >= parted else self._reach(tail + text, at, walker.cover[state]), at))
        self._state = state
        if spans:
            self.hits += len(spans)
            self._spans += spans
        text = tail + text
        count = len(text) - walker.hold[state]
        if count < parted and count < len(text):
            count = self._reach(text, len(text), walker.hold[state])
        self._parted = parted - count if parted > count else 0
        self.tail = text[count:]
        if len(text) - count > LONG:
            self._keep_places()
        if not count:
            return ""
        self._before = text[count - 1]
        return self._without(text[:count]) if self._spans else text[:count]

    def _reach(self, text: str, end: int, letters: int) -> int:
        """Where the last ``letters`` letters of ``text[:end]`` begin."""
        letter = self._letter
        for place in range(end - 1, -1, -1):
            if letter(text[place], text[place]):
                letters -= 1
                if not letters:
                    return place
        return 0

    def _careful(self, text: str) -> str:
        self._keep_places()
        return self._feed(text)

    def _keep_places(self) -> None:
        """From the tail to lists."""
        assert self.tail is not None
        self.held = list(self.tail)
        self._ends = list(accumulate(len(self._fold(character, character)) for character in self.held))
        self._length = self._ends[-1] if self._ends else 0
        self._before_end = 0
        self.tail = None

    def _forget_places(self) -> None:
        """From lists to the tail, where no place in it matters."""
        if self._whole or len(self.held) > LONG:
            return
        letters = [self._letter(character, character) for character in self.held]
        if MANY not in letters:
            self.tail = "".join(self.held)
            self._parted = max((place for place, letter in enumerate(letters, 1) if not letter), default=0)
            self.held.clear()

    def _feed(self, text: str) -> str:
        held, ends, fold, walker = self.held, self._ends, self._fold, self._walker
        event, step = walker.event, walker.step
        state, length = self._state, self._length
        for character in text:
            if character == BARRIER:
                character = BARRIER_SEEN
            if self._whole and self._settle(joined=joins_words(character)):
                return self._stop(state, length)
            folded = fold(character, character)
            before, before_length = state, length
            held.append(character)
            if len(folded) == 1:  # nearly always
                state = step(state, folded)
                length += 1
                ends.append(length)
                happened = event[state]
            else:
                ends.append(length + len(folded))
                happened = 0
                for part in folded:
                    state = step(state, part)
                    length += 1
                    happened |= event[state]
                    if longest := walker.cover[state]:
                        self._cover(length - longest)
            if happened and self._happened(state, length, many=len(folded) != 1):
                held.pop()
                ends.pop()
                return self._stop(before, before_length)
        self._state, self._length = state, length
        out = self._release(self._kept_from(state, length))
        self._forget_places()
        return out

    def end(self) -> str:
        if self.stopped:
            return ""
        if self.tail is not None:
            left, self.tail, self._state, self._parted = self.tail, "", 0, 0
            return self._without(left)
        if self._whole and self._settle(joined=False):
            return self._stop(self._state, self._length)
        return self._release(self._length)

    def _happened(self, state: int, length: int, *, many: bool) -> bool:
        """Words end here: mark what they cover, remember whole ones. True where the text is to be stopped."""
        walker = self._walker
        if not many and (longest := walker.cover[state]):
            self._cover(length - longest)
        node = walker.whole[state]
        while node:
            start = length - walker.depth[node]
            if self._begins_word(start):
                self._whole.append(start)
            node = walker.whole[walker.fail[node]]
        return self._action == "stop" and self.hits > 0

    def _settle(self, *, joined: bool) -> bool:
        """It is known now whether a letter follows the whole words that may have ended. True where the text stops."""
        if joined:
            self._whole.clear()
            return False
        self._cover(min(self._whole))
        if self._action == "stop":
            return True  # with their beginnings, which say what had not left
        self._whole.clear()
        return False

    def _begins_word(self, start: int) -> bool:
        place = bisect_right(self._ends, start)  # the first character that reaches beyond it
        begin = self._ends[place - 1] if place else self._before_end
        before = self.held[place - 1] if place else self._before
        return begin == start and not (before and joins_words(before))

    def _cover(self, start: int) -> None:
        self.hits += 1
        self._spans.append((bisect_right(self._ends, start), len(self.held)))

    def _kept_from(self, state: int, length: int) -> int:
        return (
            min(length - self._walker.hold[state], *self._whole) if self._whole else length - self._walker.hold[state]
        )

    def _stop(self, state: int, length: int) -> str:
        """The rest of what may leave before the word that ends the text, after ``length`` of normal form."""
        self.stopped = True
        self._spans.clear()
        out = self._release(self._kept_from(state, length))
        self.held.clear()
        self._ends.clear()
        return out

    def _release(self, kept_from: int) -> str:
        """Let go of what ends at or before ``kept_from`` of the normal form."""
        count = bisect_right(self._ends, kept_from)
        if not count:
            return ""
        leaving = "".join(self.held[:count])
        self._before, self._before_end = leaving[-1], self._ends[count - 1]
        del self.held[:count], self._ends[:count]
        return self._without(leaving)

    def _without(self, leaving: str) -> str:
        """The characters that leave, which were the first ones held, without those that words cover."""
        count, spans = len(leaving), self._spans
        if len(spans) == 1:
            [(first, last)] = spans
            if first < count:
                cut = min(last, count)
                leaving = leaving[:first] + (BARRIER * (cut - first) if self._action == "mask" else "") + leaving[cut:]
        elif spans:
            kept = list(leaving)
            for first, last in spans:
                for place in range(first, min(last, count)):
                    kept[place] = BARRIER if self._action == "mask" else ""
            leaving = "".join(kept)
        self._spans = [(max(0, first - count), last - count) for first, last in spans if last > count]
        return leaving
