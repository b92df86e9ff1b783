"""The portable profile, whole graphs: no contrib operators, equal to the model, and read by another runtime.

A small random checkpoint of each family is compiled with ``--profile portable`` (4-bit decoder). The compilation itself
holds the graphs against the model; here the operators are counted, a conversation is compared with that of the same
checkpoint in the profile ``ort``, and with ``--openvino PYTHON`` (of an environment with openvino) every graph is run
by OpenVINO on the inputs that ONNX Runtime gets. With ``--provider PYTHON`` (of an environment with
onnxruntime-openvino) the engine itself runs graphs and conversation there, with ``provider="openvino"``.
"""

from __future__ import annotations

import argparse
import io
import json
import math
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foveola.bench.evidence import Bar, Script, Tell

HOME = Path(__file__).resolve().parent
sys.path.insert(0, str(HOME.parent))
FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl_moe", "llava", "phi3_v")
TOLERANCE = 1e-4
CHUNK, SLOT = 7, 32


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--families", metavar="A,B", default=",".join(FAMILIES))
    parser.add_argument("--tokens", type=int, metavar="N", default=32)
    parser.add_argument("--openvino", metavar="PYTHON", help="an interpreter that can import openvino")
    parser.add_argument("--provider", metavar="PYTHON", help="an interpreter whose onnxruntime has OpenVINO's provider")


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    names = arguments.families.split(",")[: 1 if arguments.quick else None]
    rows: dict[str, dict[str, Any]] = {}
    for name in names:
        tell(f"{name}: compiling in both profiles")
        with tempfile.TemporaryDirectory() as folder:
            rows[name] = examined(name, Path(folder), arguments)
    bars = [
        Bar("families in the portable profile", len(rows), 1 if arguments.quick else len(FAMILIES)),
        Bar("operators outside of the standard", sum(row["contrib"] for row in rows.values()), 0, True),
        Bar("largest relative difference from the model", max(r["error"] for r in rows.values()), TOLERANCE, True),
        Bar("conversations that differ from the profile ort", sum(not r["same_text"] for r in rows.values()), 0, True),
    ]
    for how, title in (("openvino", "OpenVINO"), ("provider", "ONNX Runtime's OpenVINO provider")):
        if getattr(arguments, how):
            ran = [row[how] for row in rows.values() if "failed" not in row[how]]
            worst = max((error for one in ran for error in one["errors"].values()), default=math.nan)
            bars.append(Bar(f"largest relative difference of {title} from ONNX Runtime's CPU", worst, TOLERANCE, True))
            good = sum(one.get("same_text", True) for one in ran)
            bars.append(Bar(f"families that {title} runs as the CPU does", good, len(rows)))
    return {"families": rows, "tokens": arguments.tokens}, bars


def examined(name: str, folder: Path, arguments: argparse.Namespace) -> dict[str, Any]:
    import onnx

    from foveola.lower.compile import compile_checkpoint
    from foveola.lower.options import CompileOptions
    from tests.checkpoints import random_checkpoint
    from tests.family.making import checkpoint

    place = folder / "checkpoint"
    source = random_checkpoint(place) if name == "qwen2_vl" else checkpoint(place, name)
    made = {
        profile: compile_checkpoint(
            source,
            folder / profile,
            CompileOptions.of_precision("int4", accuracy_level=1, max_length=1024, profile=profile),
        )
        for profile in ("portable", "ort")
    }
    bundle = made["portable"]
    errors = next(finding for finding in bundle.lineage if finding.step == "lower.parity").after
    graphs = {role: onnx.load(str(bundle.file(file))) for role, file in bundle.model["graphs"].items()}
    kinds = Counter((node.domain, node.op_type) for graph in graphs.values() for node in nodes(graph.graph))
    texts = {profile: answer(one, arguments.tokens) for profile, one in made.items()}
    row = {
        "contrib": sum(count for (domain, _), count in kinds.items() if domain),
        "operators": sorted({kind for _, kind in kinds}),
        "opset": max(entry.version for graph in graphs.values() for entry in graph.opset_import),
        "error": max(map(float, errors.values())),
        "same_text": texts["portable"] == texts["ort"],
    }
    wanted = computed(bundle, source, folder) if arguments.openvino or arguments.provider else {}
    if arguments.openvino:
        files = [f"{role}={bundle.file(file)}" for role, file in bundle.model["graphs"].items()]
        row["openvino"] = elsewhere(arguments.openvino, folder, wanted, ["openvino", str(folder), *files])
    if arguments.provider:
        paths = [str(HOME.parent / "src"), str(HOME.parent), *(one for one in sys.path if "site-packages" in one)]
        asked = ["provider", str(folder), str(bundle.path), str(arguments.tokens), *paths]
        row["provider"] = elsewhere(arguments.provider, folder, wanted, asked)
        row["provider"]["same_text"] = row["provider"].pop("text", None) == texts["portable"]
    return row


