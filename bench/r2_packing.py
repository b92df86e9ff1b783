"""How well slices of GPUs are packed: against first-fit, and against the optimum where it can be computed.

Cases are drawn: mixes of MIG profiles of an H100 in the order in which they come. What cannot be placed is counted in
compute slices. Up to ten slices the planner searches for the optimum where the heuristic may have missed it, so small
cases show above all what the heuristic alone is worth. Nothing here runs on a GPU; the tables of places are NVIDIA's.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.stats import median
from foveola.rollout.gpu import MODELS
from foveola.rollout.packing import Packing, Slice, best_fit, check, exact, first_fit, pack

MODEL = "h100-80gb"
Way = Callable[[Sequence[Slice], int, str], Packing]


def _case(draw: random.Random, count: int) -> list[Slice]:
    profiles = draw.choices(MODELS[MODEL], weights=(5, 3, 2, 2, 1), k=count)
    return [Slice(f"s{i}", profile) for i, profile in enumerate(profiles)]


def _lost(packing: Packing) -> int:
    return sum(one.profile.compute for one in packing.left)


def _sums(cases: list[tuple[list[Slice], int]], ways: dict[str, Way]) -> dict[str, dict[str, float]]:
    found = {}
    for name, way in ways.items():
        began = time.perf_counter()
        packings = [way(slices, gpus, MODEL) for slices, gpus in cases]
        took_ms = (time.perf_counter() - began) / len(cases) * 1000
        for packing in packings:
            check(packing)
        found[name] = {
            "lost_compute_slices": sum(map(_lost, packings)),
            "gpus_used": sum(one.gpus_used for one in packings),
            "ms_per_plan": round(took_ms, 3),
            "worse_than_optimum": 0,
        }
    return found


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    draw = random.Random(11)
    small_n, large_n = (20, 10) if arguments.quick else (120, 60)
    small = [(_case(draw, draw.randint(1, 7)), draw.randint(1, 3)) for _ in range(small_n)]
    large = [(_case(draw, 40), 16) for _ in range(large_n)]
    tell(f"{small_n} small cases with their optimum")
    on_small = _sums(small, {"ours": pack, "heuristic_alone": best_fit, "first_fit": first_fit, "optimum": exact})
    worse = {"ours": 0, "heuristic_alone": 0, "first_fit": 0}
    for slices, gpus in small:
        best = exact(slices, gpus, MODEL)
        for name, way in (("ours", pack), ("heuristic_alone", best_fit), ("first_fit", first_fit)):
            found = way(slices, gpus, MODEL)
            worse[name] += (_lost(found), found.gpus_used) > (_lost(best), best.gpus_used)
    for name, count in worse.items():
        on_small[name]["worse_than_optimum"] = count
    tell(f"{large_n} large cases")
    on_large = _sums(large, {"ours": pack, "first_fit": first_fit})
    for one in on_large.values():
        del one["worse_than_optimum"]  # unknown there
    waste = median([_lost(pack(slices, gpus, MODEL)) for slices, gpus in large])
    figures = {"model": MODEL, "small_cases": small_n, "small": on_small, "large_cases": large_n, "large": on_large,
               "large_lost_median": waste}  # fmt: skip
    return figures, [
        Bar("small cases worse than the optimum", worse["ours"], 0, at_most=True),
        Bar("small cases in which first-fit is worse than the optimum", worse["first_fit"], 1),
        Bar("large: lost slices, ours over first-fit",
            on_large["ours"]["lost_compute_slices"] / max(on_large["first_fit"]["lost_compute_slices"], 1), 1.0,
            at_most=True),
    ]  # fmt: skip


SCRIPT = Script("r2", "packing", __doc__, run)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
