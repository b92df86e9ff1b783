from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import pytest

from foveola.cli import main
from foveola.options import BadSetting
from foveola.serve.keys import Key, KeyRing, new_key, read_keys

SECRETS = ["fov-one", "fov-two", "fov-three"]
RING = KeyRing(tuple(Key(f"k{at}", hashlib.sha256(key.encode()).digest()) for at, key in enumerate(SECRETS)))
DIGEST = hashlib.sha256(b"fov-one").hexdigest()


@pytest.mark.parametrize("presented", [*SECRETS, "fov-on", "", "密钥", "\udc80", "x" * 100_000])
def test_every_digest_is_compared_in_constant_time_whatever_came(
    presented: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def watch(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", watch)
    found = RING.find(presented)
    assert (found is not None) is (presented in SECRETS)
    assert found is None or found.name == f"k{SECRETS.index(presented)}"
    assert [one for one, _ in compared] == [key.digest for key in RING.keys]
    assert all(len(one) == len(other) == 32 for one, other in compared)


def test_a_file_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(
        f'[[key]]\nname = "line-3"\nsha256 = "{DIGEST}"\nrequests_per_minute = 60\npriority = -5\n'
        'visual_prompt = "plant-7"\n'
        f'[[key]]\nname = "boss"\nsha256 = "{"0" * 64}"\nroles = ["ask", "admin"]\n'
    )
    ring = read_keys(file)
    assert ring.find("fov-one") == Key("line-3", bytes.fromhex(DIGEST), frozenset({"ask"}), 60, -5, "plant-7")
    assert ring.keys[1].roles == {"ask", "admin"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no [[key]] entries"),
        ("key = 5", "holds no [[key]] entries"),
        ("key = [5]", "Key entry 1 of keys.toml is no table"),
        ("[[key]", "is not TOML; `foveola key NAME` shows an entry"),
        ('[[key]]\nname = "a"', "no good `sha256`; expected 64 hexadecimal digits"),
        (f'[[key]]\nname = "a b"\nsha256 = "{DIGEST}"', "no good `name`"),
        (
            f'[[key]]\nname = "a"\nsha256 = "{DIGEST}"\nroles = ["root"]',
            "no good `roles`; expected a list of ask, admin",
        ),
        (f'[[key]]\nname = "a"\nsha256 = "{DIGEST}"\nrole = "ask"', "has `role`; expected name, sha256, roles"),
        (
            f'[[key]]\nname = "a"\nsha256 = "{DIGEST}"\npriority = 101',
            "no good `priority`; expected a whole number from -100",
        ),
        (f'[[key]]\nname = "a"\nsha256 = "{DIGEST}"\nrequests_per_minute = true', "no good `requests_per_minute`"),
        (
            f'[[key]]\nname = "a"\nsha256 = "{DIGEST}"\nvisual_prompt = "../b"',
            "no good `visual_prompt`; expected the name",
        ),
        (f'[[key]]\nname = "a"\nsha256 = "{DIGEST}"\n' * 2, "Two entries of keys.toml have the same name"),
    ],
)
def test_a_file_that_is_wrong_is_refused_without_its_digests(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "keys.toml"
    file.write_text(text)
    with pytest.raises(BadSetting) as caught:
        read_keys(file)
    assert message in str(caught.value)
    assert DIGEST not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadSetting, match="keys.toml cannot be read"):
        read_keys(tmp_path / "keys.toml")


def test_a_new_key_and_its_entry(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key, digest = new_key()
    assert hashlib.sha256(key.encode()).hexdigest() == digest
    assert len({new_key()[0] for _ in range(20)}) == 20
    assert main(["key", "line-3", "--role", "admin", "--json"]) == 0
    made: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert main(["key", "line-4"]) == 0
    shown = capsys.readouterr().out
    file = tmp_path / "keys.toml"
    file.write_text(shown[shown.index("[[key]]") :])
    [four] = read_keys(file).keys
    assert (four.name, four.roles) == ("line-4", {"ask"})
    assert read_keys(file).find(next(word for word in shown.split() if word.startswith("fov-"))) == four
    assert (made["name"], made["roles"]) == ("line-3", ["admin"])
    assert main(["key", "line 3"]) == 2
    assert "'line 3' is no good name" in capsys.readouterr().err
