"""The engine in the process that asks: no HTTP between question and answer."""

from __future__ import annotations

import time
from collections.abc import Sequence

from foveola.artifact import Bundle
from foveola.bench.contender import Setup, drive
from foveola.bench.sample import Block, Item, Sample
from foveola.engine.engine import Engine
from foveola.engine.options import EngineOptions
from foveola.exchange import Piece, Request, Sampling, Stages, Turn, Unavailable


def request_of(item: Item, max_tokens: int) -> Request:
    """The greedy request that asks an item."""
    return Request(item.name, (Turn("user", item.text, (item.image,)),), Sampling(max_tokens=max_tokens))


def stages_of(stages: Stages) -> dict[str, float]:
    """Seconds per stage, under the names of ``sample.STAGES``."""
    return {
        "decode_image": stages.decode_image_s,
        "preprocess": stages.preprocess_s,
        "vision": stages.vision_s,
        "prefill": stages.prefill_s,
        "decode": stages.decode_s,
    }


class LocalEngine:
    """Asks an engine directly. Close it, or use it as a context."""

    def __init__(self, setup: Setup) -> None:
        """Open the bundle ``setup.source``. Raises ``Damaged``."""
        self._engine = Engine.open(Bundle.open(setup.source), EngineOptions(threads=setup.threads))
        self._max_tokens = setup.max_tokens

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, item: Item) -> Sample:
        """One answer, timed where a caller of the engine stands. Raises what the engine refuses."""
        request = request_of(item, self._max_tokens)
        started = time.perf_counter()
        first_s = 0.0
        texts: list[str] = []
        last: Piece | None = None
        for last in self._engine.pieces(request):
            if not first_s:
                first_s = time.perf_counter() - started
            texts.append(last.text)
        latency_s = time.perf_counter() - started
        if last is None or last.usage is None:
            raise Unavailable("The engine stopped in the middle of an answer.")
        return Sample("".join(texts), latency_s, first_s, last.usage.completion_tokens, stages_of(last.usage.stages))

    def run(self, items: Sequence[Item], concurrency: int) -> Block:
        """See ``Contender.run``."""
        return drive(self.ask, items, concurrency)

    def close(self) -> None:
        """Free the engine."""
        self._engine.close(0.0)
