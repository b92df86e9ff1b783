from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foveola.exchange import Damaged, Unavailable
from foveola.learn.federate.codec import compress
from foveola.learn.federate.options import FederationOptions, Rejected
from foveola.learn.federate.rounds import Federation
from foveola.learn.federate.wire import Snapshot, Update, digest, pack, unpack

OPTIONS = FederationOptions(width=12, keep=0.5, history=3)
RNG = np.random.default_rng(3)


def update(federation: Federation, node: int) -> Update:
    sparse = compress(RNG.standard_normal(16 * 12).astype(np.float32), 0.5, 1.0)
    return Update(16, 12, federation.round, node, digest(federation.prompt), 10, sparse)


def rounds(federation: Federation, count: int) -> None:
    for _ in range(count):
        for node in (1, 2, 3):
            federation.accept(node, pack(update(federation, node)))
        federation.close()


def reason(federation: Federation, sender: int, message: Update | Snapshot | bytes) -> str:
    with pytest.raises(Rejected) as caught:
        federation.accept(sender, message if isinstance(message, bytes) else pack(message))
    assert caught.value.message.endswith(".")
    return caught.value.reason


def test_what_does_not_count_is_refused_with_a_reason() -> None:
    federation = Federation.create(OPTIONS, members=[1, 2, 3])
    old = update(federation, 1)
    rounds(federation, 1)
    good = update(federation, 1)
    assert reason(federation, 9, replace(good, node=9)) == "stranger"
    assert reason(federation, 2, good) == "stranger"
    assert reason(federation, 1, old) == "late"
    assert reason(federation, 1, replace(good, round=5)) == "early"
    assert reason(federation, 1, replace(good, base=b"another.")) == "stale"
    assert reason(federation, 1, replace(good, rows=8, width=24)) == "shape"
    assert reason(federation, 1, Snapshot(1, federation.prompt)) == "malformed"
    assert reason(federation, 1, replace(good, node=0)) == "malformed"
    assert reason(federation, 1, pack(good)[:-1]) == "malformed"
    assert reason(federation, 1, bytes(120_001)) == "oversize"
    federation.accept(1, pack(good))
    assert reason(federation, 1, good) == "replayed"
    federation.accept(2, pack(update(federation, 2)))
    closed = federation.close()
    assert (closed.round, closed.updates) == (1, 2)
    assert closed.rejected["stranger"] == 2
    assert sum(closed.rejected.values()) == 11


def test_a_round_without_a_quorum_stays_open() -> None:
    federation = Federation.create(OPTIONS)
    federation.accept(1, pack(update(federation, 1)))
    with pytest.raises(Unavailable, match="Round 0 has 1 updates and needs 2"):
        federation.close()
    assert (federation.round, federation.received) == (0, 1)
    assert not federation.prompt.any()


def test_the_order_of_arrival_does_not_matter() -> None:
    one, other = Federation.create(OPTIONS), Federation.create(OPTIONS)
    updates = [pack(update(one, node)) for node in (1, 2, 3)]
    for node, data in enumerate(updates, 1):
        one.accept(node, data)
    for node, data in reversed(list(enumerate(updates, 1))):
        other.accept(node, data)
    one.close()
    other.close()
    assert (one.prompt == other.prompt).all()
    assert one.prompt.any()


def test_nodes_catch_up_by_broadcasts_or_by_a_snapshot() -> None:
    federation = Federation.create(replace(OPTIONS, keep=0.1, history=2))
    rounds(federation, 4)
    assert federation.messages_for(4) == []
    assert len(federation.messages_for(3)) == 1
    assert len(federation.messages_for(2)) == 2
    for known in (None, 0, 9):
        (data,) = federation.messages_for(known)
        snapshot = unpack(data)
        assert isinstance(snapshot, Snapshot)
        assert (snapshot.values == federation.prompt).all()


def test_a_round_resumes_from_disk_as_if_nothing_had_happened(tmp_path: Path) -> None:
    kept, memory = Federation.create(OPTIONS, tmp_path / "fed"), Federation.create(OPTIONS)
    for number in range(3):
        for node in (1, 2, 3):
            data = pack(update(kept, node))
            kept.accept(node, data)
            memory.accept(node, data)
            kept = Federation.resume(tmp_path / "fed")
            assert (kept.round, kept.received) == (number, node)
        assert reason(kept, 3, data) == "replayed"
        kept.close()
        memory.close()
        assert (kept.prompt == memory.prompt).all()
    again = Federation.resume(tmp_path / "fed")
    assert again.options == OPTIONS
    assert again.messages_for(1) == memory.messages_for(1)


def test_a_damaged_update_of_the_open_round_is_left_out(tmp_path: Path) -> None:
    federation = Federation.create(OPTIONS, tmp_path)
    for node in (1, 2):
        federation.accept(node, pack(update(federation, node)))
    (tmp_path / "inbox" / "00000000" / "1").write_bytes(b"cut")
    (tmp_path / "inbox" / "00000000" / ".3.partial").write_bytes(b"half")
    assert Federation.resume(tmp_path).received == 1


def test_a_killed_write_leaves_the_last_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    federation = Federation.create(OPTIONS, tmp_path)
    rounds(federation, 1)
    before = federation.prompt
    for node in (1, 2):
        federation.accept(node, pack(update(federation, node)))
    with monkeypatch.context() as patch:
        patch.setattr("foveola.artifact.atomic._move_into_place", lambda *_, **__: (_ for _ in ()).throw(OSError(28)))
        with pytest.raises(OSError, match="28"):
            federation.close()
    for one in (federation, Federation.resume(tmp_path)):
        assert (one.round, one.received) == (1, 2)
        assert (one.prompt == before).all()


@pytest.mark.parametrize("name", ["prompt.f32", "round.json", "residual.f32", "centre.f32", "broadcast-00000000"])
def test_a_damaged_state_is_named(tmp_path: Path, name: str) -> None:
    rounds(Federation.create(OPTIONS, tmp_path), 1)
    raw = bytearray((tmp_path / "state" / name).read_bytes())
    raw[5] ^= 4
    (tmp_path / "state" / name).write_bytes(raw)
    with pytest.raises(Damaged, match=f"{name} is damaged"):
        Federation.resume(tmp_path)


def test_a_second_start_does_not_overwrite_the_first(tmp_path: Path) -> None:
    with pytest.raises(Damaged, match="holds no federation"):
        Federation.resume(tmp_path)
    Federation.create(OPTIONS, tmp_path)
    with pytest.raises(FileExistsError, match="already holds a federation"):
        Federation.create(OPTIONS, tmp_path)
