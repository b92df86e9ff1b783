"""Prompts that begin alike are computed once: keys and values of earlier prompts, found by what they were made of.

A token's key and value depend on what stands in its place and before it, on the positions, and on the decoder's
weights, on nothing else. So that is the name of an entry, token by token: the id where there is text, a digest of the
visual feature where there is a picture. The same system prompt is found, the same picture with another question, and
the conversation so far; a picture that differs in one pixel, or was encoded with other weights, or of which other
tokens were kept, is not.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np

from foveola.engine.features import Chunk, Floats, Numbers
from foveola.engine.lru import ByteCache, CacheUse

_SECRET = secrets.token_bytes(32)
"""Digests are keyed with it, so that nobody can prepare two pictures whose tokens are taken for one another."""
LEAST = 16
"""Tokens: less than that is computed as fast as it is copied."""


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """``names`` int64 ``[2 + axes, S]``: what stands in each place, and at which position. ``kv`` float32
    ``[kv_heads, S, head_dim]`` per buffer of the runner, in its order."""

    names: Numbers
    kv: tuple[Floats, ...]

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return self.names.nbytes + sum(buffer.nbytes for buffer in self.kv)


def names_of(prompt: Chunk) -> Numbers:
    """Which computation each token of a prompt is: int64 ``[2 + axes, S]`` (id, digest of the feature, positions)."""
    names = np.zeros((2 + len(prompt.positions), len(prompt.ids)), np.int64)
    names[0] = prompt.ids
    names[2:] = prompt.positions
    if prompt.features is not None:
        seen = prompt.features
        if prompt.bias is not None:  # a token that stands for several is another one than by itself
            seen = np.concatenate([seen, prompt.bias[prompt.rows, None]], axis=1)
        digests = b"".join(blake2b(row.tobytes(), digest_size=8, key=_SECRET).digest() for row in seen)
        names[1, prompt.rows] = np.frombuffer(digests, np.int64)
    return names


class PrefixCache:
    """Keys and values of prompts, bounded in bytes. Used by the engine's thread only.

    ``weights`` in the calls names the decoder's weights: entries of others are never found.
    """

    def __init__(self, limit: int) -> None:
        """``limit`` in bytes; 0 keeps nothing."""
        self._cache: ByteCache[tuple[str, bytes], Prefix] = ByteCache(limit, lambda prefix: prefix.nbytes)
        self._keeps = limit > 0

    def longest(self, weights: str, names: Numbers) -> tuple[Prefix, int] | None:
        """The entry that begins with most of the same tokens, and how many; the last token is never among them,
        since its logits have to be computed."""
        best: tuple[Prefix, int] | None = None
        found: tuple[str, bytes] | None = None
        for key, prefix in self._cache.items():
            if key[0] != weights:
                continue
            length = _common(prefix.names, names[:, :-1])
            if length >= LEAST and (best is None or length > best[1]):
                best, found = (prefix, length), key
        if found is None:
            return None
        self._cache.get(found)  # it has been of use
        return best

    def worth_keeping(self, names: Numbers, known: int) -> bool:
        """Whether a prompt should be kept of which ``known`` tokens were found here: where most of it is new."""
        return self._keeps and names.shape[1] - known >= max(LEAST, names.shape[1] // 2)

    def keep(self, weights: str, names: Numbers, kv: tuple[Floats, ...]) -> None:
        """Keep the keys and values ``kv`` of a prompt; the arrays must be the cache's own."""
        self._cache.put((weights, blake2b(names.tobytes()).digest()), Prefix(names, kv))

    @property
    def use(self) -> CacheUse:
        """How it has served so far."""
        return self._cache.use


def _common(first: Numbers, second: Numbers) -> int:
    """How many columns are the same from the beginning on."""
    if len(first) != len(second):
        return 0
    shorter = min(first.shape[1], second.shape[1])
    differing = (first[:, :shorter] != second[:, :shorter]).any(axis=0)
    return int(differing.argmax()) if differing.any() else shorter
