from __future__ import annotations

import struct
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveola.learn.federate import index
from foveola.learn.federate.codec import compress
from foveola.learn.federate.options import MAX_BYTES, MAX_WIDTH, Rejected
from foveola.learn.federate.wire import OVERHEAD_BYTES, Snapshot, Update, digest, pack, unpack

RNG = np.random.default_rng(0)
VALUES = RNG.standard_normal(16 * 768).astype(np.float32)


def update(keep: float = 0.1) -> Update:
    return Update(16, 768, 3, 7, b"12345678", 40, compress(VALUES, keep))


def resealed(data: bytes) -> bytes:
    return data[:-4] + struct.pack("<I", zlib.crc32(data[:-4]))


@pytest.mark.parametrize("keep", [0.0001, 0.01, 0.1, 0.27, 0.5, 1.0])
def test_an_update_comes_back_as_it_was(keep: float) -> None:
    sent = update(keep)
    got = unpack(pack(sent))
    assert isinstance(got, Update)
    assert (got.rows, got.width, got.round, got.node, got.base, got.examples) == (16, 768, 3, 7, b"12345678", 40)
    assert (got.sparse.dense() == sent.sparse.dense()).all()


def test_a_tenth_of_the_entries_takes_less_than_a_twentieth_of_the_bytes() -> None:
    assert len(pack(update(0.1))) < 0.05 * VALUES.nbytes


def test_a_snapshot_comes_back_as_it_was() -> None:
    got = unpack(pack(Snapshot(9, VALUES.reshape(16, 768))))
    assert isinstance(got, Snapshot)
    assert got.round == 9
    assert (got.values == VALUES.reshape(16, 768)).all()


def test_nothing_over_the_limit_is_made_or_read() -> None:
    wide = compress(RNG.standard_normal(16 * 8192).astype(np.float32), 1.0)
    with pytest.raises(ValueError, match="over the limit of 120000"):
        pack(Update(16, 8192, 0, 1, b"12345678", 1, wide))
    assert len(pack(Snapshot(0, np.ones((16, MAX_WIDTH), np.float32)))) <= MAX_BYTES
    with pytest.raises(Rejected, match="120001 bytes came; at most 120000") as caught:
        unpack(bytes(MAX_BYTES + 1))
    assert caught.value.reason == "oversize"


@pytest.mark.parametrize("keep", [0.01, 0.5])
def test_every_cut_and_every_flipped_byte_is_refused(keep: float) -> None:
    data = pack(Update(16, 8, 3, 7, b"12345678", 40, compress(VALUES[:128], keep)))
    for end in range(len(data)):
        with pytest.raises(Rejected):
            unpack(data[:end])
    for at in range(len(data)):
        with pytest.raises(Rejected):
            unpack(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=6), st.sampled_from([0.02, 0.1, 0.6]))
def test_bytes_forged_under_a_right_checksum_never_do_more_than_be_refused(at: int, forged: bytes, keep: float) -> None:
    data = bytearray(pack(Update(16, 16, 3, 7, b"12345678", 40, compress(VALUES[:256], keep))))
    at %= len(data) - 4
    data[at : at + len(forged)] = forged
    try:
        got = unpack(resealed(bytes(data)))
    except Rejected as rejected:
        assert rejected.reason in ("malformed", "oversize")
        return
    assert isinstance(got, Update)
    dense = got.sparse.dense()
    assert dense.shape == (got.rows * got.width,)
    assert np.isfinite(dense).all()


@pytest.mark.parametrize(
    ("offset", "forged", "why"),
    [
        (5, b"\x09", "kind and node"),
        (6, b"\x07", "unknown coding"),
        (12, struct.pack("<I", 2**31), "entries for 16 rows"),
        (40, struct.pack("<f", float("nan")), "scale is not"),
        (40, struct.pack("<f", -1.0), "scale is not"),
        (8, struct.pack("<H", 0), "entries for 0 rows"),
    ],
)
def test_a_field_out_of_range_is_named(offset: int, forged: bytes, why: str) -> None:
    data = bytearray(pack(update()))
    data[offset : offset + len(forged)] = forged
    with pytest.raises(Rejected, match=why):
        unpack(resealed(bytes(data)))


def test_levels_that_no_sender_writes_are_refused() -> None:
    data = bytearray(pack(update()))
    for level in (0, 128):
        data[-5] = level
        with pytest.raises(Rejected, match="levels outside of 1 to 127"):
            unpack(resealed(bytes(data)))


def test_a_snapshot_with_strange_numbers_is_refused() -> None:
    values = VALUES.reshape(16, 768).copy()
    values[3, 3] = np.inf
    with pytest.raises(Rejected, match="not finite"):
        unpack(pack(Snapshot(0, values)))
    data = bytearray(pack(Snapshot(0, VALUES.reshape(16, 768))))
    data[OVERHEAD_BYTES + 9] ^= 1
    with pytest.raises(Rejected, match="not those of its digest"):
        unpack(resealed(bytes(data)))


def test_the_digest_is_of_the_values() -> None:
    assert digest(VALUES) == digest(VALUES.copy()) != digest(VALUES + 1)


@settings(deadline=None)
@given(st.sets(st.integers(0, 499)), st.sampled_from([500, 504]))
def test_positions_come_back(found: set[int], size: int) -> None:
    positions = np.array(sorted(found), np.int64)
    coded = index.encode(positions, size)
    assert index.decode(coded, len(positions), size).tolist() == sorted(found)
    assert len(coded.data) <= (size + 7) // 8


def test_positions_that_fall_or_leave_the_range_are_not_encoded() -> None:
    for wrong in ([3, 3], [5, 2], [1, 10], [-2, 4]):
        with pytest.raises(ValueError, match="rise strictly within 0..9"):
            index.encode(np.array(wrong, np.int64), 10)


def test_an_index_that_reaches_too_far_is_refused() -> None:
    coded = index.encode(np.array([2, 190], np.int64), 200)
    assert coded.coding == index.RICE
    with pytest.raises(ValueError, match="outside of the prompt"):
        index.decode(coded, 2, 190)
    with pytest.raises(ValueError, match="another number"):
        index.decode(coded, 3, 200)
