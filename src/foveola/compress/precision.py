"""``precision``: bits and group size per matrix, chosen by what they cost the answers, what they weigh and how fast
they are.

Sensitivities on calibration data → a predicted cost for every way to store every matrix → the mixed-integer program →
packed weights. What was predicted and decided is written beside them, in ``precision.json``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from foveola.artifact import Checkpoint, Finding
from foveola.compress.bits import Assignment, Limits, Option, assign
from foveola.compress.clip import search_clip
from foveola.compress.example import Example, predicted
from foveola.compress.follow import Dma, errors_json, follow, prefetch_plan
from foveola.compress.gptq import gptq
from foveola.compress.interplay import Way, measure_interplay
from foveola.compress.latency import LatencyTable, Shape
from foveola.compress.rounding import matrices
from foveola.compress.samples import read_examples
from foveola.compress.sensitivity import Logits, Sensitivity, measure, relative_weight_error, tried_cost
from foveola.compress.steps import Workbench, step
from foveola.compress.stream import Changed, rewrite
from foveola.exchange import Invalid
from foveola.family import Family, family_of
from foveola.weights.formats import Format, parse_storage
from foveola.weights.loading import load
from foveola.weights.packed import Packed, pack
from foveola.weights.patterns import matched_any
from foveola.weights.skeleton import skeleton
from foveola.weights.store import packed_entry, packed_tensors

RECORD, PREFETCH = "precision.json", "prefetch.json"
ALIGNMENT = 16
TRIED_BITS = 2
PRESETS: Mapping[str, tuple[str, str]] = {
    "int4+fp16": ("int4/32", "fp16"),
    "int4+fp32": ("int4/32", "fp32"),
    "int8+fp32": ("int8/32", "fp32"),
}
"""Name -> storage of every matrix, and what activations are computed in. CPUs compute fp16 activations in fp32."""
Rounding = Literal["nearest", "gptq"]


def packing(rounding: Rounding) -> Callable[[Tensor, Tensor, Format], Packed]:
    """(weight [N, K], second moments of its input [K, K], format) -> packed."""
    if rounding == "gptq":
        return clipped_gptq
    return lambda weight, moments, form: pack(weight, form)


def clipped_gptq(weight_NK: Tensor, moments_KK: Tensor, form: Format) -> Packed:
    """GPTQ over ranges that are searched first: of two bits' four values two would lie at a block's extremes."""
    shrink = search_clip(weight_NK, moments_KK, form.bits, form.block)
    return gptq(weight_NK, moments_KK, form, shrink_NB=shrink)


def row_bytes(inner: int, form: Format) -> int:
    """Bytes from one row of the packed integers to the next."""
    return -(-inner // form.block) * form.block * form.bits // 8


def options_of(
    weight_NK: Tensor,
    known: Sensitivity,
    formats: Sequence[Format],
    rounding: Rounding = "nearest",
    times: Callable[[int, int, Format], tuple[float, float]] | None = None,
    trial: Callable[[Tensor], float] | None = None,
    made: Callable[[Format, Tensor], None] = lambda form, rounded: None,
) -> list[Option]:
    """The ways to store a matrix, with predicted cost; formats whose rows would not lie on 128-bit boundaries are left
    out. ``times`` gives (prefill, decode) milliseconds of K, N and a format; ``trial`` what rounded weights cost that
    have so few bits (``TRIED_BITS``) that the prediction does not reach as far; ``made`` is shown the rounded weights.

    Raises ``Invalid`` where no format is left.
    """
    found = []
    for form in formats:
        if row_bytes(weight_NK.shape[1], form) % ALIGNMENT:
            continue
        packed = packing(rounding)(weight_NK, known.gram, form)
        prefill, decode = times(weight_NK.shape[1], weight_NK.shape[0], form) if times else (0.0, 0.0)
        rounded = packed.dequantised()
        cost = known.cost(weight_NK, rounded) if trial is None or form.bits > TRIED_BITS else trial(rounded)
        made(form, rounded)
        found.append(Option(str(form), cost, packed.nbytes, form.bits, prefill, decode))
    if not found:
        raise Invalid(
            f"rows of {weight_NK.shape[1]} weights end on 128-bit boundaries in none of "
            f"{', '.join(map(str, formats))}; allow a larger block.",
            field="storages",
        )
    return found


def answers_of(model: nn.Module, examples: Sequence[Example]) -> list[Callable[[], Tensor]]:
    """The examples as what `sensitivity.measure` runs."""

    def run(example: Example) -> Callable[[], Tensor]:
        return lambda: predicted(model, example)[0]

    return [run(example) for example in examples]


def choose(
    model: nn.Module,
    known: Mapping[str, Sensitivity],
    formats: Sequence[Format],
    limits: Limits,
    *,
    rounding: Rounding = "nearest",
    times: Callable[[int, int, Format], tuple[float, float]] | None = None,
    ties: Sequence[Sequence[str]] = (),
    samples: Sequence[Logits] = (),
    meeting: Sequence[Logits] = (),
    seed: int = 0,
    told: Callable[[str], None] = lambda path: None,
) -> tuple[Assignment, dict[str, list[Option]]]:
    """The assignment for the layers in ``known``, and all the options that it was chosen from.

    Formats of 2 bits are tried on ``samples``, where there are some, one layer at a time. Where there are samples for
    the ``meeting`` of errors, costs are geometric means with what those tell.
    """
    options = {}
    errors: dict[Way, Tensor] = {}
    with torch.no_grad():
        whole = [sample().log_softmax(-1) for sample in samples]
    for path, one in known.items():
        told(path)
        weight = model.get_submodule(path).weight
        assert isinstance(weight, Tensor)
        trial = partial(tried_cost, model, path, samples=samples, whole=whole) if samples else None

        def keep(form: Format, rounded: Tensor, path: str = path, weight: Tensor = weight) -> None:
            errors[path, str(form)] = (rounded - weight).half()

        shown = keep if meeting else lambda form, rounded: None
        options[path] = options_of(weight, one, formats, rounding, times, trial, shown)
    if meeting:
        told("how errors meet")
        options = _met(options, measure_interplay(model, errors, meeting, seed=seed).alone())
    return assign(options, limits, weights=_counts(model, known), ties=ties), options


def _met(options: Mapping[str, Sequence[Option]], alone: Mapping[Way, float]) -> dict[str, list[Option]]:
    """The options with the geometric mean of both costs: each assumes what the other does not."""
    return {
        path: [replace(one, cost=(one.cost * alone[path, one.storage]) ** 0.5) for one in ways]
        for path, ways in options.items()
    }


def _counts(model: nn.Module, paths: Iterable[str]) -> dict[str, int]:
    """Path -> how many weights its matrix has."""
    return {path: int(model.get_submodule(path).weight.numel()) for path in paths}  # type: ignore[operator]


def measured_times(table: LatencyTable, prefill_rows: int) -> Callable[[int, int, Format], tuple[float, float]]:
    """Milliseconds of a product in prefill and in decoding, measured here as they are asked for."""

    def times(inner: int, outer: int, form: Format) -> tuple[float, float]:
        shapes = [Shape(rows, inner, outer, str(form)) for rows in (prefill_rows, 1)]
        table.measure(shapes)
        prefill, decode = (table.of(shape) / 1000 for shape in shapes)
        return prefill, decode

    return times


def ties_of(family: Family, paths: Sequence[str]) -> list[list[str]]:
    """Layers of ``paths`` that the compiled graphs multiply side by side: query, key and value of a block."""
    inputs = [(family.parts.decoder, family.decoder.attention_inputs)]
    if family.parts.vision:
        inputs.append((family.parts.vision, family.tower.attention_inputs))
    found: dict[str, list[str]] = {}
    for path in paths:
        for part, names in inputs:
            name = next((name for name in names if path.startswith(f"{part}.") and path.endswith(f".{name}")), None)
            if name is not None and len(names) > 1:
                found.setdefault(path.removesuffix(name), []).append(path)
    return [group for group in found.values() if len(group) > 1]


@step("precision")
@dataclass(frozen=True, slots=True)
class Precision:
    """Bits and group size per matrix.

    patterns   the matrices that take part
    preset     one of ``PRESETS`` for all of them instead of a choice
    storages   what may be chosen
    bits       average bits per weight, at most (scales not counted)
    size_bytes bytes of all of them, scales counted, at most
    prefill_ms, decode_ms  time of their products on this machine, at most, over ``prefill_rows`` rows and over one
    rounding   nearest or gptq
    trials     samples that formats of 2 bits are tried on, one layer at a time; 0: their cost is predicted, too
    interplay  costs are the geometric mean of the predicted one and of that which random directions of the answers tell
               (``interplay``); takes as much memory again as half of all the ways to store the matrices in fp32
    follow     follow the errors of the result through the blocks, on the first sample, into the record
    dma        a chip with DMA engines: the order of transfers is written to ``prefetch.json``
    """

    patterns: tuple[str, ...] = ("*_proj", "*.qkv", "*.proj", "*.fc1", "*.fc2", "*.mlp.[02]")
    preset: Literal["int4+fp16", "int4+fp32", "int8+fp32"] | None = None
    storages: tuple[str, ...] = ("int2/64", "int4/32", "int4/64", "int8/32")
    bits: float | None = None
    size_bytes: float | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None
    prefill_rows: int = 256
    rounding: Rounding = "gptq"
    tie_attention: bool = True
    trials: int = 0
    interplay: bool = True
    follow: bool = True
    dma: Dma | None = None

    def __post_init__(self) -> None:
        if self.trials < 0:
            raise ValueError(f"trials is {self.trials}; expected 0 or more")

    def run(self, source: Checkpoint, folder: Path, bench: Workbench) -> Finding:
        """Measure, choose and pack. Raises ``Invalid`` for limits that cannot be kept."""
        start = time.perf_counter()
        if bench.calibration is None:
            raise Invalid(
                "precision calibrates on samples; give the recipe [calibration] samples = FILE.", field="samples"
            )
        family = family_of(source.config)
        model = load(source, family)
        linears = {path for path, module in model.named_modules() if isinstance(module, nn.Linear)}
        candidates = [path for path in matrices(skeleton(source, family), source) if path in linears]
        wanted = _known_patterns(self.patterns, candidates)
        paths = matched_any(wanted, candidates)
        bench.tell("sensitivities", 0.05)
        examples = read_examples(bench.calibration, source, family)
        answers = answers_of(model, examples)
        known = measure(model, paths, answers, seed=bench.seed)
        assignment, options = self._choice(model, family, known, answers, bench)
        packed = _packed(model, known, assignment, self.rounding)
        record = record_of(model, known, assignment, options, packed)
        if self.follow:
            bench.tell("errors block by block", 0.6)
            record["blocks"] = errors_json(follow(model, family, examples[0], packed))
        written = _write(source, family, folder, packed, bench)
        (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        if self.dma is not None:
            plan = json.dumps(prefetch_plan(packed, self.dma).to_json(), indent=1)
            (folder / PREFETCH).write_text(plan + "\n", encoding="utf-8")
        return Finding(
            step="compress.precision",
            changed=f"{len(packed)} matrices in {assignment.bits:.3g} bits on average, chosen by predicted cost",
            before={"weight_bytes": written[0], "predicted_kl": 0.0},
            after={
                "weight_bytes": written[1],
                "predicted_kl": round(assignment.cost, 8),
                "bits": round(assignment.bits, 4),
            },
            measured=False,
            seconds=time.perf_counter() - start,
            options={"activations": PRESETS[self.preset][1] if self.preset else "fp32"},
        )

    def _choice(
        self,
        model: nn.Module,
        family: Family,
        known: Mapping[str, Sensitivity],
        samples: Sequence[Logits],
        bench: Workbench,
    ) -> tuple[Assignment, dict[str, list[Option]]]:
        storages = (PRESETS[self.preset][0],) if self.preset else self.storages
        formats = [_format(text) for text in storages]
        timed = self.prefill_ms is not None or self.decode_ms is not None
        return choose(
            model,
            known,
            formats,
            self._limits(),
            rounding=self.rounding,
            times=measured_times(LatencyTable(), self.prefill_rows) if timed else None,
            ties=ties_of(family, list(known)) if self.tie_attention else (),
            samples=samples[: self.trials],
            meeting=samples if self.interplay and len(formats) > 1 else (),
            seed=bench.seed,
            told=lambda path: bench.tell(f"ways to store {path}", 0.3),
        )

    def _limits(self) -> Limits:
        return Limits(self.size_bytes, self.prefill_ms, self.decode_ms, self.bits)


def _known_patterns(patterns: Sequence[str], candidates: Sequence[str]) -> tuple[str, ...]:
    """The patterns as they are, but of the defaults only those that this family has layers for."""
    if tuple(patterns) != Precision.__dataclass_fields__["patterns"].default:
        return tuple(patterns)
    return tuple(p for p in patterns if any(fnmatchcase(path, p) for path in candidates)) or ("*",)


def _format(text: str) -> Format:
    storage = parse_storage(text, field="storages")
    if not isinstance(storage, Format) or storage.symmetric:
        raise Invalid(f"storages names {text!r}; expected formats of few bits, as int4/64.", field="storages")
    return storage


def _packed(
    model: nn.Module, known: Mapping[str, Sensitivity], assignment: Assignment, rounding: Rounding
) -> dict[str, Packed]:
    pack_with = packing(rounding)
    found = {}
    for path, text in assignment.storage.items():
        weight = model.get_submodule(path).weight
        assert isinstance(weight, Tensor)
        found[path] = pack_with(weight, known[path].gram, _format(text))
    return found


def record_of(
    model: nn.Module,
    known: Mapping[str, Sensitivity],
    assignment: Assignment,
    options: Mapping[str, Sequence[Option]],
    packed: Mapping[str, Packed],
) -> dict[str, Any]:
    """What was predicted and decided per layer, as JSON: costs are modelled, relative errors measured."""
    layers = {}
    for path, storage in assignment.storage.items():
        weight = model.get_submodule(path).weight
        assert isinstance(weight, Tensor)
        rounded = packed[path].dequantised()
        layers[path] = {
            "storage": storage,
            "predicted_kl": next(one.cost for one in options[path] if one.storage == storage),
            "relative_output_error": known[path].relative_error(weight, rounded),
            "relative_weight_error": relative_weight_error(weight, rounded),
            "weights": weight.numel(),
            "row_bytes": row_bytes(packed[path].inner, packed[path].format),
            "considered": {one.storage: one.cost for one in options[path]},
        }
    return {"bits": assignment.bits, "bytes": assignment.bytes, "predicted_kl": assignment.cost, "layers": layers}


def _write(
    source: Checkpoint, family: Family, folder: Path, packed: Mapping[str, Packed], bench: Workbench
) -> tuple[int, int]:
    """The checkpoint with those matrices packed; bytes of all weights before and after."""

    def change(block: str, tensors: dict[str, Tensor]) -> Changed:
        kept: dict[str, Tensor] = {}
        entries = {}
        for name, tensor in tensors.items():
            path = name.removesuffix(".weight")
            if path in packed and name != path:
                kept |= packed_tensors(path, packed[path])
                entries[path] = packed_entry(packed[path])
            else:
                kept[name] = tensor
        sizes = {"before": sum(t.nbytes for t in tensors.values()), "after": sum(t.nbytes for t in kept.values())}
        return Changed(kept, entries, sizes)

    model = skeleton(source, family)
    figures = rewrite(source, model, folder, bench.journal, change, bench.tell)
    return sum(one["before"] for one in figures), sum(one["after"] for one in figures)


@torch.no_grad()
def round_in_place(model: nn.Module, packed: Mapping[str, Packed]) -> None:
    """Give the layers of ``model`` the weights that ``packed`` stands for."""
    for path, one in packed.items():
        module: Any = model.get_submodule(path)
        module.weight = nn.Parameter(one.dequantised(), requires_grad=False)
