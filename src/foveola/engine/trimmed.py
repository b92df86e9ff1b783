"""A head for the tokens of one domain, with the full head behind it.

The head of a language model is a matrix with a row per token of the vocabulary; a small model with a large vocabulary
spends a quarter of its decoding there. A trimmed bundle (``foveola trim``) has two heads: that of the decoder graph
makes logits for the tokens that its domain uses, and a graph of its own those of all tokens, from the same state. The
second one runs where the first is not sure: where its likeliest token has less than the probability that was enough for
every held-out answer of the domain to come out unchanged. Who samples, or asks for log-probabilities, always gets the
full head's.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from foveola.artifact import Bundle
from foveola.engine.features import Floats
from foveola.exchange import Damaged

HEAD = "head"
"""The full head's role among the graphs of a bundle; input ``hidden`` [B, R, H], output ``logits`` [B, R, V]."""
KEPT_FILE = "kept_tokens.npy"


class TrimmedHead:
    """Widens the logits of the kept tokens to the whole vocabulary, and completes them where that is called for."""

    def __init__(self, bundle: Bundle, session: Any) -> None:
        """``session`` is the full head's. Raises ``Damaged`` where model.json and the tokens do not fit together."""
        section, vocabulary = bundle.model["trim"], int(bundle.model["text"]["vocab_size"])
        self.kept = np.load(io.BytesIO(bundle.read(KEPT_FILE)), allow_pickle=False).astype(np.int64)
        self.least = float(section["least_probability"])
        if self.kept.ndim != 1 or not self.kept.size or self.kept.min() < 0 or self.kept.max() >= vocabulary:
            raise Damaged(f"{KEPT_FILE} does not name tokens of this vocabulary; trim the bundle anew.")
        self._session = session
        self._vocabulary = vocabulary
        self.completed = self.drawn = 0  # rows that went through the full head, and all

    def widened(self, logits: Floats) -> Floats:
        """Float32 ``[n, kept]`` as ``[n, vocab]``: tokens that were trimmed away cannot be drawn."""
        wide = np.full((len(logits), self._vocabulary), -np.inf, np.float32)
        wide[:, self.kept] = logits
        return wide

    def complete(self, wide: Floats, hidden: Floats, exact: Sequence[bool]) -> None:
        """Put the full head's logits into the rows of ``wide`` that are ``exact`` or not sure; ``hidden`` [n, H]."""
        rows = np.flatnonzero(np.asarray(exact) | (top_probability(wide[:, self.kept]) < self.least))
        self.drawn += len(wide)
        self.completed += len(rows)
        if rows.size:
            wide[rows] = self._session.run(["logits"], {"hidden": hidden[rows][np.newaxis]})[0][0]


def top_probability(logits: Floats) -> Floats:
    """Float32 ``[n, k]`` -> the softmax probability of the likeliest of each row, ``[n]``; NaN where there is one."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    probability: Floats = 1 / np.exp(shifted).sum(axis=-1)
    return probability
