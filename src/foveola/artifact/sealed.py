"""Bundles whose files lie encrypted on the disk and are decrypted into memory only: SM4 (GB/T 32907) in GCM (RFC 8998).

A sealed bundle has the same names and the same ``model_hash`` as the bundle it was made from. Each file is::

    FVSEAL1\\0 | nonce, 12 bytes | ciphertext, as long as the file | tag, 16 bytes

The file's name and the model's hash are authenticated with it, so a file of another place or bundle never passes for
this one. ``manifest.json`` stays readable and is authenticated whole by a tag under the same key.

The form of the described system, SM4 in ECB mode, shows which blocks are equal and protects nothing against changes. It
is read where ``allow_ecb`` is set, with a warning, and never written.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foveola.artifact import sealed_gcrypt
from foveola.artifact.atomic import staged_directory
from foveola.artifact.audit import AuditLog
from foveola.artifact.bundle import MODEL_FILE, SEAL_FILE, SEALED_FORMAT, Bundle, check_model
from foveola.artifact.digest import FileDigest
from foveola.artifact.seal import Seal, check_seal, parse_json, read_json, read_seal
from foveola.artifact.sealed_key import SealKey, SealOptions, find_key, seal_options
from foveola.exchange import Damaged, Refusal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher

log = logging.getLogger(__name__)

GCM, ECB = "SM4-GCM", "SM4-ECB"
MAGIC = b"FVSEAL1\0"
_NONCE, _TAG, _BLOCK = 12, 16, 16
_OVERHEAD = len(MAGIC) + _NONCE + _TAG
_CHUNK = 1 << 20


class WrongKey(Refusal):
    """The key is not the one that these weights were sealed with."""

    code = "wrong_seal_key"
    status = 500


@dataclass(frozen=True, slots=True)
class Vault:
    """Decrypts the files of one sealed bundle, each time it is asked, into memory."""

    root: Path
    cipher: str
    files: Mapping[str, FileDigest]
    nonces: Mapping[str, bytes]
    model_hash: str
    key: bytes = field(repr=False)

    def read(self, name: str) -> bytes:
        """The plain bytes of the file ``name``, authenticated. Raises ``Damaged`` saying what is wrong with it."""
        try:
            data = (self.root / name).read_bytes()
        except OSError as error:
            raise Damaged(f"{name} cannot be read: {error.strerror or 'input/output error'}.") from None
        return self._open_ecb(name, data) if self.cipher == ECB else self._open_gcm(name, memoryview(data))

    def _open_gcm(self, name: str, data: memoryview) -> bytes:
        if len(data) != self.files[name].bytes + _OVERHEAD:
            raise Damaged(f"{name} is truncated or too long for what was sealed; copy the bundle again, whole.")
        start = len(MAGIC) + _NONCE
        if bytes(data[: len(MAGIC)]) != MAGIC:
            raise Damaged(f"{name} is no sealed file; copy the bundle again, whole.")
        nonce = bytes(data[len(MAGIC) : start])
        if nonce != self.nonces[name]:
            other = next((other for other, known in self.nonces.items() if known == nonce), None)
            what = f"it holds {other}" if other is not None else "it comes from another sealing"
            raise Damaged(f"{name} was swapped: {what}. Copy the bundle again, whole.")
        plain = _decrypted(self.key, nonce, _bound(name, self.model_hash), data[start:-_TAG], bytes(data[-_TAG:]))
        if plain is None:
            raise Damaged(
                f"{name} was altered after it was sealed: its authentication fails. Copy the bundle again, whole."
            )
        return plain

    def _open_ecb(self, name: str, data: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        size = self.files[name].bytes
        if len(data) != (size // _BLOCK + 1) * _BLOCK:
            raise Damaged(f"{name} is truncated or too long for what was sealed; copy the bundle again, whole.")
        opener = Cipher(algorithms.SM4(self.key), modes.ECB()).decryptor()
        plain = (opener.update(data) + opener.finalize())[:size]
        if hashlib.sha256(plain).hexdigest() != self.files[name].sha256:
            raise Damaged(f"{name} was altered after it was sealed, or the manifest was; copy the bundle again, whole.")
        return plain


def seal_bundle(bundle: Bundle, out: Path, key: SealKey, *, replace: bool = False) -> Bundle:
    """Write ``bundle`` sealed under ``key`` to ``out``, whole or not at all, and return it opened.

    A sealed bundle is sealed anew: that is how a key is changed; its plain files never touch the disk.
    Raises FileExistsError where ``out`` holds something and ``replace`` is False.
    """
    salt = secrets.token_bytes(32)
    working = key.working(salt)
    entries: dict[str, dict[str, Any]] = {}
    with staged_directory(out, replace=replace) as staging:
        for name, digest in sorted(bundle.files.items()):
            nonce = secrets.token_bytes(_NONCE)
            entries[name] = {"sha256": digest.sha256, "bytes": digest.bytes, "nonce": nonce.hex()}
            (staging / name).parent.mkdir(parents=True, exist_ok=True)
            (staging / name).write_bytes(_sealed(bundle.read(name), name, bundle.model_hash, working, nonce))
        seal = Seal(SEALED_FORMAT, bundle.name, bundle.created, bundle.model_hash, bundle.files, bundle.lineage)
        manifest = seal.to_json() | {
            "cipher": GCM,
            "key_fingerprint": key.fingerprint,
            "salt": salt.hex(),
            "nonce": secrets.token_hex(_NONCE),
            "files": entries,
        }
        manifest["tag"] = _manifest_tag(manifest, working).hex()
        text = json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False)
        (staging / SEAL_FILE).write_text(text + "\n", encoding="utf-8")
    return open_sealed(out.resolve(), SealOptions(), key)


def _sealed(plain: bytes, name: str, model_hash: str, key: bytes, nonce: bytes) -> bytes:
    sealer = _gcm(key, nonce).encryptor()
    sealer.authenticate_additional_data(_bound(name, model_hash))
    sealed = sealer.update(plain) + sealer.finalize()
    return MAGIC + nonce + sealed + sealer.tag


def open_sealed(root: Path, options: SealOptions | None = None, key: SealKey | None = None) -> Bundle:
    """Open a sealed bundle; the key comes from the settings unless it is given. ``root`` is absolute.

    The manifest is authenticated now, each file when it is read. Raises ``NoKey``, ``WrongKey`` or ``Damaged``; either
    way the audit log, where one is set, has a line.
    """
    options = options or seal_options()
    session = uuid.uuid4().hex
    audit = AuditLog(options.audit) if options.audit is not None else None
    try:
        key = key or find_key(options)
        bundle = _opened(root, options, key)
    except Refusal as refusal:
        if audit is not None:
            told = key.fingerprint if key is not None else None
            audit.append("unseal_refused", bundle=root.name, key=told, session=session, code=refusal.code)
        raise
    if audit is not None:
        audit.append("unsealed", bundle=bundle.name, model_hash=bundle.model_hash, key=key.fingerprint, session=session)
    return bundle


def _opened(root: Path, options: SealOptions, key: SealKey) -> Bundle:
    seal = read_seal(root, SEAL_FILE, format=SEALED_FORMAT)
    manifest = read_json(root, SEAL_FILE)
    cipher = manifest.get("cipher")
    if manifest.get("key_fingerprint") != key.fingerprint:
        shown = str(manifest.get("key_fingerprint"))[:16]
        raise WrongKey(
            f"The bundle {seal.name} is sealed under the key {shown}; the one at hand is {key.fingerprint}. Give the "
            "right one."
        )
    if cipher == ECB:
        working, nonces = _ecb(seal, options, key), dict.fromkeys(seal.files, b"")
    elif cipher == GCM:
        working, nonces = _authenticated(manifest, key)
    else:
        raise Damaged(f"{SEAL_FILE} names a cipher that is not known here; it is read under {GCM}.")
    sizes = {name: _size_on_disk(digest.bytes, str(cipher)) for name, digest in seal.files.items()}
    on_disk = {name: FileDigest(digest.sha256, sizes[name]) for name, digest in seal.files.items()}
    check_seal(root, SEAL_FILE, replace(seal, files=on_disk), digests=False)
    vault = Vault(root, str(cipher), seal.files, nonces, seal.model_hash, working)
    model = parse_json(vault.read(MODEL_FILE), MODEL_FILE) if MODEL_FILE in seal.files else {}
    check_model(model, seal.files)
    return Bundle(
        root, seal.name, seal.created, seal.model_hash, seal.files, seal.lineage, model, vault=vault
    )  # fmt: skip


def _ecb(seal: Seal, options: SealOptions, key: SealKey) -> bytes:
    if not options.allow_ecb:
        raise Damaged(
            f"The bundle {seal.name} is sealed with {ECB}, which hides little and protects nothing against changes. "
            "Seal it anew with `foveola rekey`, or set FOVEOLA_SEAL_ALLOW_ECB=true to read it all the same."
        )
    log.warning("the bundle %s is sealed with %s: changes to it go unnoticed; seal it anew", seal.name, ECB)
    return key.master


def _authenticated(manifest: Mapping[str, Any], key: SealKey) -> tuple[bytes, dict[str, bytes]]:
    """The working key and each file's nonce, once the manifest has proved to be what was sealed."""
    from cryptography.exceptions import InvalidTag

    try:
        salt, tag = bytes.fromhex(manifest["salt"]), bytes.fromhex(manifest["tag"])
        nonces = {name: bytes.fromhex(entry["nonce"]) for name, entry in manifest["files"].items()}
        working = key.working(salt)
        opener = _gcm(working, bytes.fromhex(manifest["nonce"]), tag).decryptor()
        opener.authenticate_additional_data(_canonical(manifest))
        opener.finalize()
    except (InvalidTag, KeyError, TypeError, ValueError):
        raise Damaged(f"{SEAL_FILE} was altered after it was sealed; copy the bundle again, whole.") from None
    return working, nonces


