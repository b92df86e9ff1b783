from __future__ import annotations

import json
import struct
from hashlib import blake2b
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveola.engine.features import Selected
from foveola.engine.travel import (
    FEATURES,
    Garbled,
    Look,
    Sight,
    Sights,
    pack_look,
    pack_sights,
    unpack_look,
    unpack_sights,
)

ONE = Sight((56, 28), 2, Selected(np.array([[1, 2, 3], [4, 5, 6]], np.float32), np.arange(2)))
TWO = Sight((56, 56), 4, Selected(np.ones((2, 3), np.float32), np.array([1, 3]), np.array([2, 2], np.float32)))
SIGHTS = Sights("v" * 64, (ONE, TWO))


def test_features_arrive_as_they_were_sent() -> None:
    got = unpack_sights(pack_sights(SIGHTS))
    assert got.version == SIGHTS.version
    for one, other in zip(got.sights, SIGHTS.sights, strict=True):
        assert (one.used, one.tokens) == (other.used, other.tokens)
        assert np.array_equal(one.seen.features, other.seen.features)
        assert np.array_equal(one.seen.kept, other.seen.kept)
    assert got.sights[0].seen.counts is None
    assert got.sights[1].seen.counts is not None
    assert got.sights[1].seen.counts.tolist() == [2, 2]


def test_pictures_arrive_as_they_were_sent() -> None:
    for look in (Look((b"one", b"two!"), 120, 16), Look((b"x",))):
        assert unpack_look(pack_look(look)) == look


@pytest.mark.parametrize(
    "whole", [pack_sights(SIGHTS), pack_look(Look((b"picture",), 5))], ids=["features", "pictures"]
)
def test_no_byte_can_change_or_lack(whole: bytes) -> None:
    unpack = unpack_sights if whole.startswith(FEATURES) else unpack_look
    for at in range(len(whole)):
        broken = bytearray(whole)
        broken[at] ^= 1
        if at < 8 + struct.unpack("<I", whole[4:8])[0] and at >= 8:
            continue  # the head's own words are held against the data below
        with pytest.raises(Garbled):
            unpack(bytes(broken))
    for length in range(len(whole)):
        with pytest.raises(Garbled):
            unpack(whole[:length])
    with pytest.raises(Garbled):
        unpack(whole + b"\0")


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_noise_is_refused(noise: bytes) -> None:
    for unpack in (unpack_sights, unpack_look):
        for data in (noise, b"FVF1" + noise, b"FVP1" + noise):
            with pytest.raises(Garbled):
                unpack(data)


def forged(data: bytes, **head: Any) -> bytes:
    text = json.dumps({"digest": blake2b(data, digest_size=32).hexdigest(), **head}).encode()
    return FEATURES + struct.pack("<I", len(text)) + text + data


PICTURE = {"used": [56, 28], "tokens": 2, "rows": 2, "width": 3, "counts": False}
DATA = np.ones(6, "<f4").tobytes() + np.arange(2, dtype="<u4").tobytes()


@pytest.mark.parametrize(
    ("data", "pictures", "message"),
    [
        (DATA, [], "expected 1 to 64 pictures"),
        (DATA, [PICTURE] * 65, "expected 1 to 64 pictures"),
        (DATA, [5], "a picture is not described"),
        (DATA, [{**PICTURE, "rows": 2**40}], "out of range"),
        (DATA, [{**PICTURE, "rows": -1}], "out of range"),
        (DATA, [{**PICTURE, "rows": 2.0}], "out of range"),
        (DATA, [{**PICTURE, "width": 65_536, "rows": 65_536, "tokens": 65_536}], "the data is cut off"),
        (DATA, [{**PICTURE, "tokens": 1}], "do not fit together"),
        (DATA, [{**PICTURE, "used": [0, 28]}], "do not fit together"),
        (DATA, [{**PICTURE, "counts": True}], "the data is cut off"),
        (DATA + b"\0\0\0\0", [PICTURE], "4 bytes are left over"),
        (DATA[:-8] + np.array([1, 0], "<u4").tobytes(), [PICTURE], "do not ascend"),
        (DATA[:-8] + np.array([0, 2], "<u4").tobytes(), [PICTURE], "do not ascend"),
        (np.array([np.nan] * 6, "<f4").tobytes() + DATA[24:], [PICTURE], "no numbers"),
    ],
)
def test_a_forged_head_is_not_believed(data: bytes, pictures: Any, message: str) -> None:
    with pytest.raises(Garbled, match=message):
        unpack_sights(forged(data, version="v", pictures=pictures))
    assert unpack_sights(forged(DATA, version="v", pictures=[PICTURE])).version == "v"
