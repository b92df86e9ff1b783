"""From a bundle on disk to something that is served: the one place of this room that knows the real engine."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foveola.drift.options import DriftOptions
from foveola.exchange import Answer, Piece, Request, Unavailable
from foveola.guard.options import GuardOptions
from foveola.observe.trace_options import TraceOptions
from foveola.serve import log
from foveola.serve.dual_options import SecondOptions
from foveola.serve.options import ServeOptions
from foveola.serve.second import with_second
from foveola.serve.service import Served

if TYPE_CHECKING:
    from foveola.artifact import Bundle
    from foveola.drift.watch import DriftWatch, Event
    from foveola.engine.engine import Engine
    from foveola.engine.options import EngineOptions
    from foveola.guard.verdict import Verdict
    from foveola.observe.traces import Tracing


CLOSE_S = 1.0  # the server has drained before it closes the engine: nobody is waiting any more


def load(
    bundle_path: Path,
    *,
    region: str = "",
    guard: GuardOptions | None = None,
    options: ServeOptions | None = None,
    engine_options: EngineOptions | None = None,
    second: SecondOptions | None = None,
    drift: DriftOptions | None = None,
    traces: TraceOptions | None = None,
) -> Served:
    """Open the bundle, start what the role asks for, put guards and observer around it.

    Blocks; raises ``Damaged``, or ``Unavailable`` where a service that is needed does not answer.
    """
    # Imported here, in the thread that loads, so that the port answers before the runtime is there.
    from foveola.artifact import Bundle
    from foveola.guard.guards import Guards
    from foveola.observe import Metrics, Watch, afterwards, definitions, observed
    from foveola.observe.accuracy import Accuracy
    from foveola.serve.drift import watching
    from foveola.serve.watchers import VerdictLog

    options = options or ServeOptions()
    guards = Guards.open(guard or GuardOptions())  # first: a server that cannot guard must not load a model
    if guards.words is not None:
        log.scrub_with(guards.scrub)
    bundle = Bundle.open(bundle_path)
    if options.role == "vision":
        return _seeing(bundle, engine_options)
    engine = _engine(bundle, options, engine_options)
    metrics = Metrics(model_hash=bundle.model_hash, region=region)
    metrics.watch_queue(lambda: engine.health().queued, lambda: engine.health().active)
    accuracy = Accuracy()
    metrics.watch_accuracy(accuracy)
    verdicts = VerdictLog() if guards.active else None
    watch = _drift(drift)
    tracing = _tracing(traces, bundle, region)
    optional = (watching(watch, metrics, frames=guards.deidentifier is None) if watch is not None else None, tracing)
    watches: list[Watch] = [metrics, accuracy, *(afterwards(one) for one in optional if one is not None)]

    def tell(verdict: Verdict) -> None:
        metrics.count(definitions.VERDICTS, guard=verdict.guard, outcome=verdict.outcome)
        if verdicts is not None:
            verdicts(verdict)
        _tell(verdict)

    def around(answer: Answer) -> Answer:
        """The one place where an answer is wrapped, whoever gives it and under whatever name it is asked for."""
        return observed(guards.around(answer, tell), *watches)

    served = Served(
        bundle.name,
        bundle.model_hash,
        _created(bundle),
        around(engine),
        ailment=lambda: guards.ailment() or engine.health().ailment,
        close=lambda: _close(engine, watch, tracing),
        metrics=metrics.render,
        count=guards.counting(engine.count, tell),
        gateways=guards.gateways,
        patching=engine if options.role == "all" else None,
        selects=bundle.model.get("select") is not None,
        accuracy=accuracy,
        drift=watch,
        verdicts=verdicts,
        traces=tracing is not None,
    )
    return served if second is None or not second.wanted else with_second(served, engine, second, around)


def _engine(bundle: Bundle, options: ServeOptions, engine_options: EngineOptions | None) -> Engine:
    """The engine of this role: it sees for itself, or through a vision service."""
    from foveola.engine.engine import Engine

    if options.role == "all":
        return Engine.open(bundle, engine_options, prompts_dir=options.prompts_dir, draft=options.draft)
    from foveola.engine.afar import AfarPreparation
    from foveola.engine.sessions import version_of
    from foveola.serve.afar import VisionClient

    client = VisionClient(options.vision_url, key_in(options.vision_key_file), options.answer_timeout_s)
    preparation = AfarPreparation.open(bundle, prompts_dir=options.prompts_dir)
    assert isinstance(preparation, AfarPreparation)
    afar = preparation.asking(client, version_of(bundle, {}).vision)
    return Engine.open(bundle, engine_options, preparation=afar, sees=False, draft=options.draft)


def _seeing(bundle: Bundle, engine_options: EngineOptions | None) -> Served:
    """The vision half: it answers no questions, and says so."""
    from foveola.engine.options import EngineOptions
    from foveola.engine.seer import Seer

    seer = Seer(bundle, engine_options or EngineOptions())

    async def refuse(request: Request) -> AsyncIterator[Piece]:
        raise Unavailable("This server only sees; ask the language service that it works for.")
        yield

    return Served(bundle.name, bundle.model_hash, _created(bundle), refuse, see=seer)


def key_in(file: Path | None) -> str:
    """The key in a file, nothing where none is named. Raises ``Unavailable``."""
    if file is None:
        return ""
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise Unavailable(f"The key in {file.name} cannot be read; name a file with a key in it.") from None


def _created(bundle: Bundle) -> int:
    return int(datetime.fromisoformat(bundle.created).timestamp())


def _tell(verdict: Verdict) -> None:
    if verdict.outcome != "passed":
        told: dict[str, Any] = {"guard": verdict.guard, "outcome": verdict.outcome, **verdict.detail}
        log.event(logging.INFO, "verdict", id=verdict.id, route=verdict.route, **told)


def _drift(options: DriftOptions | None) -> DriftWatch | None:
    """A watch over the pictures, where there is a reference for them. Raises ``Damaged``."""
    from foveola.drift.watch import DriftWatch

    return DriftWatch(options, (_tell_drift,)) if options is not None and options.reference is not None else None


def _tell_drift(found: Event) -> None:
    log.event(logging.WARNING, "drift", id=found.request, **asdict(found.alarm))


def _tracing(options: TraceOptions | None, bundle: Bundle, region: str) -> Tracing | None:
    """Spans to a collector, where one is named. Raises ``Unavailable`` without the packages for it."""
    if options is None or not options.endpoint:
        return None
    try:
        from foveola.observe.traces import Tracing
    except ModuleNotFoundError:
        raise Unavailable(
            "Traces need packages that are not installed: pip install 'foveola[traces]', or unset the endpoint."
        ) from None
    return Tracing.over_http(options.endpoint, model=bundle.model_hash, region=region)


def _close(engine: Engine, watch: DriftWatch | None, tracing: Tracing | None) -> None:
    engine.close(CLOSE_S)
    if watch is not None:
        watch.save()
    if tracing is not None:
        tracing.close()
