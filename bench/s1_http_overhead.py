"""What HTTP adds: a client on loopback that keeps its connection, its latency minus the engine's own total time.

A request carries a picture and a prompt as multipart/form-data; the engine's time is in the reply. What is left is
reading and parsing the request, the way through the event loop, writing the reply, and the client's own share.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foveola.artifact import Bundle
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.model import describe_model
from foveola.bench.server import Client, ServerProcess
from foveola.bench.stats import median, percentile
from foveola.bench.work import folder_items, generated_items
from foveola.engine.options import usable_cores
from foveola.serve.embedded import embedded_bundle

ADDED_MS = 3.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="default: the embedded model")
    parser.add_argument("--pictures", type=Path, metavar="DIR", help="default: generated pictures")
    parser.add_argument("--requests", type=int, metavar="N", default=400)


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    requests, warmup = (10, 3) if arguments.quick else (arguments.requests, 30)
    path = (arguments.bundle or embedded_bundle()).resolve()
    items = folder_items(arguments.pictures) if arguments.pictures else generated_items(min(requests, 64))
    with ServerProcess(path, usable_cores()) as server:
        client = Client(server.port())
        server.wait_ready()
        tell(f"asking {requests} questions over one connection")
        for index in range(warmup):
            client.invoke(items[index % len(items)], 16)
        latency_ms, engine_ms = [], []
        for index in range(requests):
            reply, latency_s = client.invoke(items[index % len(items)], 16)
            latency_ms.append(latency_s * 1000)
            engine_ms.append(reply["usage"]["stages"]["total_s"] * 1000)
        client.close()
    added = [whole - inside for whole, inside in zip(latency_ms, engine_ms, strict=True)]
    figures = {
        "model": describe_model(Bundle.open(path)),
        "requests": requests,
        "picture_bytes_p50": int(median([len(item.image) for item in items])),
        "added_ms": {f"p{p}": round(percentile(added, p), 3) for p in (50, 95, 99)},
        "latency_ms": {f"p{p}": round(percentile(latency_ms, p), 3) for p in (50, 95, 99)},
        "engine_ms": {f"p{p}": round(percentile(engine_ms, p), 3) for p in (50, 95, 99)},
    }
    return figures, [Bar("HTTP adds, ms at p50", median(added), ADDED_MS, at_most=True)]


SCRIPT = Script("s1", "http_overhead", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
