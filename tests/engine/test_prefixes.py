"""Prompts that begin alike are found by what they are made of, and by nothing less."""

from __future__ import annotations

import numpy as np

from foveola.engine.features import Chunk, Numbers
from foveola.engine.prefixes import LEAST, PrefixCache, names_of

SYSTEM = list(range(100, 120))


def prompt(ids: list[int], features: np.ndarray | None = None, at: int = 0, shift: int = 0) -> Chunk:
    rows = np.arange(0 if features is None else len(features)) + at
    positions = np.tile(np.arange(len(ids)) + shift, (3, 1))
    return Chunk(np.array(ids), positions, 0, rows, features)


def seen(seed: int, rows: int = 8) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, 4)).astype(np.float32)


def kept(names: Numbers) -> PrefixCache:
    cache = PrefixCache(1 << 20)
    cache.keep("weights", names, (np.zeros((1, names.shape[1], 2), np.float32),))
    return cache


def found(cache: PrefixCache, asked: Chunk, weights: str = "weights") -> int:
    match = cache.longest(weights, names_of(asked))
    return 0 if match is None else match[1]


def test_a_common_beginning_is_found() -> None:
    cache = kept(names_of(prompt([*SYSTEM, 1, 2, 3])))
    assert found(cache, prompt([*SYSTEM, 7, 8])) == len(SYSTEM)
    assert found(cache, prompt([*SYSTEM, 1, 2, 9])) == len(SYSTEM) + 2
    assert found(cache, prompt([9, *SYSTEM])) == 0


def test_the_last_token_is_always_computed() -> None:
    ids = [*SYSTEM, 1, 2, 3]
    assert found(kept(names_of(prompt(ids))), prompt(ids)) == len(ids) - 1


def test_pictures_are_what_they_look_like() -> None:
    ids = [*SYSTEM, *[5] * 8, 1, 2]
    at = len(SYSTEM)
    cache = kept(names_of(prompt(ids, seen(0), at)))
    assert found(cache, prompt([*ids[:-2], 9, 9, 9], seen(0), at)) == at + 8
    assert found(cache, prompt(ids, seen(1), at)) == at
    touched = seen(0)
    touched[5, 2] = np.nextafter(touched[5, 2], np.float32(9))
    assert found(cache, prompt(ids, touched, at)) == at + 5
    assert found(cache, prompt(ids)) == at  # the same ids as text


def test_positions_and_weights_count() -> None:
    ids = [*SYSTEM, 1, 2, 3]
    cache = kept(names_of(prompt(ids)))
    assert found(cache, prompt(ids, shift=1)) == 0
    assert found(cache, prompt(ids), "other weights") == 0


def test_a_short_beginning_is_not_worth_a_copy() -> None:
    cache = kept(names_of(prompt([*range(LEAST - 1), 50, 51])))
    assert found(cache, prompt([*range(LEAST - 1), 60])) == 0


def test_the_longest_wins_and_old_ones_go() -> None:
    names = [names_of(prompt([*SYSTEM, *tail])) for tail in ([1, 1, 1], [1, 2, 2], [9, 9, 9])]
    size = names[0].nbytes + 23 * 8
    cache = PrefixCache(2 * size)
    for each in names:
        cache.keep("weights", each, (np.zeros((1, 23, 2), np.float32),))
    assert cache.use.entries == 2
    assert found(cache, prompt([*SYSTEM, 1, 2, 5])) == 22
    assert found(cache, prompt([*SYSTEM, 1, 1, 5])) == 21  # of the one that is left


def test_what_is_mostly_known_is_not_kept_again() -> None:
    cache = PrefixCache(1 << 20)
    names = names_of(prompt(list(range(40))))
    assert cache.worth_keeping(names, 0)
    assert cache.worth_keeping(names, 20)
    assert not cache.worth_keeping(names, 21)
    assert not PrefixCache(0).worth_keeping(names, 0)
