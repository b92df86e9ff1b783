from __future__ import annotations

import errno
import io
import json
import logging
import os
import random
import shutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="the guard's door is not installed: pip install 'foveola[guard]'")

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.padding import PKCS7

from foveola.artifact import Bundle, sealed_gcrypt
from foveola.artifact.audit import read_audit
from foveola.artifact.sealed import ECB, WrongKey, _bound, _decrypted, _gcm, _sealed, open_sealed, seal_bundle
from foveola.artifact.sealed_key import NoKey, SealKey, SealOptions, find_key
from foveola.cli import main
from foveola.exchange import Damaged
from tests.artifact.making import make_bundle

MASTER = bytes.fromhex("0123456789abcdeffedcba9876543210")
KEY, OTHER = SealKey(MASTER), SealKey(bytes(16))


@pytest.fixture
def plain(tmp_path: Path) -> Bundle:
    return make_bundle(tmp_path / "plain")


@pytest.fixture
def sealed(plain: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FOVEOLA_SEAL_KEY", MASTER.hex())
    return seal_bundle(plain, tmp_path / "sealed", KEY).path


def test_the_block_cipher_is_that_of_gb_t_32907() -> None:
    sealer = Cipher(algorithms.SM4(MASTER), modes.ECB()).encryptor()
    assert sealer.update(MASTER).hex() == "681edf34d206965e86b3e94f536e4246"


def test_the_mode_is_that_of_rfc_8998() -> None:
    plain = bytes.fromhex("".join(2 * digit * 8 for digit in "abcdefea"))
    sealer = _gcm(MASTER, bytes.fromhex("00001234567800000000abcd")).encryptor()
    sealer.authenticate_additional_data(bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2"))
    assert (sealer.update(plain) + sealer.finalize()).hex() == (
        "17f399f08c67d5ee19d0dc9969c4bb7d5fd46fd3756489069157b282bb200735"
        "d82710ca5c22f0ccfa7cbf93d496ac15a56834cbcf98c397b4024a2691233b8d"
    )
    assert sealer.tag.hex() == "83de3541e4c2b58177e065a9bf7b62ec"


def test_a_sealed_bundle_is_the_same_bundle(plain: Bundle, sealed: Path) -> None:
    opened = Bundle.open(sealed)
    assert (opened.model_hash, opened.name, opened.model) == (plain.model_hash, plain.name, plain.model)
    for name in plain.files:
        assert opened.read(name) == plain.read(name)
        assert plain.read(name)[:32] not in (sealed / name).read_bytes()
    with pytest.raises(Damaged, match="lies encrypted in the bundle"):
        opened.file("model.json")


@pytest.mark.parametrize("size", [0, 1, 16, 1000, 3_000_001])
def test_both_libraries_decrypt_alike(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if not sealed_gcrypt.available():
        pytest.skip("libgcrypt 1.10 is not on this machine")
    plain = random.Random(size).randbytes(size)
    sealed = _sealed(plain, "a", "b", MASTER, bytes(12))
    given = (MASTER, bytes(12), _bound("a", "b"), memoryview(sealed)[20:-16], sealed[-16:])
    quick = sealed_gcrypt.decrypt(*given)
    monkeypatch.setattr(sealed_gcrypt, "_library", lambda: None)
    assert quick == _decrypted(*given) == plain
    assert _decrypted(*given[:4], bytes(16)) is None
    monkeypatch.undo()
    assert sealed_gcrypt.decrypt(*given[:4], bytes(16)) is None


def test_sealing_twice_gives_other_bytes(plain: Bundle, sealed: Path, tmp_path: Path) -> None:
    again = seal_bundle(plain, tmp_path / "again", KEY).path
    assert all((again / name).read_bytes()[20:] != (sealed / name).read_bytes()[20:] for name in plain.files)


def test_a_wrong_key_is_told_by_fingerprint(sealed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOVEOLA_SEAL_KEY", "00" * 16)
    with pytest.raises(
        WrongKey, match=f"sealed under the key {KEY.fingerprint}; the one at hand is {OTHER.fingerprint}"
    ):
        Bundle.open(sealed)


def reading(path: Path) -> None:
    bundle = Bundle.open(path)
    for name in bundle.files:
        bundle.read(name)


def test_every_flipped_bit_is_found(sealed: Path) -> None:
    rng = random.Random(0)
    for file in sorted(path for path in sealed.rglob("*") if path.is_file()):
        good = file.read_bytes()
        for _ in range(25):
            broken = bytearray(good)
            broken[rng.randrange(len(good) - (file.name == "manifest.json"))] ^= 1 << rng.randrange(8)
            file.write_bytes(broken)
            with pytest.raises((Damaged, WrongKey)):
                reading(sealed)
        file.write_bytes(good)
    reading(sealed)


def test_each_way_to_break_a_file_has_its_words(sealed: Path) -> None:
    file = sealed / "tokenizer.json"
    good = file.read_bytes()

    def told(data: bytes) -> str:
        file.write_bytes(data)
        with pytest.raises(Damaged) as error:
            reading(sealed)
        return error.value.message

    assert told(good[:-1]).startswith("tokenizer.json is truncated")
    assert told(good[:-10] + bytes([good[-10] ^ 1]) + good[-9:]).startswith("tokenizer.json was altered after it was")
    assert told(b"X" + good[1:]).startswith("tokenizer.json is no sealed file")
    other = (sealed / "model.json").read_bytes()
    assert told(good[:8] + other[8:20] + good[20:]).startswith("tokenizer.json was swapped: it holds model.json")
    assert told(good[:8] + bytes(12) + good[20:]).startswith(
        "tokenizer.json was swapped: it comes from another sealing"
    )
    file.unlink()
    with pytest.raises(Damaged, match="tokenizer.json is missing"):
        reading(sealed)


def test_a_file_of_an_older_sealing_is_not_taken(plain: Bundle, sealed: Path, tmp_path: Path) -> None:
    again = seal_bundle(plain, tmp_path / "again", KEY).path
    shutil.copyfile(again / "tokenizer.json", sealed / "tokenizer.json")
    with pytest.raises(Damaged, match="it comes from another sealing"):
        reading(sealed)


def test_the_manifest_proves_itself(sealed: Path) -> None:
    manifest = json.loads((sealed / "manifest.json").read_text())
    for change in ({"name": "other"}, {"salt": "00" * 32}, {"created": "2020-01-01T00:00:00+00:00"}, {"tag": "zz"}):
        (sealed / "manifest.json").write_text(json.dumps(manifest | change))
        with pytest.raises(Damaged, match="manifest.json was altered after it was sealed"):
            Bundle.open(sealed)


def ecb_of(bundle: Bundle, out: Path) -> None:
    """The described form: every file padded and encrypted block by block under the key itself."""
    out.mkdir()
    manifest = json.loads((bundle.path / "manifest.json").read_text())
    manifest |= {"format": "foveola.sealed/1", "cipher": ECB, "key_fingerprint": KEY.fingerprint}
    (out / "manifest.json").write_text(json.dumps(manifest))
    for name in bundle.files:
        padder, sealer = PKCS7(128).padder(), Cipher(algorithms.SM4(MASTER), modes.ECB()).encryptor()
        (out / name).parent.mkdir(exist_ok=True)
        (out / name).write_bytes(sealer.update(padder.update(bundle.read(name)) + padder.finalize()))


def test_the_described_form_is_read_behind_a_flag(
    plain: Bundle, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ecb_of(plain, tmp_path / "ecb")
    with pytest.raises(Damaged, match="Seal it anew with `foveola rekey`, or set FOVEOLA_SEAL_ALLOW_ECB=true"):
        open_sealed(tmp_path / "ecb", SealOptions(), KEY)
    with caplog.at_level(logging.WARNING):
        opened = open_sealed(tmp_path / "ecb", SealOptions(allow_ecb=True), KEY)
    assert "changes to it go unnoticed" in caplog.text
    assert all(opened.read(name) == plain.read(name) for name in plain.files)
    anew = seal_bundle(opened, tmp_path / "anew", OTHER)
    assert anew.read("model.json") == plain.read("model.json")


def test_the_log_says_whose_key_was_used(sealed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOVEOLA_SEAL_AUDIT", str(tmp_path / "audit.log"))
    Bundle.open(sealed)
    monkeypatch.setenv("FOVEOLA_SEAL_KEY", "00" * 16)
    with pytest.raises(WrongKey):
        Bundle.open(sealed)
    monkeypatch.delenv("FOVEOLA_SEAL_KEY")
    with pytest.raises(NoKey):
        Bundle.open(sealed)
    entries = list(read_audit(tmp_path / "audit.log"))
    assert [entry["event"] for entry in entries] == ["unsealed", "unseal_refused", "unseal_refused"]
    assert [entry["key"] for entry in entries] == [KEY.fingerprint, OTHER.fingerprint, None]
    assert len({entry["session"] for entry in entries}) == 3
    assert MASTER.hex() not in (tmp_path / "audit.log").read_text()


def test_a_key_comes_from_a_file_the_environment_or_a_command(tmp_path: Path) -> None:
    (tmp_path / "hex").write_text(MASTER.hex() + "\n")
    (tmp_path / "raw").write_bytes(MASTER)
    ask = f"{sys.executable} -c 'print(\"{MASTER.hex()}\")'"
    for options in (
        SealOptions(key=MASTER.hex()),
        SealOptions(key_file=tmp_path / "hex"),
        SealOptions(key_file=tmp_path / "raw"),
        SealOptions(key_command=ask),
    ):
        assert find_key(options) == KEY
        assert MASTER.hex() not in repr(options) or options.key_command is not None
    assert MASTER.hex() not in repr(KEY) and str(MASTER) not in repr(KEY)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (SealOptions(), "set FOVEOLA_SEAL_KEY_FILE to a file with 32 hexadecimal digits"),
        (SealOptions(key="1234"), "FOVEOLA_SEAL_KEY holds no 128-bit key"),
        (SealOptions(key_file=Path("no.key")), "The key file no.key cannot be read: No such file"),
        (SealOptions(key_command="false"), "ended with code 1; try it by hand"),
        (SealOptions(key_command="echo 12"), "The output of the command for the key holds no 128-bit key"),
        (SealOptions(key_command="no-such-program"), "cannot be run"),
    ],
)
def test_a_key_that_is_none_is_told_without_showing_it(options: SealOptions, told: str) -> None:
    with pytest.raises(NoKey, match=told):
        find_key(options)


def test_two_keys_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="`key` and key_file both give the key"):
        SealOptions(key="a", key_file=Path("b"))


def test_the_commands_seal_and_change_the_key(
    plain: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    old, new = tmp_path / "old.key", tmp_path / "new.key"
    assert main(["seal", str(plain.path), "--out", str(first), "--make-key", str(old), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model_hash"] == plain.model_hash
    assert old.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv("FOVEOLA_SEAL_KEY_FILE", str(old))
    assert main(["rekey", str(first), "--out", str(second)]) == 2
    assert "is sealed already; name the new key" in capsys.readouterr().err
    assert main(["rekey", str(first), "--out", str(first), "--make-key", str(new)]) == 2
    assert "exists and is not empty" in capsys.readouterr().err
    assert not new.exists()  # nothing was sealed under it
    assert main(["rekey", str(first), "--out", str(second), "--make-key", str(new)]) == 0
    monkeypatch.setenv("FOVEOLA_SEAL_KEY_FILE", str(new))
    assert Bundle.open(second).read("model.json") == plain.read("model.json")
    assert main(["inspect", str(second), "--json"]) == 0
    assert main(["inspect", str(first)]) == 2
    assert "is sealed under the key" in capsys.readouterr().err


def test_half_a_key_is_not_left_on_a_full_disk(
    plain: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

    def opened(handle: int, *_: object, **__: object) -> Full:
        os.close(handle)
        return Full()

    monkeypatch.setattr(os, "fdopen", opened)
    key = tmp_path / "new.key"
    assert main(["seal", str(plain.path), "--out", str(tmp_path / "sealed"), "--make-key", str(key)]) == 2
    assert "The key cannot be written to new.key: No space left on device." in capsys.readouterr().err
    assert not key.exists()
    assert not (tmp_path / "sealed").exists()
