"""The directories for NVIDIA's builders, held against NVIDIA's own open-source exporter (nvidia-modelopt, on the CPU).

ModelOpt quantises a small random model (INT4_AWQ) and writes it for the builders; ``foveola compile --target`` writes
the same model. Compared are the names, types and sizes of all tensors, what hf_quant_config.json says, and the bytes:
ours unpacked and packed again by ModelOpt's code. Every target and device is written and its script parsed. No engine
is built: that needs a GPU. ``--modelopt FOLDER`` is where ``pip install --target FOLDER nvidia-modelopt omegaconf pulp
nvidia-ml-py`` put it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foveola.bench.evidence import Bar, Script, Tell
from foveola.exchange import Invalid

HOME = Path(__file__).resolve().parent
SAME = ("quant_algo", "kv_cache_quant_algo", "group_size", "has_zero_point", "pre_quant_scale")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--modelopt", type=Path, metavar="FOLDER", help="where nvidia-modelopt is installed")


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        source = small_llama(folder / "model")
        tell("writing for every target and device")
        written, scripts = directories(source, folder)
        bars = [
            Bar("directories written with every check held", written, len(scripts)),
            Bar("scripts that bash parses", sum(scripts.values()), len(scripts)),
        ]
        figures: dict[str, Any] = {"directories": scripts}
        if not arguments.quick:
            if arguments.modelopt is None:
                raise Invalid("the layout is held against nvidia-modelopt; say where it is with --modelopt FOLDER.")
            tell("quantising by ModelOpt")
            compared = held_against(arguments.modelopt, source, folder / "tensorrt-llm-orin" / "checkpoint", folder)
            figures |= compared
            bars += [
                Bar("tensors that differ in name, type or size", len(compared["tensors_that_differ"]), 0, True),
                Bar("entries of hf_quant_config.json that differ", len(compared["settings_that_differ"]), 0, True),
                Bar("matrices packed to the same bytes", compared["same_bytes"], compared["matrices"]),
            ]
    return figures, bars


def small_llama(folder: Path) -> Path:
    """2 layers, 256 wide, heads of 64: sizes that the builders' kernels have."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=320, hidden_size=256, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=False,
        architectures=["LlamaForCausalLM"],
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}", encoding="utf-8")
    return folder


def directories(source: Path, folder: Path) -> tuple[int, dict[str, bool]]:
    """How many have no check that fails; whether each one's build.sh is a script."""
    from foveola.lower.trtllm import export
    from foveola.lower.trtllm_devices import DEVICES, TARGETS

    held, scripts = 0, {}
    for target in TARGETS:
        for device in DEVICES:
            out = folder / f"{target}-{device}"
            export(source, out, target, device)
            checks = json.loads((out / "CHECKS.json").read_text(encoding="utf-8"))
            held += all(check["holds"] is not False for check in checks)
            parsed = subprocess.run(["bash", "-n", str(out / "build.sh")], check=False)
            scripts[out.name] = parsed.returncode == 0
    return held, scripts


def held_against(modelopt: Path, source: Path, ours: Path, folder: Path) -> dict[str, Any]:
    """What ModelOpt writes of the same model, and what it makes of our bytes, next to ours."""
    environment = {**os.environ, "PYTHONPATH": str(modelopt)}
    command = [sys.executable, str(HOME / "k2_layouts_worker.py"), str(source), str(folder / "theirs"), str(ours)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    told = json.loads(done.stdout.splitlines()[-1])
    theirs = described(folder / "theirs")
    mine = described(ours)
    settings = {
        place.name: json.loads((place / "hf_quant_config.json").read_text(encoding="utf-8"))["quantization"]
        for place in (folder / "theirs", ours)
    }
    left, right = settings["theirs"], settings["checkpoint"]
    differ = [name for name in SAME if left.get(name) != right.get(name)]
    if set(left.get("exclude_modules") or ()) != set(right["exclude_modules"]):
        differ.append("exclude_modules")
    return {
        **told,
        "tensors": len(theirs),
        "tensors_that_differ": {
            name: [theirs.get(name), mine.get(name)]
            for name in sorted({*theirs, *mine})
            if theirs.get(name) != mine.get(name)
        },
        "settings_that_differ": differ,
        "settings": settings,
    }


def described(folder: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    from foveola.artifact.safetensors import read_header

    return {
        name: (info.dtype, info.shape)
        for file in sorted(folder.glob("*.safetensors"))
        for name, info in read_header(folder, file.name).items()
    }


SCRIPT = Script("k2", "layouts", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
