"""One token from one row of logits: greedy, temperature, top-k, top-p, with a seed of its own per request.

The order is that of the common servers: temperature, then top-k, then top-p (nucleus sampling, Holtzman et
al. 2020), then one uniform number decides by inverse transform. Everything works on preallocated float
buffers; only the candidates that survive top-k are sorted.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from foveola.exchange import Sampling, Unavailable

Logits = NDArray[np.float32]


class Sampler:
    """Draws the tokens of one request; not shared between requests, not thread-safe.

    The same seed, options and logits give the same tokens, whatever else the engine does meanwhile. Without
    a seed the operating system's entropy is used. A logit of NaN is a token that can't be drawn.
    """

    def __init__(self, sampling: Sampling) -> None:
        self._greedy = sampling.temperature == 0
        self._temperature = sampling.temperature
        self._top_k = sampling.top_k
        self._top_p = sampling.top_p
        # Philox is counter-based: its stream for a seed is documented and stable between numpy releases.
        self._random = None if self._greedy else np.random.Generator(np.random.Philox(sampling.seed))
        self._scratch: NDArray[np.float32] = np.empty(0, np.float32)

    def draw(self, logits: Logits) -> tuple[int, float]:
        """The next token and the natural log of the model's own probability for it.

        ``logits`` is float32 ``[vocab]`` and stays as it is. The log-probability is that of the untempered
        softmax over the whole vocabulary, so that it says the same whatever the sampling options are.
        Raises ``Unavailable`` when no logit is a number: the model's arithmetic is broken, and guessing a
        token would hide it.
        """
        best = int(logits.argmax())  # numpy's argmax returns the first NaN where there is one
        top = logits.item(best)
        if not math.isfinite(top):
            logits = _numbers_only(logits)
            best = int(logits.argmax())
            top = logits.item(best)
        if self._scratch.size != logits.size:
            self._scratch = np.empty(logits.size, np.float32)
        shifted = np.subtract(logits, top, out=self._scratch)
        token = best if self._random is None else self._choose(shifted, self._random.random())
        chosen = shifted.item(token)
        np.exp(shifted, out=shifted)
        # numpy sums in pairs, so float32 is enough; the best token alone contributes 1, so the log exists.
        return token, chosen - math.log(np.add.reduce(shifted))

    @staticmethod
    def top(logits: Logits, count: int) -> list[tuple[int, float]]:
        """The ``count`` likeliest tokens and the log of their probabilities, likeliest first; ties by number."""
        shifted = logits.astype(np.float64) - np.nanmax(logits)
        total = math.log(np.nansum(np.exp(shifted)))
        edge = np.argpartition(-shifted, min(count, shifted.size - 1))[:count]
        best = sorted(edge.tolist(), key=lambda token: (-shifted[token], token))
        return [(token, float(shifted[token]) - total) for token in best]

    def _choose(self, shifted: Logits, uniform: float) -> int:
        """The token at the quantile ``uniform`` of the truncated, tempered distribution."""
        vocab = shifted.size
        keep = min(self._top_k, vocab) if self._top_k else vocab
        if keep < vocab:
            # Ties at the edge are decided by the token's number, not by how a partition happens to swap them.
            edge = np.partition(shifted, vocab - keep)[vocab - keep]
            above = np.flatnonzero(shifted > edge)
            level = np.flatnonzero(shifted == edge)[: keep - above.size]
            tokens = np.concatenate([above, level])
        else:
            tokens = np.arange(vocab)
        with np.errstate(over="ignore", divide="ignore"):  # a tiny temperature sends the rest to exactly 0
            weights = np.exp(shifted[tokens].astype(np.float64) / max(self._temperature, 1e-300))
        order = np.lexsort((tokens, -weights))
        cumulative = np.cumsum(weights[order])
        if self._top_p < 1:
            nucleus = int(np.searchsorted(cumulative, self._top_p * cumulative[-1], side="left")) + 1
            cumulative = cumulative[:nucleus]
        index = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
        return int(tokens[order[min(index, cumulative.size - 1)]])


def _numbers_only(logits: Logits) -> Logits:
    """NaN becomes "never", infinity "as sure as a float can be"; raises where nothing is left to draw."""
    largest = float(np.finfo(np.float32).max) / 4  # differences of two such numbers stay finite
    clean = np.nan_to_num(logits, nan=-np.inf, posinf=largest, neginf=-np.inf)
    if not np.isfinite(clean).any():
        raise Unavailable(
            "The model gave no number for any token; expected finite scores. Its weights or the picture drive the "
            "arithmetic out of range: check the bundle with `foveola inspect`, and try another picture."
        )
    return clean
