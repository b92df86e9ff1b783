"""The engine against transformers fp32 on the same weights: bytes in to text out, batch 1, two cores.

Both answer the same pictures and questions in turn, greedily; the ratio is that of the median latencies, with a
paired bootstrap interval. Questions are those of the examination where --data is given, generated ones otherwise.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foveola.artifact import Bundle
from foveola.bench.contender import Setup
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.machine import describe_machine, pinned, platform_line
from foveola.bench.measure import Series, measure
from foveola.bench.model import describe_model
from foveola.bench.remote import Remote
from foveola.bench.report import agreement, row_of, versus
from foveola.bench.sample import Item
from foveola.bench.work import generated_items
from foveola.engine.options import usable_cores
from foveola.serve.embedded import embedded_bundle

TIMES_FASTER, SAME_ANSWERS = 6.0, 0.98
OURS, RIVAL = "foveola", "transformers"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint", type=Path, metavar="DIR", required=True, help="what the bundle was compiled from"
    )
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="default: the embedded model")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="the project's data folder; default: generated pictures"
    )
    parser.add_argument("--questions", type=int, metavar="N", default=400)
    parser.add_argument("--max-tokens", type=int, metavar="N", default=32)
    parser.add_argument("--cores", type=int, metavar="N", default=2)


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    count = 6 if arguments.quick else arguments.questions
    path = (arguments.bundle or embedded_bundle()).resolve()
    cores = min(arguments.cores, usable_cores())
    tell("reading the questions")
    asked = items(arguments.data, count)
    with pinned(cores):
        machine = describe_machine()
        series, peaks = compared(
            Setup(path, cores, arguments.max_tokens),
            Setup(arguments.checkpoint.resolve(), cores, arguments.max_tokens),
            asked,
            2 if arguments.quick else 10,
            tell,
        )
    (ratio,) = versus(series, OURS)
    same = agreement(series, OURS, RIVAL)
    figures = {
        "model": describe_model(Bundle.open(path)),
        "questions": "examination" if arguments.data else "generated",
        "cores": cores,
        "max_tokens": arguments.max_tokens,
        "rows": [row_of(one, platform_line(machine), peaks[one.contender]).to_json() for one in series],
        "ratio": ratio.to_json(),
        "agreement": same.to_json(),
    }
    bars = (
        Bar("transformers fp32 takes so many times as long (median, batch 1)", ratio.ratio.value, TIMES_FASTER),
        Bar("same answers as transformers fp32, share", same.share, SAME_ANSWERS),
    )
    return figures, bars


def items(data: Path | None, count: int) -> list[Item]:
    if data is None:
        return generated_items(count)
    from foveola.bench.paper import as_items, draw, read_paper

    return as_items(draw(read_paper(data, generated=max(8, count // 8)), count))


def compared(
    ours: Setup, theirs: Setup, asked: list[Item], warmup: int, tell: Tell
) -> tuple[list[Series], dict[str, int]]:
    tell("starting the contenders")
    contenders = [Remote(OURS, "engine", ours)]
    try:
        contenders.append(Remote(RIVAL, "transformers", theirs))
        tell(f"asking {len(asked)} questions of each")
        series = measure(
            contenders,
            asked,
            requests=len(asked),
            concurrency=(1,),
            warmup=warmup,
            progress=lambda what, done, total: tell(f"{done} of {total}") if done and done % 100 < 1 else None,
        )
        return series, {one.name: one.peak_memory() for one in contenders}
    finally:
        for one in contenders:
            one.close()


SCRIPT = Script("e1", "speed", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
