"""The engine under load: one client against many, a picture that comes again, a large photo in the mix.

All in one process without HTTP, each pair measured in turns. The ratio of many clients to one is of pictures per
second over distinct pictures; that of a repeated picture is of the medians of the time to the first token; that of
the photo of the 99th percentiles of the others' latencies. Memory under load is `e1_memory.py`.

Beside the rates stand the processor's milliseconds per picture, which others on the machine hardly change. ``ceiling``
is the ratio that many clients would reach if all cores computed without a pause: what one client takes on the clock,
times the cores, over what a picture of many costs the processor. It is told on a quiet machine only.
"""

from __future__ import annotations

import argparse
import io
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from foveola.artifact import Bundle
from foveola.bench.contender import Setup
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.local import request_of
from foveola.bench.machine import pinned
from foveola.bench.model import describe_model
from foveola.bench.remote import Remote
from foveola.bench.sample import Item
from foveola.bench.stats import median, percentile
from foveola.bench.work import generated_items
from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions, usable_cores
from foveola.serve.embedded import embedded_bundle
from foveola.tiny import scenes

CLIENTS = 8
BUSY = 0.8  # of the cores, that many clients use where nobody else does


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="default: the embedded model")
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="what it was compiled from, for transformers")
    parser.add_argument("--questions", type=int, metavar="N", default=160, help="of each measurement")
    parser.add_argument("--max-tokens", type=int, metavar="N", default=32)
    parser.add_argument("--cores", type=int, metavar="N", default=2)


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    count = 16 if arguments.quick else arguments.questions
    cores = min(arguments.cores, usable_cores())
    path = (arguments.bundle or embedded_bundle()).resolve()
    with pinned(cores):
        engine = Engine.open(path, EngineOptions(threads=cores, queue_limit=64))
        for item in generated_items(4, seed=99):
            answer_once(engine, request_of(item, arguments.max_tokens))
        tell(f"one client and {CLIENTS}, {count} questions each")
        rates = clients(engine, count, arguments.max_tokens, cores)
        tell("every picture twice")
        again = repeated(engine, max(8, count // 4), arguments.max_tokens)
        tell("with and without a photo of 12 megapixels")
        mixed = photo(engine, count, arguments.max_tokens)
        engine.close(5)
        figures = {
            "model": describe_model(Bundle.open(path)),
            "cores": cores,
            "clients": rates,
            "repeated": again,
            "photo": mixed,
        }
        bars = [
            Bar(f"{CLIENTS} clients' pictures per second over one client's", rates["ratio"], 2.5),
            Bar("time to the first token, repeated over new picture", again["ratio"], 0.35, at_most=True),
            Bar("99th percentile with a 12 MP photo in the mix over without", mixed["ratio"], 3.0, at_most=True),
        ]
        if arguments.checkpoint:
            tell("transformers")
            best = transformers_best(arguments.checkpoint.resolve(), cores, min(count, 40), arguments.max_tokens)
            figures["transformers_images_per_s"] = best
            bars.append(
                Bar(f"{CLIENTS} clients' pictures per second over transformers' best", rates["many"] / best, 2.0)
            )
    return figures, bars


def clients(engine: Engine, count: int, max_tokens: int, cores: int) -> dict[str, float]:
    """Pictures per second of one client and of many, over distinct pictures, in turns of four blocks."""
    block = max(CLIENTS, count // 4)
    seconds: dict[int, list[float]] = {1: [], CLIENTS: []}
    processor: dict[int, list[float]] = {1: [], CLIENTS: []}
    for turn in range(4):
        for clients_now in (1, CLIENTS) if turn % 2 else (CLIENTS, 1):
            items = generated_items(block, seed=1000 + 10 * turn + clients_now)
            started, computed = time.perf_counter(), time.process_time()
            with ThreadPoolExecutor(clients_now) as pool:
                list(pool.map(lambda item: answer_once(engine, request_of(item, max_tokens)), items))
            seconds[clients_now].append((time.perf_counter() - started) / block)
            processor[clients_now].append((time.process_time() - computed) / block)
    one, many = median(seconds[1]), median(seconds[CLIENTS])
    busy_one, busy_many = median(processor[1]), median(processor[CLIENTS])
    figures = {
        "one": round(1 / one, 2),
        "many": round(1 / many, 2),
        "ratio": round(one / many, 3),
        "processor_ms_one": round(1e3 * busy_one, 1),
        "processor_ms_many": round(1e3 * busy_many, 1),
        "cores_used_one": round(busy_one / one, 2),
        "cores_used_many": round(busy_many / many, 2),
    }
    if busy_many / many > BUSY * cores:  # else others had the cores, and one client's time is theirs, too
        figures["ceiling"] = round(one * cores / busy_many, 2)
    return figures


def repeated(engine: Engine, count: int, max_tokens: int) -> dict[str, float]:
    """Median seconds to the first token for a new picture, and for the same one with another question."""
    first, second = [], []
    for item in generated_items(count, seed=7):
        first.append(answer_once(engine, request_of(item, max_tokens))[1].stages.first_token_s)
        other = Item(item.name, item.image, "Is there anything unusual about it?")
        second.append(answer_once(engine, request_of(other, max_tokens))[1].stages.first_token_s)
    new, old = median(first), median(second)
    return {"new_ms": round(1e3 * new, 2), "repeated_ms": round(1e3 * old, 2), "ratio": round(old / new, 3)}


def photo(engine: Engine, count: int, max_tokens: int) -> dict[str, float]:
    """The 99th percentile of latency of four clients with small pictures, alone and beside one with a large photo."""
    large = large_photo()
    found = {}
    for name, busy in (("without", False), ("with", True)):
        over = threading.Event()
        asking = threading.Thread(target=_keep_asking, args=(engine, large, over)) if busy else None
        if asking:
            asking.start()
        items = generated_items(count, seed=31 + busy)
        with ThreadPoolExecutor(4) as pool:
            latencies = list(pool.map(lambda item: _latency(engine, item, max_tokens), items))
        over.set()
        if asking:
            asking.join()
        found[name] = percentile(latencies, 99)
    ratio = found["with"] / found["without"]
    return {f"p99_{name}_ms": round(1e3 * value, 1) for name, value in found.items()} | {"ratio": round(ratio, 3)}


def large_photo() -> bytes:
    """A scene of 4000 x 3000 pixels, as a camera sends it."""
    pixels = scenes.scene(np.random.default_rng(5), 750, 1000).pixels
    out = io.BytesIO()
    Image.fromarray(pixels).resize((4000, 3000), Image.Resampling.BICUBIC).save(out, "JPEG", quality=90)
    return out.getvalue()


def _keep_asking(engine: Engine, image: bytes, over: threading.Event) -> None:
    number = 0
    while not over.is_set():
        number += 1
        # A comment of another length makes it another file: nothing of it is known from before.
        fresh = image[:2] + b"\xff\xfe" + (2 + number % 200).to_bytes(2, "big") + b"x" * (number % 200) + image[2:]
        answer_once(engine, request_of(Item("photo", fresh, "What defect is on this surface?"), 4))
        time.sleep(0.2)


def _latency(engine: Engine, item: Item, max_tokens: int) -> float:
    started = time.perf_counter()
    answer_once(engine, request_of(item, max_tokens))
    return time.perf_counter() - started


def transformers_best(checkpoint: Path, cores: int, count: int, max_tokens: int) -> float:
    """Pictures per second, one after the other: it has no batching across requests to do better with."""
    rival = Remote("transformers", "transformers", Setup(checkpoint, cores, max_tokens))
    try:
        rival.run(generated_items(3, seed=1), 1)
        started = time.perf_counter()
        rival.run(generated_items(count, seed=2), 1)
        return round(count / (time.perf_counter() - started), 3)
    finally:
        rival.close()


SCRIPT = Script("e1", "load", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
