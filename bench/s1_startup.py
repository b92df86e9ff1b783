"""How soon a server is ready, what it holds in memory after 200 requests, and whether its first answer is right.

The clock runs from before the process is started until /health/ready replies 200, which is polled; median of five
starts. Memory is the process's high-water mark of its resident set. The first question is a generated part with one
drawn defect ("Pass or fail?"), unless --picture, --question and --expect give another.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foveola.artifact import Bundle
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.machine import MIB
from foveola.bench.model import describe_model
from foveola.bench.sample import Item
from foveola.bench.server import PATIENCE_S, Client, ServerProcess
from foveola.bench.stats import median
from foveola.bench.work import encoded, generated_items
from foveola.engine.options import usable_cores
from foveola.exchange import Invalid, Unavailable
from foveola.serve.embedded import embedded_bundle
from foveola.tiny import scenes

READY_S, MEMORY_MB = 3.0, 400.0
MB = 1_000_000
POLL_S = 0.005


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="default: the embedded model")
    parser.add_argument("--starts", type=int, metavar="N", default=5)
    parser.add_argument("--requests", type=int, metavar="N", default=200)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="the first question's picture")
    parser.add_argument("--question", default="Pass or fail?")
    parser.add_argument("--expect", default="fail")


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    starts, requests = (1, 5) if arguments.quick else (arguments.starts, arguments.requests)
    path = (arguments.bundle or embedded_bundle()).resolve()
    first = Item("first", first_picture(arguments.picture), arguments.question)
    ready_s, answered_s = [], []
    for start in range(starts):
        tell(f"start {start + 1} of {starts}")
        with ServerProcess(path, usable_cores()) as server:
            client = Client(server.port())
            wait(client, server)
            ready_s.append(time.perf_counter() - server.started)
            reply, _ = client.invoke(first, 16)
            answered_s.append(time.perf_counter() - server.started)
            if start == starts - 1:
                fresh = server.held_memory()
                tell(f"{requests} requests")
                for item in generated_items(requests):
                    client.invoke(item, 32)
                held, peak = server.held_memory(), server.peak_memory()
            client.close()
    figures = {
        "model": describe_model(Bundle.open(path)),
        "ready_s": [round(seconds, 3) for seconds in ready_s],
        "first_answer_s": [round(seconds, 3) for seconds in answered_s],
        "first_answer": reply["text"],
        "requests": requests,
        "memory_mib": {
            "when_ready": round(fresh / MIB, 1),
            "after_requests": round(held / MIB, 1),
            "peak": round(peak / MIB, 1),
        },
    }
    bars = (
        Bar("process start to /health/ready, s (median)", median(ready_s), READY_S, at_most=True),
        Bar(f"peak resident memory after {requests} requests, MB", peak / MB, MEMORY_MB, at_most=True),
        Bar("first answer right", float(reply["text"].strip() == arguments.expect), 1.0),
    )
    return figures, bars


def wait(client: Client, server: ServerProcess) -> None:
    while not client.ready():
        if time.perf_counter() - server.started > PATIENCE_S:
            raise Unavailable(f"The server was not ready within {PATIENCE_S:g} s.")
        time.sleep(POLL_S)


def first_picture(path: Path | None) -> bytes:
    if path is None:
        one = scenes.scene(np.random.default_rng(11), 224, 224, counts=(0, 1, 0, 0, 0))
        return encoded(one.pixels, "PNG")
    try:
        return path.read_bytes()
    except OSError as error:
        raise Invalid(
            f"{path.name} cannot be read ({error.strerror}); name a picture's file.", field="picture"
        ) from None


SCRIPT = Script("s1", "startup", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
