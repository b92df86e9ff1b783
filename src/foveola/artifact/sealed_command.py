"""``foveola seal`` and ``foveola rekey``: encrypt a bundle's files, and change the key."""

from __future__ import annotations

import argparse
import json
import os
import secrets
from pathlib import Path

from foveola.artifact.audit import AuditLog
from foveola.artifact.bundle import Bundle
from foveola.artifact.sealed import seal_bundle
from foveola.artifact.sealed_key import KEY_BYTES, SealKey, SealOptions, find_key, seal_options
from foveola.exchange import Invalid


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of both verbs."""
    parser.add_argument(
        "bundle", metavar="DIR", type=Path, help="the bundle; a sealed one is opened with the key at hand"
    )
    parser.add_argument("--out", metavar="DIR", type=Path, required=True, help="where the sealed bundle goes")
    parser.add_argument("--replace", action="store_true", help="replace what is there, in one step")
    parser.add_argument("--new-key-file", metavar="FILE", type=Path, help="seal under the key in this file")
    parser.add_argument("--new-key-command", metavar="COMMAND", help="seal under the key that this command prints")
    parser.add_argument("--make-key", metavar="FILE", type=Path, help="make a key, write it there and seal under it")
    parser.add_argument("--json", action="store_true", help="print figures for programs")


def run(arguments: argparse.Namespace) -> int:
    """Seal and print the key's fingerprint. The old key comes from FOVEOLA_SEAL_*, and so does a new one not named."""
    options = seal_options()
    bundle = Bundle.open(arguments.bundle)
    key = _new_key(arguments, options, sealed=bundle.vault is not None)
    try:
        sealed = seal_bundle(bundle, arguments.out, key, replace=arguments.replace)
    except FileExistsError as error:
        _forget(arguments.make_key)
        raise Invalid(f"{error}.", field="out") from None
    except BaseException:
        _forget(arguments.make_key)
        raise
    if options.audit is not None:
        AuditLog(options.audit).append(
            "sealed",
            bundle=sealed.name,
            model_hash=sealed.model_hash,
            key=key.fingerprint,
            session=secrets.token_hex(16),
        )
    figures = {"name": sealed.name, "model_hash": sealed.model_hash, "key": key.fingerprint, "files": len(sealed.files)}
    if arguments.json:
        print(json.dumps(figures))
    else:
        print(f"{arguments.out}: {len(sealed.files)} files sealed under the key {key.fingerprint}")
    return 0


def _forget(made: Path | None) -> None:
    """Nothing was sealed under the key that was made for it, and its name is free for the next try."""
    if made is not None:
        made.unlink(missing_ok=True)


def _new_key(arguments: argparse.Namespace, options: SealOptions, *, sealed: bool) -> SealKey:
    named = [name for name in ("new_key_file", "new_key_command", "make_key") if getattr(arguments, name) is not None]
    if len(named) > 1:
        raise Invalid("Name one new key: --new-key-file, --new-key-command or --make-key.", field="key")
    if arguments.make_key is not None:
        return _made(arguments.make_key)
    if named:
        return find_key(SealOptions(key_file=arguments.new_key_file, key_command=arguments.new_key_command))
    if sealed:
        raise Invalid(
            "The bundle is sealed already; name the new key with --new-key-file, --new-key-command or --make-key.",
            field="key",
        )
    return find_key(options)


def _made(path: Path) -> SealKey:
    master = secrets.token_bytes(KEY_BYTES)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise Invalid(f"The key cannot be written to {path.name}: {error.strerror}.", field="key") from None
    try:
        with os.fdopen(handle, "w", encoding="ascii") as stream:
            stream.write(master.hex() + "\n")
    except OSError as error:  # a full disk: half a key is worse than none
        path.unlink(missing_ok=True)
        raise Invalid(f"The key cannot be written to {path.name}: {error.strerror}.", field="key") from None
    return SealKey(master)
