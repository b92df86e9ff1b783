"""``foveola plan``: measure this machine, choose what suits it, and write that into a bundle."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from foveola.artifact import Bundle, Checkpoint, Finding
from foveola.exchange import Invalid

for _package in ("torch", "transformers", "onnx_ir"):
    if find_spec(_package) is None:
        raise ModuleNotFoundError(f"No module named {_package!r}", name=_package)

MAX_THREADS = 512


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the verb."""
    add = parser.add_argument
    add("--model", metavar="DIR", type=Path, help="a checkpoint: measure kernels for its shapes and choose storages")
    add("--bundle", metavar="DIR", type=Path, help="a bundle: measure what a run over several tokens costs")
    add("--out", metavar="DIR", type=Path, help="write the bundle, compiled by the choice or copied, with the plan")
    add("--replace", action="store_true", help="replace a bundle that is there")
    add("--memory-mib", metavar="N", type=float, help="the weights may take so much memory (default: any)")
    add("--least-bits", metavar="N", type=int, choices=(4, 8), default=4, help="no fewer bits per weight (default: 4)")
    add("--threads", metavar="N,N", default=str(os.cpu_count() or 1), help="numbers of threads to try (default: all)")
    add("--prompt", metavar="N", type=int, default=256, help="tokens of a typical prompt (default: 256)")
    add("--answer", metavar="N", type=int, default=32, help="tokens of a typical answer (default: 32)")
    add("--patches", metavar="N", type=int, default=256, help="patches of a typical picture (default: 256)")
    add("--max-length", metavar="N", type=int, default=4096, help="tokens of prompt and answer, for --out")
    add("--json", action="store_true", help="print JSON for programs instead of a table for people")


def run(arguments: argparse.Namespace) -> int:
    """Measure, choose, write, print. Raises a ``Refusal`` for whatever cannot be done."""
    if (arguments.model is None) == (arguments.bundle is None):
        raise Invalid("give either --model or --bundle: a checkpoint to choose for, or a bundle to measure.")
    threads = _threads(arguments.threads)
    tell: Callable[[str], None] = (lambda what: None) if arguments.json else _tell
    if arguments.bundle is not None:
        plan = _of_bundle(Bundle.open(arguments.bundle), arguments, threads, tell)
    else:
        plan = _of_checkpoint(arguments, threads, tell)
    if arguments.json:
        json.dump(plan, sys.stdout, indent=1)
        print()
    else:
        _show(plan)
    return 0


def matrices_of(checkpoint: Checkpoint) -> dict[str, Counter[Any]]:
    """Shapes of the matrices of each part and how many there are of each, side by side as they are exported.

    The model is laid out without memory; no weight is read.
    """
    import torch
    from torch import nn

    from foveola.family import family_of
    from foveola.lower.plan_kernels import Shape
    from foveola.weights.model_class import model_class
    from foveola.weights.widths import fitted_class

    family = family_of(checkpoint.config)
    source = fitted_class(model_class(family), checkpoint.config)
    with torch.device("meta"):
        model = source(source.config_class(**checkpoint.config))
    names, parts = family.decoder, family.parts
    found: dict[str, Counter[Any]] = {"vision": Counter(), "decoder": Counter(), "head": Counter()}
    joined: dict[str, list[Shape]] = {}
    for path, module in model.named_modules():
        if not isinstance(module, nn.Linear):
            continue
        shape = Shape(int(module.weight.shape[0]), int(module.weight.shape[1]))
        if path == parts.head:
            found["head"][shape] += 1
        elif parts.vision and path.startswith(f"{parts.vision}."):
            found["vision"][shape] += 1
        elif path.startswith(f"{parts.decoder}."):
            block = next((path.removesuffix(name) for name in names.attention_inputs if path.endswith(name)), None)
            if block is None:
                found["decoder"][shape] += 1
            else:
                joined.setdefault(block, []).append(shape)
    for shapes in joined.values():
        found["decoder"][Shape(sum(shape.outer for shape in shapes), shapes[0].inner)] += 1
    return {part: shapes for part, shapes in found.items() if shapes}


