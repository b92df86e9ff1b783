"""Small artefacts for the tests, written by hand so that every byte is known."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foveola.artifact import Bundle, Finding, write_bundle

FINDING = Finding(
    step="round_to_nearest",
    changed="4-bit weights in 12 linears",
    before={"size_bytes": 4096, "kl": 0.0},
    after={"size_bytes": 640, "kl": 0.01},
    seconds=1.5,
    options={"bits": 4, "skip": ["lm_head"]},
)


def model(**changes: Any) -> dict[str, Any]:
    return {
        "family": "qwen2_vl",
        "geometry": "qwen2_vl",
        "vision": {},
        "text": {},
        "tokens": {},
        "graphs": {"vision": "vision.onnx", "decoder": "graphs/decoder.onnx"},
        **changes,
    }


def bundle_files(**changes: Any) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        (folder / "vision.onnx").write_bytes(b"vision" * 100)
        (folder / "graphs").mkdir()
        (folder / "graphs" / "decoder.onnx").write_bytes(b"decoder" * 100)
        (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
        (folder / "model.json").write_text(json.dumps(model(**changes)), encoding="utf-8")

    return fill


def make_bundle(path: Path, **changes: Any) -> Bundle:
    return write_bundle(path, name="small", files=bundle_files(**changes), lineage=[FINDING])


def safetensors(tensors: dict[str, tuple[str, list[int], bytes]], **header: Any) -> bytes:
    """A safetensors file with these (dtype, shape, bytes), each in the order given."""
    entries: dict[str, Any] = dict(header)
    data = b""
    for name, (dtype, shape, raw) in tensors.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def checkpoint_files(folder: Path) -> None:
    (folder / "config.json").write_text(
        json.dumps({"model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"]}), encoding="utf-8"
    )
    weights = safetensors({"a.weight": ("F32", [2, 3], bytes(24)), "b": ("BF16", [4], bytes(8))})
    (folder / "model.safetensors").write_bytes(weights)
