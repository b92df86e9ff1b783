"""What NVIDIA's builders are given: the layout of their own exporter, and a word for everything that does not fit."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from foveola.cli import main  # noqa: E402
from foveola.exchange import Invalid, Unavailable, Unsupported  # noqa: E402
from foveola.lower.trtllm import build, export  # noqa: E402
from foveola.lower.trtllm_devices import DEVICES  # noqa: E402
from foveola.lower.trtllm_layout import GROUP, pack, quantise, stored, unpack  # noqa: E402

pytestmark = pytest.mark.torch


def checkpoint(folder: Path, **changes: Any) -> Path:
    """A Llama whose sizes the builders' kernels have: 2 layers, 256 wide, heads of 64."""
    from safetensors.torch import save_file

    text = {
        "model_type": "llama", "vocab_size": 320, "hidden_size": 256, "intermediate_size": 384, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu", "max_position_embeddings": 512,
        **changes,
    }  # fmt: skip
    hidden, inner, size = text["hidden_size"], text["intermediate_size"], text["hidden_size"] // 4
    random = torch.Generator().manual_seed(0)
    tensors = {"model.embed_tokens.weight": torch.randn(320, hidden, generator=random)}
    for layer in range(2):
        for name, shape in {
            "self_attn.q_proj": (4 * size, hidden), "self_attn.k_proj": (2 * size, hidden),
            "self_attn.v_proj": (2 * size, hidden), "self_attn.o_proj": (hidden, 4 * size),
            "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner),
        }.items():  # fmt: skip
            tensors[f"model.layers.{layer}.{name}.weight"] = torch.randn(shape, generator=random)
        tensors[f"model.layers.{layer}.input_layernorm.weight"] = torch.ones(hidden)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(text), encoding="utf-8")
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_values_are_the_nearest_of_sixteen_and_packing_is_undone() -> None:
    weight = torch.randn(8, 2 * GROUP, generator=torch.Generator().manual_seed(1))
    values, scale = quantise(weight)
    assert values.min() >= -8
    assert values.max() <= 7
    assert scale.shape == (8, 2)
    assert torch.equal(unpack(pack(values)), values)
    back = values.float().view(8, 2, GROUP) * scale.float()[..., None]
    assert (back.view_as(weight) - weight).abs().max() <= scale.float().max() / 2 + 1e-3


def test_the_layout_is_modelopt_s() -> None:
    theirs = pytest.importorskip("modelopt.torch.export.quant_utils", reason="nvidia-modelopt is not installed")
    weight = torch.randn(128, 3 * GROUP, generator=torch.Generator().manual_seed(2))
    made, error = stored("x", weight, behind_norm=True)
    expected = theirs.pack_int4_in_uint8(weight, made["x.weight_scale"].float(), GROUP)
    assert torch.equal(made["x.weight"], expected)
    assert 0.05 < error < 0.15


@pytest.mark.parametrize("target", ["tensorrt-llm", "tensorrt-edge-llm"])
@pytest.mark.parametrize("device", list(DEVICES))
def test_a_directory_to_carry_away(tmp_path: Path, target: str, device: str) -> None:
    from safetensors.torch import load_file

    source = checkpoint(tmp_path / "model")
    finding = export(source, tmp_path / "out", target, device)
    out = tmp_path / "out"
    held = load_file(out / "checkpoint" / "model.safetensors")
    original = load_file(source / "model.safetensors")
    name = "model.layers.1.mlp.down_proj"
    assert held[f"{name}.weight"].shape == (128, 384)
    assert held[f"{name}.weight"].dtype == torch.uint8
    assert held[f"{name}.weight_scale"].shape == (256, 3)
    assert held[f"{name}.weight_scale"].dtype == torch.float32
    assert held[f"{name}.pre_quant_scale"].tolist() == [1.0] * 384
    assert "model.layers.1.mlp.up_proj.pre_quant_scale" not in held  # the norm before it would take it over
    back = unpack(held[f"{name}.weight"]).float().view(256, 3, GROUP) * held[f"{name}.weight_scale"].float()[..., None]
    error = (back.flatten(1) - original[f"{name}.weight"]).norm() / original[f"{name}.weight"].norm()
    assert float(error) == pytest.approx(finding.after["worst_relative_error"], rel=0.2)
    assert held["model.embed_tokens.weight"].dtype == torch.float16
    described = json.loads((out / "checkpoint" / "hf_quant_config.json").read_text(encoding="utf-8"))["quantization"]
    assert (described["quant_algo"], described["group_size"]) == ("W4A16_AWQ", GROUP)
    assert described["exclude_modules"] == ["lm_head", "model.embed_tokens"]
    assert json.loads((out / "checkpoint" / "config.json").read_text(encoding="utf-8"))["model_type"] == "llama"
    assert json.loads((out / "profile.json").read_text(encoding="utf-8"))["max_batch"] == DEVICES[device].max_batch
    assert all(check["holds"] is not False for check in json.loads((out / "CHECKS.json").read_text(encoding="utf-8")))
    script = (out / "build.sh").read_text(encoding="utf-8")
    assert str(DEVICES[device].max_sequence) in script
    assert os.access(out / "build.sh", os.X_OK)
    assert subprocess.run(["bash", "-n", out / "build.sh"], check=False).returncode == 0


