"""Whether a bundle's decoder should be laid out twice: as it is for single tokens, at another level for prompts.

MatMulNBits at accuracy level 4 rounds activations to 8 bits, which pays for one row; for the many rows of a prompt
level 1, which widens blocks of weights and multiplies in fp32, may be quicker: on CPUs without dot products of 8 bits
it is as quick as weights that are fp32 in memory, which would take seven times the room. The engine opens one graph
file twice then (``foveola.engine.levels``). What that saves is measured on the decoder itself, what it takes is told.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import onnx_ir as ir

from foveola.artifact import Bundle
from foveola.lower.plan_runs import cache_of, inputs_of, levels_of
from foveola.lower.session import open_session, run_in_place

LEVELS = (1, 4)
LEAST_GAIN = 0.05
"""Share of a prompt's time that a second layout has to save to be worth its memory."""
ROUNDS = 3
MIB = 1024 * 1024


def measure_phases(
    bundle: Bundle, *, threads: int, prompt: int, memory_mib: float | None = None, rounds: int = ROUNDS
) -> dict[str, Any]:
    """The section ``phases`` of a plan: ``prefill_level`` (None: no second layout), and why.

    A second layout is taken where it saves ``LEAST_GAIN`` of reading ``prompt`` tokens, and the bundle's graphs and it
    fit ``memory_mib`` together. Empty where the decoder has no products of few bits at one level.
    """
    file = bundle.model["graphs"]["decoder"]
    graph = ir.load(bundle.file(file))
    levels = levels_of(graph)
    if len(levels) != 1:
        return {}
    own = levels.pop()
    seconds = _seconds(bundle, graph, (own, *(level for level in LEVELS if level != own)), threads, prompt, rounds)
    best = min(seconds, key=lambda level: seconds[level])
    extra = _bytes_of_products(graph) / MIB
    held = sum(bundle.files[name].bytes for name in bundle.files if name.endswith((".onnx", ".onnx.data"))) / MIB
    gain = 1 - seconds[best] / seconds[own]
    fits = memory_mib is None or held + extra <= memory_mib
    return {
        "phases": {
            "prefill_level": best if gain >= LEAST_GAIN and fits else None,
            "decode_level": own,
            "prompt": prompt,
            "prefill_ms": {str(level): round(1e3 * value, 2) for level, value in seconds.items()},
            "saved_ms": round(1e3 * (seconds[own] - seconds[best]), 2),
            "extra_mib": round(extra, 2),
            "fits": fits,
        }
    }


def _seconds(
    bundle: Bundle, graph: ir.Model, levels: tuple[int, ...], threads: int, prompt: int, rounds: int
) -> dict[int, float]:
    """Per level, what reading the prompt takes: the median of ``rounds`` in turns."""
    sessions = {level: open_session(graph, accuracy_level=level, threads=threads) for level in levels}
    first = sessions[levels[0]]
    prompt = min(prompt, int(bundle.model["text"]["max_length"]))
    inputs = inputs_of(first, bundle.model["text"], prompt, past=0) | {"logit_index": np.array([prompt - 1])}
    cache = cache_of(first, prompt)
    spent: dict[int, list[float]] = {level: [] for level in levels}
    for turn in range(rounds + 1):
        for level in levels if turn % 2 else reversed(levels):
            started = time.perf_counter()
            run_in_place(sessions[level], inputs, cache, ("logits",))
            if turn:  # the first one warms up
                spent[level].append(time.perf_counter() - started)
    return {level: float(np.median(spent[level])) for level in levels}


def _bytes_of_products(graph: ir.Model) -> int:
    """Bytes of what the products of few bits multiply with, which a second session lays out once more."""
    constants = {
        value.name: value.const_value.nbytes
        for node in graph.graph
        if node.op_type == "MatMulNBits"
        for value in (_constant_behind(given) for given in node.inputs[1:4])
        if value is not None and value.const_value is not None
    }
    return sum(constants.values())


def _constant_behind(value: ir.Value | None) -> ir.Value | None:
    """``value``, or the constant that it is a wider form of."""
    maker = None if value is None else value.producer()
    return value if maker is None else maker.inputs[0]
