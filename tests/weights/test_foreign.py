from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from safetensors.torch import load_file, save_file  # noqa: E402

from foveola.artifact import Checkpoint  # noqa: E402
from foveola.exchange import Damaged, Unsupported  # noqa: E402
from foveola.family import family_of  # noqa: E402
from foveola.weights.foreign import read_foreign, suffix_of  # noqa: E402
from foveola.weights.loading import load  # noqa: E402

pytestmark = pytest.mark.torch
ROWS, INNER, GROUP = 16, 64, 32
AWQ = {"quant_method": "awq", "bits": 4, "group_size": GROUP, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": False}


def packed(values: Any, bits: int, order: tuple[int, ...] | None = None) -> Any:
    """Whole numbers [R, C] in int32 words [R, C * bits / 32]; ``order``: which number lies at each place of a word."""
    count = 32 // bits
    parts = values.reshape(values.shape[0], -1, count).long()
    if order is not None:
        parts = parts[..., list(order)]
    words = sum(parts[..., i] << (bits * i) for i in range(count))
    return torch.where(words >= 2**31, words - 2**32, words).to(torch.int32)


def made(bits: int = 4, groups: int = 2) -> tuple[Any, Any, Any, Any]:
    """Codes, scales, zeros, and the matrix that they stand for."""
    draw = torch.Generator().manual_seed(bits)
    codes = torch.randint(0, 2**bits, (ROWS, INNER), generator=draw)
    scales = (torch.rand(ROWS, groups, generator=draw) * 0.02 + 0.01).half()
    zeros = torch.randint(1, 2**bits, (ROWS, groups), generator=draw)
    spread = INNER // groups
    dense = (codes - zeros.repeat_interleave(spread, 1)) * scales.float().repeat_interleave(spread, 1)
    return codes, scales, zeros, dense


def awq_tensors(codes: Any, scales: Any, zeros: Any) -> dict[str, Any]:
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    return {
        "qweight": packed(codes.t(), 4, order).contiguous(),
        "qzeros": packed(zeros.t(), 4, order).contiguous(),
        "scales": scales.t().contiguous(),
    }


def gptq_tensors(codes: Any, scales: Any, zeros: Any, bits: int = 4) -> dict[str, Any]:
    return {
        "qweight": packed(codes, bits).t().contiguous(),
        "qzeros": packed(zeros.t() - 1, bits),
        "scales": scales.t().contiguous(),
        "g_idx": (torch.arange(INNER) // (INNER // scales.shape[1])).int(),
    }


def compressed_tensors(codes: Any, scales: Any, zeros: Any | None, bits: int = 4) -> dict[str, Any]:
    found = {"weight_packed": packed(codes, bits), "weight_scale": scales, "weight_shape": torch.tensor([ROWS, INNER])}
    if zeros is not None:
        found["weight_zero_point"] = packed(zeros.t(), bits).t().contiguous()
    return found


def read(entry: dict[str, Any], tensors: dict[str, Any]) -> Any:
    return read_foreign({"quantization_config": entry}, "a.b", tensors.__getitem__, tensors.__contains__)


def groups_of(bits: int) -> dict[str, Any]:
    weights = {"num_bits": bits, "type": "int", "strategy": "group"}
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {"g": {"weights": weights}},
    }


def test_autoawq() -> None:
    codes, scales, zeros, dense = made()
    found = read(AWQ, awq_tensors(codes, scales, zeros))
    assert found.format.block == GROUP
    assert torch.equal(found.dequantised(), dense)
    assert torch.equal(found.zero_points().long(), zeros)


@pytest.mark.parametrize("bits", [4, 8])
def test_gptq(bits: int) -> None:
    codes, scales, zeros, dense = made(bits)
    tensors = gptq_tensors(codes, scales, zeros, bits)
    assert torch.equal(read({**GPTQ, "bits": bits}, tensors).dequantised(), dense)
    second = {**tensors, "qzeros": packed(zeros.t(), bits)}
    assert torch.equal(read({**GPTQ, "bits": bits, "checkpoint_format": "gptq_v2"}, second).dequantised(), dense)
    with pytest.raises(Unsupported, match="a.b has its inputs in an order of its own \\(act-order\\)"):
        read({**GPTQ, "bits": bits}, {**tensors, "g_idx": tensors["g_idx"].flip(0)})


@pytest.mark.parametrize("bits", [4, 8])
def test_compressed_tensors(bits: int) -> None:
    codes, scales, zeros, dense = made(bits)
    assert torch.equal(read(groups_of(bits), compressed_tensors(codes, scales, zeros, bits)).dequantised(), dense)
    middle = torch.full_like(zeros, 2 ** (bits - 1))
    symmetric = read(groups_of(bits), compressed_tensors(codes, scales, None, bits))
    assert torch.equal(symmetric.zero_points().long(), middle)


def test_a_scale_per_row_is_written_down_for_each_block() -> None:
    codes, scales, zeros, dense = made(groups=1)
    found = read(groups_of(4), compressed_tensors(codes, scales, zeros))
    assert torch.equal(found.dequantised(), dense)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (
            {"quant_method": "bitsandbytes"},
            "config.json has quantization_config of 'bitsandbytes', format None; read are",
        ),
        (
            {"quant_method": "compressed-tensors", "format": "float-quantized"},
            "config.json has quantization_config of 'compressed-tensors', format 'float-quantized'; read are",
        ),
    ],
)
def test_other_forms_are_refused_by_name(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(Unsupported) as caught:
        suffix_of({"quantization_config": entry})
    assert caught.value.message.startswith(message)
    assert suffix_of({}) is None


def test_what_does_not_fit_is_damaged() -> None:
    codes, scales, zeros, _ = made()
    tensors = awq_tensors(codes, scales, zeros)
    del tensors["scales"]
    with pytest.raises(Damaged, match="the packed tensors of a.b and quantization_config in config.json do not fit"):
        read(AWQ, tensors)
    with pytest.raises(Unsupported, match="AutoAWQ with 4 bits, version 'gemv' is not read; expected 4, gemm."):
        read({**AWQ, "version": "gemv"}, awq_tensors(codes, scales, zeros))


def test_a_checkpoint_of_autoawq_is_loaded(tmp_path: Path) -> None:
    from tests.checkpoints import random_checkpoint

    folder = random_checkpoint(tmp_path / "awq")
    tensors = load_file(folder / "model.safetensors")
    stored = next(name for name in tensors if name.endswith("layers.1.mlp.down_proj.weight"))
    weight = tensors.pop(stored)
    rows, inner = weight.shape
    groups = weight.reshape(rows, -1, GROUP)
    scales = ((groups.amax(-1) - groups.amin(-1)) / 15).half()
    zeros = (-groups.amin(-1) / scales.float()).round().clamp(0, 15).long()
    codes = ((groups / scales.float()[..., None]).round() + zeros[..., None]).clamp(0, 15).long()
    for name, tensor in awq_tensors(codes.reshape(rows, inner), scales, zeros).items():
        tensors[stored.replace("weight", name)] = tensor
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": AWQ}))
    source = Checkpoint.open(folder)
    model = load(source, family_of(source.config))
    expected = ((codes - zeros[..., None]) * scales.float()[..., None]).reshape(rows, inner)
    assert torch.equal(model.get_parameter("model.language_model.layers.1.mlp.down_proj.weight"), expected)
