"""The bridge as a whole: an instruction in, and what became of it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest

from foveola.bridge.context import ContextBook, Event
from foveola.bridge.encoder import Encoder, e5_encoder
from foveola.bridge.intents import load_intents
from foveola.bridge.kafka import KafkaOptions, Relay, ensure_topics
from foveola.bridge.normalise import Normaliser
from foveola.bridge.options import BridgeOptions
from foveola.bridge.outbox import Outbox
from foveola.bridge.payload import BridgePayload, RawInstruction
from foveola.bridge.review import ReviewQueue
from foveola.bridge.score import load_calibration
from foveola.bridge.sources import load_sources


def _count(counts: Callable[[], dict[str, int]], state: str) -> float:
    return counts().get(state, 0)


class Desk:
    """Everything of the bridge that runs in one process, with its figures for Prometheus."""

    def __init__(self, options: BridgeOptions, *, encode: Encoder | None = None) -> None:
        """Open the files and connect. Raises ``Invalid`` for files that are not what they should be."""
        if options.sources is None:
            raise ValueError("`sources` names no file; the bridge needs one.")
        intents = load_intents(options.intents)
        self.sources = load_sources(options.sources, intents)
        self.contexts = ContextBook()
        self.normalise = Normaliser(
            intents, self.sources, self.contexts, encode or e5_encoder(), load_calibration(options.calibration)
        )
        self.outbox = Outbox(options.data / "outbox.db")
        self.reviews = ReviewQueue(
            options.data / "reviews.db", intents, self.sources, self.outbox,
            expire_s=options.review_expire_s, claim_s=options.claim_s,
        )  # fmt: skip
        self._relay: Relay | None = None
        if options.bootstrap:
            kafka = KafkaOptions(options.bootstrap)
            ensure_topics(kafka)
            self._relay = Relay(self.outbox, kafka)
            self._relay.start()
        self._register()

    def _register(self) -> None:
        self.registry = registry = CollectorRegistry()
        self._taken = Counter(
            "bridge_instructions", "Instructions by what became of them.", ("kind", "verdict", "intent"),
            registry=registry,
        )  # fmt: skip
        waiting = Gauge("bridge_outbox", "Commands by state.", ("state",), registry=registry)
        for state in self.outbox.counts():
            waiting.labels(state).set_function(partial(_count, self.outbox.counts, state))
        reviews = Gauge("bridge_reviews", "Reviews by state.", ("state",), registry=registry)
        for state in self.reviews.counts():
            reviews.labels(state).set_function(partial(_count, self.reviews.counts, state))

    def take(self, raw: RawInstruction) -> BridgePayload:
        """Understand an instruction and put it where it belongs. The same id twice has one effect."""
        payload = self.normalise(raw)
        if payload.verdict == "send":
            self.outbox.put(payload)
        elif payload.verdict == "review":
            self.reviews.put(payload)
        elif payload.verdict == "denied":
            self.reviews.note(payload)
        kind = self.sources[raw.src_id].kind
        self._taken.labels(kind, payload.verdict, payload.resolved_intent or "denied").inc()
        return payload

    def observe(self, event: Event) -> None:
        """A lot came or went, an object was seen."""
        self.contexts.observe(event)

    def metrics(self) -> bytes:
        """Figures in Prometheus' text format."""
        return generate_latest(self.registry)

    def close(self) -> None:
        """Stop sending, close the files; what waits stays on disk."""
        if self._relay is not None:
            self._relay.stop()
        self.reviews.close()
        self.outbox.close()