def _of_checkpoint(arguments: argparse.Namespace, threads: list[int], tell: Callable[[str], None]) -> dict[str, Any]:
    from foveola.lower.plan import Workload, choose
    from foveola.lower.plan_kernels import measure_kernels

    started = time.perf_counter()
    matrices = matrices_of(Checkpoint.open(arguments.model))
    workload = Workload(arguments.patches, arguments.prompt, arguments.answer)
    shapes = [shape for each in matrices.values() for shape in each]
    timings = measure_kernels(shapes, workload.rows, threads, tell=tell)
    plan = choose(matrices, timings, workload, memory_mib=arguments.memory_mib, least_bits=arguments.least_bits)
    told = plan.to_json() | {
        "table": {
            part: [
                {
                    "storage": cost.storage,
                    "prefill_ms": round(1e3 * cost.prefill_s, 3),
                    "decode_ms": round(1e3 * cost.decode_s, 3),
                    "mib": round(cost.bytes / 2**20, 2),
                }
                for cost in each
            ]
            for part, each in plan.table.items()
        }
    }
    if arguments.out is not None:
        tell("compiling")
        bundle = _compile(arguments, plan.storages)
        bundle_plan = _measured(bundle, plan.threads, arguments)
        finding = Finding(
            step="lower.plan",
            changed="storages chosen by kernels measured here: "
            + ", ".join(f"{p} {s}" for p, s in plan.storages.items())
            + phases_told(bundle_plan),
            after={"request_ms": told["request_ms"], "weight_mib": told["weight_mib"], "threads": plan.threads}
            | phases_figures(bundle_plan),
            seconds=time.perf_counter() - started,
            options={"memory_mib": arguments.memory_mib, "prompt": workload.prompt, "answer": workload.answer},
        )
        from foveola.lower.plan_runs import with_plan

        with_plan(bundle, arguments.out, plan.to_json() | bundle_plan, finding, replace=True)
        told |= bundle_plan
    return told


def _compile(arguments: argparse.Namespace, storages: Any) -> Bundle:
    from foveola.lower.compile import compile_checkpoint
    from foveola.lower.options import CompileOptions
    from foveola.weights.formats import parse_storage

    head = parse_storage(storages["head"])
    options = CompileOptions(
        vision=parse_storage(storages.get("vision", "fp32")),
        decoder=parse_storage(storages["decoder"]),
        head=head,
        embedding=embedding_for(head, _width(Checkpoint.open(arguments.model))),
        max_length=arguments.max_length,
    )
    return compile_checkpoint(arguments.model, arguments.out, options, replace=arguments.replace)


def embedding_for(head: Any, width: int) -> Any:
    """The storage of an embedding ``width`` wide beside a ``head``: 8 bits in blocks that divide its width and are no
    larger than the head's, or fp16 where there are none, or where the head has more bits."""
    from foveola.weights.formats import Format

    if not isinstance(head, Format):
        return "fp16"
    block = next((block for block in (128, 64, 32, 16) if block <= head.block and width % block == 0), None)
    return "fp16" if block is None else Format(8, block)


def _width(checkpoint: Checkpoint) -> int:
    from foveola.family import family_of

    return family_of(checkpoint.config).decoder_shape(checkpoint.config).hidden


def _of_bundle(
    bundle: Bundle, arguments: argparse.Namespace, threads: list[int], tell: Callable[[str], None]
) -> dict[str, Any]:
    from foveola.lower.plan_runs import with_plan

    started = time.perf_counter()
    tell("measuring runs over several tokens")
    plan = _measured(bundle, max(threads), arguments)
    if arguments.out is not None:
        seconds = plan["run_seconds"]
        finding = Finding(
            step="lower.plan",
            changed="what runs over several tokens cost here, so that guesses are checked where that pays"
            + ("" if plan["guess"] else "; no guesses, which would change texts at accuracy level 4")
            + phases_told(plan),
            after={"one_token_ms": round(1e3 * seconds[0], 4), "six_tokens_ms": round(1e3 * seconds[-1], 4)}
            | phases_figures(plan),
            seconds=time.perf_counter() - started,
            options={"memory_mib": arguments.memory_mib, "prompt": arguments.prompt},
        )
        with_plan(bundle, arguments.out, plan, finding, replace=arguments.replace)
    return plan


