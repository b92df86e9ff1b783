from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveola.cli import main
from foveola.exchange import Damaged, Invalid
from foveola.guard.digests import MAGIC, open_digests, read_digests, sort_digests, write_digests
from foveola.guard.keys import private_key, public_key
from tests.guard.signing import key_pair


def digests_of(count: int, start: int = 0) -> list[bytes]:
    return [hashlib.sha256(str(number).encode()).digest() for number in range(start, start + count)]


def rows_of(digests: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 32)


def test_what_is_in_is_found_and_nothing_else(tmp_path: Path) -> None:
    known, other = digests_of(5000), digests_of(5000, 5000)
    write_digests(tmp_path / "a", rows_of(known + known[:7]), name="line 3", version=4)
    listing = open_digests(tmp_path / "a")
    assert (listing.name, listing.version, listing.count, listing.signed) == ("line 3", 4, 5000, False)
    assert all(digest in listing for digest in known)
    assert not any(digest in listing for digest in other)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.sampled_from([b"\0", b"\1", b"\xff"]).map(lambda one: one * 24) | st.just(b"\7" * 24), max_size=9))
def test_digests_that_begin_alike_are_sorted_too(heads: list[bytes]) -> None:
    digests = [head + bytes([number % 3]) * 8 for number, head in enumerate(heads)]
    found = [row.tobytes() for row in sort_digests(rows_of(digests))] if digests else []
    assert found == sorted(set(digests))


def test_an_empty_list_knows_nothing(tmp_path: Path) -> None:
    write_digests(tmp_path / "a", np.zeros((0, 32), np.uint8), name="none", version=1)
    assert digests_of(1)[0] not in open_digests(tmp_path / "a")


def test_a_list_is_read_as_sha256sum_writes_it() -> None:
    [digest] = digests_of(1)
    assert read_digests(["# ours", "", f"{digest.hex()}  a picture.png", digest.hex().upper()]).shape == (2, 32)
    with pytest.raises(Invalid, match="Line 1 of b.txt holds no SHA-256: expected 64 hexadecimal digits"):
        read_digests(["1234"], "b.txt")


def test_a_signature_covers_every_byte(tmp_path: Path) -> None:
    private, public = key_pair(tmp_path, "plant")
    path = tmp_path / "a"
    write_digests(path, rows_of(digests_of(50)), name="a", version=1, key=private_key(private))
    key = public_key(public)
    assert open_digests(path, key).signed
    good = path.read_bytes()
    rng = random.Random(0)
    for _ in range(150):
        broken = bytearray(good)
        broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        path.write_bytes(broken)
        with pytest.raises(Damaged, match="^a "):
            open_digests(path, key)
    _, stranger = key_pair(tmp_path, "stranger")
    path.write_bytes(good)
    with pytest.raises(Damaged, match="not signed by the key that is trusted"):
        open_digests(path, public_key(stranger))


def test_a_signature_that_is_required_must_be_there(tmp_path: Path) -> None:
    _, public = key_pair(tmp_path, "plant")
    write_digests(tmp_path / "a", rows_of(digests_of(5)), name="a", version=1)
    with pytest.raises(Damaged, match="a is not signed, and a signature is required"):
        open_digests(tmp_path / "a", public_key(public))


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "it is empty"),
        (b"hello", "is no list of digests"),
        (MAGIC + b"\xff\xff\0\0", "truncated"),
        (MAGIC + b"\x02\0\0\0{}" + bytes(64), "header without name"),
    ],
)
def test_what_is_no_list_is_told(tmp_path: Path, data: bytes, told: str) -> None:
    (tmp_path / "a").write_bytes(data)
    with pytest.raises(Damaged, match=told):
        open_digests(tmp_path / "a")


def test_a_key_that_is_none_is_told(tmp_path: Path) -> None:
    private, public = key_pair(tmp_path, "plant")
    with pytest.raises(Damaged, match="plant.pem holds no private Ed25519 key"):
        private_key(public)
    with pytest.raises(Damaged, match="plant.key holds no public Ed25519 key"):
        public_key(private)


def test_the_command_makes_changes_and_signs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    private, public = key_pair(tmp_path, "plant")
    lines = [digest.hex() for digest in digests_of(4)]
    (tmp_path / "some.txt").write_text("\n".join(lines[:3]))
    (tmp_path / "more.txt").write_text(lines[3])
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    assert main(["guard", "allow", str(tmp_path / "some.txt"), "--out", first, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 1
    command = ["guard", "allow", str(tmp_path / "more.txt"), "--base", first, "--remove", str(tmp_path / "some.txt")]
    assert main([*command, "--sign", str(private), "--out", second]) == 0
    assert capsys.readouterr().out.endswith("second: 1 digests, version 2, signed\n")
    listing = open_digests(Path(second), public_key(public))
    assert digests_of(1, 3)[0] in listing and digests_of(1)[0] not in listing
