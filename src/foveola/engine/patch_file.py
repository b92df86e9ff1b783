"""New weights for a patch, out of a safetensors file: read by numpy, checked like every such file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveola.artifact.safetensors import TensorInfo, read_header
from foveola.exchange import Damaged, Invalid

_TYPES = {"F32": "<f4", "F16": "<f2", "F64": "<f8"}


def read_state_dict(path: Path | str) -> dict[str, NDArray[np.float32]]:
    """Name -> float32 array, of all tensors in a safetensors file.

    Raises ``Damaged`` for a file that is none or is cut off, ``Invalid`` for types that are no floating point numbers.
    """
    path = Path(path)
    if path.suffix != ".safetensors":
        raise Invalid(
            f"{path.name} is no .safetensors file; new weights come in that format, which can hold nothing that runs.",
            field="weights",
        )
    header = read_header(path.parent, path.name)
    try:
        with path.open("rb") as stream:
            return {name: _tensor(name, info, stream) for name, info in header.items()}
    except OSError as error:
        raise Damaged(f"{path.name} cannot be read: {error.strerror or 'input/output error'}.") from None


def _tensor(name: str, info: TensorInfo, stream: Any) -> NDArray[np.float32]:
    stream.seek(info.start)
    data = stream.read(info.bytes)
    if info.dtype == "BF16":  # the upper half of a float32
        words = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return words.view(np.float32).reshape(info.shape)
    if info.dtype not in _TYPES:
        raise Invalid(f"{name} is stored as {info.dtype}; expected F32, F16, BF16 or F64.", field="weights")
    return np.frombuffer(data, _TYPES[info.dtype]).astype(np.float32).reshape(info.shape)
