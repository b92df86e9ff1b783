from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foveola.artifact.safetensors import TensorInfo, read_header
from foveola.exchange import Damaged
from tests.artifact.making import safetensors


def write(folder: Path, header: Any, data: bytes = b"") -> Path:
    raw = json.dumps(header).encode() if not isinstance(header, bytes) else header
    (folder / "w.safetensors").write_bytes(struct.pack("<Q", len(raw)) + raw + data)
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(Damaged) as caught:
        read_header(folder, "w.safetensors")
    assert "w.safetensors" in caught.value.message
    assert str(folder) not in caught.value.message
    return caught.value.message


def test_names_dtypes_shapes_and_places(tmp_path: Path) -> None:
    raw = safetensors(
        {
            "a": ("F32", [2, 3], bytes(24)),
            "s": ("I64", [], bytes(8)),
            "e": ("F16", [0, 4], b""),
            "q": ("F4", [3, 4], bytes(6)),
        },
        __metadata__={"format": "pt"},
    )
    (tmp_path / "w.safetensors").write_bytes(raw)
    start = 8 + int.from_bytes(raw[:8], "little")
    assert read_header(tmp_path, "w.safetensors") == {
        "a": TensorInfo("F32", (2, 3), "w.safetensors", start, 24),
        "s": TensorInfo("I64", (), "w.safetensors", start + 24, 8),
        "e": TensorInfo("F16", (0, 4), "w.safetensors", start + 32, 0),
        "q": TensorInfo("F4", (3, 4), "w.safetensors", start + 32, 6),
    }


def test_a_file_of_the_reference_library(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors.numpy")
    arrays = {"x": np.arange(6, dtype=np.float32).reshape(2, 3), "y": np.arange(4, dtype=np.int8)}
    library.save_file(arrays, tmp_path / "w.safetensors")
    header = read_header(tmp_path, "w.safetensors")
    whole = (tmp_path / "w.safetensors").read_bytes()
    for name, array in arrays.items():
        info = header[name]
        assert info.shape == array.shape
        assert whole[info.start : info.start + info.bytes] == array.tobytes()


@pytest.mark.parametrize("raw", [b"", b"1234567", struct.pack("<Q", 2**63), struct.pack("<Q", 3) + b"{}"])
def test_a_length_that_does_not_fit_the_file(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "w.safetensors").write_bytes(raw)
    assert "is truncated or no safetensors file: no header fits into" in refusal(tmp_path)


def test_a_header_that_is_no_json(tmp_path: Path) -> None:
    assert refusal(write(tmp_path, b"{]")).startswith("The header of w.safetensors is not valid JSON")


@pytest.mark.parametrize(
    "entry",
    [
        [], {}, {"dtype": "F32", "shape": [1]},
        {"dtype": "object", "shape": [1], "data_offsets": [0, 4]},
        {"dtype": ["F32"], "shape": [1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1.0], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1] * 17, "data_offsets": [0, 4]},
        {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]},
        {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]},
        {"dtype": "F4", "shape": [1], "data_offsets": [0, 1]},
    ],
)  # fmt: skip
def test_an_entry_that_contradicts_itself(tmp_path: Path, entry: Any) -> None:
    message = refusal(write(tmp_path, {"weight": entry}, bytes(4)))
    assert message == "w.safetensors: dtype, shape and offsets of the tensor 'weight' do not agree."


@pytest.mark.parametrize("second", [[0, 4], [2, 6], [5, 9], [8, 12]])
def test_overlaps_and_gaps(tmp_path: Path, second: list[int]) -> None:
    header = {
        "a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
        "b": {"dtype": "F32", "shape": [1], "data_offsets": second},
    }
    assert "overlap another's or leave a gap" in refusal(write(tmp_path, header, bytes(12)))


@pytest.mark.parametrize(("size", "word"), [(3, "truncated"), (5, "too long")])
def test_data_of_another_length(tmp_path: Path, size: int, word: str) -> None:
    header = {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}
    message = refusal(write(tmp_path, header, bytes(size)))
    assert message == f"w.safetensors is {word}: its tensors need 4 bytes, it has {size}."
