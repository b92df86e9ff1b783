"""Hot patch under load: clients ask without pause while the vision tower's weights are replaced and rolled back.

Counted: requests that fail, replies that are not, to the letter, what the weights they name would have answered alone,
and for how long no client got anything while a switch was made, over the same in as long a time right after it without
one (the median of such pairs). The new weights are the served ones with
noise, so that answers differ: otherwise a mixed reply could not be told.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foveola.artifact import Bundle
from foveola.bench.evidence import Bar, Script, Tell
from foveola.bench.local import request_of
from foveola.bench.machine import pinned
from foveola.bench.model import describe_model
from foveola.bench.sample import Item
from foveola.bench.stats import percentile
from foveola.bench.work import generated_items
from foveola.engine.engine import Engine
from foveola.engine.once import answer_once
from foveola.engine.options import EngineOptions, usable_cores
from foveola.engine.patch_file import read_state_dict
from foveola.serve.embedded import embedded_bundle

PAUSE_MS = 50.0
SETTLE_S = 0.25  # behind each switch, and before the first


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", required=True, help="where the weights come from")
    parser.add_argument("--bundle", type=Path, metavar="DIR", help="default: the embedded model")
    parser.add_argument("--clients", type=int, metavar="N", default=8)
    parser.add_argument("--switches", type=int, metavar="N", default=20, help="patches and rollbacks together")
    parser.add_argument("--noise", type=float, metavar="X", default=1.0, help="relative to each tensor's own spread")
    parser.add_argument("--max-tokens", type=int, metavar="N", default=16)
    parser.add_argument("--cores", type=int, metavar="N", default=2)


def run(arguments: argparse.Namespace, tell: Tell) -> tuple[dict[str, Any], Sequence[Bar]]:
    switches = 4 if arguments.quick else arguments.switches
    cores = min(arguments.cores, usable_cores())
    path = (arguments.bundle or embedded_bundle()).resolve()
    items = generated_items(12)
    weights = noisy(read_state_dict(arguments.checkpoint.resolve() / "model.safetensors"), arguments.noise)
    with pinned(cores):
        engine = Engine.open(path, EngineOptions(threads=cores))
        tell("answers of either weights, alone")
        alone = {engine.model_hash: answers(engine, items, arguments.max_tokens)}
        done = engine.replace_submodule(module_path="visual", new_state_dict=weights)
        alone[engine.model_hash] = answers(engine, items, arguments.max_tokens)
        engine.rollback()
        tell(f"{arguments.clients} clients, {switches} switches")
        load = Load(engine, items, alone, arguments.max_tokens)
        pairs, seconds = load.under(arguments.clients, switches, weights)
        engine.close(5)
    (old, new) = alone.values()
    silences = [(load.silence_ms(*during), load.silence_ms(*after)) for during, after in pairs]
    excess = max(0.0, percentile([during - after for during, after in silences], 50))
    figures = {
        "model": describe_model(Bundle.open(path)),
        "clients": arguments.clients,
        "switches": switches,
        "replies": load.replies,
        "answers_that_differ": sum(a != b for a, b in zip(old, new, strict=True)),
        "questions": len(items),
        "patch_s": {"median": round(percentile(seconds, 50), 3), "max": round(max(seconds), 3)},
        "tensors": done.tensors,
        "longest_silence_ms": {
            "while_switching": round(percentile([during for during, _ in silences], 50), 1),
            "right_after": round(percentile([after for _, after in silences], 50), 1),
        },
    }
    bars = (
        Bar("questions that the two weights answer differently", float(figures["answers_that_differ"]), 1),
        Bar("requests that failed", float(len(load.failures)), 0, at_most=True),
        Bar("replies of mixed or wrong weights", float(load.mixed), 0, at_most=True),
        Bar("pause of a switch beyond the usual silence, ms", excess, PAUSE_MS, at_most=True),
    )
    return figures | {"failures": sorted(set(load.failures))}, bars


def noisy(weights: dict[str, Any], noise: float) -> dict[str, Any]:
    """The tower's matrices with noise; the rest as it is."""
    random = np.random.default_rng(0)
    tower = {name.partition("visual.")[2]: value for name, value in weights.items() if "visual." in name}
    return {
        name: value + noise * value.std() * random.standard_normal(value.shape).astype(np.float32)
        if value.ndim > 1
        else value
        for name, value in tower.items()
    }


def answers(engine: Engine, items: list[Item], max_tokens: int) -> list[str]:
    return [answer_once(engine, request_of(item, max_tokens))[0] for item in items]


Span = tuple[float, float]
Pair = tuple[Span, Span]


class Load:
    """Clients that ask one question after the other until they are told to stop."""

    def __init__(self, engine: Engine, items: list[Item], alone: dict[str, list[str]], max_tokens: int) -> None:
        self._engine, self._items, self._alone, self._max_tokens = engine, items, alone, max_tokens
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.arrivals: list[float] = []
        self.failures: list[str] = []
        self.mixed = self.replies = 0

    def under(self, clients: int, switches: int, weights: dict[str, Any]) -> tuple[list[Pair], list[float]]:
        """Patch and roll back in turn while the clients ask: when each was made and an equal time without, and the
        seconds that a patch took."""
        threads = [threading.Thread(target=self._client, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        time.sleep(4 * SETTLE_S)
        pairs: list[Pair] = []
        seconds = []
        for number in range(switches):
            begin = time.perf_counter()
            if number % 2:
                self._engine.rollback()
            else:
                seconds.append(self._engine.replace_submodule("visual", weights).seconds)
            time.sleep(SETTLE_S)
            middle = time.perf_counter()
            time.sleep(middle - begin)
            pairs.append(((begin, middle), (middle, time.perf_counter())))
        self._over.set()
        for thread in threads:
            thread.join()
        return pairs, seconds

    def _client(self, number: int) -> None:
        asked = number
        while not self._over.is_set():
            asked += 1
            which = asked % len(self._items)
            text, model_hash = "", ""
            try:
                for piece in self._engine.pieces(request_of(self._items[which], self._max_tokens)):
                    with self._lock:
                        self.arrivals.append(time.perf_counter())
                    text += piece.text
                    model_hash = piece.usage.model_hash if piece.usage else model_hash
            except Exception as error:  # noqa: BLE001 - counted
                self.failures.append(str(error))
                continue
            with self._lock:
                self.replies += 1
                self.mixed += self._alone.get(model_hash, [""] * len(self._items))[which] != text

    def silence_ms(self, begin: float, end: float) -> float:
        """The longest time in this span in which no client got anything."""
        at = np.asarray(sorted(self.arrivals))
        inside = at[(at > begin) & (at < end)]
        return 1e3 * float(np.diff([begin, *inside, end]).max())


SCRIPT = Script("e6", "patch", __doc__, run, add_arguments)

if __name__ == "__main__":
    raise SystemExit(SCRIPT.main(Path(__file__).parent))
