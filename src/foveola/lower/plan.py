"""Which storage each part gets on this machine, by measurement, under a bound on memory.

A request goes through the vision tower once, through the decoder once with its whole prompt (prefill) and then once per
token (decode); kernels that are quick for one row are not for hundreds. So the plan adds up, per part and storage, what
a typical request would spend there, and takes the combination that is quickest and fits. Where prefill alone and decode
alone would choose differently, it says what keeping both would cost in memory and save in time.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foveola.exchange import Invalid
from foveola.lower.plan_kernels import DYNAMIC_INT8, Shape, Timing, stored_bytes

PARTS = ("vision", "decoder", "head")
MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Workload:
    """A typical request: ``patches`` of its picture, ``prompt`` tokens, ``answer`` tokens."""

    patches: int = 256
    prompt: int = 256
    answer: int = 32

    @property
    def rows(self) -> tuple[int, ...]:
        """The numbers of rows that have to be measured."""
        return tuple(sorted({1, self.prompt, self.patches}))


@dataclass(frozen=True, slots=True)
class PartCost:
    """What one part costs in one storage: seconds per request in each phase, and bytes in memory."""

    storage: str
    prefill_s: float
    decode_s: float
    bytes: int

    @property
    def seconds(self) -> float:
        """Of a whole request."""
        return self.prefill_s + self.decode_s


@dataclass(frozen=True, slots=True)
class Plan:
    """The choice. ``both`` tells of the decoder what two storages, one per phase, would bring and cost."""

    storages: Mapping[str, str]
    threads: int
    seconds: float
    bytes: int
    both: Mapping[str, Any]
    table: Mapping[str, Sequence[PartCost]]

    def to_json(self) -> dict[str, Any]:
        """As it is written into a bundle's lineage and its model.json."""
        return {
            "storages": dict(self.storages),
            "threads": self.threads,
            "request_ms": round(1e3 * self.seconds, 3),
            "weight_mib": round(self.bytes / MIB, 2),
            "both_phases": dict(self.both),
        }


def costs(
    matrices: Mapping[str, Counter[Shape]], timings: Sequence[Timing], workload: Workload, threads: int
) -> dict[str, list[PartCost]]:
    """Per part, what every storage costs that was measured for all of its shapes."""
    known = {(t.shape, t.storage, t.rows): t.seconds for t in timings if t.threads == threads}
    storages = list(dict.fromkeys(t.storage for t in timings))
    found: dict[str, list[PartCost]] = {}
    for part, shapes in matrices.items():
        found[part] = []
        for storage in storages:
            if any((shape, storage, 1) not in known for shape in shapes):
                continue

            def over(rows: int, storage: str = storage, shapes: Counter[Shape] = shapes) -> float:
                return sum(count * known[shape, storage, rows] for shape, count in shapes.items())

            prefill = over({"vision": workload.patches, "decoder": workload.prompt, "head": 1}[part])
            decode = 0.0 if part == "vision" else workload.answer * over(1)
            size = sum(count * stored_bytes(shape, storage) for shape, count in shapes.items())
            found[part].append(PartCost(storage, prefill, decode, size))
    return found


def choose(
    matrices: Mapping[str, Counter[Shape]],
    timings: Sequence[Timing],
    workload: Workload,
    *,
    memory_mib: float | None = None,
    least_bits: int = 4,
) -> Plan:
    """The quickest storages that fit ``memory_mib`` and have at least ``least_bits``. Raises ``Invalid`` for none."""
    best: Plan | None = None
    for threads in sorted({timing.threads for timing in timings}):
        table = costs(matrices, timings, workload, threads)
        allowed = {part: [c for c in each if _compiles(c.storage, least_bits)] for part, each in table.items()}
        for combination in itertools.product(*allowed.values()):
            size = sum(cost.bytes for cost in combination)
            seconds = sum(cost.seconds for cost in combination)
            if memory_mib is not None and size > memory_mib * MIB:
                continue
            if best is None or seconds < best.seconds:
                chosen = {part: cost.storage for part, cost in zip(allowed, combination, strict=True)}
                best = Plan(chosen, threads, seconds, size, _both(allowed["decoder"]), table)
    if best is None:
        least = sum(
            min(
                sum(n * stored_bytes(shape, t.storage) for shape, n in shapes.items())
                for t in timings
                if _compiles(t.storage, least_bits)
            )
            for shapes in matrices.values()
        )
        raise Invalid(
            f"memory is {memory_mib:g} MiB; the weights of this model need at least {least / MIB:.1f} MiB here. Allow "
            "more, or fewer bits.",
            field="memory_mib",
        )
    return best


def _compiles(storage: str, least_bits: int) -> bool:
    if storage == DYNAMIC_INT8:
        return False
    return storage == "fp32" or int(storage.removeprefix("int").partition("/")[0]) >= least_bits


def _both(decoder: Sequence[PartCost]) -> dict[str, Any]:
    """The best storage of the decoder for each phase alone, and what keeping both brings over the best single one."""
    prefill = min(decoder, key=lambda cost: cost.prefill_s)
    decode = min(decoder, key=lambda cost: cost.decode_s)
    single = min(decoder, key=lambda cost: cost.seconds)
    extra = 0 if prefill.storage == decode.storage else prefill.bytes + decode.bytes - single.bytes
    return {
        "prefill": prefill.storage,
        "decode": decode.storage,
        "single": single.storage,
        "saved_ms_per_request": round(1e3 * (single.seconds - prefill.prefill_s - decode.decode_s), 3),
        "extra_mib": round(extra / MIB, 2),
    }
