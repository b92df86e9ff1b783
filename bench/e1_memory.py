"""Memory of a real server over thousands of distinct pictures, asked by several clients at once over HTTP.

The caches are small, so that they are full after the first tenth of the pictures: what grows after that is no cache.
Resident memory is looked at every ``--every`` pictures; the growth is that of the median of the last looks over the
median of the first ones after the tenth. Pictures have all sizes and are noise, so none is like another.
"""

from __future__ import annotations

import argparse
import os
import queue
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from foveola.artifact import Bundle
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.model import describe_model
from foveola.bench.sample import Item
from foveola.bench.server import Client, ServerProcess
from foveola.bench.stats import median
from foveola.bench.work import encoded
from foveola.engine.options import usable_cores
from foveola.serve.embedded import embedded_bundle

MIB = 1024 * 1024
GROWTH_PERCENT = 3.0
CACHES = ("prefix", "feature", "picture")
LOOKS = 5  # at each end, of which the median counts


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="default: the embedded model")
    parser.add_argument("--pictures", type=int, metavar="N", default=5000)
    parser.add_argument("--largest", type=int, metavar="PX", default=240, help="longest side of a picture")
    parser.add_argument("--clients", type=int, metavar="N", default=4)
    parser.add_argument("--cache-mib", type=int, metavar="N", default=4, help="of each of the three caches")
    parser.add_argument("--every", type=int, metavar="N", default=100)


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    pictures, every = (60, 4) if arguments.quick else (arguments.pictures, arguments.every)
    path = (arguments.bundle or embedded_bundle()).resolve()
    os.environ |= {f"FOVEOLA_ENGINE_{name.upper()}_CACHE_MIB": str(arguments.cache_mib) for name in CACHES}
    held: list[float] = []
    with ServerProcess(path, usable_cores()) as server:
        port = server.port()
        clients: queue.SimpleQueue[Client] = queue.SimpleQueue()
        for _ in range(arguments.clients):
            clients.put(Client(port))
        server.wait_ready()

        def ask(number: int) -> None:
            client = clients.get()
            client.invoke(noise(number, arguments.largest), 1)
            clients.put(client)

        with ThreadPoolExecutor(arguments.clients) as pool:
            for start in range(0, pictures, every):
                list(pool.map(ask, range(start, min(start + every, pictures))))
                held.append(server.held_memory() / MIB)
                if len(held) % 5 == 0:
                    tell(f"{start + every} pictures, {held[-1]:.0f} MiB")
        peak = server.peak_memory() / MIB
    settled = held[len(held) // 10 :]
    before, after = median(settled[:LOOKS]), median(settled[-LOOKS:])
    growth = 100 * (after - before) / before
    figures = {
        "model": describe_model(Bundle.open(path)),
        "pictures": pictures,
        "clients": arguments.clients,
        "cache_mib": arguments.cache_mib,
        "before_mib": round(before, 1),
        "after_mib": round(after, 1),
        "peak_mib": round(peak, 1),
        "growth_percent": round(growth, 2),
        "held_mib": [round(one, 1) for one in held],
    }
    bar = Bar(f"growth of memory over {pictures} distinct pictures, per cent", growth, GROWTH_PERCENT, at_most=True)
    return figures, [bar]


def noise(number: int, largest: int) -> Item:
    """A picture of its own size and content, the same for every ``number``."""
    random = np.random.default_rng(number)
    height, width = random.integers(largest // 4, largest + 1, 2)
    pixels = random.integers(0, 255, (height, width, 3), np.uint8)
    return Item(f"noise {number}", encoded(pixels, "JPEG" if number % 2 else "PNG"), "What is it?")


SCRIPT = Script("e1", "memory", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
