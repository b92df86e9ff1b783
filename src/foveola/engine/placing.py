"""From a checkpoint's tensors to the constants of a graph, in numpy: transposed, side by side, rounded to few bits.

Every graph says in its metadata which constants come from which modules (``foveola.lower.sources`` writes it):
``{constant: {"kind", "from": [module paths], "format"}}`` where ``kind`` is

    matrix  one or several linear layers (or a patch embedding) over the same input, outputs side by side
    bias    their biases
    tensor  a parameter as it is (``from`` then holds the parameter's own path)

A head that shares the embedding's weights names that module as ``tied``: checkpoints store them once.

``format`` is that of ``foveola.weights.formats`` or ``fp32``. What is stored in 16 bits is rounded to 16 bits.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveola.engine.initializers import Initializer
from foveola.exchange import Damaged, Invalid

METADATA = "foveola.weights"
Array = NDArray[Any]
_FORMAT = re.compile(r"int([48])(s)?/(\d+)@(\d+|load)")
_SMALLEST_SCALE = 2.0**-14  # the smallest normal fp16


@dataclass(frozen=True, slots=True)
class Source:
    """Where one constant of a graph comes from."""

    constant: str
    kind: str
    modules: tuple[str, ...]
    format: str
    tied: tuple[str, ...] = ()

    @property
    def tensors(self) -> tuple[str, ...]:
        """The parameters that it is made of, by their paths in the model."""
        if self.kind == "tensor":
            return self.modules
        return tuple(f"{module}.{'weight' if self.kind == 'matrix' else 'bias'}" for module in self.modules)


def read_sources(metadata: Mapping[str, str], file: str) -> tuple[Source, ...]:
    """The sources that a graph's metadata names. Raises ``Damaged`` where there are none."""
    text = metadata.get(METADATA)
    if text is None:
        raise Damaged(
            f"{file} does not say which weights are in it, so that none can be replaced; "
            "compile the bundle anew with this version."
        )
    entries: dict[str, Any] = json.loads(text)
    return tuple(
        Source(name, e["kind"], tuple(e["from"]), e["format"], tuple(e.get("tied", ()))) for name, e in entries.items()
    )


def constants_of(source: Source, tensors: Mapping[str, Array], present: Mapping[str, Initializer]) -> dict[str, Array]:
    """The constants of a graph that ``tensors`` become, by their names in the graph. ``present`` are those there now.

    Raises ``Invalid`` where a tensor's shape is another than the graph's.
    """
    parts = [_matrix(tensors[name]) if source.kind == "matrix" else tensors[name] for name in source.tensors]
    try:
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts)
    except ValueError:
        shapes = ", ".join(f"{name} {list(tensors[name].shape)}" for name in source.tensors)
        raise Invalid(f"{shapes} do not fit beside each other.", field="new_state_dict") from None
    made = _stored(source, whole, present)
    placed: dict[str, Array] = {}
    for name, array in made.items():
        actual = name if name in present else f"{name}.half"
        there = present.get(actual)
        if there is None or there.dtype is None:
            raise Damaged(f"The graph has no constant {name}, which its own metadata names; compile the bundle anew.")
        if there.shape != array.shape:
            raise Invalid(
                f"{', '.join(source.tensors)}: the new weights fill {list(array.shape)}, the graph has "
                f"{list(there.shape)}. A patch has the shapes of the model that is served; compile others to a bundle.",
                field="new_state_dict",
            )
        with np.errstate(over="ignore"):
            placed[actual] = np.ascontiguousarray(array.astype(there.dtype))
        if not np.isfinite(placed[actual]).all():
            raise Invalid(
                f"{', '.join(source.tensors)} holds values up to {np.abs(array).max():g}, beyond {there.dtype}, which "
                "the graph keeps it in; scale it, or compile the weights to a bundle.",
                field="new_state_dict",
            )
    return placed


def _stored(source: Source, whole: Array, present: Mapping[str, Initializer]) -> dict[str, Array]:
    """Name -> constant as ``lower`` writes it. A product without zero points takes weights rounded around 0."""
    if source.kind != "matrix" or source.format in ("fp32", "fp16"):
        return {source.constant: whole.T if source.kind == "matrix" else whole}
    match = _FORMAT.fullmatch(source.format)
    if match is None:
        raise Damaged(f"The graph names the format {source.format}, which this version does not know.")
    bits, block, level = int(match[1]), int(match[3]), match[4]
    base = source.constant.removesuffix(".weight")
    told = level == "load" or f"{base}.zeros" in present
    symmetric = match[2] is not None or not told
    q, scales, zeros = rounded(whole, bits, block, symmetric=symmetric)
    if level == "load":  # [blocks, block, N] with N last, see lower.narrow
        return {
            f"{source.constant}.values": _pairs(q, bits).transpose(1, 2, 0),
            f"{source.constant}.zeros": zeros.T[:, None],
            f"{source.constant}.scales": scales.T[:, None],
        }
    made = {f"{base}.values": _pairs(q, bits), f"{base}.scales": scales}
    return made | ({f"{base}.zeros": _pairs(zeros, bits)} if told else {})


def rounded(weight_NK: Array, bits: int, block: int, *, symmetric: bool = False) -> tuple[Array, Array, Array]:
    """Round to nearest, block-wise: q uint8 ``[N, blocks, block]``, scales float32 and zeros uint8 ``[N, blocks]``.

    The numbers of ``foveola.weights.packed.pack``, bit for bit (a test compares them).
    """
    rows, inner = weight_NK.shape
    blocks = -(-inner // block)
    w = np.zeros((rows, blocks * block), np.float32)
    w[:, :inner] = weight_NK
    w = w.reshape(rows, blocks, block)
    top = np.float32(2**bits - 1)
    if symmetric:
        middle = np.float32(2 ** (bits - 1))
        largest = np.take_along_axis(w, np.abs(w).argmax(axis=-1)[..., None], axis=-1)[..., 0]
        scales = _halved(np.abs(largest) / middle) * np.where(largest > 0, np.float32(-1), np.float32(1))
        zeros = np.full(scales.shape, middle)
    else:
        low, high = np.minimum(w.min(axis=-1), 0), np.maximum(w.max(axis=-1), 0)
        scales = _halved((high - low) / top)
        zeros = np.clip(np.rint(-low / scales), 0, top)
    q = np.clip(np.rint(w / scales[..., None]) + zeros[..., None], 0, top)
    return q.astype(np.uint8), scales, zeros.astype(np.uint8)


def _halved(scales: Array) -> Array:
    """As 16 bits hold them, and none too small."""
    return np.maximum(scales, np.float32(_SMALLEST_SCALE)).astype(np.float16).astype(np.float32)


def _pairs(q: Array, bits: int) -> Array:
    """Two numbers of four bits per byte along the last axis, low half first; eight bits stay."""
    if bits == 8:
        return q
    if q.shape[-1] % 2:
        q = np.concatenate([q, np.zeros((*q.shape[:-1], 1), np.uint8)], axis=-1)
    packed: Array = q[..., 0::2] | (q[..., 1::2] << 4)
    return packed


def _matrix(tensor: Array) -> Array:
    """[N, K]; of a patch embedding the kernel over channels, rows and columns, frames added up: equal in a picture."""
    if tensor.ndim == 5:
        tensor = tensor.sum(axis=2)
    return tensor.reshape(len(tensor), -1)
