"""Ed25519 keys as files, made on the spot."""

from __future__ import annotations

from pathlib import Path

import pytest


def key_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """A new private key ``NAME.key`` and its public key ``NAME.pem``."""
    pytest.importorskip("cryptography", reason="the guard's door is not installed: pip install 'foveola[guard]'")
    from cryptography.hazmat.primitives import serialization as form
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    private, public = folder / f"{name}.key", folder / f"{name}.pem"
    private.write_bytes(key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption()))
    public.write_bytes(key.public_key().public_bytes(form.Encoding.PEM, form.PublicFormat.SubjectPublicKeyInfo))
    return private, public
