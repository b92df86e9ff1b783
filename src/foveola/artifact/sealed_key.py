"""The key that seals weights: from a file, the environment, or a command that asks a key service. Never from a flag.

One master key of 128 bits seals many bundles. Each has its own salt, and its working key is derived from both by HKDF
(RFC 5869) over SM3 (GB/T 32905), so no two bundles share a working key or a nonce. The fingerprint tells keys apart and
tells nothing about them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from foveola.exchange import Refusal
from foveola.options import resolve

KEY_BYTES = 16
COMMAND_S = 30.0


class NoKey(Refusal):
    """There is no key, or what there is cannot be one."""

    code = "no_seal_key"
    status = 500


@dataclass(frozen=True, slots=True)
class SealOptions:
    """``[seal]`` of ``foveola.toml``, ``FOVEOLA_SEAL_*``. At most one of the three ways to a key.

    ``key``: 32 hexadecimal digits, for the environment (FOVEOLA_SEAL_KEY). ``key_file``: a file with them, or with 16
    raw bytes. ``key_command``: prints them, asked anew at every load. ``allow_ecb`` admits the described, unsafe form.
    ``audit`` is the log of every use of the key. Raises ValueError for two ways at once.
    """

    key: str | None = field(default=None, repr=False)
    key_file: Path | None = None
    key_command: str | None = None
    allow_ecb: bool = False
    audit: Path | None = None

    def __post_init__(self) -> None:
        given = [name for name in ("key", "key_file", "key_command") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"`{given[0]}` and {given[1]} both give the key; leave one")


@dataclass(frozen=True, slots=True)
class SealKey:
    """A master key; never printed."""

    master: bytes = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that tell keys apart."""
        return self._derived(b"foveola fingerprint", b"", 8).hex()

    def working(self, salt: bytes) -> bytes:
        """The key of the bundle with this salt, 16 bytes."""
        return self._derived(b"foveola.sealed/1", salt, KEY_BYTES)

    def _derived(self, purpose: bytes, salt: bytes, size: int) -> bytes:
        from cryptography.hazmat.primitives.hashes import SM3
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return HKDF(SM3(), size, salt, purpose).derive(self.master)


def seal_options(environ: Mapping[str, str] = os.environ) -> SealOptions:
    """The settings of this process."""
    return resolve(SealOptions, "seal", environ=environ)


def find_key(options: SealOptions) -> SealKey:
    """The key that the settings lead to. Raises ``NoKey`` saying where to put one; never shows what it got."""
    try:
        import cryptography  # noqa: F401
    except ModuleNotFoundError:
        raise NoKey("Sealed weights need the package cryptography: pip install 'foveola[guard]'.") from None
    if options.key is not None:
        return SealKey(_parsed(options.key.encode(), "FOVEOLA_SEAL_KEY"))
    if options.key_file is not None:
        try:
            return SealKey(_parsed(options.key_file.read_bytes(), f"The key file {options.key_file.name}"))
        except OSError as error:
            reason = error.strerror or "input/output error"
            raise NoKey(f"The key file {options.key_file.name} cannot be read: {reason}.") from None
    if options.key_command is not None:
        return SealKey(_asked(options.key_command))
    raise NoKey(
        "There is no key for sealed weights: set FOVEOLA_SEAL_KEY_FILE to a file with 32 hexadecimal digits, "
        "FOVEOLA_SEAL_KEY to the digits, or FOVEOLA_SEAL_KEY_COMMAND to a command that prints them."
    )


def _asked(command: str) -> bytes:
    try:
        done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, timeout=COMMAND_S, check=True)
    except subprocess.TimeoutExpired:
        raise NoKey(f"The command for the key did not end within {COMMAND_S:g} s; see what it waits for.") from None
    except subprocess.CalledProcessError as error:
        raise NoKey(f"The command for the key ended with code {error.returncode}; try it by hand.") from None
    except (OSError, ValueError):
        raise NoKey("The command for the key cannot be run; write a program's path and its arguments.") from None
    return _parsed(done.stdout, "The output of the command for the key")


def _parsed(data: bytes, source: str) -> bytes:
    text = data.strip()
    if re.fullmatch(rb"[0-9a-fA-F]{32}", text):
        return bytes.fromhex(text.decode())
    if len(data) == KEY_BYTES:
        return data
    raise NoKey(f"{source} holds no 128-bit key: expected 32 hexadecimal digits or 16 raw bytes.")
