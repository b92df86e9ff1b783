"""Ed25519 keys (RFC 8032) in PEM, as ``openssl genpkey -algorithm ed25519`` writes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foveola.exchange import Damaged, Refusal

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

_DOOR = "Signatures need the package cryptography, which is not installed: pip install 'foveola[guard]'."


class NoDoor(Refusal):
    """A guard is asked for, and what it needs is not installed."""

    code = "missing_door"
    status = 500


def public_key(path: Path) -> Ed25519PublicKey:
    """The public key in ``path``. Raises ``Damaged`` where it holds none, ``NoDoor`` without cryptography."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ModuleNotFoundError:
        raise NoDoor(_DOOR) from None
    key: Ed25519PublicKey = _key(path, load_pem_public_key, Ed25519PublicKey, "public")
    return key


def private_key(path: Path) -> Ed25519PrivateKey:
    """The private key in ``path``, without a passphrase. Raises as ``public_key`` does."""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ModuleNotFoundError:
        raise NoDoor(_DOOR) from None
    key: Ed25519PrivateKey = _key(path, lambda data: load_pem_private_key(data, None), Ed25519PrivateKey, "private")
    return key


def _key(path: Path, load: Callable[[bytes], object], kind: Any, word: str) -> Any:
    try:
        key = load(path.read_bytes())
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read: {error.strerror or 'input/output error'}.") from None
    except (ValueError, TypeError):
        key = None
    if not isinstance(key, kind):
        raise Damaged(f"{path.name} holds no {word} Ed25519 key in PEM without a passphrase; name a file that does.")
    return key
