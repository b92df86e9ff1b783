"""The gate of every export: the graphs must compute what transformers' own modules compute.

The reference is never one of our wrappers. Where weights were rounded, the model holds the rounded ones, so that
rounding is no excuse: what remains is arithmetic. Graphs with accuracy level 4 are checked twice: at level 1, where
the strict tolerance applies, and as they are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import torch
from torch import nn

from foveola.artifact import Finding
from foveola.exchange import Damaged
from foveola.family import Family
from foveola.family.base import Config
from foveola.lower import reference
from foveola.lower.export import KEY_BIAS, cache_names
from foveola.lower.options import CompileOptions
from foveola.lower.pictures import tiled
from foveola.lower.reference import Grid, Pictures, Row
from foveola.lower.selection_reference import selected
from foveola.lower.session import Array, open_session, run, run_in_place

EXACT = 1e-4
"""Largest difference over largest value, where both sides compute in fp32."""
ROUNDED_ACTIVATIONS = 0.25
"""The same at accuracy level 4, which rounds what goes into every product to 8 bits per block. Level 1 has proven the
graph by then: what is looked for is a kernel that computes something else, whose difference is about 1. Thirty layers
of SmolLM2-135M in 4 bits reach 0.1 in single elements of the evidence."""
_SLOT = 48


@dataclass(frozen=True, slots=True)
class Step:
    """One call of the decoder: row b gets its tokens ``begin[b]`` to ``end[b]``, padded on the right to a chunk."""

    begin: tuple[int, ...]
    end: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """Calls in a row over the same cache. ``in_place``: one buffer for past and present, longer than the texts."""

    name: str
    steps: tuple[Step, ...]
    in_place: bool


CASES = (
    Case("prompt", (Step((0,), (23,)),), False),
    Case("prompt in place", (Step((0,), (23,)),), True),
    Case("one token, no past", (Step((0,), (1,)),), False),
    Case("one token, past 11", (Step((11,), (12,)),), False),
    Case("chunk of 5, past 7", (Step((7,), (12,)),), False),
    Case("two prompts of 9 and 6", (Step((0, 0), (9, 6)),), False),
    Case(
        "three rows decode in place",
        tuple(Step((4 + i, 9 + i, 6 + i), (5 + i, 10 + i, 7 + i)) for i in range(3)),
        True,
    ),
    Case(
        "prompt, chunk and tokens in place",
        (Step((0,), (7,)), Step((7,), (12,)), Step((12,), (13,)), Step((13,), (14,))),
        True,
    ),
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What the graphs were made from. ``vision`` is that section of model.json."""

    model: nn.Module
    family: Family
    config: Config
    vision: Mapping[str, Any]
    evidence_layer: int | None
    options: CompileOptions


Comparison = tuple[str, str, float]
"""What was compared (``logits``), in which case, and the largest difference over the largest value."""


Compare = Callable[[ort.InferenceSession], Iterator[Comparison]]
"""Runs a graph and compares it with what the model said before."""


def check_parity(graphs: Mapping[str, ir.Model], subject: Subject) -> Finding:
    """Compare the graphs with the model on shapes that were not traced. Raises ``Damaged`` beyond the tolerance."""
    start = time.perf_counter()
    worst: dict[str, float] = {}
    count = 0
    for role, graph in graphs.items():
        compare = _COMPARE[role](subject)
        for suffix, level, tolerance in _passes(graph):
            for part, case, error in compare(open_session(graph, accuracy_level=level)):
                _judge(role, f"{case} ({part}{suffix})", error, tolerance)
                key = f"{role}_{part}{suffix}".replace(" ", "_")
                worst[key] = max(worst.get(key, 0.0), error)
                count += 1
    return Finding(
        step="lower.parity",
        changed=f"nothing: {count} comparisons with the model's own modules, at shapes other than those traced",
        after={f"{key}_error": float(f"{error:.3g}") for key, error in worst.items()},
        seconds=time.perf_counter() - start,
        options={"tolerance": EXACT, "tolerance_level_4": ROUNDED_ACTIVATIONS},
    )


def _passes(graph: ir.Model) -> list[tuple[str, int | None, float]]:
    """What to add to the names, the accuracy level (None: as it is) and the tolerance."""
    products = [node for node in graph.graph if node.op_type == "MatMulNBits"]
    if all(node.attributes["accuracy_level"].as_int() != 4 for node in products):
        return [("", None, EXACT)]
    return [("", 1, EXACT), (" at level 4", None, ROUNDED_ACTIVATIONS)]


