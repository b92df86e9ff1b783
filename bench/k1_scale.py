"""A model of Qwen2-VL-2B's true shape, with random weights, from checkpoint to answer: memory, time, size, speed.

The checkpoint is written shard by shard in bf16. Compression (``round``: decoder layers in 4 bits, the rest in 8),
compilation and serving are processes of their own, whose largest resident memory is what the bar is about. ``--layers``
makes it smaller (with fewer layers the figures say so).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from foveola.artifact import Bundle
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.machine import read_bandwidth
from foveola.bench.model import decoder_bytes

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
MEMORY_GIB = 16.0
SHARD_BYTES = 1 << 30
RECIPE = """
[[step]]
use = "round"
patterns = ["model.language_model.layers.*"]
storage = "int4/32"

[[step]]
use = "round"
patterns = ["model.visual.*", "model.language_model.embed_tokens"]
storage = "int8/32"
"""
_WRITE = """
import sys
from pathlib import Path
from bench.k1_scale import write_checkpoint
print(write_checkpoint(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
"""
_ASK = """
import io, json, sys, time
from pathlib import Path
import numpy as np
from PIL import Image
from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions
from foveola.exchange import Request, Sampling, Turn
start = time.perf_counter()
engine = Engine.open(Path(sys.argv[1]), EngineOptions(threads=2, slots=1))
opened = time.perf_counter() - start
stream = io.BytesIO()
Image.fromarray(np.random.default_rng(0).integers(0, 256, (336, 448, 3), dtype=np.uint8)).save(stream, "PNG")
turn = Turn("user", "Which defect is this?", (stream.getvalue(),))
text, usage = answer_once(engine, Request("k", (turn,), Sampling(max_tokens=int(sys.argv[2]))))
stages = usage.stages
print(json.dumps({"open_s": opened, "tokens": usage.completion_tokens, "prompt_tokens": usage.prompt_tokens,
    "vision_s": stages.vision_s, "prefill_s": stages.prefill_s, "decode_s": stages.decode_s}))
engine.close(5)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layers", type=int, metavar="N", default=28, help="of the decoder (the true model has 28)")
    parser.add_argument("--blocks", type=int, metavar="N", default=32, help="of the tower (the true model has 32)")
    parser.add_argument("--tokens", type=int, metavar="N", default=64)
    parser.add_argument("--work", type=Path, metavar="DIR", help="where 10 GB are free (default: the system's)")


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    layers, blocks = (1, 1) if arguments.quick else (arguments.layers, arguments.blocks)
    with tempfile.TemporaryDirectory(dir=arguments.work) as place:
        source, bundle = Path(place, "checkpoint"), Path(place, "bundle")
        tell("writing the checkpoint")
        # In a process of its own: what a child is said to have held begins with what its parent does.
        parameters = int(child(["-c", _WRITE, str(source), str(layers), str(blocks)])[2])
        recipe, small = Path(place, "recipe.toml"), Path(place, "small")
        recipe.write_text(RECIPE, encoding="utf-8")
        source_bytes = bytes_in(source)
        tell("compressing to 4 bits")
        command = ["-m", "foveola", "compress", str(source), "--recipe", str(recipe), "--out", str(small), "--json"]
        compress_s, compress_gib, _ = child(command)
        small_bytes = bytes_in(small)
        tell("compiling")
        command = ["-m", "foveola", "compile", "--model", str(small), "--out", str(bundle), "--precision", "int4"]
        compile_s, compile_gib, said = child([*command, "--max-length", "1024", "--json"])
        proven = next(entry for entry in json.loads(said)["lineage"] if entry["step"] == "lower.parity")["after"]
        size = bytes_in(bundle)
        tell("asking")
        _, serve_gib, said = child(["-c", _ASK, str(bundle), "8" if arguments.quick else str(arguments.tokens)])
        read_per_token = decoder_bytes(Bundle.open(bundle))
    asked = json.loads(said.splitlines()[-1])
    rate, bandwidth = (asked["tokens"] - 1) / max(asked["decode_s"], 1e-9), read_bandwidth(2)
    figures = {
        "layers": layers,
        "blocks": blocks,
        "parameters": parameters,
        "checkpoint_bytes": source_bytes,
        "compressed_bytes": small_bytes,
        "bundle_bytes": size,
        "compress_s": compress_s,
        "compress_peak_gib": compress_gib,
        "parity": proven,
        "compile_s": compile_s,
        "compile_peak_gib": compile_gib,
        "serve_peak_gib": serve_gib,
        "decode_tokens_per_s": rate,
        "read_gb_per_s": bandwidth / 1e9,
        "share_of_bandwidth": read_per_token * rate / bandwidth,
        "prefill_tokens_per_s": asked["prompt_tokens"] / max(asked["prefill_s"], 1e-9),
        **asked,
    }
    exact = [float(error) for name, error in proven.items() if "level_4" not in name]
    return figures, (
        Bar("largest memory of compressing and compiling, GiB", max(compress_gib, compile_gib), MEMORY_GIB, True),
        Bar("largest relative difference of a graph", max(exact), 1e-4, True),
        Bar("share of the read bandwidth while decoding", figures["share_of_bandwidth"], 0.75),
        Bar("tokens answered", asked["tokens"], 8 if arguments.quick else arguments.tokens),
    )


def child(command: Sequence[str]) -> tuple[float, float, str]:
    """Seconds, largest resident memory in GiB and what it printed."""
    start = time.perf_counter()
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        process = subprocess.Popen([sys.executable, *command], cwd=ROOT, stdout=said)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
        said.seek(0)
        return time.perf_counter() - start, used.ru_maxrss * 1024 / 2**30, said.read()


def bytes_in(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def write_checkpoint(folder: Path, layers: int, blocks: int) -> int:
    """A random checkpoint in shards of about a gigabyte. Returns its number of parameters."""
    import torch
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen2VLImageProcessorPil

    from tests.checkpoints import SPECIAL, write_tokenizer

    ids = {token: index for index, token in enumerate(SPECIAL)}
    config = Qwen2VLConfig(
        text_config={
            "vocab_size": 151936, "hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": layers,
            "num_attention_heads": 12, "num_key_value_heads": 2, "max_position_embeddings": 32768,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
            "bos_token_id": 0, "eos_token_id": ids["<|im_end|>"], "pad_token_id": 0,
        },
        vision_config={"depth": blocks, "embed_dim": 1280, "hidden_size": 1536, "num_heads": 16, "mlp_ratio": 4},
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )  # fmt: skip
    with torch.device("meta"):
        shapes = {
            name: tuple(value.shape) for name, value in Qwen2VLForConditionalGeneration(config).named_parameters()
        }
    folder.mkdir(parents=True)
    config.architectures = ["Qwen2VLForConditionalGeneration"]
    config.save_pretrained(folder)
    write_tokenizer(folder, 1000)
    Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=448 * 448).save_pretrained(folder)
    placed: dict[str, str] = {}
    for number, tensors in enumerate(shards(shapes)):
        from safetensors.torch import save_file

        file = f"model-{number:05d}.safetensors"
        save_file(tensors, folder / file, metadata={"format": "pt"})
        placed |= dict.fromkeys(tensors, file)
    index = json.dumps({"metadata": {}, "weight_map": placed})
    (folder / "model.safetensors.index.json").write_text(index, encoding="utf-8")
    return sum(torch.Size(shape).numel() for shape in shapes.values())


def shards(shapes: dict[str, tuple[int, ...]]) -> Iterator[dict[str, Any]]:
    """Random tensors, a gigabyte at a time."""
    import torch

    random, held, size = torch.Generator().manual_seed(0), {}, 0
    for name, shape in shapes.items():
        if len(shape) == 1:
            held[name] = torch.ones(shape, dtype=torch.bfloat16)
        else:
            scale = 0.5 if "embed_tokens" in name else torch.Size(shape[1:]).numel() ** -0.5
            held[name] = (torch.randn(shape, generator=random) * scale).to(torch.bfloat16)
        size += held[name].nbytes
        if size >= SHARD_BYTES:
            yield held
            held, size = {}, 0
    if held:
        yield held


SCRIPT = Script("k1", "scale", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
