"""What one run of a bundle's decoder costs over one token and over several: whether guessing ahead pays.

The engine checks guessed tokens in one run (``foveola.engine.speculation``) where this table says that it is quicker
than one run per token. A plan is written into model.json of a bundle that exists, which is sealed anew with it.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort

from foveola.artifact import Bundle, Finding, write_bundle
from foveola.artifact.bundle import MODEL_FILE
from foveola.lower.session import Array, run_in_place

MOST = 6
"""Tokens in one run: one that is known and five guesses."""
PAST = 128
"""Tokens that are there before, about as many as a question with a small picture has."""
ROUNDS = 15


def measure_runs(bundle: Bundle, *, threads: int, rounds: int = ROUNDS) -> list[float]:
    """Seconds of a run over 1 … ``MOST`` tokens of one request, the median of ``rounds`` in turns."""
    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    path = str(bundle.file(bundle.model["graphs"]["decoder"]))
    session = ort.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    feeds = {size: inputs_of(session, bundle.model["text"], size, PAST) for size in range(1, MOST + 1)}
    cache = cache_of(session, PAST + MOST)
    for inputs in feeds.values():
        run_in_place(session, inputs, cache, ("logits",))
    spent: dict[int, list[float]] = {size: [] for size in feeds}
    for turn in range(rounds):
        for size in sorted(feeds, reverse=bool(turn % 2)):
            started = time.perf_counter()
            run_in_place(session, feeds[size], cache, ("logits",))
            spent[size].append(time.perf_counter() - started)
    return [float(np.median(spent[size])) for size in sorted(spent)]


def rounds_by_the_run(bundle: Bundle) -> bool:
    """Whether a run over several tokens rounds otherwise than one over a single token, so that guessing ahead would
    change texts: products at accuracy level 4 round activations to 8 bits, by another kernel for one row than for more.
    """
    return 4 in levels_of(ir.load(bundle.file(bundle.model["graphs"]["decoder"])))


def levels_of(graph: ir.Model) -> set[int]:
    """The accuracy levels of a graph's products of few bits."""
    return {node.attributes["accuracy_level"].as_int() for node in graph.graph if node.op_type == "MatMulNBits"}


def with_plan(bundle: Bundle, out: Path, plan: Mapping[str, Any], finding: Finding, *, replace: bool) -> Bundle:
    """A copy of ``bundle`` at ``out`` whose model.json holds ``plan``, sealed, with ``finding`` in its lineage."""
    model = dict(bundle.model) | {"plan": {**bundle.model.get("plan", {}), **plan}}

    def write(folder: Path) -> None:
        for name in bundle.files:
            if name == MODEL_FILE:
                text = json.dumps(model, ensure_ascii=False, indent=1) + "\n"
                (folder / name).write_text(text, encoding="utf-8")
            else:
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(bundle.file(name), folder / name)

    return write_bundle(out, name=bundle.name, files=write, lineage=(*bundle.lineage, finding), replace=replace)


def inputs_of(session: ort.InferenceSession, text: Mapping[str, Any], size: int, past: int) -> dict[str, Array]:
    """Random inputs for a decoder's run over ``size`` tokens of one request behind ``past`` others, all but the cache;
    ``text`` is that section of model.json."""
    total, axes = past + size, int(text.get("position_axes", 3))
    width = int(text.get("embedding_size", text["hidden_size"]))
    random = np.random.default_rng(0)
    known: dict[str, Array] = {
        "inputs_embeds": random.standard_normal((1, size, width)).astype(np.float32),
        "position_ids": np.broadcast_to(np.arange(past, total), (axes, 1, size)),
        "seqlens_k": np.array([total - 1], np.int32),
        "total_sequence_length": np.array(total, np.int32),
        "logit_index": np.arange(size),
        "key_bias": np.zeros((1, total), np.float32),
    }
    return {one.name: known[one.name] for one in session.get_inputs() if not one.name.startswith("past.")}


def cache_of(session: ort.InferenceSession, length: int) -> dict[str, Array]:
    """Random keys and values for a decoder: one row of ``length`` tokens."""
    random = np.random.default_rng(1)
    return {
        one.name: random.standard_normal((1, int(one.shape[1]), length, int(one.shape[3]))).astype(np.float32)
        for one in session.get_inputs()
        if one.name.startswith("past.")
    }
