"""From a bundle on disk to something that is served: the one place of this room that knows the real engine."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foveola.guard.options import GuardOptions
from foveola.serve import log
from foveola.serve.service import Served

if TYPE_CHECKING:
    from foveola.engine.engine import Engine
    from foveola.guard.verdict import Verdict


CLOSE_S = 1.0  # the server has drained before it closes the engine: nobody is waiting any more


def load(bundle_path: Path, *, region: str = "", guard: GuardOptions | None = None) -> Served:
    """Open the bundle, start an engine on it, put guards and observer around it. Blocks; raises ``Damaged``."""
    # Imported here, in the thread that loads, so that the port answers before the runtime is there.
    from foveola.artifact import Bundle
    from foveola.engine.engine import Engine
    from foveola.guard.guards import Guards
    from foveola.observe import Metrics, observed

    guards = Guards.open(guard or GuardOptions())  # first: a server that cannot guard must not load a model
    if guards.words is not None:
        log.scrub_with(guards.scrub)
    bundle = Bundle.open(bundle_path)
    engine = Engine.open(bundle)
    metrics = Metrics(model_hash=bundle.model_hash, region=region)
    metrics.watch_queue(lambda: engine.health().queued, lambda: engine.health().active)
    return Served(
        bundle.name,
        bundle.model_hash,
        int(datetime.fromisoformat(bundle.created).timestamp()),
        observed(guards.around(engine, _tell), metrics),
        ailment=lambda: guards.ailment() or engine.health().ailment,
        close=lambda: _close(engine),
        metrics=metrics.render,
        count=engine.count,
        gateways=guards.gateways,
        patching=engine,
    )


def _tell(verdict: Verdict) -> None:
    if verdict.outcome != "passed":
        told: dict[str, Any] = {"guard": verdict.guard, "outcome": verdict.outcome, **verdict.detail}
        log.event(logging.INFO, "verdict", id=verdict.id, route=verdict.route, **told)


def _close(engine: Engine) -> None:
    engine.close(CLOSE_S)
