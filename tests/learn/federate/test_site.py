from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foveola.exchange import Damaged, Invalid, Unavailable
from foveola.learn.federate.options import FederationOptions, Rejected
from foveola.learn.federate.problem import synthetic
from foveola.learn.federate.rounds import Federation
from foveola.learn.federate.site import MEMORY_FILE, Site, open_site, read_features
from foveola.learn.federate.wire import Update, pack, unpack

FEATURES, LABELS = synthetic(60, 24, np.random.default_rng(0))
AGREED = FederationOptions(width=24, keep=0.1, quorum=1)


@pytest.fixture
def features(tmp_path: Path) -> Path:
    np.savez(tmp_path / "own.npz", features=FEATURES, labels=LABELS)
    return tmp_path / "own.npz"


def opened(folder: Path, features: Path) -> Site:
    return open_site(folder / "site", features, number=7, keep=0.1, steps=3)


def sent(data: bytes) -> np.ndarray:
    update = unpack(data)
    assert isinstance(update, Update)
    return update.sparse.dense()


def test_a_site_that_is_started_anew_for_every_message_sends_what_one_that_stays_does(
    tmp_path: Path, features: Path
) -> None:
    """Federations with one node each: in one the site is read from its folder in every round."""
    kept, anew = Federation.create(AGREED), Federation.create(AGREED)
    stays, known = opened(tmp_path / "a", features), None
    for number in range(4):
        counted = number - 1
        first = stays.answer(kept.messages_for(known), counted=counted)
        second = opened(tmp_path / "b", features).answer(anew.messages_for(known), counted=counted)
        assert first == second
        known = number
        for federation, data in ((kept, first), (anew, second)):
            federation.accept(7, data)
            federation.close()
    assert np.array_equal(kept.prompt, anew.prompt)
    assert kept.prompt.any()


def test_what_did_not_count_is_said_again(tmp_path: Path, features: Path) -> None:
    federation = Federation.create(AGREED)
    site = opened(tmp_path, features)
    lost = sent(site.answer(federation.messages_for(None), counted=-1))
    again = sent(opened(tmp_path, features).answer([], counted=-1))
    strong = np.abs(lost) == np.abs(lost).max()
    assert (np.abs(again[strong]) > 1.5 * np.abs(lost[strong])).all()  # the lost one and the new one together


def test_messages_that_come_twice_are_passed_over_and_gaps_are_told(tmp_path: Path, features: Path) -> None:
    federation = Federation.create(AGREED)
    site = opened(tmp_path, features)
    federation.accept(7, site.answer(federation.messages_for(None), counted=-1))
    federation.close()
    [broadcast] = federation.messages_for(0)
    first = unpack(site.answer([broadcast], counted=0))
    second = unpack(opened(tmp_path, features).answer([broadcast, broadcast], counted=0))
    assert isinstance(first, Update) and isinstance(second, Update)
    assert first.base == second.base and second.round == 1
    held = unpack(broadcast)
    assert isinstance(held, Update)
    with pytest.raises(Rejected, match="A broadcast of round 5 does not continue what is held"):
        opened(tmp_path, features).answer([pack(replace(held, round=5))], counted=0)
    with pytest.raises(Unavailable, match="holds no prompt yet; fetch a snapshot first"):
        opened(tmp_path, features).answer([], counted=0)  # it remembers that it is lost
    assert opened(tmp_path, features).answer(federation.messages_for(None), counted=0)


def test_the_folder_holds_no_feature(tmp_path: Path, features: Path) -> None:
    opened(tmp_path, features).answer(Federation.create(AGREED).messages_for(None), counted=-1)
    kept = (tmp_path / "site" / MEMORY_FILE).read_bytes()
    assert not any(row.tobytes() in kept for row in FEATURES)


def test_a_folder_of_another_federation_is_refused(tmp_path: Path, features: Path) -> None:
    (tmp_path / "site").mkdir()
    file = tmp_path / "site" / MEMORY_FILE
    file.write_bytes(b"nothing")
    with pytest.raises(Damaged, match="cannot be read, or is of another federation; remove it"):
        opened(tmp_path, features)
    zeros = np.zeros(5, np.float32)
    np.savez(file, prompt=zeros, residual=zeros, sent=zeros, known=0, sent_in=0)
    with pytest.raises(Damaged, match="of another federation"):
        opened(tmp_path, features)


@pytest.mark.parametrize(
    ("features", "labels", "message"),
    [
        (np.full((2, 4), np.nan), [0, 1], "something else than a .npz with finite features"),
        (np.zeros((2, 4)), [0, 16], "something else"),
        (np.zeros((2, 4)), [0], "something else"),
        (np.zeros((0, 4)), [], "something else"),
    ],
)
def test_features_are_checked(tmp_path: Path, features: np.ndarray, labels: list[int], message: str) -> None:
    np.savez(tmp_path / "x.npz", features=features, labels=np.array(labels, np.int64))
    with pytest.raises(Invalid, match=message):
        read_features(tmp_path / "x.npz")
    (tmp_path / "y.npz").write_bytes(b"no archive")
    with pytest.raises(Invalid, match="y.npz cannot be read; expected a .npz"):
        read_features(tmp_path / "y.npz")
    whole = (tmp_path / "x.npz").read_bytes()
    for cut in (whole[: len(whole) // 2], b"PK\3\4junk"):
        (tmp_path / "y.npz").write_bytes(cut)
        with pytest.raises(Invalid, match="y.npz cannot be read; expected a .npz"):
            read_features(tmp_path / "y.npz")


@pytest.mark.parametrize(
    ("features", "labels"),
    [(np.ones((2, 4)), [0.5, 1]), (np.ones((2, 4), complex), [0, 1]), (np.full((2, 4), "x"), [0, 1])],
)
def test_numbers_of_another_kind_are_refused(tmp_path: Path, features: np.ndarray, labels: list[float]) -> None:
    np.savez(tmp_path / "x.npz", features=features, labels=np.array(labels))
    with pytest.raises(Invalid, match="x.npz holds other numbers than whole labels and real features; expected a .npz"):
        read_features(tmp_path / "x.npz")