def _judge(role: str, name: str, error: float, tolerance: float) -> None:
    if error <= tolerance:  # NaN is not
        return
    raise Damaged(
        f"{role}.onnx differs from the model by {error:.2g} of the largest value in the comparison {name!r}; "
        f"the tolerance is {tolerance:g}. Nothing was written. Please report it with the checkpoint's config.json."
    )


def _difference(got: Array, wanted: torch.Tensor) -> float:
    expected = wanted.numpy()
    if got.shape != expected.shape:
        return float("nan")
    return float(np.abs(got - expected).max() / max(np.abs(expected).max(), 1e-30))


def _grids(subject: Subject) -> Iterator[tuple[str, list[Grid]]]:
    merge, patch = subject.vision["merge_size"], subject.vision["patch_size"]
    yield "smallest picture", [(merge, merge)]
    yield "wide picture", [(merge, 5 * merge)]
    yield "three pictures of different size", [(2 * merge, 3 * merge), (4 * merge, merge), (merge, merge)]
    yield "a large picture and a small one", [(5 * merge, 6 * merge), (merge, 2 * merge)]
    if subject.options.image_px is not None:
        height, width = subject.options.image_px
        rows, columns = (merge * -(-length // (merge * patch)) for length in (height, width))
        yield f"picture of {height} x {width} px", [(rows, columns)]


def _vision(subject: Subject, session: ort.InferenceSession) -> Iterator[Comparison]:
    if "tile" in subject.vision:
        for name, inputs, wanted in tiled(subject.model, subject.family, subject.vision, subject.options.image_px):
            yield "features", name, _difference(run(session, inputs)["features"], wanted)
        return
    for seed, (name, grids) in enumerate(_grids(subject)):
        made = reference.pictures(subject.model, subject.family, grids, subject.vision["merge_size"], seed)
        inputs = {
            "pixel_values": made.pixel_values.numpy(),
            "position_ids": made.position_ids.numpy(),
            "segment_ids": made.segment_ids.numpy(),
        }
        if any(value.name == "sizes" for value in session.get_inputs()):
            inputs["sizes"] = made.sizes.numpy()
        if subject.options.select_after is None:
            yield "features", name, _difference(run(session, inputs)["features"], made.features)
        else:
            yield from _selection(session, subject, name, grids, made, inputs)


def _selection(
    session: ort.InferenceSession,
    subject: Subject,
    name: str,
    grids: Sequence[Grid],
    made: Pictures,
    inputs: dict[str, Array],
) -> Iterator[Comparison]:
    """All visual tokens kept: the model's own features. Half of those of the first picture kept from each: as the
    reference chooses and merges."""
    merge, after = subject.vision["merge_size"], subject.options.select_after
    assert after is not None
    patches = inputs["segment_ids"].shape
    got = run(session, inputs | {"keep": np.full(patches, len(made.features), np.int64)})
    yield "features", f"{name}, all kept", _difference(got["features"], made.features)
    half = max(1, grids[0][0] * grids[0][1] // merge**2 // 2)
    wanted, kept = selected(subject.model, subject.family, made, grids, merge=merge, after=after, keep=half)
    got = run(session, inputs | {"keep": np.full(patches, half, np.int64)})
    yield "selection", f"{name}, {half} kept of each", 0.0 if got["kept"].tolist() == kept else float("nan")
    yield "features", f"{name}, {half} kept of each", _difference(got["features"], wanted)


def _embed(subject: Subject) -> Compare:
    vocabulary = subject.family.decoder_shape(subject.config).vocabulary
    table = subject.model.get_submodule(subject.family.parts.embedding)
    deep = subject.family.decoder_shape(subject.config).deepstack
    cases: list[tuple[str, torch.Tensor, torch.Tensor]] = []
    for name, ids in (
        ("first and last token", torch.tensor([[0, vocabulary - 1]])),
        ("two rows", torch.arange(14).view(2, 7) * vocabulary // 14),
    ):
        wanted: torch.Tensor = table(ids)
        cases.append((name, ids, nn.functional.pad(wanted, (0, deep * wanted.shape[-1]))))

    def compare(session: ort.InferenceSession) -> Iterator[Comparison]:
        for name, ids, wanted in cases:
            yield "rows", name, _difference(run(session, {"input_ids": ids.numpy()})["inputs_embeds"], wanted)

    return compare


def _decoder(subject: Subject) -> Compare:
    def row(length: int, seed: int) -> Row:
        shape = subject.family.decoder_shape(subject.config)
        model, family, layer = subject.model, subject.family, subject.evidence_layer
        weighs = subject.options.select_after is not None
        return reference.row(model, family, shape, length, layer, seed, weighs_keys=weighs)

    rows = [row(length, seed) for seed, length in enumerate((23, 14, 12))]
    played = [(case, rows) for case in CASES]
    length = subject.options.text_length
    if length is not None:
        played.append((Case(f"prompt of {length}", (Step((0,), (length,)),), False), [row(length, 3)]))
    # A portable graph writes into a slot, and gives out the whole of it.
    fixed = subject.options.profile == "portable"

    def compare(session: ort.InferenceSession) -> Iterator[Comparison]:
        for case, said in played:
            yield from _play(session, case, said, fixed)

    return compare


_COMPARE: dict[str, Callable[[Subject], Compare]] = {
    "vision": lambda subject: partial(_vision, subject),
    "embed": _embed,
    "decoder": _decoder,
}


def _play(session: ort.InferenceSession, case: Case, rows: Sequence[Row], fixed: bool) -> Iterator[Comparison]:
    """Run one case; compare logits, evidence and cache after each of its steps. ``fixed``: slots never grow."""
    used = rows[: len(case.steps[0].begin)]
    names = cache_names(len(rows[0].cache) // 2, "past")
    slot = max(_SLOT, *case.steps[-1].end) if case.in_place or fixed else max(case.steps[0].begin)
    cache = {name: _past(used, index, case.steps[0].begin, slot) for index, name in enumerate(names)}
    weighs = any(value.name == KEY_BIAS for value in session.get_inputs())
    told = [value.name for value in session.get_outputs() if value.name in ("logits", "evidence")]
    for step in case.steps:
        inputs = _inputs(step, used) | ({KEY_BIAS: _biases(step, used)} if weighs else {})
        if case.in_place:
            got = run_in_place(session, inputs, cache, told)
        else:
            got = run(session, inputs | cache)
            cache = {name: got[name.replace("past", "present", 1)] for name in names}
        for part, error in _compare(step, used, got, [cache[name] for name in names]):
            yield part, case.name, error


def _past(rows: Sequence[Row], index: int, lengths: Sequence[int], slot: int) -> Array:
    groups, _, size = rows[0].cache[index].shape
    buffer = np.zeros((len(rows), groups, slot, size), dtype=np.float32)
    for b, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        buffer[b, :, :length] = row.cache[index][:, :length].numpy()
    return buffer


def _biases(step: Step, rows: Sequence[Row]) -> Array:
    """[B, longer than any row], with what must not count behind a row's end."""
    biases = np.full((len(rows), max(step.end) + 3), 9, dtype=np.float32)
    for b, (row, end) in enumerate(zip(rows, step.end, strict=True)):
        biases[b, :end] = row.bias[:end].numpy()
    return biases


def _inputs(step: Step, rows: Sequence[Row]) -> dict[str, Array]:
    chunk = max(end - begin for begin, end in zip(step.begin, step.end, strict=True))
    embeds = np.zeros((len(rows), chunk, rows[0].embeds.shape[1]), dtype=np.float32)
    positions = np.zeros((*rows[0].positions.shape[:-1], len(rows), chunk), dtype=np.int64)
    for b, (row, begin, end) in enumerate(zip(rows, step.begin, step.end, strict=True)):
        embeds[b, : end - begin] = row.embeds[begin:end].numpy()
        positions[..., b, : end - begin] = row.positions[..., begin:end].numpy()
    return {
        "inputs_embeds": embeds,
        "position_ids": positions,
        "seqlens_k": np.array(step.end, dtype=np.int32) - 1,
        "total_sequence_length": np.array(max(step.end), dtype=np.int32),
        "logit_index": np.arange(chunk, dtype=np.int64),
    }


def _compare(
    step: Step, rows: Sequence[Row], got: Mapping[str, Array], cache: Sequence[Array]
) -> Iterator[tuple[str, float]]:
    total = max(step.end)
    for b, (row, begin, end) in enumerate(zip(rows, step.begin, step.end, strict=True)):
        yield "logits", _difference(got["logits"][b, : end - begin], row.logits[begin:end])
        if "evidence" in got:
            evidence = torch.zeros(total)
            evidence[:end] = row.evidence[end - 1, :end]
            yield "evidence", _difference(got["evidence"][b], evidence)
        for index, kept in enumerate(cache):
            yield "cache", _difference(kept[b, :, :end], row.cache[index][:, :end])
