"""Bits and group size per layer: a mixed-integer program over measured and predicted costs.

    min Σ_l Σ_c Ω_{l,c} x_{l,c}    with one choice c per layer, bytes ≤ B, prefill ≤ P, decode ≤ D

solved to proven optimality by HiGHS (through ``scipy.optimize.milp``). Layers that must share a format (because they
become one product in the graph, or one vendor kernel) are tied and count as one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from foveola.exchange import Invalid

RESOURCES = ("bytes", "prefill_ms", "decode_ms")


@dataclass(frozen=True, slots=True)
class Option:
    """One way to store a layer: its format as text (``int4/64@4``), the predicted cost, and what it takes.

    ``bits`` is what the integers of one weight take; bytes include scales and zero points.
    """

    storage: str
    cost: float
    bytes: float
    bits: float = 0.0
    prefill_ms: float = 0.0
    decode_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that all layers together may take; None leaves a resource free."""

    bytes: float | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None
    bits: float | None = None
    """Average bits per weight, scales not counted."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """``storage`` per layer, with the sums. ``gap`` is how far the cost may be from the optimum, relative."""

    storage: Mapping[str, str]
    cost: float
    bytes: float
    bits: float
    prefill_ms: float
    decode_ms: float
    gap: float


def assign(
    options: Mapping[str, Sequence[Option]],
    limits: Limits,
    *,
    weights: Mapping[str, int] | None = None,
    ties: Sequence[Sequence[str]] = (),
    time_limit_s: float = 30.0,
) -> Assignment:
    """The cheapest choice per layer within ``limits``.

    ``weights`` counts the elements of every layer (needed for ``limits.bits``). ``ties`` lists layers that must get
    the same storage. Raises ``Invalid`` where no choice fits, saying what the least would be.
    """
    if not options or any(not choices for choices in options.values()):
        raise Invalid("there is no layer, or one without any way to store it; check the pattern.", field="options")
    sizes = dict(weights or dict.fromkeys(options, 0))
    columns = [(name, option) for name, choices in options.items() for option in choices]
    rows, lower, upper = _one_each(options, columns)
    for resource, bound, amounts in _resources(columns, limits, sizes):
        rows.append(amounts)
        lower.append(-np.inf)
        upper.append(bound)
        least = sum(min(a for a, (n, _) in zip(amounts, columns, strict=True) if n == name) for name in options)
        if least > bound * (1 + 1e-12):
            raise Invalid(
                f"{resource} may be at most {bound:g}, but the least that these layers take is {least:g}. Raise the "
                "limit or allow fewer bits.",
                field=resource,
            )
    for row in _tied(columns, ties):
        rows.append(row)
        lower.append(0.0)
        upper.append(0.0)
    scale = max((option.cost for _, option in columns), default=1.0) or 1.0
    solved = milp(
        [option.cost / scale for _, option in columns],
        constraints=LinearConstraint(csr_array(np.array(rows)), lower, upper),
        integrality=np.ones(len(columns)),
        bounds=Bounds(0, 1),
        options={"time_limit": time_limit_s, "mip_rel_gap": 1e-6},
    )
    if solved.x is None:
        raise Invalid("no assignment keeps all the limits at once; raise one of them.", field="limits")
    chosen = [(name, option) for (name, option), x in zip(columns, solved.x, strict=True) if x > 0.5]
    return _summed(chosen, sizes, float(solved.mip_gap or 0.0))


def _one_each(
    options: Mapping[str, Sequence[Option]], columns: Sequence[tuple[str, Option]]
) -> tuple[list[np.ndarray], list[float], list[float]]:
    rows = [np.array([float(name == layer) for name, _ in columns]) for layer in options]
    return rows, [1.0] * len(rows), [1.0] * len(rows)


def _resources(
    columns: Sequence[tuple[str, Option]], limits: Limits, sizes: Mapping[str, int]
) -> list[tuple[str, float, np.ndarray]]:
    found = []
    for resource in RESOURCES:
        bound = getattr(limits, resource)
        if bound is not None:
            found.append((resource, float(bound), np.array([getattr(option, resource) for _, option in columns])))
    if limits.bits is not None:
        whole = sum(sizes.values())
        if not whole:
            raise Invalid("average bits are limited, but the layers' sizes were not given.", field="weights")
        found.append(("bits", limits.bits, np.array([option.bits * sizes[name] / whole for name, option in columns])))
    return found


def _tied(columns: Sequence[tuple[str, Option]], ties: Sequence[Sequence[str]]) -> list[np.ndarray]:
    rows = []
    for group in ties:
        for other in group[1:]:
            for storage in {option.storage for name, option in columns if name in (group[0], other)}:
                row = np.zeros(len(columns))
                for index, (name, option) in enumerate(columns):
                    if option.storage == storage and name in (group[0], other):
                        row[index] = 1.0 if name == group[0] else -1.0
                rows.append(row)
    return rows


def _summed(chosen: Sequence[tuple[str, Option]], sizes: Mapping[str, int], gap: float) -> Assignment:
    whole = sum(sizes.values())
    return Assignment(
        storage={name: option.storage for name, option in chosen},
        cost=sum(option.cost for _, option in chosen),
        bytes=sum(option.bytes for _, option in chosen),
        bits=sum(option.bits * sizes[name] for name, option in chosen) / whole if whole else 0.0,
        prefill_ms=sum(option.prefill_ms for _, option in chosen),
        decode_ms=sum(option.decode_ms for _, option in chosen),
        gap=gap,
    )
