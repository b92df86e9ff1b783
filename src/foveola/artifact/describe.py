"""What ``foveola inspect`` shows: an artefact as plain JSON data."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from foveola.artifact.bundle import SEAL_FILE as BUNDLE_SEAL
from foveola.artifact.bundle import Bundle
from foveola.artifact.checkpoint import CONFIG_FILE, Checkpoint
from foveola.artifact.checkpoint import SEAL_FILE as CHECKPOINT_SEAL
from foveola.artifact.prompt import SEAL_FILE as PROMPT_SEAL
from foveola.artifact.prompt import Prompt
from foveola.exchange import Damaged


def describe(path: Path | str) -> dict[str, Any]:
    """Verify the artefact at ``path`` and describe it; ``kind`` is ``bundle``, ``checkpoint`` or ``prompt``.

    All have name, model_hash, bytes, files (name, bytes, and sha256 where sealed) and lineage. A bundle adds
    created and model (without the chat template), a checkpoint adds architectures, model_type, parameters, tensors
    and bytes per dtype, a prompt adds created, shape and base (the hash of the bundle that it belongs to). Raises
    Damaged with the name of the file that is wrong.
    """
    root = Path(path)
    if not root.is_dir():
        raise Damaged(f"{root.name or 'The path'} is no directory; name a bundle or a checkpoint.")
    if (root / BUNDLE_SEAL).exists():
        return _describe_bundle(Bundle.open(root))
    if (root / PROMPT_SEAL).exists():
        return _describe_prompt(Prompt.open(root))
    if (root / CHECKPOINT_SEAL).exists() or (root / CONFIG_FILE).exists():
        return _describe_checkpoint(Checkpoint.open(root))
    raise Damaged(
        f"{root.resolve().name} is neither a bundle nor a checkpoint: both {BUNDLE_SEAL} and {CONFIG_FILE} are missing."
    )


def _describe_bundle(bundle: Bundle) -> dict[str, Any]:
    if bundle.vault is not None:
        for name in bundle.files:
            bundle.vault.read(name)  # a sealed file proves itself when it is decrypted
    return {
        "kind": "bundle",
        "name": bundle.name,
        "created": bundle.created,
        "model_hash": bundle.model_hash,
        "bytes": sum(digest.bytes for digest in bundle.files.values()),
        "files": [
            {"name": name, "bytes": digest.bytes, "sha256": digest.sha256}
            for name, digest in sorted(bundle.files.items())
        ],
        "model": {key: value for key, value in bundle.model.items() if key != "chat_template"},
        "lineage": [finding.to_json() for finding in bundle.lineage],
    }


def _describe_checkpoint(checkpoint: Checkpoint) -> dict[str, Any]:
    bytes_by_dtype: Counter[str] = Counter()
    for info in checkpoint.tensors.values():
        bytes_by_dtype[info.dtype] += info.bytes
    files = [
        {"name": str(file.relative_to(checkpoint.path)), "bytes": file.stat().st_size}
        for file in sorted(checkpoint.path.rglob("*"))
        if file.is_file()
    ]
    return {
        "kind": "checkpoint",
        "name": checkpoint.name,
        "model_hash": checkpoint.model_hash,
        "bytes": sum(file["bytes"] for file in files if isinstance(file["bytes"], int)),
        "files": files,
        "architectures": checkpoint.config.get("architectures", []),
        "model_type": checkpoint.config.get("model_type"),
        "parameters": checkpoint.parameters,
        "tensors": len(checkpoint.tensors),
        "bytes_by_dtype": dict(bytes_by_dtype),
        "lineage": [finding.to_json() for finding in checkpoint.lineage],
    }


def _describe_prompt(prompt: Prompt) -> dict[str, Any]:
    files = [
        {"name": file.name, "bytes": file.stat().st_size} for file in sorted(prompt.path.iterdir()) if file.is_file()
    ]
    return {
        "kind": "prompt",
        "name": prompt.name,
        "created": prompt.created,
        "model_hash": prompt.model_hash,
        "bytes": sum(int(str(file["bytes"])) for file in files),
        "files": files,
        "shape": list(prompt.values.shape),
        "base": prompt.base,
        "lineage": [finding.to_json() for finding in prompt.lineage],
    }