def _manifest_tag(manifest: Mapping[str, Any], key: bytes) -> bytes:
    sealer = _gcm(key, bytes.fromhex(manifest["nonce"])).encryptor()
    sealer.authenticate_additional_data(_canonical(manifest))
    sealer.finalize()
    return sealer.tag


def _canonical(manifest: Mapping[str, Any]) -> bytes:
    kept = {name: value for name, value in manifest.items() if name != "tag"}
    return b"manifest\0" + json.dumps(kept, sort_keys=True, ensure_ascii=True, separators=(",", ":")).encode()


def _bound(name: str, model_hash: str) -> bytes:
    return b"file\0" + name.encode() + b"\0" + model_hash.encode()


def _size_on_disk(size: int, cipher: str) -> int:
    return (size // _BLOCK + 1) * _BLOCK if cipher == ECB else size + _OVERHEAD


def _decrypted(key: bytes, nonce: bytes, bound: bytes, sealed: memoryview, tag: bytes) -> bytes | None:
    """The plain bytes, or None where they are not authentic."""
    try:
        return sealed_gcrypt.decrypt(key, nonce, bound, sealed, tag)
    except sealed_gcrypt.Unsupported:
        pass
    from cryptography.exceptions import InvalidTag

    opener = _gcm(key, nonce, tag).decryptor()
    opener.authenticate_additional_data(bound)
    try:
        parts = [opener.update(sealed[at : at + _CHUNK]) for at in range(0, len(sealed), _CHUNK)]
        return b"".join([*parts, opener.finalize()])
    except InvalidTag:
        return None


def _gcm(key: bytes, nonce: bytes, tag: bytes | None = None) -> Cipher[Any]:
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    return Cipher(algorithms.SM4(key), modes.GCM(nonce, tag))
