"""Checkpoint to the input of TensorRT-LLM or TensorRT Edge-LLM: a directory that can be carried to the device.

``checkpoint/`` in the builder's layout (``trtllm_layout``), ``build.sh`` with its command lines, ``profile.json`` with
the sizes for the device, ``CHECKS.json`` with every precondition that was looked at. Shards are read and written one
tensor at a time; nothing is held twice.
"""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from foveola.artifact import Checkpoint, Finding
from foveola.artifact.atomic import staged_directory
from foveola.exchange import Invalid, Unavailable, Unsupported
from foveola.family import Family, family_of
from foveola.lower.trtllm_devices import DEVICES, LISTED, TARGETS, Device
from foveola.lower.trtllm_layout import GROUP, description, stored
from foveola.weights.store import packed_formats

_GIB = 2**30
_CARRIED = (".json", ".jinja", ".txt", ".model")
_TOOLS = {
    "tensorrt-llm": ("trtllm-serve", "Install the package tensorrt-llm on a machine with an NVIDIA GPU"),
    "tensorrt-edge-llm": ("tensorrt-edgellm-export", "Install the package tensorrt-edgellm on an x86 machine"),
}


@dataclass(frozen=True, slots=True)
class Precondition:
    """One thing that the builder needs. ``holds`` None: not known here, look it up in the builder's list."""

    what: str
    holds: bool | None
    says: str


def preconditions(checkpoint: Checkpoint, family: Family, target: str, device: Device) -> tuple[Precondition, ...]:
    """Everything that is looked at before a byte is written."""
    shape = family.decoder_shape(checkpoint.config)
    matrices, odd = _matrices(checkpoint, family)
    weights = _bytes(checkpoint, matrices) / _GIB
    cache = device.max_batch * device.max_sequence * 2 * 2 * shape.layers * shape.kv_heads * shape.head_dim / _GIB
    listed = family.model_type in LISTED[target]
    return (
        Precondition("family", listed or None, f"{family.model_type} is {'' if listed else 'not '}listed for {target}"),
        Precondition("group", bool(matrices), f"{len(matrices)} matrices of the decoder in groups of {GROUP}"),
        Precondition("sizes", not odd, f"inputs divide by {GROUP}, outputs by 64" + (f"; not {odd[0]}" if odd else "")),
        Precondition("heads", shape.heads % shape.kv_heads == 0, f"{shape.heads} heads over {shape.kv_heads}"),
        Precondition("head size", shape.head_dim in (64, 96, 128), f"{shape.head_dim}; the kernels have 64, 96, 128"),
        Precondition("activation", shape.activation in ("silu", "swish"), f"{shape.activation}; the kernels have silu"),
        Precondition(
            "memory",
            weights + cache <= device.memory_gib,
            f"{weights:.1f} GiB of weights and {cache:.1f} of cache; the {device.name} has {device.memory_gib:g}",
        ),
        Precondition("experts", not shape.experts, "none" if not shape.experts else f"{shape.experts} experts"),
    )


def export(
    checkpoint_dir: Path | str,
    out: Path | str,
    target: str,
    device: str = "orin",
    tell: Callable[[str, float], None] = lambda step, share: None,
    *,
    replace: bool = False,
) -> Finding:
    """Write the directory ``out``, whole or not at all.

    Raises ``Invalid`` for an unknown target or device, ``Unsupported`` naming the preconditions that do not hold.
    """
    start = time.perf_counter()
    _known("target", target, TARGETS)
    _known("device", device, tuple(DEVICES))
    checkpoint, profile = Checkpoint.open(checkpoint_dir), DEVICES[device]
    family = family_of(checkpoint.config)
    if checkpoint.config.get("quantization_config") or packed_formats(checkpoint.config):
        raise Unsupported(
            f"{checkpoint.name} is quantised already; {target} wants to be given the weights whole. Export the "
            "checkpoint from before the step that packed them."
        )
    checks = preconditions(checkpoint, family, target, profile)
    failed = [f"{check.what} ({check.says})" for check in checks if check.holds is False]
    if failed:
        raise Unsupported(f"{checkpoint.name} cannot be built by {target}: {'; '.join(failed)}. Nothing was written.")
    errors: dict[str, float] = {}
    with staged_directory(Path(out), replace=replace) as folder:
        _weights(checkpoint, family, folder / "checkpoint", errors, tell)
        write = {
            "CHECKS.json": json.dumps([asdict(check) for check in checks], indent=1),
            "profile.json": json.dumps({"target": target, **asdict(profile)}, indent=1),
            "build.sh": script(target, profile, family),
        }
        for name, text in write.items():
            (folder / name).write_text(text + "\n", encoding="utf-8")
        (folder / "build.sh").chmod(0o755)
    return Finding(
        step=f"lower.{target}",
        changed=f"{len(errors)} matrices in 4 bits, groups of {GROUP}; the rest in fp16",
        before={"weight_bytes": 4 * checkpoint.parameters},
        after={
            "weight_bytes": _bytes(checkpoint, _matrices(checkpoint, family)[0]),
            "mean_relative_error": sum(errors.values()) / max(len(errors), 1),
            "worst_relative_error": max(errors.values(), default=0.0),
        },
        seconds=time.perf_counter() - start,
        options={"target": target, "device": device},
    )


