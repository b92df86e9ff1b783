"""``export``: a packed checkpoint in the form that other tools load. compressed-tensors, pack-quantized (vLLM).

Codes, scales and zero points stay what they are. What that form does not hold (embeddings, patch kernels, matrices
whose rows are no whole number of groups) is written out whole.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from foveola.artifact import Checkpoint, Finding
from foveola.compress.steps import Workbench, step
from foveola.compress.stream import Changed, rewrite
from foveola.exchange import Invalid
from foveola.family import family_of
from foveola.weights.foreign import QUANTISATION
from foveola.weights.matrix import from_matrix
from foveola.weights.packed import Packed, in_blocks
from foveola.weights.skeleton import skeleton
from foveola.weights.store import packed_formats, read_packed

_PARTS = ("weight_values", "weight_scales", "weight_zeros")


@step("export")
@dataclass(frozen=True, slots=True)
class Export:
    """Writes packed matrices as ``format`` says; ``whole`` is the dtype of what is written out whole."""

    format: Literal["compressed-tensors"] = "compressed-tensors"
    whole: Literal["float16", "float32"] = "float32"

    def run(self, source: Checkpoint, folder: Path, bench: Workbench) -> Finding:
        """Rewrite block by block. Raises ``Invalid`` for a checkpoint without packed matrices."""
        start = time.perf_counter()
        formats = packed_formats(source.config)
        if not formats:
            raise Invalid("the checkpoint has no packed matrices to export; round it first.", field="use")
        model = skeleton(source, family_of(source.config))
        shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
        linears = {path for path, module in model.named_modules() if isinstance(module, nn.Linear)}
        exported = {p: f for p, (f, inner) in formats.items() if p in linears and inner % f.block == 0}
        dtype = getattr(torch, self.whole)

        def change(block: str, tensors: dict[str, Tensor]) -> Changed:
            kept = {name: tensor for name, tensor in tensors.items() if not name.endswith(_PARTS)}
            for path in [name.rpartition(".")[0] for name in tensors if name.endswith(_PARTS[0])]:
                packed = read_packed(source, path, *formats[path])
                if path in exported:
                    kept |= compressed_tensors(path, packed)
                else:
                    kept[f"{path}.weight"] = from_matrix(packed.dequantised(), shapes[f"{path}.weight"]).to(dtype)
            return Changed(kept)

        entry = quantisation_entry({p: (f.bits, f.block) for p, f in exported.items()}, sorted(linears - set(exported)))
        rewrite(source, model, folder, bench.journal, change, bench.tell, config={QUANTISATION: entry})
        return Finding(
            step="compress.export",
            changed=f"{len(exported)} matrices as {self.format}, {len(formats) - len(exported)} written out whole",
            seconds=time.perf_counter() - start,
        )


def compressed_tensors(path: str, packed: Packed) -> dict[str, Tensor]:
    """The tensors of one matrix: codes and zero points in int32 words, lowest bits first."""
    bits = packed.format.bits
    rows, inner = packed.outer, packed.inner
    codes = packed.codes().flatten(1)[:, :inner]
    return {
        f"{path}.weight_packed": _words(codes, bits),
        f"{path}.weight_scale": packed.scales.clone(),
        f"{path}.weight_zero_point": _words(packed.zero_points().t(), bits).t().contiguous(),
        f"{path}.weight_shape": torch.tensor([rows, inner]),
    }


def quantisation_entry(formats: Mapping[str, tuple[int, int]], ignored: list[str]) -> dict[str, Any]:
    """config.json's ``quantization_config``: one group per width and size, its modules by name."""
    groups: dict[str, Any] = {}
    for number, (bits, size) in enumerate(sorted(set(formats.values()))):
        weights = {
            "num_bits": bits, "type": "int", "symmetric": False, "strategy": "group", "group_size": size,
            "dynamic": False, "actorder": None, "observer": "minmax",
        }  # fmt: skip
        targets = [path for path, form in formats.items() if form == (bits, size)]
        groups[f"group_{number}"] = {
            "targets": targets, "weights": weights, "input_activations": None, "output_activations": None,
            "format": "pack-quantized",
        }  # fmt: skip
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": groups,
        "ignore": ignored,
        "kv_cache_scheme": None,
    }


def _words(values_RC: Tensor, bits: int) -> Tensor:
    """Whole numbers [R, C] as int32 words [R, ceil(C * bits / 32)]."""
    count = 32 // bits
    parts = in_blocks(values_RC.float(), count).long()
    words = (parts << torch.arange(0, 32, bits)).sum(-1)
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)