def nodes(graph: Any) -> Iterator[Any]:
    """Every node, those of bodies included."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from nodes(body)


def answer(bundle: Any, tokens: int, provider: str = "cpu") -> str:
    """What the engine says about two pictures."""
    from foveola.engine.engine import Engine
    from foveola.engine.once import answer_once
    from foveola.engine.options import EngineOptions
    from foveola.exchange import Request, Sampling, Turn
    from tests.family.asking import picture

    pictures = []
    for seed, size in enumerate(((120, 90), (40, 130))):
        stream = io.BytesIO()
        picture(*size, seed).save(stream, "PNG")
        pictures.append(stream.getvalue())
    engine = Engine.open(bundle, EngineOptions(threads=1, slots=1, provider=provider))
    try:
        turn = Turn("user", "Which defect is this? Where?", tuple(pictures))
        return answer_once(engine, Request("k", (turn,), Sampling(max_tokens=tokens)))[0]
    finally:
        engine.close(5)


def computed(bundle: Any, source: Path, folder: Path) -> dict[str, dict[str, Any]]:
    """What ONNX Runtime's processor makes of made-up inputs, which are left in ``folder``: role -> outputs by name."""
    import onnxruntime as ort

    wanted: dict[str, dict[str, Any]] = {}
    for role, file in bundle.model["graphs"].items():
        session = ort.InferenceSession(str(bundle.file(file)), providers=["CPUExecutionProvider"])
        feeds = pictures_of(bundle, source) if role == "vision" else made_up(session)
        names = [output.name for output in session.get_outputs()]
        wanted[role] = dict(zip(names, session.run(names, feeds), strict=True))
        np.savez(folder / f"{role}.npz", **feeds)
    return wanted


def elsewhere(python: str, folder: Path, wanted: dict[str, dict[str, Any]], asked: list[str]) -> dict[str, Any]:
    """Largest difference over largest value of each graph, run by another interpreter, and what that tells; or how it
    ``failed``."""
    worker = [python, str(HOME / "k1_portable_worker.py")]
    done = subprocess.run([*worker, *asked], check=False, capture_output=True, text=True)
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1][:200]}
    errors = {}
    for role, outputs in wanted.items():
        got = np.load(folder / f"{role}.out.npz")
        errors[role] = max(
            float(np.abs(got[name] - value).max() / max(np.abs(value).max(), 1e-30)) for name, value in outputs.items()
        )
    return {**json.loads(done.stdout.splitlines()[-1]), "errors": errors}


def pictures_of(bundle: Any, source: Path) -> dict[str, Any]:
    """Inputs of the vision graph for pictures of mixed sizes."""
    from foveola.artifact import Checkpoint
    from foveola.family import family_of
    from foveola.lower import reference
    from foveola.lower.pictures import tiled
    from foveola.weights.loading import load

    opened, vision = Checkpoint.open(source), bundle.model["vision"]
    family = family_of(opened.config)
    model = load(opened, family)
    if "tile" in vision:
        return list(tiled(model, family, vision, None))[-1][1]
    merge = vision["merge_size"]
    made = reference.pictures(model, family, [(2 * merge, 3 * merge), (merge, merge)], merge, 0)
    feeds = {
        "pixel_values": made.pixel_values.numpy(),
        "position_ids": made.position_ids.numpy(),
        "segment_ids": made.segment_ids.numpy(),
        "sizes": made.sizes.numpy(),
    }
    return {name: feeds[name] for name in bundle_inputs(bundle)}


def bundle_inputs(bundle: Any) -> list[str]:
    import onnx

    graph = onnx.load(str(bundle.file(bundle.model["graphs"]["vision"])), load_external_data=False).graph
    return [value.name for value in graph.input]


def made_up(session: Any) -> dict[str, Any]:
    """Inputs of the embedding, or of the decoder: a chunk behind a past of three tokens in a slot."""
    random = np.random.default_rng(0)
    past, feeds = 3, {}
    place = np.arange(past, past + CHUNK)
    kinds: dict[str, Callable[[list[int]], Any]] = {
        "input_ids": lambda shape: random.integers(0, 300, shape),
        "position_ids": lambda shape: np.broadcast_to(place, shape).astype(np.int64).copy(),
        "seqlens_k": lambda shape: np.full(shape, past + CHUNK - 1, np.int32),
        "total_sequence_length": lambda shape: np.array(past + CHUNK, np.int32),
        "logit_index": lambda shape: np.arange(CHUNK),
    }
    for value in session.get_inputs():
        sizes = {"batch": 1, "chunk": CHUNK, "rows": CHUNK}
        shape = [size if isinstance(size, int) else sizes.get(size, SLOT) for size in value.shape]
        made = kinds.get(value.name, lambda shape: random.standard_normal(shape).astype(np.float32))
        feeds[value.name] = made(shape)
    return feeds


SCRIPT = Script("k1", "portable", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
