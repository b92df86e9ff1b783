"""How familiar a wording is: its likeness to the nearest wording that is known, by words and pairs of words.

The cosine of binary word vectors weighted by inverse document frequency (Spärck Jones 1972). Identifiers and numbers
count for nothing, so that two instructions are alike when what is said around them is. Needs no encoder: the encoder's
own cosine is lowest for noise and not for unknown wordings.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foveola.bridge.phrases import tokens_of
from foveola.bridge.text import clean, is_chinese, shape_of, sounds_of


class Wordings:
    """Known wordings, indexed by the words in them; immutable."""

    def __init__(self, texts: Sequence[str], ids: dict[str, re.Pattern[str]]) -> None:
        self._ids = ids
        self._count = len(texts)
        documents = [self._words(text) for text in texts]
        self._found_in = Counter(word for words in documents for word in words)
        self._places: dict[str, tuple[list[int], list[float]]] = {}
        for index, words in enumerate(documents):
            length = self._length(words)
            for word in words:
                rows, values = self._places.setdefault(word, ([], []))
                rows.append(index)
                values.append(self._weight(word) / length)

    def _words(self, text: str) -> frozenset[str]:
        """Words by shape, Chinese characters by sound (what was misread or misheard stays familiar), and pairs."""
        found: set[str] = set()
        before = ""
        for token in tokens_of(clean(text).lower(), self._ids):
            if token.name or token.text.isdigit():
                before = ""
                continue
            word = min(sounds_of(token.text)) if is_chinese(token.text) else shape_of(token.text)
            found.add(word)
            if before:
                found.add(f"{before} {word}")
            before = word
        return frozenset(found)

    def _weight(self, word: str) -> float:
        return 1.0 + math.log((self._count + 1) / (self._found_in[word] + 1))

    def _length(self, words: frozenset[str]) -> float:
        return math.sqrt(sum(self._weight(word) ** 2 for word in words)) or 1.0

    def alike(self, text: str) -> NDArray[np.float64]:
        """Likeness [wordings] (0..1) of ``text`` to each; a text of names and numbers alone is like all of them."""
        words = self._words(text)
        if not words:
            return np.ones(self._count)
        found, length = np.zeros(self._count), self._length(words)
        for word in words & self._places.keys():
            rows, values = self._places[word]
            found[rows] += np.array(values) * self._weight(word) / length
        return np.minimum(found, 1.0)

    def nearest(self, text: str) -> float:
        """Likeness (0..1) to the nearest; 0 where nothing is known."""
        return float(self.alike(text).max(initial=0.0))