def _measured(bundle: Bundle, threads: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """What runs over several tokens cost, and whether prompts get a layout of the weights of their own."""
    from foveola.lower.plan_phases import measure_phases
    from foveola.lower.plan_runs import measure_runs, rounds_by_the_run

    seconds = measure_runs(bundle, threads=threads)
    phases = measure_phases(bundle, threads=threads, prompt=arguments.prompt, memory_mib=arguments.memory_mib)
    runs = {"run_seconds": [float(f"{value:.4g}") for value in seconds], "guess": not rounds_by_the_run(bundle)}
    return runs | {"threads": threads} | phases


def phases_told(plan: dict[str, Any]) -> str:
    """What the lineage says of a second layout; nothing where there is none."""
    phases = plan.get("phases", {})
    if phases.get("prefill_level") is None:
        return ""
    return (
        f"; prompts are read at accuracy level {phases['prefill_level']} from a second layout of the decoder's "
        f"weights, {phases['extra_mib']:.0f} MiB more in memory"
    )


def phases_figures(plan: dict[str, Any]) -> dict[str, float]:
    """What the lineage counts of it."""
    phases = plan.get("phases")
    if phases is None:
        return {}
    figures = {f"prefill_ms_at_level_{level}": value for level, value in phases["prefill_ms"].items()}
    taken = phases["prefill_level"] is not None
    return figures | {"second_layout_mib": phases["extra_mib"] if taken else 0.0}


def _threads(text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.strip().isdigit() and 1 <= int(part) <= MAX_THREADS for part in parts):
        raise Invalid(f"--threads is {text!r}; expected numbers from 1 to {MAX_THREADS}, as in 1,2.", field="threads")
    return sorted({int(part) for part in parts})


def _tell(what: str) -> None:
    print(what, file=sys.stderr)


def _show(plan: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    for part, rows in plan.get("table", {}).items():
        table = Table(part, "prefill ms", "decode ms", "MiB", box=None, pad_edge=False)
        for row in rows:
            mark = "  *" if plan["storages"].get(part) == row["storage"] else ""
            table.add_row(
                f"{row['storage']}{mark}", f"{row['prefill_ms']:.2f}", f"{row['decode_ms']:.2f}", f"{row['mib']:.1f}"
            )
        console.print(table)
    if "storages" in plan:
        both = plan["both_phases"]
        console.print(f"* chosen: {plan['request_ms']:.1f} ms of products per request, {plan['weight_mib']:.1f} MiB")
        if both["prefill"] != both["decode"]:
            console.print(
                f"  prefill alone would take {both['prefill']}, decode alone {both['decode']}; both at once would save "
                f"{both['saved_ms_per_request']:.2f} ms per request and cost {both['extra_mib']:.1f} MiB"
            )
    if "phases" in plan:
        console.print(f"  {_phases_line(plan['phases'])}")
    if "run_seconds" in plan:
        times = ", ".join(f"{1e3 * seconds:.2f}" for seconds in plan["run_seconds"])
        console.print(f"  a run over 1, 2, 3 … tokens takes {times} ms with {plan['threads']} threads")
        if not plan["guess"]:
            console.print("  nothing is guessed ahead: at accuracy level 4 a run over several tokens rounds otherwise")


def _phases_line(phases: dict[str, Any]) -> str:
    times = ", ".join(f"{value:.0f} ms at level {level}" for level, value in phases["prefill_ms"].items())
    level, extra = phases["prefill_level"], f"{phases['extra_mib']:.0f} MiB"
    if level is not None:
        chosen = f"two layouts: prompts at level {level}, for {extra} more"
    elif phases["saved_ms"] > 0 and not phases["fits"]:
        chosen = f"one layout: a second takes {extra} more than there is room for"
    else:
        chosen = "one layout: a second would not pay"
    return f"a prompt of {phases['prompt']} takes {times}; {chosen}"
