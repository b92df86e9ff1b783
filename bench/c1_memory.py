"""How much memory rounding a large checkpoint takes: a random text model of 1.5 B parameters, in a process that may not
have more than a part of its weights.

The limit is on the process's data (RLIMIT_DATA), so that going beyond it ends the process. The largest resident part is
the embedding in fp32; a block comes and goes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from foveola.artifact import Checkpoint
from foveola.bench.evidence import Bar, Script, Tell
from foveola.exchange import Unavailable

LARGE = {"hidden_size": 1536, "intermediate_size": 6144, "num_hidden_layers": 36, "vocab_size": 100_000}
SMALL = {"hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "vocab_size": 2_048}
TOKENIZER = Path(__file__).resolve().parents[1] / "models" / "foveola-tiny"
_CHILD = """
import resource, sys
limit = int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
from pathlib import Path
from foveola.compress.awq import Awq, HalfOptions
from foveola.compress.recipe import Recipe
from foveola.compress.rounding import Round
from foveola.compress.run import compress
half = HalfOptions(4, 128, gptq=False, ratios=2)
step = Round(("model.*",), "int4/128") if sys.argv[1] == "round" else Awq("off", half, embedding="keep", held_out=2)
compress(sys.argv[2], Recipe((step,), calibration=Path(sys.argv[2]) / "samples.jsonl"), sys.argv[3])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--limit-gb", type=float, default=3.0, help="what the process may have")
    parser.add_argument("--steps", nargs="*", default=["round", "awq"], choices=["round", "awq"])


def write_random(folder: Path, shape: dict[str, int]) -> int:
    """A random Llama in bf16, one shard a layer; its number of parameters."""
    heads = shape["hidden_size"] // 128
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_attention_heads": heads,
        "num_key_value_heads": heads, "hidden_act": "silu", "rms_norm_eps": 1e-5, "tie_word_embeddings": True,
        "max_position_embeddings": 2048, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, **shape,
    }  # fmt: skip
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(TOKENIZER / name, folder / name)
    (folder / "config.json").write_text(json.dumps(config))
    wide, inner = shape["hidden_size"], shape["intermediate_size"]
    weight_map: dict[str, str] = {}
    parameters = 0

    def shard(name: str, tensors: dict[str, tuple[int, ...]]) -> None:
        nonlocal parameters
        made = {
            key: torch.randn(size).mul_(size[-1] ** -0.5).bfloat16() if len(size) > 1 else torch.ones(size).bfloat16()
            for key, size in tensors.items()
        }
        save_file(made, folder / name, {"format": "pt"})
        weight_map.update(dict.fromkeys(tensors, name))
        parameters += sum(tensor.numel() for tensor in made.values())

    shard(
        "outside.safetensors", {"model.embed_tokens.weight": (shape["vocab_size"], wide), "model.norm.weight": (wide,)}
    )
    for index in range(shape["num_hidden_layers"]):
        at = f"model.layers.{index}."
        square = {f"{at}self_attn.{part}_proj.weight": (wide, wide) for part in "qkvo"}
        mlp = {f"{at}mlp.{part}_proj.weight": (inner, wide) for part in ("gate", "up")}
        norms = {f"{at}{part}_layernorm.weight": (wide,) for part in ("input", "post_attention")}
        shard(f"{index:03d}.safetensors", {**square, **mlp, f"{at}mlp.down_proj.weight": (wide, inner), **norms})
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    lines = [json.dumps({"text": f"Which defect is on this part? Number {n}."}) for n in range(4)]
    (folder / "samples.jsonl").write_text("\n".join(lines))
    return parameters


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    limit = int(arguments.limit_gb * 1e9)
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "source"
        source.mkdir()
        tell("writing the checkpoint")
        parameters = write_random(source, SMALL if arguments.quick else LARGE)
        peaks: dict[str, int] = {}
        for step in arguments.steps:
            tell(step)
            given = [step, str(source), str(Path(temporary) / step), str(limit)]
            done = subprocess.run([sys.executable, "-c", _CHILD, *given], capture_output=True, text=True)
            if done.returncode:
                raise Unavailable(f"{step} failed under the limit: {done.stderr.strip().splitlines()[-1:]}")
            peaks[step] = int(done.stdout.split()[-1])
            assert Checkpoint.open(Path(temporary) / step).lineage
    figures = {"parameters": parameters, "fp32_bytes": 4 * parameters, "limit_bytes": limit, "peak_bytes": peaks}
    share = max(peaks.values()) / (4 * parameters)
    return figures, [Bar("peak memory against the weights in fp32", share, 0.5, at_most=True)]


SCRIPT = Script("c1", "memory", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