def test_shards_stay_shards(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    source = checkpoint(tmp_path / "model")
    tensors = load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()
    first = {name: tensor for name, tensor in tensors.items() if "layers.1" not in name}
    second = {name: tensor for name, tensor in tensors.items() if "layers.1" in name}
    weight_map = {}
    for file, part in (("model-1-of-2.safetensors", first), ("model-2-of-2.safetensors", second)):
        save_file(part, source / file)
        weight_map |= dict.fromkeys(part, file)
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
    export(source, tmp_path / "out", "tensorrt-llm", "a10g")
    index = json.loads((tmp_path / "out/checkpoint/model.safetensors.index.json").read_text(encoding="utf-8"))
    assert index["weight_map"]["model.layers.1.mlp.down_proj.weight_scale"] == "model-2-of-2.safetensors"
    held = load_file(tmp_path / "out/checkpoint/model-1-of-2.safetensors")
    assert "model.layers.0.mlp.down_proj.weight_scale" in held


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"hidden_size": 128}, r"head size \(32; the kernels have 64, 96, 128\)"),
        ({"intermediate_size": 192}, r"sizes \(inputs divide by 128, outputs by 64; not model.layers.0.mlp.down_proj"),
        ({"hidden_act": "gelu"}, r"activation \(gelu; the kernels have silu\)"),
    ],
)
def test_preconditions_that_do_not_hold_are_named(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    source = checkpoint(tmp_path / "model", **changes)
    with pytest.raises(Unsupported, match=f"model cannot be built by tensorrt-llm: .*{says}.*Nothing was written"):
        export(source, tmp_path / "out", "tensorrt-llm", "orin")
    assert not (tmp_path / "out").exists()


def test_quantised_weights_and_unknown_names_are_refused(tmp_path: Path) -> None:
    source = checkpoint(tmp_path / "model", quantization_config={"quant_method": "awq"})
    with pytest.raises(Unsupported, match="is quantised already; tensorrt-llm wants to be given the weights whole"):
        export(source, tmp_path / "out", "tensorrt-llm")
    with pytest.raises(Invalid, match="target is 'onnx'; expected tensorrt-llm, tensorrt-edge-llm"):
        export(source, tmp_path / "out", "onnx")
    with pytest.raises(Invalid, match="device is 'toaster'; expected orin, orin-nano, a10g"):
        export(source, tmp_path / "out", "tensorrt-llm", "toaster")


def test_a_builder_that_is_not_here_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = checkpoint(tmp_path / "model")
    out = tmp_path / "out"
    asked = ["compile", "--model", str(source), "--target", "tensorrt-edge-llm", "--out", str(out), "--json"]
    assert main([*asked, "--build"]) == 2
    said = capsys.readouterr()
    assert json.loads(said.out)["step"] == "lower.tensorrt-edge-llm"
    assert said.err == (
        "foveola: tensorrt-edge-llm is not installed here: the command tensorrt-edgellm-export is missing. Install the "
        "package tensorrt-edgellm on an x86 machine, or carry the directory out there and run build.sh in it.\n"
    )
    # Where it is installed, it is run.
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "trtllm-serve").write_text('#!/bin/sh\necho "$@" > built\n', encoding="utf-8")
    (tools / "trtllm-serve").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    export(source, tmp_path / "other", "tensorrt-llm", "a10g")
    build(tmp_path / "other", "tensorrt-llm")
    assert (tmp_path / "other/built").read_text(encoding="utf-8").startswith("serve ./checkpoint --max_batch_size 8")
    with pytest.raises(Unavailable):
        build(out, "tensorrt-edge-llm")