def build(out: Path, target: str) -> None:
    """Run ``build.sh`` where the builder is installed. Raises ``Unavailable`` naming what is missing where not."""
    tool, advice = _TOOLS[target]
    if shutil.which(tool) is None:
        raise Unavailable(
            f"{target} is not installed here: the command {tool} is missing. {advice}, or carry the directory "
            f"{out.name} there and run build.sh in it."
        )
    subprocess.run(["bash", "build.sh"], cwd=out, check=True)


def script(target: str, device: Device, family: Family) -> str:
    """build.sh: the builder's own commands with the sizes of ``device``."""
    head = [
        "#!/usr/bin/env bash",
        f"# {target} for {device.name} ({device.architecture}). Run it in this directory.",
        "set -euo pipefail",
        'cd "$(dirname "$0")"',
    ]
    low, high = device.image_tokens
    if target == "tensorrt-llm":
        return "\n".join(
            [
                *head,
                "command -v trtllm-serve >/dev/null || { echo 'install tensorrt-llm: no trtllm-serve' >&2; exit 2; }",
                f"exec trtllm-serve serve ./checkpoint --max_batch_size {device.max_batch} "
                f"--max_num_tokens {device.max_input * device.max_batch} --max_seq_len {device.max_sequence}",
            ]
        )
    sizes = f"--maxBatchSize {device.max_batch} --maxInputLen {device.max_input}"
    lines = [
        *head,
        "# On an x86 machine: from the checkpoint to ONNX.",
        "if [ ! -d onnx ]; then tensorrt-edgellm-export ./checkpoint ./onnx; fi",
        "# On the device, with EDGELLM pointing at the built sources: from ONNX to engines.",
        ': "${EDGELLM:?set EDGELLM to the directory of TensorRT Edge-LLM}"',
        '"$EDGELLM"/build/examples/llm/llm_build --onnxDir onnx/llm --engineDir engines/llm '
        f"{sizes} --maxKVCacheCapacity {device.max_sequence}",
    ]
    if family.sees:
        lines.append(
            '"$EDGELLM"/build/examples/multimodal/visual_build --onnxDir onnx/visual --engineDir engines/visual '
            f"--minImageTokens {low} --maxImageTokens {high} --maxImageTokensPerImage {high}"
        )
    return "\n".join(lines)


def _weights(
    checkpoint: Checkpoint,
    family: Family,
    folder: Path,
    errors: dict[str, float],
    tell: Callable[[str, float], None],
) -> None:
    folder.mkdir()
    for source in sorted(checkpoint.path.iterdir()):
        if source.suffix in _CARRIED and not source.name.endswith(".index.json") and source.name != "foveola.json":
            shutil.copyfile(source, folder / source.name)
    placed: dict[str, str] = {}
    for number, file in enumerate(checkpoint.weight_files):
        tell(f"quantising {file}", number / len(checkpoint.weight_files))
        tensors = dict(_converted(checkpoint, family, file, errors))
        save_file(tensors, folder / file, metadata={"format": "pt"})
        placed |= dict.fromkeys(tensors, file)
    if len(checkpoint.weight_files) > 1:
        index = json.dumps({"metadata": {}, "weight_map": placed}, indent=1)
        (folder / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    seeing = (f"{family.parts.vision}*" for _ in range(family.sees))
    excluded = sorted({"lm_head", family.parts.embedding, *seeing, *family.parts.projector})
    quantised = description(excluded)
    (folder / "hf_quant_config.json").write_text(json.dumps(quantised, indent=1), encoding="utf-8")


def _converted(
    checkpoint: Checkpoint, family: Family, file: str, errors: dict[str, float]
) -> Iterator[tuple[str, Tensor]]:
    quantised = _matrices(checkpoint, family)[0]
    own_scale = (f".{family.decoder.output}", f".{family.decoder.down}")
    with safe_open(checkpoint.file(file), framework="pt") as shard:
        for name in shard.keys():  # noqa: SIM118 - no mapping
            tensor: Tensor = shard.get_tensor(name)
            if name in quantised:
                module = name.removesuffix(".weight")
                made, errors[module] = stored(module, tensor, behind_norm=not module.endswith(own_scale))
                yield from made.items()
            else:
                yield name, tensor.to(torch.float16) if tensor.is_floating_point() else tensor


def _matrices(checkpoint: Checkpoint, family: Family) -> tuple[frozenset[str], list[str]]:
    """Names of the decoder's weights that are stored in 4 bits, as this checkpoint spells them; and of those whose
    sizes do not allow it."""
    names = family.decoder
    leaves = {*names.attention_inputs, names.output, names.gate_up or names.gate, names.gate_up or names.up, names.down}
    endings = tuple(f".{leaf}.weight" for leaf in leaves)
    tower = family.parts.vision.rpartition(".")[2] or "\0"
    even, odd = set(), []
    for name, info in checkpoint.tensors.items():
        if not name.endswith(endings) or len(info.shape) != 2 or tower in name.split("."):
            continue
        if info.shape[1] % GROUP == 0 and info.shape[0] % 64 == 0:
            even.add(name)
        else:
            odd.append(name)
    return frozenset(even), odd


def _bytes(checkpoint: Checkpoint, quantised: frozenset[str]) -> int:
    total = 0
    for name, info in checkpoint.tensors.items():
        count = math.prod(info.shape)
        total += count // 2 + 4 * count // GROUP if name in quantised else 2 * count
    return total


def _known(field: str, value: Any, known: tuple[str, ...]) -> None:
    if value not in known:
        raise Invalid(f"{field} is {value!r}; expected {', '.join(known)}.", field=field)
