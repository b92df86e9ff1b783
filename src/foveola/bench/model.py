"""Which model figures belong to, without which they are worth nothing."""

from __future__ import annotations

import hashlib
from typing import Any

from foveola.artifact import Bundle

_TOLD = ("model_card.md", "LICENSE", "LICENSE.txt", "NOTICE")


def describe_model(bundle: Bundle) -> dict[str, Any]:
    """Name, hashes and size of a bundle.

    ``computes`` is a digest over the files that decide an answer: it stays the same when only the model card changes,
    which quotes these very figures, while ``model_hash`` does not.
    """
    deciding = sorted((name, digest.sha256) for name, digest in bundle.files.items() if name not in _TOLD)
    return {
        "name": bundle.name,
        "model_hash": bundle.model_hash,
        "computes": hashlib.sha256(repr(deciding).encode()).hexdigest()[:16],
        "bytes": sum(digest.bytes for digest in bundle.files.values()),
    }


def decoder_bytes(bundle: Bundle) -> int:
    """Bytes of the decoder's graph and weights, its head among them: what is read for every token that is decoded."""
    graph: str = bundle.model["graphs"]["decoder"]
    return sum(info.bytes for name, info in bundle.files.items() if name.startswith(graph))
