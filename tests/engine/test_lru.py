"""A cache bounded in bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foveola.engine.lru import ByteCache, CacheUse


def test_what_was_asked_for_longest_ago_goes_first() -> None:
    cache: ByteCache[str, bytes] = ByteCache(10, len)
    cache.put("a", b"1234")
    cache.put("b", b"1234")
    assert cache.get("a") == b"1234"
    cache.put("c", b"1234")
    assert [key for key, _ in cache.items()] == ["a", "c"]
    assert cache.get("b") is None
    assert cache.use == CacheUse(hits=1, misses=1, entries=2, bytes=8)


def test_a_value_too_large_is_not_kept_and_nothing_goes_for_it() -> None:
    cache: ByteCache[str, bytes] = ByteCache(10, len)
    cache.put("a", b"1234")
    cache.put("b", b"x" * 11)
    assert [key for key, _ in cache.items()] == ["a"]
    nothing: ByteCache[str, bytes] = ByteCache(0, len)
    nothing.put("a", b"1")
    assert nothing.get("a") is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 12)), max_size=50))
def test_the_bytes_are_those_that_are_held(puts: list[tuple[int, int]]) -> None:
    cache: ByteCache[int, bytes] = ByteCache(16, len)
    for key, size in puts:
        cache.put(key, bytes(size))
        held = sum(len(value) for _, value in cache.items())
        assert cache.use.bytes == held <= 16
