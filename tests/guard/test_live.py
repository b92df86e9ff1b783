from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from foveola.exchange import Damaged, Invalid
from foveola.guard.keys import private_key
from foveola.guard.live import Gateways, LiveDigests, Stranger, signed_text
from tests.guard.signing import key_pair

DIGEST = hashlib.sha256(b"a picture").digest()
NOW = 1_800_000_000.0


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


class Plant:
    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        keys = folder / "keys"
        keys.mkdir()
        self.private, _ = key_pair(folder, "cam-7")
        (folder / "cam-7.pem").rename(keys / "cam-7.pem")
        self.live = LiveDigests(folder / "live.db", self.clock)
        self.gateways = Gateways(keys, self.live, self.clock)

    def register(
        self, document: object, *, at: float = NOW, gateway: str = "cam-7", body: bytes | None = None
    ) -> float:
        signed = json.dumps(document).encode()
        signature = private_key(self.private).sign(signed_text(f"{at:.0f}", signed))
        done = self.gateways.register(
            signed if body is None else body,
            gateway=gateway,
            signed_at=f"{at:.0f}",
            signature=base64.b64encode(signature).decode(),
        )
        return done.expires


@pytest.fixture
def plant(tmp_path: Path) -> Plant:
    return Plant(tmp_path)


GOOD = {"digests": [DIGEST.hex()], "ttl_s": 60}


def test_a_registered_picture_is_known_until_its_time_is_up(plant: Plant, tmp_path: Path) -> None:
    assert DIGEST not in plant.live
    assert plant.register(GOOD) == NOW + 60
    assert DIGEST in plant.live
    again = LiveDigests(tmp_path / "live.db", plant.clock)
    assert DIGEST in again  # after a restart
    plant.clock.now += 60
    assert DIGEST not in plant.live


def test_a_replay_prolongs_nothing(plant: Plant) -> None:
    plant.register(GOOD)
    plant.clock.now += 20
    assert plant.register(GOOD) == NOW + 60  # the very same bytes
    plant.clock.now += 20
    with pytest.raises(Stranger):
        plant.register(GOOD)


@pytest.mark.parametrize(
    "forged",
    [{"gateway": "cam-8"}, {"at": NOW - 31}, {"at": NOW + 31}, {"body": b'{"digests": [], "ttl_s": 60}'}],
)
def test_who_is_not_known_registers_nothing(plant: Plant, forged: dict[str, object]) -> None:
    with pytest.raises(Stranger, match="not signed by a gateway that is known here"):
        plant.register(GOOD, **forged)  # type: ignore[arg-type]
    assert DIGEST not in plant.live


@pytest.mark.parametrize(("signed_at", "signature"), [("", ""), ("1e9", "AAAA"), ("1800000000", "no base64 ß")])
def test_rubbish_in_the_headers_is_a_stranger(plant: Plant, signed_at: str, signature: str) -> None:
    with pytest.raises(Stranger):
        plant.gateways.register(b"{}", gateway="cam-7", signed_at=signed_at, signature=signature)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"digests": [DIGEST.hex()]}, "ttl_s"),
        ({"digests": [DIGEST.hex()], "ttl_s": True}, "ttl_s"),
        ({"digests": [DIGEST.hex()], "ttl_s": 86_401}, "ttl_s"),
        ({"digests": [], "ttl_s": 1}, "digests"),
        ({"digests": [DIGEST.hex().upper()], "ttl_s": 1}, "digests"),
        ({"digests": [7], "ttl_s": 1}, "digests"),
    ],
)
def test_the_field_that_is_wrong_is_named(plant: Plant, document: object, field: str) -> None:
    with pytest.raises(Invalid) as told:
        plant.register(document)
    assert told.value.field == field


def test_old_registrations_are_cleared_away(plant: Plant) -> None:
    for number in range(130):
        plant.live.register([number.to_bytes(32, "big")], expires=NOW - 1, gateway="cam-7")
    [count] = plant.live._db.execute("SELECT count(*) FROM live").fetchone()
    assert count < 70


def test_a_folder_without_keys_and_a_file_that_is_no_database_are_told(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "a.db").write_bytes(b"this is no database" * 100)
    with pytest.raises(Damaged, match="a.db is no database of live registrations"):
        LiveDigests(tmp_path / "a.db")
    with pytest.raises(Damaged, match="The folder keys holds no gateway's key"):
        Gateways(tmp_path / "keys", LiveDigests(tmp_path / "b.db"))
